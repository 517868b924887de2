//! The rows of all commands, the server's own among them.

use super::install;
use command::table::{Runs, all, find, find_full, top_level};
use command::{Handler, Shows};

#[test]
fn every_command_is_found_in_any_case() {
    install();
    for command in top_level() {
        let upper = command.row.name.to_uppercase();
        assert_eq!(find(command.row.name.as_bytes()).unwrap().id, command.id);
        assert_eq!(find(upper.as_bytes()).unwrap().id, command.id);
    }
    assert!(find(b"").is_none() && find(b"nosuchcommand").is_none());
}

/// Families of which every command shows its session, the process or the configuration; and others of which these do.
const SHOW_NOTHING: &[&str] = &[
    "acl",
    "acl|*",
    "asking",
    "auth",
    "bgrewriteaof",
    "bgsave",
    "client",
    "client|*",
    "cluster",
    "cluster|*",
    "command",
    "command|*",
    "config",
    "config|*",
    "discard",
    "echo",
    "failover",
    "function",
    "function|help",
    "function|kill",
    "hello",
    "insync",
    "insync|*",
    "lastsave",
    "latency",
    "latency|*",
    "lolwut",
    "memory",
    "memory|doctor",
    "memory|help",
    "memory|malloc-stats",
    "memory|purge",
    "module",
    "module|*",
    "monitor",
    "multi",
    "ping",
    "psubscribe",
    "psync",
    "publish",
    "pubsub",
    "pubsub|*",
    "punsubscribe",
    "quit",
    "readonly",
    "readwrite",
    "replconf",
    "replicaof",
    "reset",
    "role",
    "save",
    "script",
    "script|*",
    "select",
    "shutdown",
    "slaveof",
    "slotmove",
    "slotmove|begin",
    "slotmove|help",
    "slowlog",
    "slowlog|help",
    "slowlog|len",
    "slowlog|reset",
    "spublish",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "sync",
    "time",
    "unsubscribe",
    "unwatch",
    "wait",
    "waitaof",
];

/// The server's own commands that note what they look at: by the slots that they lock, or in so many words.
const NOTE_WHAT_THEY_SHOW: &[&str] = &[
    "eval",
    "eval_ro",
    "evalsha",
    "evalsha_ro",
    "exec",
    "fcall",
    "fcall_ro",
    "function|dump",
    "function|list",
    "function|stats",
    "info",
    "memory|usage",
    "migrate",
    "slotmove|apply",
    "watch",
];

/// What keys there are, and how far the log goes, is no business of those who show nothing, whatever their family.
const SHOW_KEYS: &[&str] =
    &["cluster|countkeysinslot", "cluster|cut", "cluster|getkeysinslot", "cluster|slot-stats"];

#[test]
fn a_reply_waits_for_everything_unless_its_row_is_known_to_look_at_less() {
    install();
    let is_in = |list: &[&str], name: &str| {
        let family = name.split_once('|').map(|(family, _)| format!("{family}|*"));
        list.iter().any(|known| *known == name || family.as_deref() == Some(*known))
    };
    for command in all() {
        let name = command.row.name;
        let expected = match command.row.handler {
            Runs::Data(row) if matches!(row.handler, Handler::Walk(_) | Handler::Exclusive(_)) => {
                Shows::Everything
            }
            Runs::Data(_) => Shows::WhatItNotes,
            Runs::Server(_) if is_in(SHOW_KEYS, name) => Shows::Everything,
            Runs::Server(_) if is_in(NOTE_WHAT_THEY_SHOW, name) => Shows::WhatItNotes,
            Runs::Server(_) if is_in(SHOW_NOTHING, name) => Shows::Nothing,
            Runs::Server(_) => Shows::Everything,
        };
        assert_eq!(command.row.shows, expected, "{name}");
    }
    let known = SHOW_NOTHING.iter().chain(NOTE_WHAT_THEY_SHOW).chain(SHOW_KEYS);
    for name in known {
        let name = name.strip_suffix("|*").unwrap_or(name);
        assert!(find_full(name.as_bytes()).is_some(), "{name}");
    }
}

#[test]
fn names_are_unique_and_lower_case() {
    install();
    let mut names: Vec<&str> = all().iter().map(|command| command.row.name).collect();
    assert!(names.iter().all(|name| !name.bytes().any(|byte| byte.is_ascii_uppercase())));
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
}
