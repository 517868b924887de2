//! From received bytes to requests: arrays of bulk strings, or inline lines.
//!
//! Each session has a [`Parser`]; each worker one batch for all its sessions. [`Parser::parse`] finds the
//! complete requests at the front of the read buffer and remembers how far it got into the one that is still
//! arriving, so that every byte is looked at once however the request was cut into reads.
//!
//! Invariants:
//! 1. Between calls `at`, `spans` and `searched` are relative to the first byte of the partial request, which
//!    is the first byte of the next call's buffer.
//! 2. A declared count or length reserves no memory; memory grows with arguments that have arrived.
//! 3. The result does not depend on how the bytes were cut into calls. (Redis' own limit on line lengths does
//!    depend on it; here a line is too long when its first 64 KB + 1 bytes hold no line end.)

use crate::limits::{
    ARGS_MAX, ARGS_MAX_UNAUTHENTICATED, BULK_BYTES_MAX_DEFAULT, BULK_BYTES_MAX_UNAUTHENTICATED,
    LINE_BYTES_MAX,
};
use crate::number::{parse_int, short_header};
use crate::protocol_error::ProtocolError;
use crate::request::{Batch, Source, Span};
use crate::words::split_into;

/// [`ARGS_MAX_UNAUTHENTICATED`] as a count of words.
#[expect(clippy::cast_possible_truncation, reason = "it is small")]
const ARGS_FEW: usize = ARGS_MAX_UNAUTHENTICATED as usize;

/// Whether the session has shown who it is. A stranger may send small requests only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authenticated {
    /// Full limits.
    Yes,
    /// At most 10 arguments of at most 16 KB each.
    No,
}

/// What a request may be at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest argument in bytes: `proto-max-bulk-len`.
    pub bulk_bytes_max: u64,
    /// Whether the limits for strangers apply.
    pub authenticated: Authenticated,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { bulk_bytes_max: BULK_BYTES_MAX_DEFAULT, authenticated: Authenticated::Yes }
    }
}

/// Where the parser stands in one request whose count line has been read (all zero: before the first byte).
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    /// Arguments still to come. Zero: the first line of a request comes next.
    args_left: usize,
    /// Offset of the next `$length` line, or of the payload when `payload_bytes` is known.
    at: usize,
    /// Length of the argument at `at`, once its length line has been read.
    payload_bytes: Option<usize>,
    /// Bytes of the line at `at` that are known to hold no line end.
    searched: usize,
}

impl Cursor {
    /// Remembers that this much of the line at `at` holds no complete line end.
    fn keep_searched<T>(&mut self, searched: usize) -> Option<T> {
        self.searched = searched;
        None
    }
}

/// A session's place in its stream of requests. Small and cheap while no request is partial.
#[derive(Debug, Default)]
pub struct Parser {
    cursor: Cursor,
    /// The arguments of the partial request that have arrived.
    spans: Vec<Span>,
}

/// What a line search found.
enum Line {
    /// The line end stands this many bytes after the start of the line.
    EndsAt(usize),
    /// It has not arrived.
    Partial,
    /// It is not within [`LINE_BYTES_MAX`].
    TooLong,
}

impl Parser {
    /// A parser at the beginning of a stream.
    pub fn new() -> Parser {
        Parser::default()
    }

    /// Appends the complete requests at the front of `buf` to `batch`, at most `requests_max` of them, and
    /// returns how many bytes they took (skipped empty requests included). The next call's `buf` must start
    /// at the first byte not taken and hold all that followed it; nothing behind the last request taken has
    /// been judged.
    ///
    /// `limits` apply to the whole call: while a session is not authenticated, call with `requests_max` 1, so
    /// that what follows AUTH is parsed under the new limits.
    ///
    /// On an error, the complete requests before it are in the batch and are still to be answered; the parser
    /// must not be used again.
    pub fn parse(
        &mut self,
        buf: &[u8],
        limits: &Limits,
        batch: &mut Batch,
        requests_max: usize,
    ) -> Result<usize, ProtocolError> {
        let mut at = 0;
        let mut left = requests_max;
        if self.cursor.args_left > 0 && left > 0 {
            assert!(buf.len() >= self.cursor.at, "the buffer must still hold the partial request");
            if !read_args(&mut self.cursor, buf, limits, &mut self.spans)? {
                return Ok(0);
            }
            at = self.finish_partial(batch);
            left -= 1;
        }
        while left > 0 && at < buf.len() {
            let taken = if buf[at] == b'*' {
                self.read_array(buf, at, limits, batch)?
            } else {
                self.read_inline(buf, at, batch)?
            };
            match taken {
                Taken::Request { end } => {
                    at = end;
                    left -= 1;
                }
                Taken::Nothing { end } => at = end,
                Taken::Partial => break,
            }
        }
        Ok(at)
    }

    /// When an argument of known length is arriving: how many bytes the next call's buffer must hold for it
    /// to be complete, so that the caller can grow the read buffer at once. It is what the peer declared,
    /// within the limits.
    pub fn bytes_wanted(&self) -> Option<usize> {
        let bytes = self.cursor.payload_bytes?;
        Some(self.cursor.at.saturating_add(bytes).saturating_add(2))
    }

    /// Forgets the partial request. For a session that stopped in the middle of a batch and will parse again
    /// from an earlier byte than the parser has reached ([`Batch::bytes_end`]): without this the parser would
    /// take that byte for the start of the partial request.
    pub fn restart(&mut self) {
        *self = Parser::default();
    }

    /// Whether part of a request has been seen and the rest is to come.
    pub fn is_partial(&self) -> bool {
        self.cursor.args_left > 0 || self.cursor.searched > 0
    }

    /// Bytes allocated by this parser, for memory limits.
    pub fn allocated_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>()
    }

    /// Moves the completed partial request into the batch; returns its length in bytes.
    #[cold]
    fn finish_partial(&mut self, batch: &mut Batch) -> usize {
        let first = batch.spans.len();
        batch.spans.append(&mut self.spans);
        self.spans = Vec::new();
        let end = std::mem::take(&mut self.cursor).at;
        batch.end_request(first, Source::Buffer, end);
        end
    }

    /// Reads a request that starts with `*` at `start`.
    #[inline]
    fn read_array(
        &mut self,
        buf: &[u8],
        start: usize,
        limits: &Limits,
        batch: &mut Batch,
    ) -> Result<Taken, ProtocolError> {
        let (count, at) = match short_header(&buf[start..], b'*') {
            Some((header, count)) if limits.authenticated == Authenticated::Yes || count <= ARGS_FEW => {
                (count, start + header)
            }
            _ => match self.read_count(buf, start, limits)? {
                Some(header) => header,
                None => return Ok(Taken::Partial),
            },
        };
        self.cursor.searched = 0;
        if count == 0 {
            return Ok(Taken::Nothing { end: at });
        }
        let first = batch.spans.len();
        let mut cursor = Cursor { args_left: count, at, payload_bytes: None, searched: 0 };
        match read_args(&mut cursor, buf, limits, &mut batch.spans) {
            Ok(true) => {
                batch.end_request(first, Source::Buffer, cursor.at);
                Ok(Taken::Request { end: cursor.at })
            }
            Ok(false) => {
                self.keep_partial(cursor, start, first, batch);
                Ok(Taken::Partial)
            }
            Err(error) => {
                batch.spans.truncate(first);
                Err(error)
            }
        }
    }

    /// Takes the arguments of a partial request out of the batch and remembers the place.
    #[cold]
    fn keep_partial(&mut self, cursor: Cursor, start: usize, first: usize, batch: &mut Batch) {
        debug_assert!(self.spans.is_empty());
        self.spans.extend(
            batch.spans.drain(first..).map(|span| Span { start: span.start - start, end: span.end - start }),
        );
        self.cursor = Cursor { at: cursor.at - start, ..cursor };
    }

    /// Reads a `*count` line of any form; None when it has not arrived whole. No count is below zero: Redis
    /// skips negative ones like zero.
    #[cold]
    fn read_count(
        &mut self,
        buf: &[u8],
        start: usize,
        limits: &Limits,
    ) -> Result<Option<(usize, usize)>, ProtocolError> {
        let line = &buf[start..];
        let end = match find_line_end(line, b'\r', self.cursor.searched) {
            Line::EndsAt(end) if end + 2 <= line.len() => end,
            Line::TooLong => return Err(ProtocolError::CountLineTooLong),
            Line::EndsAt(searched) => return Ok(self.cursor.keep_searched(searched)),
            Line::Partial => return Ok(self.cursor.keep_searched(line.len())),
        };
        let count = parse_int(&line[1..end])
            .filter(|&count| count <= ARGS_MAX)
            .ok_or(ProtocolError::InvalidMultibulkLength)?;
        if count > ARGS_MAX_UNAUTHENTICATED && limits.authenticated == Authenticated::No {
            return Err(ProtocolError::UnauthenticatedMultibulkLength);
        }
        // A negative one is none.
        Ok(Some((usize::try_from(count).unwrap_or(0), start + end + 2)))
    }

    /// Reads an inline request: one line, split into words.
    #[cold]
    fn read_inline(&mut self, buf: &[u8], start: usize, batch: &mut Batch) -> Result<Taken, ProtocolError> {
        let line = &buf[start..];
        let end = match find_line_end(line, b'\n', self.cursor.searched) {
            Line::EndsAt(end) => end,
            Line::TooLong => return Err(ProtocolError::InlineTooLong),
            Line::Partial => {
                self.cursor.searched = line.len();
                return Ok(Taken::Partial);
            }
        };
        self.cursor.searched = 0;
        let (first, bytes_before) = (batch.spans.len(), batch.inline_bytes.len());
        // A `\r` before the line end needs no care: it is a blank.
        if split_into(&line[..end], &mut batch.inline_bytes, &mut batch.spans).is_err() {
            batch.spans.truncate(first);
            batch.inline_bytes.truncate(bytes_before);
            return Err(ProtocolError::UnbalancedQuotes);
        }
        let end = start + end + 1;
        if batch.spans.len() == first {
            return Ok(Taken::Nothing { end });
        }
        batch.end_request(first, Source::Inline, end);
        Ok(Taken::Request { end })
    }
}

/// What stood at the front of the buffer.
enum Taken {
    /// A request, now in the batch.
    Request { end: usize },
    /// An empty request, which gets no reply.
    Nothing { end: usize },
    /// The beginning of a request.
    Partial,
}

/// Reads arguments until the request is complete (true) or the bytes are used up (false).
#[inline]
fn read_args(
    cursor: &mut Cursor,
    buf: &[u8],
    limits: &Limits,
    spans: &mut Vec<Span>,
) -> Result<bool, ProtocolError> {
    let bytes_max = match limits.authenticated {
        Authenticated::Yes => limits.bulk_bytes_max,
        Authenticated::No => limits.bulk_bytes_max.min(BULK_BYTES_MAX_UNAUTHENTICATED),
    };
    // An argument that an earlier call has begun is finished the long way, which knows how far that call got.
    if (cursor.payload_bytes.is_some() || cursor.searched > 0) && !read_arg(cursor, buf, limits, spans)? {
        return Ok(false);
    }
    loop {
        let Cursor { mut args_left, mut at, .. } = *cursor;
        while args_left > 0
            && let Some((header, bytes)) = short_header(&buf[at..], b'$')
            && bytes as u64 <= bytes_max
            && buf.len() - at >= header + bytes + 2
        {
            spans.push(Span { start: at + header, end: at + header + bytes });
            at += header + bytes + 2;
            args_left -= 1;
        }
        (cursor.args_left, cursor.at) = (args_left, at);
        if args_left == 0 {
            return Ok(true);
        }
        if !read_arg(cursor, buf, limits, spans)? {
            return Ok(false);
        }
    }
}

/// Reads one argument of any form; false when it has not arrived whole. One must be left.
#[cold]
fn read_arg(
    cursor: &mut Cursor,
    buf: &[u8],
    limits: &Limits,
    spans: &mut Vec<Span>,
) -> Result<bool, ProtocolError> {
    let bytes = match cursor.payload_bytes {
        Some(bytes) => bytes,
        None => match read_length(buf, cursor, limits)? {
            Some(bytes) => bytes,
            None => return Ok(false),
        },
    };
    // The two bytes after the payload are not looked at, as in Redis.
    let arrived = buf.len() - cursor.at;
    if arrived < 2 || arrived - 2 < bytes {
        cursor.payload_bytes = Some(bytes);
        return Ok(false);
    }
    spans.push(Span { start: cursor.at, end: cursor.at + bytes });
    *cursor = Cursor { args_left: cursor.args_left - 1, at: cursor.at + bytes + 2, ..Cursor::default() };
    Ok(true)
}

/// Reads a `$length` line of any form and moves behind it; None when it has not arrived whole.
fn read_length(buf: &[u8], cursor: &mut Cursor, limits: &Limits) -> Result<Option<usize>, ProtocolError> {
    let line = &buf[cursor.at..];
    let end = match find_line_end(line, b'\r', cursor.searched) {
        Line::EndsAt(end) if end + 2 <= line.len() => end,
        Line::TooLong => return Err(ProtocolError::LengthLineTooLong),
        Line::EndsAt(searched) => return Ok(cursor.keep_searched(searched)),
        Line::Partial => return Ok(cursor.keep_searched(line.len())),
    };
    if line[0] != b'$' {
        return Err(ProtocolError::ExpectedDollar(line[0]));
    }
    let bytes = parse_int(&line[1..end])
        .and_then(|bytes| u64::try_from(bytes).ok())
        .filter(|&bytes| bytes <= limits.bulk_bytes_max)
        .ok_or(ProtocolError::InvalidBulkLength)?;
    if bytes > BULK_BYTES_MAX_UNAUTHENTICATED && limits.authenticated == Authenticated::No {
        return Err(ProtocolError::UnauthenticatedBulkLength);
    }
    let bytes = usize::try_from(bytes).map_err(|_| ProtocolError::InvalidBulkLength)?;
    cursor.at += end + 2;
    cursor.searched = 0;
    Ok(Some(bytes))
}

/// Looks for the line end, leaving out the bytes that an earlier call has searched.
fn find_line_end(line: &[u8], end: u8, searched: usize) -> Line {
    let window = &line[..line.len().min(LINE_BYTES_MAX + 1)];
    match memchr::memchr(end, &window[searched..]) {
        Some(found) => Line::EndsAt(searched + found),
        None if window.len() > LINE_BYTES_MAX => Line::TooLong,
        None => Line::Partial,
    }
}

#[cfg(test)]
mod tests;
