//! Glob patterns, until `value` brings them.

/// Whether letters of either case are the same.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// They are not.
    Sensitive,
    /// They are.
    Insensitive,
}

/// Whether a text matches a pattern of `*`, `?` and literal bytes.
pub fn matches(pattern: &[u8], text: &[u8], case: Case) -> bool {
    let same = |left: u8, right: u8| {
        left == right || (case == Case::Insensitive && left.eq_ignore_ascii_case(&right))
    };
    match (pattern.split_first(), text.split_first()) {
        (None, _) => text.is_empty(),
        (Some((b'*', rest)), _) => (0..=text.len()).any(|skipped| matches(rest, &text[skipped..], case)),
        (Some((b'?', rest)), Some((_, left))) => matches(rest, left, case),
        (Some((&byte, rest)), Some((&other, left))) => same(byte, other) && matches(rest, left, case),
        (Some(_), None) => false,
    }
}
