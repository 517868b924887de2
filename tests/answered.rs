//! Everybody is answered: however scripts, transactions, MIGRATEs and those who wait get into each other's way, and though connections
//! move between workers and are killed, nobody waits for longer than what is before it takes.
//!
//! Scripts that do not end are ended by a client of its own, which must be served all the time. What is wrong here depends on when threads
//! are interrupted: by hand, `taskset -c 0` in front of the test keeps them all on one core.

use crate::tarn;
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use sys::Prng;
use testkit::ask::{ask, wait_until};
use testkit::{Budget, Client, Server};
use wire::Value;

const CLIENTS: usize = 10;
const KEYS: u64 = 6;

/// Reads until somebody ends it.
const ENDLESS: &str = "while true do redis.call('GET', KEYS[1]) end";
/// Reaches for a key that it does not declare, after a while.
const UNDECLARED: &str = "for i = 1, ARGV[1] do end return redis.call('EXISTS', 'k:' .. ARGV[2])";
/// Writes, after a while and before another.
const WRITES: &str =
    "for i = 1, ARGV[1] do end redis.call('SET', KEYS[1], 1) for i = 1, ARGV[1] do end return 1";
/// Writes what it declares, and then what it does not.
const WRITES_MORE: &str = "redis.call('DEL', KEYS[1]) for i = 1, ARGV[1] do end
    return redis.pcall('SET', 'k:' .. ARGV[2], 1)";

/// A client, and what it does.
struct Visitor<'s> {
    server: &'s Server,
    client: Client,
    prng: Prng,
    /// The port of a target for MIGRATE that does not answer.
    silent: &'s str,
    /// By which it can be killed.
    id: &'s AtomicU64,
}

impl<'s> Visitor<'s> {
    fn new(server: &'s Server, seed: u64, silent: &'s str, id: &'s AtomicU64) -> io::Result<Visitor<'s>> {
        let client = server.connect()?;
        let mut visitor = Visitor { server, client, prng: Prng::from_seed(seed), silent, id };
        visitor.introduce()?;
        Ok(visitor)
    }

    /// Says who it is.
    fn introduce(&mut self) -> io::Result<()> {
        if let Value::Int(id) = self.client.call(&["CLIENT", "ID"])? {
            self.id.store(id as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Asks for something, or for several things. An error: it was not answered.
    fn step(&mut self) -> Result<(), String> {
        let requests = self.requests();
        for request in &requests {
            match self.client.call(request) {
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Err(format!("{request:?} of {requests:?} is not answered"));
                }
                // It was killed.
                Err(_) => {
                    self.client = self.server.connect().map_err(|error| error.to_string())?;
                    return self.introduce().map_err(|error| error.to_string());
                }
            }
        }
        Ok(())
    }

    fn key(&mut self) -> String {
        format!("k:{}", self.prng.below(KEYS))
    }

    fn script(&mut self) -> Vec<String> {
        let text = [ENDLESS, UNDECLARED, WRITES, WRITES_MORE][self.prng.below(4) as usize];
        // Up to some milliseconds: about what makes a script slow.
        let turns = self.prng.below(400_000).to_string();
        let (key, other) = (self.key(), self.prng.below(KEYS).to_string());
        ["EVAL", text, "1", &key, &turns, &other].map(str::to_owned).to_vec()
    }

    fn requests(&mut self) -> Vec<Vec<String>> {
        let (one, other) = (self.key(), self.key());
        let words = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let line = match self.prng.below(24) {
            0..6 => return vec![self.script()],
            6 => {
                let script = self.script();
                let lines = [format!("WATCH {one}"), "MULTI".to_owned(), format!("SET {other} 1")];
                return lines.map(words).into_iter().chain([script, words("EXEC".to_owned())]).collect();
            }
            7 | 8 => {
                let lines = [format!("WATCH {one}"), "MULTI".to_owned(), format!("SET {other} 1")];
                return lines.map(words).into_iter().chain([words("EXEC".to_owned())]).collect();
            }
            9 => format!("MIGRATE 127.0.0.1 {} {one} 0 {}", self.silent, 1 + self.prng.below(40)),
            10 => format!("BLPOP {one}:list {other}:list 0.02"),
            11 => format!("BLMOVE {one}:list {other}:list LEFT RIGHT 0.02"),
            12 => format!("RPUSH {one}:list element"),
            13 => format!("MSET {one} 1 {other} 2"),
            14 => "SCAN 0".to_owned(),
            15 => "KEYS k:1*".to_owned(),
            16 => "SWAPDB 0 1".to_owned(),
            17 => "DBSIZE".to_owned(),
            18 => format!("MEMORY USAGE {one}"),
            19 => "RANDOMKEY".to_owned(),
            20 => format!("SET {one} 1 PX 3"),
            21 => "INFO".to_owned(),
            _ => format!("GET {one}"),
        };
        vec![words(line)]
    }
}

/// Ends scripts, and now and then connections, for as long as anybody is there.
fn kill(server: &Server, ids: &[AtomicU64], seed: u64, is_over: &AtomicBool) -> Result<(), String> {
    let (mut client, mut prng) =
        (server.connect().map_err(|error| error.to_string())?, Prng::from_seed(seed));
    while !is_over.load(Ordering::Relaxed) {
        let id = ids[prng.below(ids.len() as u64) as usize].load(Ordering::Relaxed).to_string();
        let request: &[&str] = match prng.below(40) {
            0 => &["CLIENT", "KILL", "ID", &id],
            1 => &["FUNCTION", "KILL"],
            2..20 => &["PING"],
            _ => &["SCRIPT", "KILL"],
        };
        client.call(request).map_err(|error| format!("who ends scripts is not answered: {error}"))?;
    }
    Ok(())
}

/// A port that takes connections and says nothing.
fn silent() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    thread::spawn(move || {
        let mut streams = std::collections::VecDeque::new();
        while let Ok((stream, _)) = listener.accept() {
            streams.push_back(stream);
            if streams.len() > 2 * CLIENTS {
                streams.pop_front();
            }
        }
    });
    port
}

#[test]
fn everybody_is_answered() {
    let budget = Budget::from_env(1, 700);
    let mut prng = Prng::from_seed(budget.seed);
    let threads = (2 + prng.below(2)).to_string();
    let edition = if prng.one_in(2) { "memory" } else { "durable" };
    let threshold = if prng.one_in(2) { "20" } else { "60000" };
    // As many as the load asks for, or all.
    let threads_min = if prng.one_in(2) { "1" } else { "1024" };
    let workers = ["--threads", &threads, "--threads-min", threads_min];
    let directives = [&["--edition", edition, "--busy-reply-threshold", threshold], &workers[..]].concat();
    let (server, silent) = (&Server::start(tarn(), &directives).unwrap(), &silent());
    let ids: &Vec<AtomicU64> = &(0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
    let (steps, is_over) = (&AtomicU64::new(0), &AtomicBool::new(false));
    let seeds: Vec<u64> = (0..=CLIENTS).map(|_| prng.next_u64()).collect();
    thread::scope(|scope| {
        let _ends = testkit::Ends(is_over);
        let visitors: Vec<_> = ids
            .iter()
            .zip(&seeds[1..])
            .map(|(id, seed)| {
                scope.spawn(move || {
                    let mut visitor = Visitor::new(server, *seed, silent, id).unwrap();
                    let mut result = Ok(());
                    while result.is_ok() && budget.allows(steps.fetch_add(1, Ordering::Relaxed)) {
                        result = visitor.step();
                    }
                    result
                })
            })
            .collect();
        let killer = scope.spawn(|| kill(server, ids, seeds[0], is_over));
        let results: Vec<Result<(), String>> =
            visitors.into_iter().map(|visitor| visitor.join().unwrap()).collect();
        is_over.store(true, Ordering::Relaxed);
        let failed: Vec<String> =
            results.into_iter().chain([killer.join().unwrap()]).filter_map(Result::err).collect();
        assert!(failed.is_empty(), "TARN_SEED={} {directives:?}: {failed:#?}", budget.seed);
    });
}

/// REPLICAOF has everybody leave the keyspace once. Who would kill a script that does not end is heard meanwhile, and so is who has nothing to
/// do with it.
#[test]
fn an_order_to_follow_keeps_nobody_waiting_for_a_slow_script() {
    let server =
        Server::start(tarn(), &["--edition", "memory", "--threads", "3", "--busy-reply-threshold", "50"])
            .unwrap();
    let (mut slow, mut client) = (server.connect().unwrap(), server.connect().unwrap());
    assert_eq!(ask(&mut client, &["SET", "there", "1"]), "OK");
    slow.send_request(&["EVAL_RO", ENDLESS, "1", "k:0"]).unwrap();
    wait_until("the script is slow", || ask(&mut client, &["GET", "k:0"]).starts_with("BUSY"));
    let silent = silent();
    assert_eq!(ask(&mut client, &["REPLICAOF", "127.0.0.1", &silent]), "OK");
    for round in 0..100 {
        assert_eq!(ask(&mut client, &["GET", "there"]), "1", "{round}");
        assert_eq!(ask(&mut server.connect().unwrap(), &["PING"]), "PONG", "{round}");
    }
    assert_eq!(ask(&mut client, &["SCRIPT", "KILL"]), "OK");
    assert_eq!(ask(&mut client, &["REPLICAOF", "NO", "ONE"]), "OK");
    assert_eq!(ask(&mut client, &["SET", "there", "2"]), "OK");
}
