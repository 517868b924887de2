//! Lists: one listpack while they are small, a quicklist beyond that.
//!
//! Handlers announce what they are about to add ([`List::grow`]) and that they have removed something
//! ([`List::shrink`]), and the form changes at exactly the sizes at which Redis changes it. Plain values,
//! any thread.
//!
//! 1. A list becomes native before it would hold more than one node may, and compact again when its only
//!    node has shrunk to half of that.
//! 2. What is read does not depend on the form.

mod fill;
pub(crate) mod image;
mod node;
mod quicklist;
mod rope;
mod stored;
#[cfg(test)]
mod tests;
mod walk;

pub use fill::{Fill, Room};
pub use node::End;
pub use quicklist::{Quicklist, Side};
pub use walk::Walk;

use crate::collection::{Encoding, Type};
use crate::listpack::{Element, Listpack, ListpackRef, Needle};

/// A list.
#[derive(Clone, Debug)]
pub enum List {
    /// A single listpack, `listpack` to clients.
    Packed(Listpack),
    /// Nodes, `quicklist` to clients.
    Quicklist(Quicklist),
}

/// A borrowed list.
#[derive(Clone, Copy, Debug)]
pub enum ListRef<'a> {
    /// A single listpack.
    Packed(ListpackRef<'a>),
    /// Nodes.
    Quicklist(&'a Quicklist),
}

impl List {
    /// One without elements.
    pub fn new() -> Self {
        Self::Packed(Listpack::new())
    }

    /// Makes the list native if it would exceed the fill with so many elements of so many bytes added.
    #[inline]
    pub fn grow(&mut self, fill: Fill, added_bytes: usize, added_count: usize) {
        let Self::Packed(listpack) = self else {
            return;
        };
        let view = listpack.as_ref();
        if fill.is_exceeded(view.bytes().len() + added_bytes, view.len() + added_count) {
            let mut quicklist = Quicklist::new(fill);
            quicklist.append_listpack(std::mem::take(listpack));
            *self = Self::Quicklist(quicklist);
        }
    }

    /// Makes the list compact if what has been removed left one node with at most half the fill.
    #[inline]
    pub fn shrink(&mut self, fill: Fill) {
        self.settle(fill, Room::Half);
    }

    /// Makes the list compact if one node within this room is all there is.
    pub fn settle(&mut self, fill: Fill, room: Room) {
        if let Self::Quicklist(quicklist) = self
            && let Some(only) = quicklist.only_listpack()
            && fill.is_compact(only.size(), only.count(), room)
        {
            let quicklist = std::mem::replace(quicklist, Quicklist::new(fill));
            *self = Self::Packed(quicklist.into_only_listpack());
        }
    }

    /// Adds a text at an end. The list has been grown for it.
    #[inline]
    pub fn push(&mut self, text: &[u8], end: End) {
        match self {
            Self::Packed(listpack) => match end {
                End::Head => listpack.push_front(text),
                End::Tail => listpack.push_back(text),
            },
            Self::Quicklist(quicklist) => quicklist.push(text, end),
        }
    }

    /// Removes the elements at an end, up to so many.
    #[inline]
    pub fn pop(&mut self, count: usize, end: End) {
        let length = self.len();
        let count = count.min(length);
        match end {
            End::Head => self.remove_range(0, count),
            End::Tail => self.remove_range(length - count, count),
        }
    }

    /// Replaces the element at an index; `false` if there is none. The list has been grown for it.
    pub fn set(&mut self, index: usize, text: &[u8]) -> bool {
        let is_found = index < self.len();
        match self {
            _ if !is_found => {}
            Self::Packed(listpack) => {
                let at = listpack.as_ref().seek(index as isize).expect("the index is below the length");
                listpack.replace(at, text);
            }
            Self::Quicklist(quicklist) => quicklist.set(index, text),
        }
        is_found
    }

    /// Inserts a text beside the first element with the text of `pivot`; `false` if there is none. The list has
    /// been grown for it.
    pub fn insert(&mut self, pivot: &[u8], side: Side, text: &[u8]) -> bool {
        let listpack = match self {
            Self::Quicklist(quicklist) => return quicklist.insert(pivot, side, text),
            Self::Packed(listpack) => listpack,
        };
        let view = listpack.as_ref();
        let Some(found) = view.first().and_then(|first| view.find(pivot, first, 1)) else {
            return false;
        };
        let at = match side {
            Side::Before => found,
            Side::After => view.next(found).unwrap_or(view.end()),
        };
        listpack.insert_before(at, text);
        true
    }

    /// Removes up to `limit` elements with this text, walking from an end; returns how many.
    pub fn remove_matches(&mut self, text: &[u8], limit: usize, from: End) -> usize {
        let needle = Needle::new(text);
        match self {
            Self::Quicklist(quicklist) => quicklist.remove_matches(needle, limit, from),
            Self::Packed(listpack) => {
                let mut node = node::Node::packed(std::mem::take(listpack));
                let removed = node.remove_matches(needle, limit, from);
                *listpack = Listpack::from_bytes(node.into_bytes());
                removed
            }
        }
    }

    /// Removes up to so many elements from an index on.
    pub fn remove_range(&mut self, index: usize, count: usize) {
        match self {
            Self::Quicklist(quicklist) => quicklist.remove_range(index, count),
            Self::Packed(listpack) => {
                if let Some(at) = listpack.as_ref().seek(index as isize) {
                    listpack.remove_range(at, count);
                }
            }
        }
    }
}

impl Default for List {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> ListRef<'a> {
    /// The number of elements.
    #[inline]
    pub fn len(self) -> usize {
        match self {
            Self::Packed(listpack) => listpack.len(),
            Self::Quicklist(quicklist) => quicklist.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(self) -> bool {
        match self {
            Self::Packed(listpack) => listpack.is_empty(),
            Self::Quicklist(quicklist) => quicklist.is_empty(),
        }
    }

    /// The element at an index from the head.
    pub fn get(self, index: usize) -> Option<Element<'a>> {
        match self {
            Self::Packed(listpack) => listpack.get(isize::try_from(index).ok()?),
            Self::Quicklist(quicklist) => quicklist.get(index),
        }
    }

    /// Up to so many elements: the one at an index, and those after it when walking away from an end.
    pub fn walk(self, index: usize, count: usize, from: End) -> Walk<'a> {
        match self {
            Self::Packed(listpack) => Walk::of_listpack(listpack, index, count, from),
            Self::Quicklist(quicklist) => quicklist.walk(index, count, from),
        }
    }

    /// All elements from the head to the tail.
    pub fn iter(self) -> Walk<'a> {
        self.walk(0, usize::MAX, End::Head)
    }

    /// OBJECT ENCODING's answer.
    pub fn encoding(self) -> Encoding {
        match self {
            Self::Packed(_) => Encoding::Listpack,
            Self::Quicklist(_) => Encoding::Quicklist,
        }
    }
}
