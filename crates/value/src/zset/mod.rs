//! Sorted sets: members, each with a score, in the order of score, then member.
//!
//! A small one is a listpack of members and scores in turn ([`packed`]); a large one
//! a table from member to score and a tree in order ([`native`]). Every range, by
//! rank, score or member, is a range of ranks first (`range`), so that what follows is
//! written once.
//!
//! Thread rule: plain data.
//!
//! Invariants:
//! 1. No score is NaN. Members are different.
//! 2. A sorted set becomes native where Redis 7.2 makes it one, and never becomes packed again.

pub mod image;
mod native;
mod packed;
mod range;
#[cfg(test)]
mod tests;
mod tree;

pub use native::Native;
pub use range::{LexBound, LexRange, ScoreBound, ScoreRange};

use crate::collection::{Collection, CollectionRef, Encoding, Form, Thresholds, Type};
use crate::listpack::{Element, Listpack, ListpackRef};
use std::ops::Range;

/// A sorted set.
#[derive(Clone, Debug)]
pub enum Zset {
    /// Members and scores in turn.
    Packed(Listpack),
    /// A table and a tree.
    Native(Box<Native>),
}

/// A sorted set to be read.
#[derive(Clone, Copy, Debug)]
pub enum ZsetRef<'a> {
    /// Members and scores in turn.
    Packed(ListpackRef<'a>),
    /// A table and a tree.
    Native(&'a Native),
}

/// What [`Zset::update`] did with a member.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Updated {
    /// Left it, or its absence, as it was.
    Nothing,
    /// Added it with this score.
    Added(f64),
    /// Gave it this score, which is another than before.
    Changed(f64),
    /// Found that it has this score already.
    Same(f64),
}

impl Zset {
    /// An empty one that is to take so many members of at most so many bytes.
    pub fn for_members(count: usize, member_bytes_max: usize, thresholds: &Thresholds) -> Zset {
        if is_small(count, member_bytes_max, thresholds) {
            Zset::Packed(Listpack::new())
        } else {
            Zset::Native(Box::default())
        }
    }

    /// Makes ready for so many members, as ZADD names them: many at once make the set native even if they
    /// turn out to be there already.
    pub fn expect_members(&mut self, count: usize, thresholds: &Thresholds) {
        if count > thresholds.zset_max_listpack_entries {
            self.make_native();
        }
    }

    /// One of these members, which are different, in any order.
    pub fn from_members<M: AsRef<[u8]>>(mut members: Vec<(M, f64)>, thresholds: &Thresholds) -> Zset {
        sort_members(&mut members);
        let longest = members.iter().map(|(member, _)| member.as_ref().len()).max().unwrap_or(0);
        let total: usize = members.iter().map(|(member, _)| member.as_ref().len()).sum();
        let is_packed = is_small(members.len(), longest, thresholds) && Listpack::may_grow(0, total);
        if is_packed {
            let mut listpack = Listpack::new();
            members.iter().for_each(|(member, score)| packed::push(&mut listpack, member.as_ref(), *score));
            return Zset::Packed(listpack);
        }
        Zset::native_of(members)
    }

    /// The same, never packed.
    fn native_of<M: AsRef<[u8]>>(members: Vec<(M, f64)>) -> Zset {
        let mut native = Box::<Native>::default();
        members.iter().for_each(|(member, score)| native.insert(member.as_ref(), *score));
        Zset::Native(native)
    }

    /// Looks a member up and gives it the score that `decide` makes of its present one (None: it is not
    /// there). If that is None, nothing changes.
    ///
    /// # Errors
    /// Those of `decide`.
    pub fn update<E>(
        &mut self,
        member: &[u8],
        thresholds: &Thresholds,
        decide: impl FnOnce(Option<f64>) -> Result<Option<f64>, E>,
    ) -> Result<Updated, E> {
        let listpack = match self {
            Zset::Native(native) => return native.update(member, decide),
            Zset::Packed(listpack) => listpack,
        };
        let found = packed::find(listpack.as_ref(), member);
        let old = found.map(|(_, score)| score);
        let Some(score) = decide(old)? else { return Ok(Updated::Nothing) };
        if let Some((at, old)) = found {
            if old == score {
                return Ok(Updated::Same(score));
            }
            packed::remove(listpack, at);
            packed::insert(listpack, member, score);
            return Ok(Updated::Changed(score));
        }
        let count = listpack.as_ref().len() / 2 + 1;
        let bytes = listpack.as_ref().bytes().len();
        if is_small(count, member.len(), thresholds) && Listpack::may_grow(bytes, member.len()) {
            packed::insert(listpack, member, score);
        } else {
            self.make_native().insert(member, score);
        }
        Ok(Updated::Added(score))
    }

    /// Takes a member out; its score, if it was there.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match self {
            Zset::Packed(listpack) => {
                let (at, score) = packed::find(listpack.as_ref(), member)?;
                packed::remove(listpack, at);
                Some(score)
            }
            Zset::Native(native) => native.remove(member),
        }
    }

    /// Takes out the members of some ranks, which are cut to those that exist.
    pub fn remove_range(&mut self, ranks: Range<usize>) {
        match self {
            Zset::Packed(listpack) => packed::remove_range(listpack, ranks),
            Zset::Native(native) => native.remove_range(ranks),
        }
    }

    /// Becomes native, if it is not.
    fn make_native(&mut self) -> &mut Native {
        if let Zset::Packed(_) = self {
            let mut native = Box::<Native>::default();
            let zset = self.as_ref();
            for (member, score) in zset.iter(0..zset.len()) {
                native.insert(member.bytes(&mut itoa::Buffer::new()), score);
            }
            *self = Zset::Native(native);
        }
        match self {
            Zset::Native(native) => native,
            Zset::Packed(_) => unreachable!("it was replaced above"),
        }
    }
}

/// Puts members with their scores into the order of sorted sets.
pub fn sort_members<M: AsRef<[u8]>>(members: &mut [(M, f64)]) {
    members.sort_unstable_by(|(left, left_score), (right, right_score)| {
        let by_score = left_score.partial_cmp(right_score).expect("no score is NaN");
        by_score.then_with(|| left.as_ref().cmp(right.as_ref()))
    });
}

/// Whether a sorted set of so many members of at most so many bytes is packed.
fn is_small(count: usize, member_bytes_max: usize, thresholds: &Thresholds) -> bool {
    count <= thresholds.zset_max_listpack_entries && member_bytes_max <= thresholds.zset_max_listpack_value
}

impl<'a> ZsetRef<'a> {
    /// The one whose compact encoding these bytes are.
    pub fn from_compact(bytes: &'a [u8]) -> ZsetRef<'a> {
        ZsetRef::Packed(ListpackRef::new(bytes))
    }

    /// How many members there are.
    #[expect(clippy::len_without_is_empty, reason = "a sorted set in the keyspace is never empty")]
    pub fn len(self) -> usize {
        match self {
            ZsetRef::Packed(listpack) => listpack.len() / 2,
            ZsetRef::Native(native) => native.len(),
        }
    }

    /// A member's score.
    pub fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            ZsetRef::Packed(listpack) => packed::find(listpack, member).map(|(_, score)| score),
            ZsetRef::Native(native) => native.score(member),
        }
    }

    /// How many members come before one, and its score.
    pub fn rank(self, member: &[u8]) -> Option<(usize, f64)> {
        match self {
            ZsetRef::Packed(listpack) => packed::rank(listpack, member),
            ZsetRef::Native(native) => native.rank(member),
        }
    }

    /// The members of some ranks, which are cut to those that exist, from either end.
    pub fn iter(self, ranks: Range<usize>) -> Elements<'a> {
        let end = ranks.end.min(self.len());
        let ranks = ranks.start.min(end)..end;
        match self {
            ZsetRef::Packed(listpack) => Elements::Packed(packed::Pairs::new(listpack, ranks)),
            ZsetRef::Native(native) => Elements::Native(native.iter(ranks)),
        }
    }

    /// The member of a rank.
    pub fn at(self, rank: usize) -> Option<(Element<'a>, f64)> {
        match self {
            ZsetRef::Packed(listpack) => packed::at(listpack, rank),
            ZsetRef::Native(native) => native.at(rank),
        }
    }

    /// The ranks of the members with scores in a range.
    pub fn ranks_by_score(self, range: &ScoreRange) -> Range<usize> {
        let (start, end) = match self {
            ZsetRef::Packed(listpack) => packed::ranks_by_score(listpack, range),
            ZsetRef::Native(native) => native.ranks_by_score(range),
        };
        start..end.max(start)
    }

    /// The ranks of the members in a range of members, where all scores are equal.
    /// Where they are not, the result of a packed set is the one that Redis finds when it
    /// goes forward or backward.
    pub fn ranks_by_lex(self, range: &LexRange<'_>, direction: Direction) -> Range<usize> {
        let (start, end) = match self {
            _ if range.is_empty() => (0, 0),
            ZsetRef::Packed(listpack) => packed::ranks_by_lex(listpack, range, direction),
            ZsetRef::Native(native) => native.ranks_by_lex(range),
        };
        start..end.max(start)
    }

    /// Calls `visit` for members from a cursor on, at least `count` of a native set, and
    /// returns the next cursor, 0 at the end. A packed one is visited as a whole.
    /// Members that are there throughout are visited at least once.
    pub fn scan(self, cursor: u64, count: usize, mut visit: impl FnMut(Element<'a>, f64)) -> u64 {
        match self {
            ZsetRef::Packed(_) => {
                self.iter(0..usize::MAX).for_each(|(member, score)| visit(member, score));
                0
            }
            ZsetRef::Native(native) => native.scan(cursor, count, visit),
        }
    }

    /// OBJECT ENCODING's answer.
    pub fn encoding(self) -> Encoding {
        match self {
            ZsetRef::Packed(_) => Encoding::Listpack,
            ZsetRef::Native(_) => Encoding::Skiplist,
        }
    }

    /// Bytes of memory outside the key's block, estimated from at most `samples` members (0: all).
    pub fn allocated_bytes(self, samples: usize) -> usize {
        match self {
            ZsetRef::Packed(_) => 0,
            ZsetRef::Native(native) => native.allocated_bytes(samples),
        }
    }

    /// How many separate allocations it has, roughly.
    pub fn pieces(self) -> usize {
        match self {
            ZsetRef::Packed(_) => 0,
            ZsetRef::Native(native) => native.len() + 1,
        }
    }

    /// A copy of its own.
    pub fn to_owned(self) -> Zset {
        match self {
            ZsetRef::Packed(listpack) => Zset::Packed(Listpack::from_bytes(listpack.bytes().to_vec())),
            ZsetRef::Native(native) => Zset::Native(Box::new(native.clone())),
        }
    }
}

/// Which way a range is gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the least score on.
    Forward,
    /// From the greatest score on.
    Backward,
}

/// Members with scores, from either end.
#[derive(Clone)]
pub enum Elements<'a> {
    /// Of a packed set.
    Packed(packed::Pairs<'a>),
    /// Of a native set.
    Native(native::Pairs<'a>),
}

impl<'a> Iterator for Elements<'a> {
    type Item = (Element<'a>, f64);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Elements::Packed(pairs) => pairs.next(),
            Elements::Native(pairs) => pairs.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = match self {
            Elements::Packed(pairs) => pairs.len(),
            Elements::Native(pairs) => pairs.len(),
        };
        (len, Some(len))
    }
}

impl DoubleEndedIterator for Elements<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match self {
            Elements::Packed(pairs) => pairs.next_back(),
            Elements::Native(pairs) => pairs.next_back(),
        }
    }
}

impl ExactSizeIterator for Elements<'_> {}

impl Type for Zset {
    type Ref<'a> = ZsetRef<'a>;

    fn compact(&self) -> Option<(Form, &[u8])> {
        match self {
            Zset::Packed(listpack) => Some((Form::Zset, listpack.as_ref().bytes())),
            Zset::Native(_) => None,
        }
    }

    fn into_compact(self) -> Option<Vec<u8>> {
        match self {
            Zset::Packed(listpack) => Some(listpack.into_bytes()),
            Zset::Native(_) => None,
        }
    }

    fn from_compact(_form: Form, bytes: Vec<u8>) -> Zset {
        Zset::Packed(Listpack::from_bytes(bytes))
    }

    fn as_ref(&self) -> ZsetRef<'_> {
        match self {
            Zset::Packed(listpack) => ZsetRef::Packed(listpack.as_ref()),
            Zset::Native(native) => ZsetRef::Native(native),
        }
    }

    fn len(&self) -> usize {
        self.as_ref().len()
    }

    fn read(collection: CollectionRef<'_>) -> Option<ZsetRef<'_>> {
        match collection {
            CollectionRef::Zset(zset) => Some(zset),
            _ => None,
        }
    }

    fn edit(collection: &mut Collection) -> Option<&mut Zset> {
        match collection {
            Collection::Zset(zset) => Some(zset),
            _ => None,
        }
    }
}
