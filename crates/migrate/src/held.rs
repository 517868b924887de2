//! Times to live are held back while data come: nothing of the target's is over before the source says so.
//!
//! A master takes away what is over by itself; a replica waits until its master says so, and a target is a master. If it took a key away that the source,
//! of which it is behind, had given more time meanwhile, the next write of the stream would make another key of it, and nobody would find out. So each
//! moment at which something is over is [`HELD_BY_MS`] later in the target. What is really over the source says (DEL), and at the end, when nothing
//! comes any more, all moments are put right.
//!
//! Pure: words in, words out.

use wire::Request;
use wire::number::parse_int;

/// How much later: some 127 million years, so that nobody means a moment as far as one that is held, and what is put right twice is right.
pub const HELD_BY_MS: u64 = 4_000_000_000_000_000_000;

/// The furthest moment, or time from now, that is held as it is. What is further becomes this: it fits, and is not taken for a held one once it was put right.
const FURTHEST_MS: u64 = HELD_BY_MS / 2;

// Servers count signed milliseconds, and add the time that it is to what counts from now.
const _: () = assert!(FURTHEST_MS + HELD_BY_MS + FURTHEST_MS < i64::MAX as u64);

/// The moment that a key has in the target while data come.
pub fn later(at_ms: u64) -> u64 {
    at_ms.min(FURTHEST_MS) + HELD_BY_MS
}

/// The moment that was meant, of one that is held.
pub fn meant(at_ms: i64) -> Option<u64> {
    u64::try_from(at_ms).ok()?.checked_sub(HELD_BY_MS)
}

/// What a word counts.
#[derive(Clone, Copy)]
enum Unit {
    Seconds,
    Milliseconds,
}

/// A request with its times held back; None: it has none.
pub fn hold(request: &Request<'_>) -> Option<Vec<Vec<u8>>> {
    let (at, unit) = time_of(request)?;
    let number = parse_int(request.get(at)?)?;
    let (by, furthest) = match unit {
        Unit::Seconds => (HELD_BY_MS / 1000, FURTHEST_MS / 1000),
        Unit::Milliseconds => (HELD_BY_MS, FURTHEST_MS),
    };
    let later = number.min(i64::try_from(furthest).ok()?).checked_add(i64::try_from(by).ok()?)?;
    let mut words: Vec<Vec<u8>> = request.iter().map(<[u8]>::to_vec).collect();
    words[at] = later.to_string().into_bytes();
    Some(words)
}

/// Where a request says a time to live, and in what.
fn time_of(request: &Request<'_>) -> Option<(usize, Unit)> {
    let name = request.get(0)?.to_ascii_lowercase();
    match name.as_slice() {
        b"expire" | b"expireat" | b"setex" => Some((2, Unit::Seconds)),
        b"pexpire" | b"pexpireat" | b"psetex" => Some((2, Unit::Milliseconds)),
        // None is 0.
        b"restore" | b"restore-asking" => (request.get(2) != Some(b"0")).then_some((2, Unit::Milliseconds)),
        b"set" => option(request, 3),
        b"getex" => option(request, 2),
        b"msetex" => {
            let pairs = usize::try_from(parse_int(request.get(1)?)?).ok()?;
            option(request, pairs.checked_mul(2)?.checked_add(2)?)
        }
        _ => None,
    }
}

/// The same of one that says it in an option, from this word on.
fn option(request: &Request<'_>, from: usize) -> Option<(usize, Unit)> {
    let mut at = from;
    while at + 1 < request.len() {
        let word = request.arg(at).to_ascii_lowercase();
        match word.as_slice() {
            b"ex" | b"exat" => return Some((at + 1, Unit::Seconds)),
            b"px" | b"pxat" => return Some((at + 1, Unit::Milliseconds)),
            // Behind these stands a value.
            b"ifeq" | b"ifne" | b"ifdeq" | b"ifdne" => at += 2,
            _ => at += 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Span;

    fn held(line: &str) -> Option<String> {
        let mut spans = Vec::new();
        let mut start = 0;
        for word in line.split(' ') {
            spans.push(Span { start, end: start + word.len() });
            start += word.len() + 1;
        }
        let words = hold(&Request::new(line.as_bytes(), &spans))?;
        Some(words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn every_way_to_say_a_time_is_known() {
        let (seconds, ms) = (HELD_BY_MS / 1000, HELD_BY_MS);
        for (said, expected) in [
            ("EXPIRE k 5", format!("EXPIRE k {}", seconds + 5)),
            ("pexpireat k 7 GT", format!("pexpireat k {} GT", ms + 7)),
            ("SETEX k 1 v", format!("SETEX k {} v", seconds + 1)),
            ("SET k v NX PXAT 9", format!("SET k v NX PXAT {}", ms + 9)),
            ("SET k ex IFEQ ex EX 9", format!("SET k ex IFEQ ex EX {}", seconds + 9)),
            ("GETEX k EXAT 3", format!("GETEX k EXAT {}", seconds + 3)),
            ("RESTORE k 4 payload ABSTTL", format!("RESTORE k {} payload ABSTTL", ms + 4)),
            ("MSETEX 1 px 5 PX 6", format!("MSETEX 1 px 5 PX {}", ms + 6)),
        ] {
            assert_eq!(held(said), Some(expected));
        }
        for said in ["SET ex px", "SET k v KEEPTTL", "RESTORE k 0 payload", "PERSIST k", "INCR ex"] {
            assert_eq!(held(said), None, "{said}");
        }
    }

    #[test]
    fn what_is_held_is_put_right() {
        assert_eq!(meant(later(1_800_000_000_123) as i64), Some(1_800_000_000_123));
        assert_eq!((meant(1_800_000_000_123), meant(-1)), (None, None));
    }

    #[test]
    fn far_moments_are_held_and_are_not_taken_for_held_ones() {
        // The end of the year 9999, and a hundred billion seconds from 2026 on.
        for at in [253_402_300_799_999, 100_001_796_000_000_000] {
            assert_eq!(meant(later(at) as i64), Some(at));
            assert_eq!(meant(at as i64), None);
            assert_eq!(held(&format!("PEXPIREAT k {at}")), Some(format!("PEXPIREAT k {}", later(at))));
        }
        assert_eq!(meant(later(u64::MAX) as i64), Some(FURTHEST_MS));
        assert_eq!(meant(FURTHEST_MS as i64), None);
        let furthest = FURTHEST_MS + HELD_BY_MS;
        assert_eq!(held(&format!("PEXPIREAT k {}", i64::MAX)), Some(format!("PEXPIREAT k {furthest}")));
        let seconds = furthest / 1000;
        assert_eq!(held(&format!("SETEX k {} v", i64::MAX / 1000)), Some(format!("SETEX k {seconds} v")));
    }
}
