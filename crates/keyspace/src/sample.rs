//! Picking keys at random: for eviction, RANDOMKEY and estimates.
//!
//! A sample begins at a random place and takes neighbours from there on, slot by
//! slot, each locked only while it is looked at. Positions are hashes, so
//! neighbours have nothing to do with each other; and one lock gives many keys.

use crate::ids::{DbIndex, Position, SLOTS, Slot};
use crate::keyspace::Batch;
use crate::limits::{RANDOM_KEY_SAMPLES, SAMPLE_VISITS_MAX, TTL_SAMPLES};
use crate::locks::fair::{Guard, Lock};
use crate::locks::{LockedSoon, SlotId};
use crate::object::Object;
use crate::slot::SlotKeys;
use std::sync::atomic::Ordering;
use sys::UnixMs;
use value::table::{Cold, Entry};
use value::timers::Deadline;

/// What a sample shows.
#[derive(Clone, Copy)]
pub(crate) enum Sampled<'a> {
    /// An object in memory.
    Here(Object<'a>),
    /// The word of one that is not.
    Cold(Cold),
    /// The timer of one that is not, as its position begins, and when it was set to come due.
    Timed { prefix: u32, expires_at: UnixMs },
}

impl Batch<'_> {
    /// A key picked at random, all about equally likely; exactly so while there
    /// are few. None if there is none, or if so many have expired that none is
    /// found within a limit (RANDOMKEY). The outer None: a slow script has slots, and nothing was found elsewhere. `over` is shown the expired
    /// keys that were met.
    pub fn try_random_key(
        &self,
        db: DbIndex,
        now: UnixMs,
        mut over: impl FnMut(&[u8]),
    ) -> Option<Option<Box<[u8]>>> {
        let soon = LockedSoon::new();
        let (picked, passed) = self.pick_key(db, now, &mut over, |_, slot| soon.lock(slot));
        if picked.is_some() || passed == 0 {
            return Some(picked);
        }
        // The only keys there are may lie where somebody is at work.
        let (picked, passed) = self.pick_key(db, now, &mut over, |id, slot| self.lock_unless_slow(id, slot));
        (picked.is_some() || passed == 0).then_some(picked)
    }

    fn pick_key<'b>(
        &'b self,
        db: DbIndex,
        now: UnixMs,
        over: &mut impl FnMut(&[u8]),
        lock: impl Fn(SlotId, &'b Lock<SlotKeys>) -> Option<Guard<'b, SlotKeys>>,
    ) -> (Option<Box<[u8]>>, usize) {
        let mut picked: Option<Vec<u8>> = None;
        let mut seen = 0;
        let passed = self.sample_all(db, RANDOM_KEY_SAMPLES, lock, |object| {
            if object.is_expired(now) {
                over(object.key());
                return false;
            }
            // The i-th key replaces the one picked with chance 1/i: all are equal.
            seen += 1;
            if self.random().is_multiple_of(seen) {
                let key = picked.get_or_insert_default();
                key.clear();
                key.extend_from_slice(object.key());
            }
            true
        });
        (picked.map(Vec::into_boxed_slice), passed)
    }

    /// The mean time to live of a database's expiring keys in milliseconds,
    /// estimated from a few dozen of them; 0 if none expires (INFO's `avg_ttl`).
    pub fn average_ttl_ms(&self, db: DbIndex, now: UnixMs) -> u64 {
        let (mut sum, mut count) = (0u128, 0u128);
        self.sample_expiring(db, TTL_SAMPLES, |_, sampled| {
            let at = match sampled {
                Sampled::Here(object) => object.expires_at().expect("only expiring keys are sampled"),
                Sampled::Timed { expires_at, .. } => expires_at,
                Sampled::Cold(_) => unreachable!("timers are sampled, not words"),
            };
            sum += u128::from(at.0.saturating_sub(now.0));
            count += 1;
        });
        sum.checked_div(count).map_or(0, |mean| mean as u64)
    }

    /// Calls `visit` for keys of a database from a random place on, until it has
    /// accepted `wanted` of them by returning true, or all were seen, or the limit
    /// of visits is reached. Gives how many slots were passed over because `lock` gave none.
    fn sample_all<'b>(
        &'b self,
        db: DbIndex,
        wanted: usize,
        lock: impl Fn(SlotId, &'b Lock<SlotKeys>) -> Option<Guard<'b, SlotKeys>>,
        mut visit: impl FnMut(Object<'_>) -> bool,
    ) -> usize {
        self.sample_slots(db, wanted, lock, |id, keys, from, enough, note| {
            self.scan_slot(id, keys, from, enough, |object| note(visit(object)))
        })
    }

    /// The same without a look at the disk: of what is cold the words are shown, those of older versions of what is in memory
    /// among them.
    pub(crate) fn sample_words(&self, db: DbIndex, wanted: usize, mut visit: impl FnMut(Slot, Sampled<'_>)) {
        let soon = LockedSoon::new();
        let lock = |_, slot| soon.lock(slot);
        self.sample_slots(db, wanted, lock, |id, keys, from, enough, note| {
            keys.table().scan_entries(from, enough, |entry| {
                visit(
                    id.1,
                    match entry {
                        Entry::Block(object) => Sampled::Here(object),
                        Entry::Cold(cold) => Sampled::Cold(cold),
                    },
                );
                note(true);
            })
        });
    }

    /// Calls `scan` for stretches of slots, from a random place on, until it has noted `wanted` things as accepted. It gets a
    /// slot, where to begin and how many to visit, notes of each whether that was accepted, and says where to go on. Slots that
    /// `lock` does not give are passed over; gives how many.
    fn sample_slots<'b>(
        &'b self,
        db: DbIndex,
        wanted: usize,
        lock: impl Fn(SlotId, &'b Lock<SlotKeys>) -> Option<Guard<'b, SlotKeys>>,
        mut scan: impl FnMut(SlotId, &SlotKeys, Position, usize, &mut dyn FnMut(bool)) -> Option<Position>,
    ) -> usize {
        let Some(slots) = self.keyspace.database(db).used_slots() else { return 0 };
        let random = self.random();
        let (start, middle) = (random as usize % SLOTS, Position(random >> 16));
        let (mut accepted, mut visits, mut passed) = (0, 0, 0);
        let physical = self.keyspace.physical(db);
        // The first slot may be entered in its middle, so it comes again at the end.
        for step in 0..=SLOTS {
            let number = (start + step) % SLOTS;
            let is_hidden = self.keyspace.hidden.contains(number);
            if !slots[number].has_keys() || is_hidden || step == SLOTS && accepted > 0 {
                continue;
            }
            let id = (physical, Slot(number as u16));
            let Some(keys) = lock(id, &slots[number].keys) else {
                passed += 1;
                continue;
            };
            let enters_middle = step == 0 && keys.table().len() > wanted;
            let mut from = Some(if enters_middle { middle } else { Position(0) });
            while let Some(at) = from.filter(|_| accepted < wanted && visits < SAMPLE_VISITS_MAX) {
                let id = (self.keyspace.physical(db), Slot(number as u16));
                from = scan(id, &keys, at, wanted - accepted, &mut |is_accepted| {
                    visits += 1;
                    accepted += usize::from(is_accepted);
                });
            }
            if accepted >= wanted || visits >= SAMPLE_VISITS_MAX {
                break;
            }
        }
        passed
    }

    /// Calls `visit` for up to `wanted` expiring keys of a database, from a random
    /// place on. A key may come more than once. It finds one if there is one.
    pub(crate) fn sample_expiring(
        &self,
        db: DbIndex,
        wanted: usize,
        mut visit: impl FnMut(Slot, Sampled<'_>),
    ) {
        let database = self.keyspace.database(db);
        let (Some(slots), Some(due)) = (database.used_slots(), database.due()) else { return };
        let start = self.random() as usize % SLOTS;
        let with_timers = || {
            let numbers = (start..SLOTS).chain(0..start);
            let is_hidden = |number: usize| self.keyspace.hidden.contains(number);
            numbers.filter(move |number| {
                due[*number].load(Ordering::Relaxed) != Deadline::NEVER.0 && !is_hidden(*number)
            })
        };
        let (mut found, soon) = (0, LockedSoon::new());
        for number in with_timers() {
            let Some(keys) = soon.lock(&slots[number].keys) else { continue };
            for _ in 0..keys.expiring().min(wanted - found) {
                if let Some(sampled) = keys.sample_expiring(self.keyspace.frame(), self.random()) {
                    visit(Slot(number as u16), sampled);
                    found += 1;
                }
            }
            if found == wanted {
                return;
            }
        }
        if found > 0 {
            return;
        }
        // Every timer that was picked was out of date: look at the keys themselves.
        for number in with_timers() {
            let Some(keys) = soon.lock(&slots[number].keys) else { continue };
            if keys.expiring() > 0 {
                let expiring = keys.table().iter().filter(|object| object.expires_at().is_some());
                return expiring
                    .take(wanted)
                    .for_each(|object| visit(Slot(number as u16), Sampled::Here(object)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Sampled;
    use crate::fixture::{DB, NOW, new_keyspace, number, seconds_later, set};
    use crate::{DbIndex, Expiry};

    #[test]
    fn each_of_a_few_keys_is_picked_about_equally_often() {
        let keyspace = new_keyspace(1);
        (0..10).for_each(|number| set(&keyspace, number, NOW, Expiry::Clear));
        let mut picked = [0; 10];
        for _ in 0..2000 {
            let key = keyspace.enter(0).try_random_key(DB, NOW, |_| ()).flatten().expect("there are keys");
            picked[number(&key) as usize] += 1;
        }
        assert!(picked.iter().all(|times| (120..=280).contains(times)), "{picked:?}");
    }

    #[test]
    fn no_key_is_picked_where_none_is_or_all_have_expired() {
        let keyspace = new_keyspace(1);
        (0..10_000).for_each(|number| set(&keyspace, number, NOW, Expiry::At(seconds_later(1))));
        assert_eq!(keyspace.enter(0).try_random_key(DB, seconds_later(1), |_| ()), Some(None));
        assert_eq!(keyspace.enter(0).try_random_key(DbIndex(1), NOW, |_| ()), Some(None));
    }

    #[test]
    fn rare_expiring_keys_are_found_though_timers_are_out_of_date() {
        let keyspace = new_keyspace(1);
        set(&keyspace, 0, NOW, Expiry::At(seconds_later(60)));
        for other in 1..5000 {
            set(&keyspace, other, NOW, Expiry::At(seconds_later(60)));
            set(&keyspace, other, NOW, Expiry::Clear);
        }
        let mut found = Vec::new();
        keyspace.enter(0).sample_expiring(DB, 5, |_, sampled| {
            let Sampled::Here(object) = sampled else { panic!("nothing is cold") };
            found.push(number(object.key()));
        });
        assert!(!found.is_empty() && found.iter().all(|number| *number == 0), "{found:?}");
        assert_eq!(keyspace.enter(0).average_ttl_ms(DB, NOW), 60_000);
        assert_eq!(keyspace.enter(0).average_ttl_ms(DbIndex(1), NOW), 0);
    }
}
