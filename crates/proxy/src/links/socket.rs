//! A connection to a server behind the proxy, with TLS if `tls-cluster` says so.

use crate::serve::Proxy;
use crate::upstream::Node;
use net::accept;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

/// One connection.
pub enum Socket {
    Plain(TcpStream),
    Secure(Box<TlsStream<TcpStream>>),
}

impl Socket {
    /// Connects, and agrees on keys if that is to be.
    ///
    /// # Errors
    /// Those of the system and of TLS.
    pub async fn connect(proxy: &Proxy, server: &Node) -> io::Result<Socket> {
        let config = &proxy.host.engine.config;
        let socket = TcpStream::connect((&*server.host, server.port)).await?;
        accept::tune(&socket, config.tcp_keepalive_s())?;
        if !config.tls_cluster() {
            return Ok(Socket::Plain(socket));
        }
        let context = proxy.host.net.tls.contexts().and_then(|contexts| contexts.client.clone());
        let context =
            context.ok_or_else(|| io::Error::other("tls-cluster is yes, and there are no certificates"))?;
        // Its name is not looked at, and it is not asked for one of several.
        let name = ServerName::IpAddress(socket.peer_addr()?.ip().into());
        let stream = TlsConnector::from(context).connect(name, socket).await?;
        Ok(Socket::Secure(Box::new(stream)))
    }

    /// What is below.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Socket::Plain(socket) => socket,
            Socket::Secure(stream) => stream.get_ref().0,
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(socket) => Pin::new(socket).poll_read(context, buffer),
            Socket::Secure(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Plain(socket) => Pin::new(socket).poll_write(context, bytes),
            Socket::Secure(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(socket) => Pin::new(socket).poll_flush(context),
            Socket::Secure(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(socket) => Pin::new(socket).poll_shutdown(context),
            Socket::Secure(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
