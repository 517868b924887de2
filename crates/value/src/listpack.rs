//! Listpacks: many short elements in one run of bytes, as Redis lays them out.
//!
//! The compact form of lists, hashes, sets and sorted sets, and what the nodes of quicklists and streams
//! hold. A header (total size, count), the entries, and an end mark; an entry can be walked from both
//! sides. Sizes decide when a type leaves its compact form, so they are Redis' to the byte. Plain
//! values, any thread.
//!
//! 1. The bytes are always a valid listpack: [`Listpack::from_bytes`] trusts its caller for that, and
//!    [`Listpack::validated`] is for bytes from outside.
//! 2. A text that is a canonical 64-bit integer is stored as an integer.
//! 3. The header's count is exact until it reaches 65,535; from then on it says that it is unknown.

pub(crate) mod entry;
#[cfg(test)]
mod tests;
mod view;

pub use entry::{Element, Needle};
use entry::{Encoded, Extent};
use view::COUNT_UNKNOWN;
pub(crate) use view::{END, HEADER_BYTES};
pub use view::{Iter, ListpackRef, Position};

use crate::limits::LISTPACK_BYTES_MAX;

/// An owned listpack.
#[derive(Clone, PartialEq, Eq)]
pub struct Listpack(Vec<u8>);

impl Listpack {
    /// One without elements.
    pub fn new() -> Self {
        Self::with_capacity(HEADER_BYTES + 1)
    }

    /// One without elements that does not reallocate until it has grown to so many bytes.
    #[expect(clippy::cast_possible_truncation, reason = "counts were compared with 16 bits before")]
    pub fn with_capacity(bytes: usize) -> Self {
        let mut all = Vec::with_capacity(bytes.max(HEADER_BYTES + 1));
        all.extend_from_slice(&[HEADER_BYTES as u8 + 1, 0, 0, 0, 0, 0, END]);
        Self(all)
    }

    /// Of bytes that a listpack produced.
    #[inline]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        debug_assert!(bytes.len() > HEADER_BYTES && bytes.last() == Some(&END), "not a listpack");
        Self(bytes)
    }

    /// Of bytes from outside, if every entry of them is sound and the header is right.
    pub fn validated(bytes: Vec<u8>) -> Option<Self> {
        let total = u32::from_le_bytes(*bytes.first_chunk()?);
        if bytes.len() <= HEADER_BYTES || total as usize != bytes.len() {
            return None;
        }
        let end = bytes.len() - 1;
        let (mut at, mut count) = (HEADER_BYTES, 0);
        while at < end {
            at += Extent::checked(&bytes[at..end])?.entry();
            count += 1;
        }
        let header_count = u16::from_le_bytes([bytes[4], bytes[5]]);
        let is_counted = header_count == COUNT_UNKNOWN || usize::from(header_count) == count;
        (bytes[end] == END && is_counted).then_some(Self(bytes))
    }

    /// The bytes, header included.
    #[inline]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// The same listpack, for reading.
    #[inline]
    pub fn as_ref(&self) -> ListpackRef<'_> {
        ListpackRef::new(&self.0)
    }

    /// Adds a text at the end.
    #[inline]
    pub fn push_back(&mut self, text: &[u8]) {
        self.insert_before(self.as_ref().end(), text);
    }

    /// Adds a text at the beginning.
    #[inline]
    pub fn push_front(&mut self, text: &[u8]) {
        self.insert_before(Position(HEADER_BYTES), text);
    }

    /// Adds an element, such as an integer, at the end.
    #[inline]
    pub fn push_element(&mut self, element: Element<'_>) {
        self.insert_element(self.as_ref().end(), element);
    }

    /// Inserts a text before an element, or before the end. The new element has the same position.
    #[inline]
    pub fn insert_before(&mut self, at: Position, text: &[u8]) {
        self.insert_element(at, Element::of(text));
    }

    /// Inserts an element before another, or before the end. The new one has the same position.
    #[inline]
    pub fn insert_element(&mut self, at: Position, element: Element<'_>) {
        let entry = Encoded::of(element);
        let size = entry.bytes();
        entry.write(self.open_gap(at.0, 0, size));
        self.count_added(1);
    }

    /// Puts a text in an element's place; the position stays the same.
    #[inline]
    pub fn replace(&mut self, at: Position, text: &[u8]) {
        self.replace_element(at, Element::of(text));
    }

    /// Puts an element in another's place; the position stays the same.
    pub fn replace_element(&mut self, at: Position, element: Element<'_>) {
        let entry = Encoded::of(element);
        let (before, after) = (Extent::of(&self.0[at.0..]).entry(), entry.bytes());
        entry.write(self.open_gap(at.0, before, after));
    }

    /// Removes an element. Its position is then that of the next one, or the end.
    pub fn remove(&mut self, at: Position) -> Position {
        self.remove_range(at, 1)
    }

    /// Removes up to so many elements. The position is then that of the next one, or the end.
    pub fn remove_range(&mut self, at: Position, count: usize) -> Position {
        let (end, removed) = self.as_ref().skip(at, count);
        self.open_gap(at.0, end.0 - at.0, 0);
        self.count_removed(removed);
        at
    }

    /// Removes the last elements, from a position on, and returns them in a listpack of their own.
    pub fn split_off(&mut self, at: Position) -> Self {
        let count = self.as_ref().iter_at(at).count();
        let end = self.as_ref().end();
        let mut tail = Self::with_capacity(HEADER_BYTES + 1 + end.0 - at.0);
        tail.open_gap(HEADER_BYTES, 0, end.0 - at.0).copy_from_slice(&self.0[at.0..end.0]);
        tail.count_added(count);
        self.open_gap(at.0, end.0 - at.0, 0);
        self.count_removed(count);
        tail
    }

    /// Adds all elements of another listpack at the end.
    pub fn append(&mut self, other: ListpackRef<'_>) {
        let entries = &other.bytes()[HEADER_BYTES..other.end().0];
        let end = self.as_ref().end().0;
        self.open_gap(end, 0, entries.len()).copy_from_slice(entries);
        self.count_added(other.len());
    }

    /// Gives back memory that was reserved beyond the bytes.
    pub fn shrink_to_fit(&mut self) {
        self.0.shrink_to_fit();
    }

    /// The bytes of memory that are reserved.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// The size that a listpack of so many bytes would have with this text added.
    pub fn would_be(bytes: usize, text: &[u8]) -> usize {
        bytes + Self::entry_bytes(Element::of(text))
    }

    /// The bytes that an element adds to a listpack.
    pub fn entry_bytes(element: Element<'_>) -> usize {
        Encoded::of(element).bytes()
    }

    /// Whether a listpack of so many bytes may grow by so many more: the size of any is below 1 GB, as in Redis.
    pub fn may_grow(bytes: usize, added: usize) -> bool {
        bytes.saturating_add(added) <= LISTPACK_BYTES_MAX
    }

    /// Turns so many bytes at an offset into a gap of another size, and updates the total.
    #[inline]
    fn open_gap(&mut self, offset: usize, before: usize, after: usize) -> &mut [u8] {
        let (total, tail) = (self.0.len(), offset + before);
        if after > before {
            self.0.resize(total + after - before, 0);
            self.0.copy_within(tail..total, offset + after);
        } else if after < before {
            self.0.copy_within(tail..total, offset + after);
            self.0.truncate(total + after - before);
        }
        let total = u32::try_from(self.0.len()).expect("no listpack grows to 4 GB");
        self.0[..4].copy_from_slice(&total.to_le_bytes());
        &mut self.0[offset..offset + after]
    }

    #[inline]
    fn count_added(&mut self, added: usize) {
        let count = u16::from_le_bytes([self.0[4], self.0[5]]);
        let count = u16::try_from(usize::from(count).saturating_add(added)).unwrap_or(COUNT_UNKNOWN);
        self.0[4..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "counts were compared with 16 bits before")]
    fn count_removed(&mut self, removed: usize) {
        let count = u16::from_le_bytes([self.0[4], self.0[5]]);
        if count != COUNT_UNKNOWN {
            self.0[4..HEADER_BYTES].copy_from_slice(&(count - removed as u16).to_le_bytes());
        }
    }
}

/// Writes the header of a listpack that is all of these bytes.
#[inline]
pub(crate) fn write_header(bytes: &mut [u8], count: usize) {
    let total = u32::try_from(bytes.len()).expect("no listpack grows to 4 GB");
    let count = u16::try_from(count).unwrap_or(COUNT_UNKNOWN);
    bytes[..4].copy_from_slice(&total.to_le_bytes());
    bytes[4..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
}

impl Default for Listpack {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Listpack {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_ref().fmt(formatter)
    }
}

impl std::fmt::Debug for ListpackRef<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}
