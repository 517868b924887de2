//! The generic commands against what Redis 7.0.15 said of them and to them:
//! `fixtures/generic.rows` holds its COMMAND INFO, `fixtures/generic.cases` sessions
//! with it. What a session cannot show, because it depends on the clock or the
//! policy, follows as tests of its own.

mod run;

use command::{FAMILIES, Flags, Group, Keys, Outcome, Row};
use keyspace::{DbIndex, Eviction};
use run::{Run, find_row};
use std::collections::HashSet;
use wire::RequestBuf;

/// Runs lines that must not fail and whose replies do not matter.
fn all(run: &mut Run, lines: &[&str]) {
    lines.iter().for_each(|line| assert!(!run.run(line).starts_with('-'), "{line}"));
}

#[track_caller]
fn check(run: &mut Run, line: &str, reply: &str, outcome: Outcome) {
    assert_eq!((run.run(line).as_str(), run.outcome.clone()), (reply, Some(outcome)), "{line}");
}

/// How many keys were found expired so far.
fn expired(run: &Run) -> i64 {
    run.keyspace.stats().expired.get() as i64
}

fn rows() -> impl Iterator<Item = &'static Row> {
    FAMILIES.iter().flat_map(|rows| rows.iter())
}

fn rows_and_subcommands() -> impl Iterator<Item = &'static Row> {
    rows().flat_map(|row| std::iter::once(row).chain(row.subcommands))
}

/// First, last and step of a row's keys, as COMMAND INFO has them.
fn key_columns(row: &Row) -> String {
    match row.keys {
        Keys::None => "0,0,0".into(),
        Keys::Range { first, last, step } => format!("{first},{last},{step}"),
        // What is certain: the positions of the shortest request.
        Keys::Movable(find) => {
            let mut positions = Vec::new();
            find(&RequestBuf::from_args([row.name, "key"]).as_request(), &mut positions);
            assert_eq!(positions, [1]);
            "1,1,1".into()
        }
    }
}

fn flag_names(flags: Flags) -> HashSet<String> {
    // Not shown as flags: they are about ACL categories, or Tarn's own.
    let of_flushes = Flags::EMPTIES_ALL | Flags::EMPTIES_DATABASE;
    let shown = flags - Flags::DANGEROUS - Flags::PROTECTED - Flags::NO_TOUCH - Flags::TOUCHES - of_flushes;
    shown.iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect()
}

/// A column that lists names; "-" is an empty list.
fn names(column: &str) -> HashSet<String> {
    column.split(',').filter(|name| *name != "-").map(str::to_owned).collect()
}

/// The ACL categories of a row.
fn acl_categories(row: &Row) -> HashSet<String> {
    row.categories().iter_names().map(|(name, _)| format!("@{}", name.to_ascii_lowercase())).collect()
}

/// Tips that Redis 7.2 has and 7.0 has not.
fn tips_since_7_0(name: &str) -> &'static str {
    if matches!(name, "scan" | "randomkey") { "response_policy:special" } else { "-" }
}

#[test]
fn rows_are_those_of_command_info() {
    let fixture = include_str!("fixtures/generic.rows");
    let lines: Vec<&str> = fixture.lines().filter(|line| !line.starts_with('#')).collect();
    for line in &lines {
        let columns: Vec<&str> = line.split('\t').collect();
        let &[name, arity, flags, keys, acl, tips, since, group] = &columns[..] else {
            panic!("{line}");
        };
        let row = rows_and_subcommands().find(|row| row.name == name).expect(name);
        assert_eq!(row.arity.to_string(), arity, "{name}");
        assert_eq!(flag_names(row.flags), names(flags), "{name}");
        assert_eq!(key_columns(row), keys, "{name}");
        assert_eq!(acl_categories(row), names(acl), "{name}");
        let tips = &names(tips) | &names(tips_since_7_0(name));
        assert_eq!(row.tips.iter().map(|tip| tip.to_string()).collect::<HashSet<_>>(), tips, "{name}");
        assert_eq!(row.since, since, "{name}");
        assert_eq!(format!("{:?}", row.group).to_ascii_lowercase(), group, "{name}");
        assert!(row.summary.ends_with('.') && !row.complexity.is_empty(), "{name}");
    }
    let generic = rows_and_subcommands().filter(|row| matches!(row.group, Group::Generic | Group::Server));
    assert_eq!(generic.count(), lines.len(), "every row is in the fixture");
}

#[test]
fn replies_are_those_of_redis() {
    run::cases::play("generic.cases");
}

/// A DUMP's payload.
fn payload_of(run: &mut Run, key: &str) -> Vec<u8> {
    let reply = run.run_raw(&["DUMP", key]);
    let start = reply.iter().position(|byte| *byte == b'\n').expect("a bulk has a header") + 1;
    reply[start..reply.len() - 2].to_vec()
}

#[test]
fn dump_has_the_bytes_of_redis_before_its_footer() {
    let mut run = Run::default();
    let long = "a".repeat(90);
    for (value, body) in [
        ("10", &b"\x00\xc0\x0a"[..]),
        ("-200", b"\x00\xc1\x38\xff"),
        ("100000", b"\x00\xc2\xa0\x86\x01\x00"),
        ("12345678901", b"\x00\x0b12345678901"),
        ("abc", b"\x00\x03abc"),
        ("", b"\x00\x00"),
        (&long, b"\x00\xc3\x09\x40\x5a\x01aa\xe0\x4d\x00\x01aa"),
    ] {
        run.run_words(&["SET", "a", value]);
        let payload = payload_of(&mut run, "a");
        assert_eq!(&payload[..payload.len() - 10], body, "{value}");
    }
}

#[test]
fn dump_has_the_version_of_redis_7_0_and_restores_to_the_same_value() {
    let mut run = Run::default();
    let long = "x".repeat(100_000);
    for value in ["0", "-1", "127", "40000", "-2147483648", "2147483648", "", "abc", "1.50", &long] {
        run.run_words(&["SET", "from", value]);
        let payload = &payload_of(&mut run, "from")[..];
        assert_eq!(payload[payload.len() - 10..payload.len() - 8], [10, 0]);
        assert_eq!(run.run_words(&[b"RESTORE", &b"to"[..], b"0", payload, b"REPLACE"]), "+OK");
        assert_eq!(run.outcome, Some(Outcome::Changed));
        assert_eq!(run.run("GET to"), run.run("GET from"));
        assert_eq!(run.run("OBJECT ENCODING to"), run.run("OBJECT ENCODING from"));
        let mut torn = payload.to_vec();
        torn[0] ^= 1;
        let refused = run.run_words(&[b"RESTORE", &b"other"[..], b"0", &torn]);
        assert_eq!(refused, "-ERR DUMP payload version or checksum are wrong");
    }
}

#[test]
fn restore_counts_its_time_to_live_from_now() {
    let mut run = Run::default();
    run.run("SET a 1");
    let payload = &payload_of(&mut run, "a")[..];
    run.run_words(&[b"RESTORE", &b"b"[..], b"1500", payload]);
    assert_eq!(run.run("PTTL b"), ":1500");
    run.run_words(&[b"RESTORE", &b"b"[..], b"1700000001000", payload, b"ABSTTL", b"REPLACE"]);
    assert_eq!(run.run("PTTL b"), ":1000");
    // Over at once: the old value goes, and only that is a change.
    run.run_words(&[b"RESTORE", &b"b"[..], b"1", payload, b"ABSTTL", b"REPLACE"]);
    check(&mut run, "EXISTS b", ":0", Outcome::Unchanged);
    run.run_words(&[b"RESTORE", &b"b"[..], b"1", payload, b"ABSTTL"]);
    assert_eq!(run.outcome, Some(Outcome::Unchanged));
}

#[test]
fn restore_sets_the_clock_of_the_policy_in_force_alone() {
    let mut run = Run::default();
    run.run("SET a 1");
    let payload = &payload_of(&mut run, "a")[..];
    run.run_words(&[b"RESTORE", &b"b"[..], b"0", payload, b"IDLETIME", b"1000"]);
    run.run_words(&[b"RESTORE", &b"c"[..], b"0", payload, b"FREQ", b"200"]);
    assert_eq!(run.run("OBJECT IDLETIME b"), ":1000");
    assert_eq!(run.run("OBJECT IDLETIME c"), ":0");
    run.keyspace.policy().set_eviction(Eviction::AllLfu);
    run.run_words(&[b"RESTORE", &b"d"[..], b"0", payload, b"FREQ", b"200"]);
    run.run_words(&[b"RESTORE", &b"e"[..], b"0", payload, b"IDLETIME", b"200"]);
    assert_eq!(run.run("OBJECT FREQ d"), ":200");
    assert_eq!(run.run("OBJECT FREQ e"), ":5");
}

#[test]
fn time_to_live_counts_down_in_both_units() {
    let mut run = Run::default();
    run.run("SET a 1");
    check(&mut run, "EXPIRE a 10", ":1", Outcome::Changed);
    check(&mut run, "TTL a", ":10", Outcome::Unchanged);
    check(&mut run, "PTTL a", ":10000", Outcome::Unchanged);
    check(&mut run, "PEXPIRE a 1500", ":1", Outcome::Changed);
    check(&mut run, "TTL a", ":2", Outcome::Unchanged);
    check(&mut run, "PEXPIRETIME a", ":1700000001500", Outcome::Unchanged);
    run.clock.advance_ms(1001);
    check(&mut run, "TTL a", ":0", Outcome::Unchanged);
    check(&mut run, "PTTL a", ":499", Outcome::Unchanged);
    run.clock.advance_ms(499);
    check(&mut run, "TTL a", ":-2", Outcome::Unchanged);
    assert_eq!(expired(&run), 1);
}

#[test]
fn only_what_changes_something_is_a_change() {
    use Outcome::{Changed, Unchanged};
    let mut run = Run::default();
    all(&mut run, &["SET a 1", "SET b 2"]);
    for (line, outcome) in [
        ("DEL x y", Unchanged),
        ("DEL x a", Changed),
        ("UNLINK a", Unchanged),
        ("EXPIRE x 10", Unchanged),
        ("EXPIRE b 10 XX", Unchanged),
        ("PERSIST b", Unchanged),
        ("EXPIRE b 10", Changed),
        ("PERSIST b", Changed),
        ("RENAME b b", Unchanged),
        ("RENAME b a", Changed),
        ("RENAMENX a a", Unchanged),
        ("COPY a b", Changed),
        ("COPY a b", Unchanged),
        ("COPY a b REPLACE", Changed),
        ("RENAMENX a b", Unchanged),
        ("MOVE a 1", Changed),
        ("MOVE a 1", Unchanged),
        ("SORT x STORE x", Unchanged),
        ("SORT x STORE b", Changed),
        ("FLUSHDB", Unchanged),
        ("SWAPDB 1 1", Unchanged),
        ("SWAPDB 0 1", Changed),
        ("FLUSHALL", Changed),
        ("FLUSHALL", Unchanged),
        ("EXPIRE b -1", Unchanged),
        ("SET b 1", Changed),
        ("EXPIRE b -1", Changed),
    ] {
        run.run(line);
        assert_eq!(run.outcome, Some(outcome), "{line}");
    }
}

#[test]
fn an_expired_key_is_not_there_for_any_command() {
    let mut run = Run::default();
    for (line, reply) in [
        ("EXISTS a", ":0"),
        ("DEL a", ":0"),
        ("TYPE a", "+none"),
        ("PERSIST a", ":0"),
        ("EXPIRE a 10", ":0"),
        ("RENAME a b", "-ERR no such key"),
        ("COPY a b", ":0"),
        ("MOVE a 1", ":0"),
        ("OBJECT ENCODING a", "nil"),
        ("DUMP a", "nil"),
        ("SORT a", "[]"),
    ] {
        all(&mut run, &["SET a 1", "PEXPIRE a 1"]);
        run.clock.advance_ms(1);
        let before = expired(&run);
        assert_eq!(run.run(line), reply, "{line}");
        assert_ne!(run.outcome, Some(Outcome::Changed), "{line}");
        assert_eq!(expired(&run), before + 1, "{line}");
        assert!(run.keyspace.is_empty(DbIndex(0)), "{line}");
    }
    all(&mut run, &["SET a 1", "PEXPIRE a 1"]);
    run.clock.advance_ms(1);
    check(&mut run, "SCAN 0", r#"["0", []]"#, Outcome::Unchanged);
    check(&mut run, "KEYS *", "[]", Outcome::Unchanged);
    check(&mut run, "RANDOMKEY", "nil", Outcome::Unchanged);
}

#[test]
fn a_target_that_has_expired_does_not_stand_in_the_way() {
    let mut run = Run::default();
    for (line, key) in [("RENAMENX a b", "b"), ("COPY a b", "b"), ("COPY a a DB 1", "a"), ("MOVE a 1", "a")] {
        let exchange = if key == "a" { "SWAPDB 0 1" } else { "SWAPDB 0 0" };
        all(&mut run, &["FLUSHALL", exchange, &format!("SET {key} old"), &format!("PEXPIRE {key} 1")]);
        all(&mut run, &[exchange, "SET a new"]);
        run.clock.advance_ms(1);
        let before = expired(&run);
        check(&mut run, line, ":1", Outcome::Changed);
        assert_eq!(expired(&run), before + 1, "{line}");
        run.run(exchange);
        check(&mut run, &format!("GET {key}"), r#""new""#, Outcome::Unchanged);
        check(&mut run, &format!("TTL {key}"), ":-1", Outcome::Unchanged);
    }
}

#[test]
fn asking_about_a_key_does_not_count_as_using_it() {
    let mut run = Run::default();
    all(&mut run, &["SET a 1", "PEXPIRE a 99999999"]);
    run.clock.advance_ms(100_000);
    for line in [
        "TTL a",
        "PTTL a",
        "EXPIRETIME a",
        "PEXPIRETIME a",
        "EXISTS a",
        "TYPE a",
        "OBJECT ENCODING a",
        "OBJECT REFCOUNT a",
        "SCAN 0",
        "KEYS *",
        "RANDOMKEY",
        "DBSIZE",
    ] {
        run.run(line);
        check(&mut run, "OBJECT IDLETIME a", ":100", Outcome::Unchanged);
    }
    for line in ["TOUCH a", "DUMP a", "PERSIST a", "EXPIRE a 10 LT", "EXPIRE a 1000", "COPY a b", "MOVE a 0"]
    {
        all(&mut run, &["SET a 1"]);
        run.clock.advance_ms(100_000);
        run.run(line);
        let idle = if line == "MOVE a 0" { ":100" } else { ":0" };
        assert_eq!(run.run("OBJECT IDLETIME a"), idle, "{line}");
    }
}

#[test]
fn reads_count_as_hits_and_misses_and_writes_do_not() {
    let mut run = Run::default();
    for (line, hits, misses) in [
        ("TTL a", 1, 0),
        ("TTL x", 0, 1),
        ("TYPE a", 1, 0),
        ("EXISTS a x", 1, 1),
        ("TOUCH a x", 1, 1),
        ("OBJECT FREQ x", 0, 1),
        ("DUMP a", 1, 0),
        ("COPY a b", 1, 0),
        ("COPY x b", 0, 1),
        ("SORT a", 1, 0),
        ("SORT x", 0, 1),
        ("SORT_RO x", 0, 1),
        ("PERSIST a", 0, 0),
        ("EXPIRE x 1", 0, 0),
        ("RENAME x y", 0, 0),
        ("RESTORE a 0 x", 0, 0),
        ("MOVE a 1", 0, 0),
        ("SCAN 0", 0, 0),
        ("KEYS *", 0, 0),
        ("RANDOMKEY", 0, 0),
    ] {
        run.run("SET a 1");
        let counts = |run: &Run| {
            let stats = run.keyspace.stats();
            (stats.hits.get(), stats.misses.get())
        };
        let before = counts(&run);
        run.run(line);
        assert_eq!(counts(&run), (before.0 + hits, before.1 + misses), "{line}");
    }
}

#[test]
fn frequency_and_idle_time_need_their_policy() {
    let mut run = Run::default();
    run.keyspace.policy().set_eviction(Eviction::ExpiringLfu);
    run.run("SET a 1");
    check(&mut run, "OBJECT FREQ a", ":5", Outcome::Unchanged);
    check(&mut run, "OBJECT FREQ x", "nil", Outcome::Unchanged);
    check(&mut run, "OBJECT IDLETIME x", "nil", Outcome::Unchanged);
    assert!(run.run("OBJECT IDLETIME a").starts_with("-ERR An LFU maxmemory policy is selected,"));
    // The small integers are no longer "shared" once the ceiling makes clocks count.
    check(&mut run, "OBJECT REFCOUNT a", ":2147483647", Outcome::Unchanged);
    run.keyspace.policy().set_memory_bytes_max(100 << 20);
    check(&mut run, "OBJECT REFCOUNT a", ":1", Outcome::Unchanged);
}

#[test]
fn a_scan_sees_every_key_once() {
    let mut run = Run::default();
    for number in 0..5000 {
        run.run(&format!("SET key:{number} {number}"));
    }
    for options in ["", "COUNT 1", "COUNT 777", "MATCH key:* TYPE string"] {
        let (mut cursor, mut seen, mut calls) = (String::from("0"), HashSet::new(), 0);
        loop {
            let reply = run.run(&format!("SCAN {cursor} {options}"));
            // ["cursor", ["key:1", "key:2"]]
            let mut quoted = reply.split('"').skip(1).step_by(2);
            cursor = quoted.next().expect("a cursor comes first").to_owned();
            for key in quoted {
                assert!(seen.insert(key.to_owned()), "{key} twice");
            }
            calls += 1;
            assert!(calls <= 5001, "the scan ends");
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(seen.len(), 5000, "{options}");
    }
    let reply = run.run("SCAN 0 COUNT 100000");
    assert_eq!(reply.matches("key:").count(), 5000);
    assert!(reply.starts_with(r#"["0", "#));
}

#[test]
fn a_cursor_that_no_scan_returned_is_answered() {
    let mut run = Run::default();
    run.run("SET a 1");
    for cursor in ["18446744073709551615", "-1", "-18446744073709551615", "4611686018427387904", "12345"] {
        let reply = run.run(&format!("SCAN {cursor}"));
        assert!(reply.starts_with(r#"["0", "#), "{reply}");
    }
}

#[test]
fn a_large_flush_frees_in_the_background_or_at_once() {
    let mut run = Run::default();
    for how in ["ASYNC", "SYNC"] {
        for number in 0..3000 {
            run.run(&format!("SET key:{number} value"));
        }
        check(&mut run, &format!("FLUSHDB {how}"), "+OK", Outcome::Changed);
        check(&mut run, "DBSIZE", ":0", Outcome::Unchanged);
        check(&mut run, "KEYS *", "[]", Outcome::Unchanged);
    }
}

#[test]
fn object_help_lists_its_subcommands() {
    let mut run = Run::default();
    let help = run.run("OBJECT HELP");
    for row in find_row(b"object", None).expect("OBJECT is there").subcommands {
        let name = row.name.trim_start_matches("object|").to_ascii_uppercase();
        assert!(help.contains(&format!("+{name}")), "{name}");
    }
}
