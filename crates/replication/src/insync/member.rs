//! One node's part in a shard: the state machine as a whole.
//!
//! Thread rule: one owner, who hands in events one at a time with times that never go back, and carries out the actions in order. What readers
//! and writers ask often ([`Member::reads_until`], [`Member::writes`], [`Member::committed`]) changes only in
//! [`Member::step`], so that an owner may publish it.

use super::candidacy::{Candidacy, Reason};
use super::decisions::{Answer, Decision, Request, Ticket};
use super::event::{Action, Contradiction, Event, Obstacle};
use super::fault::Fault;
use super::following::{Following, Incoming};
use super::history::History;
use super::identity::{Epoch, LinkId, MemberId, Moment};
use super::lease::{Granted, stretched};
use super::mastership::{Acknowledged, Mastership};
use super::message::Message;
use super::options::Options;
use log::Lsn;
use std::mem;

/// What a node is to its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Master, and serving.
    Master,
    /// Holds what was acknowledged, as far as its master has told it.
    Member,
    /// Takes the log without counting yet.
    Learner,
    /// None of these.
    Nobody,
}

/// Whether this node takes writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// Yes. They are acknowledged when they are committed.
    Taken,
    /// It is master, and has fewer members than `min-sync-replicas` asks for: `-NOREPLICAS`.
    TooFewMembers,
    /// It is not master.
    NotMaster,
}

/// What a node has kept from before it was started.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// The highest epoch that was persisted.
    pub epoch: Epoch,
    /// The epochs of the log.
    pub history: History,
    /// Where the log ends; all of it is durable.
    pub end: Lsn,
}

/// The log as it was before a cut that is under way.
#[derive(Clone, Debug)]
pub(super) struct BeforeCut {
    pub appended: Lsn,
    pub durable: Lsn,
    pub committed: Lsn,
    pub history: History,
}

/// What is asked of the store of decisions.
#[derive(Clone, Debug)]
pub(super) struct Asking {
    ticket: Ticket,
    request: Request,
    at: Moment,
    /// Whether an earlier attempt may still be carried out.
    is_uncertain: bool,
}

#[derive(Clone, Debug)]
pub(super) enum State {
    Following(Following),
    Leading(Mastership),
    /// Takes part no more.
    Halted,
}

/// One node's part in a shard.
#[derive(Clone, Debug)]
pub struct Member {
    pub(super) id: MemberId,
    pub(super) options: Options,
    /// The highest epoch seen.
    pub(super) epoch: Epoch,
    /// The highest epoch that is persisted: nothing is said in an epoch before it is.
    pub(super) durable_epoch: Epoch,
    pub(super) history: History,
    pub(super) appended: Lsn,
    pub(super) durable: Lsn,
    pub(super) committed: Lsn,
    pub(super) before_cut: Option<BeforeCut>,
    /// The newest decision heard of from the store.
    pub(super) known: Option<Decision>,
    pub(super) asking: Option<Asking>,
    tickets: u64,
    pub(super) read_at: Moment,
    pub(super) granted: Granted,
    pub(super) state: State,
    pub(super) candidacy: Option<Candidacy>,
    /// An epoch that is to be asked for once more when the request that is under way is answered.
    awaited: Epoch,
    /// When the store of decisions has answered last.
    pub(super) answered_at: Moment,
    /// Who has handed over does not ask to go on before then.
    pub(super) resumes_from: Moment,
    stepped_at: Moment,
    pub(super) actions: Vec<Action>,
    pub(super) fault: Option<Fault>,
}

impl Member {
    /// A node that starts at `now` with what it has kept.
    #[must_use]
    pub fn new(id: MemberId, options: Options, restored: Restored, now: Moment) -> Member {
        let wait = stretched(options.lease.max(options.lease_max), options.margin);
        Member {
            id,
            options,
            epoch: restored.epoch.max(restored.history.last_epoch()),
            durable_epoch: restored.epoch.max(restored.history.last_epoch()),
            history: restored.history,
            appended: restored.end,
            durable: restored.end,
            committed: Lsn::ZERO,
            before_cut: None,
            known: None,
            asking: None,
            tickets: 0,
            read_at: Moment(0),
            granted: Granted::at_start(now, wait),
            state: State::Following(Following::new(now)),
            candidacy: None,
            awaited: Epoch(0),
            answered_at: Moment(0),
            resumes_from: Moment(0),
            stepped_at: now,
            actions: Vec::new(),
            fault: None,
        }
    }

    /// Plants a mistake.
    #[cfg(test)]
    pub(super) fn plant(&mut self, fault: Fault, now: Moment) {
        self.fault = Some(fault);
        if fault == Fault::LeaseForgottenAtStart {
            self.granted = Granted::at_start(now, std::time::Duration::ZERO);
        }
    }

    /// Takes an event at the node's time `now`, and says what is to be done.
    pub fn step(&mut self, event: Event, now: Moment) -> Vec<Action> {
        self.notice_own_pause(now);
        match event {
            Event::Tick => self.tick(now),
            Event::Connected { link } => self.greet(link, now),
            Event::Closed { link: Some(link) } => self.link_closed(link, now),
            Event::Closed { link: None } => self.not_reached(now),
            Event::Received { link, from, message } => self.receive(link, from, message, now),
            Event::Appended { end } => self.own_log_grew(end, now),
            Event::Found { end } => self.own_log_was_longer(end),
            Event::RecordsGone => self.records_are_gone(now),
            Event::Durable { end } => self.log_is_durable(end, now),
            Event::Progressed { steps } => self.note_steps(steps),
            Event::Cut => self.log_was_cut(now),
            Event::CutImpossible => self.log_was_not_cut(now),
            Event::Persisted { epoch } => self.epoch_is_durable(epoch, now),
            Event::Answered { ticket, answer } => self.answered(ticket, answer, now),
            Event::Decided { epoch } => self.ask_of(epoch, now),
            Event::HandOver { to } => self.hand_over(to, now),
            Event::Removed => self.leave(now),
            Event::Promote { loss } => self.stand(Reason::Command(loss), now),
        }
        mem::take(&mut self.actions)
    }

    /// Who this is.
    #[must_use]
    pub fn id(&self) -> MemberId {
        self.id
    }

    /// The highest epoch seen.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What this node is now.
    #[must_use]
    pub fn role(&self) -> Role {
        match &self.state {
            State::Leading(mastership) if mastership.started.is_some() => Role::Master,
            State::Following(following) if following.is_streaming() => {
                if following.is_member {
                    Role::Member
                } else {
                    Role::Learner
                }
            }
            _ => Role::Nobody,
        }
    }

    /// Up to where the log is committed, as far as this node knows: what a reply shows must lie before.
    #[must_use]
    pub fn committed(&self) -> Lsn {
        self.committed
    }

    /// The epochs of the own log.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The epochs of the own log, and those that follow from the master of which the log comes.
    #[must_use]
    pub fn history_to_come(&self) -> History {
        match &self.state {
            State::Following(following) if following.is_bound() => following.source().clone(),
            _ => self.history.clone(),
        }
    }

    /// The link to the master that is followed, if there is one.
    #[must_use]
    pub fn link(&self) -> Option<LinkId> {
        match &self.state {
            State::Following(following) => following.link(),
            State::Leading(_) | State::Halted => None,
        }
    }

    /// The newest decision that is known.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        self.known.as_ref()
    }

    /// Where the own log ends.
    #[must_use]
    pub fn appended(&self) -> Lsn {
        self.appended
    }

    /// Until when this node may answer reads as master; `None` if it is not. A reply leaves only if the time is not over
    /// then, and may show only what is committed.
    #[must_use]
    pub fn reads_until(&self) -> Option<Moment> {
        match &self.state {
            State::Leading(mastership) if mastership.started.is_some() => {
                Some(mastership.reads_until(self.id))
            }
            _ => None,
        }
    }

    /// Whether this is a master with whose log others must keep up before anything is committed.
    #[must_use]
    pub fn counts_others(&self) -> bool {
        matches!(&self.state, State::Leading(mastership) if mastership.counts_others(self.id))
    }

    /// Whether this is a master in the midst of its reign to whom nobody else counts, follows or asks to: for as long as that is so, whatever is
    /// durable here is committed. Somebody who comes counts no sooner than with the next tick.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        let State::Leading(mastership) = &self.state else { return false };
        let has_begun = mastership.started.is_some_and(|started| self.committed > started);
        has_begun && mastership.is_alone(self.id) && self.writes() == Writes::Taken
    }

    /// Whether this node takes writes.
    #[must_use]
    pub fn writes(&self) -> Writes {
        match &self.state {
            State::Leading(mastership) if mastership.started.is_none() => Writes::NotMaster,
            State::Leading(mastership) if mastership.is_enough(self.options.members_min) => Writes::Taken,
            State::Leading(_) => Writes::TooFewMembers,
            _ => Writes::NotMaster,
        }
    }

    fn tick(&mut self, now: Moment) {
        self.ask_again(now);
        match &self.state {
            State::Following(_) => {
                self.tick_following(now);
                self.stand_if_silent(now);
                self.propose_itself(now);
            }
            State::Leading(_) => self.tick_leading(now),
            State::Halted => {}
        }
    }

    /// Who stood still has heard nothing because of that: it takes nobody for silent. Leases know no such mercy.
    fn notice_own_pause(&mut self, now: Moment) {
        let pause = now.since(self.stepped_at);
        self.stepped_at = now;
        if pause > self.options.silence / 2 {
            match &mut self.state {
                State::Following(following) => following.forgive(pause),
                State::Leading(mastership) => mastership.forgive(pause),
                State::Halted => {}
            }
        }
    }

    fn receive(&mut self, link: LinkId, from: MemberId, message: Message, now: Moment) {
        match message {
            Message::Hello { epoch, history, end } => {
                self.hear_of(epoch, now);
                self.welcome(link, from, &history, end, now);
            }
            Message::Welcome { epoch, history, cut } => self.follow(link, epoch, history, cut, now),
            Message::Records { epoch, start, end, committed, asked_at, is_member } => {
                let records = Incoming { start, end, committed, asked_at, is_member };
                self.take_records(link, epoch, records, now);
            }
            Message::Acknowledgement { epoch, reached, durable, lease } => {
                let said = Acknowledged { link, from, epoch, reached, durable, lease };
                self.take_acknowledgement(said, now);
            }
            Message::Yield { epoch } => self.take_over(link, epoch, now),
            Message::Refusal { epoch } => {
                self.hear_of(epoch, now);
                self.part(link, now);
            }
        }
    }

    /// Somebody says that there is a higher epoch. Whether that is so, the store knows: a word alone ends no reign.
    fn hear_of(&mut self, epoch: Epoch, now: Moment) {
        if epoch > self.epoch && self.asking.is_none() && now.since(self.read_at) >= self.options.heartbeat {
            self.ask(Request::Read, now);
        }
    }

    /// There is an epoch of which this node has not read yet. What it reads now may be older than the word.
    fn ask_of(&mut self, epoch: Epoch, now: Moment) {
        if epoch <= self.epoch {
            return;
        }
        match &self.asking {
            None => self.ask(Request::Read, now),
            Some(_) => self.awaited = epoch,
        }
    }

    /// There is a higher epoch: what this node does in its own is over.
    pub(super) fn see(&mut self, epoch: Epoch, now: Moment) {
        if epoch <= self.epoch {
            return;
        }
        self.epoch = epoch;
        match &self.state {
            State::Leading(_) => self.step_down(None, now),
            State::Following(following) => {
                if let Some(link) = following.link().filter(|_| following.is_bound()) {
                    self.part(link, now);
                }
            }
            State::Halted => {}
        }
    }

    /// Is not master any more. Links end, but for that to whom this was said, whose decision is yet to come.
    pub(super) fn step_down(&mut self, kept: Option<LinkId>, now: Moment) {
        let State::Leading(mastership) = &self.state else { return };
        let links: Vec<LinkId> = mastership.links().into_iter().filter(|link| Some(*link) != kept).collect();
        self.actions.push(Action::StepDown);
        self.actions.extend(links.into_iter().map(|link| Action::Close { link }));
        self.state = State::Following(Following::new(now));
        // What it proposed in its epoch cannot come true any more: a later decision has its version.
        self.asking = None;
        if kept.is_none() {
            self.ask(Request::Read, now);
        }
    }

    /// Keeps the data and takes part no more.
    pub(super) fn halt(&mut self, why: Contradiction, now: Moment) {
        self.stop_taking_part(now);
        self.actions.push(Action::Halt { why });
    }

    /// Takes part no more: to the others it is as if this node had ended. What it has proposed may still be carried out, as if it had ended then.
    fn leave(&mut self, now: Moment) {
        self.stop_taking_part(now);
        self.actions.push(Action::Leave);
    }

    fn stop_taking_part(&mut self, now: Moment) {
        match &self.state {
            State::Leading(_) => self.step_down(None, now),
            State::Following(following) => {
                if let Some(link) = following.link() {
                    self.part(link, now);
                }
            }
            State::Halted => {}
        }
        (self.candidacy, self.asking) = (None, None);
        self.state = State::Halted;
    }

    /// Ends a link.
    pub(super) fn part(&mut self, link: LinkId, now: Moment) {
        self.actions.push(Action::Close { link });
        self.link_closed(link, now);
    }

    fn link_closed(&mut self, link: LinkId, now: Moment) {
        match &mut self.state {
            State::Following(following) if following.link() == Some(link) => following.parted(now),
            State::Leading(mastership) => mastership.parted(link),
            _ => {}
        }
    }

    fn log_is_durable(&mut self, end: Lsn, now: Moment) {
        // What is told while a cut is under way may be about the part that goes.
        if self.before_cut.is_some() {
            return;
        }
        self.durable = self.durable.max(end.min(self.appended));
        self.expect_durable(now);
        self.acknowledge();
        self.commit();
    }

    fn log_was_cut(&mut self, now: Moment) {
        self.before_cut = None;
        self.stream(now);
        self.begin_epoch(now);
    }

    fn log_was_not_cut(&mut self, now: Moment) {
        self.cut_is_impossible(now);
        self.begin_epoch(now);
    }

    fn epoch_is_durable(&mut self, epoch: Epoch, now: Moment) {
        self.durable_epoch = self.durable_epoch.max(epoch);
        self.settle(now);
        self.begin_epoch(now);
    }

    /// Whether this node lends its master time to read.
    pub(super) fn is_lending(&self) -> bool {
        self.fault == Some(Fault::LendsAsCandidate)
            || self.candidacy.as_ref().is_none_or(Candidacy::is_lending)
    }

    /// Asks the store of decisions. One request at a time: this one replaces any other.
    pub(super) fn ask(&mut self, request: Request, now: Moment) {
        if request == Request::Read {
            self.read_at = now;
        }
        self.submit(request, false, now);
    }

    fn submit(&mut self, request: Request, is_uncertain: bool, now: Moment) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.asking = Some(Asking { ticket, request: request.clone(), at: now, is_uncertain });
        self.actions.push(Action::Ask { ticket, request });
    }

    /// Asks the same again if no answer came: a proposal's outcome must be certain before anything follows from it.
    fn ask_again(&mut self, now: Moment) {
        let Some(asking) = self.asking.take_if(|asking| now.since(asking.at) > self.options.answer) else {
            return;
        };
        if self.fault == Some(Fault::SilenceIsRefusal) && asking.request != Request::Read {
            return self.not_carried_out(now);
        }
        self.submit(asking.request, true, now);
    }

    fn answered(&mut self, ticket: Ticket, answer: Answer, now: Moment) {
        let Some(asking) = self.asking.take_if(|asking| asking.ticket == ticket) else { return };
        if !self.is_credible(&answer) {
            // It is asked again.
            self.asking = Some(asking);
            return;
        }
        if answer != Answer::Unreached {
            self.answered_at = now;
        }
        match answer {
            Answer::Current(Some(decision)) => {
                self.learn(decision, now);
                self.consider(now);
                let awaited = mem::take(&mut self.awaited);
                if self.asking.is_none() {
                    self.ask_of(awaited, now);
                }
                if self.asking.is_none() && self.awaits_heir(now) {
                    self.ask(Request::Read, now);
                }
            }
            Answer::Current(None) => self.give_up(Obstacle::NoDecision, now),
            Answer::Done(decision) | Answer::Conflict(decision) => match &self.state {
                State::Leading(_) => self.learn(decision, now),
                _ => self.proposal_decided(decision, now),
            },
            // An earlier attempt may still be on its way, so that this says nothing of the proposal.
            Answer::Unreached if asking.is_uncertain => self.asking = Some(asking),
            Answer::Unreached => self.not_carried_out(now),
        }
    }

    /// Whether an answer of the store is one that there can be: whatever it says else is not acted upon.
    fn is_credible(&self, answer: &Answer) -> bool {
        let (Answer::Current(Some(decision)) | Answer::Done(decision) | Answer::Conflict(decision)) = answer
        else {
            return true;
        };
        let is_old = self.known.as_ref().is_some_and(|known| decision.version < known.version);
        let goes_back = self.known.as_ref().is_some_and(|known| decision.epoch < known.epoch);
        let unseats = match &self.state {
            State::Leading(mastership) => {
                decision.epoch < mastership.epoch
                    || decision.epoch == mastership.epoch && decision.master != self.id
            }
            State::Following(_) | State::Halted => false,
        };
        decision.members.contains(&decision.master) && (is_old || !goes_back && !unseats)
    }

    fn not_carried_out(&mut self, now: Moment) {
        match &self.state {
            State::Leading(_) => self.settle_set(None, now),
            _ => self.give_up(Obstacle::StoreUnreached, now),
        }
    }

    /// A decision was made, now or earlier.
    pub(super) fn learn(&mut self, decision: Decision, now: Moment) {
        if self.known.as_ref().is_some_and(|known| known.version > decision.version) {
            return;
        }
        if decision.master != self.id && self.history.is_own(decision.epoch, self.id.life) {
            return self.halt(Contradiction::Forgotten { epoch: decision.epoch }, now);
        }
        self.known = Some(decision.clone());
        self.see(decision.epoch, now);
        match &mut self.state {
            State::Leading(mastership) => {
                let is_own = mastership.epoch == decision.epoch;
                assert!(is_own, "a master has seen no epoch beyond its own");
                self.settle_set(Some(&decision), now);
            }
            State::Following(following) => {
                let is_out = !decision.members.contains(&self.id);
                let begins_anew = following.is_stuck && is_out;
                if following.master != Some(decision.master) {
                    following.master = Some(decision.master);
                    following.heard_at = now;
                    if let Some(link) = following.link() {
                        self.part(link, now);
                    }
                    self.dial(now);
                }
                if begins_anew {
                    self.state = State::Halted;
                    self.actions.push(Action::BeginNewLife);
                }
            }
            State::Halted => {}
        }
    }
}
