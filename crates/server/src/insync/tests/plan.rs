//! What a seed makes of a shard: its nodes, settings, delays, and what befalls it. Times in microseconds.

use super::super::fault::Fault;
use config::Edition;
use replication::insync::Options;
use std::time::Duration;
use sys::Prng;
use sys::file::simulated::Faults;
use testkit::stage::{Disturbance, Fate};
use testkit::values::pick;

const ALL: &[Disturbance] = &[
    Disturbance::Kill,
    Disturbance::PowerCut,
    Disturbance::PowerCut,
    Disturbance::Pause,
    Disturbance::Isolate,
    Disturbance::Isolate,
    Disturbance::CutOneWay,
    Disturbance::Break,
    Disturbance::Throttle,
    Disturbance::SlowDisk,
    Disturbance::NoStore,
    Disturbance::Checkpoint,
    Disturbance::Promote,
    Disturbance::HandOver,
];

/// A shard and its fate.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What each node is.
    pub editions: Vec<Edition>,
    pub options: Options,
    pub network_delay_max: u64,
    pub disk_delay_max: u64,
    pub store_delay_max: u64,
    /// How often an answer of the store is lost: once in so many.
    pub store_loss_one_in: u64,
    pub clients: usize,
    /// Keys of each kind.
    pub keys: u64,
    pub think_max: u64,
    pub patience_max: u64,
    pub fate: Fate,
    pub fault: Option<Fault>,
    /// A planted mistake: a node that comes back with nothing takes itself for the member that it was.
    pub keeps_lives: bool,
    pub disk: Faults,
}

const MILLI: u64 = 1_000;

impl Plan {
    /// What `seed` means. One of four is about masters that hand over.
    pub fn from_seed(seed: u64) -> Plan {
        match seed % 4 {
            0 => Plan::about_handing_over(seed),
            _ => Plan::about_all(seed),
        }
    }

    /// Anything may happen.
    pub fn about_all(seed: u64) -> Plan {
        let mut prng = Prng::from_seed(seed);
        let prng = &mut prng;
        let editions = editions(prng);
        let silence = pick(prng, &[100, 250]);
        let lease = pick(prng, &[silence * 2, 1_000]);
        let kinds: Vec<Disturbance> = ALL.iter().copied().filter(|_| prng.one_in(2)).collect();
        let clock_ppm = editions.iter().map(|_| if prng.one_in(2) { 4_900 } else { -4_900 }).collect();
        Plan {
            editions,
            options: options(silence, lease, prng),
            network_delay_max: pick(prng, &[300, 300, 3 * MILLI, 20 * MILLI]),
            disk_delay_max: pick(prng, &[100, MILLI, 10 * MILLI]),
            store_delay_max: pick(prng, &[200, 2 * MILLI, 50 * MILLI]),
            store_loss_one_in: 20,
            clients: 3 + pick(prng, &[0, 2]),
            keys: pick(prng, &[1, 3]),
            think_max: pick(prng, &[10 * MILLI, 20 * MILLI, 80 * MILLI]),
            patience_max: pick(prng, &[50 * MILLI, 1_000 * MILLI]),
            fate: Fate {
                disturbances: if kinds.is_empty() { ALL.to_vec() } else { kinds },
                every: pick(prng, &[100 * MILLI, 300 * MILLI]),
                spell_max: pick(prng, &[300 * MILLI, 1_200 * MILLI]),
                until: 2_500 * MILLI,
                clock_ppm,
            },
            fault: None,
            keeps_lives: false,
            disk: Faults::default(),
        }
    }

    /// Masters hand over all the time, and something else befalls them meanwhile.
    pub fn about_handing_over(seed: u64) -> Plan {
        let mut prng = Prng::from_seed(seed);
        let plan = Plan::of_handovers_alone(seed);
        let beside: Vec<Disturbance> = ALL.iter().copied().filter(|_| prng.one_in(6)).collect();
        let mut disturbances = vec![Disturbance::HandOver; 2 + beside.len()];
        disturbances.extend(beside);
        Plan {
            store_delay_max: pick(&mut prng, &[2 * MILLI, 50 * MILLI]),
            store_loss_one_in: pick(&mut prng, &[4, 20]),
            fate: Fate {
                disturbances,
                spell_max: pick(&mut prng, &[300 * MILLI, 1_000 * MILLI]),
                ..plan.fate
            },
            ..plan
        }
    }

    /// Nothing happens but that masters hand over, and leases are long.
    pub fn of_handovers_alone(seed: u64) -> Plan {
        let mut prng = Prng::from_seed(seed);
        let plan = Plan::about_all(seed);
        Plan {
            options: options(250, 1_500, &mut prng),
            network_delay_max: pick(&mut prng, &[300, 3 * MILLI]),
            disk_delay_max: pick(&mut prng, &[100, MILLI]),
            store_delay_max: 2 * MILLI,
            store_loss_one_in: 1_000_000_000,
            think_max: 10 * MILLI,
            patience_max: 1_000 * MILLI,
            fate: Fate {
                disturbances: vec![Disturbance::HandOver],
                every: 100 * MILLI,
                until: 1_200 * MILLI,
                ..plan.fate
            },
            ..plan
        }
    }
}

/// Half of all shards are durable, others mixed. The first node is not one that comes back with nothing, unless all are.
fn editions(prng: &mut Prng) -> Vec<Edition> {
    let count = 2 + pick(prng, &[0, 0, 1, 1]);
    if prng.one_in(2) {
        return vec![Edition::Durable; count];
    }
    let kinds = [Edition::Durable, Edition::Memory, Edition::Memory, Edition::Capacity];
    let mut editions: Vec<Edition> = (0..count).map(|_| pick(prng, &kinds)).collect();
    editions.sort_by_key(|edition| *edition == Edition::Memory);
    editions
}

fn options(silence: u64, lease: u64, prng: &mut Prng) -> Options {
    Options {
        members_min: pick(prng, &[1, 1, 2]),
        silence: Duration::from_millis(silence),
        heartbeat: Duration::from_millis(silence / 5),
        lease: Duration::from_millis(lease),
        lease_max: Duration::from_millis(lease),
        margin: Duration::from_millis(1),
        failover: Some(Duration::from_millis(silence + pick(prng, &[50, 200]))),
        answer: Duration::from_millis(200),
    }
}
