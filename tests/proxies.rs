//! A proxy in front of servers that each have a part of the slots: what it passes on comes back as from one server, what it cannot is refused, and what a
//! shard that is not there means for those who ask it, and for all others.

mod across;
mod balanced;
mod bandwidth;
mod cached;
mod clusters;
mod config_servers;
mod descriptors;
mod group_reads;
mod heard;
mod heirs;
mod itself;
mod kills;
mod measured;
mod own;
mod pops;
mod replicas;
mod secure;
mod slow;
mod stream_waits;
mod takeovers;
mod to_and_fro;
mod tracked;
mod unfriendly;
mod users;
mod waits;
mod woken;

use crate::tarn_path;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use testkit::ask::{ask, call, call_line, is_error, ok, shown, text, wait_until};
use testkit::{Client, Program, Server};
use wire::{Value, encode_request, key_slot};

/// A proxy, and what is behind it.
pub(crate) struct Proxied {
    pub(crate) shards: Vec<Server>,
    pub(crate) proxy: Server,
}

impl Proxied {
    fn begin(count: usize, directives: &[&str]) -> Proxied {
        Proxied::of((&Program::Redis, &[]), count, directives)
    }

    /// One of so many such servers, with these directives.
    pub(crate) fn of(
        (program, of_servers): (&Program, &[&str]),
        count: usize,
        directives: &[&str],
    ) -> Proxied {
        let start = |_| Server::start(program.clone(), of_servers).unwrap();
        let shards: Vec<Server> = (0..count).map(start).collect();
        let places: Vec<String> = shards.iter().map(|shard| shard.address().to_string()).collect();
        let own = ["--proxy-shards", &places.join(",")];
        let proxy = Server::start(Program::Proxy(tarn_path()), &[&own[..], directives].concat()).unwrap();
        Proxied { shards, proxy }
    }

    /// A key of a shard.
    fn key(&self, shard: usize) -> String {
        let is_its = |slot: u16| usize::from(slot) * self.shards.len() / 16_384 == shard;
        let mut keys = (0..).map(|number| format!("key:{number}"));
        keys.find(|key| is_its(key_slot(key.as_bytes()))).unwrap()
    }
}

fn keys_of(server: &Server) -> Value {
    call(&mut server.connect().unwrap(), &["DBSIZE"])
}

#[test]
fn requests_go_where_their_slots_are_and_replies_come_in_order() {
    let proxied = Proxied::begin(3, &[]);
    let mut client = proxied.proxy.connect().unwrap();
    for number in 0..3_000 {
        client.send_request(&["SET", &format!("k{number}"), &format!("value {number}")]).unwrap();
        client.send_request(&["GET", &format!("k{number}")]).unwrap();
        if number % 100 == 0 {
            client.send_request(&["ECHO", &number.to_string()]).unwrap();
        }
    }
    for number in 0..3_000 {
        assert_eq!(client.read_value().unwrap(), ok());
        assert_eq!(client.read_value().unwrap(), text(&format!("value {number}")));
        if number % 100 == 0 {
            assert_eq!(client.read_value().unwrap(), text(&number.to_string()));
        }
    }
    let sizes: Vec<Value> = proxied.shards.iter().map(keys_of).collect();
    assert!(sizes.iter().all(|size| matches!(size, Value::Int(500..))), "{sizes:?}");
}

#[test]
fn both_protocols_and_all_databases_are_passed_on() {
    let proxied = Proxied::begin(2, &[]);
    let mut client = proxied.proxy.connect().unwrap();
    let key = proxied.key(1);
    assert_eq!(call(&mut client, &["HSET", &key, "f", "v"]), Value::Int(1));
    assert_eq!(call(&mut client, &["SELECT", "15"]), ok());
    assert_eq!(call(&mut client, &["EXISTS", &key]), Value::Int(0));
    assert_eq!(call(&mut client, &["SET", &key, "of 15"]), ok());
    let mut other = proxied.proxy.connect().unwrap();
    assert_eq!(call(&mut other, &["TYPE", &key]), Value::Simple(b"hash".to_vec()));
    assert_eq!(call(&mut client, &["GET", &key]), text("of 15"));
    ask(&mut other, &["HELLO", "3"]);
    let fields = call(&mut other, &["HGETALL", &key]);
    assert_eq!(fields, Value::Map(vec![(text("f"), text("v"))]));
    assert!(is_error(&call(&mut client, &["SELECT", "16"]), "ERR"));
    let mut shard = proxied.shards[1].connect().unwrap();
    assert!(
        is_error(&call(&mut shard, &["ACL", "SETUSER", "default", "-select"]), "ERR")
            || call(&mut client, &["SELECT", "7"]) == ok()
    );
    let reply = call(&mut client, &["GET", &key]);
    assert!(shown(&reply).contains("NOPERM"), "{}", shown(&reply));
}

#[test]
fn what_is_to_be_no_use_of_keys_is_none_whichever_way_it_goes() {
    let of_servers = ["--maxmemory-policy", "allkeys-lfu"];
    let proxied = Proxied::of((&Program::Tarn(tarn_path()), &of_servers), 2, &[]);
    let (mut quiet, mut other) = (proxied.proxy.connect().unwrap(), proxied.proxy.connect().unwrap());
    let (a, b) = (proxied.key(0), proxied.key(1));
    // A key that was used once more counts more.
    let mut uses = || [&a, &b].map(|key| call(&mut other, &["OBJECT", "FREQ", key]));
    assert_eq!(call(&mut quiet, &["MSET", &a, "v", &b, "v"]), ok());
    let fresh = uses();
    assert_eq!(call_line(&mut quiet, "CLIENT NO-TOUCH ON"), ok());
    for line in [
        format!("GET {a}"),
        format!("MGET {a} {b}"),
        format!("LCS {a} {b}"),
        format!("WATCH {a}"),
        "MULTI".to_owned(),
        format!("GET {a}"),
        "EXEC".to_owned(),
        "HELLO 3".to_owned(),
        format!("GETRANGE {b} 0 0"),
        "SELECT 1".to_owned(),
        "SELECT 0".to_owned(),
        format!("STRLEN {b}"),
    ] {
        let reply = call_line(&mut quiet, &line);
        assert!(!matches!(reply, Value::Error(_) | Value::Null), "{line}: {}", shown(&reply));
    }
    assert_eq!(uses(), fresh);
    assert_eq!(call_line(&mut quiet, "CLIENT NO-TOUCH OFF"), ok());
    assert_eq!(call(&mut quiet, &["GET", &b]), text("v"));
    let used = uses();
    assert!(used[0] == fresh[0] && used[1] != fresh[1], "{used:?}");
}

#[test]
fn who_is_to_touch_nothing_is_told_of_servers_that_know_nothing_of_it() {
    let proxied = Proxied::begin(2, &[]);
    let (mut quiet, mut other) = (proxied.proxy.connect().unwrap(), proxied.proxy.connect().unwrap());
    let key = proxied.key(0);
    assert_eq!(call_line(&mut quiet, "CLIENT NO-TOUCH ON"), ok());
    // Their own words, and no connection for each request.
    let connections = || -> u64 {
        let stats = ask(&mut proxied.shards[0].connect().unwrap(), &["INFO", "stats"]);
        let came = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        came.and_then(|came| came.parse().ok()).unwrap()
    };
    let before = connections();
    for _ in 0..50 {
        let told = shown(&call(&mut quiet, &["GET", &key]));
        let is_so = told.contains("does not take CLIENT NO-TOUCH: ERR ") && told.contains("'NO-TOUCH'");
        assert!(is_so, "{told}");
    }
    let more = connections() - before;
    assert!(more < 20, "{more} connections for 50 requests");
    assert_eq!(call(&mut other, &["SET", &key, "v"]), ok());
    assert_eq!(call_line(&mut quiet, "RESET"), Value::Simple(b"RESET".to_vec()));
    assert_eq!(call(&mut quiet, &["GET", &key]), text("v"));
}

#[test]
fn what_only_one_of_several_servers_would_answer_is_refused() {
    let proxied = Proxied::begin(2, &[]);
    let mut client = proxied.proxy.connect().unwrap();
    let (one, two) = (proxied.key(0), proxied.key(1));
    assert!(is_error(&call(&mut client, &["RENAME", &one, &two]), "CROSSSLOT"));
    for line in ["SWAPDB 0 1", "DEBUG JMAP"] {
        let reply = call_line(&mut client, line);
        assert!(is_error(&reply, "ERR"), "{line}: {}", shown(&reply));
    }
    assert!(
        shown(&call_line(&mut client, "SORT k BY w_*"))
            .contains("SORT with BY or GET of a pattern is not served by a proxy")
    );
    assert!(shown(&call_line(&mut client, "GET")).contains("wrong number of arguments for 'get' command"));
    assert!(shown(&call_line(&mut client, "NOSUCH a")).contains("unknown command 'NOSUCH'"));
    assert_eq!(call(&mut client, &["MSET", "{a}1", "1", "{a}2", "2"]), ok());
    assert_eq!(call(&mut client, &["DEL", "{a}1", "{a}2"]), Value::Int(2));
}

/// The elements of an array, in the order of their texts.
fn sorted(reply: Value) -> Vec<String> {
    let Value::Array(elements) = reply else { panic!("{reply:?}") };
    let mut texts: Vec<String> = elements.iter().map(shown).collect();
    texts.sort();
    texts
}

#[test]
fn keys_of_several_servers_are_one_request() {
    let proxied = Proxied::begin(3, &[]);
    let mut client = proxied.proxy.connect().unwrap();
    let names: Vec<String> = (0..60).map(|number| format!("k{number}")).collect();
    let pairs: Vec<&str> = names.iter().flat_map(|name| [name.as_str(), &name[1..]]).collect();
    assert_eq!(call(&mut client, &[&["MSET"], &pairs[..]].concat()), ok());
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let values = call(&mut client, &[&["MGET", "none"], &all[..], &["k7"]].concat());
    let expected = names.iter().map(|name| text(&name[1..])).chain([text("7")]);
    assert_eq!(values, Value::Array([Value::Null].into_iter().chain(expected).collect()));
    assert_eq!(call(&mut client, &[&["EXISTS", "k1"], &all[..]].concat()), Value::Int(61));
    assert_eq!(call(&mut client, &["DBSIZE"]), Value::Int(60));
    assert_eq!(sorted(call(&mut client, &["KEYS", "*"])).len(), 60);
    assert!(shown(&call(&mut client, &["RANDOMKEY"])).starts_with('k'));
    assert_eq!(call(&mut client, &["DEL", "k1", "k2", "k3", "none"]), Value::Int(3));
    assert!(is_error(&call(&mut client, &["MSET", "a", "1", "b"]), "ERR"));
    let (mut cursor, mut seen) = ("0".to_owned(), Vec::new());
    loop {
        let Value::Array(reply) = call(&mut client, &["SCAN", &cursor, "COUNT", "3"]) else { panic!() };
        cursor = shown(&reply[0]);
        seen.extend(sorted(reply[1].clone()));
        if cursor == "0" {
            break;
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 57);
    assert_eq!(call(&mut client, &["FLUSHALL"]), ok());
    assert!(proxied.shards.iter().all(|shard| keys_of(shard) == Value::Int(0)));
    assert_eq!(call_line(&mut client, "CONFIG SET proxy-split-writes no"), ok());
    assert!(is_error(&call(&mut client, &["DEL", &proxied.key(0), &proxied.key(1)]), "CROSSSLOT"));
    assert_eq!(call(&mut client, &["EXISTS", &proxied.key(0), &proxied.key(1)]), Value::Int(0));
}

#[test]
fn a_transaction_goes_to_its_server_as_one() {
    let proxied = Proxied::begin(3, &[]);
    let mut client = proxied.proxy.connect().unwrap();
    let queued = Value::Simple(b"QUEUED".to_vec());
    for _ in 0..2 {
        assert_eq!(call_line(&mut client, "MULTI"), ok());
        for line in ["SET {t}a 1", "PING", "MGET {t}a {t}b", "INCR {t}a"] {
            assert_eq!(call_line(&mut client, line), queued, "{line}");
        }
        let done = call_line(&mut client, "EXEC");
        let values = Value::Array(vec![text("1"), Value::Null]);
        let pong = Value::Simple(b"PONG".to_vec());
        assert_eq!(done, Value::Array(vec![ok(), pong, values, Value::Int(2)]));
    }
    assert_eq!(call_line(&mut client, "MULTI"), ok());
    assert_eq!(call(&mut client, &["SET", &proxied.key(0), "1"]), queued);
    assert!(is_error(&call(&mut client, &["SET", &proxied.key(1), "1"]), "CROSSSLOT"));
    assert!(is_error(&call_line(&mut client, "EXEC"), "EXECABORT"));
    assert_eq!(call_line(&mut client, "MULTI"), ok());
    assert_eq!(call(&mut client, &["SET", &proxied.key(0), "1"]), queued);
    assert!(is_error(&call_line(&mut client, "EXEC now"), "EXECABORT"));
    assert_eq!(call(&mut client, &["EXISTS", &proxied.key(0)]), Value::Int(0), "the transaction is over");
    let mut other = proxied.proxy.connect().unwrap();
    assert_eq!(call_line(&mut other, "ACL SETUSER u on nopass ~* +@all"), ok());
    assert_eq!(call(&mut client, &["AUTH", "u", ""]), ok());
    assert_eq!(call_line(&mut client, "MULTI"), ok());
    assert_eq!(call(&mut client, &["SET", &proxied.key(0), "1"]), queued);
    assert_eq!(call_line(&mut other, "ACL SETUSER u -set"), ok());
    assert!(is_error(&call_line(&mut client, "EXEC"), "EXECABORT"));
    assert_eq!(call_line(&mut client, "MULTI"), ok());
    assert!(is_error(&call_line(&mut client, "DBSIZE"), "ERR"));
    assert_eq!(call_line(&mut client, "DISCARD"), ok());
    assert!(is_error(&call_line(&mut client, "EXEC"), "ERR"));
    assert_eq!(call_line(&mut client, "MULTI"), ok());
    assert_eq!(call_line(&mut client, "EXEC"), Value::Array(Vec::new()));
    assert_eq!(call(&mut client, &["EXISTS", &proxied.key(0), &proxied.key(1)]), Value::Int(0));
}

#[test]
fn scripts_are_known_to_all_servers() {
    let proxied = Proxied::begin(3, &[]);
    let mut client = proxied.proxy.connect().unwrap();
    let sha = ask(&mut client, &["SCRIPT", "LOAD", "return redis.call('INCR', KEYS[1])"]);
    for shard in 0..3 {
        assert_eq!(call(&mut client, &["EVALSHA", &sha, "1", &proxied.key(shard)]), Value::Int(1));
    }
    assert_eq!(
        call(&mut client, &["SCRIPT", "EXISTS", &sha, "00"]),
        Value::Array(vec![Value::Int(1), Value::Int(0)])
    );
    let (one, two) = (proxied.key(0), proxied.key(1));
    assert!(is_error(&call(&mut client, &["EVAL", "return 1", "2", &one, &two]), "CROSSSLOT"));
    assert_eq!(call(&mut client, &["EVAL", "return 7", "0"]), Value::Int(7));
    let library =
        "#!lua name=l\nredis.register_function('f', function(keys) return redis.call('GET', keys[1]) end)";
    assert_eq!(call(&mut client, &["FUNCTION", "LOAD", &library.replace("\\n", "\n")]), text("l"));
    assert_eq!(call(&mut client, &["FCALL", "f", "1", &two]), text("1"));
}

#[test]
fn a_user_may_do_here_what_the_proxy_says() {
    let proxied = Proxied::begin(2, &["--requirepass", "secret"]);
    let mut client = proxied.proxy.connect().unwrap();
    assert!(is_error(&call(&mut client, &["GET", "k"]), "NOAUTH"));
    assert_eq!(call(&mut client, &["AUTH", "secret"]), ok());
    assert_eq!(call_line(&mut client, "ACL SETUSER reader on nopass ~r:* +@read +auth"), ok());
    assert_eq!(call(&mut client, &["AUTH", "reader", ""]), ok());
    assert_eq!(call(&mut client, &["GET", "r:1"]), Value::Null);
    assert!(is_error(&call(&mut client, &["GET", "k"]), "NOPERM"));
    assert!(is_error(&call(&mut client, &["SET", "r:1", "v"]), "NOPERM"));
}

#[test]
fn who_may_not_do_everything_does_no_more_by_scripts() {
    let proxied = Proxied::begin(2, &["--requirepass", "secret"]);
    let (mut client, mut limited) = (proxied.proxy.connect().unwrap(), proxied.proxy.connect().unwrap());
    let (one, two) = (proxied.key(0), proxied.key(1));
    assert_eq!(call(&mut client, &["AUTH", "secret"]), ok());
    assert_eq!(call(&mut client, &["SET", &two, "hidden"]), ok());
    let library = "#!lua name=l\nredis.register_function('f', function() return 1 end)";
    assert_eq!(call(&mut client, &["FUNCTION", "LOAD", library]), text("l"));
    assert_eq!(
        call(&mut client, &["ACL", "SETUSER", "app", "on", "nopass", &format!("~{one}"), "+@all"]),
        ok()
    );
    assert_eq!(call_line(&mut limited, "AUTH app x"), ok());
    let reads = "return redis.call('GET', ARGV[1])";
    for words in [
        &["EVAL", reads, "0", &two][..],
        &["EVAL_RO", reads, "1", &one, &two],
        &["EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0"],
        &["FCALL", "f", "1", &one],
    ] {
        assert!(is_error(&call(&mut limited, words), "NOPERM proxy"), "{words:?}");
    }
    // Nor what was queued before it was limited.
    assert_eq!(call_line(&mut client, "ACL SETUSER late on nopass ~* &* +@all"), ok());
    let mut late = proxied.proxy.connect().unwrap();
    assert_eq!(call_line(&mut late, "AUTH late x"), ok());
    assert_eq!(call_line(&mut late, "MULTI"), ok());
    assert_eq!(call(&mut late, &["EVAL", reads, "1", &two, &two]), Value::Simple(b"QUEUED".to_vec()));
    assert_eq!(call_line(&mut client, "ACL SETUSER late -flushall"), ok());
    let refused = call_line(&mut late, "EXEC");
    assert!(is_error(&refused, "EXECABORT") && shown(&refused).contains("NOPERM proxy"), "{refused:?}");
    // Unless that is wanted.
    assert_eq!(call(&mut client, &["EVAL", reads, "1", &two, &two]), text("hidden"));
    assert_eq!(call_line(&mut client, "CONFIG SET proxy-restricted-scripts yes"), ok());
    assert_eq!(call(&mut limited, &["EVAL", reads, "1", &one, "none"]), Value::Null);
    assert!(is_error(&call(&mut limited, &["EVAL", reads, "1", &two]), "NOPERM"));
}

#[test]
fn who_monitors_sees_what_is_passed_on() {
    let proxied = Proxied::begin(2, &[]);
    let (mut one, mut client) = (proxied.proxy.connect().unwrap(), proxied.proxy.connect().unwrap());
    assert_eq!(call_line(&mut one, "MONITOR"), ok());
    for line in ["SET k v", "MULTI", "INCR n", "EXEC", "PING"] {
        assert!(!is_error(&call_line(&mut client, line), "ERR"), "{line}");
    }
    for shows in ["\"SET\" \"k\" \"v\"", "\"MULTI\"", "\"INCR\" \"n\"", "\"EXEC\"", "\"PING\""] {
        let Value::Simple(line) = one.read_value().unwrap() else { panic!("no line") };
        assert!(String::from_utf8_lossy(&line).ends_with(shows), "{shows}");
    }
    assert!(is_error(&call_line(&mut one, "GET k"), "ERR Replica can't interact"));
}

#[test]
fn replies_that_nobody_wants_are_waited_for() {
    let proxied = Proxied::begin(2, &[]);
    let key = proxied.key(0);
    let mut client = proxied.proxy.connect().unwrap();
    for round in 0..200 {
        let value = round.to_string();
        for line in [
            "CLIENT REPLY OFF",
            &format!("SET {key} {value}"),
            "CLIENT REPLY ON",
            "HELLO 3",
            &format!("GET {key}"),
        ] {
            client.send_request(&line.split(' ').collect::<Vec<_>>()).unwrap();
        }
        for line in ["CLIENT REPLY SKIP", &format!("APPEND {key} +"), "HELLO 2", &format!("GET {key}")] {
            client.send_request(&line.split(' ').collect::<Vec<_>>()).unwrap();
        }
        assert_eq!(client.read_value().unwrap(), ok());
        client.read_value().unwrap();
        assert_eq!(client.read_value().unwrap(), text(&value));
        client.read_value().unwrap();
        assert_eq!(client.read_value().unwrap(), text(&format!("{value}+")));
    }
}

/// Clients of a proxy that give things, and such that take them: by number, over a connection of their own.
pub(crate) struct Exchange<'e> {
    /// How many give, and how many things each at the least.
    givers: (usize, usize),
    /// How many take.
    takers: usize,
    /// Gives another; what that is.
    give: &'e (dyn Fn(usize, usize, &mut Client) -> String + Sync),
    /// Takes what there is; none: there is nothing.
    take: &'e (dyn Fn(usize, &mut Client) -> Option<Vec<String>> + Sync),
}

impl Exchange<'_> {
    /// Until what happens meanwhile has happened. What was given, and what was taken.
    fn run(&self, proxy: &Server, meanwhile: impl FnOnce()) -> (Vec<String>, Vec<String>) {
        let (is_over, is_given) = (AtomicBool::new(false), AtomicBool::new(false));
        let give = |number: usize| {
            let (mut client, mut given) = (proxy.connect().unwrap(), Vec::new());
            while given.len() < self.givers.1 || !is_over.load(Ordering::Relaxed) {
                given.push((self.give)(number, given.len(), &mut client));
            }
            given
        };
        let take = |number: usize| {
            let (mut client, mut taken) = (proxy.connect().unwrap(), Vec::new());
            loop {
                match (self.take)(number, &mut client) {
                    Some(more) => taken.extend(more),
                    None if is_given.load(Ordering::Relaxed) => break taken,
                    None => {}
                }
            }
        };
        thread::scope(|scope| {
            let (_ends, _ends_too) = (testkit::Ends(&is_given), testkit::Ends(&is_over));
            let (give, take) = (&give, &take);
            let takers: Vec<_> = (0..self.takers).map(|number| scope.spawn(move || take(number))).collect();
            let givers: Vec<_> = (0..self.givers.0).map(|number| scope.spawn(move || give(number))).collect();
            meanwhile();
            is_over.store(true, Ordering::Relaxed);
            let given = givers.into_iter().flat_map(|giver| giver.join().unwrap()).collect();
            is_given.store(true, Ordering::Relaxed);
            (given, takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect())
        })
    }
}

/// What was given was taken, and all of it once.
fn assert_each_once(given: &[String], taken: &[String]) {
    assert_eq!(taken.len(), given.len());
    let all = |things: &[String]| things.iter().cloned().collect::<BTreeSet<_>>();
    assert!(all(taken) == all(given), "each once");
}

/// A proxy in front of three such servers, and one of these alone, with a client of each, and a key of each of the three.
fn beside_one(program: Program) -> (Proxied, Server, [Client; 2], [String; 3]) {
    let proxied = Proxied::of((&program, &[]), 3, &[]);
    let alone = Server::start(program, &[]).unwrap();
    let clients = [proxied.proxy.connect().unwrap(), alone.connect().unwrap()];
    let keys = [2, 0, 1].map(|shard| proxied.key(shard));
    (proxied, alone, clients, keys)
}

/// Requests are answered alike by both, which are emptied first, in both protocols.
fn answers_alike(clients: &mut [Client; 2], lines: &[String]) {
    for protocol in ["2", "3"] {
        for client in clients.iter_mut() {
            ask(client, &["HELLO", protocol]);
            call_line(client, "FLUSHALL");
        }
        for line in lines {
            let [through, direct] = clients.each_mut().map(|client| call_line(client, line));
            assert_eq!(through, direct, "{line}");
        }
    }
}

#[test]
fn a_renamed_command_goes_by_its_own_name() {
    let proxied = Proxied::begin(2, &["--rename-command", "SET put"]);
    let mut client = proxied.proxy.connect().unwrap();
    assert_eq!(call(&mut client, &["PUT", "k", "v"]), ok());
    assert_eq!(call(&mut client, &["GET", "k"]), text("v"));
}

/// A client that may be owed 8 MB, a key of a server that has come to stand still, and one of a megabyte at another.
fn beside_one_that_stands_still() -> (Proxied, Client, [String; 2]) {
    let proxied =
        Proxied::begin(2, &["--client-output-buffer-limit", "normal 8mb 0 0", "--proxy-shard-timeout", "0"]);
    let (still, large) = (proxied.key(0), proxied.key(1));
    let mut client = proxied.proxy.connect().unwrap();
    assert_eq!(call(&mut client, &["SET", &large, &"v".repeat(1 << 20)]), ok());
    // There is a connection to it.
    assert_eq!(call(&mut client, &["GET", &still]), Value::Null);
    crate::departures::signal(&proxied.shards[0], "-STOP");
    (proxied, client, [still, large])
}

#[test]
fn who_is_owed_too_much_is_closed() {
    let (proxied, client, [still, large]) = beside_one_that_stands_still();
    let mut requests = Vec::new();
    encode_request(&mut requests, &[b"GET", still.as_bytes()]);
    for _ in 0..20 {
        encode_request(&mut requests, &[b"GET", large.as_bytes()]);
    }
    client.stream().write_all(&requests).unwrap();
    let mut told = Vec::new();
    // Closed, or reset where the rest was not read.
    let closed = client.stream().read_to_end(&mut told).map_err(|error| error.kind());
    assert!(matches!(closed, Ok(_) | Err(ErrorKind::ConnectionReset)), "{closed:?}");
    assert!(told.is_empty(), "it is closed before the first is answered");
    crate::departures::signal(&proxied.shards[0], "-CONT");
    assert_eq!(call(&mut proxied.proxy.connect().unwrap(), &["GET", &still]), Value::Null);
}

#[test]
fn servers_are_looked_after_as_clients_are() {
    // Probes are a second apart at the least.
    let proxied = Proxied::begin(1, &["--tcp-keepalive", "1"]);
    assert_eq!(call(&mut proxied.proxy.connect().unwrap(), &["SET", "k", "v"]), ok());
}

#[test]
fn no_files_of_data_are_begun() {
    let proxied = Proxied::begin(2, &[]);
    let mut client = proxied.proxy.connect().unwrap();
    for (line, why) in [
        ("CONFIG SET appendonly yes", "of files of data is not served by a proxy"),
        ("CONFIG SET timeout 0 SAVE 1", "of files of data is not served by a proxy"),
        ("SHUTDOWN SAVE", "of files of data is not served by a proxy"),
        ("CONFIG REWRITE", "is not served by a proxy"),
    ] {
        let reply = shown(&call_line(&mut client, line));
        assert!(reply.contains(why), "{line}: {reply}");
    }
    assert_eq!(call_line(&mut client, "CONFIG SET timeout 0"), ok());
}

#[test]
fn what_a_shard_does_not_take_ends_no_more_than_its_connection() {
    let proxied = Proxied::begin(2, &[]);
    let key = proxied.key(0);
    let mut shard = proxied.shards[0].connect().unwrap();
    assert_eq!(call_line(&mut shard, "CONFIG SET proto-max-bulk-len 1mb"), ok());
    let (mut first, mut second) = (proxied.proxy.connect().unwrap(), proxied.proxy.connect().unwrap());
    for _ in 0..5 {
        let reply = call(&mut first, &["SET", &key, &"v".repeat(8 << 20)]);
        assert!(is_error(&reply, "UNANSWERED"), "{}", shown(&reply));
        assert_eq!(call(&mut second, &["SET", &key, "small"]), ok());
        assert_eq!(call(&mut first, &["GET", &key]), text("small"));
    }
}

/// Reads to the end of what a socket gives.
fn rest_of(client: &Client) -> String {
    let mut told = String::new();
    client.stream().read_to_string(&mut told).unwrap();
    told
}

#[test]
fn who_sends_no_more_is_answered_before_the_connection_ends() {
    let proxied = Proxied::begin(2, &[]);
    for ending in ["", "QUIT\r\n", "*1\r\n$x\r\n"] {
        let client = proxied.proxy.connect().unwrap();
        let requests = format!("SET {} 1\r\nINCR {}\r\nPING\r\n{ending}", proxied.key(0), proxied.key(0));
        client.stream().write_all(requests.as_bytes()).unwrap();
        if ending.is_empty() {
            client.stream().shutdown(std::net::Shutdown::Write).unwrap();
        }
        let told = rest_of(&client);
        assert!(told.starts_with("+OK\r\n:2\r\n+PONG\r\n"), "{ending}: {told}");
    }
}

#[test]
fn a_shard_that_is_gone_is_told_of_and_holds_up_nobody_else() {
    let mut proxied = Proxied::begin(2, &[]);
    let (gone, there) = (proxied.key(0), proxied.key(1));
    let (mut first, mut second) = (proxied.proxy.connect().unwrap(), proxied.proxy.connect().unwrap());
    assert_eq!(call(&mut first, &["SET", &gone, "1"]), ok());
    let port = proxied.shards[0].address().port().to_string();
    proxied.shards[0].kill();
    let mut told = String::new();
    wait_until("the loss is told of", || {
        told = shown(&call(&mut first, &["GET", &gone]));
        told.contains("no connection to the shard")
    });
    assert!(told.contains(&port), "{told}");
    assert_eq!(call(&mut second, &["SET", &there, "1"]), ok());
    let again = Server::start(Program::Redis, &["--port", &port]).unwrap();
    wait_until("it is there again", || call(&mut first, &["SET", &gone, "2"]) == ok());
    drop(again);
}

#[test]
fn a_shard_that_stands_still_delays_only_those_who_ask_it() {
    let proxied = Proxied::begin(2, &["--proxy-shard-timeout", "5"]);
    let (still, well) = (proxied.key(0), proxied.key(1));
    let (mut first, mut second) = (proxied.proxy.connect().unwrap(), proxied.proxy.connect().unwrap());
    assert_eq!(call(&mut first, &["SET", &still, "1"]), ok());
    crate::departures::signal(&proxied.shards[0], "-STOP");
    first.send_request(&["INCR", &still]).unwrap();
    assert_eq!(call(&mut second, &["SET", &well, "1"]), ok());
    let reply = first.read_value().unwrap();
    assert!(is_error(&reply, "UNANSWERED"), "{}", shown(&reply));
    assert_eq!(call(&mut second, &["GET", &well]), text("1"));
    crate::departures::signal(&proxied.shards[0], "-CONT");
    wait_until("it answers again", || call(&mut first, &["SET", &still, "1"]) == ok());
}

#[test]
fn a_shard_that_stands_still_is_lost_whoever_goes_on_writing_to_it() {
    let proxied = Proxied::begin(2, &["--proxy-shard-timeout", "1"]);
    let key = proxied.key(0);
    let mut first = proxied.proxy.connect().unwrap();
    assert_eq!(call(&mut first, &["SET", &key, "1"]), ok());
    crate::departures::signal(&proxied.shards[0], "-STOP");
    let is_over = AtomicBool::new(false);
    // Were it waited for as long as somebody writes, it would be so for ever.
    let reply = thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        scope.spawn(|| {
            let mut others: Vec<Client> = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let mut other = proxied.proxy.connect().unwrap();
                other.send_request(&["INCR", &key]).unwrap();
                others.push(other);
                thread::sleep(Duration::from_millis(100));
            }
        });
        first.send_request(&["INCR", &key]).unwrap();
        first.read_value()
    });
    crate::departures::signal(&proxied.shards[0], "-CONT");
    assert!(is_error(&reply.unwrap(), "UNANSWERED"));
}

#[test]
fn the_end_waits_for_replies() {
    let mut proxied = Proxied::begin(2, &[]);
    let key = proxied.key(0);
    let mut client = proxied.proxy.connect().unwrap();
    // So few that two seconds are enough.
    for _ in 0..50 {
        client.send_request(&["INCR", &key]).unwrap();
    }
    assert_eq!(client.read_value().unwrap(), Value::Int(1));
    crate::departures::signal(&proxied.proxy, "-TERM");
    let mut replies = 1;
    while let Ok(reply) = client.read_value() {
        replies += 1;
        assert_eq!(reply, Value::Int(replies));
    }
    let counted = call(&mut proxied.shards[0].connect().unwrap(), &["GET", &key]);
    assert_eq!(counted, text(&replies.to_string()), "whatever was executed is answered");
    wait_until("it ends", || proxied.proxy.ended().unwrap().is_some());
}

/// Whether a proxy says that it could serve all, and what it says.
pub(crate) fn check(words: &[&str]) -> (bool, String) {
    let done = Command::new(tarn_path()).args(["proxy", "--check"]).args(words).output().unwrap();
    (done.status.success(), String::from_utf8_lossy(&done.stdout).into_owned())
}

#[test]
fn a_look_that_nobody_reads_to_the_end_ends_as_any_other() {
    let words = ["proxy", "--check", "--proxy-shards", "127.0.0.1:1,127.0.0.1:1"];
    let mut look =
        Command::new(tarn_path()).args(words).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(look.stdout.take());
    assert_eq!(look.wait().unwrap().code(), Some(1));
}

#[test]
fn databases_that_servers_do_not_have_are_told_of() {
    let server = Server::start(Program::Redis, &["--databases", "4"]).unwrap();
    let words = ["--proxy-shards", &server.address().to_string(), "--databases"];
    let (is_sound, told) = check(&[&words[..], &["4"]].concat());
    assert!(is_sound, "{told}");
    let (is_sound, told) = check(&[&words[..], &["5"]].concat());
    assert!(!is_sound && told.contains("NOT SERVED: database 4: ERR DB index is out of range"), "{told}");
}

#[test]
fn what_is_behind_a_proxy_is_looked_at() {
    let mut proxied = Proxied::begin(2, &[]);
    let check = |shards: &[Server]| {
        let places: Vec<String> = shards.iter().map(|shard| shard.address().to_string()).collect();
        check(&["--proxy-shards", &places.join(",")])
    };
    let (is_sound, told) = check(&proxied.shards);
    assert!(is_sound && told.matches("8192 slots  Redis 7.0.15, a master").count() == 2, "{told}");
    let place = proxied.shards[1].address();
    let mut client = proxied.shards[0].connect().unwrap();
    assert_eq!(call(&mut client, &["REPLICAOF", "127.0.0.1", &place.port().to_string()]), ok());
    let (is_sound, told) = check(&proxied.shards);
    assert!(!is_sound && told.contains("NOT SERVED: its role is slave"), "{told}");
    proxied.shards[1].kill();
    let (is_sound, told) = check(&proxied.shards);
    assert!(!is_sound && told.contains("NOT SERVED: Connection refused"), "{told}");
}

#[test]
fn a_server_says_that_what_only_a_proxy_does_has_no_effect() {
    let server = Server::start(Program::Tarn(tarn_path()), &["--proxy-read-from", "replica"]).unwrap();
    let warning = "`proxy-read-from` has no effect: it is a directive of `tarn proxy`";
    wait_until("it is told", || server.output().contains(warning));
    let output = server.output();
    assert_eq!(output.matches("has no effect").count(), 1, "{output}");
}

#[test]
fn a_proxy_that_cannot_begin_says_why() {
    for (options, reason) in [
        (&["proxy"][..], "a proxy wants `proxy-shards`, `proxy-cluster` or `proxy-config-servers`"),
        (&["proxy", "--proxy-shards", "a:1", "--proxy-cluster", "b:1"], "both set"),
        (&["proxy", "--proxy-shards", "here"], "`here` is no `host:port`"),
        (&["proxy", "--proxy-shards", "0-1=a:1"], "slot 2 is given to no server"),
        (&["proxy", "--proxy-shards", "0-9000=a:1,9000-16383=b:1"], "slot 9000 is given to two servers"),
        (&["proxy", "--proxy-shards", "0-16384=a:1"], "`0-16384` is no range of slots"),
        (&["proxy", "--nosuch", "1"], "Bad directive"),
        (&["proxy", "--proxy-shards", "a:1", "--rename-command", "flushalx none"], "flushalx"),
        (&["server", "--proxy-shards", "a:1"], "`proxy-shards` is a directive of `tarn proxy`"),
        (
            &["server", "--proxy-config-servers", "a:1"],
            "`proxy-config-servers` is a directive of `tarn proxy`",
        ),
        (&["server", "--proxy-users", "cluster"], "`proxy-users` is a directive of `tarn proxy`"),
        (&["server", "--proxy-takeover", "/tmp/x"], "`proxy-takeover` is a directive of `tarn proxy`"),
    ] {
        let done = Command::new(tarn_path()).args(options).output().unwrap();
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!done.status.success() && told.contains(reason), "{options:?}: {told}");
    }
}
