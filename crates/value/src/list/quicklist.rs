//! The native form of a list: nodes of many elements each.
//!
//! Which node an element goes to, and when nodes split and merge, is as in Redis, because it decides when
//! a list becomes compact again and what its dump looks like. Plain values, any thread.
//!
//! 1. No node is empty.
//! 2. Only plain nodes hold texts that are large for the fill, unless a loaded listpack did.
//! 3. The fill is that of the time when the list became native; changing the setting does not change it.

use super::fill::Fill;
use super::node::{End, Node};
use super::rope::{NodeAt, Rope};
use super::walk::Walk;
use crate::listpack::{Element, Listpack, Needle};

/// Bytes of a header and an end, of which merging saves one.
const FRAME_BYTES: usize = 7;
/// For each node of a list, one that is begun by pushing gets so much room: below a hundredth of the usual node.
const ROOM_BYTES_PER_NODE: usize = 64;

/// On which side of an element another is inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Nearer to the head.
    Before,
    /// Nearer to the tail.
    After,
}

/// A list of nodes.
#[derive(Clone)]
pub struct Quicklist {
    pub(super) rope: Rope,
    fill: Fill,
}

impl Quicklist {
    /// One without elements.
    pub(super) fn new(fill: Fill) -> Self {
        Self { rope: Rope::default(), fill }
    }

    /// The number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.rope.count()
    }

    /// Whether there are no elements.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of nodes.
    pub fn nodes(&self) -> usize {
        self.rope.nodes()
    }

    /// Bytes of memory that the nodes take, estimated from at most `samples` of them (0: all).
    pub(super) fn allocated_bytes(&self, samples: usize) -> usize {
        let looked_at = if samples == 0 { self.nodes() } else { samples.min(self.nodes()) };
        let bytes: usize = self.rope.iter().take(looked_at).map(Node::allocated_bytes).sum();
        bytes * self.nodes() / looked_at.max(1)
    }

    /// Adds a whole listpack as a node at the tail.
    pub(super) fn append_listpack(&mut self, listpack: Listpack) {
        if !listpack.as_ref().is_empty() {
            let mut node = Node::packed(listpack);
            node.seal();
            self.append(node);
        }
    }

    /// Adds a whole node at the tail.
    pub(super) fn append(&mut self, node: Node) {
        self.rope.push(node, End::Tail);
    }

    pub(super) fn get(&self, index: usize) -> Option<Element<'_>> {
        let (at, index) = self.rope.seek(index)?;
        self.rope.get(at).get(index)
    }

    #[inline]
    pub(super) fn push(&mut self, text: &[u8], end: End) {
        let at = self.rope.at_end(end);
        if let Some(at) = at.filter(|&at| self.admits(at, text)) {
            self.rope.edit(at, |node| node.push(text, end, self.fill.bytes_max()));
            return;
        }
        let mut expected = 0;
        if let Some(at) = at {
            // The next node will be like this one. Only a small part of a list may be spare room, though.
            let like_this = self.rope.get(at).size().next_power_of_two();
            expected = like_this.min(1 << (self.nodes() * ROOM_BYTES_PER_NODE).ilog2());
            self.rope.edit(at, Node::seal);
        }
        self.rope.push(self.node_of(text, end, expected), end);
    }

    /// Replaces the element at an index. Panics if there is none.
    pub(super) fn set(&mut self, index: usize, text: &[u8]) {
        let (at, index) = self.rope.seek(index).expect("the index is below the length");
        let node = self.rope.get(at);
        match (node.is_plain(), self.fill.is_large(text.len())) {
            (false, false) => self.rope.edit(at, |node| node.replace(index, text, self.fill.bytes_max())),
            (true, true) => self.rope.edit(at, |node| *node = Node::plain(text.to_vec())),
            (true, false) => {
                let mut new = self.insert_beside(at, text, Side::After);
                new = self.rope.prev(new).expect("the node that is replaced comes first");
                self.rope.remove(new);
            }
            (false, true) => self.replace_by_plain(at, index, text),
        }
    }

    fn replace_by_plain(&mut self, at: NodeAt, index: usize, text: &[u8]) {
        let tail = if index + 1 < self.rope.get(at).count() {
            Some(self.rope.edit(at, |node| node.split_off(index + 1)))
        } else {
            None
        };
        let mut new = self.rope.insert_after(at, Node::plain(text.to_vec()));
        if let Some(tail) = tail {
            let tail = self.rope.insert_after(new, tail);
            new = self.rope.prev(tail).expect("the plain node was inserted before it");
        }
        let at = self.rope.prev(new).expect("the node that is replaced comes first");
        if index == 0 {
            self.rope.remove(at);
        } else {
            self.rope.edit(at, |node| node.remove(index, 1));
            self.merge_around(new);
        }
    }

    /// Inserts a text beside the first element with the text of `pivot`; `false` if there is none.
    pub(super) fn insert(&mut self, pivot: &[u8], side: Side, text: &[u8]) -> bool {
        let needle = Needle::new(pivot);
        let mut at = self.rope.at_end(End::Head);
        while let Some(here) = at {
            let node = self.rope.get(here);
            if let Some(index) = node.walk(0, End::Head).position(|element| needle.is(element)) {
                self.insert_at(here, index, side, text);
                return true;
            }
            at = self.rope.next(here);
        }
        false
    }

    fn insert_at(&mut self, at: NodeAt, index: usize, side: Side, text: &[u8]) {
        let count = self.rope.get(at).count();
        // Where the node would be cut to insert.
        let cut = match side {
            Side::Before => index,
            Side::After => index + 1,
        };
        if self.admits(at, text) {
            self.rope.edit(at, |node| node.insert(cut, text, self.fill.bytes_max()));
        } else if cut == 0 || cut == count {
            self.insert_beside(at, text, side);
        } else {
            self.split_and_insert(at, cut, side, text);
        }
    }

    fn split_and_insert(&mut self, at: NodeAt, cut: usize, side: Side, text: &[u8]) {
        let mut tail = self.rope.edit(at, |node| node.split_off(cut));
        if self.fill.is_large(text.len()) {
            let plain = self.rope.insert_after(at, Node::plain(text.to_vec()));
            self.rope.insert_after(plain, tail);
            return;
        }
        match side {
            Side::Before => {
                self.rope.edit(at, |node| node.push(text, End::Tail, self.fill.bytes_max()));
                let tail = self.rope.insert_after(at, tail);
                self.merge_around(tail);
            }
            Side::After => {
                tail.push(text, End::Head, self.fill.bytes_max());
                let tail = self.rope.insert_after(at, tail);
                let head = self.rope.prev(tail).expect("the tail was inserted after it");
                self.merge_around(head);
            }
        }
    }

    /// Adds a text at the near end of the neighbour on that side, or to a new node between. Returns where it is.
    fn insert_beside(&mut self, at: NodeAt, text: &[u8], side: Side) -> NodeAt {
        let (neighbour, near_end) = match side {
            Side::Before => (self.rope.prev(at), End::Tail),
            Side::After => (self.rope.next(at), End::Head),
        };
        if let Some(neighbour) = neighbour.filter(|&neighbour| self.admits(neighbour, text)) {
            self.rope.edit(neighbour, |node| node.push(text, near_end, self.fill.bytes_max()));
            return neighbour;
        }
        let node = self.node_of(text, near_end, 0);
        match side {
            Side::Before => self.rope.insert_before(at, node),
            Side::After => self.rope.insert_after(at, node),
        }
    }

    /// Removes up to `limit` elements with this text, walking from an end; returns how many.
    pub(super) fn remove_matches(&mut self, needle: Needle<'_>, limit: usize, from: End) -> usize {
        let mut removed = 0;
        let mut at = self.rope.at_end(from);
        while let Some(here) = at.filter(|_| removed < limit) {
            removed += self.rope.edit(here, |node| node.remove_matches(needle, limit - removed, from));
            at = if self.rope.get(here).count() > 0 {
                self.rope.onward(here, from)
            } else {
                let prev = self.rope.prev(here);
                let (_, next) = self.rope.remove(here);
                match from {
                    End::Head => next,
                    End::Tail => prev,
                }
            };
        }
        removed
    }

    /// Removes up to so many elements from an index on.
    pub(super) fn remove_range(&mut self, index: usize, count: usize) {
        let mut rest = count.min(self.len().saturating_sub(index));
        let Some((mut at, mut index)) = self.rope.seek(index) else {
            return;
        };
        while rest > 0 {
            let node_count = self.rope.get(at).count();
            let removed = rest.min(node_count - index);
            rest -= removed;
            let next = if removed == node_count {
                self.rope.remove(at).1
            } else {
                self.rope.edit(at, |node| node.remove(index, removed));
                self.rope.next(at)
            };
            match next {
                Some(next) => at = next,
                None => return,
            }
            index = 0;
        }
    }

    /// So many elements from an index on, in either direction.
    pub(super) fn walk(&self, index: usize, count: usize, from: End) -> Walk<'_> {
        Walk::of_rope(&self.rope, index, count, from)
    }

    /// The only node's listpack, if that is all there is.
    pub(super) fn only_listpack(&self) -> Option<&Node> {
        let only = (self.nodes() == 1).then(|| self.rope.iter().next())??;
        (!only.is_plain()).then_some(only)
    }

    /// Takes the only node's listpack.
    pub(super) fn into_only_listpack(mut self) -> Listpack {
        let at = self.rope.at_end(End::Head).expect("there is one node");
        let (node, _) = self.rope.remove(at);
        Listpack::from_bytes(node.into_bytes())
    }

    /// A node of a text, with room for more towards an end: it is expected to grow to so many bytes.
    fn node_of(&self, text: &[u8], end: End, expected: usize) -> Node {
        if self.fill.is_large(text.len()) {
            Node::plain(text.to_vec())
        } else {
            Node::of(text, end, expected, self.fill.bytes_max())
        }
    }

    #[inline]
    fn admits(&self, at: NodeAt, text: &[u8]) -> bool {
        let node = self.rope.get(at);
        !node.is_plain() && self.fill.admits(node.size(), node.count(), text.len())
    }

    /// Merges the nodes around one, pair by pair: the two before it, the two after it, then itself with either side.
    fn merge_around(&mut self, center: NodeAt) {
        let mut center = center;
        let pair = self.rope.prev(center).and_then(|prev| Some((self.rope.prev(prev)?, prev)));
        if let Some((first, second)) = pair.filter(|&(first, second)| self.may_merge(first, second)) {
            center = self.merge(first, second).expect("the center comes after both");
        }
        if let Some(next) = self.rope.next(center) {
            self.merge_next(next);
        }
        match self.rope.prev(center) {
            Some(prev) if self.may_merge(prev, center) => {
                self.merge(prev, center);
                self.merge_next(prev);
            }
            _ => self.merge_next(center),
        }
    }

    fn merge_next(&mut self, at: NodeAt) {
        if let Some(next) = self.rope.next(at).filter(|&next| self.may_merge(at, next)) {
            self.merge(at, next);
        }
    }

    fn may_merge(&self, first: NodeAt, second: NodeAt) -> bool {
        let (first, second) = (self.rope.get(first), self.rope.get(second));
        let (bytes, count) = (first.size() + second.size() - FRAME_BYTES, first.count() + second.count());
        !first.is_plain() && !second.is_plain() && !self.fill.is_exceeded(bytes, count)
    }

    /// Moves the elements of a node to the one before it. Returns where the node after both is then.
    fn merge(&mut self, first: NodeAt, second: NodeAt) -> Option<NodeAt> {
        let (second, next) = self.rope.remove(second);
        self.rope.edit(first, |node| {
            node.append(&second);
            node.seal();
        });
        next
    }
}

impl std::fmt::Debug for Quicklist {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.walk(0, self.len(), End::Head)).finish()
    }
}
