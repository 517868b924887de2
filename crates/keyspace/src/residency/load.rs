//! Reading what is cold: by its key, or slot by slot for those who look at everything.

use super::{Record, Shelf, Unreadable, record};
use crate::ids::{DbIndex, Key, Position};
use crate::keyspace::Keyspace;
use crate::locks::SlotId;
use crate::object::{Block, Detached, Object};
use crate::slot::{Change, Frame, SlotKeys};
use crate::table::{Place, Table};
use smallvec::SmallVec;
use value::table::{Cold, Entry};
use value::timers::prefix_of;

/// Reads cold objects of one slot.
#[derive(Clone, Copy)]
pub(crate) struct SlotReader<'k> {
    pub(super) shelf: &'k dyn Shelf,
    pub(super) frame: Frame<'k>,
    id: SlotId,
}

impl Keyspace {
    /// A reader of a slot's cold objects; None if all are in memory.
    #[inline]
    pub(crate) fn slot_reader(&self, id: SlotId) -> Option<SlotReader<'_>> {
        let shelf = self.shelf.get()?;
        Some(SlotReader { shelf: &**shelf, frame: self.frame(), id })
    }
}

impl SlotReader<'_> {
    /// A key's object that is cold, and the place of its word.
    pub(crate) fn find(
        &self,
        keys: &SlotKeys,
        key: &Key<'_>,
    ) -> Result<Option<(Place, u32, Block)>, Unreadable> {
        let candidates: SmallVec<[(Place, u32); 2]> = keys.table().find_cold(key.position).collect();
        for (place, at) in candidates {
            if let Some(block) = self.load(at, |bytes| bytes == key.bytes)? {
                return Ok(Some((place, at, block)));
            }
        }
        Ok(None)
    }

    /// Brings the cold objects back whose positions begin with these 32 bits, as they lie on disk. None of these is shadowing
    /// afterwards.
    pub(crate) fn warm_with_prefix(
        &self,
        keys: &mut SlotKeys,
        prefix: u32,
    ) -> (Change, Result<(), Unreadable>) {
        let (change, resolved) = self.resolve_with_prefix(keys, prefix);
        (change, resolved.and_then(|()| self.warm_cold(keys, prefix)))
    }

    fn warm_cold(&self, keys: &mut SlotKeys, prefix: u32) -> Result<(), Unreadable> {
        let candidates: SmallVec<[(Place, u32); 2]> = keys.table().cold_with_prefix(prefix).collect();
        for (place, at) in candidates {
            let is_it = |position| {
                prefix_of(position) == prefix
                    && keys.table().find_cold(position).any(|found| found == (place, at))
            };
            if let Some(block) = self.load_at(at, is_it)? {
                keys.warm(place, block.placed(at));
            }
        }
        Ok(())
    }

    /// Calls `visit` for objects from position `from` on, as [`Table::scan`] does, those that are cold among them. Older
    /// versions of what is in memory are no objects. What cannot be read is passed by, and told.
    pub(crate) fn scan(
        &self,
        table: &Table,
        from: Position,
        enough: usize,
        mut visit: impl FnMut(Object<'_>),
        mut pass: impl FnMut(Unreadable),
    ) -> Option<Position> {
        table.scan_entries(from, enough, |entry| match entry {
            Entry::Block(object) => visit(object),
            Entry::Cold(cold) => match self.load_cold(cold) {
                Ok(object) => {
                    let key = self.frame.hasher.key(DbIndex(0), object.object().key());
                    if table.find(&key).is_none() {
                        visit(object.object());
                    }
                }
                Err(error) => pass(error),
            },
        })
    }

    /// The object of a cold word.
    pub(crate) fn load_cold(&self, cold: Cold) -> Result<Detached, Unreadable> {
        let block = self.load_at(cold.at, |position| cold.may_be(position))?;
        block.map(Detached::new).ok_or_else(|| self.missing(cold.at))
    }

    /// The object of this slot that lies there and whose position is meant.
    pub(super) fn load_at(
        &self,
        at: u32,
        is_meant: impl Fn(Position) -> bool,
    ) -> Result<Option<Block>, Unreadable> {
        self.load(at, |bytes| {
            let key = self.frame.hasher.key(DbIndex(0), bytes);
            key.slot == self.id.1 && is_meant(key.position)
        })
    }

    fn missing(&self, at: u32) -> Unreadable {
        Unreadable(format!(
            "page {at} of the store does not hold a key of slot {} that it must hold",
            self.id.1.0
        ))
    }

    fn load(&self, at: u32, is_it: impl FnMut(&[u8]) -> bool) -> Result<Option<Block>, Unreadable> {
        self.read(at, is_it)?.map(|record| block_of(&record, at)).transpose()
    }

    /// The record of this database that lies there and whose key is meant.
    pub(super) fn read(
        &self,
        at: u32,
        mut is_it: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<Record>, Unreadable> {
        let db = self.id.0;
        self.shelf.read(at, &mut |there, key| there == db && is_it(key))
    }
}

/// The object of a record that lies there.
pub(super) fn block_of(record: &Record, at: u32) -> Result<Block, Unreadable> {
    record::read(&record.key, record.expires_at, &record.image)
        .ok_or_else(|| Unreadable(format!("page {at} of the store holds an object that is none")))
}
