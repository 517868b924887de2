//! Clusters as real processes: a config server over a store in its directory, and shards of servers, which clients reach in direct mode.
//!
//!     TARN_STEPS=100 TARN_SEED=$RANDOM ./test --test tests -- --nocapture clusters::masters_come_and_go

pub mod cluster;
pub mod guided;
mod secured;
mod tended;

use cluster::Cluster;
use guided::Guided;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use sys::Prng;
use testkit::Budget;
use testkit::ask::{call, ok, text};
use topology::ShardId;
use wire::{Value, key_slot};

use crate::porcupine::{Notes, Verdict, judge};

/// Clients at work at a time.
const CLIENTS: u64 = 4;
/// Keys that are set and read, of both shards.
const KEYS: u64 = 6;
/// How long something lasts at most, in milliseconds.
const FAULT_MS_MAX: u64 = 2500;

fn error(value: &Value) -> String {
    let Value::Error(line) = value else { panic!("{value:?} is no error") };
    String::from_utf8_lossy(line).into_owned()
}

#[test]
fn every_slot_is_served_by_one_shard() {
    let cluster = Cluster::begin(2, 2, &["--edition", "memory"]);
    let topology = cluster.topology().expect("it is there");
    let mut guided = Guided::new(&cluster);
    for number in 0..200 {
        let key = format!("k{number}");
        assert_eq!(guided.call(&key, &["SET", &key, &number.to_string()]).unwrap(), ok());
    }
    for server in topology.servers.values() {
        let mut client = cluster.connect(server.id).expect("it is up");
        let own = server.place.expect("it has one").shard;
        let is_master = topology.is_master(server);
        for key in ["k1", "k2", "k3", "k4", "k5"] {
            let slot = key_slot(key.as_bytes());
            let owner = topology.slots.owner(slot).expect("it has one");
            let master = topology.master_of(owner).expect("there is one");
            let moved = format!("MOVED {slot} {}:{}", master.host, master.port);
            let answer = call(&mut client, &["GET", key]);
            match owner == own && is_master {
                true => assert_eq!(answer, text(&key[1..])),
                false => assert_eq!(error(&answer), moved),
            }
        }
        assert!(error(&call(&mut client, &["MGET", "k1", "k2", "k3"])).starts_with("CROSSSLOT"));
        assert!(
            error(&call(&mut client, &["REPLICAOF", "NO", "ONE"])).contains("not allowed in cluster mode")
        );
    }
}

#[test]
fn replicas_show_what_is_committed_to_who_asks_for_it() {
    let cluster = Cluster::begin(1, 2, &["--edition", "durable", "--min-sync-replicas", "1"]);
    let topology = cluster.topology().expect("it is there");
    let replica = topology.replicas_of(ShardId(0)).next().expect("there is one").id;
    let mut guided = Guided::new(&cluster);
    assert_eq!(guided.call("k", &["SET", "k", "v"]).unwrap(), ok());
    let mut reader = cluster.connect(replica).expect("it is up");
    assert!(error(&call(&mut reader, &["GET", "k"])).starts_with("MOVED"));
    assert_eq!(call(&mut reader, &["READONLY"]), ok());
    cluster::wait_until("the replica shows it", || call(&mut reader, &["GET", "k"]) == text("v"));
    assert!(error(&call(&mut reader, &["SET", "k", "w"])).starts_with("MOVED"));
    assert_eq!(call(&mut reader, &["READWRITE"]), ok());
    assert!(error(&call(&mut reader, &["GET", "k"])).starts_with("MOVED"));
}

/// Clients count, each its own key, and take nothing but an answer.
#[test]
fn another_master_takes_over_unnoticed() {
    let mut cluster = Cluster::begin(1, 2, &["--edition", "durable"]);
    let is_over = AtomicBool::new(false);
    let longest_us = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..2)
            .map(|client| {
                let (mut guided, is_over, longest_us) = (Guided::new(&cluster), &is_over, &longest_us);
                scope.spawn(move || {
                    let key = format!("count{client}");
                    let mut count = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let asked_at = Instant::now();
                        count += 1;
                        let answer = guided.call_once(&key, &["INCR", &key]).expect("it is carried out");
                        assert_eq!(answer, Value::Int(count));
                        longest_us.fetch_max(asked_at.elapsed().as_micros() as u64, Ordering::Relaxed);
                    }
                    count
                })
            })
            .collect();
        let master = |cluster: &Cluster| cluster.topology()?.master_of(ShardId(0)).map(|master| master.id);
        for _ in 0..4 {
            let before = master(&cluster).expect("there is one");
            let answer = cluster.ask_config(&["CLUSTER", "SWITCH", "0"]);
            assert!(matches!(answer, Some(Value::Simple(_))), "{answer:?}");
            assert_ne!(master(&cluster), Some(before));
            cluster.wait_until_whole();
        }
        println!("the longest call took {} us", longest_us.swap(0, Ordering::Relaxed));
        let before = master(&cluster).expect("there is one");
        cluster.terminate(before);
        assert_ne!(master(&cluster), Some(before));
        cluster.restart(before);
        cluster.wait_until_whole();
        println!("the longest call while a master ended took {} us", longest_us.load(Ordering::Relaxed));
        is_over.store(true, Ordering::Relaxed);
        for client in clients {
            assert!(client.join().expect("it was answered") > 0);
        }
    });
}

/// Traffic needs no config server, and a server that starts without one finds its shard when one is back.
#[test]
fn clients_do_not_notice_that_config_servers_are_away() {
    let mut cluster = Cluster::begin(2, 2, &["--edition", "durable"]);
    let mut guided = Guided::new(&cluster);
    assert_eq!(guided.call("a", &["SET", "a", "1"]).unwrap(), ok());
    cluster.end_config();
    for number in 0..200 {
        let key = format!("k{number}");
        assert_eq!(guided.call_once(&key, &["SET", &key, "v"]).unwrap(), ok(), "{key}");
    }
    let topology = cluster.topology_before();
    let master = topology.master_of(ShardId(0)).expect("there is one").id;
    cluster.kill(master);
    cluster.restart(master);
    cluster.start_config();
    cluster.wait_until_whole();
    assert_eq!(guided.call("a", &["GET", "a"]).unwrap(), text("1"));
    for number in 0..200 {
        let key = format!("k{number}");
        assert_eq!(guided.call(&key, &["GET", &key]).unwrap(), text("v"), "{key}");
    }
}

/// One client at its work.
fn work(guided: &mut Guided, notes: &mut Notes<'_>, prng: &mut Prng, known: &(AtomicBool, AtomicU64)) {
    let mut number = 0;
    while !known.0.load(Ordering::Relaxed) {
        number += 1;
        let key = format!("r{}", prng.below(KEYS));
        let value = format!("{}.{number}", notes.client);
        let is_acknowledged = guided.set_or_get(&key, &value, notes, prng);
        known.1.fetch_add(u64::from(is_acknowledged), Ordering::Relaxed);
    }
}

/// What clients noted down while masters were killed or stood still, and the config server with them now and then.
fn round(cluster: &mut Cluster, prng: &mut Prng) -> (String, u64) {
    let began = Instant::now();
    let known = (AtomicBool::new(false), AtomicU64::new(0));
    let mut clean = Guided::new(cluster);
    for key in 0..KEYS {
        let key = format!("r{key}");
        clean.call(&key, &["DEL", &key]).expect("the cluster is whole");
    }
    let mut history = String::new();
    std::thread::scope(|scope| {
        let known = &known;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let mut guided = Guided::new(cluster);
                let mut notes = Notes { began: &began, client, lines: String::new() };
                let mut prng = Prng::from_seed(prng.next_u64());
                scope.spawn(move || {
                    work(&mut guided, &mut notes, &mut prng, known);
                    notes.lines
                })
            })
            .collect();
        for _ in 0..1 + prng.below(2) {
            // How long it lasts is what this is about; there is no event to wait for.
            std::thread::sleep(Duration::from_millis(prng.below(300)));
            let lasts = Duration::from_millis(prng.below(FAULT_MS_MAX));
            let with_config = prng.one_in(4);
            if with_config {
                cluster.end_config();
            }
            let shard = ShardId(prng.below(2) as u16);
            let Some(master) = cluster.topology_before().master_of(shard).map(|master| master.id) else {
                continue;
            };
            if prng.one_in(2) {
                cluster.signal(master, "-STOP");
                std::thread::sleep(lasts);
                cluster.signal(master, "-CONT");
            } else {
                cluster.kill(master);
                std::thread::sleep(lasts);
                cluster.restart(master);
            }
            if with_config {
                cluster.start_config();
            }
            cluster.wait_until_whole();
        }
        known.0.store(true, Ordering::Relaxed);
        history.extend(clients.into_iter().map(|client| client.join().expect("a client ends")));
    });
    let mut notes = Notes { began: &began, client: CLIENTS, lines: String::new() };
    let mut guided = Guided::new(cluster);
    for key in 0..KEYS {
        let key = format!("r{key}");
        let call = notes.now();
        let reply = guided.call(&key, &["GET", &key]).expect("the cluster is whole");
        notes.note("get", (&key, None), call, Some(&reply));
    }
    (history + &notes.lines, known.1.into_inner())
}

#[test]
fn masters_come_and_go_and_nothing_acknowledged_is_lost() {
    let budget = Budget::from_env(1, 2);
    let directives = ["--edition", "durable", "--min-sync-replicas", "1"];
    let quick = ["--shard-silence", "300", "--shard-lease", "500"];
    let mut cluster = Cluster::begin(2, 2, &[&directives[..], &quick].concat());
    let mut prng = Prng::from_seed(budget.seed);
    let (mut done, mut acknowledged) = (0, 0);
    while budget.allows(done) {
        let (history, writes) = round(&mut cluster, &mut prng);
        if judge(&history) == Verdict::Illegal {
            let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("illegal-cluster.jsonl");
            std::fs::write(&path, history).expect("it can be written");
            panic!("round {done} is not linearizable (TARN_SEED={}): {}", budget.seed, path.display());
        }
        (done, acknowledged) = (done + 1, acknowledged + writes);
    }
    println!("{done} rounds: {acknowledged} writes were acknowledged, and none is lost");
}
