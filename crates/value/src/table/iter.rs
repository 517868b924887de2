//! Going over all blocks of a table.
//!
//! Blocks lie all over the heap, so each is a cache miss in a large table: the
//! iterator asks for those some words ahead while its user works on one.

use super::segment::{Segment, Word};
use super::{Handle, Table, handle_at};
use std::marker::PhantomData;
use sys::prefetch::prefetch;

/// How many words ahead blocks are fetched: enough to hide a miss behind a copy of a
/// short member.
const AHEAD: usize = 12;

/// All blocks of a table that are in memory (see [`Table::iter`]).
#[derive(Debug)]
pub struct Iter<'a, H: Handle> {
    /// What is left of the present segment.
    words: &'a [Word],
    /// The segments after it.
    segments: std::slice::Iter<'a, Segment<H::Words>>,
    handles: PhantomData<&'a H>,
}

impl<'a, H: Handle> Iter<'a, H> {
    pub(super) fn new(table: &'a Table<H>) -> Iter<'a, H> {
        let split = table.directory.as_ref().map_or(&[][..], |directory| &directory.segments);
        Iter { words: table.root.words(), segments: split.iter(), handles: PhantomData }
    }
}

impl<H: Handle> Clone for Iter<'_, H> {
    fn clone(&self) -> Self {
        Iter { words: self.words, segments: self.segments.clone(), handles: PhantomData }
    }
}

impl<H: Handle> Iterator for Iter<'_, H> {
    type Item = H;

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "addresses have 64 bits")]
    fn next(&mut self) -> Option<H> {
        loop {
            let Some((word, rest)) = self.words.split_first() else {
                self.words = self.segments.next()?.words();
                continue;
            };
            self.words = rest;
            if let Some(ahead) = rest.get(AHEAD).filter(|ahead| !ahead.is_cold()) {
                // A gap's address is 0, and fetching that does nothing.
                prefetch(ahead.address() as usize);
            }
            if !word.is_gap() && !word.is_cold() {
                return Some(handle_at(word.address()));
            }
        }
    }
}
