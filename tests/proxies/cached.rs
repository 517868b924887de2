//! Replies to reads of hot keys are kept, and are not shown any more when the key was modified, its time is up, or whoever asks has written it.

use super::Proxied;
use crate::tarn_path;
use std::thread;
use testkit::ask::{ask, call, call_line, ok, text, wait_until};
use testkit::{Client, Program, Server};
use wire::Value;

const KEEPS: [&str; 2] = ["--proxy-cache-bytes", "1mb"];

/// How many GETs a server has done.
fn gets(server: &Server) -> u64 {
    let stats = ask(&mut server.connect().unwrap(), &["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_get:calls="));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

/// Reads a key until that costs its server nothing.
fn heat(client: &mut Client, shard: &Server, key: &str) {
    wait_until("it is kept", || {
        let before = gets(shard);
        (0..20).for_each(|_| drop(call(client, &["GET", key])));
        gets(shard) == before
    });
}

#[test]
fn a_hot_key_is_read_from_its_server_once() {
    for program in [Program::Redis, Program::Tarn(tarn_path())] {
        let proxied = Proxied::of((&program, &[]), 2, &KEEPS);
        let (mut client, mut other) = (proxied.proxy.connect().unwrap(), proxied.proxy.connect().unwrap());
        let (key, shard) = (proxied.key(1), &proxied.shards[1]);
        assert_eq!(call(&mut other, &["SET", &key, "v"]), ok());
        heat(&mut client, shard, &key);
        assert_eq!(call(&mut client, &["GET", &key]), text("v"));
        // Whoever has written reads it behind that.
        assert_eq!(call(&mut other, &["SET", &key, "w"]), ok());
        assert_eq!(call(&mut other, &["GET", &key]), text("w"));
        wait_until("everybody does", || call(&mut client, &["GET", &key]) == text("w"));
        // Past the proxy, too, and whatever takes it away.
        heat(&mut client, shard, &key);
        let mut direct = shard.connect().unwrap();
        assert_eq!(call(&mut direct, &["SET", &key, "x", "PX", "3000"]), ok());
        wait_until("it is told of", || call(&mut client, &["GET", &key]) == text("x"));
        heat(&mut client, shard, &key);
        wait_until("its time is up", || call(&mut client, &["GET", &key]) == Value::Null);
        assert_eq!(call(&mut direct, &["SET", &key, "x"]), ok());
        heat(&mut client, shard, &key);
        assert_eq!(call_line(&mut direct, "FLUSHALL"), ok());
        assert_eq!(call(&mut direct, &["SET", &key, "y"]), ok());
        wait_until("it is told of", || call(&mut client, &["GET", &key]) == text("y"));
        // Protocols and databases are apart.
        heat(&mut client, shard, &key);
        ask(&mut client, &["HELLO", "3"]);
        assert_eq!(call(&mut client, &["HGETALL", "no hash"]), Value::Map(Vec::new()));
        assert_eq!(call_line(&mut client, "SELECT 1"), ok());
        assert_eq!(call(&mut client, &["GET", &key]), Value::Null);
    }
}

#[test]
fn nothing_is_shown_while_servers_do_not_tell() {
    let mut proxied = Proxied::begin(2, &KEEPS);
    let mut client = proxied.proxy.connect().unwrap();
    let key = proxied.key(0);
    assert_eq!(call(&mut client, &["SET", &key, "v"]), ok());
    let mut reader = proxied.proxy.connect().unwrap();
    heat(&mut reader, &proxied.shards[0], &key);
    drop(proxied.shards.remove(1));
    wait_until("the server is asked", || {
        let before = gets(&proxied.shards[0]);
        call(&mut reader, &["GET", &key]);
        gets(&proxied.shards[0]) > before
    });
    assert_eq!(call_line(&mut client, "CONFIG SET proxy-cache-bytes 0"), ok());
    assert_eq!(call(&mut reader, &["GET", &key]), text("v"));
}

/// Each counts its own keys up, and reads them and others' in between: its own are never older than what it was told, and others' never go back for long.
#[test]
fn nobody_reads_less_than_it_has_written() {
    for program in [Program::Redis, Program::Tarn(tarn_path())] {
        let proxied = Proxied::of((&program, &[]), 2, &KEEPS);
        thread::scope(|scope| {
            for number in 0..4 {
                let proxied = &proxied;
                scope.spawn(move || {
                    let mut client = proxied.proxy.connect().unwrap();
                    for turn in 1..300i64 {
                        let key = format!("k{}", turn % 3);
                        let Value::Int(told) = call(&mut client, &["INCR", &key]) else { panic!() };
                        for _ in 0..8 {
                            let Value::Bulk(read) = call(&mut client, &["GET", &key]) else { panic!() };
                            let read: i64 = String::from_utf8_lossy(&read).parse().unwrap();
                            assert!(read >= told, "client {number}: {read} behind {told}");
                        }
                    }
                });
            }
        });
        let mut direct = proxied.proxy.connect().unwrap();
        let sum: i64 = (0..3)
            .map(|number| match call(&mut direct, &["INCRBY", &format!("k{number}"), "0"]) {
                Value::Int(count) => count,
                other => panic!("{other:?}"),
            })
            .sum();
        assert_eq!(sum, 4 * 299);
    }
}
