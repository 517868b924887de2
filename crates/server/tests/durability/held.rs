//! Whatever a command shows of what is not on disk is held back: every command of the table, alone, in a transaction and in a
//! script.
//!
//! Two servers have the same data on disk. One of them has executed some more since, and its disk hangs. What is asked of both and
//! answered differently shows what is not on disk; then its stamp must be one for which the gate is closed.

use crate::site::Site;
use command::Flags;
use command::execute::key_positions;
use command::table::{self, Command, Runs};
use engine::durability::{self, KeyCounts};
use keyspace::{Batch, DbIndex, Expiry, Key, NewValue, Touch};
use net::service::Stop;
use server::blocking::{self, Cut};
use sys::file::simulated::{Disk, Faults, Survival};
use sys::{Clock, Prng, UnixMs};
use testkit::generate::{Generator, Request, words};
use testkit::seed::Budget;
use testkit::spec::{Spec, data_specs};
use testkit::values::{KEYS, pick};
use wire::RequestBuf;

/// Writes that are on disk.
const ON_DISK: usize = 120;

/// Writes that are not.
const HELD: usize = 10;

/// Requests of each command in each place.
const ROUNDS: u64 = 2;

/// What these answer is different every time, shows the process, or would end it or the test.
const NOT_COMPARED: &[&str] = &[
    "acl|genpass",
    "bgrewriteaof",
    "bgsave",
    "client|kill",
    "client|list",
    "client|pause",
    "client|reply",
    "client|info",
    "client|unblock",
    "command|getkeys",
    "command|getkeysandflags",
    "debug",
    "hrandfield",
    "info",
    "lastsave",
    "latency|doctor",
    "latency|histogram",
    "lolwut",
    "memory|doctor",
    "memory|malloc-stats",
    "memory|purge",
    "memory|stats",
    "migrate",
    "object|freq",
    "pfselftest",
    "psync",
    "quit",
    "randomkey",
    "replicaof",
    "role",
    "save",
    "script|kill",
    "shutdown",
    "slaveof",
    "slowlog|get",
    "slowlog|len",
    "spop",
    "srandmember",
    "sync",
    "time",
    "zrandmember",
];

/// Asked beside what is made from the rows.
const ALSO: &[&[&str]] = &[
    &["FCALL", "old", "0"],
    &["FCALL", "new", "0"],
    &["FCALL_RO", "old", "1", "k1"],
    &["FCALL_RO", "new", "1", "k1"],
    &["FUNCTION", "LIST"],
    &["FUNCTION", "LIST", "WITHCODE"],
    &["FUNCTION", "DUMP"],
    &["FUNCTION", "STATS"],
    &["INFO", "keyspace"],
    &["SCAN", "0", "COUNT", "1000"],
    &["EVAL", "return redis.call('GET', 'k1')", "0"],
    &["EVAL", "return redis.call('DBSIZE')", "0"],
];

fn library(name: &str, number: u64) -> Request {
    let code = format!(
        "#!lua name={name}\nredis.register_function{{function_name='{name}', callback=function() return {number} end, \
         flags={{'no-writes'}}}}"
    );
    words(&["FUNCTION", "LOAD", "REPLACE", &code])
}

/// What is done before anything is asked.
struct Past {
    seed: u64,
    on_disk: Vec<Request>,
    held: Vec<Request>,
}

impl Past {
    fn of(specs: &[Spec], seed: u64) -> Past {
        let mut generator = Generator::new(specs, seed);
        let mut some = |count: usize| -> Vec<Request> {
            std::iter::repeat_with(|| generator.request()).filter(does_not_wait).take(count).collect()
        };
        let (mut on_disk, mut held) = (some(ON_DISK), some(HELD));
        on_disk.push(library("old", 1));
        let mut prng = Prng::from_seed(seed);
        held.insert(prng.below(held.len() as u64) as usize, library("old", 2));
        held.push(library("new", 3));
        held.push(words(&["SET", "k1", "held"]));
        if prng.one_in(4) {
            held.push(words(pick(
                &mut prng,
                &[&["SWAPDB", "0", "1"][..], &["FLUSHALL"], &["SWAPDB", "0", "2"]],
            )));
        }
        Past { seed, on_disk, held }
    }

    /// The server that did all of it, of which the rest is not on disk, and the one that did not do the rest.
    fn play(&self, clock: &Clock) -> [Site; 2] {
        [&self.held[..], &[]].map(|held| {
            let mut site =
                Site::open("durable", &Disk::new(self.seed), self.seed, clock, 1).expect("an empty disk");
            run_all(&mut site, &self.on_disk);
            site.log().flush();
            run_all(&mut site, held);
            site
        })
    }
}

fn run_all(site: &mut Site, requests: &[Request]) {
    for request in requests {
        site.run(std::slice::from_ref(request));
    }
}

fn command_of(request: &Request) -> Option<&'static Command> {
    table::find_for(&RequestBuf::from_args(request).as_request())
}

fn does_not_wait(request: &Request) -> bool {
    command_of(request)
        .is_some_and(|command| !command.is(Flags::BLOCKING) && matches!(command.row.handler, Runs::Data(_)))
}

/// A request as one of a script that declares its keys.
fn scripted(command: &Command, request: &Request) -> Vec<Request> {
    let mut positions = Vec::new();
    key_positions(command.row.keys, &RequestBuf::from_args(request).as_request(), &mut positions);
    let mut text =
        format!("return redis.call('{}'", String::from_utf8_lossy(&request[0]).replace(['\'', '\\'], ""));
    let (mut keys, mut args) = (Vec::new(), Vec::new());
    for (position, word) in request.iter().enumerate().skip(1) {
        let (list, name) =
            if positions.contains(&position) { (&mut keys, "KEYS") } else { (&mut args, "ARGV") };
        list.push(word.clone());
        text.push_str(&format!(", {name}[{}]", list.len()));
    }
    let mut call = words(&["EVAL", &(text + ")"), &keys.len().to_string()]);
    call.extend(keys);
    call.extend(args);
    vec![call]
}

/// How often what was asked showed what is not on disk.
#[derive(Default)]
struct Tally {
    asked: u64,
    held: u64,
}

/// Two servers that differ by what is not on disk.
struct Stage<'a> {
    past: &'a Past,
    clock: &'a Clock,
    sites: [Site; 2],
    are_reads_seen: bool,
    tally: Tally,
}

impl Stage<'_> {
    fn new<'a>(past: &'a Past, clock: &'a Clock, are_reads_seen: bool) -> Stage<'a> {
        let mut stage =
            Stage { past, clock, sites: past.play(clock), are_reads_seen, tally: Tally::default() };
        stage.plant();
        stage
    }

    fn plant(&mut self) {
        self.sites[0].server.engine.keyspace.set_reads_seen(self.are_reads_seen);
    }

    /// Asks both; a complaint if the one showed what it should not.
    fn ask(&mut self, requests: &[Request]) -> Result<(), String> {
        let ends = self.sites.each_ref().map(|site| site.log().appended());
        let answers = self.sites.each_mut().map(|site| {
            let mut session = site.newcomer();
            site.run_as(&mut session, requests)
        });
        let [(stop, shown, stamp), (stop_without, without, _)] = &answers;
        let is_held = !self.sites[0].server.net.gate.is_open(*stamp);
        self.tally.asked += 1;
        let differs = shown != without;
        self.tally.held += u64::from(differs && is_held);
        let must_differ_later = [stop, stop_without].iter().any(|stop| matches!(stop, Stop::Blocked { .. }));
        let wrote = self.sites.each_ref().map(|site| site.log().appended()) != ends;
        if wrote || must_differ_later {
            self.sites = self.past.play(self.clock);
            self.plant();
        }
        if differs && !is_held {
            let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
            let asked: Vec<String> = requests.iter().map(|words| text(&words.join(&b' '))).collect();
            return Err(format!(
                "{asked:?} showed {} and does not wait, where what is on disk gives {}",
                text(shown),
                text(without)
            ));
        }
        Ok(())
    }

    /// One request of a command in every place where it may be.
    fn ask_everywhere(&mut self, command: &Command, request: &Request) -> Result<(), String> {
        self.ask(std::slice::from_ref(request))?;
        if !command.is(Flags::NO_MULTI) {
            self.ask(&[words(&["MULTI"]), request.clone(), words(&["EXEC"])])?;
        }
        if !command.is(Flags::NOSCRIPT) {
            self.ask(&scripted(command, request))?;
        }
        Ok(())
    }
}

/// Asks everything there is to ask.
fn ask_all(specs: &[Spec], seed: u64, are_reads_seen: bool) -> Result<Tally, String> {
    let clock = Clock::simulated(UnixMs(1_700_000_000_000));
    let past = Past::of(specs, seed);
    let mut stage = Stage::new(&past, &clock, are_reads_seen);
    let compared = table::all().iter().filter(|command| !NOT_COMPARED.contains(&command.row.name));
    for (number, command) in compared.enumerate() {
        let spec = [Spec::new(command.row.name, command.row.arity, command.row.syntax)];
        let mut generator = Generator::new(&spec, seed ^ number as u64);
        for _ in 0..ROUNDS {
            let request = generator.request();
            // A container's name alone, or one that the generator spoilt.
            if let Some(found) = command_of(&request).filter(|found| !NOT_COMPARED.contains(&found.row.name))
            {
                stage.ask_everywhere(found, &request)?;
            }
        }
    }
    for request in ALSO {
        let request = words(request);
        let command = command_of(&request).expect("it is in the table");
        stage.ask_everywhere(command, &request)?;
    }
    for key in KEYS {
        stage.ask(&[vec![b"DUMP".to_vec(), key.to_vec()]])?;
    }
    Ok(stage.tally)
}

#[test]
fn nothing_is_shown_of_what_is_not_on_disk() {
    let budget = Budget::from_env(1, 2);
    let specs = data_specs();
    let (mut done, mut asked, mut held) = (0, 0, 0);
    while budget.allows(done) {
        let seed = budget.seed + done;
        let tally = ask_all(&specs, seed, true);
        let tally = tally.unwrap_or_else(|wrong| panic!("TARN_SEED={seed} TARN_STEPS=1: {wrong}"));
        (asked, held, done) = (asked + tally.asked, held + tally.held, done + 1);
    }
    println!(
        "{done} seeds, {asked} questions, {held} answers that showed what was not on disk, all of them held"
    );
    assert!(held > 0);
}

/// The canary: a server that does not remember what it has looked at must be noticed.
#[test]
fn a_read_that_shows_what_is_not_on_disk_is_noticed() {
    let specs = data_specs();
    assert!(ask_all(&specs, 1, false).is_err());
}

/// What ends listening, or changes how messages are written.
const WAYS_OUT: &[&[&str]] = &[
    &["UNSUBSCRIBE", "news"],
    &["UNSUBSCRIBE"],
    &["PUNSUBSCRIBE", "n*"],
    &["PUNSUBSCRIBE"],
    &["SSUBSCRIBE", "other"],
    &["RESET"],
    &["HELLO", "2"],
    &["PING"],
];

#[test]
fn messages_wait_for_the_disk_on_every_way_out_of_the_mail() {
    let clock = Clock::simulated(UnixMs(1_700_000_000_000));
    for way_out in WAYS_OUT {
        let mut site = Site::open("durable", &Disk::new(1), 1, &clock, 1).unwrap();
        let mut listener = site.newcomer();
        let begin = [words(&["HELLO", "3"]), words(&["SUBSCRIBE", "news"]), words(&["PSUBSCRIBE", "n*"])];
        site.run_as(&mut listener, &begin);
        site.run(&[words(&["SET", "k", "v"]), words(&["PUBLISH", "news", "k is v"])]);
        let (_, out, stamp) = site.run_as(&mut listener, &[words(way_out)]);
        let text = String::from_utf8_lossy(&out);
        assert!(text.contains("k is v"), "{way_out:?}: {text}");
        assert!(!site.server.net.gate.is_open(stamp), "{way_out:?}");
        site.log().flush();
        assert!(site.server.net.gate.is_open(stamp), "{way_out:?}");
    }
}

#[test]
fn what_a_transaction_published_comes_before_the_reply_that_it_led_to_and_both_wait() {
    let clock = Clock::simulated(UnixMs(1_700_000_000_000));
    let mut site = Site::open("durable", &Disk::new(1), 1, &clock, 1).unwrap();
    let mut waiter = site.newcomer();
    site.run_as(&mut waiter, &[words(&["HELLO", "3"]), words(&["SUBSCRIBE", "news"])]);
    let (stop, ..) = site.run_as(&mut waiter, &[words(&["BLPOP", "list", "0"])]);
    assert!(matches!(stop, Stop::Blocked { .. }));
    let push = ["MULTI", "PUBLISH news pushed", "RPUSH list x", "EXEC"].map(|line| line.split(' ').collect());
    site.run(&push.map(|line: Vec<&str>| words(&line)));
    let letters = waiter.client.take_mail();
    let text = String::from_utf8_lossy(letters.as_bytes()).into_owned();
    let (message, reply) = (text.find("pushed").unwrap(), text.find("\r\nx\r\n").unwrap());
    assert!(message < reply, "{text}");
    let gate = &site.server.net.gate;
    let latest = || durability::latest(&site.server.engine);
    assert!(letters.stretches(latest()).all(|(_, shown)| !gate.is_open_for(shown)));
    site.log().flush();
    assert!(letters.stretches(latest()).all(|(_, shown)| gate.is_open_for(shown)));
}

/// A server with a key on a disk that has no room for anything more.
fn on_a_full_disk(clock: &Clock) -> (Disk, Site) {
    let disk = Disk::new(1);
    let mut site = Site::open("durable", &disk, 1, clock, 1).unwrap();
    site.run(&[words(&["SET", "old", "v"])]);
    site.log().flush();
    KeyCounts::note(&site.server.engine, || site.server.net.gate.open_to());
    KeyCounts::note(&site.server.engine, || site.server.net.gate.open_to());
    disk.set_faults(Faults { space_bytes: Some(0), sync_error_one_in: 1, ..Faults::default() });
    (disk, site)
}

/// Asks as somebody who has just come.
fn answer(site: &mut Site, line: &str) -> (String, bool) {
    let request: Vec<&str> = line.split(' ').collect();
    let mut session = site.newcomer();
    let (out, stamp) = loop {
        let (stop, out, stamp) = site.run_as(&mut session, &[words(&request)]);
        let Stop::Paused { until, .. } = stop else { break (out, stamp) };
        site.server.engine.clock.advance_ms(until.0 - site.server.engine.clock.now().0);
    };
    (String::from_utf8_lossy(&out).into_owned(), site.server.net.gate.is_open(stamp))
}

#[test]
fn while_the_log_has_failed_everyone_is_answered_and_nobody_shown_what_is_not_on_disk() {
    let clock = Clock::simulated(UnixMs(1_700_000_000_000));
    let (disk, mut site) = on_a_full_disk(&clock);
    let mut writer = site.session_of(9);
    let (_, _, held) = site.run_as(&mut writer, &[words(&["SET", "new", "v"])]);
    site.log().flush();
    let is_refused = |line: &str, site: &mut Site| {
        let (text, is_open) = answer(site, line);
        assert!(is_open && text.starts_with("-MISCONF Errors writing to the AOF file: "), "{line}: {text}");
    };
    for line in [
        "SET other v",
        "GET new",
        "DBSIZE",
        "KEYS *",
        "SCAN 0",
        "RANDOMKEY",
        "EVAL return(redis.call('GET',KEYS[1])) 1 new",
    ] {
        is_refused(line, &mut site);
    }
    let shown = [
        ("GET old", "$1\r\nv\r\n"),
        ("PING", "+PONG\r\n"),
        ("FUNCTION LIST", "*0\r\n"),
        ("EXISTS none", ":0\r\n"),
    ];
    for (line, expected) in shown {
        assert_eq!(answer(&mut site, line), (expected.to_owned(), true), "{line}");
    }
    let (text, is_open) = answer(&mut site, "INFO keyspace");
    assert!(is_open && text.contains("db0:keys=1,"), "{text}");
    // A transaction is refused as a whole, and a wait ends.
    let mut session = site.newcomer();
    let transaction =
        ["MULTI", "GET old", "GET new", "EXEC"].map(|line| words(&line.split(' ').collect::<Vec<_>>()));
    let (_, out, stamp) = site.run_as(&mut session, &transaction);
    assert!(site.server.net.gate.is_open(stamp));
    assert!(out.starts_with(b"+OK\r\n+QUEUED\r\n+QUEUED\r\n-MISCONF "), "{}", out.escape_ascii());
    let (stop, ..) = site.run_as(&mut session, &[words(&["WAITAOF", "0", "1", "200"])]);
    assert!(matches!(stop, Stop::Blocked { .. }));
    assert!(blocking::cut(&site.server, 0, session.client.id, Cut::Timeout));
    let letters = session.client.take_mail();
    // It has written nothing that could be missing on disk.
    assert_eq!(letters.as_bytes(), b"*2\r\n:1\r\n:0\r\n");
    let latest = durability::latest(&site.server.engine);
    assert!(letters.stretches(latest).all(|(_, shown)| site.server.net.gate.is_open_for(shown)));
    assert!(!site.server.net.gate.is_open(held));
    // There is space again.
    disk.set_faults(Faults::default());
    clock.advance_ms(1000);
    site.log().flush();
    assert!(site.server.net.gate.is_open(held));
    assert_eq!(answer(&mut site, "DBSIZE"), (":2\r\n".to_owned(), true));
    assert_eq!(answer(&mut site, "SET other v").0, "+OK\r\n");
}

#[test]
fn a_start_on_a_full_disk_serves_what_there_is_and_goes_on_when_there_is_space() {
    let clock = Clock::simulated(UnixMs(1_700_000_000_000));
    let (disk, site) = on_a_full_disk(&clock);
    drop(site);
    let disk = disk.power_cut(1, Survival::Chance);
    disk.set_faults(Faults { space_bytes: Some(0), ..Faults::default() });
    let mut site = Site::open("durable", &disk, 1, &clock, 1).unwrap();
    assert_eq!(answer(&mut site, "GET old"), ("$1\r\nv\r\n".to_owned(), true));
    assert_eq!(answer(&mut site, "DBSIZE"), (":1\r\n".to_owned(), true));
    let (text, is_open) = answer(&mut site, "SET new v");
    assert!(is_open && text.starts_with("-MISCONF "), "{text}");
    clock.advance_ms(1000);
    site.log().flush();
    assert!(answer(&mut site, "SET new v").0.starts_with("-MISCONF "));
    disk.set_faults(Faults::default());
    clock.advance_ms(1000);
    site.log().flush();
    let (text, is_open) = answer(&mut site, "SET new v");
    assert_eq!((&text[..], is_open), ("+OK\r\n", false));
    site.log().flush();
    let disk = disk.power_cut(2, Survival::Nothing);
    let mut site = Site::open("durable", &disk, 1, &clock, 1).unwrap();
    assert_eq!(answer(&mut site, "DBSIZE"), (":2\r\n".to_owned(), true));
}

/// What is answered from counts, and the word before the number in question.
const COUNTED: &[(&str, &str)] = &[
    ("DBSIZE", ":"),
    ("INFO keyspace", "db0:keys="),
    ("INFO persistence", "rdb_changes_since_last_save:"),
    ("MEMORY STATS", "keys.count\r\n:"),
];

/// The numbers that are told, and whether nothing waits for the disk.
fn counted(site: &mut Site) -> (Vec<u64>, bool) {
    let mut is_open = true;
    let number = |(line, before): &(&str, &str)| {
        let (text, is_told) = answer(site, line);
        is_open &= is_told;
        let from = text.find(before).unwrap_or_else(|| panic!("{line}: {text}")) + before.len();
        text[from..]
            .chars()
            .map_while(|digit| digit.to_digit(10))
            .fold(0, |sum, digit| sum * 10 + u64::from(digit))
    };
    (COUNTED.iter().map(number).collect(), is_open)
}

/// Does in a worker's batch what its command would do.
fn set_in(batch: &Batch<'_>, key: &Key<'_>, now: UnixMs) {
    let mut edit = batch.edit(&[*key], now, Touch::Yes);
    edit.set(key, NewValue::from_bytes(b"v"), Expiry::Clear);
    edit.say(key, &[b"SET", key.bytes, b"v"]);
    edit.finish();
    batch.count_write();
}

#[test]
fn what_another_worker_has_not_ended_is_counted_for_nobody() {
    let clock = Clock::simulated(UnixMs(1_700_000_000_000));
    let mut site = Site::open("durable", &Disk::new(1), 1, &clock, 1).unwrap();
    site.run(&[words(&["SET", "old", "v"])]);
    site.log().flush();
    let server = site.server.clone();
    let key = server.engine.keyspace.key(DbIndex(0), b"new");
    assert_eq!(counted(&mut site), (vec![1; 4], true));
    let mut batch = server.engine.keyspace.enter(1);
    batch.hold(&[key]);
    set_in(&batch, &key, clock.now());
    assert_eq!(counted(&mut site), (vec![1; 4], true), "a crash now would leave one key");
    batch.release();
    assert_eq!(counted(&mut site), (vec![2; 4], false));
    site.log().flush();
    assert_eq!(counted(&mut site), (vec![2; 4], true));
}

#[test]
fn functions_are_counted_once_they_are_on_disk() {
    let clock = Clock::simulated(UnixMs(1_700_000_000_000));
    let mut site = Site::open("durable", &Disk::new(1), 1, &clock, 1).unwrap();
    let library = "#!lua name=lib\nredis.register_function('one', function() return 1 end)";
    site.run(&[words(&["FUNCTION", "LOAD", library])]);
    let (text, is_open) = answer(&mut site, "INFO memory");
    assert!(!is_open && text.contains("number_of_libraries:1\r\n"), "{text}");
    site.log().flush();
    let (text, is_open) = answer(&mut site, "INFO memory");
    assert!(is_open && text.contains("number_of_functions:1\r\n"), "{text}");
}

#[test]
fn what_is_kept_of_counts_for_a_disk_that_fails_holds_nothing_that_had_not_ended() {
    let clock = Clock::simulated(UnixMs(1_700_000_000_000));
    let (disk, mut site) = on_a_full_disk(&clock);
    let server = site.server.clone();
    let key = server.engine.keyspace.key(DbIndex(0), b"new");
    let mut batch = server.engine.keyspace.enter(1);
    batch.hold_all();
    set_in(&batch, &key, clock.now());
    batch.exclusively(clock.now(), Touch::Yes, |all| {
        all.swap(DbIndex(0), DbIndex(1));
        all.edit().say(&key, &[b"SWAPDB", b"0", b"1"]);
    });
    (0..2).for_each(|_| KeyCounts::note(&server.engine, || server.net.gate.open_to()));
    batch.release();
    drop(batch);
    site.log().flush();
    let (text, is_open) = answer(&mut site, "INFO keyspace");
    assert!(is_open && text.contains("db0:keys=1,") && !text.contains("db1:"), "{text}");
    let (text, is_open) = answer(&mut site, "INFO persistence");
    assert!(is_open && text.contains("rdb_changes_since_last_save:1\r\n"), "{text}");
    disk.set_faults(Faults::default());
    clock.advance_ms(1000);
    site.log().flush();
    let (text, is_open) = answer(&mut site, "INFO keyspace");
    assert!(is_open && text.contains("db1:keys=2,") && !text.contains("db0:"), "{text}");
}
