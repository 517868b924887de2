//! Large sorted sets: a table from members to scores, and a tree in order.
//!
//! An entry of the table is a member with its score in the header; the tree's handles
//! are the same entries. Neither ever stalls for growth: the table splits segment by
//! segment, the tree node by node.
//!
//! Thread rule: plain data; whoever owns it may send it anywhere.
//!
//! Invariants:
//! 1. Table and tree hold the same entries, and an entry's header is its score in the tree.
//! 2. An entry is freed only after the tree has let go of it.

#![allow(unsafe_code)] // Reads the entries that the table owns; fuzzed by tests.rs beside it.

use super::tree::{self, Tree};
use super::{LexRange, ScoreRange, Updated};
use crate::entry::Entry;
use crate::listpack::Element;
use crate::table::{Blocks, POSITION_BITS, Place, Position, position_of};
use std::ops::Range;

/// A member, with its score in the header.
type Scored = Entry<8>;

/// An entry as the tree knows it. Made by [`Native`] only, whose table keeps it alive.
#[derive(Clone, Copy, Debug)]
struct Ranked(Scored);

impl Ranked {
    /// The member. It lives as long as its sorted set is not changed.
    #[inline]
    fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: invariant 2; those who pass the bytes on bind them to a borrow of the set.
        unsafe { self.0.bytes() }
    }
}

impl tree::Handle for Ranked {
    #[inline]
    fn member(&self) -> &[u8] {
        self.bytes()
    }
}

/// A sorted set with a table and a tree.
#[derive(Debug, Default)]
pub struct Native {
    order: Tree<Ranked>,
    members: Blocks<Scored>,
}

impl Clone for Native {
    fn clone(&self) -> Native {
        let mut copy = Native::default();
        for (handle, score) in self.order.range(0..self.len()).map(|(score, handle)| (handle, score)) {
            copy.insert(handle.bytes(), score);
        }
        copy
    }
}

impl Native {
    /// The address of the word where a search for this position begins, for prefetching.
    #[inline]
    pub fn home_address(&self, position: Position) -> usize {
        self.members.home_address(position)
    }

    /// The address of the entry that such a search is likely to look at.
    #[inline]
    pub fn likely_address(&self, position: Position) -> Option<u64> {
        self.members.likely_address(position)
    }

    /// How many members there are.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Adds a member that is not there.
    pub(super) fn insert(&mut self, member: &[u8], score: f64) {
        self.insert_at(position_of(member), member, score);
    }

    fn insert_at(&mut self, position: Position, member: &[u8], score: f64) {
        let entry = Scored::new(score.to_bits().to_le_bytes(), &[member]);
        // SAFETY: the entry is new, and the table's own entries are alive.
        unsafe { self.members.insert(position, entry, |other| position_of(other.bytes())) };
        self.order.insert(score, Ranked(entry));
    }

    /// See [`super::Zset::update`].
    pub(super) fn update<E>(
        &mut self,
        member: &[u8],
        decide: impl FnOnce(Option<f64>) -> Result<Option<f64>, E>,
    ) -> Result<Updated, E> {
        let position = position_of(member);
        let Some(entry) = self.find(position, member).map(|place| self.members.get(place)) else {
            return Ok(match decide(None)? {
                Some(score) => {
                    self.insert_at(position, member, score);
                    Updated::Added(score)
                }
                None => Updated::Nothing,
            });
        };
        let old = score_of(entry);
        let Some(score) = decide(Some(old))? else { return Ok(Updated::Nothing) };
        if score == old {
            return Ok(Updated::Same(score));
        }
        self.order.update(old, score, Ranked(entry));
        // SAFETY: the entry is alive, the borrow of the set is exclusive, and who reads a copy of the set reads no header.
        unsafe { entry.set_header(score.to_bits().to_le_bytes()) };
        Ok(Updated::Changed(score))
    }

    /// Takes a member out; its score, if it was there.
    pub(super) fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let position = position_of(member);
        let place = self.find(position, member)?;
        let score = score_of(self.members.get(place));
        self.order.remove(score, member).expect("the tree holds what the table holds");
        self.members.free(place, || position);
        Some(score)
    }

    /// Takes out the members of some ranks.
    pub(super) fn remove_range(&mut self, ranks: Range<usize>) {
        let end = ranks.end.min(self.len());
        for _ in ranks.start..end {
            let (_, Ranked(entry)) = self.order.remove_at(ranks.start).expect("the rank is below the length");
            // SAFETY: the entry is alive until it is freed below.
            let position = position_of(unsafe { entry.bytes() });
            let place = self.members.find(position, |other| other == entry);
            self.members.free(place.expect("the table holds what the tree held"), || position);
        }
    }

    /// A copy as it is now, made in no time and to be read in its order only: the headers of entries change.
    pub(crate) fn frozen(&self) -> Native {
        Native { order: self.order.clone(), members: self.members.copy() }
    }

    fn find(&self, position: Position, member: &[u8]) -> Option<Place> {
        // SAFETY: entries in the table are alive.
        self.members.find(position, |entry| unsafe { entry.bytes() } == member)
    }

    /// A member's score.
    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        let place = self.find(position_of(member), member)?;
        Some(score_of(self.members.get(place)))
    }

    /// How many members come before one, and its score.
    pub(super) fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        let score = self.score(member)?;
        Some((self.order.rank(score, member), score))
    }

    /// The members of some ranks.
    pub(super) fn iter(&self, ranks: Range<usize>) -> Pairs<'_> {
        Pairs(self.order.range(ranks))
    }

    /// The member of a rank.
    pub(super) fn at(&self, rank: usize) -> Option<(Element<'_>, f64)> {
        self.order.at(rank).map(shown)
    }

    /// The first rank in a range of scores and the one behind the last.
    pub(super) fn ranks_by_score(&self, range: &ScoreRange) -> (usize, usize) {
        let count = |score, inclusive: bool| {
            if inclusive { self.order.count_through(score) } else { self.order.count_below(score) }
        };
        let start = count(range.min.score, range.min.is_exclusive);
        (start, count(range.max.score, !range.max.is_exclusive))
    }

    /// The same by members. Where scores differ the result means little, in Redis too; but there is
    /// none if the last member lies before the range or the first behind it.
    pub(super) fn ranks_by_lex(&self, range: &LexRange<'_>) -> (usize, usize) {
        let ends = self.order.at(0).zip(self.len().checked_sub(1).and_then(|last| self.order.at(last)));
        if ends.is_none_or(|((_, first), (_, last))| {
            range.is_before(last.bytes()) || range.is_behind(first.bytes())
        }) {
            return (0, 0);
        }
        let start = self.order.count_while(|_, handle| range.is_before(handle.bytes()));
        (start, self.order.count_while(|_, handle| !range.is_behind(handle.bytes())))
    }

    /// See [`super::ZsetRef::scan`].
    pub(super) fn scan<'a>(
        &'a self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(Element<'a>, f64),
    ) -> u64 {
        let from = Position::from_hash(cursor << (64 - POSITION_BITS));
        let next = self.members.scan(from, count, |entry| {
            let (member, score) = shown((score_of(entry), Ranked(entry)));
            visit(member, score);
        });
        next.map_or(0, |position| position.0)
    }

    /// Bytes of memory, estimated from at most `samples` members (0: from all).
    pub(super) fn allocated_bytes(&self, samples: usize) -> usize {
        let samples = if samples == 0 { self.len() } else { samples.min(self.len()) };
        // SAFETY: entries in the table are alive.
        let sampled: usize =
            self.members.iter().take(samples).map(|entry| unsafe { entry.memory_bytes() }).sum();
        let entries = sampled.checked_div(samples).unwrap_or(0) * self.len();
        size_of::<Native>() + self.members.bytes() + self.order.bytes() + entries
    }

    /// Asserts the invariants.
    #[cfg(test)]
    pub(super) fn check(&self) {
        self.members.check();
        self.order.check();
        assert_eq!(self.order.len(), self.members.len());
        for (score, handle) in self.order.range(0..self.len()) {
            assert_eq!(self.score(handle.bytes()).map(f64::to_bits), Some(score.to_bits()));
        }
    }
}

#[inline]
fn score_of(entry: Scored) -> f64 {
    // SAFETY: callers have the entry from the table or the tree, where all are alive.
    f64::from_bits(u64::from_le_bytes(unsafe { entry.header() }))
}

fn shown<'a>((score, handle): (f64, Ranked)) -> (Element<'a>, f64) {
    (Element::Bytes(handle.bytes()), score)
}

/// Members with scores, from either end.
#[derive(Clone)]
pub struct Pairs<'a>(tree::Elements<'a, Ranked>);

impl Pairs<'_> {
    /// How many there are to come.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (Element<'a>, f64);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(shown)
    }
}

impl DoubleEndedIterator for Pairs<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(shown)
    }
}
