//! Publish and subscribe through a proxy.

use super::Proxied;
use super::clusters::proxy_of;
use crate::bench_cluster::redis_cluster;
use crate::clusters::cluster::{self, Cluster};
use std::time::{Duration, Instant};
use testkit::ask::{ask, call, call_line, is_error, ok, text, wait_until};
use testkit::{Client, Program};
use topology::ShardId;
use wire::Value;

fn message(words: &[&str]) -> Value {
    Value::Array(words.iter().map(|word| text(word)).collect())
}

/// Has a client listen, and reads what it is told of that.
fn listen(client: &mut Client, words: &[&str]) {
    client.send_request(words).unwrap();
    for (number, name) in words.iter().skip(1).enumerate() {
        let told = client.read_value().unwrap();
        let Value::Array(told) = told else { panic!("{told:?}") };
        assert_eq!(told[1], text(name));
        assert!(matches!(told[2], Value::Int(count) if count > number as i64), "{told:?}");
    }
}

#[test]
fn who_listens_hears_what_is_published() {
    let proxied = Proxied::begin(3, &[]);
    let (mut one, mut two) = (proxied.proxy.connect().unwrap(), proxied.proxy.connect().unwrap());
    let channels: Vec<String> = (0..3).map(|shard| proxied.key(shard)).collect();
    let mut words = vec!["SUBSCRIBE"];
    words.extend(channels.iter().map(String::as_str));
    listen(&mut one, &words);
    listen(&mut two, &["SUBSCRIBE", &channels[1]]);
    listen(&mut two, &["PSUBSCRIBE", "key:*"]);
    let mut client = proxied.proxy.connect().unwrap();
    // A client of the server itself counts as one.
    let mut direct = proxied.shards[1].connect().unwrap();
    listen(&mut direct, &["SUBSCRIBE", &channels[1]]);
    for round in 0..3 {
        for (channel, count) in channels.iter().zip([2, 4, 2]) {
            let said = format!("{round} {channel}");
            assert_eq!(call(&mut client, &["PUBLISH", channel, &said]), Value::Int(count), "{channel}");
            assert_eq!(one.read_value().unwrap(), message(&["message", channel, &said]));
            if *channel == channels[1] {
                assert_eq!(two.read_value().unwrap(), message(&["message", channel, &said]));
                assert_eq!(direct.read_value().unwrap(), message(&["message", channel, &said]));
            }
            assert_eq!(two.read_value().unwrap(), message(&["pmessage", "key:*", channel, &said]));
        }
    }
    // What is published at the server is heard, too.
    assert_eq!(
        call(&mut proxied.shards[2].connect().unwrap(), &["PUBLISH", &channels[2], "by itself"]),
        Value::Int(2)
    );
    assert_eq!(one.read_value().unwrap(), message(&["message", &channels[2], "by itself"]));
    assert_eq!(call(&mut client, &["PUBLISH", "nobody", "x"]), Value::Int(0));
    assert_eq!(call_line(&mut client, "PUBSUB NUMPAT"), Value::Int(1));
    assert_eq!(
        call(&mut client, &["PUBSUB", "NUMSUB", &channels[1]]),
        Value::Array(vec![text(&channels[1]), Value::Int(2)])
    );
    // It is for channels only, until it listens to none.
    assert!(is_error(&call(&mut one, &["GET", "k"]), "ERR Can't execute 'get'"));
    one.send_request(&["UNSUBSCRIBE"]).unwrap();
    (0..3).for_each(|_| drop(one.read_value().unwrap()));
    assert_eq!(call(&mut one, &["SET", "k", "v"]), ok());
    // A transaction publishes at its shard.
    assert_eq!(call_line(&mut client, "MULTI"), ok());
    assert_eq!(call(&mut client, &["PUBLISH", &channels[1], "in one"]), Value::Simple(b"QUEUED".to_vec()));
    assert!(is_error(&call(&mut client, &["SET", &channels[0], "v"]), "CROSSSLOT"));
    assert_eq!(call_line(&mut client, "DISCARD"), ok());
    // Nobody listens any more: neither does the proxy.
    drop((one, two));
    let mut shard = proxied.shards[0].connect().unwrap();
    wait_until("nobody listens", || ask(&mut shard, &["INFO", "stats"]).contains("pubsub_patterns:0"));
}

#[test]
fn both_protocols_shard_channels_and_events_are_heard() {
    let proxied = Proxied::of((&Program::Redis, &["--notify-keyspace-events", "KEA"]), 2, &[]);
    let mut one = proxied.proxy.connect().unwrap();
    one.send_request(&["HELLO", "3"]).unwrap();
    one.read_value().unwrap();
    let push = |words: &[&str]| Value::Push(words.iter().map(|word| text(word)).collect());
    one.send_request(&["SSUBSCRIBE", "shard"]).unwrap();
    assert!(matches!(one.read_value().unwrap(), Value::Push(_)));
    one.send_request(&["SUBSCRIBE", "__keyevent@3__:set"]).unwrap();
    assert!(matches!(one.read_value().unwrap(), Value::Push(_)));
    let mut client = proxied.proxy.connect().unwrap();
    assert_eq!(call(&mut client, &["SPUBLISH", "shard", "said"]), Value::Int(1));
    assert_eq!(one.read_value().unwrap(), push(&["smessage", "shard", "said"]));
    assert_eq!(call(&mut client, &["SELECT", "3"]), ok());
    for shard in 0..2 {
        assert_eq!(call(&mut client, &["SET", &proxied.key(shard), "v"]), ok());
        assert_eq!(one.read_value().unwrap(), push(&["message", "__keyevent@3__:set", &proxied.key(shard)]));
    }
    // Who speaks the newer one may ask for other things meanwhile.
    assert_eq!(call(&mut one, &["PING"]), Value::Simple(b"PONG".to_vec()));
}

#[test]
fn who_may_have_missed_something_is_closed() {
    let mut proxied = Proxied::begin(2, &[]);
    let (mut one, mut two) = (proxied.proxy.connect().unwrap(), proxied.proxy.connect().unwrap());
    listen(&mut one, &["SUBSCRIBE", &proxied.key(0)]);
    listen(&mut two, &["SUBSCRIBE", &proxied.key(1)]);
    proxied.shards[0].kill();
    assert!(one.read_value().is_err());
    let mut client = proxied.proxy.connect().unwrap();
    let refused = call(&mut client, &["SUBSCRIBE", &proxied.key(0)]);
    assert!(is_error(&refused, "ERR proxy: no connection to the shard"), "{refused:?}");
    assert_eq!(call(&mut client, &["PUBLISH", &proxied.key(1), "x"]), Value::Int(1));
    assert_eq!(two.read_value().unwrap(), message(&["message", &proxied.key(1), "x"]));
    assert!(is_error(&call(&mut client, &["PSUBSCRIBE", "*"]), "ERR proxy: no connection to the shard"));
    listen(&mut client, &["SUBSCRIBE", &proxied.key(1)]);
}

#[test]
fn nodes_of_a_cluster_are_heard_once() {
    let nodes = redis_cluster();
    let proxy = proxy_of(&nodes[0].address().to_string(), &["--databases", "1"]);
    let (mut one, mut client) = (proxy.connect().unwrap(), proxy.connect().unwrap());
    listen(&mut one, &["SUBSCRIBE", "a", "b", "c"]);
    listen(&mut one, &["PSUBSCRIBE", "*"]);
    for channel in ["a", "b", "c", "d"] {
        let by =
            [&mut client, &mut nodes[1].connect().unwrap()].map(|by| call(by, &["PUBLISH", channel, "x"]));
        assert_eq!(by[0], Value::Int(if channel == "d" { 1 } else { 2 }));
        // By name and by pattern it comes over two connections: in any order.
        let wanted = if channel == "d" { 2 } else { 4 };
        let mut told: Vec<Value> = (0..wanted).map(|_| one.read_value().unwrap()).collect();
        told.retain(|said| *said != message(&["pmessage", "*", channel, "x"]));
        assert_eq!(told, vec![message(&["message", channel, "x"]); wanted - 2]);
    }
    listen(&mut one, &["SSUBSCRIBE", "s"]);
    assert_eq!(call(&mut client, &["SPUBLISH", "s", "x"]), Value::Int(1));
    assert_eq!(one.read_value().unwrap(), message(&["smessage", "s", "x"]));
}

/// Nobody asks for anything but to listen, by which the proxy would find out that another has become master.
#[test]
fn who_listens_does_so_soon_at_who_has_become_master() {
    /// Before a proxy asks by itself.
    const SOON: Duration = Duration::from_secs(9);
    let mut cluster = Cluster::begin(1, 2, &["--edition", "memory"]);
    // The machine may be busy.
    let is_soon = (0..3).any(|_| {
        cluster.wait_until_whole();
        let topology = cluster.topology_before();
        let master = topology.master_of(ShardId(0)).unwrap().id;
        let places: Vec<String> = topology.servers.keys().map(|id| cluster.place_of(*id)).collect();
        let begun = Instant::now();
        let proxy = proxy_of(&places.join(","), &[]);
        let mut client = proxy.connect().unwrap();
        listen(&mut client, &["SUBSCRIBE", "c"]);
        cluster.terminate(master);
        assert!(client.read_value().is_err());
        cluster::wait_until("it is heard", || {
            let mut client = proxy.connect().unwrap();
            !is_error(&call(&mut client, &["SUBSCRIBE", "c"]), "ERR proxy: no connection to the shard")
        });
        let is_soon = begun.elapsed() < SOON;
        cluster.restart(master);
        is_soon
    });
    assert!(is_soon);
}

/// A node that was away takes requests before others hear it: who listens again is told that it does behind that.
#[test]
fn who_listens_again_hears_what_is_published_at_a_node_that_was_away() {
    let cluster = Cluster::begin(1, 1, &["--edition", "memory"]);
    let id = *cluster.topology_before().servers.keys().next().unwrap();
    let proxy = proxy_of(&cluster.place_of(id), &[]);
    let mut listener = proxy.connect().unwrap();
    listen(&mut listener, &["PSUBSCRIBE", "*"]);
    let lost = Instant::now();
    assert_eq!(call_line(&mut cluster.connect_loaded(id), "CLIENT KILL TYPE pubsub"), Value::Int(1));
    assert!(listener.read_value().is_err());
    let mut again = proxy.connect().unwrap();
    listen(&mut again, &["PSUBSCRIBE", "*"]);
    assert!(lost.elapsed() >= Duration::from_secs(1), "others may not hear it yet");
    assert_eq!(call_line(&mut proxy.connect().unwrap(), "PUBLISH a b"), Value::Int(1));
    assert_eq!(again.read_value().unwrap(), message(&["pmessage", "*", "a", "b"]));
}
