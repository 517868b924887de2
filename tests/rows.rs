//! COMMAND INFO of every command against real servers', field by field: clients, proxies
//! and ACL rules lean on these facts.
//!
//! A field must be as Redis 7.0 has it or, for what Redis 7.2 changed, as Valkey 8.0 has it, which
//! was made from it; where Valkey has changed it again [`TOLERATED`] says so. The notes of key specifications are prose and not compared. [`TOLERATED`] lists what may differ. An entry that is not needed any more is a failure.

use crate::tarn;
use testkit::{Client, Program, Server};
use wire::Value;

/// The fields of an answer, in order.
const FIELDS: [&str; 10] = [
    "name",
    "arity",
    "flags",
    "first key",
    "last key",
    "step",
    "categories",
    "tips",
    "key specifications",
    "subcommands",
];

/// The place of the one field that is not compared as a whole.
const SUBCOMMANDS: usize = 9;

/// Command, field, why they differ.
const TOLERATED: &[(&str, &str, &str)] = &[
    ("bexists", "name", "Tarn's own"),
    ("cluster|cut", "name", "Tarn's own"),
    ("cluster|hear", "name", "Tarn's own"),
    ("insync", "name", "Tarn's own"),
    ("slotmove", "name", "Tarn's own"),
    ("cluster|myshardid", "flags", "as Redis 7.2 has it"),
    ("wait", "flags", "as Redis 7.2 has it"),
    ("waitaof", "flags", "as Redis 7.2 has it"),
    ("waitaof", "categories", "as Redis 7.2 has it"),
    ("delifeq", "name", "newer than both real servers"),
    ("msetex", "name", "newer than both real servers"),
    ("hexpire", "name", "newer than both real servers"),
    ("hexpireat", "name", "newer than both real servers"),
    ("hexpiretime", "name", "newer than both real servers"),
    ("hgetdel", "name", "newer than both real servers"),
    ("hgetex", "name", "newer than both real servers"),
    ("hpersist", "name", "newer than both real servers"),
    ("hpexpire", "name", "newer than both real servers"),
    ("hpexpireat", "name", "newer than both real servers"),
    ("hpexpiretime", "name", "newer than both real servers"),
    ("hpttl", "name", "newer than both real servers"),
    ("hsetex", "name", "newer than both real servers"),
    ("httl", "name", "newer than both real servers"),
];

/// The fields of a command, or None if the server does not have it.
fn info(client: &mut Client, name: &str) -> Option<Vec<Value>> {
    let Value::Array(mut answers) = client.call(&["COMMAND", "INFO", name]).unwrap() else {
        panic!("COMMAND INFO {name} is no array");
    };
    if let Value::Array(fields) = answers.remove(0) { Some(fields) } else { None }
}

/// A field as text; those whose order means nothing are sorted.
fn shown(field: usize, value: &Value) -> String {
    match value {
        Value::Array(items) | Value::Set(items) if field != 8 => {
            let mut items: Vec<String> = items.iter().map(plain).collect();
            items.sort_unstable();
            items.join(" ")
        }
        other => plain(other),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Simple(text) | Value::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Int(number) => number.to_string(),
        Value::Array(items) => {
            let notes = items.first().is_some_and(|item| plain(item) == "notes");
            let items: Vec<String> = items.iter().skip(if notes { 2 } else { 0 }).map(plain).collect();
            format!("[{}]", items.join(" "))
        }
        other => format!("{other:?}"),
    }
}

fn subcommands(fields: &[Value]) -> Vec<&[Value]> {
    let Some(Value::Array(subcommands)) = fields.get(SUBCOMMANDS) else { return Vec::new() };
    subcommands
        .iter()
        .filter_map(|one| if let Value::Array(fields) = one { Some(&**fields) } else { None })
        .collect()
}

/// A field that differs: command, field, Tarn's, Redis', Valkey's.
type Found = (String, &'static str, [String; 3]);

/// Adds each field that neither of the others shares with Tarn, in subcommands too.
fn compare(ours: &[Value], others: [Option<&[Value]>; 2], found: &mut Vec<Found>) {
    let name = plain(&ours[0]);
    if others == [None, None] {
        found.push((name, FIELDS[0], ["yes", "no", "no"].map(str::to_owned)));
        return;
    }
    for (field, title) in FIELDS.iter().enumerate().take(SUBCOMMANDS) {
        let a = shown(field, &ours[field]);
        let others = others
            .map(|other| other.map_or("no such command".to_owned(), |other| shown(field, &other[field])));
        if !others.contains(&a) {
            let [b, c] = others;
            found.push((name.clone(), title, [a, b, c]));
        }
    }
    let of_others = others.map(|other| other.map(subcommands).unwrap_or_default());
    let ours = subcommands(ours);
    for missing in of_others[0].iter().filter(|theirs| ours.iter().all(|one| one[0] != theirs[0])) {
        found.push((plain(&missing[0]), FIELDS[SUBCOMMANDS], ["no", "yes", ""].map(str::to_owned)));
    }
    for sub in ours {
        let same = of_others.each_ref().map(|theirs| theirs.iter().find(|one| one[0] == sub[0]).copied());
        compare(sub, same, found);
    }
}

#[test]
fn rows_are_as_real_servers_have_them() {
    let servers = [tarn(), Program::Redis, Program::Valkey].map(|program| {
        let edition: &[&str] = if let Program::Tarn(_) = program { &["--edition", "memory"] } else { &[] };
        Server::start(program, edition).unwrap()
    });
    let mut clients = servers.each_ref().map(|server| server.connect().unwrap());
    let mut found = Vec::new();
    for name in crate::row_names().iter().filter(|name| !name.contains('|')) {
        let [ours, redis, valkey] = clients.each_mut().map(|client| info(client, name));
        let ours = ours.unwrap_or_else(|| panic!("Tarn does not know its own {name}"));
        compare(&ours, [redis.as_deref(), valkey.as_deref()], &mut found);
    }
    let is_met = |one: &(&str, &str, &str), found: &Found| (one.0, one.1) == (found.0.as_str(), found.1);
    let unneeded: Vec<_> =
        TOLERATED.iter().filter(|one| !found.iter().any(|found| is_met(one, found))).collect();
    found.retain(|found| !TOLERATED.iter().any(|one| is_met(one, found)));
    let lines: Vec<String> = found
        .iter()
        .map(|(command, field, [a, b, c])| {
            format!("{command}, {field}:\n  tarn   {a}\n  redis  {b}\n  valkey {c}")
        })
        .collect();
    assert!(lines.is_empty() && unneeded.is_empty(), "{}\nno longer differ: {unneeded:?}", lines.join("\n"));
}
