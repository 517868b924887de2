//! What each worker counts about commands, without sharing a cache line: calls,
//! time, refusals and failures per command, and a histogram of their durations.
//!
//! A worker writes only its own counts, by plain loads and stores; readers sum
//! over the workers.

use crate::error_counts::ErrorCounts;
use command::table::CommandId;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use sys::{Counter, Ticks, UnixMs};

/// Sub-buckets to a doubling: durations are known to one part in sixteen.
const SUB_BITS: u32 = 4;
/// Buckets up to 2^44 ticks, some hours.
const BUCKETS: usize = (44 - SUB_BITS as usize + 1) << SUB_BITS;

/// One worker's counts of one command.
#[derive(Default)]
pub struct CommandCounts {
    calls: AtomicU64,
    ticks: AtomicU64,
    rejected: AtomicU64,
    failed: AtomicU64,
    durations: OnceLock<Box<[AtomicU64]>>,
}

/// All commands of one worker.
pub struct WorkerCounts {
    commands: Box<[CommandCounts]>,
}

/// Counts that are written rarely enough to be shared by all workers.
#[derive(Default)]
pub struct ServerCounts {
    /// When an HTTP request is told of again.
    http_told_next_ms: AtomicU64,
    /// Connections accepted.
    pub connections: Counter,
    /// Connections refused because there were `maxclients`.
    pub rejected_connections: Counter,
    /// Bytes read from clients.
    pub input_bytes: Counter,
    /// Bytes written to clients.
    pub output_bytes: Counter,
    /// Reads that brought something.
    pub reads: Counter,
    /// Writes to sockets.
    pub writes: Counter,
    /// Commands run.
    pub commands: Counter,
    /// Error replies.
    pub errors: Counter,
    /// Error replies by code.
    pub errors_by_code: ErrorCounts,
    /// Requests that needed more than 32 KB of buffer (`client_recent_max_input_buffer` and the like need a peak).
    pub query_limit_disconnections: Counter,
    /// AUTH and HELLO AUTH that failed.
    pub auth_failures: Counter,
    /// Commands that users were not allowed to run.
    pub denied_commands: Counter,
    /// Keys that users were not allowed to use.
    pub denied_keys: Counter,
    /// Channels that users were not allowed to use.
    pub denied_channels: Counter,
    /// Certificates of clients that name no user.
    pub denied_certificates: Counter,
}

/// How often HTTP requests are told of.
const HTTP_TOLD_EVERY_MS: u64 = 60_000;

impl ServerCounts {
    /// Whether an HTTP request is to be told of, which is so once a minute.
    pub fn notes_http(&self, now: UnixMs) -> bool {
        let next = self.http_told_next_ms.load(Ordering::Relaxed);
        let is_due = now.0 >= next;
        if is_due {
            self.http_told_next_ms.store(now.0 + HTTP_TOLD_EVERY_MS, Ordering::Relaxed);
        }
        is_due
    }

    /// Counts an error reply with this line.
    pub fn note_error(&self, line: &[u8]) {
        self.errors.add(1);
        self.errors_by_code.note(line);
    }

    /// Begins again (CONFIG RESETSTAT).
    pub fn reset(&self) {
        let counters = [
            &self.connections,
            &self.rejected_connections,
            &self.input_bytes,
            &self.output_bytes,
            &self.reads,
            &self.writes,
            &self.commands,
            &self.errors,
            &self.query_limit_disconnections,
            &self.auth_failures,
            &self.denied_commands,
            &self.denied_keys,
            &self.denied_channels,
            &self.denied_certificates,
        ];
        counters.iter().for_each(|counter| counter.reset());
        self.errors_by_code.reset();
    }
}

/// The sum over the workers for one command.
#[derive(Clone, Debug, Default)]
pub struct CommandTotals {
    /// Times it ran.
    pub calls: u64,
    /// Ticks that it took in all.
    pub ticks: u64,
    /// Times it was refused before it ran.
    pub rejected: u64,
    /// Times it ran and answered with an error.
    pub failed: u64,
    /// Runs by duration: see [`bucket_floor`]. Empty if none were recorded.
    pub durations: Vec<u64>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It ran and replied.
    Done,
    /// It ran and answered with an error.
    Failed,
    /// It was refused.
    Rejected,
    /// It has not run: a slow script has what it needs.
    HeldBack,
}

impl WorkerCounts {
    /// For a table of so many commands.
    pub fn new(commands: usize) -> WorkerCounts {
        WorkerCounts { commands: (0..commands).map(|_| CommandCounts::default()).collect() }
    }

    /// Counts one command.
    #[inline]
    pub fn note(&self, id: CommandId, from: Ticks, to: Ticks, ending: Ending, track: bool) {
        let counts = &self.commands[id.0];
        if ending == Ending::Rejected {
            bump(&counts.rejected, 1);
            return;
        }
        let ticks = to.0.saturating_sub(from.0);
        bump(&counts.calls, 1);
        bump(&counts.ticks, ticks);
        if ending == Ending::Failed {
            bump(&counts.failed, 1);
        }
        if track {
            let durations =
                counts.durations.get_or_init(|| (0..BUCKETS).map(|_| AtomicU64::new(0)).collect());
            bump(&durations[bucket(ticks)], 1);
        }
    }

    /// Begins again (CONFIG RESETSTAT). Counts of commands that run meanwhile may survive.
    pub fn reset(&self) {
        for counts in &self.commands {
            for count in [&counts.calls, &counts.ticks, &counts.rejected, &counts.failed] {
                count.store(0, Ordering::Relaxed);
            }
        }
        self.reset_durations();
    }

    /// Forgets the durations (LATENCY RESET and CONFIG RESETSTAT).
    pub fn reset_durations(&self) {
        for bucket in
            self.commands.iter().filter_map(|counts| counts.durations.get()).flat_map(|all| all.iter())
        {
            bucket.store(0, Ordering::Relaxed);
        }
    }

    /// Adds this worker's counts to a sum.
    pub fn add_to(&self, id: CommandId, totals: &mut CommandTotals) {
        let counts = &self.commands[id.0];
        totals.calls += counts.calls.load(Ordering::Relaxed);
        totals.ticks += counts.ticks.load(Ordering::Relaxed);
        totals.rejected += counts.rejected.load(Ordering::Relaxed);
        totals.failed += counts.failed.load(Ordering::Relaxed);
        if let Some(durations) = counts.durations.get() {
            totals.durations.resize(BUCKETS, 0);
            totals
                .durations
                .iter_mut()
                .zip(durations.iter())
                .for_each(|(sum, n)| *sum += n.load(Ordering::Relaxed));
        }
    }
}

/// One writer: a plain load and store lose nothing.
#[inline]
fn bump(count: &AtomicU64, by: u64) {
    count.store(count.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

/// The bucket of a duration: exact below 16 ticks, then 16 to a doubling.
#[inline]
fn bucket(ticks: u64) -> usize {
    let ticks = ticks.min((1 << 44) - 1);
    if ticks < 1 << SUB_BITS {
        return ticks as usize;
    }
    let shift = ticks.ilog2() - SUB_BITS;
    ((shift as usize) << SUB_BITS) + (ticks >> shift) as usize
}

/// The least duration, in ticks, that a bucket holds.
pub fn bucket_floor(bucket: usize) -> u64 {
    if bucket < 1 << SUB_BITS {
        return bucket as u64;
    }
    let shift = (bucket >> SUB_BITS) - 1;
    ((bucket - (shift << SUB_BITS)) as u64) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_lies_in_its_bucket() {
        for ticks in
            (0..10_000).chain((0..44).map(|bit| 1u64 << bit)).chain((5..44).map(|bit| (1u64 << bit) - 1))
        {
            let bucket = bucket(ticks);
            assert!(bucket < BUCKETS);
            assert!(bucket_floor(bucket) <= ticks && ticks < bucket_floor(bucket + 1), "{ticks}");
        }
    }
}
