//! How many keys and functions there are on disk, and how many writes: what INFO shows while the disk is behind, since it must neither show more
//! nor keep whoever looks after the server waiting.
//!
//! Ten times a second both are counted; a count is shown once the log is durable up to where it was when they had been counted.
//! Somewhat old, but never of what a crash takes back.
//!
//! Thread rule: one worker counts, anybody looks.

use super::latest;
use crate::Attention;
use crate::Engine;
use keyspace::{Batch, DbIndex, Stamp};
use parking_lot::Mutex;
use sys::UnixMs;

/// How long the log must have made no progress for the disk to be behind.
const BEHIND_AFTER_MS: u64 = 1000;

/// A database's keys, and those of them that expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyCount {
    /// The database.
    pub db: DbIndex,
    /// Its keys.
    pub keys: u64,
    /// Those that expire.
    pub expires: u64,
}

/// What is counted.
#[derive(Clone, Debug)]
pub struct Counted {
    /// The keys, of databases that have some.
    pub keys: Vec<KeyCount>,
    /// How many commands have changed anything.
    pub writes: u64,
    /// What there is of functions.
    pub functions: FunctionCount,
}

/// Functions, and what they are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionCount {
    /// Libraries.
    pub libraries: usize,
    /// Functions in them.
    pub functions: usize,
    /// Bytes of the libraries' code.
    pub code_bytes: u64,
}

/// Counts of keys.
#[derive(Default)]
pub struct KeyCounts(Mutex<State>);

#[derive(Default)]
struct State {
    /// What is on disk; None before that is known.
    durable: Option<Counted>,
    /// What will be when the log is durable up to there.
    coming: Option<(Stamp, Counted)>,
    /// Up to where the log was durable, and since when it has not gone on from there although there is more.
    stands_at: Stamp,
    stands_since: UnixMs,
}

/// What is there now for who is in the keyspace; it waits for all that was appended.
pub fn of_now(engine: &Engine, batch: &Batch<'_>) -> Counted {
    let count = |db| {
        let (keys, expires) = batch.shown(db);
        KeyCount { db, keys, expires }
    };
    let counted = Counted::of(engine, count);
    batch.see_all();
    counted
}

impl Counted {
    fn of(engine: &Engine, count: impl Fn(DbIndex) -> KeyCount) -> Counted {
        let keys = engine.databases().map(count).filter(|count| count.keys > 0).collect();
        Counted { keys, writes: engine.keyspace.writes(), functions: FunctionCount::of(engine) }
    }
}

impl FunctionCount {
    /// What changes libraries is in the log before anybody sees it.
    fn of(engine: &Engine) -> FunctionCount {
        engine.scripts.with_libraries(|all| {
            let code: usize = all.by_name.values().map(|library| library.code.len()).sum();
            FunctionCount {
                libraries: all.by_name.len(),
                functions: all.functions(),
                code_bytes: code as u64,
            }
        })
    }
}

impl KeyCounts {
    /// Counts. Called again and again, with up to where things may be shown.
    pub fn note(engine: &Engine, open_to: impl Fn() -> Stamp) {
        if engine.durability.log().is_none() {
            return;
        }
        let shown_to = open_to();
        let state = &mut *engine.durability.key_counts.0.lock();
        if let Some((_, counts)) = state.coming.take_if(|(stamp, _)| *stamp <= shown_to) {
            state.durable = Some(counts);
        }
        if state.coming.is_none() {
            // What is not in the log yet is not among it, so that the log's end covers all of it.
            let count =
                |db| KeyCount { db, keys: engine.keyspace.len(db), expires: engine.keyspace.expiring(db) };
            let counted = Counted::of(engine, count);
            state.coming = Some((latest(engine), counted));
        }
        if shown_to != state.stands_at || latest(engine) <= open_to() {
            (state.stands_at, state.stands_since) = (shown_to, engine.clock.now());
        }
    }

    /// What there is on disk, while that is behind, things up to here may be shown, and there are others; else None.
    pub fn while_behind(&self, engine: &Engine, open_to: impl Fn() -> Stamp) -> Option<Counted> {
        let state = self.0.lock();
        let is_behind = engine.attention().contains(Attention::LOG_FAILED)
            || engine.clock.now().0.saturating_sub(state.stands_since.0) >= BEHIND_AFTER_MS;
        state.durable.clone().filter(|_| is_behind && latest(engine) > open_to())
    }
}
