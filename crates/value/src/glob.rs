//! Glob patterns as KEYS, SCAN MATCH, PSUBSCRIBE, CONFIG GET and ACL rules use them.
//!
//! `*` any run, `?` any byte, `[abc]`, `[a-z]`, `[^a]` a byte of a class, `\x` the byte itself. Bytes, not
//! characters. Called once per key by whole-keyspace commands; pure, any thread.
//!
//! 1. Time is at most pattern length times text length: only the last `*` is ever tried again, because
//!    what follows an earlier one has already been found at its earliest place.
//! 2. Odd patterns behave as in Redis: an unclosed `[` ends with the pattern, a last `\` stands for
//!    itself, an escaped byte in a class is compared with its case, ranges order bytes as signed, and an
//!    empty text is matched by the empty pattern alone.

use crate::limits::GLOB_STARS_MAX;

/// Whether ASCII letters of either case are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// `a` is not `A`: keys and channels.
    Sensitive,
    /// `a` is `A`: names of directives and commands.
    Insensitive,
}

impl Case {
    fn fold(self, byte: u8) -> u8 {
        match self {
            Self::Sensitive => byte,
            Self::Insensitive => byte.to_ascii_lowercase(),
        }
    }
}

/// Whether a pattern matches a whole text. Patterns that need more than [`GLOB_STARS_MAX`] separate
/// stars match nothing.
pub fn glob_match(pattern: &[u8], text: &[u8], case: Case) -> bool {
    let (mut at, mut byte_at) = (0, 0);
    // Where to go on after a mismatch: behind the last star, which then eats one byte more.
    let mut retry = None;
    let mut stars = 0;
    loop {
        if at < pattern.len() && byte_at < text.len() {
            if pattern[at] == b'*' {
                at += pattern[at..].iter().take_while(|&&byte| byte == b'*').count();
                stars += 1;
                if at == pattern.len() {
                    return true;
                }
                if stars > GLOB_STARS_MAX {
                    return false;
                }
                retry = Some((at, byte_at));
                continue;
            }
            let (matched, next) = match_element(pattern, at, text[byte_at], case);
            if matched {
                (at, byte_at) = (next, byte_at + 1);
                continue;
            }
        } else if byte_at == text.len() && only_stars(&pattern[at..], text) {
            return true;
        }
        match retry {
            Some((after_star, eaten)) if eaten + 1 < text.len() => {
                (at, byte_at) = (after_star, eaten + 1);
                retry = Some((at, byte_at));
            }
            _ => return false,
        }
    }
}

/// Whether the rest of a pattern matches the end of a text.
fn only_stars(rest: &[u8], text: &[u8]) -> bool {
    rest.is_empty() || (!text.is_empty() && rest.iter().all(|&byte| byte == b'*'))
}

/// Matches one byte against the element at `at`, and says where the next element begins.
fn match_element(pattern: &[u8], at: usize, byte: u8, case: Case) -> (bool, usize) {
    match pattern[at] {
        b'?' => (true, at + 1),
        b'[' => match_class(pattern, at + 1, byte, case),
        b'\\' if at + 1 < pattern.len() => (case.fold(pattern[at + 1]) == case.fold(byte), at + 2),
        literal => (case.fold(literal) == case.fold(byte), at + 1),
    }
}

/// Matches one byte against the class whose first byte is at `at`.
fn match_class(pattern: &[u8], mut at: usize, byte: u8, case: Case) -> (bool, usize) {
    let negated = pattern.get(at) == Some(&b'^');
    at += usize::from(negated);
    let mut matched = false;
    loop {
        match pattern[at..] {
            [] => return (matched != negated, at),
            [b'\\', escaped, ..] => {
                matched |= escaped == byte;
                at += 2;
            }
            [b']', ..] => return (matched != negated, at + 1),
            [start, b'-', end, ..] => {
                matched |= in_range(start, end, byte, case);
                at += 3;
            }
            [literal, ..] => {
                matched |= case.fold(literal) == case.fold(byte);
                at += 1;
            }
        }
    }
}

/// Whether a byte is within two bounds that may come in either order. The bounds are put in order
/// before their case is folded, as in Redis.
fn in_range(start: u8, end: u8, byte: u8, case: Case) -> bool {
    let (low, high) = if start as i8 > end as i8 { (end, start) } else { (start, end) };
    let fold = |byte| case.fold(byte) as i8;
    (fold(low)..=fold(high)).contains(&fold(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        glob_match(pattern.as_bytes(), text.as_bytes(), Case::Sensitive)
    }

    #[test]
    fn ordinary_patterns_match_as_expected() {
        for (pattern, text) in [
            ("*", "a"),
            ("a*", "a"),
            ("a**", "a"),
            ("*a", "bba"),
            ("h?llo", "hello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hallo"),
            ("h[a-c]llo", "hbllo"),
            ("h[c-a]llo", "hbllo"),
            ("a\\*b", "a*b"),
            ("*ab*ab*", "xabyabz"),
            ("", ""),
            ("[\\]]", "]"),
            ("[a\\-z]", "-"),
            ("user:*:name", "user:7:name"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("a", ""),
            ("a", "ab"),
            ("h?llo", "hllo"),
            ("h[^e]llo", "hello"),
            ("*ab", "abc"),
            ("a\\*b", "axb"),
            ("[a-c]", "d"),
            ("A", "a"),
            ("*aab*", "aaac"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn odd_patterns_behave_as_in_redis() {
        for pattern in ["[a", "[a-", "[^b", "[^", "[^]", "[^\\"] {
            assert!(matches(pattern, "a"), "{pattern}");
        }
        for pattern in ["[", "[]", "[b", "a\\", "[]a]"] {
            assert!(!matches(pattern, "a"), "{pattern}");
        }
        assert!(matches("a\\", "a\\"));
        assert!(!matches("*", "") && !matches("**", ""));
    }

    #[test]
    fn ranges_order_bytes_as_signed() {
        let high = |pattern: &[u8]| glob_match(pattern, b"\xf0", Case::Sensitive);
        assert!(high(b"[\xe0-\xff]"));
        assert!(high(b"[a-\x80]"));
        assert!(!high(b"[\x80-\xa0]"));
        assert!(!glob_match(b"[a-\x80]", b"z", Case::Sensitive));
    }

    #[test]
    fn case_is_ignored_but_for_escapes_in_a_class() {
        let matches =
            |pattern: &str, text: &str| glob_match(pattern.as_bytes(), text.as_bytes(), Case::Insensitive);
        assert!(matches("MAX*", "maxmemory") && matches("[A-C]", "b") && matches("\\A", "a"));
        assert!(!matches("[\\A]", "a"));
    }

    #[test]
    fn hostile_patterns_take_no_exponential_time() {
        let text = [vec![b'a'; 10_000], vec![b'b']].concat();
        let pattern = "a*".repeat(900);
        assert!(!glob_match(format!("{pattern}c").as_bytes(), &text, Case::Sensitive));
        assert!(glob_match(format!("{pattern}b").as_bytes(), &text, Case::Sensitive));
    }

    #[test]
    fn star_after_the_last_counted_one_matches_nothing() {
        let text = vec![b'a'; 3000];
        let pattern = |stars: usize| format!("{}a", "a*".repeat(stars));
        assert!(glob_match(pattern(GLOB_STARS_MAX).as_bytes(), &text, Case::Sensitive));
        assert!(!glob_match(pattern(GLOB_STARS_MAX + 1).as_bytes(), &text, Case::Sensitive));
        assert!(glob_match("a*".repeat(GLOB_STARS_MAX + 1).as_bytes(), &text, Case::Sensitive));
    }
}
