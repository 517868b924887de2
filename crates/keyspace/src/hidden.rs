//! Slots of which nobody knows here: in a cluster another server has them, and what lies in them is on its way, or is left over.
//!
//! Who names a key of such a slot is sent elsewhere by whoever serves clients. What goes over all keys (SCAN, KEYS, RANDOMKEY, snapshots, DBSIZE) passes
//! these slots over, and nothing in them expires or is evicted by itself: who has the slots says what becomes of their keys.
//! Copies for replicas, checkpoints and the log hold them like all others.
//!
//! Thread rule: any thread; a batch may see a change at any moment.

use crate::ids::{DbIndex, SLOTS, Slot};
use crate::keyspace::{Batch, Keyspace};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const WORDS: usize = SLOTS / u64::BITS as usize;

/// Which slots are hidden.
pub(crate) struct Hidden {
    any: AtomicBool,
    bits: Box<[AtomicU64]>,
    /// See [`Keyspace::upheavals`].
    upheavals: AtomicU64,
    /// See [`Batch::begin_era`].
    era: AtomicU64,
}

impl Default for Hidden {
    fn default() -> Hidden {
        Hidden {
            any: AtomicBool::new(false),
            bits: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
            upheavals: AtomicU64::new(0),
            era: AtomicU64::new(0),
        }
    }
}

fn place(number: usize) -> (usize, u64) {
    (number / u64::BITS as usize, 1 << (number % u64::BITS as usize))
}

impl Hidden {
    /// Whether the slot of this number is.
    #[inline]
    pub(crate) fn contains(&self, number: usize) -> bool {
        self.any.load(Ordering::Relaxed) && self.contains_by_bit(number)
    }

    /// Notes that a whole database is emptied or exchanged, and what lies in these slots with it.
    pub(crate) fn note_upheaval(&self) {
        self.upheavals.fetch_add(1, Ordering::Release);
    }

    fn contains_by_bit(&self, number: usize) -> bool {
        let (word, bit) = place(number);
        self.bits[word].load(Ordering::Relaxed) & bit != 0
    }
}

impl Keyspace {
    /// Hides the slots for which this is true, and no others.
    pub fn hide(&self, is_hidden: impl Fn(Slot) -> bool) {
        let mut any = false;
        for (number, slot) in (0..SLOTS as u16).map(Slot).enumerate() {
            let (word, bit) = place(number);
            let is_one = is_hidden(slot);
            match is_one {
                true => self.hidden.bits[word].fetch_or(bit, Ordering::Relaxed),
                false => self.hidden.bits[word].fetch_and(!bit, Ordering::Relaxed),
            };
            any |= is_one;
        }
        self.hidden.any.store(any, Ordering::Relaxed);
    }

    /// How often whole databases were emptied or exchanged.
    pub fn upheavals(&self) -> u64 {
        self.hidden.upheavals.load(Ordering::Acquire)
    }

    /// Whether a slot is hidden.
    #[inline]
    pub fn is_hidden(&self, slot: Slot) -> bool {
        self.hidden.contains(usize::from(slot.0))
    }

    pub(crate) fn era(&self) -> u64 {
        self.hidden.era.load(Ordering::Acquire)
    }
}

impl Batch<'_> {
    /// Has no batch go on that was entered before: none is in the keyspace while this one holds all of it, and one that has left to hold all of it itself
    /// finds that it cannot ([`Batch::try_hold_all`]). For whoever has changed what requests are let in by.
    pub fn begin_era(&self) {
        debug_assert!(self.holds_all(), "an era begins while nobody else is there");
        self.keyspace.hidden.era.fetch_add(1, Ordering::Release);
    }

    /// How many keys of a database are in hidden slots, and how many of them expire. Slots that somebody has for a while are passed over.
    pub fn hidden(&self, db: DbIndex) -> (u64, u64) {
        let (keyspace, mut keys, mut expiring) = (self.keyspace, 0, 0);
        if !keyspace.hidden.any.load(Ordering::Relaxed) {
            return (0, 0);
        }
        let slots = keyspace.database(db).used_slots().unwrap_or_default();
        for (_, slot) in slots
            .iter()
            .enumerate()
            .filter(|(number, slot)| slot.has_keys() && keyspace.hidden.contains(*number))
        {
            if let Some(slot) = crate::locks::lock_soon(&slot.keys) {
                keys += slot.table().len() as u64;
                expiring += slot.expiring() as u64;
            }
        }
        (keys, expiring)
    }

    /// How many keys of a database there are that are not hidden; as [`Batch::len`] and [`Batch::expiring`].
    pub fn shown(&self, db: DbIndex) -> (u64, u64) {
        let (keys, expiring) = self.hidden(db);
        (self.len(db).saturating_sub(keys), self.expiring(db).saturating_sub(expiring))
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::{DB, NOW, new_keyspace, number, seconds_later, set};
    use crate::{Cursor, Expiry, Progress, Slot};

    #[test]
    fn what_is_hidden_is_passed_over_by_all_that_goes_over_keys() {
        let keyspace = new_keyspace(1);
        (0..2000).for_each(|number| set(&keyspace, number, NOW, Expiry::At(seconds_later(1))));
        let is_hidden = |slot: Slot| slot.0 % 2 == 1;
        keyspace.hide(is_hidden);
        let slot_of = |key: &[u8]| keyspace.key(DB, key).slot;
        let mut seen = Vec::new();
        {
            let batch = keyspace.enter(0);
            let end =
                batch.try_scan(DB, Cursor(0), usize::MAX, NOW, |object| seen.push(number(object.key())));
            assert_eq!(end, Some(Cursor(0)));
            let mut all = 0;
            batch.for_each(DB, NOW, |object| {
                assert!(!is_hidden(slot_of(object.key())));
                all += 1;
            });
            assert_eq!(all, seen.len());
            let (shown, hidden) = (batch.shown(DB), batch.hidden(DB));
            assert_eq!((shown, hidden.0), ((seen.len() as u64, seen.len() as u64), 2000 - seen.len() as u64));
            for _ in 0..500 {
                let key = batch.try_random_key(DB, NOW, |_| ()).flatten().expect("there are keys");
                assert!(!is_hidden(slot_of(&key)));
            }
            let later = seconds_later(5);
            assert_eq!(batch.sweep_expired(later, || true, |_, _| {}), Progress::Done);
            assert_eq!(batch.len(DB), hidden.0);
            assert_eq!(batch.try_random_key(DB, NOW, |_| ()), Some(None));
        }
        assert_eq!(keyspace.next_sweep_ms(seconds_later(5)), None);
        keyspace.hide(|_| false);
        assert_eq!(keyspace.next_sweep_ms(seconds_later(5)), Some(0));
        assert_eq!(keyspace.enter(0).sweep_expired(seconds_later(5), || true, |_, _| {}), Progress::Done);
        assert_eq!(keyspace.len(DB), 0);
    }
}
