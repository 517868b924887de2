//! What a seed makes of a shard: its nodes, settings, delays, and what befalls it. Times in microseconds.

use super::super::fault::Fault;
use replication::insync::Options;
use std::time::Duration;
use sys::Prng;
use sys::file::simulated::Faults;

/// One thing that may befall a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// A process ends and starts again; what it wrote stays.
    Kill,
    /// The power goes, perhaps in the middle of a write; what was not synced may be gone, sector by sector.
    PowerCut,
    /// A process stands still while its clock goes on.
    Pause,
    /// Nothing passes between a node and all others.
    Isolate,
    /// Nothing passes from one node to another, but the other way.
    CutOneWay,
    /// A connection breaks.
    Break,
    /// A disk takes its time for a sync.
    SlowDisk,
    /// A checkpoint is written, and what it replaces removed; the power may go meanwhile.
    Checkpoint,
    /// A command wants a node to be master.
    Promote,
}

const ALL: &[Disturbance] = &[
    Disturbance::Kill,
    Disturbance::PowerCut,
    Disturbance::PowerCut,
    Disturbance::Pause,
    Disturbance::Isolate,
    Disturbance::Isolate,
    Disturbance::CutOneWay,
    Disturbance::Break,
    Disturbance::SlowDisk,
    Disturbance::Checkpoint,
    Disturbance::Promote,
];

/// A shard and its fate.
#[derive(Clone, Debug)]
pub struct Plan {
    pub nodes: usize,
    pub options: Options,
    /// How much faster or slower each clock goes, in millionths.
    pub clock_ppm: Vec<i64>,
    pub network_delay_max: u64,
    pub disk_delay_max: u64,
    pub store_delay_max: u64,
    pub clients: usize,
    /// Keys of each kind.
    pub keys: u64,
    pub think_max: u64,
    pub patience_max: u64,
    pub disturbances: Vec<Disturbance>,
    pub disturbed_every: u64,
    pub spell_max: u64,
    pub disturbed_until: u64,
    pub fault: Option<Fault>,
    pub disk: Faults,
}

const MILLI: u64 = 1_000;

impl Plan {
    pub fn from_seed(seed: u64) -> Plan {
        let mut prng = Prng::from_seed(seed);
        let prng = &mut prng;
        let nodes = 2 + pick(prng, &[0, 0, 1, 1]);
        let silence = pick(prng, &[100, 250]);
        let lease = pick(prng, &[silence * 2, 1_000]);
        let kinds: Vec<Disturbance> = ALL.iter().copied().filter(|_| prng.one_in(2)).collect();
        Plan {
            nodes,
            options: Options {
                members_min: pick(prng, &[1, 1, 2]),
                silence: Duration::from_millis(silence),
                heartbeat: Duration::from_millis(silence / 5),
                lease: Duration::from_millis(lease),
                lease_max: Duration::from_millis(lease),
                margin: Duration::from_millis(1),
                failover: Some(Duration::from_millis(silence + pick(prng, &[50, 200]))),
                answer: Duration::from_millis(200),
            },
            clock_ppm: (0..nodes).map(|_| if prng.one_in(2) { 4_900 } else { -4_900 }).collect(),
            network_delay_max: pick(prng, &[300, 300, 3 * MILLI, 20 * MILLI]),
            disk_delay_max: pick(prng, &[100, MILLI, 10 * MILLI]),
            store_delay_max: pick(prng, &[200, 2 * MILLI, 50 * MILLI]),
            clients: 3 + pick(prng, &[0, 2]),
            keys: pick(prng, &[1, 3]),
            think_max: pick(prng, &[4 * MILLI, 20 * MILLI, 80 * MILLI]),
            patience_max: pick(prng, &[50 * MILLI, 1_000 * MILLI]),
            disturbances: if kinds.is_empty() { ALL.to_vec() } else { kinds },
            disturbed_every: pick(prng, &[150 * MILLI, 400 * MILLI]),
            spell_max: pick(prng, &[300 * MILLI, 1_500 * MILLI]),
            disturbed_until: 4_000 * MILLI,
            fault: None,
            disk: Faults::default(),
        }
    }
}

fn pick<T: Copy>(prng: &mut Prng, from: &[T]) -> T {
    from[prng.below(from.len() as u64) as usize]
}
