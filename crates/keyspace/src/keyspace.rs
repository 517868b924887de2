//! The keyspace: databases of 16,384 slots with a lock each, shared by all workers.
//!
//! Thread rule: a worker enters a [`Batch`] before it touches keys and leaves it
//! when it has answered what it read from a socket. Within a batch it locks the
//! slots of one command at a time, all at once. What
//! needs the whole keyspace leaves its own batch, waits until no other worker is
//! in one, and has it alone. Whoever comes later waits behind it (see `locks`).
//!
//! Invariants:
//! 1. Slots are only touched inside a batch, or with all gates held.
//! 2. A worker that waits for locks without end holds none, but those that it was given of the ones
//!    it asked for in one step: workers cannot wait for each other in a circle.
//! 3. The moment of a command is one at which it has its locks.

use crate::access::{Access, Edit, Purpose, View};
use crate::beside::Beside;
use crate::changes::{Change as KeyChange, Interest, Interests, Observer, What};
use crate::database::Database;
use crate::effects::{Effects, Journals};
use crate::evict::Pool;
use crate::hidden::Hidden;
use crate::ids::{DbIndex, Key, KeyHasher, Position};
use crate::locks::fair::{Guard, Lock};
use crate::locks::{Held, Holding, Locks, SlotId, lock, lock_unless};
use crate::moment::Reading;
use crate::policy::Policy;
use crate::residency::ahead::ColdKey;
use crate::residency::{Shelf, Unreadable};
use crate::slot::{Frame, SlotKeys};
use crate::sweep::SweepFrom;
use crate::tour::Ways;
use crate::unsettled::Unsettled;
use crate::waiting::{KeyName, Ticket, Waiter, Waiting};
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use sys::{Clock, Counter, Prng, Stamp, UnixMs};
use value::collection::TypeName;
use value::timers::Epoch;

/// How a keyspace is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many databases.
    pub databases: u32,
    /// How many workers will enter batches; each has a number below this.
    pub workers: usize,
    /// How many of them, the last ones, share no work of the keyspace itself: they are in batches now and then only.
    pub guests: usize,
    /// Seed of the key hash.
    pub hasher: KeyHasher,
    /// Seed of sampling and frequency counting.
    pub seed: u64,
    /// The moment of creation.
    pub now: UnixMs,
}

/// What happened to keys, since the start or the last reset.
#[derive(Debug, Default)]
pub struct Stats {
    /// Reads that found their key.
    pub hits: Counter,
    /// Reads that did not.
    pub misses: Counter,
    /// Keys freed because their time was up.
    pub expired: Counter,
    /// Keys freed because memory was full.
    pub evicted: Counter,
}

/// All keys. Shared by the workers.
pub struct Keyspace {
    databases: Box<[Database]>,
    /// Which database answers to which number; SWAPDB exchanges two.
    pub(crate) numbers: Box<[AtomicU32]>,
    /// The same as far as it is in the journal, for who looks without being in a batch.
    shown_numbers: Box<[AtomicU32]>,
    /// See [`Keyspace::writes`].
    pub(crate) writes: Counter,
    gates: Box<[Gate]>,
    guests: usize,
    pub(crate) hasher: KeyHasher,
    pub(crate) epoch: Epoch,
    policy: Policy,
    stats: Stats,
    /// What evictions have freed by themselves, bytes (see [`Batch::evict`]).
    pub(crate) evicted_bytes: AtomicI64,
    active_expiry: AtomicBool,
    pub(crate) interests: Interests,
    observer: OnceLock<Box<dyn Observer>>,
    waiting: Waiting,
    /// Where effects go.
    pub(crate) journal: Journals,
    /// They go nowhere for now.
    pub(crate) journal_rests: AtomicBool,
    /// Where objects lie that are not in memory.
    pub(crate) shelf: OnceLock<Box<dyn Shelf>>,
    /// Each worker's, on their way.
    effects: Box<[Effects]>,
    /// See [`Keyspace::whole_stamp`].
    pub(crate) whole_stamp: AtomicU64,
    /// Where what concerns no slot was last written (see [`Batch::append_apart`]).
    pub(crate) apart_stamp: AtomicU64,
    has_slow_holder: AtomicBool,
    slow_holders: Mutex<Vec<Holding>>,
    clock: OnceLock<Clock>,
    /// See [`Keyspace::set_reads_seen`].
    pub(crate) are_reads_unseen: AtomicBool,
    /// See [`Keyspace::keep_all`].
    pub(crate) keeps_all: AtomicU8,
    /// See [`Keyspace::remember_beside`].
    pub(crate) beside: Beside,
    /// Of those who go over all slots.
    pub(crate) ways: Ways,
    /// See [`Keyspace::in_the_past`].
    pub(crate) is_in_the_past: AtomicBool,
    pub(crate) hidden: Hidden,
}

/// The moment at which is done what a master wants: it says which keys' time is up, and when, so that here none's is.
pub const NO_TIME_IS_UP: UnixMs = UnixMs(0);

/// Why keys that nobody changes stay where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepsAll {
    /// Writes pause.
    Pause = 1,
    /// A master says what goes.
    Following = 2,
}

/// One worker's gate, on a cache line of its own. It is held during a batch, and
/// by whoever has the keyspace alone.
#[repr(align(64))]
struct Gate(Lock<WorkerState>);

/// What belongs to a worker while it is in a batch.
pub(crate) struct WorkerState {
    random: Cell<u64>,
    pub(crate) sweep_from: Cell<SweepFrom>,
    pub(crate) pool: RefCell<Pool>,
    /// Where compact collections are edited.
    pub(crate) scratch: Cell<Vec<u8>>,
    /// Keys that changed and that somebody waits for.
    ready: RefCell<VecDeque<KeyName>>,
    /// What is to be read for keys that are shadowing (see `residency`).
    pub(crate) shadowed: RefCell<Vec<ColdKey>>,
    pub(crate) unsettled: RefCell<Unsettled>,
}

impl WorkerState {
    fn new(seed: u64) -> WorkerState {
        WorkerState {
            random: Cell::new(seed | 1),
            sweep_from: Cell::default(),
            pool: RefCell::default(),
            scratch: Cell::default(),
            ready: RefCell::default(),
            shadowed: RefCell::default(),
            unsettled: RefCell::default(),
        }
    }
}

impl Keyspace {
    /// An empty keyspace.
    ///
    /// # Panics
    /// Without databases, or workers that are no guests.
    pub fn new(options: Options) -> Keyspace {
        assert!(
            options.databases > 0 && options.workers > options.guests,
            "a keyspace has databases and workers"
        );
        let mut prng = Prng::from_seed(options.seed);
        let gate = |_| Gate(Lock::new(WorkerState::new(prng.next_u64())));
        Keyspace {
            databases: (0..options.databases).map(|_| Database::default()).collect(),
            numbers: (0..options.databases).map(AtomicU32::new).collect(),
            shown_numbers: (0..options.databases).map(AtomicU32::new).collect(),
            writes: Counter::default(),
            gates: (0..options.workers).map(gate).collect(),
            guests: options.guests,
            hasher: options.hasher,
            epoch: Epoch::new(options.now),
            policy: Policy::default(),
            stats: Stats::default(),
            evicted_bytes: AtomicI64::new(0),
            active_expiry: AtomicBool::new(true),
            interests: Interests::default(),
            observer: OnceLock::new(),
            waiting: Waiting::default(),
            journal: Journals::default(),
            journal_rests: AtomicBool::new(false),
            shelf: OnceLock::new(),
            effects: (0..options.workers).map(|_| Effects::default()).collect(),
            whole_stamp: AtomicU64::new(0),
            apart_stamp: AtomicU64::new(0),
            has_slow_holder: AtomicBool::new(false),
            slow_holders: Mutex::default(),
            clock: OnceLock::new(),
            are_reads_unseen: AtomicBool::new(false),
            keeps_all: AtomicU8::new(0),
            beside: Beside::default(),
            ways: Ways::default(),
            is_in_the_past: AtomicBool::default(),
            hidden: Hidden::default(),
        }
    }

    /// How many databases there are.
    pub fn databases(&self) -> u32 {
        self.databases.len() as u32
    }

    /// The memory policy, to be read and changed.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The counts.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// A key with its coordinates.
    #[inline]
    pub fn key<'a>(&self, db: DbIndex, bytes: &'a [u8]) -> Key<'a> {
        self.hasher.key(db, bytes)
    }

    pub(crate) fn position(&self, key: &[u8]) -> Position {
        self.hasher.position(key)
    }

    /// Whether keys are freed when their time is up, or only when they are next
    /// looked at (DEBUG SET-ACTIVE-EXPIRE).
    pub fn set_active_expiry(&self, on: bool) {
        self.active_expiry.store(on, Ordering::Relaxed);
    }

    pub(crate) fn active_expiry(&self) -> bool {
        self.active_expiry.load(Ordering::Relaxed)
    }

    /// Whether, for this reason, keys that nobody changes stay where they are, their time up or memory full. Those whose time is up are
    /// not there for anybody who looks. Batches that begin later keep to it.
    pub fn keep_all(&self, reason: KeepsAll, on: bool) {
        match on {
            true => self.keeps_all.fetch_or(reason as u8, Ordering::Relaxed),
            false => self.keeps_all.fetch_and(!(reason as u8), Ordering::Relaxed),
        };
    }

    /// Names the one who is told of changes, as far as there is interest in them.
    ///
    /// # Panics
    /// If there is one already.
    pub fn set_observer(&self, observer: Box<dyn Observer>) {
        let is_first = self.observer.set(observer).is_ok();
        assert!(is_first, "a keyspace has one observer");
    }

    /// The observer, where it is told of changes before they are in a journal; also while that rests, since what begins ends.
    pub(crate) fn observer_of_groups(&self) -> Option<&dyn Observer> {
        self.journal.get().and(self.observer.get()).map(|observer| &**observer)
    }

    /// Who is interested in changes.
    #[inline]
    pub fn interest(&self) -> Interest {
        self.interests.get()
    }

    /// Switches an interest on or off. [`Interest::WAITING`] follows by itself from who waits.
    pub fn set_interest(&self, flag: Interest, on: bool) {
        self.interests.set(flag, on);
    }

    /// Who waits for keys.
    pub fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    /// A session that has waited for these keys does not any more.
    pub fn stop_waiting(&self, ticket: Ticket, keys: &[KeyName]) {
        self.waiting.remove(ticket, keys, &self.interests);
    }

    pub(crate) fn add_waiter(&self, key: KeyName, waiter: Waiter) {
        self.waiting.add(key, waiter, &self.interests);
    }

    #[inline]
    pub(crate) fn slot_id(&self, key: &Key<'_>) -> SlotId {
        (self.physical(key.db), key.slot)
    }

    #[inline]
    pub(crate) fn keys_of_slot(&self, (physical, slot): SlotId) -> &Lock<SlotKeys> {
        &self.database_at(physical).slot(slot).keys
    }

    /// All gates.
    pub(crate) fn gates(&self) -> impl Iterator<Item = &Lock<WorkerState>> {
        self.gates.iter().map(|gate| &gate.0)
    }

    /// A worker's gate.
    #[cfg(test)]
    pub(crate) fn gate(&self, worker: usize) -> &Lock<WorkerState> {
        &self.gates[worker].0
    }

    /// Whether some batch holds one of these slots, and will for long.
    pub(crate) fn has_slow_holder(&self, slots: &[SlotId]) -> bool {
        self.has_any_slow_holder() && self.slow_holders.lock().iter().any(|holding| holding.has_slot(slots))
    }

    /// Whether some batch holds slots, and will for long.
    pub fn has_any_slow_holder(&self) -> bool {
        self.has_slow_holder.load(Ordering::Relaxed)
    }

    /// Names what is held by batches that will hold it for long. Commands do not wait for it.
    pub fn set_slow_holders(&self, holdings: Vec<Holding>) {
        let mut known = self.slow_holders.lock();
        self.has_slow_holder.store(!holdings.is_empty(), Ordering::Relaxed);
        *known = holdings;
    }

    /// Gives the clock from which the moments of commands come. Without one those are the moments that are given to them.
    ///
    /// # Panics
    /// If there is one already.
    pub fn set_clock(&self, clock: Clock) {
        assert!(self.clock.set(clock).is_ok(), "a keyspace has one clock");
    }

    /// The present moment, which is not before `begun`; [`NO_TIME_IS_UP`] stays what it is.
    #[cold]
    pub(crate) fn moment(&self, begun: UnixMs) -> UnixMs {
        if begun == NO_TIME_IS_UP {
            return begun;
        }
        let clock = self.clock.get().filter(|_| !self.is_in_the_past.load(Ordering::Acquire));
        clock.map_or(begun, |clock| clock.now().max(begun))
    }

    /// The moment of what is done at `now`, for what notes it: the clock's at [`NO_TIME_IS_UP`].
    #[inline]
    pub fn present(&self, now: UnixMs) -> UnixMs {
        match self.clock.get() {
            Some(clock) if now == NO_TIME_IS_UP => clock.now(),
            _ => now,
        }
    }

    pub(crate) fn effects_of(&self, worker: usize) -> &Effects {
        &self.effects[worker]
    }

    /// Enters a batch that is patient: it waits for whatever it needs, however long that takes. For whoever serves no clients. Each
    /// worker has one batch at a time, under its own number.
    #[inline]
    pub fn enter(&self, worker: usize) -> Batch<'_> {
        let mut batch = self.stay_outside(worker);
        batch.is_patient = true;
        batch.gate = Some(lock(&self.gates[worker].0));
        batch.era = self.era();
        batch
    }

    /// Enters a batch when its turn has come, unless `gives_up` says so before, which is asked again and again.
    #[inline]
    pub fn enter_unless(&self, worker: usize, gives_up: impl Fn() -> bool) -> Option<Batch<'_>> {
        let gate = &self.gates[worker].0;
        // Who gives up in the end does so before it stands in line: its thread has others to serve.
        let wait = || if gives_up() { None } else { lock_unless(gate, &gives_up) };
        let gate = gate.try_lock().or_else(wait)?;
        let mut batch = self.stay_outside(worker);
        (batch.gate, batch.era) = (Some(gate), self.era());
        Some(batch)
    }

    /// Enters a batch, unless somebody has the keyspace alone, or waits for that.
    pub fn try_enter(&self, worker: usize) -> Option<Batch<'_>> {
        let gate = self.gates[worker].0.try_lock()?;
        let mut batch = self.stay_outside(worker);
        (batch.gate, batch.era) = (Some(gate), self.era());
        Some(batch)
    }

    /// A batch that is not in the keyspace: no key may be looked at in it.
    pub fn stay_outside(&self, worker: usize) -> Batch<'_> {
        Batch {
            keyspace: self,
            worker,
            is_patient: false,
            leaves_lines_after: None,
            gate: None,
            era: self.era(),
            other_gates: Vec::new(),
            held: RefCell::new(Held::Nothing),
            has_waited: Cell::default(),
            reading: Reading::default(),
            seen: Cell::default(),
            appended: Cell::default(),
            has_exchanged: Cell::default(),
            unreadable: RefCell::default(),
            passed: Cell::default(),
        }
    }

    pub(crate) fn frame(&self) -> Frame<'_> {
        Frame { hasher: &self.hasher, epoch: self.epoch }
    }

    pub(crate) fn physical(&self, db: DbIndex) -> u32 {
        self.numbers[db.0 as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn database(&self, db: DbIndex) -> &Database {
        &self.databases[self.physical(db) as usize]
    }

    pub(crate) fn database_at(&self, physical: u32) -> &Database {
        &self.databases[physical as usize]
    }

    /// The database that answers to a number as far as the journal knows.
    pub(crate) fn shown_database(&self, db: DbIndex) -> &Database {
        self.database_at(self.shown_numbers[db.0 as usize].load(Ordering::Acquire))
    }

    /// Shows which database answers to which number. That is in the journal, and the keyspace is held still.
    pub(crate) fn show_numbers(&self) {
        for (shown, number) in self.shown_numbers.iter().zip(&self.numbers) {
            shown.store(number.load(Ordering::Relaxed), Ordering::Release);
        }
    }

    /// Exchanges two databases. The caller has the keyspace alone.
    pub(crate) fn exchange(&self, one: DbIndex, other: DbIndex) {
        let (a, b) = (self.physical(one), self.physical(other));
        self.numbers[one.0 as usize].store(b, Ordering::Relaxed);
        self.numbers[other.0 as usize].store(a, Ordering::Relaxed);
    }
}

/// A worker's stay in the keyspace, during which it runs commands.
pub struct Batch<'k> {
    pub(crate) keyspace: &'k Keyspace,
    pub(crate) worker: usize,
    /// It may wait for what it cannot give up.
    pub(crate) is_patient: bool,
    /// What it can give up it gives up when it has waited for so long.
    pub(crate) leaves_lines_after: Option<Duration>,
    pub(crate) gate: Option<Guard<'k, WorkerState>>,
    /// In which it was entered (see [`Batch::begin_era`]).
    pub(crate) era: u64,
    /// Those of the other workers, while the whole keyspace is held.
    pub(crate) other_gates: Vec<Guard<'k, WorkerState>>,
    pub(crate) held: RefCell<Held>,
    /// It had to wait for locks.
    pub(crate) has_waited: Cell<bool>,
    pub(crate) reading: Reading,
    /// The latest stamp of what was looked at.
    pub(crate) seen: Cell<Stamp>,
    /// The latest stamp that it was given for what it has appended.
    pub(crate) appended: Cell<Stamp>,
    /// Databases were exchanged, which is not in the journal yet.
    pub(crate) has_exchanged: Cell<bool>,
    pub(crate) unreadable: RefCell<Option<Unreadable>>,
    /// How often something was unreadable.
    pub(crate) passed: Cell<u64>,
}

impl<'k> Batch<'k> {
    /// The keyspace.
    pub fn keyspace(&self) -> &'k Keyspace {
        self.keyspace
    }

    /// Whether the batch is in the keyspace (see [`Keyspace::stay_outside`] and [`Batch::try_hold_all`]).
    pub fn is_inside(&self) -> bool {
        self.gate.is_some()
    }

    /// Locks the slots of the keys given, to be read. For a patient batch, or one that holds them.
    #[inline]
    pub fn view<'b>(&'b self, keys: &[Key<'_>], now: UnixMs, touch: Touch) -> View<'b> {
        self.view_of(self.locks(keys), keys, now, touch)
    }

    /// Locks the slots of the keys given, to be changed. For a patient batch, or one that holds them.
    #[inline]
    pub fn edit<'b>(&'b self, keys: &[Key<'_>], now: UnixMs, touch: Touch) -> Edit<'b> {
        self.edit_of(self.locks_to_change(keys), keys, now, touch, Purpose::Change)
    }

    /// As [`Batch::view`], unless a slow script has one of them.
    #[inline]
    pub fn try_view<'b>(&'b self, keys: &[Key<'_>], now: UnixMs, touch: Touch) -> Option<View<'b>> {
        self.try_locks(keys).map(|locks| self.view_of(locks, keys, now, touch))
    }

    /// As [`Batch::edit`], unless a slow script has one of them.
    #[inline]
    pub fn try_edit<'b>(&'b self, keys: &[Key<'_>], now: UnixMs, touch: Touch) -> Option<Edit<'b>> {
        self.try_locks_to_change(keys).map(|locks| self.edit_of(locks, keys, now, touch, Purpose::Change))
    }

    /// As [`Batch::try_edit`], for a command that gives each of these keys a value by [`Edit::set`], with an expiry of its own or
    /// none, and does nothing else to them. What is on disk only is not read for that.
    #[inline]
    pub fn try_replace<'b>(&'b self, keys: &[Key<'_>], now: UnixMs, touch: Touch) -> Option<Edit<'b>> {
        self.try_locks_to_change(keys).map(|locks| self.edit_of(locks, keys, now, touch, Purpose::Replace))
    }

    #[inline]
    fn view_of<'b>(&'b self, locks: Locks<'b>, keys: &[Key<'_>], now: UnixMs, touch: Touch) -> View<'b> {
        let now = self.moment_under(&locks, now);
        let mut access = Access::new(self, locks, now, touch);
        access.only_looks = true;
        if self.keyspace.has_shelf() {
            access.admit(keys, Purpose::Read);
        }
        View { access }
    }

    #[inline]
    fn edit_of<'b>(
        &'b self,
        locks: Locks<'b>,
        keys: &[Key<'_>],
        now: UnixMs,
        touch: Touch,
        purpose: Purpose,
    ) -> Edit<'b> {
        let now = self.moment_under(&locks, now);
        let mut access = Access::new(self, locks, now, touch);
        if self.keyspace.has_shelf() {
            access.admit(keys, purpose);
        }
        Edit { access }
    }

    /// The moment of what runs under these locks. Under its batch's it is that of all that runs under them.
    #[inline]
    fn moment_under(&self, locks: &Locks<'_>, begun: UnixMs) -> UnixMs {
        if let Locks::OfBatch = locks {
            return begun;
        }
        self.reach_moment();
        self.moment(begun)
    }

    /// Runs `work` with the whole keyspace locked. For a patient batch, or one that holds it.
    pub fn exclusively<T>(
        &mut self,
        now: UnixMs,
        touch: Touch,
        work: impl FnOnce(&mut Exclusive<'_>) -> T,
    ) -> T {
        let is_held = self.holds_all();
        let mut now = now;
        if !is_held {
            self.hold_all();
            now = self.moment(now);
        }
        let mut exclusive = Exclusive { batch: self, now, touch, to_free: Vec::new() };
        let result = work(&mut exclusive);
        let to_free = exclusive.to_free;
        // What became ready is served before anyone else gets in.
        if !is_held && !self.has_ready() {
            self.release();
        }
        drop(to_free);
        result
    }

    /// Tells the observer of changes, while their slots are locked.
    pub(crate) fn tell(&self, changes: &[KeyChange]) {
        if let Some(observer) = self.keyspace.observer.get().filter(|_| !changes.is_empty()) {
            observer.observe(self.worker, changes);
        }
    }

    /// Notes which of the changed keys somebody waits for. True: there are such.
    pub(crate) fn note_ready(
        &self,
        changes: &[KeyChange],
        type_now: impl Fn(&Key<'_>) -> Option<TypeName>,
    ) -> bool {
        let ready = &self.state().ready;
        for change in changes.iter().filter(|change| !matches!(change.what, What::Event(..))) {
            let name = (change.db, change.key.clone());
            let now = type_now(&self.keyspace.key(change.db, &change.key));
            if self.keyspace.waiting.wakes(&name, now) && !ready.borrow().contains(&name) {
                ready.borrow_mut().push_back(name);
            }
        }
        !ready.borrow().is_empty()
    }

    /// The same for every key of a database that somebody waits for, after all of
    /// the database changed.
    pub(crate) fn note_ready_of(&self, db: DbIndex, type_now: impl Fn(&Key<'_>) -> Option<TypeName>) {
        let changed = self.keyspace.waiting.keys_of(db).into_iter();
        let changes: Vec<KeyChange> =
            changed.map(|(db, key)| KeyChange { db, key, what: What::Modified }).collect();
        self.note_ready(&changes, type_now);
    }

    /// Tells the observer that all of a database is about to change.
    pub(crate) fn tell_database(&self, db: DbIndex, is_there: &dyn Fn(&[u8]) -> bool) {
        if let Some(observer) = self.keyspace.observer.get() {
            observer.observe_database(self.worker, db, is_there);
        }
    }

    /// Whether a key that somebody waits for has changed. Its slot is held until the
    /// batch's owner has served who waits and calls [`Batch::release`].
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.state().ready.borrow().is_empty()
    }

    /// Leaves keys for later that could not be held to serve who waits for them: this batch has such keys again, or the next.
    pub fn put_off(&self, names: Vec<KeyName>) {
        self.state().ready.borrow_mut().extend(names);
    }

    /// Takes the first such key of those that are held, or else the first of all.
    pub fn next_ready(&self) -> Option<KeyName> {
        let mut ready = self.state().ready.borrow_mut();
        let is_held = |(db, bytes): &KeyName| self.holds(&[self.keyspace.key(*db, bytes)]);
        let first = ready.iter().position(is_held).unwrap_or(0);
        ready.remove(first)
    }

    /// Bytes of memory that slots, tables and timers take, objects not counted
    /// (MEMORY STATS). Locks every slot that has keys for a moment; those that somebody has are left out. A batch that is outside
    /// of the keyspace looks into none: the slots alone are counted.
    pub fn overhead_bytes(&self) -> usize {
        self.keyspace.databases.iter().map(|database| self.overhead_of(database)).sum()
    }

    /// The part of [`Batch::overhead_bytes`] that is one database's.
    pub fn overhead_bytes_of(&self, db: DbIndex) -> usize {
        self.overhead_of(self.keyspace.database(db))
    }

    fn overhead_of(&self, database: &Database) -> usize {
        database.fixed_bytes() + if self.is_inside() { database.table_bytes() } else { 0 }
    }

    /// This worker's number, and how many there are that share the keyspace's own work.
    pub(crate) fn share(&self) -> (usize, usize) {
        (self.worker, self.keyspace.gates.len() - self.keyspace.guests)
    }

    pub(crate) fn state(&self) -> &WorkerState {
        self.gate.as_ref().expect("a batch holds its gate")
    }

    /// Random bits, for sampling and for frequencies (xorshift64; Marsaglia, 2003).
    #[inline]
    pub(crate) fn random(&self) -> u64 {
        let cell = &self.state().random;
        let mut x = cell.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        cell.set(x);
        x
    }
}

/// The keyspace with all workers kept out.
pub struct Exclusive<'b> {
    pub(crate) batch: &'b Batch<'b>,
    now: UnixMs,
    touch: Touch,
    to_free: Vec<Cleared>,
}

/// A moment at which no key's time is up.
pub(crate) const BEFORE_ALL: UnixMs = UnixMs(0);

impl<'b> Exclusive<'b> {
    /// Frees keys when other workers have been let in again, before the command answers.
    pub fn free_afterwards(&mut self, cleared: Vec<Cleared>) {
        self.to_free.extend(cleared);
    }

    /// As [`Batch::len`].
    pub fn len(&self, db: DbIndex) -> u64 {
        self.batch.len(db)
    }

    /// As [`Batch::is_empty`].
    pub fn is_empty(&self, db: DbIndex) -> bool {
        self.batch.is_empty(db)
    }

    /// As [`Batch::expiring`].
    pub fn expiring(&self, db: DbIndex) -> u64 {
        self.batch.expiring(db)
    }

    /// Calls `visit` for every key of a database, expired ones left out.
    pub fn for_each(&self, db: DbIndex, visit: impl FnMut(crate::object::Object<'_>)) {
        self.batch.for_each_held(db, self.now, visit);
    }

    /// As [`Batch::take_unreadable`].
    pub fn take_unreadable(&self) -> Option<Unreadable> {
        self.batch.take_unreadable()
    }

    /// As [`Batch::take_passed`].
    pub fn take_passed(&self) -> u64 {
        self.batch.take_passed()
    }

    /// Every key, to be read.
    pub fn view(&mut self) -> View<'_> {
        View { access: Access::new(self.batch, Locks::OfBatch, self.now, self.touch) }
    }

    /// Every key, to be changed.
    pub fn edit(&mut self) -> Edit<'_> {
        Edit { access: Access::new(self.batch, Locks::OfBatch, self.now, self.touch) }
    }

    /// SWAPDB: exchanges two databases.
    pub fn swap(&mut self, one: DbIndex, other: DbIndex) {
        let is_there = |db: DbIndex, key: &[u8]| self.type_of(&self.batch.keyspace.key(db, key)).is_some();
        for db in [one, other] {
            self.batch.tell_database(db, &|key| is_there(one, key) || is_there(other, key));
        }
        self.batch.keyspace.exchange(one, other);
        self.batch.keyspace.hidden.note_upheaval();
        self.batch.has_exchanged.set(true);
        for db in [one, other] {
            self.batch.note_ready_of(db, |key| self.type_of(key));
        }
    }

    /// What a key holds. One whose time is up stays where it is: here databases are between two numbers, and its end cannot be told
    /// under either.
    pub(crate) fn type_of(&self, key: &Key<'_>) -> Option<TypeName> {
        let view = View { access: Access::new(self.batch, Locks::OfBatch, BEFORE_ALL, Touch::No) };
        let object = view.peek(key).filter(|object| !object.is_expired(self.now));
        let found = object.map(|object| object.value().type_name());
        // Whoever asks for the key itself is told.
        self.batch.take_unreadable();
        found
    }

    /// Takes all keys of a database away. Dropping what is returned frees them,
    /// which may take long and needs no lock.
    pub fn clear(&mut self, db: DbIndex) -> Cleared {
        self.batch.tell_database(db, &|key| self.type_of(&self.batch.keyspace.key(db, key)).is_some());
        let cleared = self.clear_before(db, Stamp::LAST);
        self.batch.note_ready_of(db, |_| None);
        cleared
    }
}

/// Keys taken out of a database by [`Exclusive::clear`].
pub struct Cleared {
    pub(crate) slots: Vec<SlotKeys>,
}

impl Cleared {
    /// How many keys there are.
    pub fn keys(&self) -> u64 {
        self.slots.iter().map(|slot| slot.table().len() as u64).sum()
    }
}

/// Whether looking at a key counts as using it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// It does: the access clock is set.
    Yes,
    /// It does not (TTL, OBJECT ...).
    No,
    /// It does not, and neither does giving it another value (CLIENT NO-TOUCH).
    Never,
}
