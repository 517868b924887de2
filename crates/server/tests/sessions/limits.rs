//! What bounds clients: their number, their silence, and the memory of their requests
//! and replies.

use crate::harness::{Peer, TestServer};
use config::{Config, MaxmemoryPolicy, Origin};
use server::server::Server;
use std::io::{Read, Write};
use std::sync::atomic::Ordering;
use sys::{Clock, UnixMs};
use wire::Value;

const MIB: usize = 1 << 20;

/// Makes replies of so many MiB pile up for a client that does not read.
fn pile_up(peer: &mut Peer, mib: usize) {
    peer.send(&["SETRANGE mib 1048575 x"]);
    peer.text();
    peer.send(&vec!["GET mib"; mib]);
}

fn output_bytes(server: &Server, id: u64) -> usize {
    server.net.clients.get(id).map_or(0, |client| client.output_bytes.load(Ordering::Relaxed))
}

#[test]
fn clients_beyond_maxclients_are_told_and_closed() {
    let server = TestServer::start("maxclients 3");
    let mut peers: Vec<Peer> = (0..3).map(|_| server.connect()).collect();
    peers.iter_mut().for_each(|peer| assert_eq!(peer.ask("PING"), "PONG"));
    let mut refused = server.connect();
    assert_eq!(refused.texts(2), ["ERR max number of clients reached", "END"]);
    assert_eq!(server.server.counts.rejected_connections.get(), 1);
    peers.pop();
    server.wait_until("there is room", || server.server.net.placement.connections() == 2);
    assert_eq!(server.connect().ask("PING"), "PONG");
}

#[test]
fn connections_are_spread_evenly_over_workers() {
    let server = TestServer::start("");
    let mut peers: Vec<Peer> = (0..20).map(|_| server.connect()).collect();
    peers.iter_mut().for_each(|peer| assert_eq!(peer.ask("PING"), "PONG"));
    assert_eq!(
        [server.server.net.placement.connections_of(0), server.server.net.placement.connections_of(1)],
        [10, 10]
    );
    peers.truncate(10);
    server.wait_until("half are gone", || server.server.net.placement.connections() == 10);
    peers.extend((0..10).map(|_| server.connect()));
    peers.iter_mut().for_each(|peer| assert_eq!(peer.ask("PING"), "PONG"));
    assert_eq!(
        [server.server.net.placement.connections_of(0), server.server.net.placement.connections_of(1)],
        [10, 10]
    );
}

#[test]
fn silent_clients_are_closed_and_monitors_are_not() {
    let clock = Clock::simulated(UnixMs(1_000_000));
    let server = TestServer::start_at(clock.clone(), "timeout 30");
    let (mut silent, mut monitor, mut lively) = (server.connect(), server.connect(), server.connect());
    let id = monitor.id();
    let client = server.server.net.clients.get(id).unwrap();
    client.set_trait(net::client::Traits::MONITOR, true);
    assert_eq!(silent.ask("PING"), "PONG");
    clock.advance_ms(29_000);
    assert_eq!(lively.ask("PING"), "PONG");
    clock.advance_ms(2_000);
    assert_eq!(silent.text(), "END");
    assert_eq!(lively.ask("PING"), "PONG");
    assert_eq!(monitor.ask("PING"), "PONG");
    client.set_trait(net::client::Traits::MONITOR, false);
}

#[test]
fn limits_below_what_redis_does_not_count_close_nobody_for_a_short_reply() {
    let server = TestServer::start("client-output-buffer-limit normal 1 2 3");
    let mut peer = server.connect();
    peer.ask(&format!("SET short {}", "x".repeat(10_000)));
    assert_eq!(peer.ask("GET short").len(), 10_000);
}

#[test]
fn slow_reader_beyond_the_hard_limit_is_closed() {
    let server = TestServer::start("client-output-buffer-limit normal 8mb 0 0");
    let mut slow = server.connect();
    slow.id();
    pile_up(&mut slow, 40);
    server.wait_until("it is closed", || server.server.net.placement.connections() == 0);
    assert_eq!(server.server.net.clients.output_limit_disconnections.get(), 1);
    assert_eq!(server.server.net.clients.buffer_bytes.get(), 0);
}

#[test]
fn slow_reader_above_the_soft_limit_is_closed_after_its_time() {
    let clock = Clock::simulated(UnixMs(1_000_000));
    let server = TestServer::start_at(clock.clone(), "client-output-buffer-limit normal 0 2mb 10");
    let mut slow = server.connect();
    let id = slow.id();
    pile_up(&mut slow, 16);
    let client = server.server.net.clients.get(id).unwrap();
    server.wait_until("it is above", || client.over_soft_limit_since_ms.load(Ordering::Relaxed) > 0);
    clock.advance_ms(9_000);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert_eq!(server.server.net.placement.connections(), 1);
    clock.advance_ms(2_000);
    server.wait_until("it is closed", || server.server.net.placement.connections() == 0);
}

#[test]
fn slow_reader_gets_everything_in_order() {
    let server = TestServer::start("");
    let mut slow = server.connect();
    let id = slow.id();
    for number in 0..40 {
        slow.send(&[&format!("SETRANGE {number} {} {number}", MIB - 4)]);
        slow.text();
    }
    let requests: Vec<String> = (0..40).map(|number| format!("GET {number}")).collect();
    slow.send(&requests.iter().map(String::as_str).collect::<Vec<_>>());
    server.wait_until("replies pile up", || output_bytes(&server.server, id) > 20 * MIB);
    let line = server.connect().ask(&format!("CLIENT LIST ID {id}"));
    assert!(line.contains(" events=rw ") && !line.contains(" omem=0 "), "{line}");
    for number in 0..40 {
        let Some(Value::Bulk(bytes)) = slow.reply() else { panic!("reply {number}") };
        assert!(bytes.ends_with(number.to_string().as_bytes()) && bytes.len() >= MIB - 3, "{number}");
    }
    assert_eq!(slow.ask("PING"), "PONG");
    server.wait_until("memory is given back", || server.server.net.clients.buffer_bytes.get() == 0);
}

#[test]
fn a_large_reply_is_held_once_and_given_back_as_it_is_read() {
    const BYTES: usize = 128 * MIB;
    let server = TestServer::start("");
    let mut slow = server.connect();
    let id = slow.id();
    assert_eq!(slow.ask(&format!("SETRANGE big {} x", BYTES - 1)), BYTES.to_string());
    slow.send(&["GET big"]);
    server.wait_until("it waits", || output_bytes(&server.server, id) > BYTES / 2);
    let buffered = server.server.net.clients.buffer_bytes.get() as usize;
    assert!(buffered < BYTES + MIB, "{buffered}");
    assert!(matches!(slow.reply(), Some(Value::Bulk(bytes)) if bytes.len() == BYTES));
}

#[test]
fn a_large_request_arrives_in_any_pieces() {
    const BYTES: usize = 64 * MIB;
    let server = TestServer::start("");
    let mut peer = server.connect();
    let head = format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${BYTES}\r\n");
    peer.stream.write_all(head.as_bytes()).unwrap();
    let piece = vec![b'a'; MIB];
    (0..BYTES / MIB).for_each(|_| peer.stream.write_all(&piece).unwrap());
    peer.stream.write_all(b"\r\nPING\r\n").unwrap();
    assert_eq!(peer.texts(2), ["OK", "PONG"]);
    assert_eq!(peer.ask("STRLEN big"), BYTES.to_string());
    server.wait_until("memory is given back", || server.server.net.clients.buffer_bytes.get() == 0);
}

#[test]
fn requests_beyond_the_query_buffer_limit_close_the_connection() {
    let server = TestServer::start("client-query-buffer-limit 1mb");
    let mut peer = server.connect();
    peer.id();
    // The server may close before all is sent.
    let _ = peer.stream.write_all(b"*2\r\n$3\r\nGET\r\n$4194304\r\n");
    let _ = peer.stream.write_all(&vec![b'a'; 4 * MIB]);
    let mut rest = Vec::new();
    let _ = peer.stream.read_to_end(&mut rest);
    assert!(rest.is_empty());
    server.wait_until("it is closed", || server.server.net.placement.connections() == 0);
    assert_eq!(server.server.counts.query_limit_disconnections.get(), 1);
}

#[test]
fn largest_clients_are_evicted_first_and_the_protected_are_spared() {
    let server = TestServer::start("maxmemory-clients 30mb");
    let mut peers: Vec<Peer> = (0..4).map(|_| server.connect()).collect();
    let ids: Vec<u64> = peers.iter_mut().map(Peer::id).collect();
    assert_eq!(peers[0].ask("CLIENT NO-EVICT ON"), "OK");
    pile_up(&mut peers[0], 18);
    server.wait_until("the first waits", || output_bytes(&server.server, ids[0]) > 12 * MIB);
    // Far less than what is left for the third when all together have too much.
    pile_up(&mut peers[1], 6);
    server.wait_until("the second waits", || output_bytes(&server.server, ids[1]) > MIB);
    assert_eq!(server.server.net.placement.connections(), 4);
    pile_up(&mut peers[2], 30);
    server.wait_until("somebody is evicted", || server.server.net.clients.evicted.get() > 0);
    let mut watcher = server.connect();
    let list = watcher.ask("CLIENT LIST");
    assert!(list.contains(&format!("id={} ", ids[0])), "it asked to be spared: {list}");
    assert!(!list.contains(&format!("id={} ", ids[2])), "it was the largest: {list}");
    assert_eq!(peers[3].ask("PING"), "PONG");
}

#[test]
fn a_request_that_alone_is_too_much_is_not_run() {
    let server = TestServer::start("maxmemory-clients 3mb");
    let mut watcher = server.connect();
    for _ in 0..5 {
        let mut peer = server.connect();
        assert_eq!(peer.ask("CLIENT SETNAME greedy"), "OK");
        let mut request = Vec::new();
        wire::encode_request(&mut request, &[b"MSET", b"k", b"v", b"k2", &vec![b'v'; 3 * MIB]]);
        // The server may close before all is sent.
        let _ = peer.stream.write_all(&request);
        let mut rest = Vec::new();
        let _ = peer.stream.read_to_end(&mut rest);
        assert_eq!(rest, b"");
        assert!(!watcher.ask("CLIENT LIST").contains("name=greedy"));
    }
    assert_eq!(watcher.ask("EXISTS k k2"), "0");
}

#[test]
fn nobody_sees_a_client_above_the_limit_that_it_goes_for() {
    let server = TestServer::start("maxmemory-clients 3mb");
    let mut watcher = server.connect();
    assert_eq!(watcher.ask("CLIENT NO-EVICT ON"), "OK");
    assert_eq!(watcher.ask(&format!("SETRANGE k {} v", 200_000)), "200001");
    for _ in 0..5 {
        let mut peer = server.connect();
        let id = peer.id();
        pile_up(&mut peer, 30);
        while let Some(client) = server.server.net.clients.get(id) {
            assert!(client.memory_bytes() <= 3 * MIB, "{}", client.memory_bytes());
        }
    }
}

#[test]
fn a_lower_limit_holds_when_config_set_has_answered() {
    const PEERS: usize = 10;
    let server = TestServer::start("maxmemory-clients 4mb");
    let mut watcher = server.connect();
    let mut peers: Vec<Peer> = (0..PEERS).map(|_| server.connect()).collect();
    for peer in &mut peers {
        assert_eq!(peer.ask("CLIENT SETNAME filled"), "OK");
        let len = 300_000;
        let begun = [format!("*2\r\n$3\r\nGET\r\n${}\r\n", len + 1).as_bytes(), &vec![b'a'; len]].concat();
        peer.stream.write_all(&begun).unwrap();
    }
    server.wait_until("all is there", || server.server.net.clients.buffer_bytes.get() >= 3_000_000);
    assert_eq!(watcher.ask("CONFIG SET maxmemory-clients 2mb"), "OK");
    let left = watcher.ask("CLIENT LIST").matches("name=filled").count();
    assert!(0 < left && left < PEERS, "{left} are left");
}

#[test]
fn busy_pipelines_do_not_starve_their_neighbours() {
    let server = TestServer::start("threads 2");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let mut busy: Vec<Peer> = (0..4).map(|_| server.connect()).collect();
    let mut quiet: Vec<Peer> = (0..2).map(|_| server.connect()).collect();
    let slowest = std::thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        for peer in &mut busy {
            let (mut from, mut to) = (peer.stream.try_clone().unwrap(), &peer.stream);
            let is_over = &is_over;
            scope.spawn(move || std::io::copy(&mut from, &mut std::io::sink()));
            scope.spawn(move || {
                let batch = b"GET nothing\r\n".repeat(5000);
                while !is_over.load(Ordering::Relaxed) {
                    to.write_all(&batch).unwrap();
                }
                let _ = to.shutdown(std::net::Shutdown::Write);
            });
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        let took = quiet.iter_mut().map(|peer| {
            let begun = std::time::Instant::now();
            (0..3).for_each(|_| assert_eq!(peer.ask("PING"), "PONG"));
            begun.elapsed() / 3
        });
        let slowest = took.max().unwrap();
        is_over.store(true, Ordering::Relaxed);
        slowest
    });
    // A worker gives each connection one turn before it looks at its sockets again;
    // turns are slow in a debug build.
    assert!(slowest < std::time::Duration::from_secs(60), "{slowest:?}");
}

#[test]
fn every_eviction_policy_is_known_to_the_keyspace() {
    let config = Config::defaults();
    for word in MaxmemoryPolicy::WORDS {
        config.set(&[("maxmemory-policy", word)], Origin::Local).unwrap();
        assert_eq!(config.maxmemory_policy().word(), *word);
        assert!(keyspace::Eviction::from_name(word).is_some(), "{word}");
    }
}
