//! Real servers follow a Tarn: full copies made under writes of all kinds, the stream, links that are cut, restarts, and replicas that do
//! not behave.
//!
//! What is compared is what DEBUG DIGEST says, which is the same of the same keys here and in a Redis, and the offsets.

use crate::{info, tarn};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use sys::Prng;
use testkit::ask::{accept, call, is_error, shown, text};
use testkit::{Client, Program, Server};
use wire::Value;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(180);

/// Keys that make a full copy last.
const BALLAST: &str = "30000";

/// Keys that writers meet at.
const KEYS: u64 = 40;

const WRITERS: u64 = 3;

/// A master of this edition, whose copies both peers can read, and whose values are soon long enough to be named.
pub(crate) fn master(edition: &str, directives: &[&str]) -> Server {
    let own = ["--edition", edition, "--repl-rdb-version", "10", "--log-piece-size", "200"];
    let rest = ["--enable-debug-command", "yes", "--repl-ping-replica-period", "1"];
    let directives: Vec<&str> = own.iter().chain(&rest).chain(directives).copied().collect();
    Server::start(tarn(), &directives).expect("it starts")
}

pub(crate) fn follower(program: Program) -> Server {
    Server::start(program, &["--repl-timeout", "60"]).expect("it starts")
}

pub(crate) fn follow(replica: &mut Client, master: &Server) {
    let port = master.address().port().to_string();
    call(replica, &["REPLICAOF", "127.0.0.1", &port]);
}

pub(crate) fn field(client: &mut Client, name: &str) -> Option<String> {
    let Value::Bulk(all) = call(client, &["INFO", "everything"]) else { panic!("INFO is text") };
    let all = String::from_utf8_lossy(&all).into_owned();
    let line = all.lines().find(|line| line.split_once(':').is_some_and(|(found, _)| found == name))?;
    line.split_once(':').map(|(_, value)| value.to_owned())
}

pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a replica has all that the master has, and compares the two.
pub(crate) fn agree(master: &Server, replica: &Server) {
    let (mut here, mut there) = (master.connect().unwrap(), replica.connect().unwrap());
    wait_until("the link is up", || field(&mut there, "master_link_status").as_deref() == Some("up"));
    let offset = |client: &mut Client, name: &str| field(client, name).unwrap().parse::<u64>().unwrap();
    wait_until("the offsets are the same", || {
        offset(&mut here, "master_repl_offset") == offset(&mut there, "slave_repl_offset")
    });
    let (mine, its) = (call(&mut here, &["DEBUG", "DIGEST"]), call(&mut there, &["DEBUG", "DIGEST"]));
    if mine != its {
        panic!(
            "{}\n{}\n{}",
            first_difference(&mut here, &mut there),
            master.last_lines(),
            replica.last_lines()
        );
    }
}

fn first_difference(here: &mut Client, there: &mut Client) -> String {
    for db in 0..3 {
        let keys = [&mut *here, &mut *there].map(|client| {
            call(client, &["SELECT", &db.to_string()]);
            let Value::Array(keys) = call(client, &["KEYS", "*"]) else { panic!("KEYS are an array") };
            let mut keys: Vec<String> =
                keys.iter().map(|key| shown(key).trim_matches('"').to_owned()).collect();
            keys.sort();
            keys
        });
        for key in keys.concat() {
            let of = |client: &mut Client| match call(client, &["DEBUG", "DIGEST-VALUE", &key]) {
                Value::Array(digests) => digests.iter().map(shown).collect::<Vec<_>>(),
                other => panic!("{other:?}"),
            };
            let (mine, its) = (of(here), of(there));
            let expiry = |client: &mut Client| call(client, &["PEXPIRETIME", &key]);
            let times = (expiry(here), expiry(there));
            if mine != its || times.0 != times.1 {
                let kind = (call(here, &["TYPE", &key]), call(there, &["TYPE", &key]));
                return format!("{key} of database {db} differs: {kind:?} {times:?} {mine:?} {its:?}");
            }
        }
    }
    "no key alone differs".to_owned()
}

/// One client that writes values of all types at random, in three databases.
pub(crate) fn write(server: &Server, seed: u64, is_over: &AtomicBool) {
    let mut client = server.connect().expect("it listens");
    let mut prng = Prng::from_seed(seed);
    for group in ["g1", "g2"] {
        client.call(&["XGROUP", "CREATE", "x1", group, "$", "MKSTREAM"]).expect("it answers");
    }
    while !is_over.load(Ordering::Relaxed) {
        let request = request(&mut prng);
        let words: Vec<&str> = request.iter().map(String::as_str).collect();
        client.call(&words).expect("it answers");
    }
}

pub(crate) fn request(prng: &mut Prng) -> Vec<String> {
    const FORMS: &[&str] = &[
        "SET sK V",
        "SET sK V PX 900000",
        "APPEND sK V",
        "INCR nK",
        "INCRBYFLOAT fK 1.25",
        "SETRANGE sK 30 V",
        "DEL sK",
        "RPUSH lK V V V V V",
        "LPUSH lK V",
        "LPOP lK 2",
        "LMOVE lK lL LEFT RIGHT",
        "LINSERT lK BEFORE V V",
        "LTRIM lK 0 60",
        "SADD eK V V V V",
        "SPOP eK",
        "SMOVE eK eL V",
        "SINTERSTORE eK eL eM",
        "SUNIONSTORE eK eL eM",
        "SREM eK V",
        "HSET hK V V V V V V",
        "HINCRBY hK n 3",
        "HDEL hK V",
        "HINCRBYFLOAT hK f 0.5",
        "ZADD zK 1 V 2 V 3.5 V",
        "ZINCRBY zK 2 V",
        "ZPOPMIN zK",
        "ZUNIONSTORE zK 2 zL zM",
        "ZREMRANGEBYRANK zK 0 1",
        "XADD xK * a V",
        "XADD xK MAXLEN ~ 50 * a V b V",
        "XREADGROUP GROUP g1 c1 COUNT 2 STREAMS x1 >",
        "XTRIM xK MAXLEN 40",
        "PFADD pK V V",
        "PFMERGE pK pL",
        "SETBIT bK 77 1",
        "BITOP OR bK bL bM",
        "GEOADD oK 13.3 38.1 V",
        "RENAME lK lL",
        "RENAME hK hL",
        "COPY eK eL REPLACE",
        "COPY zK zL REPLACE",
        "RENAME sK sL",
        "MOVE lK 2",
        "COPY hK hL DB 1 REPLACE",
        "EXPIRE lK 10000",
        "PERSIST lK",
        "PEXPIRE eK 8000000",
        "SORT lK ALPHA STORE lL",
        "GETDEL sK",
        "GETEX sK EX 5000",
        "SELECT 0",
        "SELECT 1",
        "SELECT 2",
        "MULTI",
        "EXEC",
        "EXEC",
        "EXEC",
        "DISCARD",
        "MSET sK V sL V sM V",
        "UNLINK lK eL zM",
    ];
    const SCRIPT: &str = "redis.call('SET', KEYS[1], ARGV[1]); redis.call('RPUSH', KEYS[2], ARGV[1]); redis.call('SELECT', 2); \
                          redis.call('INCR', KEYS[3])";
    let mut key = || prng.below(KEYS).to_string();
    let (k, l, m) = (key(), key(), key());
    if prng.one_in(30) {
        let keys = [format!("s{k}"), format!("l{l}"), format!("n{m}"), prng.below(1000).to_string()];
        return ["EVAL", SCRIPT, "3"].map(str::to_owned).into_iter().chain(keys).collect();
    }
    let form = FORMS[prng.below(FORMS.len() as u64) as usize];
    form.split(' ')
        .map(|word| match word {
            "V" => "v".repeat(prng.below(30) as usize + 1) + &prng.below(200).to_string(),
            _ if word.len() == 2 && word.ends_with('K') => word.replace('K', &k),
            _ if word.len() == 2 && word.ends_with('L') && word != "NL" => word.replace('L', &l),
            _ if word.len() == 2 && word.ends_with('M') => word.replace('M', &m),
            _ => word.to_owned(),
        })
        .collect()
}

/// Has replicas come while clients write, cuts their links, and compares them when the clients have ended.
fn copies_under_writes(edition: &str, directives: &[&str]) {
    let master = master(edition, directives);
    let mut client = master.connect().unwrap();
    call(&mut client, &["DEBUG", "POPULATE", if edition == "capacity" { "3000" } else { BALLAST }]);
    let replicas = [follower(Program::Redis), follower(Program::Valkey)];
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        for seed in 0..WRITERS {
            let (master, is_over) = (&master, &is_over);
            scope.spawn(move || write(master, seed, is_over));
        }
        thread::sleep(Duration::from_millis(300));
        for replica in &replicas {
            follow(&mut replica.connect().unwrap(), &master);
        }
        for replica in &replicas {
            let mut there = replica.connect().unwrap();
            wait_until("the link is up", || field(&mut there, "master_link_status").as_deref() == Some("up"));
        }
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(300));
            call(&mut client, &["CLIENT", "KILL", "TYPE", "replica"]);
        }
        thread::sleep(Duration::from_millis(300));
    });
    replicas.iter().for_each(|replica| agree(&master, replica));
    assert!(info(&mut client, "sync_partial_ok") > 0, "{}", master.last_lines());
    println!(
        "{edition}: {} full copies, {} went on, {} did not, {} bytes of stream",
        info(&mut client, "sync_full"),
        info(&mut client, "sync_partial_ok"),
        info(&mut client, "sync_partial_err"),
        info(&mut client, "master_repl_offset")
    );
}

#[test]
fn a_memory_edition_is_copied_under_writes() {
    copies_under_writes("memory", &[]);
}

#[test]
fn a_durable_edition_is_copied_under_writes() {
    copies_under_writes("durable", &[]);
}

#[test]
fn a_capacity_edition_is_copied_under_writes() {
    copies_under_writes("capacity", &["--eager-spill", "yes"]);
}

/// Other peers than those that cannot read more have nothing newer in such a stream either: it would end their links.
#[test]
fn who_reads_version_9_is_copied_under_writes() {
    for edition in ["memory", "durable"] {
        copies_under_writes(edition, &["--repl-rdb-version", "9"]);
    }
}

/// Everything whose usual words came after Redis 5.0.
const NEWER_WORDS: &[&str] = &[
    "FLUSHDB SYNC",
    "SET s 1 PX 900000",
    "SET s 2 KEEPTTL",
    "SET f 2.5 EX 900",
    "INCRBYFLOAT f 0.5",
    "RPUSH l a b c d e f g",
    "LPOP l 2",
    "RPOP l 2",
    "LMOVE l l LEFT RIGHT",
    "LMOVE l l RIGHT LEFT",
    "LMPOP 1 l LEFT COUNT 1",
    "COPY l m",
    "ZADD z 1 a 2 b",
    "ZADD z GT CH 5 a 1 b",
    "GEOADD g NX 13.3 38.1 here",
    "ZRANGESTORE y z 0 0",
    "XADD x NOMKSTREAM 1-1 f v",
    "XADD x 1-1 f v",
    "XADD x MAXLEN ~ 5 LIMIT 1 2-1 f v",
    "XADD x MINID 2 3-1 f v",
    "XGROUP CREATE x g 0 ENTRIESREAD 1",
    "XGROUP CREATECONSUMER x g c",
    "XREADGROUP GROUP g c COUNT 1 STREAMS x >",
    "XAUTOCLAIM x g d 0 0",
    "XSETID x 9-1 ENTRIESADDED 9 MAXDELETEDID 1-1",
    "EXPIRE l 9000 NX",
    "GETEX s EX 5000",
];

/// What a Redis shows of the commands that its master has sent.
fn commands_of_master(monitor: &mut Client, until: &str) -> String {
    let mut all = String::new();
    while !all.contains(until) {
        let line = monitor.read_reply().unwrap();
        all += &line.escape_ascii().to_string();
        all.push('\n');
    }
    all
}

#[test]
fn what_came_after_redis_5_is_said_in_older_words() {
    let master = master("memory", &["--repl-rdb-version", "9"]);
    let mut client = master.connect().unwrap();
    let replica = follower(Program::Redis);
    follow(&mut replica.connect().unwrap(), &master);
    agree(&master, &replica);
    let mut monitor = replica.connect().unwrap();
    monitor.send(b"MONITOR\r\n").unwrap();
    for line in NEWER_WORDS.iter().chain(NEWER_WORDS) {
        let words: Vec<&str> = line.split(' ').collect();
        let reply = call(&mut client, &words);
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
    }
    call(&mut client, &["XINFO", "CONSUMERS", "x", "g"]);
    call(&mut client, &["SET", "last", "word"]);
    agree(&master, &replica);
    let told = commands_of_master(&mut monitor, "last").to_ascii_lowercase();
    for newer in
        ["keepttl", "pxat", "lmove", "copy", "createconsumer", "entriesread", "entriesadded", "nomkstream"]
    {
        assert!(!told.contains(newer), "{newer}: {told}");
    }
    let consumers = |server: &Server| {
        let reply = call(&mut server.connect().unwrap(), &["XINFO", "CONSUMERS", "x", "g"]);
        shown(&reply).matches("pending").count()
    };
    assert_eq!(consumers(&master), consumers(&replica));
    assert_eq!(info(&mut client, "sync_full"), 1, "{}", master.last_lines());
}

#[test]
fn what_has_no_older_words_is_refused_by_its_name() {
    let master = master("memory", &["--repl-rdb-version", "9"]);
    let mut client = master.connect().unwrap();
    let replica = follower(Program::Redis);
    follow(&mut replica.connect().unwrap(), &master);
    agree(&master, &replica);
    let code = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    call(&mut client, &["FUNCTION", "LOAD", code]);
    wait_until("the link ends", || master.output().contains("the stream has FUNCTION"));
    wait_until("the copy is refused", || master.output().contains("there are libraries of functions"));
    call(&mut client, &["FUNCTION", "FLUSH"]);
    call(&mut client, &["SET", "a", "1"]);
    agree(&master, &replica);
}

/// Every type of value in each of its encodings.
fn fill_with_all_types(client: &mut Client) {
    let many: Vec<String> = (0..600).map(|number| format!("element-{number}")).collect();
    let with = |words: &[&'static str], each: &dyn Fn(usize, &String) -> Vec<String>| -> Vec<String> {
        let rest = many.iter().enumerate().flat_map(|(at, one)| each(at, one));
        words.iter().map(|word| (*word).to_owned()).chain(rest).collect()
    };
    let pairs = |at: usize, one: &String| vec![at.to_string(), one.clone()];
    let alone = |_: usize, one: &String| vec![one.clone()];
    let long = [
        with(&["RPUSH", "list-long"], &alone),
        with(&["SADD", "set-long"], &alone),
        with(&["HSET", "hash-long"], &pairs),
        with(&["ZADD", "zset-long"], &pairs),
    ];
    for words in &long {
        call(client, &words.iter().map(String::as_str).collect::<Vec<_>>());
    }
    for line in [
        "SET string value",
        "SET number 12345",
        "RPUSH list a 1 b",
        "SADD ints 1 2 3",
        "SADD set a b 3",
        "HSET hash f v g 1",
        "ZADD zset 1.5 a -2 b inf c",
        "XADD stream 1-1 f v",
        "XADD stream 2-1 f v",
        "XGROUP CREATE stream g 0",
        "XREADGROUP GROUP g c COUNT 1 STREAMS stream >",
        "XADD gone 1-1 f v",
        "XDEL gone 1-1",
        "EXPIRE list 10000",
        "SETBIT bits 7 1",
        "PFADD pf a b",
        "SELECT 3",
        "SET elsewhere 1",
    ] {
        call(client, &line.split(' ').collect::<Vec<_>>());
    }
}

/// The types of all values in a file of this version, found by going over it by the rules of Redis 5.
fn types_of_file(bytes: &[u8]) -> Vec<u8> {
    struct Bytes<'b>(&'b [u8]);
    impl Bytes<'_> {
        fn skip(&mut self, count: usize) {
            self.0 = &self.0[count..];
        }
        fn byte(&mut self) -> u8 {
            let first = self.0[0];
            self.skip(1);
            first
        }
        fn length(&mut self) -> Result<usize, u8> {
            let first = self.byte();
            Ok(match first >> 6 {
                0 => usize::from(first),
                1 => usize::from(first & 63) << 8 | usize::from(self.byte()),
                2 => {
                    let wide = if first == 0x80 { 4 } else { 8 };
                    let (number, rest) = self.0.split_at(wide);
                    self.0 = rest;
                    number.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
                }
                _ => return Err(first & 63),
            })
        }
        fn number(&mut self) -> usize {
            self.length().unwrap()
        }
        fn numbers(&mut self, count: usize) {
            for _ in 0..count {
                self.number();
            }
        }
        fn string(&mut self) {
            match self.length() {
                Ok(length) => self.skip(length),
                Err(3) => {
                    let packed = self.number();
                    self.number();
                    self.skip(packed);
                }
                Err(wide) => self.skip(1 << wide),
            }
        }
        fn stream(&mut self) {
            for _ in 0..2 * self.number() {
                self.string();
            }
            self.numbers(3);
            for _ in 0..self.number() {
                self.string();
                self.numbers(2);
                for _ in 0..self.number() {
                    self.skip(16 + 8);
                    self.number();
                }
                for _ in 0..self.number() {
                    self.string();
                    self.skip(8);
                    let pending = self.number();
                    self.skip(16 * pending);
                }
            }
        }
    }
    let (mut rest, mut types) = (Bytes(&bytes[9..]), Vec::new());
    loop {
        match rest.byte() {
            250 => (0..2).for_each(|_| rest.string()),
            251 => rest.numbers(2),
            252 => rest.skip(8),
            254 => rest.numbers(1),
            255 => return types,
            kind => {
                types.push(kind);
                rest.string();
                match kind {
                    0 | 11 => rest.string(),
                    1 | 2 => (0..rest.number()).for_each(|_| rest.string()),
                    4 => (0..2 * rest.number()).for_each(|_| rest.string()),
                    5 => (0..rest.number()).for_each(|_| {
                        rest.string();
                        rest.skip(8);
                    }),
                    15 => rest.stream(),
                    other => panic!("type {other} is none that Redis 5 knows"),
                }
            }
        }
    }
}

#[test]
fn a_copy_of_version_9_has_the_types_of_its_time() {
    let master = master("memory", &["--repl-rdb-version", "9"]);
    let mut client = master.connect().unwrap();
    fill_with_all_types(&mut client);
    let to = master.dir().join("taken.rdb");
    let port = master.address().port().to_string();
    let taken =
        testkit::process::bounded("redis-cli").args(["-p", &port, "--rdb"]).arg(&to).output().unwrap();
    assert!(taken.status.success(), "{taken:?}");
    let bytes = std::fs::read(&to).unwrap();
    assert!(bytes.starts_with(b"REDIS0009"));
    let mut types = types_of_file(&bytes);
    types.sort_unstable();
    types.dedup();
    assert_eq!(types, [0, 1, 2, 4, 5, 11, 15]);
    let check = std::process::Command::new("redis-check-rdb").arg(&to).output().unwrap();
    assert!(check.status.success(), "{check:?}");
    let replica = follower(Program::Redis);
    follow(&mut replica.connect().unwrap(), &master);
    agree(&master, &replica);
    // A Tarn is told all that it knows.
    call(
        &mut client,
        &["FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() return 1 end)"],
    );
    let own = Server::start(tarn(), &["--edition", "memory", "--enable-debug-command", "yes"]).unwrap();
    follow(&mut own.connect().unwrap(), &master);
    agree(&master, &own);
    assert!(
        !matches!(call(&mut own.connect().unwrap(), &["FUNCTION", "LIST"]), Value::Array(all) if all.is_empty())
    );
}

#[test]
fn copies_go_through_a_file_where_that_is_wanted() {
    copies_under_writes("durable", &["--repl-diskless-sync", "no"]);
}

#[test]
fn a_tarn_follows_a_tarn_that_follows_a_tarn() {
    for (first, second) in [("durable", "memory"), ("memory", "durable")] {
        let master = master(first, &[]);
        let middle = Server::start(tarn(), &["--edition", second, "--repl-rdb-version", "10"]).unwrap();
        let last = follower(Program::Redis);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _ends = testkit::Ends(&is_over);
            scope.spawn(|| write(&master, 5, &is_over));
            follow(&mut middle.connect().unwrap(), &master);
            let mut there = middle.connect().unwrap();
            wait_until("the link is up", || field(&mut there, "master_link_status").as_deref() == Some("up"));
            follow(&mut last.connect().unwrap(), &middle);
            let mut there = last.connect().unwrap();
            wait_until("the link is up", || field(&mut there, "master_link_status").as_deref() == Some("up"));
            thread::sleep(Duration::from_millis(500));
        });
        agree(&master, &last);
    }
}

#[test]
fn a_replica_goes_on_after_its_master_was_killed_and_after_it_was_killed_itself() {
    let mut master = master("durable", &[]);
    let address = format!("127.0.0.1 {}", master.address().port());
    let own = ["--edition", "durable", "--enable-debug-command", "yes", "--replicaof", &address];
    let mut replica = Server::start(tarn(), &own).unwrap();
    let redis = follower(Program::Redis);
    for server in [&replica, &redis] {
        follow(&mut server.connect().unwrap(), &master);
    }
    let mut client = master.connect().unwrap();
    call(&mut client, &["SET", "a", "1"]);
    [&replica, &redis].into_iter().for_each(|server| agree(&master, server));
    replica.kill();
    for number in 0..20_000 {
        call(&mut client, &["SET", "b", &number.to_string()]);
    }
    replica.restart().unwrap();
    follow(&mut replica.connect().unwrap(), &master);
    agree(&master, &replica);
    assert_eq!(info(&mut client, "sync_full"), 2, "it went on from where it was: {}", master.last_lines());
    master.kill();
    master.restart().unwrap();
    let mut client = master.connect().unwrap();
    call(&mut client, &["SET", "c", "3"]);
    for server in [&replica, &redis] {
        follow(&mut server.connect().unwrap(), &master);
        agree(&master, server);
    }
}

#[test]
fn what_one_that_is_away_lacks_is_kept_whoever_else_comes() {
    let master = master("durable", &["--log-segment-size", "1mb", "--repl-backlog-size", "16kb"]);
    let own = ["--edition", "durable", "--enable-debug-command", "yes"];
    let [mut first, mut second] = [(); 2].map(|()| Server::start(tarn(), &own).unwrap());
    let mut client = master.connect().unwrap();
    for replica in [&first, &second] {
        follow(&mut replica.connect().unwrap(), &master);
        agree(&master, replica);
    }
    call(&mut client, &["SET", "a", "1"]);
    assert_eq!(call(&mut client, &["WAIT", "2", "100000"]), Value::Int(2));
    let mut await_count =
        |count: u64| wait_until("so many follow", || info(&mut client, "connected_slaves") == count);
    first.kill();
    await_count(1);
    second.restart().unwrap();
    follow(&mut second.connect().unwrap(), &master);
    agree(&master, &second);
    for _ in 0..3 {
        for number in 0..4 {
            call(&mut client, &["SET", &format!("long:{number}"), &"x".repeat(700 << 10)]);
        }
        agree(&master, &second);
        assert!(!is_error(&call(&mut client, &["BGREWRITEAOF"]), ""));
        wait_until("it is written", || info(&mut client, "aof_rewrite_in_progress") == 0);
    }
    first.restart().unwrap();
    follow(&mut first.connect().unwrap(), &master);
    agree(&master, &first);
    assert_eq!(info(&mut client, "sync_full"), 2, "it went on from where it was: {}", master.last_lines());
}

#[test]
fn replicas_that_are_waited_for_have_what_was_written() {
    for edition in ["memory", "durable"] {
        let master = master(edition, &[]);
        let mut client = master.connect().unwrap();
        assert_eq!(call(&mut client, &["WAIT", "1", "50"]), Value::Int(0));
        let replica = follower(Program::Redis);
        follow(&mut replica.connect().unwrap(), &master);
        let mut there = replica.connect().unwrap();
        wait_until("the link is up", || field(&mut there, "master_link_status").as_deref() == Some("up"));
        for number in 0..20 {
            call(&mut client, &["SET", "a", &number.to_string()]);
            assert_eq!(call(&mut client, &["WAIT", "1", "100000"]), Value::Int(1), "{edition} {number}");
            assert_eq!(call(&mut there, &["GET", "a"]), Value::Bulk(number.to_string().into_bytes()));
        }
        assert_eq!(call(&mut client, &["WAIT", "2", "50"]), Value::Int(1));
        call(&mut client, &["CONFIG", "SET", "min-replicas-to-write", "2"]);
        assert!(
            matches!(call(&mut client, &["SET", "a", "1"]), Value::Error(text) if text.starts_with(b"NOREPLICAS"))
        );
        call(&mut client, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
        assert_eq!(call(&mut client, &["SET", "a", "1"]), Value::Simple(b"OK".to_vec()));
    }
}

/// Who waits waits for what it has written itself, as at a Redis: at once, in a transaction or a script, or because somebody served its wait.
#[test]
fn who_waits_waits_for_nothing_but_what_it_has_written() {
    for edition in ["valkey", "memory", "durable"] {
        let master = match edition {
            "valkey" => Server::start(Program::Valkey, &["--repl-ping-replica-period", "3600"]).unwrap(),
            _ => master(edition, &["--repl-ping-replica-period", "3600"]),
        };
        let [mut writer, mut other, mut nobody] = [(); 3].map(|()| master.connect().unwrap());
        let mut replica = master.connect().unwrap();
        replica.send_request(&["PSYNC", "?", "-1"]).unwrap();
        let mut acknowledge = |client: &mut Client| {
            let offset = info(client, "master_repl_offset").to_string();
            replica.send_request(&["REPLCONF", "ACK", &offset, "FACK", &offset]).unwrap();
            wait_until("it is noted", || {
                field(client, "slave0").is_some_and(|line| line.contains(&format!("online,offset={offset},")))
            });
        };
        wait_until("it is online", || {
            field(&mut nobody, "slave0").is_some_and(|line| line.contains("online"))
        });
        let has = |client: &mut Client, wait_ms: &str| {
            let count = call(client, &["WAIT", "1", wait_ms]);
            let Value::Array(standing) = call(client, &["WAITAOF", "0", "1", wait_ms]) else {
                panic!("two numbers")
            };
            assert_eq!(standing[1], count, "{edition}");
            count == Value::Int(1)
        };
        let writes: [&[&[&str]]; 6] = [
            &[&["SET", "a", "1"]],
            &[&["MULTI"], &["SET", "a", "2"], &["EXEC"]],
            &[&["EVAL", "return redis.call('SET', 'a', '3')", "0"]],
            &[&["PUBLISH", "news", "told"]],
            &[&["RPUSH", "q", "x"], &["BLPOP", "q", "0"]],
            &[&["BLPOP", "q", "0"]],
        ];
        // What it was served behind its wait a Valkey does not count.
        for requests in &writes[..if edition == "valkey" { 5 } else { 6 }] {
            for request in *requests {
                writer.send_request(request).unwrap();
            }
            if requests.len() == 1 && requests[0][0] == "BLPOP" {
                wait_until("it waits", || info(&mut other, "blocked_clients") == 1);
                call(&mut other, &["RPUSH", "q", "x"]);
            }
            for _ in *requests {
                assert!(!is_error(&writer.read_value().unwrap(), ""));
            }
            assert!(!has(&mut writer, "1"), "{edition}: {requests:?}");
            assert!(has(&mut nobody, "100000"), "{edition}: {requests:?}");
            // Nobody waits until what is published is on disk, and INFO tells of nothing else.
            call(&mut other, &["SET", "b", "behind it"]);
            acknowledge(&mut nobody);
            // What others write is nothing to it, and neither is what it only looks at.
            call(&mut other, &["SET", "a", "other"]);
            call(&mut writer, &["GET", "a"]);
            assert!(has(&mut writer, "100000"), "{edition}: {requests:?}");
            assert!(!has(&mut other, "1"), "{edition}");
        }
        // All at once: what is in front of WAIT is done.
        writer.send_request(&["SET", "a", "1"]).unwrap();
        writer.send_request(&["WAIT", "1", "1"]).unwrap();
        let replies = [(); 2].map(|()| writer.read_value().unwrap());
        assert_eq!(replies, [Value::Simple(b"OK".to_vec()), Value::Int(0)], "{edition}");
    }
}

/// Says what a replica says before it asks to follow, and asks.
fn shake_hands(master: &Server) -> Client {
    let mut client = master.connect().unwrap();
    for request in [&["REPLCONF", "listening-port", "1"][..], &["REPLCONF", "capa", "eof", "capa", "psync2"]]
    {
        call(&mut client, request);
    }
    client.send_request(&["PSYNC", "?", "-1"]).unwrap();
    client
}

#[test]
fn replicas_that_do_not_read_take_little_and_are_put_out() {
    let limits = ["--client-output-buffer-limit", "replica 2mb 1mb 1", "--repl-backlog-size", "16kb"];
    let master = master("memory", &limits);
    let mut client = master.connect().unwrap();
    let silent: Vec<Client> = (0..5).map(|_| shake_hands(&master)).collect();
    wait_until("they are there", || info(&mut client, "connected_slaves") == 5);
    // What is written before that is in the copies, and they need not read it.
    silent.iter().for_each(|replica| drop(read_line(&master, replica, b'+')));
    let before = info(&mut client, "used_memory");
    let value = "v".repeat(100_000);
    for number in 0..200 {
        call(&mut client, &["SET", &format!("k{}", number % 10), &value]);
    }
    assert!(
        info(&mut client, "used_memory") < before + (12 << 20),
        "{}",
        info(&mut client, "used_memory") - before
    );
    wait_until("they are put out", || info(&mut client, "connected_slaves") == 0);
    drop(silent);
}

#[test]
fn no_key_goes_for_what_is_kept_for_a_replica() {
    let master = master("memory", &["--maxmemory-policy", "allkeys-lru", "--repl-backlog-size", "1mb"]);
    let mut client = master.connect().unwrap();
    let silent = shake_hands(&master);
    wait_until("it is there", || info(&mut client, "connected_slaves") == 1);
    let ceiling = info(&mut client, "used_memory") + (20 << 20);
    call(&mut client, &["CONFIG", "SET", "maxmemory", &ceiling.to_string()]);
    let value = "v".repeat(1_000_000);
    for number in 0..40 {
        assert_eq!(
            call(&mut client, &["SET", &format!("k{}", number % 5), &value]),
            Value::Simple(b"OK".to_vec())
        );
    }
    assert!(info(&mut client, "mem_not_counted_for_evict") > 30_000_000, "all of it is kept");
    assert_eq!(info(&mut client, "evicted_keys"), 0);
    drop(silent);
}

fn holds(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

/// Reads what a replica is sent, until something is in it.
fn read_until(server: &Server, replica: &Client, read: &mut Vec<u8>, what: &[u8]) {
    while !holds(read, what) {
        let mut some = [0; 4096];
        let count = replica.stream().read(&mut some).expect("it is sent something");
        assert!(count > 0, "the link ended behind {}\n{}", read.escape_ascii(), server.last_lines());
        read.extend_from_slice(&some[..count]);
    }
}

#[test]
fn what_is_written_on_a_follower_is_in_no_stream() {
    let master = Server::start(Program::Redis, &["--repl-ping-replica-period", "3600"]).unwrap();
    let middle = ["--edition", "memory", "--replica-read-only", "no", "--repl-rdb-version", "10"];
    let middle = Server::start(tarn(), &middle).unwrap();
    let (mut head, mut client) = (master.connect().unwrap(), middle.connect().unwrap());
    follow(&mut client, &master);
    wait_until("the link is up", || field(&mut client, "master_link_status").as_deref() == Some("up"));
    let last = shake_hands(&middle);
    let (mut read, mut offsets) = (Vec::new(), 0);
    wait_until("the copy is made", || {
        field(&mut client, "slave0").is_some_and(|line| line.contains("online"))
    });
    for number in 0..5 {
        // The master's stream selects a database that nothing is written in here.
        call(&mut head, &["SELECT", "3"]);
        call(&mut head, &["SET", "of-master", "1"]);
        call(&mut client, &["MSET", "own", "x", "own2", "y"]);
        call(&mut client, &["SET", "own-expiring", "x", "PX", "20"]);
        call(&mut client, &["EVAL", "redis.call('SET', 'own', 1) redis.call('INCR', 'own')", "0"]);
        wait_until("its time is up", || call(&mut client, &["EXISTS", "own-expiring"]) == Value::Int(0));
        call(&mut head, &["SET", &format!("marker-{number}"), "1"]);
        read_until(&middle, &last, &mut read, format!("marker-{number}").as_bytes());
        wait_until("the offsets are the same", || {
            offsets = info(&mut head, "master_repl_offset");
            info(&mut client, "master_repl_offset") == offsets
        });
    }
    // The copy was made before.
    assert!(!holds(&read, b"own"), "{}", read.escape_ascii());
    assert_eq!(info(&mut client, "connected_slaves"), 1);
    assert_eq!(info(&mut client, "sync_full"), 1);
    // As a master it selects what its own writes are in.
    call(&mut client, &["REPLICAOF", "NO", "ONE"]);
    drop(last);
    let mut last = middle.connect().unwrap();
    call(&mut last, &["REPLCONF", "capa", "psync2"]);
    last.send_request(&["PSYNC", &field(&mut client, "master_replid2").unwrap(), &(offsets + 1).to_string()])
        .unwrap();
    read.clear();
    read_until(&middle, &last, &mut read, b"+CONTINUE");
    call(&mut client, &["SET", "own", "z"]);
    read_until(&middle, &last, &mut read, b"$1\r\nz\r\n");
    // What expired here goes before it.
    assert!(holds(&read, b"SELECT\r\n$1\r\n0\r\n*"), "{}", read.escape_ascii());
}

#[test]
fn a_stream_that_nobody_follows_any_more_is_forgotten() {
    let ttl = ["--repl-backlog-ttl", "1"];
    for (edition, name_stays) in [("memory", false), ("durable", true)] {
        let master = master(edition, &ttl);
        let mut client = master.connect().unwrap();
        for round in 0..2 {
            let mut replica = master.connect().unwrap();
            replica.send_request(&["PSYNC", "?", "-1"]).unwrap();
            read_until(&master, &replica, &mut Vec::new(), b"$");
            wait_until("it is there", || field(&mut client, "repl_backlog_active").as_deref() == Some("1"));
            call(&mut client, &["SET", "a", "1"]);
            let name = field(&mut client, "master_replid").unwrap();
            let offset = info(&mut client, "master_repl_offset");
            assert!(offset > 0);
            drop(replica);
            wait_until("it is forgotten", || {
                field(&mut client, "repl_backlog_active").as_deref() == Some("0")
            });
            assert_eq!(info(&mut client, "repl_backlog_histlen"), 0);
            let later = field(&mut client, "master_replid").unwrap();
            assert_eq!(later == name, name_stays, "{edition}");
            call(&mut client, &["MSET", "b", &round.to_string(), "c", "3"]);
            if edition == "memory" {
                assert_eq!(info(&mut client, "master_repl_offset"), offset, "nobody says what is written");
                // Neither name leads past what was not said.
                for name in [&name, &later] {
                    let mut back = master.connect().unwrap();
                    back.send_request(&["PSYNC", name, &(offset + 1).to_string()]).unwrap();
                    read_until(&master, &back, &mut Vec::new(), b"+FULLRESYNC");
                }
            }
        }
        let replica = follower(Program::Redis);
        follow(&mut replica.connect().unwrap(), &master);
        call(&mut client, &["SET", "d", "4"]);
        agree(&master, &replica);
    }
}

/// Values of which a copy is more than sockets and outboxes take.
fn fill(client: &mut Client) {
    let mut prng = Prng::from_seed(3);
    for number in 0..240u8 {
        let value: Vec<u8> = (0..12_500).flat_map(|_| prng.next_u64().to_le_bytes()).collect();
        client.call(&[&b"SET"[..], &[number], &value]).unwrap();
    }
}

/// How long each of those may take that do not read their copies, in seconds.
const SILENT_SECONDS: &str = "900";
/// How long an honest replica waits at most for its copy beside others: much less than each of these may take.
const SOON: Duration = Duration::from_secs(180);

#[test]
fn replicas_that_do_not_read_their_copies_hold_up_nobody_else() {
    for (edition, directly) in [("memory", "yes"), ("durable", "no")] {
        let directives = ["--repl-timeout", SILENT_SECONDS, "--repl-diskless-sync", directly];
        let master = master(edition, &directives);
        let mut client = master.connect().unwrap();
        fill(&mut client);
        let mut silent: Vec<Client> = (0..6).map(|_| shake_hands(&master)).collect();
        wait_until("they are there", || info(&mut client, "connected_slaves") == 6);
        for number in 0..3 {
            let began = Instant::now();
            let replica = follower(Program::Redis);
            follow(&mut replica.connect().unwrap(), &master);
            call(&mut client, &["SET", "a", &number.to_string()]);
            agree(&master, &replica);
            assert!(
                began.elapsed() < SOON,
                "{edition} {number}: {:?}\n{}",
                began.elapsed(),
                master.last_lines()
            );
            // Others come between, and read a byte now and then.
            silent.push(shake_hands(&master));
            silent.iter().for_each(read_a_byte);
        }
        assert!(files_of_copies(&master) <= 2);
        drop(silent);
        wait_until("they are gone", || info(&mut client, "connected_slaves") == 0);
        wait_until("their files are gone", || files_of_copies(&master) == 0);
    }
}

/// Reads the next line that begins so of what a replica is sent, and nothing behind it.
fn read_line(master: &Server, replica: &Client, begin: u8) -> String {
    let mut read = Vec::new();
    loop {
        // One by one, so that nothing of what follows is lost.
        let mut byte = [0];
        assert_eq!(replica.stream().read(&mut byte).unwrap(), 1, "{}", master.last_lines());
        read.push(byte[0]);
        if byte == *b"\n" {
            let line = String::from_utf8(std::mem::take(&mut read)).unwrap();
            // Empty ones say that the link is alive.
            if line.as_bytes()[0] == begin {
                return line.trim_end().to_owned();
            }
        }
    }
}

/// Reads where the stream goes on behind a copy that goes by way of a file, and how long that is.
fn read_beginning(master: &Server, replica: &Client) -> (u64, usize) {
    let resync = read_line(master, replica, b'+');
    let offset = resync.rsplit(' ').next().unwrap().parse().unwrap();
    (offset, read_line(master, replica, b'$')[1..].parse().unwrap())
}

#[test]
fn who_comes_when_another_has_its_copy_is_not_told_what_was_written_before() {
    let master = master("memory", &["--repl-diskless-sync", "no"]);
    let mut client = master.connect().unwrap();
    fill(&mut client);
    // It has its copy until the end, of which it reads no more.
    let silent = shake_hands(&master);
    let (first, _) = read_beginning(&master, &silent);
    let reading = shake_hands(&master);
    let (second, bytes) = read_beginning(&master, &reading);
    assert_eq!(first, second, "a copy that is new goes to both");
    std::io::copy(&mut reading.stream().take(bytes as u64), &mut std::io::sink()).unwrap();
    call(&mut client, &["SET", "a", "1"]);
    let written = info(&mut client, "master_repl_offset");
    let (third, _) = read_beginning(&master, &shake_hands(&master));
    assert!(third >= written, "{third}, of {written}");
}

fn read_a_byte(client: &Client) {
    // It may have been closed, or there is none yet.
    client.stream().set_read_timeout(Some(Duration::from_millis(20))).expect("it is a socket");
    let _ = client.stream().read(&mut [0]);
}

/// How many files of copies there are.
fn files_of_copies(master: &Server) -> usize {
    let names = std::fs::read_dir(master.dir()).unwrap();
    names
        .filter(|name| name.as_ref().unwrap().file_name().to_string_lossy().starts_with("temp-replica-"))
        .count()
}

#[test]
fn who_takes_too_little_of_a_copy_is_put_out() {
    let master = master("memory", &["--repl-timeout", "2", "--repl-diskless-sync", "no"]);
    let mut client = master.connect().unwrap();
    fill(&mut client);
    let slow = shake_hands(&master);
    wait_until("it is there", || info(&mut client, "connected_slaves") == 1);
    wait_until("it is put out", || {
        read_a_byte(&slow);
        info(&mut client, "connected_slaves") == 0
    });
    // What a server logs is read by a thread of its own.
    wait_until("it is told why", || master.output().contains("it does not read (repl-timeout)"));
}

#[test]
fn who_acknowledges_more_than_there_is_counts_for_nothing() {
    for edition in ["memory", "durable"] {
        let master = master(edition, &["--min-replicas-max-lag", "2", "--repl-ping-replica-period", "3600"]);
        let mut client = master.connect().unwrap();
        let mut liar = master.connect().unwrap();
        liar.send_request(&["PSYNC", "?", "-1"]).unwrap();
        let is_online =
            |client: &mut Client| field(client, "slave0").is_some_and(|line| line.contains("online"));
        wait_until("it is online", || is_online(&mut client));
        call(&mut client, &["SET", "a", "1"]);
        let offset = info(&mut client, "master_repl_offset");
        for lie in [offset + 1000, i64::MAX as u64, u64::MAX] {
            let lie = lie.to_string();
            liar.send_request(&["REPLCONF", "ACK", &lie, "FACK", &lie]).unwrap();
        }
        for id in ["0123456789012345678901234567890123456789", &field(&mut client, "master_replid").unwrap()]
        {
            for beyond in ["9223372036854775807", "9223372036854775808", "-9223372036854775808"] {
                let mut other = master.connect().unwrap();
                other.send_request(&["PSYNC", id, beyond]).unwrap();
                let mut read = Vec::new();
                read_until(&master, &other, &mut read, b"\r\n");
                assert!(read.starts_with(b"+FULLRESYNC") || read.starts_with(b"-ERR value"), "{beyond}");
            }
        }
        assert_eq!(call(&mut client, &["WAIT", "1", "200"]), Value::Int(0));
        let Value::Array(standing) = call(&mut client, &["WAITAOF", "0", "1", "200"]) else {
            panic!("two numbers")
        };
        assert_eq!(standing[1], Value::Int(0));
        assert!(
            field(&mut client, "slave0").unwrap().contains(",offset=0,"),
            "{:?}",
            field(&mut client, "slave0")
        );
        call(&mut client, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
        wait_until("it is no good replica", || {
            liar.send_request(&["REPLCONF", "ACK", "9223372036854775807"]).unwrap();
            matches!(call(&mut client, &["SET", "a", "1"]), Value::Error(text) if text.starts_with(b"NOREPLICAS"))
        });
        // What is true counts, and who follows cannot say whom to follow.
        call(&mut client, &["CONFIG", "SET", "min-replicas-to-write", "0"]);
        let offset = info(&mut client, "master_repl_offset").to_string();
        liar.send_request(&["REPLCONF", "ACK", &offset, "FACK", &offset]).unwrap();
        wait_until("it counts", || call(&mut client, &["WAIT", "1", "100"]) == Value::Int(1));
        liar.send_request(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
        wait_until("what is answered ends it", || info(&mut client, "connected_slaves") == 0);
        assert_eq!(field(&mut client, "role").as_deref(), Some("master"));
    }
}

#[test]
fn half_handshakes_harm_nobody() {
    let master = master("durable", &[]);
    let mut client = master.connect().unwrap();
    for cut in 0..3 {
        let mut half = master.connect().unwrap();
        let requests: [&[&str]; 3] = [
            &["REPLCONF", "capa", "eof"],
            &["PSYNC", "0123456789012345678901234567890123456789", "77"],
            &["SYNC"],
        ];
        requests[..=cut].iter().for_each(|request| half.send_request(request).unwrap());
    }
    let mut twice = shake_hands(&master);
    twice.send_request(&["PSYNC", "?", "-1"]).unwrap();
    twice.send_request(&["REPLCONF", "ACK", "x"]).unwrap();
    twice.send_request(&["GET", "a"]).unwrap();
    drop(twice);
    wait_until("they are gone", || info(&mut client, "connected_slaves") == 0);
    let replica = follower(Program::Redis);
    follow(&mut replica.connect().unwrap(), &master);
    call(&mut client, &["SET", "a", "1"]);
    agree(&master, &replica);
}

#[test]
fn times_of_fields_are_not_sent_to_who_does_not_know_them() {
    let master = master("memory", &[]);
    let mut client = master.connect().unwrap();
    let replica = follower(Program::Redis);
    follow(&mut replica.connect().unwrap(), &master);
    call(&mut client, &["HSET", "h", "f", "1"]);
    agree(&master, &replica);
    call(&mut client, &["HPEXPIRE", "h", "1000000", "FIELDS", "1", "f"]);
    wait_until("the link ends", || master.output().contains("which a replica of Redis 7.2 cannot know"));
    wait_until("the copy is refused", || master.output().contains("a hash has fields with a time to live"));
    // It is told so when it comes again, and no more copies are begun meanwhile.
    let begun = || master.output().matches("Starting a full copy").count();
    let is_told = || replica.output().matches("NOMASTERLINK a hash has fields with a time to live").count();
    let (before, told) = (begun(), is_told());
    wait_until("it is told twice", || is_told() >= told + 2);
    assert!(begun() <= before + 1, "{}", master.last_lines());
    call(&mut client, &["DEL", "h"]);
    call(&mut client, &["SET", "a", "1"]);
    agree(&master, &replica);
    let ended = || master.output().matches("which a replica of Redis 7.2 cannot know").count();
    let before = ended();
    // While nobody is there to be sent it, and who comes again would go on from the backlog.
    let lines = ["CLIENT KILL TYPE replica", "HSET h f 1", "HPEXPIRE h 1000000 FIELDS 1 f"];
    let words = |line: &str| line.split(" ").map(str::to_owned).collect::<Vec<_>>();
    client.pipeline(&lines.map(words)).unwrap();
    wait_until("the next link ends, too", || ended() > before);
    let Value::Bulk(payload) = call(&mut client, &["DUMP", "h"]) else { panic!("a value is there") };
    call(&mut client, &["DEL", "h"]);
    agree(&master, &replica);
    let before = ended();
    client.call(&[b"RESTORE".as_slice(), b"h", b"0", &payload]).unwrap();
    wait_until("no payload has them", || ended() > before);
    call(&mut client, &["DEL", "h"]);
    agree(&master, &replica);
}

#[test]
fn tools_take_a_copy() {
    let master = master("memory", &[]);
    let mut client = master.connect().unwrap();
    call(&mut client, &["DEBUG", "POPULATE", "1000"]);
    let to = master.dir().join("taken.rdb");
    let port = master.address().port().to_string();
    let taken =
        testkit::process::bounded("redis-cli").args(["-p", &port, "--rdb"]).arg(&to).output().unwrap();
    assert!(taken.status.success(), "{taken:?}");
    let bytes = std::fs::read(&to).unwrap();
    assert!(bytes.starts_with(b"REDIS0010"));
    let reader = value::rdb::file::FileReader::open(&bytes[..]);
    let mut reader = reader.unwrap();
    let mut keys = 0;
    while reader.next_entry(&value::collection::Thresholds::default()).unwrap().is_some() {
        keys += 1;
    }
    assert_eq!(keys, 1000);
}

/// Messages that are published at the master come to who listens at its replica, behind what their transaction or script wrote.
fn messages_come_to_replicas(master: &Server, replica: &Server) {
    let (mut here, mut there) = (master.connect().unwrap(), replica.connect().unwrap());
    follow(&mut there, master);
    wait_until("the link is up", || field(&mut there, "master_link_status").as_deref() == Some("up"));
    wait_until("it is online", || field(&mut here, "slave0").is_some_and(|line| line.contains("online")));
    let mut listener = replica.connect().unwrap();
    call(&mut listener, &["SUBSCRIBE", "news"]);
    assert_eq!(call(&mut here, &["PUBLISH", "news", "plain"]), Value::Int(0));
    call(&mut here, &["MULTI"]);
    for request in [&["PUBLISH", "news", "exec"][..], &["SET", "of-exec", "1"]] {
        call(&mut here, request);
    }
    call(&mut here, &["EXEC"]);
    let script = "redis.call('publish', 'news', 'script') redis.call('set', KEYS[1], 1)";
    call(&mut here, &["EVAL", script, "1", "of-script"]);
    for (message, key) in [("plain", None), ("exec", Some("of-exec")), ("script", Some("of-script"))] {
        let heard = listener.read_value().expect("a message comes");
        assert_eq!(heard, Value::Array(["message", "news", message].map(text).to_vec()));
        if let (Some(key), Program::Tarn(_)) = (key, master.program()) {
            assert_eq!(call(&mut there, &["GET", key]), Value::Bulk(b"1".to_vec()), "{key}");
        }
    }
}

#[test]
fn messages_come_to_who_listens_at_a_replica() {
    messages_come_to_replicas(&master("memory", &[]), &follower(Program::Redis));
    messages_come_to_replicas(&master("durable", &[]), &follower(tarn()));
    messages_come_to_replicas(&follower(Program::Redis), &master("durable", &[]));
}

#[test]
fn a_paused_replica_does_nothing_of_its_masters() {
    for edition in ["memory", "durable"] {
        let (master, replica) = (master("memory", &[]), master(edition, &[]));
        let (mut here, mut there) = (master.connect().unwrap(), replica.connect().unwrap());
        follow(&mut there, &master);
        call(&mut here, &["SET", "a", "1"]);
        agree(&master, &replica);
        let offset = |client: &mut Client, name: &str| field(client, name).unwrap().parse::<u64>().unwrap();
        assert_eq!(shown(&call(&mut there, &["CLIENT", "PAUSE", "1000000", "WRITE"])), "OK");
        let before = offset(&mut there, "slave_repl_offset");
        call(&mut here, &["SET", "a", "2"]);
        let end = offset(&mut here, "master_repl_offset");
        wait_until("it has come", || offset(&mut there, "slave_read_repl_offset") >= end);
        assert_eq!(offset(&mut there, "slave_repl_offset"), before);
        assert_eq!(shown(&call(&mut there, &["GET", "a"])), "1");
        assert_eq!(shown(&call(&mut there, &["CLIENT", "UNPAUSE"])), "OK");
        agree(&master, &replica);
        assert_eq!(shown(&call(&mut there, &["GET", "a"])), "2");
    }
}

#[test]
fn what_comes_together_is_done_request_by_request() {
    for edition in ["memory", "durable"] {
        let (master, replica) = (master("memory", &[]), master(edition, &["--replica-read-only", "no"]));
        let (mut here, mut there) = (master.connect().unwrap(), replica.connect().unwrap());
        follow(&mut there, &master);
        call(&mut here, &["SET", "a", "1"]);
        agree(&master, &replica);
        // What the master does to these fails here, or does something else.
        call(&mut there, &["RPUSH", "list", "x"]);
        call(&mut there, &["SET", "long", "xy"]);
        let mut waiting = replica.connect().unwrap();
        waiting.send_request(&["XREAD", "BLOCK", "0", "STREAMS", "stream", "$"]).unwrap();
        wait_until("it waits", || info(&mut there, "blocked_clients") == 1);
        assert_eq!(shown(&call(&mut there, &["CLIENT", "PAUSE", "1000000", "WRITE"])), "OK");
        let lines = [
            "INCR n",
            "INCR list",
            "APPEND long z",
            "INCR n",
            "XADD stream 1-1 f v",
            "XADD stream 1-2 f v",
            "SELECT 2",
            "INCR n",
            "MULTI",
            "INCR n",
            "SELECT 1",
            "INCR n",
            "EXEC",
            "INCR n",
            "SELECT 0",
            "INCR n",
            "SADD set a b",
            "SPOP set",
            "SET e 1 PX 1",
            "SET f 1 PX 1000000",
            "DEL none",
        ];
        let split = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut requests: Vec<_> = (0..70).map(|number| split(&format!("SET k{number} {number}"))).collect();
        requests.extend(lines.into_iter().map(split));
        requests.extend((0..70).map(|number| split(&format!("RPUSH l{} {number}", number % 7))));
        here.pipeline(&requests).unwrap();
        let offset = |client: &mut Client, name: &str| field(client, name).unwrap().parse::<u64>().unwrap();
        wait_until("it has come", || {
            offset(&mut there, "slave_read_repl_offset") >= offset(&mut here, "master_repl_offset")
        });
        assert_eq!(call(&mut there, &["EXISTS", "k0"]), Value::Int(0));
        assert_eq!(shown(&call(&mut there, &["CLIENT", "UNPAUSE"])), "OK");
        // Who waits is served by the first that comes, and not by all.
        let entry = Value::Array(vec![text("1-1"), Value::Array(vec![text("f"), text("v")])]);
        let served = Value::Array(vec![text("stream"), Value::Array(vec![entry])]);
        assert_eq!(waiting.read_value().unwrap(), Value::Array(vec![served]));
        wait_until("it is done", || {
            offset(&mut there, "slave_repl_offset") >= offset(&mut here, "master_repl_offset")
        });
        assert_eq!(
            call(&mut there, &["LRANGE", "list", "0", "-1"]),
            Value::Array(vec![Value::Bulk(b"x".to_vec())])
        );
        assert_eq!(shown(&call(&mut there, &["GET", "long"])), "xyz");
        replica.await_output(&["could not be done here"]);
        // All else is the same, and so is what a log makes of it.
        call(&mut here, &["DEL", "list", "long"]);
        agree(&master, &replica);
    }
}

#[test]
fn a_long_transaction_waits_for_its_keys_only() {
    let (master, replica) = (master("memory", &[]), master("memory", &["--busy-reply-threshold", "1"]));
    let (mut here, mut there) = (master.connect().unwrap(), replica.connect().unwrap());
    let mut busy = replica.connect().unwrap();
    call(&mut here, &["SET", "read", "v"]);
    follow(&mut there, &master);
    agree(&master, &replica);
    busy.send_request(&["EVAL", "while redis.call('GET', KEYS[1]) do end", "1", "read"]).unwrap();
    let is_busy = |client: &mut Client| is_error(&call(client, &["GET", "read"]), "BUSY");
    wait_until("the script runs", || is_busy(&mut there));
    let words = vec!["word"; 30_000];
    call(&mut here, &["MULTI"]);
    for _ in 0..3 {
        call(&mut here, &[&["RPUSH", "list"][..], &words].concat());
    }
    call(&mut here, &["EXEC"]);
    wait_until("it is done", || call(&mut there, &["LLEN", "list"]) == Value::Int(90_000));
    assert!(is_busy(&mut there), "the script is there still");
    assert_eq!(shown(&call(&mut there, &["SCRIPT", "KILL"])), "OK");
}

#[test]
fn a_look_for_any_key_frees_those_that_are_over() {
    let (master, replica) = (master("memory", &[]), master("memory", &[]));
    let (mut here, mut there) = (master.connect().unwrap(), replica.connect().unwrap());
    follow(&mut there, &master);
    call(&mut here, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    call(&mut here, &["SET", "over", "v", "PX", "1"]);
    agree(&master, &replica);
    call(&mut here, &["BLPOP", "none", "0.05"]);
    assert_eq!(call(&mut here, &["DBSIZE"]), Value::Int(1));
    assert_eq!(call(&mut here, &["RANDOMKEY"]), Value::Null);
    assert_eq!(call(&mut here, &["DBSIZE"]), Value::Int(0));
    agree(&master, &replica);
    assert_eq!(call(&mut there, &["DBSIZE"]), Value::Int(0));
}

/// Who caches what it reads at a replica is told of all that its master empties, alone and within a transaction.
fn emptied_caches(master: &Server, replica: &Server) {
    let (mut here, mut there) = (master.connect().unwrap(), replica.connect().unwrap());
    follow(&mut there, master);
    wait_until("the link is up", || field(&mut there, "master_link_status").as_deref() == Some("up"));
    let everything = Value::Push(vec![text("invalidate"), Value::Null]);
    for modes in [&["CLIENT", "TRACKING", "ON"][..], &["CLIENT", "TRACKING", "ON", "BCAST"]] {
        for flush in [&["FLUSHALL"][..], &["FLUSHDB"], &["MULTI", "FLUSHDB", "EXEC"]] {
            call(&mut here, &["SET", "k", "1"]);
            wait_until("it has come", || shown(&call(&mut there, &["GET", "k"])) == "1");
            let mut reader = replica.connect().unwrap();
            call(&mut reader, &["HELLO", "3"]);
            call(&mut reader, modes);
            call(&mut reader, &["GET", "k"]);
            for word in flush {
                call(&mut here, &[word]);
            }
            assert_eq!(reader.read_value().expect("it is told"), everything, "{modes:?} {flush:?}");
        }
    }
}

#[test]
fn who_caches_at_a_replica_is_told_of_what_its_master_empties() {
    emptied_caches(&follower(Program::Redis), &follower(tarn()));
    emptied_caches(&master("memory", &[]), &master("durable", &[]));
}

/// Redis says an empty line each second while it loads a copy, and reads nothing then: it is there, however long that takes.
#[test]
fn who_says_that_it_loads_its_copy_is_not_put_out() {
    for directly in ["yes", "no"] {
        // Where the machine has no time for this test, the replica is silent.
        wait_until("it was never silent", || is_heard_while_it_loads(directly));
    }
}

/// Whether a replica has said all the while that it loads its copy. Then it is still there.
fn is_heard_while_it_loads(directly: &str) -> bool {
    const REPL_TIMEOUT: Duration = Duration::from_secs(5);
    let master = master("memory", &["--repl-timeout", "5", "--repl-diskless-sync", directly]);
    let mut client = master.connect().unwrap();
    call(&mut client, &["SET", "a", "1"]);
    let replica = shake_hands(&master);
    let mut read = Vec::new();
    read_until(&master, &replica, &mut read, b"REDIS0010");
    let begun = read.windows(9).position(|some| some == b"REDIS0010").unwrap();
    if directly == "yes" {
        let at = read.windows(5).position(|some| some == b"$EOF:").unwrap() + 5;
        let mark = read[at..at + 40].to_vec();
        let mut behind = read.split_off(begun);
        read_until(&master, &replica, &mut behind, &mark);
    } else {
        let line = read[..begun].rsplit(|byte| *byte == b'$').next().unwrap();
        let bytes: usize = std::str::from_utf8(line).unwrap().trim().parse().unwrap();
        while read.len() - begun < bytes {
            let mut some = [0; 4096];
            let count = replica.stream().read(&mut some).unwrap();
            read.extend_from_slice(&some[..count]);
        }
    }
    let began = Instant::now();
    let mut said_at = began;
    while began.elapsed() < REPL_TIMEOUT * 3 / 2 {
        // It may have been put out by then.
        let is_said = replica.stream().write_all(b"\n").is_ok();
        if said_at.elapsed() > REPL_TIMEOUT / 2 {
            return false;
        }
        assert!(is_said, "it was put out: {}", master.last_lines());
        said_at = Instant::now();
        thread::sleep(Duration::from_millis(100));
    }
    call(&mut client, &["SET", "a", "written behind it"]);
    replica.stream().write_all(b"*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n$1\r\n0\r\n").unwrap();
    read_until(&master, &replica, &mut Vec::new(), b"written behind it");
    true
}

/// A master as Redis was before version 7 says how long a key is to last, not until when, lets `*` stand for an id, and may send scripts: its
/// replicas take their own clocks.
#[test]
fn how_long_keys_of_an_old_master_last_is_counted_from_now() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let old = thread::spawn(move || {
        let mut link = accept(&listener);
        let mut said = Vec::new();
        while !holds(&said, b"PSYNC") {
            let mut some = [0; 4096];
            let count = link.read(&mut some).unwrap();
            assert!(count > 0, "it asks for a copy");
            said.extend_from_slice(&some[..count]);
            if !holds(&said, b"PSYNC") {
                let requests = some[..count].iter().filter(|byte| **byte == b'*').count();
                let pong = if holds(&some[..count], b"PING") { "+PONG\r\n" } else { "+OK\r\n" };
                let rest = "+OK\r\n".repeat(requests.saturating_sub(1));
                link.write_all(format!("{pong}{rest}").as_bytes()).unwrap();
            }
        }
        let copy = b"REDIS0009\xfa\x09redis-ver\x066.2.14\xff\0\0\0\0\0\0\0\0";
        link.write_all(format!("+FULLRESYNC {} 0\r\n${}\r\n", "a".repeat(40), copy.len()).as_bytes())
            .unwrap();
        link.write_all(copy).unwrap();
        let stream = "SELECT 0|SET a 1|EXPIRE a 1000|SET b 1 EX 1000|SETEX c 1000 1|PSETEX d 1000000 1|SET e 1|PEXPIRE e 1000000|\
            SET f 1|GETEX f EX 1000|XADD s * f v|\
            EVAL redis.call('SETEX',KEYS[1],1000,'1')redis.call('SETEX','h',1000,'1') 1 g|\
            RPUSH list 1 2|MSET weight:1 9 weight:2 3 shown:1 x shown:2 y|SORT list BY weight:* GET shown:* STORE sorted:0|\
            EVAL redis.call('SORT',KEYS[1],'BY','weight:*','GET','shown:*','STORE',KEYS[2]) 2 list sorted:1|\
            EVAL redis.call('SORT','list','BY','weight:*','GET','shown:*','STORE','sorted:2') 0|SET end 1";
        for line in stream.split('|') {
            let words: Vec<&str> = line.split(' ').collect();
            let mut request = format!("*{}\r\n", words.len());
            words.iter().for_each(|word| request += &format!("${}\r\n{word}\r\n", word.len()));
            link.write_all(request.as_bytes()).unwrap();
        }
        // It has gone when the replica has.
        while link.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {}
    });
    let mut replica = master("durable", &["--replicaof", "127.0.0.1", &port]);
    let mut client = replica.connect_loaded().unwrap();
    wait_until("all of it is done", || shown(&call(&mut client, &["GET", "end"])) == "1");
    let look = |client: &mut Client| {
        for key in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            let Value::Int(left) = call(client, &["PTTL", key]) else { panic!("PTTL is a number") };
            assert!((1..=1_000_000).contains(&left), "{key}: {left}");
            assert_eq!(shown(&call(client, &["GET", key])), "1");
        }
        for key in ["sorted:0", "sorted:1", "sorted:2"] {
            let sorted = call(client, &["LRANGE", key, "0", "-1"]);
            assert_eq!(sorted, Value::Array(vec![text("y"), text("x")]), "{key}");
        }
        let Value::Array(entries) = call(client, &["XRANGE", "s", "-", "+"]) else {
            panic!("it is a stream")
        };
        let Value::Array(entry) = &entries[0] else { panic!("it has an entry") };
        assert_ne!(entry[0], text("0-1"));
    };
    look(&mut client);
    // So it is in the log.
    wait_until("it is durable", || field(&mut client, "master_link_status").is_some());
    replica.kill();
    old.join().unwrap();
    replica.restart().unwrap();
    look(&mut replica.connect_loaded().unwrap());
}
