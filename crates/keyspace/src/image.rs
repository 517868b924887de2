//! For checkpoints and recovery: slots copied as they are at one place in the history, and put back.
//!
//! Every slot is copied for itself, while others change; its stamp says which effects its copy holds. Whoever replays the
//! history over the copies leaves out, slot by slot, what is not later than the stamp.

use crate::Stamp;
use crate::ids::{DbIndex, Key, Position, Slot};
use crate::keyspace::{Batch, Cleared, Exclusive, Keyspace};
use crate::locks::{self, SlotId};
use crate::object::Object;
use crate::slot::{Change, SlotKeys};
use std::mem;
use std::sync::atomic::Ordering;

impl Keyspace {
    /// Whether a database, by its constant number, was ever used: only then its slots hold anything.
    pub fn is_number_used(&self, number: u32) -> bool {
        self.database_at(number).used_slots().is_some()
    }

    pub(crate) fn stamp(&self, db: DbIndex, slot: Slot) -> Stamp {
        self.stamp_of((self.physical(db), slot))
    }
}

/// A slot that is locked, to be copied.
pub struct SlotView<'s> {
    batch: &'s Batch<'s>,
    id: SlotId,
    pub(crate) keys: &'s SlotKeys,
}

impl SlotView<'_> {
    /// Where in the history it was last written.
    pub fn stamp(&self) -> Stamp {
        self.batch.keyspace.stamp_of(self.id)
    }

    /// Which it is.
    pub(crate) fn slot(&self) -> Slot {
        self.id.1
    }

    /// Shows every object, those whose time is up too. See also [`Batch::take_unreadable`].
    pub fn visit(&self, visit: impl FnMut(Object<'_>)) {
        self.batch.visit_slot(self.id, self.keys, visit);
    }

    /// Shows the objects in memory from a position on: one, and what cannot be told from it. Gives where to go on, while the stamp is the
    /// same; None at the end.
    pub fn next(&self, from: Position, visit: impl FnMut(Object<'_>)) -> Option<Position> {
        self.keys.table().scan(from, 1, visit)
    }
}

impl Batch<'_> {
    /// Calls `look` with a slot locked, of a database by its constant number: whoever goes over slots while databases are exchanged
    /// meets each once.
    pub fn look_into<T>(&self, number: u32, slot: Slot, look: impl FnOnce(&SlotView<'_>) -> T) -> T {
        let id = (number, slot);
        let keys = locks::lock(self.keyspace.keys_of_slot(id));
        look(&SlotView { batch: self, id, keys: &keys })
    }

    /// Where in the history a key's slot was last written.
    pub fn stamp_of(&self, key: &Key<'_>) -> Stamp {
        self.keyspace.stamp(key.db, key.slot)
    }

    /// Says where in the history a slot was last written, as far as it is known now. Only while nobody else writes it.
    pub fn restore_stamp(&self, db: DbIndex, slot: Slot, stamp: Stamp) {
        self.keyspace.set_stamp((self.keyspace.physical(db), slot), stamp);
    }
}

impl Exclusive<'_> {
    /// Takes away the keys of those slots of a database that were last written before a place in the history.
    pub fn clear_before(&mut self, db: DbIndex, stamp: Stamp) -> Cleared {
        let database = self.batch.keyspace.database(db);
        self.batch.keyspace.hidden.note_upheaval();
        let mut slots = Vec::new();
        for (number, cell) in database.used_slots().unwrap_or_default().iter().enumerate() {
            let slot = Slot(number as u16);
            let mut keys = locks::lock(&cell.keys);
            if keys.table().len() == 0 || self.batch.keyspace.stamp(db, slot) >= stamp {
                continue;
            }
            let shadowing = if self.batch.shadowing(db) > 0 { keys.shadowing() } else { 0 };
            let taken = mem::take(&mut *keys);
            let change = Change {
                keys: -(taken.table().len() as i64),
                expiring: -(taken.expiring() as i64),
                with_fields: -(taken.fields_expire() as i64),
                shadowing: -(shadowing as i64),
            };
            self.batch.note((self.batch.keyspace.physical(db), slot), &keys, change);
            slots.push(taken);
        }
        let cleared = Cleared { slots };
        self.batch.keyspace.note_cleared(cleared.keys());
        cleared
    }

    /// Forgets where in the history slots were last written. For a keyspace that was emptied, and whose journal goes on at another place.
    pub fn forget_stamps(&mut self) {
        let keyspace = self.batch.keyspace;
        keyspace.whole_stamp.store(0, Ordering::Relaxed);
        keyspace.apart_stamp.store(0, Ordering::Relaxed);
        for db in (0..keyspace.databases()).map(DbIndex) {
            let stamps = keyspace.database(db).stamps().unwrap_or_default();
            stamps.iter().for_each(|stamp| stamp.store(0, Ordering::Relaxed));
        }
    }
}
