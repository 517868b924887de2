//! What takes from the first of several keys that has something, where the keys are several servers': as from one, nothing twice, and nothing for who has gone.

use super::Proxied;
use super::own::await_blocked;
use crate::{tarn, tarn_path};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use testkit::ask::{ask, call, call_line, is_error, shown, text, wait_until};
use testkit::{Program, Server};
use wire::Value;

fn begin() -> Proxied {
    Proxied::of((&Program::Tarn(tarn_path()), &[]), 3, &[])
}

#[test]
fn what_takes_from_the_first_key_that_has_something_takes_as_at_one_server() {
    let proxied = begin();
    let alone = Server::start(tarn(), &[]).unwrap();
    let mut clients = [proxied.proxy.connect().unwrap(), alone.connect().unwrap()];
    let keys = [2, 0, 1].map(|shard| proxied.key(shard));
    let [a, b, c] = &keys;
    let lines = [
        format!("RPUSH {b} 1 2 3 4 5"),
        format!("RPUSH {c} 6 7"),
        format!("LMPOP 3 {a} {b} {c} LEFT"),
        format!("LMPOP 3 {c} {b} {a} RIGHT COUNT 2"),
        format!("BLPOP {a} {b} {c} 0"),
        format!("BRPOP {a} {b} {c} 1"),
        format!("BLMPOP 0 2 {a} {b} LEFT COUNT 5"),
        format!("LMPOP 2 {a} {b} LEFT COUNT 5"),
        format!("LMPOP 2 {a} {b} MIDDLE"),
        format!("LMPOP 2 {a} {b} LEFT COUNT 0"),
        format!("BLMPOP 0 2 {a} {b} LEFT COUNT x"),
        format!("BLMPOP 0.05 2 {a} {b} LEFT"),
        format!("BLPOP {a} {b} -1"),
        format!("BLPOP {a} {b} x"),
        format!("BLPOP {a} {b} 0.05"),
        format!("ZADD {c} 1 x 2 y 3 z"),
        format!("ZMPOP 2 {a} {c} MAX"),
        format!("BZPOPMIN {a} {c} 0"),
        format!("BZMPOP 1 2 {a} {c} MIN COUNT 7"),
        format!("BZPOPMAX {a} {c} 0.05"),
        format!("SET {a} text"),
        format!("RPUSH {b} 1"),
        format!("BLPOP {a} {b} 0"),
        format!("BLPOP {b} {a} 0"),
        format!("ZMPOP 2 {a} {c} MIN"),
    ];
    for protocol in ["2", "3"] {
        for client in &mut clients {
            ask(client, &["HELLO", protocol]);
            call_line(client, "FLUSHALL");
        }
        for line in &lines {
            let [through, direct] = [0, 1].map(|at| call_line(&mut clients[at], line));
            assert_eq!(through, direct, "{line}");
        }
    }
    let redis = Proxied::begin(2, &[]);
    let mut client = redis.proxy.connect().unwrap();
    for line in ["BLPOP {} {} 0", "LMPOP 2 {} {} LEFT"] {
        let line = line.replacen("{}", &redis.key(0), 1).replacen("{}", &redis.key(1), 1);
        assert!(is_error(&call_line(&mut client, &line), "CROSSSLOT"), "{line}");
    }
}

#[test]
fn who_waits_for_keys_of_several_servers_is_woken_once_and_leaves_nothing_behind() {
    let proxied = begin();
    let (mut waits, mut other) = (proxied.proxy.connect().unwrap(), proxied.proxy.connect().unwrap());
    let keys = [0, 1, 2].map(|shard| proxied.key(shard));
    let request = ["BLPOP", &keys[0], &keys[1], &keys[2], "0"];
    let id = shown(&call_line(&mut waits, "CLIENT ID"));
    let id = id.trim_start_matches("Int(").trim_end_matches(')');
    let all_wait = || (0..3).for_each(|shard| await_blocked(&proxied, shard, 1));
    let nobody_waits = || (0..3).for_each(|shard| await_blocked(&proxied, shard, 0));
    for key in &keys {
        waits.send_request(&request).unwrap();
        all_wait();
        assert_eq!(call(&mut other, &["RPUSH", key, "x"]), Value::Int(1));
        assert_eq!(waits.read_value().unwrap(), Value::Array(vec![text(key), text("x")]));
        nobody_waits();
        assert_eq!(call(&mut other, &["EXISTS", key]), Value::Int(0));
    }
    waits.send_request(&request).unwrap();
    all_wait();
    wait_until("it is woken", || call(&mut other, &["CLIENT", "UNBLOCK", id]) == Value::Int(1));
    assert_eq!(waits.read_value().unwrap(), Value::NullArray);
    waits.send_request(&request).unwrap();
    all_wait();
    drop(waits);
    nobody_waits();
    assert_eq!(call(&mut other, &["RPUSH", &keys[1], "x"]), Value::Int(1));
    assert_eq!(call(&mut other, &["LLEN", &keys[1]]), Value::Int(1), "nothing is taken for who has gone");
}

#[test]
fn nothing_is_taken_twice_from_keys_of_several_servers() {
    const ITEMS: usize = 300;
    let proxied = begin();
    let keys = [0, 1, 2].map(|shard| proxied.key(shard));
    let is_over = AtomicBool::new(false);
    let taken: Vec<String> = thread::scope(|scope| {
        let (proxied, keys, is_over) = (&proxied, &keys, &is_over);
        let take = move |number: usize| {
            let mut client = proxied.proxy.connect().unwrap();
            let mut taken = Vec::new();
            let order: Vec<&str> = (0..3).map(|at| &*keys[(at + number) % 3]).collect();
            let request = [&["BLPOP"], &order[..], &["0.2"]].concat();
            loop {
                match call(&mut client, &request) {
                    Value::Array(pair) => taken.push(shown(&pair[1])),
                    Value::NullArray if is_over.load(Ordering::Relaxed) => break taken,
                    Value::NullArray => {}
                    other => panic!("{other:?}"),
                }
            }
        };
        let takers: Vec<_> = (0..5).map(|number| scope.spawn(move || take(number))).collect();
        let givers: Vec<_> = (0..3)
            .map(|number| {
                scope.spawn(move || {
                    let mut client = proxied.proxy.connect().unwrap();
                    for item in 0..ITEMS {
                        let key = &keys[(item + number) % 3];
                        call(&mut client, &["RPUSH", key, &format!("{number}-{item}")]);
                    }
                })
            })
            .collect();
        givers.into_iter().for_each(|giver| giver.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
        takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect()
    });
    assert_eq!(taken.len(), 3 * ITEMS);
    assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), 3 * ITEMS, "each once");
}
