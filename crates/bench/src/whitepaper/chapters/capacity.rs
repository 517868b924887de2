//! Chapters *capacity-ample* and *capacity-scarce*: the whitepaper's load, two reads and 50/50 of an edition that holds more data
//! than memory, with seven times as much memory as data, and with a quarter.
//!
//! Only that edition has a ceiling: all others hold the records in memory, and are what it is compared with.

use super::{Amount, Before, Outline, Workload, beside};
use crate::report::{Allowance, Layout, bytes, grouped};
use crate::whitepaper::edition::{Edition, Room, TARN, TARN_MEMORY};
use crate::whitepaper::scale::{CAPACITY_CONNECTIONS, CAPACITY_VALUE_BYTES, Capacity, Scale};
use crate::work::{Work, Ycsb};

/// The workloads: as the publication's list names them, and their labels.
const PUBLISHED: [(&str, &str); 4] = [
    ("load", "Load"),
    ("uniform-read", "Uniform-Read"),
    ("zipfian-read", "Zipfian-Read"),
    ("uniform-50-50", "Uniform 50/50"),
];
/// What is in memory after the load is not what the reads leave there: that takes some time.
const SCARCE_WEIGHT: f64 = 2.0;

/// The section with seven times as much memory as data.
pub fn ample(scale: &Scale) -> Vec<Outline> {
    vec![outline(scale, Room::Ample)]
}

/// The section with four times as much data as memory.
pub fn scarce(scale: &Scale) -> Vec<Outline> {
    vec![outline(scale, Room::Scarce)]
}

fn outline(scale: &Scale, room: Room) -> Outline {
    let capacity = scale.capacity(room);
    let scenario = format!("memory:data {}", room.ratio());
    let figures = beside(|figure| {
        let is_it = figure.edition == Edition::Capacity(room).name() && figure.scenario == scenario;
        is_it.then(|| PUBLISHED.iter().position(|(name, _)| figure.workload == *name))?
    });
    Outline {
        title: format!("Capacity: memory to data {}", room.ratio()),
        about: about(&capacity, room),
        layout: Layout::Operations,
        workloads: PUBLISHED
            .iter()
            .map(|(name, label)| workload(scale, &capacity, room, name, label))
            .collect(),
        figures,
        cautions: cautions(room),
        allowance: Some(Allowance::new(TARN, capacity.maxmemory_mb << 20, capacity.data_bytes, TARN_MEMORY)),
    }
}

fn about(capacity: &Capacity, room: Room) -> String {
    let others = match room {
        Room::Ample => {
            "The other servers have no ceiling. Tarn durable and Tarn memory are Tarn's other editions: beside them stands what it costs to be able to do without memory, and what it costs to write everything down."
        }
        Room::Scarce => {
            "The other servers have no disk to put their keys on and could not hold them in so little memory: they run without a ceiling, with all records in memory. Tarn memory is Tarn's memory edition."
        }
    };
    format!(
        "The whitepaper's four workloads over {} records of {CAPACITY_VALUE_BYTES} bytes and {CAPACITY_CONNECTIONS} connections, one request at a time on each. The load writes every record once; in memory they take some {}, and Tarn, in its capacity edition, is given {}. {others}",
        grouped(capacity.load.records),
        bytes(capacity.data_bytes),
        bytes(capacity.maxmemory_mb << 20),
    )
}

fn workload(scale: &Scale, capacity: &Capacity, room: Room, name: &str, label: &str) -> Workload {
    let is_load = name == "load";
    let of = if is_load { "uniform-read" } else { name };
    let mut ycsb = Ycsb::named(of, capacity.load.records).expect("the chapters use workloads that there are");
    ycsb.fields = 1;
    ycsb.field_bytes = CAPACITY_VALUE_BYTES;
    let weight = match room {
        Room::Ample => 1.0,
        Room::Scarce => SCARCE_WEIGHT,
    };
    Workload {
        label: label.to_owned(),
        work: if is_load { Work::YcsbLoad(ycsb) } else { Work::Ycsb(ycsb) },
        connections: CAPACITY_CONNECTIONS,
        threads: scale.threads(CAPACITY_CONNECTIONS),
        pipeline: 1,
        amount: if is_load {
            Amount::Operations { count: capacity.load.records, per_second: capacity.load.per_second }
        } else {
            Amount::Time(weight)
        },
        before: if is_load { Before::Empty } else { Before::AsItIs },
        group: 0,
        stage: None,
    }
}

fn cautions(room: Room) -> Vec<String> {
    let mut cautions = vec![
        "The published instances have 4 to 52 cores for the server alone, cloud disks, 20 to 240 million records and 32 to 160 threads of a client on another machine. Here the generator shares the server's cores, and the records are fewer.".to_owned(),
        "Whether the published instances sync before they reply is not said. Here every write is on disk before its reply, but for Tarn memory and servers whose description says otherwise.".to_owned(),
    ];
    if room == Room::Scarce {
        cautions.push("What is on disk is read past the page cache. On a virtual machine the host may have a cache of its own: compare with the disk's own random reads.".to_owned());
    }
    cautions
}
