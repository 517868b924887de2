//! Words of blocks that are not in memory: the table says where each is, and as much of its position as there is room for.
//!
//! Whoever looks for a block has to fetch each that may be the one, and look at it. A cold word knows 30 bits of its position
//! behind the bits that chose its segment, one fewer for each split since: two blocks of a table hardly ever share them.
//!
//! Invariants:
//! 1. A cold word counts as a block of the table, but owns nothing.

use super::segment::{COLD_BITS_MIN, TAG_BITS, Tag, Word};
use super::{
    Handle, POSITION_BITS, PREFIX_BITS, Place, Position, Table, first_with, handle_at, next_segment,
};

/// What a table holds at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<H> {
    /// A block in memory.
    Block(H),
    /// One that is not.
    Cold(Cold),
}

/// What a table knows of a block that is not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cold {
    /// Where it is.
    pub at: u32,
    /// Its position, of which the first `bits` bits are known.
    begins: Position,
    bits: u32,
}

impl Cold {
    /// Bytes of [`Cold::to_bytes`].
    pub const BYTES: usize = 9;
    /// More of a position is not written down.
    const BITS_MAX: u32 = 34;

    /// A block at a position that is all known.
    pub fn new(position: Position, at: u32) -> Cold {
        Cold { at, begins: position, bits: POSITION_BITS }
    }

    /// For a table that is to be made again: 34 bits of the position at most, how many of them are known (6 bits), and where the
    /// block is (32 bits). Little-endian.
    pub fn to_bytes(self) -> [u8; Cold::BYTES] {
        let bits = self.bits.min(Cold::BITS_MAX);
        let known = self.begins.0 >> (POSITION_BITS - bits) << (Cold::BITS_MAX - bits);
        let mut bytes = [0; Cold::BYTES];
        bytes[..5].copy_from_slice(&(known << 6 | u64::from(bits)).to_le_bytes()[..5]);
        bytes[5..].copy_from_slice(&self.at.to_le_bytes());
        bytes
    }

    /// What [`Cold::to_bytes`] has written down; None if it has not.
    pub fn of_bytes(bytes: [u8; Cold::BYTES]) -> Option<Cold> {
        let [a, b, c, d, e, at @ ..] = bytes;
        let packed = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
        let (known, bits) = (packed >> 6, (packed & 63) as u32);
        let is_right = (COLD_BITS_MIN..=Cold::BITS_MAX).contains(&bits)
            && known & ((1 << (Cold::BITS_MAX - bits)) - 1) == 0;
        let begins = Position(known << (POSITION_BITS - Cold::BITS_MAX));
        is_right.then_some(Cold { at: u32::from_le_bytes(at), begins, bits })
    }

    /// How much of its position is known.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Whether its position may be this one.
    pub fn may_be(&self, position: Position) -> bool {
        (self.begins.0 ^ position.0) >> (POSITION_BITS - self.bits) == 0
    }
}

impl<H: Handle> Table<H> {
    /// Calls `visit` for what the table holds from position `from` on, in the order of positions, until at least `enough`
    /// were visited and all that share a word's tag with the last one too. Returns where to go on, or None at the end. What
    /// is in the table throughout is visited however the table grows or shrinks between the calls.
    pub fn scan_entries(
        &self,
        from: Position,
        enough: usize,
        mut visit: impl FnMut(Entry<H>),
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
                    return Some(first_with(at, depth, word.tag()));
                }
                reached = Some(word.tag());
                visited += 1;
                visit(entry_of(*word, first_with(at, depth, word.tag()), depth));
            }
            at = next_segment(at, depth)?;
        }
    }

    /// The blocks not in memory that may be the one at this position.
    pub fn find_cold(&self, position: Position) -> impl Iterator<Item = (Place, u32)> + '_ {
        let number = self.segment_number(position);
        let segment = self.segment(number);
        let entry = move |index| (Place { segment: number, index }, segment.word(index).at());
        segment.find_cold(position).map(entry)
    }

    /// The same for those whose position may begin with these [`PREFIX_BITS`] bits.
    pub fn cold_with_prefix(&self, prefix: u32) -> impl Iterator<Item = (Place, u32)> + '_ {
        const BELOW: u32 = POSITION_BITS - PREFIX_BITS;
        let position = Position(u64::from(prefix) << BELOW);
        let number = self.segment_number(position);
        let segment = self.segment(number);
        let (tag, depth) = (Tag::of(position, segment.depth()), segment.depth());
        segment.span(tag, tag).filter_map(move |index| {
            let word = segment.word(index);
            let is_cold = !word.is_gap() && word.is_cold() && word.tag() == tag;
            let is_it = is_cold && word.may_be_among(position, PREFIX_BITS, depth);
            is_it.then(|| (Place { segment: number, index }, word.at()))
        })
    }

    /// The places of all blocks in memory. They stay good while words only take each other's places.
    pub fn places(&self) -> impl Iterator<Item = (Place, H)> + '_ {
        self.segments().enumerate().flat_map(|(segment, words)| {
            let words = words.words().iter().enumerate();
            let in_memory = words.filter(|(_, word)| !word.is_gap() && !word.is_cold());
            in_memory.map(move |(index, word)| (Place { segment, index }, handle_at(word.address())))
        })
    }

    /// Adds a block that is not in memory. Into a table that is made again, those come first of whose positions the least is known:
    /// no segment is split further than one of its words knows.
    pub fn insert_cold(&mut self, cold: Cold, position_of: impl Fn(H) -> Position) {
        loop {
            let number = self.segment_number(cold.begins);
            let segment = self.segment_mut(number);
            let word = Word::cold(cold.begins, cold.bits, segment.depth(), cold.at);
            if segment.insert(word) {
                return self.count_insert();
            }
            self.make_room(number, &position_of);
        }
    }

    /// Puts where a block is in place of the block, which the caller gets to keep or free.
    pub fn chill(&mut self, place: Place, position: Position, at: u32) -> H {
        let block = self.get(place);
        let segment = self.segment_mut(place.segment);
        segment.set(place.index, Word::cold(position, POSITION_BITS, segment.depth(), at));
        block
    }

    /// Notes that a block that is not in memory is elsewhere now.
    pub fn move_cold(&mut self, place: Place, at: u32) {
        let segment = self.segment_mut(place.segment);
        segment.set(place.index, segment.word(place.index).cold_at(at));
    }

    /// Takes out a block that is not in memory; tells where it was.
    pub fn take_cold(&mut self, place: Place) -> u32 {
        self.remove(place).at()
    }
}

/// What a word with this tag stands for, in a segment that `depth` bits have chosen.
#[inline]
fn entry_of<H: Handle>(word: Word, tag: Position, depth: u8) -> Entry<H> {
    if !word.is_cold() {
        return Entry::Block(handle_at(word.address()));
    }
    let (known, known_bits) = word.known();
    let bits = u32::from(depth) + TAG_BITS + known_bits;
    Entry::Cold(Cold { at: word.at(), begins: Position(tag.0 | known << (POSITION_BITS - bits)), bits })
}
