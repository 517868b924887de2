//! What befalls a shard, and the end of it.

use super::super::super::{Event, LinkId, Loss};
use super::{Arrival, Happening, World};

impl World {
    pub(super) fn disturb_later(&mut self) {
        let wait = self.prng.below(2 * self.plan.disturbed_every);
        self.soon(wait, Happening::Disturbance);
    }

    pub(super) fn disturb(&mut self) {
        use super::super::plan::Disturbance::*;
        let kinds = &self.plan.disturbances;
        let kind = kinds[self.prng.below(kinds.len() as u64) as usize];
        let count = self.nodes.len() as u64;
        let node = self.prng.below(count) as usize;
        let other = (node + 1 + self.prng.below(count - 1) as usize) % self.nodes.len();
        let spell = self.prng.below(self.plan.spell_max);
        self.trace(|| format!("DISTURBANCE {kind:?} of {node} ({other}) for {spell}"));
        match kind {
            Kill | PowerCut => {
                self.stop(node, kind == PowerCut);
                let down = if self.prng.one_in(2) { spell } else { 1_000 };
                self.soon(down, Happening::Starts(node));
            }
            Pause => self.pause(node, spell),
            Cut => {
                self.cut_way(node, other, spell);
                self.cut_way(other, node, spell);
            }
            CutOneWay => self.cut_way(node, other, spell),
            Isolate => {
                if self.prng.one_in(2) {
                    self.nodes[node].is_storeless = true;
                    self.soon(spell, Happening::ReachesStoreAgain { node });
                }
                for other in (0..self.nodes.len()).filter(|other| *other != node) {
                    self.cut_way(node, other, spell);
                    self.cut_way(other, node, spell);
                }
            }
            Break => {
                if let Some((link, ends)) = self.network.break_one(self.now, &mut self.prng) {
                    for (at, end) in ends {
                        let closed = Event::Closed { link: Some(LinkId(link)) };
                        self.at(at, Happening::Arrives(end, Arrival::Event(closed)));
                    }
                }
            }
            Throttle => {
                self.network.slow(node, other);
                self.soon(spell, Happening::WayOpens { from: node, to: other });
            }
            SlowDisk => {
                self.nodes[node].is_disk_slow = true;
                self.soon(spell, Happening::DiskIsFast { node });
            }
            NoStore => {
                self.is_store_up = false;
                self.soon(spell, Happening::StoreIsBack);
            }
            Promote => self.promote(node, Loss::Refused),
            HandOver => self.hand_over(),
        }
    }

    pub fn pause(&mut self, node: usize, spell: u64) {
        if self.nodes[node].is_up() && !self.nodes[node].is_paused {
            self.nodes[node].is_paused = true;
            let end = self.end(node);
            self.soon(spell, Happening::Resumes(end));
        }
    }

    pub fn cut_way(&mut self, from: usize, to: usize, spell: u64) {
        self.network.cut(from, to);
        self.soon(spell, Happening::WayOpens { from, to });
    }

    pub fn promote(&mut self, node: usize, loss: Loss) {
        let end = self.end(node);
        self.arrive(end, Arrival::Event(Event::Promote { loss }));
    }

    /// A node has no place in the shard any more.
    pub fn remove(&mut self, node: usize) {
        let end = self.end(node);
        self.arrive(end, Arrival::Event(Event::Removed));
    }

    /// The master hands over, if it is at rest.
    pub fn hand_over(&mut self) {
        if let Some(master) = self.master() {
            let end = self.end(master);
            // Again and again, as it is told in a server.
            for times in 0..20 {
                let told = Arrival::Event(Event::HandOver { to: None });
                self.soon(times * 500, Happening::Arrives(end, told));
            }
        }
    }

    /// The store of decisions is away until all is healed.
    pub fn lose_store(&mut self) {
        self.is_store_up = false;
    }

    /// Ends all disturbances at once.
    pub fn heal(&mut self) {
        self.trace(|| "HEALED".to_owned());
        self.is_store_up = true;
        for from in 0..self.nodes.len() {
            self.nodes[from].is_disk_slow = false;
            self.nodes[from].is_storeless = false;
            for to in (0..self.nodes.len()).filter(|to| *to != from) {
                self.soon(0, Happening::WayOpens { from, to });
            }
            self.soon(0, Happening::Starts(from));
            let end = self.end(from);
            self.soon(0, Happening::Resumes(end));
        }
    }
}
