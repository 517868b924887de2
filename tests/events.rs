//! Keyspace events of generated commands: after each, what a subscriber of all events was
//! told by Tarn and by real servers must be the same, in the same order.
//!
//! `TARN_SEED` and `TARN_STEPS` make it another or a longer run; `TARN_SURVEY=1` lists one
//! difference for each command.

use crate::tarn;
use std::collections::BTreeMap;
use testkit::differential::{rules, show};
use testkit::generate::{Generator, Request, words};
use testkit::{Budget, Client, Program, Server, Spec};
use wire::Value;

/// Requests of an ordinary run.
const STEPS: u64 = 6_000;
/// Requests on one keyspace.
const STREAM_STEPS: u64 = 300;

/// Commands whose effect is a matter of chance, or that may wait.
const LEFT_OUT: &[&str] = &[
    "spop",
    "blmove",
    "blmpop",
    "blpop",
    "brpop",
    "brpoplpush",
    "bzmpop",
    "bzpopmax",
    "bzpopmin",
    "xread",
    "xreadgroup",
];

/// A server with a connection that is told of all events.
struct Node {
    _server: Server,
    client: Client,
    listener: Client,
}

impl Node {
    fn start(program: Program) -> Node {
        let args: &[&str] = match program {
            Program::Tarn(_) => &["--edition", "memory", "--notify-keyspace-events", "AKEmn"],
            _ => &["--notify-keyspace-events", "AKEmn"],
        };
        let server = Server::start(program, args).unwrap();
        let mut listener = server.connect().unwrap();
        for channels in [["PSUBSCRIBE", "__key*__:*"], ["SUBSCRIBE", "end"]] {
            listener.call(&channels).unwrap();
        }
        Node { client: server.connect().unwrap(), listener, _server: server }
    }

    /// Runs a request; returns the channels and texts of what was published meanwhile.
    /// Keys that expire do so at some time, so those are left out.
    fn events(&mut self, request: &Request) -> Vec<String> {
        self.client.call(request).unwrap();
        self.client.call(&["PUBLISH", "end", ""]).unwrap();
        let mut events = Vec::new();
        loop {
            let Value::Array(message) = self.listener.read_value().unwrap() else { panic!("no message") };
            let [.., Value::Bulk(channel), Value::Bulk(text)] = &message[..] else { panic!("{message:?}") };
            if channel == b"end" {
                return events;
            }
            let is = |event: &[u8]| text == event || channel.ends_with(&[b"__:", event].concat());
            if !is(b"expired") {
                events.push(format!("{} {}", channel.escape_ascii(), text.escape_ascii()));
            }
        }
    }
}

fn specs() -> Vec<Spec> {
    let mut specs = testkit::spec::data_specs();
    specs.retain(|spec| rules::is_generated(&spec.name) && !LEFT_OUT.contains(&spec.name.as_str()));
    specs
}

#[test]
fn events_are_those_of_real_servers() {
    let mut nodes = [tarn(), Program::Redis, Program::Valkey].map(Node::start);
    let mut specs = specs();
    // What real servers do not have makes no events there.
    specs.retain(|spec| {
        let info = nodes[1].client.call(&["COMMAND", "INFO", &spec.name]).unwrap();
        !matches!(info, Value::Array(rows) if matches!(rows[..], [Value::Null | Value::NullArray]))
    });
    let budget = Budget::from_env(1, STEPS);
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    let mut played = 0;
    for seed in budget.seed.. {
        if !budget.allows(played) {
            break;
        }
        nodes.iter_mut().for_each(|node| drop(node.events(&words(&["FLUSHALL"]))));
        let mut generator = Generator::new(&specs, seed);
        for _ in 0..STREAM_STEPS {
            let request = generator.request();
            if !rules::is_allowed(&request) {
                continue;
            }
            played += 1;
            let [tarn, redis, valkey] = nodes.each_mut().map(|node| node.events(&request));
            if tarn != redis && tarn != valkey {
                let name = String::from_utf8_lossy(&request[0]).to_lowercase();
                let shown = show(&request);
                found.entry(name).or_insert_with(|| {
                    format!(
                        "seed {seed}: {shown}\n  tarn   {tarn:?}\n  redis  {redis:?}\n  valkey {valkey:?}"
                    )
                });
                // What follows may be a consequence of this.
                break;
            }
        }
        if !found.is_empty() && std::env::var_os("TARN_SURVEY").is_none() {
            break;
        }
    }
    let shown: Vec<&str> = found.values().map(String::as_str).collect();
    assert!(found.is_empty(), "{} commands:\n{}", found.len(), shown.join("\n"));
}
