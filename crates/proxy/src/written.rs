//! Which servers a client has written to, for its WAIT, and for its reads from replicas. Pure.

use crate::replicas::Needs;
use crate::upstream::NodeNo;
use std::time::Instant;

/// The last place stands for this server and all behind it.
const PLACES: u32 = u64::BITS;
const ALL: u64 = u64::MAX;

/// The servers that a client has written to, or more than these: all of them where slots have gone elsewhere meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// A bit for each.
    to: u64,
    /// By these routes.
    version: u64,
    /// Not all of it was answered.
    is_under_way: bool,
    /// When all of it was answered last, as far as that was noted.
    answered_at: Option<Instant>,
    /// By the routes of this version something was done that a server was asked for once.
    elsewhere_at: u64,
    /// A bit for each server that was asked for once: it may have no slots, and has what was written to it.
    asked: u64,
    /// How many connections to servers were lost when the first of it was written.
    losses: u64,
}

impl Written {
    /// A server is written to, by routes of this version.
    #[inline]
    pub fn note(&mut self, node: NodeNo, version: u64) {
        if self.version != version {
            self.to = if self.to == 0 { 0 } else { ALL };
            self.version = version;
        }
        self.to |= bit_of(node);
        self.is_under_way = true;
    }

    /// All that it has written was answered. `now` is asked for if that is news.
    #[inline]
    pub fn note_answered(&mut self, now: impl FnOnce() -> Option<Instant>) {
        if std::mem::take(&mut self.is_under_way) {
            self.answered_at = now();
        }
    }

    /// When all that it has written was answered; None inside: it has written nothing. None: it was not, or that is not known.
    pub fn answered_at(self) -> Option<Option<Instant>> {
        match self.answered_at {
            _ if self.is_nothing() => Some(None),
            at @ Some(_) if !self.is_under_way => Some(at),
            _ => None,
        }
    }

    /// What the client has to find where it reads what is a server's, by routes of this version, which are so since then; None: only the server itself has it for
    /// certain.
    pub fn needs_of(self, node: NodeNo, (version, since): (u64, Instant)) -> Option<Needs> {
        // What has moved with its slot was written to the new owner when it did.
        let moment =
            |answered_at: Instant| if self.version == version { answered_at } else { answered_at.max(since) };
        match self.has(node, version) {
            _ if self.is_under_way || !self.is_nothing() && self.elsewhere_at == version => None,
            true => self.answered_at.map(|answered_at| Needs::AllBefore(moment(answered_at))),
            false => Some(Needs::Nothing),
        }
    }

    /// Something was done elsewhere than these routes say, by these servers that were asked for once: any may have been written to, if one was.
    pub fn note_elsewhere(&mut self, version: u64, asked: &[NodeNo]) {
        if self.is_nothing() {
            return;
        }
        (self.to, self.elsewhere_at) = (ALL, version);
        asked.iter().for_each(|node| self.asked |= bit_of(*node));
    }

    /// Nothing was written before, or what was may be lost, of which the client is told: so many connections were lost by now.
    pub fn begin(&mut self, losses: u64) {
        (self.losses, self.asked) = (losses, 0);
    }

    /// How many connections were lost when the first of it was written.
    pub fn losses(self) -> u64 {
        self.losses
    }

    /// Whether none was written to.
    pub fn is_nothing(self) -> bool {
        self.to == 0
    }

    /// Whether a server may have been written to, by routes of this version.
    pub fn has(self, node: NodeNo, version: u64) -> bool {
        let to = if self.version == version || self.is_nothing() { self.to } else { ALL };
        to & bit_of(node) != 0
    }

    /// Whether a server was asked for once that the client may have written to, wherever its slots are.
    pub fn was_asked(self, node: NodeNo) -> bool {
        self.asked & bit_of(node) != 0
    }
}

fn bit_of(node: NodeNo) -> u64 {
    1 << u32::from(node).min(PLACES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn servers_are_told_apart_while_slots_stay_where_they_are() {
        let mut written = Written::default();
        assert!(written.is_nothing() && !written.has(0, 0) && !written.has(0, 1));
        written.note(2, 5);
        assert!(written.has(2, 5) && !written.has(1, 5) && !written.is_nothing());
        assert!(written.has(1, 6), "it may be the successor of the one that was written to");
        let mut later = written;
        later.note(3, 6);
        assert!(later.has(3, 6) && later.has(1, 6));
        written.note(200, 5);
        assert!(written.has(63, 5) && written.has(900, 5) && !written.has(62, 5));
        written.note_elsewhere(5, &[7]);
        assert!(written.has(1, 5) && written.was_asked(7) && !written.was_asked(1));
        written.begin(3);
        assert!(!written.was_asked(7), "what it has may be lost, and is told to be so");
    }

    #[test]
    fn reads_find_what_was_answered() {
        let (mut written, now) = (Written::default(), Instant::now());
        let before = now - Duration::from_secs(1);
        let needs = |written: Written, node, version| written.needs_of(node, (version, before));
        assert_eq!(needs(written, 1, 1), Some(Needs::Nothing));
        written.note(1, 1);
        assert_eq!((needs(written, 1, 1), needs(written, 2, 1)), (None, None));
        written.note_answered(|| Some(now));
        written.note_answered(|| unreachable!("nothing was written since"));
        assert_eq!(needs(written, 1, 1), Some(Needs::AllBefore(now)));
        assert_eq!(needs(written, 2, 1), Some(Needs::Nothing));
        assert_eq!(needs(written, 2, 2), Some(Needs::AllBefore(now)));
        let later = now + Duration::from_secs(1);
        assert_eq!(
            written.needs_of(2, (2, later)),
            Some(Needs::AllBefore(later)),
            "its slot has moved since"
        );
        written.note(1, 1);
        written.note_answered(|| None);
        assert_eq!((needs(written, 1, 1), needs(written, 2, 1)), (None, Some(Needs::Nothing)));
        written.note_elsewhere(1, &[]);
        assert_eq!(needs(written, 2, 1), None);
    }
}
