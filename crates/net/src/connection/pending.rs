//! Replies that a socket has not taken yet: a queue of chunks.
//!
//! Small replies are gathered in chunks; what a worker has in its output buffer is
//! taken over as it stands if it is large, so that a reply of hundreds of megabytes
//! is never copied. A chunk's memory goes back as soon as it is sent.
//!
//! Replies that show what is not on disk yet are held: they and all behind them are not given out before their stamp
//! is durable.
//!
//! Invariants:
//! 1. No chunk is empty, and `sent` is less than the length of the first.
//! 2. `bytes` is the sum of the chunks' lengths less `sent`; `allocated` is the sum
//!    of their capacities.
//! 3. Holds are in the order of the bytes and of the stamps.

use std::collections::VecDeque;
use sys::Stamp;

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
    /// From which byte on, counted from the oldest that waits, what must be durable.
    holds: VecDeque<(usize, Stamp)>,
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

    /// Holds the bytes from `from` on (see [`Pending::len`]) until this is durable.
    pub fn hold(&mut self, from: usize, stamp: Stamp) {
        if from < self.bytes && self.holds.back().is_none_or(|(_, last)| *last < stamp) {
            self.holds.push_back((from, stamp));
        }
    }

    /// Lets out what is held for no more than this.
    #[inline]
    pub fn open(&mut self, to: Stamp) {
        while self.holds.front().is_some_and(|(_, stamp)| *stamp <= to) {
            self.holds.pop_front();
        }
    }

    /// What has to be durable next.
    #[inline]
    pub fn held_for(&self) -> Option<Stamp> {
        self.holds.front().map(|(_, stamp)| *stamp)
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
}
