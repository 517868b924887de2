//! Rounds of faults under load: nodes are killed, stand still, are cut off from each other or from the store, and are promoted, while clients set and read a few
//! keys. Afterwards the shard is whole again, all nodes have the same, and Porcupine finds the history linearizable.

use super::shard::{Shard, connect, wait_until};
use crate::porcupine::{Notes, Verdict, judge};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use sys::Prng;
use testkit::contents::Contents;
use testkit::relay::Way;
use testkit::{Budget, Client};
use wire::Value;

/// Clients at work at a time.
const CLIENTS: u64 = 6;
/// Keys that are set and read.
const KEYS: u64 = 4;
/// Faults in a round.
const FAULTS: u64 = 3;
/// How long something lasts at most, in milliseconds.
const FAULT_MS_MAX: u64 = 1500;
/// How long a master that is to be back at once stays away at most.
const REBIRTH_PAUSE_MAX: Duration = Duration::from_millis(50);
/// A client whose request was refused tries the next node so much later.
const REFUSED_PAUSE: Duration = Duration::from_millis(5);
/// Reads as a script that might write: a follower refuses it, and the master answers from what it has.
const READ: &str = "#!lua\nreturn redis.call('GET', KEYS[1])";

/// What is done.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    Pause,
    CutOff(Option<Way>),
    CutFromStore,
    Promote,
    /// The master is killed and back at once: without a log with nothing of what it had, before anybody has missed it.
    Rebirth,
}

impl Fault {
    fn any(prng: &mut Prng) -> Fault {
        match prng.below(9) {
            0..3 => Fault::Kill,
            3 | 4 => Fault::Pause,
            5 => Fault::CutOff(None),
            6 => Fault::CutOff(Some(if prng.one_in(2) { Way::There } else { Way::Back })),
            7 => Fault::CutFromStore,
            _ => Fault::Promote,
        }
    }
}

/// What clients know.
struct Known {
    addresses: Mutex<Vec<SocketAddr>>,
    is_over: AtomicBool,
    acknowledged: AtomicU64,
}

impl Known {
    fn note(&self, shard: &Shard) {
        *self.addresses.lock().expect("nobody panics with it") =
            shard.nodes.iter().map(|node| node.server.address()).collect();
    }
}

/// What a client makes of a reply.
enum Came {
    /// It counts.
    Reply,
    /// It was refused, and not done.
    Refused,
    /// Nobody knows.
    Unknown,
}

fn came_of(reply: &io::Result<Value>) -> Came {
    match reply {
        Ok(Value::Error(line)) => {
            let line = String::from_utf8_lossy(line);
            let codes = [
                "READONLY",
                "MASTERDOWN",
                "LOADING",
                "NOREPLICAS Not enough good replicas to write",
                "UNBLOCKED",
            ];
            match codes.iter().any(|code| line.starts_with(code)) {
                true => Came::Refused,
                false if line.starts_with("NOREPLICAS") => Came::Unknown,
                false => panic!("a client was told {line}"),
            }
        }
        Ok(_) => Came::Reply,
        Err(_) => Came::Unknown,
    }
}

/// One client at its work.
fn work(known: &Known, notes: &mut Notes<'_>, prng: &mut Prng) {
    let mut node = prng.below(8) as usize;
    let mut client: Option<Client> = None;
    let mut number = 0;
    while !known.is_over.load(Ordering::Relaxed) {
        if client.is_none() {
            let addresses = known.addresses.lock().expect("nobody panics with it").clone();
            client = connect(addresses[node % addresses.len()]).ok();
        }
        let Some(connection) = client.as_mut() else {
            node += 1;
            std::thread::sleep(REFUSED_PAUSE);
            continue;
        };
        number += 1;
        let key = format!("r{}", prng.below(KEYS));
        let value = format!("{}.{number}", notes.client);
        let is_write = prng.one_in(2);
        let call = notes.now();
        let reply = match is_write {
            true => connection.call(&["SET", &key, &value]),
            false => connection.call(&["EVAL", READ, "1", &key]),
        };
        let (op, given) = if is_write { ("set", Some(value.as_str())) } else { ("get", None) };
        match came_of(&reply) {
            Came::Reply => {
                notes.note(op, (&key, given), call, reply.as_ref().ok());
                known.acknowledged.fetch_add(u64::from(is_write), Ordering::Relaxed);
            }
            came => {
                if matches!(came, Came::Unknown) {
                    notes.note(op, (&key, given), call, None);
                }
                client = None;
                node += 1;
                std::thread::sleep(REFUSED_PAUSE);
            }
        }
    }
}

fn strike(shard: &mut Shard, fault: Fault, prng: &mut Prng) {
    let at = prng.below(shard.nodes.len() as u64) as usize;
    // How long it lasts is what this is about; there is no event to wait for.
    let lasts = Duration::from_micros(prng.below(FAULT_MS_MAX * 1000));
    let at = if matches!(fault, Fault::Rebirth) { shard.wait_until_whole() } else { at };
    let node = &mut shard.nodes[at];
    match fault {
        Fault::Kill if !node.is_down => {
            node.kill();
            std::thread::sleep(lasts / 4);
            if prng.one_in(2) {
                node.restart();
            }
        }
        Fault::Pause => {
            node.signal("-STOP");
            std::thread::sleep(lasts);
            node.signal("-CONT");
        }
        Fault::CutOff(None) => node.relay.abandon(),
        Fault::CutOff(Some(way)) => {
            node.relay.stop(way);
            std::thread::sleep(lasts);
        }
        Fault::CutFromStore => {
            node.store.cut();
            std::thread::sleep(lasts / 4);
        }
        Fault::Promote => {
            if let Ok(mut client) = connect(node.server.address())
                && !node.is_down
            {
                let _ = client.call(&["INSYNC", "PROMOTE"]);
            }
            std::thread::sleep(lasts / 8);
        }
        Fault::Rebirth => {
            node.kill();
            std::thread::sleep(lasts.min(REBIRTH_PAUSE_MAX));
            node.restart();
        }
        Fault::Kill => {}
    }
}

/// A round: what clients noted down, and how many writes were acknowledged.
fn round(shard: &mut Shard, prng: &mut Prng, is_gentle: bool, any: fn(&mut Prng) -> Fault) -> (String, u64) {
    let began = Instant::now();
    let known = Known { addresses: Mutex::default(), is_over: false.into(), acknowledged: 0.into() };
    known.note(shard);
    let mut history = String::new();
    let keys: Vec<String> = (0..KEYS).map(|key| format!("r{key}")).collect();
    shard.at_master(|master| match master.call(&[&["DEL".to_owned()], keys.as_slice()].concat())? {
        Value::Error(line) => Err(io::Error::other(String::from_utf8_lossy(&line).into_owned())),
        _ => Ok(()),
    });
    std::thread::scope(|scope| {
        let _ends = testkit::Ends(&known.is_over);
        let known = &known;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let mut notes = Notes { began: &began, client, lines: String::new() };
                let mut prng = Prng::from_seed(prng.next_u64());
                scope.spawn(move || {
                    work(known, &mut notes, &mut prng);
                    notes.lines
                })
            })
            .collect();
        for _ in 0..1 + prng.below(FAULTS) {
            std::thread::sleep(Duration::from_micros(prng.below(FAULT_MS_MAX * 200)));
            let fault = any(prng);
            strike(shard, fault, prng);
            known.note(shard);
            if is_gentle {
                // Whose data ends with its process is not the last one that has it.
                shard.mend();
                known.note(shard);
                shard.wait_until_whole();
            }
        }
        shard.mend();
        known.note(shard);
        shard.wait_until_whole();
        known.is_over.store(true, Ordering::Relaxed);
        history.extend(clients.into_iter().map(|client| client.join().expect("a client ends")));
    });
    let mut notes = Notes { began: &began, client: CLIENTS, lines: String::new() };
    for key in &keys {
        let (call, reply) = shard.at_master(|master| {
            let call = notes.now();
            let reply = master.call(&["EVAL", READ, "1", key]);
            match came_of(&reply) {
                Came::Reply => Ok((call, reply?)),
                _ => Err(io::Error::other("it is master no more")),
            }
        });
        notes.note("get", (key, None), call, Some(&reply));
    }
    all_have_the_same(shard);
    (history + &notes.lines, known.acknowledged.into_inner())
}

fn all_have_the_same(shard: &Shard) {
    let wanted = shard.at_master(Contents::read);
    for node in &shard.nodes {
        wait_until("a node has what the master has", || {
            let mut client = node.connect().expect("it is up");
            let Ok(now) = testkit::contents::now_ms(&mut client) else { return false };
            Contents::read(&mut client).is_ok_and(|read| wanted.difference(&read, now).is_none())
        });
    }
}

/// What is done in rounds, and what the nodes are told.
struct Course {
    fault: fn(&mut Prng) -> Fault,
    directives: &'static [&'static str],
}

/// Everything, at nodes that miss each other soon.
const ANYTHING: Course = Course {
    fault: Fault::any,
    directives: &[
        "--shard-silence",
        "300",
        "--shard-lease",
        "500",
        "--shard-failover",
        "800",
        "--repl-diskless-sync",
        "yes",
    ],
};

/// A master that is back before anybody has missed it. Who is slow is no reason to part: if the master is the only member there is nobody else to go on.
const REBIRTHS: Course = Course {
    fault: |_| Fault::Rebirth,
    directives: &["--shard-silence", "3000", "--shard-lease", "3100", "--shard-failover", "3200"],
};

/// Rounds of all kinds of faults until the budget is spent.
pub fn rounds(editions: &[&str], min_sync: usize, budget: Budget) {
    rounds_of(&ANYTHING, editions, min_sync, budget);
}

/// Rounds in which a master is killed and back at once, until the budget is spent.
pub fn rebirths(editions: &[&str], min_sync: usize, budget: Budget) {
    rounds_of(&REBIRTHS, editions, min_sync, budget);
}

fn rounds_of(course: &Course, editions: &[&str], min_sync: usize, budget: Budget) {
    let is_gentle = editions.contains(&"memory");
    let mut prng = Prng::from_seed(budget.seed);
    let mut shard = Shard::begin(editions, min_sync, course.directives);
    let (mut done, mut acknowledged) = (0, 0);
    while budget.allows(done) {
        let (history, writes) = round(&mut shard, &mut prng, is_gentle, course.fault);
        if judge(&history) == Verdict::Illegal {
            let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("illegal-shard.jsonl");
            std::fs::write(&path, history).expect("it can be written");
            for node in &shard.nodes {
                println!("{}", node.server.last_lines());
            }
            panic!("round {done} is not linearizable (TARN_SEED={}): {}", budget.seed, path.display());
        }
        (done, acknowledged) = (done + 1, acknowledged + writes);
    }
    println!("{done} rounds over {editions:?}: {acknowledged} writes were acknowledged, and none is lost");
}
