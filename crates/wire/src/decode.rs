//! The client side's way in: reply bytes of both protocols to values.
//!
//! Used by test tools, load generators and replicas' handshakes; no server reply passes here. [`Decoder`]
//! takes bytes in any pieces and keeps its place, so that a large reply costs linear time. [`skip_reply`]
//! only finds where a reply ends.
//!
//! Invariants:
//! 1. A declared length reserves no memory.
//! 2. No value is nested deeper than [`REPLY_DEPTH_MAX`].

use crate::limits::{REPLY_BULK_BYTES_MAX, REPLY_DEPTH_MAX, REPLY_LINE_BYTES_MAX};
use crate::number::{parse_int, short_header};

/// One reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `+`: a short text.
    Simple(Vec<u8>),
    /// `-` or `!`: an error line with its code.
    Error(Vec<u8>),
    /// `:`
    Int(i64),
    /// `$`
    Bulk(Vec<u8>),
    /// `$-1` or `_`
    Null,
    /// `*-1`
    NullArray,
    /// `*`
    Array(Vec<Value>),
    /// `%`, in the order of arrival.
    Map(Vec<(Value, Value)>),
    /// `~`
    Set(Vec<Value>),
    /// `>`: a message out of band, not an answer.
    Push(Vec<Value>),
    /// `,`
    Double(f64),
    /// `#`
    Bool(bool),
    /// `=`: text with its format of three bytes.
    Verbatim([u8; 3], Vec<u8>),
    /// `(`: decimal digits.
    BigNumber(Vec<u8>),
    /// `|`: attributes, and the reply that they belong to.
    Attribute(Vec<(Value, Value)>, Box<Value>),
}

/// Bytes that are no reply. The stream cannot be read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// No type starts with this byte.
    UnknownType(u8),
    /// A number, length or truth value that is none.
    MalformedLine,
    /// A line longer than [`REPLY_LINE_BYTES_MAX`].
    LineTooLong,
    /// A string longer than [`REPLY_BULK_BYTES_MAX`].
    BulkTooLong,
    /// A string without its line end.
    MissingLineEnd,
    /// Nested deeper than [`REPLY_DEPTH_MAX`].
    TooDeep,
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DecodeError::UnknownType(byte) => write!(f, "no reply starts with '{}'", byte.escape_ascii()),
            DecodeError::MalformedLine => f.write_str("malformed number or length in a reply"),
            DecodeError::LineTooLong => f.write_str("line too long in a reply"),
            DecodeError::BulkTooLong => f.write_str("string too long in a reply"),
            DecodeError::MissingLineEnd => f.write_str("string without line end in a reply"),
            DecodeError::TooDeep => f.write_str("reply nested too deep"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// What the first line of a value says.
enum Head<'a> {
    /// The value is complete with its line.
    Line(u8, &'a [u8]),
    /// A string of this many bytes follows (`$`, `=`, `!`).
    String(u8, usize),
    /// This many values follow.
    Aggregate(u8, usize),
    /// `$-1`
    NullBulk,
    /// `*-1`
    NullArray,
}

/// Reads the line at the front of `buf`, of which the first `searched` bytes are known to hold no line end;
/// with the offset after the line. None when it has not arrived whole.
fn read_head(buf: &[u8], searched: usize) -> Result<Option<(Head<'_>, usize)>, DecodeError> {
    let Some(&kind) = buf.first() else { return Ok(None) };
    let window = &buf[..buf.len().min(REPLY_LINE_BYTES_MAX)];
    let end = match memchr::memchr(b'\n', &window[searched.min(window.len())..]) {
        Some(found) => searched + found,
        None if buf.len() >= REPLY_LINE_BYTES_MAX => return Err(DecodeError::LineTooLong),
        None => return check_kind(kind).map(|()| None),
    };
    let [_, line @ .., b'\r'] = &buf[..end] else {
        return check_kind(kind).and(Err(DecodeError::MalformedLine));
    };
    let head = match kind {
        b'+' | b'-' | b':' | b',' | b'#' | b'(' | b'_' => Head::Line(kind, line),
        b'$' | b'*' if line == b"-1" => {
            if kind == b'$' {
                Head::NullBulk
            } else {
                Head::NullArray
            }
        }
        b'$' | b'=' | b'!' => {
            Head::String(kind, length(line, REPLY_BULK_BYTES_MAX, DecodeError::BulkTooLong)?)
        }
        b'*' | b'~' | b'>' => {
            Head::Aggregate(kind, length(line, i64::from(u32::MAX), DecodeError::MalformedLine)?)
        }
        b'%' | b'|' => {
            Head::Aggregate(kind, 2 * length(line, i64::from(u32::MAX), DecodeError::MalformedLine)?)
        }
        _ => return Err(DecodeError::UnknownType(kind)),
    };
    Ok(Some((head, end + 1)))
}

/// Refuses an unknown type at once instead of waiting for the end of its line.
fn check_kind(kind: u8) -> Result<(), DecodeError> {
    if b"+-:,#(_$*=!~>%|".contains(&kind) { Ok(()) } else { Err(DecodeError::UnknownType(kind)) }
}

fn length(line: &[u8], max: i64, too_long: DecodeError) -> Result<usize, DecodeError> {
    match parse_int(line) {
        Some(len @ 0..) if len <= max => usize::try_from(len).map_err(|_| too_long),
        Some(0..) => Err(too_long),
        _ => Err(DecodeError::MalformedLine),
    }
}

/// A value that is complete with its line.
fn line_value(kind: u8, line: &[u8]) -> Result<Value, DecodeError> {
    let value = match kind {
        b'+' => Value::Simple(line.to_vec()),
        b'-' => Value::Error(line.to_vec()),
        b'(' => Value::BigNumber(line.to_vec()),
        b':' => {
            Value::Int(parse_int(line.strip_prefix(b"+").unwrap_or(line)).ok_or(DecodeError::MalformedLine)?)
        }
        b',' => Value::Double(
            std::str::from_utf8(line)
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or(DecodeError::MalformedLine)?,
        ),
        _ => match (kind, line) {
            (b'_', b"") => Value::Null,
            (b'#', b"t") => Value::Bool(true),
            (b'#', b"f") => Value::Bool(false),
            _ => return Err(DecodeError::MalformedLine),
        },
    };
    Ok(value)
}

/// A value made of a whole string.
fn string_value(kind: u8, bytes: &[u8]) -> Result<Value, DecodeError> {
    match (kind, bytes) {
        (b'$', _) => Ok(Value::Bulk(bytes.to_vec())),
        (b'!', _) => Ok(Value::Error(bytes.to_vec())),
        (_, [a, b, c, b':', text @ ..]) => Ok(Value::Verbatim([*a, *b, *c], text.to_vec())),
        _ => Err(DecodeError::MalformedLine),
    }
}

/// The bytes of a string of `len` bytes at the front of `buf`, without its line end; None when it is
/// incomplete.
fn read_string(buf: &[u8], len: usize) -> Result<Option<&[u8]>, DecodeError> {
    match buf.get(len..len + 2) {
        None => Ok(None),
        Some(b"\r\n") => Ok(Some(&buf[..len])),
        Some(_) => Err(DecodeError::MissingLineEnd),
    }
}

/// An aggregate of which some elements are still to come.
#[derive(Debug)]
struct Open {
    kind: u8,
    left: usize,
    values: Vec<Value>,
}

impl Open {
    fn close(self) -> Closed {
        match self.kind {
            b'%' => Closed::Value(Value::Map(pairs(self.values))),
            b'~' => Closed::Value(Value::Set(self.values)),
            b'>' => Closed::Value(Value::Push(self.values)),
            b'|' => Closed::Attributes(pairs(self.values)),
            _ => Closed::Value(Value::Array(self.values)),
        }
    }
}

/// What a completed aggregate is.
enum Closed {
    Value(Value),
    /// Attributes: the value that they belong to comes next.
    Attributes(Vec<(Value, Value)>),
}

fn pairs(values: Vec<Value>) -> Vec<(Value, Value)> {
    let mut values = values.into_iter();
    let mut pairs = Vec::with_capacity(values.len() / 2);
    while let (Some(key), Some(value)) = (values.next(), values.next()) {
        pairs.push((key, value));
    }
    pairs
}

/// What the decoder is inside of.
#[derive(Debug)]
enum Frame {
    Open(Open),
    /// Attributes whose value has not come yet.
    Attributed(Vec<(Value, Value)>),
}

/// Decodes a stream of replies that arrives in any pieces.
#[derive(Debug, Default)]
pub struct Decoder {
    buf: Vec<u8>,
    /// Bytes of `buf` that have become values.
    at: usize,
    /// Bytes after `at` that are known to hold no line end.
    searched: usize,
    /// A string whose length line has been read.
    string: Option<(u8, usize)>,
    frames: Vec<Frame>,
}

impl Decoder {
    /// A decoder at the beginning of a stream.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// Takes the next bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.at == self.buf.len() {
            self.buf.clear();
            self.at = 0;
        } else if self.at > self.buf.len() / 2 {
            // At least half is used up, so that moving the rest costs less than having read it.
            self.buf.drain(..self.at);
            self.at = 0;
        }
        self.buf.extend_from_slice(bytes);
    }

    /// The next complete reply, or None until more bytes have been fed. After an error the decoder must not
    /// be used again.
    pub fn decode(&mut self) -> Result<Option<Value>, DecodeError> {
        loop {
            let Some(value) = self.read_leaf()? else { return Ok(None) };
            if let Some(whole) = self.place(value) {
                return Ok(Some(whole));
            }
        }
    }

    /// Bytes that have been fed and are not yet part of a returned reply's text.
    pub fn buffered_bytes(&self) -> usize {
        self.buf.len() - self.at
    }

    /// Reads up to the next value that has no parts to come, opening aggregates on the way.
    fn read_leaf(&mut self) -> Result<Option<Value>, DecodeError> {
        loop {
            let rest = &self.buf[self.at..];
            if let Some((kind, len)) = self.string {
                let Some(bytes) = read_string(rest, len)? else { return Ok(None) };
                let value = string_value(kind, bytes)?;
                self.at += len + 2;
                self.string = None;
                return Ok(Some(value));
            }
            let Some((head, used)) = read_head(rest, self.searched)? else {
                self.searched = rest.len();
                return Ok(None);
            };
            let leaf = match head {
                Head::Line(kind, line) => Some(line_value(kind, line)?),
                Head::NullBulk => Some(Value::Null),
                Head::NullArray => Some(Value::NullArray),
                Head::String(kind, len) => {
                    self.string = Some((kind, len));
                    None
                }
                Head::Aggregate(kind, left) => self.open(kind, left)?,
            };
            self.at += used;
            self.searched = 0;
            if leaf.is_some() {
                return Ok(leaf);
            }
        }
    }

    /// Enters an aggregate; an empty one is a value at once (empty attributes are none at all).
    fn open(&mut self, kind: u8, left: usize) -> Result<Option<Value>, DecodeError> {
        let open = Open { kind, left, values: Vec::new() };
        if left == 0 {
            return Ok(match open.close() {
                Closed::Value(value) => Some(value),
                Closed::Attributes(_) => None,
            });
        }
        if self.frames.len() >= REPLY_DEPTH_MAX {
            return Err(DecodeError::TooDeep);
        }
        self.frames.push(Frame::Open(open));
        Ok(None)
    }

    /// Puts a complete value where it belongs; returns it when it belongs nowhere, which makes it a reply.
    fn place(&mut self, mut value: Value) -> Option<Value> {
        while let Some(frame) = self.frames.pop() {
            match frame {
                Frame::Attributed(attributes) => value = Value::Attribute(attributes, Box::new(value)),
                Frame::Open(mut open) => {
                    open.values.push(value);
                    open.left -= 1;
                    if open.left > 0 {
                        self.frames.push(Frame::Open(open));
                        return None;
                    }
                    match open.close() {
                        Closed::Value(closed) => value = closed,
                        Closed::Attributes(attributes) => {
                            self.frames.push(Frame::Attributed(attributes));
                            return None;
                        }
                    }
                }
            }
        }
        Some(value)
    }
}

/// The length in bytes of the reply at the front of `buf` (with its attributes), or None when it is
/// incomplete. Builds nothing and checks only what it needs to find the end. Starts anew at every call: for
/// replies much larger than a read, use [`Decoder`].
pub fn skip_reply(buf: &[u8]) -> Result<Option<usize>, DecodeError> {
    let mut at = 0;
    let mut left: usize = 1;
    while left > 0 {
        // Most of a reply is short strings: step over them without a search.
        if let Some((header, len)) = short_header(&buf[at..], b'$')
            && buf[at + header - 1] == b'\n'
            && buf[at + header..].get(len..len + 2) == Some(b"\r\n")
        {
            at += header + len + 2;
            left -= 1;
            continue;
        }
        let Some((head, used)) = read_head(&buf[at..], 0)? else { return Ok(None) };
        at += used;
        match head {
            Head::Line(..) | Head::NullBulk | Head::NullArray => left -= 1,
            Head::String(_, len) => {
                if read_string(&buf[at..], len)?.is_none() {
                    return Ok(None);
                }
                at += len + 2;
                left -= 1;
            }
            // Attributes do not count as a value: the one they belong to follows.
            Head::Aggregate(b'|', len) => left = left.saturating_add(len),
            Head::Aggregate(_, len) => left = (left - 1).saturating_add(len),
        }
    }
    Ok(Some(at))
}

#[cfg(test)]
mod tests;
