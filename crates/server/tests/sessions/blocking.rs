//! Sessions that wait for keys, on several workers.

use crate::harness::{Peer, TestServer};
use keyspace::{DbIndex, Touch};
use log::Flushing;
use net::client::Traits;
use server::pause::{Paused, Purpose};
use std::collections::BTreeSet;
use std::io::Write;
use sys::UnixMs;
use wire::Value;

fn blocked(server: &TestServer) -> usize {
    server.server.blocked.count()
}

#[test]
fn nothing_is_lost_or_given_twice_between_workers() {
    const PUSHERS: usize = 3;
    const TAKERS: usize = 5;
    const EACH: usize = 2000;
    let server = TestServer::start("");
    let taken: Vec<String> = std::thread::scope(|scope| {
        let takers: Vec<_> = (0..TAKERS)
            .map(|taker| {
                let server = &server;
                scope.spawn(move || {
                    let mut peer = server.connect();
                    let keys = if taker % 2 == 0 { "BLPOP one two 0" } else { "BRPOP two one 0" };
                    let mut taken = Vec::new();
                    loop {
                        peer.send(&[keys]);
                        let Some(Value::Array(pair)) = peer.reply() else { panic!("an element comes") };
                        let Value::Bulk(element) = &pair[1] else { panic!("{pair:?}") };
                        match String::from_utf8_lossy(element).into_owned() {
                            end if end == "end" => return taken,
                            element => taken.push(element),
                        }
                    }
                })
            })
            .collect();
        let pushers: Vec<_> = (0..PUSHERS)
            .map(|pusher| {
                let server = &server;
                scope.spawn(move || {
                    let mut peer = server.connect();
                    for number in 0..EACH {
                        let key = if number % 3 == 0 { "one" } else { "two" };
                        let push = match number % 5 {
                            0 => format!("LPUSH {key} {pusher}:{number}"),
                            _ => format!("RPUSH {key} {pusher}:{number}"),
                        };
                        peer.ask(&push);
                    }
                })
            })
            .collect();
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        let mut peer = server.connect();
        server.wait_until("all is taken", || blocked(&server) == TAKERS);
        (0..TAKERS).for_each(|_| drop(peer.ask("RPUSH one end")));
        takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect()
    });
    assert_eq!(taken.len(), PUSHERS * EACH);
    assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), PUSHERS * EACH);
    assert_eq!(server.connect().ask("EXISTS one two"), "0");
}

#[test]
fn moves_between_lists_in_a_ring_lose_nothing() {
    const MOVERS: usize = 6;
    const STEPS: usize = 1500;
    let server = TestServer::start("");
    let mut peer = server.connect();
    assert_eq!(peer.ask("RPUSH ring:0 a b c d"), "4");
    std::thread::scope(|scope| {
        for mover in 0..MOVERS {
            let server = &server;
            scope.spawn(move || {
                let mut peer = server.connect();
                let next = (mover + 1) % MOVERS;
                let request = format!("BLMOVE ring:{mover} ring:{next} LEFT RIGHT 0");
                (0..STEPS).for_each(|_| drop(peer.ask(&request)));
            });
        }
    });
    let lengths = (0..MOVERS).map(|mover| peer.ask(&format!("LLEN ring:{mover}")).parse::<i64>().unwrap());
    assert_eq!(lengths.sum::<i64>(), 4);
}

#[test]
fn who_came_first_is_served_first_across_workers() {
    let server = TestServer::start("");
    let mut peers: Vec<Peer> = (0..8).map(|_| server.connect()).collect();
    for (index, peer) in peers.iter_mut().enumerate() {
        peer.send(&["BLPOP queue 0"]);
        server.wait_until("it waits", || blocked(&server) == index + 1);
    }
    let mut pusher = server.connect();
    assert_eq!(pusher.ask("RPUSH queue 0 1 2 3 4 5 6 7"), "8");
    for (index, peer) in peers.iter_mut().enumerate() {
        let Some(Value::Array(pair)) = peer.reply() else { panic!("an element comes") };
        assert_eq!(pair[1], Value::Bulk(index.to_string().into_bytes()));
    }
    assert_eq!(pusher.ask("EXISTS queue"), "0");
    assert!(server.server.engine.keyspace.interest().is_empty());
}

#[test]
fn waiting_sessions_end_by_time_by_others_and_by_going_away() {
    let server = TestServer::start("");
    let mut admin = server.connect();
    let mut peer = server.connect();
    let id = peer.id();
    peer.send(&["BLPOP nothing 0.01", "ECHO after"]);
    assert_eq!(peer.texts(2), ["NULL", "after"]);
    for (reason, answer) in [("TIMEOUT", "NULL"), ("ERROR", "UNBLOCKED client unblocked via CLIENT UNBLOCK")]
    {
        peer.send(&["BLPOP nothing 0", "ECHO after"]);
        server.wait_until("it waits", || blocked(&server) == 1);
        assert_eq!(admin.ask(&format!("CLIENT UNBLOCK {id} {reason}")), "1");
        assert_eq!(peer.texts(2), [answer, "after"]);
        assert_eq!(admin.ask(&format!("CLIENT UNBLOCK {id} {reason}")), "0");
    }
    peer.send(&["BLPOP nothing 0"]);
    server.wait_until("it waits", || blocked(&server) == 1);
    assert_eq!(admin.ask(&format!("CLIENT KILL ID {id}")), "1");
    assert_eq!(peer.text(), "END");
    let mut peer = server.connect();
    peer.send(&["BLPOP nothing 0"]);
    server.wait_until("it waits", || blocked(&server) == 1);
    drop(peer);
    server.wait_until("it is forgotten", || blocked(&server) == 0);
    assert_eq!(admin.ask("RPUSH nothing 1"), "1");
    assert_eq!(admin.ask("LLEN nothing"), "1");
}

#[test]
fn who_went_away_behind_much_that_waits_is_noticed() {
    let server = TestServer::start("client-query-buffer-limit 8mb");
    let mut admin = server.connect();
    let more = "x".repeat(1 << 20);
    let wait = |megabytes: usize| {
        let mut peer = server.connect();
        peer.send(&["BLPOP list 0"]);
        server.wait_until("it waits", || blocked(&server) == 1);
        (0..megabytes).for_each(|_| peer.send_words(&["SET", "key", &more]));
        peer
    };
    let is_gone = || {
        server.wait_until("it is forgotten", || blocked(&server) == 0);
        server.wait_until("it is gone", || server.server.net.clients.count() == 1);
    };
    drop(wait(4));
    is_gone();
    let mut peer = wait(4);
    peer.half_close();
    assert_eq!(peer.text(), "END");
    is_gone();
    assert_eq!(admin.ask("RPUSH list x"), "1");
    assert_eq!(admin.ask("DEL list key"), "1", "nobody has taken it, and nothing behind was run");
    // Who waits on has what is behind run afterwards, as long as it keeps to the limit.
    let mut peer = wait(4);
    assert_eq!(admin.ask("RPUSH list x"), "1");
    assert!(peer.reply().is_some());
    assert_eq!(peer.texts(4), ["OK"; 4]);
    drop(peer);
    is_gone();
    let mut peer = server.connect();
    peer.send(&["BLPOP list 0"]);
    server.wait_until("it waits", || blocked(&server) == 1);
    let mut sent = 0;
    while peer.stream.write_all(more.as_bytes()).is_ok() {
        sent += 1;
        assert!(sent < 1000, "the limit holds");
    }
    is_gone();
}

#[test]
fn who_closes_its_half_behind_a_wait_gets_the_replies_before_that() {
    let server = TestServer::start_durable("appendfsync always", Flushing::ByHand);
    let mut peer = server.connect();
    peer.send(&["SET a 1", "SET b 2", "BLPOP list 0", "SET c 3"]);
    peer.half_close();
    server.wait_until("what was sent is run", || server.server.counts.commands.get() >= 3);
    server.wait_until("nobody waits", || blocked(&server) == 0);
    assert!(peer.is_silent(), "nothing of it is durable yet");
    server.server.engine.durability.log().unwrap().flush();
    assert_eq!(peer.texts(3), ["OK", "OK", "END"]);
    assert_eq!(server.connect().ask("EXISTS c"), "0");
}

#[test]
fn keys_become_ready_in_every_way() {
    let server = TestServer::start("");
    let mut admin = server.connect();
    for ways in [
        &["RPUSH list x"][..],
        &["RPUSH other x", "RENAME other list"],
        &["RPUSH other x", "COPY other list", "DEL other"],
        &["SELECT 1", "RPUSH list x", "MOVE list 0", "SELECT 0"],
        &["SELECT 1", "RPUSH list x", "SELECT 0", "SWAPDB 0 1"],
        &["MULTI", "SET list x", "DEL list", "RPUSH list x", "EXEC"],
        &["SET list x", "DEL list", "SADD list y", "DEL list", "LPUSH list x"],
    ] {
        let mut peer = server.connect();
        peer.send(&["BLPOP list 0"]);
        server.wait_until("it waits", || blocked(&server) == 1);
        admin.send(ways);
        let Some(Value::Array(pair)) = peer.reply() else { panic!("{ways:?}") };
        assert_eq!(pair[1], Value::Bulk(b"x".to_vec()), "{ways:?}");
        ways.iter().for_each(|_| drop(admin.reply()));
        assert_eq!(admin.ask("EXISTS list"), "0");
    }
}

#[test]
fn who_was_put_off_is_served_during_a_pause() {
    let server = TestServer::start("");
    let (keyspace, mut peer) = (&server.server.engine.keyspace, server.connect());
    assert_eq!(peer.ask("XGROUP CREATE k g $ MKSTREAM"), "OK");
    let worker = server.server.net.clients.get(peer.id()).unwrap().worker();
    peer.send(&["XREADGROUP GROUP g c BLOCK 0 STREAMS k >"]);
    server.wait_until("it waits", || blocked(&server) == 1);
    server.server.pause.begin(
        &server.server.engine,
        Purpose::Client,
        Paused::All,
        UnixMs(0),
        UnixMs(u64::MAX),
    );
    // A worker without connections has made the key ready and could not hold it any more, since a slow script had come to.
    let key = [keyspace.key(DbIndex(0), b"k")];
    let mut batch = keyspace.enter((worker + 1) % 2);
    let mut edit = batch.edit(&key, UnixMs(0), Touch::No);
    assert!(edit.remove(&key[0]));
    edit.finish();
    assert!(batch.has_ready());
    batch.release();
    drop(batch);
    // The script ends.
    server.server.bells.ring_all();
    let told = peer.text();
    assert!(told.starts_with("NOGROUP ") || told.starts_with("UNBLOCKED "), "{told}");
}

/// What INFO has of a command: calls, those refused, those failed.
fn figures(peer: &mut Peer, command: &str) -> [u64; 3] {
    let stats = peer.ask("INFO commandstats");
    let Some(line) = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:"))) else {
        return [0; 3];
    };
    ["calls", "rejected_calls", "failed_calls"].map(|name| {
        let found = line.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        found.unwrap().parse().unwrap()
    })
}

fn is_logged(server: &TestServer, request: &str) -> bool {
    server.server.slowlog.newest(100).iter().any(|entry| entry.words.join(&b' ') == request.as_bytes())
}

#[test]
fn waits_are_counted_and_logged_when_they_end() {
    let server = TestServer::start("slowlog-log-slower-than 0");
    let (mut admin, mut peer) = (server.connect(), server.connect());
    let id = peer.id();
    admin.ask("ACL SETUSER u on nopass +@all ~*");
    let wait = |peer: &mut Peer, request: &str, admin: &mut Peer, end: &str| {
        admin.ask("CONFIG RESETSTAT");
        admin.ask("SLOWLOG RESET");
        peer.send(&[request]);
        server.wait_until("it waits", || blocked(&server) == 1);
        assert!(!is_logged(&server, request), "not before it ends");
        admin.ask(end);
        peer.reply();
        (figures(admin, "blpop"), is_logged(&server, request))
    };
    let done = ([1, 0, 0], true);
    assert_eq!(wait(&mut peer, "BLPOP nokey 0", &mut admin, "RPUSH nokey x"), done);
    assert_eq!(wait(&mut peer, "BLPOP nokey 0", &mut admin, &format!("CLIENT UNBLOCK {id}")), done);
    let error = format!("CLIENT UNBLOCK {id} ERROR");
    assert_eq!(wait(&mut peer, "BLPOP nokey 0", &mut admin, &error), ([1, 0, 1], true));
    admin.ask("CONFIG RESETSTAT");
    assert_eq!(peer.ask("BLPOP nokey 0.01"), "NULL");
    assert_eq!((figures(&mut admin, "blpop"), is_logged(&server, "BLPOP nokey 0.01")), done);
    assert_eq!(peer.ask("AUTH u x"), "OK");
    peer.send(&["BLPOP nokey 0"]);
    server.wait_until("it waits", || blocked(&server) == 1);
    assert_eq!(admin.ask("ACL SETUSER u -blpop"), "OK");
    admin.ask("CONFIG RESETSTAT");
    admin.ask("RPUSH nokey x");
    assert!(peer.text().starts_with("NOPERM"));
    assert_eq!(figures(&mut admin, "blpop"), [0, 1, 0], "refused, not failed");
}

#[test]
fn a_wait_is_logged_in_the_words_in_which_it_was_sent() {
    let server = TestServer::start("slowlog-log-slower-than 0");
    let (mut admin, mut peer) = (server.connect(), server.connect());
    admin.ask("XADD stream 5-1 a b");
    peer.send(&["XREAD BLOCK 0 STREAMS stream $"]);
    server.wait_until("it waits", || blocked(&server) == 1);
    admin.ask("XADD stream 5-2 a b");
    peer.reply();
    assert!(is_logged(&server, "XREAD BLOCK 0 STREAMS stream $"));
    // Behind the command that ended the wait.
    let newest = server.server.slowlog.newest(100).into_iter().map(|entry| entry.words.join(&b' '));
    let of_stream: Vec<_> = newest.filter(|words| words.starts_with(b"X")).collect();
    let expected = [&b"XREAD BLOCK 0 STREAMS stream $"[..], b"XADD stream 5-2 a b", b"XADD stream 5-1 a b"];
    assert_eq!(of_stream, expected);
}

#[test]
fn nobody_is_served_what_was_over_when_its_transaction_ended() {
    let server = TestServer::start("enable-debug-command yes");
    let (mut peer, mut pusher) = (server.connect(), server.connect());
    peer.send(&["BLPOP k 0"]);
    server.wait_until("it waits", || blocked(&server) == 1);
    pusher.send(&["MULTI", "RPUSH k over", "PEXPIRE k 1", "DEBUG SLEEP 0.02", "EXEC"]);
    pusher.texts(4);
    assert!(matches!(pusher.reply(), Some(Value::Array(replies)) if replies.len() == 3));
    assert_eq!(pusher.ask("RPUSH k x"), "1");
    let Some(Value::Array(pair)) = peer.reply() else { panic!("an element comes") };
    assert_eq!(pair[1], Value::Bulk(b"x".to_vec()));
}

#[test]
fn who_wants_no_reply_gets_none_however_its_wait_ends() {
    let server = TestServer::start("");
    let (mut peer, mut other) = (server.connect(), server.connect());
    let id = peer.id();
    let client = server.server.net.clients.get(id).unwrap();
    peer.send(&["CLIENT REPLY OFF", "BLPOP q 0.01", "ECHO 0", "CLIENT REPLY ON"]);
    assert_eq!(peer.text(), "OK");
    for request in ["BLPOP q 0.01", "WAIT 1 10"] {
        peer.send(&["CLIENT REPLY SKIP", request, "ECHO 1"]);
        assert_eq!(peer.text(), "1", "{request}");
    }
    assert_eq!(other.ask("XGROUP CREATE s g $ MKSTREAM"), "OK");
    let unblock = format!("CLIENT UNBLOCK {id} ERROR");
    for (request, ends) in [
        ("BLPOP q 0", &["RPUSH q a"][..]),
        ("BLPOP q 0", &["MULTI", "RPUSH q a", "EXEC"]),
        ("BLPOP q 0", &[&unblock]),
        ("XREADGROUP GROUP g c BLOCK 0 STREAMS s >", &["DEL s"]),
    ] {
        peer.send(&["CLIENT REPLY SKIP", request]);
        server.wait_until("it waits", || client.traits().contains(Traits::BLOCKED));
        ends.iter().for_each(|end| drop(other.ask(end)));
        assert_eq!(peer.ask("ECHO 2"), "2", "{request} {ends:?}");
    }
    assert_eq!(other.ask("EXISTS q"), "0");
}
