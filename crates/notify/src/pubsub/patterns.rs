//! Patterns of channels. Every one is tried for every message, as in Redis; as long
//! as there are none, that is one load.

use super::Name;
use super::subscribers::Subscribers;
use net::client::Client;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use value::glob::{Case, glob_match};

/// Who listens to which pattern. A pattern without subscribers is not kept.
#[derive(Default)]
pub struct Patterns {
    known: RwLock<BTreeMap<Name, Subscribers>>,
    count: AtomicUsize,
}

impl Patterns {
    /// How many patterns somebody listens to.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Visits every subscriber of every pattern.
    pub(super) fn for_each(&self, mut visit: impl FnMut(&[u8], &Arc<Client>)) {
        let known = self.known.read();
        known.iter().for_each(|(name, all)| all.iter().for_each(|client| visit(name, client)));
    }

    /// Adds a session to a pattern, and returns the name to keep.
    pub(super) fn join(&self, pattern: &[u8], client: &Arc<Client>) -> Name {
        let mut known = self.known.write();
        let name = match known.get_key_value(pattern) {
            Some((name, _)) => name.clone(),
            None => Name::from(pattern),
        };
        known.entry(name.clone()).or_default().add(client);
        self.count.store(known.len(), Ordering::Release);
        name
    }

    /// Takes a session from a pattern.
    pub(super) fn leave(&self, pattern: &[u8], client: &Client) {
        let mut known = self.known.write();
        let Some(subscribers) = known.get_mut(pattern) else { return };
        subscribers.remove(client);
        if subscribers.is_empty() {
            known.remove(pattern);
        }
        self.count.store(known.len(), Ordering::Release);
    }

    /// Runs `work` with a pattern's subscribers, if it has some.
    pub(super) fn with(&self, pattern: &[u8], work: impl FnOnce(&Subscribers)) {
        if let Some(subscribers) = self.known.read().get(pattern) {
            work(subscribers);
        }
    }

    /// How many sessions listen to a pattern.
    pub(super) fn subscribers_of(&self, pattern: &[u8]) -> usize {
        self.known.read().get(pattern).map_or(0, |subscribers| subscribers.iter().len())
    }

    /// Runs `work` for each pattern that fits a channel; returns the sum of the results.
    pub(super) fn matching(&self, channel: &[u8], work: impl Fn(&[u8], &Subscribers) -> usize) -> usize {
        if self.count() == 0 {
            return 0;
        }
        let known = self.known.read();
        let fitting = known.iter().filter(|(pattern, _)| glob_match(pattern, channel, Case::Sensitive));
        fitting.map(|(pattern, subscribers)| work(pattern, subscribers)).sum()
    }
}
