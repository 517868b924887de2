//! Numbers as texts: the integers and the 64-bit floats of arguments, values and replies.
//!
//! Handlers parse arguments with these, and the types decide with [`parse_i64`] whether a text can be
//! stored as an integer. Pure functions, any thread.
//!
//! 1. `parse_i64` accepts exactly the texts that [`format_i64`] writes, so storing the integer instead
//!    of the text loses nothing.
//! 2. A finite float survives `format_f64` and `parse_f64` bit for bit, but for the sign of zero
//!    arithmetic that the caller does.

use crate::limits::I64_TEXT_BYTES_MAX;
use crate::magnitude::{Magnitude, parse_exponent, parse_hex};

/// A stack buffer that [`format_i64`] writes into.
pub use itoa::Buffer as IntBuffer;

/// Parses a 64-bit integer: an optional `-`, no leading zero, nothing else. `None` for any other text.
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    if text.len() > I64_TEXT_BYTES_MAX {
        return None;
    }
    match text {
        [b'-', b'1'..=b'9', ..] => {
            let magnitude = parse_digits(&text[1..])?;
            0i64.checked_sub_unsigned(magnitude)
        }
        [b'1'..=b'9', ..] => i64::try_from(parse_digits(text)?).ok(),
        b"0" => Some(0),
        _ => None,
    }
}

/// Parses a 64-bit unsigned integer, as strict as [`parse_i64`]: digits only, no leading zero.
#[inline]
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    match text {
        [b'1'..=b'9', ..] if text.len() <= I64_TEXT_BYTES_MAX => parse_digits(text),
        b"0" => Some(0),
        _ => None,
    }
}

/// The value of a run of at most 20 decimal digits.
#[inline]
fn parse_digits(digits: &[u8]) -> Option<u64> {
    let mut value = 0u64;
    // Nineteen digits cannot overflow, so only a twentieth pays for the check.
    let (unchecked, checked) = digits.split_at(digits.len().min(19));
    for &byte in unchecked {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    for &byte in checked {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// Writes an integer in its canonical spelling.
#[inline]
pub fn format_i64(value: i64, buffer: &mut IntBuffer) -> &[u8] {
    buffer.format(value).as_bytes()
}

/// Parses a 64-bit float as the C library does, hexadecimal and `inf`/`infinity` (any case) included.
///
/// `None` for an empty text, surrounding space, `nan`, trailing bytes, and magnitudes that overflow to
/// infinity or underflow to zero. `inf` is accepted: commands that need a finite number check it.
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    let (negative, unsigned) = split_sign(text);
    let magnitude = match unsigned {
        _ if let Some(integer) = parse_short_integer(unsigned) => integer,
        [b'0', b'x' | b'X', hex @ ..] => round_to_f64(parse_hex(hex)?)?,
        _ if is_infinity(unsigned) => f64::INFINITY,
        _ => parse_decimal_f64(unsigned)?,
    };
    Some(if negative { -magnitude } else { magnitude })
}

/// The same, but magnitudes that overflow are infinity, and those that underflow zero.
pub fn parse_f64_at_most(text: &[u8]) -> Option<f64> {
    let (negative, unsigned) = split_sign(text);
    let magnitude = match unsigned {
        [b'0', b'x' | b'X', hex @ ..] => round_to_f64_at_most(parse_hex(hex)?),
        _ if is_infinity(unsigned) => f64::INFINITY,
        _ => {
            Decimal::parse(unsigned)?;
            std::str::from_utf8(unsigned).ok()?.parse().ok()?
        }
    };
    Some(if negative { -magnitude } else { magnitude })
}

/// Parses digits alone, so few that a double holds every such number exactly.
#[inline]
fn parse_short_integer(text: &[u8]) -> Option<f64> {
    const DIGITS_MAX: usize = f64::DIGITS as usize;
    if text.is_empty() || text.len() > DIGITS_MAX {
        return None;
    }
    let number = text.iter().try_fold(0, |number: u64, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then(|| number * 10 + u64::from(digit))
    })?;
    Some(number as f64)
}

/// Splits off an optional sign; the flag says that it was a minus.
pub(crate) fn split_sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    }
}

/// Whether an unsigned text spells infinity.
pub(crate) fn is_infinity(text: &[u8]) -> bool {
    text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity")
}

/// An unsigned decimal text, taken apart: the digits are `integer` and `fraction`, in that order.
pub(crate) struct Decimal<'a> {
    pub integer: &'a [u8],
    pub fraction: &'a [u8],
    pub exponent: i64,
}

impl<'a> Decimal<'a> {
    /// Takes apart `digits[.digits][e[+-]digits]`; one of the digit runs may be empty.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let (digits, exponent) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
            Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
            None => (text, 0),
        };
        let (integer, fraction) = match digits.iter().position(|&byte| byte == b'.') {
            Some(at) => (&digits[..at], &digits[at + 1..]),
            None => (digits, &digits[..0]),
        };
        let decimal = Self { integer, fraction, exponent };
        let has_digit = decimal.digits().next().is_some();
        (has_digit && decimal.digits().all(|byte| byte.is_ascii_digit())).then_some(decimal)
    }

    /// All digits, most significant first.
    pub fn digits(&self) -> impl Iterator<Item = u8> + '_ {
        self.integer.iter().chain(self.fraction).copied()
    }

    pub fn is_zero(&self) -> bool {
        self.digits().all(|byte| byte == b'0')
    }
}

fn parse_decimal_f64(text: &[u8]) -> Option<f64> {
    let decimal = Decimal::parse(text)?;
    let text = std::str::from_utf8(text).expect("Decimal::parse lets only ASCII through");
    let value: f64 = text.parse().ok()?;
    let overflowed = value.is_infinite();
    let underflowed = value == 0.0 && !decimal.is_zero();
    (!overflowed && !underflowed).then_some(value)
}

fn round_to_f64(magnitude: Magnitude) -> Option<f64> {
    let is_zero = magnitude.mantissa == 0;
    let value = round_to_f64_at_most(magnitude);
    (value.is_finite() && (value != 0.0 || is_zero)).then_some(value)
}

/// What is too large for a double is infinity, and what is too small is zero.
fn round_to_f64_at_most(magnitude: Magnitude) -> f64 {
    const EXPONENT_MIN: i64 = -1074;
    const EXPONENT_MAX: i64 = 971;
    const HIDDEN_BIT: u64 = 1 << 52;
    let rounded = magnitude.round(53, EXPONENT_MIN);
    if rounded.mantissa < HIDDEN_BIT {
        return f64::from_bits(rounded.mantissa);
    }
    if rounded.exponent > EXPONENT_MAX {
        return f64::INFINITY;
    }
    let biased = (rounded.exponent - EXPONENT_MIN + 1) as u64;
    f64::from_bits(biased << 52 | (rounded.mantissa - HIDDEN_BIT))
}

/// Longest text that a [`FloatBuffer`] holds; 17 digits with sign, point and exponent take 24 bytes,
/// and a plain integer with seven zeros appended takes 25.
const FLOAT_TEXT_BYTES_MAX: usize = 32;

/// A stack buffer with the text of a 64-bit float.
#[derive(Clone, Copy, Debug)]
pub struct FloatBuffer {
    bytes: [u8; FLOAT_TEXT_BYTES_MAX],
    len: usize,
}

impl FloatBuffer {
    fn new() -> Self {
        Self { bytes: [0; FLOAT_TEXT_BYTES_MAX], len: 0 }
    }

    fn of(text: &[u8]) -> Self {
        let mut buffer = Self::new();
        buffer.push(text);
        buffer
    }

    fn push(&mut self, text: &[u8]) {
        self.bytes[self.len..self.len + text.len()].copy_from_slice(text);
        self.len += text.len();
    }

    fn push_zeros(&mut self, count: usize) {
        self.push(&[b'0'; FLOAT_TEXT_BYTES_MAX][..count]);
    }

    /// The text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl std::fmt::Write for FloatBuffer {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if text.len() > FLOAT_TEXT_BYTES_MAX - self.len {
            return Err(std::fmt::Error);
        }
        self.push(text.as_bytes());
        Ok(())
    }
}

/// Writes a float as Redis 7.2 does in scores and replies, but for the last of some 17 digits: the fewest digits that read
/// back as the same value, which its `fpconv` does not always find, `nan`, `inf`, `-inf`, `-0`; integers below 2^62 without exponent.
#[expect(clippy::cast_possible_truncation, reason = "it was compared before, and lengths are below 18")]
pub fn format_f64(value: f64) -> FloatBuffer {
    if let Some(text) = special_f64(value) {
        return FloatBuffer::of(text);
    }
    const INTEGER_MAX: f64 = (i64::MAX / 2) as f64;
    if value.abs() <= INTEGER_MAX && value.trunc() == value {
        return FloatBuffer::of(format_i64(value as i64, &mut IntBuffer::new()));
    }
    let digits = Digits::shortest(value);
    let mut buffer = FloatBuffer::new();
    if value < 0.0 {
        buffer.push(b"-");
    }
    digits.write_shortest_form(&mut buffer);
    buffer
}

/// Writes a float with 17 significant digits, as C's `%.17g` does: the form of Redis before 7.2, and of
/// numbers that scripts turn into texts.
pub fn format_f64_17g(value: f64) -> FloatBuffer {
    if let Some(text) = special_f64(value) {
        return FloatBuffer::of(text);
    }
    let digits = Digits::seventeen(value);
    let mut buffer = FloatBuffer::new();
    if value < 0.0 {
        buffer.push(b"-");
    }
    digits.write_general_form(&mut buffer);
    buffer
}

fn special_f64(value: f64) -> Option<&'static [u8]> {
    if value.is_nan() {
        Some(b"nan")
    } else if value.is_infinite() {
        Some(if value > 0.0 { b"inf" } else { b"-inf" })
    } else if value == 0.0 {
        Some(if value.is_sign_negative() { b"-0" } else { b"0" })
    } else {
        None
    }
}

/// The significant digits of a float: `0.d1d2d3... * 10^point`, no trailing zero.
struct Digits {
    bytes: [u8; 17],
    len: usize,
    point: i32,
}

impl Digits {
    fn shortest(value: f64) -> Self {
        Self::from_scientific(format_args!("{:e}", value.abs()))
    }

    fn seventeen(value: f64) -> Self {
        Self::from_scientific(format_args!("{:.16e}", value.abs()))
    }

    /// Reads back Rust's own scientific form, `d.ddde-5`.
    #[expect(clippy::cast_possible_truncation, reason = "it was compared before, and lengths are below 18")]
    fn from_scientific(text: std::fmt::Arguments<'_>) -> Self {
        let mut scratch = FloatBuffer::new();
        std::fmt::write(&mut scratch, text).expect("17 digits and an exponent fit the buffer");
        let text = scratch.as_bytes();
        let at = text.iter().position(|&byte| byte == b'e').expect("the form has an exponent");
        let exponent = parse_exponent(&text[at + 1..]).expect("the exponent is a number");
        let mut digits = Self { bytes: [b'0'; 17], len: 0, point: exponent as i32 + 1 };
        for &byte in text[..at].iter().filter(|byte| byte.is_ascii_digit()) {
            digits.bytes[digits.len] = byte;
            digits.len += 1;
        }
        while digits.len > 1 && digits.bytes[digits.len - 1] == b'0' {
            digits.len -= 1;
        }
        digits
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The exponent of scientific notation, `d.ddd * 10^exponent`.
    fn exponent(&self) -> i32 {
        self.point - 1
    }

    /// Redis 7.2's choice between plain and scientific: up to seven zeros may be appended to an integer,
    /// and a fraction is plain when its last digit is within six places, or its first within three.
    #[expect(clippy::cast_possible_truncation, reason = "it was compared before, and lengths are below 18")]
    fn write_shortest_form(&self, buffer: &mut FloatBuffer) {
        let trailing = self.point - self.len as i32;
        let exponent = self.exponent().abs();
        if trailing >= 0 && exponent < self.len as i32 + 7 {
            buffer.push(self.as_bytes());
            buffer.push_zeros(trailing as usize);
        } else if trailing < 0 && (trailing > -7 || exponent < 4) {
            self.write_plain_fraction(buffer);
        } else {
            self.write_scientific(buffer, 1);
        }
    }

    /// C's `%g` choice: plain when the exponent is in `-4..17`.
    #[expect(clippy::cast_possible_truncation, reason = "it was compared before, and lengths are below 18")]
    fn write_general_form(&self, buffer: &mut FloatBuffer) {
        let trailing = self.point - self.len as i32;
        if !(-4..17).contains(&self.exponent()) {
            self.write_scientific(buffer, 2);
        } else if trailing >= 0 {
            buffer.push(self.as_bytes());
            buffer.push_zeros(trailing as usize);
        } else {
            self.write_plain_fraction(buffer);
        }
    }

    fn write_plain_fraction(&self, buffer: &mut FloatBuffer) {
        if self.point <= 0 {
            buffer.push(b"0.");
            buffer.push_zeros(-self.point as usize);
            buffer.push(self.as_bytes());
        } else {
            let (integer, fraction) = self.as_bytes().split_at(self.point as usize);
            buffer.push(integer);
            buffer.push(b".");
            buffer.push(fraction);
        }
    }

    fn write_scientific(&self, buffer: &mut FloatBuffer, exponent_digits_min: usize) {
        buffer.push(&self.bytes[..1]);
        if self.len > 1 {
            buffer.push(b".");
            buffer.push(&self.bytes[1..self.len]);
        }
        buffer.push(if self.exponent() < 0 { b"e-" } else { b"e+" });
        let mut integer = IntBuffer::new();
        let text = integer.format(self.exponent().unsigned_abs()).as_bytes();
        buffer.push_zeros(exponent_digits_min.saturating_sub(text.len()));
        buffer.push(text);
    }
}

#[cfg(test)]
mod tests;
