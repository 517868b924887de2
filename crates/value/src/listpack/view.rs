//! Reading a listpack: cursors, iteration and search over bytes that someone else owns.
//!
//! Compact values are read in place, inside their key's block. Every step is constant time; the length
//! of a listpack of over 65,534 elements, and an index, are found by walking. Pure, any thread.

use super::entry::{Element, Extent, Needle, entry_before};

/// Total size in four bytes, count in two.
pub(crate) const HEADER_BYTES: usize = 6;
/// What ends a listpack.
pub(crate) const END: u8 = 0xff;
/// The header's count of a listpack with at least so many elements.
pub(super) const COUNT_UNKNOWN: u16 = u16::MAX;

/// Where an element begins, or where the last one ends; valid until an edit before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(pub(super) usize);

impl Position {
    /// The offset in the listpack's bytes.
    #[inline]
    pub(crate) fn offset(self) -> usize {
        self.0
    }
}

/// A borrowed listpack.
#[derive(Clone, Copy)]
pub struct ListpackRef<'a> {
    bytes: &'a [u8],
}

impl<'a> ListpackRef<'a> {
    /// Of bytes that a [`Listpack`](super::Listpack) produced.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        debug_assert!(bytes.len() > HEADER_BYTES && bytes.last() == Some(&END), "not a listpack");
        Self { bytes }
    }

    /// All bytes, header included.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The number of elements.
    #[inline]
    pub fn len(self) -> usize {
        match u16::from_le_bytes([self.bytes[4], self.bytes[5]]) {
            COUNT_UNKNOWN => self.iter().count(),
            count => count.into(),
        }
    }

    /// Whether there are no elements.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.bytes.len() == HEADER_BYTES + 1
    }

    /// All elements, from either end.
    #[inline]
    pub fn iter(self) -> Iter<'a> {
        self.iter_at(Position(HEADER_BYTES))
    }

    /// The elements from a position to the end.
    #[inline]
    pub fn iter_at(self, at: Position) -> Iter<'a> {
        Iter { bytes: self.bytes, front: at.0, back: self.end().0 }
    }

    /// The elements from the beginning to a position, which is included unless it is the end.
    #[inline]
    pub fn iter_through(self, at: Position) -> Iter<'a> {
        let after = self.next(at).unwrap_or(self.end());
        Iter { bytes: self.bytes, front: HEADER_BYTES, back: after.0 }
    }

    /// The element at an index, negative ones counted from the end.
    pub fn get(self, index: isize) -> Option<Element<'a>> {
        self.seek(index).map(|at| self.element(at))
    }

    /// The position of an index, negative ones counted from the end; walks from the nearer end.
    pub fn seek(self, index: isize) -> Option<Position> {
        let header_count = u16::from_le_bytes([self.bytes[4], self.bytes[5]]);
        let mut index = index;
        if header_count != COUNT_UNKNOWN {
            let count = isize::from_ne_bytes(usize::from(header_count).to_ne_bytes());
            let forward = if index < 0 { index.checked_add(count)? } else { index };
            if !(0..count).contains(&forward) {
                return None;
            }
            index = if forward > count / 2 { forward - count } else { forward };
        }
        if index >= 0 {
            let mut at = self.first()?;
            for _ in 0..index {
                at = self.next(at)?;
            }
            return Some(at);
        }
        let mut at = self.last()?;
        for _ in index..-1 {
            at = self.prev(at)?;
        }
        Some(at)
    }

    /// The first position at or after `from` whose element has this text, looking at every `step`th element
    /// only: 1 for all, 2 for the fields of field-value pairs.
    #[inline]
    pub fn find(self, text: &[u8], from: Position, step: usize) -> Option<Position> {
        self.find_needle(Needle::new(text), from, step)
    }

    /// [`ListpackRef::find`] for a text that is looked for in several listpacks.
    pub fn find_needle(self, needle: Needle<'_>, from: Position, step: usize) -> Option<Position> {
        let mut at = from.0;
        loop {
            let bytes = &self.bytes[at..];
            if bytes[0] == END {
                return None;
            }
            let extent = Extent::of(bytes);
            if needle.is(extent.element(bytes)) {
                return Some(Position(at));
            }
            at += extent.entry();
            for _ in 1..step {
                if self.bytes[at] == END {
                    return None;
                }
                at += Extent::of(&self.bytes[at..]).entry();
            }
        }
    }

    /// The position of the first element.
    #[inline]
    pub fn first(self) -> Option<Position> {
        self.unless_end(HEADER_BYTES)
    }

    /// The position of the last element.
    #[inline]
    pub fn last(self) -> Option<Position> {
        self.prev(self.end())
    }

    /// The position after an element's, if it is not the end.
    #[inline]
    pub fn next(self, at: Position) -> Option<Position> {
        self.unless_end(at.0 + Extent::of(&self.bytes[at.0..]).entry())
    }

    /// The position before another, which may be the end.
    #[inline]
    pub fn prev(self, at: Position) -> Option<Position> {
        (at.0 > HEADER_BYTES).then(|| Position(at.0 - entry_before(&self.bytes[..at.0])))
    }

    /// The element at a position.
    ///
    /// # Panics
    /// May panic at the end, and at a position that an edit has made invalid.
    #[inline]
    pub fn element(self, at: Position) -> Element<'a> {
        debug_assert!(!self.is_end(at), "the end has no element");
        let bytes = &self.bytes[at.0..];
        Extent::of(bytes).element(bytes)
    }

    /// Where the last element ends: inserting before it appends.
    #[inline]
    pub fn end(self) -> Position {
        Position(self.bytes.len() - 1)
    }

    /// Whether a position is the end.
    #[inline]
    pub fn is_end(self, at: Position) -> bool {
        at == self.end()
    }

    /// The position that lies so many elements after another, or the end if there are fewer.
    pub(super) fn skip(self, at: Position, count: usize) -> (Position, usize) {
        let (mut offset, mut skipped) = (at.0, 0);
        while skipped < count && self.bytes[offset] != END {
            offset += Extent::of(&self.bytes[offset..]).entry();
            skipped += 1;
        }
        (Position(offset), skipped)
    }

    #[inline]
    fn unless_end(self, offset: usize) -> Option<Position> {
        (offset + 1 < self.bytes.len()).then_some(Position(offset))
    }
}

/// The elements of a listpack, from either end.
#[derive(Clone)]
pub struct Iter<'a> {
    bytes: &'a [u8],
    front: usize,
    back: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        if self.front == self.back {
            return None;
        }
        let bytes = &self.bytes[self.front..];
        let extent = Extent::of(bytes);
        self.front += extent.entry();
        Some(extent.element(bytes))
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.front == self.back {
            return None;
        }
        self.back -= entry_before(&self.bytes[..self.back]);
        let bytes = &self.bytes[self.back..];
        Some(Extent::of(bytes).element(bytes))
    }
}

impl std::iter::FusedIterator for Iter<'_> {}
