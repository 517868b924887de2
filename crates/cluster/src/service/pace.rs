//! How often something is told to all who follow it: no more often than it can be sent to them.

use std::time::{Duration, Instant};

/// Bytes that are sent in a second, if everybody is told of each change.
const BYTES_PER_SECOND: usize = 100 << 20;

/// Of one thing that is told.
#[derive(Clone, Debug)]
pub struct Pace {
    /// The revision that was told last; None: none was.
    told: Option<u64>,
    /// When the next may be told.
    not_before: Instant,
}

impl Pace {
    /// Nothing was told yet.
    pub fn new(now: Instant) -> Pace {
        Pace { told: None, not_before: now }
    }

    /// When a revision is to be told; None: it was.
    pub fn due(&self, revision: u64) -> Option<Instant> {
        (self.told != Some(revision)).then_some(self.not_before)
    }

    /// A revision is told, in so many bytes, to so many.
    pub fn tell(&mut self, revision: u64, (bytes, followers): (usize, usize), now: Instant) {
        let pause = bytes.saturating_mul(followers.max(1)) as f64 / BYTES_PER_SECOND as f64;
        (self.told, self.not_before) = (Some(revision), now + Duration::from_secs_f64(pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_and_has_many_followers_is_told_less_often() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        assert_eq!(pace.due(0), Some(now), "also that there is nothing");
        pace.tell(1, (BYTES_PER_SECOND / 10, 20), now);
        assert_eq!(pace.due(1), None);
        assert_eq!(pace.due(2), Some(now + Duration::from_secs(2)));
        pace.tell(2, (0, 20), now);
        assert_eq!(pace.due(3), Some(now));
    }
}
