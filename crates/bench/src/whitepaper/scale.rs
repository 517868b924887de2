//! How much is measured: keys and seconds that suit the machine and the time that a run may take.
//!
//! Keys are bounded by memory: all local servers hold their keys at the same time, so that they can take turns. Time is
//! a budget that all measurements of the run share by their weights.

use super::chapters::{Amount, Chapter, Outline};
use crate::report::Machine;
use std::time::Duration;

/// Random keys of the published runs.
const KEYS_PUBLISHED: u64 = 1_048_576;
/// Records of the YCSB workloads of a standard run: their load must not take more than seconds.
const RECORDS: u64 = 500_000;
/// What a server may need for a key beside its value.
const KEY_BYTES: u64 = 200;
/// The part of the memory that all servers together may fill.
const MEMORY_SHARE: u64 = 2;
/// A shorter measurement says nothing.
const MEASURE_MIN: Duration = Duration::from_millis(500);
/// A longer one says little more.
const MEASURE_MAX: Duration = Duration::from_secs(30);
/// The same in a quick run, of a single chapter perhaps.
const MEASURE_MAX_QUICK: Duration = Duration::from_secs(3);
/// Connecting, filling and emptying around a measurement, for the estimate.
const AROUND: Duration = Duration::from_millis(300);
/// Unpipelined operations per second of a slow machine, for the estimate.
pub const SLOW_RATE: u64 = 40_000;
/// A load of the durable chapter shall take no longer on a slow server.
const LOAD_MAX: Duration = Duration::from_secs(6);
/// The same in a quick run.
const LOAD_MAX_QUICK: Duration = Duration::from_secs(3);
/// Syncs, each of the length of a measured one, that a slow server takes for one write of every connection.
const SLOW_SYNCS: f64 = 4.0;
/// Bytes a second that a slow disk takes.
const SLOW_DISK_BYTES: f64 = 32e6;
/// Operations a second of a slow machine whose every write waits for the disk, however fast that is.
const SLOW_DURABLE_RATE: f64 = 20_000.0;
/// A synced write where none was measured, in microseconds.
const SYNCED_WRITE_US: f64 = 5_000.0;

/// The size of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Under 10 minutes with one peer.
    Standard,
    /// Under 2 minutes with one peer.
    Quick,
}

/// How long each measurement takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// One of weight 1.
    pub measure: Duration,
    /// Before each, with the same load.
    pub warm_up: Duration,
}

/// How many records are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// That many.
    pub records: u64,
    /// What a slow server writes of them in a second.
    pub per_second: u64,
}

/// What suits the machine.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    size: Size,
    factor: f64,
    cores: u32,
    bytes_per_server: u64,
    synced_write_us: f64,
}

impl Scale {
    /// For a machine that carries some local servers at the same time.
    pub fn new(size: Size, factor: f64, machine: &Machine, local_servers: usize) -> Self {
        let servers = local_servers.max(1) as u64;
        Scale {
            size,
            factor,
            cores: machine.cores.max(1),
            bytes_per_server: machine.memory_bytes / MEMORY_SHARE / servers,
            synced_write_us: machine.synced_write.map_or(SYNCED_WRITE_US, |took| took.average_us),
        }
    }

    /// Whether the run is a short one.
    pub fn is_quick(&self) -> bool {
        self.size == Size::Quick
    }

    /// Keys with values of a size.
    pub fn keys(&self, value_bytes: u64) -> u64 {
        self.bounded(KEYS_PUBLISHED, value_bytes)
    }

    /// Records of the YCSB workloads.
    pub fn records(&self, value_bytes: u64) -> u64 {
        self.bounded(RECORDS, value_bytes)
    }

    fn bounded(&self, published: u64, value_bytes: u64) -> u64 {
        let divisor = if self.is_quick() { 8.0 } else { 1.0 };
        let wanted = (published as f64 * self.factor / divisor) as u64;
        wanted.min(self.bytes_per_server / (value_bytes + KEY_BYTES)).max(1_000)
    }

    /// How many records a load writes whose every write waits for the disk: as many as a slow server takes in seconds.
    pub fn durable_load(&self, value_bytes: u64, connections: u32) -> Load {
        let syncs = f64::from(connections) * 1e6 / (self.synced_write_us * SLOW_SYNCS);
        let disk = SLOW_DISK_BYTES / (value_bytes + KEY_BYTES) as f64;
        let per_second = syncs.min(disk).clamp(1.0, SLOW_DURABLE_RATE);
        let time = if self.is_quick() { LOAD_MAX_QUICK } else { LOAD_MAX };
        let in_time = (time.as_secs_f64() * self.factor * per_second) as u64;
        let records = self.records(value_bytes).min(in_time).max(1_000);
        Load { records, per_second: per_second as u64 }
    }

    /// Threads of the generator, each with as many connections: the servers need the rest of the cores.
    pub fn threads(&self, connections: u32) -> u32 {
        let most = (self.cores / 2).clamp(1, 10);
        (1..=most).rev().find(|threads| connections.is_multiple_of(*threads)).unwrap_or(1)
    }

    /// Shares the time of the run among its measurements.
    pub fn pace<'a>(&self, outlines: impl Iterator<Item = &'a Outline>, servers: usize) -> Pace {
        let (budget, warm_up, most) = match self.size {
            Size::Standard => (Duration::from_secs(420), Duration::from_secs(1), MEASURE_MAX),
            Size::Quick => (Duration::from_secs(100), Duration::from_millis(250), MEASURE_MAX_QUICK),
        };
        let workloads: Vec<_> = outlines.flat_map(|outline| &outline.workloads).collect();
        let weights: f64 = workloads.iter().map(|workload| workload.amount.weight()).sum();
        let servers = servers.max(1) as f64;
        let around = (warm_up + AROUND).as_secs_f64() * workloads.len() as f64 * servers;
        let counted: f64 = workloads.iter().map(|workload| counted_seconds(workload.amount)).sum();
        let left = budget.as_secs_f64() * self.factor - around - counted * servers;
        let each = (left / (weights.max(1.0) * servers)).clamp(MEASURE_MIN.as_secs_f64(), most.as_secs_f64());
        Pace { measure: Duration::from_millis((each * 10.0).round() as u64 * 100), warm_up }
    }

    /// What was scaled, for the report.
    pub fn sentence(&self, pace: Pace) -> String {
        let size = if self.is_quick() { "A quick run: each" } else { "Each" };
        format!(
            "{size} measurement takes {:.1} s after a warm-up of {:.2} s unless its table says otherwise, over up to {} keys.",
            pace.measure.as_secs_f64(),
            pace.warm_up.as_secs_f64(),
            crate::report::grouped(self.keys(0))
        )
    }

    /// How long it will take about.
    pub fn estimate(&self, pace: Pace, outlines: &[(&Chapter, Vec<Outline>)], servers: usize) -> String {
        let workloads = outlines.iter().flat_map(|outline| &outline.1).flat_map(|outline| &outline.workloads);
        let seconds: f64 = workloads
            .map(|workload| {
                let measured = pace.measure.as_secs_f64() * workload.amount.weight();
                measured + counted_seconds(workload.amount) + (pace.warm_up + AROUND).as_secs_f64()
            })
            .sum();
        format!("The run will take about {}.", crate::report::duration(seconds * servers as f64))
    }
}

/// Time of a measurement that counts operations.
fn counted_seconds(amount: Amount) -> f64 {
    match amount {
        Amount::Time(_) => 0.0,
        Amount::Operations { count, per_second } => count as f64 / per_second as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::super::chapters::CHAPTERS;
    use super::*;
    use crate::report::SyncedWrite;

    fn scale(size: Size, gigabytes: u64) -> Scale {
        let machine = Machine { cores: 2, memory_bytes: gigabytes << 30, ..Machine::default() };
        Scale::new(size, 1.0, &machine, 2)
    }

    #[test]
    fn all_servers_fit_into_half_of_the_memory() {
        let small = scale(Size::Standard, 4);
        assert_eq!(small.keys(256), KEYS_PUBLISHED);
        assert!(small.keys(2_048) < KEYS_PUBLISHED);
        assert!(small.keys(2_048) * (2_048 + KEY_BYTES) * 2 <= 2 << 30);
        assert_eq!(scale(Size::Standard, 24).keys(2_048), KEYS_PUBLISHED);
    }

    #[test]
    fn all_chapters_keep_their_time_with_one_peer() {
        for (size, seconds_max) in [(Size::Standard, 540.0), (Size::Quick, 110.0)] {
            let scale = scale(size, 4);
            let outlines: Vec<Outline> =
                CHAPTERS.iter().flat_map(|chapter| (chapter.sections)(&scale)).collect();
            let pace = scale.pace(outlines.iter(), 2);
            assert!(pace.measure > MEASURE_MIN, "{pace:?}");
            let workloads = outlines.iter().flat_map(|outline| &outline.workloads);
            let seconds: f64 = workloads
                .map(|workload| {
                    pace.measure.as_secs_f64() * workload.amount.weight()
                        + (pace.warm_up + AROUND).as_secs_f64()
                        + counted_seconds(workload.amount)
                })
                .sum();
            assert!(seconds * 2.0 < seconds_max, "{size:?} takes {} s", seconds * 2.0);
        }
    }

    #[test]
    fn a_slow_disk_gets_fewer_records_and_no_longer_loads() {
        for (synced_write_us, most) in [(100.0, 120_000), (5_000.0, 20_000), (50_000.0, 2_000)] {
            let machine = Machine {
                cores: 2,
                memory_bytes: 4 << 30,
                synced_write: Some(SyncedWrite { p50_us: 80.0, average_us: synced_write_us }),
                ..Machine::default()
            };
            let scale = Scale::new(Size::Standard, 1.0, &machine, 2);
            let Load { records, per_second } = scale.durable_load(128, 64);
            assert!((1_000..=most).contains(&records), "{synced_write_us} us: {records}");
            assert!(records <= per_second * LOAD_MAX.as_secs(), "{synced_write_us} us: {records}");
            let large = scale.durable_load(4_096, 64);
            assert!(large.records * 4_096 <= SLOW_DISK_BYTES as u64 * LOAD_MAX.as_secs());
        }
    }

    #[test]
    fn more_servers_share_the_time() {
        let scale = scale(Size::Standard, 4);
        let outlines = (CHAPTERS[0].sections)(&scale);
        let [two, four] = [2, 4].map(|servers| scale.pace(outlines.iter(), servers).measure);
        assert!(four < two);
    }

    #[test]
    fn the_generator_leaves_cores_to_the_servers() {
        assert_eq!(scale(Size::Standard, 4).threads(64), 1);
        let machine = Machine { cores: 16, memory_bytes: 1 << 34, ..Machine::default() };
        let large = Scale::new(Size::Standard, 1.0, &machine, 2);
        assert_eq!((large.threads(64), large.threads(1)), (8, 1));
    }
}
