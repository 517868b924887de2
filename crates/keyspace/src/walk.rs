//! Going over a database slot by slot: SCAN, KEYS, RANDOMKEY.
//!
//! Each slot is locked only while it is looked at. A walk sees every key that is
//! there throughout, because a slot's table keeps its keys in the order of their
//! positions however it grows or shrinks.

use crate::database::SlotCell;
use crate::ids::{DbIndex, POSITION_BITS, Position, SLOTS, Slot};
use crate::keyspace::{BEFORE_ALL, Batch, Exclusive};
use crate::locks::fair::{Guard, Lock};
use crate::locks::{self, SlotId};
use crate::object::Object;
use crate::slot::SlotKeys;
use sys::UnixMs;

/// How far a SCAN has come: the next slot and the next position in it. 0 is both
/// the beginning and the end; all others are below 2^62.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(pub u64);

impl Cursor {
    const START: Cursor = Cursor(0);

    fn new(slot: usize, position: Position) -> Cursor {
        Cursor((slot as u64) << POSITION_BITS | position.0)
    }

    /// The slot and position, or None for a number that no scan has returned.
    fn parts(self) -> Option<(usize, Position)> {
        let slot = (self.0 >> POSITION_BITS) as usize;
        (slot < SLOTS).then_some((slot, Position(self.0 & ((1 << POSITION_BITS) - 1))))
    }
}

/// Passes over keys whose time is up.
fn unless_over(now: UnixMs, mut visit: impl FnMut(Object<'_>)) -> impl FnMut(Object<'_>) {
    move |object| {
        if !object.is_expired(now) {
            visit(object);
        }
    }
}

impl Batch<'_> {
    /// Calls `visit` for about `count` keys from the cursor on, expired ones left
    /// out, and returns the cursor to go on with; [`Cursor`] 0 when all was seen.
    /// A cursor that no scan has returned ends the scan. It walks on through empty
    /// slots, all of which take some 100 microseconds.
    ///
    /// It ends before a slot that a slow script has. None: it is the first, and no key was seen.
    pub fn try_scan(
        &self,
        db: DbIndex,
        cursor: Cursor,
        count: usize,
        now: UnixMs,
        visit: impl FnMut(Object<'_>),
    ) -> Option<Cursor> {
        self.try_scan_also_over(db, cursor, count, unless_over(now, visit))
    }

    /// The same with the keys whose time is up.
    pub fn try_scan_also_over(
        &self,
        db: DbIndex,
        cursor: Cursor,
        count: usize,
        visit: impl FnMut(Object<'_>),
    ) -> Option<Cursor> {
        self.scan_by((db, cursor), count, visit, |id, slot| self.lock_unless_slow(id, slot))
    }

    /// Calls `visit` for about `count` keys of one slot, or all there are if it has not so many, expired ones left out. None: a slow script has it.
    pub fn try_visit_slot(
        &self,
        db: DbIndex,
        slot: Slot,
        count: usize,
        now: UnixMs,
        visit: impl FnMut(Object<'_>),
    ) -> Option<()> {
        let Some((id, place)) = self.place_of(db, slot).filter(|(_, place)| place.has_keys() && count > 0)
        else {
            return Some(());
        };
        let keys = self.lock_unless_slow(id, &place.keys)?;
        self.scan_slot(id, &keys, Position(0), count, unless_over(now, visit));
        Some(())
    }

    /// How many keys are in a slot, also those whose time is up. None: a slow script has it.
    pub fn try_count_slot(&self, db: DbIndex, slot: Slot) -> Option<usize> {
        match self.place_of(db, slot).filter(|(_, place)| place.has_keys()) {
            None => Some(0),
            Some((id, place)) => Some(self.lock_unless_slow(id, &place.keys)?.table().len()),
        }
    }

    /// The same, but it ends before a slot that anybody has for a while.
    pub fn scan_soon(
        &self,
        db: DbIndex,
        cursor: Cursor,
        count: usize,
        now: UnixMs,
        visit: impl FnMut(Object<'_>),
    ) -> Option<Cursor> {
        self.scan_by((db, cursor), count, unless_over(now, visit), |_, slot| locks::lock_soon(slot))
    }

    /// Locks a slot unless a slow script has it.
    pub(crate) fn lock_unless_slow<'b>(
        &'b self,
        id: SlotId,
        slot: &'b Lock<SlotKeys>,
    ) -> Option<Guard<'b, SlotKeys>> {
        slot.try_lock().or_else(|| locks::lock_unless(slot, || self.keyspace.has_slow_holder(&[id])))
    }

    fn place_of(&self, db: DbIndex, slot: Slot) -> Option<(SlotId, &SlotCell)> {
        let place = self.keyspace.database(db).used_slots()?.get(usize::from(slot.0))?;
        Some(((self.keyspace.physical(db), slot), place))
    }

    fn scan_by<'b>(
        &'b self,
        (db, cursor): (DbIndex, Cursor),
        count: usize,
        mut visit: impl FnMut(Object<'_>),
        lock: impl Fn(SlotId, &'b Lock<SlotKeys>) -> Option<Guard<'b, SlotKeys>>,
    ) -> Option<Cursor> {
        let (Some(slots), Some((first, mut from))) =
            (self.keyspace.database(db).used_slots(), cursor.parts())
        else {
            return Some(Cursor::START);
        };
        let (mut left, physical) = (count.max(1), self.keyspace.physical(db));
        for (number, slot) in slots.iter().enumerate().skip(first) {
            if !slot.has_keys() || self.keyspace.hidden.contains(number) {
                from = Position(0);
                continue;
            }
            let id = (physical, Slot(number as u16));
            let Some(keys) = lock(id, &slot.keys) else {
                return Some(Cursor::new(number, from)).filter(|reached| *reached != cursor);
            };
            let mut seen = 0;
            let next = self.scan_slot(id, &keys, from, left, |object| {
                seen += 1;
                visit(object);
            });
            if let Some(position) = next {
                return Some(Cursor::new(number, position));
            }
            if seen >= left {
                let is_last = number + 1 == SLOTS;
                return Some(if is_last { Cursor::START } else { Cursor::new(number + 1, Position(0)) });
            }
            left -= seen;
            from = Position(0);
        }
        Some(Cursor::START)
    }

    /// Calls `visit` for every key of a database, expired ones left out. For a patient batch, or one that holds everything.
    pub fn for_each(&self, db: DbIndex, now: UnixMs, visit: impl FnMut(Object<'_>)) {
        if !self.holds_all() {
            self.must_be_patient();
        }
        let has_seen_all = self.for_each_by(db, now, visit, |_, slot| Some(locks::lock(slot)));
        debug_assert!(has_seen_all, "nobody gives up");
    }

    /// The same, unless a slow script has one of the slots. False: not all were seen.
    pub fn try_for_each(&self, db: DbIndex, now: UnixMs, visit: impl FnMut(Object<'_>)) -> bool {
        self.for_each_by(db, now, visit, |id, slot| self.lock_unless_slow(id, slot))
    }

    fn for_each_by<'b>(
        &'b self,
        db: DbIndex,
        now: UnixMs,
        mut visit: impl FnMut(Object<'_>),
        lock: impl Fn(SlotId, &'b Lock<SlotKeys>) -> Option<Guard<'b, SlotKeys>>,
    ) -> bool {
        let (slots, physical) =
            (self.keyspace.database(db).used_slots().unwrap_or_default(), self.keyspace.physical(db));
        let is_shown =
            |(number, slot): &(usize, &SlotCell)| slot.has_keys() && !self.keyspace.hidden.contains(*number);
        for (number, slot) in slots.iter().enumerate().filter(is_shown) {
            let id = (physical, Slot(number as u16));
            let Some(keys) = lock(id, &slot.keys) else { return false };
            self.visit_slot(id, &keys, |object| {
                if !object.is_expired(now) {
                    visit(object);
                }
            });
        }
        true
    }

    /// Calls `visit` for all objects of a slot.
    pub(crate) fn visit_slot(&self, id: SlotId, keys: &SlotKeys, visit: impl FnMut(Object<'_>)) {
        match self.keyspace.has_shelf() {
            false => keys.table().iter().for_each(visit),
            true => drop(self.scan_slot(id, keys, Position(0), usize::MAX, visit)),
        }
    }

    /// As [`crate::table::Table::scan`]; what is on disk only is read. What cannot be is passed by, and the batch
    /// knows.
    pub(crate) fn scan_slot(
        &self,
        id: SlotId,
        keys: &SlotKeys,
        from: Position,
        enough: usize,
        visit: impl FnMut(Object<'_>),
    ) -> Option<Position> {
        let Some(reader) = self.keyspace.slot_reader(id) else {
            return keys.table().scan(from, enough, visit);
        };
        reader.scan(keys.table(), from, enough, visit, |error| self.note_unreadable(error))
    }
}

impl Batch<'_> {
    /// As [`Batch::for_each`], for a batch that holds everything: what lies on disk is read page by page.
    pub(crate) fn for_each_held(&self, db: DbIndex, now: UnixMs, visit: impl FnMut(Object<'_>)) {
        match self.has_shelf() {
            false => self.for_each(db, now, visit),
            true => self.for_each_as_it_lies(db, unless_over(now, visit)),
        }
    }
}

impl Exclusive<'_> {
    /// As [`Exclusive::for_each`], with keys whose time is up.
    pub fn for_each_also_over(&self, db: DbIndex, visit: impl FnMut(Object<'_>)) {
        self.batch.for_each_held(db, BEFORE_ALL, visit);
    }
}
