//! Going over all objects of a database, those that are cold in the order in which they lie: each page is read once, whatever is on it.
//!
//! For whoever holds everything, so that nothing moves meanwhile.

use super::load::block_of;
use crate::ids::{DbIndex, Key, Position, Slot};
use crate::keyspace::Batch;
use crate::locks;
use crate::object::{Detached, Object};
use std::ops::ControlFlow;
use value::table::{Cold, Entry};

/// Words that are gathered before their pages are read: so many that most have others on their page, and they take some megabytes.
const WORDS_MAX: usize = 1 << 20;

/// What is known of a cold object.
#[derive(Clone, Copy)]
struct Word {
    slot: Slot,
    cold: Cold,
}

impl Word {
    fn may_be(&self, key: &Key<'_>) -> bool {
        self.slot == key.slot && self.cold.may_be(key.position)
    }
}

impl Batch<'_> {
    /// Calls `visit` for every object of a database. What cannot be read is passed by, and the batch knows.
    pub(crate) fn for_each_as_it_lies(&self, db: DbIndex, mut visit: impl FnMut(Object<'_>)) {
        let slots = self.keyspace.database(db).used_slots().unwrap_or_default();
        let mut words = Vec::new();
        for (number, cell) in slots.iter().enumerate().filter(|(_, slot)| slot.has_keys()) {
            let slot = Slot(number as u16);
            locks::lock(&cell.keys).table().scan_entries(Position(0), usize::MAX, |entry| match entry {
                Entry::Block(object) => visit(object),
                Entry::Cold(cold) => words.push(Word { slot, cold }),
            });
            if words.len() >= WORDS_MAX {
                self.visit_words(db, &mut words, &mut visit);
            }
        }
        self.visit_words(db, &mut words, &mut visit);
    }

    fn visit_words(&self, db: DbIndex, words: &mut Vec<Word>, visit: &mut impl FnMut(Object<'_>)) {
        words.sort_unstable_by_key(|word| word.cold.at);
        for of_page in words.chunk_by(|one, other| one.cold.at == other.cold.at) {
            self.visit_page(db, of_page, visit);
        }
        words.clear();
    }

    fn visit_page(&self, db: DbIndex, words: &[Word], visit: &mut impl FnMut(Object<'_>)) {
        let (at, physical) = (words[0].cold.at, self.keyspace.physical(db));
        let shelf = self.keyspace.shelf.get().expect("what is cold lies on a shelf");
        let mut records = Vec::new();
        let mut is_meant = |there, bytes: &[u8]| {
            there == physical && {
                let key = self.keyspace.key(db, bytes);
                words.iter().any(|word| word.may_be(&key))
            }
        };
        let mut take = |record| {
            records.push(record);
            ControlFlow::Continue(())
        };
        // What an error has kept back is looked for below, where each says by itself what became of it.
        let _ = shelf.visit(at, &mut is_meant, &mut take);
        let mut left = words.to_vec();
        for record in records {
            let key = self.keyspace.key(db, &record.key);
            let Some(found) = left.iter().position(|word| word.may_be(&key)) else { continue };
            if let Ok(block) = block_of(&record, at) {
                left.swap_remove(found);
                self.visit_newest((db, key.slot), &Detached::new(block), visit);
            }
        }
        for Word { slot, cold } in left {
            match self.keyspace.slot_reader((physical, slot)).map(|reader| reader.load_cold(cold)) {
                Some(Ok(object)) => self.visit_newest((db, slot), &object, visit),
                Some(Err(error)) => self.note_unreadable(error),
                None => unreachable!("there is a shelf"),
            }
        }
    }

    /// Visits a cold object unless it is an older version of one in memory.
    fn visit_newest(
        &self,
        (db, slot): (DbIndex, Slot),
        object: &Detached,
        visit: &mut impl FnMut(Object<'_>),
    ) {
        let id = (self.keyspace.physical(db), slot);
        let keys = locks::lock(self.keyspace.keys_of_slot(id));
        let key = self.keyspace.key(db, object.object().key());
        if keys.find(&key).is_none() {
            visit(object.object());
        }
    }
}
