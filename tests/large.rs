//! Values that are too large to be said in one word: in the log they are in pieces, in checkpoints in parts, and a start makes them what they
//! were.
//!
//! Where `TARN_LARGE` is set the values are as large as they must be where nothing is told to be small: this takes some minutes and
//! gigabytes.

use crate::{info, subject, tarn};
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::ask::call_line_well;
use testkit::{Client, Server};
use wire::Value;

/// In these databases everything is compared.
const DATABASES: usize = 3;

fn start(directives: &[&str]) -> Server {
    // Checkpoints are written when the test says so.
    let all = [&["--edition", "durable", "--auto-aof-rewrite-percentage", "0"], directives].concat();
    Server::start(tarn(), &all).unwrap()
}

/// A key of each type and encoding that may be large.
fn fill(client: &mut Client) {
    let text = |number: usize| format!("{number}-").repeat(1 + number % 7);
    let mut lines = Vec::new();
    for number in 0..1500 {
        let word = text(number);
        let score = ["-0", "inf", "-inf", "0.1", "1e300", "-7.25", "3"][number % 7];
        lines.extend([
            format!("RPUSH list {word} {number}"),
            format!("HSET hash {word} {number}"),
            format!("HSET fields {number} {word}"),
            format!("SADD set {word} {number}"),
            format!("SADD ints {number}"),
            format!("ZADD zset {score} {word}"),
            format!("XADD stream {}-{} f {word} g {number}", number / 3 + 1, number % 3),
            format!("APPEND string {word}"),
        ]);
    }
    let requests: Vec<Vec<&str>> = lines.iter().map(|line| line.split(' ').collect()).collect();
    for some in requests.chunks(1000) {
        assert!(client.pipeline(some).unwrap().iter().all(|reply| !reply.starts_with(b"-")));
    }
    for line in [
        "HPEXPIREAT fields 4000000000000 FIELDS 3 1 2 3",
        "PEXPIREAT zset 4000000000001",
        "PEXPIREAT string 4000000000002",
        "XGROUP CREATE stream all 0",
        "XGROUP CREATE stream some 100-1 ENTRIESREAD 300",
        "XREADGROUP GROUP all one COUNT 60 STREAMS stream >",
        "XREADGROUP GROUP all two COUNT 9 STREAMS stream >",
        "XREADGROUP GROUP some one COUNT 5 STREAMS stream >",
        "XDEL stream 1-0 2-1 499-2 500-0 500-1 500-2",
        "XSETID stream 600-1 ENTRIESADDED 2000 MAXDELETEDID 550-0",
        "XTRIM stream MAXLEN 1200",
    ] {
        call_line_well(client, line);
    }
}

/// All that copies and moves values.
fn shuffle(client: &mut Client) {
    for name in ["list", "hash", "fields", "set", "ints", "zset", "stream", "string"] {
        for line in [
            format!("COPY {name} copy:{name}"),
            format!("COPY {name} {name} DB 1"),
            format!("RENAME copy:{name} renamed:{name}"),
            format!("COPY {name} moved:{name}"),
            format!("MOVE moved:{name} 2"),
            format!("SET copy:{name} small"),
            format!("COPY {name} copy:{name} REPLACE"),
        ] {
            call_line_well(client, &line);
        }
    }
    for line in [
        "SUNIONSTORE union set ints",
        "ZUNIONSTORE zunion 2 zset set",
        "SORT ints STORE sorted",
        "LMOVE list sorted LEFT RIGHT",
        "BITOP NOT negated string",
        "RENAME renamed:list list",
        "SINTERSTORE nothing set missing",
    ] {
        call_line_well(client, line);
    }
}

/// Every key of every database: its type, encoding, moment and value.
fn shown(client: &mut Client) -> Vec<String> {
    let mut all = Vec::new();
    for db in 0..DATABASES {
        call_line_well(client, &format!("SELECT {db}"));
        let Value::Array(keys) = call_line_well(client, "KEYS *") else { panic!("KEYS gives an array") };
        for key in keys {
            let Value::Bulk(key) = key else { panic!("a key is a bulk string") };
            let key = String::from_utf8(key).unwrap();
            all.push(format!("{db} {key} {}", shown_key(client, &key)));
        }
    }
    call_line_well(client, "SELECT 0");
    all.sort();
    all
}

fn shown_key(client: &mut Client, key: &str) -> String {
    let kind = text(&call_line_well(client, &format!("TYPE {key}")));
    let value = match kind.as_str() {
        "string" => text(&call_line_well(client, &format!("GET {key}"))),
        "list" => text(&call_line_well(client, &format!("LRANGE {key} 0 -1"))),
        "set" => in_order(&call_line_well(client, &format!("SMEMBERS {key}")), 1),
        "hash" => {
            let fields = in_order(&call_line_well(client, &format!("HGETALL {key}")), 2);
            let moments = text(&call_line_well(client, &format!("HPEXPIRETIME {key} FIELDS 4 1 2 3 4")));
            fields + &moments
        }
        "zset" => text(&call_line_well(client, &format!("ZRANGE {key} 0 -1 WITHSCORES"))),
        "stream" => {
            let entries = text(&call_line_well(client, &format!("XRANGE {key} - +")));
            let groups = text(&call_line_well(client, &format!("XINFO STREAM {key} FULL COUNT 0")));
            entries + &groups
        }
        other => panic!("{key} is a {other}"),
    };
    let encoding = text(&call_line_well(client, &format!("OBJECT ENCODING {key}")));
    let moment = text(&call_line_well(client, &format!("PEXPIRETIME {key}")));
    format!("{encoding} {moment} {value}")
}

/// A reply as a line.
fn text(reply: &Value) -> String {
    match reply {
        Value::Bulk(bytes) | Value::Simple(bytes) => bytes.escape_ascii().to_string(),
        Value::Int(number) => number.to_string(),
        Value::Array(values) => {
            let mut texts: Vec<String> = values.iter().map(text).collect();
            // How entries lie in memory is nobody's concern.
            for at in (0..texts.len()).rev() {
                if texts[at].starts_with("radix-tree") {
                    texts[at + 1].clear();
                }
            }
            texts.join(" | ")
        }
        other => format!("{other:?}"),
    }
}

/// The elements of a reply, so many together, in an order of their own.
fn in_order(reply: &Value, together: usize) -> String {
    let Value::Array(values) = reply else { panic!("{reply:?}") };
    let mut texts: Vec<String> =
        values.chunks(together).map(|some| some.iter().map(text).collect::<Vec<_>>().join("=")).collect();
    texts.sort();
    texts.join(" ")
}

fn wait_for_checkpoint(client: &mut Client) {
    testkit::ask::wait_until("it is written", || info(client, "aof_rewrite_in_progress") == 0);
    let Value::Bulk(text) = call_line_well(client, "INFO persistence") else {
        panic!("INFO is a bulk string")
    };
    assert!(String::from_utf8(text).unwrap().contains("aof_last_bgrewrite_status:ok"));
}

fn assert_survives(server: &mut Server, client: &mut Client) {
    let before = shown(client);
    server.kill();
    let after = shown(&mut subject::restart(server));
    let wrong = before.iter().zip(&after).find(|(one, other)| one != other);
    assert_eq!(wrong, None);
    assert_eq!(before.len(), after.len());
}

#[test]
fn large_values_are_logged_in_pieces_and_are_the_same_after_a_kill() {
    let mut server = start(&["--log-piece-size", "100"]);
    let mut client = subject::connect(&server);
    fill(&mut client);
    shuffle(&mut client);
    assert_survives(&mut server, &mut client);
}

#[test]
fn large_slots_are_in_parts_of_a_checkpoint_and_are_the_same_after_a_kill() {
    for edition in ["durable", "capacity"] {
        let mut server = start(&["--log-piece-size", "100", "--edition", edition]);
        let mut client = subject::connect(&server);
        fill(&mut client);
        shuffle(&mut client);
        call_line_well(&mut client, "BGREWRITEAOF");
        wait_for_checkpoint(&mut client);
        call_line_well(&mut client, "RPUSH list last");
        assert_survives(&mut server, &mut client);
    }
}

#[test]
fn a_large_value_that_is_written_all_the_time_is_whole_in_a_checkpoint() {
    let mut server = start(&["--log-piece-size", "100"]);
    let mut client = subject::connect(&server);
    fill(&mut client);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        let writer = scope.spawn(|| {
            let mut writer = subject::connect(&server);
            let mut number = 0;
            while !is_over.load(Ordering::Relaxed) {
                number += 1;
                for line in [
                    format!("RPUSH list {number}"),
                    "LPOP list".to_owned(),
                    format!("ZINCRBY zset 1 {number}"),
                    format!("HINCRBY fields {} 1", 5000 + number % 5),
                    "APPEND string x".to_owned(),
                    format!("XADD stream {}-0 f v", 1000 + number),
                ] {
                    call_line_well(&mut writer, &line);
                }
            }
        });
        for _ in 0..3 {
            call_line_well(&mut client, "BGREWRITEAOF");
            wait_for_checkpoint(&mut client);
        }
        is_over.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
    assert_survives(&mut server, &mut client);
}

/// What takes long is waited for longer than a client usually waits.
fn call_patiently(client: &mut Client, words: &[&str]) -> Value {
    client.send_request(words).unwrap();
    loop {
        match client.read_value() {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            reply => return reply.unwrap(),
        }
    }
}

/// What is asked of values of more than half a gigabyte, and of slots of more than one.
#[test]
fn values_of_gigabytes_are_logged_copied_and_recovered() {
    const MEGABYTES: usize = 1200;
    if std::env::var_os("TARN_LARGE").is_none() {
        println!("skipped: TARN_LARGE is not set");
        return;
    }
    // Each start replays gigabytes.
    let patience = std::time::Duration::from_secs(600);
    let mut server = Server::start_within(
        patience,
        tarn(),
        &["--edition", "durable", "--auto-aof-rewrite-percentage", "0"],
    )
    .unwrap();
    let mut client = subject::connect(&server);
    let element = "e".repeat(1 << 20);
    for number in 0..MEGABYTES {
        let reply = client.call(&["RPUSH", "list", &format!("{number}:{element}")]).unwrap();
        assert_eq!(reply, Value::Int(number as i64 + 1));
    }
    assert_eq!(call_patiently(&mut client, &["RENAME", "list", "other"]), Value::Simple(b"OK".to_vec()));
    let before = server.resident_bytes().unwrap();
    call_line_well(&mut client, "BGREWRITEAOF");
    let mut most = 0;
    while info(&mut client, "aof_rewrite_in_progress") == 1 {
        most = most.max(server.resident_bytes().unwrap());
    }
    wait_for_checkpoint(&mut client);
    assert!(
        most < before + (64 << 20),
        "{before} bytes were resident, {most} while a checkpoint was written"
    );
    for key in ["other", "list"] {
        if key == "list" {
            call_patiently(&mut client, &["RENAME", "other", key]);
        }
        server.kill();
        client = subject::restart(&mut server);
        assert_eq!(client.call(&["LLEN", key]).unwrap(), Value::Int(MEGABYTES as i64));
        for number in (0..MEGABYTES).step_by(101) {
            let reply = client.call(&["LINDEX", key, &number.to_string()]).unwrap();
            assert!(reply == Value::Bulk(format!("{number}:{element}").into_bytes()), "element {number}");
        }
    }
}
