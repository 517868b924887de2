//! What is logged of generated commands, applied to an empty keyspace effect by effect, makes the same keys: at any later time, under
//! whatever directives, and with the slots gone through apart.
//!
//! Every writing row of the table has its turn: each of its effects must be of a form that is on a list ([`FORMS`], or the few of
//! [`TRANSFERS`], which name two keys), and nothing of them may be there to be seen without a lock before they are appended.

#![allow(clippy::unwrap_used)] // Tests may.

mod run;

use command::args::Origin;
use command::effects::Scope;
use command::transfer::Transfer;
use command::{Args, Flags, Outcome, Row, Settings, execute};
use keyspace::{Cursor, DbIndex, Journal, KeyHasher, Keyspace, Options, Removal, Span, Stamp, Touch};
use run::find_row;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use sys::{Prng, UnixMs};
use testkit::Budget;
use testkit::generate::{Generator, Request, words};
use testkit::spec::{self, Spec};
use testkit::values::{KEYS, pick};
use value::collection::Thresholds;
use value::stream::Reads;
use wire::{Limits, Parser, Protocol, Reply, RequestBuf};

/// Commands of one stream.
const STREAM: u64 = 600;

/// Commands after which the keyspaces are compared.
const COMPARED_EVERY: u64 = 20;

/// Before any time is up.
const LONG_AGO: UnixMs = UnixMs(0);

/// A key's expiry, and replies that show its value.
type Shown = (Option<UnixMs>, Vec<Vec<u8>>);

/// A record as it was appended.
type Record = (DbIndex, UnixMs, Vec<u8>);

/// What was appended, record by record.
#[derive(Clone, Default)]
struct Records(Arc<Appended>);

#[derive(Default)]
struct Appended {
    keyspace: OnceLock<Weak<Keyspace>>,
    records: Mutex<Vec<Record>>,
    /// How many keys there were, and how many of them expire, by database, before what is appended next.
    counts: Mutex<Option<Counts>>,
}

type Counts = Vec<(u64, u64)>;

impl Records {
    fn of(keyspace: &Arc<Keyspace>) -> Records {
        let records = Records::default();
        records.0.keyspace.set(Arc::downgrade(keyspace)).expect("it has none yet");
        keyspace.set_journal(Box::new(records.clone()));
        records
    }

    fn take(&self) -> Vec<Record> {
        self.0.records.lock().unwrap().drain(..).collect()
    }

    /// What is counted now is what there is to be seen while the next record is appended.
    fn expect_counts(&self) {
        *self.0.counts.lock().unwrap() = Some(self.counts());
    }

    fn counts(&self) -> Counts {
        let keyspace = self.0.keyspace.get().unwrap().upgrade().unwrap();
        (0..keyspace.databases())
            .map(|db| (keyspace.len(DbIndex(db)), keyspace.expiring(DbIndex(db))))
            .collect()
    }
}

impl Journal for Records {
    fn append(&self, span: Span, now: UnixMs, requests: &[u8]) -> Stamp {
        let said = effects_of(&(span.first, now, requests.to_vec()));
        let last = said.last().map(|(db, ..)| *db);
        assert_eq!((span.is_several, Some(span.last)), (said.len() > 1, last), "{}", requests.escape_ascii());
        if let Some(expected) = self.0.counts.lock().unwrap().take() {
            assert_eq!(self.counts(), expected, "seen before it is appended: {}", requests.escape_ascii());
        }
        self.0.records.lock().unwrap().push((span.first, now, requests.to_vec()));
        self.end()
    }

    fn end(&self) -> Stamp {
        Stamp(self.0.records.lock().unwrap().len() as u64)
    }
}

struct Side {
    keyspace: Arc<Keyspace>,
    settings: Settings,
}

impl Side {
    fn new(seed: u64) -> Side {
        let hasher = KeyHasher::from_seed(seed);
        let options = Options { databases: 16, workers: 1, guests: 0, hasher, seed, now: run::START };
        Side { keyspace: Arc::new(Keyspace::new(options)), settings: Settings::default() }
    }

    /// Runs a request; what it did, if it was answered by something other than an error.
    fn run(&self, words: &Request, db: DbIndex, now: UnixMs, origin: Origin) -> Option<Outcome> {
        self.reply(words, (db, now), Touch::Yes, origin).map(|(_, outcome)| outcome)
    }

    /// What a request is answered, if not by an error.
    fn reply(
        &self,
        words: &Request,
        (db, now): (DbIndex, UnixMs),
        touch: Touch,
        origin: Origin,
    ) -> Option<(Vec<u8>, Outcome)> {
        let request = RequestBuf::from_args(words);
        let request = request.as_request();
        let row = find_row(request.arg(0), request.get(1)).filter(|row| row.accepts(request.len()))?;
        let args = Args::new(request, &self.keyspace, (db, now), &self.settings);
        let args = if origin == Origin::Log { args.of_log() } else { args };
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, Protocol::Resp2).at_most(1 << 24);
        let executed = execute(row, &mut self.keyspace.enter(0), &args, touch, &mut reply);
        executed.ok().map(|outcome| (out, outcome))
    }

    /// Makes one key what another is. False: that is not there.
    fn transfer(&self, db: DbIndex, transfer: &Transfer<'_>) -> bool {
        let number = transfer.database.map(|word| std::str::from_utf8(word).unwrap().parse().unwrap());
        let (keyspace, other) = (&self.keyspace, number.map_or(db, DbIndex));
        let (source, target) = (keyspace.key(db, transfer.source), keyspace.key(other, transfer.target));
        transfer.apply(&keyspace.enter(0), &source, &target).unwrap()
    }

    /// Every key whose time is not up at a moment, with its expiry and its value as DUMP and the like show it.
    fn keys(&self, now: UnixMs) -> BTreeMap<(u32, Vec<u8>), Shown> {
        let mut found = BTreeMap::new();
        for db in (0..16).map(DbIndex) {
            let batch = self.keyspace.enter(0);
            let mut names = Vec::new();
            let mut cursor = Cursor(0);
            loop {
                let next = batch.try_scan(db, cursor, 100, now, |object| {
                    names.push((object.key().to_vec(), object.expires_at()));
                });
                cursor = next.expect("nobody holds anything for long");
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
        let out =
            self.reply(words, (db, now), Touch::No, Origin::Client).map(|(out, _)| out).unwrap_or_default();
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

/// XINFO without how entries lie in memory.
fn without_tree(reply: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(reply).into_owned();
    let mut lines: Vec<&str> = text.split("\r\n").collect();
    for name in ["radix-tree-keys", "radix-tree-nodes"] {
        while let Some(at) = lines.iter().position(|line| *line == name) {
            lines.drain(at..at + 2);
        }
    }
    lines.join(" ").into_bytes()
}

/// An effect of a record: its database, its time, its words.
type Effect = (DbIndex, UnixMs, Request);

/// Takes a record apart.
fn effects_of((db, now, bytes): &Record) -> Vec<Effect> {
    let mut batch = wire::Batch::new();
    let taken =
        Parser::new().parse(bytes, &Limits::default(), &mut batch, usize::MAX).expect("records are requests");
    assert_eq!(taken, bytes.len());
    let mut db = *db;
    let mut effects = Vec::new();
    for request in batch.iter(bytes) {
        let words: Request = request.iter().map(<[u8]>::to_vec).collect();
        if words[0] == b"SELECT" {
            db = DbIndex(String::from_utf8_lossy(&words[1]).parse().expect("a database's number"));
        } else {
            effects.push((db, *now, words));
        }
    }
    effects
}

/// The key of an effect; none if it works on two keys, or on whole databases.
fn key_of(words: &Request) -> Option<&[u8]> {
    let request = RequestBuf::from_args(words);
    let request = request.as_request();
    let row = row_of(words).expect("the command is there");
    let scope = Scope::of(row).unwrap_or_else(|| panic!("logged: {request:?}"));
    match scope {
        Scope::Transfer => assert!(Transfer::of(&request).is_some(), "of no form: {request:?}"),
        Scope::Databases => {}
        _ => {
            let position = scope.key_position(row, &request).unwrap_or_else(|| panic!("no key: {request:?}"));
            return Some(&words[position]);
        }
    }
    None
}

/// Applies an effect.
fn apply(side: &Side, (db, now, words): &Effect) {
    let shown = RequestBuf::from_args(words);
    key_of(words);
    let is_applied = match Transfer::of(&shown.as_request()) {
        Some(transfer) => side.transfer(*db, &transfer),
        None => side.run(words, *db, *now, Origin::Log).is_some(),
    };
    assert!(is_applied, "not applied: {:?}", shown.as_request());
}

/// Applies effects as several threads would: each those on keys of its own, all that lie between two effects on more than one key.
fn apply_apart(side: &Side, effects: &[Effect]) {
    const PARTS: u64 = 5;
    let part_of = |key: &[u8]| key.iter().fold(7u64, |sum, byte| sum * 31 % 1009 + u64::from(*byte)) % PARTS;
    for stretch in effects.split_inclusive(|(_, _, words)| key_of(words).is_none()) {
        for part in 0..PARTS {
            let own =
                stretch.iter().filter(|(_, _, words)| key_of(words).is_some_and(|key| part_of(key) == part));
            own.for_each(|effect| apply(side, effect));
        }
        stretch.iter().filter(|(_, _, words)| key_of(words).is_none()).for_each(|effect| apply(side, effect));
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
        let records = Records::of(&one.keyspace);
        // In every other stream nearly all images are large ones.
        if seed % 2 == 1 {
            one.settings.set_piece_bytes(1 + prng.below(200) as usize);
        }
        let mut generator = Generator::new(&specs, seed);
        let mut now = run::START;
        let mut recent = Vec::new();
        for step in 1..=STREAM {
            now = UnixMs(now.0 + prng.below(40));
            let request = generator.request();
            let db = DbIndex(prng.below(2) as u32);
            records.expect_counts();
            one.run(&request, db, now, Origin::Client);
            let new = records.take();
            new.iter().flat_map(effects_of).for_each(|effect| apply(&other, &effect));
            let logged: Vec<_> = new.iter().map(|(_, _, bytes)| bytes.escape_ascii().to_string()).collect();
            recent.push(format!("{:?}, logged as {logged:?}", RequestBuf::from_args(&request).as_request()));
            if step % COMPARED_EVERY == 0 {
                compare(&one, &other, &recent, seed);
                recent.clear();
            }
        }
    }
}

/// What a replica of Redis 5.0 does not know whatever words are taken: fields that expire.
fn has_field_times(words: &Request) -> bool {
    const TIMED_HASH: u8 = 24;
    matches!(&words[0][..], b"HPEXPIREAT" | b"HPERSIST")
        || words[0] == b"RESTORE" && words[3][0] == TIMED_HASH
}

/// What is shown, without what Redis 5.0 does not know of streams.
fn without_counts(mut keys: BTreeMap<(u32, Vec<u8>), Shown>) -> BTreeMap<(u32, Vec<u8>), Shown> {
    const UNKNOWN: [(&str, usize); 5] = [
        ("entries-added", 2),
        ("entries-read", 2),
        ("lag", 2),
        ("active-time", 2),
        ("max-deleted-entry-id", 3),
    ];
    for (_, shown) in keys.values_mut() {
        for reply in shown.iter_mut().filter(|reply| reply.starts_with(b"*")) {
            let text = String::from_utf8_lossy(reply).into_owned();
            let mut words: Vec<&str> = text.split(' ').collect();
            for (name, count) in UNKNOWN {
                while let Some(at) = words.iter().position(|word| *word == name) {
                    words.drain(at..words.len().min(at + count));
                }
            }
            *reply = words.join(" ").into_bytes();
        }
    }
    keys
}

#[test]
fn effects_for_older_replicas_are_in_words_that_these_know() {
    command::table::install::<()>(&[]);
    let budget = Budget::from_env(1, 8);
    let specs = spec::data_specs();
    let mut done = 0;
    while budget.allows(done) {
        let seed = budget.seed + done;
        done += 1;
        let mut prng = Prng::from_seed(seed);
        let (one, other) = (Side::new(seed), Side::new(seed + 1));
        let records = Records::of(&one.keyspace);
        one.settings.set_image_reads(Reads::Redis50);
        if seed % 2 == 1 {
            one.settings.set_piece_bytes(1 + prng.below(200) as usize);
        }
        let mut generator = Generator::new(&specs, seed);
        let mut now = run::START;
        for step in 1..=STREAM {
            now = UnixMs(now.0 + prng.below(40));
            let (request, db) = (generator.request(), DbIndex(prng.below(2) as u32));
            one.run(&request, db, now, Origin::Client);
            for effect in records.take().iter().flat_map(effects_of) {
                let words = RequestBuf::from_args(&effect.2);
                let unknown = command::elder::unknown(&words.as_request());
                assert!(
                    unknown.is_none() || has_field_times(&effect.2),
                    "{:?} became {:?}: {unknown:?}\nTARN_SEED={seed} TARN_STEPS=1",
                    RequestBuf::from_args(&request).as_request(),
                    words.as_request()
                );
                apply(&other, &effect);
            }
            if step % COMPARED_EVERY == 0 {
                let (expected, found) =
                    (without_counts(one.keys(LONG_AGO)), without_counts(other.keys(LONG_AGO)));
                for (key, value) in &expected {
                    assert_eq!(Some(value), found.get(key), "{key:?}\nTARN_SEED={seed} TARN_STEPS=1");
                }
                assert_eq!(expected.len(), found.len(), "TARN_SEED={seed} TARN_STEPS=1");
            }
        }
    }
}

/// Holds the keyspaces against each other, what is over and has not been freed yet included.
fn compare(one: &Side, other: &Side, recent: &[String], seed: u64) {
    let (expected, found) = (one.keys(LONG_AGO), other.keys(LONG_AGO));
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

/// Requests of one row.
const TURN: u64 = 40;

/// Turns that a row is given until it has changed something.
const TURNS_MAX: u64 = 200;

/// What a log may hold of data commands, and but for [`TRANSFERS`] nothing else. Each has its one key in a fixed place, and the same effect at any later time.
/// A replica that follows knows them all, but for the times of fields (HPEXPIREAT, HPERSIST) where it is older than Redis 7.4.
#[rustfmt::skip]
const FORMS: &[&str] = &[
    "APPEND", "BITFIELD", "DECR", "DECRBY", "DEL", "FLUSHALL", "FLUSHDB", "GEOADD", "GETSET", "HDEL", "HINCRBY",
    "HINCRBYFLOAT", "HMSET", "HPERSIST", "HPEXPIREAT", "HSET", "HSETNX", "INCR", "INCRBY", "LINSERT", "LMOVE",
    "LPOP", "LPUSH", "LPUSHX", "LREM", "LSET", "LTRIM", "MSET", "MSETNX", "PERSIST", "PEXPIREAT", "PFADD", "PFCOUNT", "PFMERGE",
    "RESTORE", "RESTORE ABSTTL", "RESTORE REPLACE", "RESTORE REPLACE ABSTTL", "RPOP", "RPUSH", "RPUSHX", "SADD", "SET", "SET KEEPTTL", "SET PXAT", "SETBIT", "SETNX", "SETRANGE", "SREM",
    "SWAPDB", "UNLINK", "XACK", "XADD", "XCLAIM", "XDEL", "XGROUP CREATE", "XGROUP CREATECONSUMER", "XGROUP DELCONSUMER",
    "XGROUP DESTROY", "XGROUP SETID", "XSETID", "XTRIM MAXLEN =", "ZADD", "ZINCRBY", "ZPOPMAX", "ZPOPMIN", "ZREM",
    "ZREMRANGEBYLEX", "ZREMRANGEBYRANK", "ZREMRANGEBYSCORE",
];

/// The exceptions, which name two keys: the value that goes from one to the other is long, and saying it again would cost as much. Whoever
/// replays them waits until both keys are as they were; they are said only where no checkpoint has one without the other.
const TRANSFERS: &[&str] = &["COPY DB REPLACE", "COPY REPLACE", "MOVE", "RENAME"];

/// Directives under which next to nothing would be allowed, or be laid out as it was. But for sorted sets: a score of -0 is 0 in a
/// listpack only, as in Redis.
fn other_directives() -> Settings {
    let settings = Settings::default();
    settings.set_string_bytes_max(1);
    settings.set_thresholds(Thresholds {
        hash_max_listpack_entries: 2,
        set_max_intset_entries: 2,
        stream_node_max_entries: 3,
        hll_sparse_max_bytes: 0,
        ..Thresholds::default()
    });
    settings
}

fn writing_rows(rows: &'static [Row]) -> impl Iterator<Item = &'static Row> {
    rows.iter()
        .flat_map(|row| std::iter::once(row).chain(row.subcommands))
        .filter(|row| row.flags.contains(Flags::WRITE))
}

#[test]
fn every_writing_row_has_effects_on_one_key_that_are_the_same_at_any_later_time() {
    let budget = Budget::from_env(1, 1);
    let specs = spec::data_specs();
    let mut done = 0;
    while budget.allows(done) {
        let (mut silent, mut forms) = (Vec::new(), BTreeMap::new());
        for row in command::FAMILIES.iter().flat_map(|rows| writing_rows(rows)) {
            let mut turns = Turns::new(row, &specs, budget.seed + done);
            if !(0..TURNS_MAX).any(|_| turns.play() && turns.has_transferred()) {
                silent.push(row.name);
            }
            forms.extend(turns.forms.into_iter().map(|form| (form, row.name)));
        }
        let is_known = |form: &str| FORMS.contains(&form) || TRANSFERS.contains(&form);
        let unknown: Vec<_> = forms.iter().filter(|(form, _)| !is_known(form)).collect();
        assert!(unknown.is_empty(), "the log holds what is on no list: {unknown:?}");
        assert!(silent.is_empty(), "these change nothing, so nothing is known of their effects: {silent:?}");
        done += 1;
    }
}

/// Two keyspaces, of which one gets requests of a row among others of its family, and the other the effects.
struct Turns<'a> {
    row: &'static Row,
    spec: &'a Spec,
    family: Vec<Spec>,
    one: Side,
    other: Side,
    records: Records,
    seed: u64,
    prng: Prng,
    now: UnixMs,
    /// Of what was logged.
    forms: BTreeSet<String>,
}

impl<'a> Turns<'a> {
    fn new(row: &'static Row, specs: &'a [Spec], seed: u64) -> Turns<'a> {
        let spec = specs.iter().find(|spec| spec.name == row.name).expect("every row has a spec");
        let family = specs.iter().filter(|spec| spec.group == row.group).cloned().collect();
        let (one, other) = (Side::new(seed), Side { settings: other_directives(), ..Side::new(seed + 1) });
        let records = Records::of(&one.keyspace);
        let prng = Prng::from_seed(seed);
        Turns { row, spec, family, one, other, records, seed, prng, now: run::START, forms: BTreeSet::new() }
    }

    /// One turn. Whether the row has changed something.
    fn play(&mut self) -> bool {
        let family = self.family.clone();
        let mut generator = Generator::new(&family, self.prng.next_u64());
        let mut has_changed = false;
        let (mut effects, mut recent): (Vec<Effect>, Vec<String>) = (Vec::new(), Vec::new());
        // In every other turn much is long.
        let piece_bytes = if self.prng.one_in(2) { 30 } else { Settings::default().piece_bytes() };
        self.one.settings.set_piece_bytes(piece_bytes);
        for step in 0..TURN {
            self.now = UnixMs(self.now.0 + self.prng.below(40));
            let db = DbIndex(self.prng.below(2) as u32);
            let request = match step % 5 {
                0 | 1 => generator.request(),
                2 => apt(&mut self.prng),
                _ => generator.request_of(self.spec),
            };
            let is_of_row = row_of(&request).is_some_and(|other| other.name == self.row.name);
            self.records.expect_counts();
            let outcome = self.one.run(&request, db, self.now, Origin::Client);
            has_changed |= is_of_row && outcome == Some(Outcome::Changed);
            if step % 16 == 0 {
                self.records.expect_counts();
                let _ = self.one.keyspace.enter(0).sweep_expired(self.now, || true, |_, _| {});
            }
            let logged: Vec<Effect> = self.records.take().iter().flat_map(effects_of).collect();
            let shown = logged.iter().map(|(_, _, words)| RequestBuf::from_args(words));
            let shown: Vec<String> = shown.map(|words| format!("{:?}", words.as_request())).collect();
            recent.push(format!("{:?}, logged as {shown:?}", RequestBuf::from_args(&request).as_request()));
            effects.extend(logged);
        }
        self.forms.extend(effects.iter().map(|(_, _, words)| form_of(words)));
        apply_apart(&self.other, &effects);
        compare(&self.one, &self.other, &recent, self.seed);
        has_changed
    }

    /// Whether each form on two keys that is the row's was logged.
    fn has_transferred(&self) -> bool {
        let is_own = |form: &&&str| form.split(' ').next() == Some(&self.row.name.to_uppercase());
        TRANSFERS.iter().filter(is_own).all(|form| self.forms.contains(*form))
    }
}

fn row_of(words: &Request) -> Option<&'static Row> {
    let request = RequestBuf::from_args(words);
    find_row(request.as_request().arg(0), request.as_request().get(1))
}

/// What is rarely generated: times that are soon up, and entries that are read and acknowledged.
fn apt(prng: &mut Prng) -> Request {
    let key = pick(prng, &KEYS[..6]).to_vec();
    let id = format!("1-{}", 1 + prng.below(9));
    let request = match prng.below(8) {
        0 => words(&["HSET", "KEY", "f", "1", "g", "2"]),
        1 => words(&["HPEXPIRE", "KEY", "30", "FIELDS", "1", "f"]),
        2 => words(&["PEXPIRE", "KEY", "90"]),
        3 => words(&["XADD", "KEY", &id, "a", "b"]),
        4 => words(&["XGROUP", "CREATE", "KEY", "g", "0", "MKSTREAM"]),
        5 | 6 => words(&["XREADGROUP", "GROUP", "g", "c", "STREAMS", "KEY", ">"]),
        _ => words(&["XACK", "KEY", "g", &id]),
    };
    request.into_iter().map(|word| if word == b"KEY" { key.clone() } else { word }).collect()
}

/// What an effect is called, with the options by which it would be another.
fn form_of(words: &Request) -> String {
    let upper = |word: &Vec<u8>| String::from_utf8_lossy(word).to_uppercase();
    let name = upper(&words[0]);
    match name.as_str() {
        "XGROUP" | "PFDEBUG" => format!("{name} {}", upper(&words[1])),
        "SET" => {
            [&[name], &words[3..].iter().map(upper).filter(|word| !is_number(word)).collect::<Vec<_>>()[..]]
                .concat()
                .join(" ")
        }
        "XADD" if words[2].contains(&b'*') => "XADD *".to_owned(),
        "XTRIM" => format!("{name} {} {}", upper(&words[2]), upper(&words[3])),
        "COPY" => {
            let options = words[3..].iter().map(upper).filter(|word| !is_number(word));
            [name].into_iter().chain(options).collect::<Vec<_>>().join(" ")
        }
        "RESTORE" => [&[name], &words[4..].iter().map(upper).collect::<Vec<_>>()[..]].concat().join(" "),
        _ => name,
    }
}

fn is_number(word: &str) -> bool {
    word.parse::<u64>().is_ok()
}

#[test]
fn a_trim_that_a_redis_tells_has_a_limit_that_counts_no_more() {
    let (side, now) = (Side::new(1), UnixMs(1_700_000_000_000));
    let run = |line: &str, origin| {
        let request: Request = words(&line.split(' ').collect::<Vec<_>>());
        side.reply(&request, (DbIndex(0), now), Touch::No, origin).map(|(reply, _)| reply)
    };
    for entry in 1..=3 {
        assert!(run(&format!("XADD s {entry}-0 f v"), Origin::Log).is_some());
    }
    assert_eq!(run("XTRIM s MAXLEN = 1 LIMIT 1", Origin::Client), None);
    assert_eq!(run("XTRIM s MAXLEN = 2 LIMIT 1", Origin::Log).unwrap(), b":1\r\n");
    assert!(run("XADD s MAXLEN = 1 LIMIT 1 4-0 f v", Origin::Log).is_some());
    assert_eq!(run("XLEN s", Origin::Client).unwrap(), b":1\r\n");
}

/// What a server says that runs lines one after the other, a second apart from time to time: `~` stands for a payload.
fn said(side: &Side, lines: &[&str]) -> Vec<String> {
    let (db, mut now) = (DbIndex(0), run::START);
    let records = Records::of(&side.keyspace);
    assert!(side.run(&words(&["SET", "dumped", "v"]), db, now, Origin::Client).is_some());
    let dump = side.reply(&words(&["DUMP", "dumped"]), (db, now), Touch::No, Origin::Client).unwrap().0;
    let payload = &dump[dump.iter().position(|byte| *byte == b'\n').unwrap() + 1..dump.len() - 2];
    records.take();
    for line in lines {
        if *line == "(a second)" {
            now = UnixMs(now.0 + 1000);
            continue;
        }
        let request: Request = line
            .split(' ')
            .map(|word| if word == "~" { payload.to_vec() } else { word.as_bytes().to_vec() })
            .collect();
        assert!(side.run(&request, db, now, Origin::Client).is_some(), "{line}");
    }
    let shown = |word: &Vec<u8>| match word == payload {
        true => "~".to_owned(),
        false => String::from_utf8_lossy(word).replace(&(now.0 + 5000).to_string(), "in-5s"),
    };
    let effects = records.take();
    let effects = effects.iter().flat_map(effects_of);
    effects.map(|(_, _, words)| words.iter().map(shown).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn a_key_that_goes_is_said_to_go_as_the_directives_say() {
    let lines = [
        "SET a 1",
        "RESTORE a 1 ~ REPLACE ABSTTL",
        "SADD s 1 2",
        "SPOP s 2",
        "SET b 1",
        "PEXPIREAT b 1",
        "SET c 1",
        "GETEX c PXAT 1",
        "SET d 1 PX 1",
        "(a second)",
        "SETNX d 2",
        "SET e 1",
        "GETDEL e",
    ];
    let gone = |side: &Side| -> Vec<String> {
        let all = said(side, &lines).into_iter();
        all.filter(|effect| effect.starts_with("DEL") || effect.starts_with("UNLINK")).collect()
    };
    let of = |removals: &[Removal]| {
        let side = Side::new(1);
        removals.iter().for_each(|removal| side.keyspace.policy().set_unlinks(*removal, true));
        gone(&side)
    };
    assert_eq!(of(&[]), ["DEL a", "DEL s", "DEL b", "DEL c", "DEL d", "DEL e"]);
    assert_eq!(of(&[Removal::Command]), ["UNLINK a", "UNLINK s", "DEL b", "DEL c", "DEL d", "DEL e"]);
    let of_expiry = of(&[Removal::Expiry, Removal::Eviction]);
    assert_eq!(of_expiry, ["DEL a", "DEL s", "UNLINK b", "UNLINK c", "UNLINK d", "DEL e"]);
}

#[test]
fn what_a_set_and_a_restore_say_has_the_options_given() {
    let side = Side::new(1);
    let at = (run::START.0 + 1000 + 5000).to_string();
    let absolute = format!("SET k 4 pxat {at} NX");
    let told = said(
        &side,
        &[
            "SET k 1 KEEPTTL",
            "SET k 2 PX 1 GET",
            "(a second)",
            // Its time is up: who follows takes it away first, lest it keep the time.
            "SET k 3 XX KEEPTTL GET",
            "SET k 3 keepttl GET",
            "DEL k",
            &absolute,
            "SET k 5 EX 5",
            "RESTORE new 0 ~",
            "RESTORE new 5000 ~ REPLACE",
            "RESTORE later 5000 ~ IDLETIME 3",
            &format!("RESTORE at {at} ~ absttl replace"),
        ],
    );
    assert_eq!(
        told,
        [
            "SET k 1 KEEPTTL",
            &format!("SET k 2 PXAT {}", run::START.0 + 1),
            "DEL k",
            "SET k 3 keepttl",
            "DEL k",
            "SET k 4 pxat in-5s",
            "SET k 5 PXAT in-5s",
            "RESTORE new 0 ~",
            "RESTORE new in-5s ~ REPLACE ABSTTL",
            "RESTORE later in-5s ~ ABSTTL",
            "RESTORE at in-5s ~ absttl replace",
        ]
    );
}

#[test]
fn a_flush_of_nothing_is_said_and_changes_nothing() {
    let side = Side::new(1);
    assert_eq!(
        said(&side, &["FLUSHALL", "FLUSHDB", "flushall async"]),
        ["FLUSHALL", "FLUSHDB", "flushall async"]
    );
    assert_eq!(
        side.run(&words(&["FLUSHALL"]), DbIndex(0), run::START, Origin::Client),
        Some(Outcome::Unchanged)
    );
}
