//! What INFO, SLOWLOG and LATENCY of a proxy say of requests that it has passed on, and of those that it could not.

use super::{Proxied, beside_one_that_stands_still};
use crate::departures::signal;
use std::io::{ErrorKind, Read, Write};
use std::thread::sleep;
use std::time::Duration;
use testkit::Client;
use testkit::ask::{ask, call, call_line, is_error, ok, shown, wait_until};
use wire::{Value, encode_request};

/// The value of a field of INFO.
fn field(client: &mut Client, section: &str, name: &str) -> String {
    let info = ask(client, &["INFO", section]);
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_default().trim().to_owned()
}

#[test]
fn errors_are_counted_whoever_says_them_and_whichever_part_they_are_of() {
    let mut proxied = Proxied::begin(2, &[]);
    let (one, two) = (proxied.key(0), proxied.key(1));
    let mut client = proxied.proxy.connect().unwrap();
    assert_eq!(call(&mut client, &["MSET", &one, "1", &two, "2"]), ok());
    let mut shard = proxied.shards[1].connect().unwrap();
    assert_eq!(call_line(&mut shard, "CONFIG SET maxmemory 1"), ok());
    assert!(is_error(&call(&mut client, &["MSET", &one, "1", &two, "2"]), "OOM"));
    assert_eq!(field(&mut client, "errorstats", "errorstat_OOM"), "count=1");
    assert_eq!(field(&mut client, "stats", "total_error_replies"), "1");
    let counted = field(&mut client, "commandstats", "cmdstat_mset");
    assert!(counted.starts_with("calls=2,") && counted.ends_with("failed_calls=1"), "{counted}");
    // Though the client does not hear of it.
    client.send_request(&["CLIENT", "REPLY", "SKIP"]).unwrap();
    assert!(is_error(&call_after(&mut client, &["MSET", &one, "1", &two, "2"], &["SET", &two, "3"]), "OOM"));
    assert_eq!(field(&mut client, "errorstats", "errorstat_OOM"), "count=3");
    proxied.shards[1].kill();
    let mut errors = 3;
    wait_until("it is gone", || {
        errors += 1;
        shown(&call(&mut client, &["GET", &two])).contains("no connection to the shard")
    });
    for _ in 0..3 {
        errors += 1;
        assert!(is_error(&call(&mut client, &["MGET", &one, &two]), "ERR proxy: no connection"));
    }
    assert_eq!(field(&mut client, "stats", "total_error_replies"), errors.to_string());
    let counted = field(&mut client, "commandstats", "cmdstat_mget");
    assert!(counted.starts_with("calls=3,") && counted.ends_with("failed_calls=3"), "{counted}");
}

/// Sends a request whose reply is not wanted, and gives that to the one behind it.
fn call_after(client: &mut Client, first: &[&str], request: &[&str]) -> Value {
    client.send_request(first).unwrap();
    call(client, request)
}

/// All texts of a reply.
fn words(reply: &Value) -> String {
    match reply {
        Value::Array(elements) => elements.iter().map(words).collect::<Vec<_>>().join(" "),
        other => shown(other),
    }
}

#[test]
fn a_request_of_several_servers_takes_as_long_as_the_slowest() {
    let proxied =
        Proxied::begin(2, &["--slowlog-log-slower-than", "100000", "--latency-monitor-threshold", "100"]);
    let (one, two) = (proxied.key(0), proxied.key(1));
    let mut client = proxied.proxy.connect().unwrap();
    assert_eq!(call(&mut client, &["MSET", &one, "1", &two, "2"]), ok());
    for (request, name) in [(&["MGET", &one, &two][..], "mget"), (&["SINTER", "a", "b", "c"], "sinter")] {
        ask(&mut client, &["SLOWLOG", "RESET"]);
        signal(&proxied.shards[1], "-STOP");
        client.send_request(request).unwrap();
        sleep(Duration::from_millis(300));
        signal(&proxied.shards[1], "-CONT");
        client.read_value().unwrap();
        let logged = words(&call_line(&mut client, "SLOWLOG GET")).to_lowercase();
        let shard = format!("(shard {})", proxied.shards[1].address());
        assert!(logged.contains(name) && logged.contains(&shard), "{logged}");
        let took = field(&mut client, "latencystats", &format!("latency_percentiles_usec_{name}"));
        let took: f64 = took.rsplit('=').next().unwrap().parse().unwrap();
        assert!(took >= 250_000.0, "{took}");
    }
}

#[test]
fn parts_of_replies_count_to_what_a_client_may_be_owed() {
    let (proxied, client, [still, large]) = beside_one_that_stands_still();
    let mut requests = Vec::new();
    for _ in 0..20 {
        encode_request(&mut requests, &[b"MGET", still.as_bytes(), large.as_bytes()]);
    }
    client.stream().write_all(&requests).unwrap();
    let mut told = Vec::new();
    let closed = client.stream().read_to_end(&mut told).map_err(|error| error.kind());
    assert!(matches!(closed, Ok(_) | Err(ErrorKind::ConnectionReset)), "{closed:?}");
    signal(&proxied.shards[0], "-CONT");
    let mut client = proxied.proxy.connect().unwrap();
    assert_eq!(field(&mut client, "stats", "client_output_buffer_limit_disconnections"), "1");
    assert_eq!(call(&mut client, &["GET", &still]), Value::Null);
}

#[test]
fn info_tells_of_each_shard() {
    let mut proxied = Proxied::begin(2, &[]);
    let (one, two) = (proxied.key(0), proxied.key(1));
    let mut client = proxied.proxy.connect().unwrap();
    let addresses: Vec<String> = proxied.shards.iter().map(|shard| shard.address().to_string()).collect();
    let line = field(&mut client, "shards", "shard1");
    let idle = "role=master,slots=8192,links=0,under_way=0,requests=0,errors=0,connected=0,last_error=\"\"";
    assert_eq!(line, format!("addr={},{idle}", addresses[1]));
    for request in [&["SET", &one, "v"][..], &["INCR", &one], &["SET", &two, "v"]] {
        call(&mut client, request);
    }
    let line = field(&mut client, "default", "shard0");
    let busy = "links=1,under_way=0,requests=2,errors=1,connected=1,last_error=\"\"";
    assert_eq!(line, format!("addr={},role=master,slots=8192,{busy}", addresses[0]));
    let mut other = proxied.proxy.connect().unwrap();
    signal(&proxied.shards[0], "-STOP");
    other.send_request(&["GET", &one]).unwrap();
    wait_until("it is under way", || {
        field(&mut client, "shards", "shard0").contains("under_way=1,requests=3")
    });
    signal(&proxied.shards[0], "-CONT");
    other.read_value().unwrap();
    proxied.shards[0].kill();
    // Each worker finds that by itself.
    wait_until("it is gone", || {
        assert!(is_error(&call(&mut client, &["GET", &one]), ""));
        let line = field(&mut client, "shards", "shard0");
        line.contains("links=0,under_way=0,")
            && line.contains("connected=0")
            && line.ends_with("last_error=\"Connection refused\"")
    });
    assert!(
        field(&mut client, "shards", "shard1")
            .contains("links=1,under_way=0,requests=1,errors=0,connected=1")
    );
    assert_eq!(field(&mut client, "shards", "unserved_slots"), "0");
    assert_eq!(field(&mut client, "shards", "draining"), "0");
    assert!(!ask(&mut client, &["INFO", "stats"]).contains("# Shards"));
}
