//! The index for checkpoints: of each slot where its objects lie, and when to look whether they are over, copied and put back. What a
//! checkpoint keeps of an object that lies on disk is its word; the others are shown as they are.
//!
//! Thread rule: a slot is copied by any thread, under its lock; it is put back before anybody else uses the keyspace.
//!
//! Invariant: what is put back says of no key more than was known of it, so that it is found as before.

use crate::Stamp;
use crate::ids::{DbIndex, Position, Slot};
use crate::image::SlotView;
use crate::keyspace::{Batch, Keyspace};
use crate::locks;
use crate::object::Object;
use crate::slot::Change;
use std::sync::atomic::Ordering;
use sys::UnixMs;
use value::table::{Cold, Entry};

/// Where the objects of a slot lie that lie on disk, in memory too or not.
#[derive(Clone, Debug, Default)]
pub struct SlotIndex {
    /// Their words.
    pub words: Vec<Cold>,
    /// How many of them expire.
    pub expiring: u32,
    /// When to look at whose position begins with these 32 bits: at the latest.
    pub timers: Vec<(UnixMs, u32)>,
}

impl SlotIndex {
    fn clear(&mut self) {
        self.words.clear();
        self.timers.clear();
        self.expiring = 0;
    }
}

impl Keyspace {
    /// The constant number of each database: that by which it is known on disk. SWAPDB exchanges two; they belong to the place where
    /// the journal ends only for whoever is in a batch, since whoever exchanges them keeps all others out until that is appended.
    pub fn numbers(&self) -> Vec<u32> {
        self.numbers.iter().map(|number| number.load(Ordering::Relaxed)).collect()
    }

    /// Whether a database has no key at all, by its constant number.
    pub fn is_number_empty(&self, number: u32) -> bool {
        self.database_at(number).len(Change::default()) == 0
    }

    /// Puts the numbers back, before anything is loaded; databases that are not named keep their own. False: these are not each other's
    /// numbers, or there are not as many databases.
    pub fn restore_numbers(&self, numbers: &[u32]) -> bool {
        let mut sorted = numbers.to_vec();
        sorted.sort_unstable();
        let is_right =
            sorted.iter().copied().eq(0..numbers.len() as u32) && numbers.len() <= self.numbers.len();
        if is_right {
            self.numbers
                .iter()
                .zip(numbers)
                .for_each(|(here, number)| here.store(*number, Ordering::Relaxed));
            self.show_numbers();
        }
        is_right
    }
}

impl Batch<'_> {
    /// Copies the index of a slot. Objects that do not lie on disk, or where nothing is written yet, are shown. Tells where in the
    /// history the slot was last written.
    pub fn copy_index(
        &self,
        number: u32,
        slot: Slot,
        is_written: impl Fn(u32) -> bool,
        index: &mut SlotIndex,
        mut visit: impl FnMut(Object<'_>),
    ) -> Stamp {
        self.look_into(number, slot, |view| {
            self.index_of(view, is_written, index, &mut visit);
            view.stamp()
        })
    }

    /// The same of a slot that is locked.
    pub fn index_of(
        &self,
        view: &SlotView<'_>,
        is_written: impl Fn(u32) -> bool,
        index: &mut SlotIndex,
        mut visit: impl FnMut(Object<'_>),
    ) {
        index.clear();
        let keys = view.keys;
        let mut shown_expiring = 0;
        keys.table().scan_entries(Position(0), usize::MAX, |entry| match entry {
            Entry::Cold(cold) => index.words.push(cold),
            Entry::Block(object) => match object.at().filter(|at| is_written(*at)) {
                Some(at) => index.words.push(Cold::new(self.keyspace.position(object.key()), at)),
                None => {
                    shown_expiring += u32::from(object.expires_at().is_some());
                    visit(object);
                }
            },
        });
        index.expiring = keys.expiring() as u32 - shown_expiring;
        if index.expiring > 0 {
            keys.copy_timers(self.keyspace.frame(), &mut index.timers);
        }
    }

    /// Puts the index of a slot back that is empty.
    pub fn restore_index(&self, db: DbIndex, slot: Slot, index: &mut SlotIndex) {
        if index.words.is_empty() {
            return;
        }
        // See `Table::insert_cold`.
        index.words.sort_by_key(Cold::bits);
        let database = self.keyspace.database(db);
        let mut keys = locks::lock(&database.slot(slot).keys);
        let change = keys.restore_index(self.keyspace.frame(), index);
        database.note_found(slot, &keys, change);
    }
}
