//! What takes from the first of several keys that has something, where the keys are several servers': as from one, nothing twice, and nothing for who has gone.

use super::clusters::while_slots_move;
use super::own::await_blocked;
use super::{Exchange, Proxied, answers_alike, assert_each_once, beside_one};
use crate::{tarn, tarn_path};
use testkit::ask::{call, call_line, is_error, shown, text, wait_until};
use testkit::{Program, Server};
use wire::Value;

/// How many are given by each client at the least.
const ITEMS: usize = 300;

fn begin() -> Proxied {
    Proxied::of((&Program::Tarn(tarn_path()), &[]), 3, &[])
}

#[test]
fn what_takes_from_the_first_key_that_has_something_takes_as_at_one_server() {
    let (_proxied, _alone, mut clients, [a, b, c]) = beside_one(tarn());
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
    answers_alike(&mut clients, &lines);
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

/// Items go through lists of several servers by a proxy, while something happens: each comes out once.
fn each_comes_once(proxy: &Server, keys: &[String], meanwhile: impl FnOnce()) {
    let exchange = Exchange {
        givers: (3, ITEMS),
        takers: 5,
        give: &|number, count, client| {
            let (key, item) = (&keys[(count + number) % keys.len()], format!("{number}-{count}"));
            let reply = call(client, &["RPUSH", key, &item]);
            assert!(matches!(reply, Value::Int(_)), "{reply:?}");
            item
        },
        take: &|number, client| {
            let order: Vec<&str> = (0..keys.len()).map(|at| &*keys[(at + number) % keys.len()]).collect();
            match call(client, &[&["BLPOP"], &order[..], &["0.5"]].concat()) {
                Value::Array(pair) => Some(vec![shown(&pair[1])]),
                Value::NullArray => None,
                other => panic!("{other:?}"),
            }
        },
    };
    let (given, taken) = exchange.run(proxy, meanwhile);
    assert_each_once(&given, &taken);
}

#[test]
fn nothing_is_taken_twice_from_keys_of_several_servers() {
    let proxied = begin();
    let keys = [0, 1, 2].map(|shard| proxied.key(shard));
    each_comes_once(&proxied.proxy, &keys, || {});
}

#[test]
fn nothing_is_taken_twice_while_slots_move() {
    while_slots_move(|proxy, keys, moves| each_comes_once(proxy, keys, moves));
}
