//! Numbers as the protocol spells them: the strict integer of lengths, and the text of a double.
//!
//! Used by the parser (lengths), by replies, and by any command that must print a score the way Redis 7.2
//! does. Pure functions.

/// Reads a decimal integer as strictly as Redis reads lengths: an optional `-`, no `+`, no leading zero, no
/// blanks, nothing after the digits, and the value fits i64. None for anything else (also for `-0` and for no
/// bytes at all).
pub fn parse_int(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    // Counting downwards, because the negative range is the larger one by one.
    let mut value: i64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_sub(i64::from(digit - b'0'))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

/// Reads a header line of the usual form: the type byte `kind`, one to four digits and `\r` plus one more
/// byte. Returns its length in bytes and the number. None means "look closer", not "wrong".
#[inline]
pub(crate) fn short_header(line: &[u8], kind: u8) -> Option<(usize, usize)> {
    let digit = |byte: u8| usize::from(byte.wrapping_sub(b'0'));
    match line {
        [first, ..] if *first != kind => None,
        [_, a @ b'0'..=b'9', b'\r', _, ..] => Some((4, digit(*a))),
        [_, a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', _, ..] => Some((5, digit(*a) * 10 + digit(*b))),
        [_, a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', b'\r', _, ..] => {
            Some((6, digit(*a) * 100 + digit(*b) * 10 + digit(*c)))
        }
        [_, a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', d @ b'0'..=b'9', b'\r', _, ..] => {
            Some((7, digit(*a) * 1000 + digit(*b) * 100 + digit(*c) * 10 + digit(*d)))
        }
        _ => None,
    }
}

/// Appends a double as Redis 7.2 prints it in replies: `nan`, `inf`, `-inf`, whole numbers without a point up
/// to about 4.6e18, all else by the fewest digits that read back as the same double (`0.1`, `1e-7`,
/// `1.5e+300`).
pub fn write_double(out: &mut Vec<u8>, value: f64) {
    if value.is_nan() {
        out.extend_from_slice(b"nan");
    } else if value.is_infinite() {
        out.extend_from_slice(if value > 0.0 { b"inf" } else { b"-inf" });
    } else if value == 0.0 {
        out.extend_from_slice(if value.is_sign_negative() { b"-0" } else { b"0" });
    } else if let Some(whole) = whole_number(value) {
        out.extend_from_slice(itoa::Buffer::new().format(whole).as_bytes());
    } else {
        write_shortest(out, value);
    }
}

/// The value as an integer when it is one and is well inside i64, where the conversion is exact both ways.
fn whole_number(value: f64) -> Option<i64> {
    const BOUND: f64 = (i64::MAX / 2) as f64;
    #[expect(clippy::cast_possible_truncation, reason = "what is cut is told by the way back")]
    let whole = value as i64;
    ((-BOUND..=BOUND).contains(&value) && whole as f64 == value).then_some(whole)
}

/// Finds the shortest digits and lays them out: plain for whole numbers with up to seven zeros added, plain
/// with a point down to six places after it (or an exponent under four), and scientific otherwise.
fn write_shortest(out: &mut Vec<u8>, value: f64) {
    if value < 0.0 {
        out.push(b'-');
    }
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(value.abs()).as_bytes();
    // The library chooses between plain and scientific by rules of its own; take the digits out of either.
    let (mantissa, scale) = match text.iter().position(|&byte| byte == b'e') {
        Some(at) => {
            let exponent = text[at + 1..].strip_prefix(b"+").unwrap_or(&text[at + 1..]);
            (&text[..at], parse_int(exponent).expect("an exponent is a plain integer"))
        }
        None => (text, 0),
    };
    let point = mantissa.iter().position(|&byte| byte == b'.').unwrap_or(mantissa.len());
    let mut digits = [0u8; 32];
    let mut count = 0;
    for &digit in mantissa.iter().filter(|&&byte| byte != b'.') {
        digits[count] = digit;
        count += 1;
    }
    let digits = &digits[..count];
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    let end = digits.iter().rposition(|&digit| digit != b'0').expect("zero is printed elsewhere") + 1;
    write_digits(out, &digits[zeros..end], scale + point as i64 - 1 - zeros as i64);
}

/// A power of ten as a count of digits.
fn count_of(power: i64) -> usize {
    usize::try_from(power).expect("it was compared with 0 before")
}

/// The last digit of a number.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "it is below 10")]
pub(crate) const fn last_digit(number: usize) -> u8 {
    b'0' + (number % 10) as u8
}

/// `digits` with the point after the first one, times ten to the `exponent`.
fn write_digits(out: &mut Vec<u8>, digits: &[u8], exponent: i64) {
    let count = digits.len() as i64;
    // The power of ten that the digits, read as a whole number, are multiplied by.
    let scale = exponent - (count - 1);
    if scale >= 0 && exponent < count + 7 {
        out.extend_from_slice(digits);
        out.resize(out.len() + count_of(scale), b'0');
    } else if scale < 0 && (scale > -7 || exponent.abs() < 4) {
        if exponent < 0 {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + count_of(-exponent - 1), b'0');
            out.extend_from_slice(digits);
        } else {
            let (whole, fraction) = digits.split_at(count_of(exponent) + 1);
            out.extend_from_slice(whole);
            out.push(b'.');
            out.extend_from_slice(fraction);
        }
    } else {
        out.push(digits[0]);
        if count > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        out.extend_from_slice(itoa::Buffer::new().format(exponent.abs()).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn double(value: f64) -> String {
        let mut out = Vec::new();
        write_double(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn strict_integers_are_the_only_lengths() {
        for (text, value) in [
            ("0", Some(0)),
            ("7", Some(7)),
            ("-7", Some(-7)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("99999999999999999999999999", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("00", None),
            ("01", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("1a", None),
            ("--1", None),
        ] {
            assert_eq!(parse_int(text.as_bytes()), value, "{text:?}");
        }
    }

    #[test]
    fn doubles_print_as_in_redis() {
        for (value, text) in [
            (f64::NAN, "nan"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (0.0, "0"),
            (-0.0, "-0"),
            (3.0, "3"),
            (-17.0, "-17"),
            (0.1, "0.1"),
            (3.1, "3.1"),
            (-2.5, "-2.5"),
            (1e17, "100000000000000000"),
            (4611686018427387904.0, "4611686018427387904"),
            (4611686018427388928.0, "4611686018427389000"),
            (1e20, "1e+20"),
            (1.2345e20, "1.2345e+20"),
            (1e-7, "1e-7"),
            (0.000001, "0.000001"),
            (0.00001234, "1.234e-5"),
            (0.001234, "0.001234"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (123456.789, "123456.789"),
            (0.30000000000000004, "0.30000000000000004"),
        ] {
            assert_eq!(double(value), text);
        }
    }

    #[test]
    fn every_printed_double_reads_back_the_same() {
        let mut bits = 1u64;
        for _ in 0..20_000 {
            bits = bits.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let value = f64::from_bits(bits);
            if value.is_finite() {
                assert_eq!(double(value).parse::<f64>().unwrap().to_bits(), bits, "{value:e}");
            }
        }
    }
}
