//! Slot locks: those of one command, and those that a batch holds over several.
//!
//! A command locks the slots of its keys for itself ([`Locks`]). A transaction, or
//! a change that somebody waits for, holds slots in its batch instead
//! ([`Batch::hold`]); commands then run under them without locking anything.
//!
//! Who has to wait stands in line ([`fair`]): first come, first served, whether it wants a slot, several, or the whole keyspace.
//!
//! A script may hold slots for as long as it likes, and is known to be slow after a while ([`Keyspace::set_slow_holders`]). Commands
//! then give up what they wait for, if it has that: whoever serves clients waits for nothing that it cannot give up, or nobody might be
//! left to end the script. Only a batch that was made to be patient waits however long it takes ([`Keyspace::enter`]).
//!
//! Invariants:
//! 1. Locks that are waited for are asked for at once; who holds slots already waits for others with [`PATIENCE`] at the most.
//! 2. Gates come before slots: nobody waits for a gate who holds a slot.
//! 3. While a batch holds slots, commands in it touch no others: its owner holds
//!    what they need before they run.
//! 4. A change to a key under which somebody waits holds what is touched when that one is served.
//! 5. A batch that ends or panics releases what it holds.
//! 6. A batch that is not patient asks for locks only in ways that give up (`try_`); a debug build stops at any other.

#![allow(unsafe_code)] // Makes guards of locks that were asked for together, and unlocks slots whose guards were given up for a list.

pub(crate) mod fair;

use crate::effects::Effects;
use crate::ids::{Key, Slot};
use crate::keyspace::{Batch, Keyspace, WorkerState};
use crate::slot::SlotKeys;
use fair::{Asked, Fair, Guard, Lock};
use smallvec::SmallVec;
use std::cell::{Cell, OnceCell};
use std::time::{Duration, Instant};
use sys::UnixMs;

/// Keys of most multi-key commands; beyond, the list of locks is allocated.
const LOCKS_INLINE: usize = 4;

/// How long a thread waits for a lock before it says so, or asks whether to give up.
const PATIENCE: Duration = Duration::from_millis(5);

thread_local! {
    static WHEN_STUCK: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Names what this thread does, again and again, while it waits for a lock of the keyspace. It may not enter the keyspace.
pub fn when_stuck(call: fn()) {
    WHEN_STUCK.set(Some(call));
}

/// Locks, however long it takes.
#[inline]
pub(crate) fn lock<T>(mutex: &Lock<T>) -> Guard<'_, T> {
    mutex.try_lock().unwrap_or_else(|| wait_for(mutex))
}

/// Locks for work that can be left for later.
pub(crate) fn lock_soon<T>(mutex: &Lock<T>) -> Option<Guard<'_, T>> {
    lock_within(mutex, PATIENCE)
}

/// Locks for work that can do without some of what it looks at: it waits [`PATIENCE`] for all of them together.
pub(crate) struct LockedSoon(Instant);

impl LockedSoon {
    pub(crate) fn new() -> LockedSoon {
        LockedSoon(Instant::now() + PATIENCE)
    }

    /// One of them.
    pub(crate) fn lock<'m, T>(&self, mutex: &'m Lock<T>) -> Option<Guard<'m, T>> {
        mutex.try_lock().or_else(|| lock_within(mutex, self.0.saturating_duration_since(Instant::now())))
    }
}

fn lock_within<T>(mutex: &Lock<T>, patience: Duration) -> Option<Guard<'_, T>> {
    if let Some(guard) = mutex.try_lock() {
        return Some(guard);
    }
    if patience.is_zero() {
        return None;
    }
    lock_all(&[mutex], patience, || false).0.map(only)
}

#[cold]
fn wait_for<T>(mutex: &Lock<T>) -> Guard<'_, T> {
    lock_unless(mutex, || false).expect("nobody gives up")
}

/// Locks as long as `gives_up` does not say otherwise.
#[cold]
pub(crate) fn lock_unless<T>(mutex: &Lock<T>, gives_up: impl Fn() -> bool) -> Option<Guard<'_, T>> {
    lock_all(&[mutex], PATIENCE, || goes_on(&gives_up)).0.map(only)
}

fn only<T>(guards: Guards<'_, T>) -> Guard<'_, T> {
    guards.into_iter().next().expect("one lock was asked for")
}

/// What is done while a lock is waited for. False: it is given up.
fn goes_on(gives_up: &dyn Fn() -> bool) -> bool {
    if gives_up() {
        return false;
    }
    if let Some(call) = WHEN_STUCK.get() {
        call();
    }
    true
}

type Guards<'m, T> = SmallVec<[Guard<'m, T>; LOCKS_INLINE]>;

/// Locks all of these, as [`fair::ask`] does.
fn lock_all<'m, T>(
    mutexes: &[&'m Lock<T>],
    pulse: Duration,
    goes_on: impl FnMut() -> bool,
) -> (Option<Guards<'m, T>>, Asked) {
    // SAFETY: they are locked by way of guards only, which are made below.
    let locks: SmallVec<[&Fair; LOCKS_INLINE]> = mutexes.iter().map(|mutex| unsafe { mutex.raw() }).collect();
    let asked = fair::ask(&locks, pulse, goes_on);
    // SAFETY: all have been locked for this, and each is there once.
    let guards = || mutexes.iter().map(|mutex| unsafe { mutex.make_guard_unchecked() }).collect();
    ((asked != Asked::GivenUp).then(guards), asked)
}

/// A slot as the order of locking knows it: physical database, then slot.
pub(crate) type SlotId = (u32, Slot);

type ManyLocks<'b> = Vec<(SlotId, Guard<'b, SlotKeys>)>;

/// The locks of one command.
pub(crate) enum Locks<'b> {
    /// Of a command whose keys are in one slot.
    One(SlotId, Guard<'b, SlotKeys>),
    /// Of several, in ascending order.
    Many(ManyLocks<'b>),
    /// None: its batch holds them.
    OfBatch,
}

impl<'b> Locks<'b> {
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

/// The locks of some slots, if all are free.
fn try_slots<'k>(keyspace: &'k Keyspace, slots: &[SlotId]) -> Option<ManyLocks<'k>> {
    slots.iter().map(|id| Some((*id, keyspace.keys_of_slot(*id).try_lock()?))).collect()
}

/// The slots of some keys, in ascending order, each once.
fn slots_of(keyspace: &Keyspace, keys: &[Key<'_>]) -> SmallVec<[SlotId; 16]> {
    let mut slots: SmallVec<[SlotId; 16]> = keys.iter().map(|key| keyspace.slot_id(key)).collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}

/// How long somebody stands in line who does not stand there for as long as it takes.
struct InLine {
    patience: Option<Duration>,
    /// When it was first asked whether that is over.
    since: OnceCell<Instant>,
}

impl InLine {
    fn is_over(&self) -> bool {
        self.patience.is_some_and(|patience| self.since.get_or_init(Instant::now).elapsed() >= patience)
    }
}

/// What a batch held when it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding(Held);

impl Holding {
    /// Whether it is the whole keyspace.
    pub fn is_all(&self) -> bool {
        self.0 == Held::All
    }

    pub(crate) fn has_slot(&self, slots: &[SlotId]) -> bool {
        match &self.0 {
            Held::Nothing => false,
            Held::Slots(held) => slots.iter().any(|id| held.binary_search(id).is_ok()),
            Held::All => !slots.is_empty(),
        }
    }

    /// The slots of some keys.
    pub fn of(keyspace: &Keyspace, keys: &[Key<'_>]) -> Holding {
        match slots_of(keyspace, keys) {
            none if none.is_empty() => Holding(Held::Nothing),
            slots => Holding(Held::Slots(slots.into_vec())),
        }
    }

    /// The whole keyspace.
    pub fn all() -> Holding {
        Holding(Held::All)
    }

    /// Whether a batch that wants this has to wait for one that holds `other`. Who wants the whole keyspace waits for everybody: even a
    /// batch that holds nothing is in it.
    pub fn is_hindered_by(&self, other: &Holding) -> bool {
        match (&self.0, &other.0) {
            (Held::All, _) | (_, Held::All) => true,
            (Held::Slots(slots), _) => other.has_slot(slots),
            (Held::Nothing, _) => false,
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
        self.must_be_patient();
        let is_held = self.hold_unless(keys, |_| false);
        debug_assert!(is_held, "nobody gives up");
    }

    /// The same, unless a slow script has one of them. False: nothing is held.
    pub fn try_hold(&mut self, keys: &[Key<'_>]) -> bool {
        let (keyspace, in_line) = (self.keyspace, self.in_line());
        // Who tries again and again does not stand in line each time.
        if keyspace.has_any_slow_holder() && keyspace.has_slow_holder(&slots_of(keyspace, keys)) {
            return false;
        }
        self.hold_unless(keys, |slots| in_line.is_over() || keyspace.has_slow_holder(slots))
    }

    fn hold_unless(&mut self, keys: &[Key<'_>], gives_up: impl Fn(&[SlotId]) -> bool) -> bool {
        debug_assert_eq!(*self.held.borrow(), Held::Nothing, "one transaction runs at a time");
        let Some(locks) = self.ask_to_change(keys, gives_up) else { return false };
        *self.held.borrow_mut() = Held::Slots(locks.into_slots());
        self.reach_moment();
        self.begin_group();
        true
    }

    /// To be called by whoever asks for locks in a way that cannot give up.
    #[inline]
    pub(crate) fn must_be_patient(&self) {
        debug_assert!(
            self.is_patient,
            "whoever serves clients waits for nothing that a slow script may have"
        );
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
        let until = Instant::now() + patience;
        let holds_all = loop {
            // Before one of them was locked somebody may have begun to wait for it, and reach for more.
            let lacking = self.lacking(&self.with_reached(keys));
            if lacking.is_empty() {
                break true;
            }
            if !lacking.into_iter().all(|id| self.try_hold_slot(id, until)) {
                break false;
            }
        };
        self.reach_moment();
        self.see_held();
        holds_all
    }

    /// Those of some slots that are not held.
    fn lacking(&self, wanted: &[SlotId]) -> SmallVec<[SlotId; 16]> {
        match &*self.held.borrow() {
            Held::Nothing => wanted.into(),
            Held::Slots(slots) => {
                wanted.iter().copied().filter(|id| slots.binary_search(id).is_err()).collect()
            }
            Held::All => SmallVec::new(),
        }
    }

    /// Holds one more slot, if it is to be had by then.
    fn try_hold_slot(&self, id: SlotId, until: Instant) -> bool {
        let mut held = self.held.borrow_mut();
        let Held::Slots(slots) = &mut *held else { return false };
        let Err(place) = slots.binary_search(&id) else { return true };
        let left = until.saturating_duration_since(Instant::now());
        let Some(guard) = lock_within(self.keyspace.keys_of_slot(id), left) else { return false };
        std::mem::forget(guard);
        slots.insert(place, id);
        true
    }

    /// Holds the whole keyspace over the commands that follow: no other worker is in a
    /// batch until [`Batch::release`].
    pub fn hold_all(&mut self) {
        self.must_be_patient();
        let is_held = self.hold_all_unless(|| false);
        debug_assert!(is_held, "nobody gives up");
    }

    /// The same, unless a slow script runs, or another era has begun since the batch was entered. False: nothing is held, and the batch is outside of the keyspace from now on, as after
    /// [`Keyspace::stay_outside`]. Its gate may be somebody else's by then, for who knows how long.
    pub fn try_hold_all(&mut self) -> bool {
        let (keyspace, in_line) = (self.keyspace, self.in_line());
        self.hold_all_unless(|| in_line.is_over() || keyspace.has_any_slow_holder())
    }

    /// From now on what it asks for in ways that give up (`try_`) is given up, too, when it has stood in line for so long.
    pub fn leave_lines_after(&mut self, patience: Duration) {
        self.leaves_lines_after = Some(patience);
    }

    fn in_line(&self) -> InLine {
        InLine { patience: self.leaves_lines_after, since: OnceCell::new() }
    }

    fn hold_all_unless(&mut self, gives_up: impl Fn() -> bool) -> bool {
        debug_assert_eq!(*self.held.borrow(), Held::Nothing, "one transaction runs at a time");
        // The own gate goes first: all are asked for at once.
        self.gate = None;
        if gives_up() {
            return false;
        }
        let gates: Vec<&'k Lock<WorkerState>> = self.keyspace.gates().collect();
        let (guards, asked) = lock_all(&gates, PATIENCE, || goes_on(&gives_up));
        self.note_waiting(asked);
        let Some(guards) = guards else { return false };
        if !self.is_patient && self.era != self.keyspace.era() {
            return false;
        }
        let mut gates: Vec<Guard<'k, WorkerState>> = guards.into_vec();
        self.gate = Some(gates.swap_remove(self.worker));
        self.other_gates = gates;
        *self.held.borrow_mut() = Held::All;
        self.reach_moment();
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
        if !self.is_holding() {
            return;
        }
        self.settle_held();
        // Whoever sees what was done finds what was told of it.
        self.end_group();
        match std::mem::take(&mut *self.held.borrow_mut()) {
            Held::Nothing => {}
            Held::Slots(slots) => unlock(self.keyspace, &slots),
            Held::All => self.other_gates.clear(),
        }
    }

    /// The locks for a command that reads these keys: none while the batch holds any.
    #[inline]
    pub(crate) fn locks(&self, keys: &[Key<'_>]) -> Locks<'_> {
        if !self.is_holding() {
            self.must_be_patient();
        }
        self.locks_unless(keys, |_| false).expect("nobody gives up")
    }

    /// The same, unless a slow script has one of them.
    #[inline]
    pub(crate) fn try_locks(&self, keys: &[Key<'_>]) -> Option<Locks<'_>> {
        let in_line = self.in_line();
        self.locks_unless(keys, |slots| in_line.is_over() || self.keyspace.has_slow_holder(slots))
    }

    /// The same for a command that changes them.
    #[inline]
    pub(crate) fn locks_to_change(&self, keys: &[Key<'_>]) -> Locks<'_> {
        match self.is_holding() {
            true => self.locks(keys),
            false => {
                self.must_be_patient();
                self.ask_to_change(keys, |_| false).expect("nobody gives up")
            }
        }
    }

    /// The same, unless a slow script has one of them.
    #[inline]
    pub(crate) fn try_locks_to_change(&self, keys: &[Key<'_>]) -> Option<Locks<'_>> {
        match self.is_holding() {
            true => self.try_locks(keys),
            false => {
                let in_line = self.in_line();
                self.ask_to_change(keys, |slots| in_line.is_over() || self.keyspace.has_slow_holder(slots))
            }
        }
    }

    #[inline]
    fn locks_unless(&self, keys: &[Key<'_>], gives_up: impl Fn(&[SlotId]) -> bool) -> Option<Locks<'_>> {
        match &*self.held.borrow() {
            Held::Nothing => self.ask(keys, gives_up),
            Held::Slots(_) | Held::All => {
                assert!(self.holds(keys), "the owner of a batch holds the slots of its commands");
                Some(Locks::OfBatch)
            }
        }
    }

    /// The locks of these keys. None: `gives_up` has said so.
    #[inline]
    fn ask(&self, keys: &[Key<'_>], gives_up: impl Fn(&[SlotId]) -> bool) -> Option<Locks<'k>> {
        if let [key] = keys {
            return self.ask_for_one(self.keyspace.slot_id(key), gives_up);
        }
        let slots = slots_of(self.keyspace, keys);
        if let [id] = *slots {
            return self.ask_for_one(id, gives_up);
        }
        let locks = try_slots(self.keyspace, &slots).or_else(|| self.wait_for_slots(&slots, gives_up));
        locks.map(Locks::Many)
    }

    #[inline]
    fn ask_for_one(&self, id: SlotId, gives_up: impl Fn(&[SlotId]) -> bool) -> Option<Locks<'k>> {
        match self.keyspace.keys_of_slot(id).try_lock() {
            Some(guard) => Some(Locks::One(id, guard)),
            None => self.wait_for_slots(&[id], gives_up).map(Locks::Many),
        }
    }

    #[cold]
    fn wait_for_slots(
        &self,
        slots: &[SlotId],
        gives_up: impl Fn(&[SlotId]) -> bool,
    ) -> Option<ManyLocks<'k>> {
        let keyspace = self.keyspace;
        if gives_up(slots) {
            return None;
        }
        let mutexes: SmallVec<[&Lock<SlotKeys>; LOCKS_INLINE]> =
            slots.iter().map(|id| keyspace.keys_of_slot(*id)).collect();
        let (guards, asked) = lock_all(&mutexes, PATIENCE, || goes_on(&|| gives_up(slots)));
        self.note_waiting(asked);
        Some(slots.iter().copied().zip(guards?).collect())
    }

    /// The locks of these keys, and of those that are touched when who waits for them is served.
    #[inline]
    fn ask_to_change(&self, keys: &[Key<'_>], gives_up: impl Fn(&[SlotId]) -> bool) -> Option<Locks<'k>> {
        let waiting = self.keyspace.waiting();
        if !waiting.is_reaching() {
            let locks = self.ask(keys, &gives_up)?;
            // Nobody can begin to wait for a key of which the slot is locked.
            if !waiting.is_reaching() {
                return Some(locks);
            }
        }
        self.ask_widely(keys, gives_up)
    }

    #[cold]
    fn ask_widely(&self, keys: &[Key<'_>], gives_up: impl Fn(&[SlotId]) -> bool) -> Option<Locks<'k>> {
        loop {
            let wanted = self.with_reached(keys);
            let locks = match try_slots(self.keyspace, &wanted) {
                Some(locks) => locks,
                None => self.wait_for_slots(&wanted, &gives_up)?,
            };
            // Somebody may have begun to wait meanwhile.
            let wanted = self.with_reached(keys);
            if wanted.iter().all(|id| locks.binary_search_by_key(id, |(own, _)| *own).is_ok()) {
                return Some(Locks::Many(locks));
            }
        }
    }

    /// The slots of keys, and of those that are touched when who waits for them is served.
    fn with_reached(&self, keys: &[Key<'_>]) -> SmallVec<[SlotId; 16]> {
        let waiting = self.keyspace.waiting();
        if !waiting.is_reaching() {
            return slots_of(self.keyspace, keys);
        }
        let reached = waiting.reached_from(keys.iter().map(|key| (key.db, key.bytes.into())));
        let more = reached.iter().map(|(db, bytes)| self.keyspace.key(*db, bytes));
        let all: Vec<Key<'_>> = keys.iter().copied().chain(more).collect();
        slots_of(self.keyspace, &all)
    }

    #[inline]
    fn note_waiting(&self, asked: Asked) {
        if asked != Asked::AtOnce {
            self.has_waited.set(true);
        }
    }

    /// The moment of what has just got its locks and was begun at `begun`: a later one, if it had to wait for them.
    #[inline]
    pub fn moment(&self, begun: UnixMs) -> UnixMs {
        if self.has_waited.get() { self.keyspace.moment(begun) } else { begun }
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
        debug_assert!(
            std::thread::panicking() || self.effects().is_none_or(Effects::is_settled),
            "a batch that ends has said nothing that is not in the journal"
        );
        debug_assert!(
            std::thread::panicking() || self.has_published_all(),
            "a batch that ends has done nothing that is not counted"
        );
        self.nudge();
    }
}

#[cfg(test)]
mod tests;
