//! Why writes are refused, whatever they are: memory is full, or a disk does not take what it should. It follows from the engine's
//! state and from what is kept for replicas; here are the words that clients are told, and what is counted against which bound.

use crate::replicas::Feeding;
use command::Error;
use engine::Engine;

/// Why writes are refused while the log does not go on.
#[cold]
pub fn log_error(engine: &Engine) -> Option<Error> {
    let failure = engine.durability.log()?.writable().err()?;
    Some(Error::line(format!("MISCONF Errors writing to the AOF file: {}", failure.reason)))
}

/// What whoever asks is told, while the log does not go on, of what would show something that is not on disk.
#[cold]
pub fn held_error(engine: &Engine) -> Option<Error> {
    let failure = engine.durability.log()?.writable().err()?;
    let reason = failure.reason;
    Some(Error::line(format!(
        "MISCONF Errors writing to the AOF file: {reason}. What was asked for is not on disk"
    )))
}

/// Whether there is memory for what needs it.
#[derive(Clone, Debug)]
pub enum Fullness {
    /// There is.
    Room,
    /// There is none, since the store's disk refuses what is to leave it; or that has no more space than is kept to give some back.
    Refused(Error),
    /// There is none.
    Full,
}

/// How memory stands.
pub fn fullness(engine: &Engine, feeding: &Feeding) -> Fullness {
    let refused =
        |reason| Fullness::Refused(Error::line(format!("MISCONF Errors writing to the store: {reason}")));
    if let Some(reason) = engine.residency.shortage() {
        return refused(reason);
    }
    if !is_memory_full(engine, feeding) {
        return Fullness::Room;
    }
    match engine.residency.standing() {
        _ if engine.residency.store().is_none() => Fullness::Full,
        (true, Some(reason)) => refused(reason),
        (true, None) => Fullness::Full,
        (false, _) => Fullness::Room,
    }
}

/// The error of a write after a snapshot that failed.
pub const MISCONF: Error = Error::text(
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may \
     modify the data set are disabled, because this instance is configured to report errors during writes if RDB \
     snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB \
     error.",
);

/// The error of a write that was done and that too few replicas have (`min-sync-replicas`): it may hold or not.
pub const UNREPLICATED: Error = Error::text(
    "NOREPLICAS Not enough good replicas have what was written: it is not known whether it holds.",
);

/// The error of a write for which there are too few replicas (`min-replicas-to-write`, `min-sync-replicas`).
pub const NO_REPLICAS: Error = Error::text("NOREPLICAS Not enough good replicas to write.");

/// The error of a client's write while a master is followed (`replica-read-only`).
pub const READ_ONLY: Error = Error::text("READONLY You can't write against a read only replica.");

/// The error of what shows data while the master is away (`replica-serve-stale-data`).
pub const MASTER_DOWN: Error =
    Error::text("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.");

/// Whether writes are refused because the last snapshot failed (`stop-writes-on-bgsave-error`).
#[cold]
pub fn are_writes_stopped(engine: &Engine) -> bool {
    engine.snapshots.figures().failed_last
        && engine.config.stop_writes_on_bgsave_error()
        && !engine.config.save_points().is_empty()
}

/// Whether memory is above its ceiling, and nothing of it can be sent to disk.
pub fn is_memory_full(engine: &Engine, feeding: &Feeding) -> bool {
    let ceiling = engine.keyspace.policy().memory_bytes_max();
    (ceiling > 0 && sys::memory::used_bytes() > ceiling)
        && (engine.residency.store().is_none() || engine.residency.is_stuck())
        && counted_bytes(engine, feeding) > ceiling
}

/// What counts for the ceiling of all that is used.
pub fn counted_bytes(engine: &Engine, feeding: &Feeding) -> u64 {
    let Used { all, uncounted } = used_bytes(engine, feeding);
    all.saturating_sub(uncounted)
}

/// Memory in use, bytes.
pub struct Used {
    /// All that the program has allocated.
    pub all: u64,
    /// What of that does not count for the ceiling: what waits for the log's disk or did so a moment ago, or is kept for replicas that are
    /// behind. It goes by itself, and is bounded by itself (see `durability::limit_buffer`, `client-output-buffer-limit`); each key that were
    /// evicted for it would only add to it. Where there is a store, the ceiling is one of everything.
    pub uncounted: u64,
}

/// Looks at both at once: the log's blocks come and go many times a second, and one that is in one of them only is more than a small limit
/// leaves room for.
pub fn used_bytes(engine: &Engine, feeding: &Feeding) -> Used {
    let log = engine.durability.log();
    let (passing, all) = match log {
        Some(log) => log.passing_beside(sys::memory::used_bytes),
        None => (0, sys::memory::used_bytes()),
    };
    let uncounted = match engine.residency.store() {
        Some(_) => 0,
        None => (passing + feeding.beyond_backlog(engine.config.repl_backlog_size())) as u64,
    };
    Used { all, uncounted }
}

/// Bytes that commands of one transaction or script may write. They are held in memory until its end, besides the data, and once
/// more by who replays the log.
pub fn record_bytes_max(engine: &Engine) -> usize {
    /// Where there is no ceiling.
    const MOST: usize = 1 << 30;
    /// As much as may wait for the disk (see `durability::limit_buffer`).
    const SHARE: u64 = 8;
    let share = engine.keyspace.policy().memory_bytes_max() / SHARE;
    if share == 0 { MOST } else { MOST.min(share as usize) }
}
