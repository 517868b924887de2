//! A client that blocks, hides nothing and forgives nothing: requests and replies
//! are the bytes that went over the socket.
//!
//! One owner, one thread. A reply that does not come within the timeout is an
//! error, so that no test hangs.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use wire::{Value, encode_request, skip_reply};

/// Longest wait for the next byte of a reply, or for room to write: nothing takes so long, also on a machine that is slow and busy.
pub(crate) const REPLY_SECONDS_MAX: u64 = 120;
/// How often a server that reads its files is asked whether it has.
const LOADING_ASKED_EVERY: Duration = Duration::from_millis(5);
/// How long that may take.
const LOADING_MAX: Duration = Duration::from_secs(300);
/// Bytes asked for in one read.
const READ_BYTES: usize = 256 * 1024;

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    /// Received and not yet returned: `buf[at..end]`.
    buf: Vec<u8>,
    at: usize,
    end: usize,
    out: Vec<u8>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// If nobody listens there.
    pub fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let timeout = Some(Duration::from_secs(REPLY_SECONDS_MAX));
        stream.set_read_timeout(timeout)?;
        stream.set_write_timeout(timeout)?;
        Ok(Client { stream, buf: Vec::new(), at: 0, end: 0, out: Vec::new() })
    }

    /// Connects to a server, and waits until it has read its files.
    ///
    /// # Errors
    /// If nobody listens there, or does not answer.
    pub fn connect_loaded(address: SocketAddr) -> io::Result<Client> {
        let mut client = Client::connect(address)?;
        let begun = Instant::now();
        while matches!(client.call(&["PING"])?, Value::Error(text) if text.starts_with(b"LOADING")) {
            if begun.elapsed() >= LOADING_MAX {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it has not read its files yet"));
            }
            std::thread::sleep(LOADING_ASKED_EVERY);
        }
        Ok(client)
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// If the connection is closed or takes nothing more.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends one request as an array of bulk strings.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub fn send_request<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<()> {
        self.out.clear();
        let args: Vec<&[u8]> = args.iter().map(AsRef::as_ref).collect();
        encode_request(&mut self.out, &args);
        self.stream.write_all(&self.out)
    }

    /// The bytes of exactly one reply.
    ///
    /// # Errors
    /// `UnexpectedEof` if the server closed, `InvalidData` if the bytes are no reply, `WouldBlock` on timeout.
    pub fn read_reply(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let found = skip_reply(&self.buf[self.at..self.end]);
            let found = found.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if let Some(len) = found {
                let reply = self.buf[self.at..self.at + len].to_vec();
                self.at += len;
                return Ok(reply);
            }
            if self.fill()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// The bytes of all replies that come before a silence: of one that lasts `first` if none
    /// comes, and `next` behind one.
    ///
    /// # Errors
    /// As [`Client::read_reply`], but for the timeout.
    pub fn read_until_silent(&mut self, first: Duration, next: Duration) -> io::Result<Vec<u8>> {
        let mut replies = Vec::new();
        self.stream.set_read_timeout(Some(first))?;
        let end = loop {
            match self.read_reply() {
                Ok(reply) => replies.extend(reply),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                // The last reply was the end.
                Err(_) if !replies.is_empty() => break Ok(()),
                Err(error) => break Err(error),
            }
            self.stream.set_read_timeout(Some(next))?;
        };
        self.stream.set_read_timeout(Some(Duration::from_secs(REPLY_SECONDS_MAX)))?;
        end.map(|()| replies)
    }

    /// The replies that have arrived, without waiting, and whether the server has closed.
    ///
    /// # Errors
    /// `InvalidData` if the bytes are no reply.
    pub fn read_arrived(&mut self) -> io::Result<(Vec<Vec<u8>>, bool)> {
        self.stream.set_nonblocking(true)?;
        let is_closed = loop {
            match self.fill() {
                Ok(0) => break true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break false,
                Err(_) => break true,
            }
        };
        self.stream.set_nonblocking(false)?;
        let mut replies = Vec::new();
        while let Some(len) = skip_reply(&self.buf[self.at..self.end])
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?
        {
            replies.push(self.buf[self.at..self.at + len].to_vec());
            self.at += len;
        }
        Ok((replies, is_closed))
    }

    /// One reply, decoded.
    ///
    /// # Errors
    /// As [`Client::read_reply`].
    pub fn read_value(&mut self) -> io::Result<Value> {
        let reply = self.read_reply()?;
        decode(&reply).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// One request and its reply.
    ///
    /// # Errors
    /// As [`Client::send`] and [`Client::read_reply`].
    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Value> {
        self.send_request(args)?;
        self.read_value()
    }

    /// Requests in one write, then the bytes of all their replies.
    ///
    /// # Errors
    /// As [`Client::send`] and [`Client::read_reply`].
    pub fn pipeline<A: AsRef<[u8]>>(&mut self, requests: &[Vec<A>]) -> io::Result<Vec<Vec<u8>>> {
        self.out.clear();
        for request in requests {
            let args: Vec<&[u8]> = request.iter().map(AsRef::as_ref).collect();
            encode_request(&mut self.out, &args);
        }
        self.stream.write_all(&self.out)?;
        requests.iter().map(|_| self.read_reply()).collect()
    }

    /// Everything up to the moment when the server closes.
    ///
    /// # Errors
    /// `WouldBlock` if it does not close within the timeout.
    pub fn read_to_close(&mut self) -> io::Result<Vec<u8>> {
        let mut rest = self.buf[self.at..self.end].to_vec();
        self.at = self.end;
        loop {
            match self.fill() {
                Ok(0) => return Ok(rest),
                Ok(_) => rest.extend_from_slice(&self.buf[self.at..self.end]),
                // A server that closes with requests unread resets the connection.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(rest),
                Err(error) => return Err(error),
            }
            self.at = self.end;
        }
    }

    /// Closes this side's half: the server sees the end of the requests, and can still answer.
    ///
    /// # Errors
    /// If the connection is closed already.
    pub fn close_write(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// The socket, for what this type does not offer.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Reads once; the number of bytes that came, 0 at the end.
    fn fill(&mut self) -> io::Result<usize> {
        if self.at == self.end {
            (self.at, self.end) = (0, 0);
        }
        if self.buf.len() < self.end + READ_BYTES {
            self.buf.drain(..self.at);
            self.end -= self.at;
            self.at = 0;
            self.buf.resize(self.end + 2 * READ_BYTES, 0);
        }
        let count = read_some(&mut self.stream, &mut self.buf[self.end..])?;
        self.end += count;
        Ok(count)
    }
}

/// Reads once, however often a signal comes in between: a process that is stopped and goes on, as under a debugger, is no error.
fn read_some(stream: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(buf) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// The value of one whole reply, or None if the bytes are not exactly that.
pub fn decode(reply: &[u8]) -> Option<Value> {
    let mut decoder = wire::Decoder::new();
    decoder.feed(reply);
    decoder.decode().ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream that a signal interrupts before every byte.
    struct Interrupted(bool);

    impl Read for Interrupted {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            self.0 = !self.0;
            if self.0 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            buf[0] = b'+';
            Ok(1)
        }
    }

    #[test]
    fn a_signal_amid_a_read_is_no_error() {
        let mut buf = [0; 8];
        assert_eq!(read_some(&mut Interrupted(false), &mut buf).unwrap(), 1);
        assert_eq!(buf[0], b'+');
    }
}
