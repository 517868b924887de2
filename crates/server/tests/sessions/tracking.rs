//! Client tracking over sockets: what clients cache is never out of date for long.

use super::harness::{Peer, TestServer};
use std::collections::HashMap;
use sys::Prng;
use wire::Value;

/// A client that keeps what it has read until it is told to forget it.
struct Cache {
    peer: Peer,
    known: HashMap<String, Option<i64>>,
}

impl Cache {
    fn new(server: &TestServer, mode: &str) -> Cache {
        let mut peer = server.connect();
        peer.ask("HELLO 3");
        assert_eq!(peer.ask(&format!("CLIENT TRACKING ON {mode}")), "OK");
        Cache { peer, known: HashMap::new() }
    }

    /// The next reply that is no invalidation; those are followed.
    fn reply(&mut self) -> Value {
        loop {
            match self.peer.reply().expect("the server goes on") {
                Value::Push(items) => self.forget(&items),
                reply => return reply,
            }
        }
    }

    fn forget(&mut self, items: &[Value]) {
        assert_eq!(items[0], Value::Bulk(b"invalidate".to_vec()));
        match &items[1] {
            Value::Null => self.known.clear(),
            Value::Array(keys) => {
                for key in keys {
                    let Value::Bulk(key) = key else { panic!("{key:?}") };
                    self.known.remove(std::str::from_utf8(key).unwrap());
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn read(&mut self, keys: &[String]) {
        let lines: Vec<String> = keys.iter().map(|key| format!("GET {key}")).collect();
        self.peer.send(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        for key in keys {
            let value = match self.reply() {
                Value::Bulk(text) => Some(std::str::from_utf8(&text).unwrap().parse().unwrap()),
                Value::Null => None,
                other => panic!("{other:?}"),
            };
            self.known.insert(key.clone(), value);
        }
    }

    /// Runs a line that changes something.
    fn write(&mut self, line: &str) {
        self.peer.send(&[line]);
        self.reply();
    }

    /// All that was posted before has come when the reply is there.
    fn catch_up(&mut self) {
        self.peer.send(&["PING", "PING"]);
        (0..2).for_each(|_| drop(self.reply()));
    }
}

fn change(prng: &mut Prng, key: &str) -> String {
    match prng.below(12) {
        0 => format!("DEL {key}"),
        1 => format!("SET {key} {} PX {}", prng.below(1000), 1 + prng.below(5)),
        2 => format!("RENAME {key} k{}", prng.below(20)),
        3 => "FLUSHALL".to_owned(),
        4 => format!("MSET {key} 1 k{} 2", prng.below(20)),
        5..8 => format!("INCR {key}"),
        _ => format!("SET {key} {}", prng.below(1000)),
    }
}

/// Two caches read and write at random while a third client writes; then everybody stops,
/// and what is cached must be what is there.
fn caches_stay_true(mode: &str, seed: u64) {
    let server = TestServer::start("tracking-table-max-keys 15");
    for round in 0..15 {
        let mut caches = [Cache::new(&server, mode), Cache::new(&server, mode)];
        let mut writer = server.connect();
        std::thread::scope(|scope| {
            for (at, cache) in caches.iter_mut().enumerate() {
                let mut prng = Prng::from_seed(seed + round * 10 + at as u64);
                scope.spawn(move || {
                    for _ in 0..150 {
                        let keys: Vec<String> =
                            (0..1 + prng.below(4)).map(|_| format!("k{}", prng.below(20))).collect();
                        match prng.below(4) {
                            0 => cache.write(&change(&mut prng, &keys[0])),
                            _ => cache.read(&keys),
                        }
                    }
                });
            }
            let mut prng = Prng::from_seed(seed + round * 10 + 5);
            scope.spawn(move || {
                for _ in 0..300 {
                    let key = format!("k{}", prng.below(20));
                    writer.send(&[&change(&mut prng, &key)]);
                    writer.reply();
                }
            });
        });
        let mut judge = server.connect();
        // Nothing changes by itself any more.
        (0..20).for_each(|number| drop(judge.ask(&format!("PERSIST k{number}"))));
        for cache in &mut caches {
            cache.catch_up();
            for (key, cached) in &cache.known {
                let there = judge.ask(&format!("GET {key}"));
                let cached = cached.map_or("NULL".to_owned(), |number| number.to_string());
                assert_eq!(there, cached, "{key}, mode {mode:?}, seed {seed}, round {round}");
            }
        }
    }
}

#[test]
fn caches_of_read_keys_stay_true() {
    caches_stay_true("", 1);
}

#[test]
fn caches_kept_by_broadcasts_stay_true() {
    caches_stay_true("BCAST", 2);
}

#[test]
fn a_key_is_told_of_once_and_leaves_the_table() {
    let server = TestServer::start("");
    let mut cache = Cache::new(&server, "");
    let mut writer = server.connect();
    cache.read(&["k".to_owned()]);
    assert_eq!(cache.peer.field("flags"), "t");
    assert_eq!(writer.ask("SET k 1"), "OK");
    cache.catch_up();
    assert!(cache.known.is_empty());
    let stats = writer.ask("INFO stats");
    assert!(stats.contains("tracking_total_keys:0\r\n"), "{stats}");
}

#[test]
fn redirected_invalidations_go_where_they_are_listened_to() {
    let server = TestServer::start("");
    let (mut cache, mut ear, mut writer) = (server.connect(), server.connect(), server.connect());
    let id = ear.id();
    assert_eq!(cache.ask(&format!("CLIENT TRACKING ON REDIRECT {id}")), "OK");
    cache.ask("GET k");
    ear.send(&["SUBSCRIBE __redis__:invalidate"]);
    ear.reply();
    writer.ask("SET k 1");
    let keys = Value::Array(vec![Value::Bulk(b"k".to_vec())]);
    let message = ["message", "__redis__:invalidate"].map(|word| Value::Bulk(word.into()));
    let [kind, channel] = message;
    assert_eq!(ear.reply(), Some(Value::Array(vec![kind, channel, keys])));
    cache.ask("GET k");
    drop(ear);
    server.wait_until("it is gone", || server.server.net.clients.count() == 2);
    writer.ask("SET k 2");
    assert!(cache.is_silent());
    assert_eq!(cache.field("flags"), "tR");
}

#[test]
fn nothing_is_kept_for_clients_that_are_gone() {
    let server = TestServer::start("");
    let mut cache = Cache::new(&server, "");
    cache.read(&["a".to_owned(), "b".to_owned()]);
    let broadcast = Cache::new(&server, "BCAST PREFIX x");
    let mut peer = server.connect();
    let stats = peer.ask("INFO");
    for line in ["tracking_clients:2", "tracking_total_keys:2", "tracking_total_prefixes:1"] {
        assert!(stats.contains(&format!("{line}\r\n")), "{line}");
    }
    drop((cache, broadcast));
    server.wait_until("they are gone", || server.server.tracking.client_count() == 0);
    let stats = peer.ask("INFO");
    for line in ["tracking_clients:0", "tracking_total_keys:0", "tracking_total_prefixes:0"] {
        assert!(stats.contains(&format!("{line}\r\n")), "{line}");
    }
}

#[test]
fn who_has_never_read_what_was_there_is_not_told_that_it_is_gone() {
    let clock = sys::Clock::simulated(sys::UnixMs(1_700_000_000_000));
    let server = TestServer::start_at(clock.clone(), "");
    server.server.engine.keyspace.set_active_expiry(false);
    let mut writer = server.connect();
    let mut cache = Cache::new(&server, "");
    writer.ask("SET k v PX 10");
    clock.advance_ms(20);
    cache.peer.send(&["GET k"]);
    assert_eq!(cache.reply(), Value::Null);
    assert!(cache.peer.is_silent());
    writer.ask("SET k again");
    assert!(matches!(cache.peer.reply(), Some(Value::Push(_))), "it caches that it was not there");
}

#[test]
fn who_finds_a_key_expired_is_told_as_redis_tells_it() {
    let clock = sys::Clock::simulated(sys::UnixMs(1_700_000_000_000));
    let server = TestServer::start_at(clock.clone(), "");
    server.server.engine.keyspace.set_active_expiry(false);
    let mut writer = server.connect();
    // How it tracks; what it asks for when the key's time is up; whether it is told.
    let cases = [
        ("", "GET k", true),
        ("", "SET k w", true),
        ("NOLOOP", "GET k", false),
        ("NOLOOP", "SET k w", false),
        ("NOLOOP", "DEL k", false),
        ("BCAST", "GET k", true),
        ("BCAST NOLOOP", "GET k", true),
        ("BCAST NOLOOP", "DEL k", true),
        ("BCAST NOLOOP", "SET k w", false),
    ];
    for (mode, line, is_told) in cases {
        let mut cache = Cache::new(&server, mode);
        writer.ask("SET k v PX 10");
        cache.read(&["other".to_owned()]);
        cache.peer.send(&["GET k"]);
        cache.reply();
        cache.catch_up();
        clock.advance_ms(20);
        cache.peer.send(&[line]);
        assert!(!matches!(cache.peer.reply(), Some(Value::Push(_))), "{mode} {line}: the reply comes first");
        let key = Value::Array(vec![Value::Bulk(b"k".to_vec())]);
        let invalidation = Value::Push(vec![Value::Bulk(b"invalidate".to_vec()), key]);
        if is_told {
            assert_eq!(cache.peer.reply(), Some(invalidation.clone()), "{mode} {line}");
        }
        assert!(cache.peer.is_silent(), "{mode} {line}");
        // Who has read that it is not there hears when it comes back.
        if line == "GET k" {
            writer.ask("SET k again");
            assert_eq!(cache.peer.reply(), Some(invalidation), "{mode} {line}");
        }
        drop(cache);
        server.wait_until("it is gone", || server.server.tracking.client_count() == 0);
    }
}

#[test]
fn who_waited_knows_what_it_has_changed_itself() {
    let server = TestServer::start("");
    let mut writer = server.connect();
    // How it tracks, what it waits with, and what it is told of behind the reply.
    let cases = [
        ("BCAST NOLOOP", "BLPOP l 0", None),
        ("NOLOOP", "BLMOVE l d LEFT LEFT 0", None),
        ("", "BLMOVE l d LEFT LEFT 0", Some("d")),
    ];
    for (mode, line, told) in cases {
        writer.ask("FLUSHALL");
        let mut cache = Cache::new(&server, mode);
        cache.peer.send(&["LRANGE d 0 -1"]);
        cache.reply();
        cache.peer.send(&[line]);
        server.wait_until("it waits", || server.server.blocked.count() == 1);
        writer.ask("RPUSH l v");
        assert!(!matches!(cache.peer.reply(), Some(Value::Push(_))), "{mode} {line}");
        match told.map(|key| Value::Array(vec![Value::Bulk(key.as_bytes().to_vec())])) {
            None => assert!(cache.peer.is_silent(), "{mode} {line}"),
            Some(keys) => {
                assert_eq!(
                    cache.peer.reply(),
                    Some(Value::Push(vec![Value::Bulk(b"invalidate".to_vec()), keys]))
                );
            }
        }
    }
}
