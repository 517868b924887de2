//! CLIENT TRACKING through a proxy: who caches what it reads is told when that is not so any more, and never keeps what has changed.

use super::Proxied;
use crate::tarn_path;
use std::collections::HashMap;
use testkit::ask::{ask, call, call_line, is_error, ok, shown, text, wait_until};
use testkit::{Client, Program};
use wire::Value;

fn tarn() -> Program {
    Program::Tarn(tarn_path())
}

fn forget(keys: &[&str]) -> Value {
    let keys = Value::Array(keys.iter().map(|key| text(key)).collect());
    Value::Push(vec![text("invalidate"), keys])
}

fn forget_all() -> Value {
    Value::Push(vec![text("invalidate"), Value::Null])
}

/// Says something, and gives the reply and what came in front of it.
fn call_among(client: &mut Client, words: &[&str]) -> (Value, Vec<Value>) {
    client.send_request(words).unwrap();
    let mut told = Vec::new();
    loop {
        match client.read_value().unwrap() {
            push @ Value::Push(_) => told.push(push),
            reply => return (reply, told),
        }
    }
}

#[test]
fn who_reads_is_told_of_changes_whoever_makes_them() {
    for program in [Program::Redis, tarn()] {
        let proxied = Proxied::of((&program, &[]), 3, &[]);
        let mut writer = proxied.proxy.connect().unwrap();
        let mut reader = proxied.proxy.connect().unwrap();
        ask(&mut reader, &["HELLO", "3"]);
        assert_eq!(call_line(&mut reader, "CLIENT TRACKING ON"), ok());
        let keys = [0, 1, 2].map(|shard| proxied.key(shard));
        for (shard, key) in keys.iter().enumerate() {
            assert_eq!(call(&mut writer, &["SET", key, "v"]), ok());
            // Of what was set before it was read it may be told, too.
            assert_eq!(call_among(&mut reader, &["GET", key]).0, text("v"));
            // By the proxy, and past it.
            let mut direct = proxied.shards[shard].connect().unwrap();
            assert_eq!(
                call(
                    &mut if shard == 1 { direct } else { proxied.proxy.connect().unwrap() },
                    &["SET", key, "w"]
                ),
                ok()
            );
            let mut told = Vec::new();
            wait_until("it is told of", || {
                let (read, more) = call_among(&mut reader, &["GET", key]);
                told.extend(more);
                read == text("w") && !told.is_empty()
            });
            assert!(told.iter().all(|told| *told == forget(&[key])), "{told:?}");
        }
        // All keys at once: each counts.
        let words: Vec<&str> = ["MGET"].into_iter().chain(keys.iter().map(String::as_str)).collect();
        let settle = |reader: &mut Client| {
            wait_until("nothing is told any more", || call_among(reader, &words).1.is_empty());
        };
        settle(&mut reader);
        assert_eq!(call(&mut writer, &["DEL", &keys[2]]), Value::Int(1));
        assert_eq!(reader.read_value().unwrap(), forget(&[&keys[2]]));
        settle(&mut reader);
        assert_eq!(call_line(&mut writer, "FLUSHALL"), ok());
        assert_eq!(reader.read_value().unwrap(), forget_all());
        assert!(matches!(call_among(&mut reader, &["CLIENT", "TRACKINGINFO"]).0, Value::Map(_)));
        // By each server once.
        assert_eq!(call_among(&mut reader, &["CLIENT", "GETREDIR"]).0, Value::Int(0));
        assert_eq!(call_among(&mut reader, &["CLIENT", "TRACKING", "OFF"]).0, ok());
    }
}

#[test]
fn prefixes_singled_out_reads_and_others_in_their_place_are_as_at_a_server() {
    let proxied = Proxied::begin(2, &[]);
    let mut writer = proxied.proxy.connect().unwrap();
    let [mut broadcast, mut opted] = [(); 2].map(|()| proxied.proxy.connect().unwrap());
    for client in [&mut broadcast, &mut opted] {
        ask(client, &["HELLO", "3"]);
    }
    assert_eq!(call_line(&mut broadcast, "CLIENT TRACKING ON BCAST PREFIX user:"), ok());
    assert_eq!(call_line(&mut opted, "CLIENT TRACKING ON OPTIN"), ok());
    assert!(is_error(&call_line(&mut opted, "CLIENT TRACKING ON BCAST"), "ERR You can't switch BCAST"));
    let mut listener = proxied.proxy.connect().unwrap();
    let Value::Int(id) = call_line(&mut listener, "CLIENT ID") else { panic!() };
    listener.send_request(&["SUBSCRIBE", "__redis__:invalidate"]).unwrap();
    assert!(matches!(listener.read_value().unwrap(), Value::Array(_)));
    let mut old = proxied.proxy.connect().unwrap();
    assert_eq!(call(&mut old, &["CLIENT", "TRACKING", "ON", "REDIRECT", &id.to_string()]), ok());
    for client in [&mut opted, &mut old] {
        assert_eq!(call_line(client, "GET other:1"), Value::Null);
    }
    assert_eq!(call_line(&mut opted, "CLIENT CACHING YES"), ok());
    assert_eq!(call_line(&mut opted, "MGET user:1 user:2"), Value::Array(vec![Value::Null, Value::Null]));
    assert_eq!(call_line(&mut opted, "GET user:3"), Value::Null);
    for key in ["other:1", "user:3", "user:2"] {
        assert_eq!(call(&mut writer, &["SET", key, "v"]), ok());
    }
    let told = [text("message"), text("__redis__:invalidate"), Value::Array(vec![text("other:1")])];
    assert_eq!(listener.read_value().unwrap(), Value::Array(told.to_vec()));
    assert_eq!(opted.read_value().unwrap(), forget(&["user:2"]));
    let mut heard = Vec::new();
    while heard.len() < 2 {
        let Value::Push(words) = broadcast.read_value().unwrap() else { panic!() };
        let Value::Array(keys) = &words[1] else { panic!("{words:?}") };
        heard.extend(keys.iter().map(shown));
    }
    heard.sort();
    assert_eq!(heard, ["user:2", "user:3"]);
}

#[test]
fn what_is_read_in_transactions_and_by_scripts_counts() {
    let proxied = Proxied::of((&tarn(), &[]), 2, &[]);
    let (mut writer, key) = (proxied.proxy.connect().unwrap(), proxied.key(1));
    let reads: [&[&[&str]]; 3] = [
        &[&["MULTI"], &["GET", &key], &["EXEC"]],
        &[&["WATCH", &key], &["MULTI"], &["GET", &key], &["EXEC"]],
        &[&["EVAL", "return redis.call('GET', KEYS[1])", "1", &key]],
    ];
    for requests in reads {
        let mut reader = proxied.proxy.connect().unwrap();
        ask(&mut reader, &["HELLO", "3"]);
        assert_eq!(call_line(&mut reader, "CLIENT TRACKING ON"), ok());
        for request in requests {
            call_among(&mut reader, request);
        }
        assert!(matches!(call(&mut writer, &["INCR", &key]), Value::Int(_)));
        assert_eq!(reader.read_value().unwrap(), forget(&[&key]), "{requests:?}");
    }
}

#[test]
fn who_cannot_be_told_forgets_everything() {
    let mut proxied = Proxied::begin(2, &[]);
    let mut reader = proxied.proxy.connect().unwrap();
    ask(&mut reader, &["HELLO", "3"]);
    assert_eq!(call_line(&mut reader, "CLIENT TRACKING ON"), ok());
    let keys = [0, 1].map(|shard| proxied.key(shard));
    for key in &keys {
        assert_eq!(call(&mut reader, &["GET", key]), Value::Null);
    }
    drop(proxied.shards.remove(1));
    assert_eq!(reader.read_value().unwrap(), forget_all());
    // What it reads while one is missing it does not keep.
    assert_eq!(call(&mut reader, &["GET", &keys[0]]), Value::Null);
    assert_eq!(reader.read_value().unwrap(), forget(&[&keys[0]]));
    // Nor can anybody else begin.
    let mut other = proxied.proxy.connect().unwrap();
    ask(&mut other, &["HELLO", "3"]);
    let refused = call_line(&mut other, "CLIENT TRACKING ON");
    assert!(is_error(&refused, "ERR proxy: which keys are modified at 127.0.0.1:"), "{refused:?}");
}

/// Several write, and one caches what it reads as a client library does. When all is quiet what it has is what there is.
#[test]
fn nothing_stays_cached_that_has_changed() {
    for (program, modes) in
        [(Program::Redis, "ON"), (tarn(), "ON"), (Program::Redis, "ON BCAST PREFIX k"), (tarn(), "ON BCAST")]
    {
        let proxied = Proxied::of((&program, &[]), 2, &[]);
        let keys: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
        let mut reader = proxied.proxy.connect().unwrap();
        ask(&mut reader, &["HELLO", "3"]);
        assert_eq!(call_line(&mut reader, &format!("CLIENT TRACKING {modes}")), ok());
        let mut cached: HashMap<String, Value> = HashMap::new();
        let drop_told = |cached: &mut HashMap<String, Value>, push: Value| {
            let Value::Push(words) = push else { panic!("{push:?}") };
            match &words[1] {
                Value::Array(keys) => keys.iter().for_each(|key| drop(cached.remove(&shown(key)))),
                _ => cached.clear(),
            }
        };
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|writer: usize| {
                    let (mut client, keys) = (proxied.proxy.connect().unwrap(), &keys);
                    scope.spawn(move || {
                        for number in 0..3_000 {
                            let key = &keys[(number * 7 + writer * 3) % keys.len()];
                            assert_eq!(call(&mut client, &["SET", key, &format!("{writer}.{number}")]), ok());
                        }
                    })
                })
                .collect();
            let mut turn = 0;
            while !writers.iter().all(|writer| writer.is_finished()) {
                let batch: Vec<&String> = (0..8).map(|at| &keys[(turn * 5 + at) % keys.len()]).collect();
                turn += 1;
                let asked: Vec<&String> =
                    batch.into_iter().filter(|key| !cached.contains_key(*key)).collect();
                asked.iter().for_each(|key| reader.send_request(&["GET", key]).unwrap());
                reader.send_request(&["ECHO", "end"]).unwrap();
                let mut replies = asked.iter();
                loop {
                    match reader.read_value().unwrap() {
                        push @ Value::Push(_) => drop_told(&mut cached, push),
                        value => match replies.next() {
                            Some(key) => drop(cached.insert((*key).clone(), value)),
                            None => break,
                        },
                    }
                }
            }
        });
        let mut direct = proxied.proxy.connect().unwrap();
        wait_until("what is cached is what there is", || {
            reader.send_request(&["ECHO", "end"]).unwrap();
            while let push @ Value::Push(_) = reader.read_value().unwrap() {
                drop_told(&mut cached, push);
            }
            cached.iter().all(|(key, value)| call(&mut direct, &["GET", key]) == *value)
        });
    }
}
