//! The table of directives from outside: the page that is made of it, and CONFIG SET of each against the real servers.

use crate::{root, tarn};
use config::{Effect, Flags, Kind, Row, TABLE};
use std::collections::HashMap;
use testkit::ask::{ask, call_well, shown};
use testkit::{Client, Program, Server};
use wire::Value;

/// Names and defaults of CONFIG GET, as Redis 7.2.6 answers.
const REDIS: &str = include_str!("../crates/config/src/tests/redis-7.2.6-config-get.txt");

const PAGE: &str = "docs/configuration.md";
const HEAD: &str = "| directive | values | default | CONFIG SET | here |\n|---|---|---|---|---|\n";

#[test]
fn the_page_of_directives_says_what_the_table_says() {
    let path = root().join(PAGE);
    let page = std::fs::read_to_string(&path).unwrap();
    let begin = page.find(HEAD).expect("the page has the table's head");
    let table = rendered();
    if std::env::var_os("TARN_WRITE_PAGES").is_some() {
        std::fs::write(&path, page[..begin].to_owned() + &table).unwrap();
    } else {
        assert!(page[begin..] == table, "{PAGE} is not of this table: run this test with TARN_WRITE_PAGES=1");
    }
}

/// The page's table: all directives by name.
fn rendered() -> String {
    let redis: HashMap<&str, &str> =
        REDIS.lines().map(|line| line.split_once(' ').unwrap_or((line, ""))).collect();
    let mut rows: Vec<&Row> = TABLE.iter().collect();
    rows.sort_by_key(|row| row.name);
    rows.iter().fold(HEAD.to_owned(), |page, row| page + &line(row, redis.get(row.name).copied()))
}

fn line(row: &Row, redis: Option<&str>) -> String {
    let alias = row.alias.map_or(String::new(), |alias| format!(", `{alias}`"));
    let here = match row.effect {
        Effect::Works => "as in Redis".to_owned(),
        Effect::Here(what) => what.to_owned(),
        Effect::NoMeaning(why) => format!("no effect: {why}"),
    };
    let (name, values, default, set) = (row.name, values(row.kind), default(row, redis), settable(row));
    format!("| `{name}`{alias} | {values} | {default} | {set} | {here} |\n").replace("|  |", "| |")
}

fn values(kind: Kind) -> String {
    let words = |words: &[&str]| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    let range = |min: i64, max: i64| match max {
        i64::MAX => format!("from {min}"),
        _ => format!("{min} to {max}"),
    };
    match kind {
        Kind::Bool => words(&["no", "yes"]),
        Kind::Int { min, max } => range(min, max),
        Kind::Octal => "permissions in octal".to_owned(),
        Kind::Memory { min: 0, max: i64::MAX } => "bytes".to_owned(),
        Kind::Memory { min, max } => format!("bytes, {}", range(min, max)),
        Kind::MemoryOrPercent => "bytes, or a percentage of `maxmemory`".to_owned(),
        Kind::Enum(list) => words(list),
        Kind::Text(_) => "text".to_owned(),
        Kind::Directory => "directory".to_owned(),
        Kind::Words => "addresses".to_owned(),
        Kind::Lines { .. } => "lines".to_owned(),
        Kind::Save => "pairs of seconds and changes".to_owned(),
        Kind::OutputLimits => "class, hard limit, soft limit, seconds".to_owned(),
        Kind::KeyspaceEvents => "letters of event classes".to_owned(),
        Kind::ShutdownFlags => words(config::SHUTDOWN_WORDS),
        Kind::OomScores => "three numbers, -2000 to 2000".to_owned(),
        Kind::Percentiles => "percentages".to_owned(),
        Kind::ReplicaOf => "host and port, or `no one`".to_owned(),
    }
}

/// The default, and the other one that Redis has.
fn default(row: &Row, redis: Option<&str>) -> String {
    let code = |text: &str| if text.is_empty() { "empty".to_owned() } else { format!("`{text}`") };
    let config = config::Config::defaults();
    // Durable editions answer what they do.
    let is_decided = ["appendonly", "appendfsync"].contains(&row.name);
    let answered =
        config.get(&[row.name]).first().map(|(_, value)| String::from_utf8_lossy(value).into_owned());
    match (answered, redis) {
        (Some(answered), Some(redis)) if answered != redis && !is_decided => {
            format!("{} (Redis: {})", code(row.default), code(redis))
        }
        _ => code(row.default),
    }
}

fn settable(row: &Row) -> String {
    let when = match row.flags {
        flags if flags.contains(Flags::FILE_ONLY) => "in files only",
        flags if flags.intersects(Flags::IMMUTABLE | Flags::FIXED) => "at the start only",
        flags if flags.contains(Flags::PROTECTED) => "protected",
        _ => "yes",
    };
    when.to_owned()
}

/// What is not compared, and why.
const APART: &[(&str, &str)] = &[
    ("bind", "changes where the servers listen"),
    ("port", "changes where the servers listen"),
    ("activedefrag", "Redis: depends on the allocator that it was built with"),
    ("appendonly", "the log begins at the start"),
    ("locale-collate", "Redis: depends on the locales of the machine"),
    ("maxclients", "depends on how many files a process may have, and how many it has for itself"),
    ("maxmemory-clients", "ends the connection that sets it to little"),
    ("requirepass", "locks the test out"),
];

/// Values that are not read alike, and why.
const TOLERATED: &[(&str, &str, &str)] = &[
    ("latency-tracking-info-percentiles", "0x10", "numbers are decimal here"),
    ("save", "1 ", "Redis takes the empty word for 0"),
];

const VALUES: &[&str] = &[
    "",
    "foo",
    "0",
    "1",
    "2",
    "-1",
    "-0",
    "+1",
    "01",
    " 1",
    "1 ",
    "1.5",
    "0x10",
    "100",
    "yes",
    "no",
    "YES",
    "1kb",
    "1mb",
    "1gb",
    "1tb",
    "k",
    "b",
    "10%",
    "100%",
    "101%",
    "-5%",
    "-1kb",
    "2147483647",
    "2147483648",
    "-2147483649",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "65535",
    "65536",
    "1048576",
    "/tmp",
    "/nonexistent",
    "a/b",
    "a b",
    "1 2",
    "1 2 3",
    "-1 2",
    "0 0",
    "0 200 800",
    "-3000 0 0",
    "noeviction",
    "allkeys-lru",
    "volatile-ttl foo",
    "A",
    "KEA$",
    "g",
    "Ax?",
    "normal 1mb 2mb 60",
    "replica 9 9 9 normal 0 0 0",
    "slave 1 1 1",
    "foo 1 1 1",
    "normal x 1 1",
    "777",
    "1000",
    "8",
    "*",
    "3600 1",
    "3600 1 60",
    "no one",
    "50 99",
    "50 101",
    "nan",
    "everysec",
    "always",
    "local",
    "save nosave",
    "save now",
    "debug",
    "NOTICE",
    "{title}",
    "{foo}",
    "{",
    "{title",
    "{port}",
    "resetchannels",
    "ip",
    "swapdb",
    "absolute",
    "relative",
    "systemd",
    "panic",
    "clients",
    "ignore",
    "a_b",
    "h\u{e9}",
];

#[test]
fn config_set_of_every_directive_answers_as_the_real_servers() {
    let servers = [tarn(), Program::Redis, Program::Valkey].map(|program| {
        let edition: &[&str] = if let Program::Tarn(_) = program { &["--edition", "memory"] } else { &[] };
        Server::start(program, edition).unwrap()
    });
    let mut clients = servers.each_ref().map(|server| server.connect().unwrap());
    let names = REDIS.lines().map(|line| line.split(' ').next().unwrap()).chain(["nosuch", "user"]);
    let is_compared =
        |name: &&str| !name.starts_with("tls-") && !APART.iter().any(|(apart, _)| apart == name);
    let mut found = Vec::new();
    for name in names.filter(is_compared) {
        for value in VALUES {
            let [ours, redis, valkey] = clients.each_mut().map(|client| set_and_get(client, name, value));
            let is_tolerated = TOLERATED.iter().any(|(of, what, _)| (*of, *what) == (name, *value));
            if redis == valkey && ours != redis && !is_tolerated {
                found.push(format!("CONFIG SET {name} {value:?}\n  {ours}\n  {redis}"));
            }
        }
    }
    assert!(found.is_empty(), "{} answers differ:\n{}", found.len(), found.join("\n"));
}

/// The reply to CONFIG SET and, if it was taken, what is answered then; the value from before comes back.
fn set_and_get(client: &mut Client, name: &str, value: &str) -> String {
    let before = current(client, name);
    let said = ask(client, &["CONFIG", "SET", name, value]);
    if said != "OK" {
        return said;
    }
    let after = current(client, name);
    call_well(client, &["CONFIG", "SET", name, &before]);
    format!("{said} {after}")
}

fn current(client: &mut Client, name: &str) -> String {
    match call_well(client, &["CONFIG", "GET", name]) {
        Value::Array(pair) if pair.len() == 2 => shown(&pair[1]),
        _ => String::new(),
    }
}
