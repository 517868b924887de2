//! Which offsets of the stream mean something to one replica alone.
//!
//! A full copy is not of one moment: it holds what was written while it was made, slot by slot. What the replica is sent of that time is
//! filtered for its copy, so that a replica that stopped in the middle of it cannot go on from the stream that all others read.
//!
//! Invariant: ranges are in the order of their ends.

use std::collections::VecDeque;

/// Ranges that are remembered. Of more the oldest are taken together: too much is refused then, and never too little.
const RANGES_MAX: usize = 64;

/// Offsets between the beginning and the end of full copies: the first that is covered, and the first behind them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(VecDeque<(u64, u64)>);

impl Ranges {
    /// Notes that a copy was made between these two offsets. Its replica stands at the first until it has done something of what follows, and
    /// nobody knows whether it has before it says so: whoever else stands there is copied anew, too.
    pub fn add(&mut self, first: u64, end: u64) {
        if end <= first {
            return;
        }
        self.0.push_back((first, end));
        if self.0.len() > RANGES_MAX
            && let (Some(first), Some(second)) = (self.0.pop_front(), self.0.pop_front())
        {
            self.0.push_front((first.0.min(second.0), first.1.max(second.1)));
        }
    }

    /// Nothing stands behind this offset any more.
    pub fn cut(&mut self, last: u64) {
        self.0.retain(|(first, _)| *first <= last);
        self.0.iter_mut().for_each(|(_, end)| *end = (*end).min(last + 1));
    }

    /// Each of them: the first offset that is covered, and the first behind them.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    /// Where what covers an offset ends; None: nothing does.
    #[must_use]
    pub fn whole_from(&self, offset: u64) -> Option<u64> {
        self.iter().filter(|(first, end)| *first <= offset && offset < *end).map(|(_, end)| end).max()
    }

    /// Whether an offset is behind all of them.
    #[must_use]
    pub fn are_before(&self, offset: u64) -> bool {
        self.iter().all(|(_, end)| end <= offset)
    }

    /// Whether nobody can go on from here with the stream that all read.
    #[must_use]
    pub fn cover(&self, offset: u64) -> bool {
        self.whole_from(offset).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_the_end_is_covered() {
        let mut ranges = Ranges::default();
        ranges.add(5, 5);
        ranges.add(10, 20);
        assert_eq!([9, 10, 19, 20].map(|at| ranges.whole_from(at)), [None, Some(20), Some(20), None]);
        assert_eq!([9, 10, 19, 20].map(|at| ranges.are_before(at)), [false, false, false, true]);
        assert_eq!([9, 10, 11, 19, 20].map(|at| ranges.cover(at)), [false, true, true, true, false]);
        let mut cut = ranges.clone();
        cut.add(30, 40);
        cut.cut(15);
        assert_eq!(cut.iter().collect::<Vec<_>>(), [(10, 16)]);
        for number in 2..200 {
            ranges.add(number * 10, number * 10 + 5);
        }
        assert!(ranges.0.len() <= RANGES_MAX);
        assert!(ranges.cover(15) && ranges.cover(1992) && !ranges.cover(1997));
    }
}
