//! A config server, asked by a tool: one request after another, each in time.

use net::connect::Outgoing;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_rustls::rustls::ClientConfig;
use wire::{Decoder, Value, encode_request};

/// How long reaching it may take.
const CONNECTING: Duration = Duration::from_secs(2);
/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;

/// What it takes to get in.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// The password; None: without one.
    pub password: Option<String>,
    /// With TLS, from this context.
    pub tls: Option<Arc<ClientConfig>>,
}

/// A connection.
pub struct Asking {
    outgoing: Outgoing,
    decoder: Decoder,
}

impl Asking {
    /// Connects to the first of several that is there.
    pub fn to(places: &[(String, u16)], entry: &Entry) -> Result<Asking, String> {
        let mut last = "no config server is given".to_owned();
        for (host, port) in places {
            let deadline = Instant::now() + CONNECTING;
            match Outgoing::connect(host.clone(), *port, entry.tls.clone(), deadline, &mut || Ok(())) {
                Err(error) => last = format!("the config server {host}:{port} is not reached: {error}"),
                Ok(outgoing) => {
                    let mut asking = Asking { outgoing, decoder: Decoder::new() };
                    if let Some(password) = &entry.password {
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
        self.outgoing.set_deadline(Instant::now() + patience);
        self.outgoing.write_all(&bytes, &mut || Ok(())).map_err(|error| broken(&error))?;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match self.decoder.decode().map_err(|error| broken(&error))? {
                Some(Value::Error(text)) => return Err(String::from_utf8_lossy(&text).into_owned()),
                Some(value) => return Ok(value),
                None => {
                    match self.outgoing.read(&mut buffer, &mut || Ok(())).map_err(|error| broken(&error))? {
                        0 => return Err(broken(&"it has closed the connection")),
                        count => self.decoder.feed(&buffer[..count]),
                    }
                }
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
