//! How a member becomes master.
//!
//! 1. It reads the decision, and goes on only if it is a member. Until then it lends as before, so that a store that cannot be
//!    reached costs nobody anything.
//! 2. It lends no more, and waits until all that it lent is over. It still acknowledges records: whatever it acknowledges is in
//!    its log before its own epoch begins.
//! 3. It proposes itself with the next epoch. Until the outcome is certain it goes on not lending, since the proposal
//!    may be carried out at any time.

use super::decisions::{Decision, Request};
use super::event::{Action, Loss, Obstacle};
use super::fault::Fault;
use super::identity::{Epoch, MemberId, Moment};
use super::mastership::Mastership;
use super::member::{Member, State};
use std::collections::BTreeSet;

/// A wish to be master.
#[derive(Clone, Debug)]
pub(super) struct Candidacy {
    reason: Reason,
    stage: Stage,
    began_at: Moment,
}

/// Why a node wants to be master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// Its master, of this epoch, is silent.
    Silence(Epoch),
    /// A command said so.
    Command(Loss),
    /// It was master when its process ended, and still is by the decision. It needs an epoch of its own all the same: what it
    /// had sent without having it on disk is with its replicas, and must not be taken for what it writes now.
    Resumption,
}

/// How far it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Reading,
    Waiting,
    Proposed(Decision),
}

impl Candidacy {
    /// Whether the node still lends time to read.
    pub fn is_lending(&self) -> bool {
        self.stage == Stage::Reading
    }
}

impl Member {
    /// Wants to be master from now on.
    pub(super) fn stand(&mut self, reason: Reason, now: Moment) {
        // A command takes the place of a wish that has not gone beyond a question, and gives another its own reason until that is proposed.
        let is_order = matches!(reason, Reason::Command(_));
        match (&self.state, &mut self.candidacy) {
            (State::Halted, _) if is_order => {
                return self.actions.push(Action::StandDown { obstacle: Obstacle::Halted });
            }
            (State::Leading(_) | State::Halted, _) => return,
            (State::Following(_), None) => {}
            (State::Following(_), Some(other)) if is_order && other.is_lending() => {}
            (State::Following(_), Some(other)) => {
                if is_order && other.stage == Stage::Waiting {
                    other.reason = reason;
                }
                return;
            }
        }
        self.candidacy = Some(Candidacy { reason, stage: Stage::Reading, began_at: now });
        self.asking = None;
        self.ask(Request::Read, now);
    }

    /// A silent master's replica stands if it is told to.
    pub(super) fn stand_if_silent(&mut self, now: Moment) {
        let State::Following(following) = &self.state else { return };
        if self.options.failover.is_some_and(|failover| now.since(following.heard_at) > failover) {
            self.stand(Reason::Silence(self.epoch), now);
        }
    }

    /// The decision was read.
    pub(super) fn consider(&mut self, now: Moment) {
        let resumes = now >= self.resumes_from
            && self.known.as_ref().is_some_and(|known| self.is_this_node(known.master));
        if self.candidacy.is_none() && resumes && matches!(self.state, State::Following(_)) {
            self.candidacy =
                Some(Candidacy { reason: Reason::Resumption, stage: Stage::Reading, began_at: now });
        }
        let Some(candidacy) = self.candidacy.as_ref() else { return };
        if let Err(obstacle) = self.may_stand(candidacy) {
            return self.give_up(obstacle, now);
        }
        self.enter(Stage::Waiting);
        self.propose_itself(now);
    }

    /// Whether the newest decision known lets this node be master, and the reason to want it holds.
    fn may_stand(&self, candidacy: &Candidacy) -> Result<(), Obstacle> {
        let known = self.known.as_ref().ok_or(Obstacle::NoDecision)?;
        let State::Following(following) = &self.state else { return Err(Obstacle::Halted) };
        let is_member = self.counts_in(&known.members);
        let (may, obstacle) = match candidacy.reason {
            Reason::Silence(epoch) => {
                let is_silent = following.heard_at < candidacy.began_at;
                (is_member && is_silent && known.epoch == epoch, Obstacle::NoMember)
            }
            Reason::Command(Loss::Accepted(at)) => {
                (at.is_none_or(|version| known.version == version), Obstacle::OtherDecision)
            }
            Reason::Command(Loss::Refused) => (is_member, Obstacle::NoMember),
            Reason::Resumption => (is_member && self.is_this_node(known.master), Obstacle::NoMember),
        };
        may.then_some(()).ok_or(obstacle)
    }

    /// Whether this node is to be master by a command, or by its master's word, and that is neither done nor given up.
    #[must_use]
    pub fn is_told_to_lead(&self) -> bool {
        self.candidacy.as_ref().is_some_and(|candidacy| matches!(candidacy.reason, Reason::Command(_)))
    }

    /// Whether this node's data is among the members.
    fn counts_in(&self, members: &BTreeSet<MemberId>) -> bool {
        match self.fault {
            Some(Fault::NonMemberPromoted) => true,
            Some(Fault::RemovedMemberPromoted) => {
                let was_one = matches!(&self.state, State::Following(following) if following.is_member);
                was_one || members.contains(&self.id)
            }
            Some(Fault::LifeIgnored) => members.iter().any(|member| member.node == self.id.node),
            _ => members.contains(&self.id),
        }
    }

    fn is_this_node(&self, other: MemberId) -> bool {
        other == self.id || self.fault == Some(Fault::LifeIgnored) && other.node == self.id.node
    }

    fn enter(&mut self, stage: Stage) {
        if let Some(candidacy) = &mut self.candidacy {
            candidacy.stage = stage;
        }
    }

    /// Wants nothing any more, and lends again: no proposal is out.
    pub(super) fn give_up(&mut self, obstacle: Obstacle, now: Moment) {
        let Some(candidacy) = self.candidacy.take() else { return };
        if matches!(candidacy.reason, Reason::Command(_)) {
            self.actions.push(Action::StandDown { obstacle });
        }
        if let State::Following(following) = &mut self.state {
            // The next attempt is due when the master has been silent as long again.
            following.heard_at = now;
        }
    }

    /// Proposes itself, if nobody reads on what it lent any more.
    pub(super) fn propose_itself(&mut self, now: Moment) {
        let Some(candidacy) = self.candidacy.as_ref().filter(|it| it.stage == Stage::Waiting) else { return };
        if let Err(obstacle) = self.may_stand(candidacy) {
            return self.give_up(obstacle, now);
        }
        let Some(known) = &self.known else { return };
        if !self.granted.is_over(now) && !self.lent_nothing_since(known) {
            return;
        }
        let proposal = self.promotion(candidacy.reason, known);
        self.enter(Stage::Proposed(proposal.clone()));
        self.ask(Request::Propose(proposal), now);
    }

    /// Whether this node was master of the current epoch before it was started again, and so lent nothing to anybody then:
    /// its log holds its beginning, and nobody but the master of an epoch begins it.
    fn lent_nothing_since(&self, known: &Decision) -> bool {
        self.granted.is_assumed()
            && known.master == self.id
            && known.epoch == self.history.last_epoch()
            && known.epoch == self.epoch
    }

    fn promotion(&self, reason: Reason, known: &Decision) -> Decision {
        let mut members = known.members.clone();
        let gives_up = matches!(reason, Reason::Command(Loss::Accepted(_))) && !members.contains(&self.id);
        // One that was told so and has ended before its epoch began says it with the next.
        let is_lossy = gives_up || known.is_lossy && self.history.last_epoch() < known.epoch;
        if gives_up {
            members.clear();
        } else if matches!(reason, Reason::Silence(_)) {
            // It would have to be waited for, and removed, before anything is acknowledged.
            members.remove(&known.master);
        }
        if self.fault == Some(Fault::LifeIgnored) {
            members.retain(|member| member.node != self.id.node);
        }
        members.insert(self.id);
        let resumes = reason == Reason::Resumption
            && self.fault == Some(Fault::EpochResumed)
            && known.epoch == self.history.last_epoch();
        // One that was seen and is in no decision cannot be acted in either.
        let epoch = if resumes { known.epoch } else { known.epoch.max(self.epoch).next() };
        Decision { version: known.version.next(), epoch, master: self.id, members, is_lossy }
    }

    /// The store says what came of a proposal, or which other decision came before it.
    pub(super) fn proposal_decided(&mut self, decision: Decision, now: Moment) {
        let Some(candidacy) = &self.candidacy else { return self.learn(decision, now) };
        let is_own = matches!(&candidacy.stage, Stage::Proposed(proposal) if *proposal == decision);
        if is_own && decision.epoch >= self.epoch {
            return self.reign(decision, now);
        }
        self.enter(Stage::Waiting);
        self.learn(decision, now);
        self.propose_itself(now);
    }

    /// This node is master by decision. It serves once its epoch is durable and has begun.
    fn reign(&mut self, decision: Decision, now: Moment) {
        self.candidacy = None;
        if let State::Following(following) = &self.state
            && let Some(link) = following.link()
        {
            self.actions.push(Action::Close { link });
        }
        self.epoch = decision.epoch;
        self.state = State::Leading(Mastership::new(&decision, now));
        self.known = Some(decision);
        if self.durable_epoch < self.epoch {
            self.actions.push(Action::Persist { epoch: self.epoch });
        }
        self.begin_epoch(now);
    }
}
