//! A slot's table: from a key to its object. The table itself is
//! [`value::table`]'s; this is what makes its blocks objects.
//!
//! Thread rule: whoever holds the slot's lock has the table to itself.
//!
//! Invariant: every block is live and owned by this table alone, and it is only
//! reached through a borrow of the table.

#![allow(unsafe_code)] // Reads the blocks that the table owns; fuzzed by tests/fuzz.rs.

use crate::ids::{Key, KeyHasher, Position};
use crate::object::{Block, Object};
use value::collection::{Collection, CollectionRef};
use value::table::{self, Cold, Entry, Handle, POSITION_BITS, PREFIX_BITS};

pub(crate) use value::table::Place;

/// All keys of one slot.
#[derive(Debug, Default)]
pub(crate) struct Table {
    blocks: table::Table<Block>,
}

impl Table {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Bytes of memory that the table takes, objects not counted.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.bytes()
    }

    /// The address of the table's words and its number of homes, for prefetching. None
    /// if there are no keys or they are spread over many arrays.
    #[inline]
    pub(crate) fn hint(&self) -> Option<(usize, usize)> {
        self.blocks.hint()
    }

    #[inline]
    pub(crate) fn find(&self, key: &Key<'_>) -> Option<Place> {
        self.blocks.find(key.position, |block| self.shown(block).key() == key.bytes)
    }

    /// The address of the first object whose tag is that of `position`, for
    /// prefetching. It may be another key's.
    pub(crate) fn likely_address(&self, position: Position) -> Option<u64> {
        self.blocks.likely_address(position)
    }

    /// The native collection of the same object, if it is one.
    #[inline]
    pub(crate) fn likely_native(&self, position: Position) -> Option<CollectionRef<'_>> {
        let place = self.blocks.likely_place(position)?;
        self.object(place).native()
    }

    #[inline]
    pub(crate) fn object(&self, place: Place) -> Object<'_> {
        self.shown(self.blocks.get(place))
    }

    /// The block for editing in place.
    #[inline]
    pub(crate) fn block(&mut self, place: Place) -> Block {
        self.blocks.get(place)
    }

    /// A string's bytes to be edited in place. None for an integer.
    pub(crate) fn bytes_mut(&mut self, place: Place) -> Option<&mut [u8]> {
        // SAFETY: the block is live and the exclusive borrow of the table covers it.
        unsafe { self.block(place).bytes_mut() }
    }

    /// A native collection, to be changed. None: the object holds something else.
    pub(crate) fn native_mut(&mut self, place: Place) -> Option<&mut Collection> {
        // SAFETY: the block is live and the exclusive borrow of the table covers it.
        unsafe { self.block(place).native_mut() }
    }

    /// Adds an object whose key is not in the table.
    #[inline]
    pub(crate) fn insert(&mut self, position: Position, block: Block, hasher: &KeyHasher) {
        // SAFETY: the blocks that the table asks about are live: it owns them.
        let position_of = |block: Block| hasher.position(unsafe { block.object() }.key());
        // SAFETY: the block is new or taken out of another table, and the caller's only handle.
        unsafe { self.blocks.insert(position, block, position_of) }
    }

    /// Puts another block with the same key in place of the one found and frees that.
    pub(crate) fn replace(&mut self, place: Place, block: Block) {
        // SAFETY: as in `insert`; and the table has let go of the only handle to the old block.
        unsafe { self.blocks.replace(place, block).free() }
    }

    /// The places of cold words that may be this position's, and where those say that the object lies.
    pub(crate) fn find_cold(&self, position: Position) -> impl Iterator<Item = (Place, u32)> + '_ {
        self.blocks.find_cold(position)
    }

    /// The same for those that may begin with the 32 bits given.
    pub(crate) fn cold_with_prefix(&self, prefix: u32) -> impl Iterator<Item = (Place, u32)> + '_ {
        self.blocks.cold_with_prefix(prefix)
    }

    /// The places of all objects in memory. They stay good while words only take each other's places.
    pub(crate) fn places(&self) -> impl Iterator<Item = (Place, Object<'_>)> {
        self.blocks.places().map(|(place, block)| (place, self.shown(block)))
    }

    /// The place of the object at this position in the block with this address.
    pub(crate) fn find_block(&self, position: Position, address: u64) -> Option<Place> {
        self.blocks.find(position, |block| block.address() == address)
    }

    /// Puts an object in place of the cold word that stood for it.
    pub(crate) fn warm(&mut self, place: Place, block: Block) {
        // SAFETY: as in `insert`.
        unsafe { self.blocks.warm(place, block) }
    }

    /// Frees an object that lies on disk, and puts a cold word in its place.
    pub(crate) fn chill(&mut self, place: Place, position: Position, at: u32) {
        // SAFETY: the table has let go of the only handle to the block.
        unsafe { self.blocks.chill(place, position, at).free() }
    }

    /// Puts an object elsewhere in memory.
    pub(crate) fn relocate(&mut self, place: Place) {
        let block = self.block(place);
        // SAFETY: as in `settle`.
        unsafe { self.blocks.replace(place, block.relocated()) };
    }

    /// Notes that an object also lies on disk.
    pub(crate) fn settle(&mut self, place: Place, at: u32) {
        let block = self.block(place);
        if !block.settle(at) {
            // SAFETY: as in `insert`. The old block has become the new one, and its handle means nothing any more.
            unsafe { self.blocks.replace(place, block.placed(at)) };
        }
    }

    /// Adds an object that is not in memory.
    pub(crate) fn insert_cold(&mut self, cold: Cold, hasher: &KeyHasher) {
        // SAFETY: as in `insert`.
        self.blocks.insert_cold(cold, |block| hasher.position(unsafe { block.object() }.key()));
    }

    /// Notes that an object that is not in memory is elsewhere now.
    pub(crate) fn move_cold(&mut self, place: Place, at: u32) {
        self.blocks.move_cold(place, at);
    }

    /// Takes out the word of an object that is not in memory.
    pub(crate) fn take_cold(&mut self, place: Place) {
        self.blocks.take_cold(place);
    }

    /// As [`Table::scan`], but cold words are shown too.
    pub(crate) fn scan_entries(
        &self,
        from: Position,
        enough: usize,
        mut visit: impl FnMut(Entry<Object<'_>>),
    ) -> Option<Position> {
        self.blocks.scan_entries(from, enough, |entry| {
            visit(match entry {
                Entry::Block(block) => Entry::Block(self.shown(block)),
                Entry::Cold(cold) => Entry::Cold(cold),
            });
        })
    }

    /// Takes an object out; the caller frees it.
    pub(crate) fn take(&mut self, place: Place) -> Block {
        self.blocks.take(place)
    }

    /// Calls `visit` for objects from position `from` on, in the order of their
    /// positions, until at least `enough` were visited and all that share a tag
    /// with the last one too. Returns where to go on, or None at the end.
    pub(crate) fn scan(
        &self,
        from: Position,
        enough: usize,
        mut visit: impl FnMut(Object<'_>),
    ) -> Option<Position> {
        self.blocks.scan(from, enough, |block| visit(self.shown(block)))
    }

    /// Calls `visit` for all objects whose positions begin with 32 bits from `first`
    /// to `last`, and perhaps for some others.
    pub(crate) fn visit_between(&self, first: u32, last: u32, mut visit: impl FnMut(Object<'_>)) {
        const STEP: usize = 512;
        const BELOW: u32 = POSITION_BITS - PREFIX_BITS;
        let end = (u64::from(last) + 1) << BELOW;
        let mut from = Some(Position(u64::from(first) << BELOW));
        while let Some(at) = from.filter(|at| at.0 < end) {
            from = self.scan(at, STEP, &mut visit);
        }
    }

    /// Objects whose position begins with the 32 bits given (timers know no more).
    pub(crate) fn with_prefix(&self, prefix: u32) -> impl Iterator<Item = (Place, Object<'_>)> {
        self.blocks.with_prefix(prefix).map(|(place, block)| (place, self.shown(block)))
    }

    /// The object with exactly this position.
    pub(crate) fn find_position(&self, position: Position, hasher: &KeyHasher) -> Option<Place> {
        let prefix = (position.0 >> (POSITION_BITS - PREFIX_BITS)) as u32;
        let mut places = self.with_prefix(prefix);
        places.find(|(_, object)| hasher.position(object.key()) == position).map(|(place, _)| place)
    }

    /// All objects.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Object<'_>> {
        self.blocks.iter().map(|block| self.shown(block))
    }

    /// Asserts the invariants of the table.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.blocks.check();
    }

    /// What one of the table's blocks holds.
    #[inline]
    fn shown(&self, block: Block) -> Object<'_> {
        // SAFETY: the block is live and the borrow of the table keeps it unchanged.
        unsafe { block.object() }
    }
}
