//! Compares what servers put down of a stream: how often each command was called, refused and failed, which errors were counted,
//! the slow log, and what connections are shown as.
//!
//! Where the real servers differ nothing is compared: the replies have said already which of them is right. The requests of the tester's
//! own are left out, as they are not the same everywhere; and all but the connections where real servers refuse different requests, and behind scripts, as a script that asks for a key that
//! it did not declare may begin again, and what it had read counts twice.

use super::judge::Verdict;
use super::{Answer, Difference, Differential, Node};
use crate::client::Client;
use crate::generate::{Request, Step, words};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use wire::Value;

/// Commands that the tester sends by itself.
const ASKED: &[&str] = &[
    "client", "config", "hello", "hgetall", "hscan", "info", "keys", "object", "ping", "sadd", "scan",
    "select", "slowlog", "smembers", "spop", "srem", "sscan", "type", "zrange", "zscan",
];

/// What is the same of a connection on every server.
const SHOWN: &[&str] =
    &["cmd", "db", "flags", "multi", "name", "psub", "resp", "ssub", "sub", "user", "watch"];

/// Texts by what they are about.
type Records = BTreeMap<String, String>;

/// The first difference between what the servers have put down, or None.
pub(super) fn compare(servers: &mut Differential, stream: &[Step]) -> io::Result<Option<Difference>> {
    let are_counts_alike = !servers.have_parted && !stream.iter().any(|step| runs_script(&step.request));
    let all = servers.nodes.iter().map(|node| read(node, are_counts_alike));
    let mut all = all.collect::<io::Result<Vec<Records>>>()?;
    keep_common_slow_log(&mut all);
    let names: BTreeSet<&String> = all.iter().flat_map(Records::keys).collect();
    let differs = |name: &&&String| {
        let told = |records: &Records| records.get(**name).cloned();
        let (subject, oracles) = (told(&all[0]), all[1..].iter().map(told).collect::<Vec<_>>());
        oracles.iter().all(|oracle| *oracle == oracles[0]) && subject != oracles[0]
    };
    let Some(name) = names.iter().find(differs) else { return Ok(None) };
    let answer = |records: &Records| -> Answer { records.get(*name).map(|text| text.clone().into_bytes()) };
    let answers = all.iter().map(answer).collect();
    servers.difference(&words(&["(what is put down of)", name]), answers, Verdict::Different).map(Some)
}

fn runs_script(request: &Request) -> bool {
    let name = request.first().map(|word| word.to_ascii_lowercase()).unwrap_or_default();
    name.starts_with(b"eval") || name.starts_with(b"fcall")
}

fn read(node: &Node, are_counts_alike: bool) -> io::Result<Records> {
    let mut client = node.server.connect()?;
    let mut records = Records::new();
    if are_counts_alike {
        read_slow_log(&mut client, &mut records)?;
        read_counts(&text(&mut client, &["INFO", "commandstats", "errorstats"])?, &mut records);
    }
    read_connections(node, &text(&mut client, &["CLIENT", "LIST"])?, &mut records)?;
    Ok(records)
}

fn text(client: &mut Client, request: &[&str]) -> io::Result<String> {
    match client.call(request)? {
        Value::Bulk(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
        other => Err(io::Error::other(format!("{request:?} answers {other:?}"))),
    }
}

fn is_asked(command: &str) -> bool {
    let container = command.split('|').next().unwrap_or(command);
    ASKED.iter().any(|asked| container.eq_ignore_ascii_case(asked))
}

fn slow_name(number: usize) -> String {
    format!("slow log's {number:03}")
}

fn read_slow_log(client: &mut Client, records: &mut Records) -> io::Result<()> {
    let Value::Array(entries) = client.call(&["SLOWLOG", "GET", "-1"])? else { return Ok(()) };
    let words_of = |entry: &Value| match entry {
        Value::Array(parts) => parts.get(3).map(|words| format!("{words:?}")),
        _ => None,
    };
    let is_own = |entry: &Value| {
        let Value::Array(parts) = entry else { return false };
        let Some(Value::Array(words)) = parts.get(3) else { return false };
        matches!(words.first(), Some(Value::Bulk(name)) if is_asked(&String::from_utf8_lossy(name)))
    };
    let told = entries.iter().filter(|entry| !is_own(entry)).filter_map(words_of);
    records.extend(told.enumerate().map(|(number, words)| (slow_name(number), words)));
    Ok(())
}

/// The requests of the tester's own may have pushed out some that a server had put down.
fn keep_common_slow_log(all: &mut [Records]) {
    let is_slow = |name: &String| name.starts_with("slow log's");
    let least =
        all.iter().map(|records| records.keys().filter(|name| is_slow(name)).count()).min().unwrap_or(0);
    let end = slow_name(least);
    all.iter_mut().for_each(|records| records.retain(|name, _| !is_slow(name) || *name < end));
}

fn read_counts(info: &str, records: &mut Records) {
    for line in info.lines() {
        let Some((name, counts)) = line.split_once(':') else { continue };
        if name.strip_prefix("cmdstat_").is_none_or(|command| !is_asked(command)) {
            let told = counts.split(',').filter(|count| !count.starts_with("usec"));
            records.insert(name.to_owned(), told.collect::<Vec<_>>().join(","));
        }
    }
}

fn read_connections(node: &Node, list: &str, records: &mut Records) -> io::Result<()> {
    for (number, client) in node.connections.iter().enumerate() {
        let Some(client) = client else { continue };
        let address = format!("addr={}", client.stream().local_addr()?);
        let line = list.lines().find(|line| line.split(' ').any(|field| field == address));
        for (field, value) in line.unwrap_or_default().split(' ').filter_map(|field| field.split_once('=')) {
            if SHOWN.contains(&field) {
                records.insert(format!("connection {number}'s {field}"), value.to_owned());
            }
        }
    }
    Ok(())
}
