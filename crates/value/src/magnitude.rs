//! Binary magnitudes: hexadecimal floating-point texts (`0x1.8p3`), which the C library accepts
//! wherever it accepts a decimal one, and the one rounding step of both float formats.
//!
//! Used by `number` (64-bit floats) and `extended` (80-bit floats).
//!
//! 1. `sticky` is only ever set beside a mantissa of more than 64 significant bits, so rounding to a
//!    format's precision never needs a bit that was dropped.

#![expect(clippy::cast_possible_truncation, reason = "halves of wider numbers are kept on purpose")]

/// A magnitude: `mantissa * 2^exponent`, plus something under one unit of the mantissa if `sticky`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Magnitude {
    pub mantissa: u128,
    pub sticky: bool,
    pub exponent: i64,
}

/// A magnitude that has been rounded to a format: `mantissa * 2^exponent`, exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rounded {
    pub mantissa: u64,
    pub exponent: i64,
}

/// Exponents are clamped here: far outside every float format, and far from overflowing an `i64`.
const EXPONENT_CLAMP: i64 = 1 << 40;

impl Magnitude {
    /// Rounds to `precision` bits (at most 64), ties to even, with no bit below `2^exponent_min`. The
    /// mantissa has its top bit at `precision - 1` unless the value is subnormal or zero.
    pub fn round(self, precision: u32, exponent_min: i64) -> Rounded {
        if self.mantissa == 0 {
            return Rounded { mantissa: 0, exponent: exponent_min };
        }
        let width = 128 - self.mantissa.leading_zeros();
        let shift = (i64::from(width) - i64::from(precision)).max(exponent_min - self.exponent);
        let exponent = self.exponent + shift;
        if shift <= 0 {
            // Widening is exact: the mantissa is narrower than the precision, so nothing was dropped.
            return Rounded { mantissa: (self.mantissa << -shift) as u64, exponent };
        }
        let kept = shift_right_round(self.mantissa, shift as u64, self.sticky);
        if kept >> precision == 0 {
            Rounded { mantissa: kept as u64, exponent }
        } else {
            Rounded { mantissa: (kept >> 1) as u64, exponent: exponent + 1 }
        }
    }
}

/// Drops the low `shift` bits (at least one), rounding to nearest, ties to even. `sticky` says that
/// there is something below the lowest bit.
pub(crate) fn shift_right_round(value: u128, shift: u64, sticky: bool) -> u128 {
    if shift > 128 {
        return 0;
    }
    let kept = value.checked_shr(shift as u32).unwrap_or(0);
    let half = value >> (shift - 1) & 1 == 1;
    let rest = sticky || value & ((1u128 << (shift - 1)) - 1) != 0;
    kept + u128::from(half && (rest || kept & 1 == 1))
}

/// Parses what follows a `0x` prefix: digits with an optional point, then an optional `p` exponent.
/// `None` unless there is a digit and the whole text is used.
pub(crate) fn parse_hex(text: &[u8]) -> Option<Magnitude> {
    let (digits, exponent) = match text.iter().position(|byte| matches!(byte, b'p' | b'P')) {
        Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let mut magnitude = Magnitude { mantissa: 0, sticky: false, exponent };
    let mut has_digit = false;
    let mut after_point = false;
    for &byte in digits {
        if byte == b'.' && !after_point {
            after_point = true;
            continue;
        }
        let digit = (byte as char).to_digit(16)?;
        has_digit = true;
        if magnitude.mantissa >> 124 == 0 {
            magnitude.mantissa = magnitude.mantissa << 4 | u128::from(digit);
            magnitude.exponent -= if after_point { 4 } else { 0 };
        } else {
            magnitude.sticky |= digit != 0;
            magnitude.exponent += if after_point { 0 } else { 4 };
        }
    }
    has_digit.then_some(magnitude)
}

/// Parses an optionally signed, non-empty run of decimal digits, clamped to [`EXPONENT_CLAMP`].
pub(crate) fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add_digit = |value: i64, &byte: &u8| (value * 10 + i64::from(byte - b'0')).min(EXPONENT_CLAMP);
    let value = digits.iter().fold(0, add_digit);
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_the_even_mantissa() {
        assert_eq!(shift_right_round(0b101, 1, false), 0b10);
        assert_eq!(shift_right_round(0b111, 1, false), 0b100);
        assert_eq!(shift_right_round(0b101, 1, true), 0b11);
        assert_eq!(shift_right_round(1 << 127, 128, false), 0);
        assert_eq!(shift_right_round((1 << 127) | 1, 128, false), 1);
        assert_eq!(shift_right_round(u128::MAX, 129, false), 0);
    }

    #[test]
    fn rounding_up_may_widen_the_mantissa() {
        let all_ones = Magnitude { mantissa: (1 << 65) - 1, sticky: false, exponent: 0 };
        assert_eq!(all_ones.round(64, -100), Rounded { mantissa: 1 << 63, exponent: 2 });
    }

    #[test]
    fn hexadecimal_digits_beyond_the_mantissa_only_stick() {
        let text = [b"1".as_slice(), &[b'0'; 40], b"1"].concat();
        let parsed = parse_hex(&text).unwrap();
        assert!(parsed.sticky);
        assert_eq!(parsed.round(53, -1074).exponent, 41 * 4 - 52);
    }

    #[test]
    fn hexadecimal_texts_need_a_digit_and_a_whole_exponent() {
        for text in ["", ".", "p1", "1p", "1p+", "1..2", "1g", "1p1.5"] {
            assert!(parse_hex(text.as_bytes()).is_none(), "{text}");
        }
        assert!(parse_hex(b".8").is_some());
        assert!(parse_hex(b"8.").is_some());
    }
}
