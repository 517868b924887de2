//! LZF compression, the form in which DUMP payloads and RDB files hold long strings.
//!
//! A stream is a sequence of runs. `000nnnnn` is followed by n+1 literal bytes; `lllooooo oooooooo` copies
//! l+2 bytes from o+1 bytes back, and l = 7 adds one more length byte before the low offset byte.
//!
//! 1. The compressor finds matches as the LZF library does in its default build (a 65,536-entry table of
//!    last positions, keyed by three bytes, two positions entered after each match), so that payloads
//!    are byte for byte those of Redis.
//! 2. The decompressor never reads or writes outside what it was given, and never allocates more than
//!    the input can expand to.

#![expect(
    clippy::cast_possible_truncation,
    reason = "what is written was compared with what its bits can hold"
)]

use crate::limits::LZF_EXPANSION_MAX;
use std::cell::RefCell;

const TABLE_BITS: u32 = 16;
const TABLE_SIZE: usize = 1 << TABLE_BITS;
const LITERALS_MAX: usize = 32;
const DISTANCE_MAX: usize = 1 << 13;
const MATCH_MAX: usize = (1 << 8) + (1 << 3);
const MATCH_MIN: usize = 3;
/// The comparison of a match is unrolled up to this length if more than `UNROLLED_MIN` bytes may match.
const UNROLLED: usize = 19;
const UNROLLED_MIN: usize = 16;
/// Matches this long or longer carry an extra length byte; counted without the two bytes that every
/// match has.
const LONG_MATCH: usize = 7;

/// The compressed form of `input`, or `None` if it does not fit into `bytes_max` bytes.
pub fn compress(input: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    if input.is_empty() || bytes_max == 0 || u32::try_from(input.len()).is_err() {
        return None;
    }
    POSITIONS.with_borrow_mut(|positions| {
        positions.begin(input.len() as u32);
        compress_with(positions, input, bytes_max)
    })
}

thread_local! {
    static POSITIONS: RefCell<Positions> = const { RefCell::new(Positions { table: Vec::new(), start: 0, end: 0 }) };
}

/// The last position of each three bytes. Kept from one input to the next: emptying it would take longer than compressing what
/// most keys hold. Instead each input's positions are counted on from those of the one before, and what is below does not count.
struct Positions {
    table: Vec<u32>,
    /// What position zero of this input counts as.
    start: u32,
    /// What position zero of the next input counts as.
    end: u32,
}

impl Positions {
    /// Begins an input of so many bytes.
    fn begin(&mut self, len: u32) {
        let end = self.end.checked_add(len);
        if end.is_none() || self.table.is_empty() {
            self.table.clear();
            self.table.resize(TABLE_SIZE, 0);
        }
        (self.start, self.end) = end.map_or((0, len), |end| (self.end, end));
    }

    /// Enters a position and returns the one that it displaces. Zero can never be matched, so it also says that there was none.
    fn enter(&mut self, input: &[u8], at: usize) -> usize {
        let key = u32::from_be_bytes([0, input[at], input[at + 1], input[at + 2]]);
        let slot = (key >> (24 - TABLE_BITS)).wrapping_sub(key.wrapping_mul(5)) as usize & (TABLE_SIZE - 1);
        let displaced = std::mem::replace(&mut self.table[slot], self.start + at as u32);
        displaced.saturating_sub(self.start) as usize
    }
}

fn compress_with(positions: &mut Positions, input: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    let mut out = Runs::new(bytes_max);
    let mut at = 0;
    while at + 2 < input.len() {
        let previous = positions.enter(input, at);
        let distance = at - previous - usize::from(previous < at);
        let found =
            previous != 0 && distance < DISTANCE_MAX && input[previous..previous + 3] == input[at..at + 3];
        if !found {
            out.push_literal(input[at])?;
            at += 1;
            continue;
        }
        let len = match_len(input, previous, at);
        out.push_match(distance, len - 2)?;
        at += len;
        if at + 2 >= input.len() {
            break;
        }
        positions.enter(input, at - 2);
        positions.enter(input, at - 1);
    }
    out.finish(&input[at..])
}

/// How far two positions agree, of which three bytes are known to.
///
/// The library leaves the last two bytes of the input out of a match, but its unrolled comparison of the
/// first nineteen bytes does not look: with 19 or 20 bytes left, a match takes nineteen.
fn match_len(input: &[u8], previous: usize, at: usize) -> usize {
    let checked_max = (input.len() - at - 2).min(MATCH_MAX);
    let len_max = if checked_max > UNROLLED_MIN { checked_max.max(UNROLLED) } else { checked_max };
    let pairs = input[previous..].iter().zip(&input[at..]).take(len_max).skip(MATCH_MIN);
    MATCH_MIN + pairs.take_while(|(left, right)| left == right).count()
}

/// Output under construction: finished runs, and a literal run that is still open.
struct Runs {
    out: Vec<u8>,
    bytes_max: usize,
    /// Literals in the open run, whose header byte is already in place before them.
    literals: usize,
}

impl Runs {
    fn new(bytes_max: usize) -> Self {
        Self { out: vec![0], bytes_max, literals: 0 }
    }

    fn push_literal(&mut self, byte: u8) -> Option<()> {
        if self.out.len() >= self.bytes_max {
            return None;
        }
        self.push_unchecked(byte);
        Some(())
    }

    fn push_unchecked(&mut self, byte: u8) {
        self.out.push(byte);
        self.literals += 1;
        if self.literals == LITERALS_MAX {
            self.close();
            self.open();
        }
    }

    fn push_match(&mut self, distance: usize, len: usize) -> Option<()> {
        let finished = self.out.len() - usize::from(self.literals == 0);
        if finished + 3 + 1 >= self.bytes_max {
            return None;
        }
        self.close();
        let high = (distance >> 8) as u8;
        if len < LONG_MATCH {
            self.out.push(high | (len as u8) << 5);
        } else {
            self.out.push(high | (LONG_MATCH as u8) << 5);
            self.out.push((len - LONG_MATCH) as u8);
        }
        self.out.push(distance as u8);
        self.open();
        Some(())
    }

    fn open(&mut self) {
        self.literals = 0;
        self.out.push(0);
    }

    /// Writes the open run's header, or takes it back if the run is empty.
    fn close(&mut self) {
        if self.literals == 0 {
            self.out.pop();
        } else {
            let header = self.out.len() - self.literals - 1;
            self.out[header] = (self.literals - 1) as u8;
        }
    }

    /// Ends with the last bytes, which are too few to begin a match.
    fn finish(mut self, rest: &[u8]) -> Option<Vec<u8>> {
        if self.out.len() + 3 > self.bytes_max {
            return None;
        }
        for &byte in rest {
            self.push_unchecked(byte);
        }
        self.close();
        Some(self.out)
    }
}

/// The `len` bytes that a stream stands for, or `None` if it is damaged or stands for another length.
pub fn decompress(mut input: &[u8], len: usize) -> Option<Vec<u8>> {
    if len > input.len().saturating_mul(LZF_EXPANSION_MAX) {
        return None;
    }
    let mut out = Vec::with_capacity(len);
    while let Some((&header, rest)) = input.split_first() {
        input = rest;
        let run = usize::from(header);
        if run < LITERALS_MAX {
            let (literals, rest) = input.split_at_checked(run + 1)?;
            out.extend_from_slice(literals);
            input = rest;
        } else {
            let mut copied = (run >> 5) + 2;
            if run >> 5 == LONG_MATCH {
                copied += usize::from(*input.split_off_first()?);
            }
            let low = usize::from(*input.split_off_first()?);
            let start = out.len().checked_sub(((run & 0x1f) << 8 | low) + 1)?;
            if copied > len - out.len() {
                return None;
            }
            copy_within(&mut out, start, copied);
        }
        if out.len() > len {
            return None;
        }
    }
    (out.len() == len).then_some(out)
}

/// Appends `count` bytes from `start` on; they may overlap their own copy.
fn copy_within(out: &mut Vec<u8>, start: usize, count: usize) {
    let mut left = count;
    while left > 0 {
        let piece = left.min(out.len() - start);
        out.extend_from_within(start..start + piece);
        left -= piece;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitive_input_shrinks_and_comes_back() {
        for len in [21, 100, 300, 1000, 70_000] {
            for period in [1, 2, 3, 7, 250, 9000] {
                let input: Vec<u8> =
                    (0..len).map(|index| (index % period) as u8 ^ (index % period / 256) as u8).collect();
                let Some(packed) = compress(&input, len - 4) else { continue };
                assert!(packed.len() <= len - 4);
                assert_eq!(decompress(&packed, len).as_deref(), Some(input.as_slice()));
            }
        }
        assert!(compress(&[b'a'; 1000], 996).unwrap().len() < 30);
    }

    #[test]
    fn incompressible_input_is_left_alone() {
        let input: Vec<u8> = (0..=255).collect();
        assert_eq!(compress(&input, input.len() - 4), None);
        assert_eq!(compress(b"", 10), None);
        assert_eq!(compress(b"aaaa", 0), None);
    }

    #[test]
    fn damaged_streams_are_refused() {
        let packed = compress(&[b'a'; 100], 96).unwrap();
        assert!(decompress(&packed, 99).is_none() && decompress(&packed, 101).is_none());
        for cut in 0..packed.len() {
            assert!(decompress(&packed[..cut], 100).is_none());
        }
        assert!(decompress(&[0x20, 0x00], 3).is_none());
        assert!(decompress(&[0xff], 300).is_none());
        assert!(decompress(&[0x1f, 1, 2], 32).is_none());
    }

    #[test]
    fn declared_length_beyond_any_expansion_allocates_nothing() {
        assert!(decompress(&[0, b'a'], usize::MAX).is_none());
    }

    #[test]
    fn an_input_is_compressed_alike_whatever_came_before() {
        let inputs: Vec<Vec<u8>> = (0..40u32)
            .map(|n| (0..60 + n * 7).map(|i| b"abcdefgh"[((i * i + n) % (3 + n % 6)) as usize]).collect())
            .collect();
        let alone = |input: &Vec<u8>| {
            let input = input.clone();
            std::thread::spawn(move || compress(&input, input.len())).join().unwrap()
        };
        for input in &inputs {
            assert_eq!(compress(input, input.len()), alone(input));
        }
        // When the counting begins again.
        POSITIONS.with_borrow_mut(|positions| positions.end = u32::MAX - 100);
        for input in &inputs {
            assert_eq!(compress(input, input.len()), alone(input));
        }
    }
}
