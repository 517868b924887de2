//! One node of a quicklist: a listpack, or one large text by itself.
//!
//! The counterpart of a list's compact form: the quicklist finds the node, the node edits its bytes.
//! Plain values, any thread.
//!
//! 1. `count` is the number of elements, so that seeking does not touch the bytes.
//! 2. The listpack is `buf[start..]`: pushing and popping at the head moves nothing, as at the tail.
//!    A plain node starts at 0.
//! 3. A push never reserves more than the node's limit, and a full node has hardly any spare room: nodes
//!    are most of a list.

use super::fill::ENTRY_OVERHEAD_BYTES;
use crate::listpack::entry::Encoded;
use crate::listpack::{self, Element, HEADER_BYTES, Listpack, ListpackRef, Needle, Position, write_header};

/// How a node's bytes are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Container {
    /// One text as it is.
    Plain,
    /// A listpack.
    Packed,
}

/// The end of a list, or a direction to walk in: from there to the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The head, the left one.
    Head,
    /// The tail, the right one.
    Tail,
}

/// A node.
#[derive(Clone)]
pub(super) struct Node {
    buf: Vec<u8>,
    count: u32,
    /// Narrow, so that a node takes 32 bytes; room in front is at most so large.
    start: u16,
    container: Container,
}

/// The smallest room of a listpack that grows: doubling it arrives at the usual limits exactly.
const ROOM_BYTES_MIN: usize = 32;
/// Room in front is no larger than `start` can say.
const GAP_BYTES_MAX: usize = u16::MAX as usize;
/// A listpack without elements: its header and its end mark.
const EMPTY_BYTES: usize = HEADER_BYTES + 1;

impl Node {
    /// A node of one text.
    pub fn plain(text: Vec<u8>) -> Self {
        Self { buf: text, count: 1, start: 0, container: Container::Plain }
    }

    /// A node of a listpack.
    pub fn packed(listpack: Listpack) -> Self {
        let count = u32::try_from(listpack.as_ref().len()).expect("an element takes two bytes of a listpack");
        Self { buf: listpack.into_bytes(), count, start: 0, container: Container::Packed }
    }

    /// A listpack of one text, with room for more towards an end: it is expected to grow to `expected` bytes, and may
    /// grow to `bytes_max`.
    pub fn of(text: &[u8], end: End, expected: usize, bytes_max: usize) -> Self {
        // What no room in front can hold is pushed behind, which is the same where nothing else is.
        let is_long = Listpack::entry_bytes(Element::of(text)) > GAP_BYTES_MAX;
        let end = if is_long { End::Tail } else { end };
        let one = (text.len() + EMPTY_BYTES + ENTRY_OVERHEAD_BYTES).next_power_of_two();
        let room = expected.max(one).max(ROOM_BYTES_MIN).min(bytes_max).min(GAP_BYTES_MAX);
        let mut node = match end {
            End::Tail => Self::packed(Listpack::with_capacity(room)),
            End::Head => {
                let mut buf = vec![0; room.max(EMPTY_BYTES)];
                *buf.last_mut().expect("there is room for an empty listpack") = listpack::END;
                let start = u16::try_from(buf.len() - EMPTY_BYTES).expect("room is at most so large");
                Self { buf, count: 0, start, container: Container::Packed }
            }
        };
        node.push(text, end, bytes_max);
        node
    }

    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// The size of the listpack or of the text.
    #[inline]
    pub fn size(&self) -> usize {
        self.buf.len() - usize::from(self.start)
    }

    /// The memory that the node takes, its place among the others included.
    pub fn allocated_bytes(&self) -> usize {
        self.buf.capacity() + size_of::<Self>()
    }

    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buf[usize::from(self.start)..]
    }

    pub fn into_bytes(mut self) -> Vec<u8> {
        self.close_gap();
        self.buf
    }

    pub fn is_plain(&self) -> bool {
        self.container == Container::Plain
    }

    /// The listpack, unless the node is plain.
    pub fn listpack(&self) -> Option<ListpackRef<'_>> {
        match self.container {
            Container::Plain => None,
            Container::Packed => Some(ListpackRef::new(self.bytes())),
        }
    }

    pub fn get(&self, index: usize) -> Option<Element<'_>> {
        match self.listpack() {
            Some(listpack) => listpack.get(isize::try_from(index).ok()?),
            None => (index == 0).then_some(Element::Bytes(self.bytes())),
        }
    }

    /// The elements from an index on, in either direction.
    pub fn walk(&self, index: usize, from: End) -> NodeIter<'_> {
        let Some(listpack) = self.listpack() else {
            return NodeIter::Plain(Some(self.bytes()));
        };
        let at = listpack.seek(index as isize).unwrap_or(listpack.end());
        match from {
            End::Head => NodeIter::Forward(listpack.iter_at(at)),
            End::Tail => NodeIter::Backward(listpack.iter_through(at)),
        }
    }

    /// Adds a text at an end of a node that may grow to so many bytes.
    #[inline]
    pub fn push(&mut self, text: &[u8], end: End, bytes_max: usize) {
        debug_assert_eq!(self.container, Container::Packed, "a plain node has no listpack");
        let entry = Encoded::of(Element::of(text));
        let size = entry.bytes();
        if end == End::Head && size > GAP_BYTES_MAX {
            // No room in front holds it.
            return self.insert(0, text, bytes_max);
        }
        self.reserve(size, end, bytes_max);
        let at = match end {
            End::Head => {
                self.start -= u16::try_from(size).expect("the room in front has been made");
                usize::from(self.start) + HEADER_BYTES
            }
            End::Tail => {
                let at = self.buf.len() - 1;
                self.buf.resize(at + size + 1, listpack::END);
                at
            }
        };
        entry.write(&mut self.buf[at..at + size]);
        self.count += 1;
        self.write_header();
    }

    /// Edits the listpack of a node that is not plain, anywhere.
    fn edit<T>(&mut self, edit: impl FnOnce(&mut Listpack) -> T) -> T {
        assert_eq!(self.container, Container::Packed, "a plain node has no listpack");
        self.close_gap();
        let mut listpack = Listpack::from_bytes(std::mem::take(&mut self.buf));
        let result = edit(&mut listpack);
        self.buf = listpack.into_bytes();
        result
    }

    /// Inserts a text before an index, or at the end.
    pub fn insert(&mut self, index: usize, text: &[u8], bytes_max: usize) {
        self.close_gap();
        self.reserve(Listpack::entry_bytes(Element::of(text)), End::Tail, bytes_max);
        self.edit(|listpack| {
            let at = listpack.as_ref().seek(index as isize).unwrap_or(listpack.as_ref().end());
            listpack.insert_before(at, text);
        });
        self.count += 1;
    }

    /// Replaces an element.
    pub fn replace(&mut self, index: usize, text: &[u8], bytes_max: usize) {
        let view = self.listpack().expect("a plain node is replaced as a whole");
        let at = view.seek(index as isize).expect("the index is below the count");
        let before = view.next(at).unwrap_or(view.end()).offset() - at.offset();
        let after = Listpack::entry_bytes(Element::of(text));
        self.close_gap();
        self.reserve(after.saturating_sub(before), End::Tail, bytes_max);
        self.edit(|listpack| listpack.replace(at, text));
    }

    /// Removes so many elements from an index on; more than that must be left.
    #[expect(clippy::cast_possible_truncation, reason = "counts of a node fit into 32 bits")]
    pub fn remove(&mut self, index: usize, count: usize) {
        let view = self.listpack().expect("a plain node has one element, which is not removed from it");
        let rest = self.count() - count;
        // A few at the tail are found from there.
        let (at, is_tail) = match index {
            0 => (view.seek(count as isize), false),
            _ if index == rest => (view.seek(-(count as isize)), true),
            _ => (view.seek(index as isize), false),
        };
        let at = at.expect("the index is below the count, and something is left");
        self.count = rest as u32;
        if index == 0 {
            self.cut_head(at);
        } else if is_tail {
            self.buf.truncate(usize::from(self.start) + at.offset());
            self.buf.push(listpack::END);
            self.write_header();
        } else {
            self.edit(|listpack| listpack.remove_range(at, count));
        }
        self.trim();
    }

    /// Removes what comes before a position; the count is right already.
    fn cut_head(&mut self, at: Position) {
        let start = usize::from(self.start) + at.offset() - HEADER_BYTES;
        match u16::try_from(start) {
            Ok(start) => self.start = start,
            Err(_) => {
                self.buf.drain(..start);
                self.start = 0;
            }
        }
        self.write_header();
    }

    /// Removes up to `limit` elements with this text, from either end on, and says how many. The node may be
    /// empty then.
    #[expect(clippy::cast_possible_truncation, reason = "counts of a node fit into 32 bits")]
    pub fn remove_matches(&mut self, needle: Needle<'_>, limit: usize, from: End) -> usize {
        let Some(listpack) = self.listpack() else {
            let is_match = needle.is(Element::Bytes(self.bytes()));
            self.count -= u32::from(is_match);
            return usize::from(is_match);
        };
        let found = match from {
            End::Head => listpack.first().and_then(|first| listpack.find_needle(needle, first, 1)),
            End::Tail => find_back(listpack, needle, listpack.end()),
        };
        let Some(mut at) = found else {
            return 0;
        };
        let removed = self.edit(|listpack| {
            let mut removed = 0;
            loop {
                listpack.remove(at);
                removed += 1;
                let view = listpack.as_ref();
                let next = match from {
                    End::Head => view.find_needle(needle, at, 1),
                    End::Tail => find_back(view, needle, at),
                };
                match next {
                    Some(next) if removed < limit => at = next,
                    _ => return removed,
                }
            }
        });
        self.count -= removed as u32;
        self.trim();
        removed
    }

    /// Moves the elements from an index on to a new node.
    pub fn split_off(&mut self, index: usize) -> Self {
        let tail = self.edit(|listpack| {
            let view = listpack.as_ref();
            let at = view.seek(index as isize).unwrap_or(view.end());
            listpack.split_off(at)
        });
        let tail = Self::packed(tail);
        self.count -= tail.count;
        self.trim();
        tail
    }

    /// Adds all elements of the next node, which is not plain either.
    pub fn append(&mut self, next: &Self) {
        self.edit(|listpack| listpack.append(ListpackRef::new(next.bytes())));
        self.count += next.count;
    }

    /// Gives back spare room once nothing more will be pushed.
    pub fn seal(&mut self) {
        if self.spare() > self.size() / 16 {
            self.shrink_to_fit();
        }
    }

    /// Gives back spare room after a removal, seldom enough to cost little.
    fn trim(&mut self) {
        if self.spare() > self.size() + ROOM_BYTES_MIN {
            self.shrink_to_fit();
        }
    }

    fn shrink_to_fit(&mut self) {
        self.close_gap();
        self.buf.shrink_to_fit();
    }

    /// The room that is left, at both ends together.
    fn spare(&self) -> usize {
        self.buf.capacity() - self.size()
    }

    #[inline]
    fn write_header(&mut self) {
        let count = self.count();
        write_header(&mut self.buf[usize::from(self.start)..], count);
    }

    /// Makes the listpack begin where its memory begins.
    fn close_gap(&mut self) {
        if self.start > 0 {
            self.buf.drain(..usize::from(self.start));
            self.start = 0;
        }
    }

    /// Makes sure of room for so many bytes at an end.
    #[inline]
    fn reserve(&mut self, added: usize, end: End, bytes_max: usize) {
        let room = match end {
            End::Head => self.start.into(),
            End::Tail => self.buf.capacity() - self.buf.len(),
        };
        if room < added {
            self.make_room(added, end, bytes_max);
        }
    }

    /// Moves the listpack for room at an end: within its memory, or to twice as much.
    ///
    /// Within it, the other end keeps half of what is to spare, so that pushing at both in turn seldom moves anything.
    #[cold]
    fn make_room(&mut self, added: usize, end: End, bytes_max: usize) {
        let (size, capacity) = (self.size(), self.buf.capacity());
        let is_moved =
            size + added <= capacity && (capacity >= bytes_max || self.spare() >= added + size / 8);
        let (capacity, room) = if is_moved {
            (capacity, added + (capacity - size - added) / 2)
        } else {
            let needed = size + added;
            let doubled = needed.max(capacity + 1).next_power_of_two().max(ROOM_BYTES_MIN);
            let capacity = needed.max(doubled.min(bytes_max));
            (capacity, capacity - size)
        };
        let start = match end {
            End::Head => room,
            End::Tail => capacity - size - room,
        };
        self.place(start.min(GAP_BYTES_MAX), capacity);
    }

    /// Moves the listpack to an offset in memory of a size, its own if that is the same.
    fn place(&mut self, start: usize, capacity: usize) {
        let (old, size) = (usize::from(self.start), self.size());
        if capacity == self.buf.capacity() {
            self.buf.resize(old.max(start) + size, 0);
            self.buf.copy_within(old..old + size, start);
            self.buf.truncate(start + size);
        } else if start == 0 {
            self.close_gap();
            self.buf.reserve_exact(capacity - size);
        } else {
            let mut buf = vec![0; capacity];
            buf[start..start + size].copy_from_slice(self.bytes());
            buf.truncate(start + size);
            self.buf = buf;
        }
        self.start = u16::try_from(start).expect("room in front is at most so large");
    }
}

/// The last position before another whose element has this text.
pub(super) fn find_back(listpack: ListpackRef<'_>, needle: Needle<'_>, end: Position) -> Option<Position> {
    let mut at = listpack.prev(end)?;
    while !needle.is(listpack.element(at)) {
        at = listpack.prev(at)?;
    }
    Some(at)
}

/// The elements of a node, in one direction.
#[derive(Clone)]
pub(super) enum NodeIter<'a> {
    Plain(Option<&'a [u8]>),
    Forward(listpack::Iter<'a>),
    Backward(listpack::Iter<'a>),
}

impl<'a> Iterator for NodeIter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        match self {
            Self::Plain(text) => text.take().map(Element::Bytes),
            Self::Forward(elements) => elements.next(),
            Self::Backward(elements) => elements.next_back(),
        }
    }
}
