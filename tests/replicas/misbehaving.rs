//! Replicas that do not read, lie, say half of what they have to, or take long to load their copies.

use super::{agree, field, follow, follower, master, read_until, shake_hands, wait_until};
use crate::info;
use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};
use sys::Prng;
use testkit::ask::call;
use testkit::{Client, Program, Server};
use wire::Value;

#[test]
fn replicas_that_do_not_read_take_little_and_are_put_out() {
    let limits = ["--client-output-buffer-limit", "replica 2mb 1mb 1", "--repl-backlog-size", "16kb"];
    let master = master("memory", &limits);
    let mut client = master.connect().unwrap();
    let silent: Vec<Client> = (0..5).map(|_| shake_hands(&master)).collect();
    wait_until("they are there", || info(&mut client, "connected_slaves") == 5);
    // What is written before that is in the copies, and they need not read it.
    silent.iter().for_each(|replica| drop(read_line(&master, replica, b'+')));
    let before = info(&mut client, "used_memory");
    let value = "v".repeat(100_000);
    for number in 0..200 {
        call(&mut client, &["SET", &format!("k{}", number % 10), &value]);
    }
    assert!(
        info(&mut client, "used_memory") < before + (12 << 20),
        "{}",
        info(&mut client, "used_memory") - before
    );
    wait_until("they are put out", || info(&mut client, "connected_slaves") == 0);
    drop(silent);
}

#[test]
fn no_key_goes_for_what_is_kept_for_a_replica() {
    let master = master("memory", &["--maxmemory-policy", "allkeys-lru", "--repl-backlog-size", "1mb"]);
    let mut client = master.connect().unwrap();
    let silent = shake_hands(&master);
    wait_until("it is there", || info(&mut client, "connected_slaves") == 1);
    let ceiling = info(&mut client, "used_memory") + (20 << 20);
    call(&mut client, &["CONFIG", "SET", "maxmemory", &ceiling.to_string()]);
    let value = "v".repeat(1_000_000);
    for number in 0..40 {
        assert_eq!(
            call(&mut client, &["SET", &format!("k{}", number % 5), &value]),
            Value::Simple(b"OK".to_vec())
        );
    }
    assert!(info(&mut client, "mem_not_counted_for_evict") > 30_000_000, "all of it is kept");
    assert_eq!(info(&mut client, "evicted_keys"), 0);
    drop(silent);
}

/// Values of which a copy is more than sockets and outboxes take.
fn fill(client: &mut Client) {
    let mut prng = Prng::from_seed(3);
    for number in 0..240u8 {
        let value: Vec<u8> = (0..12_500).flat_map(|_| prng.next_u64().to_le_bytes()).collect();
        client.call(&[&b"SET"[..], &[number], &value]).unwrap();
    }
}

/// How long each of those may take that do not read their copies, in seconds.
const SILENT_SECONDS: &str = "900";
/// How long an honest replica waits at most for its copy beside others: much less than each of these may take.
const SOON: Duration = Duration::from_secs(180);

#[test]
fn replicas_that_do_not_read_their_copies_hold_up_nobody_else() {
    for (edition, directly) in [("memory", "yes"), ("durable", "no")] {
        let directives = ["--repl-timeout", SILENT_SECONDS, "--repl-diskless-sync", directly];
        let master = master(edition, &directives);
        let mut client = master.connect().unwrap();
        fill(&mut client);
        let mut silent: Vec<Client> = (0..6).map(|_| shake_hands(&master)).collect();
        wait_until("they are there", || info(&mut client, "connected_slaves") == 6);
        for number in 0..3 {
            let began = Instant::now();
            let replica = follower(Program::Redis);
            follow(&mut replica.connect().unwrap(), &master);
            call(&mut client, &["SET", "a", &number.to_string()]);
            agree(&master, &replica);
            assert!(
                began.elapsed() < SOON,
                "{edition} {number}: {:?}\n{}",
                began.elapsed(),
                master.last_lines()
            );
            // Others come between, and read a byte now and then.
            silent.push(shake_hands(&master));
            silent.iter().for_each(read_a_byte);
        }
        assert!(files_of_copies(&master) <= 2);
        drop(silent);
        wait_until("they are gone", || info(&mut client, "connected_slaves") == 0);
        wait_until("their files are gone", || files_of_copies(&master) == 0);
    }
}

/// Reads the next line that begins so of what a replica is sent, and nothing behind it.
fn read_line(master: &Server, replica: &Client, begin: u8) -> String {
    let mut read = Vec::new();
    loop {
        // One by one, so that nothing of what follows is lost.
        let mut byte = [0];
        assert_eq!(replica.stream().read(&mut byte).unwrap(), 1, "{}", master.last_lines());
        read.push(byte[0]);
        if byte == *b"\n" {
            let line = String::from_utf8(std::mem::take(&mut read)).unwrap();
            // Empty ones say that the link is alive.
            if line.as_bytes()[0] == begin {
                return line.trim_end().to_owned();
            }
        }
    }
}

/// Reads where the stream goes on behind a copy that goes by way of a file, and how long that is.
fn read_beginning(master: &Server, replica: &Client) -> (u64, usize) {
    let resync = read_line(master, replica, b'+');
    let offset = resync.rsplit(' ').next().unwrap().parse().unwrap();
    (offset, read_line(master, replica, b'$')[1..].parse().unwrap())
}

#[test]
fn who_comes_when_another_has_its_copy_is_not_told_what_was_written_before() {
    let master = master("memory", &["--repl-diskless-sync", "no"]);
    let mut client = master.connect().unwrap();
    fill(&mut client);
    // It has its copy until the end, of which it reads no more.
    let silent = shake_hands(&master);
    let (first, _) = read_beginning(&master, &silent);
    let reading = shake_hands(&master);
    let (second, bytes) = read_beginning(&master, &reading);
    assert_eq!(first, second, "a copy that is new goes to both");
    std::io::copy(&mut reading.stream().take(bytes as u64), &mut std::io::sink()).unwrap();
    call(&mut client, &["SET", "a", "1"]);
    let written = info(&mut client, "master_repl_offset");
    let (third, _) = read_beginning(&master, &shake_hands(&master));
    assert!(third >= written, "{third}, of {written}");
}

fn read_a_byte(client: &Client) {
    // It may have been closed, or there is none yet.
    client.stream().set_read_timeout(Some(Duration::from_millis(20))).expect("it is a socket");
    let _ = client.stream().read(&mut [0]);
}

/// How many files of copies there are.
fn files_of_copies(master: &Server) -> usize {
    let names = std::fs::read_dir(master.dir()).unwrap();
    names
        .filter(|name| name.as_ref().unwrap().file_name().to_string_lossy().starts_with("temp-replica-"))
        .count()
}

#[test]
fn who_takes_too_little_of_a_copy_is_put_out() {
    let master = master("memory", &["--repl-timeout", "2", "--repl-diskless-sync", "no"]);
    let mut client = master.connect().unwrap();
    fill(&mut client);
    let slow = shake_hands(&master);
    wait_until("it is there", || info(&mut client, "connected_slaves") == 1);
    wait_until("it is put out", || {
        read_a_byte(&slow);
        info(&mut client, "connected_slaves") == 0
    });
    // What a server logs is read by a thread of its own.
    wait_until("it is told why", || master.output().contains("it does not read (repl-timeout)"));
}

#[test]
fn who_acknowledges_more_than_there_is_counts_for_nothing() {
    for edition in ["memory", "durable"] {
        let master = master(edition, &["--min-replicas-max-lag", "2", "--repl-ping-replica-period", "3600"]);
        let mut client = master.connect().unwrap();
        let mut liar = master.connect().unwrap();
        liar.send_request(&["PSYNC", "?", "-1"]).unwrap();
        let is_online =
            |client: &mut Client| field(client, "slave0").is_some_and(|line| line.contains("online"));
        wait_until("it is online", || is_online(&mut client));
        call(&mut client, &["SET", "a", "1"]);
        let offset = info(&mut client, "master_repl_offset");
        for lie in [offset + 1000, i64::MAX as u64, u64::MAX] {
            let lie = lie.to_string();
            liar.send_request(&["REPLCONF", "ACK", &lie, "FACK", &lie]).unwrap();
        }
        for id in ["0123456789012345678901234567890123456789", &field(&mut client, "master_replid").unwrap()]
        {
            for beyond in ["9223372036854775807", "9223372036854775808", "-9223372036854775808"] {
                let mut other = master.connect().unwrap();
                other.send_request(&["PSYNC", id, beyond]).unwrap();
                let mut read = Vec::new();
                read_until(&master, &other, &mut read, b"\r\n");
                assert!(read.starts_with(b"+FULLRESYNC") || read.starts_with(b"-ERR value"), "{beyond}");
            }
        }
        assert_eq!(call(&mut client, &["WAIT", "1", "200"]), Value::Int(0));
        let Value::Array(standing) = call(&mut client, &["WAITAOF", "0", "1", "200"]) else {
            panic!("two numbers")
        };
        assert_eq!(standing[1], Value::Int(0));
        assert!(
            field(&mut client, "slave0").unwrap().contains(",offset=0,"),
            "{:?}",
            field(&mut client, "slave0")
        );
        call(&mut client, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
        wait_until("it is no good replica", || {
            liar.send_request(&["REPLCONF", "ACK", "9223372036854775807"]).unwrap();
            matches!(call(&mut client, &["SET", "a", "1"]), Value::Error(text) if text.starts_with(b"NOREPLICAS"))
        });
        // What is true counts, and who follows cannot say whom to follow.
        call(&mut client, &["CONFIG", "SET", "min-replicas-to-write", "0"]);
        let offset = info(&mut client, "master_repl_offset").to_string();
        liar.send_request(&["REPLCONF", "ACK", &offset, "FACK", &offset]).unwrap();
        wait_until("it counts", || call(&mut client, &["WAIT", "1", "100"]) == Value::Int(1));
        liar.send_request(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
        wait_until("what is answered ends it", || info(&mut client, "connected_slaves") == 0);
        assert_eq!(field(&mut client, "role").as_deref(), Some("master"));
    }
}

#[test]
fn half_handshakes_harm_nobody() {
    let master = master("durable", &[]);
    let mut client = master.connect().unwrap();
    for cut in 0..3 {
        let mut half = master.connect().unwrap();
        let requests: [&[&str]; 3] = [
            &["REPLCONF", "capa", "eof"],
            &["PSYNC", "0123456789012345678901234567890123456789", "77"],
            &["SYNC"],
        ];
        requests[..=cut].iter().for_each(|request| half.send_request(request).unwrap());
    }
    let mut twice = shake_hands(&master);
    twice.send_request(&["PSYNC", "?", "-1"]).unwrap();
    twice.send_request(&["REPLCONF", "ACK", "x"]).unwrap();
    twice.send_request(&["GET", "a"]).unwrap();
    drop(twice);
    wait_until("they are gone", || info(&mut client, "connected_slaves") == 0);
    let replica = follower(Program::Redis);
    follow(&mut replica.connect().unwrap(), &master);
    call(&mut client, &["SET", "a", "1"]);
    agree(&master, &replica);
}

/// Redis says an empty line each second while it loads a copy, and reads nothing then: it is there, however long that takes.
#[test]
fn who_says_that_it_loads_its_copy_is_not_put_out() {
    for directly in ["yes", "no"] {
        // Where the machine has no time for this test, the replica is silent.
        wait_until("it was never silent", || is_heard_while_it_loads(directly));
    }
}

/// Whether a replica has said all the while that it loads its copy. Then it is still there.
fn is_heard_while_it_loads(directly: &str) -> bool {
    const REPL_TIMEOUT: Duration = Duration::from_secs(5);
    let master = master("memory", &["--repl-timeout", "5", "--repl-diskless-sync", directly]);
    let mut client = master.connect().unwrap();
    call(&mut client, &["SET", "a", "1"]);
    let replica = shake_hands(&master);
    let mut read = Vec::new();
    read_until(&master, &replica, &mut read, b"REDIS0010");
    let begun = read.windows(9).position(|some| some == b"REDIS0010").unwrap();
    if directly == "yes" {
        let at = read.windows(5).position(|some| some == b"$EOF:").unwrap() + 5;
        let mark = read[at..at + 40].to_vec();
        let mut behind = read.split_off(begun);
        read_until(&master, &replica, &mut behind, &mark);
    } else {
        let line = read[..begun].rsplit(|byte| *byte == b'$').next().unwrap();
        let bytes: usize = std::str::from_utf8(line).unwrap().trim().parse().unwrap();
        while read.len() - begun < bytes {
            let mut some = [0; 4096];
            let count = replica.stream().read(&mut some).unwrap();
            read.extend_from_slice(&some[..count]);
        }
    }
    let began = Instant::now();
    let mut said_at = began;
    while began.elapsed() < REPL_TIMEOUT * 3 / 2 {
        // It may have been put out by then.
        let is_said = replica.stream().write_all(b"\n").is_ok();
        if said_at.elapsed() > REPL_TIMEOUT / 2 {
            return false;
        }
        assert!(is_said, "it was put out: {}", master.last_lines());
        said_at = Instant::now();
        thread::sleep(Duration::from_millis(100));
    }
    call(&mut client, &["SET", "a", "written behind it"]);
    replica.stream().write_all(b"*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n$1\r\n0\r\n").unwrap();
    read_until(&master, &replica, &mut Vec::new(), b"written behind it");
    true
}
