//! The native form of a hash: a table of fields, each one block of the field's name, its value and, if
//! its time is limited, the moment at which that is up.
//!
//! ```text
//! header u32: length of the name, HAS_EXPIRY | (expiry u64) | name | value
//! ```
//!
//! Fields that expire have timers, which are hints (see [`crate::timers`]). A field whose time is up is not
//! there for any reader; it takes memory until [`Fields::remove_expired`] comes by.
//!
//! Thread rule: a plain value; whoever holds its key's slot has it.
//!
//! Invariants:
//! 1. The names in the table differ.
//! 2. `expiries` is there exactly if some field has an expiry, and counts those fields.
//! 3. The timers' invariant holds for each of them.

#![allow(unsafe_code)] // Reads and writes the blocks that its table owns; fuzzed by tests.rs beside it.

use crate::entry::Entry;
use crate::limits::RANDOM_FIELD_TRIES_MAX;
use crate::table::{Blocks, Place, Position, Table, position_of};
use crate::timers::{Deadline, Epoch, Timers, prefix_of};
use sys::UnixMs;

type Block = Entry<4>;

const HAS_EXPIRY: u32 = 1 << 31;
const EXPIRY_BYTES: usize = 8;

/// A field to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// When its time is up.
    pub expires_at: Option<UnixMs>,
}

impl Field<'_> {
    /// Whether its time is up at `now`.
    #[inline]
    pub fn is_expired(&self, now: UnixMs) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// The fields of one hash.
#[derive(Debug, Default)]
pub struct Fields {
    table: Blocks<Block>,
    expiries: Option<Box<Expiries>>,
}

#[derive(Clone, Debug, Default)]
struct Expiries {
    timers: Timers,
    /// Fields that have an expiry.
    fields: usize,
}

/// Below so many out-of-date timers they are not rebuilt.
const STALE_TIMERS_MIN: usize = 32;
/// Images bring expiries of any age.
const EPOCH: Epoch = Epoch::CALENDAR;

/// Whether [`Fields::remove_expired`] has reached the end of what was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Removed {
    /// Nothing due is left.
    All,
    /// It stopped at its limit.
    Some,
}

impl Fields {
    /// The address of the word where a search for this position begins, for prefetching.
    #[inline]
    pub fn home_address(&self, position: Position) -> usize {
        self.table.home_address(position)
    }

    /// The address of the entry that such a search is likely to look at.
    #[inline]
    pub fn likely_address(&self, position: Position) -> Option<u64> {
        self.table.likely_address(position)
    }

    /// How many fields there are, those counted whose time is up.
    #[inline]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// How many fields there are whose time is not up.
    pub fn visible(&self, now: UnixMs) -> usize {
        match self.expiries {
            None => self.len(),
            Some(_) => self.iter().filter(|field| !field.is_expired(now)).count(),
        }
    }

    /// A field whose time is not up.
    #[inline]
    pub fn get(&self, name: &[u8], now: UnixMs) -> Option<Field<'_>> {
        let field = self.field(self.table.get(self.place(name)?));
        (!field.is_expired(now)).then_some(field)
    }

    /// All fields, those whose time is up too.
    pub fn iter(&self) -> impl Iterator<Item = Field<'_>> {
        self.table.iter().map(|block| self.field(block))
    }

    /// Calls `visit` for fields from a position on, until at least `enough` were passed. Returns where to go
    /// on, or None at the end.
    pub fn scan<'a>(
        &'a self,
        from: Position,
        enough: usize,
        now: UnixMs,
        mut visit: impl FnMut(Field<'a>),
    ) -> Option<Position> {
        self.table.scan(from, enough, |block| {
            let field = self.field(block);
            if !field.is_expired(now) {
                visit(field);
            }
        })
    }

    /// A field picked by numbers from a source of random bits.
    #[expect(clippy::cast_possible_truncation, reason = "an index is below a length")]
    pub fn random(&self, now: UnixMs, mut random: impl FnMut() -> u64) -> Option<Field<'_>> {
        for _ in 0..RANDOM_FIELD_TRIES_MAX {
            let field = self.field(self.table.random(&mut random)?);
            if !field.is_expired(now) {
                return Some(field);
            }
        }
        let visible = self.visible(now) as u64;
        let index = random().checked_rem(visible)?;
        self.iter().filter(|field| !field.is_expired(now)).nth(index as usize)
    }

    /// Makes a field or gives it another value and expiry. What was there before, with its bytes gone.
    #[inline]
    pub fn set(&mut self, name: &[u8], value: &[u8], expires_at: Option<UnixMs>) -> Option<Before> {
        let position = position_of(name);
        let place = self.table.find(position, |block| field_at(block).name == name);
        let Some(place) = place else {
            let block = new_block(name, value, expires_at);
            // SAFETY: the block is new and given up to the table.
            unsafe { self.table.insert(position, block, |block| position_of(field_at(block).name)) };
            self.note_expiry(position, None, expires_at);
            return None;
        };
        let block = self.table.get(place);
        let old = self.field(block);
        let before = Before { expires_at: old.expires_at };
        let has_room = old.value.len() == value.len() && old.expires_at.is_some() == expires_at.is_some();
        if has_room && self.table.may_edit() {
            overwrite(block, value, expires_at);
        } else {
            self.replace(place, position, new_block(name, value, expires_at));
        }
        self.note_expiry(position, before.expires_at, expires_at);
        Some(before)
    }

    /// Takes a field away whose time is not up. Whether it was there.
    pub fn remove(&mut self, name: &[u8], now: UnixMs) -> bool {
        let Some(place) =
            self.place(name).filter(|place| !self.field(self.table.get(*place)).is_expired(now))
        else {
            return false;
        };
        self.free(place);
        self.drop_stale_timers();
        true
    }

    /// Sets or takes away the expiry of a field that is there.
    pub fn set_expiry(&mut self, name: &[u8], expires_at: Option<UnixMs>) {
        let Some(place) = self.place(name) else { return };
        let may_edit = self.table.may_edit();
        let block = self.table.get(place);
        let field = self.field(block);
        let (old, position) = (field.expires_at, position_of(name));
        match (old, expires_at) {
            (None, None) => return,
            (Some(_), Some(at)) if may_edit => put_expiry(block, at),
            _ => {
                let block = new_block(field.name, field.value, expires_at);
                self.replace(place, position, block);
            }
        }
        self.note_expiry(position, old, expires_at);
    }

    /// No later than the first moment at which a field's time is up, give or take the timers' unit. None:
    /// no field has an expiry.
    pub fn next_expiry(&self) -> Option<UnixMs> {
        let expiries = self.expiries.as_ref()?;
        match expiries.timers.next() {
            Deadline::NEVER => None,
            deadline => Some(EPOCH.moment_of(deadline)),
        }
    }

    /// The first moment at which a field's time is up, found by looking at all.
    pub(super) fn first_expiry(&self) -> Option<UnixMs> {
        self.expiries.as_ref()?;
        self.iter().filter_map(|field| field.expires_at).min()
    }

    /// Frees up to `most` fields whose time is up and whose timers have come due, each shown to `visit` before. How many it freed.
    pub fn remove_expired(
        &mut self,
        now: UnixMs,
        most: usize,
        mut visit: impl FnMut(&[u8]),
    ) -> (usize, Removed) {
        let (before, today) = (self.len(), EPOCH.deadline_now(now));
        let mut removed = Removed::Some;
        for _ in 0..most {
            let Some(prefix) = self.expiries.as_mut().and_then(|expiries| expiries.timers.pop_due(today))
            else {
                removed = Removed::All;
                break;
            };
            // Removing moves words, so places are looked up again after each removal.
            while let Some(place) = self.expired_with_prefix(prefix, now) {
                visit(self.field(self.table.get(place)).name);
                self.free(place);
            }
            self.rearm(today, prefix);
        }
        self.drop_stale_timers();
        (before - self.len(), removed)
    }

    /// Bytes of memory that it takes, estimated from `samples` fields; 0: all.
    pub fn bytes(&self, samples: usize) -> usize {
        let looked_at = if samples == 0 { self.len() } else { samples.min(self.len()) };
        // SAFETY: the blocks are live while the table is borrowed.
        let sampled: usize =
            self.table.iter().take(looked_at).map(|block| unsafe { block.memory_bytes() }).sum();
        let blocks = (sampled * self.len()).checked_div(looked_at).unwrap_or(0);
        let expiries = self.expiries.as_ref().map_or(0, |it| size_of::<Expiries>() + it.timers.bytes());
        self.table.bytes() + blocks + expiries
    }

    /// Asserts the invariants, for tests.
    #[cfg(test)]
    pub(super) fn check(&self) {
        self.table.check();
        let with_expiry = self.iter().filter(|field| field.expires_at.is_some()).count();
        assert_eq!(self.expiries.as_ref().map_or(0, |expiries| expiries.fields), with_expiry);
        let Some(expiries) = &self.expiries else { return };
        assert!(with_expiry > 0);
        let entries = expiries.timers.entries().collect::<Vec<_>>();
        assert!(entries.len() <= 2 * with_expiry + STALE_TIMERS_MIN + self.len() / 4 + 1);
        for (name, at) in self.iter().filter_map(|field| Some((field.name, field.expires_at?))) {
            let (prefix, due) = (prefix_of(position_of(name)), EPOCH.deadline_of(at));
            assert!(entries.iter().any(|entry| entry.1 == prefix && entry.0 <= due), "no timer");
        }
    }

    #[inline]
    fn place(&self, name: &[u8]) -> Option<Place> {
        self.table.find(position_of(name), |block| field_at(block).name == name)
    }

    /// The field of a block of this table.
    #[inline]
    fn field(&self, block: Block) -> Field<'_> {
        field_at(block)
    }

    fn replace(&mut self, place: Place, position: Position, block: Block) {
        // SAFETY: the new block is given up to the table.
        unsafe { self.table.replace(place, position, block) };
    }

    /// Takes a field out and frees it. Its timers stay.
    fn free(&mut self, place: Place) {
        let field = field_at(self.table.get(place));
        if field.expires_at.is_some() {
            self.count_expiry(-1);
        }
        self.table.free(place, || position_of(field.name));
    }

    fn expired_with_prefix(&self, prefix: u32, now: UnixMs) -> Option<Place> {
        self.table
            .with_prefix(prefix)
            .find(|(_, block)| self.field(*block).is_expired(now))
            .map(|(place, _)| place)
    }

    /// After an entry was taken out that had come due `today`: one new entry for all that it stood for.
    fn rearm(&mut self, today: Deadline, prefix: u32) {
        let meant = self.table.with_prefix(prefix).map(|(_, block)| self.field(block));
        let meant = meant.filter(|field| prefix_of(position_of(field.name)) == prefix);
        let soonest = meant.filter_map(|field| field.expires_at).min();
        if let (Some(at), Some(expiries)) = (soonest, &mut self.expiries) {
            // After today even if the clock was set back, or the removal would not end.
            let deadline = EPOCH.deadline_of(at).max(today.next());
            expiries.timers.push(deadline, prefix);
        }
    }

    #[inline]
    fn note_expiry(&mut self, position: Position, old: Option<UnixMs>, new: Option<UnixMs>) {
        if old.is_none() && new.is_none() {
            return;
        }
        if new.is_some() {
            self.expiries.get_or_insert_default();
        }
        self.count_expiry(isize::from(new.is_some()) - isize::from(old.is_some()));
        if let (Some(at), Some(expiries)) = (new, &mut self.expiries)
            // Later than before needs nothing: the old entry will find out.
            && old.is_none_or(|old| at < old)
        {
            expiries.timers.push(EPOCH.deadline_of(at), prefix_of(position));
        }
        self.drop_stale_timers();
    }

    fn count_expiry(&mut self, change: isize) {
        if let Some(expiries) = &mut self.expiries {
            expiries.fields = expiries.fields.wrapping_add_signed(change);
        }
    }

    /// Rebuilds a part of the timers when most are out of date.
    #[inline]
    fn drop_stale_timers(&mut self) {
        let Some(expiries) = &mut self.expiries else { return };
        if expiries.fields == 0 {
            self.expiries = None;
        } else if expiries.timers.len() > 2 * expiries.fields + STALE_TIMERS_MIN + self.table.len() / 4 {
            let (first, last) = expiries.timers.begin_rebuild(|_| false);
            let timers = &mut expiries.timers;
            visit_between(&self.table, first, last, |field| {
                let prefix = prefix_of(position_of(field.name));
                if let Some(at) = field.expires_at.filter(|_| (first..=last).contains(&prefix)) {
                    timers.push(EPOCH.deadline_of(at), prefix);
                }
            });
        }
    }
}

/// What a field was before it changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// When its time was up.
    pub expires_at: Option<UnixMs>,
}

impl Before {
    /// Whether the field was there for readers.
    pub fn was_visible(self, now: UnixMs) -> bool {
        self.expires_at.is_none_or(|at| at > now)
    }
}

impl Fields {
    /// A copy as it is now, made in no time and to be read only. Of timers it has one, if there are any.
    pub(crate) fn frozen(&self) -> Fields {
        let expiries = self.expiries.as_ref().map(|expiries| {
            let (mut timers, next) = (Timers::default(), expiries.timers.next());
            if next != Deadline::NEVER {
                timers.push(next, 0);
            }
            Box::new(Expiries { timers, fields: expiries.fields })
        });
        Fields { table: self.table.copy(), expiries }
    }
}

impl Clone for Fields {
    fn clone(&self) -> Fields {
        let mut table = Blocks::default();
        for field in self.iter() {
            let block = new_block(field.name, field.value, field.expires_at);
            // SAFETY: the block is new and given up to the table.
            unsafe {
                table.insert(position_of(field.name), block, |block| position_of(field_at(block).name))
            };
        }
        Fields { table, expiries: self.expiries.clone() }
    }
}

/// Calls `visit` for fields whose prefixes lie from `first` to `last`, and perhaps for some others.
fn visit_between(table: &Table<Block>, first: u32, last: u32, mut visit: impl FnMut(Field<'_>)) {
    const STEP: usize = 512;
    let shift = crate::table::POSITION_BITS - crate::table::PREFIX_BITS;
    let end = (u64::from(last) + 1) << shift;
    let mut from = Some(Position(u64::from(first) << shift));
    while let Some(at) = from.filter(|at| at.0 < end) {
        from = table.scan(at, STEP, |block| visit(field_at(block)));
    }
}

fn new_block(name: &[u8], value: &[u8], expires_at: Option<UnixMs>) -> Block {
    let name_len = u32::try_from(name.len()).ok().filter(|len| len & HAS_EXPIRY == 0);
    let name_len = name_len.expect("a request's words are shorter than 2 GB");
    match expires_at {
        None => Block::new(name_len.to_le_bytes(), &[name, value]),
        Some(at) => Block::new((name_len | HAS_EXPIRY).to_le_bytes(), &[&at.0.to_le_bytes(), name, value]),
    }
}

/// The field of a live block. The caller sees to it that the block lives and stays unchanged for as long.
#[inline]
fn field_at<'a>(block: Block) -> Field<'a> {
    // SAFETY: only blocks of a table that is borrowed, or just taken out of one, come here.
    let (header, bytes) = unsafe { (u32::from_le_bytes(block.header()), block.bytes()) };
    let (expires_at, rest) = match header & HAS_EXPIRY {
        0 => (None, bytes),
        _ => {
            let (at, rest) = bytes.split_first_chunk::<EXPIRY_BYTES>().expect("its header says it has one");
            (Some(UnixMs(u64::from_le_bytes(*at))), rest)
        }
    };
    let (name, value) = rest.split_at((header & !HAS_EXPIRY) as usize);
    Field { name, value, expires_at }
}

/// Puts a value of the same length, and an expiry if it has one, into a block.
#[inline]
fn overwrite(block: Block, value: &[u8], expires_at: Option<UnixMs>) {
    if let Some(at) = expires_at {
        put_expiry(block, at);
    }
    // SAFETY: the caller has the only access to the block's table, and no field of it is borrowed any more.
    let bytes = unsafe { block.bytes_mut() };
    let start = bytes.len() - value.len();
    bytes[start..].copy_from_slice(value);
}

fn put_expiry(block: Block, at: UnixMs) {
    // SAFETY: as in `overwrite`.
    let bytes = unsafe { block.bytes_mut() };
    bytes[..EXPIRY_BYTES].copy_from_slice(&at.0.to_le_bytes());
}
