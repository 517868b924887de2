//! The way to the store of decisions: any server that speaks Redis' protocol, with one key a shard that is changed by compare-and-set.
//!
//! Thread rule: a thread of its own asks, one request at a time. What is sent and not answered is not known to have been carried out, and is not
//! answered; nor is what waited for so long that others have come behind it.

use super::dialling;
use crate::server::Server;
use crate::shard::{Address, Letter, Shard};
use net::connect::Outgoing;
use replication::insync::{Answer, Decision, Event, Request};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use telemetry::log;
use wire::{Decoder, Value, encode_request};

/// How long a request may take.
const PATIENCE: Duration = Duration::from_millis(900);

/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;

/// Sets the decision if the one that is there has the version before, and gives what is there then. One that is not there has version 0.
const PROPOSE: &[u8] = b"local now = redis.call('GET', KEYS[1]) or ''
local version = now == '' and '0' or string.match(now, '^decision (%d+) ')
if version ~= ARGV[1] then return {0, now} end
redis.call('SET', KEYS[1], ARGV[2])
return {1, ARGV[2]}";

/// The thread's part.
pub fn serve(server: &Arc<Server>, shard: &Arc<Shard>) {
    let key = key(&shard.settings.name);
    let mut way = Way { server, address: &shard.settings.store, key, connection: None, trouble: None };
    while !server.engine.is_ending() {
        let Some((ticket, request)) = shard.questions.take(PATIENCE) else { continue };
        if let Some(answer) = way.ask(&request) {
            shard.post(Letter::Happened(Event::Answered { ticket, answer }));
        }
    }
}

/// The key of a shard's decision.
fn key(name: &str) -> Vec<u8> {
    format!("tarn:shard:{{{name}}}").into_bytes()
}

struct Way<'w> {
    server: &'w Arc<Server>,
    address: &'w Address,
    key: Vec<u8>,
    connection: Option<(Outgoing, Decoder)>,
    /// What was told last of why it does not answer; None: it does.
    trouble: Option<String>,
}

impl Way<'_> {
    /// Asks; None: nobody can say what becomes of it.
    fn ask(&mut self, request: &Request) -> Option<Answer> {
        let deadline = Instant::now() + PATIENCE;
        if self.connection.is_none()
            && let Err(error) = self.connect(deadline)
        {
            self.note(Some(error.to_string()));
            return Some(Answer::Unreached);
        }
        let asked = match request {
            Request::Read => self.call(&[b"GET", &self.key.clone()], deadline).map(|value| read(&value)),
            Request::Propose(decision) => {
                let (version, line) = (decision.version.0.saturating_sub(1).to_string(), decision.to_line());
                let key = self.key.clone();
                let words = [&b"EVAL"[..], PROPOSE, b"1", &key, version.as_bytes(), line.as_bytes()];
                self.call(&words, deadline).map(|value| proposed(&value))
            }
        };
        self.note(match &asked {
            Ok(Some(_)) => None,
            Ok(None) => Some("it says something that is no decision".to_owned()),
            Err(error) => Some(error.to_string()),
        });
        if asked.is_err() {
            self.connection = None;
        }
        asked.ok().flatten()
    }

    /// Tells it when the store stops to answer, or begins again.
    fn note(&mut self, trouble: Option<String>) {
        if self.trouble.is_some() == trouble.is_some() {
            return;
        }
        let place = format!("{}:{}", self.address.host, self.address.port);
        match &trouble {
            Some(why) => {
                log!(
                    Warning,
                    "The store of decisions ({place}) gives no answer, so that nobody is promoted, removed or added: {why}"
                );
            }
            None => log!(Notice, "The store of decisions ({place}) answers again"),
        }
        self.trouble = trouble;
    }

    fn connect(&mut self, deadline: Instant) -> io::Result<()> {
        let server = self.server;
        let outgoing = dialling::connect(server, self.address, deadline, &mut || super::look(server))?;
        self.connection = Some((outgoing, Decoder::new()));
        if let Some(words) = dialling::credentials(server) {
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let answer = self.call(&words, deadline);
            if !matches!(answer, Ok(Value::Simple(_))) {
                self.connection = None;
                return Err(io::Error::other("the store of decisions wants another password"));
            }
        }
        Ok(())
    }

    fn call(&mut self, words: &[&[u8]], deadline: Instant) -> io::Result<Value> {
        let server = self.server;
        let mut look = || super::look(server);
        let Some((outgoing, decoder)) = &mut self.connection else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let mut bytes = Vec::new();
        encode_request(&mut bytes, words);
        outgoing.set_deadline(deadline);
        outgoing.write_all(&bytes, &mut look)?;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            if let Some(value) = decoder.decode().map_err(io::Error::other)? {
                return Ok(value);
            }
            match outgoing.read(&mut buffer, &mut look)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => decoder.feed(&buffer[..count]),
            }
        }
    }
}

/// What is there; None: nothing that makes sense.
fn read(value: &Value) -> Option<Answer> {
    match value {
        Value::Null => Some(Answer::Current(None)),
        Value::Bulk(line) => Some(Answer::Current(Some(decision(line)?))),
        _ => None,
    }
}

/// What became of a proposal; None: nobody can say.
fn proposed(value: &Value) -> Option<Answer> {
    let Value::Array(parts) = value else { return None };
    match parts.as_slice() {
        [Value::Int(1), Value::Bulk(line)] => Some(Answer::Done(decision(line)?)),
        [Value::Int(0), Value::Bulk(line)] => Some(Answer::Conflict(decision(line)?)),
        _ => None,
    }
}

fn decision(line: &[u8]) -> Option<Decision> {
    Decision::from_line(std::str::from_utf8(line).ok()?)
}
