//! What a master tells others of how far its log is, at a measured pace.
//!
//! Thread rule: the driver's thread.

use replication::insync::{LinkId, Message};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The time between two words of how far the log is, so that a busy master does not say so with each batch: the log itself goes another way.
const RECORDS_PACE: Duration = Duration::from_millis(2);

/// The newest word for each link of how far the log is, and when the last one left.
#[derive(Default)]
pub struct Beats(BTreeMap<LinkId, (Option<Instant>, Option<Message>)>);

impl Beats {
    /// Has a link be told this, and nothing that it was to be told before.
    pub fn put(&mut self, link: LinkId, message: Message) {
        self.0.entry(link).or_default().1 = Some(message);
    }

    /// The link is gone.
    pub fn forget(&mut self, link: LinkId) {
        self.0.remove(&link);
    }

    /// When the next one is due.
    pub fn next(&self) -> Option<Instant> {
        let waiting = self.0.values().filter(|(_, message)| message.is_some());
        waiting.filter_map(|(left, _)| left.map(|left| left + RECORDS_PACE)).min()
    }

    /// Those that are due.
    pub fn take(&mut self, now: Instant) -> Vec<(LinkId, Message)> {
        let is_due = |left: Option<Instant>| left.is_none_or(|left| now >= left + RECORDS_PACE);
        let due = self.0.iter_mut().filter(|(_, (left, _))| is_due(*left));
        let taken = due.filter_map(|(link, (left, message))| {
            let message = message.take()?;
            *left = Some(now);
            Some((*link, message))
        });
        taken.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use log::Lsn;
    use replication::insync::{Epoch, Moment};

    #[test]
    fn the_newest_word_leaves_when_the_one_before_is_long_enough_ago() {
        let word = |end| Message::Records {
            epoch: Epoch(1),
            start: Lsn(0),
            end: Lsn(end),
            committed: Lsn(0),
            asked_at: Moment(0),
            is_member: true,
        };
        let (mut beats, now, link) = (Beats::default(), Instant::now(), LinkId(7));
        beats.put(link, word(1));
        assert_eq!(beats.next(), None, "it is due at once");
        assert_eq!(beats.take(now), [(link, word(1))]);
        assert_eq!(beats.next(), None, "there is nothing to say");
        beats.put(link, word(2));
        beats.put(link, word(3));
        assert_eq!(beats.take(now), []);
        assert_eq!(beats.next(), Some(now + RECORDS_PACE));
        assert_eq!(beats.take(now + RECORDS_PACE), [(link, word(3))]);
        beats.put(link, word(4));
        beats.forget(link);
        assert_eq!(beats.take(now + 9 * RECORDS_PACE), []);
    }
}
