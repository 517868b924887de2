//! Peers of older versions: what is sent to them in older words or not at all, and what is made of what they send.

use super::{agree, field, follow, follower, holds, master, wait_until};
use crate::info;
use std::io::{Read, Write};
use std::thread;
use testkit::ask::{accept, call, shown, text};
use testkit::{Client, Program, Server};
use wire::Value;

/// Everything whose usual words came after Redis 5.0.
const NEWER_WORDS: &[&str] = &[
    "FLUSHDB SYNC",
    "SET s 1 PX 900000",
    "SET s 2 KEEPTTL",
    "SET f 2.5 EX 900",
    "INCRBYFLOAT f 0.5",
    "RPUSH l a b c d e f g",
    "LPOP l 2",
    "RPOP l 2",
    "LMOVE l l LEFT RIGHT",
    "LMOVE l l RIGHT LEFT",
    "LMPOP 1 l LEFT COUNT 1",
    "COPY l m",
    "ZADD z 1 a 2 b",
    "ZADD z GT CH 5 a 1 b",
    "GEOADD g NX 13.3 38.1 here",
    "ZRANGESTORE y z 0 0",
    "XADD x NOMKSTREAM 1-1 f v",
    "XADD x 1-1 f v",
    "XADD x MAXLEN ~ 5 LIMIT 1 2-1 f v",
    "XADD x MINID 2 3-1 f v",
    "XGROUP CREATE x g 0 ENTRIESREAD 1",
    "XGROUP CREATECONSUMER x g c",
    "XREADGROUP GROUP g c COUNT 1 STREAMS x >",
    "XAUTOCLAIM x g d 0 0",
    "XSETID x 9-1 ENTRIESADDED 9 MAXDELETEDID 1-1",
    "EXPIRE l 9000 NX",
    "GETEX s EX 5000",
];

/// What a Redis shows of the commands that its master has sent.
fn commands_of_master(monitor: &mut Client, until: &str) -> String {
    let mut all = String::new();
    while !all.contains(until) {
        let line = monitor.read_reply().unwrap();
        all += &line.escape_ascii().to_string();
        all.push('\n');
    }
    all
}

#[test]
fn what_came_after_redis_5_is_said_in_older_words() {
    let master = master("memory", &["--repl-rdb-version", "9"]);
    let mut client = master.connect().unwrap();
    let replica = follower(Program::Redis);
    follow(&mut replica.connect().unwrap(), &master);
    agree(&master, &replica);
    let mut monitor = replica.connect().unwrap();
    monitor.send(b"MONITOR\r\n").unwrap();
    for line in NEWER_WORDS.iter().chain(NEWER_WORDS) {
        let words: Vec<&str> = line.split(' ').collect();
        let reply = call(&mut client, &words);
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
    }
    call(&mut client, &["XINFO", "CONSUMERS", "x", "g"]);
    call(&mut client, &["SET", "last", "word"]);
    agree(&master, &replica);
    let told = commands_of_master(&mut monitor, "last").to_ascii_lowercase();
    for newer in
        ["keepttl", "pxat", "lmove", "copy", "createconsumer", "entriesread", "entriesadded", "nomkstream"]
    {
        assert!(!told.contains(newer), "{newer}: {told}");
    }
    let consumers = |server: &Server| {
        let reply = call(&mut server.connect().unwrap(), &["XINFO", "CONSUMERS", "x", "g"]);
        shown(&reply).matches("pending").count()
    };
    assert_eq!(consumers(&master), consumers(&replica));
    assert_eq!(info(&mut client, "sync_full"), 1, "{}", master.last_lines());
}

#[test]
fn what_has_no_older_words_is_refused_by_its_name() {
    let master = master("memory", &["--repl-rdb-version", "9"]);
    let mut client = master.connect().unwrap();
    let replica = follower(Program::Redis);
    follow(&mut replica.connect().unwrap(), &master);
    agree(&master, &replica);
    let code = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    call(&mut client, &["FUNCTION", "LOAD", code]);
    wait_until("the link ends", || master.output().contains("the stream has FUNCTION"));
    wait_until("the copy is refused", || master.output().contains("there are libraries of functions"));
    call(&mut client, &["FUNCTION", "FLUSH"]);
    call(&mut client, &["SET", "a", "1"]);
    agree(&master, &replica);
}

#[test]
fn times_of_fields_are_not_sent_to_who_does_not_know_them() {
    let master = master("memory", &[]);
    let mut client = master.connect().unwrap();
    let replica = follower(Program::Redis);
    follow(&mut replica.connect().unwrap(), &master);
    call(&mut client, &["HSET", "h", "f", "1"]);
    agree(&master, &replica);
    call(&mut client, &["HPEXPIRE", "h", "1000000", "FIELDS", "1", "f"]);
    wait_until("the link ends", || master.output().contains("which a replica of Redis 7.2 cannot know"));
    wait_until("the copy is refused", || master.output().contains("a hash has fields with a time to live"));
    // It is told so when it comes again, and no more copies are begun meanwhile.
    let begun = || master.output().matches("Starting a full copy").count();
    let is_told = || replica.output().matches("NOMASTERLINK a hash has fields with a time to live").count();
    let (before, told) = (begun(), is_told());
    wait_until("it is told twice", || is_told() >= told + 2);
    assert!(begun() <= before + 1, "{}", master.last_lines());
    call(&mut client, &["DEL", "h"]);
    call(&mut client, &["SET", "a", "1"]);
    agree(&master, &replica);
    let ended = || master.output().matches("which a replica of Redis 7.2 cannot know").count();
    let before = ended();
    // While nobody is there to be sent it, and who comes again would go on from the backlog.
    let lines = ["CLIENT KILL TYPE replica", "HSET h f 1", "HPEXPIRE h 1000000 FIELDS 1 f"];
    let words = |line: &str| line.split(" ").map(str::to_owned).collect::<Vec<_>>();
    client.pipeline(&lines.map(words)).unwrap();
    wait_until("the next link ends, too", || ended() > before);
    let Value::Bulk(payload) = call(&mut client, &["DUMP", "h"]) else { panic!("a value is there") };
    call(&mut client, &["DEL", "h"]);
    agree(&master, &replica);
    let before = ended();
    client.call(&[b"RESTORE".as_slice(), b"h", b"0", &payload]).unwrap();
    wait_until("no payload has them", || ended() > before);
    call(&mut client, &["DEL", "h"]);
    agree(&master, &replica);
}

/// A master as Redis was before version 7 says how long a key is to last, not until when, lets `*` stand for an id, and may send scripts: its
/// replicas take their own clocks.
#[test]
fn how_long_keys_of_an_old_master_last_is_counted_from_now() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let old = thread::spawn(move || {
        let mut link = accept(&listener);
        let mut said = Vec::new();
        while !holds(&said, b"PSYNC") {
            let mut some = [0; 4096];
            let count = link.read(&mut some).unwrap();
            assert!(count > 0, "it asks for a copy");
            said.extend_from_slice(&some[..count]);
            if !holds(&said, b"PSYNC") {
                let requests = some[..count].iter().filter(|byte| **byte == b'*').count();
                let pong = if holds(&some[..count], b"PING") { "+PONG\r\n" } else { "+OK\r\n" };
                let rest = "+OK\r\n".repeat(requests.saturating_sub(1));
                link.write_all(format!("{pong}{rest}").as_bytes()).unwrap();
            }
        }
        let copy = b"REDIS0009\xfa\x09redis-ver\x066.2.14\xff\0\0\0\0\0\0\0\0";
        link.write_all(format!("+FULLRESYNC {} 0\r\n${}\r\n", "a".repeat(40), copy.len()).as_bytes())
            .unwrap();
        link.write_all(copy).unwrap();
        let stream = "SELECT 0|SET a 1|EXPIRE a 1000|SET b 1 EX 1000|SETEX c 1000 1|PSETEX d 1000000 1|SET e 1|PEXPIRE e 1000000|\
            SET f 1|GETEX f EX 1000|XADD s * f v|\
            EVAL redis.call('SETEX',KEYS[1],1000,'1')redis.call('SETEX','h',1000,'1') 1 g|\
            RPUSH list 1 2|MSET weight:1 9 weight:2 3 shown:1 x shown:2 y|SORT list BY weight:* GET shown:* STORE sorted:0|\
            EVAL redis.call('SORT',KEYS[1],'BY','weight:*','GET','shown:*','STORE',KEYS[2]) 2 list sorted:1|\
            EVAL redis.call('SORT','list','BY','weight:*','GET','shown:*','STORE','sorted:2') 0|SET end 1";
        for line in stream.split('|') {
            let words: Vec<&str> = line.split(' ').collect();
            let mut request = format!("*{}\r\n", words.len());
            words.iter().for_each(|word| request += &format!("${}\r\n{word}\r\n", word.len()));
            link.write_all(request.as_bytes()).unwrap();
        }
        // It has gone when the replica has.
        while link.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {}
    });
    let mut replica = master("durable", &["--replicaof", "127.0.0.1", &port]);
    let mut client = replica.connect_loaded().unwrap();
    wait_until("all of it is done", || shown(&call(&mut client, &["GET", "end"])) == "1");
    let look = |client: &mut Client| {
        for key in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            let Value::Int(left) = call(client, &["PTTL", key]) else { panic!("PTTL is a number") };
            assert!((1..=1_000_000).contains(&left), "{key}: {left}");
            assert_eq!(shown(&call(client, &["GET", key])), "1");
        }
        for key in ["sorted:0", "sorted:1", "sorted:2"] {
            let sorted = call(client, &["LRANGE", key, "0", "-1"]);
            assert_eq!(sorted, Value::Array(vec![text("y"), text("x")]), "{key}");
        }
        let Value::Array(entries) = call(client, &["XRANGE", "s", "-", "+"]) else {
            panic!("it is a stream")
        };
        let Value::Array(entry) = &entries[0] else { panic!("it has an entry") };
        assert_ne!(entry[0], text("0-1"));
    };
    look(&mut client);
    // So it is in the log.
    wait_until("it is durable", || field(&mut client, "master_link_status").is_some());
    replica.kill();
    old.join().unwrap();
    replica.restart().unwrap();
    look(&mut replica.connect_loaded().unwrap());
}
