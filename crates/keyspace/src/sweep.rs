//! The sweep: frees keys whose time is up although nobody asks for them.
//!
//! Every worker calls it some times a second for its own stripe of the slots. It
//! reads through each database's due times, one number a slot and contiguous, and
//! locks only slots in which something has come due: keys without an expiry, and
//! those whose time is far, cost nothing.

use crate::changes::{Change, Class, Interest, What};
use crate::database::Database;
use crate::ids::{DbIndex, SLOTS, Slot};
use crate::keyspace::{Batch, Keyspace};
use crate::limits::SWEEP_KEYS_MAX;
use crate::locks;
use crate::policy::Removal;
use crate::slot::{Change as SlotChange, Over, SlotKeys, Sweep};
use std::ops::Range;
use std::sync::atomic::Ordering;
use sys::UnixMs;
use value::timers::Deadline;

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

impl Keyspace {
    /// In how many milliseconds a sweep has something to do: 0 if something is due. None: nothing will ever come due.
    /// It looks through the due times and locks nothing.
    pub fn next_sweep_ms(&self, now: UnixMs) -> Option<u64> {
        let databases = (0..self.databases()).map(|db| self.database(DbIndex(db)));
        let due = databases
            .filter(|database| self.active_expiry() && database.needs_sweeps())
            .filter_map(|database| {
                let shown =
                    database.due()?.iter().enumerate().filter(|(number, _)| !self.hidden.contains(*number));
                shown.map(|(_, due)| due.load(Ordering::Relaxed)).min()
            })
            .min()
            .filter(|due| *due != Deadline::NEVER.0)?;
        Some(self.frame().epoch.moment_of(Deadline(due)).0.saturating_sub(now.0))
    }
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
        if !self.keyspace.active_expiry() || !self.may_remove() {
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
        let due = database.due().filter(|_| database.needs_sweeps())?;
        let today = self.keyspace.frame().epoch.deadline_now(now);
        let is_due = |number: &usize| {
            due[*number].load(Ordering::Relaxed) <= today.0 && !self.keyspace.hidden.contains(*number)
        };
        for number in slots.filter(is_due) {
            let mut sweep = Sweep::More;
            while sweep == Sweep::More {
                if !has_budget() {
                    return Some(number);
                }
                let slot = (db, Slot(number as u16));
                sweep = self.sweep_slot(database, slot, now, |key| visit_expired(db, key));
            }
        }
        None
    }

    fn sweep_slot(
        &self,
        database: &Database,
        (db, slot): (DbIndex, Slot),
        now: UnixMs,
        mut visit: impl FnMut(&[u8]),
    ) -> Sweep {
        let id = (self.keyspace.physical(db), slot);
        // Of what is held for long nothing is waited for, not even for a while: there may be much of it.
        if self.keyspace.has_slow_holder(&[id]) {
            return Sweep::Done;
        }
        let Some(mut keys) = locks::lock_soon(&database.slot(slot).keys) else { return Sweep::Done };
        let mut changes = Vec::new();
        let is_of_interest = !self.keyspace.interest().is_empty();
        let mut expired = 0;
        let mut resolved = SlotChange::default();
        let warm = |keys: &mut SlotKeys, prefix| {
            let Some(reader) = self.keyspace.slot_reader(id) else { return true };
            let (change, warmed) = reader.warm_with_prefix(keys, prefix);
            resolved += change;
            // What cannot be read is looked for again; whoever asks for it is told.
            warmed.is_ok()
        };
        let (mut change, sweep) =
            keys.sweep(self.keyspace.frame(), now, SWEEP_KEYS_MAX, warm, |key, over| {
                if over == Over::Key {
                    visit(key);
                    expired += 1;
                }
                match over {
                    Over::Key | Over::LastFields => self.add_removal(db, now, key, Removal::Expiry),
                    Over::Fields(names) => self.add_fields_removal(db, now, key, names),
                }
                if is_of_interest {
                    changes.extend(told(db, key, over));
                }
            });
        change += resolved;
        self.note(id, &keys, change);
        self.keyspace.stats().expired.add(expired);
        self.settle(id);
        self.tell_gone(&changes);
        sweep
    }

    /// Tells of keys that went away by themselves, their slots still locked. Who waits
    /// for them is served by the batch's owner afterwards.
    pub(crate) fn tell_gone(&self, changes: &[Change]) {
        self.tell(changes);
        if self.keyspace.interest().contains(Interest::WAITING) {
            self.note_ready(changes, |_| None);
        }
    }
}

/// What is told of a key that is over, or of whose hash fields are.
fn told(db: DbIndex, key: &[u8], over: Over<'_>) -> impl Iterator<Item = Change> {
    const EXPIRED: What = What::Event(Class::EXPIRED, "expired");
    const FIELDS: What = What::Event(Class::HASH, "hexpired");
    const GONE: What = What::Event(Class::GENERIC, "del");
    let whats: &[What] = match over {
        Over::Key => &[EXPIRED, What::Over],
        Over::Fields(_) => &[FIELDS, What::Modified],
        Over::LastFields => &[FIELDS, GONE, What::Modified],
    };
    whats.iter().map(move |what| Change { db, key: key.into(), what: *what })
}

#[cfg(test)]
mod fields;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Expiry;
    use crate::fixture::{DB, NOW, new_keyspace, number, seconds_later, set};

    #[test]
    fn workers_share_the_sweep_and_each_key_expires_once() {
        let keyspace = new_keyspace(3);
        (0..3000).for_each(|number| set(&keyspace, number, NOW, Expiry::At(seconds_later(1))));
        let mut swept = Vec::new();
        for worker in 0..3 {
            let before = swept.len();
            let visit = |_, key: &[u8]| swept.push(number(key));
            assert_eq!(
                keyspace.enter(worker).sweep_expired(seconds_later(2), || true, visit),
                Progress::Done
            );
            assert!((900..1100).contains(&(swept.len() - before)));
        }
        swept.sort_unstable();
        assert!(swept.into_iter().eq(0..3000));
        assert_eq!((keyspace.len(DB), keyspace.stats().expired.get()), (0, 3000));
    }

    #[test]
    fn the_next_sweep_is_known_ahead() {
        let keyspace = new_keyspace(2);
        set(&keyspace, 0, NOW, Expiry::Keep);
        assert_eq!(keyspace.next_sweep_ms(NOW), None);
        set(&keyspace, 1, NOW, Expiry::At(seconds_later(3)));
        set(&keyspace, 2, NOW, Expiry::At(seconds_later(1)));
        let first = keyspace.next_sweep_ms(NOW).unwrap();
        assert!((1000..=1128).contains(&first), "{first}");
        assert_eq!(keyspace.next_sweep_ms(seconds_later(2)), Some(0));
        for worker in 0..2 {
            let swept = keyspace.enter(worker).sweep_expired(seconds_later(2), || true, |_, _| {});
            assert_eq!(swept, Progress::Done);
        }
        let next = keyspace.next_sweep_ms(seconds_later(2)).unwrap();
        assert!((1000..=1128).contains(&next), "{next}");
        keyspace.set_active_expiry(false);
        assert_eq!(keyspace.next_sweep_ms(seconds_later(9)), None);
    }

    #[test]
    fn sweep_goes_on_where_its_budget_ended() {
        let keyspace = new_keyspace(1);
        (0..1000).for_each(|number| set(&keyspace, number, NOW, Expiry::At(seconds_later(1))));
        let mut calls = 0;
        loop {
            let mut steps = 0;
            let has_budget = || {
                steps += 1;
                steps <= 10
            };
            calls += 1;
            if keyspace.enter(0).sweep_expired(seconds_later(2), has_budget, |_, _| {}) == Progress::Done {
                break;
            }
            // Early slots have new work all the time; late ones get their turn.
            set(&keyspace, calls, NOW, Expiry::At(seconds_later(1)));
        }
        assert!(keyspace.is_empty(DB) && calls < 250);
    }

    #[test]
    fn nothing_is_swept_while_active_expiry_is_off() {
        let keyspace = new_keyspace(1);
        set(&keyspace, 1, NOW, Expiry::At(seconds_later(1)));
        keyspace.set_active_expiry(false);
        assert_eq!(keyspace.enter(0).sweep_expired(seconds_later(9), || true, |_, _| {}), Progress::Done);
        assert_eq!(keyspace.len(DB), 1);
    }

    #[test]
    fn a_clock_set_back_does_not_keep_the_sweep_busy() {
        let keyspace = new_keyspace(1);
        let before = UnixMs(NOW.0 - 50_000);
        set(&keyspace, 1, before, Expiry::At(UnixMs(NOW.0 - 10_000)));
        assert_eq!(keyspace.enter(0).sweep_expired(before, || true, |_, _| {}), Progress::Done);
        assert_eq!(keyspace.len(DB), 1);
        assert_eq!(keyspace.enter(0).sweep_expired(seconds_later(1), || true, |_, _| {}), Progress::Done);
        assert_eq!(keyspace.len(DB), 0);
    }
}
