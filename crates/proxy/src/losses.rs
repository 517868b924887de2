//! When servers were lost: what was written to one before that may be lost with it, of which whoever is in its place knows nothing. A server is lost when
//! another process is met where it was, or when it has slots no more.
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
    known: RwLock<Known>,
    /// Which process was met where a server is.
    met: RwLock<HashMap<NodeNo, Box<[u8]>>>,
}

/// Which they were.
#[derive(Default)]
struct Known {
    /// The last one of each server.
    last: HashMap<NodeNo, u64>,
    /// The last one of each server that had slots, and has had none since.
    demoted: HashMap<NodeNo, u64>,
}

impl Losses {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// A server has slots no more.
    pub fn note_demoted(&self, node: NodeNo) {
        let known = &mut *self.known.write();
        let number = self.note(known, node);
        known.demoted.insert(node, number);
    }

    /// A server is lost; gives the number of that.
    fn note(&self, known: &mut Known, node: NodeNo) -> u64 {
        let number = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        known.last.insert(node, number);
        number
    }

    /// This process is met where a server is.
    pub fn meet(&self, node: NodeNo, process: &[u8]) {
        if self.met.read().get(&node).is_some_and(|met| **met == *process) {
            return;
        }
        // Whoever finds it known finds the loss noted.
        let mut met = self.met.write();
        if met.insert(node, process.into()).is_some_and(|before| *before != *process) {
            self.note(&mut self.known.write(), node);
        }
    }

    /// Whether there was one of such a server since there were so many.
    pub fn is_any_since(&self, count: u64, is_such: impl Fn(NodeNo) -> bool) -> bool {
        self.count() > count
            && self.known.read().last.iter().any(|(node, number)| *number > count && is_such(*node))
    }

    /// The same of one that is among these masters, or has been a master since there were so many: whoever was none then was not written to since, and if
    /// another process is in its place, that is a replica's.
    pub fn is_any_of_masters_since(
        &self,
        count: u64,
        masters: &[NodeNo],
        is_such: impl Fn(NodeNo) -> bool,
    ) -> bool {
        let was_master = |known: &Known, node| known.demoted.get(node).is_some_and(|number| *number > count);
        let known = self.known.read();
        let is_one = |node| masters.contains(node) || was_master(&known, node);
        known.last.iter().any(|(node, number)| *number > count && is_such(*node) && is_one(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_count_since_then_and_of_those_servers() {
        let losses = Losses::default();
        losses.note_demoted(3);
        let count = losses.count();
        assert!(!losses.is_any_since(count, |_| true) && losses.is_any_since(0, |node| node == 3));
        losses.meet(4, b"one");
        losses.meet(4, b"one");
        losses.meet(5, b"one");
        assert!(!losses.is_any_since(count, |_| true));
        losses.meet(4, b"another");
        assert!(losses.is_any_since(count, |_| true) && !losses.is_any_since(count, |node| node == 3));
    }

    #[test]
    fn a_replica_that_is_replaced_is_no_loss_to_who_has_written_since_it_was_a_master() {
        let losses = Losses::default();
        losses.meet(3, b"one");
        let before = losses.count();
        losses.note_demoted(3);
        let since = losses.count();
        let is_lost = |count, masters: &[NodeNo]| losses.is_any_of_masters_since(count, masters, |_| true);
        assert!(is_lost(before, &[4]) && !is_lost(since, &[4]));
        losses.meet(3, b"another");
        assert!(is_lost(before, &[4]) && !is_lost(since, &[4]));
        // It is one again, and what is written to it since may be lost.
        assert!(is_lost(since, &[3, 4]));
        losses.note_demoted(3);
        assert!(is_lost(since, &[4]));
    }
}
