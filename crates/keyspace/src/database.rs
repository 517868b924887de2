//! A database: its slots, made when first used, and what is counted over them.
//!
//! Thread rule: a slot's keys are behind its lock; hints, due times and counts are
//! atomics that anyone in a batch may read. They are written with the slot locked.
//!
//! Invariants, once a slot's lock is released:
//! 1. The slot's hint is zero exactly if it has no keys.
//! 2. `due` holds the slot's next deadline.
//! 3. The counts are the sums over all slots; that of keys is one of table words, among them two of each key that is shadowing.

use crate::ids::{POSITION_BITS, Position, SLOTS, Slot};
use crate::locks::LockedSoon;
use crate::locks::fair::Lock;
use crate::slot::{Change, SlotKeys};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
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
/// `homes (16 bits) | address (48 bits)`. One cache line, so that a command
/// misses once here.
#[repr(align(64))]
pub(crate) struct SlotCell {
    hint: AtomicU64,
    pub(crate) keys: Lock<SlotKeys>,
}

const HINT_ADDRESS_BITS: u32 = 48;
/// The hint of a slot whose keys are spread over many arrays.
const HINT_DIRECTORY: u64 = 1 << HINT_ADDRESS_BITS;

const _: () = assert!(size_of::<SlotCell>() == LINE_BYTES);
const _: () = assert!(TABLE_SEGMENT_WORDS_MAX < 1 << (u64::BITS - HINT_ADDRESS_BITS));

impl Database {
    /// How many keys there are, expired ones counted. What is shadowing counts as a key that was there before, which it almost
    /// surely is.
    pub(crate) fn len(&self) -> u64 {
        self.used.get().map_or(0, |used| used.keys.get().saturating_sub(used.shadowing.get()))
    }

    /// How many keys are shadowing.
    pub(crate) fn shadowing(&self) -> u64 {
        self.used.get().map_or(0, |used| used.shadowing.get())
    }

    /// How many keys have an expiry.
    pub(crate) fn expiring(&self) -> u64 {
        self.used.get().map_or(0, |used| used.expiring.get())
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

    /// Books a change made in a slot whose lock is held.
    #[inline]
    pub(crate) fn note(&self, slot: Slot, keys: &SlotKeys, change: Change) {
        if change.keys != 0 {
            self.used().keys.add(change.keys);
            self.slot(slot).publish_hint(keys);
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
        let next = keys.next_deadline();
        if next != Deadline::NEVER || self.due.get().is_some() {
            self.note_due(slot, next);
        }
    }

    /// Bytes of memory that slots, tables and timers take, objects not counted.
    pub(crate) fn overhead_bytes(&self) -> usize {
        let Some(slots) = self.used_slots() else { return 0 };
        let due = self.due().map_or(0, size_of_val) + self.stamps().map_or(0, size_of_val);
        let used = slots.iter().filter(|slot| slot.has_keys());
        let soon = LockedSoon::new();
        let tables: usize = used.filter_map(|slot| Some(soon.lock(&slot.keys)?.overhead_bytes())).sum();
        size_of_val(slots) + due + tables
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

    /// Whether the slot has keys, as it was when last unlocked.
    #[inline]
    pub(crate) fn has_keys(&self) -> bool {
        self.hint.load(Ordering::Relaxed) != 0
    }

    #[inline]
    fn publish_hint(&self, keys: &SlotKeys) {
        let hint = match keys.table().hint() {
            Some((words, homes)) => (homes as u64) << HINT_ADDRESS_BITS | words as u64,
            None if keys.table().len() > 0 => HINT_DIRECTORY,
            None => 0,
        };
        self.hint.store(hint, Ordering::Relaxed);
    }

    /// The address of the word where a search for the position begins. The array
    /// may be gone by the time it is used: good for prefetching and nothing else.
    #[inline]
    pub(crate) fn home_address(&self, position: Position) -> usize {
        const KNOWN_BITS: u32 = 32;
        let hint = self.hint.load(Ordering::Relaxed);
        let (homes, words) = (hint >> HINT_ADDRESS_BITS, hint & ((1 << HINT_ADDRESS_BITS) - 1));
        let index = ((position.0 >> (POSITION_BITS - KNOWN_BITS)) * homes) >> KNOWN_BITS;
        (words + index * 8) as usize
    }
}
