//! Chapters *cluster-proxies* and *twemproxy*: the printed memtier command's workload through proxies, over one, two and four shards, and through one beside
//! another's.
//!
//! As in the chapter *cluster*, every measurement has servers of its own. What they and the proxies take is told apart, by the kernel's accounts.

use super::cluster::{CONNECTIONS, VALUE_BYTES, figures_by_shards, workload, workloads_by_shards};
use super::{Outline, Stage, Workload};
use crate::report::{Layout, grouped};
use crate::whitepaper::scale::Scale;

/// Proxies in front of a cluster.
const PROXIES: u16 = 2;
/// The database of the published command.
const DATABASE: u32 = 10;
/// Servers behind the one proxy that is beside another's, and the only database that all proxies have.
pub const BESIDE: Stage = Stage::proxied(2, 1, 0);
/// Connections where many requests are in flight on each.
const CONNECTIONS_PIPELINED: u32 = 50;
/// How many.
const PIPELINE: u32 = 50;

/// The sections of *cluster-proxies* on a machine.
pub fn cluster(scale: &Scale) -> Vec<Outline> {
    let keys = scale.keys(VALUE_BYTES);
    vec![Outline {
        title: "SET and GET, one to one, through two proxies, by shards".to_owned(),
        about: format!(
            "memtier_benchmark's mix over {CONNECTIONS} clients (published: 10 threads of 20), half of them through each of {PROXIES} proxies of Tarn's with one thread, one request at a time of each client, values of {VALUE_BYTES} bytes, {} keys, database {DATABASE}. Behind the proxies is a cluster, of which they ask who has which slots.",
            grouped(keys)
        ),
        layout: Layout::Proxied,
        workloads: workloads_by_shards(scale, keys, |shards| Stage::proxied(shards, PROXIES, DATABASE)),
        figures: figures_by_shards(),
        cautions: vec![
            "The published clusters have a core for each master, proxies and replicas on cores of their own, and the client's machines for itself. Here the proxies, all shards, their config server and the generator share one machine: the rate grows with the shards only as long as there are cores for them, and what a request takes of them is what can be compared.".to_owned(),
            "How many connections a published instance admits says how large it may become, not how many were used: the printed command opens 200.".to_owned(),
            "A Redis Cluster has one database: a peer is asked in database 0.".to_owned(),
        ],
        allowance: None,
    }]
}

/// The sections of *twemproxy* on a machine.
pub fn twemproxy(scale: &Scale) -> Vec<Outline> {
    let keys = scale.keys(VALUE_BYTES);
    let pipelined = Workload {
        connections: CONNECTIONS_PIPELINED,
        threads: scale.threads(CONNECTIONS_PIPELINED),
        pipeline: PIPELINE,
        ..workload(scale, &format!("1:1, -P\u{a0}{PIPELINE}"), keys, BESIDE)
    };
    vec![Outline {
        title: "SET and GET, one to one, through one proxy".to_owned(),
        about: format!(
            "memtier_benchmark's mix through one proxy in front of {} servers, values of {VALUE_BYTES} bytes, {} keys, database 0: over {CONNECTIONS} clients with one request at a time of each, and over {CONNECTIONS_PIPELINED} with {PIPELINE} in flight on each.",
            BESIDE.shards,
            grouped(keys)
        ),
        layout: Layout::Proxied,
        workloads: vec![workload(scale, "1:1", keys, BESIDE), pipelined],
        figures: Vec::new(),
        cautions: vec![
            "twemproxy has one thread, and so has Tarn's proxy here, which takes one for each core unless it is told otherwise.".to_owned(),
            "Both give each server half of the keys, but not the same half: twemproxy by fnv1a_64 and modula, Tarn's by the slots of Redis Cluster. Of what is asked here both serve all; twemproxy has none of transactions, waiting commands, SELECT and messages.".to_owned(),
        ],
        allowance: None,
    }]
}
