//! What a handler gets: the slots of its keys, locked, as a [`View`] to read or
//! an [`Edit`] to change.
//!
//! A key whose time is up is not there for either. It stays in place, so that
//! references stay good, until it is overwritten or the access ends; then it is
//! freed. It is noted in `expired`, for the log and for those who watch.
//!
//! An access that is dropped ends as one that is finished: what was found expired under it, or said, is in the journal before
//! its slots are let go.

#![allow(unsafe_code)] // Reaches slots without their locks when it has the keyspace alone.

mod cold;
mod ending;
mod expired;
mod locked;
mod quiet;
mod removing;

pub use cold::Purpose;
pub use expired::ExpiredKey;

use crate::changes::{Change as KeyChange, Class, Interest, What};
use crate::clock;
use crate::ids::{DbIndex, Key};
use crate::keyspace::{Batch, Keyspace, NO_TIME_IS_UP, Touch};
use crate::locks::Locks;
use crate::object::{Detached, NewValue, Object, ValueRef};
use crate::opened::{Opened, Whole, WrongType};
use crate::policy::Removal;
use crate::slot::{Change, SlotKeys};
use crate::table::Place;
use crate::waiting::{KeyName, Ticket};
use expired::ExpiredKeys;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use sys::UnixMs;
use value::collection::{Collection, Form, Type, TypeName};
use wire::Request;

/// Locked slots, at one moment. It is handed on several times for each command, and small so that this costs little.
pub(crate) struct Access<'b> {
    batch: &'b Batch<'b>,
    locks: Locks<'b>,
    now: UnixMs,
    touch: Touch,
    interest: Interest,
    /// What most accesses do not have.
    noted: OnceCell<Box<Noted>>,
    /// Whether keys were left on disk that are given values.
    is_blind: bool,
    /// Nothing is changed under it.
    pub(crate) only_looks: bool,
    /// It has not been finished.
    is_open: bool,
}

/// What an access found on its way, or did, that matters to others.
#[derive(Default)]
struct Noted {
    /// Keys found expired and not freed yet.
    expired: RefCell<ExpiredKeys>,
    /// What changed, as far as anybody is interested.
    changes: RefCell<Vec<KeyChange>>,
    /// Objects that are on disk only, read to be looked at.
    lent: RefCell<Lent>,
}

/// What an access was lent: each object once, however often it is looked at.
#[derive(Default)]
struct Lent {
    objects: HashMap<KeyName, Detached>,
    /// What they take.
    bytes: usize,
}

impl Noted {
    /// Whether there is something to free, or to tell.
    fn is_to_end(&self) -> bool {
        !self.expired.borrow().is_empty() || !self.changes.borrow().is_empty()
    }
}

impl<'b> Access<'b> {
    #[inline]
    pub(crate) fn new(batch: &'b Batch<'b>, locks: Locks<'b>, now: UnixMs, touch: Touch) -> Access<'b> {
        // Read under the locks: whoever has seen a key before this is registered by now.
        let mut interest = batch.keyspace.interest();
        // What a master writes is not beside it.
        interest.set(Interest::BESIDE, interest.contains(Interest::BESIDE) && now != NO_TIME_IS_UP);
        batch.see_locked(&locks);
        debug_assert!(
            matches!(locks, Locks::OfBatch) || !batch.has_effects(),
            "what was said before is in the journal before other slots are locked"
        );
        let (is_blind, only_looks, is_open) = (false, false, true);
        let noted = OnceCell::new();
        Access { batch, locks, now, touch, interest, noted, is_blind, only_looks, is_open }
    }

    fn noted(&self) -> &Noted {
        self.noted.get_or_init(Box::default)
    }

    /// Whether there is something to free, or to tell.
    #[inline]
    fn has_to_end(&self) -> bool {
        self.noted.get().is_some_and(|noted| noted.is_to_end())
    }

    /// Notes that a key is not what it was.
    #[inline]
    pub(crate) fn note_modified(&self, key: &Key<'_>) {
        self.note_change(key, What::Modified);
    }

    #[inline]
    fn note_change(&self, key: &Key<'_>, what: What) {
        const WHO: Interest =
            Interest::WATCHED.union(Interest::TRACKED).union(Interest::WAITING).union(Interest::BESIDE);
        if self.interest.intersects(WHO) {
            self.note(key, what);
        }
    }

    /// Notes that whoever waits for the key has to look again.
    pub(crate) fn note_for_waiters(&self, key: &Key<'_>) {
        if self.interest.contains(Interest::WAITING) {
            self.note(key, What::Ready);
        }
    }

    /// Notes an event.
    #[inline]
    pub(crate) fn note_event(&self, class: Class, event: &'static str, key: &Key<'_>) {
        if self.interest.contains(Interest::EVENTS) {
            self.note(key, What::Event(class, event));
        }
    }

    #[cold]
    fn note(&self, key: &Key<'_>, what: What) {
        let mut changes = self.noted().changes.borrow_mut();
        let is_said = |last: &KeyChange| last.what == what && last.db == key.db && *last.key == *key.bytes;
        if what != What::Modified || !changes.last().is_some_and(is_said) {
            changes.push(KeyChange { db: key.db, key: key.bytes.into(), what });
        }
    }

    fn remove_if(&mut self, key: &Key<'_>, condition: impl FnOnce(Object<'_>, UnixMs) -> bool) {
        let (frame, now) = (self.keyspace().frame(), self.now);
        self.change(key, |slot| match slot.find(key) {
            Some(place) if slot.object(place).is_shadowing() || !condition(slot.object(place), now) => {
                // What is shadowing could not be read.
                Change::default()
            }
            Some(place) => slot.remove(frame, place),
            None => Change::default(),
        });
    }

    fn keyspace(&self) -> &'b Keyspace {
        self.batch.keyspace
    }

    #[inline]
    fn slot(&self, key: &Key<'_>) -> &SlotKeys {
        debug_assert!(self.reaches(key), "a handler only touches what is locked for it");
        match &self.locks {
            Locks::One(id, keys) => {
                debug_assert_eq!(
                    *id,
                    self.keyspace().slot_id(key),
                    "a handler only touches the key that its row declares"
                );
                keys
            }
            Locks::Many(locks) => &locks[self.lock_index(key)].1,
            // SAFETY: the batch holds the slot or all gates, so no other thread touches it, and
            // the borrow of `self` keeps this one from changing it.
            Locks::OfBatch => unsafe { &*self.keyspace().database(key.db).slot(key.slot).keys.data_ptr() },
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

    fn lock_index(&self, key: &Key<'_>) -> usize {
        let Locks::Many(locks) = &self.locks else { unreachable!("only lists of locks are searched") };
        let id = self.keyspace().slot_id(key);
        locks
            .binary_search_by_key(&id, |(id, _)| *id)
            .expect("a handler only touches keys that its row declares")
    }

    /// Changes a slot and books what changed.
    #[inline]
    fn change<T: Booked>(&mut self, key: &Key<'_>, work: impl FnOnce(&mut SlotKeys) -> T) -> T {
        let (batch, id) = (self.batch, self.keyspace().slot_id(key));
        let slot = self.slot_mut(key);
        let result = work(slot);
        batch.note(id, slot, result.change());
        result
    }

    /// Looks a key up without counting; expired keys are noted and not found.
    #[inline]
    fn find(&self, key: &Key<'_>) -> Option<(Place, Object<'_>)> {
        let slot = self.slot(key);
        let found = slot.find(key);
        debug_assert!(found.is_some() || !self.is_blind, "what is replaced unread is not looked at before");
        let place = found?;
        let object = slot.object(place);
        if object.is_expired(self.now) {
            self.note_expired(key);
            return None;
        }
        Some((place, object))
    }

    /// Looks a key up and counts that as a use of it.
    #[inline]
    fn find_and_use(&self, key: &Key<'_>) -> Option<Object<'_>> {
        let object = self.look(key)?;
        self.use_object(object);
        Some(object)
    }

    #[inline]
    fn use_object(&self, object: Object<'_>) {
        if let Some(clock) = self.touched(object) {
            object.set_clock(clock);
        }
        if self.touch == Touch::Yes && self.keyspace().has_shelf() {
            object.note_use();
        }
    }

    /// Counts a read as a hit or a miss.
    #[inline]
    fn count_read(&self, found: bool) {
        let stats = self.keyspace().stats();
        if found { stats.hits.add(1) } else { stats.misses.add(1) }
    }

    /// Notes a key that was found expired: before whatever else happens to it, though it
    /// is freed only afterwards.
    #[cold]
    fn note_expired(&self, key: &Key<'_>) {
        if self.only_looks && !self.batch.may_remove() {
            return;
        }
        // A key may be looked at more than once.
        if self.noted().expired.borrow_mut().add(key) {
            self.batch.add_removal(key.db, self.now, key.bytes, Removal::Expiry);
            self.note_event(Class::EXPIRED, "expired", key);
            self.note_change(key, What::Over);
        }
    }

    /// Whether a key was found expired by this access.
    fn has_noted_expired(&self, key: &Key<'_>) -> bool {
        self.noted.get().is_some_and(|noted| noted.expired.borrow().has(key))
    }

    /// The object's clock after this access, if it changes.
    #[inline]
    fn touched(&self, object: Object<'_>) -> Option<u32> {
        let clock = clock_after_use(self.batch, self.touch, object, self.now);
        (clock != object.clock()).then_some(clock)
    }

    fn fresh_clock(&self) -> u32 {
        clock::fresh(self.keyspace().policy(), self.keyspace().present(self.now))
    }
}

/// For [`Opened`] collections.
impl Access<'_> {
    /// The bytes of a compact collection.
    pub(crate) fn compact_at(&self, key: &Key<'_>, place: Place) -> Option<(Form, &[u8])> {
        self.slot(key).object(place).compact()
    }

    /// A native collection.
    pub(crate) fn native_at(&mut self, key: &Key<'_>, place: Place) -> Option<&mut Collection> {
        self.slot_mut(key).native_mut(place)
    }

    /// Empty space to copy a compact collection to.
    pub(crate) fn take_scratch(&self) -> Vec<u8> {
        self.batch.state().scratch.take()
    }

    /// Gives the space back.
    pub(crate) fn give_scratch(&self, scratch: Option<Vec<u8>>) {
        /// What a worker keeps from one use to the next.
        const KEPT_BYTES_MAX: usize = 64 << 10;
        if let Some(mut scratch) = scratch.filter(|scratch| scratch.capacity() <= KEPT_BYTES_MAX) {
            scratch.clear();
            self.batch.state().scratch.replace(scratch);
        }
    }

    /// Gives a key that is at `place`, or not there, a value that lies in its block. The expiry stays.
    pub(crate) fn store_value(&mut self, key: &Key<'_>, place: Option<Place>, value: NewValue<'_>) {
        let (frame, fresh) = (self.keyspace().frame(), self.fresh_clock());
        let place = self.place_or_free(key, place);
        let clock = self.clock_of_edit(key, place, fresh);
        self.change(key, |slot| match place {
            Some(place) => {
                let expires_at = slot.object(place).expires_at();
                slot.replace(frame, place, key, value, expires_at, clock)
            }
            None => slot.insert(frame, key, value, None, fresh),
        });
    }

    /// The same with a native collection.
    pub(crate) fn store_native(&mut self, key: &Key<'_>, place: Option<Place>, native: Box<Collection>) {
        let (frame, fresh) = (self.keyspace().frame(), self.fresh_clock());
        let place = self.place_or_free(key, place);
        let clock = self.clock_of_edit(key, place, fresh);
        let expires_at = place.and_then(|place| self.slot(key).object(place).expires_at());
        self.change(key, |slot| slot.put_native(frame, place, key, native, expires_at, clock));
    }

    /// The place of a key; one that is expired and still there goes first.
    fn place_or_free(&mut self, key: &Key<'_>, place: Option<Place>) -> Option<Place> {
        if place.is_none() {
            self.remove_if(key, |_, _| true);
        }
        place
    }

    fn clock_of_edit(&self, key: &Key<'_>, place: Option<Place>, fresh: u32) -> u32 {
        match place {
            Some(place) => {
                clock_after_set(self.batch, self.touch, self.slot(key).object(place), self.now, fresh)
            }
            None => fresh,
        }
    }

    /// Notes that the fields of a hash that was edited in place may expire otherwise than before.
    #[inline]
    pub(crate) fn note_fields(&mut self, key: &Key<'_>, place: Option<Place>, before: Option<UnixMs>) {
        let Some(place) = place else { return };
        if before != self.slot(key).object(place).next_field_expiry() {
            let frame = self.keyspace().frame();
            self.change(key, |slot| slot.note_fields(frame, place, key.position, before));
        }
    }

    /// Counts an edit in place as a use of the key.
    pub(crate) fn note_use(&self, key: &Key<'_>, place: Option<Place>) {
        let Some(place) = place else { return };
        self.use_object(self.slot(key).object(place));
    }

    /// Takes away a key that is there.
    pub(crate) fn remove_there(&mut self, key: &Key<'_>) {
        self.remove_if(key, |_, _| true);
    }
}

/// An object's clock once it has been used.
#[inline]
fn clock_after_use(batch: &Batch<'_>, touch: Touch, object: Object<'_>, now: UnixMs) -> u32 {
    if touch != Touch::Yes {
        return object.clock();
    }
    let random = || (batch.random() >> 11) as f64 / (1u64 << 53) as f64;
    clock::touched(object.clock(), batch.keyspace.policy(), now, random)
}

/// The clock of a new value: a key that is given one keeps its frequency.
#[inline]
fn clock_after_set(batch: &Batch<'_>, touch: Touch, old: Object<'_>, now: UnixMs, fresh: u32) -> u32 {
    match batch.keyspace.policy().eviction().counts_frequency() {
        _ if touch == Touch::Never => old.clock(),
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
        let object = self.get_quietly(key);
        if object.is_none() {
            self.access.note_event(Class::MISS, "keymiss", key);
        }
        object
    }

    /// A key's collection of one type. Counts as [`View::get`] does.
    ///
    /// # Errors
    /// The key holds something else.
    pub fn read<C: Type>(&self, key: &Key<'_>) -> Result<Option<C::Ref<'_>>, WrongType> {
        self.get(key).map(|object| object.read::<C>()).transpose()
    }

    /// Queues up a session that waits for these keys (see `waiting`).
    pub fn wait(&self, ticket: Ticket, keys: &[Key<'_>], wants: TypeName, also_when_gone: bool) {
        self.access.wait(ticket, keys, wants, also_when_gone);
    }

    /// The same, but subscribers are not told of a miss.
    #[inline]
    pub fn get_quietly(&self, key: &Key<'_>) -> Option<Object<'_>> {
        let object = self.access.find_and_use(key);
        self.access.count_read(object.is_some());
        object
    }

    /// A key's object, without counting as a use, a hit or a miss.
    pub fn peek(&self, key: &Key<'_>) -> Option<Object<'_>> {
        self.access.look(key)
    }

    /// 64 random bits, which are not secret.
    pub fn random(&self) -> u64 {
        self.access.batch.random()
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

impl<'b> Edit<'b> {
    /// A key's object. Counts as a use of the key.
    #[inline]
    pub fn get(&self, key: &Key<'_>) -> Option<Object<'_>> {
        self.access.find_and_use(key)
    }

    /// A key's object for a command that returns what the key held. Counts as
    /// [`View::get`] does.
    pub fn get_as_reader(&self, key: &Key<'_>) -> Option<Object<'_>> {
        let object = self.get(key);
        self.count_read(key, object.is_some());
        object
    }

    /// Shows a key's object as [`Edit::get_as_reader`] would, for no longer than it is looked at: for more keys than one access may be lent.
    pub fn show_as_reader<R>(&self, key: &Key<'_>, show: impl FnOnce(Option<Object<'_>>) -> R) -> R {
        self.access.show(key, |object| {
            self.count_read(key, object.is_some());
            show(object)
        })
    }

    /// A key's collection of one type, to be read by a command that returns or uses what the key held. Counts as
    /// [`View::get`] does.
    ///
    /// # Errors
    /// The key holds something else.
    pub fn read_as_reader<C: Type>(&self, key: &Key<'_>) -> Result<Option<C::Ref<'_>>, WrongType> {
        self.get_as_reader(key).map(|object| object.read::<C>()).transpose()
    }

    /// A key's collection of one type, to be read. Counts as a use of the key.
    ///
    /// # Errors
    /// The key holds something else.
    pub fn read<C: Type>(&self, key: &Key<'_>) -> Result<Option<C::Ref<'_>>, WrongType> {
        self.get(key).map(|object| object.read::<C>()).transpose()
    }

    /// Opens a key's collection of one type for editing. None: there is no such key.
    ///
    /// # Errors
    /// The key holds something else.
    pub fn open<'e, C: Type>(&'e mut self, key: &Key<'e>) -> Result<Option<Opened<'e, 'b, C>>, WrongType> {
        match self.access.find(key).map(|(place, _)| place) {
            Some(place) => Opened::there(&mut self.access, *key, place).map(Some),
            None => Ok(None),
        }
    }

    /// Opens a key's collection, or a new one for a key that is not there.
    ///
    /// # Errors
    /// The key holds something else.
    pub fn open_or_new<'e, C: Type>(
        &'e mut self,
        key: &Key<'e>,
        new: impl FnOnce() -> C,
    ) -> Result<Opened<'e, 'b, C>, WrongType> {
        match self.access.find(key).map(|(place, _)| place) {
            Some(place) => Opened::there(&mut self.access, *key, place),
            None => Ok(Opened::new(&mut self.access, *key, new())),
        }
    }

    /// Puts a collection under a key, in place of what is there. It must not be empty,
    /// unless its type may be. With [`Expiry::Keep`] a new key has none.
    pub fn put_collection(&mut self, key: &Key<'_>, collection: impl Into<Collection>, expiry: Expiry) {
        // It may have been made from what could not be read.
        if self.access.batch.has_unreadable() {
            return;
        }
        let place = self.access.find(key).map(|(place, _)| place);
        if place.is_none() {
            self.access.note_event(Class::NEW, "new", key);
        }
        match Whole::from(collection.into()) {
            Whole::Compact(form, bytes) => {
                self.access.store_value(key, place, NewValue::Compact(form, &bytes));
            }
            Whole::Native(native) => self.access.store_native(key, place, native),
        }
        match expiry {
            Expiry::Keep => {}
            Expiry::Clear => {
                self.set_expiry(key, None);
            }
            Expiry::At(at) => {
                self.set_expiry(key, Some(at));
            }
        }
        self.access.note_modified(key);
    }

    /// Notes the event by which a key changed, for those who subscribe to such.
    #[inline]
    pub fn note(&self, class: Class, event: &'static str, key: &Key<'_>) {
        self.access.note_event(class, event, key);
    }

    /// A key's object, without counting as a use.
    pub fn peek(&self, key: &Key<'_>) -> Option<Object<'_>> {
        self.access.look(key)
    }

    /// Queues up a session that waits for these keys (see `waiting`).
    pub fn wait(&self, ticket: Ticket, keys: &[Key<'_>], wants: TypeName, also_when_gone: bool) {
        self.access.wait(ticket, keys, wants, also_when_gone);
    }

    /// Counts a read of a key by a command that also writes, as a hit or a miss.
    pub fn count_read(&self, key: &Key<'_>, found: bool) {
        self.access.count_read(found);
        if !found {
            self.note(Class::MISS, "keymiss", key);
        }
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
        let (batch, touch, is_blind) = (self.access.batch, self.access.touch, self.access.is_blind);
        let mut was_expired = false;
        let mut is_new = false;
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
            is_new = old.is_none();
            let (kept, clock) = match old {
                Some(old) => (old.expires_at(), clock_after_set(batch, touch, old, now, fresh)),
                None => (None, fresh),
            };
            match place {
                Some(place) => slot.replace(frame, place, key, value, resolve(expiry, kept), clock),
                None if is_blind => {
                    let change = slot.insert_blindly(frame, key, value, resolve(expiry, None), fresh);
                    batch.note_blind(slot, key);
                    change
                }
                None => slot.insert(frame, key, value, resolve(expiry, None), fresh),
            }
        });
        if was_expired {
            self.access.note_expired(key);
        }
        if result.is_ok() {
            if is_new {
                self.access.note_event(Class::NEW, "new", key);
            }
            self.access.note_modified(key);
        }
        result
    }

    /// Puts an object that was taken under a key, in place of what is there.
    pub fn put(&mut self, key: &Key<'_>, detached: Detached, expires_at: Option<UnixMs>) {
        let frame = self.access.keyspace().frame();
        // For whose time is up, that is told first.
        self.access.find(key);
        self.access.remove_if(key, |_, _| true);
        if self.access.batch.has_unreadable() {
            return;
        }
        // Another object is a new key, even in place of one that was there.
        detached.object().set_clock(self.access.fresh_clock());
        self.access.change(key, |slot| slot.adopt(frame, key, detached, expires_at));
        self.access.note_event(Class::NEW, "new", key);
        self.access.note_modified(key);
    }

    /// A copy of a key's value, to be put under another key.
    pub fn copy(&self, key: &Key<'_>) -> Option<Detached> {
        self.access.look(key).map(|object| object.copied())
    }

    /// Sets or takes away the expiry of a key. False: the key is not there.
    pub fn set_expiry(&mut self, key: &Key<'_>, expires_at: Option<UnixMs>) -> bool {
        let frame = self.access.keyspace().frame();
        let Some((place, _)) = self.access.find(key) else { return false };
        self.access.change(key, |slot| slot.set_expiry(frame, place, key, expires_at));
        self.access.note_modified(key);
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
        self.access.note_modified(key);
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

    /// 64 random bits, which are not secret.
    pub fn random(&self) -> u64 {
        self.access.batch.random()
    }

    /// Says what was done to a key: a request with the same effect at any later time. For who changes keys outside of a
    /// command.
    pub fn say(&self, key: &Key<'_>, words: &[&[u8]]) {
        if let Some(effects) = self.access.batch.effects() {
            effects.add(key.db, self.access.now, words.iter().copied());
            // No command ends that could have said it.
            effects.end_command();
        }
    }

    /// Ends the access: appends what was said to the journal, unlocks, and tells which keys were found expired.
    #[inline]
    pub fn finish(self) -> Vec<ExpiredKey> {
        self.access.settle();
        self.access.finish()
    }

    /// The same for a command on one key in `db` that did what its request says, unless it has said something else.
    #[inline]
    pub fn finish_as(self, db: DbIndex, request: Request<'_>) -> Vec<ExpiredKey> {
        self.access.settle_as(db, request);
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
        ValueRef::Collection(_) => unreachable!("callers edit strings only"),
    };
    let len = bytes.len().min(into.len());
    into[..len].copy_from_slice(&bytes[..len]);
}
