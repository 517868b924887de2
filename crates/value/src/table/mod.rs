//! A hash table of 8-byte words, each the handle of a block that the table owns:
//! the keyspace's slots and the native forms of the collections stand on it.
//!
//! One segment as long as it is small; then a directory of segments, chosen by
//! the leading bits of the position (extendible hashing: Fagin et al., 1979). A
//! full segment is split alone, so that even a huge table never stalls for the
//! rehash of all that it holds.
//!
//! Thread rule: a table belongs to one thread at a time; its owner's lock sees to that.
//!
//! Invariants:
//! 1. Every word's block is live and owned by this table alone.
//! 2. Words lie in the order of their positions, whatever the table's size.

#![allow(unsafe_code)] // Owns the blocks that its words point to; fuzzed by tests.rs beside it.

mod cold;
mod copies;
mod handle;
mod iter;
mod random;
mod secret;
mod segment;
#[cfg(test)]
mod tests;

pub use cold::{Cold, Entry};
pub use copies::Blocks;
pub use handle::{Handle, POSITION_BITS, Position, position_of};
pub use iter::Iter;

use crate::limits::TABLE_DEPTH_MAX;
pub use secret::{SecretHasher, SecretKey};
pub use segment::{COLD_BITS_MIN, TAG_BITS};
use segment::{Segment, Tag, Word, Words};
use std::marker::PhantomData;
use std::sync::Arc;
use sys::prefetch::prefetch;

/// The arrays of a table that has them for itself.
pub type OwnWords = Box<[Word]>;
/// The arrays of a table of which there may be copies.
pub type SharedWords = Arc<[Word]>;

/// How many leading bits of a position [`Table::with_prefix`] goes by.
pub const PREFIX_BITS: u32 = 32;

// A prefix tells the segment and the tag.
const _: () = assert!(TAG_BITS + TABLE_DEPTH_MAX as u32 <= PREFIX_BITS);

/// Where a block was found. Good until the table changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    segment: usize,
    index: usize,
}

/// Blocks by their positions. Dropping the table frees them.
#[derive(Debug)]
pub struct Table<H: Handle> {
    root: Segment<H::Words>,
    directory: Option<Box<Directory<H::Words>>>,
    owns: PhantomData<H>,
}

/// Which segment holds which positions. `chosen_by` has `2^depth` entries; a
/// segment of less depth has several, side by side.
#[derive(Clone, Debug)]
struct Directory<W> {
    depth: u8,
    chosen_by: Vec<u32>,
    segments: Vec<Segment<W>>,
    /// Blocks in all segments.
    blocks: usize,
}

impl<H: Handle> Default for Table<H> {
    fn default() -> Table<H> {
        Table { root: Segment::default(), directory: None, owns: PhantomData }
    }
}

impl<H: Handle> Table<H> {
    /// An empty table, which takes no memory beside its own few words.
    pub fn new() -> Table<H> {
        Table::default()
    }

    /// How many blocks there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.directory.as_ref().map_or(self.root.used(), |directory| directory.blocks)
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that the table takes, blocks not counted.
    pub fn bytes(&self) -> usize {
        let directory = self.directory.as_ref().map_or(0, |directory| {
            size_of_val(&**directory) + size_of_val(&*directory.chosen_by) + size_of_val(&*directory.segments)
        });
        self.segments().map(|segment| segment.bytes()).sum::<usize>() + directory
    }

    /// The block at this position that `is_it` accepts. Blocks whose position differs
    /// in its last bits only may be shown to it too.
    #[inline]
    pub fn find(&self, position: Position, mut is_it: impl FnMut(H) -> bool) -> Option<Place> {
        let number = self.segment_number(position);
        let segment = self.segment(number);
        let tag = Tag::of(position, segment.depth());
        let index = segment.find(tag, |address| is_it(handle_at(address)))?;
        Some(Place { segment: number, index })
    }

    /// The block at a place.
    #[inline]
    pub fn get(&self, place: Place) -> H {
        handle_at(self.segment(place.segment).address(place.index))
    }

    /// Adds a block. `position_of` gives the position of any block in the table; it
    /// is asked when a full segment is split.
    ///
    /// # Safety
    /// The block must be live, and the caller gives it up to the table: nothing else
    /// frees it or puts it into a table.
    #[inline]
    pub unsafe fn insert(&mut self, position: Position, handle: H, position_of: impl Fn(H) -> Position) {
        loop {
            let number = self.segment_number(position);
            let segment = self.segment_mut(number);
            let word = Word::new(Tag::of(position, segment.depth()), handle.address());
            if segment.insert(word) {
                self.count_insert();
                return;
            }
            self.make_room(number, &position_of);
        }
    }

    /// Puts another block with the same position in place of one, which the caller
    /// gets to keep or free.
    ///
    /// # Safety
    /// As of [`Table::insert`].
    #[inline]
    pub unsafe fn replace(&mut self, place: Place, handle: H) -> H {
        let old = self.get(place);
        self.segment_mut(place.segment).replace(place.index, handle.address());
        old
    }

    /// Puts a block in place of the word that says where it was.
    ///
    /// # Safety
    /// As of [`Table::insert`].
    pub unsafe fn warm(&mut self, place: Place, handle: H) {
        let segment = self.segment_mut(place.segment);
        debug_assert!(segment.word(place.index).is_cold());
        segment.replace(place.index, handle.address());
    }

    /// Takes a block out, which the caller gets to keep or free.
    pub fn take(&mut self, place: Place) -> H {
        handle_at(self.remove(place).address())
    }

    /// Takes a block out, to be freed.
    fn give_up(&mut self, place: Place) -> Orphan<H> {
        Orphan(self.take(place))
    }

    /// Frees all blocks.
    pub fn clear(&mut self) {
        *self = Table::default();
    }

    /// Calls `visit` for blocks from position `from` on, in the order of their
    /// positions, until at least `enough` were visited and all that share a word's
    /// tag with the last one too. Returns where to go on, or None at the end. What
    /// is in the table throughout is visited however the table grows or shrinks
    /// between the calls.
    ///
    /// Blocks that are not in memory count and are not shown.
    pub fn scan(&self, from: Position, enough: usize, mut visit: impl FnMut(H)) -> Option<Position> {
        self.scan_entries(from, enough, |entry| {
            if let Entry::Block(block) = entry {
                visit(block);
            }
        })
    }

    /// The blocks whose position begins with these [`PREFIX_BITS`] bits, and perhaps
    /// some others.
    pub fn with_prefix(&self, prefix: u32) -> impl Iterator<Item = (Place, H)> {
        let position = Position(u64::from(prefix) << (POSITION_BITS - PREFIX_BITS));
        let number = self.segment_number(position);
        let segment = self.segment(number);
        let tag = Tag::of(position, segment.depth());
        segment.span(tag, tag).filter_map(move |index| {
            let word = segment.words()[index];
            let place = Place { segment: number, index };
            let is_it = !word.is_gap() && !word.is_cold() && word.tag() == tag;
            is_it.then(|| (place, handle_at(word.address())))
        })
    }

    /// All blocks in memory, in the order of their positions unless a segment was split. The
    /// blocks ahead are prefetched.
    pub fn iter(&self) -> Iter<'_, H> {
        Iter::new(self)
    }

    /// The address of the word where a search for the position begins, for prefetching.
    #[inline]
    pub fn home_address(&self, position: Position) -> usize {
        let segment = self.segment(self.segment_number(position));
        segment.home_address(Tag::of(position, segment.depth()))
    }

    /// The address of the root segment's words and its number of homes, for
    /// prefetching. None if there are no blocks or there is a directory.
    #[inline]
    pub fn hint(&self) -> Option<(usize, usize)> {
        (self.root.used() > 0).then(|| self.root.hint())
    }

    /// Where that block is.
    #[inline]
    pub fn likely_place(&self, position: Position) -> Option<Place> {
        let number = self.segment_number(position);
        let segment = self.segment(number);
        let index = segment.find(Tag::of(position, segment.depth()), |_| true)?;
        Some(Place { segment: number, index })
    }

    /// The address of the first block whose tag is that of `position`, for
    /// prefetching. It may be another one's.
    #[inline]
    pub fn likely_address(&self, position: Position) -> Option<u64> {
        let segment = self.segment(self.segment_number(position));
        let index = segment.find(Tag::of(position, segment.depth()), |_| true)?;
        Some(segment.address(index))
    }

    /// Asserts the invariants of every segment and of the directory, for tests.
    #[doc(hidden)]
    pub fn check(&self) {
        self.segments().for_each(Segment::check);
        if let Some(directory) = &self.directory {
            assert_eq!(directory.chosen_by.len(), 1 << directory.depth);
            assert_eq!(directory.blocks, directory.segments.iter().map(Segment::used).sum::<usize>());
            assert_eq!(self.root.used(), 0);
        }
    }

    fn segments(&self) -> impl Iterator<Item = &Segment<H::Words>> {
        let split = self.directory.iter().flat_map(|directory| &directory.segments);
        std::iter::once(&self.root).chain(split)
    }

    /// 0 is the root; the directory's segments follow.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "addresses have 64 bits; numbers of segments and entries fit into 32"
    )]
    fn segment_number(&self, position: Position) -> usize {
        match &self.directory {
            None => 0,
            Some(directory) => {
                let entry = position.0 >> (POSITION_BITS - u32::from(directory.depth));
                directory.chosen_by[entry as usize] as usize + 1
            }
        }
    }

    #[inline]
    fn segment(&self, number: usize) -> &Segment<H::Words> {
        match &self.directory {
            Some(directory) if number > 0 => &directory.segments[number - 1],
            _ => &self.root,
        }
    }

    #[inline]
    fn segment_mut(&mut self, number: usize) -> &mut Segment<H::Words> {
        match &mut self.directory {
            Some(directory) if number > 0 => &mut directory.segments[number - 1],
            _ => &mut self.root,
        }
    }

    fn count_insert(&mut self) {
        if let Some(directory) = &mut self.directory {
            directory.blocks += 1;
        }
    }

    fn remove(&mut self, place: Place) -> Word {
        let word = self.segment_mut(place.segment).remove(place.index);
        if let Some(directory) = &mut self.directory {
            directory.blocks -= 1;
            if directory.blocks == 0 {
                self.directory = None;
            }
        }
        word
    }

    /// Splits a full segment in two by the next bit of the position; or lets it outgrow its size, if cold words do not
    /// know that bit's successors any more.
    #[cold]
    fn make_room(&mut self, number: usize, position_of: impl Fn(H) -> Position) {
        if !self.segment(number).may_be_split() {
            return self.segment_mut(number).outgrow();
        }
        let directory = self.directory.get_or_insert_with(|| {
            let root = std::mem::take(&mut self.root);
            Box::new(Directory { depth: 0, chosen_by: vec![0], blocks: root.used(), segments: vec![root] })
        });
        directory.split(number.saturating_sub(1), |address| position_of(handle_at(address)));
    }
}

/// A block that is in no table any more. Dropping it frees it.
#[derive(Debug)]
pub struct Orphan<H: Handle>(H);

impl<H: Handle> Orphan<H> {
    /// Its block, which stays its own.
    fn block(&self) -> H {
        self.0
    }
}

impl<H: Handle> Drop for Orphan<H> {
    fn drop(&mut self) {
        // SAFETY: it owns the block.
        unsafe { self.0.free() }
    }
}

/// What is unsafe of tables is so of those with copies.
impl<H: Handle> Blocks<H> {
    /// As [`Table::insert`].
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn insert(&mut self, position: Position, handle: H, position_of: impl Fn(H) -> Position) {
        // SAFETY: the caller promises it.
        unsafe { self.table.insert(position, handle, position_of) }
    }

    /// Puts another block in place of one of the same position, and frees that, now or when no copy has it any more.
    ///
    /// # Safety
    /// As of [`Table::insert`].
    #[inline]
    pub unsafe fn replace(&mut self, place: Place, position: Position, handle: H) {
        // SAFETY: the caller promises it, and the table has given the old one up.
        let old = Orphan(unsafe { self.table.replace(place, handle) });
        self.release(old, || position);
    }
}

/// How many blocks ahead a split fetches: enough to hide a miss behind hashing.
const SPLIT_PREFETCH: usize = 12;

impl<W: Words> Directory<W> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "addresses have 64 bits; numbers of segments and entries fit into 32"
    )]
    fn split(&mut self, number: usize, position_of: impl Fn(u64) -> Position) {
        let depth = self.segments[number].depth() + 1;
        let mut halves: [Vec<Word>; 2] = [Vec::new(), Vec::new()];
        let words: Vec<Word> = self.segments[number].iter().collect();
        for (index, word) in words.iter().enumerate() {
            if let Some(ahead) = words.get(index + SPLIT_PREFETCH).filter(|ahead| !ahead.is_cold()) {
                prefetch(ahead.address() as usize);
            }
            let moved = word.split(&position_of, depth).expect("segments are split that may be");
            halves[word.half()].push(moved);
        }
        let [low, high] = halves.map(|mut half| {
            half.sort_by_key(|word| word.tag());
            Segment::from_sorted(&half, depth)
        });
        self.segments[number] = low;
        self.segments.push(high);
        if depth > self.depth {
            self.chosen_by = self.chosen_by.iter().flat_map(|number| [*number; 2]).collect();
            self.depth = depth;
        }
        let new_number = (self.segments.len() - 1) as u32;
        for (entry, chosen) in self.chosen_by.iter_mut().enumerate() {
            if *chosen as usize == number && entry >> (self.depth - depth) & 1 == 1 {
                *chosen = new_number;
            }
        }
    }
}

impl<H: Handle> Drop for Table<H> {
    fn drop(&mut self) {
        for handle in self.iter() {
            // SAFETY: the table owns its blocks and is going away.
            unsafe { handle.free() }
        }
    }
}

/// The handle that a word's address names.
#[inline]
fn handle_at<H: Handle>(address: u64) -> H {
    // SAFETY: only words hold addresses, and each word was made from a live block
    // that its table owns until the word is taken out.
    unsafe { H::from_address(address) }
}

/// The least position with this tag in the segment that holds `within`.
fn first_with(within: Position, depth: u8, tag: Tag) -> Position {
    let below = POSITION_BITS - u32::from(depth);
    let chosen = if depth == 0 { 0 } else { within.0 >> below << below };
    Position(chosen | u64::from(tag.0) << (below - TAG_BITS))
}

/// The first position after the segment that holds `within`.
fn next_segment(within: Position, depth: u8) -> Option<Position> {
    let below = POSITION_BITS - u32::from(depth);
    let next = (within.0 >> below) + 1;
    (next >> depth == 0).then(|| Position(next << below))
}
