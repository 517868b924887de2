//! The spiller: a thread that sends objects to disk as soon as memory comes near its ceiling, and cleans in between.
//!
//! It goes round over the slots of all databases, gathers copies of what was not used of late in a chunk, writes that, and lets
//! go of what has not changed meanwhile. It enters the keyspace as a guest, for a few slots at a time.

use super::cleaner;
use super::density::Density;
use super::headroom::Standing;
use super::outbox::Outbox;
use crate::Engine;
use keyspace::residency::spill::{Aim, Spilled};
use keyspace::{SLOTS, Slot};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use store::Store;
use telemetry::log;

/// How long it sleeps while nothing rings.
const NAP: Duration = Duration::from_millis(5);

/// The same while nothing happens: it is woken when something does, and by whoever waits for room.
const IDLE_NAP: Duration = Duration::from_millis(500);

/// How long it waits after the disk has refused.
const AFTER_REFUSAL: Duration = Duration::from_millis(20);

/// How often it says that the disk refuses.
const WARN_EVERY: Duration = Duration::from_secs(5);

/// How often what lives is counted anew.
const RECOUNT_EVERY: Duration = Duration::from_secs(30);

/// What may be resident beyond the ceiling before it presses: three quarters of what the ceiling promises.
const PRESSURE_SLACK_BYTES: u64 = 48 << 20;

/// How often it looks at what is resident.
const PRESSURE_EVERY: Duration = Duration::from_millis(100);

/// It begins when less than a sixteenth of the ceiling is left, and goes on until an eighth is.
const HIGH_SHARE: u64 = 16;
const LOW_SHARE: u64 = 8;

/// How long it rests when nothing can go.
const AFTER_FRUITLESS: Duration = Duration::from_millis(100);

/// How long nothing could go before those who wait for room are told so: a slow disk holds a checkpoint and what it has in memory up
/// for seconds.
const STUCK_AFTER: Duration = Duration::from_secs(10);

/// Rounds in which nothing could go after which nothing can: the first spares whom was used, and who was used
/// most stays for six more.
const FRUITLESS_ROUNDS_MAX: u32 = 8;

/// Rounds after which it rests: what goes comes back at once.
const ROUNDS_MAX: u32 = 32;

/// Starts the thread. It ends with the server.
///
/// # Errors
/// If the system gives no thread.
pub(super) fn start(engine: &Arc<Engine>) -> io::Result<()> {
    let engine = engine.clone();
    let work = move || {
        let store = engine.residency.store().expect("it was made before").clone();
        Spiller::new(&engine, &store).run();
    };
    std::thread::Builder::new().name("spiller".to_owned()).spawn(work).map(|_| ())
}

struct Spiller<'s> {
    engine: &'s Engine,
    store: &'s Store,
    /// Where it goes on; the database by its constant number, so that SWAPDB does not lead it to the same slot twice.
    db: u32,
    slot: u16,
    outbox: Outbox<'s>,
    /// Whether anything went or will go in this round.
    is_fruitful: bool,
    fruitless_rounds: u32,
    rounds: u32,
    recounted_at: Instant,
    pressure: Pressure,
    density: Density,
    /// Nothing could go: it does not look before.
    rests_until: Instant,
    /// Since when nothing could go although there is more than the ceiling.
    fruitless_since: Option<Instant>,
    /// When it said last that the disk refuses.
    warned_at: Option<Instant>,
    /// How many bytes the store had written when its disk refused more.
    refused_behind: Option<u64>,
}

impl<'s> Spiller<'s> {
    fn new(engine: &'s Engine, store: &'s Store) -> Spiller<'s> {
        Spiller {
            engine,
            store,
            db: 0,
            slot: 0,
            outbox: Outbox::new(engine, store, engine.spiller_guest(), Aim::Unused),
            is_fruitful: false,
            fruitless_rounds: 0,
            rounds: 0,
            recounted_at: Instant::now(),
            pressure: Pressure { bytes: 0, felt_at: Instant::now() },
            density: Density::new(),
            rests_until: Instant::now(),
            fruitless_since: None,
            warned_at: None,
            refused_behind: None,
        }
    }

    fn run(mut self) {
        while !self.engine.is_ending() {
            self.engine.residency.wait_for_bell(self.nap());
            self.recount_if_due();
            self.store.keep_to_share();
            let residency = &self.engine.residency;
            self.engine
                .durability
                .log()
                .into_iter()
                .for_each(|log| residency.headroom.count_if_due(self.engine, log));
            self.outbox.set_closed(residency.is_short());
            if residency.is_short() {
                self.go_short();
                continue;
            }
            let sent = if self.engine.config.eager_spill() { self.send_all() } else { Ok(()) };
            let made_room = sent.and_then(|()| self.make_room());
            let result = made_room.and_then(|()| cleaner::clean_if_due(self.engine, self.store));
            match result {
                Ok(()) => self.note_recovery(),
                Err(error) => self.go_without(&error),
            }
        }
    }

    fn nap(&self) -> Duration {
        let sleeps_long = self.engine.is_idle() && !self.engine.config.eager_spill();
        if sleeps_long && !self.store.wants_cleaning() { IDLE_NAP } else { NAP }
    }

    /// Notes that the disk no longer refuses, if it did and has taken something since.
    fn note_recovery(&mut self) {
        if self.refused_behind.take_if(|bytes| self.store.stats().bytes_written > *bytes).is_some() {
            log!(Notice, "Data can be sent to the store again");
            self.engine.residency.end_refusal();
        }
    }

    /// The disk has refused: what lies there can still go, so that what is read does not fill memory.
    fn go_without(&mut self, error: &io::Error) {
        if self.warned_at.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            log!(Warning, "Data cannot be sent to the store: {error}");
            self.warned_at = Some(Instant::now());
        }
        *self.engine.residency.refusal.lock() = Some(error.to_string());
        self.refused_behind = Some(self.store.stats().bytes_written);
        self.outbox.set_closed(true);
        self.rests_until = Instant::now();
        // Nothing is written, so nothing can be refused.
        let _ = self.make_room();
        self.outbox.set_closed(self.engine.residency.is_short());
        std::thread::sleep(AFTER_REFUSAL);
    }

    /// The disk has no more than is kept for checkpoints: what lies there can still go, and what is mostly dead be emptied.
    fn go_short(&mut self) {
        let _ = self.make_room();
        let Standing { left, reserve, .. } = self.engine.residency.headroom.standing();
        if let Err(error) = cleaner::clean_within(self.engine, self.store, left.saturating_sub(reserve)) {
            self.go_without(&error);
        } else {
            std::thread::sleep(AFTER_REFUSAL);
        }
    }

    /// Keys that expire, or go with their database, are counted as dead only so.
    fn recount_if_due(&mut self) {
        let is_loaded = self.engine.residency.is_loaded.load(Ordering::Acquire);
        let is_due = || self.recounted_at.elapsed() >= RECOUNT_EVERY || self.is_mostly_cleared();
        if is_loaded && is_due() && self.store.stats().bytes_in_use > 0 {
            // What goes while it counts is counted again.
            self.engine.residency.cleared_keys.store(0, Ordering::Relaxed);
            cleaner::recount(self.engine, self.store);
            self.recounted_at = Instant::now();
        }
    }

    /// Whether more keys went with their databases than are left: to count these is less work than it was to make those, however often
    /// that comes.
    fn is_mostly_cleared(&self) -> bool {
        let (residency, keyspace) = (&self.engine.residency, &self.engine.keyspace);
        let cleared = residency.cleared_keys.load(Ordering::Relaxed);
        let left = || self.engine.databases().map(|db| keyspace.len(db)).sum::<u64>();
        cleared > 0 && cleared >= left()
    }

    /// Goes once over all slots, and keeps nothing.
    fn send_all(&mut self) -> io::Result<()> {
        self.outbox.set_aim(Aim::All);
        let mut sent = Ok(());
        for _ in 0..SLOTS * self.engine.keyspace.databases() as usize {
            sent = self.step();
            if sent.is_err() || self.at_beginning() {
                break;
            }
        }
        let written = self.outbox.write();
        self.outbox.set_aim(Aim::Unused);
        sent.and(written)
    }

    fn at_beginning(&self) -> bool {
        (self.db, self.slot) == (0, 0)
    }

    fn make_room(&mut self) -> io::Result<()> {
        let ceiling = super::ceiling(self.engine);
        if ceiling.is_none_or(|ceiling| sys::memory::used_bytes() <= ceiling - ceiling / HIGH_SHARE) {
            self.fruitless_since = None;
            if self.engine.residency.is_stuck() {
                self.engine.residency.set_stuck(false);
            }
        }
        let Some(ceiling) = ceiling else { return Ok(()) };
        self.density.improve_if_due(self.engine, ceiling);
        let ceiling = self.pressure.under(ceiling);
        let is_near = sys::memory::used_bytes() > ceiling - ceiling / HIGH_SHARE;
        // Whoever waits for room does not wait for the end of a rest.
        let has_waiting = super::is_over(self.engine) && !self.engine.residency.is_stuck();
        if !is_near || Instant::now() < self.rests_until && !has_waiting {
            return Ok(());
        }
        (self.fruitless_rounds, self.rounds) = (0, 0);
        while sys::memory::used_bytes() > ceiling - ceiling / LOW_SHARE && !self.engine.is_ending() {
            self.step()?;
            if self.fruitless_rounds > FRUITLESS_ROUNDS_MAX {
                self.note_fruitless();
                break;
            }
            if self.rounds > ROUNDS_MAX {
                self.rests_until = Instant::now() + AFTER_FRUITLESS;
                break;
            }
        }
        self.outbox.write()
    }

    /// Nothing in memory could go. It may be full of requests and replies that are gone in a moment: only if it stays so, or while the
    /// disk refuses, whoever waits for room is told.
    fn note_fruitless(&mut self) {
        self.rests_until = Instant::now() + AFTER_FRUITLESS;
        if !super::is_over(self.engine) {
            self.fruitless_since = None;
            return;
        }
        let lasts = self.fruitless_since.get_or_insert_with(Instant::now).elapsed();
        let is_refused = self.refused_behind.is_some() || self.engine.residency.is_short();
        if lasts < STUCK_AFTER && !is_refused {
            std::thread::sleep(NAP);
        } else if !self.engine.residency.set_stuck(true) {
            let used = sys::memory::used_bytes();
            let waiting = self.engine.durability.log().map_or(0, |log| log.status().buffer_bytes);
            log!(
                Warning,
                "Memory is full: {used} bytes are used, {waiting} of them wait for the log's disk, and nothing that can go to the store \
                 is left"
            );
        }
    }

    /// Looks at one slot.
    fn step(&mut self) -> io::Result<()> {
        if self.engine.residency.is_short() {
            self.outbox.set_closed(true);
        }
        // Not where somebody only waits to be alone, perhaps for room that is made here.
        if self.engine.keyspace.has_any_slow_holder() {
            // A checkpoint does not wait for the turn meanwhile.
            self.outbox.write()?;
            std::thread::sleep(NAP);
        }
        let (db, slot) = (self.db, Slot(self.slot));
        if self.slot == 0 && self.engine.keyspace.is_number_empty(db) {
            return self.next_database();
        }
        let spilled = self.outbox.take(db, slot)?;
        self.note(spilled);
        if spilled.is_full {
            return cleaner::clean_if_due(self.engine, self.store);
        }
        self.slot += 1;
        if usize::from(self.slot) == SLOTS { self.next_database() } else { Ok(()) }
    }

    fn note(&mut self, spilled: Spilled) {
        let counts = &self.engine.residency.counts;
        counts.spilled.fetch_add((spilled.gone + spilled.leaving) as u64, Ordering::Relaxed);
        counts.dropped_clean.fetch_add(spilled.gone as u64, Ordering::Relaxed);
        self.is_fruitful |= spilled.gone + spilled.leaving > 0;
    }

    fn next_database(&mut self) -> io::Result<()> {
        (self.db, self.slot) = ((self.db + 1) % self.engine.keyspace.databases(), 0);
        if self.db > 0 {
            return Ok(());
        }
        self.rounds += 1;
        self.fruitless_rounds =
            if std::mem::take(&mut self.is_fruitful) { 0 } else { self.fruitless_rounds + 1 };
        self.outbox.write()
    }
}

/// How much less than the ceiling objects may take, so that what the allocator holds in half-empty pages stays below it, too.
struct Pressure {
    bytes: u64,
    felt_at: Instant,
}

impl Pressure {
    /// The ceiling that objects have now. It follows what is resident, ten times a second: more is sent away at once than comes back.
    fn under(&mut self, ceiling: u64) -> u64 {
        if self.felt_at.elapsed() >= PRESSURE_EVERY {
            self.felt_at = Instant::now();
            let excess = sys::process::resident_bytes().saturating_sub(ceiling + PRESSURE_SLACK_BYTES);
            self.bytes = if excess > 0 { self.bytes + excess / 2 } else { self.bytes - self.bytes / 64 };
        }
        self.bytes = self.bytes.min(ceiling / 4);
        ceiling - self.bytes
    }
}
