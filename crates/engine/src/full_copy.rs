//! A copy of everything for a replica, as an RDB file in pieces, made while traffic runs and without a fork.
//!
//! A thread of its own goes over all slots as a checkpoint does ([`crate::durability::checkpoint`]): each is copied under its lock, as it is
//! then, and the copy says with which stamp ([`Stamps`]). So it is of no one moment: whoever loads it needs what was written since it
//! began, less what its slots hold already.
//!
//! In the capacity edition a slot's copy is what is in memory, and the words of what is not: those are read afterwards, in the order in which
//! they lie on disk ([`keyspace::Gathered`]), with no slot locked.
//!
//! What a piece holds may not be durable yet when it is handed on: whoever takes it knows whether that matters.
//!
//! Invariants:
//! 1. A slot's copy holds what was written to it up to its stamp, and nothing later.
//! 2. Memory for a copy is a piece, what the slot with most short values has of them, what is written to long values while they are
//!    copied ([`crate::frozen`]), eight bytes for each slot of the databases that are in use, and what words may
//!    take ([`words_bytes`], which is looked at after each slot).
//! 3. The store keeps for copies as much as it holds at most, or [`KEPT_BYTES_ALWAYS`].

use crate::Engine;
use crate::frozen::FrozenKey;
use crate::leisure::Leisure;
use crate::snapshot;
use keyspace::{DbIndex, Gathered, Object, SLOTS, Slot, Stamp, Tour, ValueRef};
use std::cell::Cell;
use std::io;
use std::thread;
use std::time::{Duration, Instant};
use sys::UnixMs;
use value::collection::CollectionRef;
use value::rdb::file::FileWriter;
use value::stream::Reads;

/// A piece is handed on when it has this many bytes.
const PIECE_BYTES: usize = 256 << 10;

/// The longest that slots are copied in a row.
const STEP: Duration = Duration::from_micros(300);

/// How much longer it rests than it has read from a store, most of which is waiting for the disk. Elsewhere [`Leisure`] says.
const STORE_REST_FACTOR: u32 = 1;

/// Bytes that words of what is on disk take: the more, the more there is on each page that is read.
const WORDS_BYTES_MIN: u64 = 4 << 20;
const WORDS_BYTES_MAX: u64 = 48 << 20;

/// How often it looks how much the store keeps for copies, and what that may be in any case.
const LOOK_AT_KEPT_EVERY: Duration = Duration::from_secs(1);
const KEPT_BYTES_ALWAYS: u64 = 1 << 30;

/// Their share of `maxmemory`.
const WORDS_SHARE: u64 = 32;

/// How long it waits where as many go over the slots as may.
const HELD_UP: Duration = Duration::from_millis(20);

/// What whoever gets a copy can read, and wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The version.
    pub reads: Reads,
    /// Whether it knows hashes whose fields expire. Where not, and there is one, there is no copy.
    pub knows_field_times: bool,
    /// Keys.
    pub keys: bool,
    /// Libraries of functions.
    pub functions: bool,
}

/// Where a copy begins.
#[derive(Clone, Debug)]
pub struct Beginning {
    /// All that was written up to here is in it.
    pub at: Stamp,
    /// The constant number of each database, in the order of the numbers by which commands know them.
    pub numbers: Vec<u32>,
}

/// What a copy says of itself.
pub struct Facts<'f> {
    /// At its beginning.
    pub first: &'f [(&'f str, String)],
    /// At its end, when all is in it: from which place of the stream on it is of one moment, for who has what follows it. None: it is
    /// so as it stands.
    pub whole_from: &'f dyn Fn() -> Option<u64>,
}

impl Facts<'_> {
    /// It says nothing.
    pub const NONE: Facts<'static> = Facts { first: &[], whole_from: &|| None };
}

/// Under this name a copy says from which place of the stream on it is of one moment.
pub const WHOLE_FACT: &str = "tarn-whole-from";

/// Up to where each slot's copy goes.
#[derive(Debug, Default)]
pub struct Stamps {
    /// By constant numbers; None of a database that was not in use.
    of_databases: Vec<Option<Box<[Stamp]>>>,
    numbers: Vec<u32>,
}

impl Stamps {
    /// Up to where the copy of a slot goes, of a database by the number by which commands knew it when the copy began.
    pub fn of(&self, database: u32, slot: Slot) -> Stamp {
        let number = self.numbers.get(database as usize).map_or(0, |number| *number as usize);
        let stamps = self.of_databases.get(number).and_then(Option::as_deref);
        stamps.map_or(Stamp(0), |stamps| stamps[usize::from(slot.0)])
    }
}

/// Begins a copy: `mark` says where the history is then.
pub fn begin(engine: &Engine, mark: impl FnOnce() -> Stamp) -> Beginning {
    // An exchange of databases is appended before whoever makes it lets others in: none is half done in a batch.
    let _batch = engine.keyspace.enter(engine.copying_guest());
    Beginning { at: mark(), numbers: engine.keyspace.numbers() }
}

/// Copies everything. `hand_on` takes the pieces.
///
/// # Errors
/// If something cannot be read, or is nothing that it may hold, or the server ends; and those of `hand_on`.
pub fn write(
    engine: &Engine,
    beginning: &Beginning,
    wanted: Wanted,
    facts: &Facts<'_>,
    hand_on: &mut dyn FnMut(Vec<u8>) -> io::Result<()>,
) -> io::Result<Stamps> {
    let tour = begin_tour(engine)?;
    let mut writer = FileWriter::for_readers(wanted.reads);
    facts.first.iter().for_each(|(name, value)| writer.aux(name, value));
    if wanted.functions {
        refuse_functions(engine, wanted.reads)?;
        for library in engine.scripts.libraries().by_name.values() {
            writer.add_function_library(&library.code);
        }
    }
    let (began, copying) = (Instant::now(), Duration::ZERO);
    let leisure = Leisure::new();
    let mut copy = Copy {
        engine,
        wanted,
        writer,
        hand_on,
        step_began: began,
        copying,
        leisure,
        began,
        looked_at: began,
        keys: 0,
    };
    let mut stamps = Stamps { of_databases: Vec::new(), numbers: beginning.numbers.clone() };
    for number in 0..engine.keyspace.databases() {
        let copied = if wanted.keys { copy.database(number, beginning, &tour)? } else { None };
        stamps.of_databases.push(copied);
    }
    drop(tour);
    let Copy { mut writer, hand_on, .. } = copy;
    if let Some(offset) = (facts.whole_from)().filter(|_| wanted.knows_field_times) {
        writer.aux(WHOLE_FACT, &offset.to_string());
    }
    hand_on(writer.finish())?;
    Ok(stamps)
}

fn refuse_functions(engine: &Engine, reads: Reads) -> io::Result<()> {
    match reads == Reads::Redis50 && !engine.scripts.libraries().by_name.is_empty() {
        true => Err(io::Error::other(
            "there are libraries of functions (FUNCTION), which a replica before Redis 7.0 cannot know (repl-rdb-version)",
        )),
        false => Ok(()),
    }
}

/// Begins a tour as soon as there may be one more.
///
/// # Errors
/// The server ends.
pub(crate) fn begin_tour(engine: &Engine) -> io::Result<Tour<'_>> {
    loop {
        fail_if_ending(engine)?;
        match engine.keyspace.begin_tour() {
            Some(tour) => return Ok(tour),
            None => thread::sleep(HELD_UP),
        }
    }
}

/// Ends a copy where the server ends.
///
/// # Errors
/// It does.
pub(crate) fn fail_if_ending(engine: &Engine) -> io::Result<()> {
    match engine.is_ending() {
        true => Err(io::Error::new(io::ErrorKind::Interrupted, "the server ends")),
        false => Ok(()),
    }
}

struct Copy<'c> {
    engine: &'c Engine,
    wanted: Wanted,
    writer: FileWriter,
    hand_on: &'c mut dyn FnMut(Vec<u8>) -> io::Result<()>,
    step_began: Instant,
    /// How much of the step went into copying.
    copying: Duration,
    leisure: Leisure,
    began: Instant,
    looked_at: Instant,
    keys: u64,
}

impl Copy<'_> {
    /// Copies a database, by its constant number. None: it was never used.
    fn database(
        &mut self,
        number: u32,
        beginning: &Beginning,
        tour: &Tour<'_>,
    ) -> io::Result<Option<Box<[Stamp]>>> {
        if tour.passes_unused(number) {
            return Ok(None);
        }
        let name = beginning.numbers.iter().position(|own| *own == number);
        let mut heading = Heading(u32::try_from(name.unwrap_or_default()).ok());
        let mut stamps = vec![Stamp(0); SLOTS].into_boxed_slice();
        let mut cold = self.engine.keyspace.gather(number, words_bytes(self.engine));
        for slot in (0..SLOTS as u16).map(Slot) {
            tour.enter(number, slot);
            let (stamp, long) = self.slot((number, slot), &mut heading, cold.as_mut())?;
            stamps[usize::from(slot.0)] = stamp;
            tour.leave(number, slot);
            self.long_values(long)?;
            self.pause(None)?;
            if let Some(cold) = cold.as_mut().filter(|cold| cold.is_full()) {
                self.read(cold, &mut heading)?;
            }
        }
        if let Some(cold) = &mut cold {
            self.read(cold, &mut heading)?;
        }
        Ok(Some(stamps))
    }

    /// Copies what a slot has in memory, and gathers what it has not; gives its stamp, and what is to be written yet.
    fn slot(
        &mut self,
        (number, slot): (u32, Slot),
        heading: &mut Heading,
        mut cold: Option<&mut Gathered<'_>>,
    ) -> io::Result<(Stamp, Vec<FrozenKey>)> {
        let (engine, now) = (self.engine, self.engine.clock.now());
        let (writer, mut long, mut shown) = (&mut self.writer, Vec::new(), Shown::default());
        if let Some(cold) = &mut cold {
            cold.keep();
        }
        let batch = engine.keyspace.enter(engine.copying_guest());
        let (stamp, took) = batch.look_into(number, slot, |view| {
            let began = Instant::now();
            let visit = |object: Object<'_>| {
                heading.write(engine, writer);
                shown.note(object);
                match FrozenKey::of(engine, object, now) {
                    Some(frozen) => long.push(frozen),
                    None => snapshot::add(engine, writer, object, now, UnixMs(0)),
                }
            };
            match cold {
                Some(cold) => view.gather(cold, visit),
                None => view.visit(visit),
            }
            (view.stamp(), began.elapsed())
        });
        drop(batch);
        self.copying += took;
        self.count(shown)?;
        Ok((stamp, long))
    }

    /// Copies what was gathered. What is enough for a piece is handed on at once: a few places may hold any number of bytes.
    fn read(&mut self, cold: &mut Gathered<'_>, heading: &mut Heading) -> io::Result<()> {
        let engine = self.engine;
        loop {
            let (began, now, mut handed_on) = (Instant::now(), engine.clock.now(), Duration::ZERO);
            let (writer, hand_on, mut shown) = (&mut self.writer, &mut self.hand_on, Shown::default());
            let failed = Cell::new(None);
            let visit = |object: Object<'_>| {
                let before = failed.take();
                if before.is_some() {
                    return failed.set(before);
                }
                heading.write(engine, writer);
                shown.note(object);
                snapshot::add(engine, writer, object, now, UnixMs(0));
                if writer.pending_bytes() >= PIECE_BYTES {
                    let began = Instant::now();
                    failed.set(hand_on(writer.take()).err());
                    handed_on += began.elapsed();
                }
            };
            let is_more = cold.read_on(visit, |error| failed.set(Some(io::Error::other(error))));
            self.copying += began.elapsed().saturating_sub(handed_on);
            self.count(shown)?;
            if let Some(error) = failed.into_inner() {
                return Err(error);
            }
            if !is_more {
                return Ok(());
            }
            self.pause(Some(STORE_REST_FACTOR))?;
        }
    }

    fn count(&mut self, shown: Shown) -> io::Result<()> {
        self.keys += shown.keys;
        match shown.has_field_times && !self.wanted.knows_field_times {
            true => Err(io::Error::other(
                "a hash has fields with a time to live (HPEXPIRE), which a replica of Redis 7.2 cannot know",
            )),
            false => Ok(()),
        }
    }

    /// Writes the long values of a slot, which others have meanwhile.
    fn long_values(&mut self, long: Vec<FrozenKey>) -> io::Result<()> {
        let Copy { engine, writer, hand_on, .. } = self;
        for frozen in long {
            frozen.write(writer, PIECE_BYTES, &mut |piece| {
                hand_on(piece)?;
                fail_if_ending(engine)
            })?;
        }
        Ok(())
    }

    /// Rests as long as `rdb-key-save-delay` says, and hands on what it has meanwhile: that whoever takes it is gone ends the copy.
    fn linger(&mut self) -> io::Result<()> {
        while self.began.elapsed() < snapshot::time_for_keys(self.engine, self.keys) {
            (self.hand_on)(self.writer.take())?;
            thread::sleep(snapshot::LOOK_AGAIN);
            fail_if_ending(self.engine)?;
        }
        Ok(())
    }

    /// Hands on what is enough for a piece, and rests when it is time to.
    fn pause(&mut self, factor: Option<u32>) -> io::Result<()> {
        self.linger()?;
        self.fail_if_much_is_kept()?;
        if self.writer.pending_bytes() >= PIECE_BYTES {
            (self.hand_on)(self.writer.take())?;
        }
        if self.copying >= STEP { self.rest(factor) } else { Ok(()) }
    }

    /// Ends a copy for which the store would have to keep more than it holds: it is read more slowly than clients write.
    fn fail_if_much_is_kept(&mut self) -> io::Result<()> {
        let Some(store) = self.engine.residency.store() else { return Ok(()) };
        if self.looked_at.elapsed() < LOOK_AT_KEPT_EVERY {
            return Ok(());
        }
        self.looked_at = Instant::now();
        match store.kept_bytes() > store.stats().bytes_live.max(KEPT_BYTES_ALWAYS) {
            true => Err(io::Error::other(
                "it is read so slowly that the store would have to keep more for it than it holds",
            )),
            false => Ok(()),
        }
    }

    /// Rests so many times as long as it has copied, unless handing on has taken that long. None: as long as is due.
    fn rest(&mut self, factor: Option<u32>) -> io::Result<()> {
        let factor = factor.unwrap_or_else(|| self.leisure.factor(self.copying));
        let due = self.copying * (1 + factor);
        thread::sleep(due.saturating_sub(self.step_began.elapsed()));
        fail_if_ending(self.engine)?;
        (self.step_began, self.copying) = (Instant::now(), Duration::ZERO);
        Ok(())
    }
}

/// The name of a database whose first key is still to come.
struct Heading(Option<u32>);

impl Heading {
    /// Names the database in front of its first key.
    fn write(&mut self, engine: &Engine, writer: &mut FileWriter) {
        if let Some(name) = self.0.take() {
            let db = DbIndex(name);
            writer.database(name, engine.keyspace.len(db), engine.keyspace.expiring(db));
        }
    }
}

/// What was shown.
#[derive(Default)]
struct Shown {
    keys: u64,
    has_field_times: bool,
}

impl Shown {
    fn note(&mut self, object: Object<'_>) {
        self.keys += 1;
        self.has_field_times |= has_times_of_fields(object);
    }
}

/// How many bytes the words of what is on disk may take at a time.
fn words_bytes(engine: &Engine) -> usize {
    let bytes = match engine.config.maxmemory() {
        0 => WORDS_BYTES_MAX,
        limit => (limit / WORDS_SHARE).clamp(WORDS_BYTES_MIN, WORDS_BYTES_MAX),
    };
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn has_times_of_fields(object: Object<'_>) -> bool {
    match object.value() {
        ValueRef::Collection(CollectionRef::Hash(hash)) => hash.next_expiry().is_some(),
        _ => false,
    }
}
