//! Chapter *scripts*: a SET by itself and the same SET called by Lua, one request at a time and pipelined.
//!
//! The published lines with their Lua corrected, and EVALSHA, as client libraries send scripts. Keys are filled in before.

use super::{Amount, Before, Fill, Outline, Workload, beside};
use crate::report::{Figure, Layout, grouped};
use crate::whitepaper::scale::Scale;
use crate::work::{ONE_SET, TEN_SETS, Work};

/// redis-benchmark's default.
const CONNECTIONS: u32 = 50;
/// Size of the published values.
const VALUE_BYTES: u64 = 10;
/// Random keys; the published runs write one.
const KEYS: u64 = 100_000;
const PIPELINE: u32 = 50;

/// A run by its name in `tarn bench eval`, its label, and the published workload that it repeats.
struct Run {
    name: &'static str,
    label: &'static str,
    published: Option<&'static str>,
}

const ONE_AT_A_TIME: [Run; 4] = [
    Run { name: "set", label: "SET", published: Some("redis-benchmark SET, no pipelining") },
    Run { name: "eval", label: "EVAL of one SET", published: Some("EVAL of one SET") },
    Run { name: "evalsha", label: "EVALSHA of one SET", published: None },
    Run { name: "eval-ten", label: "EVAL of ten SETs", published: Some("EVAL of ten SETs in a loop") },
];
const PIPELINED: [Run; 2] = [
    Run { name: "set", label: "SET", published: Some("SET with -P 50") },
    Run { name: "evalsha", label: "EVALSHA", published: None },
];

/// The sections on a machine.
pub fn sections(scale: &Scale) -> Vec<Outline> {
    let keys = scale.keys(VALUE_BYTES).min(KEYS);
    let machine = "The published machine had four cores and 8 GB, and all its requests wrote one key. Here they write random keys, and the generator runs on the server's own cores.";
    vec![
        Outline {
            title: "Scripts, one request at a time".to_owned(),
            about: format!(
                "SET as a command, and called by a script, over {CONNECTIONS} connections, values of {VALUE_BYTES} bytes, {} random keys. EVAL sends the script's text each time, EVALSHA its SHA-1. The script of one SET is “{ONE_SET}”, that of ten is “{TEN_SETS}”; a script counts as one operation, whatever it calls.",
                grouped(keys)
            ),
            layout: Layout::Rates,
            workloads: workloads(&ONE_AT_A_TIME, scale, keys, 1),
            figures: figures(&ONE_AT_A_TIME),
            cautions: vec![
                machine.to_owned(),
                "As they are printed, the published lines that use KEYS do not run: they say ARGS for ARGV, and “do;” is no Lua 5.1. Here they are corrected; what the published figures are of is not known.".to_owned(),
            ],
            allowance: None,
        },
        Outline {
            title: "Scripts, pipelined".to_owned(),
            about: format!(
                "SET, and EVALSHA of one SET, with {PIPELINE} requests in flight on each connection: what a script costs its server where the network costs little."
            ),
            layout: Layout::Rates,
            workloads: workloads(&PIPELINED, scale, keys, PIPELINE),
            figures: figures(&PIPELINED),
            cautions: vec![machine.to_owned()],
            allowance: None,
        },
    ]
}

fn workloads(runs: &[Run], scale: &Scale, keys: u64, pipeline: u32) -> Vec<Workload> {
    let workload = |(index, run): (usize, &Run)| Workload {
        label: match pipeline {
            1 => run.label.to_owned(),
            depth => format!("{} -P\u{a0}{depth}", run.label),
        },
        work: Work::script_run(run.name, VALUE_BYTES, Some(keys))
            .expect("the chapters use runs that there are"),
        connections: CONNECTIONS,
        threads: scale.threads(CONNECTIONS),
        pipeline,
        amount: Amount::Time(1.0),
        before: if index == 0 { Before::Filled(Fill::of_kv(keys, VALUE_BYTES)) } else { Before::AsItIs },
        group: 0,
        stage: None,
    };
    runs.iter().enumerate().map(workload).collect()
}

fn figures(runs: &[Run]) -> Vec<Figure> {
    beside(|figure| {
        let is_dtm = figure.source == "dtm-report";
        runs.iter().position(|run| is_dtm && run.published == Some(figure.workload.as_str()))
    })
}
