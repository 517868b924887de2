//! Chapter *durable*: the whitepaper's load, reads (YCSB C) and updates (YCSB A) of an edition that keeps what it replied to.
//!
//! They are run size by size, since a server holds the records of one size at a time, and shown workload by workload, as
//! published. The number of records suits the disk, so that a load takes seconds.

use super::{Amount, Before, Outline, Workload, beside};
use crate::report::{Layout, grouped};
use crate::whitepaper::scale::{Load, Scale};
use crate::work::{Work, Ycsb};

/// Value sizes of the published table.
const VALUE_BYTES: [u64; 5] = [128, 256, 1_024, 2_048, 4_096];
/// Its ends, for a quick run.
const VALUE_BYTES_QUICK: [u64; 2] = [128, 4_096];
/// Requests that were in flight in the published runs: their rates times their latencies.
const CONNECTIONS: u32 = 64;
/// The workloads as the publication names them.
const PUBLISHED: [&str; 3] = ["load", "ycsb-c zipfian", "ycsb-a zipfian"];

/// The section on a machine.
pub fn sections(scale: &Scale) -> Vec<Outline> {
    let sizes: &[u64] = if scale.is_quick() { &VALUE_BYTES_QUICK } else { &VALUE_BYTES };
    let workloads = sizes.iter().flat_map(|value_bytes| of_size(scale, *value_bytes)).collect();
    let figures = beside(|figure| {
        let group = PUBLISHED.iter().position(|name| figure.workload == *name)?;
        let size = sizes.iter().position(|size| figure.value_bytes == Some(*size))?;
        (figure.source == "whitepaper-2020" && figure.edition == "durable")
            .then_some(group * sizes.len() + size)
    });
    vec![Outline {
        title: "Durable: load, read and update".to_owned(),
        about: about(scale, sizes),
        layout: Layout::Operations,
        workloads,
        figures,
        cautions: vec![
            "The published instance keeps its data on persistent memory, which needs no sync. Here every write waits for a disk, and the figures are as much the disk's as the server's: see how long a sync takes on this one.".to_owned(),
            "The publication names neither connections nor records. Its rates times its latencies are 62 to 64 requests at a time, so there are 64 connections.".to_owned(),
            "All servers' files are on one disk, and a server that is not measured may still tidy its own: Redis writes its file anew when that has doubled, Tarn makes checkpoints.".to_owned(),
            "Whether the disk keeps what it called synced when the power goes was not tried.".to_owned(),
        ],
        allowance: None,
    }]
}

fn about(scale: &Scale, sizes: &[u64]) -> String {
    let records = |size: Option<&u64>| size.map_or(0, |size| load(scale, *size).records);
    let records = match (records(sizes.first()), records(sizes.last())) {
        (small, large) if small == large => grouped(small),
        (small, large) => format!("{} of the smallest to {} of the largest", grouped(small), grouped(large)),
    };
    let left_out = match sizes.len() {
        all if all == VALUE_BYTES.len() => "",
        _ => " This quick run leaves out the published sizes between, 256 to 2,048 bytes.",
    };
    format!(
        "YCSB over {CONNECTIONS} connections, one request at a time on each. The load writes every record once; C reads records by a zipfian distribution; A reads and updates them half and half. There are as many records as a slow server loads in seconds with this disk's syncs: {records}.{left_out}"
    )
}

fn load(scale: &Scale, value_bytes: u64) -> Load {
    scale.durable_load(value_bytes, CONNECTIONS)
}

fn of_size(scale: &Scale, value_bytes: u64) -> [Workload; 3] {
    let Load { records, per_second } = load(scale, value_bytes);
    let ycsb = |name: &str| {
        let mut ycsb = Ycsb::named(name, records).expect("the chapters use workloads that there are");
        ycsb.fields = 1;
        ycsb.field_bytes = value_bytes;
        ycsb
    };
    let workload = |group: usize, label: &str, work: Work| {
        let is_load = group == 0;
        Workload {
            label: format!("{label}, {}\u{a0}B", grouped(value_bytes)),
            work,
            connections: CONNECTIONS,
            threads: scale.threads(CONNECTIONS),
            pipeline: 1,
            amount: if is_load {
                Amount::Operations { count: records, per_second }
            } else {
                Amount::Time(1.0)
            },
            before: if is_load { Before::Empty } else { Before::AsItIs },
            group,
            stage: None,
        }
    };
    [
        workload(0, "Load", Work::YcsbLoad(ycsb("a"))),
        workload(1, "C, zipfian", Work::Ycsb(ycsb("c"))),
        workload(2, "A, zipfian", Work::Ycsb(ycsb("a"))),
    ]
}
