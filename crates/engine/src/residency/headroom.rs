//! What is kept of the store's disk, so that what is deleted can be given back.
//!
//! Segments that are emptied, and the log that was replayed, take their space until a checkpoint is complete; and that takes space itself, for the
//! words of all keys and for what is in memory only. So its share of the disk is given to nobody else: while there is less, nothing is sent away and
//! clients' writes that need memory are refused ([`super::Residency::shortage`]), and what deletes goes on. Then a checkpoint is due as soon as it gives
//! anything back ([`is_due`]).
//!
//! Before that, where it comes near, nothing is taken of the disk beforehand: the log begins short segments, and neither it nor the store keeps what they
//! have emptied.
//!
//! Thread rule: a thread of its own looks at the disk, since the spiller waits for checkpoints and for what it writes. What a checkpoint writes is
//! counted by the spiller, slot by slot, which takes as long as to go over what is in memory: only where less is left of the disk than there would have
//! to be if all of that were to be written, and for a [`COUNTING_SHARE`] of the time. Others see flags only.

use super::for_each_slot;
use crate::Engine;
use ::log::Log;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use store::Store;
use telemetry::log;

/// How often it looks at the disk.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The same while nothing happens: it is woken when something does.
const LOOK_IDLE_EVERY: Duration = Duration::from_secs(2);

/// What a key takes in a checkpoint: its word and its time, with what frames them.
const KEY_BYTES: u64 = 18;

/// For the head of a checkpoint, the store's table, what the log takes for deletions meanwhile, and what clients write between two looks.
const MARGIN_BYTES: u64 = 16 << 20;

/// For records that are written anew, so that their segment can be emptied: this part of a segment.
const CLEANING_SHARE: u64 = 4;

/// Segments that the log may take beforehand while there is so much more.
const LOG_SEGMENTS: u64 = 2;

/// So many times as long as it counts it does not.
const COUNTING_SHARE: u32 = 19;

/// How the disk stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// What is left of it.
    pub left: u64,
    /// What a checkpoint takes.
    pub reserve: u64,
    /// There is less than that, and some.
    pub is_short: bool,
    /// It is near.
    pub is_near: bool,
}

/// What is known of the disk.
#[derive(Debug, Default)]
pub struct Headroom {
    standing: Mutex<Standing>,
    counted: Mutex<Option<Counted>>,
    wants_count: AtomicBool,
}

/// What was found to be in memory only.
#[derive(Clone, Copy, Debug)]
struct Counted {
    bytes: u64,
    /// Where the log was.
    appended: u64,
    at: Instant,
    took: Duration,
}

/// What a disk is asked for.
#[derive(Clone, Copy, Debug)]
struct Demand {
    /// What a checkpoint takes.
    reserve: u64,
    store_segment: u64,
    log_segment: u64,
}

impl Headroom {
    /// How the disk stood when it was looked at last.
    pub fn standing(&self) -> Standing {
        *self.standing.lock()
    }

    /// Counts what is in memory only, if somebody wants to know and it is due. The spiller's.
    pub(super) fn count_if_due(&self, engine: &Engine, log: &Log) {
        let is_recent = |counted: Counted| counted.at.elapsed() < counted.took * COUNTING_SHARE;
        if !self.wants_count.load(Ordering::Relaxed) || self.counted.lock().is_some_and(is_recent) {
            return;
        }
        let (began, appended) = (Instant::now(), log.appended().0);
        let mut bytes = 0;
        for_each_slot(engine, |batch, db, slot| bytes += batch.bytes_unkept(db, slot));
        *self.counted.lock() = Some(Counted { bytes, appended, at: Instant::now(), took: began.elapsed() });
    }

    /// What is in memory only, about: as it was counted, and what was written since; all there is where that was not.
    fn in_memory_only(&self, log: &Log) -> u64 {
        let most = sys::memory::used_bytes();
        self.counted.lock().map_or(most, |counted| {
            let since = log.appended().0.saturating_sub(counted.appended);
            counted.bytes.saturating_add(since).min(most)
        })
    }

    /// How the disk stands now.
    fn look(&self, engine: &Engine, store: &Store, log: &Log) -> Standing {
        let (stats, before) = (store.stats(), self.standing());
        // What is kept for what comes goes back where space is scarce.
        let kept = log.spare_bytes() + stats.segments_free as u64 * store.segment_bytes();
        let left = store.bytes_left().saturating_add(kept);
        let keys: u64 = engine.databases().map(|db| engine.keyspace.len(db)).sum();
        let judge = |in_memory_only: u64| {
            let reserve = keys.saturating_mul(KEY_BYTES).saturating_add(in_memory_only);
            let demand =
                Demand { reserve, store_segment: store.segment_bytes(), log_segment: log.segment_bytes() };
            demand.judge(left, before)
        };
        let most = judge(sys::memory::used_bytes());
        self.wants_count.store(most.is_near, Ordering::Relaxed);
        let standing = if most.is_near { judge(self.in_memory_only(log)) } else { most };
        *self.standing.lock() = standing;
        standing
    }
}

/// Starts the thread that looks at the disk. It ends with the server.
///
/// # Errors
/// If the system gives no thread.
pub(super) fn start(engine: &Arc<Engine>) -> io::Result<()> {
    let engine = engine.clone();
    let work = move || {
        while !engine.is_ending() {
            match engine.is_idle() {
                true => engine.residency.wait_for_news(LOOK_IDLE_EVERY),
                false => std::thread::sleep(LOOK_EVERY),
            }
            look(&engine);
        }
    };
    std::thread::Builder::new().name("headroom".to_owned()).spawn(work).map(|_| ())
}

/// Looks at the disk, and says what follows. Before the data is loaded everything has to go there that can.
fn look(engine: &Engine) {
    let residency = &engine.residency;
    let (Some(store), Some(log)) = (residency.store(), engine.durability.log()) else { return };
    if !residency.is_loaded.load(Ordering::Acquire) || super::ceiling(engine).is_none() {
        return;
    }
    let Standing { left, reserve, is_short, is_near } = residency.headroom.look(engine, store, log);
    log.save_space(is_near);
    store.save_space(is_near);
    let (left, reserve) = (left >> 20, reserve >> 20);
    let was_short = residency.is_short();
    if is_short {
        let reason = format!(
            "{left} MB of the disk are left, and kept for the checkpoint that gives back what is deleted, which takes up to {reserve} MB"
        );
        if !was_short {
            log!(Warning, "Nothing more is written but what deletes: {reason}");
        }
        residency.begin_shortage(reason);
    } else if was_short {
        residency.end_shortage();
        log!(Notice, "There is space on the disk again: {left} MB are left");
    }
}

impl Demand {
    /// How a disk stands with so much left, which stood so before: what has begun ends when there is half as much again of what is beyond the reserve.
    fn judge(self, left: u64, before: Standing) -> Standing {
        let Demand { reserve, store_segment, log_segment } = self;
        let reserve = reserve.saturating_add(MARGIN_BYTES);
        let floor = store_segment / CLEANING_SHARE + MARGIN_BYTES;
        let near = floor + log_segment * LOG_SEGMENTS;
        let until = |beyond: u64, has_begun: bool| {
            reserve.saturating_add(if has_begun { beyond + beyond / 2 } else { beyond })
        };
        let is_short = left < until(floor, before.is_short);
        Standing { left, reserve, is_short, is_near: is_short || left < until(near, before.is_near) }
    }
}

/// Whether a checkpoint gives something back, where it is scarce.
pub fn is_due(engine: &Engine, log: &Log) -> bool {
    engine.residency.is_short()
        && (engine.residency.store().is_some_and(Store::has_emptied)
            || log.bytes_to_replay() > LOG_SEGMENTS * log.segment_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn demand(reserve: u64) -> Demand {
        Demand { reserve, store_segment: 256 * MB, log_segment: 64 * MB }
    }

    #[test]
    fn a_small_disk_is_no_reason_to_refuse_where_there_is_little_to_write() {
        // With a ceiling of 8 GB or more; 30 MB are used by a server without keys.
        let standing = demand(30 * MB).judge(1 << 30, Standing::default());
        assert!(!standing.is_short && !standing.is_near, "{standing:?}");
    }

    #[test]
    fn a_shortage_ends_when_there_is_more_than_where_it_began() {
        let (mut standing, mut turns) = (Standing::default(), Vec::new());
        for left in (0..1000).rev().chain(0..1000) {
            let next = demand(100 * MB).judge(left * MB, standing);
            assert!(next.is_near || !next.is_short, "{next:?}");
            if (next.is_short, next.is_near) != (standing.is_short, standing.is_near) {
                turns.push((left, next.is_near, next.is_short));
            }
            standing = next;
        }
        assert_eq!(turns, [(323, true, false), (195, true, true), (236, true, false), (428, false, false)]);
    }
}
