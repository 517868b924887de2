//! Channels by name, spread over shards.

use super::Name;
use super::subscribers::Subscribers;
use net::client::Client;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use value::glob::{Case, glob_match};

/// Many more than there are workers, so that two rarely meet.
const SHARDS: usize = 256;

/// Who listens to which channel. A channel without subscribers is not kept.
pub struct Channels {
    shards: Box<[Shard]>,
    /// Chooses the shard.
    hasher: RandomState,
    count: AtomicUsize,
}

/// On a cache line of its own.
#[repr(align(64))]
#[derive(Default)]
struct Shard(Mutex<HashMap<Name, Subscribers, RandomState>>);

impl Default for Channels {
    fn default() -> Channels {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        Channels { shards, hasher: RandomState::default(), count: AtomicUsize::new(0) }
    }
}

impl Channels {
    /// Adds a session to a channel, and returns the name to keep.
    pub(super) fn join(&self, channel: &[u8], client: &Arc<Client>) -> Name {
        let mut known = self.shard(channel).0.lock();
        let name = match known.get_key_value(channel) {
            Some((name, _)) => name.clone(),
            None => {
                self.count.fetch_add(1, Ordering::Release);
                Name::from(channel)
            }
        };
        known.entry(name.clone()).or_default().add(client);
        name
    }

    /// Takes a session from a channel.
    pub(super) fn leave(&self, channel: &[u8], client: &Client) {
        let mut known = self.shard(channel).0.lock();
        let Some(subscribers) = known.get_mut(channel) else { return };
        subscribers.remove(client);
        if subscribers.is_empty() {
            known.remove(channel);
            self.count.fetch_sub(1, Ordering::Release);
            if known.len() < known.capacity() / 4 {
                known.shrink_to_fit();
            }
        }
    }

    /// Runs `work` with a channel's subscribers while nobody else posts to the channel.
    pub(super) fn with<T>(&self, channel: &[u8], work: impl FnOnce(Option<&Subscribers>) -> T) -> T {
        work(self.shard(channel).0.lock().get(channel))
    }

    /// How many sessions listen to a channel.
    pub fn subscribers_of(&self, channel: &[u8]) -> usize {
        self.with(channel, |subscribers| subscribers.map_or(0, |subscribers| subscribers.iter().len()))
    }

    /// The channels that somebody listens to and whose names fit a pattern, if given.
    pub fn names(&self, pattern: Option<&[u8]>) -> Vec<Arc<[u8]>> {
        let fits = |name: &Name| pattern.is_none_or(|pattern| glob_match(pattern, name, Case::Sensitive));
        let names_in = |shard: &Shard| shard.0.lock().keys().filter(|name| fits(name)).cloned().collect();
        self.shards.iter().flat_map(|shard| -> Vec<Name> { names_in(shard) }).collect()
    }

    /// Visits every subscriber of every channel.
    pub(super) fn for_each(&self, mut visit: impl FnMut(&[u8], &Arc<Client>)) {
        for shard in &self.shards {
            let known = shard.0.lock();
            known.iter().for_each(|(name, all)| all.iter().for_each(|client| visit(name, client)));
        }
    }

    /// How many channels somebody listens to.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    fn shard(&self, channel: &[u8]) -> &Shard {
        // The low bits choose the place within the shard's table.
        let hash = self.hasher.hash_one(channel) >> 32;
        &self.shards[hash as usize % SHARDS]
    }
}
