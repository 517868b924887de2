//! What servers took of memory and disk during the workloads of a section, beside what they were allowed.
//!
//! The ceiling is a promise of the capacity edition: [`Allowance::ceiling_bytes`] is the one place that says what it comes to.

use super::table::{Cell, Line, Origin, Table};
use super::{RandomRead, Report, Row, Section, layouts, number};
use serde::Serialize;

/// The share of the memory it was given that a server's resident memory may come to, in percent.
const SHARE_PERCENT: u64 = 105;
/// And what the program itself may take beside.
const PROGRAM_BYTES: u64 = 64 << 20;

/// What a server took during one workload, from before its warm-up to its end. What is not known is none.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Residence {
    /// The server's name.
    pub server: String,
    /// How often its resident memory was looked at, every 100 ms.
    pub looks: u64,
    /// The most that was seen.
    pub rss_bytes_max: Option<u64>,
    /// Keys that it read from its store.
    pub cold_reads: Option<u64>,
    /// The share of the requests that took no such read.
    pub hit_ratio: Option<f64>,
    /// Bytes that the kernel read from the disk for it.
    pub disk_read_bytes: Option<u64>,
    /// Bytes that the kernel wrote to the disk for it.
    pub disk_written_bytes: Option<u64>,
    /// What its INFO said of its store after the workload, as name and value.
    pub store: Vec<(String, String)>,
}

/// What one server of a section was allowed.
#[derive(Clone, Debug, Serialize)]
pub struct Allowance {
    /// Its name; all others have no ceiling.
    pub server: String,
    /// The memory that it was given.
    pub maxmemory_bytes: u64,
    /// What its resident memory may come to.
    pub ceiling_bytes: u64,
    /// What the data would take in memory.
    pub data_bytes: u64,
    /// The server that the rates are divided by.
    pub reference: String,
}

impl Allowance {
    /// Of a server that was given so much memory for so much data.
    pub fn new(server: &str, maxmemory_bytes: u64, data_bytes: u64, reference: &str) -> Allowance {
        Allowance {
            server: server.to_owned(),
            maxmemory_bytes,
            ceiling_bytes: maxmemory_bytes * SHARE_PERCENT / 100 + PROGRAM_BYTES,
            data_bytes,
            reference: reference.to_owned(),
        }
    }

    /// What the columns of the table mean.
    pub fn sentences(&self) -> String {
        format!(
            "{} was given {} of memory; its resident memory may come to 1.05 times that and 64 MB. It was looked at every 100 ms from before the warm-up to the end, as every other's here. Cold reads are keys that the server read from its store, for a checkpoint too; hits are what they leave of the requests. What is live and dead there and the write amplification (bytes written to the store for each byte of keys and values sent there, since the start) are what INFO said after the workload; what was read from and written to the disk is what the kernel counted for the whole process, log and checkpoints included, which may still write what the workload before left.",
            self.server,
            number::bytes(self.maxmemory_bytes)
        )
    }
}

impl Residence {
    fn stored(&self, name: &str) -> Option<&str> {
        self.store.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// A field of INFO that is a number, such as `store_bytes_live`.
    pub fn stored_number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.stored(name)?.parse().ok()
    }
}

impl RandomRead {
    /// The disk's own figures.
    pub fn sentence(&self) -> String {
        format!(
            "random reads of 4 KiB from a file of {} there, {} at a time and past the page cache ({}), came at {} a second before the run and took {} on average, {} in the median and {} at 99 %",
            number::bytes(self.file_bytes),
            self.depth,
            self.way,
            number::rate(self.per_second),
            number::latency(self.average_us),
            number::latency(self.p50_us),
            number::latency(self.p99_us)
        )
    }
}

/// Memory and disk of every server at every workload; none where nobody was watched.
pub fn table(report: &Report, section: &Section) -> Option<Table> {
    let allowance = section.allowance.as_ref()?;
    let head = [
        "Workload".to_owned(),
        "Server".to_owned(),
        format!("Ops/s by {}", allowance.reference),
        "Read 99 % by the disk's".to_owned(),
        "Memory, most".to_owned(),
        "Ceiling".to_owned(),
        "Hits".to_owned(),
        "Cold reads".to_owned(),
        "Store live".to_owned(),
        "Store dead".to_owned(),
        "Write amplification".to_owned(),
        "Disk read".to_owned(),
        "Disk written".to_owned(),
    ];
    let mut lines = Vec::new();
    for row in &section.rows {
        for (place, server) in report.servers.iter().enumerate() {
            if let Some(residence) = row.residence(&server.name) {
                lines.push(line(report, row, allowance, place, residence));
            }
        }
    }
    let caption = format!("{}: memory and disk", section.title);
    (!lines.is_empty()).then(|| Table { caption, head: head.to_vec(), text_columns: 2, lines })
}

fn line(report: &Report, row: &Row, allowance: &Allowance, place: usize, residence: &Residence) -> Line {
    let rate = |name: &str| row.of(name).map(crate::Measurement::operations_per_second);
    let reference = rate(&allowance.reference).filter(|per_second| *per_second > 0.0);
    let is_reference = residence.server == allowance.reference;
    let by_reference = rate(&residence.server)
        .zip(reference)
        .filter(|_| !is_reference)
        .map(|(own, its)| number::factor(own / its));
    let p99 = row.of(&residence.server).and_then(layouts::reads).map(|read| read.p99_us);
    let by_disk = p99.zip(report.machine.random_read.as_ref());
    let is_allowed = residence.server == allowance.server;
    let bytes = |count: Option<u64>| Cell::from(count.map(number::bytes).unwrap_or_default());
    let stored = |name| bytes(residence.stored_number(name));
    let amplification: Option<f64> = residence.stored_number("store_write_amplification");
    Line {
        origin: Origin::Measured(place),
        cells: vec![
            row.label.as_str().into(),
            residence.server.as_str().into(),
            by_reference.unwrap_or_default().into(),
            by_disk.map(|(own, disk)| number::factor(own / disk.p99_us)).unwrap_or_default().into(),
            bytes(residence.rss_bytes_max),
            if is_allowed { ceiling(allowance, residence) } else { "none".into() },
            residence.hit_ratio.map(|ratio| format!("{:.1} %", ratio * 100.0)).unwrap_or_default().into(),
            residence.cold_reads.map(number::grouped).unwrap_or_default().into(),
            stored("store_bytes_live"),
            stored("store_bytes_dead"),
            amplification.map(|ratio| format!("{ratio:.2}")).unwrap_or_default().into(),
            bytes(residence.disk_read_bytes),
            bytes(residence.disk_written_bytes),
        ],
    }
}

/// The ceiling, and whether it held.
fn ceiling(allowance: &Allowance, residence: &Residence) -> Cell {
    let verdict = residence.rss_bytes_max.map(|most| match most.checked_sub(allowance.ceiling_bytes) {
        None | Some(0) => "held".to_owned(),
        Some(above) => format!("exceeded by {}", number::bytes(above)),
    });
    Cell { note: verdict, ..number::bytes(allowance.ceiling_bytes).into() }
}
