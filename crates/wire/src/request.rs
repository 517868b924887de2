//! Requests as spans over the bytes they arrived in.
//!
//! A worker owns one [`Batch`] and reuses it for every read. The parser appends to it; the session walks it
//! and gets [`Request`]s, which borrow both the batch and the read buffer and copy nothing. Arguments that
//! had to be unquoted (inline requests) lie in the batch itself. [`RequestBuf`] is the owned form, for what
//! must outlive the read buffer (a MULTI queue) or never was in one (scripts, tests).
//!
//! Invariants:
//! 1. The spans of one request are adjacent in the batch, and requests stand in the order they arrived.
//! 2. Every span of a complete request lies inside the buffer that the parser saw.

use crate::limits::{BATCH_INLINE_BYTES_KEPT_MAX, BATCH_SPANS_KEPT_MAX};
use crate::number::last_digit;

/// Where one argument lies: byte offsets, `end` exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub start: usize,
    /// Offset after the last byte.
    pub end: usize,
}

/// Which bytes a request's spans point into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The caller's read buffer.
    Buffer,
    /// The batch's own bytes: an inline request after unquoting.
    Inline,
}

/// One request's part of the batch's spans.
#[derive(Clone, Copy, Debug)]
struct Range {
    first: usize,
    end: usize,
    source: Source,
    /// Offset in the caller's buffer of the first byte behind the request.
    bytes_end: usize,
}

/// The requests of one read, in order. Owned by a worker and reused, so that parsing allocates nothing.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) spans: Vec<Span>,
    pub(crate) inline_bytes: Vec<u8>,
    requests: Vec<Range>,
}

impl Batch {
    /// An empty batch; it allocates when the first request arrives.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Bytes allocated, for memory limits.
    pub fn allocated_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>()
            + self.inline_bytes.capacity()
            + self.requests.capacity() * size_of::<Range>()
    }

    /// Forgets all requests. Keeps the memory unless an unusually large request has grown it.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.inline_bytes.clear();
        self.requests.clear();
        self.spans.shrink_to(BATCH_SPANS_KEPT_MAX);
        self.requests.shrink_to(BATCH_SPANS_KEPT_MAX);
        self.inline_bytes.shrink_to(BATCH_INLINE_BYTES_KEPT_MAX);
    }

    /// How many complete requests the batch holds.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether the batch holds no request.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Request `index`, counted from 0. `buf` must be the buffer that was given to the parser, starting at
    /// the same byte. Panics when `index` is out of range.
    #[inline]
    pub fn request<'a>(&'a self, index: usize, buf: &'a [u8]) -> Request<'a> {
        let range = self.requests[index];
        let bytes = match range.source {
            Source::Buffer => buf,
            Source::Inline => &self.inline_bytes,
        };
        Request { bytes, spans: &self.spans[range.first..range.end] }
    }

    /// Offset of the first byte behind request `index`, in the buffer given to the parser: where a session
    /// that has to stop after this request goes on later (after [`crate::Parser::restart`]). Panics when
    /// `index` is out of range.
    #[inline]
    pub fn bytes_end(&self, index: usize) -> usize {
        self.requests[index].bytes_end
    }

    /// All requests in order; `buf` as for [`Batch::request`].
    pub fn iter<'a>(&'a self, buf: &'a [u8]) -> impl ExactSizeIterator<Item = Request<'a>> {
        (0..self.len()).map(move |index| self.request(index, buf))
    }

    /// Makes a request of all spans from `first` on.
    #[inline]
    pub(crate) fn end_request(&mut self, first: usize, source: Source, bytes_end: usize) {
        self.requests.push(Range { first, end: self.spans.len(), source, bytes_end });
    }
}

/// One request: its arguments, the command's name first. Cheap to copy; borrows the bytes and the spans.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Request<'a> {
    /// A request over any bytes. Every span must lie inside `bytes` (checked when an argument is asked for).
    pub fn new(bytes: &'a [u8], spans: &'a [Span]) -> Request<'a> {
        Request { bytes, spans }
    }

    /// How many arguments there are, the command's name included. A parsed request has at least one.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is no argument at all.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Argument `index`; 0 is the command's name. Panics when there is no such argument: a command's arity is
    /// checked before its handler runs.
    #[inline]
    pub fn arg(&self, index: usize) -> &'a [u8] {
        let span = self.spans[index];
        &self.bytes[span.start..span.end]
    }

    /// Argument `index`, or None when there is no such argument.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| &self.bytes[span.start..span.end])
    }

    /// The arguments in order, the command's name first.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + DoubleEndedIterator + Clone + use<'a> {
        let bytes = self.bytes;
        self.spans.iter().map(move |span| &bytes[span.start..span.end])
    }

    /// The bytes that it came in, if those are what [`crate::encode_request`] would make of it: then it need not be made again.
    #[inline]
    pub fn as_sent(&self) -> Option<&'a [u8]> {
        let end = self.spans.last()?.end + LINE_END.len();
        let mut start = end;
        for span in self.spans.iter().rev() {
            let is_next = span.end + LINE_END.len() == start && span.start <= span.end;
            if !is_next || self.bytes.get(span.end..start)? != LINE_END {
                return None;
            }
            start = start_of_header(self.bytes, b'$', span.end - span.start, span.start)?;
        }
        self.bytes.get(start_of_header(self.bytes, b'*', self.spans.len(), start)?..end)
    }

    /// The same request without its first `count` arguments (all of them when there are fewer), for
    /// containers such as `CONFIG GET`.
    #[inline]
    pub fn skip(&self, count: usize) -> Request<'a> {
        Request { bytes: self.bytes, spans: &self.spans[count.min(self.spans.len())..] }
    }
}

const LINE_END: &[u8] = b"\r\n";

/// Where the line begins that ends before `end` and holds `sign` and `number`; None if another one ends there.
#[inline]
fn start_of_header(bytes: &[u8], sign: u8, number: usize, end: usize) -> Option<usize> {
    let mut at = end.checked_sub(LINE_END.len())?;
    if bytes.get(at..end)? != LINE_END {
        return None;
    }
    let mut rest = number;
    loop {
        at = at.checked_sub(1)?;
        if bytes[at] != last_digit(rest) {
            return None;
        }
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    at = at.checked_sub(1)?;
    (bytes[at] == sign).then_some(at)
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(|arg| arg.escape_ascii().to_string())).finish()
    }
}

/// A request that owns its arguments, in two allocations however many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestBuf {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl RequestBuf {
    /// A request without arguments.
    pub fn new() -> RequestBuf {
        RequestBuf::default()
    }

    /// A request of these arguments, the command's name first.
    pub fn from_args<A: AsRef<[u8]>>(args: impl IntoIterator<Item = A>) -> RequestBuf {
        let mut request = RequestBuf::new();
        for arg in args {
            request.push(arg.as_ref());
        }
        request
    }

    /// Appends one argument.
    pub fn push(&mut self, arg: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(arg);
        self.spans.push(Span { start, end: self.bytes.len() });
    }

    /// Drops all arguments and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    /// The borrowed form, as handlers take it.
    #[inline]
    pub fn as_request(&self) -> Request<'_> {
        Request { bytes: &self.bytes, spans: &self.spans }
    }

    /// Bytes allocated, for memory limits.
    pub fn allocated_bytes(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<Span>()
    }
}

impl From<Request<'_>> for RequestBuf {
    fn from(request: Request<'_>) -> RequestBuf {
        let mut owned = RequestBuf {
            bytes: Vec::with_capacity(request.iter().map(<[u8]>::len).sum()),
            spans: Vec::with_capacity(request.len()),
        };
        for arg in request.iter() {
            owned.push(arg);
        }
        owned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_reads_its_arguments_from_the_spans() {
        let spans = [Span { start: 0, end: 3 }, Span { start: 4, end: 4 }, Span { start: 4, end: 7 }];
        let request = Request::new(b"GET key", &spans);
        assert_eq!(
            (request.len(), request.arg(0), request.arg(1), request.arg(2)),
            (3, &b"GET"[..], &b""[..], &b"key"[..])
        );
        assert_eq!(request.get(3), None);
        assert_eq!(request.iter().collect::<Vec<_>>(), [&b"GET"[..], b"", b"key"]);
        assert_eq!(request.skip(2).iter().collect::<Vec<_>>(), [b"key"]);
        assert!(request.skip(9).is_empty());
        assert_eq!(format!("{request:?}"), r#"["GET", "", "key"]"#);
    }

    /// What the parser makes of these bytes.
    fn parsed(bytes: &[u8]) -> Batch {
        let mut batch = Batch::new();
        crate::Parser::new().parse(bytes, &crate::Limits::default(), &mut batch, usize::MAX).unwrap();
        batch
    }

    #[test]
    fn request_in_its_shortest_form_is_as_it_was_sent() {
        let one = b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$12\r\na\r\n$3\r\nSET\r\n\r\n";
        let two = [&one[..], b"*1\r\n$4\r\nPING\r\n"].concat();
        let batch = parsed(&two);
        let sent: Vec<_> = batch.iter(&two).map(|request| request.as_sent().unwrap()).collect();
        assert_eq!(sent, [&one[..], b"*1\r\n$4\r\nPING\r\n"]);
    }

    #[test]
    fn request_in_another_form_is_not_as_it_was_sent() {
        for other in [&b"PING\r\n"[..], b"SET key 'a value'\r\n"] {
            let batch = parsed(other);
            batch.iter(other).for_each(|request| assert_eq!(request.as_sent(), None, "{request:?}"));
        }
        let sent = b"*3\r\n$6\r\nCONFIG\r\n$3\r\nGET\r\n$1\r\na\r\n";
        let batch = parsed(sent);
        let request = batch.request(0, sent);
        assert_eq!((request.as_sent(), request.skip(1).as_sent()), (Some(&sent[..]), None));
        assert_eq!(request.skip(3).as_sent(), None);
        assert_eq!(RequestBuf::from(request).as_request().as_sent(), None);
    }

    #[test]
    fn owned_request_equals_the_borrowed_one() {
        let spans = [Span { start: 1, end: 3 }, Span { start: 0, end: 2 }];
        let borrowed = Request::new(b"abc", &spans);
        let owned = RequestBuf::from(borrowed);
        assert_eq!(owned, RequestBuf::from_args([b"bc", b"ab"]));
        assert_eq!(owned.as_request().iter().collect::<Vec<_>>(), borrowed.iter().collect::<Vec<_>>());
    }

    #[test]
    fn cleared_batch_gives_back_unusual_memory() {
        let mut batch = Batch::new();
        batch.spans.resize(1_000_000, Span { start: 0, end: 0 });
        let end = batch.spans.last().map_or(0, |span| span.end);
        batch.end_request(0, Source::Buffer, end);
        assert_eq!(batch.request(0, b"").len(), 1_000_000);
        batch.clear();
        assert!(batch.is_empty());
        assert!(batch.spans.capacity() <= BATCH_SPANS_KEPT_MAX);
    }
}
