//! Strings as bitmaps: GETBIT, SETBIT, BITCOUNT, BITPOS and BITOP.
//!
//! Bit 0 is the highest bit of the first byte. Handlers call these with a value's bytes; the loops go
//! over whole words and are left to the compiler to vectorize. Pure, any thread.
//!
//! 1. A string is followed by endless zero bits for reading, and is never grown here.

#![allow(unsafe_code, reason = "one call of a function compiled for newer processors, after asking for them")]

/// The value of one bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bit {
    /// A clear bit.
    Zero,
    /// A set bit.
    One,
}

/// What a range's indexes count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexUnit {
    /// Bytes, the default.
    Byte,
    /// Bits.
    Bit,
}

/// A range as clients give it: both ends inclusive, negative ones counted from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexRange {
    /// First index.
    pub start: i64,
    /// Last index.
    pub end: i64,
    /// What both count.
    pub unit: IndexUnit,
}

/// Where BITPOS looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// From a byte to the end of the string and into the zeros after it.
    From(i64),
    /// In this range only.
    Within(IndexRange),
}

/// A BITOP operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitOp {
    /// Set where all inputs are.
    And,
    /// Set where any input is.
    Or,
    /// Set where an odd number of inputs are.
    Xor,
    /// Set where the only input is not.
    Not,
}

/// A bit of a string; zero beyond its end.
pub fn get_bit(bytes: &[u8], offset: u64) -> Bit {
    let byte = usize::try_from(offset / 8).ok().and_then(|index| bytes.get(index)).copied().unwrap_or(0);
    if byte & bit_mask(offset) == 0 { Bit::Zero } else { Bit::One }
}

/// Sets a bit and returns what it was. The bit must lie within the string.
pub fn set_bit(bytes: &mut [u8], offset: u64, bit: Bit) -> Bit {
    let before = get_bit(bytes, offset);
    let byte = &mut bytes[(offset / 8) as usize];
    match bit {
        Bit::Zero => *byte &= !bit_mask(offset),
        Bit::One => *byte |= bit_mask(offset),
    }
    before
}

fn bit_mask(offset: u64) -> u8 {
    0x80 >> (offset % 8)
}

/// The number of set bits.
pub fn popcount(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("popcnt") {
        // SAFETY: the processor has just said that it has the features that the function is compiled for.
        return unsafe { popcount_avx2(bytes) };
    }
    popcount_words(bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
fn popcount_avx2(bytes: &[u8]) -> u64 {
    popcount_words(bytes)
}

#[inline(always)]
fn popcount_words(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words: u64 = words.iter().map(|word| u64::from(u64::from_ne_bytes(*word).count_ones())).sum();
    let rest: u64 = rest.iter().map(|byte| u64::from(byte.count_ones())).sum();
    words + rest
}

/// BITCOUNT: the number of set bits in a range, or in the whole string.
pub fn bitcount(bytes: &[u8], range: Option<IndexRange>) -> u64 {
    let Some(range) = range else {
        return popcount(bytes);
    };
    if range.start < 0 && range.end < 0 && range.start > range.end {
        return 0;
    }
    let Some(bits) = range.resolve(bytes.len()) else {
        return 0;
    };
    let (first, last) = (bits.first_byte(), bits.last_byte());
    let outside =
        (bytes[first] & bits.mask_before()).count_ones() + (bytes[last] & bits.mask_after()).count_ones();
    popcount(&bytes[first..=last]) - u64::from(outside)
}

/// BITPOS: the offset of the first such bit from the beginning of the string.
///
/// A clear bit is found after the end of an open range that has none, but not after that of a closed one;
/// nothing is found in an empty range.
pub fn bitpos(bytes: &[u8], bit: Bit, search: Search) -> Option<u64> {
    let range = match search {
        Search::From(start) => IndexRange { start, end: -1, unit: IndexUnit::Byte },
        Search::Within(range) => range,
    };
    let bits = range.resolve(bytes.len())?;
    let found = first_bit(bytes, bit, bits);
    match search {
        Search::From(_) if found.is_none() && bit == Bit::Zero => Some(bits.last + 1),
        _ => found,
    }
}

/// A range of bits that lies within a string; both ends inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BitRange {
    first: u64,
    last: u64,
}

impl IndexRange {
    /// Counts negative indexes from the end and cuts off what is outside; `None` if nothing is left.
    fn resolve(self, bytes: usize) -> Option<BitRange> {
        let scale = match self.unit {
            IndexUnit::Byte => 1,
            IndexUnit::Bit => 8,
        };
        let total = bytes as i64 * scale;
        let absolute = |index: i64| if index < 0 { (total + index).max(0) } else { index };
        let (start, end) = (absolute(self.start), absolute(self.end).min(total - 1));
        if start > end {
            return None;
        }
        let (start, end, width) = (start as u64, end as u64, 8 / scale as u64);
        Some(BitRange { first: start * width, last: end * width + width - 1 })
    }
}

impl BitRange {
    fn first_byte(self) -> usize {
        (self.first / 8) as usize
    }

    fn last_byte(self) -> usize {
        (self.last / 8) as usize
    }

    /// The bits of the first byte that lie before the range.
    fn mask_before(self) -> u8 {
        !(0xff >> (self.first % 8))
    }

    /// The bits of the last byte that lie after the range.
    fn mask_after(self) -> u8 {
        0x7f >> (self.last % 8)
    }
}

fn first_bit(bytes: &[u8], bit: Bit, bits: BitRange) -> Option<u64> {
    // Looking for a clear bit is looking for a set one in the inverse.
    let flip = if bit == Bit::One { 0 } else { 0xff };
    let (first, last) = (bits.first_byte(), bits.last_byte());
    let head = (bytes[first] ^ flip) & !bits.mask_before();
    let at = if first == last || head != 0 {
        first
    } else {
        first + 1 + first_byte_other_than(&bytes[first + 1..last], flip).unwrap_or(last - first - 1)
    };
    let mut byte = bytes[at] ^ flip;
    byte &= if at == first { !bits.mask_before() } else { 0xff };
    byte &= if at == last { !bits.mask_after() } else { 0xff };
    (byte != 0).then(|| at as u64 * 8 + u64::from(byte.leading_zeros()))
}

fn first_byte_other_than(bytes: &[u8], skipped: u8) -> Option<usize> {
    let (words, _) = bytes.as_chunks::<32>();
    let start = words.iter().take_while(|word| **word == [skipped; 32]).count() * 32;
    bytes[start..].iter().position(|&byte| byte != skipped).map(|index| start + index)
}

/// Bytes of the result that are worked on at a time, so that many inputs meet in the first-level cache.
const BLOCK_BYTES: usize = 16 * 1024;

/// BITOP: as long as the longest input, the shorter ones filled up with zeros.
///
/// `Not` takes one input; the caller sees to it.
pub fn bitop(op: BitOp, inputs: &[&[u8]]) -> Vec<u8> {
    let len = inputs.iter().map(|input| input.len()).max().unwrap_or(0);
    let mut result = Vec::with_capacity(len);
    while result.len() < len {
        let start = result.len();
        let end = len.min(start + BLOCK_BYTES);
        let block = |input: &&[u8]| start.min(input.len())..end.min(input.len());
        let (first, others) = inputs.split_first().expect("a result that is not empty has an input");
        result.extend_from_slice(&first[block(first)]);
        result.resize(end, 0);
        for other in others {
            combine(op, &mut result[start..], &other[block(other)]);
        }
        if op == BitOp::Not {
            result[start..].iter_mut().for_each(|byte| *byte = !*byte);
        }
    }
    result
}

/// Combines a block with an input's part of it, which is shorter where the input ends.
fn combine(op: BitOp, block: &mut [u8], input: &[u8]) {
    let (shared, rest) = block.split_at_mut(input.len());
    let pairs = shared.iter_mut().zip(input);
    match op {
        BitOp::And => {
            pairs.for_each(|(byte, other)| *byte &= other);
            rest.fill(0);
        }
        BitOp::Or => pairs.for_each(|(byte, other)| *byte |= other),
        BitOp::Xor => pairs.for_each(|(byte, other)| *byte ^= other),
        BitOp::Not => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(start: i64, end: i64, unit: IndexUnit) -> IndexRange {
        IndexRange { start, end, unit }
    }

    #[test]
    fn bits_are_numbered_from_the_left() {
        let mut bytes = [0u8; 2];
        assert_eq!(set_bit(&mut bytes, 7, Bit::One), Bit::Zero);
        assert_eq!(set_bit(&mut bytes, 8, Bit::One), Bit::Zero);
        assert_eq!(bytes, [1, 0x80]);
        assert_eq!(set_bit(&mut bytes, 7, Bit::Zero), Bit::One);
        assert_eq!(get_bit(&bytes, 8), Bit::One);
        assert_eq!(get_bit(&bytes, u64::MAX), Bit::Zero);
    }

    #[test]
    fn bitcount_takes_byte_and_bit_ranges() {
        let count = |start, end, unit| bitcount(b"foobar", Some(within(start, end, unit)));
        assert_eq!(bitcount(b"foobar", None), 26);
        assert_eq!(count(0, 0, IndexUnit::Byte), 4);
        assert_eq!(count(1, 1, IndexUnit::Byte), 6);
        assert_eq!(count(5, 30, IndexUnit::Bit), 17);
        assert_eq!(count(0, -5, IndexUnit::Byte), 10);
        assert_eq!(count(-2, -3, IndexUnit::Byte), 0);
        assert_eq!(count(i64::MIN, i64::MAX, IndexUnit::Bit), 26);
        assert_eq!(bitcount(b"", Some(within(0, -1, IndexUnit::Bit))), 0);
    }

    #[test]
    fn bitpos_looks_past_the_end_of_open_ranges_only() {
        let ones = [0xff; 3];
        assert_eq!(bitpos(&ones, Bit::Zero, Search::From(0)), Some(24));
        assert_eq!(bitpos(&ones, Bit::Zero, Search::From(3)), None);
        assert_eq!(bitpos(&ones, Bit::Zero, Search::Within(within(0, -1, IndexUnit::Byte))), None);
        assert_eq!(bitpos(&[0; 3], Bit::One, Search::From(0)), None);
        assert_eq!(bitpos(b"", Bit::Zero, Search::From(0)), None);
        let bits = Search::Within(within(7, 15, IndexUnit::Bit));
        assert_eq!(bitpos(b"\x00\xff\xf0", Bit::One, bits), Some(8));
        assert_eq!(bitpos(b"\xff\xf0\x00", Bit::Zero, Search::From(0)), Some(12));
    }

    #[test]
    fn bitop_fills_short_inputs_with_zeros() {
        let inputs: [&[u8]; 3] = [b"\xf0\xff", b"\x3c", b"\x30\x0f\xaa"];
        assert_eq!(bitop(BitOp::And, &inputs), [0x30, 0, 0]);
        assert_eq!(bitop(BitOp::Or, &inputs), [0xfc, 0xff, 0xaa]);
        assert_eq!(bitop(BitOp::Xor, &inputs), [0xfc, 0xf0, 0xaa]);
        assert_eq!(bitop(BitOp::Not, &inputs[..1]), [0x0f, 0]);
        assert_eq!(bitop(BitOp::Or, &[]), []);
        assert_eq!(bitop(BitOp::Xor, &[&vec![1; 40_000], &[1; 20_000]])[19_999..20_001], [0, 1]);
    }
}
