//! The order of a large sorted set: a B+ tree of (score, handle) with counts.
//!
//! A handle stands for an element that somebody else owns; the tree asks it for its
//! member only where scores are equal. Scores lie beside each other in a node, so
//! that a search touches a few cache lines and no element. Each inner node knows how
//! many elements lie under each child: ranks cost one descent, and so does finding
//! the leaf that follows another, for which reason leaves have no links.
//!
//! Thread rule: plain data; whoever has the sorted set has the tree.
//!
//! Invariants:
//! 1. Elements stand in the order of score, then member; no two are equal.
//! 2. All leaves are equally deep. No node is empty, and none but the root and the last of its level has
//!    fewer than a quarter of its places filled.
//! 3. An inner node's keys are the first elements under its children, its counts their numbers.

mod node;

use node::{INNER_CHILDREN, Inner, Key, Keys, LEAF_ELEMENTS, Node, Path, Removal};
use std::ops::Range;
use std::sync::Arc;

/// What stands for an element: cheap to copy, and able to tell its member.
pub trait Handle: Copy {
    /// The member's bytes.
    fn member(&self) -> &[u8];
}

/// Elements in the order of score, then member.
#[derive(Clone, Debug)]
pub struct Tree<H> {
    root: Option<Node<H>>,
    len: u64,
}

impl<H> Default for Tree<H> {
    fn default() -> Self {
        Tree { root: None, len: 0 }
    }
}

impl<H: Handle> Tree<H> {
    /// How many elements there are.
    #[expect(clippy::cast_possible_truncation, reason = "ranks have 64 bits, as sizes do")]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Adds an element that is not there.
    pub fn insert(&mut self, score: f64, handle: H) {
        self.len += 1;
        let Some(root) = &mut self.root else {
            self.root = Some(Node::single(score, handle));
            return;
        };
        let path = root.path_to(Key { score, member: handle.member() });
        self.insert_at(&path, score, handle);
    }

    fn insert_at(&mut self, path: &Path, score: f64, handle: H) {
        let root = self.root.as_mut().expect("a path leads through a node");
        if let Some(right) = root.insert_at(path.steps(), score, handle, true) {
            let left = self.root.take().expect("it was there a line above");
            self.root = Some(Node::Inner(Inner::over(left, right)));
        }
    }

    /// Takes out the element with this score and member.
    pub fn remove(&mut self, score: f64, member: &[u8]) -> Option<H> {
        let root = self.root.as_mut()?;
        let removed = root.remove(Key { score, member })?;
        self.shrink();
        Some(removed)
    }

    /// Takes out the element of a rank.
    pub fn remove_at(&mut self, rank: usize) -> Option<(f64, H)> {
        if rank >= self.len() {
            return None;
        }
        let removed = self.root.as_mut()?.remove_at(rank as u64);
        self.shrink();
        Some(removed)
    }

    /// Gives the element with this handle and score `old` the score `new`.
    pub fn update(&mut self, old: f64, new: f64, handle: H) {
        let Some(root) = &mut self.root else { return };
        let (from, to) =
            (Key { score: old, member: handle.member() }, Key { score: new, member: handle.member() });
        let Some((from, to, removal)) = root.paths_to(from, to) else { return };
        match from.meets(&to) {
            Some((at, target)) if at > 0 && target > 0 => root.move_within_leaf(from.steps(), target, new),
            None if removal == Removal::Alone => {
                root.take_at(from.steps());
                self.insert_at(&to, new, handle);
            }
            _ => {
                root.take_at(from.steps());
                self.shrink();
                self.insert(new, handle);
            }
        }
    }

    /// How many elements come before this score and member.
    #[expect(clippy::cast_possible_truncation, reason = "ranks have 64 bits, as sizes do")]
    pub fn rank(&self, score: f64, member: &[u8]) -> usize {
        let key = Key { score, member };
        let mut before = 0;
        let mut node = self.root.as_ref();
        while let Some(Node::Inner(inner)) = node {
            let child = inner.child_of(key);
            before += inner.count_before(child);
            node = Some(inner.child(child));
        }
        match node {
            Some(Node::Leaf(leaf)) => before as usize + leaf.position(key),
            _ => 0,
        }
    }

    /// How many elements have a score below this one.
    pub fn count_below(&self, score: f64) -> usize {
        self.count(|inner| inner.count_below(score), |leaf| leaf.count_below(score))
    }

    /// How many elements have a score that is not above this one.
    pub fn count_through(&self, score: f64) -> usize {
        self.count(|inner| inner.count_through(score), |leaf| leaf.count_through(score))
    }

    /// How many elements, from the first on, are `before` something. It must hold
    /// for all elements up to some place and for none behind it.
    pub fn count_while(&self, before: impl Fn(f64, &H) -> bool) -> usize {
        self.count(|inner| inner.count_while(&before), |leaf| leaf.count_while(&before))
    }

    /// How many elements come before a place that is found by counting in each node
    /// how many of its keys do.
    #[expect(clippy::cast_possible_truncation, reason = "ranks have 64 bits, as sizes do")]
    fn count(
        &self,
        in_inner: impl Fn(&Keys<H, INNER_CHILDREN>) -> usize,
        in_leaf: impl Fn(&Keys<H, LEAF_ELEMENTS>) -> usize,
    ) -> usize {
        let mut counted = 0;
        let mut node = self.root.as_ref();
        while let Some(Node::Inner(inner)) = node {
            let Some(child) = in_inner(&inner.keys).checked_sub(1) else { return 0 };
            counted += inner.count_before(child);
            node = Some(inner.child(child));
        }
        match node {
            Some(Node::Leaf(leaf)) => counted as usize + in_leaf(leaf),
            _ => 0,
        }
    }

    /// The element of a rank.
    pub fn at(&self, rank: usize) -> Option<(f64, H)> {
        let (scores, handles, index) = self.run_around(rank)?;
        Some((scores[index], handles[index]))
    }

    /// The elements of some ranks, which are cut to those that exist; from both ends.
    pub fn range(&self, ranks: Range<usize>) -> Elements<'_, H> {
        let end = ranks.end.min(self.len());
        Elements { tree: self, ranks: ranks.start.min(end)..end, front: Run::EMPTY, back: Run::EMPTY }
    }

    /// The leaf that holds a rank, and the place in it.
    #[expect(clippy::cast_possible_truncation, reason = "ranks have 64 bits, as sizes do")]
    fn run_around(&self, rank: usize) -> Option<(&[f64], &[H], usize)> {
        if rank >= self.len() {
            return None;
        }
        let mut rank = rank as u64;
        let mut node = self.root.as_ref()?;
        loop {
            match node {
                Node::Inner(inner) => {
                    let (child, before) = inner.child_at(rank);
                    rank -= before;
                    node = inner.child(child);
                }
                Node::Leaf(leaf) => return Some((leaf.scores(), leaf.handles(), rank as usize)),
            }
        }
    }

    /// After one was taken out: an inner root with one child gives way to it.
    fn shrink(&mut self) {
        self.len -= 1;
        if self.len == 0 {
            self.root = None;
        }
        while let Some(Node::Inner(inner)) = &mut self.root
            && let Some(only) = Arc::make_mut(inner).take_only_child()
        {
            self.root = Some(only);
        }
    }

    /// Bytes of memory that the nodes take.
    pub fn bytes(&self) -> usize {
        self.root.as_ref().map_or(0, Node::bytes)
    }

    /// Asserts the invariants.
    #[cfg(test)]
    pub(super) fn check(&self) {
        assert_eq!(self.root.as_ref().map_or(0, |root| root.check(true).1), self.len);
        let keys: Vec<(f64, H)> = self.range(0..self.len()).collect();
        assert!(keys.windows(2).all(|pair| {
            let key = Key { score: pair[1].0, member: pair[1].1.member() };
            key.is_behind(pair[0].0, &pair[0].1)
        }));
    }
}

/// The part of a leaf that an iterator has yet to go through.
#[derive(Clone, Debug)]
struct Run<'t, H> {
    scores: &'t [f64],
    handles: &'t [H],
}

impl<H> Run<'_, H> {
    const EMPTY: Self = Run { scores: &[], handles: &[] };
}

/// Elements between two ranks, from either end.
#[derive(Clone, Debug)]
pub struct Elements<'t, H> {
    tree: &'t Tree<H>,
    ranks: Range<usize>,
    front: Run<'t, H>,
    back: Run<'t, H>,
}

impl<H: Handle> Iterator for Elements<'_, H> {
    type Item = (f64, H);

    fn next(&mut self) -> Option<(f64, H)> {
        let rank = self.ranks.next()?;
        if self.front.scores.is_empty() {
            let (scores, handles, index) = self.tree.run_around(rank)?;
            self.front = Run { scores: &scores[index..], handles: &handles[index..] };
        }
        Some((*self.front.scores.split_off_first()?, *self.front.handles.split_off_first()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.ranks.size_hint()
    }
}

impl<H: Handle> DoubleEndedIterator for Elements<'_, H> {
    fn next_back(&mut self) -> Option<(f64, H)> {
        let rank = self.ranks.next_back()?;
        if self.back.scores.is_empty() {
            let (scores, handles, index) = self.tree.run_around(rank)?;
            self.back = Run { scores: &scores[..=index], handles: &handles[..=index] };
        }
        Some((*self.back.scores.split_off_last()?, *self.back.handles.split_off_last()?))
    }
}

impl<H: Handle> ExactSizeIterator for Elements<'_, H> {}

#[cfg(test)]
mod tests;
