//! A copy of everything for a replica, as an RDB file in pieces, made while traffic runs and without a fork.
//!
//! A thread of its own goes over all slots as a checkpoint does ([`crate::durability::checkpoint`]): each is copied under its lock, as it is
//! then, and the copy says with which stamp ([`Stamps`]). So it is of no one moment: whoever loads it needs what was written since it
//! began, less what its slots hold already.
//!
//! What a piece holds may not be durable yet when it is handed on: whoever takes it knows whether that matters.
//!
//! Invariants:
//! 1. A slot's copy holds what was written to it up to its stamp, and nothing later.
//! 2. Memory for a copy is a piece, what the slot with most short values has of them, what is written to long values while they are
//!    copied ([`crate::frozen`]), and eight bytes for each slot of the databases that are in use.

use crate::Engine;
use crate::frozen::FrozenKey;
use crate::leisure::Leisure;
use crate::snapshot;
use keyspace::{Object, SLOTS, Slot, Stamp, Tour, ValueRef};
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

/// How much longer it rests than it copied where objects are read from a store, most of which is waiting for the disk. Elsewhere
/// [`Leisure`] says.
const STORE_REST_FACTOR: u32 = 1;

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
    let mut copy =
        Copy { engine, wanted, writer, hand_on, step_began: began, copying, leisure, began, keys: 0 };
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
        let name = u32::try_from(name.unwrap_or_default()).unwrap_or_default();
        let mut stamps = vec![Stamp(0); SLOTS].into_boxed_slice();
        let mut is_named = false;
        for slot in (0..SLOTS as u16).map(Slot) {
            tour.enter(number, slot);
            let (stamp, long) = self.slot((number, slot), name, &mut is_named)?;
            stamps[usize::from(slot.0)] = stamp;
            tour.leave(number, slot);
            self.long_values(long)?;
            self.linger()?;
            if self.writer.pending_bytes() >= PIECE_BYTES {
                (self.hand_on)(self.writer.take())?;
            }
            if self.copying >= STEP {
                self.rest()?;
            }
        }
        Ok(Some(stamps))
    }

    /// Copies a slot; gives its stamp, and what is to be written yet. The database is named in front of its first key.
    fn slot(
        &mut self,
        (number, slot): (u32, Slot),
        name: u32,
        is_named: &mut bool,
    ) -> io::Result<(Stamp, Vec<FrozenKey>)> {
        let (engine, wanted, now) = (self.engine, self.wanted, self.engine.clock.now());
        let writer = &mut self.writer;
        let batch = engine.keyspace.enter(engine.copying_guest());
        let (mut has_field_times, mut keys, mut long) = (false, 0, Vec::new());
        let (stamp, took) = batch.look_into(number, slot, |view| {
            let began = Instant::now();
            view.visit(|object| {
                if !*is_named {
                    *is_named = true;
                    let db = keyspace::DbIndex(name);
                    writer.database(name, engine.keyspace.len(db), engine.keyspace.expiring(db));
                }
                keys += 1;
                has_field_times |= has_times_of_fields(object);
                match FrozenKey::of(engine, object, now) {
                    Some(frozen) => long.push(frozen),
                    None => snapshot::add(engine, writer, object, now, UnixMs(0)),
                }
            });
            (view.stamp(), began.elapsed())
        });
        let unreadable = batch.take_unreadable();
        drop(batch);
        (self.copying, self.keys) = (self.copying + took, self.keys + keys);
        unreadable.map_or(Ok(()), |error| Err(io::Error::other(error)))?;
        match has_field_times && !wanted.knows_field_times {
            true => Err(io::Error::other(
                "a hash has fields with a time to live (HPEXPIRE), which a replica of Redis 7.2 cannot know",
            )),
            false => Ok((stamp, long)),
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

    /// Rests, unless handing on has taken that long.
    fn rest(&mut self) -> io::Result<()> {
        let factor = match self.engine.residency.store() {
            Some(_) => STORE_REST_FACTOR,
            None => self.leisure.factor(self.copying),
        };
        let due = self.copying * (1 + factor);
        thread::sleep(due.saturating_sub(self.step_began.elapsed()));
        fail_if_ending(self.engine)?;
        (self.step_began, self.copying) = (Instant::now(), Duration::ZERO);
        Ok(())
    }
}

fn has_times_of_fields(object: Object<'_>) -> bool {
    match object.value() {
        ValueRef::Collection(CollectionRef::Hash(hash)) => hash.next_expiry().is_some(),
        _ => false,
    }
}
