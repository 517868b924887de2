//! What is counted of each server behind the proxy, and INFO's section of it.
//!
//! Thread rule: shared. Each thread counts in cells of its own; the last error is written where a connection is lost or cannot be made.

use crate::serve::Proxy;
use crate::upstream::NodeNo;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::Counter;

/// The counts of one server: those of requests since the proxy began.
#[derive(Default)]
pub struct ShardCounts {
    /// Connections for requests that there are.
    pub links: Counter,
    /// Requests that it owes, or that wait for a connection.
    pub under_way: Counter,
    /// Requests that were sent to it, or were to be.
    pub requests: Counter,
    /// How many of them were answered with an error, its own or since it was lost.
    pub errors: Counter,
    /// Why a connection was lost last, or could not be made.
    last_error: Mutex<String>,
}

impl ShardCounts {
    /// A connection was lost, or could not be made.
    pub fn note_loss(&self, reason: &str) {
        let mut last = self.last_error.lock();
        last.clear();
        last.push_str(reason);
    }
}

/// Those of all servers that anything was to be sent to; of one apart as a replica that is read.
#[derive(Default)]
pub struct Shards(RwLock<BTreeMap<(NodeNo, bool), Arc<ShardCounts>>>);

impl Shards {
    /// The counts of a server.
    pub fn of(&self, node: NodeNo, is_replica: bool) -> Arc<ShardCounts> {
        let known = self.0.read().get(&(node, is_replica)).cloned();
        known.unwrap_or_else(|| self.0.write().entry((node, is_replica)).or_default().clone())
    }
}

/// The line of it that says how many slots nobody has.
pub const UNSERVED: &str = "unserved_slots";

/// The section of INFO: a line for each server that has slots or was asked for something, and what is so of the proxy.
pub fn section(proxy: &Proxy) -> Vec<(String, String)> {
    let routes = proxy.upstream.routes();
    let mut counts = proxy.shards.0.read().clone();
    for master in &routes.masters {
        counts.entry((*master, false)).or_default();
    }
    let shard = |((node, is_replica), counts): (&(NodeNo, bool), &Arc<ShardCounts>)| {
        let (address, links) = (routes.nodes.get(usize::from(*node))?, counts.links.get());
        let line = format!(
            "addr={address},role={},slots={},links={links},under_way={},requests={},errors={},connected={},last_error=\"{}\"",
            if *is_replica { "slave" } else { "master" },
            if *is_replica { 0 } else { routes.slots_of(*node) },
            counts.under_way.get(),
            counts.requests.get(),
            counts.errors.get(),
            u8::from(links > 0),
            counts.last_error.lock().replace('"', "'"),
        );
        Some(line)
    };
    let shards = counts.iter().filter_map(shard).zip(0..);
    let mut lines: Vec<_> = shards.map(|(line, number)| (format!("shard{number}"), line)).collect();
    let is_draining = proxy.is_draining.load(Ordering::Relaxed);
    lines.push((UNSERVED.to_owned(), routes.unserved().to_string()));
    lines.push(("draining".to_owned(), u8::from(is_draining).to_string()));
    let (held_back_ms, held_back) = proxy.bandwidth.told();
    lines.push(("bandwidth_held_back_ms".to_owned(), held_back_ms.to_string()));
    lines.push(("bandwidth_held_back_clients".to_owned(), held_back.to_string()));
    lines
}
