//! Which way a command goes, by its row: to the server that has the slot of its keys, or to nobody but the proxy itself. What neither is said of is
//! refused: nothing that only one of several servers would answer is answered as if it were all.

use command::table::{Command, Runs};
use command::{Error, Flags, Keys};
use wire::Request;

/// Where a command's requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the server that has the slot of their keys.
    Slot,
    /// The proxy answers.
    Here,
    /// Nowhere.
    Refused,
}

/// What the proxy answers by itself: all that is about its clients, its users, its directives and its own measurements.
const HERE: &[&str] = &[
    "acl", "auth", "client", "command", "config", "echo", "hello", "info", "latency", "lolwut", "ping",
    "quit", "reset", "select", "shutdown", "slowlog", "time",
];

/// Of these what it does not: it has to do with keys or with what servers do.
const NOT_HERE: &[&str] = &[
    "client|caching",
    "client|getredir",
    "client|no-touch",
    "client|pause",
    "client|tracking",
    "client|trackinginfo",
    "client|unblock",
    "client|unpause",
];

/// Commands with keys that the server itself runs, and not its data's part.
const BY_KEY: &[&str] =
    &["memory|usage", "object|encoding", "object|freq", "object|idletime", "object|refcount"];

/// Which way a command goes.
pub fn way_of(command: &Command) -> Way {
    let name = command.row.name;
    let top = name.split('|').next().unwrap_or(name);
    if NOT_HERE.contains(&name) {
        return Way::Refused;
    }
    if HERE.contains(&top) || name.ends_with("|help") {
        return Way::Here;
    }
    let is_of_data = matches!(command.row.handler, Runs::Data(_)) || BY_KEY.contains(&name);
    let has_keys = !matches!(command.row.keys, Keys::None);
    match is_of_data && has_keys && !command.row.flags.intersects(Flags::BLOCKING | Flags::PUBSUB) {
        true => Way::Slot,
        false => Way::Refused,
    }
}

/// The ways of all commands, by their places in the table.
pub fn table() -> Vec<Way> {
    (0..command::table::command_count())
        .map(|place| way_of(command::table::get(command::table::CommandId(place))))
        .collect()
}

/// What a client is told of a command that goes nowhere.
pub fn refusal(command: &Command) -> Error {
    Error::line(format!("ERR proxy: '{}' is not served by a proxy", command.row.name))
}

/// Whether a request would have the proxy keep files of data, of which it has none.
pub fn is_of_files(command: &Command, request: &Request<'_>) -> bool {
    let is = |word: &[u8], one: &str| word.eq_ignore_ascii_case(one.as_bytes());
    match command.row.name {
        "config|set" => {
            request.iter().skip(2).step_by(2).any(|name| is(name, "appendonly") || is(name, "save"))
        }
        "shutdown" => request.iter().skip(1).any(|word| is(word, "save")),
        _ => false,
    }
}

/// Whether a request reads keys that it does not name: of SORT, those of BY and GET.
pub fn reaches_out(command: &Command, request: &Request<'_>) -> bool {
    if !matches!(command.row.name, "sort" | "sort_ro") {
        return false;
    }
    let is =
        |at: usize, one: &str| request.get(at).is_some_and(|word| word.eq_ignore_ascii_case(one.as_bytes()));
    let mut at = 2;
    while at + 1 < request.len() {
        let is_pattern = is(at, "by") || is(at, "get");
        if is_pattern && request.arg(at + 1).contains(&b'*') {
            return true;
        }
        at += match () {
            () if is_pattern || is(at, "store") => 2,
            () if is(at, "limit") => 3,
            () => 1,
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(name: &str) -> Way {
        way_of(command::table::find_full(name.as_bytes()).unwrap_or_else(|| panic!("{name}")))
    }

    #[test]
    fn what_only_one_of_several_servers_would_answer_is_refused() {
        server::commands::install();
        for name in
            ["get", "set", "mget", "sort", "object|encoding", "memory|usage", "zunionstore", "xadd", "copy"]
        {
            assert_eq!(way(name), Way::Slot, "{name}");
        }
        for name in ["ping", "hello", "client|list", "config|set", "acl|whoami", "info", "object|help"] {
            assert_eq!(way(name), Way::Here, "{name}");
        }
        for name in [
            "keys",
            "dbsize",
            "scan",
            "flushall",
            "randomkey",
            "swapdb",
            "blpop",
            "xread",
            "multi",
            "exec",
            "watch",
            "eval",
            "fcall",
            "script|load",
            "subscribe",
            "spublish",
            "publish",
            "wait",
            "client|tracking",
            "client|pause",
            "monitor",
            "debug",
            "replicaof",
            "psync",
            "cluster|slots",
            "migrate",
            "memory|stats",
            "save",
            "insync|promote",
        ] {
            assert_eq!(way(name), Way::Refused, "{name}");
        }
        assert_eq!(table().len(), command::table::command_count());
    }

    #[test]
    fn sort_by_patterns_reaches_out() {
        server::commands::install();
        let sort = command::table::find(b"sort").unwrap();
        let reaches = |line: &str| {
            let request = wire::RequestBuf::from_args(line.split(' '));
            reaches_out(sort, &request.as_request())
        };
        for line in [
            "SORT k",
            "SORT k BY nosort",
            "SORT k GET # LIMIT 0 1",
            "SORT k DESC ALPHA STORE d",
            "SORT k STORE by x*",
        ] {
            assert!(!reaches(line), "{line}");
        }
        for line in
            ["SORT k by w_*", "SORT k GET # GET o_*->f", "SORT k LIMIT 0 1 BY *", "SORT k STORE GET BY w_*"]
        {
            assert!(reaches(line), "{line}");
        }
    }
}
