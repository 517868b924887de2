//! What a seed makes of a shard: its nodes, settings, delays, and which disturbances befall it.

use super::super::{Fault, Options};
use std::time::Duration;
use sys::Prng;
use testkit::stage::{Disturbance, Fate};
use testkit::values::pick;

const ALL: &[Disturbance] = &[
    Disturbance::Kill,
    Disturbance::PowerCut,
    Disturbance::Pause,
    Disturbance::Cut,
    Disturbance::CutOneWay,
    Disturbance::Isolate,
    Disturbance::Break,
    Disturbance::Throttle,
    Disturbance::SlowDisk,
    Disturbance::NoStore,
    Disturbance::Promote,
    Disturbance::HandOver,
];

const APART: &[Disturbance] = &[
    Disturbance::Pause,
    Disturbance::Cut,
    Disturbance::Isolate,
    Disturbance::Isolate,
    Disturbance::Throttle,
    Disturbance::Kill,
];

/// A shard and its fate. Times in microseconds.
#[derive(Clone, Debug)]
pub struct Plan {
    pub nodes: usize,
    /// Nodes without a log: they come back empty.
    pub is_memory: Vec<bool>,
    pub options: Options,
    /// Whether all nodes are members from the first, or the first one only.
    pub begins_whole: bool,
    pub network_delay_max: u64,
    pub disk_delay_max: u64,
    pub store_delay_max: u64,
    /// How often a request to the store is late, or its answer lost: once in so many.
    pub store_loss_one_in: u64,
    /// How often a cut turns out to be impossible: once in so many.
    pub cut_impossible_one_in: u64,
    pub clients: usize,
    pub registers: u64,
    /// Once in so many values one is of a long request; 0: none is.
    pub long_every: u64,
    /// Pauses of a client between two operations.
    pub think_max: u64,
    /// How long a client waits for a reply.
    pub patience_max: u64,
    pub fate: Fate,
    pub fault: Option<Fault>,
}

const MILLI: u64 = 1_000;

impl Plan {
    /// What `seed` means. One seed of eight is about leases, one about learners.
    pub fn from_seed(seed: u64, fault: Option<Fault>) -> Plan {
        match seed % 8 {
            0 => Plan::about_leases(seed, fault),
            4 => Plan::about_learners(seed, fault),
            _ => Plan::about_all(seed, fault),
        }
    }

    /// Anything may happen.
    fn about_all(seed: u64, fault: Option<Fault>) -> Plan {
        let mut prng = Prng::from_seed(seed);
        let nodes = 2 + pick(&mut prng, &[0, 0, 1, 1, 1, 2, 3]);
        let has_memory = prng.one_in(4);
        let has_drift = !prng.one_in(4);
        let among = if prng.one_in(4) { APART } else { ALL };
        let kinds: Vec<Disturbance> = among.iter().copied().filter(|_| prng.one_in(3)).collect();
        let disturbances = if kinds.is_empty() { among.to_vec() } else { kinds };
        let is_memory = (0..nodes).map(|_| has_memory && !prng.one_in(4)).collect();
        let options = options(&mut prng);
        let clock_ppm = (0..nodes).map(|_| if has_drift { drift(&mut prng) } else { 0 }).collect();
        Plan {
            nodes,
            is_memory,
            options,
            begins_whole: !prng.one_in(3),
            network_delay_max: pick(&mut prng, &[100, 300, 300, 3 * MILLI, 30 * MILLI]),
            disk_delay_max: pick(&mut prng, &[100, MILLI, 10 * MILLI]),
            store_delay_max: pick(&mut prng, &[200, 200, 2 * MILLI, 50 * MILLI]),
            store_loss_one_in: pick(&mut prng, &[4, 20, 1_000]),
            cut_impossible_one_in: pick(&mut prng, &[4, 1_000]),
            clients: 2 + pick(&mut prng, &[0, 1, 2]),
            registers: 1 + prng.below(3),
            long_every: 0,
            think_max: pick(&mut prng, &[4 * MILLI, 20 * MILLI, 80 * MILLI]),
            patience_max: pick(&mut prng, &[50 * MILLI, 1_000 * MILLI]),
            fate: Fate {
                disturbances,
                every: pick(&mut prng, &[100 * MILLI, 400 * MILLI, 1_200 * MILLI]),
                spell_max: pick(&mut prng, &[300 * MILLI, 2_000 * MILLI, 4_000 * MILLI]),
                until: 6_000 * MILLI,
                clock_ppm,
            },
            fault,
        }
    }

    /// Masters live on where only clients hear them, leases are long, and everything else is quick.
    pub fn about_leases(seed: u64, fault: Option<Fault>) -> Plan {
        let mut prng = Prng::from_seed(seed);
        let nodes = 2 + pick(&mut prng, &[0, 0, 1]);
        let cut = pick(&mut prng, &[Disturbance::Isolate, Disturbance::Isolate, Disturbance::Cut]);
        let beside = pick(
            &mut prng,
            &[Disturbance::Isolate, Disturbance::Kill, Disturbance::Pause, Disturbance::HandOver],
        );
        let plan = Plan::quiet(nodes);
        let clock_ppm = (0..nodes).map(|_| drift(&mut prng)).collect();
        Plan {
            options: Options {
                silence: Duration::from_millis(100),
                heartbeat: Duration::from_millis(20),
                lease: Duration::from_millis(2_000),
                lease_max: Duration::from_millis(2_000),
                failover: Some(Duration::from_millis(150)),
                answer: Duration::from_millis(100),
                ..plan.options
            },
            store_loss_one_in: pick(&mut prng, &[3, 1_000]),
            clients: 6,
            // One that a former master has written in vain shows nothing stale there.
            registers: 2_000,
            think_max: 8 * MILLI,
            patience_max: 40 * MILLI,
            fate: Fate {
                disturbances: vec![cut, cut, beside],
                every: pick(&mut prng, &[400 * MILLI, 1_200 * MILLI]),
                spell_max: 4_000 * MILLI,
                until: 6_000 * MILLI,
                clock_ppm,
            },
            fault,
            ..plan
        }
    }

    /// Nodes come and go all the time, and disks and the store take theirs.
    pub fn about_learners(seed: u64, fault: Option<Fault>) -> Plan {
        let mut prng = Prng::from_seed(seed);
        let nodes = 3 + pick(&mut prng, &[0, 1]);
        let plan = Plan::quiet(nodes);
        Plan {
            options: Options {
                silence: Duration::from_millis(100),
                heartbeat: Duration::from_millis(20),
                lease: Duration::from_millis(100),
                lease_max: Duration::from_millis(100),
                failover: Some(Duration::from_millis(150)),
                answer: Duration::from_millis(100),
                ..plan.options
            },
            begins_whole: false,
            network_delay_max: pick(&mut prng, &[300, 3 * MILLI]),
            disk_delay_max: 10 * MILLI,
            store_delay_max: pick(&mut prng, &[2 * MILLI, 50 * MILLI]),
            store_loss_one_in: pick(&mut prng, &[3, 1_000]),
            clients: 4,
            think_max: 4 * MILLI,
            patience_max: 50 * MILLI,
            fate: Fate {
                disturbances: vec![
                    Disturbance::Kill,
                    Disturbance::Break,
                    Disturbance::Isolate,
                    Disturbance::Throttle,
                ],
                every: pick(&mut prng, &[100 * MILLI, 400 * MILLI]),
                spell_max: 400 * MILLI,
                until: 4_000 * MILLI,
                ..plan.fate
            },
            fault,
            ..plan
        }
    }

    /// Requests are longer than silence, and nothing else happens.
    pub fn about_long_requests(seed: u64, fault: Option<Fault>) -> Plan {
        let mut prng = Prng::from_seed(seed);
        let nodes = 2 + pick(&mut prng, &[0, 0, 1]);
        let plan = Plan::quiet(nodes);
        Plan {
            options: Options {
                members_min: pick(&mut prng, &[1, 2]),
                silence: Duration::from_millis(100),
                heartbeat: Duration::from_millis(20),
                lease: Duration::from_millis(1_000),
                lease_max: Duration::from_millis(1_000),
                ..plan.options
            },
            begins_whole: prng.one_in(2),
            network_delay_max: pick(&mut prng, &[300, 3 * MILLI]),
            disk_delay_max: pick(&mut prng, &[100, MILLI]),
            store_delay_max: pick(&mut prng, &[200, 2 * MILLI]),
            long_every: pick(&mut prng, &[40, 150]),
            fate: Fate { until: 4_000 * MILLI, ..plan.fate },
            fault,
            ..plan
        }
    }

    /// Nothing happens but what a test makes happen.
    pub fn quiet(nodes: usize) -> Plan {
        Plan {
            nodes,
            is_memory: vec![false; nodes],
            options: Options { margin: Duration::from_millis(1), ..Options::default() },
            begins_whole: true,
            network_delay_max: 200,
            disk_delay_max: 100,
            store_delay_max: 200,
            store_loss_one_in: 1_000_000_000,
            cut_impossible_one_in: 1_000_000_000,
            clients: 2,
            registers: 2,
            long_every: 0,
            think_max: 20 * MILLI,
            patience_max: 1_000 * MILLI,
            fate: Fate {
                disturbances: Vec::new(),
                every: 1_000 * MILLI,
                spell_max: 0,
                until: 0,
                clock_ppm: vec![0; nodes],
            },
            fault: None,
        }
    }
}

/// As fast or as slow as a clock may be.
fn drift(prng: &mut Prng) -> i64 {
    if prng.one_in(2) { 4_900 } else { -4_900 }
}

fn options(prng: &mut Prng) -> Options {
    let silence = pick(prng, &[100, 250, 500]);
    let lease = pick(prng, &[silence * 2, 300, 2_000]);
    Options {
        members_min: pick(prng, &[1, 1, 2]),
        silence: Duration::from_millis(silence),
        heartbeat: Duration::from_millis(silence / 5),
        lease: Duration::from_millis(lease),
        lease_max: Duration::from_millis(lease),
        margin: Duration::from_millis(1),
        failover: (!prng.one_in(4)).then(|| Duration::from_millis(silence + pick(prng, &[50, 200, 800]))),
        answer: Duration::from_millis(pick(prng, &[100, 400])),
    }
}
