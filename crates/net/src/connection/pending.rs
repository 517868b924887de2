//! Replies that a socket has not taken yet: a queue of chunks.
//!
//! Small replies are gathered in chunks; what a worker has in its output buffer is
//! taken over as it stands if it is large, so that a reply of hundreds of megabytes
//! is never copied. A chunk's memory goes back as soon as it is sent.
//!
//! Replies that show what is not committed yet are held: they and all behind them are not given out before the gate is open for them.
//!
//! Invariants:
//! 1. No chunk is empty, and `sent` is less than the length of the first.
//! 2. `bytes` is the sum of the chunks' lengths less `sent`; `allocated` is the sum
//!    of their capacities.
//! 3. Holds are in the order of the bytes and, but for what has failed, of the stamps, and begin where a reply or a message does.

use std::collections::VecDeque;
use sys::Shown;

/// Replies are gathered in chunks of this size.
const CHUNK_BYTES: usize = 16 << 10;
/// The first chunk is no larger than this if it need not be: most replies that wait for the disk are short.
const FIRST_CHUNK_BYTES: usize = 512;
/// From here on a buffer is taken over, not copied.
const TAKEN_OVER_BYTES: usize = 64 << 10;

/// Bytes waiting to be written, oldest first.
#[derive(Debug, Default)]
pub struct Pending {
    chunks: VecDeque<Vec<u8>>,
    sent: usize,
    bytes: usize,
    allocated: usize,
    /// From which byte on, counted from the oldest that waits, what is shown.
    holds: VecDeque<(usize, Shown)>,
}

impl Pending {
    /// The oldest bytes that may be sent; empty if none may.
    pub fn front(&self) -> &[u8] {
        let chunk = self.chunks.front().map_or(&[][..], |chunk| &chunk[self.sent..]);
        match self.holds.front() {
            Some((from, _)) => &chunk[..chunk.len().min(*from)],
            None => chunk,
        }
    }

    /// Holds the bytes from `from` on (see [`Pending::len`]) until the gate is open for this.
    pub fn hold(&mut self, from: usize, shown: Shown) {
        let last = self.holds.back().map(|(_, last)| *last);
        let is_new = last.is_none_or(|last| last.up_to < shown.up_to || last.is_write != shown.is_write);
        if from < self.bytes && is_new {
            let up_to = last.map_or(shown.up_to, |last| last.up_to.max(shown.up_to));
            self.holds.push_back((from, Shown { up_to, ..shown }));
        }
    }

    /// Lets out what is held in front, as long as the gate is open for it.
    #[inline]
    pub fn open(&mut self, is_open: impl Fn(Shown) -> bool) {
        while self.holds.front().is_some_and(|(_, shown)| is_open(*shown)) {
            self.holds.pop_front();
        }
    }

    /// What is held next.
    #[inline]
    pub fn held_for(&self) -> Option<Shown> {
        self.holds.front().map(|(_, shown)| *shown)
    }

    /// Whether any of what is held is such.
    pub fn holds_any(&self, is_such: impl Fn(Shown) -> bool) -> bool {
        self.holds.iter().any(|(_, shown)| is_such(*shown))
    }

    /// Puts this error in the place of each reply that is held and has failed, which shows nothing then. Messages stay. Gives how many replies
    /// there were.
    #[cold]
    pub fn fail(&mut self, has_failed: impl Fn(Shown) -> bool, error: &[u8]) -> usize {
        let mut bytes = Vec::with_capacity(self.bytes);
        self.chunks.iter().for_each(|chunk| bytes.extend_from_slice(chunk));
        bytes.drain(..self.sent);
        let holds = std::mem::take(&mut self.holds);
        let ends: Vec<usize> = holds.iter().skip(1).map(|(from, _)| *from).chain([bytes.len()]).collect();
        let first = holds.front().map_or(bytes.len(), |(from, _)| *from);
        *self = Pending::default();
        self.extend(&bytes[..first]);
        let mut failed = 0;
        for ((from, shown), end) in holds.into_iter().zip(ends) {
            let at = self.bytes;
            let shown = if has_failed(shown) {
                failed += self.extend_failed(&bytes[from..end], error);
                Shown::NOTHING
            } else {
                self.extend(&bytes[from..end]);
                shown
            };
            self.holds.push_back((at, shown));
        }
        failed
    }

    /// Adds an error for each reply in these bytes, and what is none.
    fn extend_failed(&mut self, mut bytes: &[u8], error: &[u8]) -> usize {
        let mut replies = 0;
        // Only whole replies are held.
        while let Ok(Some(len)) = wire::skip_reply(bytes) {
            let (reply, rest) = bytes.split_at(len);
            if reply.first() == Some(&b'>') {
                self.extend(reply);
            } else {
                self.extend(&[b"-", error, b"\r\n"].concat());
                replies += 1;
            }
            bytes = rest;
        }
        replies
    }

    /// How much is waiting.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether nothing is waiting.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// In how many chunks.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Bytes allocated.
    pub fn allocated_bytes(&self) -> usize {
        self.allocated + self.chunks.capacity() * size_of::<Vec<u8>>()
    }

    /// Adds bytes at the end.
    pub fn extend(&mut self, mut bytes: &[u8]) {
        self.bytes += bytes.len();
        while !bytes.is_empty() {
            if self.chunks.back().is_none_or(|last| last.len() == last.capacity()) {
                let is_first = self.chunks.is_empty();
                let capacity =
                    if is_first { bytes.len().clamp(FIRST_CHUNK_BYTES, CHUNK_BYTES) } else { CHUNK_BYTES };
                self.push(Vec::with_capacity(capacity));
            }
            let last = self.chunks.back_mut().expect("one has been pushed if there was none");
            let (now, later) = bytes.split_at(bytes.len().min(last.capacity() - last.len()));
            last.extend_from_slice(now);
            bytes = later;
        }
    }

    /// Adds what `buffer` holds from `from` on, and empties it.
    pub fn absorb(&mut self, buffer: &mut Vec<u8>, from: usize) {
        let left = buffer.len() - from;
        if left < TAKEN_OVER_BYTES || !self.is_empty() && left < buffer.capacity() / 2 {
            self.extend(&buffer[from..]);
            buffer.clear();
            return;
        }
        if self.is_empty() {
            self.sent = from;
        } else {
            buffer.drain(..from);
        }
        self.bytes += left;
        self.push(std::mem::take(buffer));
    }

    /// Notes that the first `count` bytes of the front were written.
    pub fn sent(&mut self, count: usize) {
        let front = self.chunks.front().expect("what is sent was waiting");
        self.sent += count;
        self.bytes -= count;
        self.holds.iter_mut().for_each(|(from, _)| *from -= count);
        assert!(self.sent <= front.len(), "no more is sent than was waiting");
        if self.sent == front.len() {
            self.allocated -= front.capacity();
            self.chunks.pop_front();
            self.sent = 0;
        }
        if self.chunks.is_empty() {
            self.chunks = VecDeque::new();
        }
    }

    fn push(&mut self, chunk: Vec<u8>) {
        self.allocated += chunk.capacity();
        self.chunks.push_back(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::Stamp;

    #[test]
    fn bytes_leave_in_the_order_they_came() {
        let (mut pending, mut out, mut expected) = (Pending::default(), Vec::new(), Vec::new());
        for round in 0..400usize {
            let bytes = vec![round as u8; if round % 7 == 0 { 100_000 } else { 1000 }];
            let from = round % 3;
            expected.extend_from_slice(&bytes[from..]);
            pending.absorb(&mut bytes.clone(), from);
            let count = pending.front().len().min(7010);
            out.extend_from_slice(&pending.front()[..count]);
            pending.sent(count);
            assert_eq!(pending.len(), expected.len() - out.len());
            assert!(pending.allocated_bytes() >= pending.len());
        }
        while !pending.is_empty() {
            let front = pending.front().to_vec();
            out.extend_from_slice(&front);
            pending.sent(front.len());
        }
        assert!(out == expected);
        assert_eq!(pending.allocated_bytes(), 0);
    }

    #[test]
    fn a_large_reply_is_taken_over_without_a_copy() {
        let mut buffer = vec![7; 1 << 20];
        let address = buffer.as_ptr();
        let mut pending = Pending::default();
        pending.absorb(&mut buffer, 5);
        assert!(buffer.is_empty() && buffer.capacity() == 0);
        assert_eq!(pending.front().as_ptr(), address.wrapping_add(5));
        assert_eq!((pending.len(), pending.chunks()), ((1 << 20) - 5, 1));
    }

    #[test]
    fn what_failed_is_answered_with_an_error_for_each_reply() {
        let (write, read) = (|at| Shown { up_to: Stamp(at), is_write: true }, |at| Shown::read(Stamp(at)));
        let mut pending = Pending::default();
        pending.extend(b"+PONG\r\n");
        for (bytes, shown) in [
            (&b"+OK\r\n*2\r\n:1\r\n$1\r\na\r\n>2\r\n+push\r\n:2\r\n"[..], write(5)),
            (b"$1\r\nr\r\n", read(2)),
            (b":7\r\n", write(9)),
        ] {
            let from = pending.len();
            pending.extend(bytes);
            pending.hold(from, shown);
        }
        let (first, _) = pending.front().split_at(3);
        assert_eq!(first, b"+PO");
        pending.sent(3);
        assert_eq!(pending.fail(|shown| shown.is_write, b"E"), 3);
        let is_open = |shown: Shown| shown.up_to <= Stamp(4);
        pending.open(is_open);
        assert_eq!(pending.front(), b"NG\r\n-E\r\n-E\r\n>2\r\n+push\r\n:2\r\n");
        assert_eq!(pending.held_for(), Some(read(5)), "it is behind what was written");
        pending.open(|shown| shown.up_to <= Stamp(5));
        assert!(pending.front().ends_with(b"$1\r\nr\r\n-E\r\n") && pending.held_for().is_none());
    }
}
