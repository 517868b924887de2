//! Where replies end, and which of them are errors: all that a load needs to know of what comes back.
//!
//! Between the socket and the accounting of every operation, so it copies nothing and keeps its place: bytes
//! come in any pieces and each is looked at once; of the inside of strings none is.
//!
//! Invariants:
//! 1. A reply is announced with the piece that completes it, never before.
//! 2. Between pieces at most [`LINE_BYTES_MAX`] bytes are kept.

use crate::number::parse_int;

/// Longest line of a reply: an error's text, a simple string, a length.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// What a reply was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something.
    Value,
    /// Nothing: null, or an aggregate without elements.
    Nothing,
    /// An error; its line is [`Scanner::error`].
    Error,
}

/// Bytes that are no reply; the connection cannot be used any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Finds the ends of replies in one connection's stream.
#[derive(Debug, Default)]
pub struct Scanner {
    /// Values that the reply being read still lacks; 0 between replies.
    lacking: u64,
    /// Bytes of a string that are still to come, with its line end.
    skip: u64,
    /// What the reply being read is.
    kind: Option<Kind>,
    /// The beginning of a line whose end has not arrived.
    partial: Vec<u8>,
    /// The text of the last error.
    error: Vec<u8>,
}

impl Scanner {
    /// The text of the last reply that was an error, without its first byte.
    pub fn error(&self) -> &[u8] {
        &self.error
    }

    /// Whether a reply has begun and not ended.
    pub fn is_inside_reply(&self) -> bool {
        self.lacking > 0 || !self.partial.is_empty()
    }

    /// Reads up to the end of one reply. Returns how many bytes were used, and the reply if it ended; without
    /// one, all bytes were used.
    ///
    /// # Errors
    /// The bytes are no reply.
    #[inline]
    pub fn advance(&mut self, bytes: &[u8]) -> Result<(usize, Option<Kind>), Malformed> {
        if self.lacking == 0 && self.partial.is_empty() {
            // What most loads get back for most requests.
            if bytes.starts_with(b"+OK\r\n") {
                return Ok((5, Some(Kind::Value)));
            }
            self.lacking = 1;
            self.kind = None;
        }
        self.advance_inside(bytes)
    }

    fn advance_inside(&mut self, bytes: &[u8]) -> Result<(usize, Option<Kind>), Malformed> {
        // A line that began in an earlier piece belongs to a reply as well.
        self.lacking = self.lacking.max(1);
        let mut at = 0;
        loop {
            if self.skip > 0 {
                let there = bytes.len() - at;
                let skipped = usize::try_from(self.skip).map_or(there, |skip| skip.min(there));
                self.skip -= skipped as u64;
                at += skipped;
                if self.skip > 0 {
                    return Ok((at, None));
                }
                self.lacking -= 1;
            }
            if self.lacking == 0 {
                return Ok((at, Some(self.kind.take().unwrap_or(Kind::Value))));
            }
            let Some(end) = line_end(&bytes[at..]) else {
                self.keep_partial_line(&bytes[at..])?;
                return Ok((bytes.len(), None));
            };
            let rest = &bytes[at..at + end];
            at += end + 1;
            if self.partial.is_empty() {
                self.read_line(rest)?;
            } else {
                self.keep_partial_line(rest)?;
                let line = std::mem::take(&mut self.partial);
                self.read_line(&line)?;
                self.partial = line;
                self.partial.clear();
            }
        }
    }

    fn keep_partial_line(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        if self.partial.len() + bytes.len() > LINE_BYTES_MAX {
            return Err(Malformed);
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    /// Takes a whole line without its `\n`.
    fn read_line(&mut self, line: &[u8]) -> Result<(), Malformed> {
        let [first, text @ .., b'\r'] = line else { return Err(Malformed) };
        let mut kind = Kind::Value;
        match first {
            b'+' | b':' | b',' | b'#' | b'(' => self.lacking -= 1,
            b'_' => {
                kind = Kind::Nothing;
                self.lacking -= 1;
            }
            b'-' => {
                if self.kind.is_none() {
                    kind = Kind::Error;
                    self.error.clear();
                    self.error.extend_from_slice(text);
                }
                self.lacking -= 1;
            }
            b'$' | b'=' | b'!' => match length(text)? {
                Some(bytes) => self.skip = bytes + 2,
                None => {
                    kind = Kind::Nothing;
                    self.lacking -= 1;
                }
            },
            b'*' | b'~' | b'>' | b'%' => {
                let each = if *first == b'%' { 2 } else { 1 };
                let values = length(text)?.unwrap_or(0).checked_mul(each).ok_or(Malformed)?;
                if values == 0 {
                    kind = Kind::Nothing;
                }
                self.lacking = (self.lacking - 1).checked_add(values).ok_or(Malformed)?;
            }
            _ => return Err(Malformed),
        }
        self.kind.get_or_insert(kind);
        Ok(())
    }
}

/// The position of the next `\n`. Lines are mostly lengths of a few digits, so this looks byte by byte.
#[inline]
fn line_end(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
}

/// A length, or none for `-1`.
#[inline]
fn length(text: &[u8]) -> Result<Option<u64>, Malformed> {
    if text == b"-1" {
        return Ok(None);
    }
    match parse_int(text) {
        Some(length @ 0..) => Ok(Some(length as u64)),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All replies in `stream` when it arrives in pieces of `size` bytes.
    fn replies(stream: &[u8], size: usize) -> Result<Vec<Kind>, Malformed> {
        let mut scanner = Scanner::default();
        let mut found = Vec::new();
        for mut piece in stream.chunks(size) {
            while !piece.is_empty() {
                let (used, kind) = scanner.advance(piece)?;
                piece = &piece[used..];
                found.extend(kind);
            }
        }
        assert!(!scanner.is_inside_reply(), "{}", stream.escape_ascii());
        Ok(found)
    }

    const STREAM: &[u8] =
        b"+OK\r\n:12\r\n$3\r\na\nb\r\n$-1\r\n-ERR no\r\n*2\r\n$1\r\nx\r\n*1\r\n:1\r\n*0\r\n$0\r\n\r\n\
        *-1\r\n%1\r\n+a\r\n$-1\r\n*1\r\n-ERR inside\r\n+PONG\r\n";

    #[test]
    fn replies_are_found_however_they_are_cut() {
        use Kind::{Error, Nothing, Value};
        let expected =
            [Value, Value, Value, Nothing, Error, Value, Nothing, Value, Nothing, Value, Value, Value];
        for size in 1..=STREAM.len() {
            assert_eq!(replies(STREAM, size).unwrap(), expected, "pieces of {size}");
        }
    }

    #[test]
    fn replies_end_where_wire_says() {
        let mut at = 0;
        let mut scanner = Scanner::default();
        while at < STREAM.len() {
            let (used, kind) = scanner.advance(&STREAM[at..]).unwrap();
            assert!(kind.is_some());
            assert_eq!(crate::skip_reply(&STREAM[at..]), Ok(Some(used)));
            at += used;
        }
    }

    #[test]
    fn an_error_keeps_its_text() {
        let mut scanner = Scanner::default();
        assert_eq!(scanner.advance(b"-NOAUTH Auth"), Ok((12, None)));
        assert_eq!(scanner.advance(b"entication required.\r\n"), Ok((22, Some(Kind::Error))));
        assert_eq!(scanner.error(), b"NOAUTH Authentication required.");
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        for bytes in
            [&b"HTTP/1.1 400\r\n"[..], b"$x\r\n", b"$-2\r\n", b"*9223372036854775807999\r\n", b"+a\n"]
        {
            assert_eq!(replies(bytes, 100), Err(Malformed), "{}", bytes.escape_ascii());
        }
        assert_eq!(replies(&vec![b'+'; LINE_BYTES_MAX + 1], 1000), Err(Malformed));
    }
}
