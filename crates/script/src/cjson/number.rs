//! Numbers as C reads and writes them: `strtod` and `%.Ng`.

use std::io::Write;

/// The number at the beginning of a text as `strtod` reads it, and how long it is.
pub(super) fn read(text: &[u8]) -> Option<(f64, usize)> {
    let (is_negative, body) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let (number, length) = special(body).or_else(|| hexadecimal(body)).or_else(|| decimal(body))?;
    Some((if is_negative { -number } else { number }, text.len() - body.len() + length))
}

/// Whether a text begins so, in letters of either case.
pub(super) fn begins(text: &[u8], word: &[u8]) -> bool {
    text.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word))
}

fn special(text: &[u8]) -> Option<(f64, usize)> {
    if begins(text, b"inf") {
        return Some((f64::INFINITY, if begins(text, b"infinity") { 8 } else { 3 }));
    }
    if !begins(text, b"nan") {
        return None;
    }
    let Some(inner) = text[3..].strip_prefix(b"(") else { return Some((f64::NAN, 3)) };
    let count = inner.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    Some((f64::NAN, if inner.get(count) == Some(&b')') { count + 5 } else { 3 }))
}

fn hexadecimal(text: &[u8]) -> Option<(f64, usize)> {
    /// Powers of two beyond which every number is infinite or zero, however long.
    const EXPONENT_MAX: i64 = 1 << 40;
    let [b'0', b'x' | b'X', digits @ ..] = text else { return None };
    // The first digits, and a last bit for all those that do not fit.
    let (mut bits, mut exponent, mut at, mut has_digits, mut is_behind_point) = (0u64, 0i64, 0, false, false);
    loop {
        match digits.get(at) {
            Some(b'.') if !is_behind_point => is_behind_point = true,
            Some(digit) if digit.is_ascii_hexdigit() => {
                has_digits = true;
                let digit = u64::from((*digit as char).to_digit(16).unwrap_or(0));
                exponent -= i64::from(is_behind_point) * 4;
                if bits >> 59 == 0 {
                    bits = bits << 4 | digit;
                } else {
                    bits |= u64::from(digit != 0);
                    exponent += 4;
                }
            }
            _ => break,
        }
        at += 1;
    }
    if !has_digits {
        return None;
    }
    if let Some(b'p' | b'P') = digits.get(at) {
        let (power, length) = exponent_at(&digits[at + 1..], EXPONENT_MAX);
        if length > 0 {
            exponent += power;
            at += 1 + length;
        }
    }
    Some((scaled(bits as f64, exponent), 2 + at))
}

/// A number times a power of two.
fn scaled(mut number: f64, mut exponent: i64) -> f64 {
    const STEP: i64 = 512;
    while number != 0.0 && number.is_finite() && exponent != 0 {
        let step = exponent.clamp(-STEP, STEP);
        number *= 2f64.powi(step as i32);
        exponent -= step;
    }
    number
}

/// An exponent with its sign, not beyond a limit, and how long it is; 0: there is none.
fn exponent_at(text: &[u8], max: i64) -> (i64, usize) {
    let sign = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let digits = &text[sign..];
    let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if count == 0 {
        return (0, 0);
    }
    let power = digits[..count].iter().fold(0, |power, digit| max.min(power * 10 + i64::from(digit - b'0')));
    (if text[0] == b'-' { -power } else { power }, sign + count)
}

fn decimal(text: &[u8]) -> Option<(f64, usize)> {
    let digits = |from: usize| text[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut length = digits(0);
    let mut has_digits = length > 0;
    if text.get(length) == Some(&b'.') {
        let fraction = digits(length + 1);
        has_digits |= fraction > 0;
        length += 1 + fraction;
    }
    if !has_digits {
        return None;
    }
    if let Some(b'e' | b'E') = text.get(length) {
        let (_, exponent) = exponent_at(&text[length + 1..], i64::from(i32::MAX));
        length += if exponent > 0 { 1 + exponent } else { 0 };
    }
    let number = std::str::from_utf8(&text[..length]).ok()?.parse().ok()?;
    Some((number, length))
}

/// Appends a finite number with at most `digits` significant digits, which are 1 to 14.
pub(crate) fn write(out: &mut Vec<u8>, number: f64, digits: usize) {
    /// Below it every integer has at most so many digits, by the number of digits.
    const WHOLE_MAX: [f64; 15] =
        [0.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14];
    let digits = digits.clamp(1, 14);
    let whole = number as i64;
    if whole as f64 == number && number.abs() < WHOLE_MAX[digits] {
        if whole == 0 && number.is_sign_negative() {
            out.push(b'-');
        }
        out.extend_from_slice(itoa::Buffer::new().format(whole).as_bytes());
        return;
    }
    // "-d.ddde-ddd"
    let mut buffer = [0; 32];
    let mut rest = &mut buffer[..];
    write!(rest, "{:.*e}", digits - 1, number.abs()).expect("it is not so long");
    let length = 32 - rest.len();
    let (mantissa, exponent) = split_at_e(&buffer[..length]);
    let mut all = [0; 16];
    all[0] = mantissa[0];
    let fraction = mantissa.get(2..).unwrap_or_default();
    all[1..1 + fraction.len()].copy_from_slice(fraction);
    let mut count = 1 + fraction.len();
    while count > 1 && all[count - 1] == b'0' {
        count -= 1;
    }
    if number < 0.0 {
        out.push(b'-');
    }
    write_digits(out, &all[..count], exponent, digits);
}

fn split_at_e(text: &[u8]) -> (&[u8], i32) {
    let at = text.iter().rposition(|byte| *byte == b'e').expect("the format has an exponent");
    let (sign, power) = match &text[at + 1..] {
        [b'-', power @ ..] => (-1, power),
        power => (1, power),
    };
    (&text[..at], sign * power.iter().fold(0, |number, digit| number * 10 + i32::from(digit - b'0')))
}

/// Digits, of which the first stands for ones times ten to the power of `exponent`.
fn write_digits(out: &mut Vec<u8>, digits: &[u8], exponent: i32, digits_max: usize) {
    const ZEROS: &[u8; 16] = b"0000000000000000";
    if exponent < -4 || exponent >= digits_max as i32 {
        out.push(digits[0]);
        if digits.len() > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        if exponent.abs() < 10 {
            out.push(b'0');
        }
        out.extend_from_slice(itoa::Buffer::new().format(exponent.abs()).as_bytes());
    } else if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.extend_from_slice(&ZEROS[..(-exponent - 1) as usize]);
        out.extend_from_slice(digits);
    } else {
        let (whole, fraction) = digits.split_at(digits.len().min(exponent as usize + 1));
        out.extend_from_slice(whole);
        out.extend_from_slice(&ZEROS[..exponent as usize + 1 - whole.len()]);
        if !fraction.is_empty() {
            out.push(b'.');
            out.extend_from_slice(fraction);
        }
    }
}
