//! Nodes of a cluster that send a request to and fro, since one has not heard yet who has its slot: what becomes of it while it waits to be sent again.

use super::clusters::proxy_of;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::Server;
use testkit::ask::{ask, call, shown, text, wait_until};
use wire::{Decoder, Value, key_slot};

/// So often a request is sent to and fro: behind that it waits for the longest time, or nearly.
const HOPS: usize = 12;

/// What a node says, and whether it ends the connection behind that.
pub(super) enum Said {
    Reply(String),
    Last(String),
}

/// What each node says to a request; it is told by where the nodes are.
type Answer = dyn Fn(&[String; 2], usize, &str) -> Said + Send + Sync;

/// A proxy in front of two nodes that are none: each has half of the slots, and says this.
fn before_two(answer: impl Fn(&[String; 2], usize, &str) -> Said + Send + Sync + 'static) -> Server {
    let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let places: [String; 2] = [0, 1].map(|at: usize| listeners[at].local_addr().unwrap().to_string());
    let (seed, answer): (_, Arc<Answer>) = (places[0].clone(), Arc::new(answer));
    for (number, listener) in listeners.into_iter().enumerate() {
        let (places, answer) = (places.clone(), answer.clone());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (places, answer) = (places.clone(), answer.clone());
                thread::spawn(move || talk(stream, |line| node(&places, number, line, &*answer)));
            }
        });
    }
    proxy_of(&seed, &["--databases", "1"])
}

pub(super) fn talk(mut stream: TcpStream, says: impl Fn(&str) -> Said) {
    let (mut decoder, mut buffer) = (Decoder::new(), [0; 4096]);
    while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
        decoder.feed(&buffer[..bytes]);
        while let Some(Value::Array(words)) = decoder.decode().unwrap() {
            let line = words.iter().map(shown).collect::<Vec<_>>().join(" ");
            let (reply, is_last) = match says(&line) {
                Said::Reply(reply) => (reply, false),
                Said::Last(reply) => (reply, true),
            };
            if stream.write_all(reply.as_bytes()).is_err() || is_last {
                return;
            }
        }
    }
}

fn node(places: &[String; 2], number: usize, line: &str, answer: &Answer) -> Said {
    let half = |at: usize| {
        let (host, port) = places[at].split_once(':').unwrap();
        let (first, last) = (8192 * at, 8192 * at + 8191);
        format!("*3\r\n:{first}\r\n:{last}\r\n*2\r\n${}\r\n{host}\r\n:{port}\r\n", host.len())
    };
    let said = match line {
        "CLUSTER INFO" => "$18\r\ncluster_state:ok\r\n\r\n".to_owned(),
        "CLUSTER SLOTS" => format!("*2\r\n{}{}", half(0), half(1)),
        "SELECT 0" => "+OK\r\n".to_owned(),
        "INFO server" => "$0\r\n\r\n".to_owned(),
        "CLIENT ID" => ":7\r\n".to_owned(),
        line => return answer(places, number, line),
    };
    Said::Reply(said)
}

fn moved(places: &[String; 2], number: usize, key: &str) -> String {
    format!("-MOVED {} {}\r\n", key_slot(key.as_bytes()), places[1 - number])
}

/// A key of one of the nodes.
fn key_of(number: usize) -> String {
    let is_its = |key: &String| usize::from(key_slot(key.as_bytes())) / 8192 == number;
    ('a'..='z').map(String::from).find(is_its).unwrap()
}

#[test]
fn a_request_is_sent_on_though_who_has_sent_it_elsewhere_is_gone_meanwhile() {
    let (key, asked) = (key_of(0), AtomicUsize::new(0));
    let of_nodes = key.clone();
    let proxy = before_two(move |places, number, line| {
        assert_eq!(line, format!("GET {of_nodes}"));
        match asked.fetch_add(1, Ordering::SeqCst) + 1 {
            1..HOPS => Said::Reply(moved(places, number, &of_nodes)),
            HOPS => Said::Last(moved(places, number, &of_nodes)),
            _ => Said::Reply("$1\r\nv\r\n".to_owned()),
        }
    });
    assert_eq!(call(&mut proxy.connect().unwrap(), &["GET", &key]), text("v"));
}

#[test]
fn who_has_been_told_of_one_key_does_not_wait_for_another_that_was_to_be_waited_for_elsewhere() {
    let [a, b] = [0, 1].map(key_of);
    let (hops, is_late) = (AtomicUsize::new(0), Arc::new(AtomicBool::new(false)));
    let (of_a, of_b, late) = (a.clone(), b.clone(), is_late.clone());
    let proxy = before_two(move |places, number, line| {
        let (has_come, there) = (|| hops.load(Ordering::SeqCst) >= HOPS, |key| format!("$1\r\n{key}\r\n"));
        let said = match line.split(' ').collect::<Vec<_>>()[..] {
            ["BEXISTS", _, "NOWAIT", key] if key == of_a && has_come() => there(key),
            ["BEXISTS", _, "NOWAIT", _] => "$-1\r\n".to_owned(),
            ["BEXISTS", _, "0", key] if key == of_a => {
                wait_until("it has come", has_come);
                there(key)
            }
            ["BEXISTS", _, "0", key] if !has_come() => {
                hops.fetch_add(1, Ordering::SeqCst);
                moved(places, number, key)
            }
            ["BEXISTS", _, "0", key] => {
                assert_eq!(key, of_b);
                late.store(true, Ordering::SeqCst);
                there(key)
            }
            ["LPOP", _] => {
                // It is given the time to do what it must not.
                let began = Instant::now();
                let is_over = || began.elapsed() > Duration::from_millis(300);
                wait_until("it is late", || late.load(Ordering::SeqCst) || is_over());
                there("x")
            }
            _ => panic!("{line}"),
        };
        Said::Reply(said)
    });
    let told = call(&mut proxy.connect().unwrap(), &["BLPOP", &b, &a, "0"]);
    assert_eq!(told, Value::Array(vec![text(&a), text("x")]));
    assert!(!is_late.load(Ordering::SeqCst));
}

#[test]
fn who_sends_no_more_while_something_is_taken_is_told_what_that_is() {
    let [a, b] = [0, 1].map(key_of);
    let (has_come, is_taken, is_closed) = (Arc::default(), Arc::default(), Arc::default());
    let flags: [Arc<AtomicBool>; 3] = [has_come, is_taken, is_closed];
    let (of_a, of_nodes) = (a.clone(), flags.clone());
    let proxy = before_two(move |_, _, line| {
        let [has_come, is_taken, is_closed] = &of_nodes;
        let is_there = || has_come.load(Ordering::SeqCst);
        let said = match line.split(' ').collect::<Vec<_>>()[..] {
            ["BEXISTS", _, "NOWAIT", key] if key == of_a && is_there() => format!("$1\r\n{key}\r\n"),
            ["BEXISTS", _, "NOWAIT", _] => "$-1\r\n".to_owned(),
            ["BEXISTS", _, "0", key] => {
                wait_until("it has come", is_there);
                format!("$1\r\n{key}\r\n")
            }
            ["LPOP", _] => {
                is_taken.store(true, Ordering::SeqCst);
                wait_until("it is closed", || is_closed.load(Ordering::SeqCst));
                "$1\r\nx\r\n".to_owned()
            }
            _ => panic!("{line}"),
        };
        Said::Reply(said)
    });
    let [has_come, is_taken, is_closed] = &flags;
    let (mut client, mut looks) = (proxy.connect().unwrap(), proxy.connect().unwrap());
    client.send_request(&["BLPOP", &b, &a, "0"]).unwrap();
    wait_until("it waits", || ask(&mut looks, &["CLIENT", "LIST"]).contains("flags=b"));
    has_come.store(true, Ordering::SeqCst);
    wait_until("it is taken", || is_taken.load(Ordering::SeqCst));
    client.close_write().unwrap();
    // It is given the time to be let go, which it must not be.
    let began = Instant::now();
    wait_until("it is gone", || {
        !ask(&mut looks, &["CLIENT", "LIST"]).contains("flags=b")
            || began.elapsed() > Duration::from_millis(300)
    });
    is_closed.store(true, Ordering::SeqCst);
    assert_eq!(client.read_value().unwrap(), Value::Array(vec![text(&a), text("x")]));
}
