//! How the server ends when it is told to, however early that is.

use crate::departures::signal;
use crate::tarn;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use testkit::ask::{call, ok, wait_until};
use testkit::process::Deadline;
use testkit::{Program, Server};
use wire::Value;

/// Starts a server, sends SIGTERM as soon as it has said `line`, and gives how it ended and what it had said.
fn end_behind(line: &str, directives: &[&str]) -> (Option<i32>, String) {
    let Program::Tarn(path) = tarn() else { unreachable!("tarn() is a Tarn") };
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("tarn-endings-{}-{number}", std::process::id()));
    let mut child = Command::new(path)
        .args(["server", "--port", "0", "--edition", "memory", "--dir"])
        .arg(&dir)
        .args(directives)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _deadline = Deadline::of(&child);
    let mut said = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut is_told = false;
    while output.read_line(&mut said).unwrap() > 0 {
        if !is_told && said.contains(line) {
            is_told = true;
            let status = Command::new("kill").arg(child.id().to_string()).status().unwrap();
            assert!(status.success());
        }
    }
    assert!(is_told, "{said}");
    let _ = std::fs::remove_dir_all(dir);
    (child.wait().unwrap().code(), said)
}

#[test]
fn sigterm_right_behind_any_line_ends_the_server_cleanly() {
    for line in ["Tarn ", "Listening on", "worker threads", "Ready to accept connections"] {
        for _ in 0..5 {
            let (code, said) = end_behind(line, &[]);
            assert_eq!(code, Some(0), "behind '{line}':\n{said}");
            assert!(said.contains("Received SIGTERM"), "behind '{line}':\n{said}");
        }
    }
}

#[test]
fn a_server_that_finds_nothing_to_evict_ends_all_the_same() {
    let full = ["--maxmemory", "100", "--maxmemory-policy", "allkeys-lru"];
    for directives in [&full[..2], &full] {
        let (code, said) = end_behind("Ready to accept connections", directives);
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn a_server_that_is_killed_again_and_again_fills_no_disk_with_what_each_start_begins() {
    let directives =
        ["--edition", "durable", "--log-segment-size", "1mb", "--auto-aof-rewrite-min-size", "1mb"];
    let mut server = Server::start(tarn(), &directives).unwrap();
    let segments = |server: &Server| {
        let names = std::fs::read_dir(server.dir()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".segment")).count()
    };
    for count in 1..=20 {
        assert_eq!(call(&mut server.connect_loaded().unwrap(), &["INCR", "count"]), Value::Int(count));
        server.restart().unwrap();
    }
    wait_until("what starts have left is gone", || segments(&server) < 10);
    assert_eq!(call(&mut server.connect_loaded().unwrap(), &["INCR", "count"]), Value::Int(21));
}

#[test]
fn another_server_has_the_port_no_sooner_than_the_one_before_has_saved() {
    const SLOW: &str = "redis.call('SET', KEYS[1], 1) local e = redis.call('TIME')[1] + 3 \
                        while tonumber(redis.call('TIME')[1]) < e do end";
    // Where the machine has no time it has ended before that is seen.
    let is_seen = |_| {
        let first = Server::start(tarn(), &["--edition", "memory", "--save", "3600 1"]).unwrap();
        let mut client = first.connect().unwrap();
        assert_eq!(call(&mut client, &["SET", "early", "1"]), ok());
        // The end waits for it.
        client.send_request(&["EVAL", SLOW, "1", "late"]).unwrap();
        signal(&first, "-TERM");
        let (port, mut is_refused) = (first.address().port().to_string(), false);
        while Server::start(tarn(), &["--port", &port]).is_err() {
            is_refused = true;
        }
        assert!(first.dir().join("dump.rdb").exists());
        is_refused
    };
    assert!((0..5).any(is_seen));
}
