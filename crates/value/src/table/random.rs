//! Picking a block of a table at random, each exactly as likely as any other
//! (SPOP, SRANDMEMBER, HRANDFIELD, ZRANDMEMBER). Collections have all their blocks in memory.
//!
//! A random index of a random segment is taken unless it is beyond the segment's
//! array or a gap. Segments are mostly more than half full, so a few tries do;
//! where they are not, the blocks are counted instead.

use super::{Handle, Place, Table};
use crate::limits::{TABLE_DEPTH_MAX, TABLE_RANDOM_TRIES_MAX, TABLE_SEGMENT_WORDS_MAX};

impl<H: Handle> Table<H> {
    /// A block picked by numbers from a source of random bits. None if the table is empty.
    pub fn random(&self, random: impl FnMut() -> u64) -> Option<H> {
        self.random_place(random).map(|place| self.get(place))
    }

    /// The place of such a block.
    pub fn random_place(&self, mut random: impl FnMut() -> u64) -> Option<Place> {
        if self.is_empty() {
            return None;
        }
        let tries = if self.has_long_segments() { 0 } else { TABLE_RANDOM_TRIES_MAX };
        let tried = (0..tries).find_map(|_| self.try_random(random()));
        Some(tried.unwrap_or_else(|| self.nth(scale(random(), self.len()))))
    }

    /// Whether segments may have outgrown the length up to which indices are tried:
    /// their words would be picked too rarely.
    fn has_long_segments(&self) -> bool {
        self.directory.as_ref().is_some_and(|directory| directory.depth >= TABLE_DEPTH_MAX)
    }

    fn try_random(&self, random: u64) -> Option<Place> {
        let (segment, indices) = match &self.directory {
            None => (0, self.root.words().len()),
            Some(directory) => (scale(random, directory.segments.len()) + 1, TABLE_SEGMENT_WORDS_MAX),
        };
        // The segment came from the upper half of the bits.
        let index = scale(random << 32, indices);
        let word = self.segment(segment).words().get(index)?;
        (!word.is_gap()).then_some(Place { segment, index })
    }

    /// The place of the word before which there are `count` others.
    fn nth(&self, mut count: usize) -> Place {
        for (segment, words) in self.segments().enumerate() {
            if count < words.used() {
                let index = words.index_of_nth(count);
                return Place { segment, index };
            }
            count -= words.used();
        }
        unreachable!("fewer words are before it than there are")
    }
}

/// A number in `0..bound` from random bits; the first ones matter most.
#[expect(clippy::cast_possible_truncation, reason = "it is below `bound`")]
fn scale(random: u64, bound: usize) -> usize {
    ((u128::from(random) * bound as u128) >> 64) as usize
}
