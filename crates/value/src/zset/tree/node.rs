//! Nodes of the tree: leaves with elements, inner nodes with children.
//!
//! Both keep their scores and handles in [`Keys`], arrays of fixed length that fill
//! an allocation of 1 KB or 2 KB with the counts of who shares it. Copies of a tree
//! share its nodes until either changes them. A change first finds its way down
//! ([`Path`]), then goes it by recursion and repairs each inner node on the way back.
//!
//! Invariants: see the parent module.

use super::Handle;
use std::sync::Arc;
use sys::prefetch::{LINE_BYTES, prefetch};

/// Elements of a leaf: with their number they fill 1,000 bytes.
pub(super) const LEAF_ELEMENTS: usize = 62;
/// Children of an inner node: with their number they fill 2,008 bytes.
pub(super) const INNER_CHILDREN: usize = 50;

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
#[derive(Clone, Debug)]
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

    /// Fetches the scores.
    fn prefetch(&self) {
        let first = self.scores.as_ptr().addr();
        (0..size_of_val(&self.scores)).step_by(LINE_BYTES).for_each(|offset| prefetch(first + offset));
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
    #[expect(
        clippy::cast_possible_truncation,
        reason = "counts of a node are small; ranks have 64 bits, as sizes do"
    )]
    pub(super) fn count_below(&self, score: f64) -> usize {
        self.scores.iter().map(|other| u64::from(*other < score)).sum::<u64>() as usize
    }

    /// How many scores are not above one.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "counts of a node are small; ranks have 64 bits, as sizes do"
    )]
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

/// More levels than a tree can have: with nodes a quarter full, 13 hold 10^14 elements.
const LEVELS_MAX: usize = 16;

/// The way from the root to a place: the child to go to in each inner node, and the place in the leaf.
pub(super) struct Path {
    steps: [u8; LEVELS_MAX],
    len: usize,
}

impl Path {
    const EMPTY: Path = Path { steps: [0; LEVELS_MAX], len: 0 };

    #[expect(
        clippy::cast_possible_truncation,
        reason = "counts of a node are small; ranks have 64 bits, as sizes do"
    )]
    fn push(&mut self, step: usize) {
        self.steps[self.len] = step as u8;
        self.len += 1;
    }

    pub(super) fn steps(&self) -> &[u8] {
        &self.steps[..self.len]
    }

    /// The first step, and those that follow.
    fn step(path: &[u8]) -> (usize, &[u8]) {
        let (first, below) = path.split_first().expect("a path ends in a leaf");
        (usize::from(*first), below)
    }

    /// The place in the leaf, if both lead to the same leaf.
    pub(super) fn meets(&self, other: &Path) -> Option<(usize, usize)> {
        let ((at, way), (other_at, other_way)) = (self.steps().split_last()?, other.steps().split_last()?);
        (way == other_way).then_some((usize::from(*at), usize::from(*other_at)))
    }
}

/// What taking an element out does to the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// Nothing else: all other ways remain.
    Alone,
    /// Nodes may be joined.
    MayJoin,
}

/// Children with their first elements and counts.
#[derive(Clone, Debug)]
pub(super) struct Inner<H> {
    pub(super) keys: Keys<H, INNER_CHILDREN>,
    counts: [u64; INNER_CHILDREN],
    children: [Option<Node<H>>; INNER_CHILDREN],
}

/// A node of either kind.
#[derive(Debug)]
pub(super) enum Node<H> {
    Leaf(Arc<Leaf<H>>),
    Inner(Arc<Inner<H>>),
}

impl<H> Clone for Node<H> {
    /// Shares all that lies below.
    fn clone(&self) -> Node<H> {
        match self {
            Node::Leaf(leaf) => Node::Leaf(leaf.clone()),
            Node::Inner(inner) => Node::Inner(inner.clone()),
        }
    }
}

impl<H: Handle> Node<H> {
    /// A leaf with one element.
    pub(super) fn single(score: f64, handle: H) -> Node<H> {
        Node::Leaf(Arc::new(Leaf::single(score, handle)))
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

    /// The way to where a key stands or belongs.
    pub(super) fn path_to(&self, key: Key<'_>) -> Path {
        let mut path = Path::EMPTY;
        let leaf = self.leaf_of(key, &mut path);
        path.push(leaf.position(key));
        path
    }

    /// The leaf where a key stands or belongs; the children on the way there are added to the path.
    fn leaf_of(&self, key: Key<'_>, path: &mut Path) -> &Leaf<H> {
        let mut node = self;
        loop {
            match node {
                Node::Inner(inner) => {
                    let child = inner.child_of(key);
                    path.push(child);
                    node = inner.child(child);
                }
                Node::Leaf(leaf) => return leaf,
            }
        }
    }

    /// The ways to where a key stands and to where another belongs, and whether the first can be taken
    /// out without any node being joined with another. None if the first is not there.
    pub(super) fn paths_to(&self, from: Key<'_>, to: Key<'_>) -> Option<(Path, Path, Removal)> {
        let (mut from_path, mut to_path) = (Path::EMPTY, Path::EMPTY);
        let from_leaf = self.leaf_of(from, &mut from_path);
        let to_leaf = self.leaf_of(to, &mut to_path);
        // The second leaf is on its way while the first is searched.
        to_leaf.prefetch();
        let at = from_leaf.position(from);
        if !from_leaf.is_at(at, from) {
            return None;
        }
        from_path.push(at);
        to_path.push(to_leaf.position(to));
        // A node above it may be too small already, if it is the last of its level.
        let stays = from_leaf.len > LEAF_ELEMENTS / 4 && self.is_filled_along(from_path.steps());
        Some((from_path, to_path, if stays { Removal::Alone } else { Removal::MayJoin }))
    }

    /// Whether no node on this way, this one left aside, is so small that it is joined when something is taken out below it.
    fn is_filled_along(&self, path: &[u8]) -> bool {
        let Node::Inner(inner) = self else { return true };
        let (at, below) = Path::step(path);
        let child = inner.child(at);
        !child.is_small() && child.is_filled_along(below)
    }

    /// Whether it is to be joined with a neighbour.
    fn is_small(&self) -> bool {
        self.filled() < self.places() / 4
    }

    /// Adds an element at a place. Returns what is split off to the right, if the node was full.
    /// `is_last` says that nothing lies to the right: a full node is then not
    /// halved for an element behind it, so that ascending insertion fills nodes.
    pub(super) fn insert_at(&mut self, path: &[u8], score: f64, handle: H, is_last: bool) -> Option<Node<H>> {
        let (at, below) = Path::step(path);
        match self {
            Node::Leaf(leaf) => {
                let leaf = Arc::make_mut(leaf);
                if leaf.len < LEAF_ELEMENTS {
                    leaf.insert(at, score, handle);
                    return None;
                }
                if is_last && at == leaf.len {
                    return Some(Node::single(score, handle));
                }
                let half = leaf.len / 2;
                let mut right = leaf.split_off(half);
                match at.checked_sub(half) {
                    Some(at) if at > 0 => right.insert(at, score, handle),
                    _ => leaf.insert(at, score, handle),
                }
                Some(Node::Leaf(Arc::new(right)))
            }
            Node::Inner(inner) => Arc::make_mut(inner).insert_at(at, below, score, handle, is_last),
        }
    }

    /// Takes out the element of this key.
    pub(super) fn remove(&mut self, key: Key<'_>) -> Option<H> {
        let mut path = Path::EMPTY;
        let leaf = self.leaf_of(key, &mut path);
        let at = leaf.position(key);
        if !leaf.is_at(at, key) {
            return None;
        }
        path.push(at);
        Some(self.take_at(path.steps()))
    }

    /// Takes out the element at a place.
    pub(super) fn take_at(&mut self, path: &[u8]) -> H {
        let (at, below) = Path::step(path);
        match self {
            Node::Leaf(leaf) => Arc::make_mut(leaf).remove(at).1,
            Node::Inner(inner) => {
                let inner = Arc::make_mut(inner);
                let removed = inner.child_mut(at).take_at(below);
                inner.repair(at);
                removed
            }
        }
    }

    /// Takes out the element with `rank` others before it.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "counts of a node are small; ranks have 64 bits, as sizes do"
    )]
    pub(super) fn remove_at(&mut self, rank: u64) -> (f64, H) {
        match self {
            Node::Leaf(leaf) => Arc::make_mut(leaf).remove(rank as usize),
            Node::Inner(inner) => {
                let inner = Arc::make_mut(inner);
                let (child, before) = inner.child_at(rank);
                let removed = inner.child_mut(child).remove_at(rank - before);
                inner.repair(child);
                removed
            }
        }
    }

    /// Gives an element another score and place within its leaf. Neither place is the
    /// leaf's first, so that no other node changes.
    pub(super) fn move_within_leaf(&mut self, path: &[u8], to: usize, score: f64) {
        let (at, below) = Path::step(path);
        match self {
            Node::Inner(inner) => Arc::make_mut(inner).child_mut(at).move_within_leaf(below, to, score),
            Node::Leaf(leaf) => {
                let leaf = Arc::make_mut(leaf);
                let (_, handle) = leaf.remove(at);
                leaf.insert(if to > at { to - 1 } else { to }, score, handle);
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
                let (left, right) = (Arc::make_mut(left), Arc::make_mut(right));
                if left.len > left_share {
                    let mut moved = left.split_off(left_share);
                    moved.append(right, 0..right.len);
                    *right = moved;
                } else {
                    let taken = left_share - left.len;
                    left.append(right, 0..taken);
                    right.scores.copy_within(taken..right.len, 0);
                    right.handles.copy_within(taken..right.len, 0);
                    right.cut(right.len - taken);
                }
            }
            (Node::Inner(left), Node::Inner(right)) => {
                let (left, right) = (Arc::make_mut(left), Arc::make_mut(right));
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
        assert!(self.filled() > 0 && (is_last || !self.is_small()));
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
    pub(super) fn over(left: Node<H>, right: Node<H>) -> Arc<Inner<H>> {
        let mut inner = Inner::with(left);
        inner.add(1, right);
        Arc::new(inner)
    }

    fn with(child: Node<H>) -> Inner<H> {
        let (score, handle) = child.first();
        let count = child.count();
        let mut inner = Inner {
            keys: Keys::single(score, handle),
            counts: [0; INNER_CHILDREN],
            children: [const { None }; INNER_CHILDREN],
        };
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

    fn insert_at(
        &mut self,
        child: usize,
        below: &[u8],
        score: f64,
        handle: H,
        is_last: bool,
    ) -> Option<Node<H>> {
        let is_last = is_last && child == self.keys.len - 1;
        let split = self.child_mut(child).insert_at(below, score, handle, is_last);
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
            return Some(Node::Inner(Arc::new(Inner::with(child))));
        }
        let half = self.keys.len / 2;
        let mut right = Inner {
            keys: self.keys.split_off(half),
            counts: [0; INNER_CHILDREN],
            children: [const { None }; INNER_CHILDREN],
        };
        let moved = right.keys.len;
        right.counts[..moved].copy_from_slice(&self.counts[half..half + moved]);
        right.children[..moved].swap_with_slice(&mut self.children[half..half + moved]);
        match at.checked_sub(half) {
            Some(at) if at > 0 => right.add(at, child),
            _ => self.add(at, child),
        }
        Some(Node::Inner(Arc::new(right)))
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
        if !child.is_small() {
            self.note_first(at);
            return;
        }
        if self.keys.len == 1 {
            // Only the last of a level or the root's child: there is nothing to join it with.
            if child.filled() > 0 {
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
