//! Chapter *memory*: pipelined SET and GET by value size, memtier's mix, and the whitepapers' load, read and update.
//!
//! Keys are filled in before SET, so that every GET finds its key and no server gains from being slow at filling.

use super::{Amount, Before, Fill, Kv, MEMTIER_PREFIX, Outline, Workload, beside, kv};
use crate::report::{Layout, grouped};
use crate::whitepaper::scale::{SLOW_RATE, Scale};
use crate::work::{KeyPattern, Memtier, Work, Ycsb};

/// Value sizes of the published comparison.
const VALUE_BYTES: [u64; 3] = [256, 1_024, 2_048];

/// The sections on a machine.
pub fn sections(scale: &Scale) -> Vec<Outline> {
    vec![by_value_size(scale), set_and_get(scale), load_read_update(scale)]
}

fn by_value_size(scale: &Scale) -> Outline {
    let mut workloads = Vec::new();
    for value_bytes in VALUE_BYTES {
        let keys = scale.keys(value_bytes);
        let options = Kv { connections: 64, pipeline: 100, keys, value_bytes };
        for (test, before) in
            [("set", Before::Filled(Fill::of_kv(keys, value_bytes))), ("get", Before::AsItIs)]
        {
            let mut workload = kv(test, scale, options, before);
            workload.label = format!("{} {value_bytes}\u{a0}B", workload.label);
            workloads.push(workload);
        }
    }
    let mut keys: Vec<String> = VALUE_BYTES.map(|value_bytes| grouped(scale.keys(value_bytes))).into();
    keys.dedup();
    let figures = beside(|figure| {
        let test = ["redis-benchmark set ", "redis-benchmark get "]
            .iter()
            .position(|start| figure.workload.starts_with(start))?;
        let size = VALUE_BYTES.iter().position(|size| figure.value_bytes == Some(*size))?;
        (figure.source == "codis-report" && figure.edition == "memory").then_some(size * 2 + test)
    });
    Outline {
        title: "SET and GET by value size".to_owned(),
        about: format!(
            "redis-benchmark's SET and GET over 64 connections with 100 requests in flight on each, {} random keys (published: 1,048,576).",
            keys.join(", ")
        ),
        layout: Layout::Rates,
        workloads,
        figures,
        cautions: vec![
            "The publication names neither the instances' cores nor the client's machine nor the network between them, which may well have been the limit of large values (at 2,048 bytes, 1 Gbit/s carries some 60,000 a second). Here all is loopback.".to_owned(),
            "Most of its instances have a replica or are clusters; these servers are neither.".to_owned(),
        ],
        allowance: None,
    }
}

fn set_and_get(scale: &Scale) -> Outline {
    let keys = scale.keys(32);
    let memtier = Memtier {
        sets: 1,
        gets: 1,
        value_bytes: 32,
        prefix: MEMTIER_PREFIX.to_owned(),
        key_minimum: 1,
        key_maximum: keys,
        set_pattern: KeyPattern::Random,
        get_pattern: KeyPattern::Random,
    };
    let connections = 200;
    let workload = Workload {
        label: "1:1, 32\u{a0}B".to_owned(),
        work: Work::Memtier(memtier),
        connections,
        threads: scale.threads(connections),
        pipeline: 1,
        // The one run that is long enough to watch second by second even if all others are short.
        amount: Amount::Time(3.0),
        before: Before::Filled(Fill {
            prefix: MEMTIER_PREFIX,
            digits: 0,
            first: 1,
            count: keys,
            value_bytes: 32,
        }),
        group: 0,
        stage: None,
    };
    let mut seen = Vec::new();
    let mut figures = beside(|figure| figure.workload.starts_with("memtier 1:1").then_some(0));
    figures.retain(|figure| {
        let is_new = !seen.contains(&figure.published.cores);
        seen.push(figure.published.cores);
        is_new
    });
    Outline {
        title: "SET and GET, one to one".to_owned(),
        about: format!(
            "memtier_benchmark's mix over {connections} connections (published: 10 threads of 20), one request at a time on each, values of 32 bytes, {} keys.",
            grouped(keys)
        ),
        layout: Layout::Rates,
        workloads: vec![workload],
        figures,
        cautions: vec![
            "The published figures are of clusters with one core for each master; of each number of cores the smallest instance is shown. Here one server shares its cores with the generator, which takes a good part of them.".to_owned(),
        ],
        allowance: None,
    }
}

fn load_read_update(scale: &Scale) -> Outline {
    let (connections, value_bytes) = (32, 100);
    let records = scale.records(value_bytes);
    let workload = |label: &str, name: &str, is_load: bool| {
        let mut ycsb = Ycsb::named(name, records).expect("the chapters use workloads that there are");
        ycsb.fields = 1;
        ycsb.field_bytes = value_bytes;
        Workload {
            label: label.to_owned(),
            work: if is_load { Work::YcsbLoad(ycsb) } else { Work::Ycsb(ycsb) },
            connections,
            threads: scale.threads(connections),
            pipeline: 1,
            amount: if is_load {
                Amount::Operations { count: records, per_second: SLOW_RATE }
            } else {
                Amount::Time(1.0)
            },
            before: if is_load { Before::Empty } else { Before::AsItIs },
            group: 0,
            stage: None,
        }
    };
    Outline {
        title: "Load, read and update".to_owned(),
        about: format!(
            "The whitepapers' four workloads over {} records of {value_bytes} bytes and {connections} connections, one request at a time on each. The load writes every record once.",
            grouped(records)
        ),
        layout: Layout::Operations,
        workloads: vec![
            workload("Load", "uniform-read", true),
            workload("Uniform-Read", "uniform-read", false),
            workload("Zipfian-Read", "zipfian-read", false),
            workload("Uniform 50/50", "uniform-50-50", false),
        ],
        figures: Vec::new(),
        cautions: vec![
            "The published figures of these workloads are of editions that keep their data on disk or on persistent memory; none stands here, since a memory edition promises less.".to_owned(),
        ],
        allowance: None,
    }
}
