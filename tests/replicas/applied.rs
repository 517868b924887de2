//! What a replica does with what its master sends: messages, transactions, pauses, what others hold up, and whom it tells.

use super::{agree, field, follow, follower, master, wait_until};
use crate::{info, tarn};
use testkit::ask::{call, is_error, shown, text};
use testkit::{Client, Program, Server};
use wire::Value;

/// Messages that are published at the master come to who listens at its replica, behind what their transaction or script wrote.
fn messages_come_to_replicas(master: &Server, replica: &Server) {
    let (mut here, mut there) = (master.connect().unwrap(), replica.connect().unwrap());
    follow(&mut there, master);
    wait_until("the link is up", || field(&mut there, "master_link_status").as_deref() == Some("up"));
    wait_until("it is online", || field(&mut here, "slave0").is_some_and(|line| line.contains("online")));
    let mut listener = replica.connect().unwrap();
    call(&mut listener, &["SUBSCRIBE", "news"]);
    assert_eq!(call(&mut here, &["PUBLISH", "news", "plain"]), Value::Int(0));
    call(&mut here, &["MULTI"]);
    for request in [&["PUBLISH", "news", "exec"][..], &["SET", "of-exec", "1"]] {
        call(&mut here, request);
    }
    call(&mut here, &["EXEC"]);
    let script = "redis.call('publish', 'news', 'script') redis.call('set', KEYS[1], 1)";
    call(&mut here, &["EVAL", script, "1", "of-script"]);
    for (message, key) in [("plain", None), ("exec", Some("of-exec")), ("script", Some("of-script"))] {
        let heard = listener.read_value().expect("a message comes");
        assert_eq!(heard, Value::Array(["message", "news", message].map(text).to_vec()));
        if let (Some(key), Program::Tarn(_)) = (key, master.program()) {
            assert_eq!(call(&mut there, &["GET", key]), Value::Bulk(b"1".to_vec()), "{key}");
        }
    }
}

#[test]
fn messages_come_to_who_listens_at_a_replica() {
    messages_come_to_replicas(&master("memory", &[]), &follower(Program::Redis));
    messages_come_to_replicas(&master("durable", &[]), &follower(tarn()));
    messages_come_to_replicas(&follower(Program::Redis), &master("durable", &[]));
}

#[test]
fn a_paused_replica_does_nothing_of_its_masters() {
    for edition in ["memory", "durable"] {
        let (master, replica) = (master("memory", &[]), master(edition, &[]));
        let (mut here, mut there) = (master.connect().unwrap(), replica.connect().unwrap());
        follow(&mut there, &master);
        call(&mut here, &["SET", "a", "1"]);
        agree(&master, &replica);
        let offset = |client: &mut Client, name: &str| field(client, name).unwrap().parse::<u64>().unwrap();
        assert_eq!(shown(&call(&mut there, &["CLIENT", "PAUSE", "1000000", "WRITE"])), "OK");
        let before = offset(&mut there, "slave_repl_offset");
        call(&mut here, &["SET", "a", "2"]);
        let end = offset(&mut here, "master_repl_offset");
        wait_until("it has come", || offset(&mut there, "slave_read_repl_offset") >= end);
        assert_eq!(offset(&mut there, "slave_repl_offset"), before);
        assert_eq!(shown(&call(&mut there, &["GET", "a"])), "1");
        assert_eq!(shown(&call(&mut there, &["CLIENT", "UNPAUSE"])), "OK");
        agree(&master, &replica);
        assert_eq!(shown(&call(&mut there, &["GET", "a"])), "2");
    }
}

#[test]
fn what_comes_together_is_done_request_by_request() {
    for edition in ["memory", "durable"] {
        let (master, replica) = (master("memory", &[]), master(edition, &["--replica-read-only", "no"]));
        let (mut here, mut there) = (master.connect().unwrap(), replica.connect().unwrap());
        follow(&mut there, &master);
        call(&mut here, &["SET", "a", "1"]);
        agree(&master, &replica);
        // What the master does to these fails here, or does something else.
        call(&mut there, &["RPUSH", "list", "x"]);
        call(&mut there, &["SET", "long", "xy"]);
        let mut waiting = replica.connect().unwrap();
        waiting.send_request(&["XREAD", "BLOCK", "0", "STREAMS", "stream", "$"]).unwrap();
        wait_until("it waits", || info(&mut there, "blocked_clients") == 1);
        assert_eq!(shown(&call(&mut there, &["CLIENT", "PAUSE", "1000000", "WRITE"])), "OK");
        let lines = [
            "INCR n",
            "INCR list",
            "APPEND long z",
            "INCR n",
            "XADD stream 1-1 f v",
            "XADD stream 1-2 f v",
            "SELECT 2",
            "INCR n",
            "MULTI",
            "INCR n",
            "SELECT 1",
            "INCR n",
            "EXEC",
            "INCR n",
            "SELECT 0",
            "INCR n",
            "SADD set a b",
            "SPOP set",
            "SET e 1 PX 1",
            "SET f 1 PX 1000000",
            "DEL none",
        ];
        let split = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut requests: Vec<_> = (0..70).map(|number| split(&format!("SET k{number} {number}"))).collect();
        requests.extend(lines.into_iter().map(split));
        requests.extend((0..70).map(|number| split(&format!("RPUSH l{} {number}", number % 7))));
        here.pipeline(&requests).unwrap();
        let offset = |client: &mut Client, name: &str| field(client, name).unwrap().parse::<u64>().unwrap();
        wait_until("it has come", || {
            offset(&mut there, "slave_read_repl_offset") >= offset(&mut here, "master_repl_offset")
        });
        assert_eq!(call(&mut there, &["EXISTS", "k0"]), Value::Int(0));
        assert_eq!(shown(&call(&mut there, &["CLIENT", "UNPAUSE"])), "OK");
        // Who waits is served by the first that comes, and not by all.
        let entry = Value::Array(vec![text("1-1"), Value::Array(vec![text("f"), text("v")])]);
        let served = Value::Array(vec![text("stream"), Value::Array(vec![entry])]);
        assert_eq!(waiting.read_value().unwrap(), Value::Array(vec![served]));
        wait_until("it is done", || {
            offset(&mut there, "slave_repl_offset") >= offset(&mut here, "master_repl_offset")
        });
        assert_eq!(
            call(&mut there, &["LRANGE", "list", "0", "-1"]),
            Value::Array(vec![Value::Bulk(b"x".to_vec())])
        );
        assert_eq!(shown(&call(&mut there, &["GET", "long"])), "xyz");
        replica.await_output(&["could not be done here"]);
        // All else is the same, and so is what a log makes of it.
        call(&mut here, &["DEL", "list", "long"]);
        agree(&master, &replica);
    }
}

#[test]
fn a_long_transaction_waits_for_its_keys_only() {
    let (master, replica) = (master("memory", &[]), master("memory", &["--busy-reply-threshold", "1"]));
    let (mut here, mut there) = (master.connect().unwrap(), replica.connect().unwrap());
    let mut busy = replica.connect().unwrap();
    call(&mut here, &["SET", "read", "v"]);
    follow(&mut there, &master);
    agree(&master, &replica);
    busy.send_request(&["EVAL", "while redis.call('GET', KEYS[1]) do end", "1", "read"]).unwrap();
    let is_busy = |client: &mut Client| is_error(&call(client, &["GET", "read"]), "BUSY");
    wait_until("the script runs", || is_busy(&mut there));
    let words = vec!["word"; 30_000];
    call(&mut here, &["MULTI"]);
    for _ in 0..3 {
        call(&mut here, &[&["RPUSH", "list"][..], &words].concat());
    }
    call(&mut here, &["EXEC"]);
    wait_until("it is done", || call(&mut there, &["LLEN", "list"]) == Value::Int(90_000));
    assert!(is_busy(&mut there), "the script is there still");
    assert_eq!(shown(&call(&mut there, &["SCRIPT", "KILL"])), "OK");
}

#[test]
fn a_look_for_any_key_frees_those_that_are_over() {
    let (master, replica) = (master("memory", &[]), master("memory", &[]));
    let (mut here, mut there) = (master.connect().unwrap(), replica.connect().unwrap());
    follow(&mut there, &master);
    call(&mut here, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    call(&mut here, &["SET", "over", "v", "PX", "1"]);
    agree(&master, &replica);
    call(&mut here, &["BLPOP", "none", "0.05"]);
    assert_eq!(call(&mut here, &["DBSIZE"]), Value::Int(1));
    assert_eq!(call(&mut here, &["RANDOMKEY"]), Value::Null);
    assert_eq!(call(&mut here, &["DBSIZE"]), Value::Int(0));
    agree(&master, &replica);
    assert_eq!(call(&mut there, &["DBSIZE"]), Value::Int(0));
}

/// Who caches what it reads at a replica is told of all that its master empties, alone and within a transaction.
fn emptied_caches(master: &Server, replica: &Server) {
    let (mut here, mut there) = (master.connect().unwrap(), replica.connect().unwrap());
    follow(&mut there, master);
    wait_until("the link is up", || field(&mut there, "master_link_status").as_deref() == Some("up"));
    let everything = Value::Push(vec![text("invalidate"), Value::Null]);
    for modes in [&["CLIENT", "TRACKING", "ON"][..], &["CLIENT", "TRACKING", "ON", "BCAST"]] {
        for flush in [&["FLUSHALL"][..], &["FLUSHDB"], &["MULTI", "FLUSHDB", "EXEC"]] {
            call(&mut here, &["SET", "k", "1"]);
            wait_until("it has come", || shown(&call(&mut there, &["GET", "k"])) == "1");
            let mut reader = replica.connect().unwrap();
            call(&mut reader, &["HELLO", "3"]);
            call(&mut reader, modes);
            call(&mut reader, &["GET", "k"]);
            for word in flush {
                call(&mut here, &[word]);
            }
            assert_eq!(reader.read_value().expect("it is told"), everything, "{modes:?} {flush:?}");
        }
    }
}

#[test]
fn who_caches_at_a_replica_is_told_of_what_its_master_empties() {
    emptied_caches(&follower(Program::Redis), &follower(tarn()));
    emptied_caches(&master("memory", &[]), &master("durable", &[]));
}
