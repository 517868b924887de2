//! The sockets that clients come by.

pub mod secure;

use secure::{Scratch, Secure, UnwatchedSecure};
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
    /// TCP with TLS.
    Secure(Box<Secure>),
}

/// A socket that no runtime watches; it does not block.
pub enum Unwatched {
    /// TCP.
    Tcp(std::net::TcpStream),
    /// A Unix socket.
    Unix(std::os::unix::net::UnixStream),
    /// TCP with TLS.
    Secure(Box<UnwatchedSecure>),
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
            Unwatched::Secure(stream) => Stream::Secure(Box::new(Secure::watch(*stream)?)),
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
            Stream::Secure(stream) => Unwatched::Secure(Box::new(stream.into_unwatched()?)),
        })
    }

    /// TLS, where the client speaks it.
    pub fn secure(&self) -> Option<&Secure> {
        match self {
            Stream::Secure(stream) => Some(stream),
            Stream::Tcp(_) | Stream::Unix(_) => None,
        }
    }

    /// Whether nothing can be read or written before keys are agreed on.
    #[inline]
    pub fn is_handshaking(&self) -> bool {
        self.secure().is_some_and(|stream| stream.session().is_handshaking())
    }

    /// Bytes that were written and that the socket has yet to take.
    #[inline]
    pub fn unsent_bytes(&self) -> usize {
        self.secure().map_or(0, Secure::unsent_bytes)
    }

    /// Bytes that it has allocated for what is on its way in and out.
    #[inline]
    pub fn allocated_bytes(&self) -> (usize, usize) {
        self.secure().map_or((0, 0), Secure::allocated_bytes)
    }

    /// Has the socket take what was written before. Ready: all of that is out.
    ///
    /// # Errors
    /// The socket fails.
    #[inline]
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(_) | Stream::Unix(_) => Poll::Ready(Ok(())),
            Stream::Secure(stream) => stream.poll_flush(context),
        }
    }

    /// Reads into a buffer of fixed length, with TLS of at least [`secure::SEALED_BYTES`]; 0 bytes is the end of the stream.
    pub fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        into: &mut [u8],
        scratch: &mut Scratch,
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(into);
        let poll = match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(context, &mut buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(context, &mut buffer),
            Stream::Secure(stream) => {
                return stream.poll_read(context, scratch, |piece| buffer.put_slice(piece));
            }
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
        scratch: &mut Scratch,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(match self {
                Stream::Tcp(stream) => stream.poll_read_ready(context),
                Stream::Unix(stream) => stream.poll_read_ready(context),
                Stream::Secure(stream) => {
                    return stream.poll_read(context, scratch, |piece| {
                        if into.capacity() - into.len() < piece.len() {
                            into.reserve_exact(room.max(piece.len()));
                        }
                        into.extend_from_slice(piece);
                    });
                }
            })?;
            if into.len() == into.capacity() {
                into.reserve_exact(room);
            }
            let read = match self {
                Stream::Tcp(stream) => stream.try_read_buf(into),
                Stream::Unix(stream) => stream.try_read_buf(into),
                Stream::Secure(_) => unreachable!("it has been read from above"),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
        }
    }

    /// Writes what the socket takes now; with TLS it may keep a part itself, see [`Stream::unsent_bytes`].
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
        scratch: &mut Scratch,
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Secure(stream) => stream.poll_write(context, bytes, scratch),
        }
    }

    /// Tells the client that nothing more comes, where there is a word for that and the socket takes it at once.
    pub fn say_end(&mut self) {
        if let Stream::Secure(stream) = self {
            stream.say_end();
        }
    }

    /// Ends the stream to the client, and throws away up to `bytes_max` bytes that it has
    /// sent: a socket closed with unread bytes would take back replies that are on their way.
    pub fn finish(&mut self, scratch: &mut [u8], bytes_max: usize) {
        self.say_end();
        let socket = match &*self {
            Stream::Tcp(stream) => socket2::SockRef::from(stream),
            Stream::Unix(stream) => socket2::SockRef::from(stream),
            Stream::Secure(stream) => socket2::SockRef::from(stream.socket()),
        };
        // The client may be gone already.
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut thrown_away = 0;
        while thrown_away < bytes_max {
            let read = match self {
                Stream::Tcp(stream) => stream.try_read(scratch),
                Stream::Unix(stream) => stream.try_read(scratch),
                Stream::Secure(stream) => stream.socket().try_read(scratch),
            };
            match read {
                Ok(bytes @ 1..) => thrown_away += bytes,
                _ => return,
            }
        }
    }
}
