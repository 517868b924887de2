//! The sockets that clients come by.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A client's socket.
pub enum Stream {
    /// TCP.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Reads into a buffer of fixed length; 0 bytes is the end of the stream.
    pub fn poll_read(&mut self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(into);
        let poll = match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(context, &mut buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(context, &mut buffer),
        };
        poll.map_ok(|()| buffer.filled().len())
    }

    /// Reads up to `room` bytes behind what `into` holds. The buffer grows by
    /// what was read, not by `room`.
    pub fn poll_read_to_end_of(
        &mut self,
        context: &mut Context<'_>,
        into: &mut Vec<u8>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        let before = into.len();
        into.resize(before + room, 0);
        let poll = self.poll_read(context, &mut into[before..]);
        let read = if let Poll::Ready(Ok(bytes)) = &poll { *bytes } else { 0 };
        into.truncate(before + read);
        poll
    }

    /// Writes what the socket takes now.
    pub fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }
}
