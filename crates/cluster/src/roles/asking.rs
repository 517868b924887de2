//! A config server, asked by a tool: one request after another, each in time.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;
use wire::{Decoder, Value, encode_request};

/// How long reaching it may take.
const CONNECTING: Duration = Duration::from_secs(2);
/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;

/// A connection.
pub struct Asking {
    socket: TcpStream,
    decoder: Decoder,
}

impl Asking {
    /// Connects to the first of several that is there.
    pub fn to(places: &[(String, u16)], password: Option<&str>) -> Result<Asking, String> {
        let mut last = "no config server is given".to_owned();
        for (host, port) in places {
            match connect(host, *port) {
                Err(error) => last = format!("the config server {host}:{port} is not reached: {error}"),
                Ok(socket) => {
                    let mut asking = Asking { socket, decoder: Decoder::new() };
                    if let Some(password) = password {
                        asking.ask(&["AUTH", password], CONNECTING)?;
                    }
                    return Ok(asking);
                }
            }
        }
        Err(last)
    }

    /// Asks, and gives what is not an error.
    pub fn ask(&mut self, words: &[&str], patience: Duration) -> Result<Value, String> {
        let mut bytes = Vec::new();
        encode_request(&mut bytes, &words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
        let broken = |error: &dyn std::fmt::Display| format!("the config server gives no answer: {error}");
        self.socket.set_read_timeout(Some(patience)).map_err(|error| broken(&error))?;
        self.socket.write_all(&bytes).map_err(|error| broken(&error))?;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match self.decoder.decode().map_err(|error| broken(&error))? {
                Some(Value::Error(text)) => return Err(String::from_utf8_lossy(&text).into_owned()),
                Some(value) => return Ok(value),
                None => match self.socket.read(&mut buffer).map_err(|error| broken(&error))? {
                    0 => return Err(broken(&"it has closed the connection")),
                    count => self.decoder.feed(&buffer[..count]),
                },
            }
        }
    }

    /// The same for an answer that is text.
    pub fn text(&mut self, words: &[&str], patience: Duration) -> Result<String, String> {
        match self.ask(words, patience)? {
            Value::Simple(text) | Value::Bulk(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            _ => Err("the config server says something that is no text".to_owned()),
        }
    }
}

fn connect(host: &str, port: u16) -> std::io::Result<TcpStream> {
    let mut last = std::io::ErrorKind::NotFound.into();
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECTING) {
            Err(error) => last = error,
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
        }
    }
    Err(last)
}
