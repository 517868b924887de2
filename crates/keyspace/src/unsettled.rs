//! What a batch has done that is not in the journal yet, as far as others could see it without a lock.
//!
//! A slot's keys are behind its lock. How many keys a database has, which of its slots have none and how many commands have
//! written, anybody may look up without one (DBSIZE and INFO; SCAN passes by slots that are empty). What they are told waits for
//! the journal's end, taken afterwards, and must not show what comes behind it. So a batch keeps what its changes come to for
//! itself, and publishes it once the record that says them is appended, before it lets their slots go.
//!
//! Thread rule: it belongs to a worker and is used inside its batch.
//!
//! Invariants:
//! 1. Whoever sees what was published, and asks for the journal's end then, is given one behind the records that it comes from.
//! 2. A batch that holds nothing has published everything when an access ends.

use crate::ids::DbIndex;
use crate::keyspace::{Batch, Keyspace};
use crate::locks::SlotId;
use crate::slot::{Change, SlotKeys};
use smallvec::SmallVec;
use std::sync::atomic::{Ordering, fence};

/// See the top of this file.
#[derive(Default)]
pub(crate) struct Unsettled {
    /// What is to be counted, by the constant numbers of databases.
    counts: SmallVec<[(u32, Change); 1]>,
    /// Slots that have become empty, each once: their hints say that they are here.
    emptied: SmallVec<[SlotId; 1]>,
    writes: i64,
}

impl Unsettled {
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.writes == 0
    }

    #[inline]
    fn add(&mut self, db: u32, change: Change) {
        match self.counts.iter_mut().find(|(other, _)| *other == db) {
            Some((_, counted)) => *counted += change,
            None => self.counts.push((db, change)),
        }
    }

    fn of(&self, db: u32) -> Change {
        self.counts.iter().find(|(other, _)| *other == db).map_or(Change::default(), |(_, change)| *change)
    }
}

impl Keyspace {
    /// How many keys a database has. Keys that are expired and not yet freed count. What is not in the journal does not:
    /// see [`Batch::len`].
    pub fn len(&self, db: DbIndex) -> u64 {
        self.shown_database(db).len(Change::default())
    }

    /// Whether a database has no key at all.
    pub fn is_empty(&self, db: DbIndex) -> bool {
        self.len(db) == 0
    }

    /// How many keys of a database have an expiry.
    pub fn expiring(&self, db: DbIndex) -> u64 {
        self.shown_database(db).expiring(Change::default())
    }

    /// How many commands have changed anything.
    pub fn writes(&self) -> u64 {
        let writes = self.writes.get();
        fence(Ordering::Acquire);
        writes
    }
}

impl Batch<'_> {
    /// As [`Keyspace::len`], with what the batch has done itself.
    pub fn len(&self, db: DbIndex) -> u64 {
        self.keyspace.database(db).len(self.unsettled_of(db))
    }

    /// Whether a database has no key at all for this batch.
    pub fn is_empty(&self, db: DbIndex) -> bool {
        self.len(db) == 0
    }

    /// As [`Keyspace::expiring`], with what the batch has done itself.
    pub fn expiring(&self, db: DbIndex) -> u64 {
        self.keyspace.database(db).expiring(self.unsettled_of(db))
    }

    /// How many keys are shadowing, with those of the batch.
    pub(crate) fn shadowing(&self, db: DbIndex) -> u64 {
        self.keyspace.database(db).shadowing(self.unsettled_of(db))
    }

    /// As [`Keyspace::writes`], with what the batch has done itself.
    pub fn writes(&self) -> u64 {
        self.keyspace.writes().saturating_add_signed(self.state().unsettled.borrow().writes)
    }

    /// Counts a command that has changed something and has ended.
    #[inline]
    pub fn count_write(&self) {
        if self.is_holding() {
            self.state().unsettled.borrow_mut().writes += 1;
        } else {
            fence(Ordering::Release);
            self.keyspace.writes.add(1);
        }
    }

    /// Books a change made in a slot whose lock is held.
    #[inline]
    pub(crate) fn note(&self, id: SlotId, keys: &SlotKeys, change: Change) {
        let database = self.keyspace.database_at(id.0);
        if change != Change::default() {
            let unsettled = &mut *self.state().unsettled.borrow_mut();
            unsettled.add(id.0, change);
            if change.keys != 0 && database.slot(id.1).publish_hint(keys) {
                unsettled.emptied.push(id);
            }
        }
        database.note_due_of(id.1, keys);
    }

    /// Publishes what was noted. What was said of it is in the journal, and the slots are locked still.
    #[inline]
    pub(crate) fn publish(&self) {
        if !self.state().unsettled.borrow().is_empty() {
            self.publish_noted();
        }
    }

    fn publish_noted(&self) {
        let unsettled = &mut *self.state().unsettled.borrow_mut();
        // Who sees anything of this sees the record's end, too.
        fence(Ordering::Release);
        for (db, change) in unsettled.counts.drain(..) {
            self.keyspace.database_at(db).count(change);
        }
        for (db, slot) in unsettled.emptied.drain(..) {
            self.keyspace.database_at(db).slot(slot).settle_hint();
        }
        if unsettled.writes != 0 {
            self.keyspace.writes.add(std::mem::take(&mut unsettled.writes));
        }
    }

    /// Whether nothing is noted that is not published.
    pub(crate) fn has_published_all(&self) -> bool {
        self.gate.as_ref().is_none_or(|state| state.unsettled.borrow().is_empty())
    }

    fn unsettled_of(&self, db: DbIndex) -> Change {
        let state = self.gate.as_ref();
        state.map_or(Change::default(), |state| state.unsettled.borrow().of(self.keyspace.physical(db)))
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::{DB, NOW, new_keyspace};
    use crate::{Batch, Expiry, Key, NewValue, Touch};

    fn set(batch: &Batch<'_>, key: &Key<'_>) {
        let mut edit = batch.edit(&[*key], NOW, Touch::Yes);
        edit.set(key, NewValue::Int(1), Expiry::Clear);
        edit.finish();
    }

    fn remove(batch: &Batch<'_>, key: &Key<'_>) {
        let mut edit = batch.edit(&[*key], NOW, Touch::Yes);
        assert!(edit.remove(key));
        edit.finish();
    }

    /// Whether somebody who walks over the database looks into the key's slot; and how many slots wait to be called empty.
    fn shown(batch: &Batch<'_>, key: &Key<'_>) -> (bool, usize) {
        let is_looked_into = batch.keyspace.database(DB).slot(key.slot).has_keys();
        (is_looked_into, batch.state().unsettled.borrow().emptied.len())
    }

    #[test]
    fn a_slot_is_called_empty_when_it_is_let_go_and_only_if_it_is() {
        let keyspace = new_keyspace(1);
        let key = keyspace.key(DB, b"k");
        for stays in [false, true] {
            let mut batch = keyspace.enter(0);
            batch.hold(&[key]);
            // However often it comes and goes, the slot is noted once.
            for _ in 0..3 {
                set(&batch, &key);
                assert!(shown(&batch, &key).0);
                remove(&batch, &key);
                assert_eq!(shown(&batch, &key), (true, 1));
            }
            if stays {
                set(&batch, &key);
            }
            batch.release();
            assert_eq!(shown(&batch, &key), (stays, 0));
        }
        let batch = keyspace.enter(0);
        remove(&batch, &key);
        assert_eq!(shown(&batch, &key), (false, 0));
    }
}
