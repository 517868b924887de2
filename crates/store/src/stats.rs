//! What a store holds and has done, for INFO and for pacing.

use crate::Store;
use crate::limits::PAGE_BYTES;
use crate::segment::State;
use std::sync::atomic::Ordering::Relaxed;

/// What a store holds, and what it has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Segments in which records may live.
    pub segments_in_use: usize,
    /// Of these, segments of which a sync failed: no checkpoint can be completed until they are cleaned.
    pub segments_lost: usize,
    /// Segments whose files wait to be used again.
    pub segments_free: usize,
    /// Segments without live records that a checkpoint may refer to.
    pub segments_retired: usize,
    /// Bytes of the segments in use, without what is still to be filled.
    pub bytes_in_use: u64,
    /// Bytes of all segments: what the store takes of the disk.
    pub bytes_total: u64,
    /// Bytes of live records with their share of the pages, estimated.
    pub bytes_live: u64,
    /// The others of the bytes in use.
    pub bytes_dead: u64,
    /// Records that live, estimated; each part of a huge one counts.
    pub records_live: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
    /// Records that were written, by chunks that were.
    pub records_written: u64,
    /// Chunks that were written.
    pub chunks_written: u64,
    /// Bytes that were read, as far as they were [noted](Store::note_read).
    pub bytes_read: u64,
}

impl Store {
    /// What the store holds. Goes through all segments, some nanoseconds each.
    pub fn stats(&self) -> Stats {
        let shared = &self.shared;
        let segment_bytes = shared.geometry.segment_bytes();
        let counters = &shared.counters;
        let mut stats = Stats {
            segments_free: shared.inventory.lock().free(),
            bytes_written: counters.bytes_written.load(Relaxed),
            records_written: counters.records_written.load(Relaxed),
            chunks_written: counters.chunks_written.load(Relaxed),
            bytes_read: counters.bytes_read.load(Relaxed),
            ..Stats::default()
        };
        for (_, segment) in shared.segments.iter() {
            match segment.state() {
                State::Absent | State::Free => continue,
                State::Retired => stats.segments_retired += 1,
                state => {
                    let filled = u64::from(segment.pages.load(Relaxed)) * PAGE_BYTES as u64;
                    stats.segments_in_use += 1;
                    stats.segments_lost += usize::from(state == State::Lost);
                    stats.bytes_in_use += if state == State::Open { filled } else { segment_bytes };
                    stats.bytes_live += segment.live_bytes();
                    stats.records_live += u64::from(segment.live());
                }
            }
        }
        let segments = stats.segments_in_use + stats.segments_free + stats.segments_retired;
        stats.bytes_total = segments as u64 * segment_bytes;
        stats.bytes_dead = stats.bytes_in_use.saturating_sub(stats.bytes_live);
        stats
    }

    /// Counts bytes of a read that somebody else issued.
    pub fn note_read(&self, bytes: u64) {
        self.shared.counters.bytes_read.fetch_add(bytes, Relaxed);
    }
}
