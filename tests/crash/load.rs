//! The load: clients that write what their ledgers note down, and clients that read and remember what they saw.
//!
//! A thread and a connection each. They begin when the scene does, and end when it is over or their server was killed; a
//! connection that breaks while nobody has killed the server fails the test.
//!
//! 1. A unit is in the ledger before its first byte is sent, and answered when its last reply was read.
//! 2. What is written is never the same twice, so that a lost write cannot hide behind another.

use super::ledger::{Answer, Books, COUNTERS, FIELDS, Form, KEYS_PER_KIND, KINDS, LIST, Ledger, Unit};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use sys::Prng;
use testkit::{Client, Server};
use wire::Value;

/// Clients that read.
const READERS: u64 = 2;
/// Units that a pipelining client sends at once, at most.
const PIPELINE_MAX: u64 = 24;
/// The same where each of them may be refused: an audit tries whatever may have come of those without an answer.
pub const REFUSED_MAX: u64 = 10;
/// Writes of a transaction or script, at most.
const WRITES_MAX: u64 = 5;
/// Keys live for a time that no test lasts, seconds.
const TTL_SECONDS_MIN: u64 = 10_000;

/// Whether the server may refuse writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusals {
    /// A refusal fails the test.
    Never,
    /// With MISCONF: its disk may be full.
    DiskFull,
}

const RUNNING: u8 = 0;
const STOPPING: u8 = 1;
const KILLING: u8 = 2;

/// What a scene can do to the server under load.
pub struct Stage<'a> {
    server: &'a mut Server,
    phase: &'a AtomicU8,
}

impl Stage<'_> {
    /// The server.
    pub fn server(&self) -> &Server {
        self.server
    }

    /// Kills the server in the middle of the load.
    pub fn kill(&mut self) {
        let ended = self.server.ended().expect("the operating system says");
        assert!(ended.is_none(), "the server ended by itself:\n{}", self.server.output());
        self.phase.store(KILLING, Ordering::SeqCst);
        self.server.kill();
    }
}

impl Drop for Stage<'_> {
    /// The clients stop behind their next answer, also when the scene panics.
    fn drop(&mut self) {
        let _ = self.phase.compare_exchange(RUNNING, STOPPING, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// Plays `scene` while all clients of `books` are at work, and returns what it did when they have ended.
pub fn during<R>(
    server: &mut Server,
    books: &mut Books,
    prng: &mut Prng,
    refusals: Refusals,
    scene: impl FnOnce(&mut Stage<'_>) -> R,
) -> R {
    let phase = AtomicU8::new(RUNNING);
    let (address, growing) = (server.address(), books.growing());
    let (result, seen) = std::thread::scope(|scope| {
        let mut stage = Stage { server, phase: &phase };
        let (phase, growing) = (&phase, &growing);
        for (number, ledger) in books.ledgers.iter_mut().enumerate() {
            let mut prng = Prng::from_seed(prng.next_u64());
            // Half of the clients wait for each answer.
            let pipeline = match refusals {
                _ if number % 2 == 0 => 1,
                Refusals::Never => PIPELINE_MAX,
                Refusals::DiskFull => REFUSED_MAX,
            };
            scope.spawn(move || {
                until_over(phase, || write(address, phase, ledger, &mut prng, pipeline, refusals))
            });
        }
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                let mut prng = Prng::from_seed(prng.next_u64());
                scope.spawn(move || {
                    let mut seen = BTreeMap::new();
                    until_over(phase, || read(address, phase, growing, &mut prng, &mut seen, refusals));
                    seen
                })
            })
            .collect();
        let result = scene(&mut stage);
        drop(stage);
        let seen: Vec<_> = readers.into_iter().map(|reader| reader.join().expect("a reader ends")).collect();
        (result, seen)
    });
    seen.into_iter().for_each(|seen| books.witness(seen));
    result
}

/// Runs a client, which may lose its connection only if the server was killed.
fn until_over(phase: &AtomicU8, client: impl FnOnce() -> io::Result<()>) {
    if let Err(error) = client() {
        assert_eq!(phase.load(Ordering::SeqCst), KILLING, "a connection broke: {error}");
    }
}

fn write(
    address: SocketAddr,
    phase: &AtomicU8,
    ledger: &mut Ledger,
    prng: &mut Prng,
    pipeline: u64,
    refusals: Refusals,
) -> io::Result<()> {
    let mut client = Client::connect(address)?;
    while phase.load(Ordering::SeqCst) != STOPPING {
        let units: Vec<Unit> = (0..=prng.below(pipeline)).map(|_| unit(ledger.name(), prng)).collect();
        let requests: Vec<Vec<Vec<String>>> = units.iter().map(Unit::requests).collect();
        units.into_iter().for_each(|unit| ledger.sent(unit));
        client.send(&bytes(requests.iter().flatten()))?;
        for requests in requests {
            let refused = answer(&mut client, ledger, requests.len())?;
            let is_expected = refusals == Refusals::DiskFull && refused.contains("MISCONF");
            assert!(refused.is_empty() || is_expected, "{requests:?} was refused: {refused}");
        }
    }
    Ok(())
}

/// Reads the replies to one unit; the errors with which it was refused.
fn answer(client: &mut Client, ledger: &mut Ledger, requests: usize) -> io::Result<String> {
    let mut refused = String::new();
    for _ in 1..requests {
        // A transaction that cannot be queued says why there, and not at its end.
        if let Value::Error(text) = client.read_value()? {
            refused += &String::from_utf8_lossy(&text);
        }
    }
    if let Answer::Refused(text) = ledger.answered(&client.read_value()?) {
        refused += &text;
    }
    Ok(refused)
}

/// Asks for what only grows, in some of the ways there are.
fn read(
    address: SocketAddr,
    phase: &AtomicU8,
    growing: &[String],
    prng: &mut Prng,
    seen: &mut BTreeMap<String, i64>,
    refusals: Refusals,
) -> io::Result<()> {
    let mut client = Client::connect(address)?;
    while phase.load(Ordering::SeqCst) != STOPPING {
        let key = growing[prng.below(growing.len() as u64) as usize].as_str();
        let (asked, value) = match prng.below(4) {
            0 => {
                let all: Vec<&str> = ["MGET"].into_iter().chain(growing.iter().map(String::as_str)).collect();
                (growing.iter().map(String::as_str).collect(), client.call(&all)?)
            }
            1 => (vec![key], client.call(&["EVAL", "return redis.call('GET', KEYS[1])", "1", key])?),
            _ => (vec![key], client.call(&["GET", key])?),
        };
        if refusals == Refusals::DiskFull && is_withheld(&value) {
            continue;
        }
        let values = if let Value::Array(values) = value { values } else { vec![value] };
        for (key, value) in asked.into_iter().zip(values) {
            if let Some(value) = number(&value) {
                seen.insert(key.to_owned(), value);
            }
        }
    }
    Ok(())
}

/// Whether a read is told that what it asks for is not on disk.
fn is_withheld(value: &Value) -> bool {
    matches!(value, Value::Error(text) if text.starts_with(b"MISCONF ") && text.ends_with(b"is not on disk"))
}

/// The number in a reply; None if there is no such key.
fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Null => None,
        Value::Bulk(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        other => panic!("GET was answered with {other:?}"),
    }
}

fn bytes<'a>(requests: impl Iterator<Item = &'a Vec<String>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for request in requests {
        let words: Vec<&[u8]> = request.iter().map(String::as_bytes).collect();
        wire::encode_request(&mut bytes, &words);
    }
    bytes
}

/// What the client `name` does next.
fn unit(name: &str, prng: &mut Prng) -> Unit {
    let form = match prng.below(10) {
        0..=5 => Form::Alone,
        6..=7 => Form::Transaction,
        _ => Form::Script,
    };
    let count = if form == Form::Alone { 1 } else { 2 + prng.below(WRITES_MAX - 1) };
    Unit::new(form, (0..count).map(|_| one_write(name, prng)).collect())
}

fn one_write(name: &str, prng: &mut Prng) -> Vec<String> {
    let fresh = fresh();
    match prng.below(20) {
        0..=3 => words(&["INCR", &format!("{name}:seq")]),
        4 => words(&["INCR", COUNTERS[prng.below(COUNTERS.len() as u64) as usize]]),
        5 => words(&["LPUSH", LIST, &format!("{name}:{fresh}")]),
        6 => words(&["HSET", FIELDS, name, &fresh.to_string()]),
        _ => own_write(name, fresh, prng),
    }
}

/// A write to one of the client's own keys.
fn own_write(name: &str, fresh: u64, prng: &mut Prng) -> Vec<String> {
    let kind = KINDS[prng.below(KINDS.len() as u64) as usize];
    let key = format!("{name}:{kind}:{}", prng.below(KEYS_PER_KIND as u64));
    let few = prng.below(20);
    match prng.below(30) {
        0 => return words(&["DEL", &key]),
        1 => return words(&["EXPIRE", &key, &(TTL_SECONDS_MIN + fresh).to_string()]),
        _ => {}
    }
    match kind {
        // Some are longer than a block of any log.
        "text" => words(&["SET", &key, &format!("{fresh}:{}", "x".repeat(text_len(prng)))]),
        "count" => words(&["INCR", &key]),
        "list" => words(&["LPUSH", &key, &fresh.to_string()]),
        "hash" => words(&["HSET", &key, &format!("f{few}"), &fresh.to_string()]),
        "zset" => words(&["ZADD", &key, &fresh.to_string(), &format!("m{few}")]),
        "stream" => words(&["XADD", &key, &format!("{fresh}-1"), "f", "v"]),
        _ if prng.one_in(3) => words(&["SPOP", &key]),
        _ => words(&["SADD", &key, &fresh.to_string()]),
    }
}

fn text_len(prng: &mut Prng) -> usize {
    let max = if prng.one_in(200) { 400_000 } else { 200 };
    prng.below(max) as usize
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A number that nobody has had before, larger than all before it.
fn fresh() -> u64 {
    use std::sync::atomic::AtomicU64;
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
