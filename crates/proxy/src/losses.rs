//! When servers were lost: what was written to one before that may be lost with it, of which whoever is in its place knows nothing. A server is lost when
//! another process is met where it was, or when it has slots no more.
//!
//! A connection that was made before may lead to the process that was there before, which lives on maybe. Nothing is written over one any more (see
//! [`Met::is_past`]), so that what a client writes and what it waits for go to one process, or to several of which the loss is noted between.
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
    /// Which process was met where a server is, and how many losses there were with that of the one before it.
    met: RwLock<HashMap<NodeNo, Process>>,
}

/// By which name it is known, and since which loss.
type Process = (Box<[u8]>, u64);

/// Which process a connection leads to.
#[derive(Debug)]
pub struct Met {
    node: NodeNo,
    /// How many losses there were with that of the one before it.
    since: u64,
    /// How many there were when this one was the last that was met there.
    seen: u64,
}

impl Met {
    /// Whether another process was met since where this one was.
    #[inline]
    pub fn is_past(&mut self, losses: &Losses) -> bool {
        // Before it is looked at who is there: a loss that comes meanwhile is looked at the next time.
        let count = losses.count();
        if count == self.seen {
            return false;
        }
        let is_there = losses.met.read().get(&self.node).is_some_and(|(_, since)| *since == self.since);
        if is_there {
            self.seen = count;
        }
        !is_there
    }
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
    pub fn meet(&self, node: NodeNo, process: &[u8]) -> Met {
        let seen = self.count();
        let known = self.met.read().get(&node).filter(|(met, _)| **met == *process).map(|(_, since)| *since);
        if let Some(since) = known {
            return Met { node, since, seen };
        }
        // Whoever finds it known finds the loss noted.
        let mut met = self.met.write();
        let since = match met.get(&node) {
            None => 0,
            Some((before, since)) if **before == *process => *since,
            Some(_) => self.note(&mut self.known.write(), node),
        };
        met.insert(node, (process.into(), since));
        Met { node, since, seen }
    }

    /// Whether there was one of such a server since there were so many.
    pub fn is_any_since(&self, count: u64, is_such: impl Fn(NodeNo) -> bool) -> bool {
        self.count() > count
            && self.known.read().last.iter().any(|(node, number)| *number > count && is_such(*node))
    }

    /// The same of one that is a master, or has been one since there were so many: whoever was none then was not written to since, and if another process is
    /// in its place, that is a replica's.
    pub fn is_any_of_masters_since(
        &self,
        count: u64,
        is_master: impl Fn(NodeNo) -> bool,
        is_such: impl Fn(NodeNo) -> bool,
    ) -> bool {
        let known = self.known.read();
        let was_master = |node| known.demoted.get(&node).is_some_and(|number| *number > count);
        let is_one = |node| is_such(node) && (is_master(node) || was_master(node));
        known.last.iter().any(|(node, number)| *number > count && is_one(*node))
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
    fn who_was_met_before_another_is_past_and_so_it_is_when_the_first_is_met_again() {
        let losses = Losses::default();
        let mut first = losses.meet(3, b"one");
        let mut other = losses.meet(4, b"one");
        losses.note_demoted(3);
        assert!(!first.is_past(&losses) && !losses.meet(3, b"one").is_past(&losses));
        let mut second = losses.meet(3, b"another");
        assert!(first.is_past(&losses) && !second.is_past(&losses) && !other.is_past(&losses));
        let mut third = losses.meet(3, b"one");
        assert!(first.is_past(&losses) && second.is_past(&losses) && !third.is_past(&losses));
    }

    #[test]
    fn a_replica_that_is_replaced_is_no_loss_to_who_has_written_since_it_was_a_master() {
        let losses = Losses::default();
        losses.meet(3, b"one");
        let before = losses.count();
        losses.note_demoted(3);
        let since = losses.count();
        let is_lost = |count, masters: &[NodeNo]| {
            losses.is_any_of_masters_since(count, |node| masters.contains(&node), |_| true)
        };
        assert!(is_lost(before, &[4]) && !is_lost(since, &[4]));
        losses.meet(3, b"another");
        assert!(is_lost(before, &[4]) && !is_lost(since, &[4]));
        // It is one again, and what is written to it since may be lost.
        assert!(is_lost(since, &[3, 4]));
        losses.note_demoted(3);
        assert!(is_lost(since, &[4]));
    }
}
