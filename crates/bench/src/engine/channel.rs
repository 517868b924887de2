//! A socket to a server, with or without TLS: what is still to be sent, and reading without waiting.
//!
//! Owned by one thread of the generator. It knows nothing of requests and replies.

use crate::secure::Session;
use mio::net::TcpStream;
use std::io::{self, ErrorKind, Read, Write};

/// A socket and what is to be sent over it.
#[derive(Debug)]
pub struct Channel {
    stream: TcpStream,
    /// With TLS, what was agreed on, or is being agreed on.
    session: Option<Session>,
    /// Requests from `sent` on are still to be sent.
    pub out: Vec<u8>,
    sent: usize,
}

impl Channel {
    /// Takes over a socket that blocks nobody, and with TLS the session over it.
    pub fn new(stream: TcpStream, session: Option<Session>) -> Channel {
        Channel { stream, session, out: Vec::new(), sent: 0 }
    }

    /// Takes over a connected socket of the standard library.
    ///
    /// # Errors
    /// It cannot be had without blocking.
    pub fn of_connected(stream: std::net::TcpStream, session: Option<Session>) -> io::Result<Channel> {
        stream.set_nonblocking(true)?;
        Ok(Channel::new(TcpStream::from_std(stream), session))
    }

    /// The socket, to be registered.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Sends what the socket takes.
    ///
    /// # Errors
    /// The connection is lost.
    #[inline]
    pub fn flush(&mut self) -> io::Result<()> {
        if self.session.is_some() {
            return self.flush_sealed();
        }
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    fn flush_sealed(&mut self) -> io::Result<()> {
        let Channel { stream, session: Some(session), out, sent } = self else { return Ok(()) };
        loop {
            while session.wants_write() {
                match session.write_tls(stream) {
                    Ok(0) => return Err(ErrorKind::WriteZero.into()),
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            // What is written before both have agreed would only be kept, and kept again.
            if *sent == out.len() || session.is_handshaking() {
                break;
            }
            *sent += session.writer().write(&out[*sent..])?;
        }
        if *sent == out.len() {
            out.clear();
            *sent = 0;
        }
        Ok(())
    }

    /// Reads once into `buffer`; none if there is nothing now, 0 bytes if the server has closed.
    ///
    /// # Errors
    /// The connection is lost.
    #[inline]
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if self.session.is_some() {
            return self.read_sealed(buffer);
        }
        loop {
            match self.stream.read(buffer) {
                Ok(read) => return Ok(Some(read)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads until the buffer is full or the socket is empty.
    fn read_sealed(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let Channel { stream, session: Some(session), .. } = self else { return Ok(None) };
        let mut filled = 0;
        while filled < buffer.len() {
            match session.reader().read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => {
                    filled += read;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            match session.read_tls(stream) {
                Ok(0) => break,
                Ok(_) => {
                    session.process_new_packets().map_err(io::Error::other)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok((filled > 0).then_some(filled));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(filled))
    }
}
