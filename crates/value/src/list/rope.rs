//! The nodes of a quicklist, in order: a deque of chunks of nodes.
//!
//! A chunk counts its elements, so that an index is found by looking through the chunks and then through one
//! chunk, and a node is inserted by moving a part of one chunk. A list of a million nodes has 16,000 chunks
//! at most; the usual list has one. Copies of a rope share its chunks until either changes one. Plain values, any thread.
//!
//! 1. No chunk is empty, and none has more than [`CHUNK_NODES_MAX`] nodes.
//! 2. `count` of a chunk, and of the rope, is the sum of its nodes' counts.
//! 3. A [`NodeAt`] is valid until a node is inserted or removed; those calls say where things are then.

use std::collections::VecDeque;
use std::sync::Arc;

use super::node::{End, Node};
use crate::limits::LIST_CHUNK_NODES_MAX as CHUNK_NODES_MAX;

/// Neighbouring chunks that have become so small together are joined.
const JOINED_NODES_MAX: usize = CHUNK_NODES_MAX / 2;

/// Where a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeAt {
    chunk: usize,
    node: usize,
}

#[derive(Clone, Default)]
struct Chunk {
    nodes: Vec<Node>,
    count: usize,
}

impl Chunk {
    /// Inserts a node. Room grows in small steps: most lists have few nodes, and many lists have them.
    fn insert(&mut self, index: usize, node: Node) {
        const STEP: usize = 4;
        if self.nodes.len() == self.nodes.capacity() {
            self.nodes.reserve_exact(STEP.max(self.nodes.len() / STEP));
        }
        self.count += node.count();
        self.nodes.insert(index, node);
    }

    fn of(nodes: Vec<Node>) -> Self {
        let count = nodes.iter().map(Node::count).sum();
        Self { nodes, count }
    }
}

/// A sequence of nodes that is indexed by elements.
#[derive(Clone, Default)]
pub(super) struct Rope {
    chunks: VecDeque<Arc<Chunk>>,
    nodes: usize,
    count: usize,
}

impl Rope {
    /// The number of elements.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The number of nodes.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// All nodes in order.
    pub fn iter(&self) -> impl Iterator<Item = &Node> {
        self.chunks.iter().flat_map(|chunk| &chunk.nodes)
    }

    #[inline]
    pub fn get(&self, at: NodeAt) -> &Node {
        &self.chunks[at.chunk].nodes[at.node]
    }

    /// The first or the last node.
    #[inline]
    pub fn at_end(&self, end: End) -> Option<NodeAt> {
        match end {
            End::Head => (self.nodes > 0).then_some(NodeAt { chunk: 0, node: 0 }),
            End::Tail => {
                let chunk = self.chunks.len().checked_sub(1)?;
                Some(NodeAt { chunk, node: self.chunks[chunk].nodes.len() - 1 })
            }
        }
    }

    /// The node after another.
    #[inline]
    pub fn next(&self, at: NodeAt) -> Option<NodeAt> {
        if at.node + 1 < self.chunks[at.chunk].nodes.len() {
            return Some(NodeAt { node: at.node + 1, ..at });
        }
        (at.chunk + 1 < self.chunks.len()).then_some(NodeAt { chunk: at.chunk + 1, node: 0 })
    }

    /// The node before another.
    #[inline]
    pub fn prev(&self, at: NodeAt) -> Option<NodeAt> {
        if at.node > 0 {
            return Some(NodeAt { node: at.node - 1, ..at });
        }
        let chunk = at.chunk.checked_sub(1)?;
        Some(NodeAt { chunk, node: self.chunks[chunk].nodes.len() - 1 })
    }

    /// The next node when walking away from an end.
    #[inline]
    pub fn onward(&self, at: NodeAt, from: End) -> Option<NodeAt> {
        match from {
            End::Head => self.next(at),
            End::Tail => self.prev(at),
        }
    }

    /// The node that has the element of an index, and the element's index in it.
    pub fn seek(&self, index: usize) -> Option<(NodeAt, usize)> {
        if index >= self.count {
            return None;
        }
        if index >= self.count / 2 {
            return Some(self.seek_back(self.count - index));
        }
        let mut rest = index;
        let mut chunk = 0;
        while rest >= self.chunks[chunk].count {
            rest -= self.chunks[chunk].count;
            chunk += 1;
        }
        Some(self.seek_in(chunk, rest))
    }

    /// [`Rope::seek`] for the distance from the end, at least 1.
    fn seek_back(&self, distance: usize) -> (NodeAt, usize) {
        let mut rest = distance;
        let mut chunk = self.chunks.len() - 1;
        while rest > self.chunks[chunk].count {
            rest -= self.chunks[chunk].count;
            chunk -= 1;
        }
        self.seek_in(chunk, self.chunks[chunk].count - rest)
    }

    fn seek_in(&self, chunk: usize, index: usize) -> (NodeAt, usize) {
        let mut rest = index;
        let mut node = 0;
        while rest >= self.chunks[chunk].nodes[node].count() {
            rest -= self.chunks[chunk].nodes[node].count();
            node += 1;
        }
        (NodeAt { chunk, node }, rest)
    }

    /// Edits a node and keeps the counts right. The node may become empty; it must be removed then.
    #[inline]
    pub fn edit<T>(&mut self, at: NodeAt, edit: impl FnOnce(&mut Node) -> T) -> T {
        let chunk = Arc::make_mut(&mut self.chunks[at.chunk]);
        let node = &mut chunk.nodes[at.node];
        let before = node.count();
        let result = edit(node);
        chunk.count = chunk.count - before + node.count();
        self.count = self.count - before + node.count();
        result
    }

    /// Adds a node at an end, and returns where it is.
    pub fn push(&mut self, node: Node, end: End) -> NodeAt {
        match self.at_end(end) {
            Some(at) if end == End::Head => self.insert_before(at, node),
            Some(at) => self.insert_after(at, node),
            None => {
                (self.nodes, self.count) = (1, node.count());
                self.chunks.reserve_exact(1);
                self.chunks.push_back(Arc::new(Chunk::of(vec![node])));
                NodeAt { chunk: 0, node: 0 }
            }
        }
    }

    /// Inserts a node after another, which stays where it is unless this splits its chunk. Returns where the new
    /// one is.
    pub fn insert_after(&mut self, at: NodeAt, node: Node) -> NodeAt {
        self.insert(at.chunk, at.node + 1, node)
    }

    /// Inserts a node before another. Returns where the new one is.
    pub fn insert_before(&mut self, at: NodeAt, node: Node) -> NodeAt {
        self.insert(at.chunk, at.node, node)
    }

    fn insert(&mut self, chunk: usize, index: usize, node: Node) -> NodeAt {
        self.nodes += 1;
        self.count += node.count();
        let nodes = self.chunks[chunk].nodes.len();
        if nodes < CHUNK_NODES_MAX {
            self.chunk_mut(chunk).insert(index, node);
            return NodeAt { chunk, node: index };
        }
        // At the edges of a full chunk a new one begins, so that pushing leaves full chunks behind.
        if index == 0 || index == nodes {
            let chunk = chunk + usize::from(index != 0);
            self.chunks.insert(chunk, Arc::new(Chunk::of(vec![node])));
            return NodeAt { chunk, node: 0 };
        }
        let full = self.chunk_mut(chunk);
        let tail = Chunk::of(full.nodes.split_off(nodes / 2));
        full.count -= tail.count;
        self.chunks.insert(chunk + 1, Arc::new(tail));
        let (chunk, index) = if index <= nodes / 2 { (chunk, index) } else { (chunk + 1, index - nodes / 2) };
        self.chunk_mut(chunk).insert(index, node);
        NodeAt { chunk, node: index }
    }

    /// A chunk, to be changed; shared no more.
    #[inline]
    fn chunk_mut(&mut self, chunk: usize) -> &mut Chunk {
        Arc::make_mut(&mut self.chunks[chunk])
    }

    /// Removes a node. Returns it, and where the node after it is then.
    pub fn remove(&mut self, at: NodeAt) -> (Node, Option<NodeAt>) {
        let chunk = Arc::make_mut(&mut self.chunks[at.chunk]);
        let node = chunk.nodes.remove(at.node);
        chunk.count -= node.count();
        self.nodes -= 1;
        self.count -= node.count();
        if chunk.nodes.is_empty() {
            self.chunks.remove(at.chunk);
        } else if chunk.nodes.len() < JOINED_NODES_MAX / 2 {
            self.join(at.chunk);
        }
        let next = match self.chunks.get(at.chunk) {
            Some(chunk) if at.node < chunk.nodes.len() => Some(at),
            Some(_) if at.chunk + 1 < self.chunks.len() => Some(NodeAt { chunk: at.chunk + 1, node: 0 }),
            _ => None,
        };
        (node, next)
    }

    /// Moves the nodes of the next chunk to this one, if both are small.
    fn join(&mut self, chunk: usize) {
        let (this, next) = (&self.chunks[chunk], self.chunks.get(chunk + 1));
        if next.is_none_or(|next| this.nodes.len() + next.nodes.len() > JOINED_NODES_MAX) {
            return;
        }
        let mut next = Arc::unwrap_or_clone(self.chunks.remove(chunk + 1).expect("it was looked at"));
        let this = self.chunk_mut(chunk);
        this.nodes.append(&mut next.nodes);
        this.count += next.count;
    }

    /// Panics unless every invariant holds.
    #[cfg(test)]
    pub fn verify(&self) {
        for chunk in &self.chunks {
            assert!((1..=CHUNK_NODES_MAX).contains(&chunk.nodes.len()));
            assert_eq!(chunk.count, chunk.nodes.iter().map(Node::count).sum());
            assert!(chunk.nodes.iter().all(|node| node.count() > 0));
        }
        assert_eq!(self.count, self.chunks.iter().map(|chunk| chunk.count).sum());
        assert_eq!(self.nodes, self.chunks.iter().map(|chunk| chunk.nodes.len()).sum());
    }
}
