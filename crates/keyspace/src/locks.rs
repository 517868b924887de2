//! Slot locks: those of one command, and those that a batch holds over several.
//!
//! A command locks the slots of its keys for itself ([`Locks`]). A transaction, or
//! a change that somebody waits for, holds slots in its batch instead
//! ([`Batch::hold`]); commands then run under them without locking anything.
//!
//! Invariants:
//! 1. Slots are locked in ascending order, or tried without waiting.
//! 2. While a batch holds slots, commands in it touch no others: its owner holds
//!    what they need before they run.
//! 3. A batch that ends or panics releases what it holds.

#![allow(unsafe_code)] // Unlocks slots whose guards were given up for a list of their numbers.

use crate::ids::{Key, Slot};
use crate::keyspace::{Batch, Keyspace, WorkerState};
use crate::slot::SlotKeys;
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use std::time::{Duration, Instant};

/// Keys of most multi-key commands; beyond, the list of locks is allocated.
const LOCKS_INLINE: usize = 4;

/// A slot as the order of locking knows it: physical database, then slot.
pub(crate) type SlotId = (u32, Slot);

/// The locks of one command.
pub(crate) enum Locks<'b> {
    /// Of a command with one key.
    One(SlotId, MutexGuard<'b, SlotKeys>),
    /// Of several, in ascending order.
    Many(SmallVec<[(SlotId, MutexGuard<'b, SlotKeys>); LOCKS_INLINE]>),
    /// None: its batch holds them.
    OfBatch,
}

impl<'b> Locks<'b> {
    #[inline]
    pub(crate) fn of(keyspace: &'b Keyspace, keys: &[Key<'_>]) -> Locks<'b> {
        match keys {
            [key] => {
                let id = keyspace.slot_id(key);
                Locks::One(id, keyspace.keys_of_slot(id).lock())
            }
            keys => {
                let lock = |id: SlotId| (id, keyspace.keys_of_slot(id).lock());
                Locks::Many(slots_of(keyspace, keys).into_iter().map(lock).collect())
            }
        }
    }

    /// Gives the guards up: the slots stay locked, and whoever has the list unlocks them.
    fn into_slots(self) -> Vec<SlotId> {
        match self {
            Locks::One(id, guard) => {
                std::mem::forget(guard);
                vec![id]
            }
            Locks::Many(locks) => locks
                .into_iter()
                .map(|(id, guard)| {
                    std::mem::forget(guard);
                    id
                })
                .collect(),
            Locks::OfBatch => Vec::new(),
        }
    }
}

/// The slots of some keys, in ascending order, each once.
fn slots_of(keyspace: &Keyspace, keys: &[Key<'_>]) -> SmallVec<[SlotId; 16]> {
    let mut slots: SmallVec<[SlotId; 16]> = keys.iter().map(|key| keyspace.slot_id(key)).collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}

/// What a batch holds over several commands.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Held {
    /// Nothing.
    #[default]
    Nothing,
    /// These slots, in ascending order.
    Slots(Vec<SlotId>),
    /// The whole keyspace: every worker's gate.
    All,
}

impl<'k> Batch<'k> {
    /// Holds the slots of these keys over the commands that follow, until
    /// [`Batch::release`]. They may touch no other keys.
    pub fn hold(&mut self, keys: &[Key<'_>]) {
        debug_assert_eq!(*self.held.borrow(), Held::Nothing, "one transaction runs at a time");
        *self.held.borrow_mut() = Held::Slots(Locks::of(self.keyspace, keys).into_slots());
        self.begin_group();
    }

    /// Holds the slots of these keys beside what is held. Where another worker has one
    /// of them, everything is let go for a moment.
    pub fn hold_also(&mut self, keys: &[Key<'_>]) {
        if *self.held.borrow() == Held::All {
            return;
        }
        // Where everything is let go, what was done must be in the journal.
        self.settle_held();
        let mut held = self.held.borrow_mut();
        let Held::Slots(slots) = &mut *held else { return };
        let missing: Vec<SlotId> =
            slots_of(self.keyspace, keys).into_iter().filter(|id| slots.binary_search(id).is_err()).collect();
        for id in missing.iter().copied() {
            match self.keyspace.keys_of_slot(id).try_lock() {
                Some(guard) => {
                    std::mem::forget(guard);
                    slots.insert(slots.partition_point(|held| *held < id), id);
                }
                None => {
                    unlock(self.keyspace, slots);
                    slots.extend(missing);
                    slots.sort_unstable();
                    slots.dedup();
                    slots.iter().for_each(|id| std::mem::forget(self.keyspace.keys_of_slot(*id).lock()));
                    break;
                }
            }
        }
        drop(held);
        self.see_held();
    }

    /// Whether nobody holds a slot of these keys at this moment.
    pub fn are_free(&self, keys: &[Key<'_>]) -> bool {
        keys.iter().all(|key| self.keyspace.keys_of_slot(self.keyspace.slot_id(key)).try_lock().is_some())
    }

    /// Whether the slots of all these keys are held.
    pub fn holds(&self, keys: &[Key<'_>]) -> bool {
        match &*self.held.borrow() {
            Held::Nothing => false,
            Held::Slots(slots) => {
                keys.iter().all(|key| slots.binary_search(&self.keyspace.slot_id(key)).is_ok())
            }
            Held::All => true,
        }
    }

    /// Holds the slots of these keys beside what is held, unless another worker has one of them
    /// for longer than `patience`. Nothing is let go. False: not all are held.
    pub fn try_hold_also(&mut self, keys: &[Key<'_>], patience: Duration) -> bool {
        let mut held = self.held.borrow_mut();
        let Held::Slots(slots) = &mut *held else { return *held == Held::All };
        let until = Instant::now() + patience;
        let holds_all = slots_of(self.keyspace, keys).into_iter().all(|id| {
            let Err(place) = slots.binary_search(&id) else { return true };
            let guard = self.keyspace.keys_of_slot(id).try_lock_until(until);
            guard.is_some_and(|guard| {
                std::mem::forget(guard);
                slots.insert(place, id);
                true
            })
        });
        drop(held);
        self.see_held();
        holds_all
    }

    /// Holds the whole keyspace over the commands that follow: no other worker is in a
    /// batch until [`Batch::release`].
    pub fn hold_all(&mut self) {
        debug_assert_eq!(*self.held.borrow(), Held::Nothing, "one transaction runs at a time");
        // The own gate goes first: gates are taken in ascending order.
        self.gate = None;
        let mut gates: Vec<MutexGuard<'k, WorkerState>> = self.keyspace.lock_gates();
        self.gate = Some(gates.swap_remove(self.worker));
        self.other_gates = gates;
        *self.held.borrow_mut() = Held::All;
        self.begin_group();
    }

    /// Whether anything is held.
    #[inline]
    pub fn is_holding(&self) -> bool {
        *self.held.borrow() != Held::Nothing
    }

    /// Whether the whole keyspace is held.
    pub fn holds_all(&self) -> bool {
        *self.held.borrow() == Held::All
    }

    /// Lets go of what is held; what was done under it is one record of the journal.
    pub fn release(&mut self) {
        if self.is_holding() {
            self.settle_held();
        }
        match std::mem::take(&mut *self.held.borrow_mut()) {
            Held::Nothing => return,
            Held::Slots(slots) => unlock(self.keyspace, &slots),
            Held::All => self.other_gates.clear(),
        }
        self.end_group();
    }

    /// The locks for a command on these keys: none while the batch holds any.
    #[inline]
    pub(crate) fn locks(&self, keys: &[Key<'_>]) -> Locks<'_> {
        match &*self.held.borrow() {
            Held::Nothing => Locks::of(self.keyspace, keys),
            Held::Slots(_) | Held::All => {
                assert!(self.holds(keys), "the owner of a batch holds the slots of its commands");
                Locks::OfBatch
            }
        }
    }

    /// Makes a command's locks the batch's.
    pub(crate) fn keep(&self, locks: Locks<'_>) {
        let slots = locks.into_slots();
        if !slots.is_empty() {
            *self.held.borrow_mut() = Held::Slots(slots);
            self.begin_group();
        }
    }
}

fn unlock(keyspace: &Keyspace, slots: &[SlotId]) {
    for id in slots {
        // SAFETY: the slot was locked by this thread and its guard forgotten when the
        // slot came onto the list, and it leaves the list here.
        unsafe { keyspace.keys_of_slot(*id).force_unlock() }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.release();
        self.nudge();
    }
}
