//! `log-retention`: how much of the log stays when a checkpoint has made it dispensable, for restoring an earlier moment.

use log::Retention;

/// Reads `no`, a time (`90s`, `30m`, `12h`, `7d`) or a size (`512mb`, `20gb`). None: it is neither.
pub fn parse(text: &[u8]) -> Option<Retention> {
    let text = str::from_utf8(text).ok()?.to_ascii_lowercase();
    if matches!(text.as_str(), "no" | "0" | "") {
        return Some(Retention::None);
    }
    let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
    let number: u64 = text[..digits].parse().ok()?;
    let times = |factor: u64| number.checked_mul(factor);
    Some(match &text[digits..] {
        "s" => Retention::Milliseconds(times(1000)?),
        "m" => Retention::Milliseconds(times(60_000)?),
        "h" => Retention::Milliseconds(times(3_600_000)?),
        "d" => Retention::Milliseconds(times(86_400_000)?),
        "kb" => Retention::Bytes(times(1 << 10)?),
        "mb" => Retention::Bytes(times(1 << 20)?),
        "gb" => Retention::Bytes(times(1 << 30)?),
        "tb" => Retention::Bytes(times(1 << 40)?),
        _ => return None,
    })
}

/// The check of the directive's text.
pub fn check(text: &[u8]) -> Result<(), &'static str> {
    let wrong = "log-retention must be no, a time such as 12h or 7d, or a size such as 20gb";
    parse(text).map(|_| ()).ok_or(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_told_apart_by_their_units() {
        assert_eq!(parse(b"no"), Some(Retention::None));
        assert_eq!(parse(b"90s"), Some(Retention::Milliseconds(90_000)));
        assert_eq!(parse(b"7D"), Some(Retention::Milliseconds(7 * 86_400_000)));
        assert_eq!(parse(b"20gb"), Some(Retention::Bytes(20 << 30)));
        for text in [&b"7"[..], b"d", b"-1d", b"1 d", b"99999999999999d", b"\xff"] {
            assert_eq!(parse(text), None);
        }
    }
}
