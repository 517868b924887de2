//! The sockets that clients come by.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A client's socket.
pub enum Stream {
    /// TCP.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
}

/// A socket that no runtime watches; it does not block.
pub enum Unwatched {
    /// TCP.
    Tcp(std::net::TcpStream),
    /// A Unix socket.
    Unix(std::os::unix::net::UnixStream),
}

impl Stream {
    /// Has this thread's runtime watch a socket.
    ///
    /// # Errors
    /// The system refuses.
    pub fn watch(socket: Unwatched) -> io::Result<Stream> {
        Ok(match socket {
            Unwatched::Tcp(socket) => Stream::Tcp(TcpStream::from_std(socket)?),
            Unwatched::Unix(socket) => Stream::Unix(UnixStream::from_std(socket)?),
        })
    }

    /// Takes the socket away from the runtime.
    ///
    /// # Errors
    /// The system refuses.
    pub fn into_unwatched(self) -> io::Result<Unwatched> {
        Ok(match self {
            Stream::Tcp(stream) => Unwatched::Tcp(stream.into_std()?),
            Stream::Unix(stream) => Unwatched::Unix(stream.into_std()?),
        })
    }

    /// Reads into a buffer of fixed length; 0 bytes is the end of the stream.
    pub fn poll_read(&mut self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(into);
        let poll = match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(context, &mut buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(context, &mut buffer),
        };
        poll.map_ok(|()| buffer.filled().len())
    }

    /// Reads behind what `into` holds, making room for `room` bytes first if there
    /// is none. Costs nothing but the bytes that are read, however much room there is.
    pub fn poll_read_to_end_of(
        &mut self,
        context: &mut Context<'_>,
        into: &mut Vec<u8>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(match self {
                Stream::Tcp(stream) => stream.poll_read_ready(context),
                Stream::Unix(stream) => stream.poll_read_ready(context),
            })?;
            if into.len() == into.capacity() {
                into.reserve_exact(room);
            }
            let read = match self {
                Stream::Tcp(stream) => stream.try_read_buf(into),
                Stream::Unix(stream) => stream.try_read_buf(into),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
        }
    }

    /// Writes what the socket takes now.
    pub fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    /// Ends the stream to the client, and throws away up to `bytes_max` bytes that it has
    /// sent: a socket closed with unread bytes would take back replies that are on their way.
    pub fn finish(&self, scratch: &mut [u8], bytes_max: usize) {
        let socket = match self {
            Stream::Tcp(stream) => socket2::SockRef::from(stream),
            Stream::Unix(stream) => socket2::SockRef::from(stream),
        };
        // The client may be gone already.
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut thrown_away = 0;
        while thrown_away < bytes_max {
            let read = match self {
                Stream::Tcp(stream) => stream.try_read(scratch),
                Stream::Unix(stream) => stream.try_read(scratch),
            };
            match read {
                Ok(bytes @ 1..) => thrown_away += bytes,
                _ => return,
            }
        }
    }
}
