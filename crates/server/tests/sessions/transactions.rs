//! MULTI, EXEC and WATCH, and that nobody sees a part of a transaction.

use crate::harness::{Peer, TestServer};
use keyspace::Progress;
use std::sync::atomic::{AtomicBool, Ordering};
use sys::{Clock, UnixMs};
use wire::Value;

fn numbers(reply: Option<Value>) -> Option<Vec<i64>> {
    match reply {
        Some(Value::Array(values)) => Some(
            values
                .iter()
                .map(|value| match value {
                    Value::Int(number) => *number,
                    Value::Bulk(text) => String::from_utf8_lossy(text).parse().unwrap(),
                    other => panic!("{other:?}"),
                })
                .collect(),
        ),
        Some(Value::NullArray) => None,
        other => panic!("{other:?}"),
    }
}

/// Sends a transaction in one write and returns what EXEC answers.
fn transact(peer: &mut Peer, requests: &[&str]) -> Option<Value> {
    peer.send(&[&["MULTI"], requests, &["EXEC"]].concat());
    assert_eq!(peer.text(), "OK");
    requests.iter().for_each(|_| assert_eq!(peer.text(), "QUEUED"));
    peer.reply()
}

#[test]
fn transfers_of_all_workers_keep_the_sum() {
    const ACCOUNTS: u32 = 40;
    const ROUNDS: u32 = 1500;
    let server = TestServer::start("");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        let movers: Vec<_> = (0..4u32)
            .map(|mover| {
                let server = &server;
                scope.spawn(move || {
                    let mut peer = server.connect();
                    for round in 0..ROUNDS {
                        let (from, to) =
                            ((round * 7 + mover) % ACCOUNTS, (round * 13 + mover * 5) % ACCOUNTS);
                        let requests = [
                            format!("DECRBY account:{from} {mover}"),
                            format!("INCRBY account:{to} {mover}"),
                        ];
                        assert!(transact(&mut peer, &requests.each_ref().map(String::as_str)).is_some());
                    }
                })
            })
            .collect();
        let (server, is_over) = (&server, &is_over);
        scope.spawn(move || {
            let mut peer = server.connect();
            let reads: Vec<String> =
                (0..ACCOUNTS).map(|account| format!("INCRBY account:{account} 0")).collect();
            let reads: Vec<&str> = reads.iter().map(String::as_str).collect();
            while !is_over.load(Ordering::Relaxed) {
                let sum: i64 = numbers(transact(&mut peer, &reads)).unwrap().iter().sum();
                assert_eq!(sum, 0, "a transfer was seen half done");
            }
        });
        movers.into_iter().for_each(|mover| mover.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn watched_counters_lose_no_increment() {
    const TIMES: i64 = 400;
    let server = TestServer::start("");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut peer = server.connect();
                let mut done = 0;
                while done < TIMES {
                    peer.send(&["WATCH counter", "GET counter"]);
                    assert_eq!(peer.text(), "OK");
                    let number: i64 = peer.text().parse().unwrap_or(0);
                    let set = format!("SET counter {}", number + 1);
                    done += i64::from(transact(&mut peer, &[&set]) != Some(Value::NullArray));
                }
            });
        }
    });
    assert_eq!(server.connect().ask("GET counter"), (4 * TIMES).to_string());
    assert!(server.server.engine.keyspace.interest().is_empty(), "nobody watches any more");
}

#[test]
fn a_session_that_goes_away_watches_nothing() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    peer.send(&["WATCH a b c", "MULTI", "SET a 1"]);
    assert_eq!(peer.texts(3), ["OK", "OK", "QUEUED"]);
    let mut other = server.connect();
    let info = other.ask("INFO clients");
    assert!(info.contains("watching_clients:1") && info.contains("total_watched_keys:3"), "{info}");
    let list = other.ask("CLIENT LIST");
    assert!(list.contains("flags=x") && list.contains("multi=1"), "{list}");
    drop(peer);
    server.wait_until("the keys are forgotten", || server.server.engine.keyspace.interest().is_empty());
}

#[test]
fn a_transaction_may_hold_anything_that_a_client_may_send() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    let replies = transact(
        &mut peer,
        &[
            "SET a 1",
            "SELECT 3",
            "SET a 2",
            "KEYS *",
            "FLUSHDB",
            "SELECT 0",
            "SWAPDB 0 1",
            "INFO keyspace",
            "DBSIZE",
        ],
    );
    let Some(Value::Array(replies)) = replies else { panic!("{replies:?}") };
    assert_eq!(replies[3], Value::Array(vec![Value::Bulk(b"a".to_vec())]));
    assert_eq!(replies[8], Value::Int(0));
    peer.send(&["SELECT 1", "GET a"]);
    assert_eq!(peer.texts(2), ["OK", "1"]);
}

#[test]
fn what_changed_while_it_was_forgotten_does_not_disturb_the_next_transaction() {
    const ROUNDS: usize = 400;
    const IN_A_ROW: usize = 50;
    let server = TestServer::start("");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        for _ in 0..2 {
            scope.spawn(|| {
                let mut peer = server.connect();
                while !is_over.load(Ordering::Relaxed) {
                    peer.send(&["SET k v"; IN_A_ROW]);
                    peer.texts(IN_A_ROW);
                }
            });
        }
        let mut peer = server.connect();
        let mut disturbed = 0;
        for _ in 0..ROUNDS {
            peer.send(&["WATCH k", "MULTI", "DISCARD", "MULTI", "EXEC"].repeat(IN_A_ROW));
            for _ in 0..IN_A_ROW {
                peer.texts(4);
                disturbed += usize::from(numbers(peer.reply()).is_none());
            }
        }
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(disturbed, 0, "of {} transactions that watched nothing", ROUNDS * IN_A_ROW);
    });
}

#[test]
fn a_time_to_live_begins_when_the_locks_are_had() {
    let clock = Clock::simulated(UnixMs(1_800_000_000_000));
    let server = TestServer::start_at(clock.clone(), "");
    let (mut peer, mut other) = (server.connect(), server.connect());
    let worker = server.server.net.clients.get(peer.id()).unwrap().worker();
    let script = "EVAL \"return redis.call('SET', KEYS[1], 'v', 'PX', '5000')\" 1 k";
    for requests in [&["SET k v PX 5000"][..], &["MULTI", "SET k v PX 5000", "EXEC"], &[script]] {
        let mut batch = server.server.engine.keyspace.enter(server.server.engine.guest());
        batch.hold(&[server.server.engine.keyspace.key(keyspace::DbIndex(0), b"k")]);
        peer.send(requests);
        server.wait_until("it waits", || server.server.net.placement.is_occupied(worker));
        clock.advance_ms(2000);
        drop(batch);
        requests.iter().for_each(|_| drop(peer.reply().unwrap()));
        let expected = clock.now().0 + 5000;
        assert_eq!(other.ask("PEXPIRETIME k"), expected.to_string(), "{requests:?}");
    }
}

#[test]
fn a_key_that_is_over_may_be_watched_beside_others_while_somebody_waits_for_its_group() {
    let clock = Clock::simulated(UnixMs(1_800_000_000_000));
    let server = TestServer::start_at(clock.clone(), "");
    server.server.engine.keyspace.set_active_expiry(false);
    let (mut peer, mut waiter) = (server.connect(), server.connect());
    for line in ["WATCH x y", "WATCH y x z"] {
        peer.ask("DEL x");
        assert_eq!(peer.ask("XGROUP CREATE x g $ MKSTREAM"), "OK");
        waiter.send(&["XREADGROUP GROUP g c BLOCK 0 STREAMS x >"]);
        server.wait_until("it waits", || server.server.blocked.count() == 1);
        assert_eq!(peer.ask("PEXPIRE x 50"), "1");
        clock.advance_ms(100);
        assert_eq!(peer.ask(line), "OK");
        assert_eq!(server.server.blocked.count(), 1, "it has not gone");
        assert_eq!(peer.ask("EXISTS x"), "0");
        assert!(waiter.text().starts_with("NOGROUP"));
        peer.send(&["MULTI", "PING", "EXEC"]);
        assert_eq!((peer.texts(2).concat().as_str(), peer.reply().is_some()), ("OKQUEUED", true));
    }
}

/// How a key whose time is up goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goes {
    NotYet,
    WithASweep,
    WhenLookedAt,
    WhenDeleted,
    WhenEvicted,
    WithEverything,
}

impl Goes {
    const ALL: [Goes; 6] = [
        Goes::NotYet,
        Goes::WithASweep,
        Goes::WhenLookedAt,
        Goes::WhenDeleted,
        Goes::WhenEvicted,
        Goes::WithEverything,
    ];

    /// Has the only key go, whose time is up.
    fn happen(self, server: &TestServer, peer: &mut Peer) {
        let keyspace = &server.server.engine.keyspace;
        match self {
            Goes::NotYet => {}
            Goes::WithASweep => {
                keyspace.set_active_expiry(true);
                server.wait_until("it is swept", || keyspace.stats().expired.get() == 1);
            }
            Goes::WhenLookedAt => assert_eq!(peer.ask("GET k"), "NULL"),
            Goes::WhenDeleted => assert_eq!(peer.ask("DEL k"), "0"),
            Goes::WhenEvicted => {
                server.set("maxmemory", "1");
                let used_bytes = || 2 * (1 - keyspace.stats().evicted.get());
                let batch = keyspace.enter(server.server.engine.guest());
                assert_eq!(
                    batch.evict(server.server.engine.clock.now(), used_bytes, |_, _| {}),
                    Ok(Progress::Done)
                );
                server.set("maxmemory", "0");
            }
            Goes::WithEverything => assert_eq!(peer.ask("FLUSHALL"), "OK"),
        }
    }
}

/// What a transaction gets that watches a key whose time was up before, or is up behind the WATCH, and goes so.
fn watched_over(goes: Goes, is_over_before: bool, comes_back: bool) -> String {
    let clock = Clock::simulated(UnixMs(1_700_000_000_000));
    let server = TestServer::start_at(clock.clone(), "maxmemory-policy volatile-ttl");
    server.server.engine.keyspace.set_active_expiry(false);
    let (mut peer, mut other) = (server.connect(), server.connect());
    peer.send(&["SET k v PX 10", "CLIENT PAUSE 600000 WRITE"]);
    assert_eq!(peer.texts(2), ["OK", "OK"]);
    if is_over_before {
        clock.advance_ms(1000);
    }
    assert_eq!(peer.ask("WATCH k"), "OK");
    clock.advance_ms(1000);
    peer.send(&["MULTI", "PING"]);
    assert_eq!(peer.texts(2), ["OK", "QUEUED"]);
    assert_eq!(other.ask("CLIENT UNPAUSE"), "OK");
    goes.happen(&server, &mut other);
    if comes_back {
        assert_eq!(other.ask("SET k w"), "OK");
    }
    peer.ask("EXEC")
}

#[test]
fn a_key_that_was_over_when_it_was_watched_disturbs_nothing_by_going() {
    for goes in Goes::ALL {
        let ran = format!("{:?}", Value::Array(vec![Value::Simple(b"PONG".to_vec())]));
        assert_eq!(watched_over(goes, true, false), ran, "{goes:?}");
        assert_eq!(watched_over(goes, true, true), "NULL", "{goes:?}, and another came");
        assert_eq!(watched_over(goes, false, false), "NULL", "{goes:?} behind the WATCH");
        assert_eq!(watched_over(goes, false, true), "NULL", "{goes:?} behind it, and another came");
    }
}

#[test]
fn a_key_that_takes_the_place_of_none_with_its_time_up_is_no_change() {
    let server = TestServer::start("enable-debug-command yes");
    let (mut peer, mut other) = (server.connect(), server.connect());
    assert_eq!(other.ask("DEBUG SET-ACTIVE-EXPIRE 0"), "OK");
    other.send(&["SELECT 1", "SET k v PX 1"]);
    other.texts(2);
    let expires_at = sys::Clock::Real.now().0 + 1;
    while sys::Clock::Real.now().0 <= expires_at {}
    assert_eq!(peer.ask("WATCH k"), "OK");
    other.send(&["SWAPDB 0 1", "SELECT 0", "GET k"]);
    assert_eq!(other.texts(3), ["OK", "OK", "NULL"]);
    assert!(transact(&mut peer, &["PING"]).is_some_and(|reply| matches!(reply, Value::Array(_))));
}

#[test]
fn a_transaction_can_be_left_while_a_script_holds_everything() {
    for scope in ["keys", "server"] {
        let server = TestServer::start(&format!("busy-reply-threshold 20\nbusy-reply-scope {scope}"));
        let mut peers: Vec<_> = (0..4).map(|_| server.connect()).collect();
        for line in ["WATCH a", "MULTI", "PING"] {
            peers[0].ask(line);
        }
        peers[1].ask("WATCH a");
        for line in ["WATCH a", "MULTI"] {
            peers[2].ask(line);
        }
        let mut script = server.connect();
        script.send(&["EVAL \"redis.call('get', 'x') while true do end\" 0"]);
        while !peers[3].ask("GET x").starts_with("BUSY") {}
        assert_eq!(peers[0].ask("DISCARD"), "OK");
        assert_eq!(peers[1].ask("UNWATCH"), "OK");
        assert_eq!(peers[2].ask("RESET"), "RESET");
        assert!(peers[1].ask("WATCH a").starts_with("BUSY"), "it looks at the key");
        assert_eq!(peers[3].ask("SCRIPT KILL"), "OK");
        assert!(script.text().contains("killed"));
        assert_eq!(peers[0].ask("EXEC"), "ERR EXEC without MULTI");
    }
}

#[test]
fn a_key_whose_time_is_up_stays_where_it_is_when_it_is_watched() {
    let clock = Clock::simulated(UnixMs(1_700_000_000_000));
    let server = TestServer::start_at(clock.clone(), "notify-keyspace-events Ex");
    server.server.engine.keyspace.set_active_expiry(false);
    let (mut listener, mut peer) = (server.connect(), server.connect());
    listener.ask("PSUBSCRIBE *");
    // Its time was up before, and is up behind, WATCH.
    for (ms, is_disturbed) in [(10, false), (30, true)] {
        peer.ask(&format!("SET k{ms} v PX {ms}"));
        clock.advance_ms(20);
        peer.ask(&format!("WATCH k{ms}"));
        clock.advance_ms(20);
        assert_eq!(transact(&mut peer, &["PING"]) == Some(Value::NullArray), is_disturbed, "{ms}");
        assert!(listener.is_silent(), "{ms}");
    }
    peer.ask("GET k10");
    assert!(matches!(listener.reply(), Some(Value::Array(_))), "it goes when somebody looks");
}

#[test]
fn storing_nothing_over_a_key_whose_time_is_up_deletes_it() {
    let clock = Clock::simulated(UnixMs(1_700_000_000_000));
    let server = TestServer::start_at(clock.clone(), "notify-keyspace-events Exg");
    server.server.engine.keyspace.set_active_expiry(false);
    let (mut listener, mut peer) = (server.connect(), server.connect());
    for line in [
        "SINTERSTORE d none",
        "ZUNIONSTORE d 1 none",
        "ZRANGESTORE d none 0 -1",
        "BITOP AND d none",
        "SORT none STORE d",
        "GEOSEARCHSTORE d none FROMLONLAT 0 0 BYRADIUS 1 m",
    ] {
        peer.ask("SET d v PX 10");
        clock.advance_ms(20);
        listener.ask("PSUBSCRIBE *");
        assert_eq!(peer.ask(line), "0", "{line}");
        let Some(Value::Array(message)) = listener.reply() else { panic!("{line}") };
        assert_eq!(message[2], Value::Bulk(b"__keyevent@0__:del".to_vec()), "{line}");
        listener.ask("PUNSUBSCRIBE *");
    }
}

#[test]
fn storing_nothing_over_a_source_whose_time_is_up_leaves_it_to_its_time() {
    let clock = Clock::simulated(UnixMs(1_700_000_000_000));
    let server = TestServer::start_at(clock.clone(), "notify-keyspace-events Exg");
    server.server.engine.keyspace.set_active_expiry(false);
    let (mut listener, mut peer) = (server.connect(), server.connect());
    for line in [
        "SINTERSTORE d d",
        "SUNIONSTORE d none d",
        "ZUNIONSTORE d 1 d",
        "ZRANGESTORE d d 0 -1",
        "BITOP AND d none d",
        "SORT d STORE d",
        "GEOSEARCHSTORE d d FROMLONLAT 0 0 BYRADIUS 1 m",
    ] {
        peer.ask("SET d v PX 10");
        clock.advance_ms(20);
        listener.ask("PSUBSCRIBE *");
        assert_eq!(peer.ask(line), "0", "{line}");
        let Some(Value::Array(message)) = listener.reply() else { panic!("{line}") };
        assert_eq!(message[2], Value::Bulk(b"__keyevent@0__:expired".to_vec()), "{line}");
        assert!(listener.is_silent(), "{line}");
        listener.ask("PUNSUBSCRIBE *");
    }
}

#[test]
fn storing_nothing_over_a_key_whose_time_was_up_when_it_was_watched_disturbs_nobody() {
    let clock = Clock::simulated(UnixMs(1_700_000_000_000));
    let server = TestServer::start_at(clock.clone(), "");
    server.server.engine.keyspace.set_active_expiry(false);
    let (mut watcher, mut peer) = (server.connect(), server.connect());
    for (ms, is_disturbed) in [(10, false), (30, true)] {
        for line in ["SDIFFSTORE d none", "ZUNIONSTORE d 1 none", "BITOP NOT d none", "SORT none STORE d"] {
            peer.ask(&format!("SET d v PX {ms}"));
            clock.advance_ms(20);
            watcher.ask("WATCH d");
            clock.advance_ms(20);
            assert_eq!(peer.ask(line), "0", "{line}");
            let is_null = transact(&mut watcher, &["PING"]) == Some(Value::NullArray);
            assert_eq!(is_null, is_disturbed, "{ms} {line}");
        }
    }
}
