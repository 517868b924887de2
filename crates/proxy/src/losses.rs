//! When connections to servers were lost: what was written to one before that may be lost with it, of which a later connection knows nothing.
//!
//! Thread rule: shared.

use crate::upstream::NodeNo;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// All losses, counted.
#[derive(Default)]
pub struct Losses {
    count: AtomicU64,
    /// The last one of each server.
    last: RwLock<HashMap<NodeNo, u64>>,
}

impl Losses {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// A connection to a server is lost, or cannot be had.
    pub fn note(&self, node: NodeNo) {
        let mut last = self.last.write();
        let number = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        last.insert(node, number);
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
        losses.note(3);
        let count = losses.count();
        assert!(!losses.is_any_since(count, |_| true) && losses.is_any_since(0, |node| node == 3));
        losses.note(4);
        assert!(losses.is_any_since(count, |_| true) && !losses.is_any_since(count, |node| node == 3));
    }
}
