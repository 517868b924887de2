//! Which epoch wrote which part of a log, and where two logs part.
//!
//! A master's first record in its epoch says that the epoch begins, so this table is read from the log, follows it to replicas, and is cut with it.
//! Within an epoch one process appends, so two logs that name the same beginning hold the same up to their next beginning,
//! or the end of the shorter. This is how a former master finds the tail that only it has, without comparing data. A beginning names whose it is, since
//! a store of decisions that was put back from a backup, or begun anew, gives an epoch's number again.

use super::identity::{Epoch, Life};
use log::Lsn;

/// The first record of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// The epoch that begins.
    pub epoch: Epoch,
    /// Where its first record begins.
    pub first: Lsn,
    /// Whether an operator accepted that acknowledged writes are lost with it.
    pub is_lossy: bool,
    /// Whose epoch it is: that life begins none of this number again. 0 where it was begun before this was written down.
    pub by: Life,
}

/// The epochs of a log from its origin to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The life in which the shard's first epoch began; 0 while there was none. Tells shards apart that count alike.
    origin: u64,
    /// Ascending, by epoch and by place.
    beginnings: Vec<Beginning>,
}

impl History {
    /// As the log has it. Without beginnings there is no origin either.
    ///
    /// # Panics
    /// If the beginnings do not ascend.
    #[must_use]
    pub fn new(origin: u64, beginnings: Vec<Beginning>) -> History {
        assert!(
            beginnings.windows(2).all(|pair| pair[0].epoch < pair[1].epoch && pair[0].first < pair[1].first),
            "epochs ascend along a log"
        );
        History { origin: if beginnings.is_empty() { 0 } else { origin }, beginnings }
    }

    /// The life in which the shard's first epoch began; 0 while there was none.
    #[must_use]
    pub fn origin(&self) -> u64 {
        self.origin
    }

    /// The epochs, ascending.
    #[must_use]
    pub fn beginnings(&self) -> &[Beginning] {
        &self.beginnings
    }

    /// The log ends at `end`: what would begin there or behind it has not.
    #[must_use]
    pub fn until(mut self, end: Lsn) -> History {
        self.cut(end);
        self
    }

    /// The epoch of the last record; 0 while none has begun.
    #[must_use]
    pub fn last_epoch(&self) -> Epoch {
        self.beginnings.last().map_or(Epoch(0), |last| last.epoch)
    }

    /// Whether the last epoch is this one, and this life's own.
    pub(super) fn is_own(&self, epoch: Epoch, life: Life) -> bool {
        self.beginnings.last().is_some_and(|last| last.epoch == epoch && last.by == life)
    }

    /// The first epoch that this log and another of the same shard have from two who began it. Where the store of decisions forgets nothing, there
    /// is none.
    pub(super) fn begun_twice(&self, other: &History) -> Option<Epoch> {
        let is_other = |one: &&Beginning| {
            let of_epoch = other.beginnings.iter().find(|two| two.epoch == one.epoch);
            of_epoch.is_some_and(|two| two.by != one.by && one.by.0 != 0 && two.by.0 != 0)
        };
        let found = self.beginnings.iter().filter(|_| self.origin == other.origin).find(is_other);
        found.map(|beginning| beginning.epoch)
    }

    /// Adds an epoch that begins at the log's end. Whose it is is the origin if there was none.
    pub(super) fn begin(&mut self, beginning: Beginning) {
        assert!(self.last_epoch() < beginning.epoch, "an epoch begins after those before it");
        if self.beginnings.is_empty() {
            self.origin = beginning.by.0;
        }
        self.beginnings.push(beginning);
    }

    /// The log ends at `end` from now on.
    pub(super) fn cut(&mut self, end: Lsn) {
        self.beginnings.retain(|beginning| beginning.first < end);
        if self.beginnings.is_empty() {
            self.origin = 0;
        }
    }

    /// The log is the same as `source`'s up to `end`, and ends there.
    pub(super) fn follow(&mut self, source: &History, end: Lsn) {
        let due = source.beginnings.iter().skip(self.beginnings.len());
        self.beginnings.extend(due.take_while(|beginning| beginning.first < end));
        self.origin = if self.beginnings.is_empty() { 0 } else { source.origin };
    }

    /// Up to where this log, which ends at `end`, and another are the same.
    #[must_use]
    pub fn common(&self, end: Lsn, other: &History, other_end: Lsn) -> Lsn {
        let same = self.beginnings.iter().zip(&other.beginnings).take_while(|(one, two)| one == two).count();
        if same == 0 || self.origin != other.origin {
            return Lsn::ZERO;
        }
        let first_unlike =
            |history: &History| history.beginnings.get(same).map_or(Lsn(u64::MAX), |it| it.first);
        end.min(other_end).min(first_unlike(self)).min(first_unlike(other))
    }

    /// Whether an epoch that begins here at or behind `from` gave acknowledged writes up.
    #[must_use]
    pub fn is_lossy_from(&self, from: Lsn) -> bool {
        self.beginnings.iter().any(|beginning| beginning.is_lossy && beginning.first >= from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(beginnings: &[(u64, u64)]) -> History {
        let beginning = |(epoch, first): &(u64, u64)| Beginning {
            epoch: Epoch(*epoch),
            first: Lsn(*first),
            is_lossy: false,
            by: Life(1),
        };
        History::new(7, beginnings.iter().map(beginning).collect())
    }

    fn common(one: &[(u64, u64)], end: u64, two: &[(u64, u64)], other_end: u64) -> u64 {
        let (one, two) = (history(one), history(two));
        let there = one.common(Lsn(end), &two, Lsn(other_end));
        assert_eq!(two.common(Lsn(other_end), &one, Lsn(end)), there);
        there.0
    }

    #[test]
    fn logs_part_where_the_first_epoch_begins_that_only_one_has() {
        assert_eq!(common(&[(1, 0)], 10, &[(1, 0)], 7), 7);
        assert_eq!(common(&[(1, 0)], 10, &[(1, 0), (2, 8)], 20), 8);
        assert_eq!(common(&[(1, 0), (2, 8)], 9, &[(1, 0), (3, 10)], 20), 8);
        assert_eq!(common(&[(1, 0), (2, 8), (4, 12)], 15, &[(1, 0), (2, 8), (3, 10)], 20), 10);
        assert_eq!(common(&[(1, 0)], 5, &[(1, 0), (2, 8)], 20), 5);
    }

    #[test]
    fn logs_part_where_an_epoch_of_one_number_was_begun_twice() {
        let (one, mut two) = (history(&[(1, 0), (2, 8)]), history(&[(1, 0), (2, 8)]));
        two.beginnings[1].by = Life(2);
        assert_eq!(one.common(Lsn(20), &two, Lsn(20)), Lsn(8));
        assert_eq!(one.begun_twice(&two), Some(Epoch(2)));
        two.beginnings[1].by = Life(0);
        assert_eq!(one.begun_twice(&two), None, "it is not known who began it");
    }

    #[test]
    fn logs_of_different_origin_have_nothing_in_common() {
        let (one, mut two) = (history(&[(1, 0)]), history(&[(1, 0)]));
        two.origin = 8;
        assert_eq!(one.common(Lsn(5), &two, Lsn(5)), Lsn::ZERO);
        assert_eq!(common(&[], 5, &[], 5), 0, "what no epoch wrote is known to nobody else");
        assert_eq!(common(&[], 0, &[(1, 0)], 5), 0);
    }

    #[test]
    fn a_table_is_cut_and_grows_with_its_log() {
        let source = history(&[(1, 0), (2, 8), (3, 10)]);
        let mut own = history(&[(1, 0), (4, 5)]);
        own.cut(Lsn(5));
        own.follow(&source, Lsn(8));
        assert_eq!(own, history(&[(1, 0)]));
        own.follow(&source, Lsn(9));
        assert_eq!(own.last_epoch(), Epoch(2));
        own.cut(Lsn::ZERO);
        assert_eq!(own, History::default());
    }
}
