//! What happens to a cluster in rounds: masters and their replicas are killed, stand still and are cut off, and the config server that leads or the leader of etcd
//! with them; and for how long their shards acknowledged nothing.

use super::cluster::Cluster;
use super::links::Way;
use super::rounds::Pulse;
use std::collections::BTreeMap;
use std::time::Duration;
use sys::Prng;
use topology::{ServerId, ShardId};

/// Who waits longer than this for a shard wants to know what its servers have said meanwhile.
const LONG: Duration = Duration::from_secs(10);

/// What is done to a server.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    Stop,
    /// Other servers do not reach it, one way or both; clients do.
    CutOff(Option<Way>),
    /// Nor does it reach a config server.
    Isolate,
    CutOffFromConfig,
}

impl Fault {
    fn any(prng: &mut Prng, has_links: bool) -> Fault {
        match prng.below(if has_links { 12 } else { 7 }) {
            0..4 => Fault::Kill,
            4..7 => Fault::Stop,
            7 => Fault::CutOff(None),
            8 => Fault::CutOff(Some(Way::There)),
            9 => Fault::CutOff(Some(Way::Back)),
            10 => Fault::Isolate,
            _ => Fault::CutOffFromConfig,
        }
    }

    fn strike(self, cluster: &mut Cluster, whom: ServerId) {
        match (self, cluster.links(whom)) {
            (Fault::Kill, _) => cluster.kill(whom),
            (Fault::Stop, _) => cluster.signal(whom, "-STOP"),
            (Fault::CutOff(way), Some(links)) => links.cut_off(way),
            (Fault::Isolate, Some(links)) => {
                links.cut_off(None);
                links.cut_off_from_config();
            }
            (Fault::CutOffFromConfig, Some(links)) => links.cut_off_from_config(),
            (_, None) => unreachable!("it has links"),
        }
    }
}

/// What is done at the same time to those who decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Beside {
    Nothing,
    Config,
    Etcd,
}

impl Beside {
    fn any(prng: &mut Prng) -> Beside {
        match prng.below(6) {
            0 => Beside::Config,
            1 => Beside::Etcd,
            _ => Beside::Nothing,
        }
    }

    fn strike(self, cluster: &mut Cluster, prng: &mut Prng) {
        match self {
            Beside::Nothing => {}
            Beside::Config => {
                let Some(at) = cluster.config.leader() else { return };
                match prng.below(if cluster.config.etcd.is_some() { 3 } else { 2 }) {
                    0 => cluster.config.kill(at),
                    1 => cluster.config.stop(at),
                    _ => cluster.config.cut_off(at),
                }
            }
            Beside::Etcd => {
                let Some(etcd) = &mut cluster.config.etcd else { return };
                let Some(at) = etcd.leader() else { return };
                match prng.one_in(2) {
                    true => etcd.kill(at),
                    false => etcd.signal(at, "-STOP"),
                }
            }
        }
    }
}

/// How long it lasts: mostly not for long.
fn lasts(prng: &mut Prng) -> Duration {
    let ms = match prng.below(24) {
        0 => 5000 + prng.below(25_000),
        1..6 => 2000 + prng.below(3000),
        _ => 100 + prng.below(2000),
    };
    Duration::from_millis(ms)
}

/// What faults have come to.
#[derive(Default)]
pub struct Failovers {
    faults: u64,
    /// For how long shards acknowledged nothing whose master was replaced, by what happened beside it.
    silences: BTreeMap<Beside, Vec<Duration>>,
    /// The same of those whose master stayed.
    spared: Vec<Duration>,
}

/// Something happens to one shard, or to each of them, and is over again: to which, what beside it, and for how long.
pub fn strike(cluster: &mut Cluster, prng: &mut Prng) -> (Vec<ShardId>, Beside, Duration) {
    let before = cluster.topology_before();
    let shards: Vec<ShardId> = before.shards.keys().copied().collect();
    let one = shards[usize::try_from(prng.below(shards.len() as u64)).unwrap()];
    let struck = if prng.one_in(3) { shards } else { vec![one] };
    let beside = Beside::any(prng);
    beside.strike(cluster, prng);
    for shard in &struck {
        let master = before.master_of(*shard).expect("it is whole").id;
        let replica = before.replicas_of(*shard).next().map(|replica| replica.id);
        let whom = if prng.one_in(8) { replica.unwrap_or(master) } else { master };
        let has_links = cluster.links(whom).is_some();
        let fault = Fault::any(prng, has_links);
        println!("{fault:?} at {shard:?}'s {whom}, {beside:?}");
        fault.strike(cluster, whom);
    }
    let lasts = lasts(prng);
    std::thread::sleep(lasts);
    cluster.mend();
    cluster.wait_until_whole();
    (struck, beside, lasts)
}

impl Failovers {
    /// The same, and how long shards were silent meanwhile.
    pub fn strike(&mut self, cluster: &mut Cluster, prng: &mut Prng, pulses: &BTreeMap<ShardId, &Pulse>) {
        // When in a client's life it happens is what this is about; there is no event to wait for.
        std::thread::sleep(Duration::from_millis(prng.below(300)));
        let before = cluster.topology_before();
        let shards: Vec<ShardId> = before.shards.keys().copied().collect();
        pulses.values().for_each(|pulse| pulse.begin());
        let (struck, beside, lasts) = strike(cluster, prng);
        let after = cluster.topology_before();
        self.faults += struck.len() as u64;
        for shard in shards {
            let silence = pulses[&shard].longest();
            let epochs = [&before, &after].map(|topology| topology.shards[&shard].epoch);
            let is_replaced = epochs[0] != epochs[1];
            match is_replaced {
                true => self.silences.entry(beside).or_default().push(silence),
                false if struck.contains(&shard) => self.spared.push(silence),
                false => {}
            }
            if silence > LONG.max(lasts * 2) {
                println!("{}", cluster.last_lines());
            }
            if is_replaced || struck.contains(&shard) {
                println!("{shard:?} was silent for {silence:?}, epochs {epochs:?}, after {lasts:?}");
            }
        }
    }

    /// Tells all of it.
    pub fn tell(&mut self) {
        let count: usize = self.silences.values().map(Vec::len).sum();
        println!("{} faults at shards, {count} masters were replaced", self.faults);
        let all = self.silences.values().flatten().copied().collect();
        tell("without acknowledged writes, all failovers", all);
        for (beside, silences) in &self.silences {
            tell(&format!("... beside it: {beside:?}"), silences.clone());
        }
        tell("... the master stayed", self.spared.clone());
    }
}

/// How such times are spread.
pub fn tell(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let Some(last) = times.len().checked_sub(1) else { return };
    let at = |part: f64| times[(last as f64 * part).round() as usize];
    println!(
        "{what}: {} times, p50 {:?}, p90 {:?}, p99 {:?}, longest {:?}",
        times.len(),
        at(0.5),
        at(0.9),
        at(0.99),
        times[last]
    );
}
