//! A client of a cluster that goes where it is sent.

use super::cluster::{Cluster, Places, REPLY_WITHIN};
use crate::porcupine::Notes;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use sys::Prng;
use testkit::Client;
use wire::{Value, key_slot};

/// How long it tries.
const PATIENCE: Duration = Duration::from_secs(180);

/// Who is refused tries again so much later.
const REFUSED_PAUSE: Duration = Duration::from_millis(5);

/// What came of a request.
pub enum Came {
    /// It was answered.
    Reply(Value),
    /// It was refused, and not done.
    Refused,
    /// Nobody knows.
    Unknown,
}

/// A client.
pub struct Guided {
    places: Arc<Places>,
    reply_within: Duration,
    /// Where slots' requests went last.
    known: HashMap<u16, SocketAddr>,
    clients: HashMap<SocketAddr, Client>,
    turn: usize,
}

impl Guided {
    /// One that knows nothing yet but where servers are.
    pub fn new(cluster: &Cluster) -> Guided {
        Guided::hasty(cluster, REPLY_WITHIN)
    }

    /// One that takes nothing but an answer, however long that takes.
    pub fn patient(cluster: &Cluster) -> Guided {
        Guided::hasty(cluster, PATIENCE)
    }

    /// One that waits for no reply longer than this.
    pub fn hasty(cluster: &Cluster, reply_within: Duration) -> Guided {
        Guided {
            places: cluster.places.clone(),
            reply_within,
            known: HashMap::new(),
            clients: HashMap::new(),
            turn: 0,
        }
    }

    fn place(&mut self, slot: u16) -> SocketAddr {
        if let Some(known) = self.known.get(&slot) {
            return *known;
        }
        // Each in turn: also where one of them sends everybody to another that is no more.
        self.turn += 1;
        self.places.any(self.turn)
    }

    /// A connection to there; None: there is nobody, or nobody who takes one.
    fn connected(&mut self, place: SocketAddr) -> Option<&mut Client> {
        match self.clients.entry(place) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(place_for_it) => {
                let client = Client::connect(place).ok()?;
                client.stream().set_read_timeout(Some(self.reply_within)).ok()?;
                Some(place_for_it.insert(client))
            }
        }
    }

    /// Asks once, and goes elsewhere if it is sent there; of a failure it is told whether the request may have been done.
    pub fn call_noted(&mut self, key: &str, words: &[&str]) -> Came {
        let slot = key_slot(key.as_bytes());
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < PATIENCE + self.reply_within, "it is sent to and fro: {words:?}");
            let place = self.place(slot);
            let Some(client) = self.connected(place) else {
                // Nothing has left.
                self.forget(slot);
                return Came::Refused;
            };
            match client.call(words) {
                Ok(Value::Error(line)) => {
                    let line = String::from_utf8_lossy(&line).into_owned();
                    if let Some(moved) = line.strip_prefix("MOVED ") {
                        let to = moved.split(' ').nth(1).and_then(|to| to.parse().ok());
                        let to = self.places.own(to.unwrap_or_else(|| panic!("{line}")));
                        self.known.insert(slot, to);
                        if self.known[&slot] != place {
                            continue;
                        }
                    }
                    self.forget(slot);
                    let refusals = [
                        "MOVED",
                        "CLUSTERDOWN",
                        "READONLY",
                        "MASTERDOWN",
                        "LOADING",
                        "UNBLOCKED",
                        "NOREPLICAS Not enough good replicas to write",
                    ];
                    return match refusals.iter().any(|code| line.starts_with(code)) {
                        true => Came::Refused,
                        false if line.starts_with("NOREPLICAS") => Came::Unknown,
                        false => panic!("a client was told {line}"),
                    };
                }
                Ok(reply) => {
                    self.known.insert(slot, place);
                    return Came::Reply(reply);
                }
                Err(_) => {
                    self.clients.remove(&place);
                    self.forget(slot);
                    return Came::Unknown;
                }
            }
        }
    }

    /// Sets a key to this value, or reads it, and notes that down for Porcupine. True: a write was acknowledged.
    pub fn set_or_get(&mut self, key: &str, value: &str, notes: &mut Notes<'_>, prng: &mut Prng) -> bool {
        let is_write = prng.one_in(2);
        let (op, given) = if is_write { ("set", Some(value)) } else { ("get", None) };
        let words = if is_write { vec!["SET", key, value] } else { vec!["GET", key] };
        let call = notes.now();
        match self.call_noted(key, &words) {
            Came::Reply(reply) => notes.note(op, (key, given), call, Some(&reply)),
            Came::Refused => return false,
            Came::Unknown => {
                notes.note(op, (key, given), call, None);
                return false;
            }
        }
        is_write
    }

    fn forget(&mut self, slot: u16) {
        self.known.remove(&slot);
        std::thread::sleep(REFUSED_PAUSE);
    }

    /// Asks until it is answered, for a request that may be done twice.
    pub fn call(&mut self, key: &str, words: &[&str]) -> io::Result<Value> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if let Came::Reply(reply) = self.call_noted(key, words) {
                return Ok(reply);
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Asks, and takes nothing but an answer.
    pub fn call_once(&mut self, key: &str, words: &[&str]) -> io::Result<Value> {
        match self.call_noted(key, words) {
            Came::Reply(reply) => Ok(reply),
            Came::Refused => Err(io::Error::other("it was refused")),
            Came::Unknown => Err(io::Error::other("it was not answered")),
        }
    }
}
