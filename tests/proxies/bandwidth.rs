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

/// Several clients write and read for so long; gives how many bytes each has moved.
fn move_for(proxied: &Proxied, clients: usize, time: Duration) -> Vec<usize> {
    let (is_over, value) = (AtomicBool::new(false), "v".repeat(10_000));
    let moved: Vec<AtomicUsize> = (0..clients).map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
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
        thread::sleep(time);
        let moved = moved.iter().map(|moved| moved.load(Ordering::Relaxed)).collect();
        is_over.store(true, Ordering::Relaxed);
        moved
    })
}

#[test]
fn no_more_is_moved_than_may_be_and_each_client_has_its_turn() {
    let proxied = Proxied::begin(2, &["--proxy-bandwidth-limit", "1mb"]);
    let moved = move_for(&proxied, 8, Duration::from_secs(4));
    let all: usize = moved.iter().sum();
    // And as much again while it is told of.
    assert!((2 << 20..5 << 20).contains(&all), "{moved:?}");
    let (least, most) = (moved.iter().min().unwrap(), moved.iter().max().unwrap());
    assert!(least * 2 > *most, "{moved:?}");
    let mut client = proxied.proxy.connect().unwrap();
    let held_back = told(&mut client, "bandwidth_held_back_ms");
    assert!(held_back > 10_000, "{held_back}");
    assert_eq!(call_line(&mut client, "CONFIG SET proxy-bandwidth-limit 0"), ok());
    let all: usize = move_for(&proxied, 8, Duration::from_secs(2)).iter().sum();
    assert!(all > 5 << 20, "{all}");
    assert_eq!(told(&mut client, "bandwidth_held_back_clients"), 0);
    assert!(ask(&mut client, &["INFO", "clients"]).contains("paused_clients:0\r"));
    assert_eq!(told(&mut client, "bandwidth_held_back_ms") / 1000, held_back / 1000);
}

#[test]
fn a_reply_that_is_too_long_comes_whole_and_holds_others_back_for_ten_seconds_at_most() {
    let proxied = Proxied::begin(1, &[]);
    let mut client = proxied.proxy.connect().unwrap();
    let value = "v".repeat(4 << 20);
    assert_eq!(call(&mut client, &["SET", "large", &value]), ok());
    let (mut second, mut third) = (proxied.proxy.connect().unwrap(), proxied.proxy.connect().unwrap());
    assert_eq!(call_line(&mut client, "CONFIG SET proxy-bandwidth-limit 100kb"), ok());
    thread::sleep(Duration::from_millis(300));
    assert_eq!(call(&mut client, &["GET", "large"]), text(&value));
    let began = Instant::now();
    // Who goes away meanwhile is done with; what it has sent is done.
    let mut gone = proxied.proxy.connect().unwrap();
    gone.send_request(&["SET", "gone", "said"]).unwrap();
    drop(gone);
    // A request that comes bit by bit is read on when its turn comes.
    let mut request = Vec::new();
    encode_request(&mut request, &[b"SET", b"bits", &[b'b'; 30_000]]);
    third.stream().write_all(&request[..10_000]).unwrap();
    thread::sleep(Duration::from_millis(200));
    third.stream().write_all(&request[10_000..]).unwrap();
    assert_eq!(call(&mut second, &["SET", "k", "v"]), ok());
    let took = began.elapsed();
    assert!((Duration::from_secs(7)..Duration::from_secs(14)).contains(&took), "{took:?}");
    assert_eq!(third.read_value().unwrap(), ok());
    assert_eq!(call_line(&mut second, "CONFIG SET proxy-bandwidth-limit 0"), ok());
    assert_eq!(call_line(&mut second, "STRLEN bits"), wire::Value::Int(30_000));
    assert_eq!(call_line(&mut second, "GET gone"), text("said"));
    wait_until("it is gone", || ask(&mut second, &["INFO", "clients"]).contains("connected_clients:3\r"));
}
