//! Chapter *pipelining*: SET and GET from one request at a time to a hundred in flight on each connection.

use super::{Before, Fill, Kv, Outline, beside, kv};
use crate::report::{Layout, grouped};
use crate::whitepaper::scale::Scale;

/// Requests in flight on a connection.
const DEPTHS: [u32; 6] = [1, 2, 5, 10, 50, 100];
/// The same in a quick run.
const DEPTHS_QUICK: [u32; 4] = [1, 10, 50, 100];
/// redis-benchmark's defaults.
const CONNECTIONS: u32 = 50;
const VALUE_BYTES: u64 = 3;
/// Random keys; the published runs write one.
const KEYS: u64 = 100_000;

/// The sections on a machine.
pub fn sections(scale: &Scale) -> Vec<Outline> {
    ["set", "get"].map(|test| by_depth(scale, test)).into()
}

fn by_depth(scale: &Scale, test: &str) -> Outline {
    let depths: &[u32] = if scale.is_quick() { &DEPTHS_QUICK } else { &DEPTHS };
    let keys = scale.keys(VALUE_BYTES).min(KEYS);
    let workloads = depths.iter().enumerate().map(|(index, depth)| {
        let options = Kv { connections: CONNECTIONS, pipeline: *depth, keys, value_bytes: VALUE_BYTES };
        let before = if index == 0 { Before::Filled(Fill::of_kv(keys, VALUE_BYTES)) } else { Before::AsItIs };
        let mut workload = kv(test, scale, options, before);
        workload.label = format!("{} -P\u{a0}{depth}", workload.label);
        workload
    });
    let at = |depth: u32| depths.iter().position(|one| *one == depth);
    let figures = beside(|figure| match figure.workload.as_str() {
        _ if test != "set" => None,
        "redis-benchmark SET, no pipelining" => at(1),
        "SET with -P 50" => at(50),
        _ => None,
    });
    let name = test.to_uppercase();
    let cautions = if figures.is_empty() {
        Vec::new()
    } else {
        vec![
            "The published machine had four cores and 8 GB, and all its requests wrote one key. Here they write random keys, and the generator runs on the server's own cores.".to_owned(),
        ]
    };
    Outline {
        title: format!("{name} by requests in flight"),
        about: format!(
            "redis-benchmark's {name} over {CONNECTIONS} connections, values of {VALUE_BYTES} bytes, {} random keys; -P is the number of requests that a connection sends before it waits.",
            grouped(keys)
        ),
        layout: Layout::Rates,
        workloads: workloads.collect(),
        figures,
        cautions,
        allowance: None,
    }
}
