//! Broadcasting: clients that are told of every modified key with a prefix, whether
//! they have read it or not. They are told at the end of a worker's batch, of each
//! key once.

use super::Tracking;
use super::message::Invalid;
use crate::client::{Client, Traits};
use crate::pubsub::Subscribers;
use crate::server::Server;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Modified keys that are kept until the batch ends; beyond, they are told at once.
const KEYS_MAX: usize = 1024;

/// A key that was modified.
pub(super) struct Modified {
    pub key: Box<[u8]>,
    /// The tracking client that did it; 0 if none did.
    pub origin: u64,
}

impl Tracking {
    pub(super) fn join(&self, prefixes: &BTreeSet<Box<[u8]>>, client: &Arc<Client>) {
        let mut known = self.prefixes.write();
        for prefix in prefixes {
            known.entry(prefix.clone()).or_default().add(client);
        }
        self.prefix_count.store(known.len(), Ordering::Release);
    }

    pub(super) fn leave(&self, prefixes: &BTreeSet<Box<[u8]>>, client: &Client) {
        let mut known = self.prefixes.write();
        for prefix in prefixes {
            let Some(clients) = known.get_mut(prefix) else { continue };
            clients.remove(client);
            if clients.is_empty() {
                known.remove(prefix);
            }
        }
        self.prefix_count.store(known.len(), Ordering::Release);
    }
}

/// Notes a modified key.
pub(super) fn note(server: &Server, worker: usize, modified: Modified) {
    let mut all = server.tracking.workers[worker].modified.lock();
    all.push(modified);
    if all.len() >= KEYS_MAX {
        tell(server, std::mem::take(&mut all));
    }
}

/// Called at the end of a worker's batch: tells who wants to know what was modified.
#[inline]
pub fn end_batch(server: &Server, worker: usize) {
    if server.tracking.prefix_count() > 0 {
        let modified = std::mem::take(&mut *server.tracking.workers[worker].modified.lock());
        tell(server, modified);
    }
}

fn tell(server: &Server, mut modified: Vec<Modified>) {
    // Of several changes of a key the last one's origin counts, as in Redis: it knows what is there now.
    modified.reverse();
    modified.sort_by(|a, b| a.key.cmp(&b.key));
    modified.dedup_by(|earlier, last| earlier.key == last.key);
    for (prefix, clients) in server.tracking.prefixes.read().iter() {
        let begin = modified.partition_point(|one| *one.key < **prefix);
        let count = modified[begin..].partition_point(|one| one.key.starts_with(prefix));
        if count > 0 {
            tell_prefix(server, clients, &modified[begin..begin + count]);
        }
    }
}

fn tell_prefix(server: &Server, clients: &Subscribers, modified: &[Modified]) {
    let keys: Vec<&[u8]> = modified.iter().map(|one| &*one.key).collect();
    let message = Invalid::keys(&keys);
    for client in clients.iter() {
        let knows = |one: &Modified| one.origin == client.id;
        if !client.traits().contains(Traits::NO_LOOP) || !modified.iter().any(knows) {
            message.send(server, client);
            continue;
        }
        let of_others: Vec<&[u8]> = modified.iter().filter(|one| !knows(one)).map(|one| &*one.key).collect();
        if !of_others.is_empty() {
            Invalid::keys(&of_others).send(server, client);
        }
    }
}
