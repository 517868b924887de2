//! Taking entries away from the front: by number, or all below an id.
//!
//! 1. Trimming by whole nodes removes exactly the nodes that Redis removes.
//! 2. An exact trimming leaves deleted entries in at most one node, the first.

use super::entries::Entries;
use super::id::StreamId;

/// What is to remain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The last so many entries.
    MaxLen(u64),
    /// Those from this id on.
    MinId(StreamId),
}

/// How entries are taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trim {
    /// All that are beyond the bound.
    Exact(Bound),
    /// Whole nodes that lie beyond it, up to so many entries; 0 is as many as there are.
    WholeNodes(Bound, u64),
}

impl Entries {
    /// Takes entries away; tells how many.
    pub fn trim(&mut self, trim: Trim) -> u64 {
        let (bound, limit) = match trim {
            Trim::Exact(bound) => (bound, 0),
            Trim::WholeNodes(bound, limit) => (bound, limit),
        };
        let mut removed = self.trim_nodes(bound, limit);
        if let Trim::Exact(bound) = trim {
            removed += self.trim_first_node(bound);
        }
        if removed > 0 {
            self.find_first();
        }
        removed
    }

    fn trim_nodes(&mut self, bound: Bound, limit: u64) -> u64 {
        let mut removed = 0;
        while let Some(first) = self.nodes.first_entry() {
            let live = first.get().counts().live;
            let is_beyond = match bound {
                Bound::MaxLen(len) => self.length > len && self.length - live >= len,
                Bound::MinId(id) => first.get().last_id(*first.key()) < id,
            };
            if !is_beyond || (limit > 0 && removed + live > limit) {
                break;
            }
            first.remove();
            self.length -= live;
            removed += live;
        }
        removed
    }

    fn trim_first_node(&mut self, bound: Bound) -> u64 {
        let length = self.length;
        let Some(mut first) = self.nodes.first_entry() else { return 0 };
        let node_id = *first.key();
        let marked = first.get_mut().delete_until(node_id, |id, marked| match bound {
            Bound::MaxLen(len) => length - marked <= len,
            Bound::MinId(min) => id >= min,
        });
        self.length -= marked;
        marked
    }
}
