//! What a handler gets: the slots of its keys, locked, as a [`View`] to read or
//! an [`Edit`] to change.
//!
//! A key whose time is up is not there for either. It stays in place, so that
//! references stay good, until it is overwritten or the access ends; then it is
//! freed. It is noted in `expired`, for the log and for those who watch.

#![allow(unsafe_code)] // Reaches slots without their locks when it has the keyspace alone.

use crate::clock;
use crate::ids::{DbIndex, Key, Slot};
use crate::keyspace::{Batch, Keyspace, Touch};
use crate::object::{Detached, NewValue, Object, ValueRef};
use crate::slot::{Change, SlotKeys};
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use std::cell::RefCell;
use sys::UnixMs;

/// Keys of most multi-key commands; beyond, the list of locks is allocated.
const LOCKS_INLINE: usize = 4;

/// A slot as the order of locking knows it: physical database, then slot.
type SlotId = (u32, Slot);

/// The locks of one command.
pub(crate) enum Locks<'b> {
    /// Of a command with one key.
    One(SlotId, MutexGuard<'b, SlotKeys>),
    /// Of several, in ascending order.
    Many(SmallVec<[(SlotId, MutexGuard<'b, SlotKeys>); LOCKS_INLINE]>),
    /// None: the keyspace is had alone.
    All,
}

impl<'b> Locks<'b> {
    #[inline]
    pub(crate) fn of(keyspace: &'b Keyspace, keys: &[Key<'_>]) -> Locks<'b> {
        match keys {
            [key] => {
                let physical = keyspace.physical(key.db);
                Locks::One((physical, key.slot), keyspace.database_at(physical).slot(key.slot).keys.lock())
            }
            keys => Locks::of_many(keyspace, keys),
        }
    }

    fn of_many(keyspace: &'b Keyspace, keys: &[Key<'_>]) -> Locks<'b> {
        let mut ids: SmallVec<[SlotId; 16]> =
            keys.iter().map(|key| (keyspace.physical(key.db), key.slot)).collect();
        ids.sort_unstable();
        ids.dedup();
        let lock = |id: SlotId| (id, keyspace.database_at(id.0).slot(id.1).keys.lock());
        Locks::Many(ids.into_iter().map(lock).collect())
    }
}

/// Locked slots, at one moment.
pub(crate) struct Access<'b> {
    batch: &'b Batch<'b>,
    locks: Locks<'b>,
    now: UnixMs,
    touch: Touch,
    /// Keys found expired and not freed yet.
    expired: RefCell<Vec<ExpiredKey>>,
}

/// A key whose time was up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExpiredKey {
    /// Its database.
    pub db: DbIndex,
    /// Its bytes.
    pub key: Box<[u8]>,
}

impl<'b> Access<'b> {
    #[inline]
    pub(crate) fn new(batch: &'b Batch<'b>, locks: Locks<'b>, now: UnixMs, touch: Touch) -> Access<'b> {
        Access { batch, locks, now, touch, expired: RefCell::default() }
    }

    /// Frees what was found expired and tells which keys those were.
    #[inline]
    fn finish(mut self) -> Vec<ExpiredKey> {
        if self.expired.get_mut().is_empty() { Vec::new() } else { self.finish_expired() }
    }

    #[cold]
    fn finish_expired(mut self) -> Vec<ExpiredKey> {
        let mut expired = self.expired.take();
        // A key may have been looked at more than once.
        expired.sort_unstable();
        expired.dedup();
        self.free_expired(&expired);
        expired
    }

    fn free_expired(&mut self, expired: &[ExpiredKey]) {
        for ExpiredKey { db, key } in expired {
            let key = self.keyspace().key(*db, key);
            self.remove_if(&key, |object, now| object.is_expired(now));
        }
        self.keyspace().stats().expired.add(expired.len() as i64);
    }

    fn remove_if(&mut self, key: &Key<'_>, condition: impl FnOnce(Object<'_>, UnixMs) -> bool) {
        let (frame, now) = (self.keyspace().frame(), self.now);
        self.change(key, |slot| match slot.find(key) {
            Some(place) if condition(slot.object(place), now) => slot.remove(frame, place),
            _ => Change::default(),
        });
    }

    fn keyspace(&self) -> &'b Keyspace {
        self.batch.keyspace
    }

    #[inline]
    fn slot(&self, key: &Key<'_>) -> &SlotKeys {
        match &self.locks {
            Locks::One(id, keys) => {
                debug_assert_eq!(
                    *id,
                    self.slot_id(key),
                    "a handler only touches the key that its row declares"
                );
                keys
            }
            Locks::Many(locks) => &locks[self.lock_index(key)].1,
            // SAFETY: all gates are held, so no other thread touches slots, and
            // the borrow of `self` keeps this one from changing the slot.
            Locks::All => unsafe { &*self.keyspace().database(key.db).slot(key.slot).keys.data_ptr() },
        }
    }

    #[inline]
    fn slot_mut(&mut self, key: &Key<'_>) -> &mut SlotKeys {
        if let Locks::Many(_) = self.locks {
            let index = self.lock_index(key);
            let Locks::Many(locks) = &mut self.locks else { unreachable!("matched above") };
            return &mut locks[index].1;
        }
        let keyspace = self.keyspace();
        match &mut self.locks {
            Locks::One(_, keys) => keys,
            // SAFETY: as in `slot`; the borrow of `self` is exclusive.
            _ => unsafe { &mut *keyspace.database(key.db).slot(key.slot).keys.data_ptr() },
        }
    }

    fn slot_id(&self, key: &Key<'_>) -> SlotId {
        (self.keyspace().physical(key.db), key.slot)
    }

    fn lock_index(&self, key: &Key<'_>) -> usize {
        let Locks::Many(locks) = &self.locks else { unreachable!("only lists of locks are searched") };
        let id = (self.keyspace().physical(key.db), key.slot);
        locks
            .binary_search_by_key(&id, |(id, _)| *id)
            .expect("a handler only touches keys that its row declares")
    }

    /// Changes a slot and books what changed.
    #[inline]
    fn change<T: Booked>(&mut self, key: &Key<'_>, work: impl FnOnce(&mut SlotKeys) -> T) -> T {
        let keyspace = self.keyspace();
        let slot = self.slot_mut(key);
        let result = work(slot);
        keyspace.database(key.db).note(key.slot, slot, result.change());
        result
    }

    /// Looks a key up without counting; expired keys are noted and not found.
    #[inline]
    fn find(&self, key: &Key<'_>) -> Option<(crate::table::Place, Object<'_>)> {
        let slot = self.slot(key);
        let place = slot.find(key)?;
        let object = slot.object(place);
        if object.is_expired(self.now) {
            self.note_expired(key);
            return None;
        }
        Some((place, object))
    }

    #[cold]
    fn note_expired(&self, key: &Key<'_>) {
        let key = ExpiredKey { db: key.db, key: key.bytes.into() };
        self.expired.borrow_mut().push(key);
    }

    /// The object's clock after this access, if it changes.
    #[inline]
    fn touched(&self, object: Object<'_>) -> Option<u32> {
        let clock = clock_after_use(self.batch, self.touch, object, self.now);
        (clock != object.clock()).then_some(clock)
    }

    fn fresh_clock(&self) -> u32 {
        clock::fresh(self.keyspace().policy(), self.now)
    }
}

/// An object's clock once it has been used.
#[inline]
fn clock_after_use(batch: &Batch<'_>, touch: Touch, object: Object<'_>, now: UnixMs) -> u32 {
    if touch == Touch::No {
        return object.clock();
    }
    let random = || (batch.random() >> 11) as f64 / (1u64 << 53) as f64;
    clock::touched(object.clock(), batch.keyspace.policy(), now, random)
}

/// The clock of a new value: a key that is given one keeps its frequency.
#[inline]
fn clock_after_set(batch: &Batch<'_>, touch: Touch, old: Object<'_>, now: UnixMs, fresh: u32) -> u32 {
    match batch.keyspace.policy().eviction().counts_frequency() {
        true => clock_after_use(batch, touch, old, now),
        false => fresh,
    }
}

/// Results that carry a change of counts.
trait Booked {
    fn change(&self) -> Change;
}

impl Booked for Change {
    #[inline]
    fn change(&self) -> Change {
        *self
    }
}

impl<T> Booked for (T, Change) {
    fn change(&self) -> Change {
        self.1
    }
}

/// Locked keys for reading.
pub struct View<'b> {
    pub(crate) access: Access<'b>,
}

impl View<'_> {
    /// A key's object. Counts as a use of the key and as a hit or a miss.
    #[inline]
    pub fn get(&self, key: &Key<'_>) -> Option<Object<'_>> {
        let stats = self.access.keyspace().stats();
        let Some((_, object)) = self.access.find(key) else {
            stats.misses.add(1);
            return None;
        };
        stats.hits.add(1);
        if let Some(clock) = self.access.touched(object) {
            object.set_clock(clock);
        }
        Some(object)
    }

    /// A key's object, without counting as a use, a hit or a miss.
    pub fn peek(&self, key: &Key<'_>) -> Option<Object<'_>> {
        self.access.find(key).map(|(_, object)| object)
    }

    /// Ends the access: unlocks, and tells which keys were found expired.
    #[inline]
    pub fn finish(self) -> Vec<ExpiredKey> {
        self.access.finish()
    }
}

/// What happens to a key's expiry when its value is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It stays.
    Keep,
    /// It goes away.
    Clear,
    /// It becomes this.
    At(UnixMs),
}

/// Locked keys for changing.
pub struct Edit<'b> {
    pub(crate) access: Access<'b>,
}

impl Edit<'_> {
    /// A key's object. Counts as a use of the key.
    #[inline]
    pub fn get(&self, key: &Key<'_>) -> Option<Object<'_>> {
        let (_, object) = self.access.find(key)?;
        if let Some(clock) = self.access.touched(object) {
            object.set_clock(clock);
        }
        Some(object)
    }

    /// Counts a read of a key by a command that also writes, as a hit or a miss.
    pub fn count_read(&self, found: bool) {
        let stats = self.access.keyspace().stats();
        if found { stats.hits.add(1) } else { stats.misses.add(1) }
    }

    /// Makes a key or gives it a new value. With [`Expiry::Keep`] a new key has none.
    #[inline]
    pub fn set(&mut self, key: &Key<'_>, value: NewValue<'_>, expiry: Expiry) {
        let Ok(()) = self.update(key, |_| Ok::<_, std::convert::Infallible>((value, expiry)));
    }

    /// Makes a key or gives it a new value that `decide` finds from the object that
    /// is there, with one search for the key. If it fails, nothing changes.
    #[inline]
    pub fn update<'v, E>(
        &mut self,
        key: &Key<'_>,
        decide: impl FnOnce(Option<Object<'_>>) -> Result<(NewValue<'v>, Expiry), E>,
    ) -> Result<(), E> {
        let (frame, now, fresh) =
            (self.access.keyspace().frame(), self.access.now, self.access.fresh_clock());
        let (batch, touch) = (self.access.batch, self.access.touch);
        let mut was_expired = false;
        let mut result = Ok(());
        self.access.change(key, |slot| {
            let place = slot.find(key);
            let there = place.map(|place| slot.object(place));
            let old = there.filter(|object| !object.is_expired(now));
            was_expired = there.is_some() && old.is_none();
            let (value, expiry) = match decide(old) {
                Ok(decided) => decided,
                Err(error) => {
                    result = Err(error);
                    return Change::default();
                }
            };
            let (kept, clock) = match old {
                Some(old) => (old.expires_at(), clock_after_set(batch, touch, old, now, fresh)),
                None => (None, fresh),
            };
            match place {
                Some(place) => slot.replace(frame, place, key, value, resolve(expiry, kept), clock),
                None => slot.insert(frame, key, value, resolve(expiry, None), fresh),
            }
        });
        if was_expired {
            self.access.note_expired(key);
        }
        result
    }

    /// Takes a key away and frees it. False: it was not there.
    pub fn remove(&mut self, key: &Key<'_>) -> bool {
        self.take(key).is_some()
    }

    /// Takes a key away and gives its object to the caller.
    pub fn take(&mut self, key: &Key<'_>) -> Option<Detached> {
        let (place, _) = self.access.find(key)?;
        let frame = self.access.keyspace().frame();
        Some(self.access.change(key, |slot| slot.take(frame, place)).0)
    }

    /// Puts an object that was taken under a key, in place of what is there.
    pub fn put(&mut self, key: &Key<'_>, detached: Detached, expires_at: Option<UnixMs>) {
        let frame = self.access.keyspace().frame();
        self.access.remove_if(key, |_, _| true);
        self.access.change(key, |slot| slot.adopt(frame, key, detached, expires_at));
    }

    /// Sets or takes away the expiry of a key. False: the key is not there.
    pub fn set_expiry(&mut self, key: &Key<'_>, expires_at: Option<UnixMs>) -> bool {
        let frame = self.access.keyspace().frame();
        let Some((place, _)) = self.access.find(key) else { return false };
        self.access.change(key, |slot| slot.set_expiry(frame, place, key, expires_at));
        true
    }

    /// A string's bytes, `len` of them, to be edited: a key that is not there is
    /// made, a shorter string is filled up with zero bytes, a longer one cut. The
    /// encoding becomes "raw"; the expiry stays.
    pub fn bytes_mut(&mut self, key: &Key<'_>, len: usize) -> &mut [u8] {
        let place = self.access.find(key).map(|(place, _)| place);
        if !place.is_some_and(|place| self.access.slot_mut(key).resize(place, len)) {
            let mut bytes = vec![0; len];
            if let Some((_, object)) = self.access.find(key) {
                copy_string(object.value(), &mut bytes);
            }
            self.set(key, NewValue::Edited(&bytes), Expiry::Keep);
        }
        let (place, _) = self.access.find(key).expect("the key was found or made above");
        self.access.slot_mut(key).bytes_mut(place).expect("the string was made raw above")
    }

    /// Sets a key's access clock from an idle time or a frequency (RESTORE).
    pub fn set_usage(&mut self, key: &Key<'_>, usage: Usage) {
        let now = self.access.now;
        if let Some((_, object)) = self.access.find(key) {
            object.set_clock(match usage {
                Usage::IdleSeconds(seconds) => clock::of_idle_seconds(seconds, now),
                Usage::Frequency(frequency) => clock::of_frequency(frequency, now),
            });
        }
    }

    /// Ends the access: unlocks, and tells which keys were found expired.
    #[inline]
    pub fn finish(self) -> Vec<ExpiredKey> {
        self.access.finish()
    }
}

/// How much a key was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// Last used so many seconds ago (LRU policies).
    IdleSeconds(u64),
    /// The logarithmic counter (LFU policies).
    Frequency(u8),
}

#[inline]
fn resolve(expiry: Expiry, kept: Option<UnixMs>) -> Option<UnixMs> {
    match expiry {
        Expiry::Keep => kept,
        Expiry::Clear => None,
        Expiry::At(at) => Some(at),
    }
}

/// Copies as much of a string as fits.
fn copy_string(value: ValueRef<'_>, into: &mut [u8]) {
    let mut digits = itoa::Buffer::new();
    let bytes = match value {
        ValueRef::Int(number) => digits.format(number).as_bytes(),
        ValueRef::Bytes(bytes) => bytes,
    };
    let len = bytes.len().min(into.len());
    into[..len].copy_from_slice(&bytes[..len]);
}
