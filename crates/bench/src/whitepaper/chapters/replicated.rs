//! Chapters *replicated-memory* and *replicated-durable*: SET where a replica has what was answered, beside one that nobody waits for and
//! none.
//!
//! Nothing is published of this kind. A peer has its own way to wait: WAIT behind each request, which is no part of the workload here but of
//! how the peer runs in these chapters.

use super::{Before, Fill, Kv, Outline, kv};
use crate::report::{Layout, grouped};
use crate::whitepaper::scale::Scale;

/// Connections and requests in flight on each.
const LOADS: [(u32, u32); 3] = [(1, 1), (50, 1), (50, 50)];
const VALUE_BYTES: u64 = 64;
const KEYS: u64 = 100_000;

/// The section on a machine.
pub fn sections(scale: &Scale) -> Vec<Outline> {
    let keys = scale.keys(VALUE_BYTES).min(KEYS);
    let workloads = LOADS.iter().enumerate().map(|(index, (connections, pipeline))| {
        let (connections, pipeline) = (*connections, *pipeline);
        let options = Kv { connections, pipeline, keys, value_bytes: VALUE_BYTES };
        let before = if index == 0 { Before::Filled(Fill::of_kv(keys, VALUE_BYTES)) } else { Before::AsItIs };
        let mut workload = kv("set", scale, options, before);
        workload.label = format!("SET -c\u{a0}{connections} -P\u{a0}{pipeline}");
        workload
    });
    vec![Outline {
        title: "SET and who has it when it is answered".to_owned(),
        about: format!(
            "redis-benchmark's SET, values of {VALUE_BYTES} bytes, {} random keys, over -c connections with -P requests in flight on each. Tarn answers when its replica has the write (min-sync-replicas 1); a server with WAIT\u{a0}1 in its name is sent that behind each request, and an operation is complete with the answer to both.",
            grouped(keys)
        ),
        layout: Layout::Rates,
        workloads: workloads.collect(),
        figures: Vec::new(),
        cautions: vec![
            "Master, replica and generator share one machine: what a replica takes of its processors is missing to its master. With a machine for each, in sync costs the way between them instead.".to_owned(),
            "WAIT counts the replicas that have a write in memory, on a peer that syncs its file before it replies, too; Tarn's replica has it on disk in the chapter replicated-durable.".to_owned(),
            "A server that was running before is measured as it is: whether it has replicas is its own affair.".to_owned(),
        ],
        allowance: None,
    }]
}
