//! A follower's log, as it is told to the state machine: what a master says, and up to where what it has sent is here. While that is looked at nothing of the master's
//! is done.
//!
//! Something of the master's may take longer than a member may be silent: a request with a value of a gigabyte, a transaction of a million commands. The driver waits for
//! its end, but answers heartbeats meanwhile, and says that it goes on: how many steps were done within it (`Following::steps`). They count only while all
//! before it is durable: else it is the disk that is waited for.

use super::super::fault::Fault;
use super::super::source::Heard;
use super::{Driver, Holding};
use crate::server::Server;
use crate::shard::Letter;
use ::log::Lsn;
use parking_lot::MutexGuard;
use replication::insync::{Action, Event, LinkId, Message};
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Driver {
    /// What is said on a link. Whether it is the master's: others may say what they like.
    pub(super) fn note_heard(&mut self, link: LinkId, heard: Heard) -> bool {
        let is_followed = self.member.link() == Some(link);
        if is_followed {
            (self.heard, self.is_asked) = (Some((link, heard)), true);
        }
        is_followed
    }

    /// A heartbeat, or word of more records, which are taken when they are here.
    pub(super) fn hear(&mut self) {
        self.while_still(Driver::answer);
        self.go_on();
    }

    /// Answers what the master has said last, if that was not done meanwhile.
    fn answer(&mut self) -> Vec<Action> {
        let heard = self.heard.filter(|(link, _)| self.member.link() == Some(*link));
        let is_asked = std::mem::take(&mut self.is_asked);
        match heard.filter(|_| is_asked) {
            Some((link, heard)) => self.tell(link, heard, self.member.appended()),
            None => Vec::new(),
        }
    }

    /// Tells something behind how far the log is, while nothing of a master's is done, and then does what follows.
    pub(super) fn while_still(&mut self, tell: impl FnOnce(&mut Driver) -> Vec<Action>) {
        let server = self.server.clone();
        let still = self.stand_still(&server);
        let mut actions = self.catch_up();
        actions.extend(tell(self));
        self.lend();
        self.leave_source();
        drop(still);
        self.carry_out(actions);
        self.note_company();
    }

    /// Waits for the end of what is being done of a master's.
    fn stand_still<'s>(&mut self, server: &'s Server) -> MutexGuard<'s, ()> {
        let pace = self.shard.settings.options.heartbeat / 2;
        loop {
            if let Some(still) = server.following.try_stand_still(pace) {
                return still;
            }
            self.keep_up();
        }
    }

    /// Answers the master's heartbeats while something of its is being done. All else that comes waits.
    fn keep_up(&mut self) {
        self.letters.extend(self.shard.take(Instant::now()));
        let Some(source) = self.source.filter(|source| self.member.link() == Some(source.link)) else {
            return;
        };
        for letter in std::mem::take(&mut self.letters) {
            match letter {
                Letter::Happened(Event::Received {
                    link,
                    from,
                    message: Message::Records { epoch, committed, asked_at, is_member, .. },
                }) if link == source.link => {
                    self.note_heard(link, Heard { from, epoch, committed, asked_at, is_member });
                }
                letter => self.letters.push_back(letter),
            }
        }
        // Nothing else is to follow from it.
        let epoch = self.member.epoch();
        let is_its = self.heard.is_some_and(|(link, heard)| link == source.link && heard.epoch == epoch);
        let is_copied = self.server.following.copies.load(Ordering::Relaxed) != self.copies;
        if !is_its || is_copied || self.data != Holding::Whole {
            return;
        }
        if let Some(applied) = self.applied(source) {
            let durable = self.durable_of(applied);
            self.note_steps(applied, durable);
            let actions = self.answer();
            self.carry_out(actions);
        }
    }

    /// What of a stream that is done up to there is durable.
    fn durable_of(&self, applied: u64) -> u64 {
        match self.server.engine.durability.log() {
            Some(_) if !Fault::is(self.fault, Fault::DoneIsDurable) => self.server.stream().offset,
            _ => applied,
        }
    }

    pub(super) fn catch_up_with_source(&mut self) -> Vec<Action> {
        let Some(source) = self.source else { return Vec::new() };
        let Some((_, heard)) = self.heard.filter(|(link, _)| *link == source.link) else { return Vec::new() };
        self.look_for_copy(source);
        let Some(applied) = self.applied(source) else { return Vec::new() };
        let durable = self.durable_of(applied);
        if !self.is_whole(source, durable) {
            return Vec::new();
        }
        self.note_steps(applied, durable);
        let mut actions = Vec::new();
        if Lsn(applied) > self.member.appended() {
            self.note_place(applied);
            actions = self.tell(source.link, heard, Lsn(applied));
        }
        actions.extend(self.tell_durable(durable));
        actions
    }

    /// Steps that were done since they were looked at last, where all that is done is durable.
    fn note_steps(&mut self, applied: u64, durable: u64) {
        let (looked_at, counted) = &mut self.steps;
        let steps = self.server.following.steps.load(Ordering::Relaxed);
        let more = steps - std::mem::replace(looked_at, steps);
        if more > 0 && durable >= applied {
            *counted += more;
            let event = Event::Progressed { steps: *counted };
            let actions = self.member.step(event, self.now());
            debug_assert!(actions.is_empty(), "the next acknowledgement tells it");
        }
    }

    /// Tells that the log has come to there, with what the master said last.
    fn tell(&mut self, link: LinkId, heard: Heard, end: Lsn) -> Vec<Action> {
        let Heard { from, epoch, committed, asked_at, is_member } = heard;
        let start = self.member.appended();
        let message = Message::Records { epoch, start, end, committed, asked_at, is_member };
        self.member.step(Event::Received { link, from, message }, self.now())
    }
}
