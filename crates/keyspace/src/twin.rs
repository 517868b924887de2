//! A second keyspace beside one that is in use, which is filled while nobody sees it, and whose keys then take the place of all that are here at
//! one moment.
//!
//! Thread rule: as of any keyspace; who fills it enters it by the number that it has here. Taking its place needs the keyspace alone, and takes
//! a look into each slot of each database that is used, whatever lies there.
//!
//! Invariants:
//! 1. A key has the same slot and position in both, and a timer says the same moment.
//! 2. What happens in a twin is in no journal, and nobody is told of it.

use crate::ids::{DbIndex, Slot};
use crate::keyspace::{Cleared, Exclusive, Keyspace, Options};
use crate::locks;
use crate::slot::Change;
use std::mem;
use sys::{Stamp, UnixMs};

impl Keyspace {
    /// A keyspace with nothing in it, as this one else. Where objects may be elsewhere than in memory there is none.
    pub fn twin(&self, seed: u64) -> Keyspace {
        assert!(!self.has_shelf(), "what lies on disk belongs to one keyspace");
        let mut twin = Keyspace::new(Options {
            databases: self.databases(),
            workers: self.gates().count(),
            guests: 0,
            hasher: self.hasher.clone(),
            seed,
            now: UnixMs(0),
        });
        twin.epoch = self.epoch;
        twin.policy().set_eviction(self.policy().eviction());
        twin
    }
}

impl Exclusive<'_> {
    /// Puts the keys of a twin in the place of all that are here, and gives those. Each database of it is the one that commands know by its number.
    pub fn take_over(&mut self, twin: &Keyspace) -> Vec<Cleared> {
        let databases = (0..self.batch.keyspace.databases()).map(DbIndex);
        databases.map(|db| self.take_over_database(db, twin)).collect()
    }

    fn take_over_database(&mut self, db: DbIndex, twin: &Keyspace) -> Cleared {
        let keyspace = self.batch.keyspace;
        let is_coming = |key: &[u8]| {
            let key = keyspace.key(db, key);
            let slots = twin.database(db).used_slots();
            slots.is_some_and(|slots| {
                let keys = locks::lock(&slots[usize::from(key.slot.0)].keys);
                keys.find(&key).is_some()
            })
        };
        self.batch.tell_database(db, &|key| self.type_of(&keyspace.key(db, key)).is_some() || is_coming(key));
        let cleared = self.clear_before(db, Stamp::LAST);
        let coming = twin.database(db).used_slots().unwrap_or_default();
        for (number, cell) in coming.iter().enumerate().filter(|(_, cell)| cell.has_keys()) {
            let id = (keyspace.physical(db), Slot(number as u16));
            let taken = mem::take(&mut *locks::lock(&cell.keys));
            let change = Change {
                keys: taken.table().len() as i64,
                expiring: taken.expiring() as i64,
                with_fields: taken.fields_expire() as i64,
                shadowing: 0,
            };
            let mut keys = locks::lock(keyspace.keys_of_slot(id));
            *keys = taken;
            self.batch.note(id, &keys, change);
        }
        self.note_ready(db);
        cleared
    }

    /// Has those served who wait for keys of a database that are there: all of it was put there without their being told.
    pub fn note_ready(&mut self, db: DbIndex) {
        self.batch.note_ready_of(db, |key| self.type_of(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{DB, NOW, get, new_keyspace, seconds_later, set};
    use crate::{Expiry, Touch};

    #[test]
    fn the_keys_of_a_twin_take_the_place_of_all_at_one_moment() {
        let keyspace = new_keyspace(1);
        (0..200).for_each(|number| set(&keyspace, number, NOW, Expiry::Clear));
        let twin = keyspace.twin(3);
        for number in 100..400 {
            let expiry = if number < 150 { Expiry::At(seconds_later(1)) } else { Expiry::Clear };
            set(&twin, number, NOW, expiry);
        }
        assert!((0..200).all(|number| get(&keyspace, number, NOW)) && !get(&keyspace, 300, NOW));
        let cleared = keyspace.enter(0).exclusively(NOW, Touch::No, |all| all.take_over(&twin));
        assert_eq!(cleared.iter().map(Cleared::keys).sum::<u64>(), 200);
        assert_eq!((keyspace.len(DB), keyspace.expiring(DB), twin.len(DB)), (300, 50, 300));
        assert!((100..400).all(|number| get(&keyspace, number, NOW)) && !get(&keyspace, 99, NOW));
        // Their timers have come with them.
        let later = seconds_later(3);
        let _ = keyspace.enter(0).sweep_expired(later, || true, |_, _| {});
        assert_eq!((keyspace.len(DB), keyspace.expiring(DB)), (250, 0));
        set(&keyspace, 99, later, Expiry::Clear);
        assert_eq!(keyspace.len(DB), 251);
    }
}
