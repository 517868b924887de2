//! XREADGROUP of streams of several servers: as at one, each entry to one consumer, and none to who has gone while it waited.

use super::clusters::while_slots_move;
use super::own::await_blocked;
use super::{Exchange, Proxied, answers_alike, assert_each_once, beside_one};
use crate::tarn_path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use testkit::ask::{call, call_line, is_error, ok, shown, text, wait_until};
use testkit::{Client, Program, Server};
use wire::Value;

/// How many entries are given by each client at the least.
const ENTRIES: usize = 200;

fn begin() -> Proxied {
    Proxied::of((&Program::Tarn(tarn_path()), &[]), 3, &[])
}

/// Begins a group at each of these streams.
pub(super) fn begin_groups(client: &mut Client, keys: &[String]) {
    for key in keys {
        assert_eq!(call(client, &["XGROUP", "CREATE", key, "g", "0", "MKSTREAM"]), ok());
    }
}

#[test]
fn groups_of_several_servers_are_read_as_those_of_one() {
    for program in [Program::Redis, Program::Tarn(tarn_path())] {
        let (_proxied, _alone, mut clients, [a, b, c]) = beside_one(program);
        let lines = [
            format!("XADD {b} 1-1 f x"),
            format!("XADD {b} 1-2 f x"),
            format!("XADD {c} 1-1 f x"),
            format!("XREADGROUP GROUP g one STREAMS {a} {b} > >"),
            format!("XGROUP CREATE {b} g 0"),
            format!("XGROUP CREATE {c} g 0"),
            format!("XREADGROUP GROUP g one STREAMS {b} {a} {c} > > >"),
            format!("XGROUP CREATE {a} g 0 MKSTREAM"),
            format!("XREADGROUP GROUP g one COUNT 1 BLOCK 0 STREAMS {a} {b} {c} > > >"),
            format!("XREADGROUP BLOCK 0 GROUP g streams STREAMS {c} {a} {b} > > >"),
            format!("XREADGROUP GROUP g one STREAMS {a} {b} > >"),
            format!("XREADGROUP GROUP g one BLOCK 30 STREAMS {a} {b} {c} > > >"),
            format!("XREADGROUP GROUP g one BLOCK 0 STREAMS {a} {b} {c} 0 > 1"),
            format!("XREADGROUP GROUP g one NOACK STREAMS {b} {c} 0-5 0"),
            format!("XADD {a} 3-1 f x"),
            format!("XREADGROUP NOACK GROUP g block BLOCK 9 STREAMS {a} {b} > >"),
            format!("XREADGROUP GROUP none one BLOCK 0 STREAMS {a} {b} > >"),
            format!("XREADGROUP GROUP g one STREAMS {a} {b} > $"),
            format!("XREADGROUP GROUP g one STREAMS {a} {b} y >"),
            format!("XREADGROUP GROUP g one BLOCK x STREAMS {a} {b} > >"),
            format!("XREADGROUP GROUP g one BLOCK -1 STREAMS {a} {b} > >"),
            format!("XREADGROUP GROUP g one COUNT x STREAMS {a} {b} > >"),
            format!("XREADGROUP GROUP g one NOSUCH STREAMS {a} {b} > >"),
            format!("XREADGROUP COUNT 1 STREAMS {a} {b} > >"),
            format!("XREADGROUP GROUP g one BLOCK 1 STREAMS {a} {b} >"),
            format!("XINFO GROUPS {a}"),
            format!("XINFO GROUPS {b}"),
            format!("XINFO GROUPS {c}"),
            format!("XPENDING {b} g"),
            format!("SET {a} text"),
            format!("XREADGROUP GROUP g one BLOCK 0 STREAMS {b} {a} > >"),
        ];
        answers_alike(&mut clients, &lines);
    }
}

#[test]
fn who_reads_as_a_group_is_woken_once_and_is_given_nothing_when_it_has_gone() {
    let proxied = begin();
    let (mut waits, mut other) = (proxied.proxy.connect().unwrap(), proxied.proxy.connect().unwrap());
    let keys = [0, 1, 2].map(|shard| proxied.key(shard));
    let [a, b, c] = &keys;
    begin_groups(&mut other, &keys);
    let id = shown(&call_line(&mut waits, "CLIENT ID"));
    let id = id.trim_start_matches("Int(").trim_end_matches(')');
    let all_wait = || (0..3).for_each(|shard| await_blocked(&proxied, shard, 1));
    let nobody_waits = || (0..3).for_each(|shard| await_blocked(&proxied, shard, 0));
    let request = ["XREADGROUP", "GROUP", "g", "one", "BLOCK", "0", "STREAMS", a, b, c, ">", ">", ">"];
    for key in [b, c, a] {
        waits.send_request(&request).unwrap();
        all_wait();
        assert_eq!(call(&mut other, &["XADD", key, "7-1", "f", "x"]), text("7-1"));
        assert_eq!(ids_of(&waits.read_value().unwrap()), [format!("{key} 7-1")]);
        nobody_waits();
        assert_eq!(call(&mut other, &["XACK", key, "g", "7-1"]), Value::Int(1));
    }
    waits.send_request(&request).unwrap();
    all_wait();
    wait_until("it is woken", || call(&mut other, &["CLIENT", "UNBLOCK", id]) == Value::Int(1));
    assert_eq!(waits.read_value().unwrap(), Value::NullArray);
    waits.send_request(&request).unwrap();
    all_wait();
    wait_until("it is told", || call(&mut other, &["CLIENT", "UNBLOCK", id, "ERROR"]) == Value::Int(1));
    assert!(is_error(&waits.read_value().unwrap(), "UNBLOCKED"));
    waits.send_request(&request).unwrap();
    all_wait();
    drop(waits);
    nobody_waits();
    assert_eq!(call(&mut other, &["XADD", b, "8-1", "f", "x"]), text("8-1"));
    let pending = call(&mut other, &["XPENDING", b, "g"]);
    assert!(matches!(&pending, Value::Array(all) if all[0] == Value::Int(0)), "{}", shown(&pending));
}

#[test]
fn who_waits_for_a_group_that_is_gone_is_told() {
    for program in [Program::Redis, Program::Tarn(tarn_path())] {
        let proxied = Proxied::of((&program, &[]), 3, &[]);
        let keys = [0, 1, 2].map(|shard| proxied.key(shard));
        let mut other = proxied.proxy.connect().unwrap();
        begin_groups(&mut other, &keys);
        // Each stream of the first two servers is waited for beside that of the third.
        let mut waiting: Vec<Client> = (0..2).map(|_| proxied.proxy.connect().unwrap()).collect();
        for (client, key) in waiting.iter_mut().zip(&keys) {
            let words = ["XREADGROUP", "GROUP", "g", "one", "BLOCK", "0", "STREAMS", key, &keys[2], ">", ">"];
            client.send_request(&words).unwrap();
        }
        await_blocked(&proxied, 0, 1);
        await_blocked(&proxied, 2, 2);
        assert_eq!(call(&mut other, &["XGROUP", "DESTROY", &keys[0], "g"]), Value::Int(1));
        assert_eq!(call(&mut other, &["DEL", &keys[1]]), Value::Int(1));
        for (client, key) in waiting.iter_mut().zip(&keys) {
            let told = client.read_value().unwrap();
            let expected =
                format!("NOGROUP No such key '{key}' or consumer group 'g' in XREADGROUP with GROUP option");
            assert_eq!(told, Value::Error(expected.into_bytes()));
        }
    }
}

/// The ids of the entries in a reply of XREADGROUP, with their streams in front.
fn ids_of(reply: &Value) -> Vec<String> {
    let Value::Array(streams) = reply else { panic!("{reply:?}") };
    let mut found = Vec::new();
    for stream in streams {
        let Value::Array(pair) = stream else { panic!("{stream:?}") };
        let Value::Array(entries) = &pair[1] else { panic!("{stream:?}") };
        for entry in entries {
            let Value::Array(entry) = entry else { panic!("{entry:?}") };
            found.push(format!("{} {}", shown(&pair[0]), shown(&entry[0])));
        }
    }
    found
}

fn request<'r>(consumer: &'r str, keys: &'r [String], id: &'r str, time: &'r [&'r str]) -> Vec<&'r str> {
    let names = keys.iter().map(String::as_str);
    let head = ["XREADGROUP", "GROUP", "g", consumer, "COUNT", "3"];
    let ids = keys.iter().map(|_| id);
    head.into_iter().chain(time.iter().copied()).chain(["STREAMS"]).chain(names).chain(ids).collect()
}

/// How many take; one more waits, and goes away after some moments.
const TAKERS: usize = 3;

/// Entries go through streams of several servers by a proxy, while something happens: each comes to one consumer, or is pending for one that went away.
fn each_comes_once(proxy: &Server, keys: &[String], meanwhile: impl FnOnce()) {
    begin_groups(&mut proxy.connect().unwrap(), keys);
    let gone = AtomicU64::new(0);
    let exchange = Exchange {
        givers: (2, ENTRIES),
        takers: TAKERS + 1,
        give: &|number, count, client| {
            let key = &keys[(count + number) % keys.len()];
            let reply = call(client, &["XADD", key, "*", "f", "x"]);
            assert!(matches!(reply, Value::Bulk(_)), "{reply:?}");
            format!("{key} {}", shown(&reply))
        },
        take: &|number, client| {
            if number == TAKERS {
                let mut goes = proxy.connect().unwrap();
                goes.send_request(&request("gone", keys, ">", &["BLOCK", "0"])).unwrap();
                thread::sleep(Duration::from_millis(3 * gone.fetch_add(1, Ordering::Relaxed) % 11));
                return None;
            }
            match call(client, &request(&format!("c{number}"), keys, ">", &["BLOCK", "300"])) {
                Value::NullArray => None,
                reply => Some(ids_of(&reply)),
            }
        },
    };
    let (given, mut taken) = exchange.run(proxy, meanwhile);
    let mut client = proxy.connect().unwrap();
    // What came between the last look and the last client's leaving.
    for (consumer, id) in [("last", ">"), ("gone", "0")] {
        let words = request(consumer, keys, id, &[]);
        let words: Vec<&str> = words.into_iter().filter(|word| !["COUNT", "3"].contains(word)).collect();
        match call(&mut client, &words) {
            Value::NullArray => {}
            reply => taken.extend(ids_of(&reply)),
        }
    }
    assert_each_once(&given, &taken);
}

#[test]
fn each_entry_comes_to_one_consumer() {
    let proxied = begin();
    let keys = [0, 1, 2].map(|shard| proxied.key(shard));
    each_comes_once(&proxied.proxy, &keys, || {});
}

#[test]
fn each_entry_comes_to_one_consumer_while_slots_move() {
    while_slots_move(|proxy, keys, moves| each_comes_once(proxy, keys, moves));
}
