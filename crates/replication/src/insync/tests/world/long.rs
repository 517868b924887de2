//! Long requests: what a replica takes of one comes in steps, at a pace that is slower than silence for all of them together. Heartbeats are answered meanwhile.
//!
//! Some members stand still in the middle, until the link ends.

use super::super::super::{Event, LinkId, MemberId, Message, Role};
use super::super::disk::Record;
use super::{Arrival, World};
use std::collections::VecDeque;
use testkit::stage::Happening;

/// Steps of one.
const STEPS: u64 = 6;

/// So many of them take as long as silence.
const STEPS_IN_SILENCE: u64 = 3;

/// One that is coming, and what has come behind it.
#[derive(Debug)]
pub struct Coming {
    link: LinkId,
    from: MemberId,
    /// How many steps are to come; None: it stands still.
    steps_left: Option<u64>,
    behind: VecDeque<(Message, Vec<Record>)>,
}

impl World {
    /// Takes what is said on a link.
    pub(super) fn hear(
        &mut self,
        node: usize,
        link: LinkId,
        from: MemberId,
        message: Message,
        records: Vec<Record>,
    ) {
        let is_behind = self.nodes[node].coming.as_ref().is_some_and(|coming| coming.link == link);
        let Some(heartbeat) = self.heartbeat(node, &message).filter(|_| is_behind || self.are_long(&records))
        else {
            return self.step(node, Event::Received { link, from, message }, records);
        };
        match self.nodes[node].coming.as_mut().filter(|_| is_behind) {
            Some(coming) => coming.behind.push_back((message, records)),
            None => {
                // A learner that stands still remains one.
                let is_member = self.nodes[node].member.as_ref().is_some_and(|it| it.role() == Role::Member);
                let stands_still = self.stage.prng.one_in(4) && is_member;
                let steps_left = (!stands_still).then_some(STEPS);
                let behind = [(message, records)].into();
                self.nodes[node].coming = Some(Coming { link, from, steps_left, behind });
                self.await_step(node);
            }
        }
        self.step(node, Event::Received { link, from, message: heartbeat }, Vec::new());
    }

    fn are_long(&self, records: &[Record]) -> bool {
        let every = self.plan.long_every;
        let is_long = |record: &Record| matches!(record, Record::Write { value, .. } if value % every == 0);
        every > 0 && records.iter().any(is_long)
    }

    /// What else a message with records says.
    fn heartbeat(&self, node: usize, message: &Message) -> Option<Message> {
        let end = self.nodes[node].member.as_ref()?.appended();
        match *message {
            Message::Records { epoch, committed, asked_at, is_member, .. } => {
                Some(Message::Records { epoch, start: end, end, committed, asked_at, is_member })
            }
            _ => None,
        }
    }

    fn await_step(&mut self, node: usize) {
        let pace = self.plan.options.silence.as_micros() as u64 / STEPS_IN_SILENCE;
        let link = self.nodes[node].coming.as_ref().map(|coming| coming.link);
        if let Some(link) = link {
            self.stage.soon(pace, Happening::Arrives(self.stage.end(node), Arrival::StepIsDone { link }));
        }
    }

    /// One step more is done of what comes on a link.
    pub(super) fn take_step(&mut self, node: usize, link: LinkId) {
        let coming = self.nodes[node].coming.as_mut().filter(|coming| coming.link == link);
        let Some(Coming { steps_left: Some(left), .. }) = coming else { return };
        *left -= 1;
        let is_last = *left == 0;
        self.nodes[node].steps += 1;
        let steps = self.nodes[node].steps;
        self.step(node, Event::Progressed { steps }, Vec::new());
        match is_last {
            true => self.take_long(node),
            false => self.await_step(node),
        }
    }

    fn take_long(&mut self, node: usize) {
        let Some(Coming { link, from, mut behind, .. }) = self.nodes[node].coming.take() else { return };
        if let Some((message, records)) = behind.pop_front() {
            self.step(node, Event::Received { link, from, message }, records);
        }
        behind.into_iter().for_each(|(message, records)| self.hear(node, link, from, message, records));
    }

    /// A link is over, and what was to come on it does not come.
    pub(super) fn forget_coming(&mut self, node: usize, link: LinkId) {
        self.nodes[node].coming.take_if(|coming| coming.link == link);
    }

    /// Nothing else befalls this shard: only who stands still may be removed.
    pub(super) fn look_at_removal(&mut self, removed: &[MemberId]) {
        for node in 0..self.nodes.len() {
            let is_late = self.nodes[node].coming.as_ref().is_some_and(|coming| coming.steps_left.is_none());
            if self.plan.long_every > 0 && removed.contains(&self.id(node)) && !is_late {
                self.stage.fail(format!("{node} is removed, and came forward"));
            }
        }
    }
}
