//! A sorted array of words with gaps: the part of a table that holds the blocks
//! of one stretch of positions.
//!
//! A word is 8 bytes. That of a block in memory: `tag (20 bits) | 0 | address / 16 (43 bits)`. That of a block
//! elsewhere, a *cold* word: `tag (20 bits) | 1 | a one and what is known of the position behind the tag (11 bits) |
//! where the block is (32 bits)`. The tag is the part of the position that follows the bits which chose the
//! segment. A word's home is its tag scaled to the array's length, so homes
//! come in the order of tags, and growing the array needs no look at the blocks.
//!
//! Linear probing with words kept in tag order (Amble and Knuth, "Ordered hash
//! tables", 1974): a search ends at the first gap or larger tag. Words that come in the order of their tags, as they do from another
//! table, pile up while the array is short: a search that goes on for long leaps.
//!
//! Invariants:
//! 1. Tags never decrease along the array, gaps left out.
//! 2. No word lies before its home, and there is no gap between its home and it.
//! 3. The last word is a gap, so that every search ends within the array.

use super::{POSITION_BITS, Position};
use crate::limits::{TABLE_DEPTH_MAX, TABLE_SEGMENT_WORDS_MAX};
use std::fmt::Debug;
use std::ops::{Deref, Range};
use std::sync::Arc;
use sys::memory::size_class;

/// Bits of a tag.
pub const TAG_BITS: u32 = 20;
const TAG_SHIFT: u32 = 64 - TAG_BITS;
const ADDRESS_MASK: u64 = (1 << 43) - 1;
const COLD: u64 = 1 << 43;
/// Behind its tag a cold word knows up to so many bits of its position: one fewer with each split of its segment.
const KNOWN_BITS_MAX: u32 = 10;
/// How much of its position a cold word knows at least.
pub const COLD_BITS_MIN: u32 = TAG_BITS + KNOWN_BITS_MAX;
const KNOWN_SHIFT: u32 = 32;
const GAP: Word = Word(0);

/// A table word. Zero is a gap: no block lies at address 0, and a cold word has its bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(u64);

/// The array of a segment: its own, or one that it may share with copies of it until either changes.
pub trait Words: Clone + Default + Debug + Deref<Target = [Word]> {
    /// What its allocation has beside the words.
    const HEADER_BYTES: usize;

    /// So many gaps.
    fn gaps(length: usize) -> Self;

    /// The words, to be changed; shared no more.
    fn edit(&mut self) -> &mut [Word];
}

impl Words for Box<[Word]> {
    const HEADER_BYTES: usize = 0;

    fn gaps(length: usize) -> Self {
        vec![GAP; length].into_boxed_slice()
    }

    #[inline]
    fn edit(&mut self) -> &mut [Word] {
        self
    }
}

impl Words for Arc<[Word]> {
    const HEADER_BYTES: usize = 2 * size_of::<usize>();

    fn gaps(length: usize) -> Self {
        std::iter::repeat_n(GAP, length).collect()
    }

    #[inline]
    fn edit(&mut self) -> &mut [Word] {
        Arc::make_mut(self)
    }
}

impl Word {
    #[inline]
    pub(crate) fn new(tag: Tag, address: u64) -> Word {
        assert!(
            address >> 47 == 0 && address & 15 == 0,
            "a block's address has 43 bits above the lowest four"
        );
        Word(u64::from(tag.0) << TAG_SHIFT | address >> 4)
    }

    #[inline]
    pub(crate) fn tag(self) -> Tag {
        Tag((self.0 >> TAG_SHIFT) as u32)
    }

    #[inline]
    pub(crate) fn is_gap(self) -> bool {
        self == GAP
    }

    /// The address of the block that the word stands for.
    #[inline]
    pub(crate) fn address(self) -> u64 {
        debug_assert!(!self.is_cold());
        (self.0 & ADDRESS_MASK) << 4
    }

    /// The word of a block that is not in memory and of whose position `bits` are known, those that chose its segment (`depth`)
    /// and the tag's among them.
    pub(crate) fn cold(position: Position, bits: u32, depth: u8, at: u32) -> Word {
        let above = TAG_BITS + u32::from(depth);
        let known_bits = (bits - above).min(KNOWN_BITS_MAX);
        let known =
            (position.0 >> (POSITION_BITS - above - known_bits)) & ((1 << known_bits) - 1) | 1 << known_bits;
        Word(u64::from(Tag::of(position, depth).0) << TAG_SHIFT | COLD | known << KNOWN_SHIFT | u64::from(at))
    }

    /// The same block at another place.
    pub(crate) fn cold_at(self, at: u32) -> Word {
        debug_assert!(self.is_cold());
        Word(self.0 >> 32 << 32 | u64::from(at))
    }

    #[inline]
    pub(crate) fn is_cold(self) -> bool {
        self.0 & COLD != 0
    }

    /// Where a block is that is not in memory.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "these bits are meant; a segment has fewer than 2^32 words"
    )]
    pub(crate) fn at(self) -> u32 {
        debug_assert!(self.is_cold());
        self.0 as u32
    }

    /// What a cold word knows of its position behind the tag, and how many bits that is.
    #[inline]
    pub(crate) fn known(self) -> (u64, u32) {
        let marked = (self.0 & (COLD - 1)) >> KNOWN_SHIFT;
        let bits = marked.ilog2();
        (marked ^ 1 << bits, bits)
    }

    /// Whether a cold word with the tag of this position may be that position's.
    #[inline]
    pub(crate) fn may_be(self, position: Position, depth: u8) -> bool {
        self.may_be_among(position, POSITION_BITS, depth)
    }

    /// Whether it may be one of those that share the first `bits` bits with this position, the tag's among them.
    #[inline]
    pub(crate) fn may_be_among(self, position: Position, bits: u32, depth: u8) -> bool {
        let (known, known_bits) = self.known();
        let compared = known_bits.min(bits - TAG_BITS - u32::from(depth));
        let below = POSITION_BITS - TAG_BITS - compared - u32::from(depth);
        (position.0 >> below) & ((1 << compared) - 1) == known >> (known_bits - compared)
    }

    /// The word after its segment was split; None if a cold word does not know how its new tag ends.
    pub(crate) fn split(self, position_of: impl Fn(u64) -> Position, depth: u8) -> Option<Word> {
        if !self.is_cold() {
            let address = self.address();
            return Some(Word::new(Tag::of(position_of(address), depth), address));
        }
        let (known, bits) = self.known();
        let left = bits.checked_sub(1)?;
        let tag = (u64::from(self.tag().0) << 1 | known >> left) & ((1 << TAG_BITS) - 1);
        let known = known & ((1 << left) - 1) | 1 << left;
        Some(Word(tag << TAG_SHIFT | COLD | known << KNOWN_SHIFT | u64::from(self.at())))
    }

    /// Which half the word goes to when its segment is split: the first bit of its tag.
    pub(crate) fn half(self) -> usize {
        (self.0 >> 63) as usize
    }
}

/// The part of a position that a word carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tag(pub(crate) u32);

impl Tag {
    /// The tag of a position in a segment that `depth` leading bits have chosen.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "these bits are meant; a segment has fewer than 2^32 words"
    )]
    pub(crate) fn of(position: Position, depth: u8) -> Tag {
        let shift = POSITION_BITS - TAG_BITS - u32::from(depth);
        Tag((position.0 >> shift) as u32 & ((1 << TAG_BITS) - 1))
    }
}

/// One stretch of a table.
#[derive(Clone, Debug, Default)]
pub struct Segment<W> {
    words: W,
    /// Words that are not gaps.
    used: u32,
    /// How many leading bits of a position chose this segment.
    depth: u8,
}

impl<W: Words> Segment<W> {
    /// A segment built from words in tag order.
    pub(crate) fn from_sorted(words: &[Word], depth: u8) -> Segment<W> {
        let mut segment = Segment { depth, ..Segment::default() };
        segment.rebuild(words, length_for::<W>(words.len() + 1));
        segment
    }

    #[inline]
    pub(crate) fn used(&self) -> usize {
        self.used as usize
    }

    #[inline]
    pub(crate) fn depth(&self) -> u8 {
        self.depth
    }

    /// The words without the gaps, in tag order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Word> + '_ {
        self.words.iter().copied().filter(|word| !word.is_gap())
    }

    /// The index of the word before which there are `count` others.
    pub(crate) fn index_of_nth(&self, count: usize) -> usize {
        let used = self.words.iter().enumerate().filter(|(_, word)| !word.is_gap());
        used.map(|(index, _)| index).nth(count).expect("the segment has more words than are before it")
    }

    /// Bytes of memory that the array takes.
    pub(crate) fn bytes(&self) -> usize {
        if self.words.is_empty() { 0 } else { size_class(size_of_val(&*self.words) + W::HEADER_BYTES) }
    }

    #[inline]
    pub(crate) fn address(&self, index: usize) -> u64 {
        let word = self.words[index];
        debug_assert!(!word.is_gap());
        word.address()
    }

    #[inline]
    pub(crate) fn word(&self, index: usize) -> Word {
        self.words[index]
    }

    /// Puts another word with the same tag in place of the one at `index`.
    pub(crate) fn set(&mut self, index: usize, word: Word) {
        debug_assert!(self.words[index].tag() == word.tag() && !word.is_gap());
        self.words.edit()[index] = word;
    }

    /// Whether every word knows to which half of the segment it belongs, and what its tag is there.
    pub(crate) fn may_be_split(&self) -> bool {
        self.iter().all(|word| !word.is_cold() || word.known().1 > 0)
    }

    /// The indices of the cold words that may be the position's.
    pub(crate) fn find_cold(&self, position: Position) -> impl Iterator<Item = usize> + '_ {
        let tag = Tag::of(position, self.depth);
        let may_be =
            move |word: Word| word.tag() == tag && word.is_cold() && word.may_be(position, self.depth);
        let first = if self.words.is_empty() { 0 } else { home(tag, self.homes()) };
        let run = self.words[first..].iter().enumerate();
        let run = run.take_while(move |(_, word)| !word.is_gap() && word.tag() <= tag);
        run.filter(move |(_, word)| may_be(**word)).map(move |(index, _)| first + index)
    }

    /// The array's address and the number of homes, for prefetching.
    #[inline]
    pub(crate) fn hint(&self) -> (usize, usize) {
        (self.words.as_ptr().addr(), self.homes())
    }

    /// The address of the word where a search for the tag begins, for prefetching.
    #[inline]
    pub(crate) fn home_address(&self, tag: Tag) -> usize {
        let homes = self.homes();
        self.words.as_ptr().addr() + home(tag, homes) * size_of::<Word>()
    }

    /// The index of the word with this tag the address of whose block `is_it` accepts.
    #[inline]
    pub(crate) fn find(&self, tag: Tag, mut is_it: impl FnMut(u64) -> bool) -> Option<usize> {
        if self.words.is_empty() {
            return None;
        }
        let mut index = home(tag, self.homes());
        let far = index + NEAR;
        loop {
            let word = self.words[index];
            if word.is_gap() || word.tag() > tag {
                return None;
            }
            if word.tag() == tag && !word.is_cold() && is_it(word.address()) {
                return Some(index);
            }
            index += 1;
            if index == far {
                index = self.leap(index, tag);
            }
        }
    }

    /// Adds a word. False: the segment is as full as it may get, and unchanged.
    pub(crate) fn insert(&mut self, word: Word) -> bool {
        if self.used as usize >= used_max(self.words.len()) && !self.grow() {
            return false;
        }
        while !self.try_insert(word) {
            // Words pile up at the end of the array: the next length spreads them.
            if !self.grow() {
                return false;
            }
        }
        self.used += 1;
        true
    }

    /// Makes room for more words than a segment has before it is split.
    pub(crate) fn outgrow(&mut self) {
        let words: Vec<Word> = self.iter().collect();
        self.rebuild(&words, next_length::<W>(self.words.len()));
    }

    /// Puts another block in place of the one at `index`; its position is the same.
    #[inline]
    pub(crate) fn replace(&mut self, index: usize, address: u64) {
        let tag = self.words[index].tag();
        self.words.edit()[index] = Word::new(tag, address);
    }

    /// Takes the word at `index` out and closes the gap that it leaves.
    pub(crate) fn remove(&mut self, index: usize) -> Word {
        let homes = self.homes();
        let words = self.words.edit();
        let taken = words[index];
        let mut gap = index;
        while !words[gap + 1].is_gap() && home(words[gap + 1].tag(), homes) <= gap {
            words[gap] = words[gap + 1];
            gap += 1;
        }
        words[gap] = GAP;
        self.used -= 1;
        self.shrink_if_sparse();
        taken
    }

    /// Indices of the words with tags in `from..=to`, as a range that may hold
    /// gaps and, at its beginning, smaller tags.
    pub(crate) fn span(&self, from: Tag, to: Tag) -> Range<usize> {
        if self.words.is_empty() {
            return 0..0;
        }
        let homes = self.homes();
        let mut end = home(to, homes);
        while end < self.words.len() && (self.words[end].is_gap() || self.words[end].tag() <= to) {
            if self.words[end].is_gap() && end > home(to, homes) {
                break;
            }
            end += 1;
        }
        home(from, homes)..end
    }

    #[inline]
    pub(crate) fn words(&self) -> &[Word] {
        &self.words
    }

    /// Asserts the invariants.
    pub(crate) fn check(&self) {
        assert_eq!(self.iter().count(), self.used());
        assert!(self.iter().map(Word::tag).is_sorted());
        assert!(self.words.last().is_none_or(|word| word.is_gap()));
        for (index, word) in self.words.iter().enumerate().filter(|(_, word)| !word.is_gap()) {
            let home = home(word.tag(), self.homes());
            assert!(home <= index && self.words[home..index].iter().all(|word| !word.is_gap()));
        }
    }

    #[inline]
    fn homes(&self) -> usize {
        homes(self.words.len())
    }

    /// Inserts unless the shift would push a word onto the last place.
    fn try_insert(&mut self, word: Word) -> bool {
        let tag = word.tag();
        let mut index = home(tag, self.homes());
        let far = index + NEAR;
        while !self.words[index].is_gap() && self.words[index].tag() <= tag {
            index += 1;
            if index == far {
                index = self.leap(index, Tag(tag.0 + 1));
            }
        }
        let mut gap = index;
        while !self.words[gap].is_gap() {
            gap += 1;
        }
        if gap + 1 >= self.words.len() {
            return false;
        }
        let words = self.words.edit();
        words.copy_within(index..gap, index + 1);
        words[index] = word;
        true
    }

    /// The first index from `from` on with a gap or a tag that is not below `tag`. There is no gap between the home of what is
    /// searched for and `from`.
    ///
    /// Leaps twice as far each time, and then halves what it has leapt over (Bentley and Yao, "An almost optimal algorithm for unbounded
    /// searching", 1976). It cannot leap over a gap to a smaller tag: what lies behind a gap has its home there.
    #[cold]
    fn leap(&self, from: usize, tag: Tag) -> usize {
        let is_below =
            |index: usize| self.words.get(index).is_some_and(|word| !word.is_gap() && word.tag() < tag);
        if !is_below(from) {
            return from;
        }
        let (mut below, mut step) = (from, 1);
        while is_below(below + step) {
            below += step;
            step *= 2;
        }
        let mut end = below + step;
        while end - below > 1 {
            let middle = below.midpoint(end);
            if is_below(middle) {
                below = middle;
            } else {
                end = middle;
            }
        }
        end
    }

    fn grow(&mut self) -> bool {
        let next = next_length::<W>(self.words.len());
        if next > TABLE_SEGMENT_WORDS_MAX && self.depth < TABLE_DEPTH_MAX {
            return false;
        }
        let words: Vec<Word> = self.iter().collect();
        self.rebuild(&words, next);
        true
    }

    /// Gives memory back when three quarters of the array are gaps.
    fn shrink_if_sparse(&mut self) {
        if self.used == 0 {
            self.words = W::default();
        } else if self.words.len() > LENGTH_MIN && (self.used as usize) < self.words.len() / 4 {
            let words: Vec<Word> = self.iter().collect();
            self.rebuild(&words, length_for::<W>(words.len() * 3 / 2));
        }
    }

    /// Lays out `sorted` in an array of `length` words or the first longer one
    /// in which they fit.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "these bits are meant; a segment has fewer than 2^32 words"
    )]
    fn rebuild(&mut self, sorted: &[Word], mut length: usize) {
        self.used = sorted.len() as u32;
        self.words = loop {
            match lay_out(sorted, length) {
                Some(words) => break words,
                None => length = next_length::<W>(length),
            }
        };
    }
}

/// How many words a search looks at one by one: most are over before.
const NEAR: usize = 16;

/// The shortest array: one cache line.
const LENGTH_MIN: usize = 8;

/// Array lengths follow the allocator's size classes, so that none is wasted.
fn next_length<W: Words>(length: usize) -> usize {
    if length < LENGTH_MIN {
        return LENGTH_MIN;
    }
    (size_class(W::HEADER_BYTES + length * size_of::<Word>() + 1) - W::HEADER_BYTES) / size_of::<Word>()
}

/// The shortest length whose filling limit allows `used` words.
fn length_for<W: Words>(used: usize) -> usize {
    let mut length = LENGTH_MIN;
    while used_max(length) < used {
        length = next_length::<W>(length);
    }
    length
}

/// Seven words in eight: above that, searches get long.
fn used_max(length: usize) -> usize {
    length * 7 / 8
}

/// How many words are homes; the rest catches what the last homes push on.
#[inline]
fn homes(length: usize) -> usize {
    length.saturating_sub((length / 8).clamp(2, 16))
}

#[inline]
fn home(tag: Tag, homes: usize) -> usize {
    ((u64::from(tag.0) * homes as u64) >> TAG_BITS) as usize
}

fn lay_out<W: Words>(sorted: &[Word], length: usize) -> Option<W> {
    let mut laid_out = W::gaps(length);
    let (words, mut next) = (laid_out.edit(), 0);
    for word in sorted {
        let index = home(word.tag(), homes(length)).max(next);
        if index + 1 >= length {
            return None;
        }
        words[index] = *word;
        next = index + 1;
    }
    Some(laid_out)
}
