//! The timers of a table's blocks: when to look at which because their time may be
//! up. The keyspace has them for the keys of a slot, hashes for their fields.
//!
//! A binary heap of 8-byte entries, `deadline (32 bits) | position prefix (32 bits)`;
//! where there are very many, a heap for each of 256 ranges of prefixes, so that no
//! single push or rebuild takes long. A deadline counts units of a part of a second
//! since an epoch, rounded up.
//!
//! Entries are hints. One that comes due is compared with the block itself:
//! expired, it is freed; extended meanwhile, it gets a new entry; gone or
//! persisted, the entry is dropped. So extending, persisting and deleting
//! costs the timers nothing.
//!
//! Thread rule: they belong to the thread that has their table.
//!
//! Invariant, kept by the owner: for each block that expires there is an entry with
//! its prefix and a deadline no later than its expiry, rounded up (or the last
//! deadline there is, for expiries beyond).

#![expect(clippy::cast_possible_truncation, reason = "an entry is two halves; units are capped before")]

use crate::limits::TIMERS_ONE_HEAP_MAX;
use crate::table::{POSITION_BITS, PREFIX_BITS, Position};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use sys::UnixMs;

/// Milliseconds of a deadline's unit, where the epoch is the owner's own beginning.
const UNIT_MS: u64 = 128;
/// Milliseconds of a deadline's unit where the epoch is the calendar's.
const CALENDAR_UNIT_MS: u64 = 512;
/// The beginning of 2020.
const CALENDAR: UnixMs = UnixMs(1_577_836_800_000);

/// A moment as timers know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(pub u32);

impl Deadline {
    /// Later than every deadline that comes due.
    pub const NEVER: Deadline = Deadline(u32::MAX);

    /// The deadline that comes after this one.
    pub fn next(self) -> Deadline {
        Deadline((self.0 + 1).min(Deadline::NEVER.0 - 1))
    }
}

/// Turns moments into deadlines.
#[derive(Clone, Copy, Debug)]
pub struct Epoch {
    start: UnixMs,
    unit_ms: u64,
}

impl Epoch {
    /// The same for every owner, for timers that come from elsewhere or live for decades: deadlines count half
    /// seconds and reach from 2020 to 2089.
    pub const CALENDAR: Epoch = Epoch { start: CALENDAR, unit_ms: CALENDAR_UNIT_MS };

    /// Deadlines count eighths of a second from a moment on, for 17 years.
    pub fn new(start: UnixMs) -> Epoch {
        Epoch { start, unit_ms: UNIT_MS }
    }

    /// The first deadline at which an expiry has come.
    pub fn deadline_of(self, expires_at: UnixMs) -> Deadline {
        let units = expires_at.0.saturating_sub(self.start.0).div_ceil(self.unit_ms);
        Deadline(units.min(u64::from(u32::MAX - 1)) as u32)
    }

    /// The moment that a deadline stands for.
    pub fn moment_of(self, deadline: Deadline) -> UnixMs {
        UnixMs(self.start.0 + u64::from(deadline.0) * self.unit_ms)
    }

    /// The earliest of the moments that have this deadline.
    pub fn earliest_of(self, deadline: Deadline) -> UnixMs {
        UnixMs(self.moment_of(deadline).0.saturating_sub(self.unit_ms - 1))
    }

    /// The last deadline that has come at `now`.
    pub fn deadline_now(self, now: UnixMs) -> Deadline {
        let units = now.0.saturating_sub(self.start.0) / self.unit_ms;
        Deadline(units.min(u64::from(u32::MAX - 1)) as u32)
    }
}

/// The first [`PREFIX_BITS`] bits of a position.
pub fn prefix_of(position: Position) -> u32 {
    (position.0 >> (POSITION_BITS - PREFIX_BITS)) as u32
}

type Heap = BinaryHeap<Reverse<u64>>;

/// How many heaps a slot with many timers has, and by how many bits of the prefix
/// they are chosen.
const PARTS: usize = 1 << PART_BITS;
const PART_BITS: u32 = 8;

/// The timers of one table.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    /// All entries, unless there are parts.
    heap: Heap,
    parts: Option<Box<Parts>>,
}

#[derive(Clone, Debug)]
struct Parts {
    heaps: [Heap; PARTS],
    len: usize,
    /// No later than the earliest deadline; exactly that when nothing is due.
    next: Deadline,
    /// Where to look first for an entry that is due.
    due_from: usize,
    /// The part to be rebuilt next.
    rebuild: usize,
}

impl Timers {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.parts.as_ref().map_or(self.heap.len(), |parts| parts.len)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that the heaps take.
    pub fn bytes(&self) -> usize {
        let parts = self.parts.iter().map(|parts| size_of_val(&**parts)).sum::<usize>();
        size_of::<Timers>()
            + parts
            + self.heaps().map(|heap| heap.capacity() * size_of::<u64>()).sum::<usize>()
    }

    /// Adds an entry.
    pub fn push(&mut self, deadline: Deadline, prefix: u32) {
        if self.heap.len() >= TIMERS_ONE_HEAP_MAX {
            self.divide();
        }
        let entry = Reverse(u64::from(deadline.0) << 32 | u64::from(prefix));
        match &mut self.parts {
            None => self.heap.push(entry),
            Some(parts) => parts.push(entry),
        }
    }

    /// No later than the earliest deadline, and exactly that after `pop_due` has
    /// found nothing; `NEVER` if there are no timers.
    #[inline]
    pub fn next(&self) -> Deadline {
        self.parts.as_ref().map_or_else(|| first_deadline(&self.heap), |parts| parts.next)
    }

    /// The prefix of an entry that has come due, which is taken out with its copies.
    pub fn pop_due(&mut self, now: Deadline) -> Option<u32> {
        if self.next() > now {
            return None;
        }
        match &mut self.parts {
            None => pop(&mut self.heap).0,
            Some(parts) => parts.pop_due(now),
        }
    }

    /// An entry picked by a random number, for sampling: its deadline and its prefix.
    pub fn sample(&self, random: u64) -> Option<(Deadline, u32)> {
        let heap = self.parts.as_ref().map_or(&self.heap, |parts| &parts.heaps[random as usize % PARTS]);
        let index = (random >> PART_BITS).checked_rem(heap.len() as u64)?;
        heap.as_slice()
            .get(index as usize)
            .map(|Reverse(entry)| (Deadline((entry >> 32) as u32), *entry as u32))
    }

    /// Forgets the entries of the part whose turn it is, but for prefixes that `keeps` names, and returns its first and
    /// last prefix; the caller pushes entries for what is there.
    pub fn begin_rebuild(&mut self, keeps: impl Fn(u32) -> bool) -> (u32, u32) {
        let keep = |heap: &mut Heap| {
            let old = std::mem::take(heap);
            heap.extend(old.into_iter().filter(|Reverse(entry)| keeps(*entry as u32)));
        };
        let Some(parts) = &mut self.parts else {
            keep(&mut self.heap);
            return (0, u32::MAX);
        };
        let part = parts.rebuild;
        parts.rebuild = (part + 1) % PARTS;
        let before = parts.heaps[part].len();
        keep(&mut parts.heaps[part]);
        parts.len -= before - parts.heaps[part].len();
        let first = (part as u32) << (u32::BITS - PART_BITS);
        (first, first | u32::MAX >> PART_BITS)
    }

    fn divide(&mut self) {
        let mut parts = Box::new(Parts {
            heaps: std::array::from_fn(|_| Heap::new()),
            len: 0,
            next: Deadline::NEVER,
            due_from: 0,
            rebuild: 0,
        });
        std::mem::take(&mut self.heap).into_iter().for_each(|entry| parts.push(entry));
        self.parts = Some(parts);
    }

    fn heaps(&self) -> impl Iterator<Item = &Heap> {
        std::iter::once(&self.heap).chain(self.parts.iter().flat_map(|parts| &parts.heaps))
    }

    /// All entries, in no order.
    pub fn entries(&self) -> impl Iterator<Item = (Deadline, u32)> + '_ {
        let entries = self.heaps().flat_map(|heap| heap.iter());
        entries.map(|Reverse(entry)| (Deadline((entry >> 32) as u32), *entry as u32))
    }
}

impl Parts {
    fn push(&mut self, entry: Reverse<u64>) {
        let part = entry.0 as u32 >> (u32::BITS - PART_BITS);
        self.heaps[part as usize].push(entry);
        self.len += 1;
        self.next = self.next.min(Deadline((entry.0 >> 32) as u32));
    }

    fn pop_due(&mut self, now: Deadline) -> Option<u32> {
        let order = (self.due_from..PARTS).chain(0..self.due_from);
        let Some(part) = order.into_iter().find(|part| first_deadline(&self.heaps[*part]) <= now) else {
            self.next = self.heaps.iter().map(first_deadline).min().unwrap_or(Deadline::NEVER);
            return None;
        };
        self.due_from = part;
        let (prefix, popped) = pop(&mut self.heaps[part]);
        self.len -= popped;
        prefix
    }
}

fn first_deadline(heap: &Heap) -> Deadline {
    heap.peek().map_or(Deadline::NEVER, |Reverse(entry)| Deadline((entry >> 32) as u32))
}

/// Takes out the first entry and its copies; how many those were.
fn pop(heap: &mut Heap) -> (Option<u32>, usize) {
    let before = heap.len();
    let Some(entry) = heap.pop() else { return (None, 0) };
    while heap.peek() == Some(&entry) {
        heap.pop();
    }
    if heap.len() < heap.capacity() / 4 {
        heap.shrink_to(heap.len() * 2);
    }
    (Some(entry.0 as u32), before - heap.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_never_comes_due_before_the_expiry() {
        let epoch = Epoch::new(UnixMs(1_000_000));
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
