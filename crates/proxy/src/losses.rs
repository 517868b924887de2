//! When servers were lost: what was written to one before that may be lost with it, of which whoever is in its place knows nothing. A server is lost when
//! another process is met where it was, or when it has slots no more.
//!
//! Thread rule: shared.

use crate::upstream::NodeNo;
use parking_lot::RwLock;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

/// All losses, counted.
#[derive(Default)]
pub struct Losses {
    count: AtomicU64,
    /// The last one of each server.
    last: RwLock<HashMap<NodeNo, u64>>,
    /// Those that had slots.
    demoted: RwLock<BTreeSet<NodeNo>>,
    /// Which process was met where a server is.
    met: RwLock<HashMap<NodeNo, Box<[u8]>>>,
}

impl Losses {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// A server has slots no more.
    pub fn note_demoted(&self, node: NodeNo) {
        self.demoted.write().insert(node);
        self.note(node);
    }

    /// Whether a server had slots once, and has none.
    pub fn had_slots(&self, node: NodeNo) -> bool {
        self.demoted.read().contains(&node)
    }

    /// A server is lost.
    fn note(&self, node: NodeNo) {
        let mut last = self.last.write();
        let number = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        last.insert(node, number);
    }

    /// This process is met where a server is.
    pub fn meet(&self, node: NodeNo, process: &[u8]) {
        if self.met.read().get(&node).is_some_and(|met| **met == *process) {
            return;
        }
        // Whoever finds it known finds the loss noted.
        let mut met = self.met.write();
        if met.insert(node, process.into()).is_some_and(|before| *before != *process) {
            self.note(node);
        }
    }

    /// Whether there was one of such a server since there were so many.
    pub fn is_any_since(&self, count: u64, is_such: impl Fn(NodeNo) -> bool) -> bool {
        self.count() > count
            && self.last.read().iter().any(|(node, number)| *number > count && is_such(*node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_count_since_then_and_of_those_servers() {
        let losses = Losses::default();
        losses.note_demoted(3);
        assert!(losses.had_slots(3) && !losses.had_slots(4));
        let count = losses.count();
        assert!(!losses.is_any_since(count, |_| true) && losses.is_any_since(0, |node| node == 3));
        losses.meet(4, b"one");
        losses.meet(4, b"one");
        losses.meet(5, b"one");
        assert!(!losses.is_any_since(count, |_| true));
        losses.meet(4, b"another");
        assert!(losses.is_any_since(count, |_| true) && !losses.is_any_since(count, |node| node == 3));
    }
}
