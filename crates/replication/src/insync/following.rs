//! A replica's side, member or learner: finds the master, cuts what only itself has, takes the log, acknowledges and lends.

use super::candidacy::Candidacy;
use super::decisions::Request;
use super::event::{Action, Contradiction};
use super::fault::Fault;
use super::history::History;
use super::identity::{Epoch, LinkId, MemberId, Moment};
use super::lease::stretched;
use super::member::{BeforeCut, Member, State};
use super::message::{Lease, Message, Reached};
use log::Lsn;
use std::time::Duration;

/// The state of a replica.
#[derive(Clone, Debug)]
pub(super) struct Following {
    /// Who is master by the newest decision known.
    pub master: Option<MemberId>,
    phase: Phase,
    /// When the phase began.
    since: Moment,
    /// The master's epochs.
    source: History,
    /// When the master was heard last, or became master.
    pub heard_at: Moment,
    /// The newest request for a lease, by the master's clock, and when it came.
    asked: Option<(Moment, Moment)>,
    /// Steps within requests that are not done as a whole.
    pub steps: u64,
    /// Whether the master said last that this node is a member.
    pub is_member: bool,
    /// Whether the log cannot be brought in line with the master's.
    pub is_stuck: bool,
}

/// How far a replica has come with its master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Without a link.
    Apart,
    /// The master was dialled.
    Dialing,
    /// It was told what the log holds.
    Greeting(LinkId),
    /// It said where the logs part; its epoch is being made durable, and then the log cut.
    Settling(LinkId, Lsn),
    /// The log comes.
    Streaming(LinkId),
}

impl Following {
    /// Nobody yet.
    pub fn new(now: Moment) -> Following {
        Following {
            master: None,
            phase: Phase::Apart,
            since: now,
            source: History::default(),
            heard_at: now,
            asked: None,
            steps: 0,
            is_member: false,
            is_stuck: false,
        }
    }

    /// The link to the master, if there is one.
    pub fn link(&self) -> Option<LinkId> {
        match self.phase {
            Phase::Apart | Phase::Dialing => None,
            Phase::Greeting(link) | Phase::Settling(link, _) | Phase::Streaming(link) => Some(link),
        }
    }

    /// Whether the log comes.
    pub fn is_streaming(&self) -> bool {
        matches!(self.phase, Phase::Streaming(_))
    }

    /// Whether the link serves an epoch already, and not only the question which.
    pub fn is_bound(&self) -> bool {
        matches!(self.phase, Phase::Settling(..) | Phase::Streaming(_))
    }

    /// The epochs of the master's log.
    pub fn source(&self) -> &History {
        &self.source
    }

    /// The node itself stood still.
    pub fn forgive(&mut self, pause: Duration) {
        self.heard_at = self.heard_at.plus(pause);
        self.since = self.since.plus(pause);
    }

    fn enter(&mut self, phase: Phase, now: Moment) {
        (self.phase, self.since) = (phase, now);
    }

    /// Without a link from now on.
    pub fn parted(&mut self, now: Moment) {
        self.enter(Phase::Apart, now);
        self.asked = None;
    }
}

impl Member {
    /// Dials, gives up links on which nothing comes, and asks who is master.
    pub(super) fn tick_following(&mut self, now: Moment) {
        let (silence, heartbeat) = (self.options.silence, self.options.heartbeat);
        let State::Following(following) = &mut self.state else { return };
        let waited = now.since(following.since);
        match following.phase {
            Phase::Apart => {
                if waited >= heartbeat {
                    self.dial(now);
                }
                if self.asking.is_none() && now.since(self.read_at) >= 2 * heartbeat {
                    self.ask(Request::Read, now);
                }
            }
            Phase::Dialing if waited > silence => following.parted(now),
            Phase::Greeting(link) if waited > silence => self.part(link, now),
            // A dead link may show nothing at all.
            Phase::Streaming(link) if now.since(following.heard_at) > silence => self.part(link, now),
            Phase::Dialing | Phase::Greeting(_) | Phase::Settling(..) | Phase::Streaming(_) => {}
        }
    }

    /// Calls the master, if it is another and there is no link to it.
    pub(super) fn dial(&mut self, now: Moment) {
        let (id, before_cut) = (self.id, self.before_cut.is_some());
        let State::Following(following) = &mut self.state else { return };
        let master = following.master.filter(|master| *master != id && !following.is_stuck);
        if let Some(master) = master.filter(|_| following.phase == Phase::Apart && !before_cut) {
            following.enter(Phase::Dialing, now);
            self.actions.push(Action::Dial { node: master.node });
        }
    }

    /// The master's node has answered the call.
    pub(super) fn greet(&mut self, link: LinkId, now: Moment) {
        let message = Message::Hello { epoch: self.epoch, history: self.history.clone(), end: self.appended };
        match &mut self.state {
            State::Following(following) if following.phase == Phase::Dialing && self.before_cut.is_none() => {
                following.enter(Phase::Greeting(link), now);
                self.actions.push(Action::Send { link, message });
            }
            _ => {
                self.actions.push(Action::Close { link });
                self.not_reached(now);
            }
        }
    }

    /// The call was not answered.
    pub(super) fn not_reached(&mut self, now: Moment) {
        if let State::Following(following) = &mut self.state
            && following.phase == Phase::Dialing
        {
            following.parted(now);
        }
    }

    /// The master says where the logs part. First its epoch becomes durable: then no older master can be followed,
    /// whatever happens while the log is cut.
    pub(super) fn follow(&mut self, link: LinkId, epoch: Epoch, history: History, cut: Lsn, now: Moment) {
        // Nobody else is asked, so that what anybody else says ends no reign.
        let is_asked =
            matches!(&self.state, State::Following(following) if following.phase == Phase::Greeting(link));
        if !is_asked {
            return;
        }
        if let Some(epoch) = self.history.begun_twice(&history) {
            return self.halt(Contradiction::Forgotten { epoch }, now);
        }
        if epoch < self.epoch {
            let refusal = Message::Refusal { epoch: self.epoch };
            self.actions.push(Action::Send { link, message: refusal });
            return self.part(link, now);
        }
        self.see(epoch, now);
        let State::Following(following) = &mut self.state else { return };
        (following.source, following.heard_at) = (history, now);
        following.enter(Phase::Settling(link, cut), now);
        if self.durable_epoch < epoch {
            self.actions.push(Action::Persist { epoch });
        } else {
            self.settle(now);
        }
    }

    /// The epoch is durable: cuts what the master does not have.
    pub(super) fn settle(&mut self, now: Moment) {
        let State::Following(following) = &mut self.state else { return };
        let Phase::Settling(_, cut) = following.phase else { return };
        if self.durable_epoch < self.epoch || self.before_cut.is_some() {
            return;
        }
        if cut < self.committed && !following.source.is_lossy_from(cut) {
            let committed = self.committed;
            return self.halt(Contradiction::Lacking { cut, committed }, now);
        }
        if cut == self.appended {
            return self.stream(now);
        }
        self.before_cut = Some(BeforeCut {
            appended: self.appended,
            durable: self.durable,
            committed: self.committed,
            history: self.history.clone(),
        });
        self.history.cut(cut);
        self.appended = cut;
        self.durable = self.durable.min(cut);
        self.committed = self.committed.min(cut);
        self.actions.push(Action::Cut { end: cut });
    }

    /// The log is as the master's from here on.
    pub(super) fn stream(&mut self, now: Moment) {
        let State::Following(following) = &mut self.state else { return };
        let Phase::Settling(link, _) = following.phase else { return };
        (following.heard_at, following.is_member) = (now, false);
        following.enter(Phase::Streaming(link), now);
        self.acknowledge();
    }

    /// More of the log, or a heartbeat.
    pub(super) fn take_records(&mut self, link: LinkId, epoch: Epoch, records: Incoming, now: Moment) {
        let State::Following(following) = &mut self.state else { return };
        if following.phase != Phase::Streaming(link) {
            return;
        }
        if epoch != self.epoch || records.start != self.appended {
            return self.part(link, now);
        }
        following.heard_at = now;
        following.asked = Some((records.asked_at, now));
        let was_added = records.is_member && !following.is_member;
        following.is_member = records.is_member;
        if records.end > records.start {
            self.appended = records.end;
            self.history.follow(&following.source, records.end);
            self.actions.push(Action::Append { start: records.start, end: records.end });
        }
        let committed = records.committed.min(self.appended);
        if committed > self.committed {
            self.committed = committed;
            self.actions.push(Action::Commit { end: committed });
        }
        self.acknowledge();
        if was_added && self.asking.is_none() {
            // Who asks this node who the members are is not to be told the decision of before.
            self.ask(Request::Read, now);
        }
    }

    /// Says what is here, and lends, unless this node wants to be master itself.
    pub(super) fn acknowledge(&mut self) {
        let is_lending = self.is_lending();
        let wait = stretched(self.options.lease, self.options.margin);
        let State::Following(following) = &mut self.state else { return };
        let Phase::Streaming(link) = following.phase else { return };
        following.steps += u64::from(self.fault == Some(Fault::AnswersAreProgress));
        let reached = match following.asked {
            // The master has heard where this node's log ends, and sends what is behind it.
            Some(_) => Reached::Within(following.steps),
            None => Reached::Place(self.appended),
        };
        let lease = following.asked.filter(|_| is_lending).map(|(asked_at, came_at)| {
            // Only a planted mistake lends while it waits.
            if self.candidacy.as_ref().is_none_or(Candidacy::is_lending) {
                self.granted.lend(came_at, self.wait_for(wait));
            }
            Lease { asked_at, length: self.options.lease }
        });
        let durable = match self.fault {
            Some(Fault::ReceivedCounts) => self.appended,
            _ => self.durable,
        };
        let message = Message::Acknowledgement { epoch: self.epoch, reached, durable, lease };
        self.actions.push(Action::Send { link, message });
    }

    /// It has done something of what is not done as a whole.
    pub(super) fn note_steps(&mut self, steps: u64) {
        if let State::Following(following) = &mut self.state {
            following.steps = following.steps.max(steps);
        }
    }

    /// How long this node waits for what it lent.
    fn wait_for(&self, stretched: Duration) -> Duration {
        match self.fault {
            Some(Fault::LeaseNotWaitedOut) => Duration::ZERO,
            Some(Fault::ClockRateIgnored) => self.options.lease,
            _ => stretched,
        }
    }

    /// This node was master, or has followed one, and has appended more than was told.
    pub(super) fn own_log_was_longer(&mut self, end: Lsn) {
        let State::Following(following) = &self.state else { return };
        if following.link().is_some() || end <= self.appended {
            return;
        }
        self.appended = end;
        if !following.source.beginnings().is_empty() {
            let source = following.source.clone();
            self.history.follow(&source, end);
        }
    }

    /// The log cannot be gone on with: as where it cannot be cut.
    pub(super) fn records_are_gone(&mut self, now: Moment) {
        let State::Following(following) = &mut self.state else { return };
        following.is_stuck = true;
        if let Some(link) = following.link() {
            self.part(link, now);
        }
    }

    /// The log cannot be cut where it must be. What is here counts for as long as the node is a member; after
    /// that it begins another life.
    pub(super) fn cut_is_impossible(&mut self, now: Moment) {
        let Some(before) = self.before_cut.take() else { return };
        self.appended = before.appended;
        self.durable = before.durable;
        self.committed = before.committed;
        self.history = before.history;
        if let State::Following(following) = &mut self.state {
            following.is_stuck = true;
            if let Some(link) = following.link() {
                self.part(link, now);
            }
        }
    }
}

/// What comes with [`Message::Records`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    pub start: Lsn,
    pub end: Lsn,
    pub committed: Lsn,
    pub asked_at: Moment,
    pub is_member: bool,
}
