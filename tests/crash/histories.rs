//! Histories: many clients at few keys, over crashes, checked for linearizability by Porcupine (`tests/porcupine`).
//!
//! Every operation is noted with the moments before its request and behind its reply; one that a crash left without a reply
//! stays open. After each crash every key is read once, so that nothing that was shown before can have gone unnoticed.
//!
//! A reader that is shown a value before it is on disk makes an illegal history as soon as a crash takes the value back.

use crate::porcupine::{Notes, Verdict, judge};
use crate::subject::{self, Subject};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use sys::Prng;
use testkit::{Budget, Client, Server};
use wire::Value;

/// Clients at work at a time.
const CLIENTS: u64 = 10;
/// Keys that are set and read.
const REGISTERS: &[&str] = &["r0", "r1", "r2"];
/// Keys that are incremented and read.
const COUNTERS: &[&str] = &["n0", "n1"];
/// Crashes in one history. Each leaves some operations open, and those make checking slow.
const KILLS: u64 = 4;
/// A server runs for up to so long before it is killed, milliseconds.
const ROUND_MS_MAX: u64 = 150;
/// Histories of the edition that is tested.
const HISTORIES: u64 = 5;
/// Histories within which a gate that is open must have been noticed.
const CANARY_HISTORIES: u64 = 30;

/// One client at its work, until its server is gone.
fn work(address: SocketAddr, notes: &mut Notes<'_>, prng: &mut Prng, is_killed: &AtomicBool) {
    let mut act = |client: &mut Client, number: u64| {
        let register = REGISTERS[prng.below(REGISTERS.len() as u64) as usize];
        let counter = COUNTERS[prng.below(COUNTERS.len() as u64) as usize];
        match prng.below(6) {
            0 | 1 => notes.call(client, "set", register, Some(&format!("{}.{number}", notes.client))),
            2 | 3 => notes.call(client, "get", register, None),
            4 => notes.call(client, "incr", counter, None),
            _ => notes.call(client, "get", counter, None),
        }
    };
    let ended =
        Client::connect(address).and_then(|mut client| (0..).try_for_each(|number| act(&mut client, number)));
    let is_killed = is_killed.load(Ordering::SeqCst);
    assert!(is_killed, "a connection broke: {ended:?}");
}

/// Lets clients work over some crashes; what they noted down.
fn history(server: &mut Server, prng: &mut Prng, ready: fn(&mut Client)) -> String {
    let (began, mut history, mut next_client) = (Instant::now(), String::new(), 0);
    let mut notes = || {
        next_client += 1;
        Notes { began: &began, client: next_client, lines: String::new() }
    };
    subject::connect(server).call(&[&["DEL"], REGISTERS, COUNTERS].concat()).unwrap();
    for _ in 0..KILLS {
        ready(&mut subject::connect(server));
        let (address, is_killed) = (server.address(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let _ends = testkit::Ends(&is_killed);
            let is_killed = &is_killed;
            let clients: Vec<_> = (0..CLIENTS)
                .map(|_| {
                    let (mut notes, mut prng) = (notes(), Prng::from_seed(prng.next_u64()));
                    scope.spawn(move || {
                        work(address, &mut notes, &mut prng, is_killed);
                        notes.lines
                    })
                })
                .collect();
            // The moment is what this is about; there is no event to wait for.
            std::thread::sleep(Duration::from_micros(prng.below(ROUND_MS_MAX * 1000)));
            is_killed.store(true, Ordering::SeqCst);
            server.kill();
            history.extend(clients.into_iter().map(|client| client.join().expect("a client ends")));
        });
        let (mut client, mut notes) = (subject::restart(server), notes());
        for key in [REGISTERS, COUNTERS].concat() {
            notes.call(&mut client, "get", key, None).unwrap();
        }
        history += &notes.lines;
    }
    history
}

/// Records histories until one is illegal, at most as many as the budget allows; that one.
fn illegal_history(subject: &Subject, budget: Budget, ready: fn(&mut Client)) -> Option<String> {
    let (mut server, mut prng) = (subject.start(), Prng::from_seed(budget.seed));
    let mut done = 0;
    while budget.allows(done) {
        let history = history(&mut server, &mut prng, ready);
        if judge(&history) == Verdict::Illegal {
            return Some(history);
        }
        done += 1;
    }
    None
}

/// Fails if any history is illegal, and says where it lies.
fn all_are_legal(subject: &Subject, budget: Budget) {
    if let Some(history) = illegal_history(subject, budget, |_| ()) {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("illegal.jsonl");
        std::fs::write(&path, history).unwrap();
        panic!("not linearizable (TARN_SEED={}): {}", budget.seed, path.display());
    }
}

#[test]
fn histories_of_durable_tarn_over_crashes_are_linearizable() {
    all_are_legal(&Subject::durable_tarn(), Budget::from_env(1, HISTORIES));
}

#[test]
fn histories_of_redis_over_crashes_are_linearizable() {
    all_are_legal(&Subject::redis("always"), Budget::steps(1, 1));
}

#[test]
fn replies_that_pass_the_gate_too_early_are_noticed() {
    let open_gate = |client: &mut Client| {
        let reply = client.call(&["DEBUG", "READ-GATE", "0"]).unwrap();
        assert_eq!(reply, Value::Simple(b"OK".to_vec()));
    };
    let illegal = illegal_history(&Subject::durable_tarn(), Budget::from_env(1, CANARY_HISTORIES), open_gate);
    assert!(illegal.is_some(), "{CANARY_HISTORIES} histories without a gate were legal");
}

#[test]
fn histories_of_a_redis_that_loses_writes_are_illegal() {
    assert!(illegal_history(&Subject::forgetful_redis(), Budget::steps(1, 1), |_| ()).is_some());
}
