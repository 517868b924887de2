//! Texts as Redis reads them where it takes them for strings of C.

/// A client's bytes up to a zero byte: what Redis prints into an error, or compares with a word.
pub fn until_zero(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    &bytes[..end]
}
