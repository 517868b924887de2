//! How a master hands its place to a member, without anybody's waiting for leases.
//!
//! 1. It does so only at rest: nobody writes any more, every member has everything, and no change of the set is on its way; and while the store of
//!    decisions answers, without which nobody could be master after it.
//! 2. It reads no more before it says so. The member that it tells this need not wait for what it has lent: nobody reads on that.
//! 3. Who is master is decided as ever, by the member's proposal. The former master reads the decision again and again until it says so, since nothing is
//!    committed before it follows. If nothing comes of that, it asks to go on, after a while, as if it had been started again; whoever is first at the
//!    store is master.

use super::candidacy::Reason;
use super::decisions::Request;
use super::event::{Action, Loss};
use super::fault::Fault;
use super::identity::{Epoch, LinkId, Moment, NodeId};
use super::member::{Member, State};
use super::message::Message;

impl Member {
    /// The master hands over, to this node or to any, if that can be done now.
    pub(super) fn hand_over(&mut self, to: Option<NodeId>, now: Moment) {
        let State::Leading(mastership) = &self.state else { return };
        let is_at_rest = mastership.started.is_some()
            && self.committed == self.appended
            && self.asking.is_none()
            && mastership.is_settled();
        if !is_at_rest {
            return;
        }
        let Some(link) = mastership.heir(self.id, to, self.appended) else { return };
        if now.since(self.answered_at) > self.options.heartbeat {
            // It comes back here when it is told again.
            return self.ask(Request::Read, now);
        }
        let message = Message::Yield { epoch: mastership.epoch };
        if self.fault != Some(Fault::YieldedAndReading) {
            self.resumes_from = now.plus(self.options.silence);
            self.step_down(Some(link), now);
            self.ask(Request::Read, now);
        }
        // Its other side ends the link.
        self.actions.push(Action::Send { link, message });
    }

    /// Whether this node has handed over, and the decision does not say so yet.
    pub(super) fn awaits_heir(&self, now: Moment) -> bool {
        now < self.resumes_from
            && matches!(self.state, State::Following(_))
            && self.known.as_ref().is_some_and(|known| known.master == self.id)
    }

    /// The master of this link says that it is none any more, and that this node is to be it.
    pub(super) fn take_over(&mut self, link: LinkId, epoch: Epoch, now: Moment) {
        let State::Following(following) = &self.state else { return };
        if following.link() != Some(link) || !following.is_streaming() || epoch != self.epoch {
            return;
        }
        self.part(link, now);
        self.granted.give_back(now);
        self.stand(Reason::Command(Loss::Refused), now);
    }
}
