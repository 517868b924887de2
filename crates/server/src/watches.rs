//! Watched keys (WATCH): who is to be told that a key changed before its EXEC.
//!
//! Thread rule: one lock, taken by WATCH, by the end of a transaction, and by whoever
//! changes a key while anything is watched. A change marks its watchers before the
//! key's slot is unlocked, so an EXEC that holds the slot sees the mark.

use crate::client::Client;
use keyspace::{Change, DbIndex, Interest, KeyName, Keyspace, What};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// All watched keys.
#[derive(Default)]
pub struct Watches {
    by_key: Mutex<HashMap<KeyName, Vec<Arc<Client>>>>,
}

impl Watches {
    /// Whether a client watches a key.
    pub fn has(&self, key: &KeyName, client: &Client) -> bool {
        self.by_key.lock().get(key).is_some_and(|watchers| watchers.iter().any(|one| one.id == client.id))
    }

    /// Watches a key.
    pub fn add(&self, keyspace: &Keyspace, key: KeyName, client: &Arc<Client>) {
        let mut by_key = self.by_key.lock();
        by_key.entry(key).or_default().push(client.clone());
        keyspace.set_interest(Interest::WATCHED, true);
    }

    /// Forgets that a client watches these keys.
    pub fn remove(&self, keyspace: &Keyspace, client: &Client, keys: &[KeyName]) {
        let mut by_key = self.by_key.lock();
        for key in keys {
            let Some(watchers) = by_key.get_mut(key) else { continue };
            watchers.retain(|watcher| watcher.id != client.id);
            if watchers.is_empty() {
                by_key.remove(key);
            }
        }
        if by_key.is_empty() {
            keyspace.set_interest(Interest::WATCHED, false);
        }
    }

    /// Marks those who watch a changed key. That its time is up is no change: EXEC looks whether a key that was there still is,
    /// and one that was not, and took its place with its time up already (SWAPDB), never came.
    pub fn note(&self, changes: &[Change]) {
        let by_key = self.by_key.lock();
        if by_key.is_empty() {
            return;
        }
        for change in changes.iter().filter(|change| change.what == What::Modified) {
            let name = (change.db, change.key.clone());
            by_key.get(&name).into_iter().flatten().for_each(|watcher| watcher.mark_disturbed());
        }
    }

    /// Marks those who watch a key of a database that is emptied or exchanged, if the key
    /// is there before or after.
    pub fn note_database(&self, db: DbIndex, is_there: &dyn Fn(&[u8]) -> bool) {
        let by_key = self.by_key.lock();
        for ((_, key), watchers) in by_key.iter().filter(|((of, _), _)| *of == db) {
            if is_there(key) {
                watchers.iter().for_each(|watcher| watcher.mark_disturbed());
            }
        }
    }
}
