//! Links that a client has to itself, for what holds up all behind it on a connection or stands in the state of one: commands that wait for a key,
//! and watched keys.
//!
//! A client has one at most, with one request under way. It is given back in the state of a new one, or else closed: what nobody has serves the next
//! client that wants one to that server.
//!
//! Invariant: a transaction behind WATCH goes over the very connection that watches, or is not executed at all.

use super::{Link, LinkTo, Links, Pushed};
use crate::upstream::NodeNo;
use std::collections::HashMap;
use wire::{Protocol, encode_request};

/// How many that nobody has are kept of a kind.
const IDLE_MAX: usize = 16;

/// Who has which.
#[derive(Default)]
pub struct Owners {
    /// By the numbers of clients.
    held: HashMap<u64, Held>,
    /// Those that nobody has.
    idle: HashMap<(NodeNo, bool, usize), Vec<usize>>,
    /// Places of links that are over.
    free: Vec<usize>,
}

/// A client's.
struct Held {
    at: usize,
    /// How many requests to watch keys went over it.
    watches: usize,
    /// Keys that were watched may have changed since: the connection was lost, or the slot is elsewhere.
    is_disturbed: bool,
}

/// What a request means for the keys that its client watches over the same link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watching {
    /// It watches some more.
    Begins,
    /// It leaves them as they are.
    GoesOn,
    /// None is watched when it is done.
    Ends,
}

/// What a link is to the client that has it: the number of its client; None: nobody's for now.
#[derive(Debug)]
pub struct Ownership(Option<u64>);

fn kind(way: LinkTo) -> (NodeNo, bool, usize) {
    (way.node, way.protocol == Protocol::Resp3, way.db)
}

impl Links {
    /// The link that a client has to itself from now on, to this server, for this database and protocol. What it had watched by another one is as good as
    /// changed.
    pub fn take_own(&mut self, client: u64, way: LinkTo) -> usize {
        let had = self.owners.held.get(&client).map(|held| (held.at, held.watches > 0, held.is_disturbed));
        if let Some((at, ..)) = had.filter(|(at, ..)| kind(self.links[*at].way) == kind(way)) {
            return at;
        }
        let at = self.find_own(client, way);
        match had {
            // Its connection watches what nobody else does.
            Some((before, true, _)) => self.close(before),
            Some((before, false, _)) => self.let_go(before),
            None => {}
        }
        let is_disturbed = had.is_some_and(|(_, watches, was_disturbed)| watches || was_disturbed);
        self.owners.held.insert(client, Held { at, watches: 0, is_disturbed });
        at
    }

    /// Sends a request over a link that a client has to itself.
    pub fn push_own(&mut self, at: usize, request: &[u8], pushed: Pushed) {
        let owner = self.links[at].own.as_ref().and_then(|own| own.0);
        if let Some(held) = owner.and_then(|owner| self.owners.held.get_mut(&owner)) {
            held.watches = match pushed.watching {
                Watching::Begins => held.watches + 1,
                Watching::GoesOn => held.watches,
                Watching::Ends => 0,
            };
        }
        self.push(at, request, pushed);
    }

    /// The link by which a client watches keys in this database and protocol, if nothing is known to have happened to them.
    pub fn watching(&self, client: u64, speaks: (Protocol, usize)) -> Option<usize> {
        let held = self.owners.held.get(&client).filter(|held| held.watches > 0 && !held.is_disturbed)?;
        let way = self.links[held.at].way;
        ((way.protocol, way.db) == speaks).then_some(held.at)
    }

    /// A client watches nothing any more.
    pub fn unwatch(&mut self, client: u64) {
        let Some(held) = self.owners.held.get(&client) else { return };
        let (at, is_sound) = (held.at, held.watches > 0 && !held.is_disturbed);
        if is_sound && self.links[at].tickets.is_empty() {
            let mut request = Vec::new();
            encode_request(&mut request, &[b"UNWATCH"]);
            self.push_own(at, &request, Pushed { watching: Watching::Ends, ..Pushed::ONE });
        } else {
            self.close_own(client, at);
        }
    }

    /// A client has gone away, or waits for nothing any more: what it has asked for by a link of its own is not done if that can be helped.
    pub fn dismiss(&mut self, client: u64) {
        if let Some(at) = self.owners.held.get(&client).map(|held| held.at) {
            self.close_own(client, at);
        }
    }

    fn close_own(&mut self, client: u64, at: usize) {
        self.owners.held.remove(&client);
        self.close(at);
    }

    /// Finds one that nobody has, or begins one.
    fn find_own(&mut self, client: u64, way: LinkTo) -> usize {
        let own = Ownership(Some(client));
        if let Some(at) = self.owners.idle.get_mut(&kind(way)).and_then(Vec::pop) {
            self.links[at].own = Some(own);
            return at;
        }
        let link = Link { own: Some(own), ..Link::new(way) };
        match self.owners.free.pop() {
            Some(at) => {
                self.links[at] = link;
                at
            }
            None => {
                self.links.push(link);
                self.links.len() - 1
            }
        }
    }

    /// Something has come by a link, or is not to come any more: its client may be done with it.
    pub(super) fn settle_own(&mut self, at: usize) {
        let link = &self.links[at];
        let Some(owner) = link.own.as_ref().and_then(|own| own.0) else { return };
        if !link.tickets.is_empty() || !link.parked.is_empty() {
            return;
        }
        // What was disturbed is known until its transaction ends.
        let is_done = |held: &Held| held.at == at && held.watches == 0 && !held.is_disturbed;
        if self.owners.held.get(&owner).is_some_and(is_done) {
            self.owners.held.remove(&owner);
            self.let_go(at);
        }
    }

    /// Nobody has a link any more.
    fn let_go(&mut self, at: usize) {
        let link = &mut self.links[at];
        let Some(own) = link.own.as_mut() else { return };
        own.0 = None;
        let idle = self.owners.idle.entry(kind(link.way)).or_default();
        if !link.tickets.is_empty() || idle.len() >= IDLE_MAX {
            self.close(at);
        } else {
            idle.push(at);
        }
    }

    /// The connection of a link is lost, and with it what it watches.
    pub(super) fn disturb_own(&mut self, at: usize) {
        let Some(owner) = self.links[at].own.as_ref().and_then(|own| own.0) else { return };
        if let Some(held) = self.owners.held.get_mut(&owner).filter(|held| held.at == at) {
            held.is_disturbed |= held.watches > 0;
        }
    }

    /// The link for a request that goes elsewhere than over this one.
    pub(super) fn elsewhere(&mut self, at: usize, way: LinkTo, watching: Watching) -> usize {
        let Some(owner) = self.links[at].own.as_ref().and_then(|own| own.0) else { return self.place(way) };
        let held = self.owners.held.get(&owner).map_or((0, false), |held| (held.watches, held.is_disturbed));
        let to = self.take_own(owner, way);
        if let Some(now) = self.owners.held.get_mut(&owner) {
            // What it watches it watches by this request alone.
            now.is_disturbed = held.1 || held.0 > usize::from(watching == Watching::Begins);
            now.watches = held.0;
        }
        to
    }

    /// Has the task of a link end, and nothing more done by it.
    fn close(&mut self, at: usize) {
        let link = &mut self.links[at];
        link.is_over = true;
        if let Some(own) = &mut link.own {
            own.0 = None;
        }
        link.tickets.clear();
        link.parked.clear();
        if link.is_begun {
            link.wake();
        } else {
            self.owners.free.push(at);
        }
    }

    /// The task of a link that is over has ended.
    pub(super) fn note_over(&mut self, at: usize) {
        self.owners.free.push(at);
    }
}
