//! The 80-bit float of INCRBYFLOAT and HINCRBYFLOAT.
//!
//! Redis computes these two in C's `long double`, which on x86-64 has a 64-bit mantissa and a 15-bit
//! exponent, and prints with 17 decimals. A client sees every digit, so the format is emulated here
//! with integers. Called by the handlers between parsing and editing; pure, any thread.
//!
//! 1. A finite value is `mantissa * 2^exponent` with bit 63 of the mantissa set, or the exponent is the
//!    lowest one (subnormals and zero).
//! 2. Parsing and adding round to nearest, ties to even, once. Printing is exact up to its last decimal,
//!    which is rounded the same way.
//! 3. A parse touches at most [`EXTENDED_TEXT_BYTES_MAX`] bytes and numbers of some 10,000 digits; a
//!    print yields at most 4,952 bytes.

use std::cmp::Ordering;

use crate::bignum::Bignum;
use crate::limits::EXTENDED_TEXT_BYTES_MAX;
use crate::magnitude::{Magnitude, Rounded, parse_hex, shift_right_round};
use crate::number::{Decimal, is_infinity, split_sign};

/// Mantissa width of the x87 extended format.
const PRECISION: u32 = 64;
/// Power of two of the lowest mantissa bit of the smallest and of the largest values.
const EXPONENT_MIN: i64 = -16_445;
const EXPONENT_MAX: i64 = 16_320;
/// Decimal exponents of the leading digit beyond which a value surely overflows, or rounds to zero.
const DECIMAL_EXPONENT_MAX: i64 = 4_933;
const DECIMAL_EXPONENT_MIN: i64 = -4_953;
/// Decimals printed before the trailing zeros are cut off.
const DECIMALS: usize = 17;
const DECIMALS_SCALE: u128 = 100_000_000_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    Plus,
    Minus,
}

/// A value of the 80-bit format; never NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extended {
    sign: Sign,
    /// `None` is infinity.
    finite: Option<Rounded>,
}

impl Extended {
    /// Parses as C's `strtold` does, hexadecimal and `inf`/`infinity` included.
    ///
    /// `None` for an empty text, one of [`EXTENDED_TEXT_BYTES_MAX`] bytes or more, surrounding space,
    /// `nan`, trailing bytes, and magnitudes that overflow to infinity or underflow to zero.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() >= EXTENDED_TEXT_BYTES_MAX {
            return None;
        }
        let (negative, unsigned) = split_sign(text);
        let sign = if negative { Sign::Minus } else { Sign::Plus };
        if is_infinity(unsigned) {
            return Some(Self { sign, finite: None });
        }
        let magnitude = match unsigned {
            [b'0', b'x' | b'X', hex @ ..] => parse_hex(hex)?,
            _ => decimal_magnitude(&Decimal::parse(unsigned)?)?,
        };
        let value = Self::round(sign, magnitude);
        let underflowed = value.is_zero() && (magnitude.mantissa != 0 || magnitude.sticky);
        (value.is_finite() && !underflowed).then_some(value)
    }

    /// The value of an integer, exactly.
    pub fn from_i64(value: i64) -> Self {
        let sign = if value < 0 { Sign::Minus } else { Sign::Plus };
        let mantissa = u128::from(value.unsigned_abs());
        Self::round(sign, Magnitude { mantissa, sticky: false, exponent: 0 })
    }

    /// Whether the value is not an infinity.
    pub fn is_finite(self) -> bool {
        self.finite.is_some()
    }

    /// The rounded sum, or `None` if it is NaN or infinite.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let (left, right) = (self.finite?, other.finite?);
        let (high_sign, high, low_sign, low) = match magnitude_order(left, right) {
            Ordering::Less => (other.sign, right, self.sign, left),
            _ => (self.sign, left, other.sign, right),
        };
        let sum = if high_sign == low_sign { add(high, low) } else { subtract(high, low) };
        // An exact zero from opposite signs is positive under rounding to nearest.
        let sign = if sum.mantissa == 0 && high_sign != low_sign { Sign::Plus } else { high_sign };
        let sum = Self::round(sign, sum);
        sum.is_finite().then_some(sum)
    }

    /// The product with a factor, rounded once and then up to an integer, as a timeout in seconds becomes
    /// milliseconds. `None` above the largest integer; below the smallest, the smallest.
    #[expect(clippy::cast_possible_truncation, reason = "exponents are small")]
    pub fn times_rounded_up(self, factor: u32) -> Option<i64> {
        let product = self.finite.and_then(|value| {
            let mantissa = u128::from(value.mantissa) * u128::from(factor);
            Self::round(self.sign, Magnitude { mantissa, sticky: false, exponent: value.exponent }).finite
        });
        let magnitude = product.map_or(u128::MAX, |Rounded { mantissa, exponent }| {
            let mantissa = u128::from(mantissa);
            match (self.sign, exponent) {
                (_, 64..) => u128::MAX,
                (_, 0..) => mantissa << exponent,
                (Sign::Plus, ..-127) => u128::from(mantissa > 0),
                (Sign::Plus, _) => mantissa.div_ceil(1 << -exponent),
                (Sign::Minus, _) => mantissa.checked_shr(exponent.unsigned_abs() as u32).unwrap_or(0),
            }
        });
        match (self.sign, i64::try_from(magnitude)) {
            (Sign::Plus, magnitude) => magnitude.ok(),
            (Sign::Minus, magnitude) => Some(magnitude.map_or(i64::MIN, |magnitude| -magnitude)),
        }
    }

    /// Appends the text that Redis stores and replies: up to 17 decimals, no trailing zeros, no
    /// exponent, no negative zero; `inf` and `-inf`.
    #[expect(clippy::cast_possible_truncation, reason = "exponents are small")]
    pub fn write(self, out: &mut Vec<u8>) {
        let start = out.len();
        if self.sign == Sign::Minus {
            out.push(b'-');
        }
        let Some(value) = self.finite else {
            out.extend_from_slice(b"inf");
            return;
        };
        if value.exponent >= 0 {
            let mut integer = Bignum::from(value.mantissa);
            integer.shift_left(value.exponent as usize);
            out.extend_from_slice(integer.to_decimal().as_bytes());
        } else {
            write_with_fraction(value.mantissa, value.exponent.unsigned_abs(), out);
        }
        if &out[start..] == b"-0" {
            out.remove(start);
        }
    }

    fn is_zero(self) -> bool {
        self.finite.is_some_and(|value| value.mantissa == 0)
    }

    fn round(sign: Sign, magnitude: Magnitude) -> Self {
        let rounded = magnitude.round(PRECISION, EXPONENT_MIN);
        Self { sign, finite: (rounded.exponent <= EXPONENT_MAX).then_some(rounded) }
    }
}

/// Appends `mantissa / 2^shift` in decimal, `shift` being at least one.
fn write_with_fraction(mantissa: u64, shift: u64, out: &mut Vec<u8>) {
    let integer = mantissa.checked_shr(shift.min(64) as u32).unwrap_or(0);
    let fraction = if shift >= 64 { mantissa } else { mantissa & ((1 << shift) - 1) };
    // A 64-bit fraction times 10^17 stays below 2^121.
    let decimals = shift_right_round(u128::from(fraction) * DECIMALS_SCALE, shift, false);
    let (integer, decimals) = if decimals == DECIMALS_SCALE { (integer + 1, 0) } else { (integer, decimals) };
    out.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes());
    if decimals != 0 {
        let text = format!("{decimals:0DECIMALS$}");
        out.push(b'.');
        out.extend_from_slice(text.trim_end_matches('0').as_bytes());
    }
}

/// Orders two magnitudes; normalized mantissas make the exponent decide first.
fn magnitude_order(left: Rounded, right: Rounded) -> Ordering {
    left.exponent.cmp(&right.exponent).then(left.mantissa.cmp(&right.mantissa))
}

/// Bits kept below the larger operand's mantissa while adding; two bits above it take the carry.
const GUARD_BITS: u32 = 62;

/// Widens `high` by the guard bits and brings `low` to the same exponent. What falls off `low` is kept
/// as its lowest bit: 62 bits below the rounding position it can only break ties, as it should.
fn align(high: Rounded, low: Rounded) -> (u128, u128, i64) {
    let widen = |mantissa: u64| u128::from(mantissa) << GUARD_BITS;
    let distance = high.exponent - low.exponent;
    let wide = widen(low.mantissa);
    let shifted = if distance < 128 { wide >> distance } else { 0 };
    let lost = if distance < 128 { shifted << distance != wide } else { wide != 0 };
    (widen(high.mantissa), shifted | u128::from(lost), high.exponent - i64::from(GUARD_BITS))
}

fn add(high: Rounded, low: Rounded) -> Magnitude {
    let (high, low, exponent) = align(high, low);
    Magnitude { mantissa: high + low, sticky: false, exponent }
}

fn subtract(high: Rounded, low: Rounded) -> Magnitude {
    let (high, low, exponent) = align(high, low);
    Magnitude { mantissa: high - low, sticky: false, exponent }
}

/// The magnitude of a decimal text to more bits than the format has, or `None` if it is out of range.
#[expect(clippy::cast_possible_truncation, reason = "exponents are small")]
fn decimal_magnitude(decimal: &Decimal<'_>) -> Option<Magnitude> {
    let leading_zeros = decimal.digits().take_while(|&byte| byte == b'0').count();
    if decimal.is_zero() {
        return Some(Magnitude { mantissa: 0, sticky: false, exponent: 0 });
    }
    let leading_exponent = decimal.integer.len() as i64 - leading_zeros as i64 - 1 + decimal.exponent;
    if !(DECIMAL_EXPONENT_MIN..=DECIMAL_EXPONENT_MAX).contains(&leading_exponent) {
        return None;
    }
    let mut digits = Bignum::from_decimal(decimal.digits());
    // Bounded by the range just checked and the length of the text.
    let scale = decimal.exponent - decimal.fraction.len() as i64;
    if scale >= 0 {
        digits.multiply_power_of_ten(scale as usize);
        Some(digits.magnitude())
    } else if let (Some(small), true) = (digits.to_u64(), scale >= SMALL_SCALE_MIN) {
        Some(small_quotient(small, scale.unsigned_abs() as u32))
    } else {
        let mut divisor = Bignum::from(1);
        divisor.multiply_power_of_ten(scale.unsigned_abs() as usize);
        Some(digits.divide(divisor))
    }
}

/// Powers of ten up to 10^18 leave a 128-bit dividend with a quotient of 68 bits or more.
const SMALL_SCALE_MIN: i64 = -18;

/// `digits / 10^exponent` without big integers: the usual case.
fn small_quotient(digits: u64, exponent: u32) -> Magnitude {
    let shift = 64 + digits.leading_zeros();
    let dividend = u128::from(digits) << shift;
    let divisor = 10u128.pow(exponent);
    let sticky = !dividend.is_multiple_of(divisor);
    Magnitude { mantissa: dividend / divisor, sticky, exponent: -i64::from(shift) }
}

#[cfg(test)]
mod tests;
