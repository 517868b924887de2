//! Watched keys (WATCH): who is to be told that a key changed before its EXEC, and what a session watches.
//!
//! Thread rule: one lock, taken by WATCH, by the end of a transaction, and by whoever
//! changes a key while anything is watched. A change marks its watchers before the
//! key's slot is unlocked, so an EXEC that holds the slot sees the mark.

use command::execute::readable;
use command::{Error, Result};
use keyspace::{Batch, Change, DbIndex, Interest, Key, KeyName, Keyspace, Touch, What};
use net::client::{Client, Kept, Traits};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::UnixMs;

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

/// The keys that a session watches.
#[derive(Default)]
pub struct Watched {
    keys: Vec<KeyName>,
    /// For each of them whether it was there.
    were_there: Vec<bool>,
}

impl Watched {
    /// Watches a key, once. Its slot is held.
    ///
    /// # Errors
    /// It cannot be read; it is not watched.
    pub fn add(
        &mut self,
        (watches, keyspace): (&Watches, &Keyspace),
        batch: &Batch<'_>,
        client: &Arc<Client>,
        key: Key<'_>,
        now: UnixMs,
    ) -> Result<()> {
        let name: KeyName = (key.db, key.bytes.into());
        // Not by going through its keys, of which there may be a million.
        if !self.keys.is_empty() && watches.has(&name, client) {
            return Ok(());
        }
        let was_there = is_there(batch, key, now)?;
        // Before anybody can change it.
        watches.add(keyspace, name.clone(), client);
        client.note_kept_name(Kept::Watched, &name.1, true);
        self.keys.push(name);
        self.were_there.push(was_there);
        client.watched.store(self.keys.len(), Ordering::Relaxed);
        Ok(())
    }

    /// The keys, for EXEC to hold.
    pub fn keys<'a>(&'a self, keyspace: &'a Keyspace) -> impl Iterator<Item = Key<'a>> {
        self.keys.iter().map(|(db, key)| keyspace.key(*db, key))
    }

    /// Whether a watched key has changed, or its time is up by now. The keys' slots are held.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub fn is_disturbed(
        &self,
        keyspace: &Keyspace,
        batch: &Batch<'_>,
        client: &Client,
        now: UnixMs,
    ) -> Result<bool> {
        let mut is_any_gone = false;
        for (key, was_there) in self.keys(keyspace).zip(&self.were_there) {
            is_any_gone |= *was_there && !is_there(batch, key, now)?;
        }
        Ok(is_any_gone || client.is_disturbed())
    }

    /// Watches nothing any more.
    pub fn clear(&mut self, watches: &Watches, keyspace: &Keyspace, client: &Client) {
        if !self.keys.is_empty() {
            watches.remove(keyspace, client, &self.keys);
            self.keys = Vec::new();
            self.were_there = Vec::new();
            client.watched.store(0, Ordering::Relaxed);
            client.note_kept(Kept::Watched, 0);
        }
        // Only now: whoever changed a key until here has marked the client for what it does not watch any more.
        client.set_trait(Traits::DISTURBED, false);
    }
}

/// Whether a key is there. One whose time is up is not, and stays for whoever takes it away. Its slot is held.
fn is_there(batch: &Batch<'_>, key: Key<'_>, now: UnixMs) -> Result<bool> {
    const BEFORE_ALL: UnixMs = UnixMs(0);
    let view = batch.try_view(&[key], BEFORE_ALL, Touch::No).ok_or(Error::InUse)?;
    let is_there = view.peek(&key).is_some_and(|object| !object.is_expired(now));
    view.finish();
    readable(batch).map(|()| is_there)
}
