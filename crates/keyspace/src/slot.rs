//! One slot: its table and timers, kept in step. All changes to a database's
//! keys come through here, with the slot's lock held.
//!
//! Invariants:
//! 1. `expiring` counts the objects in the table that have an expiry, and `fields_expire`
//!    the hashes with fields that do, whose blocks say so.
//! 2. The timers' invariant (see `value::timers`) holds for each of them, the first
//!    field that expires counting as its hash's expiry.
//! 3. There are at most two timers for each of them, one for every four keys, and
//!    `STALE_TIMERS_MIN`; somewhat more if they are so many that they are rebuilt
//!    part by part.
//! 4. An object that is shadowing (see `residency`) leaves the table only after it was found out whether the table has a word
//!    of an older version of it.

use crate::ids::{Key, KeyHasher, Position};
use crate::object::{Block, Detached, NewValue, Object};
use crate::residency::index::SlotIndex;
use crate::sample::Sampled;
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
    /// Keys whose fields expire.
    pub(crate) with_fields: i64,
    /// Keys that are shadowing: each may have been counted twice.
    pub(crate) shadowing: i64,
}

impl std::ops::AddAssign for Change {
    fn add_assign(&mut self, other: Change) {
        self.keys += other.keys;
        self.expiring += other.expiring;
        self.with_fields += other.with_fields;
        self.shadowing += other.shadowing;
    }
}

/// What a sweep found to be over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over<'f> {
    /// A key.
    Key,
    /// These fields of a hash, which keeps others.
    Fields(&'f [Box<[u8]>]),
    /// All fields of a hash, and so its key.
    LastFields,
}

/// The keys of one slot.
#[derive(Debug, Default)]
pub(crate) struct SlotKeys {
    table: Table,
    timers: Option<Box<Timers>>,
    expiring: u32,
    fields_expire: u32,
}

impl SlotKeys {
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// How many keys have an expiry.
    pub(crate) fn expiring(&self) -> usize {
        self.expiring as usize
    }

    /// How many keys have fields that expire.
    pub(crate) fn fields_expire(&self) -> usize {
        self.fields_expire as usize
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

    /// The same where nobody has looked whether the key is on disk: if a cold word looks like it, it is shadowing.
    pub(crate) fn insert_blindly(
        &mut self,
        frame: Frame<'_>,
        key: &Key<'_>,
        value: NewValue<'_>,
        expires_at: Option<UnixMs>,
        clock: u32,
    ) -> Change {
        let is_shadowing = self.table.find_cold(key.position).next().is_some();
        let block = Block::new(key.bytes, value, expires_at, clock);
        block.set_shadowing(is_shadowing);
        let change = self.insert_block(frame, key, block, expires_at);
        Change { shadowing: i64::from(is_shadowing), ..change }
    }

    /// An object is not shadowing any more. If it was, the word of its older version goes, which is at `cold` and had an expiry
    /// or not.
    pub(crate) fn end_shadowing(
        &mut self,
        frame: Frame<'_>,
        block: Block,
        cold: Option<(Place, bool)>,
    ) -> Change {
        debug_assert!(block.is_shadowing());
        block.set_shadowing(false);
        let mut change = Change { shadowing: -1, ..Change::default() };
        if let Some((place, is_expiring)) = cold {
            self.table.take_cold(place);
            self.expiring -= u32::from(is_expiring);
            (change.keys, change.expiring) = (-1, -i64::from(is_expiring));
            self.drop_stale_timers(frame);
        }
        change
    }

    /// How many objects are shadowing. Looks at all that are in memory.
    pub(crate) fn shadowing(&self) -> usize {
        self.table.iter().filter(Object::is_shadowing).count()
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
        let forgotten = self.forget_fields(place);
        let standing = self.table.block(place).standing();
        if !self.table.block(place).overwrite(key.bytes, value, expires_at, clock) {
            let block = Block::new(key.bytes, value, expires_at, clock);
            self.table.replace(place, block);
        }
        self.table.block(place).succeed(standing);
        let mut change = self.note_expiry(frame, key.position, old_expiry, expires_at);
        change += forgotten;
        change
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
                let mut change = self.forget_fields(place);
                block.succeed(self.table.block(place).standing());
                self.table.replace(place, block);
                change += self.note_fields(frame, place, key.position, None);
                change += self.note_expiry(frame, key.position, old_expiry, expires_at);
                change
            }
            None => self.insert_block(frame, key, block, expires_at),
        }
    }

    /// Notes that the fields of a hash may expire otherwise than `before`, when the first
    /// one did then.
    pub(crate) fn note_fields(
        &mut self,
        frame: Frame<'_>,
        place: Place,
        position: Position,
        before: Option<UnixMs>,
    ) -> Change {
        let next = self.table.object(place).next_field_expiry();
        let change = self.count_fields(place, next.is_some());
        if let Some(at) = next.filter(|at| before.is_none_or(|before| *at < before)) {
            self.timers_mut().push(frame.epoch.deadline_of(at), prefix_of(position));
            self.drop_stale_timers(frame);
        }
        change
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
                let old = self.table.block(place);
                let block = old.rebuilt(key.bytes, expires_at, clock);
                block.set_fields_expire(old.fields_expire());
                block.succeed(old.standing());
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

    /// Puts an object in place of the cold word that stood for it.
    pub(crate) fn warm(&mut self, place: Place, block: Block) {
        self.table.warm(place, block);
    }

    /// Frees an object that lies on disk, and puts a cold word in its place.
    pub(crate) fn chill(&mut self, place: Place, position: Position, at: u32) {
        debug_assert!(!self.table.block(place).fields_expire() && !self.table.block(place).is_shadowing());
        self.table.chill(place, position, at);
    }

    /// Puts an object elsewhere in memory, unless a copy of it is on its way: that is known by its address.
    pub(crate) fn relocate(&mut self, place: Place) {
        if !self.table.block(place).is_leaving() {
            self.table.relocate(place);
        }
    }

    /// Notes that an object also lies on disk.
    pub(crate) fn settle(&mut self, place: Place, at: u32) {
        self.table.settle(place, at);
    }

    /// Notes that an object that is not in memory is elsewhere now.
    pub(crate) fn move_cold(&mut self, place: Place, at: u32) {
        self.table.move_cold(place, at);
    }

    /// Adds when to look at whom, as moments.
    pub(crate) fn copy_timers(&self, frame: Frame<'_>, out: &mut Vec<(UnixMs, u32)>) {
        let entries = self.timers.iter().flat_map(|timers| timers.entries());
        out.extend(entries.map(|(deadline, prefix)| (frame.epoch.earliest_of(deadline), prefix)));
    }

    /// Adds what lies on disk.
    pub(crate) fn restore_index(&mut self, frame: Frame<'_>, index: &SlotIndex) -> Change {
        index.words.iter().for_each(|word| self.table.insert_cold(*word, frame.hasher));
        for (moment, prefix) in &index.timers {
            self.timers_mut().push(frame.epoch.deadline_of(*moment), *prefix);
        }
        self.expiring += index.expiring;
        Change { keys: index.words.len() as i64, expiring: i64::from(index.expiring), ..Change::default() }
    }

    /// The block at a place, for what residency notes in it.
    pub(crate) fn block(&mut self, place: Place) -> Block {
        self.table.block(place)
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

    /// Frees up to `most` keys and fields whose time is up and whose timers have come due,
    /// telling each key to `over` first, or once its fields are gone. `warm` brings back what is cold of a prefix, until nothing
    /// of it is shadowing; if it cannot, the timer comes again later.
    pub(crate) fn sweep(
        &mut self,
        frame: Frame<'_>,
        now: UnixMs,
        most: usize,
        mut warm: impl FnMut(&mut SlotKeys, u32) -> bool,
        mut over: impl FnMut(&[u8], Over<'_>),
    ) -> (Change, Sweep) {
        let mut change = Change::default();
        let today = frame.epoch.deadline_now(now);
        let mut left = most;
        let sweep = loop {
            if left == 0 {
                break Sweep::More;
            }
            let Some(prefix) = self.timers.as_mut().and_then(|timers| timers.pop_due(today)) else {
                break Sweep::Done;
            };
            left -= 1;
            if !warm(self, prefix) {
                self.timers_mut().push(today.next(), prefix);
                continue;
            }
            // Removing moves words, so places are looked up again after each removal.
            while let Some(place) = self.expired_with_prefix(prefix, now) {
                over(self.table.object(place).key(), Over::Key);
                change += self.detach(place).1;
            }
            change += self.sweep_fields(prefix, now, &mut left, &mut over);
            if self.due_fields_with_prefix(prefix, now).is_some() {
                self.timers_mut().push(today, prefix);
            } else {
                self.rearm(frame, today, prefix);
            }
        };
        self.drop_stale_timers(frame);
        (change, sweep)
    }

    /// Frees the fields whose time is up of the hashes that a timer stands for, as long
    /// as something of the budget is left.
    fn sweep_fields(
        &mut self,
        prefix: u32,
        now: UnixMs,
        left: &mut usize,
        over: &mut impl FnMut(&[u8], Over<'_>),
    ) -> Change {
        let mut change = Change::default();
        let mut names: Vec<Box<[u8]>> = Vec::new();
        while let Some(place) = self.due_fields_with_prefix(prefix, now).filter(|_| *left > 0) {
            let native = self.table.native_mut(place).expect("only hashes with tables have such fields");
            names.clear();
            let (freed, _) = native.remove_expired_fields(now, *left, |name| names.push(name.into()));
            // Hints that were out of date are work too.
            *left = left.saturating_sub(freed.max(1));
            let is_empty = native.is_empty();
            let key = self.table.object(place).key();
            if is_empty {
                over(key, Over::LastFields);
                change += self.detach(place).1;
                continue;
            }
            if freed > 0 {
                over(key, Over::Fields(&names));
            }
            let expires = self.table.object(place).next_field_expiry().is_some();
            change += self.count_fields(place, expires);
        }
        change
    }

    /// An object with an expiry, picked by a random number. None if the timer
    /// picked is out of date.
    pub(crate) fn sample_expiring(&self, frame: Frame<'_>, random: u64) -> Option<Sampled<'_>> {
        let timers = self.timers.as_ref().filter(|timers| !timers.is_empty())?;
        let (deadline, prefix) = timers.sample(random)?;
        let mut objects = self.table.with_prefix(prefix).map(|(_, object)| object);
        let object = objects.find(|object| object.expires_at().is_some()).map(Sampled::Here);
        let is_cold = || self.table.cold_with_prefix(prefix).next().is_some();
        let expires_at = frame.epoch.moment_of(deadline);
        object.or_else(|| is_cold().then_some(Sampled::Timed { prefix, expires_at }))
    }

    /// Bytes of memory that table and timers take, objects not counted.
    pub(crate) fn overhead_bytes(&self) -> usize {
        self.table.bytes() + self.timers.as_ref().map_or(0, |timers| timers.bytes())
    }

    fn detach(&mut self, place: Place) -> (Detached, Change) {
        assert!(!self.table.object(place).is_shadowing(), "what is shadowing is resolved before it goes");
        let expiring = u32::from(self.table.object(place).expires_at().is_some());
        self.expiring -= expiring;
        let forgotten = self.forget_fields(place);
        let change = Change { keys: -1, expiring: -i64::from(expiring), ..forgotten };
        (Detached::new(self.table.take(place)), change)
    }

    /// Counts a key among those whose fields expire, or no longer.
    fn count_fields(&mut self, place: Place, expire: bool) -> Change {
        let block = self.table.block(place);
        let with_fields = i64::from(expire) - i64::from(block.fields_expire());
        if with_fields != 0 {
            block.set_fields_expire(expire);
            self.fields_expire = (i64::from(self.fields_expire) + with_fields) as u32;
        }
        Change { with_fields, ..Change::default() }
    }

    /// A key's hash goes away, whatever it was.
    #[inline]
    fn forget_fields(&mut self, place: Place) -> Change {
        if self.fields_expire == 0 { Change::default() } else { self.count_fields(place, false) }
    }

    fn due_fields_with_prefix(&self, prefix: u32, now: UnixMs) -> Option<Place> {
        if self.fields_expire == 0 {
            return None;
        }
        let is_due = |object: &Object<'_>| object.next_field_expiry().is_some_and(|at| at <= now);
        self.table.with_prefix(prefix).find(|(_, object)| is_due(object)).map(|(place, _)| place)
    }

    fn expired_with_prefix(&self, prefix: u32, now: UnixMs) -> Option<Place> {
        self.table.with_prefix(prefix).find(|(_, object)| object.is_expired(now)).map(|(place, _)| place)
    }

    /// After an entry was taken out that had come due `today`: one new entry for
    /// all that it stood for, so that entries never become more this way.
    fn rearm(&mut self, frame: Frame<'_>, today: Deadline, prefix: u32) {
        let is_meant = |object: &Object<'_>| prefix_of(frame.hasher.position(object.key())) == prefix;
        let meant = self.table.with_prefix(prefix).map(|(_, object)| object);
        let soonest = meant.filter_map(|object| object.next_due().filter(|_| is_meant(&object))).min();
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
        let has_fields = block.may_have_fields();
        self.table.insert(key.position, block, frame.hasher);
        let mut change = self.note_expiry(frame, key.position, None, expires_at);
        if has_fields && let Some(place) = self.table.find(key) {
            change += self.note_fields(frame, place, key.position, None);
        }
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
        Change { expiring: change, ..Change::default() }
    }

    /// Rebuilds a part of the timers when most are out of date, so that they stay in
    /// proportion to the keys however often keys come, go and change their expiry.
    #[inline]
    fn drop_stale_timers(&mut self, frame: Frame<'_>) {
        let Some(timers) = &self.timers else { return };
        let stale_max = STALE_TIMERS_MIN + self.table.len() / 4;
        if self.table.len() == 0 {
            self.timers = None;
        } else if timers.len() > 2 * (self.expiring + self.fields_expire) as usize + stale_max {
            self.rebuild_timers(frame);
        }
    }

    #[cold]
    fn rebuild_timers(&mut self, frame: Frame<'_>) {
        let Some(timers) = &mut self.timers else { return };
        let table = &self.table;
        // What is cold cannot be asked when it expires.
        let (first, last) = timers.begin_rebuild(|prefix| table.cold_with_prefix(prefix).next().is_some());
        self.table.visit_between(first, last, |object| {
            let prefix = prefix_of(frame.hasher.position(object.key()));
            if let Some(at) = object.next_due().filter(|_| (first..=last).contains(&prefix)) {
                timers.push(frame.epoch.deadline_of(at), prefix);
            }
        });
        if timers.is_empty() {
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
