//! Broadcasting: clients that are told of every modified key with a prefix, whether
//! they have read it or not. They are told at the end of a worker's batch, of each
//! key once.

use super::Tracking;
use super::message::Invalid;
use crate::pubsub::Subscribers;
use net::client::{Client, Clients, Traits};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Included, Unbounded};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Modified keys that are kept until the batch ends; beyond, they are told at once.
const KEYS_MAX: usize = 1024;
/// What they may take, for the same reason: a key may be as long as a request.
const KEYS_BYTES_MAX: usize = 1 << 20;

/// Modified keys that are to be told of.
#[derive(Default)]
pub(super) struct Kept {
    keys: Vec<Modified>,
    /// Bytes of the keys.
    bytes: usize,
}

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

    /// Notes a modified key, if anybody is told of it.
    pub(super) fn note(&self, clients: &Clients, worker: usize, key: &[u8], origin: u64) {
        if !has_prefix_of(&self.prefixes.read(), key) {
            return;
        }
        let mut kept = self.workers[worker].modified.lock();
        kept.bytes += key.len();
        kept.keys.push(Modified { key: key.into(), origin });
        if kept.keys.len() >= KEYS_MAX || kept.bytes >= KEYS_BYTES_MAX {
            self.broadcast(clients, std::mem::take(&mut *kept).keys);
        }
    }

    /// Called at the end of a worker's batch: tells who wants to know what was modified.
    #[inline]
    pub fn end_batch(&self, clients: &Clients, worker: usize) {
        if self.prefix_count() > 0 {
            let modified = std::mem::take(&mut *self.workers[worker].modified.lock());
            self.broadcast(clients, modified.keys);
        }
    }

    fn broadcast(&self, clients: &Clients, mut modified: Vec<Modified>) {
        // Of several changes of a key the last one's origin counts, as in Redis: it knows what is there now.
        modified.reverse();
        modified.sort_by(|a, b| a.key.cmp(&b.key));
        modified.dedup_by(|earlier, last| earlier.key == last.key);
        for (prefix, subscribers) in self.prefixes.read().iter() {
            let begin = modified.partition_point(|one| *one.key < **prefix);
            let count = modified[begin..].partition_point(|one| one.key.starts_with(prefix));
            if count > 0 {
                tell(clients, subscribers, &modified[begin..begin + count]);
            }
        }
    }
}

/// Whether one of these is a prefix of a key. Whatever lies between a prefix of it and the key begins with that prefix: so what is next
/// below the key either is one, or shows how long one can be at most.
fn has_prefix_of<T>(known: &BTreeMap<Box<[u8]>, T>, key: &[u8]) -> bool {
    let mut key = key;
    loop {
        let Some((below, _)) = known.range::<[u8], _>((Unbounded, Included(key))).next_back() else {
            return false;
        };
        if key.starts_with(below) {
            return true;
        }
        let common = below.iter().zip(key).take_while(|(one, other)| one == other).count();
        key = &key[..common];
    }
}

/// Tells those who broadcast a prefix of these keys, which all have it.
fn tell(clients: &Clients, subscribers: &Subscribers, modified: &[Modified]) {
    let keys: Vec<&[u8]> = modified.iter().map(|one| &*one.key).collect();
    let message = Invalid::keys(&keys);
    for client in subscribers.iter() {
        let knows = |one: &Modified| one.origin == client.id;
        if !client.traits().contains(Traits::NO_LOOP) || !modified.iter().any(knows) {
            message.send(clients, client);
            continue;
        }
        let of_others: Vec<&[u8]> = modified.iter().filter(|one| !knows(one)).map(|one| &*one.key).collect();
        if !of_others.is_empty() {
            Invalid::keys(&of_others).send(clients, client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::{Clock, Prng, UnixMs};

    #[test]
    fn a_prefix_is_found_as_if_all_were_tried() {
        let mut prng = Prng::from_seed(1);
        let mut text = |bytes_max: u64| -> Box<[u8]> {
            let len = prng.below(bytes_max + 1);
            (0..len).map(|_| if prng.below(2) == 0 { b'a' } else { b'b' }).collect()
        };
        for round in 0..20_000 {
            let least = u64::from(round % 10 != 0);
            let prefixes: BTreeMap<Box<[u8]>, ()> =
                (0..round % 6).map(|_| (text(5), ())).filter(|(one, ())| one.len() as u64 >= least).collect();
            let key = text(7);
            let is_one = prefixes.keys().any(|prefix| key.starts_with(prefix));
            assert_eq!(has_prefix_of(&prefixes, &key), is_one, "{prefixes:?} {key:?}");
        }
    }

    #[test]
    fn keys_that_are_kept_for_broadcasts_take_little_however_long_they_are() {
        let (tracking, clients) = (Tracking::new(1), Clients::new(Clock::Real));
        let client = Client::new(1, String::new(), String::new(), -1, (0, 0), UnixMs(0));
        tracking.join(&BTreeSet::from([b"key:".as_slice().into()]), &Arc::new(client));
        let kept = || tracking.workers[0].modified.lock();
        tracking.note(&clients, 0, &vec![b'x'; 1 << 20], 0);
        assert!(kept().keys.is_empty(), "nobody is told of it");
        for number in 0..100 {
            tracking.note(&clients, 0, &[b"key:", &vec![number; 100_000][..]].concat(), 0);
            assert!(kept().bytes <= KEYS_BYTES_MAX && kept().keys.len() <= 10);
        }
    }
}
