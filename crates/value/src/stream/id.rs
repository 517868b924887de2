//! Ids of stream entries: a moment in milliseconds and a number within it.
//!
//! The parser takes what Redis takes, which is more than the canonical spelling: either part may be
//! anything that C's `strtoull` reads (blanks and a sign in front, leading zeros), a text ends at its
//! first zero byte, and 128 bytes or more are never an id. Pure functions, any thread.
//!
//! 1. Ids are ordered by moment, then by number; [`StreamId::to_bytes`] keeps that order.
//! 2. What [`IdText::of`] writes, [`StreamId::parse`] reads back.

use crate::limits::STREAM_ID_TEXT_BYTES_MAX;
use crate::number::parse_i64;
use crate::text::until_zero;

/// The id of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Milliseconds since 1970, usually.
    pub ms: u64,
    /// Which one of that millisecond.
    pub seq: u64,
}

/// The text is no id: "Invalid stream ID specified as stream command argument".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidId;

/// The id that XADD is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewId {
    /// `*`: the present moment, or the id after the last one.
    Auto,
    /// `ms-*`: the first free number of a millisecond.
    AutoSeq(u64),
    /// Exactly this one.
    Exact(StreamId),
}

impl StreamId {
    /// 0-0, which no entry has.
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    /// The highest id.
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    /// An id of its two parts.
    pub const fn new(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    /// Whether it is 0-0, which stands for "none".
    pub fn is_zero(self) -> bool {
        self == StreamId::MIN
    }

    /// The id after this one; none after the highest.
    pub fn next(self) -> Option<StreamId> {
        match (self.ms, self.seq) {
            (u64::MAX, u64::MAX) => None,
            (ms, u64::MAX) => Some(StreamId::new(ms + 1, 0)),
            (ms, seq) => Some(StreamId::new(ms, seq + 1)),
        }
    }

    /// The id before this one; none before 0-0.
    pub fn previous(self) -> Option<StreamId> {
        match (self.ms, self.seq) {
            (0, 0) => None,
            (ms, 0) => Some(StreamId::new(ms - 1, u64::MAX)),
            (ms, seq) => Some(StreamId::new(ms, seq - 1)),
        }
    }

    /// Big-endian bytes, whose order is that of the ids.
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    /// The id of [`StreamId::to_bytes`].
    #[expect(clippy::cast_possible_truncation, reason = "halves are meant; an id has fewer than 42 digits")]
    pub fn from_bytes(bytes: [u8; 16]) -> StreamId {
        let both = u128::from_be_bytes(bytes);
        StreamId::new((both >> 64) as u64, both as u64)
    }

    /// Reads `ms-seq` or `ms`, whose number is then `missing_seq`.
    ///
    /// # Errors
    /// [`InvalidId`], also for `-` and `+`.
    pub fn parse(text: &[u8], missing_seq: u64) -> Result<StreamId, InvalidId> {
        let (ms, seq) = parts(text)?;
        let seq = match seq {
            Some(seq) => parse_part(seq)?,
            None => missing_seq,
        };
        Ok(StreamId::new(parse_part(ms)?, seq))
    }

    /// As [`StreamId::parse`], but `-` is the lowest id and `+` the highest.
    ///
    /// # Errors
    /// [`InvalidId`].
    pub fn parse_edge(text: &[u8], missing_seq: u64) -> Result<StreamId, InvalidId> {
        match until_zero(text) {
            b"-" if is_short(text) => Ok(StreamId::MIN),
            b"+" if is_short(text) => Ok(StreamId::MAX),
            _ => StreamId::parse(text, missing_seq),
        }
    }
}

impl NewId {
    /// Reads the id that XADD is given.
    ///
    /// # Errors
    /// [`InvalidId`].
    pub fn parse(text: &[u8]) -> Result<NewId, InvalidId> {
        if until_zero(text) == b"*" {
            return Ok(NewId::Auto);
        }
        match parts(text)? {
            (ms, Some(b"*")) => Ok(NewId::AutoSeq(parse_part(ms)?)),
            _ => StreamId::parse(text, 0).map(NewId::Exact),
        }
    }
}

/// The text of an id, on the stack.
#[derive(Clone, Copy)]
pub struct IdText {
    bytes: [u8; STREAM_ID_TEXT_BYTES_MAX],
    len: u8,
}

impl IdText {
    /// Writes an id as `ms-seq`.
    #[inline]
    pub fn of(id: StreamId) -> IdText {
        let mut text = IdText { bytes: [0; STREAM_ID_TEXT_BYTES_MAX], len: 0 };
        let mut buffer = itoa::Buffer::new();
        text.push(buffer.format(id.ms).as_bytes());
        text.push(b"-");
        text.push(buffer.format(id.seq).as_bytes());
        text
    }

    #[expect(clippy::cast_possible_truncation, reason = "halves are meant; an id has fewer than 42 digits")]
    fn push(&mut self, part: &[u8]) {
        let at = usize::from(self.len);
        self.bytes[at..at + part.len()].copy_from_slice(part);
        self.len += part.len() as u8;
    }

    /// The text.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Longest text that is looked at, as in Redis.
const PARSED_BYTES_MAX: usize = 127;

fn is_short(text: &[u8]) -> bool {
    text.len() <= PARSED_BYTES_MAX
}

/// What stands before the first `-` and, if there is one, behind it.
fn parts(text: &[u8]) -> Result<(&[u8], Option<&[u8]>), InvalidId> {
    if !is_short(text) {
        return Err(InvalidId);
    }
    let text = until_zero(text);
    Ok(match text.iter().position(|byte| *byte == b'-') {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    })
}

/// A number as `strtoull` reads it, but for canonical negative ones, which are refused.
fn parse_part(text: &[u8]) -> Result<u64, InvalidId> {
    if let Some(number) = parse_i64(text) {
        return u64::try_from(number).map_err(|_| InvalidId);
    }
    let blanks = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
    let (is_negative, digits) = match &text[blanks..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(InvalidId);
    }
    let add = |value: u64, digit: &u8| value.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    let magnitude = digits.iter().try_fold(0u64, add).ok_or(InvalidId)?;
    Ok(if is_negative { magnitude.wrapping_neg() } else { magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64, seq: u64) -> Result<StreamId, InvalidId> {
        Ok(StreamId::new(ms, seq))
    }

    #[test]
    fn ids_are_read_as_leniently_as_redis_reads_them() {
        const MAX: u64 = u64::MAX;
        let cases: &[(&[u8], Result<StreamId, InvalidId>)] = &[
            (b"5", id(5, 7)),
            (b"5-1", id(5, 1)),
            (b"05-001", id(5, 1)),
            (b" 5- 1", id(5, 1)),
            (b"+5-+1", id(5, 1)),
            (b"5- -1", id(5, MAX)),
            (b"5--01", id(5, MAX)),
            (b"5-1\0x", id(5, 1)),
            (b"18446744073709551615-18446744073709551615", id(MAX, MAX)),
            (b"5--1", Err(InvalidId)),
            (b"18446744073709551616-0", Err(InvalidId)),
            (b"-5", Err(InvalidId)),
            (b"", Err(InvalidId)),
            (b"-", Err(InvalidId)),
            (b"+", Err(InvalidId)),
            (b"5-", Err(InvalidId)),
            (b"5 -1", Err(InvalidId)),
            (b"5-1 ", Err(InvalidId)),
            (b"5-*", Err(InvalidId)),
            (b"*", Err(InvalidId)),
            (&[b'0'; 127], id(0, 7)),
            (&[b'0'; 128], Err(InvalidId)),
        ];
        for (text, expected) in cases {
            assert_eq!(StreamId::parse(text, 7), *expected, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn edges_and_new_ids_have_their_signs() {
        assert_eq!(StreamId::parse_edge(b"-", 0), Ok(StreamId::MIN));
        assert_eq!(StreamId::parse_edge(b"+", 0), Ok(StreamId::MAX));
        assert_eq!(StreamId::parse_edge(b"3", 9), id(3, 9));
        assert_eq!(NewId::parse(b"*"), Ok(NewId::Auto));
        assert_eq!(NewId::parse(b"3-*"), Ok(NewId::AutoSeq(3)));
        assert_eq!(NewId::parse(b"3"), Ok(NewId::Exact(StreamId::new(3, 0))));
        for text in ["**", "3-**", "-", "*-1", "-*"] {
            assert_eq!(NewId::parse(text.as_bytes()), Err(InvalidId), "{text}");
        }
    }

    #[test]
    fn texts_and_bytes_read_back() {
        for id in [StreamId::MIN, StreamId::MAX, StreamId::new(1_700_000_000_000, 3)] {
            assert_eq!(StreamId::parse(IdText::of(id).as_bytes(), 0), Ok(id));
            assert_eq!(StreamId::from_bytes(id.to_bytes()), id);
        }
    }

    #[test]
    fn neighbours_carry_between_the_parts() {
        let carried = StreamId::new(4, u64::MAX);
        assert_eq!(carried.next(), Some(StreamId::new(5, 0)));
        assert_eq!(StreamId::new(5, 0).previous(), Some(carried));
        assert_eq!((StreamId::MAX.next(), StreamId::MIN.previous()), (None, None));
    }
}
