//! A database: its slots, made when first used, and what is counted over them.
//!
//! Thread rule: a slot's keys are behind its lock; hints, due times and counts are
//! atomics that anyone may read. They are written with the slot locked.
//!
//! Invariants, once a slot's lock is released:
//! 1. The slot's hint is zero exactly if it has no keys.
//! 2. `due` holds the slot's next deadline.
//! 3. The counts are the sums over all slots; that of keys is one of table words, among them two of each key that is shadowing.
//!
//! Before that, whatever is being done in it:
//! 4. The hint is zero only if the slot was empty when it was last unlocked, and nothing has come since.
//! 5. What the counts hold of it is in the journal (see `unsettled`). Due times may be ahead of that: who finds one looks under the lock.

use crate::ids::{POSITION_BITS, Position, SLOTS, Slot};
use crate::locks::LockedSoon;
use crate::locks::fair::Lock;
use crate::slot::{Change, SlotKeys};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use sys::Counter;
use sys::prefetch::LINE_BYTES;
use value::limits::TABLE_SEGMENT_WORDS_MAX;
use value::timers::Deadline;

/// One database. It takes no memory to speak of before its first use.
#[derive(Default)]
pub(crate) struct Database {
    used: OnceLock<Used>,
    due: OnceLock<Box<[AtomicU32]>>,
    stamps: OnceLock<Box<[AtomicU64]>>,
}

/// What a database has once somebody has looked into it.
struct Used {
    slots: Box<[SlotCell]>,
    keys: Counter,
    expiring: Counter,
    /// Keys whose fields expire.
    with_fields: Counter,
    /// Keys that are shadowing (see `residency`).
    shadowing: Counter,
}

/// A slot with its lock, and where its words lie for those who only prefetch:
/// `homes (16 bits) | address (48 bits)`, of which the lowest bit is no part of the
/// address ([`HINT_EMPTIED`]). One cache line, so that a command misses once here.
#[repr(align(64))]
pub(crate) struct SlotCell {
    hint: AtomicU64,
    pub(crate) keys: Lock<SlotKeys>,
}

const HINT_ADDRESS_BITS: u32 = 48;
/// The hint of a slot whose keys are spread over many arrays.
const HINT_DIRECTORY: u64 = 1 << HINT_ADDRESS_BITS;
/// Part of the hint of a slot that has become empty, whatever came into it since, until that is in the journal.
const HINT_EMPTIED: u64 = 1;
/// The address in a hint.
const HINT_ADDRESS: u64 = (1 << HINT_ADDRESS_BITS) - 1 - HINT_EMPTIED;

const _: () = assert!(size_of::<SlotCell>() == LINE_BYTES);
const _: () = assert!(TABLE_SEGMENT_WORDS_MAX < 1 << (u64::BITS - HINT_ADDRESS_BITS));

impl Database {
    /// How many keys there are, expired ones counted, for who has changed so much that is not counted yet. What is shadowing
    /// counts as a key that was there before, which it almost surely is.
    pub(crate) fn len(&self, own: Change) -> u64 {
        self.sum(|used| used.keys.get() as i64 + own.keys).saturating_sub(self.shadowing(own))
    }

    /// How many keys are shadowing.
    pub(crate) fn shadowing(&self, own: Change) -> u64 {
        self.sum(|used| used.shadowing.get() as i64 + own.shadowing)
    }

    /// How many keys have an expiry.
    pub(crate) fn expiring(&self, own: Change) -> u64 {
        self.sum(|used| used.expiring.get() as i64 + own.expiring)
    }

    fn sum(&self, count: impl FnOnce(&Used) -> i64) -> u64 {
        let sum = self.used.get().map_or(0, count).max(0);
        // Whoever asks for the journal's end behind this finds what was counted before it.
        fence(Ordering::Acquire);
        sum as u64
    }

    /// Whether there are keys that a sweep may find over, or fields.
    pub(crate) fn needs_sweeps(&self) -> bool {
        self.used.get().is_some_and(|used| used.expiring.get() > 0 || used.with_fields.get() > 0)
    }

    /// The slots of a database that has been used.
    #[inline]
    pub(crate) fn used_slots(&self) -> Option<&[SlotCell]> {
        self.used.get().map(|used| &used.slots[..])
    }

    /// A slot of a database that is used from now on.
    #[inline]
    pub(crate) fn slot(&self, slot: Slot) -> &SlotCell {
        &self.used().slots[usize::from(slot.0)]
    }

    /// When each slot's timers come due next, for the sweep to look through. Only
    /// databases that have had an expiring key have it.
    pub(crate) fn due(&self) -> Option<&[AtomicU32]> {
        self.due.get().map(|due| &due[..])
    }

    /// Where in the history each slot was last written. Only with a journal.
    pub(crate) fn stamps(&self) -> Option<&[AtomicU64]> {
        self.stamps.get().map(|stamps| &stamps[..])
    }

    /// The same for a database that is written to.
    pub(crate) fn stamps_or_new(&self) -> &[AtomicU64] {
        self.stamps.get_or_init(|| (0..SLOTS).map(|_| AtomicU64::new(0)).collect())
    }

    /// Books a change in a slot whose lock is held that is no write: what was not known of its keys before, or what a start puts
    /// back. No key goes away by it.
    pub(crate) fn note_found(&self, slot: Slot, keys: &SlotKeys, change: Change) {
        self.count(change);
        if change.keys != 0 {
            let is_emptied = self.slot(slot).publish_hint(keys);
            debug_assert!(!is_emptied, "the journal says when keys go away");
        }
        self.note_due_of(slot, keys);
    }

    /// Counts a change.
    #[inline]
    pub(crate) fn count(&self, change: Change) {
        if change.keys != 0 {
            self.used().keys.add(change.keys);
        }
        if change.expiring != 0 {
            self.used().expiring.add(change.expiring);
        }
        if change.with_fields != 0 {
            self.used().with_fields.add(change.with_fields);
        }
        if change.shadowing != 0 {
            self.used().shadowing.add(change.shadowing);
        }
    }

    /// Says when a slot's timers come due next.
    #[inline]
    pub(crate) fn note_due_of(&self, slot: Slot, keys: &SlotKeys) {
        let next = keys.next_deadline();
        if next != Deadline::NEVER || self.due.get().is_some() {
            self.note_due(slot, next);
        }
    }

    /// Bytes of memory that it takes whatever is in its slots.
    pub(crate) fn fixed_bytes(&self) -> usize {
        let Some(slots) = self.used_slots() else { return 0 };
        size_of_val(slots) + self.due().map_or(0, size_of_val) + self.stamps().map_or(0, size_of_val)
    }

    /// Bytes of memory that tables and timers in its slots take, objects not counted. For a batch that is in the keyspace.
    pub(crate) fn table_bytes(&self) -> usize {
        let used = self.used_slots().unwrap_or_default().iter().filter(|slot| slot.has_keys());
        let soon = LockedSoon::new();
        used.filter_map(|slot| Some(soon.lock(&slot.keys)?.overhead_bytes())).sum()
    }

    #[inline]
    fn used(&self) -> &Used {
        self.used.get_or_init(|| Used {
            slots: (0..SLOTS).map(|_| SlotCell::new()).collect(),
            keys: Counter::default(),
            expiring: Counter::default(),
            with_fields: Counter::default(),
            shadowing: Counter::default(),
        })
    }

    #[inline]
    fn note_due(&self, slot: Slot, next: Deadline) {
        let due = self.due.get_or_init(|| (0..SLOTS).map(|_| AtomicU32::new(Deadline::NEVER.0)).collect());
        let due = &due[usize::from(slot.0)];
        // Most writes change no deadline, and the line is shared with other slots.
        if due.load(Ordering::Relaxed) != next.0 {
            due.store(next.0, Ordering::Relaxed);
        }
    }
}

impl SlotCell {
    fn new() -> SlotCell {
        SlotCell { hint: AtomicU64::new(0), keys: Lock::default() }
    }

    /// Whether the slot had keys when it was last unlocked, or has some now. If not, and the journal's end is asked for behind
    /// this, it says why there are none.
    #[inline]
    pub(crate) fn has_keys(&self) -> bool {
        self.hint.load(Ordering::Acquire) != 0
    }

    /// Publishes where the keys are of a slot whose lock is held. True: it has become empty, which nobody is told before
    /// [`SlotCell::settle_hint`].
    #[inline]
    pub(crate) fn publish_hint(&self, keys: &SlotKeys) -> bool {
        let hint = match keys.table().hint() {
            Some((words, homes)) => (homes as u64) << HINT_ADDRESS_BITS | words as u64 & HINT_ADDRESS,
            None if keys.table().len() > 0 => HINT_DIRECTORY,
            None => HINT_EMPTIED,
        };
        let was_emptied = self.hint.load(Ordering::Relaxed) & HINT_EMPTIED;
        self.hint.store(hint | was_emptied, Ordering::Relaxed);
        hint == HINT_EMPTIED && was_emptied == 0
    }

    /// What was done in the slot is in the journal; its lock is held still.
    #[inline]
    pub(crate) fn settle_hint(&self) {
        self.hint.store(self.hint.load(Ordering::Relaxed) & !HINT_EMPTIED, Ordering::Release);
    }

    /// The address of the word where a search for the position begins. The array
    /// may be gone by the time it is used: good for prefetching and nothing else.
    #[inline]
    pub(crate) fn home_address(&self, position: Position) -> usize {
        const KNOWN_BITS: u32 = 32;
        let hint = self.hint.load(Ordering::Relaxed);
        let (homes, words) = (hint >> HINT_ADDRESS_BITS, hint & HINT_ADDRESS);
        let index = ((position.0 >> (POSITION_BITS - KNOWN_BITS)) * homes) >> KNOWN_BITS;
        (words + index * 8) as usize
    }
}
