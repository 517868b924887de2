//! One request at a time over a blocking connection: greeting a server, and asking it things beside a load.
//!
//! Every connection of a load is opened here too, so that a wrong address, a refused password or a server that
//! takes no more connections is found before anything is measured.

use crate::Failure;
use crate::plan::Target;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;
use wire::{Decoder, Value, encode_request};

/// How long a connection may take, and a reply to a request of this module.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection that has been let in.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
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
        let mut client = Client { stream, decoder: Decoder::new(), name };
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

    /// The reply to INFO; empty if there is none.
    pub fn info(&mut self) -> String {
        match self.request(&[b"INFO"]) {
            Ok(Value::Bulk(text) | Value::Verbatim(_, text)) => String::from_utf8_lossy(&text).into_owned(),
            _ => String::new(),
        }
    }

    /// The socket, which then belongs to a load.
    pub fn into_stream(self) -> TcpStream {
        self.stream
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
        self.stream.write_all(&bytes)?;
        let mut piece = [0; 16 * 1024];
        loop {
            let other = |_| io::Error::other("what answers there does not speak the Redis protocol");
            if let Some(value) = self.decoder.decode().map_err(other)? {
                return Ok(value);
            }
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(io::Error::other("the server closed the connection")),
                Ok(read) => self.decoder.feed(&piece[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::other(format!("no reply within {} s", PATIENCE.as_secs())));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn connect(target: &Target) -> io::Result<TcpStream> {
    let mut failed = io::Error::other("the name has no address");
    for address in (target.host.as_str(), target.port).to_socket_addrs()? {
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
