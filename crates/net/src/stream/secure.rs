//! A TCP socket with TLS over it, as one of the streams that clients come by.
//!
//! Bytes go through the worker's [`Scratch`]: one read of the socket is opened at once, and one write is sealed at once. What the
//! socket does not take of sealed bytes stays here, at most one write's.
//!
//! Invariants:
//! 1. Nothing is sealed while `unsent` holds something, but for the session's own answers: bytes leave in the order of their sealing.

use crate::tls::{Progress, Session};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Bytes read of a socket at once. No more than this is said in them.
pub const SEALED_BYTES: usize = 64 << 10;
/// The most that is sealed at once.
const SEALED_AT_ONCE: usize = 64 << 10;
// What has to come first in a read leaves room for more.
const _: () = assert!(SEALED_BYTES > crate::tls::PARTIAL_BYTES_MAX);

/// What a worker's connections with TLS share.
#[derive(Default)]
pub struct Scratch {
    /// What was read last.
    incoming: Vec<u8>,
    /// What was sealed last.
    outgoing: Vec<u8>,
}

/// A socket with TLS.
pub struct Secure {
    socket: TcpStream,
    parts: Parts,
}

/// All of it but the socket.
struct Parts {
    session: Session,
    /// Sealed bytes that the socket has not taken, from `sent` on.
    unsent: Vec<u8>,
    sent: usize,
    is_half_closed: bool,
    /// The end has been said.
    has_ended: bool,
    /// It stands in its worker's line of handshakes.
    waits_for_turn: bool,
}

/// A socket with TLS that no runtime watches.
pub struct UnwatchedSecure {
    socket: std::net::TcpStream,
    parts: Parts,
}

impl UnwatchedSecure {
    /// For a client that has just connected.
    pub fn new(socket: std::net::TcpStream, session: Session) -> UnwatchedSecure {
        let parts = Parts {
            session,
            unsent: Vec::new(),
            sent: 0,
            is_half_closed: false,
            has_ended: false,
            waits_for_turn: false,
        };
        UnwatchedSecure { socket, parts }
    }
}

impl Secure {
    /// Has this thread's runtime watch a socket.
    ///
    /// # Errors
    /// The system refuses.
    pub fn watch(unwatched: UnwatchedSecure) -> io::Result<Secure> {
        let UnwatchedSecure { socket, mut parts } = unwatched;
        // If it stood in line, then at another worker.
        parts.waits_for_turn = false;
        Ok(Secure { socket: TcpStream::from_std(socket)?, parts })
    }

    /// Takes the socket away from the runtime.
    ///
    /// # Errors
    /// The system refuses.
    pub fn into_unwatched(self) -> io::Result<UnwatchedSecure> {
        Ok(UnwatchedSecure { socket: self.socket.into_std()?, parts: self.parts })
    }

    /// The socket below.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// What the two agreed on.
    pub fn session(&self) -> &Session {
        &self.parts.session
    }

    /// Bytes that are sealed and have not been taken by the socket.
    pub fn unsent_bytes(&self) -> usize {
        self.parts.unsent.len() - self.parts.sent
    }

    /// Bytes allocated for what is on its way in and out.
    pub fn allocated_bytes(&self) -> (usize, usize) {
        (self.parts.session.allocated_bytes(), self.parts.unsent.capacity())
    }

    /// Goes on agreeing on keys as far as the client's bytes reach. Each time before it works on some it asks `may_begin`, which sees to
    /// it that this is asked again if not now. What the client has said behind its last word of the handshake goes to `said`.
    ///
    /// # Errors
    /// The socket fails, the client goes away, does not keep to the protocol or may not come in.
    pub fn poll_handshake(
        &mut self,
        context: &mut Context<'_>,
        scratch: &mut Scratch,
        mut may_begin: impl FnMut(&Context<'_>, &mut bool) -> bool,
        mut said: impl FnMut(&[u8]),
    ) -> Poll<io::Result<()>> {
        while self.parts.session.is_handshaking() {
            ready!(self.socket.poll_read_ready(context))?;
            if !may_begin(context, &mut self.parts.waits_for_turn) {
                return Poll::Pending;
            }
            let (room, kept) = self.room(scratch);
            match self.socket.try_read(&mut room[kept..]) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(bytes) => self.open(context, &mut room[..kept + bytes], &mut said)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads what the client says, piece by piece; how many bytes, no more than [`SEALED_BYTES`]. 0 bytes is the end of the stream.
    ///
    /// # Errors
    /// The socket fails; the client does not keep to the protocol.
    pub fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        scratch: &mut Scratch,
        mut said: impl FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        let mut count = 0;
        while count == 0 && !self.parts.is_half_closed {
            let (room, kept) = self.room(scratch);
            let mut buffer = ReadBuf::new(&mut room[kept..]);
            ready!(Pin::new(&mut self.socket).poll_read(context, &mut buffer))?;
            let bytes = buffer.filled().len();
            if bytes == 0 {
                break;
            }
            self.open(context, &mut room[..kept + bytes], |piece| {
                count += piece.len();
                said(piece);
            })?;
        }
        Poll::Ready(Ok(count))
    }

    /// Where to read to, and how much of it is filled with what has to come first.
    fn room<'s>(&self, scratch: &'s mut Scratch) -> (&'s mut [u8], usize) {
        let partial = self.parts.session.partial();
        if scratch.incoming.is_empty() {
            scratch.incoming.resize(SEALED_BYTES, 0);
        }
        scratch.incoming[..partial.len()].copy_from_slice(partial);
        (&mut scratch.incoming, partial.len())
    }

    fn open(
        &mut self,
        context: &mut Context<'_>,
        bytes: &mut [u8],
        said: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        let Parts { session, unsent, is_half_closed, .. } = &mut self.parts;
        let opened = session.open(bytes, unsent, said);
        *is_half_closed |= matches!(opened, Ok(Progress::HalfClosed));
        // Also if it has failed: the client is told why.
        let flushed = self.poll_flush(context);
        opened?;
        match flushed {
            Poll::Ready(Err(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Seals and writes what can be written now.
    ///
    /// # Errors
    /// The socket fails.
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        words: &[u8],
        scratch: &mut Scratch,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(context))?;
        let words = &words[..words.len().min(SEALED_AT_ONCE)];
        scratch.outgoing.clear();
        self.parts.session.seal(words, &mut scratch.outgoing)?;
        match Pin::new(&mut self.socket).poll_write(context, &scratch.outgoing) {
            Poll::Ready(Ok(sent)) if sent == scratch.outgoing.len() => {}
            Poll::Ready(Ok(sent)) => {
                self.parts.unsent.extend_from_slice(&scratch.outgoing[sent..]);
                // It sees to being called again.
                if let Poll::Ready(Err(error)) = self.poll_flush(context) {
                    return Poll::Ready(Err(error));
                }
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => self.parts.unsent.extend_from_slice(&scratch.outgoing),
        }
        Poll::Ready(Ok(words.len()))
    }

    /// Writes what is sealed. Ready: all of it is out.
    ///
    /// # Errors
    /// The socket fails.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.unsent_bytes() > 0 {
            let Parts { unsent, sent, .. } = &mut self.parts;
            *sent += ready!(Pin::new(&mut self.socket).poll_write(context, &unsent[*sent..]))?;
        }
        self.parts.unsent = Vec::new();
        self.parts.sent = 0;
        Poll::Ready(Ok(()))
    }

    /// Tells the client that nothing more is said, if the socket takes that at once.
    pub fn say_end(&mut self) {
        let Parts { session, has_ended, .. } = &mut self.parts;
        if std::mem::replace(has_ended, true) || session.is_handshaking() {
            return;
        }
        let mut sealed = self.parts.unsent.split_off(self.parts.sent);
        if self.parts.session.seal_end(&mut sealed).is_ok() {
            let _ = self.socket.try_write(&sealed);
        }
    }
}
