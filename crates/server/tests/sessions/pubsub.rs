//! Publish and subscribe over sockets, with subscribers on both workers.

use super::harness::{Peer, TestServer};
use std::collections::HashMap;
use wire::Value;

fn words(value: Option<Value>) -> Vec<String> {
    let Some(Value::Array(items) | Value::Push(items)) = value else { panic!("no message: {value:?}") };
    items
        .iter()
        .map(|item| match item {
            Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Value::Int(number) => number.to_string(),
            other => format!("{other:?}"),
        })
        .collect()
}

fn message(peer: &mut Peer) -> Vec<String> {
    words(peer.reply())
}

#[test]
fn every_subscriber_gets_every_message_once_and_in_one_order() {
    const PUBLISHERS: usize = 3;
    const MESSAGES: usize = 2000;
    let server = TestServer::start("");
    let mut listeners: Vec<Peer> = (0..6).map(|_| server.connect()).collect();
    for (at, listener) in listeners.iter_mut().enumerate() {
        if at % 2 == 1 {
            listener.ask("HELLO 3");
        }
        listener.send(&["SUBSCRIBE c", if at % 3 == 0 { "PSUBSCRIBE c*" } else { "SUBSCRIBE other" }]);
        (0..2).for_each(|_| drop(message(listener)));
    }
    std::thread::scope(|scope| {
        for publisher in 0..PUBLISHERS {
            let mut peer = server.connect();
            scope.spawn(move || {
                for from in (0..MESSAGES).step_by(100) {
                    let lines: Vec<String> =
                        (from..from + 100).map(|number| format!("PUBLISH c {publisher}:{number}")).collect();
                    peer.send(&lines.iter().map(String::as_str).collect::<Vec<_>>());
                    assert_eq!(peer.texts(100), vec!["8"; 100]);
                }
            });
        }
        let readers: Vec<_> = listeners
            .iter_mut()
            .enumerate()
            .map(|(at, listener)| scope.spawn(move || read_all(listener, at % 3 == 0, PUBLISHERS * MESSAGES)))
            .collect();
        let orders: Vec<Vec<String>> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        assert!(orders.windows(2).all(|pair| pair[0] == pair[1]), "all see one order");
        let mut next: HashMap<&str, usize> = HashMap::new();
        for text in &orders[0] {
            let (publisher, number) = text.split_once(':').unwrap();
            let expected = next.entry(publisher).or_default();
            assert_eq!(
                number.parse::<usize>().unwrap(),
                *expected,
                "a publisher's messages keep their order"
            );
            *expected += 1;
        }
    });
    assert!(listeners.iter_mut().all(Peer::is_silent));
}

/// The texts on the channel; by way of a pattern come the same.
fn read_all(listener: &mut Peer, has_pattern: bool, count: usize) -> Vec<String> {
    let (mut direct, mut matched) = (Vec::new(), Vec::new());
    for _ in 0..count * (1 + usize::from(has_pattern)) {
        let words = message(listener);
        match words[0].as_str() {
            "message" => direct.push(words[2].clone()),
            "pmessage" => matched.push(words[3].clone()),
            other => panic!("{other}"),
        }
    }
    assert!(!has_pattern || direct == matched);
    direct
}

#[test]
fn no_message_comes_behind_the_end_of_its_subscription() {
    let server = TestServer::start("");
    let mut publisher = server.connect();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = testkit::Ends(&stop);
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                publisher.send(&["PUBLISH c m"; 20]);
                publisher.texts(20);
            }
        });
        let mut listeners: Vec<Peer> = (0..2).map(|_| server.connect()).collect();
        for round in 0..300 {
            let listener = &mut listeners[round % 2];
            listener.send(&["SUBSCRIBE c"]);
            assert_eq!(message(listener), ["subscribe", "c", "1"]);
            listener.send(&["UNSUBSCRIBE c", "ECHO done"]);
            while message(listener)[0] != "unsubscribe" {}
            assert_eq!(listener.text(), "done");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_subscriber_that_does_not_read_is_closed_and_others_are_not() {
    let server = TestServer::start("client-output-buffer-limit pubsub 1mb 0 0");
    let (mut slow, mut quick, mut publisher) = (server.connect(), server.connect(), server.connect());
    for peer in [&mut slow, &mut quick] {
        peer.send(&["SUBSCRIBE c"]);
        message(peer);
    }
    let text = "x".repeat(32 << 10);
    let mut receivers = String::new();
    for _ in 0..1000 {
        receivers = publisher.ask(&format!("PUBLISH c {text}"));
        assert_eq!(message(&mut quick)[2].len(), text.len());
        if receivers == "1" {
            break;
        }
    }
    assert_eq!(receivers, "1");
    assert!(publisher.ask("INFO stats").contains("client_output_buffer_limit_disconnections:1\r\n"));
    assert_eq!(publisher.ask("PUBSUB NUMSUB c"), "Array([Bulk([99]), Int(1)])");
}

#[test]
fn a_subscriber_above_the_soft_limit_for_too_long_is_closed() {
    let server = TestServer::start("client-output-buffer-limit pubsub 0 1mb 1");
    let (mut slow, mut publisher) = (server.connect(), server.connect());
    slow.send(&["SUBSCRIBE c"]);
    message(&mut slow);
    let text = "x".repeat(32 << 10);
    (0..400).for_each(|_| drop(publisher.ask(&format!("PUBLISH c {text}"))));
    server.wait_until("it is closed", || server.server.net.clients.count() == 1);
}

#[test]
fn clients_show_their_subscriptions() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    peer.ask("HELLO 3");
    peer.send(&["SUBSCRIBE a b", "PSUBSCRIBE p", "SSUBSCRIBE s"]);
    (0..4).for_each(|_| drop(message(&mut peer)));
    let fields = ["sub", "psub", "ssub", "flags"].map(|name| peer.field(name));
    assert_eq!(fields, ["2", "1", "1", "P"]);
    let stats = peer.ask("INFO");
    for line in ["pubsub_channels:2", "pubsub_patterns:1", "pubsubshard_channels:1", "pubsub_clients:1"] {
        assert!(stats.contains(&format!("{line}\r\n")), "{line}");
    }
    assert_eq!(peer.ask("RESET"), "RESET");
    let fields = ["sub", "psub", "ssub", "flags"].map(|name| peer.field(name));
    assert_eq!(fields, ["0", "0", "0", "N"]);
}

#[test]
fn expired_keys_are_told_of_before_what_takes_their_place() {
    let server = TestServer::start("notify-keyspace-events KEAmn");
    let (mut listener, mut peer) = (server.connect(), server.connect());
    listener.send(&["PSUBSCRIBE __keyspace@0__:*"]);
    message(&mut listener);
    server.server.engine.keyspace.set_active_expiry(false);
    // Its time begins with its command, however late that comes.
    assert_eq!(peer.ask("SET k v PX 1"), "OK");
    std::thread::sleep(std::time::Duration::from_millis(3));
    peer.send(&["SET k w", "GET missing", "DEL k", "SET l v PX 1"]);
    let mut events: Vec<String> = (0..9).map(|_| message(&mut listener)[3].clone()).collect();
    server.server.engine.keyspace.set_active_expiry(true);
    events.push(message(&mut listener)[3].clone());
    events.push(message(&mut listener)[3].clone());
    let expected =
        ["new", "set", "expire", "expired", "new", "set", "keymiss", "del", "new", "set", "expire"];
    assert_eq!(events, expected);
    assert_eq!(message(&mut listener)[2..], ["__keyspace@0__:l", "expired"]);
}
