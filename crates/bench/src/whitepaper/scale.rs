//! How much is measured: keys and seconds that suit the machine and the time that a run may take.
//!
//! Keys are bounded by memory: all local servers hold their keys at the same time, so that they can take turns. Time is
//! a budget that all timed measurements of the run share by their weights; loads that write so many records come on top,
//! and have as many records as a slow server takes in seconds.

use super::chapters::{Amount, Outline, Workload};
use super::edition::{Edition, Room};
use crate::report::Machine;
use std::time::Duration;

/// Random keys of the published runs.
const KEYS_PUBLISHED: u64 = 1_048_576;
/// Records of the YCSB workloads of a standard run: their load must not take more than seconds.
const RECORDS: u64 = 500_000;
/// By how much a quick run's keys are fewer.
const QUICK_DIVISOR: u64 = 8;
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
/// What it takes to begin a server of a measurement's own until all of them know each other, and to end it, for the estimate.
const SERVER_BEGINS: Duration = Duration::from_millis(1_500);
/// Unpipelined operations per second of a slow machine, for the estimate.
pub const SLOW_RATE: u64 = 40_000;
/// A load of the durable chapter shall take no longer on a slow server.
const LOAD_MAX: Duration = Duration::from_secs(6);
/// The same in a quick run.
const LOAD_MAX_QUICK: Duration = Duration::from_secs(3);
/// Records of the capacity chapter whose memory is scarce: enough that the disk's part shows, and that of the index of what
/// is there.
const RECORDS_SCARCE: u64 = 8_000_000;
/// The same in a quick run.
const RECORDS_SCARCE_QUICK: u64 = 400_000;
/// What a record of these chapters takes in memory: a value of 100 bytes, a key of some 23, and what is kept with them.
const CAPACITY_RECORD_BYTES: u64 = 151;
/// Size of the values of these chapters.
pub const CAPACITY_VALUE_BYTES: u64 = 100;
/// Connections of these chapters.
pub const CAPACITY_CONNECTIONS: u32 = 32;
/// Less memory holds no server's buffers.
const MAXMEMORY_MB_MIN: u64 = 8;
/// Bytes on disk for each byte of the records, at most, while they are loaded and overwritten: the log, a checkpoint that
/// is made while the one before is there, and the store or what a peer writes anew.
const DISK_BY_DATA: u64 = 4;
/// What a server takes on disk before it holds anything.
const DISK_EMPTY_BYTES: u64 = 256 << 20;
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
    /// Under 40 minutes with one peer, under 10 without the chapters capacity, replicated, cluster and twemproxy.
    Standard,
    /// Under 7 minutes with one peer, under 2 without the chapters capacity, replicated, cluster and twemproxy.
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
    local_servers: u64,
    bytes_for_servers: u64,
    synced_write_us: f64,
}

/// What the capacity edition holds, and in how much memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The records.
    pub load: Load,
    /// What they would take in memory.
    pub data_bytes: u64,
    /// The ceiling that it is given.
    pub maxmemory_mb: u64,
}

impl Scale {
    /// For a machine that carries some local servers at the same time, an edition's companions not counted.
    pub fn new(size: Size, factor: f64, machine: &Machine, local_servers: usize) -> Self {
        Scale {
            size,
            factor,
            cores: machine.cores.max(1),
            local_servers: local_servers.max(1) as u64,
            bytes_for_servers: machine.memory_bytes / MEMORY_SHARE,
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
        let divisor = if self.is_quick() { QUICK_DIVISOR } else { 1 };
        let wanted = (published as f64 * self.factor / divisor as f64) as u64;
        wanted.min(self.fitting(value_bytes, Edition::Memory)).max(1_000)
    }

    /// Keys that fit into every server's share of the memory in the chapters of an edition.
    fn fitting(&self, value_bytes: u64, edition: Edition) -> u64 {
        let servers = self.local_servers + edition.companions().len() as u64;
        self.bytes_for_servers / servers / (value_bytes + KEY_BYTES)
    }

    /// How many records a load writes whose every write waits for the disk: as many as a slow server takes in seconds.
    pub fn durable_load(&self, value_bytes: u64, connections: u32) -> Load {
        let per_second = self.durable_rate(value_bytes, connections, SLOW_SYNCS);
        let time = if self.is_quick() { LOAD_MAX_QUICK } else { LOAD_MAX };
        let in_time = (time.as_secs_f64() * self.factor * per_second) as u64;
        let records = self.records(value_bytes).min(in_time).max(1_000);
        Load { records, per_second: per_second as u64 }
    }

    /// Writes a second of a slow server that waits so many syncs of this disk for one of every connection.
    fn durable_rate(&self, value_bytes: u64, connections: u32, syncs: f64) -> f64 {
        let syncs = f64::from(connections) * 1e6 / (self.synced_write_us * syncs);
        let disk = SLOW_DISK_BYTES / (value_bytes + KEY_BYTES) as f64;
        syncs.min(disk).clamp(1.0, SLOW_DURABLE_RATE)
    }

    /// What the capacity edition is to hold. The records are fewer on a disk that is plainly slow, or with little memory, for
    /// the others hold all of them there; the memory follows their number.
    pub fn capacity(&self, room: Room) -> Capacity {
        let whole = match (room, self.size) {
            (Room::Ample, Size::Standard) => RECORDS,
            (Room::Ample, Size::Quick) => RECORDS / QUICK_DIVISOR,
            (Room::Scarce, Size::Standard) => RECORDS_SCARCE,
            (Room::Scarce, Size::Quick) => RECORDS_SCARCE_QUICK,
        };
        let per_second = self.durable_rate(CAPACITY_VALUE_BYTES, CAPACITY_CONNECTIONS, 1.0);
        let wanted = whole as f64 * self.factor * per_second / SLOW_DURABLE_RATE;
        let fitting = self.fitting(CAPACITY_VALUE_BYTES, Edition::Capacity(room));
        let records = (wanted as u64).min(fitting).max(1_000);
        let data_bytes = records * CAPACITY_RECORD_BYTES;
        let memory = data_bytes as f64 * room.memory_by_data() / f64::from(1 << 20);
        Capacity {
            load: Load { records, per_second: per_second as u64 },
            data_bytes,
            maxmemory_mb: (memory.round() as u64).max(MAXMEMORY_MB_MIN),
        }
    }

    /// The ceiling that Tarn is given in the chapters of an edition, if any.
    pub fn maxmemory_mb(&self, edition: Edition) -> Option<u64> {
        match edition {
            Edition::Memory
            | Edition::Durable
            | Edition::Replicated(_)
            | Edition::Cluster
            | Edition::Proxies => None,
            Edition::Capacity(room) => Some(self.capacity(room).maxmemory_mb),
        }
    }

    /// Bytes that local servers may need on disk in the chapters of an edition, where that is worth asking for before.
    pub fn disk_bytes(&self, edition: Edition) -> u64 {
        let Edition::Capacity(room) = edition else { return 0 };
        let on_disk = edition.companions().iter().filter(|one| one.edition.is_on_disk()).count();
        let servers = self.local_servers + on_disk as u64;
        servers * (DISK_EMPTY_BYTES + DISK_BY_DATA * self.capacity(room).data_bytes)
    }

    /// Threads of the generator, each with as many connections: the servers need the rest of the cores.
    pub fn threads(&self, connections: u32) -> u32 {
        let most = (self.cores / 2).clamp(1, 10);
        (1..=most).rev().find(|threads| connections.is_multiple_of(*threads)).unwrap_or(1)
    }

    /// Shares the time of the run among its timed measurements, each made by some servers.
    pub fn pace<'a>(&self, outlines: impl Iterator<Item = (&'a Outline, usize)>) -> Pace {
        let (budget, warm_up, most) = match self.size {
            Size::Standard => (Duration::from_secs(500), Duration::from_secs(1), MEASURE_MAX),
            Size::Quick => (Duration::from_secs(170), Duration::from_millis(250), MEASURE_MAX_QUICK),
        };
        let (mut weights, mut around) = (0.0, 0.0);
        for (outline, servers) in outlines {
            for workload in &outline.workloads {
                weights += workload.amount.weight() * servers as f64;
                around += (warm_up + AROUND).as_secs_f64() * servers as f64;
            }
        }
        let left = budget.as_secs_f64() * self.factor - around;
        let each = (left / f64::max(weights, 1.0)).clamp(MEASURE_MIN.as_secs_f64(), most.as_secs_f64());
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

    /// How long it will take about, each outline with its number of servers.
    pub fn estimate<'a>(&self, pace: Pace, outlines: impl Iterator<Item = (&'a Outline, usize)>) -> f64 {
        let of = |workload: &Workload| {
            let measured = pace.measure.as_secs_f64() * workload.amount.weight();
            let servers = workload.stage.map_or(0, |stage| stage.shards * stage.copies);
            let begun = SERVER_BEGINS * u32::from(servers);
            measured + counted_seconds(workload.amount) + (pace.warm_up + AROUND + begun).as_secs_f64()
        };
        outlines
            .map(|(outline, servers)| outline.workloads.iter().map(of).sum::<f64>() * servers as f64)
            .sum()
    }
}

/// Time of a measurement that counts operations, or takes as long as it takes.
fn counted_seconds(amount: Amount) -> f64 {
    match amount {
        Amount::Time(_) => 0.0,
        Amount::Seconds(seconds) => seconds,
        Amount::Operations { count, per_second } => count as f64 / per_second as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::super::chapters::{CHAPTERS, Chapter};
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

    /// All chapters, with the servers of a run over one peer.
    fn all_chapters(scale: &Scale) -> Vec<(Outline, usize)> {
        let of = |chapter: &Chapter| {
            let servers = chapter.edition.servers(1, 0);
            (chapter.sections)(scale).into_iter().map(move |outline| (outline, servers)).collect::<Vec<_>>()
        };
        CHAPTERS.iter().flat_map(of).collect()
    }

    #[test]
    fn all_chapters_keep_their_time_with_one_peer() {
        for (size, minutes_max) in [(Size::Standard, 40.0), (Size::Quick, 7.0)] {
            let machine = Machine {
                cores: 2,
                memory_bytes: 16 << 30,
                synced_write: Some(SyncedWrite { p50_us: 80.0, average_us: 100.0 }),
                ..Machine::default()
            };
            let scale = Scale::new(size, 1.0, &machine, 2);
            let outlines = all_chapters(&scale);
            let each = || outlines.iter().map(|(outline, servers)| (outline, *servers));
            let pace = scale.pace(each());
            assert!(pace.measure > MEASURE_MIN, "{pace:?}");
            let minutes = scale.estimate(pace, each()) / 60.0;
            assert!(minutes < minutes_max, "{size:?} takes {minutes} minutes");
        }
    }

    #[test]
    fn the_ceiling_follows_the_records() {
        let of = |scale: &Scale, room| {
            let capacity = scale.capacity(room);
            (capacity.load.records, capacity.maxmemory_mb)
        };
        let machine = |memory_bytes, average_us| Machine {
            memory_bytes,
            synced_write: Some(SyncedWrite { p50_us: 80.0, average_us }),
            ..Machine::default()
        };
        let fast = machine(16 << 30, 100.0);
        let standard = Scale::new(Size::Standard, 1.0, &fast, 2);
        assert_eq!(of(&standard, Room::Scarce), (8_000_000, 288));
        assert_eq!(of(&standard, Room::Ample), (500_000, 504));
        let quick = Scale::new(Size::Quick, 1.0, &fast, 2);
        assert_eq!(of(&quick, Room::Scarce), (400_000, 14));
        assert_eq!(of(&quick, Room::Ample), (62_500, 63));
        assert_eq!(of(&Scale::new(Size::Quick, 0.01, &fast, 2), Room::Scarce), (4_000, MAXMEMORY_MB_MIN));
        for little in [machine(4 << 30, 100.0), machine(16 << 30, 6_000.0)] {
            let scale = Scale::new(Size::Standard, 1.0, &little, 2);
            let (records, maxmemory_mb) = of(&scale, Room::Scarce);
            assert!((100_000..8_000_000).contains(&records), "{records}");
            assert_eq!(maxmemory_mb, (records as f64 * 151.0 / 4.0 / 1_048_576.0).round() as u64);
            assert_eq!(scale.maxmemory_mb(Edition::Capacity(Room::Scarce)), Some(maxmemory_mb));
        }
        assert_eq!(standard.maxmemory_mb(Edition::Durable), None);
    }

    #[test]
    fn only_large_chapters_ask_for_room_on_disk() {
        let scale = scale(Size::Standard, 16);
        assert_eq!([Edition::Memory, Edition::Durable].map(|edition| scale.disk_bytes(edition)), [0, 0]);
        let needed = scale.disk_bytes(Edition::Capacity(Room::Scarce));
        let data_bytes = scale.capacity(Room::Scarce).data_bytes;
        assert!((6 * data_bytes..12 * data_bytes + (1 << 30)).contains(&needed), "{needed}");
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
        let paced = |servers| scale.pace(outlines.iter().map(|outline| (outline, servers))).measure;
        let [two, four] = [2, 4].map(paced);
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
