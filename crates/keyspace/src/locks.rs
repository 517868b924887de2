//! Slot locks: those of one command, and those that a batch holds over several.
//!
//! A command locks the slots of its keys for itself ([`Locks`]). A transaction, or
//! a change that somebody waits for, holds slots in its batch instead
//! ([`Batch::hold`]); commands then run under them without locking anything.
//!
//! A script may hold slots for as long as it likes, and is known to be slow after a while ([`Keyspace::set_slow_holder`]). Commands
//! then give up what they wait for. Whoever cannot says so ([`when_stuck`]), and holds nothing meanwhile that others could want.
//!
//! Invariants:
//! 1. Slots are locked in ascending order, or waited for with [`PATIENCE`] at the most.
//! 2. While a batch holds slots, commands in it touch no others: its owner holds
//!    what they need before they run.
//! 3. A batch that ends or panics releases what it holds.

#![allow(unsafe_code)] // Unlocks slots whose guards were given up for a list of their numbers.

use crate::ids::{Key, Slot};
use crate::keyspace::{Batch, Keyspace, WorkerState};
use crate::slot::SlotKeys;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Keys of most multi-key commands; beyond, the list of locks is allocated.
const LOCKS_INLINE: usize = 4;

/// How long a thread waits for a lock before it says so, or lets go of what it holds beside.
const PATIENCE: Duration = Duration::from_millis(5);

thread_local! {
    static WHEN_STUCK: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Names what this thread does, again and again, while it waits for a lock of the keyspace that is not given up. It may
/// not enter the keyspace.
pub fn when_stuck(call: fn()) {
    WHEN_STUCK.set(Some(call));
}

/// Locks, however long it takes.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.try_lock().unwrap_or_else(|| wait_for(mutex))
}

/// Locks for work that can be left for later.
pub(crate) fn lock_soon<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    mutex.try_lock_for(PATIENCE)
}

#[cold]
fn wait_for<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    try_lock(mutex, || false).expect("nobody gives up")
}

/// Locks as long as `gives_up` does not say otherwise.
fn try_lock<T>(mutex: &Mutex<T>, gives_up: impl Fn() -> bool) -> Option<MutexGuard<'_, T>> {
    loop {
        if let Some(guard) = mutex.try_lock_for(PATIENCE) {
            return Some(guard);
        }
        if gives_up() {
            return None;
        }
        if let Some(call) = WHEN_STUCK.get() {
            call();
        }
    }
}

/// Locks several, in the order in which they come. Where one is not to be had, the others are let go while it is waited for.
pub(crate) fn lock_all<'m, T: 'm>(mutexes: impl Iterator<Item = &'m Mutex<T>> + Clone) -> Guards<'m, T> {
    try_lock_all(mutexes, || false).expect("nobody gives up")
}

type Guards<'m, T> = SmallVec<[MutexGuard<'m, T>; LOCKS_INLINE]>;

/// The same, as long as `gives_up` does not say otherwise.
fn try_lock_all<'m, T: 'm>(
    mutexes: impl Iterator<Item = &'m Mutex<T>> + Clone,
    gives_up: impl Fn() -> bool,
) -> Option<Guards<'m, T>> {
    let mut awaited: Option<usize> = None;
    loop {
        let mut first = None;
        if let Some(mutex) = awaited.and_then(|index| mutexes.clone().nth(index)) {
            first = Some(try_lock(mutex, &gives_up)?);
        }
        let mut guards = SmallVec::new();
        let missing = mutexes.clone().enumerate().find_map(|(index, mutex)| {
            let guard = if awaited == Some(index) { first.take() } else { mutex.try_lock_for(PATIENCE) };
            match guard {
                Some(guard) => guards.push(guard),
                None => return Some(index),
            }
            None
        });
        match missing {
            None => return Some(guards),
            Some(index) => awaited = Some(index),
        }
    }
}

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
    /// None: a slow script has one of them, and `gives_up` says so.
    #[inline]
    fn of(keyspace: &'b Keyspace, keys: &[Key<'_>], gives_up: impl Fn() -> bool) -> Option<Locks<'b>> {
        Some(match keys {
            [key] => {
                let id = keyspace.slot_id(key);
                let mutex = keyspace.keys_of_slot(id);
                let guard = match mutex.try_lock() {
                    Some(guard) => guard,
                    None => try_lock(mutex, gives_up)?,
                };
                Locks::One(id, guard)
            }
            keys => {
                let slots = slots_of(keyspace, keys);
                let guards = try_lock_all(slots.iter().map(|id| keyspace.keys_of_slot(*id)), gives_up)?;
                Locks::Many(slots.into_iter().zip(guards).collect())
            }
        })
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

/// What a batch held when it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding(Held);

impl Holding {
    /// Whether it is the whole keyspace.
    pub fn is_all(&self) -> bool {
        self.0 == Held::All
    }

    /// Whether a slot of one of these keys is among it.
    pub fn has_any(&self, keyspace: &Keyspace, keys: &[Key<'_>]) -> bool {
        match &self.0 {
            Held::Nothing => false,
            Held::Slots(slots) => keys.iter().any(|key| slots.binary_search(&keyspace.slot_id(key)).is_ok()),
            Held::All => !keys.is_empty(),
        }
    }
}

/// What a batch holds over several commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
        let is_held = self.hold_unless(keys, || false);
        debug_assert!(is_held, "nobody gives up");
    }

    /// The same, unless a slow script has one of them. False: nothing is held.
    pub fn try_hold(&mut self, keys: &[Key<'_>]) -> bool {
        let keyspace = self.keyspace;
        self.hold_unless(keys, || keyspace.has_slow_holder())
    }

    fn hold_unless(&mut self, keys: &[Key<'_>], gives_up: impl Fn() -> bool) -> bool {
        debug_assert_eq!(*self.held.borrow(), Held::Nothing, "one transaction runs at a time");
        let Some(locks) = Locks::of(self.keyspace, keys, gives_up) else { return false };
        *self.held.borrow_mut() = Held::Slots(locks.into_slots());
        self.begin_group();
        true
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
                    let guards = lock_all(slots.iter().map(|id| self.keyspace.keys_of_slot(*id)));
                    guards.into_iter().for_each(std::mem::forget);
                    break;
                }
            }
        }
        drop(held);
        self.see_held();
    }

    /// What is held at this moment, for others to know.
    pub fn holding(&self) -> Holding {
        Holding(self.held.borrow().clone())
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
        let is_held = self.hold_all_unless(|| false);
        debug_assert!(is_held, "nobody gives up");
    }

    /// The same, unless a slow script runs. False: nothing is held.
    pub fn try_hold_all(&mut self) -> bool {
        let keyspace = self.keyspace;
        self.hold_all_unless(|| keyspace.has_slow_holder())
    }

    fn hold_all_unless(&mut self, gives_up: impl Fn() -> bool) -> bool {
        debug_assert_eq!(*self.held.borrow(), Held::Nothing, "one transaction runs at a time");
        // The own gate goes first: gates are taken in ascending order.
        self.gate = None;
        let Some(gates) = try_lock_all(self.keyspace.gates(), gives_up) else {
            self.gate = Some(lock(self.keyspace.gate(self.worker)));
            return false;
        };
        let mut gates: Vec<MutexGuard<'k, WorkerState>> = gates.into_vec();
        self.gate = Some(gates.swap_remove(self.worker));
        self.other_gates = gates;
        *self.held.borrow_mut() = Held::All;
        self.begin_group();
        true
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
        self.locks_unless(keys, || false).expect("nobody gives up")
    }

    /// The same, unless a slow script has one of them.
    #[inline]
    pub(crate) fn try_locks(&self, keys: &[Key<'_>]) -> Option<Locks<'_>> {
        self.locks_unless(keys, || self.keyspace.has_slow_holder())
    }

    #[inline]
    fn locks_unless(&self, keys: &[Key<'_>], gives_up: impl Fn() -> bool) -> Option<Locks<'_>> {
        match &*self.held.borrow() {
            Held::Nothing => Locks::of(self.keyspace, keys, gives_up),
            Held::Slots(_) | Held::All => {
                assert!(self.holds(keys), "the owner of a batch holds the slots of its commands");
                Some(Locks::OfBatch)
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
