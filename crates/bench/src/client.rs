//! One request at a time over a blocking connection: greeting a server, and asking it things beside a load.
//!
//! Every connection of a load is opened here too, so that a wrong address, a refused password or a server that
//! takes no more connections is found before anything is measured.

use crate::Failure;
use crate::plan::Target;
use crate::secure::Session;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use wire::{Decoder, Value, encode_request};

/// How long a connection may take, and a reply to a request of this module.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest reply to a request of this module, so that what is no server of this protocol, or means harm, fills no memory.
const REPLY_BYTES_MAX: usize = 16 << 20;

/// A connection that has been let in.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    session: Option<Session>,
    decoder: Decoder,
    name: String,
}

impl Client {
    /// Connects, gives the password, and chooses the database.
    ///
    /// # Errors
    /// One sentence that names the address and what was wrong.
    pub fn connect(target: &Target) -> Result<Client, Failure> {
        let name = target.to_string();
        let stream =
            connect(target).map_err(|error| Failure(format!("cannot connect to {name}: {error}")))?;
        let session = shake_hands(target, &stream)
            .map_err(|error| Failure(format!("cannot speak TLS with {name}: {error}")))?;
        let mut client = Client { stream, session, decoder: Decoder::new(), name };
        client.greet(target)?;
        Ok(client)
    }

    /// The other end.
    pub fn peer(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// Makes one request.
    ///
    /// # Errors
    /// The connection failed, or the bytes that came back are no reply. An error reply is no error here.
    pub fn request(&mut self, arguments: &[&[u8]]) -> Result<Value, Failure> {
        self.exchange(arguments).map_err(|error| Failure(format!("{}: {error}", self.name)))
    }

    /// Makes requests that are encoded already, and waits for so many replies.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn requests(&mut self, bytes: &[u8], count: usize) -> Result<Vec<Value>, Failure> {
        let all = self.write(bytes).and_then(|()| (0..count).map(|_| self.reply()).collect());
        all.map_err(|error| Failure(format!("{}: {error}", self.name)))
    }

    /// The reply to INFO; empty if there is none.
    pub fn info(&mut self) -> String {
        match self.request(&[b"INFO"]) {
            Ok(Value::Bulk(text) | Value::Verbatim(_, text)) => String::from_utf8_lossy(&text).into_owned(),
            _ => String::new(),
        }
    }

    /// The socket, and what was agreed on over it: they then belong to a load.
    pub fn into_parts(self) -> (TcpStream, Option<Session>) {
        (self.stream, self.session)
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.session {
            None => self.stream.read(into),
            Some(session) => rustls::Stream::new(&mut **session, &mut self.stream).read(into),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.session {
            None => self.stream.write_all(bytes),
            Some(session) => {
                let mut stream = rustls::Stream::new(&mut **session, &mut self.stream);
                stream.write_all(bytes).and_then(|()| stream.flush())
            }
        }
    }

    fn greet(&mut self, target: &Target) -> Result<(), Failure> {
        if let Some(password) = &target.password {
            let password = password.as_bytes();
            let reply = match &target.user {
                Some(user) => self.request(&[b"AUTH", user.as_bytes(), password])?,
                None => self.request(&[b"AUTH", password])?,
            };
            self.must_be_fine(&reply, "refused the password")?;
        }
        let reply = self.request(&[b"PING"])?;
        self.must_be_fine(&reply, "refused the connection")?;
        if target.database > 0 {
            let reply = self.request(&[b"SELECT", target.database.to_string().as_bytes()])?;
            self.must_be_fine(&reply, &format!("refused database {}", target.database))?;
        }
        Ok(())
    }

    fn must_be_fine(&self, reply: &Value, otherwise: &str) -> Result<(), Failure> {
        match reply {
            Value::Error(line) => {
                Err(Failure(format!("{} {otherwise}: {}", self.name, String::from_utf8_lossy(line))))
            }
            _ => Ok(()),
        }
    }

    fn exchange(&mut self, arguments: &[&[u8]]) -> io::Result<Value> {
        let mut bytes = Vec::new();
        encode_request(&mut bytes, arguments);
        self.write(&bytes)?;
        self.reply()
    }

    /// Waits for a reply.
    fn reply(&mut self) -> io::Result<Value> {
        let mut piece = [0; 16 * 1024];
        let (deadline, mut bytes) = (Instant::now() + PATIENCE, 0);
        let too_late = || io::Error::other(format!("no reply within {} s", PATIENCE.as_secs()));
        loop {
            let other = |_| io::Error::other("what answers there does not speak the Redis protocol");
            if let Some(value) = self.decoder.decode().map_err(other)? {
                return Ok(value);
            }
            if bytes > REPLY_BYTES_MAX {
                return Err(io::Error::other("what answers there sends a reply without an end"));
            }
            if Instant::now() >= deadline {
                return Err(too_late());
            }
            match self.read(&mut piece) {
                Ok(0) => return Err(io::Error::other("the server closed the connection")),
                Ok(read) => {
                    bytes += read;
                    self.decoder.feed(&piece[..read]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(too_late());
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Agrees on keys, if TLS is asked for.
fn shake_hands(target: &Target, mut stream: &TcpStream) -> io::Result<Option<Session>> {
    let Some(tls) = &target.tls else { return Ok(None) };
    let mut session = tls.begin(stream.peer_addr()?.ip())?;
    while session.is_handshaking() {
        session.complete_io(&mut stream)?;
    }
    Ok(Some(session))
}

/// The addresses of a host. The system may take minutes to give up, so it is asked in a thread.
fn look_up(target: &Target) -> io::Result<Vec<SocketAddr>> {
    let (tell, told) = mpsc::channel();
    let (host, port) = (target.host.clone(), target.port);
    std::thread::Builder::new().name("look-up".to_owned()).spawn(move || {
        let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
        // Nobody may be waiting any more.
        let _ = tell.send(found);
    })?;
    let too_late = |_| io::Error::other("the name was not found in time");
    told.recv_timeout(PATIENCE).map_err(too_late)?
}

fn connect(target: &Target) -> io::Result<TcpStream> {
    let mut failed = io::Error::other("the name has no address");
    for address in look_up(target)? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}
