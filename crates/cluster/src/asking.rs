//! A config server, or a server, asked by a tool: in time, one request after another, or several before their answers.

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
    /// The user; None: the one that needs no name.
    pub user: Option<String>,
    /// The password; None: without one.
    pub password: Option<String>,
    /// With TLS, from this context.
    pub tls: Option<Arc<ClientConfig>>,
}

/// Why nobody is asked.
enum Unasked {
    /// Another may be.
    NotReached(String),
    /// Others would say the same.
    Refused(String),
}

/// A connection.
pub struct Asking {
    /// Who is asked, for sentences.
    name: String,
    outgoing: Outgoing,
    decoder: Decoder,
}

impl Asking {
    /// Connects to the first of several that is there.
    pub fn to(places: &[(String, u16)], entry: &Entry) -> Result<Asking, String> {
        let mut last = "no config server is given".to_owned();
        for (host, port) in places {
            match Asking::of(format!("the config server {host}:{port}"), (host, *port), entry) {
                Err(Unasked::NotReached(why)) => last = why,
                Err(Unasked::Refused(why)) => return Err(why),
                Ok(asking) => return Ok(asking),
            }
        }
        Err(last)
    }

    /// Connects to a server.
    pub fn to_server((host, port): (&str, u16), entry: &Entry) -> Result<Asking, String> {
        Asking::of(format!("the server {host}:{port}"), (host, port), entry).map_err(|why| match why {
            Unasked::NotReached(why) | Unasked::Refused(why) => why,
        })
    }

    fn of(name: String, (host, port): (&str, u16), entry: &Entry) -> Result<Asking, Unasked> {
        let deadline = Instant::now() + CONNECTING;
        let outgoing = Outgoing::connect(host.to_owned(), port, entry.tls.clone(), deadline, &mut || Ok(()))
            .map_err(|error| Unasked::NotReached(format!("{name} is not reached: {error}")))?;
        let mut asking = Asking { name, outgoing, decoder: Decoder::new() };
        if let Some(password) = &entry.password {
            let words = entry.user.as_deref().into_iter().chain([password.as_str()]);
            let words: Vec<&str> = ["AUTH"].into_iter().chain(words).collect();
            asking.ask(&words, CONNECTING).map_err(Unasked::Refused)?;
        }
        Ok(asking)
    }

    /// Asks, and gives what is not an error.
    pub fn ask(&mut self, words: &[&str], patience: Duration) -> Result<Value, String> {
        self.say(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>(), patience)?;
        self.receive(patience)
    }

    /// Says something whose answer is received later.
    pub fn say(&mut self, words: &[&[u8]], patience: Duration) -> Result<(), String> {
        let mut bytes = Vec::new();
        encode_request(&mut bytes, words);
        self.outgoing.set_deadline(Instant::now() + patience);
        self.outgoing.write_all(&bytes, &mut || Ok(())).map_err(|error| self.broken(&error))
    }

    fn broken(&self, error: &dyn std::fmt::Display) -> String {
        format!("{} gives no answer: {error}", self.name)
    }

    /// The next answer, if it is not an error.
    pub fn receive(&mut self, patience: Duration) -> Result<Value, String> {
        self.outgoing.set_deadline(Instant::now() + patience);
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match self.decoder.decode().map_err(|error| self.broken(&error))? {
                Some(Value::Error(text)) => return Err(String::from_utf8_lossy(&text).into_owned()),
                Some(value) => return Ok(value),
                None => {
                    let read = self.outgoing.read(&mut buffer, &mut || Ok(()));
                    match read.map_err(|error| self.broken(&error))? {
                        0 => return Err(self.broken(&"it has closed the connection")),
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
            _ => Err(format!("{} says something that is no text", self.name)),
        }
    }
}
