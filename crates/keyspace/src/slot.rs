//! One slot: its table and timers, kept in step. All changes to a database's
//! keys come through here, with the slot's lock held.
//!
//! Invariants:
//! 1. `expiring` counts the objects in the table that have an expiry.
//! 2. The timers' invariant (see `timers`) holds for each of them.
//! 3. There are at most two timers for each of them, one for every four keys, and
//!    `STALE_TIMERS_MIN`; somewhat more if they are so many that they are rebuilt
//!    part by part.

use crate::ids::{Key, KeyHasher, Position};
use crate::object::{Block, Detached, NewValue, Object};
use crate::table::{Place, Table};
use sys::UnixMs;
use value::collection::Collection;
use value::timers::{Deadline, Epoch, Timers, prefix_of};

/// What a slot needs to know of the keyspace to change.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'k> {
    pub(crate) hasher: &'k KeyHasher,
    pub(crate) epoch: Epoch,
}

/// What changed in the number of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) keys: i64,
    pub(crate) expiring: i64,
}

/// The keys of one slot.
#[derive(Debug, Default)]
pub(crate) struct SlotKeys {
    table: Table,
    timers: Option<Box<Timers>>,
    expiring: u32,
}

impl SlotKeys {
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// How many keys have an expiry.
    pub(crate) fn expiring(&self) -> usize {
        self.expiring as usize
    }

    #[inline]
    pub(crate) fn find(&self, key: &Key<'_>) -> Option<Place> {
        self.table.find(key)
    }

    pub(crate) fn find_position(&self, frame: Frame<'_>, position: Position) -> Option<Place> {
        self.table.find_position(position, frame.hasher)
    }

    #[inline]
    pub(crate) fn object(&self, place: Place) -> Object<'_> {
        self.table.object(place)
    }

    /// Adds a key that is not there.
    pub(crate) fn insert(
        &mut self,
        frame: Frame<'_>,
        key: &Key<'_>,
        value: NewValue<'_>,
        expires_at: Option<UnixMs>,
        clock: u32,
    ) -> Change {
        self.insert_block(frame, key, Block::new(key.bytes, value, expires_at, clock), expires_at)
    }

    /// Puts an object taken from elsewhere under a key that is not there.
    pub(crate) fn adopt(
        &mut self,
        frame: Frame<'_>,
        key: &Key<'_>,
        detached: Detached,
        expires_at: Option<UnixMs>,
    ) -> Change {
        self.insert_block(frame, key, detached.into_block(key.bytes, expires_at), expires_at)
    }

    /// Gives a key that is there a new value and expiry.
    #[inline]
    pub(crate) fn replace(
        &mut self,
        frame: Frame<'_>,
        place: Place,
        key: &Key<'_>,
        value: NewValue<'_>,
        expires_at: Option<UnixMs>,
        clock: u32,
    ) -> Change {
        let old_expiry = self.table.object(place).expires_at();
        if !self.table.block(place).overwrite(key.bytes, value, expires_at, clock) {
            let block = Block::new(key.bytes, value, expires_at, clock);
            self.table.replace(place, block);
        }
        self.note_expiry(frame, key.position, old_expiry, expires_at)
    }

    /// Gives a key, there or not, a native collection as its value.
    pub(crate) fn put_native(
        &mut self,
        frame: Frame<'_>,
        place: Option<Place>,
        key: &Key<'_>,
        native: Box<Collection>,
        expires_at: Option<UnixMs>,
        clock: u32,
    ) -> Change {
        let block = Block::of_native(key.bytes, native, expires_at, clock);
        match place {
            Some(place) => {
                let old_expiry = self.table.object(place).expires_at();
                self.table.replace(place, block);
                self.note_expiry(frame, key.position, old_expiry, expires_at)
            }
            None => self.insert_block(frame, key, block, expires_at),
        }
    }

    /// A native collection, to be changed. None: the key holds something else.
    pub(crate) fn native_mut(&mut self, place: Place) -> Option<&mut Collection> {
        self.table.native_mut(place)
    }

    /// Sets, moves or takes away the expiry of a key that is there.
    pub(crate) fn set_expiry(
        &mut self,
        frame: Frame<'_>,
        place: Place,
        key: &Key<'_>,
        expires_at: Option<UnixMs>,
    ) -> Change {
        let object = self.table.object(place);
        let (old_expiry, clock) = (object.expires_at(), object.clock());
        match (old_expiry, expires_at) {
            (Some(_), Some(at)) => self.table.block(place).move_expiry(at),
            (None, None) => {}
            _ => {
                // The block has no room for an expiry that it did not have.
                let block = self.table.block(place).rebuilt(key.bytes, expires_at, clock);
                self.table.replace(place, block);
            }
        }
        self.note_expiry(frame, key.position, old_expiry, expires_at)
    }

    /// Gives a string another length in place. False: it has to be stored anew.
    pub(crate) fn resize(&mut self, place: Place, len: usize) -> bool {
        self.table.block(place).resize(len)
    }

    /// A string's bytes to be edited in place. None for an integer.
    pub(crate) fn bytes_mut(&mut self, place: Place) -> Option<&mut [u8]> {
        self.table.bytes_mut(place)
    }

    /// Takes a key away and frees it.
    pub(crate) fn remove(&mut self, frame: Frame<'_>, place: Place) -> Change {
        self.take(frame, place).1
    }

    /// Takes a key away, for the caller to keep or free.
    pub(crate) fn take(&mut self, frame: Frame<'_>, place: Place) -> (Detached, Change) {
        let taken = self.detach(place);
        self.drop_stale_timers(frame);
        taken
    }

    /// When a timer comes due next.
    pub(crate) fn next_deadline(&self) -> Deadline {
        self.timers.as_ref().map_or(Deadline::NEVER, |timers| timers.next())
    }

    /// Frees up to `most` keys whose time is up and whose timers have come due,
    /// telling each to `expired` first. True: there may be more.
    pub(crate) fn sweep(
        &mut self,
        frame: Frame<'_>,
        now: UnixMs,
        most: usize,
        mut expired: impl FnMut(&[u8]),
    ) -> (Change, Sweep) {
        let mut change = Change::default();
        let mut sweep = Sweep::More;
        let today = frame.epoch.deadline_now(now);
        for _ in 0..most {
            let Some(prefix) = self.timers.as_mut().and_then(|timers| timers.pop_due(today)) else {
                sweep = Sweep::Done;
                break;
            };
            // Removing moves words, so places are looked up again after each removal.
            while let Some(place) = self.expired_with_prefix(prefix, now) {
                expired(self.table.object(place).key());
                let (_, removed) = self.detach(place);
                change.keys += removed.keys;
                change.expiring += removed.expiring;
            }
            self.rearm(frame, today, prefix);
        }
        self.drop_stale_timers(frame);
        (change, sweep)
    }

    /// An object with an expiry, picked by a random number. None if the timer
    /// picked is out of date.
    pub(crate) fn sample_expiring(&self, random: u64) -> Option<Object<'_>> {
        let timers = self.timers.as_ref().filter(|timers| timers.len() > 0)?;
        let prefix = timers.sample(random)?;
        self.table.with_prefix(prefix).map(|(_, object)| object).find(|object| object.expires_at().is_some())
    }

    /// Bytes of memory that table and timers take, objects not counted.
    pub(crate) fn overhead_bytes(&self) -> usize {
        self.table.bytes() + self.timers.as_ref().map_or(0, |timers| timers.bytes())
    }

    fn detach(&mut self, place: Place) -> (Detached, Change) {
        let expiring = u32::from(self.table.object(place).expires_at().is_some());
        self.expiring -= expiring;
        (Detached::new(self.table.take(place)), Change { keys: -1, expiring: -i64::from(expiring) })
    }

    fn expired_with_prefix(&self, prefix: u32, now: UnixMs) -> Option<Place> {
        self.table.with_prefix(prefix).find(|(_, object)| object.is_expired(now)).map(|(place, _)| place)
    }

    /// After an entry was taken out that had come due `today`: one new entry for
    /// all that it stood for, so that entries never become more this way.
    fn rearm(&mut self, frame: Frame<'_>, today: Deadline, prefix: u32) {
        let is_meant = |object: &Object<'_>| prefix_of(frame.hasher.position(object.key())) == prefix;
        let meant = self.table.with_prefix(prefix).map(|(_, object)| object);
        let soonest = meant.filter_map(|object| object.expires_at().filter(|_| is_meant(&object))).min();
        if let Some(at) = soonest {
            // After today even if the clock was set back, or the sweep would not end.
            let deadline = frame.epoch.deadline_of(at).max(today.next());
            self.timers_mut().push(deadline, prefix);
        }
    }

    fn insert_block(
        &mut self,
        frame: Frame<'_>,
        key: &Key<'_>,
        block: Block,
        expires_at: Option<UnixMs>,
    ) -> Change {
        self.table.insert(key.position, block, frame.hasher);
        let change = self.note_expiry(frame, key.position, None, expires_at);
        Change { keys: 1, ..change }
    }

    #[inline]
    fn note_expiry(
        &mut self,
        frame: Frame<'_>,
        position: Position,
        old: Option<UnixMs>,
        new: Option<UnixMs>,
    ) -> Change {
        let change = i64::from(new.is_some()) - i64::from(old.is_some());
        self.expiring = (i64::from(self.expiring) + change) as u32;
        if let Some(at) = new {
            // Later than before needs nothing: the old entry will find out.
            if old.is_none_or(|old| at < old) {
                self.timers_mut().push(frame.epoch.deadline_of(at), prefix_of(position));
            }
        }
        self.drop_stale_timers(frame);
        Change { keys: 0, expiring: change }
    }

    /// Rebuilds a part of the timers when most are out of date, so that they stay in
    /// proportion to the keys however often keys come, go and change their expiry.
    #[inline]
    fn drop_stale_timers(&mut self, frame: Frame<'_>) {
        let Some(timers) = &self.timers else { return };
        let stale_max = STALE_TIMERS_MIN + self.table.len() / 4;
        if self.table.len() == 0 {
            self.timers = None;
        } else if timers.len() > 2 * self.expiring as usize + stale_max {
            self.rebuild_timers(frame);
        }
    }

    #[cold]
    fn rebuild_timers(&mut self, frame: Frame<'_>) {
        let Some(timers) = &mut self.timers else { return };
        let (first, last) = timers.begin_rebuild();
        self.table.visit_between(first, last, |object| {
            let prefix = prefix_of(frame.hasher.position(object.key()));
            if let Some(at) = object.expires_at().filter(|_| (first..=last).contains(&prefix)) {
                timers.push(frame.epoch.deadline_of(at), prefix);
            }
        });
        if timers.len() == 0 {
            self.timers = None;
        }
    }

    fn timers_mut(&mut self) -> &mut Timers {
        self.timers.get_or_insert_with(Box::default)
    }
}

/// Below so many out-of-date timers a slot's timers are not rebuilt.
const STALE_TIMERS_MIN: usize = 32;

/// Whether a sweep has reached the end of what was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sweep {
    /// Nothing due is left.
    Done,
    /// It stopped at its limit.
    More,
}

#[cfg(test)]
mod tests;
