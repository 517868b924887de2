//! Writes checkpoints while traffic runs: slot by slot, each with its place in the history.
//!
//! A thread of its own, in batches as a guest, copies a slot at a time under its lock to a chunk in memory, and writes
//! chunks with no lock held. It copies for a tenth of the time, so that clients notice little. FLUSHALL needs no care, since
//! it stamps all slots; an exchange of databases begins the checkpoint anew. Bytes: `docs/formats/checkpoint.md`.
//!
//! Invariant: memory for a checkpoint is a chunk, or as much as the largest slot takes.

use crate::log;
use crate::server::Server;
use ::log::{CheckpointWriter, Log, Lsn};
use keyspace::{Batch, DbIndex, Object, SLOTS, Slot};
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

/// What a chunk holds: its first byte.
pub const SLOTS_CHUNK: u8 = 1;
/// The code of one library of functions.
pub const LIBRARY_CHUNK: u8 = 2;
/// The seed by which keys have their slots. The first chunk of a checkpoint, and of no use later.
pub const SEED_CHUNK: u8 = 3;

/// The seed that a checkpoint's first chunk holds.
pub fn seed_in(chunk: &[u8]) -> Option<u64> {
    let (kind, seed) = chunk.split_first()?;
    Some(u64::from_le_bytes(seed.try_into().ok()?)).filter(|_| *kind == SEED_CHUNK)
}

/// How eagerly a checkpoint is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Beside clients.
    Gentle,
    /// Nobody is served yet.
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
        let mut copy = Copy::begin(server, log, guest, pace)?;
        copy.writer.chunk(&[&[SEED_CHUNK], &server.hash_seed.to_le_bytes()[..]].concat())?;
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
        let end = log.appended();
        wait_until_durable(server, log, end, beside)?;
        // An exchange after the last slot was copied is behind the checkpoint's end, or shows here.
        if server.keyspace.exchanges() != exchanges {
            continue;
        }
        let bytes = copy.writer.bytes();
        log.finish_checkpoint(copy.writer, end)?;
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
        })
    }

    fn libraries(&mut self) -> io::Result<()> {
        for library in self.server.scripts.libraries().by_name.values() {
            self.writer.chunk(&[&[LIBRARY_CHUNK], &library.code[..]].concat())?;
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
                self.chunk.push(SLOTS_CHUNK);
                self.chunk.extend_from_slice(&db.0.to_le_bytes());
            }
            let began = Instant::now();
            self.slot(db, slot)?;
            self.copying += began.elapsed();
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

    /// Appends a slot to the chunk: its number, its stamp, the length of its entries, and those. One that has no keys, and
    /// had none when the checkpoint began, needs no mention: all that is replayed is later.
    fn slot(&mut self, db: DbIndex, slot: Slot) -> io::Result<()> {
        let chunk = &mut self.chunk;
        let slot_at = chunk.len();
        chunk.extend_from_slice(&slot.0.to_le_bytes());
        let stamp_at = chunk.len();
        chunk.extend_from_slice(&[0; 16]);
        let entries_at = chunk.len();
        let batch = self.server.keyspace.enter(self.guest);
        let keys = &mut self.keys;
        let stamp = batch.copy_slot(db, slot, |object| {
            *keys += 1;
            add(chunk, object);
        });
        readable(&batch)?;
        drop(batch);
        if chunk.len() == entries_at && stamp.0 <= self.writer.start().0 {
            chunk.truncate(slot_at);
            return Ok(());
        }
        let bytes = (chunk.len() - entries_at) as u64;
        chunk[stamp_at..stamp_at + 8].copy_from_slice(&stamp.0.to_le_bytes());
        chunk[stamp_at + 8..entries_at].copy_from_slice(&bytes.to_le_bytes());
        Ok(())
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
            fail_if_ending(self.server)?;
        }
        (self.step_began, self.copying) = (Instant::now(), Duration::ZERO);
        Ok(())
    }
}

/// A copy of less than all is none.
fn readable(batch: &Batch<'_>) -> io::Result<()> {
    batch.take_unreadable().map_or(Ok(()), |error| Err(io::Error::other(error)))
}

/// Appends an object as an RDB file holds it, without how much it was used: that is not worth a write of the log.
fn add(out: &mut Vec<u8>, object: Object<'_>) {
    crate::snapshot::with_value(object, |value| {
        write_entry(out, object.key(), value, object.expires_at().map(|at| at.0), None);
    });
}

fn wait_until_durable(
    server: &Server,
    log: &Log,
    end: Lsn,
    beside: &mut dyn FnMut(Interval),
) -> io::Result<()> {
    while log.durable() < end {
        log.request_sync();
        beside(Interval::BeforeSync);
        log.writable().map_err(io::Error::other)?;
        fail_if_ending(server)?;
    }
    Ok(())
}

fn fail_if_ending(server: &Server) -> io::Result<()> {
    match server.is_ending() {
        true => Err(io::Error::other("the server ends")),
        false => Ok(()),
    }
}
