//! How many nodes Redis' radix tree would have for this stream: XINFO STREAM tells it, and monitoring reads it.
//!
//! The tree's keys are the nodes' ids as 16 bytes. It has a node for each key's end, one for each byte at
//! which keys part, and one for each stretch of bytes between those.

use super::entries::Entries;
use super::id::StreamId;

const KEY_BYTES: u32 = 16;

impl Entries {
    /// The number of nodes of Redis' radix tree. Goes through all nodes of the stream.
    pub fn radix_node_count(&self) -> usize {
        // Depths of the partings above the last key, as on a walk through the tree; 0 stands for the root.
        let mut partings: Vec<u32> = Vec::new();
        let mut last: Option<StreamId> = None;
        let mut count = 0;
        for id in self.nodes.keys() {
            if let Some(last) = last {
                count += close(&mut partings, KEY_BYTES, shared_bytes(last, *id));
            }
            last = Some(*id);
        }
        if last.is_some() {
            count += close_all(&mut partings);
        }
        // An empty tree has its root.
        count.max(1)
    }
}

/// Bytes at the front in which two keys agree.
fn shared_bytes(a: StreamId, b: StreamId) -> u32 {
    let both = |id: StreamId| u128::from_be_bytes(id.to_bytes());
    (both(a) ^ both(b)).leading_zeros() / 8
}

/// Leaves what lies below `depth`, counting its nodes and the stretches that lead to them.
fn close(partings: &mut Vec<u32>, end: u32, depth: u32) -> usize {
    let mut count = 0;
    let mut below = end;
    while let Some(parting) = partings.pop_if(|parting| *parting > depth) {
        count += nodes_between(parting, below);
        below = parting;
    }
    if partings.last() != Some(&depth) {
        partings.push(depth);
    }
    count + nodes_between(depth, below)
}

fn close_all(partings: &mut Vec<u32>) -> usize {
    let mut count = 0;
    let mut below = KEY_BYTES;
    while let Some(parting) = partings.pop() {
        count += nodes_between(parting, below);
        below = parting;
    }
    // The root leads to the first parting, or to the only key, without a byte of a parting before it.
    count + 1 + usize::from(below > 0)
}

/// The node at depth `below` and the stretch to it from a parting at `above`, whose own byte is no part of it.
fn nodes_between(above: u32, below: u32) -> usize {
    1 + usize::from(below > above + 1)
}
