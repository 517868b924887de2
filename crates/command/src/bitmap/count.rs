//! BITCOUNT and BITPOS.
//!
//! Thread rule: as for all handlers.
//!
//! Invariants:
//! 1. A range never reaches beyond the string.
//! 2. As in Redis up to 7.2, a key that is not there answers before the range is
//!    looked at, however wrong that is.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::int;
use crate::string::Text;
use keyspace::View;
use wire::Reply;

/// What the numbers of a range count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Byte,
    Bit,
}

impl Unit {
    fn parse(text: &[u8]) -> Result<Unit> {
        match text {
            _ if text.eq_ignore_ascii_case(b"BYTE") => Ok(Unit::Byte),
            _ if text.eq_ignore_ascii_case(b"BIT") => Ok(Unit::Bit),
            _ => Err(Error::Syntax),
        }
    }

    fn bits(self) -> u64 {
        match self {
            Unit::Byte => 8,
            Unit::Bit => 1,
        }
    }
}

/// The bits from `start` up to but not including `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bits {
    start: u64,
    end: u64,
}

impl Bits {
    fn all(bytes: &[u8]) -> Bits {
        Bits { start: 0, end: bytes.len() as u64 * 8 }
    }

    /// A range as clients write it: both ends included, negative ones counted from
    /// the end of the string. None if it holds no bit.
    fn within(bytes: &[u8], first: i64, last: i64, unit: Unit) -> Option<Bits> {
        let count = bytes.len() as u64 * 8 / unit.bits();
        let position = |index: i64| match u64::try_from(index) {
            Ok(index) => index,
            Err(_) => count.saturating_sub(index.unsigned_abs()),
        };
        let (start, end) = (position(first), position(last).saturating_add(1).min(count));
        (start < end).then(|| Bits { start: start * unit.bits(), end: end * unit.bits() })
    }

    /// How many are set.
    fn count(self, bytes: &[u8]) -> u64 {
        let whole = &bytes[(self.start / 8) as usize..self.end.div_ceil(8) as usize];
        let (mut words, mut count) = (whole.chunks_exact(8), 0);
        for word in &mut words {
            count +=
                u64::from(u64::from_be_bytes(word.try_into().expect("a chunk has 8 bytes")).count_ones());
        }
        count += words.remainder().iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
        let ones = |byte: u8| u64::from(byte.count_ones());
        if let (Some(&first), Some(&last)) = (whole.first(), whole.last()) {
            // The bits of the outer bytes that lie before and behind the range.
            count -= ones(first & !(0xff >> (self.start % 8)));
            count -= ones(last & (0xff_u16 >> ((self.end + 7) % 8 + 1)) as u8);
        }
        count
    }

    /// The first that is `wanted`.
    fn find(self, bytes: &[u8], wanted: bool) -> Option<u64> {
        let flip = if wanted { 0 } else { 0xff };
        let first_byte = (self.start / 8) as usize;
        let head = (bytes[first_byte] ^ flip) & (0xff >> (self.start % 8));
        let (at, byte) = if head != 0 {
            (first_byte, head)
        } else {
            let end = self.end.div_ceil(8) as usize;
            let at = first_byte + 1 + position_of_other(&bytes[first_byte + 1..end], flip)?;
            (at, bytes[at] ^ flip)
        };
        let position = at as u64 * 8 + u64::from(byte.leading_zeros());
        (position < self.end).then_some(position)
    }
}

/// Where the first byte that is not `byte` lies.
fn position_of_other(bytes: &[u8], byte: u8) -> Option<usize> {
    // Sixteen at a time compile to vector instructions; the rest looks closer.
    const STRIDE: usize = 16;
    let same =
        bytes.chunks_exact(STRIDE).take_while(|chunk| chunk.iter().all(|other| *other == byte)).count();
    let skipped = same * STRIDE;
    bytes[skipped..].iter().position(|other| *other != byte).map(|at| skipped + at)
}

/// BITCOUNT key [start end [BYTE | BIT]]
pub(super) fn bitcount(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let mut digits = itoa::Buffer::new();
    let Some(text) = Text::of(view.get(&args.key(1)))? else {
        reply.int(0);
        return Ok(());
    };
    let bytes = text.bytes(&mut digits);
    let bits = match args.len() {
        2 => Some(Bits::all(bytes)),
        4 | 5 => {
            let (first, last) = (int(args.bytes(2))?, int(args.bytes(3))?);
            let reversed = first < 0 && last < 0 && first > last;
            match args.len() {
                // Redis does not get to see the unit then.
                _ if reversed => None,
                4 => Bits::within(bytes, first, last, Unit::Byte),
                _ => Bits::within(bytes, first, last, Unit::parse(args.bytes(4))?),
            }
        }
        _ => return Err(Error::Syntax),
    };
    reply.int(bits.map_or(0, |bits| bits.count(bytes)) as i64);
    Ok(())
}

/// BITPOS key bit [start [end [BYTE | BIT]]]
pub(super) fn bitpos(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let wanted = match int(args.bytes(2))? {
        0 => false,
        1 => true,
        _ => return Err(Error::text("ERR The bit argument must be 1 or 0.")),
    };
    let mut digits = itoa::Buffer::new();
    let Some(text) = Text::of(view.get(&args.key(1)))? else {
        reply.int(if wanted { -1 } else { 0 });
        return Ok(());
    };
    let bytes = text.bytes(&mut digits);
    let bits = match args.len() {
        3 => Bits::within(bytes, 0, -1, Unit::Byte),
        4 => Bits::within(bytes, int(args.bytes(3))?, -1, Unit::Byte),
        5 => Bits::within(bytes, int(args.bytes(3))?, int(args.bytes(4))?, Unit::Byte),
        6 => {
            let (first, unit) = (int(args.bytes(3))?, Unit::parse(args.bytes(5))?);
            Bits::within(bytes, first, int(args.bytes(4))?, unit)
        }
        _ => return Err(Error::Syntax),
    };
    let position = match bits.map(|bits| bits.find(bytes, wanted)) {
        Some(Some(position)) => position as i64,
        // Without an end the string counts as going on with zeros.
        Some(None) if !wanted && args.len() < 5 => bytes.len() as i64 * 8,
        _ => -1,
    };
    reply.int(position);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naive(bytes: &[u8], bits: Bits) -> impl Iterator<Item = (u64, bool)> {
        (bits.start..bits.end).map(|at| (at, super::super::bit(bytes, at)))
    }

    #[test]
    fn every_range_counts_and_finds_as_a_walk_over_its_bits_does() {
        let mut bytes = [0u8; 40];
        bytes[3] = 0x14;
        bytes[19..23].fill(0xff);
        bytes[39] = 0x81;
        for flip in [0, 0xff] {
            let bytes = bytes.map(|byte| byte ^ flip);
            for start in 0..320 {
                for end in start + 1..=320 {
                    let bits = Bits { start, end };
                    assert_eq!(bits.count(&bytes), naive(&bytes, bits).filter(|(_, on)| *on).count() as u64);
                    for wanted in [false, true] {
                        let found = naive(&bytes, bits).find(|(_, on)| *on == wanted).map(|(at, _)| at);
                        assert_eq!(bits.find(&bytes, wanted), found, "{bits:?} {wanted}");
                    }
                }
            }
        }
    }
}
