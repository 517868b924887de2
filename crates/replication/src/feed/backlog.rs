//! The newest bytes of the stream, by their offsets.
//!
//! A queue of chunks: what is appended is copied once, and the oldest chunk goes as a whole. It holds at least `size` bytes once so many
//! have come, and more only as long as a reader needs them, up to a bound of their own.
//!
//! One thread at a time. Invariants:
//! 1. The chunks' bytes are those from `start` to `end`, without a gap.
//! 2. No chunk but the last has room left.

use std::collections::VecDeque;

/// How long a chunk is at most: what one read gives at most, too.
pub const CHUNK_BYTES: usize = 64 << 10;

/// How long it is where little is kept, so that not much more is.
const CHUNK_BYTES_MIN: usize = 16 << 10;

/// The newest bytes of a stream.
#[derive(Debug)]
pub struct Backlog {
    chunks: VecDeque<Vec<u8>>,
    start: u64,
    end: u64,
    size: u64,
    chunk_bytes: usize,
}

impl Backlog {
    /// An empty one at this offset, that keeps so many bytes.
    #[must_use]
    pub fn new(at: u64, size: u64) -> Backlog {
        let chunk_bytes = usize::try_from(size).unwrap_or(CHUNK_BYTES).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES);
        Backlog { chunks: VecDeque::new(), start: at, end: at, size, chunk_bytes }
    }

    /// The offset of the first byte that is there.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The offset behind the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// How many bytes it keeps.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Keeps so many from now on.
    pub fn set_size(&mut self, size: u64) {
        self.size = size;
    }

    /// Whether a reader can go on from this offset.
    #[must_use]
    pub fn holds(&self, offset: u64) -> bool {
        (self.start..=self.end).contains(&offset)
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.chunks.iter().map(Vec::capacity).sum()
    }

    /// Appends what comes next.
    pub fn append(&mut self, mut bytes: &[u8]) {
        self.end += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.chunks.back().is_none_or(|last| last.len() == self.chunk_bytes) {
                self.chunks.push_back(Vec::with_capacity(self.chunk_bytes));
            }
            let Some(last) = self.chunks.back_mut() else { return };
            let (now, later) = bytes.split_at(bytes.len().min(self.chunk_bytes - last.len()));
            last.extend_from_slice(now);
            bytes = later;
        }
    }

    /// Drops what is older than its size, but for what lies behind `needed` and does not make it longer than `bytes_max`. To be called
    /// after appending.
    pub fn trim(&mut self, needed: impl FnOnce() -> Option<u64>, bytes_max: u64) {
        let excess = |backlog: &Backlog| {
            let first = backlog.chunks.front().map_or(0, |first| first.len() as u64);
            backlog.chunks.len() > 1 && backlog.end - backlog.start - first >= backlog.size
        };
        if !excess(self) {
            return;
        }
        let needed = needed().unwrap_or(self.end);
        while excess(self) {
            let first = self.chunks.front().map_or(0, |first| first.len() as u64);
            let is_needed = self.start + first > needed && self.end - self.start <= bytes_max;
            if is_needed {
                return;
            }
            self.chunks.pop_front();
            self.start += first;
        }
    }

    /// Forgets everything; the stream goes on from here.
    pub fn restart(&mut self, at: u64) {
        *self = Backlog::new(at, self.size);
    }

    /// Bytes from an offset on, to the end of a chunk or of all. None: they are not there any more, or not yet.
    #[must_use]
    pub fn read(&self, offset: u64) -> Option<&[u8]> {
        if !self.holds(offset) {
            return None;
        }
        let at = usize::try_from(offset - self.start).ok()?;
        // The first chunk is full unless it is the only one; so all have the same length.
        let chunk = self.chunks.get(at / self.chunk_bytes);
        Some(chunk.map_or(&[][..], |chunk| &chunk[at % self.chunk_bytes..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::Prng;

    fn read_all(backlog: &Backlog, mut from: u64) -> Vec<u8> {
        let mut all = Vec::new();
        while from < backlog.end() {
            let bytes = backlog.read(from).unwrap();
            assert!(!bytes.is_empty());
            all.extend_from_slice(bytes);
            from += bytes.len() as u64;
        }
        assert_eq!(backlog.read(backlog.end()), Some(&[][..]));
        all
    }

    #[test]
    fn bytes_are_found_by_their_offsets_whatever_was_dropped() {
        let mut prng = Prng::from_seed(7);
        let (mut backlog, mut model) = (Backlog::new(1000, 300_000), Vec::new());
        for round in 0..2000u32 {
            let bytes: Vec<u8> = (0..prng.below(3000)).map(|at| (u64::from(round) + at) as u8).collect();
            model.extend_from_slice(&bytes);
            backlog.append(&bytes);
            backlog.trim(|| None, 0);
            let held = backlog.end() - backlog.start();
            assert!(held <= 300_000 + CHUNK_BYTES as u64 + 3000);
            assert!(held >= 300_000.min(model.len() as u64));
            assert_eq!(backlog.end(), 1000 + model.len() as u64);
            if round % 50 == 0 {
                let from = backlog.start() + prng.below(held + 1);
                assert!(read_all(&backlog, from) == model[(from - 1000) as usize..]);
            }
        }
        assert!(backlog.read(backlog.start() - 1).is_none());
        assert!(backlog.read(backlog.end() + 1).is_none());
    }

    #[test]
    fn what_a_reader_needs_stays_up_to_a_bound() {
        let mut backlog = Backlog::new(0, 100_000);
        let fill = |backlog: &mut Backlog, needed| {
            for _ in 0..10 {
                backlog.append(&[1; 100_000]);
                backlog.trim(|| Some(needed), 5_000_000);
            }
        };
        fill(&mut backlog, 50_000);
        assert!(backlog.holds(50_000));
        let needed = backlog.end();
        fill(&mut backlog, needed);
        assert!(backlog.holds(needed) && !backlog.holds(50_000));
        for _ in 0..10 {
            fill(&mut backlog, needed);
        }
        assert!(!backlog.holds(needed), "it does not read");
        assert!(backlog.end() - backlog.start() <= 5_000_000);
    }
}
