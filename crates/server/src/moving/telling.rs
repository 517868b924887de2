//! What the master of a shard that gives slots away says to the config servers. Whatever they answer, how it stands is in the topology that follows.

use crate::insync::asking::{Asking, said};
use crate::insync::dialling::TlsBy;
use crate::server::Server;
use crate::shard::Address;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use telemetry::log;
use topology::Move;
use wire::Value;

/// How long it may take to reach a config server, and how long an answer may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// The longest reason that is told.
const REASON_BYTES_MAX: usize = 200;

/// Whether another attempt may end otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It may.
    Again,
    /// It would not.
    Never,
}

/// The config servers.
pub struct Config<'c> {
    server: &'c Arc<Server>,
    places: Vec<Address>,
    /// The one that is spoken with, once there is one.
    asking: Option<Asking<'c>>,
    next: usize,
}

impl<'c> Config<'c> {
    /// These.
    pub fn new(server: &'c Arc<Server>, places: Vec<Address>) -> Config<'c> {
        Config { server, places, asking: None, next: 0 }
    }

    /// Says that all but little is copied.
    ///
    /// # Errors
    /// Nobody can be asked, or it is refused.
    pub fn say_caught_up(&mut self, one: &Move, epochs: (u64, u64)) -> io::Result<()> {
        self.say(one, b"CAUGHT-UP", &numbers(epochs)).map(drop)
    }

    /// Says that everything is there, and that nobody is answered here.
    ///
    /// # Errors
    /// As [`Config::say_caught_up`].
    pub fn say_ready(&mut self, one: &Move, epochs: (u64, u64)) -> io::Result<()> {
        self.say(one, b"READY", &numbers(epochs)).map(drop)
    }

    /// Says that an attempt has come to nothing.
    ///
    /// # Errors
    /// As [`Config::say_caught_up`].
    pub fn say_failed(&mut self, one: &Move, retry: Retry, reason: &str) -> io::Result<()> {
        let word = if retry == Retry::Again { "AGAIN" } else { "FINAL" };
        let reason: String = reason.chars().filter(|one| !one.is_control()).take(REASON_BYTES_MAX).collect();
        log!(Warning, "Attempt {} of move {} of slots has come to nothing: {reason}", one.attempt, one.id);
        self.say(one, b"FAILED", &[word.to_owned(), reason]).map(drop)
    }

    /// Says how far it is; gives how many bytes a second may be sent, 0 for as many as can be. Who is not heard asks again.
    pub fn say_progress(&mut self, one: &Move, figures: String) -> Option<u64> {
        match self.say(one, b"PROGRESS", &[figures]).ok()? {
            Value::Simple(answer) => std::str::from_utf8(&answer).ok()?.strip_prefix("rate ")?.parse().ok(),
            _ => None,
        }
    }

    fn say(&mut self, one: &Move, what: &[u8], more: &[String]) -> io::Result<Value> {
        let (id, attempt) = (one.id.to_string(), one.attempt.to_string());
        let mut words = vec![&b"MOVE"[..], what, id.as_bytes(), attempt.as_bytes()];
        words.extend(more.iter().map(String::as_bytes));
        let mut result = Err(io::ErrorKind::NotConnected.into());
        for _ in 0..self.places.len() {
            result = self.ask(&words);
            // What is refused, by an error that is an answer, is so by all.
            match &result {
                Err(error) if said(error).is_none() => {}
                _ => return result,
            }
        }
        result
    }

    fn ask(&mut self, words: &[&[u8]]) -> io::Result<Value> {
        let asking = match &mut self.asking {
            Some(asking) => asking,
            none => {
                let place = &self.places[self.next % self.places.len()];
                self.next += 1;
                none.insert(Asking::to(self.server, place, TlsBy::Cluster, PATIENCE)?)
            }
        };
        let answer = asking.ask(words);
        if answer.is_err() {
            self.asking = None;
        }
        answer
    }
}

fn numbers((from, to): (u64, u64)) -> [String; 2] {
    [from.to_string(), to.to_string()]
}
