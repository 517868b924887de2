//! Nodes of the tree: leaves with elements, inner nodes with children.
//!
//! Both keep their scores and handles in [`Keys`], arrays of fixed length that fill
//! an allocation of 1 KB or 2 KB. A change walks down from the root by recursion and
//! repairs each inner node on the way back.
//!
//! Invariants: see the parent module.

use super::Handle;

/// Elements of a leaf: with their number they fill 1,016 bytes.
pub(super) const LEAF_ELEMENTS: usize = 63;
/// Children of an inner node: with their number they fill 2,048 bytes.
pub(super) const INNER_CHILDREN: usize = 51;

/// What is looked for: a score and a member.
#[derive(Clone, Copy)]
pub(super) struct Key<'m> {
    pub(super) score: f64,
    pub(super) member: &'m [u8],
}

impl Key<'_> {
    /// Whether it comes behind an element in the tree's order.
    #[cfg(test)]
    pub(super) fn is_behind<H: Handle>(self, score: f64, handle: &H) -> bool {
        score < self.score || score == self.score && handle.member() < self.member
    }
}

/// Scores and handles in order. Places beyond `len` hold NaN, which is below nothing,
/// and copies of other handles.
#[derive(Debug)]
pub(super) struct Keys<H, const N: usize> {
    len: usize,
    scores: [f64; N],
    handles: [H; N],
}

impl<H: Handle, const N: usize> Keys<H, N> {
    /// A node is never empty, so that a handle to fill the array is at hand.
    fn single(score: f64, handle: H) -> Self {
        let mut keys = Keys { len: 1, scores: [f64::NAN; N], handles: [handle; N] };
        keys.scores[0] = score;
        keys
    }

    /// Those from `at` on, which are cut off here.
    fn split_off(&mut self, at: usize) -> Self {
        let mut right = Keys::single(self.scores[at], self.handles[at]);
        right.len = 0;
        right.append(self, at..self.len);
        self.cut(at);
        right
    }

    /// Forgets those from `len` on.
    fn cut(&mut self, len: usize) {
        self.scores[len..self.len].fill(f64::NAN);
        self.len = len;
    }

    /// Copies a range of another node's behind its own.
    fn append(&mut self, other: &Self, range: std::ops::Range<usize>) {
        let end = self.len + range.len();
        self.scores[self.len..end].copy_from_slice(&other.scores[range.clone()]);
        self.handles[self.len..end].copy_from_slice(&other.handles[range]);
        self.len = end;
    }

    pub(super) fn scores(&self) -> &[f64] {
        &self.scores[..self.len]
    }

    pub(super) fn handles(&self) -> &[H] {
        &self.handles[..self.len]
    }

    fn insert(&mut self, at: usize, score: f64, handle: H) {
        self.scores.copy_within(at..self.len, at + 1);
        self.handles.copy_within(at..self.len, at + 1);
        self.scores[at] = score;
        self.handles[at] = handle;
        self.len += 1;
    }

    fn remove(&mut self, at: usize) -> (f64, H) {
        let removed = (self.scores[at], self.handles[at]);
        self.scores.copy_within(at + 1..self.len, at);
        self.handles.copy_within(at + 1..self.len, at);
        self.cut(self.len - 1);
        removed
    }

    /// How many scores are below one. All are compared, without a branch and several
    /// at once: that takes less time than waiting for each step of a binary search.
    #[inline]
    pub(super) fn count_below(&self, score: f64) -> usize {
        self.scores.iter().map(|other| u64::from(*other < score)).sum::<u64>() as usize
    }

    /// How many scores are not above one.
    #[inline]
    pub(super) fn count_through(&self, score: f64) -> usize {
        self.scores.iter().map(|other| u64::from(*other <= score)).sum::<u64>() as usize
    }

    /// Where the key stands, or would stand: behind all that come before it.
    pub(super) fn position(&self, key: Key<'_>) -> usize {
        let at = self.count_below(key.score);
        if at == N || self.scores[at] != key.score {
            return at;
        }
        let equal = self.count_through(key.score) - at;
        at + self.handles[at..at + equal].partition_point(|handle| handle.member() < key.member)
    }

    /// Whether the key stands at a place.
    fn is_at(&self, at: usize, key: Key<'_>) -> bool {
        at < self.len && self.scores[at] == key.score && self.handles[at].member() == key.member
    }

    /// How many, from the first on, are `before` something.
    pub(super) fn count_while(&self, before: impl Fn(f64, &H) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = low + (high - low) / 2;
            if before(self.scores[middle], &self.handles[middle]) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// Elements in order.
type Leaf<H> = Keys<H, LEAF_ELEMENTS>;

/// Children with their first elements and counts.
#[derive(Debug)]
pub(super) struct Inner<H> {
    pub(super) keys: Keys<H, INNER_CHILDREN>,
    counts: [u64; INNER_CHILDREN],
    children: [Option<Node<H>>; INNER_CHILDREN],
}

/// A node of either kind.
#[derive(Debug)]
pub(super) enum Node<H> {
    Leaf(Box<Leaf<H>>),
    Inner(Box<Inner<H>>),
}

impl<H: Handle> Node<H> {
    /// A leaf with one element.
    pub(super) fn single(score: f64, handle: H) -> Node<H> {
        Node::Leaf(Box::new(Leaf::single(score, handle)))
    }

    /// The first element below.
    fn first(&self) -> (f64, H) {
        match self {
            Node::Leaf(leaf) => (leaf.scores[0], leaf.handles[0]),
            Node::Inner(inner) => (inner.keys.scores[0], inner.keys.handles[0]),
        }
    }

    /// Elements below.
    fn count(&self) -> u64 {
        match self {
            Node::Leaf(leaf) => leaf.len as u64,
            Node::Inner(inner) => inner.count_before(inner.keys.len),
        }
    }

    /// Adds an element. Returns what is split off to the right, if the node was full.
    /// `is_last` says that nothing lies to the right: a full node is then not
    /// halved for an element behind it, so that ascending insertion fills nodes.
    pub(super) fn insert(&mut self, score: f64, handle: H, is_last: bool) -> Option<Node<H>> {
        match self {
            Node::Leaf(leaf) => {
                let at = leaf.position(Key { score, member: handle.member() });
                if leaf.len < LEAF_ELEMENTS {
                    leaf.insert(at, score, handle);
                    return None;
                }
                if is_last && at == leaf.len {
                    return Some(Node::single(score, handle));
                }
                let half = leaf.len / 2;
                let mut right = Box::new(leaf.split_off(half));
                match at.checked_sub(half) {
                    Some(at) if at > 0 => right.insert(at, score, handle),
                    _ => leaf.insert(at, score, handle),
                }
                Some(Node::Leaf(right))
            }
            Node::Inner(inner) => inner.insert(score, handle, is_last),
        }
    }

    /// Takes out the element of this key.
    pub(super) fn remove(&mut self, key: Key<'_>) -> Option<H> {
        match self {
            Node::Leaf(leaf) => {
                let at = leaf.position(key);
                leaf.is_at(at, key).then(|| leaf.remove(at).1)
            }
            Node::Inner(inner) => {
                let child = inner.child_of(key);
                let removed = inner.child_mut(child).remove(key)?;
                inner.repair(child);
                Some(removed)
            }
        }
    }

    /// Takes out the element with `rank` others before it.
    pub(super) fn remove_at(&mut self, rank: u64) -> (f64, H) {
        match self {
            Node::Leaf(leaf) => leaf.remove(rank as usize),
            Node::Inner(inner) => {
                let (child, before) = inner.child_at(rank);
                let removed = inner.child_mut(child).remove_at(rank - before);
                inner.repair(child);
                removed
            }
        }
    }

    /// Gives an element another score if it stays in its leaf, and is not and does
    /// not become the leaf's first, so that no other node changes. False if not.
    pub(super) fn update_within_leaf(&mut self, old: f64, new: f64, handle: H) -> bool {
        let key = Key { score: old, member: handle.member() };
        let target = Key { score: new, member: handle.member() };
        let mut node = self;
        let mut fits_below_next = true;
        loop {
            match node {
                Node::Inner(inner) => {
                    let child = inner.child_of(key);
                    fits_below_next &= inner.child_of(target) <= child;
                    node = inner.child_mut(child);
                }
                Node::Leaf(leaf) => {
                    let (from, to) = (leaf.position(key), leaf.position(target));
                    let stays = fits_below_next && from > 0 && to > 0 && leaf.is_at(from, key);
                    if stays {
                        let (_, handle) = leaf.remove(from);
                        leaf.insert(if to > from { to - 1 } else { to }, new, handle);
                    }
                    return stays;
                }
            }
        }
    }

    /// Places filled: elements of a leaf, children of an inner node.
    fn filled(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.len,
            Node::Inner(inner) => inner.keys.len,
        }
    }

    fn places(&self) -> usize {
        match self {
            Node::Leaf(_) => LEAF_ELEMENTS,
            Node::Inner(_) => INNER_CHILDREN,
        }
    }

    /// Evens out two neighbours of one level; true if all fits the left one, and the right
    /// one is empty now.
    fn even_out(&mut self, right: &mut Node<H>) -> bool {
        let (total, places) = (self.filled() + right.filled(), self.places());
        let left_share = if total <= places { total } else { total / 2 };
        match (self, right) {
            (Node::Leaf(left), Node::Leaf(right)) => {
                if left.len > left_share {
                    let mut moved = left.split_off(left_share);
                    moved.append(right, 0..right.len);
                    **right = moved;
                } else {
                    let taken = left_share - left.len;
                    left.append(right, 0..taken);
                    right.scores.copy_within(taken..right.len, 0);
                    right.handles.copy_within(taken..right.len, 0);
                    right.cut(right.len - taken);
                }
            }
            (Node::Inner(left), Node::Inner(right)) => {
                while left.keys.len > left_share {
                    let (child, count) = left.remove(left.keys.len - 1);
                    right.insert_child(0, child, count);
                }
                while left.keys.len < left_share {
                    let (child, count) = right.remove(0);
                    left.insert_child(left.keys.len, child, count);
                }
            }
            _ => unreachable!("all nodes of a level are of one kind"),
        }
        total <= places
    }

    /// Bytes of memory from here down.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Node::Leaf(leaf) => size_of_val(&**leaf),
            Node::Inner(inner) => {
                size_of_val(&**inner) + inner.children.iter().flatten().map(Node::bytes).sum::<usize>()
            }
        }
    }

    /// Asserts the invariants; returns height and elements.
    #[cfg(test)]
    pub(super) fn check(&self, is_last: bool) -> (usize, u64) {
        assert!(self.filled() > 0 && (is_last || self.filled() >= self.places() / 4));
        let Node::Inner(inner) = self else { return (1, self.count()) };
        let mut height = None;
        for at in 0..inner.keys.len {
            let child = inner.child(at);
            let (below, count) = child.check(is_last && at == inner.keys.len - 1);
            assert_eq!(*height.get_or_insert(below), below);
            assert_eq!(inner.counts[at], count);
            let (score, handle) = child.first();
            assert!(
                inner.keys.scores[at].to_bits() == score.to_bits()
                    && inner.keys.handles[at].member() == handle.member()
            );
        }
        assert!(inner.children[inner.keys.len..].iter().all(Option::is_none));
        (height.expect("no node is empty") + 1, self.count())
    }
}

impl<H: Handle> Inner<H> {
    /// A new root over two nodes.
    pub(super) fn over(left: Node<H>, right: Node<H>) -> Box<Inner<H>> {
        let mut inner = Inner::with(left);
        inner.add(1, right);
        inner
    }

    fn with(child: Node<H>) -> Box<Inner<H>> {
        let (score, handle) = child.first();
        let count = child.count();
        let mut inner = Box::new(Inner {
            keys: Keys::single(score, handle),
            counts: [0; INNER_CHILDREN],
            children: [const { None }; INNER_CHILDREN],
        });
        inner.counts[0] = count;
        inner.children[0] = Some(child);
        inner
    }

    pub(super) fn child(&self, at: usize) -> &Node<H> {
        self.children[at].as_ref().expect("there is a child for every key")
    }

    fn child_mut(&mut self, at: usize) -> &mut Node<H> {
        self.children[at].as_mut().expect("there is a child for every key")
    }

    /// The child under which a key stands or belongs: the last whose first element
    /// does not come behind it.
    pub(super) fn child_of(&self, key: Key<'_>) -> usize {
        let at = self.keys.position(key);
        if self.keys.is_at(at, key) { at } else { at.saturating_sub(1) }
    }

    /// The child that holds the element of a rank, and how many come before that child.
    pub(super) fn child_at(&self, rank: u64) -> (usize, u64) {
        let mut before = 0;
        for (at, count) in self.counts[..self.keys.len].iter().enumerate() {
            if rank < before + count {
                return (at, before);
            }
            before += count;
        }
        unreachable!("ranks are checked against the number of elements")
    }

    /// Elements under the children before one.
    pub(super) fn count_before(&self, child: usize) -> u64 {
        self.counts[..child].iter().sum()
    }

    fn insert(&mut self, score: f64, handle: H, is_last: bool) -> Option<Node<H>> {
        let child = self.child_of(Key { score, member: handle.member() });
        let is_last = is_last && child == self.keys.len - 1;
        let split = self.child_mut(child).insert(score, handle, is_last);
        let Some(right) = split else {
            self.counts[child] += 1;
            if child == 0 {
                self.note_first(0);
            }
            return None;
        };
        self.counts[child] = self.child(child).count();
        self.note_first(child);
        self.add_or_split(child + 1, right, is_last)
    }

    /// Adds a child; returns what is split off to the right if the node was full.
    fn add_or_split(&mut self, at: usize, child: Node<H>, is_last: bool) -> Option<Node<H>> {
        if self.keys.len < INNER_CHILDREN {
            self.add(at, child);
            return None;
        }
        if is_last && at == self.keys.len {
            return Some(Node::Inner(Inner::with(child)));
        }
        let half = self.keys.len / 2;
        let mut right = Box::new(Inner {
            keys: self.keys.split_off(half),
            counts: [0; INNER_CHILDREN],
            children: [const { None }; INNER_CHILDREN],
        });
        let moved = right.keys.len;
        right.counts[..moved].copy_from_slice(&self.counts[half..half + moved]);
        right.children[..moved].swap_with_slice(&mut self.children[half..half + moved]);
        match at.checked_sub(half) {
            Some(at) if at > 0 => right.add(at, child),
            _ => self.add(at, child),
        }
        Some(Node::Inner(right))
    }

    fn add(&mut self, at: usize, child: Node<H>) {
        let count = child.count();
        self.insert_child(at, child, count);
    }

    fn insert_child(&mut self, at: usize, child: Node<H>, count: u64) {
        let (score, handle) = child.first();
        let len = self.keys.len;
        self.keys.insert(at, score, handle);
        self.counts.copy_within(at..len, at + 1);
        self.counts[at] = count;
        self.children[at..=len].rotate_right(1);
        self.children[at] = Some(child);
    }

    fn remove(&mut self, at: usize) -> (Node<H>, u64) {
        let len = self.keys.len;
        let child = self.children[at].take().expect("there is a child for every key");
        let count = self.counts[at];
        self.keys.remove(at);
        self.counts.copy_within(at + 1..len, at);
        self.children[at..len].rotate_left(1);
        (child, count)
    }

    fn note_first(&mut self, at: usize) {
        let (score, handle) = self.child(at).first();
        self.keys.scores[at] = score;
        self.keys.handles[at] = handle;
    }

    /// After an element was taken out under a child: counts it, and joins the child
    /// with a neighbour if it has become too small.
    fn repair(&mut self, at: usize) {
        self.counts[at] -= 1;
        let child = self.child(at);
        let filled = child.filled();
        if filled >= child.places() / 4 {
            self.note_first(at);
            return;
        }
        if self.keys.len == 1 {
            // Only the last of a level or the root's child: there is nothing to join it with.
            if filled > 0 {
                self.note_first(at);
            } else {
                self.remove(at);
            }
            return;
        }
        let left = at.saturating_sub(1);
        let (head, tail) = self.children.split_at_mut(left + 1);
        let (Some(left_node), Some(right_node)) = (&mut head[left], &mut tail[0]) else {
            unreachable!("there is a child for every key")
        };
        if left_node.even_out(right_node) {
            self.counts[left] += self.counts[left + 1];
            self.remove(left + 1);
        } else {
            self.counts[left] = left_node.count();
            self.counts[left + 1] = right_node.count();
            self.note_first(left + 1);
        }
        self.note_first(left);
    }

    /// The child of a node that has only one.
    pub(super) fn take_only_child(&mut self) -> Option<Node<H>> {
        if self.keys.len == 1 { self.children[0].take() } else { None }
    }
}
