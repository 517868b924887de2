//! Residency: which objects are in memory, and which are on disk only (capacity edition).
//!
//! Every key has its word in its slot's table. That of an object on disk, a *cold* one, says where it lies; its key is there
//! too. Who looks for a cold key has it read by the [`Shelf`] ([`load`]); who needs memory sends objects away that were not
//! used of late ([`spill`]). Handlers see nothing of this: the keys of a command are in memory before it runs, and what else
//! it looks at is lent to it.
//!
//! An object in memory that also lies on disk, unchanged, says where (`at` in its block): it can go at any time. Whatever may
//! change it takes that away first. One that was stored without a look at the disk may be *shadowing* an older version there
//! ([`shadow`]).
//!
//! Whoever goes round over the slots, or has copies of objects on their way, goes by the databases' constant numbers ([`Keyspace::numbers`]):
//! SWAPDB exchanges the numbers that commands use at any moment in between.
//!
//! Thread rule: a slot's words change with its lock held. A shelf is asked by any thread, with slots locked.
//!
//! Invariants:
//! 1. A cold word says where its object lies, and nothing changes what lies there while a word says so.
//! 2. Of two keys of a slot whose words could not be told apart only one lies in a page.
//! 3. Hashes with fields that expire stay in memory: the slot's timers must find them.
//! 4. A key has two words only while it is in memory and its block says that it is shadowing: the cold one is its older version's,
//!    which nobody is shown. Of a key that is not in memory the cold word is what it holds.
//! 5. Before a shadowing object leaves memory, changes otherwise than by being replaced or is freed, it is resolved: its older
//!    version's word is found by the key that lies there, and goes; words of other keys stay. If that cannot be read it stays.
//! 6. A shadowing object does not say where it lies, and no copy of it is on its way.

pub mod ahead;
pub mod clean;
pub mod density;
mod evict;
mod gathered;
pub mod index;
mod load;
mod record;
pub mod shadow;
pub mod spill;

#[cfg(test)]
mod tests;

use crate::keyspace::{Batch, Keyspace};
use crate::locks::SlotId;
use crate::locks::fair::Lock;
use crate::slot::SlotKeys;
use std::any::Any;
use std::fmt;
use std::ops::ControlFlow;
use sys::UnixMs;

pub use gathered::Gathered;

/// Where objects lie that are not in memory.
pub trait Shelf: Send + Sync {
    /// Gives the records at this place whose database and key `is_meant` accepts, until there is enough.
    ///
    /// # Errors
    /// One sentence: what could not be read, and why.
    fn visit(
        &self,
        at: u32,
        is_meant: &mut dyn FnMut(u32, &[u8]) -> bool,
        take: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<(), Unreadable>;

    /// The first of these. None: there is none.
    ///
    /// # Errors
    /// As [`Shelf::visit`].
    fn read(&self, at: u32, is_it: &mut dyn FnMut(u32, &[u8]) -> bool) -> Result<Option<Record>, Unreadable> {
        let mut found = None;
        self.visit(at, is_it, &mut |record| {
            found = Some(record);
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// Gives the records at these places, which ascend, whose place, database and key `is_meant` accepts; with fewer reads than one for each
    /// where it can. What cannot be read is left out: [`Shelf::visit`] says why.
    fn visit_in_order(
        &self,
        places: &[u32],
        is_meant: &mut dyn FnMut(u32, u32, &[u8]) -> bool,
        take: &mut dyn FnMut(u32, Record),
    ) {
        for at in places.iter().copied() {
            let _ = self.visit(at, &mut |there, key| is_meant(at, there, key), &mut |record| {
                take(at, record);
                ControlFlow::Continue(())
            });
        }
    }

    /// Keeps what lies at all places that words say now, whatever becomes of the words, until what this gives is dropped.
    fn keep(&self) -> Box<dyn Any + Send>;

    /// Counts a record at this place as dead: its key has changed. Not all that die are told; see [`clean`].
    fn note_dead(&self, at: u32);

    /// So many keys went with their databases, whose records are not told one by one. Called with the keyspace held.
    fn note_cleared(&self, keys: u64);
}

/// An object as it lies on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its key.
    pub key: Vec<u8>,
    /// When it expires.
    pub expires_at: Option<UnixMs>,
    /// All else of it (see [`spill::Copied`]).
    pub image: Vec<u8>,
}

/// What lies on disk cannot be read. The text is one sentence for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable(pub String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

impl Keyspace {
    /// Names the shelf on which objects lie that are not in memory. Called before the first client.
    ///
    /// # Panics
    /// If there is one already.
    pub fn set_shelf(&self, shelf: Box<dyn Shelf>) {
        let is_first = self.shelf.set(shelf).is_ok();
        assert!(is_first, "a keyspace has one shelf");
    }

    /// What lies at this place is no key's any more.
    #[inline]
    pub(crate) fn note_dead(&self, at: Option<u32>) {
        if let (Some(at), Some(shelf)) = (at, self.shelf.get()) {
            shelf.note_dead(at);
        }
    }

    /// So many keys went with their databases.
    pub(crate) fn note_cleared(&self, keys: u64) {
        if let Some(shelf) = self.shelf.get().filter(|_| keys > 0) {
            shelf.note_cleared(keys);
        }
    }

    /// Whether objects may be elsewhere than in memory.
    #[inline]
    pub(crate) fn has_shelf(&self) -> bool {
        self.shelf.get().is_some()
    }
}

impl Keyspace {
    /// A slot that has keys.
    fn slot_with_keys(&self, (physical, slot): SlotId) -> Option<&Lock<SlotKeys>> {
        let cell = &self.database_at(physical).used_slots()?[usize::from(slot.0)];
        cell.has_keys().then_some(&cell.keys)
    }
}

impl Batch<'_> {
    /// Whether keys may be elsewhere than in memory.
    #[inline]
    pub fn has_shelf(&self) -> bool {
        self.keyspace.has_shelf()
    }

    /// Notes that something that was looked for could not be read: what the command found counts for nothing.
    pub(crate) fn note_unreadable(&self, error: Unreadable) {
        self.unreadable.borrow_mut().get_or_insert(error);
        self.passed.set(self.passed.get() + 1);
    }

    /// How often something could not be read since this was last asked.
    pub fn take_passed(&self) -> u64 {
        self.passed.take()
    }

    /// Whether that was noted.
    #[inline]
    pub(crate) fn has_unreadable(&self) -> bool {
        self.keyspace.has_shelf() && self.unreadable.borrow().is_some()
    }

    /// What could not be read since this was last asked. The command at hand has to fail with it.
    #[inline]
    pub fn take_unreadable(&self) -> Option<Unreadable> {
        if !self.keyspace.has_shelf() {
            return None;
        }
        self.unreadable.borrow_mut().take()
    }
}
