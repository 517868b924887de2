//! What a master knows of one other node.

use super::identity::{LinkId, Moment};
use super::message::Lease;
use log::Lsn;
use std::time::Duration;

/// A member or a learner, as its master sees it.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// The link on which it greeted last.
    pub link: Option<LinkId>,
    /// Whether it has taken its welcome, and gets the log.
    pub is_streaming: bool,
    /// Up to where the log was sent.
    pub sent: Lsn,
    /// Up to where it has made the log durable, as acknowledged on this link.
    pub durable: Lsn,
    /// How many steps it has done within what is not durable there as a whole, as acknowledged on this link.
    steps: Option<u64>,
    /// Until when it lends time to read, by the master's clock.
    pub lent_until: Moment,
    /// When it acknowledged anything last, or was expected to begin.
    heard_at: Moment,
    /// Since when something has been asked of it and it has made nothing durable, nor come forward within one request.
    behind_since: Option<Moment>,
}

impl Peer {
    /// Somebody of whom nothing was heard yet.
    pub fn new(now: Moment) -> Peer {
        Peer {
            link: None,
            is_streaming: false,
            sent: Lsn::ZERO,
            durable: Lsn::ZERO,
            steps: None,
            lent_until: Moment(0),
            heard_at: now,
            behind_since: None,
        }
    }

    /// It greeted on a link, and has the master's log up to `cut`. What it lent before still holds.
    pub fn greeted(&mut self, link: LinkId, cut: Lsn) {
        self.link = Some(link);
        self.is_streaming = false;
        self.sent = cut;
        self.durable = Lsn::ZERO;
        self.steps = None;
    }

    /// Its link is gone.
    pub fn parted(&mut self) {
        self.link = None;
        self.is_streaming = false;
    }

    /// It has made the log durable up to `durable`, and done so many steps within what is behind that; the master's own ends at `end`.
    pub fn acknowledged(&mut self, (durable, steps): (Lsn, Option<u64>), end: Lsn, now: Moment) {
        self.heard_at = now;
        // How many there were before this link says nothing.
        let has_stepped = self.steps.is_some() && steps > self.steps;
        if durable >= end {
            self.behind_since = None;
        } else if durable > self.durable || has_stepped || self.behind_since.is_none() {
            self.behind_since = Some(now);
        }
        self.durable = durable;
        self.steps = steps.max(self.steps);
    }

    /// The master's log has grown.
    pub fn is_owed(&mut self, now: Moment) {
        self.behind_since.get_or_insert(now);
    }

    /// Counts a lease from when it was asked for, which was before the member began to count.
    pub fn lent(&mut self, lease: Lease) {
        self.lent_until = self.lent_until.max(lease.asked_at.plus(lease.length));
    }

    /// Whether it has acknowledged nothing, or come no further, for longer than `silence`.
    pub fn is_late(&self, now: Moment, silence: Duration) -> bool {
        let is_long = |since: Moment| now.since(since) > silence;
        is_long(self.heard_at) || self.behind_since.is_some_and(is_long)
    }

    /// The master itself stood still for so long, and could not have heard anything. Leases run on.
    pub fn forgive(&mut self, pause: Duration) {
        self.heard_at = self.heard_at.plus(pause);
        self.behind_since = self.behind_since.map(|since| since.plus(pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_micros(10);

    #[test]
    fn who_says_nothing_is_late() {
        let mut peer = Peer::new(Moment(0));
        assert!(!peer.is_late(Moment(10), SILENCE) && peer.is_late(Moment(11), SILENCE));
        peer.acknowledged((Lsn(0), None), Lsn(0), Moment(11));
        assert!(!peer.is_late(Moment(21), SILENCE));
        peer.forgive(Duration::from_micros(100));
        assert!(!peer.is_late(Moment(121), SILENCE) && peer.is_late(Moment(122), SILENCE));
    }

    #[test]
    fn who_speaks_and_makes_nothing_durable_is_late() {
        let mut peer = Peer::new(Moment(0));
        peer.is_owed(Moment(0));
        for now in [4, 8] {
            peer.acknowledged((Lsn(1), None), Lsn(5), Moment(now));
        }
        assert!(!peer.is_late(Moment(14), SILENCE), "it came on at 4");
        peer.acknowledged((Lsn(1), None), Lsn(5), Moment(15));
        assert!(peer.is_late(Moment(15), SILENCE));
        peer.acknowledged((Lsn(5), None), Lsn(5), Moment(16));
        assert!(!peer.is_late(Moment(16), SILENCE));
    }

    #[test]
    fn who_comes_forward_within_one_request_is_not_late_and_who_says_the_same_again_is() {
        let mut peer = Peer::new(Moment(0));
        peer.greeted(LinkId(1), Lsn(1));
        peer.acknowledged((Lsn(1), None), Lsn(5), Moment(0));
        // The first number on a link is nothing that was done since.
        for (now, steps, is_late) in [
            (8, 90, false),
            (11, 90, true),
            (12, 91, false),
            (20, 95, false),
            (30, 95, false),
            (31, 95, true),
            (32, 94, true),
        ] {
            peer.acknowledged((Lsn(1), Some(steps)), Lsn(5), Moment(now));
            assert_eq!(peer.is_late(Moment(now), SILENCE), is_late, "{now}");
        }
        peer.greeted(LinkId(2), Lsn(1));
        peer.acknowledged((Lsn(1), None), Lsn(5), Moment(33));
        peer.acknowledged((Lsn(1), Some(96)), Lsn(5), Moment(44));
        assert!(peer.is_late(Moment(44), SILENCE), "another link is no step");
        peer.acknowledged((Lsn(1), Some(97)), Lsn(5), Moment(45));
        assert!(!peer.is_late(Moment(55), SILENCE));
    }
}
