//! A master's side: who counts, up to where the log is committed, until when reads may be served, who is removed and added.
//!
//! While a change of the set is proposed, and until its outcome is certain, both sets count ([`Mastership::counted`]): each of their members must
//! acknowledge and lend. So a removed member's silence holds the gate until the removal is decided, and an added one may be
//! promoted from the moment at which the store carried the proposal out, whenever the answer comes.

use super::decisions::{Decision, Request};
use super::event::Action;
use super::fault::Fault;
use super::history::{Beginning, History};
use super::identity::{Epoch, LinkId, MemberId, Moment, NodeId};
use super::member::{Member, State};
use super::message::{Lease, Message, Reached};
use super::peer::Peer;
use log::Lsn;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;

/// The state of a master in its epoch.
#[derive(Clone, Debug)]
pub(super) struct Mastership {
    /// Its epoch.
    pub epoch: Epoch,
    /// Where its epoch begins; `None` until its record is appended. Before that it serves nobody.
    pub started: Option<Lsn>,
    /// The members by the decision.
    pub set: BTreeSet<MemberId>,
    /// The members by a proposal whose outcome is not certain.
    proposed: Option<BTreeSet<MemberId>>,
    /// All who count.
    counted: BTreeSet<MemberId>,
    peers: BTreeMap<MemberId, Peer>,
    /// Who greeted before the epoch had begun, on which link, and what it has.
    early: Vec<(LinkId, MemberId, History, Lsn)>,
    beat_at: Moment,
}

impl Mastership {
    /// As decided.
    pub fn new(decision: &Decision, now: Moment) -> Mastership {
        let mut mastership = Mastership {
            epoch: decision.epoch,
            started: None,
            set: decision.members.clone(),
            proposed: None,
            counted: BTreeSet::new(),
            peers: BTreeMap::new(),
            early: Vec::new(),
            beat_at: now,
        };
        mastership.count(None, now);
        mastership
    }

    /// Decides anew who counts, and expects to hear from all of them.
    fn count(&mut self, fault: Option<Fault>, now: Moment) {
        self.counted = self.set.clone();
        if let Some(proposed) = &self.proposed {
            match fault {
                Some(Fault::GateBeforeRemoval) => self.counted = proposed.clone(),
                Some(Fault::AdditionCountsLate) => {}
                _ => self.counted.extend(proposed),
            }
        }
        for member in &self.counted {
            self.peers.entry(*member).or_insert_with(|| Peer::new(now));
        }
    }

    /// The least that everybody who counts has durable; `own` is the master's.
    fn durable_everywhere(&self, id: MemberId, own: Lsn) -> Lsn {
        let theirs = self.others(id).map(|peer| peer.durable).min();
        theirs.map_or(own, |least| least.min(own))
    }

    /// Until when everybody who counts has lent time to read.
    pub fn reads_until(&self, id: MemberId) -> Moment {
        self.others(id).map(|peer| peer.lent_until).min().unwrap_or(Moment::NEVER)
    }

    /// Whether others must acknowledge what is written.
    pub fn counts_others(&self, id: MemberId) -> bool {
        self.others(id).next().is_some()
    }

    /// Whether nobody else has to do with this master: nobody counts, follows or asks to.
    pub fn is_alone(&self, id: MemberId) -> bool {
        let mut others = self.counted.iter().chain(self.peers.keys()).filter(|member| **member != id);
        self.is_settled() && self.early.is_empty() && others.next().is_none()
    }

    fn others(&self, id: MemberId) -> impl Iterator<Item = &Peer> {
        self.counted.iter().filter(move |member| **member != id).filter_map(|member| self.peers.get(member))
    }

    /// Whether no change of the set is on its way.
    pub fn is_settled(&self) -> bool {
        self.proposed.is_none()
    }

    /// The link to a member that has everything up to `end`: to this node, or to any.
    pub fn heir(&self, id: MemberId, to: Option<NodeId>, end: Lsn) -> Option<LinkId> {
        let others = self.set.iter().filter(|member| **member != id && to.is_none_or(|to| member.node == to));
        let peers = others.filter_map(|member| self.peers.get(member));
        peers.filter(|peer| peer.is_streaming && peer.durable >= end).find_map(|peer| peer.link)
    }

    /// Whether there are as many members as writes need, whichever set is the decided one.
    pub fn is_enough(&self, members_min: usize) -> bool {
        self.set.len() >= members_min
            && self.proposed.as_ref().is_none_or(|proposed| proposed.len() >= members_min)
    }

    /// All links.
    pub fn links(&self) -> Vec<LinkId> {
        let early = self.early.iter().map(|(link, ..)| *link);
        self.peers.values().filter_map(|peer| peer.link).chain(early).collect()
    }

    /// The master itself stood still.
    pub fn forgive(&mut self, pause: Duration) {
        self.peers.values_mut().for_each(|peer| peer.forgive(pause));
    }

    /// A link is gone. Who does not count is forgotten.
    pub fn parted(&mut self, link: LinkId) {
        self.peers.values_mut().filter(|peer| peer.link == Some(link)).for_each(Peer::parted);
        self.early.retain(|(early, ..)| *early != link);
        let counted = &self.counted;
        self.peers.retain(|member, peer| counted.contains(member) || peer.link.is_some());
    }
}

impl Member {
    /// The epoch is durable and the log at rest: the reign begins with a record that says so.
    pub(super) fn begin_epoch(&mut self, now: Moment) {
        let State::Leading(mastership) = &mut self.state else { return };
        let epoch = mastership.epoch;
        if mastership.started.is_some() || self.durable_epoch < epoch || self.before_cut.is_some() {
            return;
        }
        mastership.started = Some(self.appended);
        mastership.peers.values_mut().for_each(|peer| peer.forgive(now.since(mastership.beat_at)));
        mastership.beat_at = now;
        if self.history.last_epoch() < epoch {
            let is_lossy = self.known.as_ref().is_some_and(|known| known.is_lossy);
            let beginning = Beginning { epoch, first: self.appended, is_lossy, by: self.id.life };
            self.history.begin(beginning);
            self.actions.push(Action::BeginEpoch { beginning, origin: self.history.origin() });
        }
        self.actions.push(Action::Lead { epoch });
        if let State::Leading(mastership) = &mut self.state {
            for (link, from, history, end) in mem::take(&mut mastership.early) {
                self.welcome(link, from, &history, end, now);
            }
        }
    }

    /// A replica greets: says where its log parts from the own one.
    pub(super) fn welcome(&mut self, link: LinkId, from: MemberId, history: &History, end: Lsn, now: Moment) {
        let refusal = Message::Refusal { epoch: self.epoch };
        let State::Leading(mastership) = &mut self.state else { return self.refuse(link, refusal) };
        if mastership.started.is_none() {
            let again = mastership.early.extract_if(.., |(_, other, ..)| *other == from);
            let former: Vec<LinkId> = again.map(|(link, ..)| link).collect();
            mastership.early.push((link, from, history.clone(), end));
            return self.actions.extend(former.into_iter().map(|link| Action::Close { link }));
        }
        let cut = match self.fault {
            Some(Fault::CutAtShorterEnd) => end.min(self.appended),
            _ => self.history.common(self.appended, history, end),
        };
        let peer = mastership.peers.entry(from).or_insert_with(|| Peer::new(now));
        let former = peer.link.filter(|former| *former != link);
        peer.greeted(link, cut);
        let message = Message::Welcome { epoch: mastership.epoch, history: self.history.clone(), cut };
        self.actions.extend(former.map(|link| Action::Close { link }));
        self.actions.push(Action::Send { link, message });
    }

    fn refuse(&mut self, link: LinkId, refusal: Message) {
        self.actions.push(Action::Send { link, message: refusal });
        self.actions.push(Action::Close { link });
    }

    /// A replica says what it has.
    pub(super) fn take_acknowledgement(&mut self, said: Acknowledged, now: Moment) {
        let (end, fault) = (self.appended, self.fault);
        let State::Leading(mastership) = &mut self.state else { return };
        let Some(peer) = mastership.peers.get_mut(&said.from) else { return };
        let is_own = peer.link == Some(said.link) && said.epoch == mastership.epoch;
        if !is_own && fault != Some(Fault::ForeignAcknowledgement) {
            return;
        }
        let is_first = is_own && !peer.is_streaming;
        if is_first && said.reached != Reached::Place(peer.sent) {
            return self.part(said.link, now);
        }
        peer.is_streaming |= is_first;
        // Nobody is late with what is not on this node's own disk, be it full or stalled: it may not even have been sent.
        let steps = match said.reached {
            Reached::Within(steps) if fault != Some(Fault::ProgressIgnored) => Some(steps),
            Reached::Within(_) | Reached::Place(_) => None,
        };
        peer.acknowledged((said.durable.min(end), steps), self.durable, now);
        if let Some(lease) = said.lease {
            let asked_at = if fault == Some(Fault::LeaseFromAnswer) { now } else { lease.asked_at };
            // Nobody lends more than all have agreed upon, nor before it was asked.
            let length = lease.length.min(self.options.lease);
            peer.lent(Lease { asked_at: asked_at.min(now), length });
        }
        if is_first {
            self.feed(said.from, now);
        }
        self.commit();
    }

    /// Sends a peer what it has not been sent; nothing more than a heartbeat if that is all.
    fn feed(&mut self, to: MemberId, now: Moment) {
        let State::Leading(mastership) = &mut self.state else { return };
        let is_member = mastership.set.contains(&to);
        let Some(peer) = mastership.peers.get_mut(&to).filter(|peer| peer.is_streaming) else { return };
        let Some(link) = peer.link else { return };
        let message = Message::Records {
            epoch: mastership.epoch,
            start: peer.sent,
            end: self.appended,
            committed: self.committed,
            asked_at: now,
            is_member,
        };
        peer.sent = self.appended;
        self.actions.push(Action::Send { link, message });
    }

    fn feed_all(&mut self, now: Moment) {
        let State::Leading(mastership) = &self.state else { return };
        let all: Vec<MemberId> = mastership.peers.keys().copied().collect();
        all.into_iter().for_each(|to| self.feed(to, now));
    }

    /// The own log has grown.
    pub(super) fn own_log_grew(&mut self, end: Lsn, now: Moment) {
        if !matches!(self.state, State::Leading(_)) {
            return;
        }
        // What was told first may be the newer.
        if end <= self.appended {
            return;
        }
        self.appended = end;
        self.feed_all(now);
    }

    /// This master's own log is durable further than before: so must be that of others, before long.
    pub(super) fn expect_durable(&mut self, now: Moment) {
        let durable = self.durable;
        if let State::Leading(mastership) = &mut self.state {
            let behind = mastership.peers.values_mut().filter(|peer| peer.durable < durable);
            behind.for_each(|peer| peer.is_owed(now));
        }
    }

    /// Moves the committed position to what everybody who counts has. With fewer members than writes need it moves, too, so that what
    /// was written can be read; but no write waits for it then.
    pub(super) fn commit(&mut self) {
        let State::Leading(mastership) = &self.state else { return };
        if mastership.started.is_none() {
            return;
        }
        let end = mastership.durable_everywhere(self.id, self.durable);
        if end > self.committed {
            self.committed = end;
            self.actions.push(Action::Commit { end });
        }
    }

    /// Heartbeats, and changes of the set that are due.
    pub(super) fn tick_leading(&mut self, now: Moment) {
        let State::Leading(mastership) = &mut self.state else { return };
        if mastership.started.is_none() {
            return;
        }
        if now.since(mastership.beat_at) >= self.options.heartbeat {
            mastership.beat_at = now;
            self.feed_all(now);
        }
        if self.asking.is_none() {
            self.propose_set(now);
        }
    }

    /// Proposes to remove who is late, or else to add who has caught up. One proposal at a time.
    fn propose_set(&mut self, now: Moment) {
        let State::Leading(mastership) = &self.state else { return };
        let silence = self.options.silence;
        let is_late = |member: &MemberId| {
            *member != self.id && mastership.peers.get(member).is_none_or(|peer| peer.is_late(now, silence))
        };
        let mut members: BTreeSet<MemberId> =
            mastership.set.iter().filter(|member| !is_late(member)).copied().collect();
        if members.len() == mastership.set.len() {
            let has_caught_up = |peer: &Peer| peer.is_streaming && self.has_caught_up(peer.durable);
            let learners = mastership.peers.iter().filter(|(member, _)| !mastership.set.contains(member));
            let ready = learners.filter(|(member, peer)| has_caught_up(peer) && !is_late(member));
            members.extend(ready.map(|(member, _)| *member));
        }
        if members != mastership.set {
            self.propose_members(members, now);
        }
    }

    /// Whether a learner with so much may be added: it has all that is committed, and all that this master held
    /// itself when it was promoted, of which it does not know how much its predecessor had acknowledged.
    fn has_caught_up(&self, durable: Lsn) -> bool {
        let State::Leading(mastership) = &self.state else { return false };
        match self.fault {
            Some(Fault::AddedBehind) => true,
            Some(Fault::AddedBehindEpoch) => durable >= self.committed,
            _ => mastership.started.is_some_and(|started| durable >= started.max(self.committed)),
        }
    }

    fn propose_members(&mut self, members: BTreeSet<MemberId>, now: Moment) {
        let (fault, id) = (self.fault, self.id);
        let Some(known) = self.known.clone() else { return };
        let State::Leading(mastership) = &mut self.state else { return };
        assert!(members.contains(&id), "a master is a member");
        let was_enough = mastership.is_enough(self.options.members_min);
        mastership.proposed = Some(members.clone());
        mastership.count(fault, now);
        let is_enough = mastership.is_enough(self.options.members_min);
        if was_enough && !is_enough && fault != Some(Fault::MinimumIgnored) {
            self.actions.push(Action::RefuseWaitingWrites);
        }
        let successor = Decision { version: known.version.next(), members, ..known };
        self.ask(Request::Propose(successor), now);
        self.commit();
    }

    /// The set is as decided, and nothing is proposed any more: `decision` is the outcome, or nothing has become of it.
    pub(super) fn settle_set(&mut self, decision: Option<&Decision>, now: Moment) {
        let fault = self.fault;
        let State::Leading(mastership) = &mut self.state else { return };
        let former = mastership.counted.clone();
        mastership.proposed = None;
        if let Some(decision) = decision {
            mastership.set = decision.members.clone();
        }
        mastership.count(fault, now);
        // Who was removed greets again, as a learner: its link may be dead without anybody having noticed.
        let removed = former.iter().filter(|member| !mastership.counted.contains(member));
        let links: Vec<LinkId> =
            removed.filter_map(|member| mastership.peers.get(member)).filter_map(|peer| peer.link).collect();
        links.into_iter().for_each(|link| self.part(link, now));
        self.commit();
    }
}

/// An acknowledgement and where it came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acknowledged {
    pub link: LinkId,
    pub from: MemberId,
    pub epoch: Epoch,
    pub reached: Reached,
    pub durable: Lsn,
    pub lease: Option<Lease>,
}
