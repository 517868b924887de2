//! Clients, and what a node does with what they ask: writes of values that nobody else writes, reads at the master and at replicas, and the
//! gate behind which replies wait.

use super::super::super::Writes;
use super::super::disk::Record;
use super::super::linear::Operation;
use super::{Arrival, Node, Outcome, Waiting, World};
use testkit::stage::Happening;

impl World {
    /// A client asks for something.
    pub(super) fn ask_something(&mut self, client: usize) {
        if self.stage.now > self.plan.fate.until + 500_000 {
            return;
        }
        let kind = self.stage.prng.below(20);
        let is_write = kind < 10;
        let node = match self.stage.prng.below(8) {
            0 => self.stage.prng.below(self.nodes.len() as u64) as usize,
            1..=4 => self.leaders[usize::from(is_write)],
            _ => self.stage.clients[client].favourite,
        };
        self.values += 1;
        let register = match self.stage.prng.below(2) {
            0 if !is_write => self.written,
            _ => self.stage.prng.below(self.plan.registers),
        };
        self.operations.push(Operation {
            register,
            wrote: is_write.then_some(self.values),
            saw: None,
            began: self.stage.now,
            ended: None,
            is_at_master: kind < 19,
        });
        let operation = self.operations.len() - 1;
        let asked = (node, Arrival::Asked { operation });
        self.stage.ask((client, operation), asked, self.plan.patience_max, Outcome::Unknown);
    }

    /// A node runs what a client asks for.
    pub(super) fn serve(&mut self, node: usize, operation: usize) {
        let now = self.local(node);
        let asked = self.operations[operation];
        let Some(member) = &self.nodes[node].member else { return };
        if let Some(value) = asked.wrote {
            if member.writes() != Writes::Taken {
                return self.stage.reply(operation, Outcome::Refused);
            }
            self.nodes[node].disk.append(Record::Write { register: asked.register, value });
            let stamp = self.nodes[node].disk.log.len();
            let waiting = Waiting { operation, stamp, outcome: Outcome::Written, is_at_master: true };
            self.nodes[node].waiting.push(waiting);
            return self.appended(node);
        }
        let may_read = !asked.is_at_master || member.reads_until().is_some_and(|until| now < until);
        if !may_read {
            return self.stage.reply(operation, Outcome::Refused);
        }
        let (stamp, value) = self.nodes[node].disk.last_write(asked.register);
        let outcome = Outcome::Read(value);
        let waiting = Waiting { operation, stamp, outcome, is_at_master: asked.is_at_master };
        self.nodes[node].waiting.push(waiting);
        self.open_gate(node);
    }

    /// Lets out the replies that show nothing but what is committed, and of reads those that are still covered.
    pub(super) fn open_gate(&mut self, node: usize) {
        let now = self.local(node);
        let Some(member) = &self.nodes[node].member else { return };
        if self.nodes[node].waiting.is_empty() {
            return;
        }
        let committed = member.committed().0 as usize;
        let may_read = member.reads_until().is_some_and(|until| now < until);
        let waiting = std::mem::take(&mut self.nodes[node].waiting);
        for one in waiting {
            if one.stamp > committed {
                self.nodes[node].waiting.push(one);
            } else if one.outcome == Outcome::Written {
                self.count_copies(node, one.stamp);
                self.stage.reply(one.operation, one.outcome);
            } else if !one.is_at_master || may_read {
                self.stage.reply(one.operation, one.outcome);
            } else {
                self.stage.reply(one.operation, Outcome::Refused);
            }
        }
    }

    /// What is acknowledged is on as many disks as it should be.
    pub(super) fn count_copies(&mut self, node: usize, stamp: usize) {
        let record = self.nodes[node].disk.log[stamp - 1];
        let has_it = |node: &&Node| node.disk.synced.get(stamp - 1) == Some(&record);
        let copies = self.nodes.iter().filter(has_it).count();
        // One that was in memory may be gone in the meantime.
        if copies < self.plan.options.members_min && !self.plan.is_memory.contains(&true) {
            self.stage.fail(format!("{record:?} is acknowledged with {copies} copies"));
        }
    }

    pub(super) fn drop_waiting(&mut self, node: usize) {
        for one in std::mem::take(&mut self.nodes[node].waiting) {
            self.stage.reply(one.operation, Outcome::Unknown);
        }
    }

    /// A client has learned what became of what it asked for.
    pub(super) fn note_outcome(&mut self, client: usize, operation: usize, outcome: Outcome) {
        let asked = &mut self.operations[operation];
        match outcome {
            Outcome::Written => {
                asked.ended = Some(self.stage.now);
                self.written = asked.register;
            }
            Outcome::Read(value) => (asked.ended, asked.saw) = (Some(self.stage.now), value),
            Outcome::Refused | Outcome::Unknown => {
                self.stage.clients[client].favourite =
                    self.stage.prng.below(self.nodes.len() as u64) as usize;
            }
        }
        self.stage.trace(|| format!("client {client} hears {outcome:?} of {:?}", self.operations[operation]));
        let think = self.stage.prng.below(self.plan.think_max);
        self.stage.soon(think, Happening::ClientActs(client));
    }
}
