//! One connection on which requests are asked: of a target, or beside a source's stream.
//!
//! Thread rule: whoever has it waits for it, and looks meanwhile. After an error it is of no further use.

use crate::limits::{CONNECTING, LOOKING, PATIENCE, READ_BYTES, WRITTEN_BYTES};
use crate::place::{Entry, Place};
use net::connect::{Look, Outgoing, encode_authentication};
use std::io::{self, ErrorKind};
use std::time::Instant;
use wire::{Decoder, Value, encode_request};

/// A connection.
pub struct Connection {
    outgoing: Outgoing,
    decoder: Decoder,
    buffer: Vec<u8>,
    /// The database that is selected.
    pub database: u32,
}

impl Connection {
    /// Reaches a server and gets in.
    ///
    /// # Errors
    /// It is not reached; `PermissionDenied` if it does not let this user in.
    pub fn open(place: &Place, entry: &Entry, look: Look<'_>) -> io::Result<Connection> {
        let deadline = Instant::now() + CONNECTING;
        let outgoing = Outgoing::connect(place.host.clone(), place.port, entry.tls.clone(), deadline, look)?;
        outgoing.set_patience(LOOKING)?;
        let mut connection =
            Connection { outgoing, decoder: Decoder::new(), buffer: vec![0; READ_BYTES], database: 0 };
        let credentials = entry.credentials();
        if !credentials.is_empty() {
            let mut bytes = Vec::new();
            encode_authentication(&mut bytes, &credentials);
            connection.say(&bytes, look)?;
            if let Value::Error(line) = connection.hear(look)? {
                return Err(io::Error::new(ErrorKind::PermissionDenied, shown(&line)));
            }
        }
        Ok(connection)
    }

    /// Writes requests.
    ///
    /// # Errors
    /// The connection is lost, or the look says to end.
    pub fn say(&mut self, requests: &[u8], look: Look<'_>) -> io::Result<()> {
        // Who takes it slowly lives.
        for piece in requests.chunks(WRITTEN_BYTES) {
            self.outgoing.set_deadline(Instant::now() + PATIENCE);
            self.outgoing.write_all(piece, look)?;
        }
        Ok(())
    }

    /// The next reply.
    ///
    /// # Errors
    /// As [`Connection::say`].
    pub fn hear(&mut self, look: Look<'_>) -> io::Result<Value> {
        loop {
            let decoded = self.decoder.decode();
            if let Some(value) = decoded.map_err(|_| io::Error::from(ErrorKind::InvalidData))? {
                return Ok(value);
            }
            self.outgoing.set_deadline(Instant::now() + PATIENCE);
            match self.outgoing.read(&mut self.buffer, look)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => self.decoder.feed(&self.buffer[..count]),
            }
        }
    }

    /// A request and its reply.
    ///
    /// # Errors
    /// As [`Connection::say`].
    pub fn ask(&mut self, words: &[&[u8]], look: Look<'_>) -> io::Result<Value> {
        let mut bytes = Vec::new();
        encode_request(&mut bytes, words);
        self.say(&bytes, look)?;
        self.hear(look)
    }

    /// The same of a request whose words have spaces between them.
    ///
    /// # Errors
    /// As [`Connection::say`].
    pub fn ask_line(&mut self, line: &str, look: Look<'_>) -> io::Result<Value> {
        self.ask(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>(), look)
    }

    /// A field of INFO.
    ///
    /// # Errors
    /// As [`Connection::say`].
    pub fn field(&mut self, section: &str, name: &str, look: Look<'_>) -> io::Result<Option<String>> {
        let Value::Bulk(text) = self.ask(&[b"INFO", section.as_bytes()], look)? else { return Ok(None) };
        let text = String::from_utf8_lossy(&text).into_owned();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        Ok(value.map(|value| value.trim_end().to_owned()))
    }
}

/// What a server says, for a sentence.
pub fn shown(bytes: &[u8]) -> String {
    const QUOTED_BYTES_MAX: usize = 256;
    bytes[..bytes.len().min(QUOTED_BYTES_MAX)].escape_ascii().to_string()
}
