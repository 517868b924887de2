//! What is known of each segment, and the list of all of them: atomics that any thread reads without a lock.
//!
//! Workers count here what dies and ask whether a page is written; the spiller, the cleaner and checkpoints change states, all
//! under the lock of the [`Inventory`](crate::inventory::Inventory). Invariants:
//! 1. States go Absent or Free -> Open -> Full -> Retired -> Free or Absent; Open and Full may become Lost, which becomes Retired; and what is
//!    retired becomes Full again where an earlier index is gone back to.
//! 2. A page is marked as written only after its write came back without error, and the mark is seen with all that was
//!    written before it.
//! 3. Counts are estimates: what dies while its chunk is on the way is counted before it lives. They are never below 0 for a reader.

use crate::Class;
use crate::limits::PAGE_BYTES;
use crate::number::SegmentNo;
use parking_lot::RwLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use sys::file::File;

/// What a segment is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// There is no file of this number.
    #[default]
    Absent = 0,
    /// There is a file, whose content means nothing.
    Free = 1,
    /// It takes chunks.
    Open = 2,
    /// It takes no more.
    Full = 3,
    /// A sync of it failed: nobody knows what of it is on disk.
    Lost = 4,
    /// Nothing in it lives, but a checkpoint may refer to it.
    Retired = 5,
}

impl State {
    fn from_u8(number: u8) -> State {
        use State::{Absent, Free, Full, Lost, Open, Retired};
        [Absent, Free, Open, Full, Lost, Retired].get(number as usize).copied().unwrap_or_default()
    }

    /// Whether records may live in it.
    pub fn is_in_use(self) -> bool {
        matches!(self, State::Open | State::Full | State::Lost)
    }

    /// Whether its pages can be read.
    pub fn is_readable(self) -> bool {
        self.is_in_use() || self == State::Retired
    }
}

/// A segment.
#[derive(Debug, Default)]
pub(crate) struct Segment {
    state: AtomicU8,
    class: AtomicU8,
    /// Drawn when it was begun; 0 before.
    generation: AtomicU64,
    /// How many segments had been begun when it took its last chunk.
    pub sealed_at: AtomicU64,
    /// The last checkpoint that had begun when it was retired.
    pub retired_at: AtomicU64,
    /// How many had been retired when it was.
    pub retired_number: AtomicU64,
    /// Pages given to chunks.
    pub pages: AtomicU32,
    /// Chunks that have pages and are not written.
    pub in_flight: AtomicU32,
    /// Records that were written.
    pub records: AtomicU32,
    live: AtomicI32,
    /// A bit for each page.
    written: OnceLock<Box<[AtomicU64]>>,
    /// Something was written since the last sync.
    pub is_unsynced: AtomicBool,
    /// It was lost once: its file is not used again.
    pub is_spoiled: AtomicBool,
    /// Reading all of it found damage: it is left alone.
    pub is_damaged: AtomicBool,
    /// Its file was needed since somebody looked.
    pub was_used: AtomicBool,
    /// Open while it is needed (see [`handles`](crate::handles)).
    pub file: RwLock<Option<Arc<File>>>,
}

impl Segment {
    #[inline]
    pub fn state(&self) -> State {
        State::from_u8(self.state.load(Ordering::Acquire))
    }

    pub fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::Release);
    }

    pub fn class(&self) -> Class {
        if self.class.load(Ordering::Relaxed) == Class::Large as u8 { Class::Large } else { Class::Small }
    }

    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Begins it anew, empty.
    pub fn begin(&self, class: Class, generation: u64, segment_pages: u32) {
        let words = self.written.get_or_init(|| bitmap(segment_pages));
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.class.store(class as u8, Ordering::Relaxed);
        self.pages.store(0, Ordering::Relaxed);
        self.records.store(0, Ordering::Relaxed);
        self.live.store(0, Ordering::Relaxed);
        self.is_unsynced.store(false, Ordering::Relaxed);
        self.is_spoiled.store(false, Ordering::Relaxed);
        self.is_damaged.store(false, Ordering::Relaxed);
        self.generation.store(generation, Ordering::Release);
        self.set_state(State::Open);
    }

    /// Marks pages as written.
    pub fn set_written(&self, first: u32, pages: u32) {
        let words = self.written.get().map_or(&[][..], |words| words);
        for page in first..first + pages {
            words[page as usize / 64].fetch_or(1 << (page % 64), Ordering::Release);
        }
    }

    #[inline]
    pub fn is_written(&self, page: u32) -> bool {
        let word = self.written.get().and_then(|words| words.get(page as usize / 64));
        word.is_some_and(|word| word.load(Ordering::Acquire) & (1 << (page % 64)) != 0)
    }

    /// Pages given to chunks that are not written: where each stretch of them begins, and how long it is.
    pub fn gaps(&self) -> Vec<(u32, u32)> {
        let mut gaps: Vec<(u32, u32)> = Vec::new();
        for page in (0..self.pages.load(Ordering::Acquire)).filter(|page| !self.is_written(*page)) {
            match gaps.last_mut() {
                Some((first, pages)) if *first + *pages == page => *pages += 1,
                _ => gaps.push((page, 1)),
            }
        }
        gaps
    }

    pub fn add_live(&self, count: i32) {
        self.live.fetch_add(count, Ordering::Relaxed);
    }

    pub fn set_live(&self, count: u32) {
        self.live.store(i32::try_from(count).unwrap_or(i32::MAX), Ordering::Relaxed);
    }

    /// Records that live.
    pub fn live(&self) -> u32 {
        self.live.load(Ordering::Relaxed).max(0) as u32
    }

    /// Bytes of the records that live, at the mean length of all in it.
    pub fn live_bytes(&self) -> u64 {
        let records = u64::from(self.records.load(Ordering::Relaxed));
        let written = u64::from(self.pages.load(Ordering::Relaxed)) * PAGE_BYTES as u64;
        let live = u64::from(self.live()).min(records);
        let share = (u128::from(written) * u128::from(live)).checked_div(u128::from(records)).unwrap_or(0);
        u64::try_from(share).expect("no more live than were written")
    }
}

fn bitmap(pages: u32) -> Box<[AtomicU64]> {
    (0..pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect()
}

/// All segments by their numbers; it grows while others read. Each bucket is twice as long as the one before.
#[derive(Debug)]
pub(crate) struct Segments {
    buckets: [OnceLock<Box<[Segment]>>; BUCKETS],
    /// Higher than any number in use.
    top: AtomicU32,
}

const BUCKETS: usize = 26;
const FIRST_BUCKET: u32 = 64;

impl Segments {
    pub fn new() -> Segments {
        Segments { buckets: std::array::from_fn(|_| OnceLock::new()), top: AtomicU32::new(1) }
    }

    #[inline]
    fn locate(no: SegmentNo) -> (usize, usize) {
        let shifted = u64::from(no.0) + u64::from(FIRST_BUCKET);
        let bucket = shifted.ilog2() - FIRST_BUCKET.ilog2();
        #[expect(clippy::cast_possible_truncation, reason = "numbers of segments have 32 bits")]
        let within = (shifted - (u64::from(FIRST_BUCKET) << bucket)) as usize;
        (bucket as usize, within)
    }

    /// The segment of this number, if there may be one.
    #[inline]
    pub fn get(&self, no: SegmentNo) -> Option<&Segment> {
        let (bucket, index) = Segments::locate(no);
        self.buckets.get(bucket)?.get()?.get(index)
    }

    /// The segment of this number, which may be new.
    pub fn grow(&self, no: SegmentNo) -> &Segment {
        let (bucket, index) = Segments::locate(no);
        self.top.fetch_max(no.0 + 1, Ordering::Release);
        let length = (FIRST_BUCKET as usize) << bucket;
        &self.buckets[bucket].get_or_init(|| (0..length).map(|_| Segment::default()).collect())[index]
    }

    /// Higher than the number of any segment.
    pub fn top(&self) -> u32 {
        self.top.load(Ordering::Acquire)
    }

    /// All that there may be, by their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (SegmentNo, &Segment)> {
        (1..self.top()).filter_map(|no| Some((SegmentNo(no), self.get(SegmentNo(no))?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_grows_and_keeps_its_places() {
        let segments = Segments::new();
        for no in [1, 63, 64, 65, 191, 192, 5000] {
            segments.grow(SegmentNo(no)).records.store(no, Ordering::Relaxed);
        }
        for no in [1, 63, 64, 65, 191, 192, 5000] {
            assert_eq!(segments.get(SegmentNo(no)).map(|one| one.records.load(Ordering::Relaxed)), Some(no));
        }
        assert!(segments.get(SegmentNo(1000)).is_none() && segments.get(SegmentNo(u32::MAX)).is_none());
        assert_eq!(segments.top(), 5001);
        // The highest number that any geometry gives has its bucket.
        let highest = SegmentNo(u32::MAX / crate::limits::SEGMENT_PAGES_MIN);
        assert!(Segments::locate(highest).0 < BUCKETS);
    }

    #[test]
    fn gaps_are_what_was_not_written() {
        let segment = Segment::default();
        segment.begin(Class::Small, 7, 128);
        segment.pages.store(100, Ordering::Relaxed);
        segment.set_written(0, 10);
        segment.set_written(60, 10);
        assert_eq!(segment.gaps(), [(10, 50), (70, 30)]);
        assert!(segment.is_written(69) && !segment.is_written(70) && !segment.is_written(1000));
    }
}
