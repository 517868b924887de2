//! A workload on a [`Site`], from a seed: requests of all types, transactions, scripts, functions, expiry, eviction,
//! FLUSHALL and SWAPDB, syncs, and checkpoints with all of that beside them.

use crate::history::{History, Kind, Reach, SERVED};
use crate::site::{DATABASES, Site, WORKERS};
use command::execute::key_positions;
use command::table;
use command::{Flags, Group};
use engine::durability::checkpoint::{Interval, Pace, write_beside};
use engine::residency::by_hand;
use log::Retention;
use std::cell::Cell;
use std::collections::BTreeSet;
use sys::file::simulated::Disk;
use sys::{Clock, Prng};
use testkit::generate::{Generator, Request, words};
use testkit::spec::Spec;
use testkit::values::{KEYS, pick};
use wire::RequestBuf;

/// Steps beside a checkpoint.
const STEPS_BESIDE: u64 = 30;

/// Appends to all keys that it is given.
const TO_ITS_KEYS: &str = "for i, key in ipairs(KEYS) do redis.pcall('APPEND', key, ARGV[1]) end";

/// Writes keys that it names itself, some of them in another database.
const TO_ANY: &str = "redis.call('SET', 'k1', ARGV[1]); redis.call('SELECT', 1); redis.call('SET', 'k2', ARGV[1]);\
                      redis.pcall('RPUSH', 'k3', ARGV[1], ARGV[1])";

/// The functions of a library: one that gives a number, and two that write as scripts do.
const FUNCTIONS: &str = "redis.register_function('NAME', function() return NUMBER end)\n\
                         redis.register_function('NAME_keys', function(KEYS, ARGV) TO_ITS_KEYS end)\n\
                         redis.register_function('NAME_any', function(KEYS, ARGV) TO_ANY end)";

/// Hashes with fields that are over soon, and the fields.
const HASHES: &[&str] = &["h1", "h2"];
const FIELDS: &[&str] = &["a", "b"];

/// Strings that go from one to the other.
const NAMES: &[&str] = &["n1", "n2", "n3", "n4", "n5"];

/// A stream with a group.
const GROUPED: &str = "s1";

/// Libraries.
const LIBRARIES: &[&str] = &["one", "two"];

/// How the replies to a transaction end of which nothing ran.
const GIVEN_UP: &[u8] = b"-EXECABORT Transaction discarded because of previous errors.\r\n";

/// Looks at disks as they would be after a power cut.
pub type Inspector<'a> = &'a mut dyn FnMut(&History, Vec<Disk>);

pub struct Work<'a> {
    pub site: Site,
    pub history: History,
    prng: Prng,
    generator: Generator<'a>,
    clock: Clock,
    disk: Disk,
}

impl<'a> Work<'a> {
    /// Goes on with what a site holds; these keys are known.
    pub fn new(
        site: Site,
        disk: &Disk,
        clock: &Clock,
        specs: &'a [Spec],
        seed: u64,
        known: impl Iterator<Item = (u32, Vec<u8>)>,
    ) -> Work<'a> {
        let history = History::begin(&site, known);
        let (prng, generator) = (Prng::from_seed(seed), Generator::new(specs, seed));
        Work { site, history, prng, generator, clock: clock.clone(), disk: disk.clone() }
    }

    /// One step; what becomes of the disk is shown to the inspector.
    pub fn step(&mut self, inspect: Inspector<'_>) -> Result<(), String> {
        self.clock.advance_ms(self.prng.below(20));
        match self.prng.below(100) {
            0..16 => {
                self.flush(&mut *inspect);
                Ok(())
            }
            16..19 => self.checkpoint(inspect),
            98 | 99 => self.hang(inspect),
            19 => {
                // Films what is removed.
                self.site.log().retire(Retention::None).map_err(|error| error.to_string())?;
                inspect(&self.history, self.disk.take_film());
                Ok(())
            }
            20..30 if self.has_store() => self.spill(inspect),
            30..36 if self.has_store() => self.clean(inspect),
            _ => self.write(),
        }
    }

    fn has_store(&self) -> bool {
        self.site.server.engine.residency.store().is_some()
    }

    /// Sends everything to the store, with some steps while copies are on their way.
    fn spill(&mut self, inspect: Inspector<'_>) -> Result<(), String> {
        let server = self.site.server.clone();
        let mut result = Ok(());
        let spilled = by_hand::spill(&server.engine, &mut || {
            if result.is_ok() && self.prng.one_in(4) {
                result = self.write();
            }
        });
        inspect(&self.history, self.disk.take_film());
        spilled.map_err(|error| error.to_string()).and(result)
    }

    /// Moves what lives in a segment of the store.
    fn clean(&mut self, inspect: Inspector<'_>) -> Result<(), String> {
        let cleaned = by_hand::clean(&self.site.server.engine);
        inspect(&self.history, self.disk.take_film());
        cleaned.map_err(|error| error.to_string())
    }

    /// A step that only appends.
    pub fn write(&mut self) -> Result<(), String> {
        let key = pick(&mut self.prng, &KEYS[..6]).to_vec();
        let text = self.prng.below(1000).to_string();
        let with_key = |request: &str| -> Request {
            request
                .split(' ')
                .map(|word| if word == "KEY" { key.clone() } else { word.as_bytes().to_vec() })
                .collect()
        };
        match self.prng.below(60) {
            0..8 => self.transaction(),
            8..13 | 36 => {
                let call = self.call(&text);
                self.send(vec![call])
            }
            13..18 => {
                let ttl = 1 + self.prng.below(400);
                self.send(vec![with_key(&format!("PEXPIRE KEY {ttl}"))])
            }
            18..22 => {
                self.clock.advance_ms(self.prng.below(600));
                self.sweep()
            }
            22 | 23 => self.evict(),
            24 => self.send(vec![words(&["FLUSHALL"])]),
            25 => self.send(vec![words(&["FLUSHDB"])]),
            26 | 27 => {
                let other = pick(&mut self.prng, &["1", "2"]);
                self.send(vec![words(&["SWAPDB", "0", other])])
            }
            28 | 29 => self.function(&text),
            30 => {
                let db = pick(&mut self.prng, &["0", "0", "1", "2"]);
                self.send(vec![words(&["SELECT", db])])
            }
            31 => self.send(vec![words(&["DBSIZE"])]),
            32 => self.serve(&text),
            33..36 => self.send(vec![with_key(&format!("APPEND KEY {text}"))]),
            37..39 => self.send(vec![with_key(&format!("RPUSH KEY {text} {text}"))]),
            39..43 => {
                let request = self.about_fields(&text);
                self.send(vec![request])
            }
            43..46 => {
                let request = self.about_groups(&text);
                self.send(vec![request])
            }
            46 => self.send(vec![with_key("DEBUG OBJECT KEY")]),
            47 => self.swap_under_a_wait(),
            48..51 => {
                let request = self.about_names(&text);
                self.send(vec![request])
            }
            _ => {
                let request = self.request();
                self.send(vec![request])
            }
        }
    }

    /// The same beside a checkpoint, where what concerns whole databases, groups and fields comes more often.
    fn write_beside(&mut self) -> Result<(), String> {
        let text = self.prng.below(1000).to_string();
        match self.prng.below(20) {
            0 => self.send(vec![words(&["SWAPDB", "0", "1"])]),
            1 => self.send(vec![words(&["FLUSHALL"])]),
            2..7 => {
                let request = self.about_groups(&text);
                self.send(vec![request])
            }
            7..10 => {
                let request = self.about_fields(&text);
                self.send(vec![request])
            }
            10..17 => {
                let request = self.about_names(&text);
                self.send(vec![request])
            }
            _ => self.write(),
        }
    }

    /// An exchange of any two databases.
    fn exchange(&mut self) -> Result<(), String> {
        let (one, other) = pick(&mut self.prng, &[("0", "1"), ("1", "2"), ("2", "0")]);
        self.send(vec![words(&["SWAPDB", one, other])])
    }

    /// A request that does not wait.
    fn request(&mut self) -> Request {
        loop {
            let request = self.generator.request();
            let buffer = RequestBuf::from_args(&request);
            let command = table::find_for(&buffer.as_request());
            let waits = |command: &table::Command| {
                let is_asked = || request.iter().any(|word| word.eq_ignore_ascii_case(b"block"));
                command.is(Flags::BLOCKING) && (command.row.group != Group::Stream || is_asked())
            };
            let is_fit = |command: &table::Command| {
                !waits(command) && !matches!(command.row.group, Group::Transactions | Group::Scripting)
            };
            if command.is_some_and(is_fit) {
                return request;
            }
        }
    }

    fn transaction(&mut self) -> Result<(), String> {
        let count = 1 + self.prng.below(6);
        let mut requests = vec![words(&["MULTI"])];
        for _ in 0..count {
            let request = match self.prng.below(14) {
                0 => words(&["SWAPDB", "0", "1"]),
                1 => words(&["SELECT", pick(&mut self.prng, &["0", "1"])]),
                2 => words(&["FLUSHDB"]),
                3 => words(&["FUNCTION", "FLUSH"]),
                4 => words(&["APPEND", "k1", "x"]),
                5 => self.call("x"),
                6 | 7 => self.about_names("x23"),
                _ => self.request(),
            };
            requests.push(request);
        }
        requests.push(words(&["EXEC"]));
        self.send(requests)
    }

    /// A push that serves somebody who waits.
    fn serve(&mut self, text: &str) -> Result<(), String> {
        let [from, to] = SERVED;
        self.site.wait(words(&["BLMOVE", from, to, "LEFT", "RIGHT", "0"]));
        let keys = SERVED.map(|key| key.as_bytes().to_vec());
        self.history.note(&self.site, Kind::Whole, &keys, Reach::Named, || "BLMOVE".to_owned())?;
        let sent = self.send_as(Kind::Served, vec![words(&["RPUSH", from, text]), words(&["EXISTS", to])]);
        self.site.end_wait();
        sent
    }

    /// Hashes whose fields are over soon, and what meets them afterwards.
    fn about_fields(&mut self, text: &str) -> Request {
        let (hash, field) = (pick(&mut self.prng, HASHES), pick(&mut self.prng, FIELDS));
        let ttl = (1 + self.prng.below(200)).to_string();
        match self.prng.below(9) {
            0..2 => words(&["HSET", hash, field, text, "b", text]),
            2..5 => words(&["HPEXPIRE", hash, &ttl, "FIELDS", "1", field]),
            5 => words(&["HDEL", hash, field]),
            6 => words(&["SETNX", hash, text]),
            7 => words(&["HINCRBY", hash, field, "1"]),
            _ => words(&["DEL", hash]),
        }
    }

    /// Values that go from key to key, and become so long that the log names the keys.
    fn about_names(&mut self, text: &str) -> Request {
        let key = pick(&mut self.prng, NAMES);
        let other = pick(&mut self.prng, NAMES);
        let db = self.prng.below(u64::from(DATABASES)).to_string();
        match self.prng.below(12) {
            0..3 => words(&["APPEND", key, &text.repeat(40)]),
            3..6 => words(&["RENAME", key, other]),
            6 => words(&["RENAMENX", key, other]),
            7 => words(&["COPY", key, other, "REPLACE"]),
            8 => words(&["COPY", key, other, "DB", &db]),
            9 => words(&["COPY", key, key, "DB", &db, "REPLACE"]),
            _ => words(&["MOVE", key, &db]),
        }
    }

    /// A stream, its groups and who reads them.
    fn about_groups(&mut self, text: &str) -> Request {
        match self.prng.below(9) {
            0 | 1 => words(&["XADD", GROUPED, "*", "f", text]),
            2 | 3 => words(&["XREADGROUP", "GROUP", "g", "ann", "STREAMS", GROUPED, ">"]),
            4 => words(&["XREADGROUP", "GROUP", "g", "bob", "COUNT", "1", "NOACK", "STREAMS", GROUPED, ">"]),
            5 => words(&["XGROUP", "CREATE", GROUPED, "g", "0", "MKSTREAM"]),
            6 => words(&["XGROUP", "DESTROY", GROUPED, "g"]),
            7 => words(&["XAUTOCLAIM", GROUPED, "g", "bob", "0", "0"]),
            _ => words(&["DEL", GROUPED]),
        }
    }

    /// An exchange of databases while somebody waits for a key that is there in one of them, and over in the other.
    fn swap_under_a_wait(&mut self) -> Result<(), String> {
        let key = SERVED[0];
        let here = self.site.session.db.0.to_string();
        let there = if here == "0" { "1" } else { "0" };
        self.send(vec![words(&["DEL", key])])?;
        self.send(vec![words(&["XADD", key, "*", "f", "v"])])?;
        self.send(vec![words(&["SELECT", there])])?;
        self.send(vec![words(&["SET", key, "x", "PX", "5"])])?;
        self.send(vec![words(&["SELECT", &here])])?;
        self.clock.advance_ms(10);
        self.site.wait(words(&["XREAD", "BLOCK", "0", "STREAMS", key, "$"]));
        let sent = self.send(vec![words(&["SWAPDB", &here, there])]);
        self.site.end_wait();
        sent
    }

    /// A script or function that writes several keys, of which it may name none.
    fn call(&mut self, text: &str) -> Request {
        let name = pick(&mut self.prng, LIBRARIES);
        let keys = [pick(&mut self.prng, KEYS).to_vec(), pick(&mut self.prng, KEYS).to_vec()];
        let (mut request, keys) = match self.prng.below(4) {
            0 => (words(&["EVAL", TO_ITS_KEYS, "2"]), &keys[..]),
            1 => (words(&["EVAL", TO_ANY, "0"]), &[][..]),
            2 => (words(&["FCALL", &format!("{name}_keys"), "2"]), &keys[..]),
            _ => (words(&["FCALL", &format!("{name}_any"), "0"]), &[][..]),
        };
        request.extend(keys.iter().cloned());
        request.push(text.as_bytes().to_vec());
        request
    }

    fn function(&mut self, text: &str) -> Result<(), String> {
        let name = pick(&mut self.prng, LIBRARIES);
        let functions = FUNCTIONS.replace("NAME", name).replace("NUMBER", text);
        let functions = functions.replace("TO_ITS_KEYS", TO_ITS_KEYS).replace("TO_ANY", TO_ANY);
        let code = format!("#!lua name={name}\n{functions}");
        let request = match self.prng.below(4) {
            0 => words(&["FUNCTION", "DELETE", name]),
            _ => words(&["FUNCTION", "LOAD", "REPLACE", &code]),
        };
        self.send(vec![request])
    }

    /// Runs requests that came together, as one step, and holds the reply back.
    fn send(&mut self, requests: Vec<Request>) -> Result<(), String> {
        self.send_as(Kind::Whole, requests)
    }

    fn send_as(&mut self, kind: Kind, requests: Vec<Request>) -> Result<(), String> {
        let before = self.site.log().appended().0;
        let db = self.site.session.db.0;
        let (out, stamp) = self.site.run(&requests);
        let touched = touched(&requests);
        let reach = if requests.iter().any(is_wide) { Reach::All } else { Reach::Named };
        let what = || requests.iter().map(said).collect::<Vec<_>>().join("; ");
        self.history.note(&self.site, kind, &touched, reach, what)?;
        let after = self.site.log().appended().0;
        let tells_all = requests.iter().any(|request| {
            ["dbsize", "keys", "scan", "randomkey"].iter().any(|name| is_named(request, name))
        });
        let needs = match out.first() {
            _ if after > before => after,
            // It may not have looked at any key.
            Some(b'-') => 0,
            _ if out.ends_with(GIVEN_UP) => 0,
            _ if tells_all && requests.len() == 1 => self.history.end(),
            _ => touched.iter().map(|key| self.history.changed(db, key)).max().unwrap_or(0),
        };
        self.history.hold(stamp, needs, what());
        self.history.let_out(&self.site);
        Ok(())
    }

    fn sweep(&mut self) -> Result<(), String> {
        let now = self.clock.now();
        for worker in 0..WORKERS {
            let batch = self.site.server.engine.keyspace.enter(worker);
            let _ = batch.sweep_expired(now, || true, |_, _| {});
        }
        self.history.note(&self.site, Kind::Removals, &[], Reach::All, || "a sweep".to_owned())
    }

    fn evict(&mut self) -> Result<(), String> {
        let keyspace = &self.site.server.engine.keyspace;
        let left = Cell::new(1 + self.prng.below(3));
        keyspace.policy().set_memory_bytes_max(1);
        let used_bytes = || {
            left.set(left.get().saturating_sub(1));
            if left.get() == 0 { 0 } else { u64::MAX }
        };
        // There may be no key.
        let _ = keyspace.enter(0).evict(self.clock.now(), used_bytes, |_, _| {});
        keyspace.policy().set_memory_bytes_max(0);
        self.history.note(&self.site, Kind::Removals, &[], Reach::All, || "an eviction".to_owned())
    }

    /// Syncs. What the disk is like meanwhile is shown with what clients know of before.
    pub fn flush(&mut self, inspect: Inspector<'_>) {
        self.site.log().flush();
        inspect(&self.history, self.disk.take_film());
        self.history.let_out(&self.site);
    }

    /// Some steps while a sync hangs: nothing is let out meanwhile.
    fn hang(&mut self, inspect: Inspector<'_>) -> Result<(), String> {
        let log = self.site.log();
        if log.durable() == log.appended() {
            return Ok(());
        }
        let durable = log.durable();
        self.disk.hang(true);
        let flusher = std::thread::spawn(move || log.flush());
        self.disk.wait_until_hanging();
        let result = (0..self.prng.below(STEPS_BESIDE)).try_for_each(|_| self.write());
        self.history.let_out(&self.site);
        let is_open = self.site.server.net.gate.open_to().0 > durable.0;
        self.disk.hang(false);
        flusher.join().map_err(|_| "the flush panicked")?;
        inspect(&self.history, self.disk.take_film());
        self.history.let_out(&self.site);
        if is_open { Err("the gate opened while the disk hung".to_owned()) } else { result }
    }

    /// Writes a checkpoint with other steps beside it.
    fn checkpoint(&mut self, inspect: Inspector<'_>) -> Result<(), String> {
        let (server, log) = (self.site.server.clone(), self.site.log());
        let guest = server.engine.guest();
        let numbers = 0..server.engine.keyspace.databases();
        let used = numbers.filter(|number| server.engine.keyspace.is_number_used(*number)).count() as u64;
        let slots = used * keyspace::SLOTS as u64;
        let due: BTreeSet<u64> =
            (0..self.prng.below(STEPS_BESIDE)).map(|_| self.prng.below(slots.max(1))).collect();
        let exchanges = self.prng.one_in(3);
        let mut result = Ok(());
        let mut slot = 0;
        let written = write_beside(&server.engine, &log, guest, Pace::Full, &mut |interval| {
            if result.is_err() {
                return;
            }
            match interval {
                Interval::BetweenSlots => {
                    slot += 1;
                    if due.contains(&slot) {
                        inspect(&self.history, self.disk.take_film());
                        result = match self.prng.below(if self.has_store() { 3 } else { 1 }) {
                            _ if exchanges && self.prng.one_in(2) => self.exchange(),
                            0 => self.write_beside(),
                            1 => self.spill(inspect),
                            _ => self.clean(inspect),
                        };
                    }
                }
                Interval::BeforeSync => self.flush(inspect),
            }
        });
        inspect(&self.history, self.disk.take_film());
        written.map_err(|error| error.to_string())?;
        if self.prng.one_in(2) {
            log.retire(Retention::None).map_err(|error| error.to_string())?;
            inspect(&self.history, self.disk.take_film());
        }
        result
    }
}

/// The keys that requests name.
fn touched(requests: &[Request]) -> Vec<Vec<u8>> {
    let mut found = BTreeSet::new();
    let mut positions = Vec::new();
    for request in requests {
        let buffer = RequestBuf::from_args(request);
        let words = buffer.as_request();
        if let Some(command) = table::find_for(&words) {
            key_positions(command.row.keys, &words, &mut positions);
            found.extend(positions.iter().filter_map(|position| request.get(*position).cloned()));
        }
        if is_named(request, "eval") || is_named(request, "fcall") {
            found.extend(KEYS[..3].iter().map(|key| key.to_vec()));
        }
    }
    found.into_iter().collect()
}

/// Whether a request may change keys that it does not name.
fn is_wide(request: &Request) -> bool {
    const NAMES: [&str; 9] =
        ["flushall", "flushdb", "swapdb", "eval", "fcall", "randomkey", "scan", "keys", "dbsize"];
    NAMES.iter().any(|name| is_named(request, name))
}

fn is_named(request: &Request, name: &str) -> bool {
    request[0].eq_ignore_ascii_case(name.as_bytes())
}

fn said(request: &Request) -> String {
    let words = request.iter().map(|word| word[..word.len().min(60)].escape_ascii().to_string());
    words.collect::<Vec<_>>().join(" ")
}
