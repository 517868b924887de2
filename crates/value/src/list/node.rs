//! One node of a quicklist: a listpack, or one large text by itself.
//!
//! The counterpart of a list's compact form: the quicklist finds the node, the node edits its bytes.
//! Plain values, any thread.
//!
//! 1. `count` is the number of elements in `bytes`, so that seeking does not touch them.
//! 2. Spare room stays below the bytes used, and a full node has hardly any: nodes are most of a list.

use crate::listpack::{self, Element, Listpack, ListpackRef, Needle, Position};

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
    bytes: Vec<u8>,
    count: u32,
    container: Container,
}

/// The smallest room of a listpack that grows: doubling it arrives at the usual limits exactly.
const ROOM_BYTES_MIN: usize = 32;

impl Node {
    /// A node of one text.
    pub fn plain(text: Vec<u8>) -> Self {
        Self { bytes: text, count: 1, container: Container::Plain }
    }

    /// A node of a listpack.
    pub fn packed(listpack: Listpack) -> Self {
        let count = u32::try_from(listpack.as_ref().len()).expect("an element takes two bytes of a listpack");
        Self { bytes: listpack.into_bytes(), count, container: Container::Packed }
    }

    /// A listpack of one text, with room for more.
    pub fn of(text: &[u8]) -> Self {
        let mut listpack = Listpack::with_capacity(ROOM_BYTES_MIN);
        listpack.push_back(text);
        Self::packed(listpack)
    }

    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// The size of the listpack or of the text.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The memory that the node takes, its place among the others included.
    pub fn allocated_bytes(&self) -> usize {
        self.bytes.capacity() + size_of::<Self>()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub fn is_plain(&self) -> bool {
        self.container == Container::Plain
    }

    /// The listpack, unless the node is plain.
    pub fn listpack(&self) -> Option<ListpackRef<'_>> {
        match self.container {
            Container::Plain => None,
            Container::Packed => Some(ListpackRef::new(&self.bytes)),
        }
    }

    pub fn get(&self, index: usize) -> Option<Element<'_>> {
        match self.listpack() {
            Some(listpack) => listpack.get(isize::try_from(index).ok()?),
            None => (index == 0).then_some(Element::Bytes(&self.bytes)),
        }
    }

    /// The elements from an index on, in either direction.
    pub fn walk(&self, index: usize, from: End) -> NodeIter<'_> {
        let Some(listpack) = self.listpack() else {
            return NodeIter::Plain(Some(&self.bytes));
        };
        let at = listpack.seek(index as isize).unwrap_or(listpack.end());
        match from {
            End::Head => NodeIter::Forward(listpack.iter_at(at)),
            End::Tail => NodeIter::Backward(listpack.iter_through(at)),
        }
    }

    /// Edits the listpack of a node that is not plain.
    #[inline]
    pub fn edit<T>(&mut self, edit: impl FnOnce(&mut Listpack) -> T) -> T {
        assert_eq!(self.container, Container::Packed, "a plain node has no listpack");
        let mut listpack = Listpack::from_bytes(std::mem::take(&mut self.bytes));
        let result = edit(&mut listpack);
        self.bytes = listpack.into_bytes();
        result
    }

    /// Adds a text at an end.
    #[inline]
    pub fn push(&mut self, text: &[u8], end: End) {
        self.edit(|listpack| match end {
            End::Head => listpack.push_front(text),
            End::Tail => listpack.push_back(text),
        });
        self.count += 1;
    }

    /// Inserts a text before an index, or at the end.
    pub fn insert(&mut self, index: usize, text: &[u8]) {
        self.edit(|listpack| {
            let at = listpack.as_ref().seek(index as isize).unwrap_or(listpack.as_ref().end());
            listpack.insert_before(at, text);
        });
        self.count += 1;
    }

    /// Replaces an element.
    pub fn replace(&mut self, index: usize, text: &[u8]) {
        self.edit(|listpack| {
            let at = listpack.as_ref().seek(index as isize).expect("the index is below the count");
            listpack.replace(at, text);
        });
    }

    /// Removes so many elements from an index on; more than that must be left.
    pub fn remove(&mut self, index: usize, count: usize) {
        let is_tail = index + count == self.count();
        self.edit(|listpack| {
            let view = listpack.as_ref();
            // A few at the tail are found from there.
            let index = if is_tail { -(count as isize) } else { index as isize };
            let at = view.seek(index).expect("the index is below the count");
            listpack.remove_range(at, count);
        });
        self.count -= count as u32;
        self.trim();
    }

    /// Removes up to `limit` elements with this text, from either end on, and says how many. The node may be
    /// empty then.
    pub fn remove_matches(&mut self, needle: Needle<'_>, limit: usize, from: End) -> usize {
        let Some(listpack) = self.listpack() else {
            let is_match = needle.is(Element::Bytes(&self.bytes));
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
        self.edit(|listpack| listpack.append(ListpackRef::new(&next.bytes)));
        self.count += next.count;
    }

    /// Gives back spare room once nothing more will be pushed.
    pub fn seal(&mut self) {
        if self.bytes.capacity() - self.bytes.len() > self.bytes.len() / 16 {
            self.bytes.shrink_to_fit();
        }
    }

    /// Gives back spare room after a removal, seldom enough to cost little.
    fn trim(&mut self) {
        if self.bytes.capacity() > self.bytes.len() * 2 + ROOM_BYTES_MIN {
            self.bytes.shrink_to_fit();
        }
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
