//! Picking a block of a table at random, each exactly as likely as any other
//! (SPOP, SRANDMEMBER, HRANDFIELD, ZRANDMEMBER).
//!
//! A random index of a random segment is taken unless it is beyond the segment's
//! array or a gap. Segments are mostly more than half full, so a few tries do;
//! where they are not, the blocks are counted instead.

use super::segment::{Segment, Word};
use super::{Handle, Table, handle_at};
use crate::limits::{TABLE_DEPTH_MAX, TABLE_RANDOM_TRIES_MAX, TABLE_SEGMENT_WORDS_MAX};

impl<H: Handle> Table<H> {
    /// A block picked by numbers from a source of random bits. None if the table is empty.
    pub fn random(&self, mut random: impl FnMut() -> u64) -> Option<H> {
        if self.is_empty() {
            return None;
        }
        let tries = if self.has_long_segments() { 0 } else { TABLE_RANDOM_TRIES_MAX };
        let tried = (0..tries).find_map(|_| self.try_random(random()));
        let word = tried.unwrap_or_else(|| self.nth(scale(random(), self.len())));
        Some(handle_at(word.address()))
    }

    /// Whether segments may have outgrown the length up to which indices are tried:
    /// their words would be picked too rarely.
    fn has_long_segments(&self) -> bool {
        self.directory.as_ref().is_some_and(|directory| directory.depth >= TABLE_DEPTH_MAX)
    }

    fn try_random(&self, random: u64) -> Option<Word> {
        let (segment, indices) = match &self.directory {
            None => (&self.root, self.root.words().len()),
            Some(directory) => {
                let segments = &directory.segments;
                (&segments[scale(random, segments.len())], TABLE_SEGMENT_WORDS_MAX)
            }
        };
        // The segment came from the upper half of the bits.
        let index = scale(random << 32, indices);
        segment.words().get(index).copied().filter(|word| !word.is_gap())
    }

    /// The word before which there are `count` others.
    fn nth(&self, mut count: usize) -> Word {
        let mut holds_it = |segment: &&Segment| {
            let holds_it = count < segment.used();
            count -= if holds_it { 0 } else { segment.used() };
            holds_it
        };
        let segment = self.segments().find(&mut holds_it).expect("fewer words are before it than there are");
        segment.iter().nth(count).expect("the segment has more words than are before it")
    }
}

/// A number in `0..bound` from random bits; the first ones matter most.
fn scale(random: u64, bound: usize) -> usize {
    ((u128::from(random) * bound as u128) >> 64) as usize
}
