//! Numbers as C's `%.Ng` writes them.

/// Appends a finite number with at most `digits` significant digits.
pub(super) fn write(out: &mut Vec<u8>, number: f64, digits: usize) {
    if number == 0.0 {
        out.extend_from_slice(if number.is_sign_negative() { b"-0" } else { b"0" });
        return;
    }
    if number.floor() == number && number.abs() < 10f64.powi(digits.min(15) as i32) {
        out.extend_from_slice(itoa::Buffer::new().format(number as i64).as_bytes());
        return;
    }
    let scientific = format!("{number:.*e}", digits.max(1) - 1);
    let (mantissa, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent is an integer");
    if exponent < -4 || exponent >= digits as i32 {
        out.extend_from_slice(without_zeros(mantissa).as_bytes());
        let sign = if exponent < 0 { '-' } else { '+' };
        out.extend_from_slice(format!("e{sign}{:02}", exponent.abs()).as_bytes());
    } else {
        let places = (digits as i32 - 1 - exponent).max(0) as usize;
        out.extend_from_slice(without_zeros(&format!("{number:.places$}")).as_bytes());
    }
}

fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}
