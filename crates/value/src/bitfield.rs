//! BITFIELD: integers of 1 to 64 bits at any bit offset of a string, and what happens on overflow.
//!
//! The first bit of a field is its highest. Handlers parse the type and the offset, grow the string, and
//! then call these. Pure, any thread.
//!
//! 1. Unsigned fields have at most 63 bits, so every value is an `i64`.
//! 2. Beyond the end of a string there are zeros for reading; writing needs the bytes to be there.

#![expect(
    clippy::cast_possible_truncation,
    reason = "values are compared with what their bits hold, or cut to them on purpose"
)]

use crate::number::parse_i64;

/// Whether a field has a sign bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signedness {
    /// Two's complement: `i8`.
    Signed,
    /// No sign: `u8`.
    Unsigned,
}

/// What becomes of a value that does not fit its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// Its low bits are kept; the default.
    Wrap,
    /// It becomes the nearest one that fits.
    Sat,
    /// Nothing is written.
    Fail,
}

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldType {
    signedness: Signedness,
    bits: u32,
}

impl FieldType {
    /// Parses `i1`..`i64` and `u1`..`u63`.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (signedness, bits_max, digits) = match text {
            [b'i', digits @ ..] => (Signedness::Signed, 64, digits),
            [b'u', digits @ ..] => (Signedness::Unsigned, 63, digits),
            _ => return None,
        };
        let bits = parse_i64(digits)?;
        (1..=bits_max).contains(&bits).then_some(Self { signedness, bits: bits as u32 })
    }

    /// The width in bits, 1 to 64.
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// Reads the field at a bit offset.
    pub fn get(self, bytes: &[u8], offset: u64) -> i64 {
        let start = usize::try_from(offset / 8).unwrap_or(usize::MAX).min(bytes.len());
        let window = &bytes[start..bytes.len().min(start.saturating_add(WINDOW_BYTES))];
        let raw = (load(window) >> self.shift(offset)) as u64 & self.mask();
        self.extend_sign(raw)
    }

    /// Writes the low bits of a value. The string must reach to the end of the field.
    pub fn set(self, bytes: &mut [u8], offset: u64, value: i64) {
        let start = (offset / 8) as usize;
        let touched = (offset % 8 + u64::from(self.bits)).div_ceil(8) as usize;
        let window = &mut bytes[start..start + touched];
        let mask = u128::from(self.mask()) << self.shift(offset);
        let value = u128::from(value as u64) << self.shift(offset) & mask;
        let stored = load(window) & !mask | value;
        window.copy_from_slice(&stored.to_be_bytes()[..touched]);
    }

    /// The value that SET stores, or `None` if it does not fit and overflow fails.
    ///
    /// A negative value is a huge one to an unsigned field, so it saturates to the largest. So does one
    /// to a signed field if its distance from the largest is no `i64`: Redis' own check overflows there.
    pub fn fit(self, value: i64, overflow: Overflow) -> Option<i64> {
        let (_, max) = self.range();
        let wide = match self.signedness {
            Signedness::Signed => i128::from(value),
            Signedness::Unsigned => i128::from(value as u64),
        };
        let distance_overflows = self.bits < 64 && max - wide > i128::from(i64::MAX);
        if overflow == Overflow::Sat && distance_overflows {
            return Some(max as i64);
        }
        self.fit_wide(wide, overflow)
    }

    /// The value that INCRBY stores, or `None` if it does not fit and overflow fails.
    pub fn fit_sum(self, value: i64, increment: i64, overflow: Overflow) -> Option<i64> {
        self.fit_wide(i128::from(value) + i128::from(increment), overflow)
    }

    fn fit_wide(self, value: i128, overflow: Overflow) -> Option<i64> {
        let (min, max) = self.range();
        if (min..=max).contains(&value) {
            return Some(value as i64);
        }
        match overflow {
            Overflow::Wrap => Some(self.extend_sign(value as u64 & self.mask())),
            Overflow::Sat => Some(value.clamp(min, max) as i64),
            Overflow::Fail => None,
        }
    }

    /// The smallest and the largest value.
    fn range(self) -> (i128, i128) {
        match self.signedness {
            Signedness::Signed => (-1 << (self.bits - 1), (1 << (self.bits - 1)) - 1),
            Signedness::Unsigned => (0, (1 << self.bits) - 1),
        }
    }

    fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// How far the field's lowest bit is from that of a loaded window.
    fn shift(self, offset: u64) -> u32 {
        128 - (offset % 8) as u32 - self.bits
    }

    fn extend_sign(self, raw: u64) -> i64 {
        match self.signedness {
            Signedness::Signed => (raw << (64 - self.bits)) as i64 >> (64 - self.bits),
            Signedness::Unsigned => raw as i64,
        }
    }
}

/// A field of 64 bits that starts within a byte touches nine.
const WINDOW_BYTES: usize = 9;

/// Up to sixteen bytes as the high end of an integer.
fn load(window: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    bytes[..window.len()].copy_from_slice(window);
    u128::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(text: &str) -> FieldType {
        FieldType::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn types_have_a_sign_and_a_width_in_range() {
        for text in ["i1", "i64", "u1", "u63"] {
            assert_eq!(field(text).bits().to_string(), text[1..]);
        }
        for text in ["", "i", "u64", "i65", "i0", "u0", "x8", "i08", "i-1", "I8", "i8 "] {
            assert_eq!(FieldType::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn fields_are_written_and_read_across_bytes() {
        let mut bytes = [0u8; 2];
        field("u5").set(&mut bytes, 7, 23);
        assert_eq!(bytes, [0b0000_0001, 0b0111_0000]);
        assert_eq!(field("u5").get(&bytes, 7), 23);
        assert_eq!(field("i5").get(&bytes, 7), -9);
        let mut bytes = [0xff; 9];
        field("i64").set(&mut bytes, 5, 0);
        assert_eq!(bytes, [0xf8, 0, 0, 0, 0, 0, 0, 0, 0x07]);
    }

    #[test]
    fn reading_beyond_the_end_finds_zeros() {
        assert_eq!(field("u16").get(b"\xff", 4), 0xf000);
        assert_eq!(field("i64").get(b"\xff", u64::MAX), 0);
        assert_eq!(field("i64").get(b"", 0), 0);
    }

    #[test]
    fn overflow_wraps_saturates_or_fails() {
        let sum = |text, value, increment, overflow| field(text).fit_sum(value, increment, overflow);
        assert_eq!(sum("u2", 3, 1, Overflow::Wrap), Some(0));
        assert_eq!(sum("u2", 3, 1, Overflow::Sat), Some(3));
        assert_eq!(sum("u2", 3, 1, Overflow::Fail), None);
        assert_eq!(sum("u8", 1, -2, Overflow::Wrap), Some(255));
        assert_eq!(sum("u8", 1, -2, Overflow::Sat), Some(0));
        assert_eq!(sum("i8", 127, 1, Overflow::Wrap), Some(-128));
        assert_eq!(sum("i8", -128, -1, Overflow::Sat), Some(-128));
        assert_eq!(sum("i64", i64::MAX, 1, Overflow::Wrap), Some(i64::MIN));
        assert_eq!(sum("i64", i64::MAX, i64::MAX, Overflow::Sat), Some(i64::MAX));
        assert_eq!(sum("u63", i64::MAX, i64::MAX, Overflow::Wrap), Some(i64::MAX - 1));
    }

    #[test]
    fn negative_value_set_into_an_unsigned_field_is_huge() {
        assert_eq!(field("u8").fit(-1, Overflow::Sat), Some(255));
        assert_eq!(field("u8").fit(-1, Overflow::Wrap), Some(255));
        assert_eq!(field("u8").fit(-1, Overflow::Fail), None);
        assert_eq!(field("i8").fit(-129, Overflow::Sat), Some(-128));
    }

    #[test]
    fn set_far_below_a_signed_field_saturates_upwards() {
        assert_eq!(field("i8").fit(i64::MIN, Overflow::Sat), Some(127));
        assert_eq!(field("i8").fit(i64::MIN + 127, Overflow::Sat), Some(127));
        assert_eq!(field("i8").fit(i64::MIN + 128, Overflow::Sat), Some(-128));
        assert_eq!(field("i8").fit(i64::MIN, Overflow::Wrap), Some(0));
        assert_eq!(field("i8").fit(i64::MIN, Overflow::Fail), None);
        assert_eq!(field("i64").fit(i64::MIN, Overflow::Sat), Some(i64::MIN));
    }
}
