//! Ranges as arguments: `(1.5`, `-inf`, `[member`, `+`.
//!
//! Thread rule: pure functions of words.
//!
//! Invariant: what is accepted is what C's `strtod` accepts, for Redis reads the ends of
//! score ranges with it: no text at all is 0, blanks may come first, and a number
//! that is too large is infinite.

use crate::error::{Error, Result};
use value::number::parse_f64_at_most;
use value::text::until_zero;
use value::zset::{LexBound, LexRange, ScoreBound, ScoreRange};

/// The range of scores between two words.
pub(super) fn scores(min: &[u8], max: &[u8]) -> Result<ScoreRange> {
    let parsed = score_bound(min).zip(score_bound(max));
    let (min, max) = parsed.ok_or(Error::text("ERR min or max is not a float"))?;
    Ok(ScoreRange { min, max })
}

/// The range of members between two words.
pub(super) fn members<'a>(min: &'a [u8], max: &'a [u8]) -> Result<LexRange<'a>> {
    let parsed = lex_bound(min).zip(lex_bound(max));
    let (min, max) = parsed.ok_or(Error::text("ERR min or max not valid string range item"))?;
    Ok(LexRange { min, max })
}

fn score_bound(word: &[u8]) -> Option<ScoreBound> {
    let (is_exclusive, word) = match word {
        [b'(', rest @ ..] => (true, rest),
        _ => (false, word),
    };
    let score = c_double(until_zero(word))?;
    Some(ScoreBound { score, is_exclusive })
}

fn c_double(text: &[u8]) -> Option<f64> {
    if text.is_empty() {
        return Some(0.0);
    }
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let text = &text[text.iter().take_while(|byte| is_blank(byte)).count()..];
    parse_f64_at_most(text)
}

fn lex_bound(word: &[u8]) -> Option<LexBound<'_>> {
    match word {
        [b'-'] | [b'-', 0, ..] => Some(LexBound::Lowest),
        [b'+'] | [b'+', 0, ..] => Some(LexBound::Highest),
        [b'(', member @ ..] => Some(LexBound::Exclusive(member)),
        [b'[', member @ ..] => Some(LexBound::Inclusive(member)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_score_ranges_are_read_as_c_reads_numbers() {
        for (text, score) in [
            ("", Some(0.0)),
            ("  12", Some(12.0)),
            ("1\0junk", Some(1.0)),
            ("1e400", Some(f64::INFINITY)),
            ("-1e400", Some(f64::NEG_INFINITY)),
            ("1e-400", Some(0.0)),
            ("0x1p16383", Some(f64::INFINITY)),
            ("-0x1p16383", Some(f64::NEG_INFINITY)),
            ("0x1p-16445", Some(0.0)),
            ("0x1.8p1", Some(3.0)),
            ("0xg", None),
            ("inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("0x10", Some(16.0)),
            ("nan", None),
            (" ", None),
            ("1 ", None),
            ("--1", None),
            ("1,5", None),
        ] {
            assert_eq!(c_double(until_zero(text.as_bytes())), score, "{text:?}");
        }
        assert_eq!(score_bound(b"(1.5"), Some(ScoreBound { score: 1.5, is_exclusive: true }));
    }

    #[test]
    fn ends_of_member_ranges_begin_with_a_sign_or_a_bracket() {
        assert_eq!(lex_bound(b"[a"), Some(LexBound::Inclusive(b"a")));
        assert_eq!(lex_bound(b"("), Some(LexBound::Exclusive(b"")));
        assert_eq!(lex_bound(b"+"), Some(LexBound::Highest));
        assert_eq!((lex_bound(b"a"), lex_bound(b""), lex_bound(b"-a")), (None, None, None));
    }
}
