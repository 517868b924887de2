//! For who writes anew what still lives where most has died: which records live, and where they are from now on.
//!
//! What dies is told to the shelf as it happens ([`super::Shelf::note_dead`]) where that costs nothing; keys that expire or go with
//! their database are not told of. [`Batch::places`] counts all that live.

use crate::ids::{DbIndex, Key, Slot};
use crate::keyspace::Batch;
use crate::locks::{self, SlotId};
use crate::residency::{Unreadable, shadow};
use crate::slot::SlotKeys;
use crate::table::Place;
use value::table::Entry;

/// Where an object is that lies at the place in question.
enum Kept {
    InMemory(Place),
    Cold(Place),
}

impl Batch<'_> {
    /// Whether what lies at a place of a database (by its constant number) is this key's object.
    pub fn lies_at(&self, db: u32, key: &[u8], at: u32) -> bool {
        let key = self.keyspace.key(DbIndex(0), key);
        let keys = locks::lock(self.keyspace.keys_of_slot((db, key.slot)));
        kept_at(&keys, &key, at).is_some()
    }

    /// Notes that a key's object lies elsewhere now, unless it has changed since. False: it has.
    pub fn move_kept(&self, db: u32, key: &[u8], from: u32, to: u32) -> bool {
        let key = self.keyspace.key(DbIndex(0), key);
        let mut keys = locks::lock(self.keyspace.keys_of_slot((db, key.slot)));
        match kept_at(&keys, &key, from) {
            Some(Kept::Cold(place)) => keys.move_cold(place, to),
            Some(Kept::InMemory(place)) => keys.block(place).move_at(to),
            None => return false,
        }
        true
    }

    /// Brings a key's object that lies at a place into memory, and forgets that it lies there.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn recall(&self, db: u32, key: &[u8], at: u32) -> Result<(), Unreadable> {
        let key = self.keyspace.key(DbIndex(0), key);
        let id: SlotId = (db, key.slot);
        let mut keys = locks::lock(self.keyspace.keys_of_slot(id));
        match kept_at(&keys, &key, at) {
            Some(Kept::InMemory(place)) => keys.block(place).soil(),
            Some(Kept::Cold(_)) => {
                let reader = self.keyspace.slot_reader(id).expect("what is cold lies on a shelf");
                if keys.find(&key).is_some() {
                    let change = reader.resolve(&mut keys, &key)?;
                    self.keyspace.database_at(db).note_found(key.slot, &keys, change);
                } else if let Some((place, _, block)) = reader.find(&keys, &key)? {
                    keys.warm(place, block);
                }
            }
            None => {}
        }
        Ok(())
    }

    /// Whether two keys could not be told apart if both lay in one page.
    pub fn look_alike(&self, one: &[u8], other: &[u8]) -> bool {
        let [one, other] = [one, other].map(|key| self.keyspace.key(DbIndex(0), key));
        one.slot == other.slot && super::spill::look_alike(one.position, other.position)
    }

    /// Shows where each object of a slot lies that lies anywhere; the database by its constant number.
    pub fn places(&self, db: u32, slot: Slot, mut visit: impl FnMut(u32)) {
        let Some(keys) = self.keyspace.slot_with_keys((db, slot)).map(locks::lock) else { return };
        keys.table().scan_entries(crate::ids::Position(0), usize::MAX, |entry| match entry {
            Entry::Block(object) => object.at().into_iter().for_each(&mut visit),
            Entry::Cold(cold) => visit(cold.at),
        });
    }

    /// How much memory objects of a slot (of a database by its constant number) take that lie nowhere but in memory, about.
    pub fn bytes_unkept(&self, db: u32, slot: Slot) -> u64 {
        let Some(keys) = self.keyspace.slot_with_keys((db, slot)).map(locks::lock) else { return 0 };
        let mut bytes = 0;
        keys.table().scan_entries(crate::ids::Position(0), usize::MAX, |entry| match entry {
            Entry::Block(object) if object.at().is_none() => bytes += object.bytes(SAMPLES) as u64,
            Entry::Block(_) | Entry::Cold(_) => {}
        });
        bytes
    }
}

/// Elements of a collection by which its length is estimated.
const SAMPLES: usize = 5;

fn kept_at(keys: &SlotKeys, key: &Key<'_>, at: u32) -> Option<Kept> {
    if let Some(place) = keys.find(key).filter(|place| !keys.object(*place).is_shadowing()) {
        return (keys.object(place).at() == Some(at)).then_some(Kept::InMemory(place));
    }
    // An older version of what is shadowing lives until that is resolved: its word has to be right.
    shadow::word_at(keys, key.position, at).map(Kept::Cold)
}
