//! The sweep: frees keys whose time is up although nobody asks for them.
//!
//! Every worker calls it some times a second for its own stripe of the slots. It
//! reads through each database's due times, one number a slot and contiguous, and
//! locks only slots in which something has come due: keys without an expiry, and
//! those whose time is far, cost nothing.

use crate::database::Database;
use crate::ids::{DbIndex, SLOTS, Slot};
use crate::keyspace::Batch;
use crate::limits::SWEEP_KEYS_MAX;
use crate::slot::Sweep;
use std::ops::Range;
use std::sync::atomic::Ordering;
use sys::UnixMs;

/// Whether work of which a call does only a part has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// Nothing is left to do.
    Done,
    /// The budget was used up: call again soon.
    More,
}

/// Where a worker's next sweep begins, so that what comes late in the order is
/// not starved when the budget never suffices.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SweepFrom {
    db: u32,
    slot: usize,
}

impl Batch<'_> {
    /// Frees keys of this worker's stripe of slots whose time was up some 128 ms
    /// before `now` or earlier, until none is left or `has_budget` says false; it
    /// is asked before each step of at most [`SWEEP_KEYS_MAX`] keys.
    ///
    /// `visit_expired` gets each key while it is still there and its slot locked.
    pub fn sweep_expired(
        &self,
        now: UnixMs,
        mut has_budget: impl FnMut() -> bool,
        mut visit_expired: impl FnMut(DbIndex, &[u8]),
    ) -> Progress {
        if !self.keyspace.active_expiry() {
            return Progress::Done;
        }
        let (worker, workers) = self.share();
        let stripe = SLOTS * worker / workers..SLOTS * (worker + 1) / workers;
        let databases = self.keyspace.databases();
        let start = self.state().sweep_from.get();
        let first = start.slot.clamp(stripe.start, stripe.end);
        // The first database comes again at the end for the slots left out.
        for step in 0..=databases {
            let db = (start.db + step) % databases;
            let slots = match step {
                0 => first..stripe.end,
                step if step == databases => stripe.start..first,
                _ => stripe.clone(),
            };
            if let Some(slot) =
                self.sweep_database(DbIndex(db), slots, now, &mut has_budget, &mut visit_expired)
            {
                self.state().sweep_from.set(SweepFrom { db, slot });
                return Progress::More;
            }
        }
        Progress::Done
    }

    /// Sweeps slots of a database. Returns the slot in which the budget ended.
    fn sweep_database(
        &self,
        db: DbIndex,
        slots: Range<usize>,
        now: UnixMs,
        has_budget: &mut impl FnMut() -> bool,
        visit_expired: &mut impl FnMut(DbIndex, &[u8]),
    ) -> Option<usize> {
        let database = self.keyspace.database(db);
        let due = database.due().filter(|_| database.expiring() > 0)?;
        let today = self.keyspace.frame().epoch.deadline_now(now);
        for number in slots.filter(|number| due[*number].load(Ordering::Relaxed) <= today.0) {
            let mut sweep = Sweep::More;
            while sweep == Sweep::More {
                if !has_budget() {
                    return Some(number);
                }
                sweep = self.sweep_slot(database, Slot(number as u16), now, |key| visit_expired(db, key));
            }
        }
        None
    }

    fn sweep_slot(&self, database: &Database, slot: Slot, now: UnixMs, visit: impl FnMut(&[u8])) -> Sweep {
        let mut keys = database.slot(slot).keys.lock();
        let (change, sweep) = keys.sweep(self.keyspace.frame(), now, SWEEP_KEYS_MAX, visit);
        database.note(slot, &keys, change);
        self.keyspace.stats().expired.add(-change.keys);
        sweep
    }
}
