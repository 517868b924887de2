//! XREAD that waits for streams of several servers: as at one, once, and at nobody's for who has gone.

use super::own::await_blocked;
use super::{Proxied, answers_alike, beside_one};
use crate::clusters::cluster::Cluster;
use crate::slot_moves::move_and_wait;
use crate::tarn_path;
use testkit::Program;
use testkit::ask::{call, call_line, is_error, shown, text, wait_until};
use wire::Value;

fn entry(stream: &str, id: &str) -> Value {
    let fields = Value::Array(vec![text("f"), text("x")]);
    let entries = Value::Array(vec![Value::Array(vec![text(id), fields])]);
    Value::Array(vec![Value::Array(vec![text(stream), entries])])
}

#[test]
fn streams_of_several_servers_are_waited_for_as_those_of_one() {
    for program in [Program::Redis, Program::Tarn(tarn_path())] {
        let (_proxied, _alone, mut clients, [a, b, c]) = beside_one(program);
        let lines = [
            format!("XADD {b} 1-1 f x"),
            format!("XADD {c} 1-1 f x"),
            format!("XREAD BLOCK 0 STREAMS {a} {b} {c} 0 0 0"),
            format!("XREAD COUNT 1 BLOCK 50 STREAMS {c} {a} {b} 0 $ 1-1"),
            format!("XREAD BLOCK 30 STREAMS {a} {b} $ $"),
            format!("XREAD BLOCK 30 COUNT 2 STREAMS {a} {b} {c} 5 5 5"),
            format!("XREAD BLOCK x STREAMS {a} {b} 0 0"),
            format!("XREAD BLOCK -1 STREAMS {a} {b} 0 0"),
            format!("XREAD BLOCK 1 STREAMS {a} {b} 0"),
            format!("XREAD BLOCK 0 STREAMS {a} {b} 0 y"),
            format!("XREAD COUNT x BLOCK 0 STREAMS {a} {b} 0 0"),
            format!("SET {a} text"),
            format!("XREAD BLOCK 0 STREAMS {a} {b} $ $"),
        ];
        answers_alike(&mut clients, &lines);
    }
}

#[test]
fn who_waits_for_streams_of_several_servers_is_woken_once_and_leaves_nothing_behind() {
    let proxied = Proxied::of((&Program::Tarn(tarn_path()), &[]), 3, &[]);
    let (mut waits, mut other) = (proxied.proxy.connect().unwrap(), proxied.proxy.connect().unwrap());
    let keys = [0, 1, 2].map(|shard| proxied.key(shard));
    let [a, b, c] = &keys;
    let id = shown(&call_line(&mut waits, "CLIENT ID"));
    let id = id.trim_start_matches("Int(").trim_end_matches(')');
    let all_wait = || (0..3).for_each(|shard| await_blocked(&proxied, shard, 1));
    let nobody_waits = || (0..3).for_each(|shard| await_blocked(&proxied, shard, 0));
    for (key, time) in [(a, "0"), (c, "60000"), (b, "0")] {
        waits.send_request(&["XREAD", "BLOCK", time, "STREAMS", a, b, c, "$", "$", "$"]).unwrap();
        all_wait();
        assert_eq!(call(&mut other, &["XADD", key, "7-1", "f", "x"]), text("7-1"));
        assert_eq!(waits.read_value().unwrap(), entry(key, "7-1"));
        nobody_waits();
    }
    let request = ["XREAD", "BLOCK", "0", "STREAMS", a, b, c, "$", "$", "$"];
    waits.send_request(&request).unwrap();
    all_wait();
    wait_until("it is woken", || call(&mut other, &["CLIENT", "UNBLOCK", id]) == Value::Int(1));
    assert_eq!(waits.read_value().unwrap(), Value::NullArray);
    waits.send_request(&request).unwrap();
    all_wait();
    wait_until("it is told", || call(&mut other, &["CLIENT", "UNBLOCK", id, "ERROR"]) == Value::Int(1));
    assert!(is_error(&waits.read_value().unwrap(), "UNBLOCKED"));
    nobody_waits();
    waits.send_request(&request).unwrap();
    all_wait();
    drop(waits);
    nobody_waits();
}

#[test]
fn streams_are_waited_for_while_their_slots_move() {
    let cluster = Cluster::begin(2, 1, &["--edition", "memory"]);
    let id = *cluster.topology().expect("it is there").servers.keys().next().expect("there are some");
    let proxy = super::clusters::proxy_of(&cluster.place_of(id), &[]);
    let (mut waits, mut other) = (proxy.connect().unwrap(), proxy.connect().unwrap());
    // Of both shards.
    let (first, second) = ("{bar}s", "{foo}s");
    for (number, to) in (1..).zip([1, 0, 1, 0]) {
        let (before, now) = (format!("{}-9", number - 1), format!("{number}-1"));
        let request = ["XREAD", "BLOCK", "0", "STREAMS", first, second, &before, &before];
        waits.send_request(&request).unwrap();
        move_and_wait(&cluster, to, "5061");
        // Wherever each of them is waited for by now.
        let stream = if number % 2 == 0 { first } else { second };
        assert_eq!(call(&mut other, &["XADD", stream, &now, "f", "x"]), text(&now));
        assert_eq!(waits.read_value().unwrap(), entry(stream, &now));
    }
}
