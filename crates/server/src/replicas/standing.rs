//! How replicas stand: for WAIT, `min-replicas-to-write`, INFO and ROLE.
//!
//! Thread rule: any thread.

use super::Feeding;
use super::replica::{Replica, Stage};
use std::sync::Arc;
use sys::UnixMs;

/// What INFO shows of a backlog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BacklogFigures {
    /// Whether there is one.
    pub is_active: bool,
    /// The offset of its first byte, as Redis counts: the first byte of a stream is 1.
    pub first_byte: u64,
    /// How many bytes it holds.
    pub bytes: u64,
    /// The memory that it takes.
    pub allocated_bytes: usize,
}

/// Bytes that are kept for replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffers {
    /// The backlog as far as it is kept for whoever comes.
    pub backlog: usize,
    /// What is kept beyond that for those that are behind.
    pub beyond: usize,
    /// What waits for one of them alone.
    pub outboxes: usize,
}

/// What a replica is doing, in Redis' words.
pub fn state_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Waits => "wait_bgsave",
        Stage::Copies => "send_bulk",
        Stage::Online => "online",
    }
}

/// For how many seconds a replica has said nothing.
pub fn lag_s(replica: &Replica, now: UnixMs) -> u64 {
    now.0.saturating_sub(replica.acknowledged_at().0) / 1000
}

impl Feeding {
    /// How many replicas have the stream up to an offset; `durable`: on disk.
    pub fn count_with(&self, offset: u64, durable: bool) -> usize {
        let has = |replica: &&Arc<Replica>| {
            let up_to = if durable { replica.acknowledged_durable() } else { replica.acknowledged() };
            replica.reads_stream() && up_to >= offset
        };
        self.state.lock().replicas.iter().filter(has).count()
    }

    /// How many replicas count for `min-replicas-to-write`.
    pub fn count_good(&self, max_lag_s: i64, now: UnixMs) -> usize {
        let is_good = |replica: &&Arc<Replica>| {
            replica.stage() == Stage::Online
                && i64::try_from(lag_s(replica, now)).is_ok_and(|lag| lag <= max_lag_s)
        };
        self.state.lock().replicas.iter().filter(is_good).count()
    }

    /// Bytes that the backlog holds beyond what it keeps by itself.
    pub fn beyond_backlog(&self, backlog_size: u64) -> usize {
        let state = self.state.lock();
        let all = state.backlog.as_ref().map_or(0, |backlog| backlog.allocated_bytes());
        all.saturating_sub(usize::try_from(backlog_size).unwrap_or(usize::MAX))
    }

    /// What is kept for replicas, of which the backlog takes so much by itself.
    pub fn buffers(&self, backlog_size: u64) -> Buffers {
        let state = self.state.lock();
        let all = state.backlog.as_ref().map_or(0, |backlog| backlog.allocated_bytes());
        let backlog = usize::try_from(backlog_size).map_or(all, |size| all.min(size));
        let outboxes = state.replicas.iter().map(|replica| replica.outbox_bytes()).sum();
        Buffers { backlog, beyond: all - backlog, outboxes }
    }

    /// What is to be shown of the backlog.
    pub fn backlog_figures(&self) -> BacklogFigures {
        self.state.lock().backlog.as_ref().map_or(BacklogFigures::default(), |backlog| BacklogFigures {
            is_active: true,
            first_byte: backlog.start() + 1,
            bytes: backlog.end() - backlog.start(),
            allocated_bytes: backlog.allocated_bytes(),
        })
    }
}
