//! Between the keyspace and the log: effects go to the log, and what becomes of them to the gate and to those who ask.

use crate::Attention;
use crate::Engine;
use ::log::{Failure, Log, Lsn, Observer};
use keyspace::{Journal, Span, Stamp, Unit};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use sys::UnixMs;
use telemetry::log;

/// Those who wait for what the log makes durable: its flusher tells them how far it is.
pub trait Watcher: Send + Sync {
    /// The log is durable up to here.
    fn committed(&self, up_to: Stamp);

    /// Whether from now on nothing may be shown before it is durable.
    fn hold(&self, on: bool);

    /// These bytes of the stream are durable, from this offset on. Told before [`Watcher::committed`], while the log was told to
    /// (`Log::set_streamed`); each call goes on where the one before ended.
    fn streamed(&self, from: u64, bytes: &[u8]) {
        let _ = (from, bytes);
    }
}

/// Takes effects to the log.
pub struct ToLog {
    pub log: Arc<Log>,
    pub engine: Weak<Engine>,
    /// A master is followed: what is written here is in nobody's stream.
    pub is_following: Arc<AtomicBool>,
}

impl ToLog {
    /// What a client of a server wrote that follows a master.
    #[cold]
    fn append_own(&self, span: Span, time: UnixMs, effects: Vec<Vec<u8>>) -> Stamp {
        let unit = ::log::Unit {
            database: span.first.0,
            ends_in: span.first.0,
            time,
            stream: &[],
            is_followed: false,
        };
        self.append_followed(&unit, effects)
    }

    /// What a master wanted of this server.
    #[inline]
    fn of_master<'u>(unit: &Unit<'u>) -> ::log::Unit<'u> {
        let Unit { first, last, now: time, stream } = *unit;
        ::log::Unit { database: first.0, ends_in: last.0, time, stream, is_followed: true }
    }

    fn append_followed(&self, unit: &::log::Unit<'_>, effects: Vec<Vec<u8>>) -> Stamp {
        let bytes = effects.iter().map(Vec::len).sum::<usize>() + unit.stream.len();
        if bytes == 0 {
            return self.end();
        }
        let end = self.log.append_unit(unit, effects);
        self.note_appended(bytes);
        Stamp(end.0)
    }

    #[inline]
    fn note_appended(&self, bytes: usize) {
        note_gathered(bytes);
        if self.log.is_full()
            && let Some(engine) = self.engine.upgrade()
        {
            engine.set_attention(Attention::LOG_FULL, true);
        }
    }
}

fn in_log(span: Span) -> ::log::Span {
    ::log::Span { database: span.first.0, ends_in: span.last.0, is_several: span.is_several }
}

impl Journal for ToLog {
    fn append(&self, span: Span, now: UnixMs, requests: &[u8]) -> Stamp {
        if self.is_following.load(Ordering::Relaxed) {
            return self.append_own(span, now, vec![requests.to_vec()]);
        }
        let end = self.log.append_effects(in_log(span), now, requests);
        self.note_appended(requests.len());
        Stamp(end.0)
    }

    fn append_parts(&self, span: Span, now: UnixMs, parts: Vec<Vec<u8>>) -> Stamp {
        if self.is_following.load(Ordering::Relaxed) {
            return self.append_own(span, now, parts);
        }
        let bytes = parts.iter().map(Vec::len).sum();
        let end = self.log.append_parts(in_log(span), now, parts);
        self.note_appended(bytes);
        Stamp(end.0)
    }

    fn append_unit(&self, unit: Unit<'_>, effects: Vec<Vec<u8>>) -> Stamp {
        self.append_followed(&ToLog::of_master(&unit), effects)
    }

    fn append_unit_as_sent(&self, unit: Unit<'_>) -> Stamp {
        let end = self.log.append_unit_as_sent(&ToLog::of_master(&unit));
        self.note_appended(unit.stream.len());
        Stamp(end.0)
    }

    fn end(&self) -> Stamp {
        Stamp(self.log.appended().0)
    }

    fn has_room(&self) -> bool {
        !self.log.is_full() && self.log.writable().is_ok()
    }

    fn nudge(&self) {
        if has_gathered_enough() {
            self.log.nudge();
        }
    }
}

/// Batches of a busy worker whose records gather for one sync, at least: fewer cost it more switches to the flusher, more
/// keep its clients waiting. Measured on one core, as the others are.
const BATCHES_MIN: u32 = 32;

/// The same at most, however many connections a worker has. In between a half of them waits while the other half keeps it
/// busy.
const BATCHES_MAX: u32 = 256;

/// Bytes of records that gather.
const BYTES_MAX: usize = 128 << 10;

/// What a worker has appended since it last nudged the flusher.
#[derive(Clone, Copy)]
struct Gathered {
    batches: u32,
    bytes: usize,
    /// So many batches are enough.
    batches_wanted: u32,
}

impl Gathered {
    /// Nothing yet.
    fn new(batches_wanted: u32) -> Gathered {
        Gathered { batches: 0, bytes: 0, batches_wanted }
    }
}

thread_local! {
    /// None in threads that are no workers.
    static GATHERED: Cell<Option<Gathered>> = const { Cell::new(None) };
}

/// Called by a worker's thread before its first batch: it will say when it is idle.
pub fn gather() {
    GATHERED.set(Some(Gathered::new(BATCHES_MIN)));
}

/// Notes that this thread has appended so much.
pub fn note_gathered(bytes: usize) {
    if let Some(gathered) = GATHERED.get() {
        GATHERED.set(Some(Gathered { bytes: gathered.bytes + bytes, ..gathered }));
    }
}

/// Notes the end of a batch that has appended something. True: what has gathered is to go on now; nobody but workers says when it is idle.
pub fn has_gathered_enough() -> bool {
    let Some(gathered) = GATHERED.get() else { return true };
    let gathered = Gathered { batches: gathered.batches + 1, ..gathered };
    let is_enough = gathered.batches >= gathered.batches_wanted || gathered.bytes >= BYTES_MAX;
    GATHERED.set(Some(if is_enough { Gathered::new(gathered.batches_wanted) } else { gathered }));
    is_enough
}

/// Whether something has gathered that is to go on now. Called by the thread of a worker when it has nothing to do, or is at something that
/// takes long; it tells how many connections it has.
pub fn take_gathered(connections: impl FnOnce() -> u32) -> bool {
    let is_any = GATHERED.get().is_some_and(|gathered| gathered.batches > 0);
    if is_any {
        let half = connections() / 2;
        GATHERED.set(Some(Gathered::new(half.clamp(BATCHES_MIN, BATCHES_MAX))));
    }
    is_any
}

/// Is told by the log's flusher.
pub struct Flushed {
    pub engine: Weak<Engine>,
    pub watcher: Arc<dyn Watcher>,
}

impl Flushed {
    fn set_failed(&self, on: bool) {
        if let Some(engine) = self.engine.upgrade() {
            engine.set_attention(Attention::LOG_FAILED, on);
        }
    }
}

impl Observer for Flushed {
    fn committed(&self, up_to: Lsn) {
        let Some(engine) = self.engine.upgrade() else { return };
        let is_full = engine.durability.log().is_some_and(|log| log.is_full());
        if engine.attention().contains(Attention::LOG_FULL) && !is_full {
            engine.set_attention(Attention::LOG_FULL, false);
        }
        self.watcher.committed(Stamp(up_to.0));
    }

    fn streamed(&self, from: u64, bytes: &[u8]) {
        self.watcher.streamed(from, bytes);
    }

    fn failed(&self, failure: &Failure) {
        log!(Warning, "Can't write to the log: {failure}. Writes are refused until it goes on");
        self.set_failed(true);
    }

    fn resumed(&self) {
        log!(Notice, "The log goes on: all that was written is on disk");
        self.set_failed(false);
    }
}
