//! Chapter *cluster*: the printed memtier command's workload over one, two and four shards in direct mode, and what clients see of a master
//! that is killed and of slots that move.
//!
//! Every measurement has a cluster of its own, which is begun before it and ends with it: the shards differ, and of a cluster whose master was killed
//! nothing else should be measured.

use super::{Amount, Before, Fill, Happening, MEMTIER_PREFIX, Outline, Stage, Workload, beside};
use crate::report::{Figure, Layout, grouped};
use crate::whitepaper::scale::Scale;
use crate::work::{KeyPattern, Memtier, Work};

/// The shards over which the workload is run.
const SHARDS: [u16; 3] = [1, 2, 4];
/// Connections of the published command, over all of its threads.
pub const CONNECTIONS: u32 = 200;
/// The same where something happens: enough to see it, and to leave its servers some time.
const CONNECTIONS_DISTURBED: u32 = 50;
/// Size of the published values.
pub const VALUE_BYTES: u64 = 32;
/// Keys where something happens: how long slots take to move follows from them.
const KEYS_DISTURBED: u64 = 200_000;
/// Redis fails over by votes of the masters that are left, and so wants three.
const SHARDS_FAILING: u16 = 3;
/// Slots that move: half of a shard's.
const MOVED: u16 = 4_096;
/// The same in a quick run.
const MOVED_QUICK: u16 = 256;
/// What has a Redis Cluster notice sooner that a node is gone.
const SOONER: &str = " --cluster-node-timeout 2000";

/// The sections on a machine.
pub fn sections(scale: &Scale) -> Vec<Outline> {
    vec![by_shards(scale), failover(scale), slot_move(scale)]
}

/// The printed memtier command's workload over a cluster.
pub fn workload(scale: &Scale, label: &str, keys: u64, stage: Stage) -> Workload {
    let connections = if stage.happening.is_some() { CONNECTIONS_DISTURBED } else { CONNECTIONS };
    Workload {
        label: label.to_owned(),
        work: Work::Memtier(Memtier {
            sets: 1,
            gets: 1,
            value_bytes: VALUE_BYTES,
            prefix: MEMTIER_PREFIX.to_owned(),
            key_minimum: 1,
            key_maximum: keys,
            set_pattern: KeyPattern::Random,
            get_pattern: KeyPattern::Random,
        }),
        connections,
        threads: scale.threads(connections),
        pipeline: 1,
        amount: Amount::Time(1.0),
        before: Before::Filled(Fill {
            prefix: MEMTIER_PREFIX,
            digits: 0,
            first: 1,
            count: keys,
            value_bytes: VALUE_BYTES,
        }),
        group: 0,
        stage: Some(stage),
    }
}

/// The same over each number of shards.
pub fn workloads_by_shards(scale: &Scale, keys: u64, stage: impl Fn(u16) -> Stage) -> Vec<Workload> {
    let of = |shards| {
        let label = if shards == 1 { "1 shard".to_owned() } else { format!("{shards} shards") };
        workload(scale, &label, keys, stage(shards))
    };
    SHARDS.into_iter().map(of).collect()
}

/// The published figures beside those of them that have as many shards.
pub fn figures_by_shards() -> Vec<Figure> {
    beside(|figure| {
        let is_it = figure.edition == "cluster" && figure.workload.starts_with("memtier 1:1");
        let shards = figure.masters.filter(|_| is_it)?;
        SHARDS.iter().position(|one| u32::from(*one) == shards)
    })
}

fn by_shards(scale: &Scale) -> Outline {
    let keys = scale.keys(VALUE_BYTES);
    Outline {
        title: "SET and GET, one to one, by shards".to_owned(),
        about: format!(
            "memtier_benchmark's mix over {CONNECTIONS} clients (published: 10 threads of 20), one request at a time of each, values of {VALUE_BYTES} bytes, {} keys. Each client has a connection to every master and sends each request to the one that has the key's slot. Server CPU is that of all masters together: where it stays the same from one shard to four, so many machines would do so many times as much.",
            grouped(keys)
        ),
        layout: Layout::Costs,
        workloads: workloads_by_shards(scale, keys, Stage::quiet),
        figures: figures_by_shards(),
        cautions: vec![
            "The published clusters have a core for each master, behind proxies and with a replica each, and the client's machines for itself; larger ones, of 8 to 128 masters, stand in the chapter memory. Here all shards, their config server and the generator share one machine: the rate grows with the shards only as long as there are cores for them.".to_owned(),
            "Each Tarn has one thread here, as each Redis has one that executes commands. Where two threads of one server would share two shards' cores, one server with two threads is the other way to use them.".to_owned(),
            "The published run uses database 10, which a Redis Cluster has not got; here it is database 0, and 10 in the chapter cluster-proxies.".to_owned(),
        ],
        allowance: None,
    }
}

/// What a reader has to know of time lines.
fn cautions(more: &str) -> Vec<String> {
    vec![
        more.to_owned(),
        "A client follows MOVED and ASK, which are no errors. An operation that was on its way on a connection that broke, or whose master cannot be reached or says CLUSTERDOWN, is an error and is not made again; its client rests for 5 ms. How many errors there are says how many clients met the failure, and not how many operations a client that tries again would have lost.".to_owned(),
        "All servers share the machine: who takes over has to do it beside the load.".to_owned(),
    ]
}

fn failover(scale: &Scale) -> Outline {
    let keys = scale.keys(VALUE_BYTES).min(KEYS_DISTURBED);
    let stage = Stage {
        copies: 2,
        happening: Some(Happening::Kill),
        after_seconds: if scale.is_quick() { 1.0 } else { 3.0 },
        ..Stage::quiet(SHARDS_FAILING)
    };
    let mut own = workload(scale, "A master is killed", keys, stage);
    own.amount = Amount::Seconds(if scale.is_quick() { 6.0 } else { 30.0 });
    let sooner = Stage { peer_options: SOONER, ..stage };
    let mut sooner = workload(scale, "The same, cluster-node-timeout 2000", keys, sooner);
    sooner.amount = Amount::Seconds(if scale.is_quick() { 6.0 } else { 15.0 });
    Outline {
        title: "A master is killed".to_owned(),
        about: format!(
            "The same mix over {CONNECTIONS_DISTURBED} clients and {} keys, {SHARDS_FAILING} shards of 2 copies; the master of slot 0 is killed (kill -9) {} s after the beginning. The time without acknowledged writes is the longest between two acknowledged writes to the slots that it had, or to the end of the measurement if there was none any more.",
            grouped(keys),
            stage.after_seconds
        ),
        layout: Layout::TimeLine,
        workloads: vec![own, sooner],
        figures: Vec::new(),
        cautions: cautions(
            "A Redis Cluster notices a dead master after cluster-node-timeout, 15 s unless its command line says otherwise, and loses what the replica had not got; Tarn answers a write when both copies have it. The second row is of peers with a timeout of 2 s.",
        ),
        allowance: None,
    }
}

fn slot_move(scale: &Scale) -> Outline {
    let keys = scale.keys(VALUE_BYTES).min(KEYS_DISTURBED);
    let slots = if scale.is_quick() { MOVED_QUICK } else { MOVED };
    let stage = Stage {
        happening: Some(Happening::Move { slots }),
        after_seconds: if scale.is_quick() { 1.0 } else { 3.0 },
        ..Stage::quiet(2)
    };
    let mut workload = workload(scale, "Slots move", keys, stage);
    workload.amount = Amount::Seconds(if scale.is_quick() { 10.0 } else { 20.0 });
    Outline {
        title: "Slots move".to_owned(),
        about: format!(
            "The same over 2 shards of 1 copy: {slots} of the slots of one go to the other, {} s after the beginning; Tarn's by CLUSTER MOVE-SLOTS, a peer's by redis-cli --cluster reshard. The time without acknowledged writes is that of these slots.",
            stage.after_seconds
        ),
        layout: Layout::TimeLine,
        workloads: vec![workload],
        figures: Vec::new(),
        cautions: cautions(
            "A Redis Cluster moves slots one by one, each key by itself; of Tarn's all become the other shard's in one moment, and what the first still holds of them is removed afterwards, which is in the line but not in the time that the move took.",
        ),
        allowance: None,
    }
}
