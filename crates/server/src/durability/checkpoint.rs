//! Writes checkpoints while traffic runs: slot by slot, each with its place in the history.
//!
//! A thread of its own, in batches as a guest, copies a slot at a time under its lock to a chunk in memory, and writes
//! chunks with no lock held. It copies for a tenth of the time, so that clients notice little. FLUSHALL needs no care, since
//! it stamps all slots; an exchange of databases begins the checkpoint anew. Bytes: `docs/formats/checkpoint.md`.
//!
//! Where there is a store (capacity edition), what is not in it is written there first, some slots at a time, and the checkpoint
//! holds where everything lies, and the store's table.
//!
//! Invariant: memory for a checkpoint is a chunk, or as much as the largest slot takes.

use super::slots::{ChunkKind, put_index, put_numbers};
use crate::log;
use crate::residency::Outbox;
use crate::server::Server;
use ::log::{CheckpointWriter, Log, Lsn};
use keyspace::residency::index::SlotIndex;
use keyspace::residency::spill::Aim;
use keyspace::{Batch, DbIndex, Object, SLOTS, Slot, Stamp};
use std::io;
use std::thread;
use std::time::{Duration, Instant};
use value::rdb::file::write_entry;

/// A chunk is written when it has this many bytes.
const CHUNK_BYTES: usize = 512 << 10;

/// The longest that slots are copied in a row.
const STEP: Duration = Duration::from_micros(300);

/// How much longer it does not copy after each step: it rests, unless writing to the disk has taken that long.
const REST_FACTOR: u32 = 9;

/// How often it looks whether the log is durable as far as a checkpoint needs.
const SYNC_POLL: Duration = Duration::from_millis(1);

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
pub fn write(server: &Server, log: &Log, guest: usize, pace: Pace) -> io::Result<u64> {
    write_beside(server, log, guest, pace, &mut |interval| match interval {
        Interval::BetweenSlots => {}
        Interval::BeforeSync => thread::sleep(SYNC_POLL),
    })
}

/// The same, and calls `beside` in every interval: where nobody else runs, the log is to be flushed there.
///
/// # Errors
/// Those of [`write`].
pub fn write_beside(
    server: &Server,
    log: &Log,
    guest: usize,
    pace: Pace,
    beside: &mut dyn FnMut(Interval),
) -> io::Result<u64> {
    loop {
        let exchanges = server.keyspace.exchanges();
        let mark = server.residency.store().map(|store| (store, store.begin_checkpoint()));
        let mut copy = Copy::begin(server, log, guest, pace)?;
        copy.writer.chunk(&ChunkKind::Seed.chunk(&server.hash_seed.to_le_bytes()))?;
        if mark.is_some() {
            copy.writer.chunk(&ChunkKind::Numbers.chunk(&put_numbers(&server.keyspace.numbers())))?;
        }
        copy.libraries()?;
        let is_whole = server.databases().try_fold(true, |is_whole, db| {
            Ok::<_, io::Error>(
                is_whole && copy.database(db, beside)? && server.keyspace.exchanges() == exchanges,
            )
        })?;
        if !is_whole {
            log!(Notice, "Databases were exchanged; the checkpoint begins anew");
            continue;
        }
        copy.flush()?;
        if let Some((store, mark)) = mark {
            copy.writer.chunk(&ChunkKind::Store.chunk(&store.table(mark)?))?;
        }
        let end = log.appended();
        copy.wait_until_durable(log, end, beside)?;
        // An exchange after the last slot was copied is behind the checkpoint's end, or shows here.
        if server.keyspace.exchanges() != exchanges {
            continue;
        }
        let bytes = copy.writer.bytes();
        log.finish_checkpoint(copy.writer, end)?;
        mark.into_iter().for_each(|(store, mark)| store.end_checkpoint(mark));
        return Ok(bytes);
    }
}

struct Copy<'s> {
    server: &'s Server,
    guest: usize,
    pace: Pace,
    writer: CheckpointWriter,
    chunk: Vec<u8>,
    step_began: Instant,
    /// How much of the step went into copying.
    copying: Duration,
    /// Copied and not counted yet.
    keys: u64,
    stored: Option<Stored<'s>>,
}

/// Of a checkpoint whose objects lie in a store.
struct Stored<'s> {
    outbox: Outbox<'s>,
    index: SlotIndex,
}

impl Stored<'_> {
    fn new(server: &Server, guest: usize) -> Option<Stored<'_>> {
        let store = server.residency.store()?;
        let outbox = Outbox::new(server, store, guest, Aim::Copies);
        Some(Stored { outbox, index: SlotIndex::default() })
    }

    /// Writes what of some slots is in memory only.
    fn write(&mut self, db: DbIndex, slots: impl Iterator<Item = Slot>) -> io::Result<()> {
        for slot in slots {
            while self.outbox.take(db, slot)?.is_full {}
        }
        self.outbox.write()
    }
}

impl<'s> Copy<'s> {
    fn begin(server: &'s Server, log: &Log, guest: usize, pace: Pace) -> io::Result<Copy<'s>> {
        // All that was appended before is in the slots: it was appended under their locks.
        let writer = log.begin_checkpoint(log.appended())?;
        Ok(Copy {
            server,
            guest,
            pace,
            writer,
            chunk: Vec::new(),
            step_began: Instant::now(),
            copying: Duration::ZERO,
            keys: 0,
            stored: Stored::new(server, guest),
        })
    }

    fn libraries(&mut self) -> io::Result<()> {
        for library in self.server.scripts.libraries().by_name.values() {
            self.writer.chunk(&ChunkKind::Library.chunk(&library.code))?;
        }
        Ok(())
    }

    /// Copies a database. False: databases were exchanged.
    fn database(&mut self, db: DbIndex, beside: &mut dyn FnMut(Interval)) -> io::Result<bool> {
        if !self.server.keyspace.is_used(db) {
            return Ok(true);
        }
        let exchanges = self.server.keyspace.exchanges();
        for slot in (0..SLOTS as u16).map(Slot) {
            if self.chunk.is_empty() {
                let kind = if self.stored.is_some() { ChunkKind::Index } else { ChunkKind::Slots };
                self.chunk.push(kind as u8);
                self.chunk.extend_from_slice(&db.0.to_le_bytes());
            }
            let began = Instant::now();
            let group = (slot.0..SLOTS as u16).map(Slot).take(GROUP);
            if let Some(stored) = self.stored.as_mut().filter(|_| usize::from(slot.0) % GROUP == 0) {
                stored.write(db, group)?;
            }
            let written = Instant::now();
            self.slot(db, slot)?;
            // Most of the writing is waiting for the disk: it rests for as long again.
            self.copying += written.elapsed() + (written - began) * 2 / (1 + REST_FACTOR);
            beside(Interval::BetweenSlots);
            if self.chunk.len() >= CHUNK_BYTES {
                self.flush()?;
            }
            if self.copying >= STEP {
                self.rest()?;
                if self.server.keyspace.exchanges() != exchanges {
                    return Ok(false);
                }
            }
        }
        self.flush()?;
        Ok(true)
    }

    /// Appends a slot to the chunk: its number, its stamp, the length of what follows, its index, and its entries. One that has no keys, and
    /// had none when the checkpoint began, needs no mention: all that is replayed is later.
    fn slot(&mut self, db: DbIndex, slot: Slot) -> io::Result<()> {
        let chunk = &mut self.chunk;
        let slot_at = chunk.len();
        chunk.extend_from_slice(&slot.0.to_le_bytes());
        let stamp_at = chunk.len();
        chunk.extend_from_slice(&[0; 16]);
        let body_at = chunk.len();
        let batch = self.server.keyspace.enter(self.guest);
        let (stamp, keys) = match &mut self.stored {
            None => copy_entries(&batch, db, slot, chunk)?,
            Some(stored) => copy_index(&batch, db, slot, stored, chunk),
        };
        drop(batch);
        self.keys += keys;
        if keys == 0 && stamp.0 <= self.writer.start().0 {
            chunk.truncate(slot_at);
            return Ok(());
        }
        let bytes = (chunk.len() - body_at) as u64;
        chunk[stamp_at..stamp_at + 8].copy_from_slice(&stamp.0.to_le_bytes());
        chunk[stamp_at + 8..body_at].copy_from_slice(&bytes.to_le_bytes());
        Ok(())
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

    /// A server that ends writes its last one in peace.
    fn fail_if_ending(&self) -> io::Result<()> {
        match self.pace == Pace::Gentle && self.server.is_ending() {
            true => Err(io::Error::other("the server ends")),
            false => Ok(()),
        }
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
        self.server.durability.rewrites.note_copied(std::mem::take(&mut self.keys));
        if self.pace == Pace::Gentle {
            let due = self.copying * (1 + REST_FACTOR);
            thread::sleep(due.saturating_sub(self.step_began.elapsed()));
        }
        self.fail_if_ending()?;
        (self.step_began, self.copying) = (Instant::now(), Duration::ZERO);
        Ok(())
    }
}

/// Appends the objects of a slot. Gives its stamp, and how many keys it has.
fn copy_entries(batch: &Batch<'_>, db: DbIndex, slot: Slot, chunk: &mut Vec<u8>) -> io::Result<(Stamp, u64)> {
    let mut keys = 0;
    let stamp = batch.copy_slot(db, slot, |object| {
        keys += 1;
        add(chunk, object);
    });
    // A copy of less than all is none.
    batch.take_unreadable().map_or(Ok((stamp, keys)), |error| Err(io::Error::other(error)))
}

/// The same where most of them lie in a store: their index, and the others.
fn copy_index(
    batch: &Batch<'_>,
    db: DbIndex,
    slot: Slot,
    stored: &mut Stored<'_>,
    chunk: &mut Vec<u8>,
) -> (Stamp, u64) {
    let Stored { outbox, index } = stored;
    let (mut entries, mut keys) = (Vec::new(), 0);
    let stamp = batch.copy_index(
        db,
        slot,
        |at| outbox.is_written(at),
        index,
        |object| {
            keys += 1;
            add(&mut entries, object);
        },
    );
    put_index(chunk, index);
    chunk.extend_from_slice(&entries);
    (stamp, keys + index.words.len() as u64)
}

/// Appends an object as an RDB file holds it, without how much it was used: that is not worth a write of the log.
fn add(out: &mut Vec<u8>, object: Object<'_>) {
    crate::snapshot::with_value(object, |value| {
        write_entry(out, object.key(), value, object.expires_at().map(|at| at.0), None);
    });
}
