//! A slot's timers: when to look at which keys because their time may be up.
//!
//! A binary heap of 8-byte entries, `deadline (32 bits) | position prefix (32 bits)`.
//! A deadline counts units of 128 ms since the keyspace was opened, rounded up.
//!
//! Entries are hints. One that comes due is compared with the object itself:
//! expired, it is freed; extended meanwhile, it gets a new entry; gone or
//! persisted, the entry is dropped. So extending, persisting and deleting a key
//! costs the timers nothing.
//!
//! Invariant: for each object that expires there is an entry with its prefix and
//! a deadline no later than its expiry, rounded up (or the last deadline there
//! is, for expiries some 17 years away).

use crate::ids::{POSITION_BITS, Position};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use sys::UnixMs;

/// Milliseconds of a deadline's unit.
const UNIT_MS: u64 = 128;

/// A moment as timers know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deadline(pub(crate) u32);

impl Deadline {
    /// Later than every deadline that comes due.
    pub(crate) const NEVER: Deadline = Deadline(u32::MAX);

    /// The deadline that comes after this one.
    pub(crate) fn next(self) -> Deadline {
        Deadline((self.0 + 1).min(Deadline::NEVER.0 - 1))
    }
}

/// Turns moments into deadlines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epoch(pub(crate) UnixMs);

impl Epoch {
    /// The first deadline at which an expiry has come.
    pub(crate) fn deadline_of(self, expires_at: UnixMs) -> Deadline {
        let units = expires_at.0.saturating_sub(self.0.0).div_ceil(UNIT_MS);
        Deadline(units.min(u64::from(u32::MAX - 1)) as u32)
    }

    /// The last deadline that has come at `now`.
    pub(crate) fn deadline_now(self, now: UnixMs) -> Deadline {
        let units = now.0.saturating_sub(self.0.0) / UNIT_MS;
        Deadline(units.min(u64::from(u32::MAX - 1)) as u32)
    }
}

/// The first 32 bits of a position.
pub(crate) fn prefix_of(position: Position) -> u32 {
    (position.0 >> (POSITION_BITS - 32)) as u32
}

/// The timers of one slot.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<u64>>,
}

impl Timers {
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Bytes of memory that the heap takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Timers>() + self.heap.capacity() * size_of::<u64>()
    }

    pub(crate) fn push(&mut self, deadline: Deadline, prefix: u32) {
        self.heap.push(Reverse(u64::from(deadline.0) << 32 | u64::from(prefix)));
    }

    /// The earliest deadline, or `NEVER`.
    pub(crate) fn next(&self) -> Deadline {
        self.heap.peek().map_or(Deadline::NEVER, |Reverse(entry)| Deadline((entry >> 32) as u32))
    }

    /// The prefix of an entry that has come due, which is taken out with its copies.
    pub(crate) fn pop_due(&mut self, now: Deadline) -> Option<u32> {
        if self.next() > now {
            return None;
        }
        let entry = self.heap.pop()?;
        while self.heap.peek() == Some(&entry) {
            self.heap.pop();
        }
        if self.heap.len() < self.heap.capacity() / 4 {
            self.heap.shrink_to(self.heap.len() * 2);
        }
        Some(entry.0 as u32)
    }

    /// The prefix of an entry by its place in the heap, for sampling.
    pub(crate) fn sample(&self, index: usize) -> Option<u32> {
        self.heap.as_slice().get(index).map(|Reverse(entry)| *entry as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_never_comes_due_before_the_expiry() {
        let epoch = Epoch(UnixMs(1_000_000));
        for expires_at in (999_000..1_001_000).chain([u64::MAX]) {
            let deadline = epoch.deadline_of(UnixMs(expires_at));
            for now in 999_000..1_001_200 {
                let due = deadline <= epoch.deadline_now(UnixMs(now));
                assert!(!due || expires_at <= now || expires_at <= 1_000_000, "{expires_at} at {now}");
            }
        }
    }

    #[test]
    fn entries_come_due_in_order() {
        let mut timers = Timers::default();
        [5, 1, 3, 1].iter().for_each(|at| timers.push(Deadline(*at), at * 10));
        assert_eq!(timers.next(), Deadline(1));
        assert_eq!(timers.pop_due(Deadline(4)), Some(10));
        assert_eq!(timers.pop_due(Deadline(4)), Some(30));
        assert_eq!(timers.pop_due(Deadline(4)), None);
    }
}
