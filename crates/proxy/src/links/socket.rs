//! A connection to a server behind the proxy, with TLS if `tls-cluster` says so.

use crate::serve::Proxy;
use crate::upstream::Node;
use net::accept;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

/// One connection.
pub enum Socket {
    Plain(Counted),
    Secure(Box<TlsStream<Counted>>),
}

/// What is below, with a count of what the system has taken.
pub struct Counted {
    stream: TcpStream,
    sent: u64,
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
            return Ok(Socket::Plain(Counted { stream: socket, sent: 0 }));
        }
        let context = proxy.host.net.tls.contexts().and_then(|contexts| contexts.client.clone());
        let context =
            context.ok_or_else(|| io::Error::other("tls-cluster is yes, and there are no certificates"))?;
        // Its name is not looked at, and it is not asked for one of several.
        let name = ServerName::IpAddress(socket.peer_addr()?.ip().into());
        let stream = TlsConnector::from(context).connect(name, Counted { stream: socket, sent: 0 }).await?;
        Ok(Socket::Secure(Box::new(stream)))
    }

    /// What is below.
    pub fn tcp(&self) -> &TcpStream {
        &self.counted().stream
    }

    /// How many bytes the system has taken, as they go over the network.
    pub fn sent(&self) -> u64 {
        self.counted().sent
    }

    fn counted(&self) -> &Counted {
        match self {
            Socket::Plain(socket) => socket,
            Socket::Secure(stream) => stream.get_ref().0,
        }
    }
}

impl Counted {
    fn count(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.sent += *bytes as u64;
        }
        written
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

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.count(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.count(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
