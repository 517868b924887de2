//! The report: what a run measured, as a model, and its drawing as HTML, Markdown, CSV and JSON.
//!
//! `whitepaper` fills a [`Report`]; `page`, `markdown` and `sheet` draw it, `files` puts it on the disk. Pure
//! functions of the model, on one thread:
//!
//! 1. The same model gives the same bytes: no clock, no randomness, no machine is asked here.
//! 2. Whatever came from outside (names, versions, commands, error texts) is escaped where it is written.
//! 3. The page needs nothing but itself: no script, no font, no image, no address of another machine.

mod chart;
mod files;
mod layouts;
mod markdown;
mod number;
mod page;
mod palette;
mod proxied;
mod published;
mod residence;
mod sheet;
mod table;
#[cfg(test)]
mod tests;
mod timeline;

use crate::results::Measurement;
use serde::Serialize;

pub use files::{prepare, write};
pub use markdown::markdown;
pub use number::{bytes, duration, grouped, latency, rate, short};
pub use published::{Published, published};
pub use residence::{Allowance, Residence};

/// All that one run has to say.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The command line that made it.
    pub command: String,
    /// When the run began, as text with its time zone.
    pub began: String,
    /// How long the run took.
    pub lasted_seconds: f64,
    /// What was scaled to this machine, in a sentence.
    pub scale: String,
    /// The machine that ran the generator and the servers that the run started.
    pub machine: Machine,
    /// The servers in the order of the columns; the first is what the others are compared with.
    pub servers: Vec<Server>,
    /// What was measured.
    pub chapters: Vec<Chapter>,
    /// Published scenarios that this run has no chapter for.
    pub absent: Vec<Absent>,
    /// What failed or was stopped, one sentence each; empty after a whole run.
    pub remarks: Vec<String>,
}

/// The machine under the run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Machine {
    /// The processor's model.
    pub processor: String,
    /// Cores that the run may use.
    pub cores: u32,
    /// Memory in all.
    pub memory_bytes: u64,
    /// The kernel and its version.
    pub kernel: String,
    /// The distribution.
    pub system: String,
    /// The disk on which servers that the run starts keep their files: file system, device, folder.
    pub disk: String,
    /// What a sync takes there; none if no chapter depends on it.
    pub synced_write: Option<SyncedWrite>,
    /// What random reads take there; none if no chapter depends on them.
    pub random_read: Option<RandomRead>,
    /// The load average of one minute when the run began: what else was going on.
    pub load: Option<f64>,
}

/// How long it took before the run to append 4 KiB to a file and to sync it, many times over.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SyncedWrite {
    /// The median, in microseconds.
    pub p50_us: f64,
    /// The average, which a few slow ones raise.
    pub average_us: f64,
}

/// How fast random pages of 4 KiB came from a file before the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RandomRead {
    /// Reads on their way at once.
    pub depth: u32,
    /// Size of the file.
    pub file_bytes: u64,
    /// How they were made, in words.
    pub way: String,
    /// Reads per second.
    pub per_second: f64,
    /// The average time of one, in microseconds.
    pub average_us: f64,
    /// The median.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
}

/// One server under measurement.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Server {
    /// Its name in every table and chart; [`Measurement::server`] repeats it.
    pub name: String,
    /// Product and version, from INFO.
    pub version: String,
    /// Where it listens.
    pub address: String,
    /// The command line that started it; none for one that was already running.
    pub command: Option<String>,
    /// Whether it shares the generator's machine.
    pub is_local: bool,
    /// Settings that matter, from INFO and CONFIG, as name and value.
    pub settings: Vec<(String, String)>,
    /// What a reply to a write means, in the chapters that ask for it.
    pub promise: Option<Promise>,
}

/// What a server's replies mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Promise {
    /// Whether it is known that what was replied to is on disk.
    pub is_on_disk: bool,
    /// What is known.
    pub sentence: String,
}

/// One chapter: sections that belong together.
#[derive(Clone, Debug, Serialize)]
pub struct Chapter {
    /// Its name on the command line.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// What it asks, in a sentence or two.
    pub about: String,
    /// The servers as they ran for this chapter, if not as the report's list has them.
    pub servers: Vec<Server>,
    /// Its parts.
    pub sections: Vec<Section>,
}

/// One table of the published reports, measured again.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// The conditions, in a sentence or two.
    pub about: String,
    /// How the publication lays its table out.
    pub layout: Layout,
    /// The workloads, in the table's order.
    pub rows: Vec<Row>,
    /// The published figures that stand beside them.
    pub figures: Vec<Figure>,
    /// Why the published figures are not the measured ones' equals.
    pub cautions: Vec<String>,
    /// The memory that a server was given, where memory and disk were watched.
    pub allowance: Option<Allowance>,
}

/// The layout of a published table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Layout {
    /// A line for each server, a column for each workload, operations per second in the cells.
    Rates,
    /// As `Rates`, with the seconds that this many operations take.
    Times(u64),
    /// As `Rates`, with the servers' processor time for each operation.
    Costs,
    /// A line for each workload and server: rate, then average and 99 % latency of reads and of writes.
    Operations,
    /// A line for each workload and server: rate, latency, and the processor time of proxies and of the servers behind them for each operation.
    Proxied,
    /// A line for each workload and server: what clients saw of something that happened meanwhile.
    TimeLine,
}

/// One workload, and what each server made of it.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The workload in a few words, such as "SET 256 B".
    pub label: String,
    /// One for each server that finished or began it.
    pub measurements: Vec<Measurement>,
    /// What each server took of memory and disk, where that was watched.
    pub residences: Vec<Residence>,
}

/// A published figure beside a row.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// The index of the row.
    pub row: usize,
    /// The figure with its source.
    pub published: Published,
}

/// A published scenario that was not measured.
#[derive(Clone, Debug, Serialize)]
pub struct Absent {
    /// The chapter or the scenario.
    pub title: String,
    /// Why it is not there.
    pub reason: String,
}

impl Report {
    /// The place of a server in the colours and columns; a name that is not on the list comes last.
    fn place(&self, name: &str) -> usize {
        self.servers.iter().position(|server| server.name == name).unwrap_or(self.servers.len())
    }
}

impl Chapter {
    /// Whether a server's replies mean less here than the chapter asks, for all that is known.
    fn is_promise_in_doubt(&self, server: &str) -> bool {
        let of = self.servers.iter().find(|one| one.name == server).and_then(|one| one.promise.as_ref());
        of.is_some_and(|promise| !promise.is_on_disk)
    }
}

impl Machine {
    /// How long syncs and random reads take, as far as that was measured, as the end of a sentence.
    fn disk_times(&self) -> String {
        let read = self.random_read.as_ref().map(RandomRead::sentence);
        self.sync_sentence().into_iter().chain(read).map(|sentence| format!("; {sentence}")).collect()
    }

    fn sync_sentence(&self) -> Option<String> {
        let took = self.synced_write?;
        Some(format!(
            "before the run, appending 4 KiB to a file there and syncing it took {} on average, {} in the median",
            number::latency(took.average_us),
            number::latency(took.p50_us)
        ))
    }

    /// What to keep in mind if the machine was busy before the run began.
    fn caution(&self) -> Option<String> {
        let load = self.load.filter(|load| *load > f64::from(self.cores) / 4.0)?;
        Some(format!(
            "The machine was busy with other things when the run began (a load of {load:.1} on {} cores): its figures carry that, and differences between servers may be chance. Run it again on a quiet machine.",
            self.cores
        ))
    }
}

impl Section {
    /// Whether anything was measured.
    fn is_measured(&self) -> bool {
        self.rows.iter().any(|row| !row.measurements.is_empty())
    }
}

impl Row {
    /// What a server made of the workload.
    fn of(&self, server: &str) -> Option<&Measurement> {
        self.measurements.iter().find(|measurement| measurement.server == server)
    }

    /// What a server took of memory and disk.
    fn residence(&self, server: &str) -> Option<&Residence> {
        self.residences.iter().find(|residence| residence.server == server)
    }
}
