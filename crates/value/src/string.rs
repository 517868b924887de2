//! Strings: which encoding a new value gets.
//!
//! SET, GETSET, MSET and their like call this once per stored value; `OBJECT ENCODING` reports it. A
//! value that was edited in place (APPEND, SETRANGE, SETBIT) is `Raw` whatever its length.

use crate::limits::EMBSTR_BYTES_MAX;
use crate::number::parse_i64;

/// The encoding of a string value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StringEncoding {
    /// The text of this 64-bit integer, in its only canonical spelling.
    Int(i64),
    /// A short text, at most [`EMBSTR_BYTES_MAX`] bytes.
    Embstr,
    /// Any other text, and every text that has been edited.
    Raw,
}

impl StringEncoding {
    /// The encoding of a value that is stored as a whole.
    #[inline]
    pub fn of(text: &[u8]) -> Self {
        match parse_i64(text) {
            Some(value) => Self::Int(value),
            None if text.len() <= EMBSTR_BYTES_MAX => Self::Embstr,
            None => Self::Raw,
        }
    }

    /// The name that OBJECT ENCODING replies with.
    pub fn name(self) -> &'static str {
        match self {
            Self::Int(_) => "int",
            Self::Embstr => "embstr",
            Self::Raw => "raw",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_integers_are_int() {
        for text in ["0", "-1", "9223372036854775807", "-9223372036854775808"] {
            assert_eq!(StringEncoding::of(text.as_bytes()).name(), "int", "{text}");
        }
        for text in ["", "00", "+1", "-0", " 1", "9223372036854775808", "1.0"] {
            assert_eq!(StringEncoding::of(text.as_bytes()).name(), "embstr", "{text}");
        }
    }

    #[test]
    fn forty_four_bytes_are_the_last_embstr() {
        assert_eq!(StringEncoding::of(&[b'x'; 44]), StringEncoding::Embstr);
        assert_eq!(StringEncoding::of(&[b'x'; 45]), StringEncoding::Raw);
    }
}
