//! Replies to bytes, in the protocol version that the session speaks.
//!
//! Last station of a command: a handler gets a [`Reply`] over the session's output buffer and appends. What
//! RESP3 has and RESP2 has not is written in RESP2's stead form, as Redis does (a map becomes a flat array, a
//! double a bulk string). Nothing is checked for completeness here: a handler that writes `array(2)` must
//! write two elements.
//!
//! Invariants:
//! 1. Bytes before the buffer's length at the time of [`Reply::new`] are never touched.
//! 2. No simple string or error contains a line end, whatever the handler passes.

use crate::number::{last_digit, write_double};

/// The version of the protocol, chosen by HELLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Protocol {
    /// What every session starts with.
    #[default]
    Resp2,
    /// With maps, sets, doubles, booleans, null, push messages and attributes.
    Resp3,
}

/// A place in the output to return to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(usize);

/// An aggregate whose length is not known yet; give it back to [`Reply::end`].
#[must_use = "the reply is malformed until the length is written"]
#[derive(Debug)]
pub struct Deferred {
    header_at: usize,
    kind: u8,
    /// Elements on the wire per counted element: 2 for a map in RESP2.
    factor: usize,
}

/// Appends replies to a buffer.
#[derive(Debug)]
pub struct Reply<'o> {
    out: &'o mut Vec<u8>,
    protocol: Protocol,
    /// Output beyond this leaves strings out: the connection will be closed.
    bytes_max: usize,
}

/// Headers below this number come from a table.
const SHORT_MAX: usize = 1024;

/// `SHORT[n]` is a header for `n` as little-endian bytes: byte 0 left empty for the type, then the digits and
/// the line end; the last byte holds the length in bytes.
static SHORT: [u64; SHORT_MAX] = short_headers();

const fn short_headers() -> [u64; SHORT_MAX] {
    let mut table = [0; SHORT_MAX];
    let mut number = 0;
    while number < SHORT_MAX {
        let mut bytes = [0u8; 8];
        let mut digits = 1;
        let mut rest = number / 10;
        while rest > 0 {
            digits += 1;
            rest /= 10;
        }
        let mut at = digits;
        rest = number;
        while at > 0 {
            bytes[at] = last_digit(rest);
            rest /= 10;
            at -= 1;
        }
        bytes[digits + 1] = b'\r';
        bytes[digits + 2] = b'\n';
        #[expect(clippy::cast_possible_truncation, reason = "they fit into 8 bytes with all else")]
        let length = digits as u8 + 3;
        bytes[7] = length;
        table[number] = u64::from_le_bytes(bytes);
        number += 1;
    }
    table
}

/// Appends `kind`, the number and a line end.
#[inline]
pub(crate) fn write_header(out: &mut Vec<u8>, kind: u8, number: usize) {
    match SHORT.get(number) {
        Some(&short) => write_short(out, kind, short),
        None => write_long_header(out, kind, number as i64),
    }
}

/// Appends an entry of [`SHORT`]. Eight bytes are stored and the superfluous ones cut off again, because a
/// copy of constant length is one instruction.
#[inline]
fn write_short(out: &mut Vec<u8>, kind: u8, short: u64) {
    let end = out.len() + (short >> 56) as usize;
    out.extend_from_slice(&(short | u64::from(kind)).to_le_bytes());
    out.truncate(end);
}

#[cold]
fn write_long_header(out: &mut Vec<u8>, kind: u8, number: i64) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    out.extend_from_slice(b"\r\n");
}

impl<'o> Reply<'o> {
    /// Replies appended to `out` in `protocol`.
    #[inline]
    pub fn new(out: &'o mut Vec<u8>, protocol: Protocol) -> Reply<'o> {
        Reply { out, protocol, bytes_max: usize::MAX }
    }

    /// Stops growing once the output is longer than `bytes_max`: strings are left out from
    /// there on, so what is there is of no use, and its length tells.
    #[inline]
    pub fn at_most(self, bytes_max: usize) -> Reply<'o> {
        Reply { bytes_max, ..self }
    }

    /// Whether the output is longer than it may be: whatever else would be written is of no use, and need not be found.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.out.len() > self.bytes_max
    }

    /// How many bytes more it may be until it is over.
    pub fn bytes_left(&self) -> usize {
        self.bytes_max.saturating_sub(self.out.len())
    }

    /// A part of this reply that is made in a buffer of its own, to be put in later ([`Reply::raw`]). It is over when the whole would be.
    pub fn part<'p>(&self, out: &'p mut Vec<u8>) -> Reply<'p> {
        Reply { out, protocol: self.protocol, bytes_max: self.bytes_left() }
    }

    /// The protocol that the session speaks.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Speaks another protocol from here on (HELLO answers in the version it switches to).
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// The same output under a shorter borrow, for passing on by value.
    #[inline]
    pub fn reborrow(&mut self) -> Reply<'_> {
        Reply { out: self.out, protocol: self.protocol, bytes_max: self.bytes_max }
    }

    /// The present end of the output.
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark(self.out.len())
    }

    /// Takes back all that was written since `mark`.
    pub fn rollback(&mut self, mark: Mark) {
        self.out.truncate(mark.0);
    }

    /// What has been written since `mark`.
    pub fn since(&self, mark: Mark) -> &[u8] {
        &self.out[mark.0..]
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// A simple string. Line ends in it become blanks.
    #[inline]
    pub fn simple(&mut self, text: impl AsRef<[u8]>) {
        self.line(b'+', text.as_ref());
    }

    /// An error: the whole line with its code, without the leading `-`. Line ends at its end are dropped,
    /// others become blanks.
    #[cold]
    pub fn error(&mut self, line: impl AsRef<[u8]>) {
        let mut line = line.as_ref();
        while let [rest @ .., b'\r' | b'\n'] = line {
            line = rest;
        }
        self.line(b'-', line);
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        if self.is_over() {
            return;
        }
        self.out.push(kind);
        let start = self.out.len();
        self.out.extend_from_slice(text);
        for byte in &mut self.out[start..] {
            if matches!(*byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.out.extend_from_slice(b"\r\n");
    }

    /// An integer.
    #[inline]
    pub fn int(&mut self, value: i64) {
        match usize::try_from(value).ok().and_then(|value| SHORT.get(value)) {
            Some(&short) => write_short(self.out, b':', short),
            None => write_long_header(self.out, b':', value),
        }
    }

    /// A bulk string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        if self.is_over() {
            return;
        }
        self.out.reserve(bytes.len() + 32);
        write_header(self.out, b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// An integer as a bulk string, as GET gives a number.
    pub fn bulk_int(&mut self, value: i64) {
        self.bulk(itoa::Buffer::new().format(value).as_bytes());
    }

    /// The null value where a string was asked for: `$-1`, or `_` in RESP3.
    #[inline]
    pub fn null(&mut self) {
        self.out.extend_from_slice(self.pick(b"$-1\r\n", b"_\r\n"));
    }

    /// The null value where an array was asked for: `*-1`, or `_` in RESP3.
    #[inline]
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(self.pick(b"*-1\r\n", b"_\r\n"));
    }

    #[inline]
    fn pick(&self, resp2: &'static [u8], resp3: &'static [u8]) -> &'static [u8] {
        match self.protocol {
            Protocol::Resp2 => resp2,
            Protocol::Resp3 => resp3,
        }
    }

    /// The header of an array of `len` elements, which must follow.
    #[inline]
    pub fn array(&mut self, len: usize) {
        write_header(self.out, b'*', len);
    }

    /// The header of a map: `pairs` times a key and a value must follow. In RESP2 an array of twice the
    /// length.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => write_header(self.out, b'*', pairs * 2),
            Protocol::Resp3 => write_header(self.out, b'%', pairs),
        }
    }

    /// The header of a set of `len` elements. In RESP2 an array.
    pub fn set(&mut self, len: usize) {
        write_header(self.out, self.set_kind(), len);
    }

    /// The header of an out-of-band message of `len` elements. In RESP2 an array.
    pub fn push(&mut self, len: usize) {
        let kind = match self.protocol {
            Protocol::Resp2 => b'*',
            Protocol::Resp3 => b'>',
        };
        write_header(self.out, kind, len);
    }

    /// Attributes of the reply that follows: `write` must write `pairs` times a key and a value. RESP2 has no
    /// attributes, there nothing is written and `write` is not called.
    pub fn attribute(&mut self, pairs: usize, write: impl FnOnce(&mut Reply<'_>)) {
        if self.protocol == Protocol::Resp3 {
            write_header(self.out, b'|', pairs);
            write(self);
        }
    }

    /// A double. In RESP2 a bulk string of the same text.
    pub fn double(&mut self, value: f64) {
        match self.protocol {
            Protocol::Resp2 => {
                let mut text = Vec::with_capacity(32);
                write_double(&mut text, value);
                self.bulk(&text);
            }
            Protocol::Resp3 if self.is_over() => {}
            Protocol::Resp3 => {
                self.out.push(b',');
                write_double(self.out, value);
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// A truth value. In RESP2 the integer 1 or 0.
    pub fn bool(&mut self, value: bool) {
        match (self.protocol, value) {
            (Protocol::Resp2, _) => self.int(i64::from(value)),
            (Protocol::Resp3, true) => self.out.extend_from_slice(b"#t\r\n"),
            (Protocol::Resp3, false) => self.out.extend_from_slice(b"#f\r\n"),
        }
    }

    /// Text with a format of three characters (`txt`, `mkd`); a longer one is cut, a shorter one filled with
    /// blanks, so that the reply stays well formed. In RESP2 a bulk string.
    pub fn verbatim(&mut self, format: &str, bytes: &[u8]) {
        if self.protocol == Protocol::Resp2 {
            return self.bulk(bytes);
        }
        let mut prefix = *b"   :";
        for (place, byte) in prefix[..3].iter_mut().zip(format.bytes()) {
            *place = byte;
        }
        write_header(self.out, b'=', bytes.len() + prefix.len());
        self.out.extend_from_slice(&prefix);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A whole number of any size as decimal digits. In RESP2 a bulk string.
    pub fn big_number(&mut self, digits: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(digits),
            Protocol::Resp3 => self.line(b'(', digits),
        }
    }

    /// Bytes that already are a reply in the session's protocol.
    pub fn raw(&mut self, reply: &[u8]) {
        self.out.extend_from_slice(reply);
    }

    /// Begins an array whose length is not known yet.
    pub fn deferred_array(&mut self) -> Deferred {
        self.defer(b'*', 1)
    }

    /// Begins a map whose length is not known yet.
    pub fn deferred_map(&mut self) -> Deferred {
        match self.protocol {
            Protocol::Resp2 => self.defer(b'*', 2),
            Protocol::Resp3 => self.defer(b'%', 1),
        }
    }

    /// Begins a set whose length is not known yet.
    pub fn deferred_set(&mut self) -> Deferred {
        self.defer(self.set_kind(), 1)
    }

    fn set_kind(&self) -> u8 {
        match self.protocol {
            Protocol::Resp2 => b'*',
            Protocol::Resp3 => b'~',
        }
    }

    /// Leaves room for a header of one digit.
    fn defer(&mut self, kind: u8, factor: usize) -> Deferred {
        let header_at = self.out.len();
        self.out.extend_from_slice(&[kind, b'0', b'\r', b'\n']);
        Deferred { header_at, kind, factor }
    }

    /// Writes the length of a deferred aggregate: `len` elements, or pairs of a map, have been written since.
    /// From ten elements on this moves them by a few bytes, once, at the speed of a copy.
    pub fn end(&mut self, deferred: Deferred, len: usize) {
        let Deferred { header_at, kind, factor } = deferred;
        let mut header = Vec::with_capacity(24);
        write_header(&mut header, kind, len * factor);
        let (body_at, body_end) = (header_at + 4, self.out.len());
        let grown = header.len() - 4;
        if grown > 0 {
            self.out.resize(body_end + grown, 0);
            self.out.copy_within(body_at..body_end, body_at + grown);
        }
        self.out[header_at..header_at + header.len()].copy_from_slice(&header);
    }
}

#[cfg(test)]
mod tests;
