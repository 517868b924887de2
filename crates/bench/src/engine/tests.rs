//! Runs against servers made for it, which answer, refuse, pause and die as a test wants.

use super::*;
use crate::plan::{Door, Target, Through, Unobserved};
use crate::work::{Template, Work, Ycsb};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Mutex;

/// A request's arguments to its reply; none closes the connection.
pub type Answer = dyn FnMut(&[String]) -> Option<Vec<u8>> + Send;

/// A server on a free port that answers PING itself and all else by `answer`, one request at a time over all its
/// connections.
pub fn serve(answer: Box<Answer>) -> Target {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = Arc::new(Mutex::new(answer));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let mut out = stream.try_clone().unwrap();
                let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
                while let Some(header) = lines.next() {
                    let count: usize = header[1..].parse().unwrap();
                    let words: Vec<String> = lines.by_ref().take(2 * count).skip(1).step_by(2).collect();
                    let reply = match words[0].as_str() {
                        "PING" => Some(b"+PONG\r\n".to_vec()),
                        "INFO" => Some(b"$0\r\n\r\n".to_vec()),
                        _ => answer.lock().unwrap()(&words),
                    };
                    let Some(reply) = reply else { return };
                    if out.write_all(&reply).is_err() {
                        return;
                    }
                }
            });
        }
    });
    Target { port, ..Target::default() }
}

fn ok(_: &[String]) -> Option<Vec<u8>> {
    Some(b"+OK\r\n".to_vec())
}

fn sets(target: Target, operations: u64) -> Plan {
    let work = Work::Request(Template::kv("set", 3, Some(1000)).unwrap());
    Plan { end: End::Operations(operations), ..Plan::new("fake", target, work) }
}

#[test]
fn every_operation_that_was_asked_for_is_made_and_counted() {
    let plan = Plan { connections: 5, threads: 2, pipeline: 7, ..sets(serve(Box::new(ok)), 1001) };
    let measurement = run(&plan, &mut Unobserved).unwrap();
    assert_eq!((measurement.operations, measurement.all.count, measurement.errors_total()), (1001, 1001, 0));
    assert_eq!(measurement.series.iter().map(|second| second.operations).sum::<u64>(), 1001);
    assert_eq!(measurement.kinds.len(), 1);
    assert!(measurement.seconds > 0.0 && measurement.unfinished.is_none());
    assert!(measurement.command.starts_with("tarn bench kv -t set -d 3 -r 1000 "), "{}", measurement.command);
}

#[test]
fn errors_are_counted_by_their_text_and_are_no_latencies() {
    let mut number = 0;
    let target = serve(Box::new(move |_| {
        number += 1;
        Some(if number % 4 == 0 { b"-OOM no memory\r\n".to_vec() } else { b"+OK\r\n".to_vec() })
    }));
    let plan = Plan { connections: 2, pipeline: 10, ..sets(target, 400) };
    let measurement = run(&plan, &mut Unobserved).unwrap();
    assert_eq!((measurement.operations, measurement.all.count), (300, 300));
    assert_eq!(measurement.errors[0], ErrorCount { text: "OOM no memory".to_owned(), count: 100 });
    assert_eq!(measurement.series.iter().map(|second| second.errors).sum::<u64>(), 100);
}

#[test]
fn a_pause_counts_against_every_operation_that_was_due_in_open_loop() {
    let mut number = 0;
    let target = serve(Box::new(move |words| {
        number += 1;
        if number == 500 {
            std::thread::sleep(Duration::from_millis(200));
        }
        ok(words)
    }));
    let plan = Plan { connections: 4, rate: Some(1000.0), ..sets(target, 1000) };
    let measurement = run(&plan, &mut Unobserved).unwrap();
    assert_eq!(measurement.operations, 1000);
    // 100 operations were due in the pause's first half, and waited for all of its second.
    assert!(measurement.all.p95_us >= 95_000.0, "{:?}", measurement.all);
    assert!(measurement.all.p999_us >= 190_000.0, "{:?}", measurement.all);
    assert!(measurement.series.iter().any(|second| second.max_us >= 190_000.0), "{:?}", measurement.series);
}

#[test]
fn a_run_by_time_ends_by_itself_after_its_warm_up() {
    let plan = Plan {
        end: End::After(Duration::from_secs(2)),
        warm_up: Duration::from_millis(200),
        ..sets(serve(Box::new(ok)), 1)
    };
    let measurement = run(&plan, &mut Unobserved).unwrap();
    assert!(measurement.operations > 0 && measurement.seconds >= 2.0);
    assert_eq!(measurement.operations, measurement.all.count);
}

#[test]
fn what_was_measured_before_a_server_died_is_kept() {
    let mut left = 500;
    let target = serve(Box::new(move |words| {
        left -= 1;
        if left > 0 { ok(words) } else { None }
    }));
    let measurement = run(&sets(target, 10_000), &mut Unobserved).unwrap();
    assert_eq!(measurement.operations, 499);
    assert_eq!(measurement.unfinished.as_deref(), Some("the server closed a connection"));
}

#[test]
fn what_is_no_server_is_said_in_one_sentence() {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let failure = run(&sets(Target { port: free, ..Target::default() }, 1), &mut Unobserved).unwrap_err();
    assert_eq!(failure.0, format!("cannot connect to 127.0.0.1:{free}: Connection refused (os error 111)"));

    let refusing = serve(Box::new(|_| Some(b"-WRONGPASS invalid\r\n".to_vec())));
    let target = Target { password: Some("x".to_owned()), ..refusing };
    let failure = run(&sets(target.clone(), 1), &mut Unobserved).unwrap_err();
    assert_eq!(failure.0, format!("127.0.0.1:{} refused the password: WRONGPASS invalid", target.port));
}

/// Stops at once.
struct Impatient;

impl Observer for Impatient {
    fn progress(&mut self, _progress: &Progress) {}

    fn wants_to_stop(&self) -> bool {
        true
    }
}

#[test]
fn the_same_seed_sends_the_same_requests() {
    let requests = |seed| {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let told = seen.clone();
        let target = serve(Box::new(move |words| {
            told.lock().unwrap().push(words.to_vec());
            Some(if words[0] == "GET" { b"$1\r\nv\r\n".to_vec() } else { b"+OK\r\n".to_vec() })
        }));
        let work = Work::Ycsb(Ycsb { fields: 1, ..Ycsb::named("d", 100).unwrap() });
        let plan = Plan { seed, end: End::Operations(200), ..Plan::new("fake", target, work) };
        run(&plan, &mut Unobserved).unwrap();
        let seen = seen.lock().unwrap();
        seen.clone()
    };
    assert_eq!(requests(5), requests(5));
    assert_ne!(requests(5), requests(6));
}

#[test]
fn operations_of_several_steps_are_measured_as_one() {
    for (name, kind) in [("f", "read-modify-write"), ("e", "scan")] {
        let target = serve(Box::new(|words| {
            Some(match words[0].as_str() {
                "ZRANGEBYSCORE" => b"*2\r\n$5\r\nuser1\r\n$5\r\nuser2\r\n".to_vec(),
                "GET" => b"$5\r\nvalue\r\n".to_vec(),
                "ZADD" => b":1\r\n".to_vec(),
                _ => b"+OK\r\n".to_vec(),
            })
        }));
        let work = Work::Ycsb(Ycsb { fields: 1, ..Ycsb::named(name, 100).unwrap() });
        let plan = Plan {
            connections: 3,
            pipeline: 4,
            end: End::Operations(300),
            ..Plan::new("fake", target, work)
        };
        let measurement = run(&plan, &mut Unobserved).unwrap();
        assert_eq!((measurement.operations, measurement.errors_total()), (300, 0), "{name}");
        assert!(
            measurement.kind(kind).is_some_and(|kind| kind.count > 100),
            "{name}: {:?}",
            measurement.kinds
        );
    }
}

#[test]
fn records_that_are_missing_are_errors() {
    let target = serve(Box::new(|_| Some(b"$-1\r\n".to_vec())));
    let work = Work::Ycsb(Ycsb { fields: 1, ..Ycsb::named("c", 100).unwrap() });
    let plan = Plan { end: End::Operations(50), ..Plan::new("fake", target, work) };
    let measurement = run(&plan, &mut Unobserved).unwrap();
    assert_eq!((measurement.operations, measurement.errors_total()), (0, 50));
}

#[test]
fn proxies_share_the_connections_and_are_accounted_for_by_their_processes() {
    let seen = Arc::new(Mutex::new([0; 2]));
    let proxies = [0, 1].map(|place| {
        let seen = seen.clone();
        let target = serve(Box::new(move |_| {
            seen.lock().unwrap()[place] += 1;
            Some(b"+OK\r\n".to_vec())
        }));
        Door { target, process: std::process::id() }
    });
    let target = proxies[0].target.clone();
    let through = Through { proxies: proxies.to_vec(), servers: vec![serve(Box::new(ok))] };
    // Each connection makes as many operations as the others.
    let plan = Plan {
        connections: 4,
        threads: 2,
        pipeline: 25,
        through: Some(through.clone()),
        ..sets(target, 100)
    };
    let measurement = run(&plan, &mut Unobserved).unwrap();
    assert_eq!((*seen.lock().unwrap(), measurement.operations), ([50, 50], 100));
    assert!(measurement.proxy_usage.is_some_and(|usage| usage.rss_bytes > 0));
    assert!(measurement.server_usage.is_none(), "nothing is known of the server behind them");
    for (proxies, direct) in [(Vec::new(), None), (proxies.to_vec(), Some(crate::Direct::default()))] {
        let through = Some(Through { proxies, ..through.clone() });
        let refused = run(&Plan { through, direct, ..plan.clone() }, &mut Unobserved).unwrap_err();
        assert!(refused.0.contains("through proxies"), "{refused}");
    }
}

#[test]
fn an_observer_can_stop_a_run_and_keep_it() {
    let measurement = run(&sets(serve(Box::new(ok)), u64::MAX), &mut StopsLater(0));
    let measurement = measurement.unwrap();
    assert_eq!(measurement.unfinished.as_deref(), Some("stopped by the user"));
    assert!(measurement.operations > 0);
    let failure = run(&sets(serve(Box::new(ok)), 10), &mut Impatient).unwrap_err();
    assert_eq!(failure.0, "stopped before anything was measured");
}

/// Stops when it has been told of operations.
struct StopsLater(u64);

impl Observer for StopsLater {
    fn progress(&mut self, progress: &Progress) {
        self.0 = progress.operations;
    }

    fn wants_to_stop(&self) -> bool {
        self.0 > 0
    }
}
