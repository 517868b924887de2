//! What is logged of generated commands, applied to an empty keyspace request by request, makes the same keys.

#![allow(clippy::unwrap_used)] // Tests may.

mod run;

use command::execute::key_positions;
use command::{Args, Handler, Settings, execute};
use keyspace::{Cursor, DbIndex, Journal, KeyHasher, Keyspace, Options, Stamp, Touch};
use run::find_row;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use sys::{Prng, UnixMs};
use testkit::generate::{Generator, Request};
use testkit::{Budget, spec};
use wire::{Limits, Parser, Protocol, Reply, RequestBuf};

/// Commands of one stream.
const STREAM: u64 = 600;

/// Commands after which the keyspaces are compared.
const COMPARED_EVERY: u64 = 20;

/// A key's expiry, and replies that show its value.
type Shown = (Option<UnixMs>, Vec<Vec<u8>>);

/// A record as it was appended.
type Record = (DbIndex, UnixMs, Vec<u8>);

/// What was appended, record by record.
#[derive(Clone, Default)]
struct Records(Arc<Mutex<Vec<Record>>>);

impl Records {
    fn take(&self) -> Vec<Record> {
        self.0.lock().unwrap().drain(..).collect()
    }
}

impl Journal for Records {
    fn append(&self, db: DbIndex, now: UnixMs, requests: &[u8]) -> Stamp {
        self.0.lock().unwrap().push((db, now, requests.to_vec()));
        self.end()
    }

    fn end(&self) -> Stamp {
        Stamp(self.0.lock().unwrap().len() as u64)
    }
}

struct Side {
    keyspace: Keyspace,
    settings: Settings,
}

impl Side {
    fn new(seed: u64) -> Side {
        let hasher = KeyHasher::from_seed(seed);
        let options = Options { databases: 16, workers: 1, guests: 0, hasher, seed, now: run::START };
        Side { keyspace: Keyspace::new(options), settings: Settings::default() }
    }

    /// Runs a request; whether it was answered by something other than an error.
    fn run(&self, words: &Request, db: DbIndex, now: UnixMs) -> bool {
        self.reply(words, db, now, Touch::Yes).is_some()
    }

    /// What a request is answered, if not by an error.
    fn reply(&self, words: &Request, db: DbIndex, now: UnixMs, touch: Touch) -> Option<Vec<u8>> {
        let request = RequestBuf::from_args(words);
        let request = request.as_request();
        let row = find_row(request.arg(0), request.get(1)).filter(|row| row.accepts(request.len()))?;
        let args = Args::new(request, &self.keyspace, (db, now), &self.settings);
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, Protocol::Resp2).at_most(1 << 24);
        let executed = execute(row, &mut self.keyspace.enter(0), &args, touch, &mut reply);
        executed.is_ok().then_some(out)
    }

    /// Every key that is not expired, with its expiry and its value as DUMP and the like show it.
    fn keys(&self, now: UnixMs) -> BTreeMap<(u32, Vec<u8>), Shown> {
        let mut found = BTreeMap::new();
        for db in (0..16).map(DbIndex) {
            let batch = self.keyspace.enter(0);
            let mut names = Vec::new();
            let mut cursor = Cursor(0);
            loop {
                cursor = batch.scan(db, cursor, 100, now, |object| {
                    names.push((object.key().to_vec(), object.expires_at()));
                });
                if cursor == Cursor(0) {
                    break;
                }
            }
            drop(batch);
            for (name, expires_at) in names {
                let shown = self.show(&name, db, now);
                found.insert((db.0, name), (expires_at, shown));
            }
        }
        found
    }

    /// Replies that tell all of a value, whatever its type.
    fn show(&self, key: &[u8], db: DbIndex, now: UnixMs) -> Vec<Vec<u8>> {
        [
            &["GET"][..],
            &["LRANGE", "0", "-1"],
            &["ZRANGE", "0", "-1", "WITHSCORES"],
            &["XINFO", "STREAM", "FULL", "COUNT", "0"],
            &["SORT_RO", "ALPHA"],
            &["HGETALL"],
        ]
        .iter()
        .map(|words| {
            let at = if words[0] == "XINFO" { 2 } else { 1 };
            let mut request: Request = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            request.insert(at, key.to_vec());
            self.answer(&request, db, now)
        })
        .collect()
    }

    fn answer(&self, words: &Request, db: DbIndex, now: UnixMs) -> Vec<u8> {
        let out = self.reply(words, db, now, Touch::No).unwrap_or_default();
        match &words[0][..] {
            b"HGETALL" => in_order(&out),
            b"XINFO" => without_tree(&out),
            _ => out,
        }
    }
}

/// The fields of a hash in an order of their own.
fn in_order(reply: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(reply).into_owned();
    let mut lines: Vec<&str> = text.split("\r\n").collect();
    lines.sort_unstable();
    lines.join(" ").into_bytes()
}

/// XINFO without how entries lie in memory, and without what images that Redis 7.0 reads do not hold.
fn without_tree(reply: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(reply).into_owned();
    let mut lines: Vec<&str> = text.split("\r\n").collect();
    for name in ["radix-tree-keys", "radix-tree-nodes", "active-time"] {
        while let Some(at) = lines.iter().position(|line| *line == name) {
            lines.drain(at..at + 2);
        }
    }
    lines.join(" ").into_bytes()
}

/// Whether a request names one key, or works on whole databases.
fn works_on_one_key(words: &Request) -> bool {
    let request = RequestBuf::from_args(words);
    let request = request.as_request();
    let row = find_row(request.arg(0), request.get(1)).expect("the command is there");
    let mut positions = Vec::new();
    key_positions(row.keys, &request, &mut positions);
    let mut keys: Vec<&[u8]> = positions.into_iter().map(|position| request.arg(position)).collect();
    keys.dedup();
    keys.len() == 1 || matches!(row.handler, Handler::Exclusive(_))
}

/// Replays a record; each of its requests works on one key.
fn replay(side: &Side, (db, now, bytes): &Record) {
    let mut batch = wire::Batch::new();
    let taken =
        Parser::new().parse(bytes, &Limits::default(), &mut batch, usize::MAX).expect("records are requests");
    assert_eq!(taken, bytes.len());
    let mut db = *db;
    for request in batch.iter(bytes) {
        let words: Request = request.iter().map(<[u8]>::to_vec).collect();
        if words[0] == b"SELECT" {
            db = DbIndex(String::from_utf8_lossy(&words[1]).parse().expect("a database's number"));
            continue;
        }
        let shown = RequestBuf::from_args(&words);
        assert!(works_on_one_key(&words), "logged: {:?}", shown.as_request());
        assert!(side.run(&words, db, *now), "not replayed: {:?}", shown.as_request());
    }
}

#[test]
fn replayed_effects_make_the_same_keys() {
    let budget = Budget::from_env(1, 12);
    let specs = spec::data_specs();
    let mut done = 0;
    while budget.allows(done) {
        let seed = budget.seed + done;
        done += 1;
        let mut prng = Prng::from_seed(seed);
        let (one, other) = (Side::new(seed), Side::new(seed + 1));
        let records = Records::default();
        one.keyspace.set_journal(Box::new(records.clone()));
        let mut generator = Generator::new(&specs, seed);
        let mut now = run::START;
        let mut recent = Vec::new();
        for step in 1..=STREAM {
            now = UnixMs(now.0 + prng.below(40));
            let request = generator.request();
            let db = DbIndex(prng.below(2) as u32);
            one.run(&request, db, now);
            let new = records.take();
            new.iter().for_each(|record| replay(&other, record));
            let logged: Vec<_> = new.iter().map(|(_, _, bytes)| bytes.escape_ascii().to_string()).collect();
            recent.push(format!("{:?}, logged as {logged:?}", RequestBuf::from_args(&request).as_request()));
            if step % COMPARED_EVERY == 0 {
                compare(&one, &other, now, &recent, seed);
                recent.clear();
            }
        }
    }
}

/// Holds the keyspaces against each other.
fn compare(one: &Side, other: &Side, now: UnixMs, recent: &[String], seed: u64) {
    let (expected, found) = (one.keys(now), other.keys(now));
    if expected == found {
        return;
    }
    let text = |shown: &Shown| shown.1.iter().map(|part| part.escape_ascii().to_string()).collect::<Vec<_>>();
    for (key, value) in &expected {
        match found.get(key) {
            None => println!("{key:?} is missing"),
            Some(other) if other != value => {
                println!(
                    "{key:?}\n is {:?} {:?}\n not {:?} {:?}",
                    value.0,
                    text(value),
                    other.0,
                    text(other)
                );
            }
            Some(_) => {}
        }
    }
    for key in found.keys().filter(|key| !expected.contains_key(key)) {
        println!("{key:?} should not be there");
    }
    panic!("after {}\nTARN_SEED={seed} TARN_STEPS=1", recent.join("\n"));
}
