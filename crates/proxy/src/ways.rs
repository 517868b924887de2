//! Which way a command goes, by its row: to the server that has the slot of its keys, or to nobody but the proxy itself. What neither is said of is
//! refused: nothing that only one of several servers would answer is answered as if it were all.

use crate::links::Patience;
use crate::stream_waits::block_of;
use command::table::{Command, Runs};
use command::{Error, Flags, Keys};
use std::time::Duration;
use wire::Request;

/// Where a command's requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the server that has the slot of their keys.
    Slot,
    /// The same; where keys are of several slots, in parts to all that have some.
    Split(Split),
    /// The same; where keys are of several slots, copies of them are fetched, and the proxy answers.
    Computed,
    /// To all servers.
    Everywhere(Gathering),
    /// To one server after the other, as the cursor says.
    Scan,
    /// The proxy answers.
    Here,
    /// What is queued goes to the server that has the slot of its keys.
    Exec,
    /// To the server that has the slot of their keys, over a connection that nobody else uses meanwhile.
    Blocks,
    /// The same, and the connection is kept.
    Watch,
    /// To the servers that the client has written to, over connections that nobody else uses meanwhile.
    Waits,
    /// The proxy answers when it listens to what the client wants to.
    Listen,
    /// The proxy answers when the servers tell which keys are modified.
    Track,
    /// To the servers at which the client waits that is to be woken.
    Unblock,
    /// To the server at which whoever listens does so.
    Publish,
    /// The proxy answers, and keys that were watched are not watched any more.
    Unwatch,
    /// The proxy answers; where a cluster's store keeps its users, when they are changed there.
    Users,
    /// Nowhere.
    Refused,
}

/// How a request with keys of several servers is taken apart, and what becomes of the replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Each word is a key, and has a place in the reply.
    Places,
    /// Each word is a key, and counts.
    Sum,
    /// Keys and values in turn.
    Pairs,
}

/// What becomes of the replies of all servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gathering {
    /// They are added up.
    Sum,
    /// All are the same.
    Same,
    /// All their elements count.
    Concat,
    /// One of them counts.
    AnyOne,
    /// What all have counts.
    Both,
    /// The least of their numbers counts.
    Least,
    /// That of one which did it counts. They are asked past scripts that run.
    OneDid,
    /// That of one which runs a script counts. They are asked past it.
    Running,
}

impl Gathering {
    /// Whether servers are to answer while a script holds up everything else.
    pub fn is_about_scripts_that_run(self) -> bool {
        matches!(self, Gathering::OneDid | Gathering::Running)
    }
}

/// What the proxy answers by itself: all that is about its clients, its users, its directives and its own measurements.
const HERE: &[&str] = &[
    "acl",
    "auth",
    "client",
    "command",
    "config",
    "echo",
    "hello",
    "info",
    "latency",
    "lolwut",
    "monitor",
    "ping",
    "pubsub",
    "punsubscribe",
    "quit",
    "reset",
    "select",
    "shutdown",
    "slowlog",
    "sunsubscribe",
    "time",
    "unsubscribe",
];

/// Of these what it does not: it would write into a file what only a proxy is.
const NOT_HERE: &[&str] = &["config|rewrite"];

/// Commands with keys that the server itself runs, and not its data's part.
const BY_KEY: &[&str] = &[
    "eval",
    "eval_ro",
    "evalsha",
    "evalsha_ro",
    "fcall",
    "fcall_ro",
    "memory|usage",
    "object|encoding",
    "object|freq",
    "object|idletime",
    "object|refcount",
];

/// Requests that are taken apart.
const SPLIT: &[(&str, Split)] = &[
    ("mget", Split::Places),
    ("mset", Split::Pairs),
    ("del", Split::Sum),
    ("unlink", Split::Sum),
    ("exists", Split::Sum),
    ("touch", Split::Sum),
];

/// Reads that are done on copies of keys.
const COMPUTED: &[&str] =
    &["lcs", "pfcount", "sdiff", "sinter", "sintercard", "sunion", "zdiff", "zinter", "zintercard", "zunion"];

/// What is asked of all servers, and what becomes of what they say.
const EVERYWHERE: &[(&str, Gathering)] = &[
    ("dbsize", Gathering::Sum),
    ("keys", Gathering::Concat),
    ("randomkey", Gathering::AnyOne),
    ("flushall", Gathering::Same),
    ("flushdb", Gathering::Same),
    ("script|load", Gathering::Same),
    ("script|exists", Gathering::Both),
    ("script|flush", Gathering::Same),
    ("function|load", Gathering::Same),
    ("function|delete", Gathering::Same),
    ("function|flush", Gathering::Same),
    ("function|restore", Gathering::Same),
    ("function|dump", Gathering::Same),
    ("function|list", Gathering::Same),
    ("script|kill", Gathering::OneDid),
    ("function|kill", Gathering::OneDid),
    ("function|stats", Gathering::Running),
    ("lastsave", Gathering::Least),
    ("save", Gathering::Same),
    ("bgsave", Gathering::Same),
    ("bgrewriteaof", Gathering::Same),
    ("memory|purge", Gathering::Same),
];

/// Which way a command goes.
pub fn way_of(command: &Command) -> Way {
    let name = command.row.name;
    let top = name.split('|').next().unwrap_or(name);
    if NOT_HERE.contains(&name) {
        return Way::Refused;
    }
    if let Some((_, split)) = SPLIT.iter().find(|(one, _)| *one == name) {
        return Way::Split(*split);
    }
    if let Some((_, gathering)) = EVERYWHERE.iter().find(|(one, _)| *one == name) {
        return Way::Everywhere(*gathering);
    }
    match name {
        _ if COMPUTED.contains(&name) => return Way::Computed,
        "scan" => return Way::Scan,
        "exec" => return Way::Exec,
        "multi" | "discard" => return Way::Here,
        "acl|setuser" | "acl|deluser" | "acl|load" | "acl|save" => return Way::Users,
        "watch" => return Way::Watch,
        "wait" | "waitaof" => return Way::Waits,
        "subscribe" | "psubscribe" | "ssubscribe" => return Way::Listen,
        "client|tracking" => return Way::Track,
        "client|unblock" => return Way::Unblock,
        "publish" | "spublish" => return Way::Publish,
        "unwatch" => return Way::Unwatch,
        _ => {}
    }
    if HERE.contains(&top) || name.ends_with("|help") {
        return Way::Here;
    }
    let is_of_data = matches!(command.row.handler, Runs::Data(_)) || BY_KEY.contains(&name);
    let has_keys = !matches!(command.row.keys, Keys::None);
    match is_of_data && has_keys && !command.is(Flags::PUBSUB) {
        true if command.is(Flags::BLOCKING) => Way::Blocks,
        true => Way::Slot,
        false => Way::Refused,
    }
}

/// Whether a request of a command that may wait for a key does.
pub fn may_block(command: &Command, request: &Request<'_>) -> bool {
    // Others have no form that does not.
    match command.row.name {
        "bexists" => !request.get(2).is_some_and(|word| word.eq_ignore_ascii_case(b"nowait")),
        name => !name.starts_with("xread") || block_of(request).is_some(),
    }
}

/// Whether replies to a command may be kept: it reads its first word's key, and says the same until that is modified or its time is up.
pub fn is_cacheable(command: &Command) -> bool {
    CACHEABLE.contains(&command.row.name)
}

/// Such commands. Fields of hashes may have times of their own.
const CACHEABLE: &[&str] = &[
    "bitcount",
    "get",
    "getbit",
    "getrange",
    "lindex",
    "llen",
    "lrange",
    "scard",
    "sismember",
    "smembers",
    "smismember",
    "strlen",
    "substr",
    "zcard",
    "zcount",
    "zlexcount",
    "zmscore",
    "zrange",
    "zrangebylex",
    "zrangebyscore",
    "zrank",
    "zrevrange",
    "zrevrangebylex",
    "zrevrangebyscore",
    "zrevrank",
    "zscore",
];

/// How long a request that waits does so, as far as that can be read; what is wrong with it a server says at once.
pub fn patience(command: &Command, request: &Request<'_>) -> Patience {
    let last = request.len() - 1;
    let (word, unit) = match command.row.name {
        "blmpop" | "bzmpop" => (request.get(1), 1.0),
        "bexists" => (request.get(2), 1.0),
        "wait" | "waitaof" => (request.get(last), 0.001),
        name if name.starts_with("xread") => (block_of(request), 0.001),
        _ => (request.get(last), 1.0),
    };
    let word = word.and_then(|word| std::str::from_utf8(word).ok());
    let time = word.and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0) * unit;
    match Duration::try_from_secs_f64(time) {
        Ok(time) if !time.is_zero() && time < LONG => Patience::Until(time),
        _ => Patience::ForEver,
    }
}

/// What nobody waits for.
const LONG: Duration = Duration::from_secs(60 * 60 * 24 * 365);

/// Whether a replica may answer a command: what it says of keys is the same there. A cursor is one server's, and so are the scripts
/// that were loaded.
pub fn may_be_of_replica(command: &Command) -> bool {
    command.is(Flags::READONLY)
        && !command.is(Flags::MAY_REPLICATE)
        && !command.runs_script()
        && !matches!(command.row.name, "hscan" | "sscan" | "zscan" | "touch")
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

/// The same of a request whose keys are named by a pattern.
pub fn refusal_of_patterns(command: &Command) -> Error {
    let name = command.row.name.to_uppercase();
    Error::line(format!(
        "ERR proxy: {name} with BY or GET of a pattern is not served by a proxy, since such keys may be anywhere"
    ))
}

/// The error of what would have the proxy keep files of data.
pub fn refusal_of_files(command: &Command) -> Error {
    let name = command.row.name;
    Error::line(format!("ERR proxy: '{name}' of files of data is not served by a proxy, which has none"))
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
        for name in [
            "get",
            "set",
            "sort",
            "object|encoding",
            "memory|usage",
            "zunionstore",
            "xadd",
            "copy",
            "evalsha",
        ] {
            assert_eq!(way(name), Way::Slot, "{name}");
        }
        for name in
            ["ping", "hello", "client|list", "config|set", "acl|whoami", "info", "object|help", "multi"]
        {
            assert_eq!(way(name), Way::Here, "{name}");
        }
        for name in [
            "swapdb",
            "debug",
            "replicaof",
            "psync",
            "cluster|slots",
            "migrate",
            "memory|stats",
            "insync|promote",
        ] {
            assert_eq!(way(name), Way::Refused, "{name}");
        }
        assert_eq!(table().len(), command::table::command_count());
        assert_eq!(
            (way("watch"), way("ssubscribe"), way("publish"), way("client|tracking")),
            (Way::Watch, Way::Listen, Way::Publish, Way::Track)
        );
        assert_eq!((way("wait"), way("waitaof")), (Way::Waits, Way::Waits));
        assert_eq!((way("punsubscribe"), way("pubsub|numsub")), (Way::Here, Way::Here));
        assert!(["blpop", "xread", "blmove", "bzmpop"].iter().all(|name| way(name) == Way::Blocks));
        assert_eq!(way("mget"), Way::Split(Split::Places));
        assert_eq!(way("zunion"), Way::Computed);
        assert_eq!(way("keys"), Way::Everywhere(Gathering::Concat));
    }

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/proxy.md");
    /// How the table on the page begins, which ends it.
    const HEAD: &str = "| way | commands |\n|---|---|\n";

    /// What a way is called on the page.
    fn title(way: Way) -> &'static str {
        match way {
            Way::Slot => "of one slot, passed on",
            Way::Split(_) => "of one slot, passed on; of several, in parts",
            Way::Computed => "of one slot, passed on; of several, on copies",
            Way::Blocks => "of one slot, passed on; what waits has a connection of its own",
            Way::Watch => "of one slot, passed on, over a connection that is kept",
            Way::Waits => "to the servers that the client has written to",
            Way::Publish => "to the server of the channel's slot",
            Way::Unblock => "to the servers at which that client waits",
            Way::Listen | Way::Track => "here, once the servers are listened to",
            Way::Everywhere(_) => "to all servers",
            Way::Scan => "to all servers, one after the other",
            Way::Exec => "what was queued is passed on",
            Way::Here | Way::Unwatch => "here",
            Way::Users => "here, or in the store of the cluster that keeps the users",
            Way::Refused => "refused",
        }
    }

    /// `TARN_WRITE_PAGES=1` has the page written.
    #[test]
    fn the_page_says_of_every_command_which_way_it_goes() {
        server::commands::install();
        let mut ways: std::collections::BTreeMap<&str, Vec<String>> = std::collections::BTreeMap::new();
        for (place, way) in table().into_iter().enumerate() {
            let command = command::table::get(command::table::CommandId(place));
            // A container stands for its subcommands.
            if command.subcommands.is_empty() {
                let name = command.row.name.to_uppercase().replace('|', " ");
                ways.entry(title(way)).or_default().push(format!("`{name}`"));
            }
        }
        let rows = ways.into_iter().map(|(way, mut names)| {
            names.sort();
            format!("| {way} | {} |\n", names.join(", "))
        });
        let written = rows.fold(HEAD.to_owned(), |page, row| page + &row);
        let page = std::fs::read_to_string(PAGE).unwrap();
        let begin = page.find(HEAD).expect("it has the table");
        if std::env::var_os("TARN_WRITE_PAGES").is_some() {
            std::fs::write(PAGE, page[..begin].to_owned() + &written).unwrap();
        } else {
            assert!(page[begin..] == written, "the page is not of this table: TARN_WRITE_PAGES=1 writes it");
        }
    }

    #[test]
    fn names_are_of_commands() {
        server::commands::install();
        let split = SPLIT.iter().map(|(name, _)| *name);
        let everywhere = EVERYWHERE.iter().map(|(name, _)| *name);
        for name in CACHEABLE {
            let command = command::table::find(name.as_bytes()).unwrap();
            assert!(command.is(Flags::READONLY) && way(name) != Way::Refused, "{name}");
        }
        for name in
            HERE.iter().chain(NOT_HERE).chain(COMPUTED).chain(BY_KEY).copied().chain(split).chain(everywhere)
        {
            way(name);
        }
    }

    #[test]
    fn streams_are_waited_for_where_that_is_asked() {
        server::commands::install();
        let may = |line: &str| {
            let request = wire::RequestBuf::from_args(line.split(' '));
            let command = command::table::find(request.as_request().arg(0)).unwrap();
            may_block(command, &request.as_request())
        };
        assert!(may("blpop k 0") && may("xread COUNT 1 BLOCK 0 STREAMS k 0"));
        assert!(!may("xread COUNT 1 STREAMS block 0"));
        assert!(may("xreadgroup NOACK GROUP g streams BLOCK 0 STREAMS k >"));
        assert!(!may("xreadgroup GROUP g block COUNT 1 STREAMS k >"));
        // Of a later Redis.
        assert!(may("xreadgroup GROUP g c BLOCK 0 CLAIM 100000 STREAMS k >"));
        assert!(may("xreadgroup GROUP g c CLAIM 100000 BLOCK 0 STREAMS k >"));
        assert!(!may("xreadgroup GROUP g c CLAIM 100000 STREAMS k >"));
    }

    #[test]
    fn the_time_of_a_wait_is_read() {
        server::commands::install();
        let patience = |line: &str| {
            let request = wire::RequestBuf::from_args(line.split(' '));
            let command = command::table::find(request.as_request().arg(0)).unwrap();
            patience(command, &request.as_request())
        };
        let until = |ms| Patience::Until(Duration::from_millis(ms));
        assert_eq!(patience("BLPOP k 1.5"), until(1500));
        assert_eq!(patience("BLMPOP 2 1 k LEFT"), until(2000));
        assert_eq!(patience("WAIT 1 30"), until(30));
        assert_eq!(patience("XREAD COUNT 1 BLOCK 70 STREAMS k 0"), until(70));
        assert_eq!(patience("XREADGROUP BLOCK 80 GROUP block streams STREAMS k >"), until(80));
        for line in
            ["BLPOP k 0", "BLPOP k x", "BLPOP k -1", "BLPOP k inf", "WAIT 1 0", "XREAD STREAMS k BLOCK"]
        {
            assert_eq!(patience(line), Patience::ForEver, "{line}");
        }
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
