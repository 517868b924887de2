//! A connection that has just come.

use crate::stream::Unwatched;
use crate::stream::secure::UnwatchedSecure;
use crate::tls::Session;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// A connection on its way to a worker.
pub struct Accepted {
    /// The client's number, in the order of arrival.
    pub id: u64,
    /// The worker that it belongs to.
    pub home: usize,
    /// What it came by.
    pub socket: AcceptedSocket,
}

/// A socket that has been accepted.
pub enum AcceptedSocket {
    /// By TCP.
    Tcp {
        /// The socket, not blocking.
        socket: TcpStream,
        /// The other end.
        peer: SocketAddr,
        /// The client's session, if it speaks TLS.
        session: Option<Box<Session>>,
    },
    /// By the Unix socket.
    Unix {
        /// The socket, not blocking.
        socket: UnixStream,
        /// Where the server listens.
        path: PathBuf,
    },
}

impl AcceptedSocket {
    /// The socket alone.
    pub fn into_unwatched(self) -> Unwatched {
        match self {
            AcceptedSocket::Tcp { socket, session: None, .. } => Unwatched::Tcp(socket),
            AcceptedSocket::Tcp { socket, session: Some(session), .. } => {
                Unwatched::Secure(Box::new(UnwatchedSecure::new(socket, *session)))
            }
            AcceptedSocket::Unix { socket, .. } => Unwatched::Unix(socket),
        }
    }

    /// The other end's address and this end's, as CLIENT LIST shows them.
    pub fn addresses(&self) -> (String, String) {
        match self {
            AcceptedSocket::Tcp { socket, peer, .. } => (
                peer.to_string(),
                socket.local_addr().map_or_else(|_| "?:0".to_owned(), |address| address.to_string()),
            ),
            AcceptedSocket::Unix { path, .. } => {
                let address = format!("{}:0", path.display());
                (address.clone(), address)
            }
        }
    }
}
