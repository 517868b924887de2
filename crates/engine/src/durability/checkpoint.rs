//! Writes checkpoints while traffic runs: slot by slot, each with its place in the history.
//!
//! A thread of its own, in batches as a guest, copies a slot at a time under its lock to a chunk in memory, and writes
//! chunks with no lock held. It copies for a tenth of the time, so that clients notice little. FLUSHALL needs no care, since
//! it stamps all slots. Databases may be exchanged meanwhile: it goes over them by their constant numbers, and says which of them
//! was which where it began; from there the log says what was exchanged. What has effects on two keys at once asks how far it is
//! (`keyspace::tour`). Bytes: `docs/formats/checkpoint.md`.
//!
//! Where there is a store (capacity edition), what is not in it is written there first, some slots at a time, and the checkpoint
//! holds where everything lies, and the store's table.
//!
//! A slot that has too much for a chunk is copied in [`parts`]: it is let go between them, and begun anew if it was written to meanwhile.
//! Where that goes on and on, it is held until all of it is written, but for long collections: they are taken as they are and written when
//! the slot is let go.
//!
//! Invariant: memory for a checkpoint is some chunks, the longest element, and what is written to long collections meanwhile.

use super::parts::{self, Cursor, Lengths, LongParts};
use super::slots::{ChunkKind, Databases, put_index};
use crate::Engine;
use crate::frozen::FrozenKey;
use crate::residency::Outbox;
use crate::scripts::Libraries;
use ::log::{CheckpointWriter, Log, Lsn};
use keyspace::residency::index::SlotIndex;
use keyspace::residency::spill::Aim;
use keyspace::{Batch, Keyspace, Object, SLOTS, Slot, SlotView, Tour};
use std::io;
use std::thread;
use std::time::{Duration, Instant};
use value::rdb::file::write_entry_exactly;

/// A chunk is written when it has this many bytes.
const CHUNK_BYTES: usize = 512 << 10;

/// The longest that slots are copied in a row.
const STEP: Duration = Duration::from_micros(300);

/// How much longer it does not copy after each step: it rests, unless writing to the disk has taken that long.
const REST_FACTOR: u32 = 9;

/// How often it looks whether the log is durable as far as a checkpoint needs.
const SYNC_POLL: Duration = Duration::from_millis(1);

/// How often a slot that is copied in parts is begun anew before it is held; behind the first time there are no rests.
const LOOSE_TRIES: u32 = 3;

/// Slots whose objects are written to the store before their index is copied.
const GROUP: usize = 64;

/// How eagerly a checkpoint is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Beside clients.
    Gentle,
    /// Nobody is served yet, or any more.
    Full,
}

/// When a checkpoint holds nothing, so that anything may happen beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// A slot has been copied.
    BetweenSlots,
    /// The log is not durable as far as the checkpoint needs; a sync has been asked for.
    BeforeSync,
}

/// Writes a checkpoint from the batches of worker `guest`. Gives its bytes.
///
/// # Errors
/// If the disk refuses, or the server ends. There is no new checkpoint then.
pub fn write(engine: &Engine, log: &Log, guest: usize, pace: Pace) -> io::Result<u64> {
    write_beside(engine, log, guest, pace, &mut |interval| match interval {
        Interval::BetweenSlots => {}
        Interval::BeforeSync => log.await_disk(SYNC_POLL),
    })
}

/// The same as fast as it goes, and calls `meanwhile` often.
///
/// # Errors
/// Those of [`write`].
pub fn write_while(engine: &Engine, log: &Log, guest: usize, meanwhile: &mut dyn FnMut()) -> io::Result<u64> {
    write_beside(engine, log, guest, Pace::Full, &mut |interval| {
        if interval == Interval::BeforeSync {
            log.await_disk(SYNC_POLL);
        }
        meanwhile();
    })
}

/// As [`write`], and calls `beside` in every interval: where nobody else runs, the log is to be flushed there.
///
/// # Errors
/// Those of [`write`].
pub fn write_beside(
    engine: &Engine,
    log: &Log,
    guest: usize,
    pace: Pace,
    beside: &mut dyn FnMut(Interval),
) -> io::Result<u64> {
    write_keys(engine, log, (&engine.keyspace, None), (guest, pace), beside)
}

/// Writes a checkpoint of what is to take the place of all keys and functions, where there is no store. Nobody else knows these keys, and nothing is
/// appended meanwhile. Gives its bytes. Calls `meanwhile` often.
///
/// # Errors
/// If the disk refuses.
pub fn write_coming(
    engine: &Engine,
    log: &Log,
    (keyspace, libraries): (&Keyspace, &Libraries),
    guest: usize,
    meanwhile: &mut dyn FnMut(),
) -> io::Result<u64> {
    write_keys(engine, log, (keyspace, Some(libraries)), (guest, Pace::Full), &mut |interval| {
        if interval == Interval::BeforeSync {
            thread::sleep(SYNC_POLL);
        }
        meanwhile();
    })
}

fn write_keys(
    engine: &Engine,
    log: &Log,
    (keyspace, libraries): (&Keyspace, Option<&Libraries>),
    (guest, pace): (usize, Pace),
    beside: &mut dyn FnMut(Interval),
) -> io::Result<u64> {
    let mark = engine.residency.store().map(|store| (store, store.begin_checkpoint()));
    let tour =
        keyspace.begin_tour().ok_or_else(|| io::Error::other("another checkpoint is being written"))?;
    let (start, numbers) = beginning(keyspace, log, guest);
    let mut copy = Copy::begin((engine, keyspace), log.begin_checkpoint(start)?, guest, pace);
    copy.writer.chunk(&ChunkKind::Seed.chunk(&engine.hash_seed.to_bytes()))?;
    copy.writer.chunk(&Databases { has_store: mark.is_some(), numbers }.chunk())?;
    match libraries {
        Some(coming) => copy.libraries(coming)?,
        None => copy.libraries(&engine.scripts.libraries())?,
    }
    (0..keyspace.databases()).try_for_each(|number| copy.database(number, &tour, beside))?;
    drop(tour);
    copy.flush()?;
    if let Some((store, mark)) = mark {
        copy.writer.chunk(&ChunkKind::Store.chunk(&store.table(mark)?))?;
    }
    let end = log.appended();
    copy.wait_until_durable(log, end, beside)?;
    let bytes = copy.writer.bytes();
    log.finish_checkpoint(copy.writer, end)?;
    mark.into_iter().for_each(|(store, mark)| store.end_checkpoint(mark));
    Ok(bytes)
}

/// Where a checkpoint begins, and the databases' constant numbers there. All that was appended before is in the slots: it was appended
/// under their locks. An exchange of databases is appended before whoever makes it lets others in: none is half done in a batch.
fn beginning(keyspace: &Keyspace, log: &Log, guest: usize) -> (Lsn, Vec<u32>) {
    let _batch = keyspace.enter(guest);
    (log.appended(), keyspace.numbers())
}

struct Copy<'s> {
    engine: &'s Engine,
    keyspace: &'s Keyspace,
    guest: usize,
    pace: Pace,
    writer: CheckpointWriter,
    chunk: Vec<u8>,
    step_began: Instant,
    /// How much of the step went into copying.
    copying: Duration,
    /// Copied and not counted yet.
    keys: u64,
    lengths: Lengths,
    stored: Option<Stored<'s>>,
}

/// Of a checkpoint whose objects lie in a store.
struct Stored<'s> {
    outbox: Outbox<'s>,
    index: SlotIndex,
}

impl Stored<'_> {
    fn new(engine: &Engine, guest: usize) -> Option<Stored<'_>> {
        let store = engine.residency.store()?;
        let outbox = Outbox::new(engine, store, guest, Aim::Copies);
        Some(Stored { outbox, index: SlotIndex::default() })
    }

    /// Writes what of some slots is in memory only.
    /// Gives how long that took, without what it waited for others.
    fn write(&mut self, db: u32, slots: impl Iterator<Item = Slot>) -> io::Result<Duration> {
        let began = Instant::now();
        self.outbox.take_waited();
        for slot in slots {
            while self.outbox.take(db, slot)?.is_full {}
        }
        self.outbox.write()?;
        Ok(began.elapsed().saturating_sub(self.outbox.take_waited()))
    }
}

impl<'s> Copy<'s> {
    fn begin(
        (engine, keyspace): (&'s Engine, &'s Keyspace),
        writer: CheckpointWriter,
        guest: usize,
        pace: Pace,
    ) -> Copy<'s> {
        Copy {
            engine,
            keyspace,
            guest,
            pace,
            writer,
            chunk: Vec::new(),
            step_began: Instant::now(),
            copying: Duration::ZERO,
            keys: 0,
            lengths: Lengths::of(engine),
            stored: Stored::new(engine, guest),
        }
    }

    fn libraries(&mut self, libraries: &Libraries) -> io::Result<()> {
        for library in libraries.by_name.values() {
            self.writer.chunk(&ChunkKind::Library.chunk(&library.code))?;
        }
        Ok(())
    }

    /// Copies a database, by its constant number.
    fn database(&mut self, number: u32, tour: &Tour<'_>, beside: &mut dyn FnMut(Interval)) -> io::Result<()> {
        if tour.passes_unused(number) {
            return Ok(());
        }
        for slot in (0..SLOTS as u16).map(Slot) {
            if self.chunk.is_empty() {
                let kind = if self.stored.is_some() { ChunkKind::Index } else { ChunkKind::Slots };
                self.chunk.push(kind as u8);
                self.chunk.extend_from_slice(&number.to_le_bytes());
            }
            let group = (slot.0..SLOTS as u16).map(Slot).take(GROUP);
            if let Some(stored) = self.stored.as_mut().filter(|_| usize::from(slot.0) % GROUP == 0) {
                // Most of the writing is waiting for the disk: it rests for as long again.
                self.copying += stored.write(number, group)? * 2 / (1 + REST_FACTOR);
            }
            tour.enter(number, slot);
            let long = match self.slot(number, slot)? {
                Fit::TooLong => Some(self.slot_in_parts((number, slot), beside)?),
                Fit::Whole => None,
            };
            tour.leave(number, slot);
            long.map_or(Ok(()), |long| self.long_parts(long, beside))?;
            beside(Interval::BetweenSlots);
            if self.chunk.len() >= CHUNK_BYTES {
                self.flush()?;
            }
            if self.copying >= STEP {
                self.rest()?;
            }
        }
        self.flush()
    }

    /// Appends a slot to the chunk: its number, its stamp, the length of what follows, its index, and its entries. One that has no keys, and
    /// had none when the checkpoint began, needs no mention: all that is replayed is later. Of one that has too much nothing is appended.
    fn slot(&mut self, database: u32, slot: Slot) -> io::Result<Fit> {
        let chunk = &mut self.chunk;
        let slot_at = chunk.len();
        chunk.extend_from_slice(&slot.0.to_le_bytes());
        let stamp_at = chunk.len();
        chunk.extend_from_slice(&[0; 16]);
        let body_at = chunk.len();
        let batch = self.keyspace.enter(self.guest);
        let (engine, stored, lengths) = (self.engine, &mut self.stored, self.lengths);
        let (copied, took) = batch.look_into(database, slot, |view| {
            // Nobody was held up while it waited for the slot.
            let began = Instant::now();
            let mut entries = Entries::new(engine, lengths);
            match stored {
                None => view.visit(|object| entries.add(chunk, body_at, object)),
                Some(stored) => add_index(&batch, view, stored, chunk, &mut entries),
            }
            ((view.stamp(), entries), began.elapsed())
        });
        // A copy of less than all is none.
        let unreadable = batch.take_unreadable();
        drop(batch);
        self.copying += took;
        unreadable.map_or(Ok(()), |error| Err(io::Error::other(error)))?;
        let (stamp, Entries { keys, is_too_long, .. }) = copied;
        if is_too_long {
            chunk.truncate(slot_at);
            return Ok(Fit::TooLong);
        }
        self.keys += keys;
        if keys == 0 && stamp.0 <= self.writer.start().0 {
            chunk.truncate(slot_at);
            return Ok(Fit::Whole);
        }
        let bytes = (chunk.len() - body_at) as u64;
        chunk[stamp_at..stamp_at + 8].copy_from_slice(&stamp.0.to_le_bytes());
        chunk[stamp_at + 8..body_at].copy_from_slice(&bytes.to_le_bytes());
        Ok(Fit::Whole)
    }

    /// Copies a slot that has too much for one chunk; gives what is to follow when it counts as copied.
    fn slot_in_parts(
        &mut self,
        place: (u32, Slot),
        beside: &mut dyn FnMut(Interval),
    ) -> io::Result<LongParts> {
        self.flush()?;
        // What goes to the store, or comes from there, leaves no stamp.
        let tries = if self.stored.is_some() { 0 } else { LOOSE_TRIES };
        for number in 0..tries {
            if let Some(long) = self.loose_parts(place, number == 0, beside)? {
                return Ok(long);
            }
        }
        self.held_parts(place)
    }

    /// Copies a slot, letting it go after each part. None: it was written to meanwhile.
    fn loose_parts(
        &mut self,
        place: (u32, Slot),
        rests: bool,
        beside: &mut dyn FnMut(Interval),
    ) -> io::Result<Option<LongParts>> {
        let (mut cursor, mut stamp, mut keys) = (Cursor::default(), None, 0);
        for number in 0.. {
            let batch = self.keyspace.enter(self.guest);
            let (lengths, stored, chunk, engine) =
                (self.lengths, &mut self.stored, &mut self.chunk, self.engine);
            let (is_last, took) = batch.look_into(place.0, place.1, |view| {
                let began = Instant::now();
                let is_same = *stamp.get_or_insert(view.stamp()) == view.stamp();
                let mut part = Part { place, number, lengths, engine };
                (
                    is_same.then(|| part.copy(&batch, view, stored, &mut cursor, chunk, &mut keys)),
                    began.elapsed(),
                )
            });
            drop(batch);
            self.copying += took;
            let Some(is_last) = is_last else {
                self.chunk.clear();
                return Ok(None);
            };
            self.flush()?;
            if let (true, Some(stamp)) = (is_last, stamp) {
                self.keys += keys;
                return Ok(Some(cursor.long_parts(place, stamp, number + 1)));
            }
            beside(Interval::BetweenSlots);
            if rests && self.copying >= STEP {
                self.rest()?;
            }
            self.fail_if_ending()?;
        }
        unreachable!("a slot has a last part")
    }

    /// Copies a slot that somebody writes to all the time: it is held until all of it but its long collections is written.
    fn held_parts(&mut self, place: (u32, Slot)) -> io::Result<LongParts> {
        let engine = self.engine;
        let batch = self.keyspace.enter(self.guest);
        let (lengths, stored, chunk, writer) =
            (self.lengths, &mut self.stored, &mut self.chunk, &mut self.writer);
        let (mut cursor, mut keys) = (Cursor::default(), 0);
        let (written, took) = batch.look_into(place.0, place.1, |view| {
            let began = Instant::now();
            let mut number = 0;
            let written = loop {
                let mut part = Part { place, number, lengths, engine };
                let is_last = part.copy(&batch, view, stored, &mut cursor, chunk, &mut keys);
                number += 1;
                match writer.chunk(chunk) {
                    Ok(()) if is_last => break Ok((view.stamp(), number)),
                    Ok(()) => {}
                    Err(error) => break Err(error),
                }
            };
            (written, began.elapsed())
        });
        self.copying += took;
        self.keys += keys;
        self.chunk.clear();
        let (stamp, number) = written?;
        Ok(cursor.long_parts(place, stamp, number))
    }

    /// Writes the long collections of a slot, which others have meanwhile.
    fn long_parts(&mut self, mut long: LongParts, beside: &mut dyn FnMut(Interval)) -> io::Result<()> {
        loop {
            let began = Instant::now();
            if !long.copy_next(self.lengths, &mut self.chunk) {
                return Ok(());
            }
            // Nobody waits for the slot: it rests for as long again.
            self.copying += began.elapsed() * 2 / (1 + REST_FACTOR);
            self.flush()?;
            beside(Interval::BetweenSlots);
            if self.copying >= STEP {
                self.rest()?;
            }
            self.fail_if_ending()?;
        }
    }

    fn wait_until_durable(&self, log: &Log, end: Lsn, beside: &mut dyn FnMut(Interval)) -> io::Result<()> {
        while log.durable() < end {
            log.request_sync();
            beside(Interval::BeforeSync);
            log.writable().map_err(io::Error::other)?;
            self.fail_if_ending()?;
        }
        Ok(())
    }

    /// A server that ends writes its last one in peace, and so does one whose keys were replaced.
    fn fail_if_ending(&self) -> io::Result<()> {
        let reason = match self.pace {
            Pace::Full => return Ok(()),
            Pace::Gentle if self.engine.is_ending() => "the server ends",
            Pace::Gentle if self.engine.durability.rewrites.is_held() => "all keys are being replaced",
            Pace::Gentle if self.engine.durability.log().is_some_and(|log| log.rests()) => {
                "the log has ended"
            }
            Pace::Gentle => return Ok(()),
        };
        Err(io::Error::new(io::ErrorKind::Interrupted, reason))
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.chunk.is_empty() {
            self.writer.chunk(&self.chunk)?;
            self.chunk.clear();
            self.chunk.shrink_to(2 * CHUNK_BYTES);
        }
        Ok(())
    }

    fn rest(&mut self) -> io::Result<()> {
        self.engine.durability.rewrites.note_copied(std::mem::take(&mut self.keys));
        if self.pace == Pace::Gentle && !self.engine.durability.rewrites.is_hurried() {
            let due = self.copying * (1 + REST_FACTOR);
            thread::sleep(due.saturating_sub(self.step_began.elapsed()));
        }
        self.fail_if_ending()?;
        (self.step_began, self.copying) = (Instant::now(), Duration::ZERO);
        Ok(())
    }
}

/// Whether a slot was copied as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Whole,
    TooLong,
}

/// The objects of a slot, as they are appended to a chunk.
struct Entries<'e> {
    engine: &'e Engine,
    lengths: Lengths,
    keys: u64,
    /// They are too many, or too long: nothing more was appended.
    is_too_long: bool,
}

impl Entries<'_> {
    fn new(engine: &Engine, lengths: Lengths) -> Entries<'_> {
        Entries { engine, lengths, keys: 0, is_too_long: false }
    }

    /// Appends one; the first begins at `begin`.
    fn add(&mut self, out: &mut Vec<u8>, begin: usize, object: Object<'_>) {
        self.is_too_long = self.is_too_long
            || out.len() - begin > self.lengths.slot
            || FrozenKey::is_due(self.engine, object)
            || self.lengths.is_too_long(object);
        if !self.is_too_long {
            self.keys += 1;
            add(out, object);
        }
    }
}

/// Appends a slot most of whose objects lie in a store: their index, and the others.
fn add_index(
    batch: &Batch<'_>,
    view: &SlotView<'_>,
    stored: &mut Stored<'_>,
    chunk: &mut Vec<u8>,
    entries: &mut Entries<'_>,
) {
    let Stored { outbox, index } = stored;
    let mut others = Vec::new();
    batch.index_of(view, |at| outbox.is_written(at), index, |object| entries.add(&mut others, 0, object));
    put_index(chunk, index);
    chunk.extend_from_slice(&others);
    entries.keys += index.words.len() as u64;
}

/// A part of a slot, to be copied.
struct Part<'e> {
    place: (u32, Slot),
    number: u32,
    lengths: Lengths,
    engine: &'e Engine,
}

impl Part<'_> {
    /// Makes the chunk of it. True: it is the last.
    fn copy(
        &mut self,
        batch: &Batch<'_>,
        view: &SlotView<'_>,
        stored: &mut Option<Stored<'_>>,
        cursor: &mut Cursor,
        chunk: &mut Vec<u8>,
        keys: &mut u64,
    ) -> bool {
        parts::begin(chunk, self.place, self.number, view.stamp());
        if self.number == 0 {
            let mut none = SlotIndex::default();
            let index = match stored {
                None => &mut none,
                Some(Stored { outbox, index }) => {
                    batch.index_of(view, |at| outbox.is_written(at), index, |_| {});
                    index
                }
            };
            put_index(chunk, index);
            *keys += index.words.len() as u64;
            cursor.freeze_long(self.engine, view, keys);
        }
        let outbox = stored.as_ref().map(|stored| &stored.outbox);
        let is_elsewhere = |object: &Object<'_>| {
            outbox.is_some_and(|outbox| object.at().is_some_and(|at| outbox.is_written(at)))
        };
        cursor.copy(view, self.lengths, is_elsewhere, chunk, keys)
    }
}

/// Appends an object as an RDB file holds it, without how much it was used: that is not worth a write of the log.
fn add(out: &mut Vec<u8>, object: Object<'_>) {
    crate::snapshot::with_value(object, |value| {
        write_entry_exactly(out, object.key(), value, object.expires_at().map(|at| at.0));
    });
}
