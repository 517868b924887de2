//! WAIT and WAITAOF: for whom they wait, and for what.

use super::{field, follow, follower, master, wait_until};
use crate::info;
use testkit::ask::{call, is_error};
use testkit::{Client, Program, Server};
use wire::Value;

#[test]
fn replicas_that_are_waited_for_have_what_was_written() {
    for edition in ["memory", "durable"] {
        let master = master(edition, &[]);
        let mut client = master.connect().unwrap();
        assert_eq!(call(&mut client, &["WAIT", "1", "50"]), Value::Int(0));
        let replica = follower(Program::Redis);
        follow(&mut replica.connect().unwrap(), &master);
        let mut there = replica.connect().unwrap();
        wait_until("the link is up", || field(&mut there, "master_link_status").as_deref() == Some("up"));
        for number in 0..20 {
            call(&mut client, &["SET", "a", &number.to_string()]);
            assert_eq!(call(&mut client, &["WAIT", "1", "100000"]), Value::Int(1), "{edition} {number}");
            assert_eq!(call(&mut there, &["GET", "a"]), Value::Bulk(number.to_string().into_bytes()));
        }
        assert_eq!(call(&mut client, &["WAIT", "2", "50"]), Value::Int(1));
        call(&mut client, &["CONFIG", "SET", "min-replicas-to-write", "2"]);
        assert!(
            matches!(call(&mut client, &["SET", "a", "1"]), Value::Error(text) if text.starts_with(b"NOREPLICAS"))
        );
        call(&mut client, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
        assert_eq!(call(&mut client, &["SET", "a", "1"]), Value::Simple(b"OK".to_vec()));
    }
}

/// Who waits waits for what it has written itself, as at a Redis: at once, in a transaction or a script, or because somebody served its wait.
#[test]
fn who_waits_waits_for_nothing_but_what_it_has_written() {
    for edition in ["valkey", "memory", "durable"] {
        let master = match edition {
            "valkey" => Server::start(Program::Valkey, &["--repl-ping-replica-period", "3600"]).unwrap(),
            _ => master(edition, &["--repl-ping-replica-period", "3600"]),
        };
        let [mut writer, mut other, mut nobody] = [(); 3].map(|()| master.connect().unwrap());
        let mut replica = master.connect().unwrap();
        replica.send_request(&["PSYNC", "?", "-1"]).unwrap();
        let mut acknowledge = |client: &mut Client| {
            let offset = info(client, "master_repl_offset").to_string();
            replica.send_request(&["REPLCONF", "ACK", &offset, "FACK", &offset]).unwrap();
            wait_until("it is noted", || {
                field(client, "slave0").is_some_and(|line| line.contains(&format!("online,offset={offset},")))
            });
        };
        wait_until("it is online", || {
            field(&mut nobody, "slave0").is_some_and(|line| line.contains("online"))
        });
        let has = |client: &mut Client, wait_ms: &str| {
            let count = call(client, &["WAIT", "1", wait_ms]);
            let Value::Array(standing) = call(client, &["WAITAOF", "0", "1", wait_ms]) else {
                panic!("two numbers")
            };
            assert_eq!(standing[1], count, "{edition}");
            count == Value::Int(1)
        };
        let writes: [&[&[&str]]; 6] = [
            &[&["SET", "a", "1"]],
            &[&["MULTI"], &["SET", "a", "2"], &["EXEC"]],
            &[&["EVAL", "return redis.call('SET', 'a', '3')", "0"]],
            &[&["PUBLISH", "news", "told"]],
            &[&["RPUSH", "q", "x"], &["BLPOP", "q", "0"]],
            &[&["BLPOP", "q", "0"]],
        ];
        // What it was served behind its wait a Valkey does not count.
        for requests in &writes[..if edition == "valkey" { 5 } else { 6 }] {
            for request in *requests {
                writer.send_request(request).unwrap();
            }
            if requests.len() == 1 && requests[0][0] == "BLPOP" {
                wait_until("it waits", || info(&mut other, "blocked_clients") == 1);
                call(&mut other, &["RPUSH", "q", "x"]);
            }
            for _ in *requests {
                assert!(!is_error(&writer.read_value().unwrap(), ""));
            }
            assert!(!has(&mut writer, "1"), "{edition}: {requests:?}");
            assert!(has(&mut nobody, "100000"), "{edition}: {requests:?}");
            // Nobody waits until what is published is on disk, and INFO tells of nothing else.
            call(&mut other, &["SET", "b", "behind it"]);
            acknowledge(&mut nobody);
            // What others write is nothing to it, and neither is what it only looks at.
            call(&mut other, &["SET", "a", "other"]);
            call(&mut writer, &["GET", "a"]);
            assert!(has(&mut writer, "100000"), "{edition}: {requests:?}");
            assert!(!has(&mut other, "1"), "{edition}");
        }
        // All at once: what is in front of WAIT is done.
        writer.send_request(&["SET", "a", "1"]).unwrap();
        writer.send_request(&["WAIT", "1", "1"]).unwrap();
        let replies = [(); 2].map(|()| writer.read_value().unwrap());
        assert_eq!(replies, [Value::Simple(b"OK".to_vec()), Value::Int(0)], "{edition}");
    }
}
