//! What can be chosen about a log.

use crate::limits::{
    BLOCK_ALIGN, BLOCK_BYTES_MAX, BUFFER_BYTES_DEFAULT, SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
};
use crate::segment::FIRST_BLOCK;
use sys::Clock;

/// When the log syncs; redis.conf's `appendfsync`. Can be changed while the log runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum SyncPolicy {
    /// As soon as something has been appended: replies wait until the log is durable.
    #[default]
    Always = 0,
    /// Once a second: replies do not wait, a power cut takes the last second.
    EverySecond = 1,
    /// Only as the log must for its own sake (see `UNSYNCED_BYTES_MAX`), and when it is closed.
    Never = 2,
}

impl SyncPolicy {
    pub(crate) fn from_u8(number: u8) -> SyncPolicy {
        match number {
            0 => SyncPolicy::Always,
            1 => SyncPolicy::EverySecond,
            _ => SyncPolicy::Never,
        }
    }
}

/// Who writes what has been appended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flushing {
    /// Threads of the log's own.
    #[default]
    Threads,
    /// Nobody, until [`crate::Log::flush`] is called: for tests that want every order repeatable.
    ByHand,
}

impl Options {
    /// The option, within its limits and whole blocks.
    pub(crate) fn whole_segment_bytes(&self) -> u64 {
        self.segment_bytes.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX).next_multiple_of(BLOCK_ALIGN as u64)
    }

    /// The length of a block at most: no longer than a segment has room for.
    pub(crate) fn block_bytes(&self) -> usize {
        let room = self.whole_segment_bytes() - FIRST_BLOCK;
        usize::try_from(room).map_or(BLOCK_BYTES_MAX, |room| room.min(BLOCK_BYTES_MAX))
    }
}

/// What can be chosen about a log.
#[derive(Clone, Debug)]
pub struct Options {
    /// Length of a segment, bytes; from `SEGMENT_BYTES_MIN` to `SEGMENT_BYTES_MAX`, rounded up to `BLOCK_ALIGN`.
    pub segment_bytes: u64,
    /// Memory for records that are not durable yet, bytes. One that is larger than this is taken all the same.
    pub buffer_bytes_max: usize,
    /// When the log syncs.
    pub sync: SyncPolicy,
    /// Who writes.
    pub flushing: Flushing,
    /// For `everysec` and retries.
    pub clock: Clock,
    /// What the files of a log that begins have in common; None: anything.
    pub history: Option<u64>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            buffer_bytes_max: BUFFER_BYTES_DEFAULT,
            sync: SyncPolicy::default(),
            flushing: Flushing::default(),
            clock: Clock::Real,
            history: None,
        }
    }
}
