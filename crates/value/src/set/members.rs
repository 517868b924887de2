//! The native form of a set: a table of entries, each a member's bytes.
//!
//! Thread rule: as of tables.
//!
//! Invariant: no two entries have the same bytes.

#![allow(unsafe_code)] // Reads the entries that its table owns; fuzzed by tests.rs beside it.

use crate::entry::Entry;
use crate::table::{self, Blocks, Place, Position, position_of};
use std::fmt;

/// The members of a large set.
#[derive(Default)]
pub struct Members {
    table: Blocks<Entry<0>>,
}

impl Members {
    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Whether a text is a member.
    #[inline]
    pub fn contains(&self, text: &[u8]) -> bool {
        self.contains_at(position_of(text), text)
    }

    /// As [`Members::contains`], for a text whose position is known.
    #[inline]
    pub fn contains_at(&self, position: Position, text: &[u8]) -> bool {
        self.find(position, text).is_some()
    }

    /// The address of the word where a search for this position begins, for prefetching.
    #[inline]
    pub fn home_address(&self, position: Position) -> usize {
        self.table.home_address(position)
    }

    /// The address of the entry that a search for the position is likely to look at.
    #[inline]
    pub fn likely_address(&self, position: Position) -> Option<u64> {
        self.table.likely_address(position)
    }

    /// Adds a member. False: it was there.
    pub fn insert(&mut self, text: &[u8]) -> bool {
        let position = position_of(text);
        let is_new = self.find(position, text).is_none();
        if is_new {
            self.insert_new(position, text);
        }
        is_new
    }

    /// Adds a member that is not there.
    pub(super) fn insert_new(&mut self, position: Position, text: &[u8]) {
        debug_assert_eq!(position, position_of(text));
        let entry = Entry::new([], &[text]);
        // SAFETY: the entry is new and given up to the table, and those that the table
        // asks about are alive.
        unsafe { self.table.insert(position, entry, |entry| position_of(entry.bytes())) }
    }

    /// Takes a member away. False: it was not there.
    pub fn remove(&mut self, text: &[u8]) -> bool {
        let position = position_of(text);
        let Some(place) = self.find(position, text) else { return false };
        self.table.free(place, || position);
        true
    }

    /// All members.
    pub fn iter(&self) -> Iter<'_> {
        Iter { entries: self.table.iter() }
    }

    /// A member picked by numbers from a source of random bits, each as likely as
    /// any other. None if there are none.
    pub fn random(&self, random: impl FnMut() -> u64) -> Option<&[u8]> {
        self.table.random(random).map(|entry| self.shown(entry))
    }

    /// Takes out a member picked as by [`Members::random`], and shows it first.
    pub fn pop(&mut self, random: impl FnMut() -> u64, visit: impl FnOnce(&[u8])) {
        let Some(place) = self.table.random_place(random) else { return };
        let entry = self.table.get(place);
        visit(self.shown(entry));
        // SAFETY: the entry is alive until the position is known.
        self.table.free(place, || position_of(unsafe { entry.bytes() }));
    }

    /// A copy as it is now, made in no time and to be read only.
    pub(crate) fn frozen(&self) -> Members {
        Members { table: self.table.copy() }
    }

    /// Calls `visit` for members from a position on (see [`Table::scan`]).
    pub fn scan<'a>(
        &'a self,
        from: Position,
        enough: usize,
        mut visit: impl FnMut(&'a [u8]),
    ) -> Option<Position> {
        self.table.scan(from, enough, |entry| visit(self.shown(entry)))
    }

    /// Bytes of memory that the table and its entries take, estimated from the first
    /// `samples` entries (0: from all).
    #[expect(clippy::cast_possible_truncation, reason = "sizes have 64 bits")]
    pub fn bytes(&self, samples: usize) -> usize {
        let samples = if samples == 0 { self.len() } else { samples.min(self.len()) };
        // SAFETY: the table's entries are alive.
        let sampled: usize =
            self.table.iter().take(samples).map(|entry| unsafe { entry.memory_bytes() }).sum();
        let entries = sampled as f64 / samples.max(1) as f64 * self.len() as f64;
        self.table.bytes() + entries as usize
    }

    #[inline]
    fn find(&self, position: Position, text: &[u8]) -> Option<Place> {
        self.table.find(position, |entry| self.shown(entry) == text)
    }

    /// The bytes of one of the table's entries.
    #[inline]
    fn shown(&self, entry: Entry<0>) -> &[u8] {
        // SAFETY: the entry is alive and never changed, and the borrow keeps it so.
        unsafe { entry.bytes() }
    }
}

impl Clone for Members {
    fn clone(&self) -> Self {
        let mut copy = Members::default();
        self.iter().for_each(|text| copy.insert_new(position_of(text), text));
        copy
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} members", self.len())
    }
}

/// All members of a native set.
#[derive(Clone)]
pub struct Iter<'a> {
    entries: table::Iter<'a, Entry<0>>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        // SAFETY: the table owns the entry, and its borrow for 'a keeps it alive and unchanged.
        self.entries.next().map(|entry| unsafe { entry.bytes() })
    }
}
