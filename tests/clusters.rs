//! Clusters as real processes, which clients reach in direct mode: shards of servers, and a config server over a store in its directory, or two over an etcd of
//! three members.
//!
//!     TARN_STEPS=100 TARN_SEED=$RANDOM ./test --test tests -- --nocapture clusters::over_etcd

pub mod cluster;
mod config_servers;
pub mod faults;
pub mod guided;
mod links;
mod redis_cli;
mod rolled_back;
pub mod rounds;
mod secured;
mod tended;

use crate::info;
use cluster::{Cluster, Kind, PATIENT};
use faults::{Failovers, tell};
use guided::Guided;
use rounds::{Pulse, rounds, tags_of_each};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use testkit::Budget;
use testkit::ask::{call, ok, text};
use topology::ShardId;
use wire::{Value, key_slot};

/// Faults in a round at most.
const FAULTS: u64 = 3;

fn error(value: &Value) -> String {
    let Value::Error(line) = value else { panic!("{value:?} is no error") };
    String::from_utf8_lossy(line).into_owned()
}

#[test]
fn every_slot_is_served_by_one_shard() {
    let cluster = Cluster::begin(2, 2, &[&["--edition", "memory"], &PATIENT[..]].concat());
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
    let directives = [&["--edition", "durable", "--min-sync-replicas", "1"], &PATIENT[..]].concat();
    let cluster = Cluster::begin(1, 2, &directives);
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

/// Clients that count, each its own keys, and take nothing but an answer.
#[derive(Default)]
struct Counting {
    is_over: AtomicBool,
    answered: AtomicU64,
    longest_us: AtomicU64,
}

impl Counting {
    /// So many clients, in threads of their own.
    const CLIENTS: u64 = 2;

    /// One of them at its work: how far it has counted in each of these keys.
    fn work(&self, guided: &mut Guided, keys: &[String]) -> u64 {
        for count in 1.. {
            for key in keys {
                let asked_at = Instant::now();
                let answer = guided.call_once(key, &["INCR", key]).expect("it is carried out");
                assert_eq!(answer, Value::Int(count));
                self.longest_us.fetch_max(asked_at.elapsed().as_micros() as u64, Ordering::Relaxed);
                self.answered.fetch_add(1, Ordering::Relaxed);
            }
            if self.is_over.load(Ordering::Relaxed) {
                return count as u64;
            }
        }
        unreachable!("it counts for ever")
    }

    /// Has them count in keys with these tags while something happens; the counts that have to be there from then on.
    fn run(
        &self,
        cluster: &mut Cluster,
        tags: &[String],
        act: impl FnOnce(&mut Cluster),
    ) -> Vec<(String, u64)> {
        std::thread::scope(|scope| {
            let clients = (0..Counting::CLIENTS).map(|client| {
                let keys: Vec<String> = tags.iter().map(|tag| format!("count{client}{{{tag}}}")).collect();
                let mut guided = Guided::patient(cluster);
                scope.spawn(move || {
                    let count = self.work(&mut guided, &keys);
                    keys.into_iter().map(|key| (key, count)).collect::<Vec<_>>()
                })
            });
            let clients: Vec<_> = clients.collect();
            let until = testkit::Ends(&self.is_over);
            act(cluster);
            drop(until);
            clients.into_iter().flat_map(|client| client.join().expect("all was answered")).collect()
        })
    }

    /// The longest request since this was asked last.
    fn longest(&self) -> Duration {
        Duration::from_micros(self.longest_us.swap(0, Ordering::Relaxed))
    }
}

/// What names no key, and reads from a replica, waits for the new master to be followed.
#[test]
fn reads_everywhere_go_on_while_the_master_is_switched() {
    /// For so long they wait at least.
    const WAIT: Duration = Duration::from_secs(2);
    let cluster = Cluster::begin(1, 2, &["--edition", "memory"]);
    cluster.wait_until_whole();
    let topology = cluster.topology_before();
    let ids: Vec<_> = topology.servers.keys().copied().collect();
    let (begun, errors) = (Mutex::new(Instant::now()), Mutex::new(Vec::new()));
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        for id in &ids {
            let mut client = cluster.connect(*id).expect("it is up");
            let (begun, errors, is_over, rounds) = (&begun, &errors, &is_over, &rounds);
            scope.spawn(move || {
                assert_eq!(call(&mut client, &["READONLY"]), ok());
                while !is_over.load(Ordering::Relaxed) {
                    for request in [&["DBSIZE"][..], &["SCAN", "0"], &["GET", "k"]] {
                        let answer = call(&mut client, request);
                        let is_late = begun.lock().expect("nobody panics with it").elapsed() > WAIT;
                        if !is_late && matches!(answer, Value::Error(_)) {
                            errors.lock().expect("nobody panics with it").push(error(&answer));
                        }
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for number in 0..12 {
            let master = topology.master_of(ShardId(0)).expect("there is one").id;
            let heir = *ids.iter().find(|id| (**id == master) == (number % 2 == 1)).expect("there is one");
            *begun.lock().expect("nobody panics with it") = Instant::now();
            cluster.switch(ShardId(0), heir);
            cluster.wait_until_whole();
            let before = rounds.load(Ordering::Relaxed);
            cluster::wait_until("they are answered", || rounds.load(Ordering::Relaxed) > before + 20);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(errors.into_inner().expect("nobody panics with it"), Vec::<String>::new());
}

fn another_master_takes_over(kind: Kind, budget: Budget) {
    let mut cluster = Cluster::begin_as(kind, (1, 2), &[&["--edition", "durable"], &PATIENT[..]].concat());
    let tags = tags_of_each(1, &cluster.topology_before());
    let counting = Counting::default();
    let master = |cluster: &Cluster| cluster.topology()?.master_of(ShardId(0)).map(|master| master.id);
    let wait_for_another = |cluster: &Cluster, before| {
        cluster::wait_until("another is master", || master(cluster).is_some_and(|now| now != before));
    };
    let (mut switched, mut ended) = (Vec::new(), Vec::new());
    counting.run(&mut cluster, &tags, |cluster| {
        while budget.allows(switched.len() as u64) {
            counting.longest();
            let heir = cluster.topology_before().replicas_of(ShardId(0)).next().expect("there is one").id;
            cluster.switch(ShardId(0), heir);
            cluster.wait_until_whole();
            switched.push(counting.longest());
        }
        for _ in 0..switched.len().div_ceil(4) {
            let before = master(cluster).expect("there is one");
            counting.longest();
            cluster.terminate(before);
            wait_for_another(cluster, before);
            ended.push(counting.longest());
            cluster.restart(before);
            // From then on it will be a member, and whoever ends before that waits for it.
            let leader = master(cluster).expect("there is one");
            let mut leader = cluster.connect(leader).expect("it is up");
            cluster::wait_until("it follows", || info(&mut leader, "connected_slaves") == 1);
        }
    });
    tell("the longest request while the master was switched", switched);
    tell("... while it ended", ended);
}

#[test]
fn another_master_takes_over_unnoticed() {
    another_master_takes_over(Kind::Embedded, Budget::from_env(1, 4));
}

#[test]
fn over_etcd_another_master_takes_over_unnoticed() {
    another_master_takes_over(Kind::OverEtcd, Budget::from_env(1, 4));
}

/// Whoever yields while the store of decisions takes no changes has no heir.
#[test]
fn over_etcd_a_master_that_ends_yields_to_nobody_who_cannot_be_written_down() {
    let directives = ["--edition", "durable", "--shutdown-timeout", "600"];
    let mut cluster = Cluster::begin_as(Kind::OverEtcd, (1, 2), &directives);
    let master = cluster.topology_before().master_of(ShardId(0)).expect("there is one").id;
    (0..cluster.config.addresses().len()).for_each(|at| cluster.config.cut_off(at));
    cluster.signal(master, "-TERM");
    cluster::wait_until("it says why it stays", || cluster.output(master).contains("Not handing over"));
    // It serves on.
    let mut client = cluster.connect(master).expect("it is up");
    assert_eq!(call(&mut client, &["SET", "k", "v"]), ok());
    cluster.config.mend();
    cluster.wait_until_ended(master);
    cluster::wait_until("another is master", || {
        let now = cluster.topology();
        now.is_some_and(|now| now.master_of(ShardId(0)).is_some_and(|now| now.id != master))
    });
    let mut guided = Guided::new(&cluster);
    assert_eq!(guided.call("k", &["GET", "k"]).unwrap(), text("v"));
}

/// Traffic needs nobody who decides. A shard that loses its master meanwhile has another when they are back.
fn clients_do_not_notice_who_is_away(kind: Kind, length: Duration) {
    let mut cluster = Cluster::begin_as(kind, (3, 2), &[&["--edition", "durable"], &PATIENT[..]].concat());
    let topology = cluster.topology_before();
    let tags = tags_of_each(1, &topology);
    let counting = Counting::default();
    let answered = || {
        let before = counting.answered.load(Ordering::Relaxed);
        // How many are answered in this time is what is asked for.
        std::thread::sleep(length);
        let longest = counting.longest();
        (counting.answered.load(Ordering::Relaxed) - before, longest)
    };
    let counts = counting.run(&mut cluster, &tags, |cluster| {
        println!("in {length:?} with all there were answered, and took at most: {:?}", answered());
        cluster.config.end();
        println!("... with nobody there who decides: {:?}", answered());
    });
    let master = topology.master_of(ShardId(0)).expect("there is one").id;
    cluster.kill(master);
    let mut guided = Guided::new(&cluster);
    for tag in &tags[1..] {
        let key = format!("count0{{{tag}}}");
        // Whom it asks first may be the one that is gone.
        assert!(matches!(guided.call(&key, &["GET", &key]), Ok(Value::Bulk(_))), "other shards serve");
    }
    cluster.config.mend();
    cluster::wait_until("another is master", || {
        let now = cluster.topology();
        now.is_some_and(|now| now.master_of(ShardId(0)).is_some_and(|now| now.id != master))
    });
    cluster.restart(master);
    cluster.wait_until_whole();
    for (key, count) in counts {
        assert_eq!(guided.call(&key, &["GET", &key]).unwrap(), text(&count.to_string()), "{key}");
    }
}

#[test]
fn clients_do_not_notice_that_config_servers_are_away() {
    let length = Budget::from_env(1, 1).length().unwrap_or(Duration::from_secs(1));
    clients_do_not_notice_who_is_away(Kind::Embedded, length);
}

#[test]
fn over_etcd_clients_do_not_notice_that_all_who_decide_are_away() {
    let length = Budget::from_env(1, 1).length().unwrap_or(Duration::from_secs(1));
    clients_do_not_notice_who_is_away(Kind::OverEtcd, length);
}

/// Rounds of faults at a cluster of that kind.
fn masters_come_and_go(kind: Kind, shards: usize, directives: &[&str], budget: Budget) {
    let mut cluster = Cluster::begin_as(kind, (shards, 2), directives);
    let topology = cluster.topology_before();
    let tags = tags_of_each(2, &topology);
    let pulses: Vec<Pulse> = tags.iter().step_by(2).map(|tag| Pulse::new(tag)).collect();
    let of: BTreeMap<ShardId, &Pulse> = topology.shards.keys().copied().zip(&pulses).collect();
    let mut failovers = Failovers::default();
    rounds(&mut cluster, budget, (&tags, &pulses), |cluster, prng| {
        for _ in 0..1 + prng.below(FAULTS) {
            failovers.strike(cluster, prng, &of);
        }
    });
    failovers.tell();
}

#[test]
fn masters_come_and_go_and_nothing_acknowledged_is_lost() {
    let quick = ["--shard-silence", "300", "--shard-lease", "500"];
    let directives = [&["--edition", "durable", "--min-sync-replicas", "1"], &quick[..]].concat();
    masters_come_and_go(Kind::Embedded, 2, &directives, Budget::from_env(1, 2));
}

#[test]
fn over_etcd_masters_come_and_go_and_nothing_acknowledged_is_lost() {
    masters_come_and_go(Kind::OverEtcd, 3, &["--edition", "durable"], Budget::from_env(1, 2));
}
