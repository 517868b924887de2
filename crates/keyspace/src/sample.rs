//! Picking keys at random: for eviction, RANDOMKEY and estimates.
//!
//! A sample begins at a random place and takes neighbours from there on, slot by
//! slot, each locked only while it is looked at. Positions are hashes, so
//! neighbours have nothing to do with each other; and one lock gives many keys.

use crate::ids::{DbIndex, Position, SLOTS, Slot};
use crate::keyspace::Batch;
use crate::limits::{RANDOM_KEY_SAMPLES, SAMPLE_VISITS_MAX, TTL_SAMPLES};
use crate::object::Object;
use crate::timers::Deadline;
use std::sync::atomic::Ordering;
use sys::UnixMs;

impl Batch<'_> {
    /// A key picked at random, all about equally likely; exactly so while there
    /// are few. None if there is none, or if so many have expired that none is
    /// found within a limit (RANDOMKEY).
    pub fn random_key(&self, db: DbIndex, now: UnixMs) -> Option<Box<[u8]>> {
        let mut picked: Option<Vec<u8>> = None;
        let mut seen = 0;
        self.sample_all(db, RANDOM_KEY_SAMPLES, |_, object| {
            if object.is_expired(now) {
                return false;
            }
            // The i-th key replaces the one picked with chance 1/i: all are equal.
            seen += 1;
            if self.random() % seen == 0 {
                let key = picked.get_or_insert_default();
                key.clear();
                key.extend_from_slice(object.key());
            }
            true
        });
        picked.map(Vec::into_boxed_slice)
    }

    /// The mean time to live of a database's expiring keys in milliseconds,
    /// estimated from a few dozen of them; 0 if none expires (INFO's `avg_ttl`).
    pub fn average_ttl_ms(&self, db: DbIndex, now: UnixMs) -> u64 {
        let (mut sum, mut count) = (0u128, 0u128);
        self.sample_expiring(db, TTL_SAMPLES, |_, object| {
            let at = object.expires_at().expect("only expiring keys are sampled");
            sum += u128::from(at.0.saturating_sub(now.0));
            count += 1;
        });
        sum.checked_div(count).map_or(0, |mean| mean as u64)
    }

    /// Calls `visit` for keys of a database from a random place on, until it has
    /// accepted `wanted` of them by returning true, or all were seen, or the limit
    /// of visits is reached.
    pub(crate) fn sample_all(
        &self,
        db: DbIndex,
        wanted: usize,
        mut visit: impl FnMut(Slot, Object<'_>) -> bool,
    ) {
        let Some(slots) = self.keyspace.database(db).used_slots() else { return };
        let random = self.random();
        let (start, middle) = (random as usize % SLOTS, Position(random >> 16));
        let (mut accepted, mut visits) = (0, 0);
        // The first slot may be entered in its middle, so it comes again at the end.
        for step in 0..=SLOTS {
            let number = (start + step) % SLOTS;
            if !slots[number].has_keys() || step == SLOTS && accepted > 0 {
                continue;
            }
            let keys = slots[number].keys.lock();
            let enters_middle = step == 0 && keys.table().len() > wanted;
            let mut from = Some(if enters_middle { middle } else { Position(0) });
            while let Some(at) = from.filter(|_| accepted < wanted && visits < SAMPLE_VISITS_MAX) {
                from = keys.table().scan(at, wanted - accepted, |object| {
                    visits += 1;
                    accepted += usize::from(accepted < wanted && visit(Slot(number as u16), object));
                });
            }
            if accepted >= wanted || visits >= SAMPLE_VISITS_MAX {
                return;
            }
        }
    }

    /// Calls `visit` for up to `wanted` expiring keys of a database, from a random
    /// place on. A key may come more than once. It finds one if there is one.
    pub(crate) fn sample_expiring(
        &self,
        db: DbIndex,
        wanted: usize,
        mut visit: impl FnMut(Slot, Object<'_>),
    ) {
        let database = self.keyspace.database(db);
        let (Some(slots), Some(due)) = (database.used_slots(), database.due()) else { return };
        let start = self.random() as usize % SLOTS;
        let with_timers = || {
            let numbers = (start..SLOTS).chain(0..start);
            numbers.filter(|number| due[*number].load(Ordering::Relaxed) != Deadline::NEVER.0)
        };
        let mut found = 0;
        for number in with_timers() {
            let keys = slots[number].keys.lock();
            for _ in 0..keys.expiring().min(wanted - found) {
                if let Some(object) = keys.sample_expiring(self.random()) {
                    visit(Slot(number as u16), object);
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
            let keys = slots[number].keys.lock();
            if keys.expiring() > 0 {
                let expiring = keys.table().iter().filter(|object| object.expires_at().is_some());
                return expiring.take(wanted).for_each(|object| visit(Slot(number as u16), object));
            }
        }
    }
}
