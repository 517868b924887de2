//! A slot's table: from a key to its object.
//!
//! One segment as long as it is small; then a directory of segments, chosen by
//! the leading bits of the position (extendible hashing: Fagin et al., 1979). A
//! full segment is split alone, so that even one huge slot never stalls for the
//! rehash of all its keys.
//!
//! Thread rule: whoever holds the slot's lock has the table to itself.
//!
//! Invariant: every word's block is live and owned by this table alone.

#![allow(unsafe_code)] // Owns the blocks that its words point to; fuzzed by tests/fuzz.rs.

use crate::ids::{Key, KeyHasher, POSITION_BITS, Position};
use crate::object::{Block, Object};
use crate::prefetch::prefetch;
use crate::segment::{Segment, TAG_BITS, Tag, Word};
use value::collection::Collection;

/// Where a key was found. Good until the table changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    segment: usize,
    index: usize,
}

/// All keys of one slot.
#[derive(Debug, Default)]
pub(crate) struct Table {
    root: Segment,
    directory: Option<Box<Directory>>,
}

/// Which segment holds which positions. `chosen_by` has `2^depth` entries; a
/// segment of less depth has several, side by side.
#[derive(Debug)]
struct Directory {
    depth: u8,
    chosen_by: Vec<u32>,
    segments: Vec<Segment>,
    /// Keys in all segments.
    keys: usize,
}

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.directory.as_ref().map_or(self.root.used(), |directory| directory.keys)
    }

    /// Bytes of memory that the table takes, objects not counted.
    pub(crate) fn bytes(&self) -> usize {
        let directory = self.directory.as_ref().map_or(0, |directory| {
            size_of_val(&**directory) + size_of_val(&*directory.chosen_by) + size_of_val(&*directory.segments)
        });
        self.segments().map(Segment::bytes).sum::<usize>() + directory
    }

    /// The root segment's array and its number of homes, for prefetching. None if
    /// there are no keys or there is a directory.
    #[inline]
    pub(crate) fn hint(&self) -> Option<(*const Word, usize)> {
        (self.root.used() > 0).then(|| self.root.hint())
    }

    #[inline]
    pub(crate) fn find(&self, key: &Key<'_>) -> Option<Place> {
        let number = self.segment_number(key.position);
        let segment = self.segment(number);
        let tag = Tag::of(key.position, segment.depth());
        let index = segment.find(tag, |block| {
            // SAFETY: a word's block is live (see the invariant) and not changed meanwhile.
            unsafe { block.object() }.key() == key.bytes
        })?;
        Some(Place { segment: number, index })
    }

    /// The first object whose tag is that of `position`, for prefetching. It may
    /// be another key's.
    pub(crate) fn likely_address(&self, position: Position) -> Option<u64> {
        let segment = self.segment(self.segment_number(position));
        let index = segment.find(Tag::of(position, segment.depth()), |_| true)?;
        Some(segment.block(index).address())
    }

    #[inline]
    pub(crate) fn object(&self, place: Place) -> Object<'_> {
        // SAFETY: the block is live and the borrow of the table keeps it unchanged.
        unsafe { self.segment(place.segment).block(place.index).object() }
    }

    /// The block for editing in place.
    #[inline]
    pub(crate) fn block(&mut self, place: Place) -> Block {
        self.segment(place.segment).block(place.index)
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
    pub(crate) fn insert(&mut self, position: Position, block: Block, hasher: &KeyHasher) {
        loop {
            let number = self.segment_number(position);
            let segment = self.segment_mut(number);
            let word = Word::new(Tag::of(position, segment.depth()), block);
            if segment.insert(word) {
                if let Some(directory) = &mut self.directory {
                    directory.keys += 1;
                }
                return;
            }
            self.split(number, hasher);
        }
    }

    /// Puts another block with the same key in place of the one found and frees that.
    pub(crate) fn replace(&mut self, place: Place, block: Block) {
        let old = self.block(place);
        self.segment_mut(place.segment).replace(place.index, block);
        // SAFETY: the table has just let go of the only handle.
        unsafe { old.free() }
    }

    /// Takes an object out; the caller frees it.
    pub(crate) fn take(&mut self, place: Place) -> Block {
        let block = self.segment_mut(place.segment).remove(place.index);
        if let Some(directory) = &mut self.directory {
            directory.keys -= 1;
            if directory.keys == 0 {
                self.directory = None;
            }
        }
        block
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
        let mut at = from;
        let mut visited = 0;
        loop {
            let segment = self.segment(self.segment_number(at));
            let depth = segment.depth();
            let (first, last) = (Tag::of(at, depth), Tag((1 << TAG_BITS) - 1));
            let mut reached = None;
            for word in
                segment.words()[segment.span(first, last)].iter().filter(|w| !w.is_gap() && w.tag() >= first)
            {
                if visited >= enough && reached != Some(word.tag()) {
                    return Some(position_of(at, depth, word.tag()));
                }
                reached = Some(word.tag());
                visited += 1;
                // SAFETY: the block is live and the borrow of the table keeps it unchanged.
                visit(unsafe { word.block().object() });
            }
            at = next_segment(at, depth)?;
        }
    }

    /// Calls `visit` for all objects whose positions begin with 32 bits from `first`
    /// to `last`, and perhaps for some others.
    pub(crate) fn visit_between(&self, first: u32, last: u32, mut visit: impl FnMut(Object<'_>)) {
        const STEP: usize = 512;
        let end = (u64::from(last) + 1) << (POSITION_BITS - 32);
        let mut from = Some(Position(u64::from(first) << (POSITION_BITS - 32)));
        while let Some(at) = from.filter(|at| at.0 < end) {
            from = self.scan(at, STEP, &mut visit);
        }
    }

    /// Objects whose position begins with the 32 bits given (timers know no more).
    pub(crate) fn with_prefix(&self, prefix: u32) -> impl Iterator<Item = (Place, Object<'_>)> {
        let position = Position(u64::from(prefix) << (POSITION_BITS - 32));
        let number = self.segment_number(position);
        let segment = self.segment(number);
        let tag = Tag::of(position, segment.depth());
        segment.span(tag, tag).filter_map(move |index| {
            let word = segment.words()[index];
            let place = Place { segment: number, index };
            (!word.is_gap() && word.tag() == tag).then(|| (place, self.object(place)))
        })
    }

    /// The object with exactly this position.
    pub(crate) fn find_position(&self, position: Position, hasher: &KeyHasher) -> Option<Place> {
        let prefix = (position.0 >> (POSITION_BITS - 32)) as u32;
        let mut places = self.with_prefix(prefix);
        places.find(|(_, object)| hasher.position(object.key()) == position).map(|(place, _)| place)
    }

    /// All objects, in the order of their positions.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Object<'_>> {
        self.segments().flat_map(Segment::iter).map(|word| {
            // SAFETY: the block is live and the borrow of the table keeps it unchanged.
            unsafe { word.block().object() }
        })
    }

    /// Asserts the invariants of every segment and of the directory.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.segments().for_each(Segment::check);
        if let Some(directory) = &self.directory {
            assert_eq!(directory.chosen_by.len(), 1 << directory.depth);
            assert_eq!(directory.keys, directory.segments.iter().map(Segment::used).sum::<usize>());
            assert_eq!(self.root.used(), 0);
        }
    }

    fn segments(&self) -> impl Iterator<Item = &Segment> {
        let split = self.directory.iter().flat_map(|directory| &directory.segments);
        std::iter::once(&self.root).chain(split)
    }

    /// 0 is the root; the directory's segments follow.
    #[inline]
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
    fn segment(&self, number: usize) -> &Segment {
        match &self.directory {
            Some(directory) if number > 0 => &directory.segments[number - 1],
            _ => &self.root,
        }
    }

    fn segment_mut(&mut self, number: usize) -> &mut Segment {
        match &mut self.directory {
            Some(directory) if number > 0 => &mut directory.segments[number - 1],
            _ => &mut self.root,
        }
    }

    /// Splits a full segment in two by the next bit of the position.
    fn split(&mut self, number: usize, hasher: &KeyHasher) {
        let directory = self.directory.get_or_insert_with(|| {
            let root = std::mem::take(&mut self.root);
            Box::new(Directory { depth: 0, chosen_by: vec![0], keys: root.used(), segments: vec![root] })
        });
        directory.split(number.saturating_sub(1), hasher);
    }
}

/// How many keys ahead a split fetches: enough to hide a miss behind hashing.
const SPLIT_PREFETCH: usize = 12;

impl Directory {
    fn split(&mut self, number: usize, hasher: &KeyHasher) {
        let depth = self.segments[number].depth() + 1;
        let mut halves: [Vec<(Position, Block)>; 2] = [Vec::new(), Vec::new()];
        let words: Vec<Word> = self.segments[number].iter().collect();
        for (index, word) in words.iter().enumerate() {
            if let Some(ahead) = words.get(index + SPLIT_PREFETCH) {
                prefetch(ahead.block().address() as usize);
            }
            let block = word.block();
            // SAFETY: the block is live and owned by the segment being split.
            let position = hasher.position(unsafe { block.object() }.key());
            halves[bit(position, depth)].push((position, block));
        }
        let [low, high] = halves.map(|half| sorted_segment(half, depth));
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

impl Drop for Table {
    fn drop(&mut self) {
        for word in self.segments().flat_map(Segment::iter) {
            // SAFETY: the table owns its blocks and is going away.
            unsafe { word.block().free() }
        }
    }
}

/// The block that a word's address names.
#[inline]
pub(crate) fn block_at(address: u64) -> Block {
    // SAFETY: only words make addresses, and each word was made from a live block
    // that its table owns until the word is taken out.
    unsafe { Block::from_address(address) }
}

fn sorted_segment(mut half: Vec<(Position, Block)>, depth: u8) -> Segment {
    half.sort_unstable_by_key(|(position, _)| *position);
    let words: Vec<Word> =
        half.into_iter().map(|(position, block)| Word::new(Tag::of(position, depth), block)).collect();
    Segment::from_sorted(&words, depth)
}

/// Bit number `depth` of a position, counted from the front, beginning with 1.
fn bit(position: Position, depth: u8) -> usize {
    (position.0 >> (POSITION_BITS - u32::from(depth)) & 1) as usize
}

/// The least position with this tag in the segment that holds `within`.
fn position_of(within: Position, depth: u8, tag: Tag) -> Position {
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
