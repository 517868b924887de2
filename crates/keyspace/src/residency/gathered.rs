//! Going over objects that are cold in the order in which they lie: a page is read once for all that is on it, and pages that lie close
//! together are read together.
//!
//! Whoever does so gathers the words of slots, each slot as it is at one moment ([`SlotView::gather`]), and then reads what they say
//! ([`Gathered::read_on`]). Commands may run in between: what lies at a place is never changed, and can be read for as long as words are
//! kept here ([`Shelf::keep`]).
//!
//! Memory: twelve bytes for each word, up to a limit that is looked at after each slot, and the keys of objects that are shadowing.

use super::load::block_of;
use super::{Shelf, Unreadable};
use crate::ids::{DbIndex, Key, Position, Slot};
use crate::image::SlotView;
use crate::keyspace::{Batch, Keyspace};
use crate::object::{Detached, Object};
use crate::slot::Change;
use std::any::Any;
use std::collections::HashSet;
use std::ops::Range;
use value::table::{Cold, Entry};

/// Bytes of words that are gathered by whoever holds everything: so many that most have others on their page.
const HELD_BYTES: usize = 12 << 20;

/// Places that are read in one go.
const PLACES: usize = 64;

/// What is known of a cold object.
#[derive(Clone, Copy)]
struct Word {
    slot: u16,
    cold: [u8; Cold::BYTES],
}

impl Word {
    fn cold(&self) -> Cold {
        Cold::of_bytes(self.cold).expect("it was written down here")
    }

    fn may_be(&self, key: &Key<'_>) -> bool {
        self.slot == key.slot.0 && self.cold().may_be(key.position)
    }
}

/// Words of cold objects of one database, each as it was when its slot was gathered.
pub struct Gathered<'k> {
    keyspace: &'k Keyspace,
    shelf: &'k dyn Shelf,
    /// By its constant number.
    number: u32,
    words: Vec<Word>,
    words_max: usize,
    /// Keys whose cold words are of older versions.
    shadowing: HashSet<Box<[u8]>>,
    /// How many words are read, once they are sorted.
    read: usize,
    /// Since the first word was gathered.
    kept: Option<Box<dyn Any + Send>>,
}

impl Keyspace {
    /// Begins to gather words of a database, by its constant number, about so many bytes of them at a time. None: objects are in memory, all
    /// of them.
    pub fn gather(&self, number: u32, bytes: usize) -> Option<Gathered<'_>> {
        let shelf = &**self.shelf.get()?;
        let words_max = (bytes / size_of::<Word>()).max(1);
        let keys = usize::try_from(self.database_at(number).len(Change::default())).unwrap_or(usize::MAX);
        // A list that grows is there twice.
        let words = Vec::with_capacity(words_max.min(keys));
        let shadowing = HashSet::new();
        Some(Gathered { keyspace: self, shelf, number, words, words_max, shadowing, read: 0, kept: None })
    }
}

impl SlotView<'_> {
    /// Shows what is in memory, as [`SlotView::visit`] does, and gathers what is not.
    pub fn gather(&self, gathered: &mut Gathered<'_>, mut visit: impl FnMut(Object<'_>)) {
        let slot = self.slot().0;
        self.keys.table().scan_entries(Position(0), usize::MAX, |entry| match entry {
            Entry::Block(object) => {
                if object.is_shadowing() {
                    gathered.shadowing.insert(object.key().into());
                }
                visit(object);
            }
            Entry::Cold(cold) => gathered.words.push(Word { slot, cold: cold.to_bytes() }),
        });
    }
}

impl Gathered<'_> {
    /// Has what is gathered from now on stay where it lies. To be called before a slot is locked to be gathered.
    pub fn keep(&mut self) {
        if self.kept.is_none() {
            self.kept = Some(self.shelf.keep());
        }
    }

    /// Whether it is time to read.
    pub fn is_full(&self) -> bool {
        self.words.len() >= self.words_max
    }

    /// Shows some more of the objects that were gathered, in the order in which they lie. False: all were shown, and nothing is gathered
    /// now. What cannot be read is told to `pass`, for each word.
    pub fn read_on(&mut self, mut visit: impl FnMut(Object<'_>), mut pass: impl FnMut(Unreadable)) -> bool {
        if self.read == 0 {
            self.words.sort_unstable_by_key(|word| word.cold().at);
        }
        let stretch = self.next_stretch();
        if stretch.is_empty() {
            self.words.clear();
            self.shadowing.clear();
            (self.read, self.kept) = (0, None);
            return false;
        }
        self.read = stretch.end;
        self.read_stretch(&self.words[stretch], &mut visit, &mut pass);
        true
    }

    /// The words of so many places.
    fn next_stretch(&self) -> Range<usize> {
        let mut end = self.read;
        let pages = self.words[end..].chunk_by(|one, other| one.cold().at == other.cold().at);
        pages.take(PLACES).for_each(|page| end += page.len());
        self.read..end
    }

    fn read_stretch(
        &self,
        words: &[Word],
        visit: &mut dyn FnMut(Object<'_>),
        pass: &mut dyn FnMut(Unreadable),
    ) {
        let mut places: Vec<u32> = words.iter().map(|word| word.cold().at).collect();
        places.dedup();
        let of_place = |at: u32| {
            let first = words.partition_point(|word| word.cold().at < at);
            first..first + words[first..].partition_point(|word| word.cold().at == at)
        };
        let mut is_found = vec![false; words.len()];
        let mut is_meant = |at, there, bytes: &[u8]| {
            there == self.number && {
                let key = self.key(bytes);
                words[of_place(at)].iter().any(|word| word.may_be(&key))
            }
        };
        self.shelf.visit_in_order(&places, &mut is_meant, &mut |at, record| {
            let key = self.key(&record.key);
            let found = of_place(at).find(|index| !is_found[*index] && words[*index].may_be(&key));
            if let (Some(index), Ok(block)) = (found, block_of(&record, at)) {
                is_found[index] = true;
                self.show(&Detached::new(block), visit);
            }
        });
        // What an error has kept back says by itself what became of it.
        for (word, _) in words.iter().zip(is_found).filter(|(_, is_found)| !is_found) {
            let reader = self.keyspace.slot_reader((self.number, Slot(word.slot)));
            match reader.expect("there is a shelf").load_cold(word.cold()) {
                Ok(object) => self.show(&object, visit),
                Err(error) => pass(error),
            }
        }
    }

    fn key<'b>(&self, bytes: &'b [u8]) -> Key<'b> {
        self.keyspace.key(DbIndex(0), bytes)
    }

    /// Shows a cold object unless it is an older version of one in memory.
    fn show(&self, object: &Detached, visit: &mut dyn FnMut(Object<'_>)) {
        if !self.shadowing.contains(object.object().key()) {
            visit(object.object());
        }
    }
}

impl Batch<'_> {
    /// Calls `visit` for every object of a database, for whoever holds everything. What cannot be read is passed by, and the batch knows.
    pub(crate) fn for_each_as_it_lies(&self, db: DbIndex, mut visit: impl FnMut(Object<'_>)) {
        let number = self.keyspace.physical(db);
        let gathered = self.keyspace.gather(number, HELD_BYTES);
        let mut gathered = gathered.expect("it is asked where there is a shelf");
        let read = |gathered: &mut Gathered<'_>, visit: &mut dyn FnMut(Object<'_>)| {
            while gathered.read_on(&mut *visit, |error| self.note_unreadable(error)) {}
        };
        let slots = self.keyspace.database(db).used_slots().unwrap_or_default();
        for (slot, _) in slots.iter().enumerate().filter(|(_, slot)| slot.has_keys()) {
            gathered.keep();
            self.look_into(number, Slot(slot as u16), |view| view.gather(&mut gathered, &mut visit));
            if gathered.is_full() {
                read(&mut gathered, &mut visit);
            }
        }
        read(&mut gathered, &mut visit);
    }
}
