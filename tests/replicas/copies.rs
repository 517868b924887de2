//! Full copies: made under writes of all kinds, directly or by way of a file, in the version that a peer reads.

use super::{agree, field, follow, follower, master, wait_until, write};
use crate::{info, tarn};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;
use testkit::ask::call;
use testkit::{Client, Program, Server};
use wire::Value;

/// Keys that make a full copy last.
const BALLAST: &str = "30000";

const WRITERS: u64 = 3;

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

/// Has redis-cli take a copy; gives its file.
fn take_by_tool(master: &Server) -> PathBuf {
    let to = master.dir().join("taken.rdb");
    let port = master.address().port().to_string();
    let taken =
        testkit::process::bounded("redis-cli").args(["-p", &port, "--rdb"]).arg(&to).output().unwrap();
    assert!(taken.status.success(), "{taken:?}");
    to
}

#[test]
fn a_copy_of_version_9_has_the_types_of_its_time() {
    let master = master("memory", &["--repl-rdb-version", "9"]);
    let mut client = master.connect().unwrap();
    fill_with_all_types(&mut client);
    let to = take_by_tool(&master);
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
fn tools_take_a_copy() {
    let master = master("memory", &[]);
    let mut client = master.connect().unwrap();
    call(&mut client, &["DEBUG", "POPULATE", "1000"]);
    let to = take_by_tool(&master);
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
