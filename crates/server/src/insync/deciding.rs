//! The way to the store of decisions: any server that speaks Redis' protocol, with one key a shard that is changed by compare-and-set; or, in a cluster, its
//! config servers.
//!
//! Thread rule: a thread of its own asks, one request at a time. What is sent and not answered is not known to have been carried out, and is not
//! answered; nor is what waited for so long that others have come behind it.

use super::asking::Asking;
use super::dialling::TlsBy;
use crate::server::Server;
use crate::shard::{Address, Letter, Shard, Store};
use replication::insync::{Answer, Decision, Event, Request};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use telemetry::log;
use wire::Value;

/// How long a request may take.
const PATIENCE: Duration = Duration::from_millis(900);

/// How long a question may take that changes nothing, where another can be asked who may answer sooner.
const HASTE: Duration = Duration::from_millis(300);

/// Sets the decision if the one that is there has the version before, and gives what is there then. One that is not there has version 0.
const PROPOSE: &[u8] = b"local now = redis.call('GET', KEYS[1]) or ''
local version = now == '' and '0' or string.match(now, '^decision (%d+) ')
if version ~= ARGV[1] then return {0, now} end
redis.call('SET', KEYS[1], ARGV[2])
return {1, ARGV[2]}";

/// The thread's part.
pub fn serve(server: &Arc<Server>, shard: &Arc<Shard>) {
    let settings = &shard.settings;
    let (places, by, words) = match &settings.store {
        Store::Server(address) => {
            (vec![address.clone()], TlsBy::Replication, Words::Key(key(&settings.name)))
        }
        Store::Cluster { config_servers, shard } => {
            (config_servers.clone(), TlsBy::Cluster, Words::Number(shard.to_string().into_bytes()))
        }
    };
    let mut way =
        Way { server, places, by, place: 0, words, connection: None, trouble: None, is_slow: false };
    while !server.engine.is_ending() {
        let Some((ticket, request)) = shard.questions.take(PATIENCE) else { continue };
        if let Some(answer) = way.ask(&request) {
            shard.post(Letter::Happened(Event::Answered { ticket, answer }));
        }
    }
}

/// Has the store of decisions take a change that changes nothing, before a master yields: its heir is to be written down there.
///
/// # Errors
/// It takes none, or cannot be asked before the deadline, or as long as `goes_on`.
pub fn try_store(
    server: &Arc<Server>,
    shard: &Shard,
    deadline: Instant,
    goes_on: impl Fn() -> bool,
) -> io::Result<()> {
    let Store::Cluster { config_servers, shard } = &shard.settings.store else { return Ok(()) };
    let number = shard.to_string();
    let mut last: io::Error = io::ErrorKind::TimedOut.into();
    for address in config_servers.iter().take_while(|_| goes_on()) {
        let patience = PATIENCE.min(deadline.saturating_duration_since(Instant::now()));
        let words: [&[u8]; 3] = [b"DECISION", b"TRY", number.as_bytes()];
        let asked = Asking::to(server, address, TlsBy::Cluster, patience).and_then(|mut way| way.ask(&words));
        match asked {
            Ok(_) => return Ok(()),
            // It is of a version that does not know this.
            Err(error) if error.to_string().starts_with("ERR ") => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The key of a shard's decision.
fn key(name: &str) -> Vec<u8> {
    format!("tarn:shard:{{{name}}}").into_bytes()
}

/// What the store knows the shard by.
enum Words {
    /// A server's key.
    Key(Vec<u8>),
    /// A config server's number.
    Number(Vec<u8>),
}

impl Words {
    /// What is asked for.
    fn of(&self, request: &Request) -> Vec<Vec<u8>> {
        let decimal = |number: u64| number.to_string().into_bytes();
        let (before, line) = match request {
            Request::Read => (Vec::new(), Vec::new()),
            Request::Propose(next) => {
                (decimal(next.version.0.saturating_sub(1)), next.to_line().into_bytes())
            }
        };
        match (self, request) {
            (Words::Key(key), Request::Read) => vec![b"GET".to_vec(), key.clone()],
            (Words::Key(key), Request::Propose(_)) => {
                vec![b"EVAL".to_vec(), PROPOSE.to_vec(), b"1".to_vec(), key.clone(), before, line]
            }
            (Words::Number(number), Request::Read) => {
                vec![b"DECISION".to_vec(), b"GET".to_vec(), number.clone()]
            }
            (Words::Number(number), Request::Propose(_)) => {
                vec![b"DECISION".to_vec(), b"SET".to_vec(), number.clone(), before, line]
            }
        }
    }
}

struct Way<'w> {
    server: &'w Arc<Server>,
    /// Where it can be asked.
    places: Vec<Address>,
    by: TlsBy,
    /// Which of them is asked.
    place: usize,
    words: Words,
    connection: Option<Asking<'w>>,
    /// What was told last of why it does not answer; None: it does.
    trouble: Option<String>,
    /// It has not answered in haste: it gets more time until it does.
    is_slow: bool,
}

impl Way<'_> {
    /// Asks; None: nobody can say what becomes of it. What only reads is asked once more where a connection has failed on which others were asked
    /// before: it may have ended long ago.
    fn ask(&mut self, request: &Request) -> Option<Answer> {
        self.connection.take_if(|connection| connection.is_over());
        let is_used = self.connection.is_some();
        match self.ask_once(request) {
            None if is_used && *request == Request::Read => self.ask_once(request),
            answer => answer,
        }
    }

    fn ask_once(&mut self, request: &Request) -> Option<Answer> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            None => match Asking::to(self.server, &self.places[self.place], self.by, PATIENCE) {
                Ok(connection) => self.connection.insert(connection),
                Err(error) => {
                    self.note(Some(error.to_string()));
                    self.turn();
                    return Some(Answer::Unreached);
                }
            },
        };
        let words = self.words.of(request);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        // Who has been silent once may only be slow, as all of them may be.
        let is_hasty =
            self.places.len() > 1 && self.trouble.is_none() && !self.is_slow && *request == Request::Read;
        let patience = if is_hasty { HASTE } else { PATIENCE };
        let asked = connection.ask_within(patience, &words).map(|value| match request {
            Request::Read => read(&value),
            Request::Propose(_) => proposed(&value),
        });
        match &asked {
            Ok(Some(_)) => self.note(None),
            Ok(None) => self.note(Some("it says something that is no decision".to_owned())),
            // That says little yet.
            Err(_) if is_hasty => {}
            Err(error) => self.note(Some(error.to_string())),
        }
        self.is_slow = is_hasty && asked.is_err() || self.is_slow && asked.is_err();
        if !matches!(asked, Ok(Some(_))) {
            self.connection = None;
            self.turn();
        }
        asked.ok().flatten()
    }

    /// Another is asked from now on, if there is another.
    fn turn(&mut self) {
        self.place = (self.place + 1) % self.places.len();
    }

    /// Tells it when the store stops to answer, or begins again.
    fn note(&mut self, trouble: Option<String>) {
        if self.trouble.is_some() == trouble.is_some() {
            return;
        }
        let Address { host, port } = &self.places[self.place];
        let place = format!("{host}:{port}");
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
