//! How many workers serve: connections move from one to another while everything that clients do goes on.

use crate::tarn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use testkit::ask::{call_line, call_well, wait_until};
use testkit::{Client, Server};
use wire::Value;

const WORKERS: usize = 3;
/// So many moves are enough.
const MOVES: u64 = 100;
/// So many times the number of workers is changed, at most.
const TURNS_MAX: usize = 100;
/// So many times somebody looks whether it has been followed, at most.
const LOOKS_MAX: usize = 200;

fn start() -> Server {
    let threads = WORKERS.to_string();
    let server =
        Server::start(tarn(), &["--edition", "memory", "--threads", &threads, "--threads-min", "1"]).unwrap();
    let mut client = server.connect().unwrap();
    assert_eq!(crate::info(&mut client, "worker_threads") as usize, WORKERS);
    server
}

fn int(value: Value) -> i64 {
    let Value::Int(number) = value else { panic!("{value:?} is not a number") };
    number
}

/// Pipelines of commands and transactions on a counter of its own: every reply in its place.
fn counts(mut client: Client, name: &str, is_over: &AtomicBool) {
    let mut last = 0;
    while !is_over.load(Ordering::Relaxed) {
        let requests = [
            vec!["INCR", name],
            vec!["MULTI"],
            vec!["INCR", name],
            vec!["GET", name],
            vec!["EXEC"],
            vec!["GET", name],
        ];
        let replies = client.pipeline(&requests).unwrap();
        let (first, second) = (last + 1, last + 2);
        let digits = second.to_string();
        let text = format!("${}\r\n{digits}\r\n", digits.len());
        let wanted = [
            format!(":{first}\r\n"),
            "+OK\r\n".to_owned(),
            "+QUEUED\r\n".to_owned(),
            "+QUEUED\r\n".to_owned(),
            format!("*2\r\n:{second}\r\n{text}"),
            text.clone(),
        ];
        assert_eq!(replies.iter().map(|reply| String::from_utf8_lossy(reply)).collect::<Vec<_>>(), wanted);
        last = second;
    }
}

/// Takes one element after the other that somebody pushes, and tells how many.
fn pops(mut client: Client, is_over: &AtomicBool, popped: &AtomicU64) {
    while !is_over.load(Ordering::Relaxed) {
        let Value::Array(pair) = call_line(&mut client, "BLPOP queue 60") else { panic!("nothing came") };
        let number = popped.fetch_add(1, Ordering::Release);
        assert_eq!(pair[1], Value::Bulk(number.to_string().into_bytes()));
    }
}

fn pushes(mut client: Client, is_over: &AtomicBool, popped: &AtomicU64) {
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        call_well(&mut client, &["RPUSH", "queue", &number.to_string()]);
        number += 1;
        while popped.load(Ordering::Acquire) < number && !is_over.load(Ordering::Relaxed) {
            thread::yield_now();
        }
    }
    // Whoever waits for one goes on.
    call_well(&mut client, &["RPUSH", "queue", &number.to_string()]);
}

/// Hears every message of a publisher once and in order, whoever moves.
fn publishes(mut publisher: Client, mut reader: Client, is_over: &AtomicBool) {
    call_line(&mut reader, "SUBSCRIBE news");
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        assert_eq!(int(call_well(&mut publisher, &["PUBLISH", "news", &number.to_string()])), 1);
        let Value::Array(message) = reader.read_value().unwrap() else { panic!("no message") };
        assert_eq!(message[2], Value::Bulk(number.to_string().into_bytes()));
        number += 1;
    }
}

#[test]
fn connections_move_in_the_middle_of_everything_and_nobody_notices() {
    let server = start();
    let (is_over, popped) = (AtomicBool::new(false), AtomicU64::new(0));
    let connect = || server.connect().unwrap();
    thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        for name in ["a", "b", "c", "d"] {
            let (client, is_over) = (connect(), &is_over);
            scope.spawn(move || counts(client, name, is_over));
        }
        scope.spawn(|| pops(connect(), &is_over, &popped));
        scope.spawn(|| pushes(connect(), &is_over, &popped));
        scope.spawn(|| publishes(connect(), connect(), &is_over));
        let mut client = connect();
        let moves = |client: &mut Client| crate::info(client, "worker_moves");
        // Where the machine has time left, the load itself may want all of them, and fewer move.
        for turn in 0..TURNS_MAX {
            if moves(&mut client) >= MOVES {
                break;
            }
            let (before, least) = (moves(&mut client), if turn % 2 == 0 { WORKERS } else { 1 });
            call_well(&mut client, &["CONFIG", "SET", "threads-min", &least.to_string()]);
            // It is looked at soon, also if nothing else happens.
            (0..LOOKS_MAX).any(|_| moves(&mut client) != before);
        }
        assert!(moves(&mut client) > 0, "nobody has moved");
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_server_that_nobody_asks_much_is_served_by_one_worker_and_by_more_if_told_so() {
    let server = start();
    let mut client = server.connect().unwrap();
    // They are all active until it is looked at the load.
    wait_until("one is enough", || crate::info(&mut client, "worker_threads_active") == 1);
    for least in ["2", "1000"] {
        call_well(&mut client, &["CONFIG", "SET", "threads-min", least]);
        let wanted = least.parse::<u64>().unwrap().min(WORKERS as u64);
        wait_until("as many are active", || crate::info(&mut client, "worker_threads_active") == wanted);
    }
    call_well(&mut client, &["CONFIG", "SET", "threads-min", "1"]);
    wait_until("one is enough again", || crate::info(&mut client, "worker_threads_active") == 1);
}
