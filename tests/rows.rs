//! COMMAND INFO of every command against Redis 7.0's, field by field: clients, proxies
//! and ACL rules lean on these facts.
//!
//! [`TOLERATED`] lists what may differ. An entry that is not needed any more is a failure.

use crate::tarn;
use std::collections::BTreeSet;
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

/// Command, field, why they differ.
const TOLERATED: &[(&str, &str, &str)] = &[];

fn info(client: &mut Client, name: &str) -> Value {
    match client.call(&["COMMAND", "INFO", name]).unwrap() {
        Value::Array(mut answers) => answers.remove(0),
        other => panic!("COMMAND INFO {name}: {other:?}"),
    }
}

/// A field as text; those whose order means nothing are sorted.
fn shown(field: usize, value: &Value) -> String {
    match value {
        Value::Array(items) | Value::Set(items) if field != 8 => {
            let mut items: Vec<String> = items.iter().map(|item| plain(item)).collect();
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
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
        other => format!("{other:?}"),
    }
}

fn subcommands(fields: &[Value]) -> Vec<&[Value]> {
    let Some(Value::Array(subcommands)) = fields.get(9) else { return Vec::new() };
    subcommands
        .iter()
        .filter_map(|one| if let Value::Array(fields) = one { Some(&**fields) } else { None })
        .collect()
}

/// Adds (command, field, Tarn's, Redis') for each field that differs, in subcommands too.
fn compare(ours: &[Value], theirs: &[Value], found: &mut Vec<(String, &'static str, String, String)>) {
    let name = plain(&ours[0]);
    for (field, title) in FIELDS.iter().enumerate().take(9) {
        let (a, b) = (shown(field, &ours[field]), shown(field, &theirs[field]));
        if a != b {
            found.push((name.clone(), title, a, b));
        }
    }
    let of_redis = subcommands(theirs);
    let names = |all: &[&[Value]]| all.iter().map(|one| plain(&one[0])).collect::<BTreeSet<String>>();
    let (a, b) = (names(&subcommands(ours)), names(&of_redis));
    for missing in b.difference(&a) {
        found.push((missing.clone(), FIELDS[9], "none".into(), "has it".into()));
    }
    for sub in subcommands(ours) {
        match of_redis.iter().find(|one| plain(&one[0]) == plain(&sub[0])) {
            Some(other) => compare(sub, other, found),
            None => found.push((plain(&sub[0]), FIELDS[9], "has it".into(), "none".into())),
        }
    }
}

#[test]
fn rows_are_as_redis_has_them() {
    let (redis, tarn) = (
        Server::start(Program::Redis, &[]).unwrap(),
        Server::start(tarn(), &["--edition", "memory"]).unwrap(),
    );
    let (mut redis, mut tarn) = (redis.connect().unwrap(), tarn.connect().unwrap());
    let mut found = Vec::new();
    for name in crate::row_names().iter().filter(|name| !name.contains('|')) {
        match (info(&mut tarn, name), info(&mut redis, name)) {
            (Value::Array(ours), Value::Array(theirs)) => compare(&ours, &theirs, &mut found),
            (Value::Array(_), _) => found.push((name.clone(), "name", "has it".into(), "none".into())),
            (ours, _) => panic!("{name} of Tarn: {ours:?}"),
        }
    }
    let is_tolerated =
        |command: &str, field: &str| TOLERATED.iter().any(|one| one.0 == command && one.1 == field);
    let unneeded: Vec<_> = TOLERATED
        .iter()
        .filter(|one| !found.iter().any(|(command, field, ..)| command == one.0 && *field == one.1))
        .collect();
    found.retain(|(command, field, ..)| !is_tolerated(command, field));
    let lines: Vec<String> = found
        .iter()
        .map(|(command, field, a, b)| format!("{command}, {field}:\n  tarn  {a}\n  redis {b}"))
        .collect();
    assert!(lines.is_empty() && unneeded.is_empty(), "{}\nno longer differ: {unneeded:?}", lines.join("\n"));
}
