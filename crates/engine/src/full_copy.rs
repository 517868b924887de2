//! A copy of everything for a replica, as an RDB file in pieces, made while traffic runs and without a fork.
//!
//! A thread of its own goes over all slots as a checkpoint does ([`crate::durability::checkpoint`]): each is copied under its lock, as it is
//! then, and the copy says with which stamp ([`Stamps`]). So it is of no one moment: whoever loads it needs what was written since it
//! began, less what its slots hold already.
//!
//! Where one thread alone writes, as that does which follows a master, a copy can be of one moment ([`OneMoment`]): the thread has each slot copied
//! before it changes it, out of turn.
//!
//! In the capacity edition a slot's copy is what is in memory, and the words of what is not: those are read afterwards, in the order in which
//! they lie on disk ([`keyspace::Gathered`]), with no slot locked.
//!
//! What a piece holds may not be durable yet when it is handed on: whoever takes it knows whether that matters.
//!
//! Invariants:
//! 1. A slot's copy holds what was written to it up to its stamp, and nothing later; of one moment, what was written up to that.
//! 2. Memory for a copy is a piece, what the slot with most short values has of them, what is written to long values while they are
//!    copied ([`crate::frozen`]), what is copied out of turn beside a long value ([`ASIDE_BYTES_MAX`]), eight bytes for each slot of the databases that are in use, and what words may
//!    take ([`words_bytes`], which is looked at after each slot).
//! 3. The store keeps for copies as much as it holds at most, or a gigabyte, and no more than the disk has room for ([`Lookout`]).

mod lookout;
mod one_moment;

pub use lookout::Lookout;
pub use one_moment::OneMoment;

use crate::Engine;
use crate::frozen::FrozenKey;
use crate::leisure::Leisure;
use crate::scripts::Libraries;
use crate::snapshot;
use keyspace::{DbIndex, Gathered, Object, SLOTS, Slot, Stamp, Tour, ValueRef};
use one_moment::Place;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::mem;
use std::sync::Arc;
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

/// Their share of `maxmemory`.
const WORDS_SHARE: u64 = 32;

/// How long it waits where as many go over the slots as may.
const HELD_UP: Duration = Duration::from_millis(20);

/// What is copied out of turn while a long value is written, at most, but for a slot; and how many long values wait.
const ASIDE_BYTES_MAX: usize = 16 << 20;
const LONG_MAX: usize = 64;

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
    /// What keeps it of that moment; None: it is of no one moment.
    pub one_moment: Option<Arc<OneMoment>>,
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
    Beginning { at: mark(), numbers: engine.keyspace.numbers(), one_moment: None }
}

/// Begins one of this moment, in which nobody writes, until who does so from now on knows of it.
pub fn begin_of_one_moment(engine: &Engine, mark: impl FnOnce() -> Stamp) -> Beginning {
    let one_moment = Some(Arc::new(OneMoment::begin(engine)));
    Beginning { one_moment, ..begin(engine, mark) }
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
    let one_moment = beginning.one_moment.as_deref();
    // Where what is behind it is not told from it by keys, it is nobody's concern which of two is copied first.
    let tour = if one_moment.is_none() { Some(begin_tour(engine)?) } else { None };
    let mut writer = FileWriter::for_readers(wanted.reads);
    facts.first.iter().for_each(|(name, value)| writer.aux(name, value));
    if wanted.functions {
        let libraries = one_moment.map_or_else(|| engine.scripts.libraries(), |one| one.libraries.clone());
        refuse_functions(&libraries, wanted.reads)?;
        for library in libraries.by_name.values() {
            writer.add_function_library(&library.code);
        }
    }
    let began = Instant::now();
    let mut copy = Copy {
        engine,
        wanted,
        out: Out { writer, numbers: &beginning.numbers, last: None, begun: BTreeSet::new() },
        hand_on,
        step_began: began,
        copying: Duration::ZERO,
        leisure: Leisure::new(),
        began,
        lookout: Lookout::new(engine),
        keys: 0,
        one_moment,
        long: VecDeque::new(),
        is_aside: false,
        cold_ahead: BTreeMap::new(),
    };
    let mut stamps = Stamps { of_databases: Vec::new(), numbers: beginning.numbers.clone() };
    for number in 0..engine.keyspace.databases() {
        let copied = if wanted.keys { copy.database(number, tour.as_ref())? } else { None };
        stamps.of_databases.push(copied);
    }
    drop(tour);
    copy.end_out_of_turn()?;
    let Copy { out: Out { mut writer, .. }, hand_on, .. } = copy;
    if let Some(offset) = (facts.whole_from)().filter(|_| wanted.knows_field_times) {
        writer.aux(WHOLE_FACT, &offset.to_string());
    }
    hand_on(writer.finish())?;
    Ok(stamps)
}

fn refuse_functions(libraries: &Libraries, reads: Reads) -> io::Result<()> {
    match reads == Reads::Redis50 && !libraries.by_name.is_empty() {
        true => Err(io::Error::new(
            io::ErrorKind::Unsupported,
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
    out: Out<'c>,
    hand_on: &'c mut dyn FnMut(Vec<u8>) -> io::Result<()>,
    step_began: Instant,
    /// How much of the step went into copying.
    copying: Duration,
    leisure: Leisure,
    began: Instant,
    lookout: Lookout<'c>,
    keys: u64,
    /// What keeps it of one moment, if it is.
    one_moment: Option<&'c OneMoment>,
    /// Long values that are to be written yet, with their databases.
    long: VecDeque<(u32, FrozenKey)>,
    /// Whether one is being written, so that what is copied meanwhile is a part that comes behind it.
    is_aside: bool,
    /// What was gathered of each database out of turn.
    cold_ahead: BTreeMap<u32, Gathered<'c>>,
}

/// Where it goes.
struct Out<'c> {
    writer: FileWriter,
    /// The constant number of each database.
    numbers: &'c [u32],
    /// The database of the last key.
    last: Option<u32>,
    /// Databases that have had keys.
    begun: BTreeSet<u32>,
}

impl Out<'_> {
    /// Names a database, by its constant number, in front of a key, unless the last one was of the same.
    fn name(&mut self, engine: &Engine, number: u32) {
        if self.last.replace(number) == Some(number) {
            return;
        }
        let name = self.numbers.iter().position(|own| *own == number);
        let Some(name) = name.and_then(|name| u32::try_from(name).ok()) else { return };
        let db = DbIndex(name);
        match self.begun.insert(number) {
            true => self.writer.database(name, engine.keyspace.len(db), engine.keyspace.expiring(db)),
            // Told once more how many keys there are, a Redis might make its table smaller.
            false => self.writer.select(name),
        }
    }
}

impl<'c> Copy<'c> {
    /// Copies a database, by its constant number. None: it was never used.
    fn database(&mut self, number: u32, tour: Option<&Tour<'_>>) -> io::Result<Option<Box<[Stamp]>>> {
        if tour.is_some_and(|tour| tour.passes_unused(number))
            || self.one_moment.is_some_and(|one| !one.has(number))
        {
            return Ok(None);
        }
        let mut stamps = vec![Stamp(0); SLOTS].into_boxed_slice();
        let mut cold = self.gather(number);
        for slot in (0..SLOTS as u16).map(Slot) {
            if self.one_moment.is_some_and(|one| !one.lacks((number, slot))) {
                continue;
            }
            tour.into_iter().for_each(|tour| tour.enter(number, slot));
            stamps[usize::from(slot.0)] = self.slot((number, slot), cold.as_mut())?;
            tour.into_iter().for_each(|tour| tour.leave(number, slot));
            self.long_values()?;
            self.pause(None)?;
            if let Some(cold) = cold.as_mut().filter(|cold| cold.is_full()) {
                self.read(number, cold)?;
            }
            self.read_full_ahead()?;
        }
        if let Some(cold) = &mut cold {
            self.read(number, cold)?;
        }
        Ok(Some(stamps))
    }

    /// Begins to gather what of a database is not in memory, if anything may be so.
    fn gather(&self, number: u32) -> Option<Gathered<'c>> {
        // What is copied out of turn takes the other half.
        let share = if self.one_moment.is_some() { 2 } else { 1 };
        self.engine.keyspace.gather(number, words_bytes(self.engine) / share)
    }

    /// The same of what is copied out of turn, for which each database has its part.
    fn gather_ahead(&self, one_moment: &OneMoment, number: u32) -> Option<Gathered<'c>> {
        let share = 2 * one_moment.databases().max(1);
        self.engine.keyspace.gather(number, words_bytes(self.engine) / share)
    }

    /// Copies what a slot has in memory but for what is long, and gathers what it has not; gives its stamp.
    fn slot(&mut self, (number, slot): Place, mut cold: Option<&mut Gathered<'_>>) -> io::Result<Stamp> {
        let Copy { engine, out, long, .. } = self;
        let (engine, now, mut shown) = (*engine, engine.clock.now(), Shown::default());
        if let Some(cold) = &mut cold {
            cold.keep();
        }
        let batch = engine.keyspace.enter(engine.copying_guest());
        let (stamp, took) = batch.look_into(number, slot, |view| {
            let began = Instant::now();
            let visit = |object: Object<'_>| {
                shown.note(object);
                match FrozenKey::of(engine, object, now) {
                    Some(frozen) => long.push_back((number, frozen)),
                    None => {
                        out.name(engine, number);
                        snapshot::add(engine, &mut out.writer, object, now, UnixMs(0));
                    }
                }
            };
            match cold {
                Some(cold) => view.gather(cold, visit),
                None => view.visit(visit),
            }
            (view.stamp(), began.elapsed())
        });
        drop(batch);
        self.one_moment.into_iter().for_each(|one| one.note_copied((number, slot)));
        self.copying += took;
        self.count(shown)?;
        Ok(stamp)
    }

    /// Copies what was gathered. What is enough for a piece is handed on at once: a few places may hold any number of bytes.
    fn read(&mut self, number: u32, cold: &mut Gathered<'_>) -> io::Result<()> {
        let engine = self.engine;
        loop {
            let (began, now, mut handed_on) = (Instant::now(), engine.clock.now(), Duration::ZERO);
            let (out, hand_on, mut shown) = (&mut self.out, &mut self.hand_on, Shown::default());
            let lookout = &self.lookout;
            let failed = Cell::new(None);
            let visit = |object: Object<'_>| {
                let before = failed.take();
                if before.is_some() {
                    return failed.set(before);
                }
                out.name(engine, number);
                shown.note(object);
                snapshot::add(engine, &mut out.writer, object, now, UnixMs(0));
                if out.writer.pending_bytes() >= PIECE_BYTES {
                    let began = Instant::now();
                    let handed = hand_on(out.writer.take()).and_then(|()| lookout.fail_if_much_is_kept());
                    failed.set(handed.err());
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

    /// Copies what somebody is about to change, for as long as there is room, and waits for that until some moment.
    fn give_way(&mut self, until: Instant) -> io::Result<()> {
        let Some(one_moment) = self.one_moment else { return Ok(()) };
        while self.has_room() {
            let Some(place) = one_moment.next_wanted(until) else { break };
            if !one_moment.lacks(place) {
                continue;
            }
            let mut cold =
                self.cold_ahead.remove(&place.0).or_else(|| self.gather_ahead(one_moment, place.0));
            self.slot(place, cold.as_mut())?;
            cold.into_iter().for_each(|cold| drop(self.cold_ahead.insert(place.0, cold)));
            if !self.is_aside {
                self.hand_on_if_due()?;
            }
        }
        one_moment.fail_if_given_up()
    }

    /// Whether more may be copied out of turn.
    fn has_room(&self) -> bool {
        let is_full = self.is_aside && self.out.writer.pending_bytes() >= ASIDE_BYTES_MAX;
        !is_full && self.long.len() < LONG_MAX && !self.cold_ahead.values().any(Gathered::is_full)
    }

    /// Copies what was gathered out of turn, of databases of which that is much.
    fn read_full_ahead(&mut self) -> io::Result<()> {
        let full = self.cold_ahead.iter().find(|(_, cold)| cold.is_full()).map(|(number, _)| *number);
        full.map_or(Ok(()), |number| self.read_ahead(number))
    }

    fn read_ahead(&mut self, number: u32) -> io::Result<()> {
        let cold = self.cold_ahead.remove(&number);
        cold.map_or(Ok(()), |mut cold| self.read(number, &mut cold))
    }

    /// Copies what is left of what was copied out of turn. From here on anybody may change anything.
    fn end_out_of_turn(&mut self) -> io::Result<()> {
        let Some(one_moment) = self.one_moment else { return Ok(()) };
        self.long_values()?;
        while let Some(number) = self.cold_ahead.keys().next().copied() {
            self.read_ahead(number)?;
        }
        one_moment.fail_if_given_up()?;
        one_moment.end();
        Ok(())
    }

    fn count(&mut self, shown: Shown) -> io::Result<()> {
        self.keys += shown.keys;
        match shown.has_field_times && !self.wanted.knows_field_times {
            true => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "a hash has fields with a time to live (HPEXPIRE), which a replica of Redis 7.2 cannot know",
            )),
            false => Ok(()),
        }
    }

    /// Writes the long values that are left, which others have meanwhile.
    fn long_values(&mut self) -> io::Result<()> {
        while let Some((number, frozen)) = self.long.pop_front() {
            self.out.name(self.engine, number);
            let part = self.out.writer.part();
            let mut writer = mem::replace(&mut self.out.writer, part);
            self.is_aside = true;
            let written = frozen.write(&mut writer, PIECE_BYTES, &mut |piece| {
                (self.hand_on)(piece)?;
                fail_if_ending(self.engine)?;
                self.lookout.fail_if_much_is_kept()?;
                self.give_way(Instant::now())
            });
            self.is_aside = false;
            let part = mem::replace(&mut self.out.writer, writer);
            self.out.writer.append(part);
            written?;
            self.hand_on_if_due()?;
        }
        Ok(())
    }

    /// Rests as long as `rdb-key-save-delay` says, and hands on what it has meanwhile: that whoever takes it is gone ends the copy.
    fn linger(&mut self) -> io::Result<()> {
        while self.began.elapsed() < snapshot::time_for_keys(self.engine, self.keys) {
            (self.hand_on)(self.out.writer.take())?;
            let until = Instant::now() + snapshot::LOOK_AGAIN;
            self.give_way(until)?;
            thread::sleep(until.saturating_duration_since(Instant::now()));
            fail_if_ending(self.engine)?;
            self.lookout.fail_if_much_is_kept()?;
        }
        Ok(())
    }

    /// Hands on what is enough for a piece, and rests when it is time to.
    fn pause(&mut self, factor: Option<u32>) -> io::Result<()> {
        self.linger()?;
        self.lookout.fail_if_much_is_kept()?;
        self.hand_on_if_due()?;
        match self.copying >= STEP {
            true => self.rest(factor),
            false => self.give_way(Instant::now()),
        }
    }

    fn hand_on_if_due(&mut self) -> io::Result<()> {
        match self.out.writer.pending_bytes() >= PIECE_BYTES {
            true => (self.hand_on)(self.out.writer.take()),
            false => Ok(()),
        }
    }

    /// Rests so many times as long as it has copied, unless handing on has taken that long. None: as long as is due.
    fn rest(&mut self, factor: Option<u32>) -> io::Result<()> {
        let factor = factor.unwrap_or_else(|| self.leisure.factor(self.copying));
        let until = self.step_began + self.copying * (1 + factor);
        match self.one_moment {
            // What is copied out of turn meanwhile is not rested for: somebody waits for it.
            Some(_) => self.give_way(until)?,
            None => thread::sleep(until.saturating_duration_since(Instant::now())),
        }
        fail_if_ending(self.engine)?;
        (self.step_began, self.copying) = (Instant::now(), Duration::ZERO);
        Ok(())
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
