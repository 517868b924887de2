//! What goes on where a link was cut, a master or replica restarted, or one follows another that follows; and what a stream does not go
//! on from.

use super::{agree, field, follow, follower, holds, master, read_until, shake_hands, wait_until, write};
use crate::{info, tarn};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;
use testkit::ask::{call, is_error};
use testkit::{Program, Server};
use wire::Value;

#[test]
fn a_tarn_follows_a_tarn_that_follows_a_tarn() {
    for (first, second) in [("durable", "memory"), ("memory", "durable")] {
        let master = master(first, &[]);
        let middle = Server::start(tarn(), &["--edition", second, "--repl-rdb-version", "10"]).unwrap();
        let last = follower(Program::Redis);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _ends = testkit::Ends(&is_over);
            scope.spawn(|| write(&master, 5, &is_over));
            follow(&mut middle.connect().unwrap(), &master);
            let mut there = middle.connect().unwrap();
            wait_until("the link is up", || field(&mut there, "master_link_status").as_deref() == Some("up"));
            follow(&mut last.connect().unwrap(), &middle);
            let mut there = last.connect().unwrap();
            wait_until("the link is up", || field(&mut there, "master_link_status").as_deref() == Some("up"));
            thread::sleep(Duration::from_millis(500));
        });
        agree(&master, &last);
    }
}

#[test]
fn a_replica_goes_on_after_its_master_was_killed_and_after_it_was_killed_itself() {
    let mut master = master("durable", &[]);
    let address = format!("127.0.0.1 {}", master.address().port());
    let own = ["--edition", "durable", "--enable-debug-command", "yes", "--replicaof", &address];
    let mut replica = Server::start(tarn(), &own).unwrap();
    let redis = follower(Program::Redis);
    for server in [&replica, &redis] {
        follow(&mut server.connect().unwrap(), &master);
    }
    let mut client = master.connect().unwrap();
    call(&mut client, &["SET", "a", "1"]);
    [&replica, &redis].into_iter().for_each(|server| agree(&master, server));
    replica.kill();
    for number in 0..20_000 {
        call(&mut client, &["SET", "b", &number.to_string()]);
    }
    replica.restart().unwrap();
    follow(&mut replica.connect().unwrap(), &master);
    agree(&master, &replica);
    assert_eq!(info(&mut client, "sync_full"), 2, "it went on from where it was: {}", master.last_lines());
    master.kill();
    master.restart().unwrap();
    let mut client = master.connect().unwrap();
    call(&mut client, &["SET", "c", "3"]);
    for server in [&replica, &redis] {
        follow(&mut server.connect().unwrap(), &master);
        agree(&master, server);
    }
}

#[test]
fn what_one_that_is_away_lacks_is_kept_whoever_else_comes() {
    let master = master("durable", &["--log-segment-size", "1mb", "--repl-backlog-size", "16kb"]);
    let own = ["--edition", "durable", "--enable-debug-command", "yes"];
    let [mut first, mut second] = [(); 2].map(|()| Server::start(tarn(), &own).unwrap());
    let mut client = master.connect().unwrap();
    for replica in [&first, &second] {
        follow(&mut replica.connect().unwrap(), &master);
        agree(&master, replica);
    }
    call(&mut client, &["SET", "a", "1"]);
    assert_eq!(call(&mut client, &["WAIT", "2", "100000"]), Value::Int(2));
    let mut await_count =
        |count: u64| wait_until("so many follow", || info(&mut client, "connected_slaves") == count);
    first.kill();
    await_count(1);
    second.restart().unwrap();
    follow(&mut second.connect().unwrap(), &master);
    agree(&master, &second);
    for _ in 0..3 {
        for number in 0..4 {
            call(&mut client, &["SET", &format!("long:{number}"), &"x".repeat(700 << 10)]);
        }
        agree(&master, &second);
        assert!(!is_error(&call(&mut client, &["BGREWRITEAOF"]), ""));
        wait_until("it is written", || info(&mut client, "aof_rewrite_in_progress") == 0);
    }
    first.restart().unwrap();
    follow(&mut first.connect().unwrap(), &master);
    agree(&master, &first);
    assert_eq!(info(&mut client, "sync_full"), 2, "it went on from where it was: {}", master.last_lines());
}

#[test]
fn what_is_written_on_a_follower_is_in_no_stream() {
    let master = Server::start(Program::Redis, &["--repl-ping-replica-period", "3600"]).unwrap();
    let middle = ["--edition", "memory", "--replica-read-only", "no", "--repl-rdb-version", "10"];
    let middle = Server::start(tarn(), &middle).unwrap();
    let (mut head, mut client) = (master.connect().unwrap(), middle.connect().unwrap());
    follow(&mut client, &master);
    wait_until("the link is up", || field(&mut client, "master_link_status").as_deref() == Some("up"));
    let last = shake_hands(&middle);
    let (mut read, mut offsets) = (Vec::new(), 0);
    wait_until("the copy is made", || {
        field(&mut client, "slave0").is_some_and(|line| line.contains("online"))
    });
    for number in 0..5 {
        // The master's stream selects a database that nothing is written in here.
        call(&mut head, &["SELECT", "3"]);
        call(&mut head, &["SET", "of-master", "1"]);
        call(&mut client, &["MSET", "own", "x", "own2", "y"]);
        call(&mut client, &["SET", "own-expiring", "x", "PX", "20"]);
        call(&mut client, &["EVAL", "redis.call('SET', 'own', 1) redis.call('INCR', 'own')", "0"]);
        wait_until("its time is up", || call(&mut client, &["EXISTS", "own-expiring"]) == Value::Int(0));
        call(&mut head, &["SET", &format!("marker-{number}"), "1"]);
        read_until(&middle, &last, &mut read, format!("marker-{number}").as_bytes());
        wait_until("the offsets are the same", || {
            offsets = info(&mut head, "master_repl_offset");
            info(&mut client, "master_repl_offset") == offsets
        });
    }
    // The copy was made before.
    assert!(!holds(&read, b"own"), "{}", read.escape_ascii());
    assert_eq!(info(&mut client, "connected_slaves"), 1);
    assert_eq!(info(&mut client, "sync_full"), 1);
    // As a master it selects what its own writes are in.
    call(&mut client, &["REPLICAOF", "NO", "ONE"]);
    drop(last);
    let mut last = middle.connect().unwrap();
    call(&mut last, &["REPLCONF", "capa", "psync2"]);
    last.send_request(&["PSYNC", &field(&mut client, "master_replid2").unwrap(), &(offsets + 1).to_string()])
        .unwrap();
    read.clear();
    read_until(&middle, &last, &mut read, b"+CONTINUE");
    call(&mut client, &["SET", "own", "z"]);
    read_until(&middle, &last, &mut read, b"$1\r\nz\r\n");
    // What expired here goes before it.
    assert!(holds(&read, b"SELECT\r\n$1\r\n0\r\n*"), "{}", read.escape_ascii());
}

#[test]
fn a_stream_that_nobody_follows_any_more_is_forgotten() {
    let ttl = ["--repl-backlog-ttl", "1"];
    for (edition, name_stays) in [("memory", false), ("durable", true)] {
        let master = master(edition, &ttl);
        let mut client = master.connect().unwrap();
        for round in 0..2 {
            let mut replica = master.connect().unwrap();
            replica.send_request(&["PSYNC", "?", "-1"]).unwrap();
            read_until(&master, &replica, &mut Vec::new(), b"$");
            wait_until("it is there", || field(&mut client, "repl_backlog_active").as_deref() == Some("1"));
            call(&mut client, &["SET", "a", "1"]);
            let name = field(&mut client, "master_replid").unwrap();
            let offset = info(&mut client, "master_repl_offset");
            assert!(offset > 0);
            drop(replica);
            wait_until("it is forgotten", || {
                field(&mut client, "repl_backlog_active").as_deref() == Some("0")
            });
            assert_eq!(info(&mut client, "repl_backlog_histlen"), 0);
            let later = field(&mut client, "master_replid").unwrap();
            assert_eq!(later == name, name_stays, "{edition}");
            call(&mut client, &["MSET", "b", &round.to_string(), "c", "3"]);
            if edition == "memory" {
                assert_eq!(info(&mut client, "master_repl_offset"), offset, "nobody says what is written");
                // Neither name leads past what was not said.
                for name in [&name, &later] {
                    let mut back = master.connect().unwrap();
                    back.send_request(&["PSYNC", name, &(offset + 1).to_string()]).unwrap();
                    read_until(&master, &back, &mut Vec::new(), b"+FULLRESYNC");
                }
            }
        }
        let replica = follower(Program::Redis);
        follow(&mut replica.connect().unwrap(), &master);
        call(&mut client, &["SET", "d", "4"]);
        agree(&master, &replica);
    }
}
