//! A proxy that moves no more than so many bytes a second: clients wait for their turns, and nothing else happens to them.

use super::Proxied;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::Client;
use testkit::ask::{ask, call, call_line, ok, text, wait_until};
use wire::encode_request;

/// A number of INFO's section of shards.
fn told(client: &mut Client, name: &str) -> u64 {
    let info = ask(client, &["INFO", "shards"]);
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok()).unwrap()
}

/// Several clients write and read until each has moved so much; gives how much that was, and how long it took.
fn move_all(proxied: &Proxied, clients: usize, bytes: usize) -> (usize, Duration) {
    let (is_over, value) = (AtomicBool::new(false), "v".repeat(10_000));
    let moved: Vec<AtomicUsize> = (0..clients).map(|_| AtomicUsize::new(0)).collect();
    let began = Instant::now();
    thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        for (number, moved) in moved.iter().enumerate() {
            let (is_over, value) = (&is_over, &value);
            scope.spawn(move || {
                let mut client = proxied.proxy.connect().unwrap();
                let key = format!("k{number}");
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(call(&mut client, &["SET", &key, value]), ok());
                    moved.fetch_add(10_000, Ordering::Relaxed);
                    assert_eq!(call(&mut client, &["GET", &key]), text(value));
                    moved.fetch_add(10_000, Ordering::Relaxed);
                }
            });
        }
        // Nobody is passed over.
        wait_until("each has had its turns", || {
            moved.iter().all(|moved| moved.load(Ordering::Relaxed) >= bytes)
        });
        let all = moved.iter().map(|moved| moved.load(Ordering::Relaxed)).sum();
        (all, began.elapsed())
    })
}

#[test]
fn no_more_is_moved_than_may_be_and_each_client_has_its_turn() {
    let proxied = Proxied::begin(2, &["--proxy-bandwidth-limit", "1mb"]);
    let (all, took) = move_all(&proxied, 8, 1_000_000);
    // What each connection says first is served, what is under way comes to its end, and what is moved until somebody looks is moved: on a busy machine that may be
    // a while, but not for all of it.
    let bound = took.as_secs_f64() * f64::from(1 << 20) + f64::from(5 << 20);
    assert!((all as f64) < bound, "{all} in {took:?}");
    let mut client = proxied.proxy.connect().unwrap();
    let held_back = told(&mut client, "bandwidth_held_back_ms");
    assert!(held_back > 0, "nobody was held back");
    assert_eq!(call_line(&mut client, "CONFIG SET proxy-bandwidth-limit 0"), ok());
    wait_until("nobody is held back", || told(&mut client, "bandwidth_held_back_clients") == 0);
    let held_back = told(&mut client, "bandwidth_held_back_ms");
    move_all(&proxied, 8, 300_000);
    assert_eq!(told(&mut client, "bandwidth_held_back_clients"), 0);
    assert!(ask(&mut client, &["INFO", "clients"]).contains("paused_clients:0\r"));
    assert_eq!(told(&mut client, "bandwidth_held_back_ms"), held_back);
}

#[test]
fn a_reply_that_is_too_long_comes_whole_and_who_waits_for_its_turn_loses_nothing() {
    let proxied = Proxied::begin(1, &[]);
    let begin = || {
        let mut client = proxied.proxy.connect().unwrap();
        call(&mut client, &["PING"]);
        client
    };
    let mut client = begin();
    let value = "v".repeat(4 << 20);
    assert_eq!(call(&mut client, &["SET", "large", &value]), ok());
    let (mut second, mut third, mut gone) = (begin(), begin(), begin());
    assert_eq!(call_line(&mut client, "CONFIG SET proxy-bandwidth-limit 100kb"), ok());
    // What was moved before it was bounded does not count, and when it is looked at is the proxy's affair.
    wait_until("too much was moved", || {
        assert_eq!(call(&mut begin_anew(&proxied), &["GET", "large"]), text(&value));
        second.send_request(&["PING"]).unwrap();
        told(&mut begin_anew(&proxied), "bandwidth_held_back_clients") > 0
    });
    gone.send_request(&["SET", "gone", "said"]).unwrap();
    drop(gone);
    // A request that comes bit by bit is read on when its turn comes.
    let mut request = Vec::new();
    encode_request(&mut request, &[b"SET", b"bits", &[b'b'; 30_000]]);
    third.stream().write_all(&request[..10_000]).unwrap();
    third.stream().write_all(&request[10_000..]).unwrap();
    wait_until("they wait", || told(&mut begin_anew(&proxied), "bandwidth_held_back_clients") >= 2);
    // What a connection says first is served.
    assert_eq!(call_line(&mut begin_anew(&proxied), "CONFIG SET proxy-bandwidth-limit 0"), ok());
    assert_eq!(third.read_value().unwrap(), ok());
    assert_eq!(call_line(&mut third, "STRLEN bits"), wire::Value::Int(30_000));
    assert_eq!(call_line(&mut third, "GET gone"), text("said"));
}

/// A connection that has said nothing yet.
fn begin_anew(proxied: &Proxied) -> Client {
    proxied.proxy.connect().unwrap()
}
