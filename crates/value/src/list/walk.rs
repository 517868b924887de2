//! Walking through a list, in either direction and in either form.
//!
//! Replies are written from it element by element. Borrows the list.
//!
//! 1. `rest` is at most the number of elements that are left in that direction.

use super::node::{End, NodeIter};
use super::rope::{NodeAt, Rope};
use crate::listpack::{Element, ListpackRef};

/// Elements of a list, one after another.
#[derive(Clone)]
pub struct Walk<'a> {
    elements: NodeIter<'a>,
    rest: usize,
    onward: Option<Onward<'a>>,
}

/// Where the next node is found.
#[derive(Clone)]
struct Onward<'a> {
    rope: &'a Rope,
    at: NodeAt,
    from: End,
}

impl<'a> Walk<'a> {
    /// Up to so many elements of a compact list.
    pub(super) fn of_listpack(listpack: ListpackRef<'a>, index: usize, count: usize, from: End) -> Self {
        let Some(at) = isize::try_from(index).ok().and_then(|index| listpack.seek(index)) else {
            return Self { elements: NodeIter::Plain(None), rest: 0, onward: None };
        };
        let (elements, left) = match from {
            End::Head => (NodeIter::Forward(listpack.iter_at(at)), listpack.len() - index),
            End::Tail => (NodeIter::Backward(listpack.iter_through(at)), index + 1),
        };
        Self { elements, rest: count.min(left), onward: None }
    }

    /// Up to so many elements of a native list.
    pub(super) fn of_rope(rope: &'a Rope, index: usize, count: usize, from: End) -> Self {
        let Some((at, index_in_node)) = rope.seek(index) else {
            return Self { elements: NodeIter::Plain(None), rest: 0, onward: None };
        };
        let elements = rope.get(at).walk(index_in_node, from);
        let left = match from {
            End::Head => rope.count() - index,
            End::Tail => index + 1,
        };
        Self { elements, rest: count.min(left), onward: Some(Onward { rope, at, from }) }
    }

    /// Goes on to the next node.
    #[cold]
    fn advance(&mut self) -> Option<Element<'a>> {
        let Onward { rope, at, from } = self.onward.as_mut()?;
        *at = rope.onward(*at, *from)?;
        let node = rope.get(*at);
        let index = match from {
            End::Head => 0,
            End::Tail => node.count() - 1,
        };
        self.elements = node.walk(index, *from);
        self.elements.next()
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        self.rest = self.rest.checked_sub(1)?;
        match self.elements.next() {
            None => self.advance(),
            element => element,
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.rest, Some(self.rest))
    }
}

impl ExactSizeIterator for Walk<'_> {}
