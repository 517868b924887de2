//! When a checkpoint is written: on BGREWRITEAOF, and when the log, with the values that it names, has grown by
//! `auto-aof-rewrite-percentage` since the last one.
//!
//! One at a time, in a thread of its own that is a guest of the keyspace. Without a log BGREWRITEAOF writes append-only files as a Redis
//! does, which a start with `appendonly yes` reads.

use super::checkpoint::{self, Pace};
use crate::Attention;
use crate::Engine;
use crate::residency::headroom;
use crate::snapshot::append_only;
use ::log::{Log, Retention};
use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Store;
use sys::UnixMs;
use telemetry::log;

/// How often it looks whether the one that is given up has ended.
const HOLD_POLL: Duration = Duration::from_millis(1);
/// How long a checkpoint waits at its end for replicas to have what it holds.
const COMMITMENT_PATIENCE: Duration = Duration::from_secs(1);

/// After a failure the next one that nobody asked for waits this long.
const RETRY_MS: u64 = 60_000;

/// Checkpoints of one server.
#[derive(Default)]
pub struct Rewrites(Mutex<Figures>, Mutex<()>);

/// What is known of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// When the one that is being written was begun.
    pub running_since: Option<UnixMs>,
    /// Whether the last one failed.
    pub failed_last: bool,
    /// How many failed one after the other.
    pub failures_in_a_row: u64,
    /// Keys that the one that is being written has copied.
    pub keys_copied: u64,
    /// How many there were when it began.
    pub keys_total: u64,
    /// The log was begun amid traffic, and its first one is not complete: without it the log is worth nothing.
    pub is_owed: bool,
    /// The log goes on for the one that is being written only, and rests behind it.
    is_for_one: bool,
    /// How long the last one took.
    pub last_duration_s: Option<u64>,
    /// Those that were written since the start.
    pub count: u64,
    /// When the last one was tried.
    tried_at: UnixMs,
    /// Its bytes.
    pub last_bytes: u64,
    /// Whether the append-only files that there are were written by this server.
    has_append_only: bool,
    /// Bytes of the values that the log had named when the last one that was written began.
    named_before: u64,
    /// The server waits for the end of the one that is written, to end itself.
    is_hurried: bool,
    /// None begins: all keys are being replaced.
    is_held: bool,
}

/// Nothing begins: one is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InProgress;

impl Rewrites {
    /// All figures, as they stand.
    pub fn figures(&self) -> Figures {
        *self.0.lock()
    }

    /// While this is held the log neither begins again nor rests for want of a use.
    pub(super) fn switching(&self) -> MutexGuard<'_, ()> {
        self.1.lock()
    }

    /// Notes that the log that begins needs one, or that there is none that does.
    pub(super) fn owe(&self, on: bool) {
        self.0.lock().is_owed = on;
    }

    /// Notes that the log goes on for the next one only, or that it does not.
    pub(super) fn rest_behind_next(&self, on: bool) {
        self.0.lock().is_for_one = on;
    }

    /// Whether the append-only files in the directory are this server's.
    pub fn has_append_only(&self) -> bool {
        self.0.lock().has_append_only
    }

    /// Notes that they are from now on.
    pub fn note_append_only(&self) {
        self.0.lock().has_append_only = true;
    }

    /// Gives up what is being written and has none begin until [`Rewrites::let_go`]. Waits for the end of the one that is given up.
    pub(crate) fn hold(&self) {
        self.0.lock().is_held = true;
        while self.figures().running_since.is_some() {
            std::thread::sleep(HOLD_POLL);
        }
    }

    /// They may begin again.
    pub(crate) fn let_go(&self) {
        self.0.lock().is_held = false;
    }

    /// The server waits for the one that is written to be complete, or not any more.
    fn hurry(&self, on: bool) {
        self.0.lock().is_hurried = on;
    }

    /// Whether one that is written beside clients is to rest for nobody.
    pub(super) fn is_hurried(&self) -> bool {
        self.figures().is_hurried
    }

    /// Whether none may go on.
    pub fn is_held(&self) -> bool {
        self.figures().is_held
    }

    /// Counts keys that were copied.
    pub(super) fn note_copied(&self, keys: u64) {
        self.0.lock().keys_copied += keys;
    }
}

/// Begins a checkpoint in the background; without a log, append-only files.
///
/// # Errors
/// If there is one.
pub fn begin_rewrite(engine: &Arc<Engine>) -> Result<(), InProgress> {
    let log = engine.durability.kept_log().cloned();
    let began = engine.clock.now();
    let mut figures = engine.durability.rewrites.0.lock();
    if figures.running_since.is_some() || figures.is_held {
        return Err(InProgress);
    }
    figures.running_since = Some(began);
    figures.keys_copied = 0;
    figures.keys_total = engine.databases().map(|db| engine.keyspace.len(db)).sum();
    drop(figures);
    let what = if log.is_some() { CHECKPOINT } else { APPEND_ONLY_FILE };
    let task = {
        let engine = engine.clone();
        move || match log {
            Some(log) => run(&engine, &log, began),
            None => run_without_log(&engine, began),
        }
    };
    if let Err(error) = std::thread::Builder::new().name("checkpoint".to_owned()).spawn(task) {
        end(engine, what, began, &Err(error), 0);
    }
    Ok(())
}

/// Files of the log that are not full, as each start and each change of the stream leaves one, before a checkpoint is written to be rid of them.
const SEGMENTS_LEFT_MAX: u64 = 16;

/// Begins one if the log has grown enough. Called once a second.
pub fn begin_if_due(engine: &Arc<Engine>) {
    let Some(log) = engine.durability.kept_log() else { return };
    let figures = engine.durability.rewrites.figures();
    let rests = figures.failed_last && engine.clock.now().0 < figures.tried_at.0 + RETRY_MS;
    let percentage = engine.config.auto_aof_rewrite_percentage();
    if figures.running_since.is_some()
        || figures.is_held
        || rests
        || (percentage == 0 && !figures.is_owed && !engine.residency.is_short())
    {
        return;
    }
    let bytes = replayed_bytes(engine, log);
    let store = engine.residency.store();
    let in_store = store.map_or(0, |store| store.stats().bytes_live);
    let limit =
        ((figures.last_bytes + in_store) * percentage / 100).max(engine.config.auto_aof_rewrite_min_size());
    if figures.is_owed {
        log!(Notice, "The log is not complete without a checkpoint: another is tried");
    } else if headroom::is_due(engine, log) {
        log!(Notice, "The disk is nearly full, and a checkpoint gives something of it back");
    } else if percentage == 0 {
        return;
    } else if bytes >= limit {
        log!(Notice, "There are {} MB to replay since the last checkpoint", bytes >> 20);
    } else if log.bytes_to_replay() >= limit + log.segment_bytes() * SEGMENTS_LEFT_MAX {
        log!(Notice, "Starts have left many segments since the last checkpoint, with little in each");
    } else if store.is_some_and(Store::wants_checkpoint) {
        log!(Notice, "The store has emptied segments that a checkpoint has to free");
    } else {
        return;
    }
    // Somebody else may have begun one just now.
    let _ = begin_rewrite(engine);
}

/// Of so much log no checkpoint is written at the end.
const LAST_LOG_BYTES: u64 = 1 << 20;

/// Writes a checkpoint at the server's end, if there is a store: the next start need not read what it needs to replay the log. Without
/// it nothing is lost. And one that is owed.
pub(super) fn write_last(engine: &Engine, log: &Log) {
    let is_loaded = !engine.attention().contains(Attention::LOADING);
    let is_owed = engine.durability.rewrites.figures().is_owed;
    let is_worth_it = engine.residency.store().is_some() && replayed_bytes(engine, log) >= LAST_LOG_BYTES;
    if !is_loaded || !(is_owed || is_worth_it) {
        return;
    }
    // One that is being written notices that the server ends.
    while engine.durability.rewrites.figures().running_since.is_some() {
        std::thread::yield_now();
    }
    let began = engine.clock.now();
    log!(Notice, "Writing the last checkpoint before exiting");
    write(engine, log, began, Pace::Full);
}

/// Writes the checkpoint that is owed, as fast as can be, and waits for it.
///
/// # Errors
/// The log says why it could not be written.
pub(super) fn complete(engine: &Arc<Engine>, goes_on: impl Fn() -> bool) -> io::Result<()> {
    let rewrites = &engine.durability.rewrites;
    let failures = rewrites.figures().failures_in_a_row;
    rewrites.hurry(true);
    let is_awaited =
        |figures: Figures| figures.is_owed && !figures.is_held && figures.failures_in_a_row <= failures;
    while is_awaited(rewrites.figures()) && goes_on() {
        // It may be under way, one that is given up among them, behind which there is to be another.
        let _ = begin_rewrite(engine);
        std::thread::sleep(HOLD_POLL);
    }
    rewrites.hurry(false);
    match rewrites.figures() {
        figures if figures.is_owed && figures.failures_in_a_row > failures => {
            Err(io::Error::other("the log's first checkpoint could not be written"))
        }
        _ => Ok(()),
    }
}

/// How much a start would have to replay: the log, and the values that it names.
fn replayed_bytes(engine: &Engine, log: &Log) -> u64 {
    let named = engine.keyspace.named_bytes() - engine.durability.rewrites.figures().named_before;
    log.appended().0.saturating_sub(log.last_checkpoint().0) + named
}

fn run_without_log(engine: &Engine, began: UnixMs) {
    log!(Notice, "Background append only file rewriting started");
    let written = append_only::write(engine);
    let bytes = *written.as_ref().unwrap_or(&0);
    end(engine, APPEND_ONLY_FILE, began, &written.map(|_| ()), bytes);
}

fn run(engine: &Engine, log: &Log, began: UnixMs) {
    log!(Notice, "Checkpoint started");
    write(engine, log, began, Pace::Gentle);
    let _switching = engine.durability.rewrites.switching();
    // Not the configuration: a change of that may still be refused.
    if engine.durability.rewrites.figures().is_for_one {
        super::rest(engine);
    }
}

fn write(engine: &Engine, log: &Log, began: UnixMs, pace: Pace) {
    let named_before = engine.keyspace.named_bytes();
    let written = checkpoint::write(engine, log, engine.guest(), pace);
    if written.is_ok() {
        let mut figures = engine.durability.rewrites.0.lock();
        (figures.named_before, figures.is_owed) = (named_before, log.lacks_checkpoint());
    }
    if written.is_ok() {
        wait_for_commitment(engine, log);
    }
    if written.is_ok() {
        retire(engine, log);
    }
    if written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::StorageFull) {
        log.drop_spares();
    }
    let bytes = *written.as_ref().unwrap_or(&0);
    end(engine, CHECKPOINT, began, &written.map(|_| ()), bytes);
}

/// Removes what a checkpoint has replaced.
pub fn retire(engine: &Engine, log: &Log) {
    if let Err(error) = log.retire(retention(engine)) {
        log!(
            Warning,
            "Can't remove what the checkpoint has replaced from {}: {error}",
            engine.dir().display()
        );
    }
}

/// Gives replicas a moment to have what the checkpoint holds: the one before would be kept for them until the next.
fn wait_for_commitment(engine: &Engine, log: &Log) {
    let began = Instant::now();
    while !log.is_checkpoint_committed()
        && !engine.durability.rewrites.is_held()
        && !engine.is_ending()
        && began.elapsed() < COMMITMENT_PATIENCE
    {
        std::thread::sleep(HOLD_POLL);
    }
}

/// What is written, for the server's log. A log may begin while an append-only file is.
const CHECKPOINT: &str = "Checkpoint";
const APPEND_ONLY_FILE: &str = "Append-only file";

fn end(engine: &Engine, what: &str, began: UnixMs, result: &io::Result<()>, bytes: u64) {
    let now = engine.clock.now();
    match result {
        Ok(()) => log!(Notice, "{what} of {} KB written", bytes >> 10),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            log!(Notice, "{what} given up: {error}");
        }
        Err(error) => log!(Warning, "{what} failed in {}: {error}", engine.dir().display()),
    }
    let mut figures = engine.durability.rewrites.0.lock();
    figures.running_since = None;
    (figures.keys_copied, figures.keys_total) = (0, 0);
    // One that was given up is none that failed.
    let has_failed = result.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Interrupted);
    figures.failures_in_a_row = if has_failed { figures.failures_in_a_row + 1 } else { 0 };
    figures.failed_last = has_failed;
    figures.tried_at = now;
    figures.last_duration_s = Some(now.0.saturating_sub(began.0) / 1000);
    if result.is_ok() {
        figures.count += 1;
        figures.last_bytes = bytes;
    }
}

fn retention(engine: &Engine) -> Retention {
    engine.config.log_retention()
}
