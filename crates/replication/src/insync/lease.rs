//! Leases: for how long the master may serve reads because no member will ask to take its place.
//!
//! The master counts from before its request left, the member from when that request had come. So the master's span is over
//! first, whatever the network did, as long as no two clocks' rates differ by 1 % or more. No wall clock takes part (Gray
//! and Cheriton, Leases, 1989).

use super::identity::Moment;
use std::time::Duration;

/// How long the other side of a lease waits: the lease, a hundredth of it for the clocks' rates, and a margin.
#[must_use]
pub fn stretched(lease: Duration, margin: Duration) -> Duration {
    lease + lease / 100 + margin
}

/// What a member has lent to any master. Not kept on disk: who starts assumes that the process before it lent at its very end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    until: Moment,
    is_assumed: bool,
}

impl Granted {
    /// A process that starts at `now` cannot know what the one before it lent.
    pub fn at_start(now: Moment, wait: Duration) -> Granted {
        Granted { until: now.plus(wait), is_assumed: true }
    }

    /// Lends until `wait` after the request came, which the master counts from earlier.
    pub fn lend(&mut self, came_at: Moment, wait: Duration) {
        self.until = self.until.max(came_at.plus(wait));
        self.is_assumed = false;
    }

    /// Whether nobody reads on what was lent any more.
    pub fn is_over(&self, now: Moment) -> bool {
        now >= self.until
    }

    /// Nobody reads on it any more, whatever was lent.
    pub fn give_back(&mut self, now: Moment) {
        self.until = now;
        self.is_assumed = false;
    }

    /// Whether this process has lent nothing itself.
    pub fn is_assumed(&self) -> bool {
        self.is_assumed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_millis(1000);

    #[test]
    fn a_loan_ends_a_hundredth_and_a_margin_later() {
        let wait = stretched(LEASE, Duration::from_millis(20));
        assert_eq!(wait, Duration::from_millis(1030));
        let mut granted = Granted::at_start(Moment(0), Duration::ZERO);
        assert!(granted.is_assumed() && granted.is_over(Moment(0)));
        granted.lend(Moment(5_000), wait);
        assert!(!granted.is_assumed());
        assert!(!granted.is_over(Moment(1_034_999)) && granted.is_over(Moment(1_035_000)));
    }

    #[test]
    fn an_earlier_request_shortens_no_loan() {
        let mut granted = Granted::at_start(Moment(0), LEASE);
        granted.lend(Moment(9), LEASE);
        granted.lend(Moment(3), LEASE);
        assert!(!granted.is_over(Moment(1_000_008)));
    }
}
