//! Chapter *ttl*: new keys with a time to live of a minute, over one, two and four connections.

use super::{Amount, Before, Outline, Workload, beside};
use crate::report::Layout;
use crate::whitepaper::scale::Scale;
use crate::work::Work;

/// Connections of the published runs.
const CONNECTIONS: [u32; 3] = [1, 2, 4];
/// Keys of the published runs.
const KEYS: u64 = 100_000;
/// Time to live.
const TTL_SECONDS: u64 = 60;
/// Size of the values; the publication does not say.
const VALUE_BYTES: u64 = 32;
const PIPELINE: u32 = 50;

/// The sections on a machine.
pub fn sections(scale: &Scale) -> Vec<Outline> {
    let figures = beside(|figure| {
        let connections = CONNECTIONS.iter().position(|count| figure.threads == Some(*count));
        connections.filter(|_| figure.source == "ecs-report-2016")
    });
    vec![
        Outline {
            title: "New keys with EX 60, one request at a time".to_owned(),
            about: format!(
                "SET of a new random UUID with a time to live of {TTL_SECONDS} s and {VALUE_BYTES} bytes. The second figure is the time that 100,000 keys take at this rate."
            ),
            layout: Layout::Times(KEYS),
            workloads: workloads(scale, 1),
            figures,
            cautions: vec![
                "The publication's client is a Python program, which is likely to have been the limit: its figures are a client's more than a server's. It leaves open whether 100,000 keys are all or each thread's; all is assumed.".to_owned(),
                "\"LAN\" there is a network between client and server; here both share a machine, as in \"same host\".".to_owned(),
            ],
            allowance: None,
        },
        Outline {
            title: "New keys with EX 60, pipelined".to_owned(),
            about: format!("The same with {PIPELINE} requests in flight on each connection."),
            layout: Layout::Times(KEYS),
            workloads: workloads(scale, PIPELINE),
            figures: Vec::new(),
            cautions: vec![
                "Nothing was published with pipelining. A run shorter than a minute ends before its keys expire: it shows what giving them a time to live costs, not what their expiry costs.".to_owned(),
            ],
            allowance: None,
        },
    ]
}

fn workloads(scale: &Scale, pipeline: u32) -> Vec<Workload> {
    let workload = |connections: u32| {
        let plural = if connections == 1 { "" } else { "s" };
        Workload {
            label: format!("{connections} connection{plural}"),
            work: Work::Uuids { value_bytes: VALUE_BYTES, seconds: TTL_SECONDS },
            connections,
            threads: scale.threads(connections),
            pipeline,
            amount: Amount::Time(1.0),
            before: Before::Empty,
            group: 0,
            stage: None,
        }
    };
    CONNECTIONS.map(workload).into()
}
