//! Glob patterns of `*`, `?` and literal bytes, for CONFIG GET and `include`, until those of `value` are in reach.
//!
//! Time is at most pattern length times text length: after a mismatch only the last star takes one byte more.

/// Whether letters of either case are the same.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// They are not.
    Sensitive,
    /// They are.
    Insensitive,
}

/// Whether a text matches a pattern.
pub fn matches(pattern: &[u8], text: &[u8], case: Case) -> bool {
    let same = |left: u8, right: u8| {
        left == right || (case == Case::Insensitive && left.eq_ignore_ascii_case(&right))
    };
    let (mut at, mut byte_at, mut retry) = (0, 0, None);
    while byte_at < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                retry = Some((at, byte_at));
                at += 1;
            }
            Some(&element) if element == b'?' || same(element, text[byte_at]) => {
                at += 1;
                byte_at += 1;
            }
            _ => {
                let Some((star, eaten)) = retry else { return false };
                retry = Some((star, eaten + 1));
                (at, byte_at) = (star + 1, eaten + 1);
            }
        }
    }
    pattern[at..].iter().all(|&element| element == b'*')
}
