//! Sets of integers in one run of bytes, as Redis lays them out: the width of a
//! member in bytes (2, 4 or 8), the number of members, and the members in ascending
//! order, all little-endian.
//!
//! Plain values, any thread.
//!
//! 1. The width is the least that holds every member there has ever been: removing
//!    never narrows it.
//! 2. Members ascend strictly.

use std::cmp::Ordering;

const HEADER_BYTES: usize = 8;
const WIDTH_MIN: usize = 2;

/// An owned set of integers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intset(Vec<u8>);

/// A borrowed set of integers.
#[derive(Clone, Copy, Debug)]
pub struct IntsetRef<'a>(&'a [u8]);

impl Default for Intset {
    fn default() -> Self {
        Intset::new()
    }
}

impl Intset {
    /// The most members that Redis lets any such set have, whatever the threshold.
    pub const MEMBERS_MAX: usize = 1 << 30;

    /// An empty set.
    #[expect(clippy::cast_possible_truncation, reason = "an intset has fewer than 2^32 members")]
    pub fn new() -> Intset {
        Intset(vec![WIDTH_MIN as u8, 0, 0, 0, 0, 0, 0, 0])
    }

    /// The set that has these bytes, which come from [`Intset::into_bytes`].
    pub fn from_bytes(bytes: Vec<u8>) -> Intset {
        Intset(bytes)
    }

    /// The set that these bytes from outside are, if they are one and not empty.
    pub fn validated(bytes: Vec<u8>) -> Option<Intset> {
        let width = u32::from_le_bytes(*bytes.first_chunk()?);
        let set = Intset(bytes);
        if !matches!(width, 2 | 4 | 8) || set.0.len() <= HEADER_BYTES {
            return None;
        }
        let len = u32::from_le_bytes(set.0[4..8].try_into().expect("four bytes")) as usize;
        let is_whole = len.checked_mul(width as usize) == Some(set.0.len() - HEADER_BYTES);
        let members = set.as_ref();
        (is_whole && members.iter().is_sorted_by(|a, b| a < b)).then_some(set)
    }

    /// The set for reading.
    #[inline]
    pub fn as_ref(&self) -> IntsetRef<'_> {
        IntsetRef(&self.0)
    }

    /// Its bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Adds a member. False: it was there.
    pub fn insert(&mut self, member: i64) -> bool {
        let width = width_of(member);
        if width > self.as_ref().width() {
            self.widen(width, member);
            return true;
        }
        let Err(index) = self.as_ref().search(member) else { return false };
        let width = self.as_ref().width();
        let (at, end) = (HEADER_BYTES + index * width, self.0.len());
        self.0.resize(end + width, 0);
        self.0.copy_within(at..end, at + width);
        self.0[at..at + width].copy_from_slice(&member.to_le_bytes()[..width]);
        self.count(1);
        true
    }

    /// Takes a member away. False: it was not there.
    pub fn remove(&mut self, member: i64) -> bool {
        let Ok(index) = self.as_ref().search(member) else { return false };
        let width = self.as_ref().width();
        let at = HEADER_BYTES + index * width;
        self.0.copy_within(at + width.., at);
        self.0.truncate(self.0.len() - width);
        self.count(-1);
        true
    }

    /// Gives every member more bytes, and adds one that needs them: it is less or
    /// greater than all others.
    #[expect(clippy::cast_possible_truncation, reason = "an intset has fewer than 2^32 members")]
    fn widen(&mut self, width: usize, member: i64) {
        let old = std::mem::take(&mut self.0);
        let members = IntsetRef(&old);
        let mut bytes = Vec::with_capacity(HEADER_BYTES + (members.len() + 1) * width);
        bytes.extend_from_slice(&(width as u32).to_le_bytes());
        bytes.extend_from_slice(&(members.len() as u32 + 1).to_le_bytes());
        let (first, last) = if member < 0 { (Some(member), None) } else { (None, Some(member)) };
        for member in first.into_iter().chain(members.iter()).chain(last) {
            bytes.extend_from_slice(&member.to_le_bytes()[..width]);
        }
        self.0 = bytes;
    }

    #[expect(clippy::cast_possible_truncation, reason = "an intset has fewer than 2^32 members")]
    fn count(&mut self, by: i32) {
        let len = (self.as_ref().len() as u32).wrapping_add_signed(by);
        self.0[4..8].copy_from_slice(&len.to_le_bytes());
    }
}

impl<'a> IntsetRef<'a> {
    /// The set that has these bytes, which come from an [`Intset`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> IntsetRef<'a> {
        IntsetRef(bytes)
    }

    /// Its bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// How many members there are.
    #[inline]
    pub fn len(self) -> usize {
        u32::from_le_bytes(self.0[4..8].try_into().expect("four bytes")) as usize
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Whether a number is a member.
    #[inline]
    pub fn contains(self, member: i64) -> bool {
        width_of(member) <= self.width() && self.search(member).is_ok()
    }

    /// The member at an index, in ascending order.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    pub fn get(self, index: usize) -> i64 {
        let bytes = &self.0[HEADER_BYTES..];
        match self.width() {
            2 => i64::from(i16::from_le_bytes(at(bytes, index))),
            4 => i64::from(i32::from_le_bytes(at(bytes, index))),
            _ => i64::from_le_bytes(at(bytes, index)),
        }
    }

    /// All members, ascending.
    #[inline]
    pub fn iter(self) -> Iter<'a> {
        Iter { set: self, next: 0, end: self.len() }
    }

    #[inline]
    fn width(self) -> usize {
        usize::from(self.0[0])
    }

    /// The index of a member, or where it would be.
    fn search(self, member: i64) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        // Numbers often come in ascending order.
        if high > 0 && member > self.get(high - 1) {
            return Err(high);
        }
        while low < high {
            let middle = low.midpoint(high);
            match self.get(middle).cmp(&member) {
                Ordering::Equal => return Ok(middle),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }
}

/// The members of an [`IntsetRef`], ascending.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    set: IntsetRef<'a>,
    next: usize,
    end: usize,
}

impl Iterator for Iter<'_> {
    type Item = i64;

    #[inline]
    fn next(&mut self) -> Option<i64> {
        let index = self.next;
        (index < self.end).then(|| {
            self.next += 1;
            self.set.get(index)
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.end - self.next, Some(self.end - self.next))
    }
}

#[inline]
fn at<const WIDTH: usize>(bytes: &[u8], index: usize) -> [u8; WIDTH] {
    bytes[index * WIDTH..(index + 1) * WIDTH].try_into().expect("so many bytes")
}

#[inline]
fn width_of(member: i64) -> usize {
    if i16::try_from(member).is_ok() {
        2
    } else if i32::try_from(member).is_ok() {
        4
    } else {
        8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use sys::Prng;

    #[test]
    fn intset_agrees_with_a_naive_model() {
        let seed = sys::prng::entropy_seed();
        println!("seed {seed}");
        let mut prng = Prng::from_seed(seed);
        for bits in [4, 15, 16, 17, 31, 33, 63, 64] {
            let (mut set, mut model) = (Intset::new(), BTreeSet::new());
            for _ in 0..600 {
                // Mostly small numbers, so that the width grows late.
                let shift = if prng.one_in(20) { 64 - bits } else { 60 };
                let member = prng.next_u64() as i64 >> shift;
                if prng.below(3) > 0 {
                    assert_eq!(set.insert(member), model.insert(member));
                } else {
                    assert_eq!(set.remove(member), model.remove(&member));
                }
                assert_eq!(set.as_ref().contains(member), model.contains(&member));
                assert!(set.as_ref().iter().eq(model.iter().copied()));
                assert_eq!(Intset::validated(set.0.clone()).is_some(), !model.is_empty());
            }
        }
    }

    #[test]
    fn bytes_are_those_of_redis() {
        let mut set = Intset::new();
        assert!(set.insert(5) && set.insert(-3) && !set.insert(5));
        assert_eq!(set.0, [2, 0, 0, 0, 2, 0, 0, 0, 0xfd, 0xff, 5, 0]);
        assert!(set.insert(40_000));
        assert_eq!(set.0[..12], [4, 0, 0, 0, 3, 0, 0, 0, 0xfd, 0xff, 0xff, 0xff]);
        assert!(set.remove(40_000));
        assert_eq!((set.0[0], set.0[4], set.0.len()), (4, 2, 16));
    }

    #[test]
    fn hostile_bytes_are_refused() {
        let hostile: [&[u8]; 9] = [
            b"",
            b"\x02\0\0\0\0\0\0",
            b"\x02\0\0\0\0\0\0\0",
            b"\x03\0\0\0\x01\0\0\0abc",
            b"\x02\0\0\0\x02\0\0\0\x01\0\x01\0",
            b"\x02\0\0\0\x02\0\0\0\x02\0\x01\0",
            b"\x02\0\0\0\x03\0\0\0\x01\0\x02\0",
            b"\x02\0\0\0\x01\0\0\0\x01\0\x02\0",
            b"\x08\0\0\0\xff\xff\xff\xff\x01\0\0\0\0\0\0\0",
        ];
        for bytes in hostile {
            assert_eq!(Intset::validated(bytes.to_vec()), None, "{bytes:?}");
        }
    }
}
