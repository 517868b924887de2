//! What must hold: while a shard lives, when it is whole again, and of what its clients saw.

use super::clients::PATIENCE;
use super::history::History;
use super::node::{Node, Process};
use super::world::{Figures, World};
use crate::feeding;
use replication::insync::Role;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use testkit::stage::Staged;

impl World {
    /// What a node calls committed must be what was committed before, and more of it.
    pub fn compare(&mut self, node: usize) {
        let here = &mut self.nodes[node];
        let Some(process) = &mut here.up else { return };
        let breaks =
            (process.server.feeding.rewinds.get(), process.server.following.copies.load(Ordering::Relaxed));
        self.figures.rewinds += breaks.0.abs_diff(process.breaks.0);
        if breaks.1 != process.breaks.1 {
            here.read = (process.server.stream().offset, Vec::new());
        }
        process.breaks = breaks;
        let standing = process.shard.standing();
        if standing.is_halted {
            return self.stage.fail(format!("{node} halts"));
        }
        let (end, from) = (standing.committed.0, process.compared.min(standing.committed.0));
        here.read_on();
        let known = self.committed.len() as u64;
        let theirs = &self.nodes[node].read;
        // What was there before a copy was taken, nobody can ask this node for.
        let from = from.max(theirs.0);
        let bytes = self.nodes[node].stream(from, end);
        let compared = from + bytes.len() as u64;
        let differs = bytes
            .iter()
            .zip(from..)
            .find(|(byte, place)| *place < known && self.committed.get(*place as usize) != Some(byte));
        if let Some((_, at)) = differs {
            return self.stage.fail(format!("{node} calls committed up to {end} what differs at {at}"));
        }
        if from <= known && compared > known {
            let more = self.nodes[node].stream(known, end).to_vec();
            self.committed.extend(more);
        }
        if let Some(process) = &mut self.nodes[node].up {
            process.compared = compared.min(end);
        }
    }

    /// How all nodes stand.
    pub fn standing(&self) -> String {
        let stands = |node: &Node| {
            node.up.as_ref().map(|process| {
                let standing = process.shard.standing();
                let (offset, compared) = (process.server.stream().offset, process.compared);
                (standing.role, standing.epoch, standing.end, standing.committed, offset, compared)
            })
        };
        let all: Vec<_> = self.nodes.iter().map(stands).collect();
        format!("{all:?}, {} committed, {:?}", self.committed.len(), self.store.current())
    }

    /// Whether all nodes are members and have the same, all of it committed.
    pub fn is_at_rest(&self) -> bool {
        let Some(decision) = self.store.current() else { return false };
        let all: Vec<&Process> = self.nodes.iter().filter_map(|node| node.up.as_ref()).collect();
        if all.len() < self.nodes.len() || decision.members.len() < all.len() {
            return false;
        }
        let end = self.committed.len() as u64;
        all.iter().all(|process| {
            let standing = process.shard.standing();
            let is_in_role = match standing.id == decision.master {
                true => standing.role == Role::Master && feeding::end_of_written(&process.server) == end,
                false => standing.role == Role::Member,
            };
            is_in_role
                && standing.epoch == decision.epoch
                && standing.committed.0 == end
                && process.server.stream().offset == end
        })
    }

    /// Whether no node has a member's data any more, so that the shard stands still until an operator says what counts.
    pub fn is_lost(&self) -> bool {
        let members = self.store.current().map(|decision| &decision.members);
        let is_member =
            |process: &Process| members.is_some_and(|all| all.contains(&process.shard.standing().id));
        self.stage.all_up() && !self.nodes.iter().filter_map(|node| node.up.as_ref()).any(is_member)
    }

    /// Everybody writes once more, at a shard that is whole. Whether all that is done within a second.
    pub fn takes_writes(&mut self) -> bool {
        let first = self.write_once_more();
        self.run(self.stage.now + PATIENCE / 4);
        self.operations[first..].iter().all(|operation| operation.ended.is_some())
    }

    /// All nodes show what the stream came to.
    pub fn compare_all(&mut self) {
        if self.stage.violation.is_some() {
            return;
        }
        let history = match History::of(&self.committed) {
            Ok(history) => history,
            Err(wrong) => return self.stage.fail(wrong),
        };
        let keys: BTreeSet<Vec<u8>> = self.operations.iter().map(|operation| operation.key.clone()).collect();
        let mut wrong = None;
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let Some(process) = &mut node.up else { continue };
            let mut session = process.session();
            for key in &keys {
                let words: Vec<&[u8]> =
                    if key[0] == b'l' { vec![b"LRANGE", key, b"0", b"-1"] } else { vec![b"GET", key] };
                let (_, shown, _) = process.ask(&mut session, &words);
                if shown != history.last(key) {
                    let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let (key, shown, due) = (show(key), show(&shown), show(&history.last(key)));
                    wrong.get_or_insert(format!("{number} has {shown:?} at {key}, and not {due:?}"));
                }
            }
            session.end(&process.server);
        }
        if let Some(wrong) = wrong {
            self.stage.fail(wrong);
        }
    }

    /// What clients saw is what one after the other could have seen.
    pub fn judge(&self) -> Result<Figures, String> {
        match History::of(&self.committed)?.complaint(&self.operations) {
            Some(complaint) => Err(complaint),
            None => Ok(self.figures),
        }
    }
}
