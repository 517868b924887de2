//! A checkpoint that is loaded: everything put in its place by as many threads as there are, before the log is replayed over it.
//!
//! Its slots name databases by their constant numbers, which it says first; in one of an older version, as commands did when it was
//! written. Bytes: `docs/formats/checkpoint.md`.

use super::databases::{self, TooFew};
use super::parts::{self, Parts};
use super::recovery::{Hands, in_parallel};
use super::slots::{ChunkKind, Databases, numbers_of, seed_in, take_index};
use crate::Engine;
use crate::residency;
use crate::scripts::libraries;
use crate::snapshot;
use ::log::Checkpoint;
use keyspace::{DbIndex, SLOTS, Slot, Stamp};
use std::io;
use std::sync::Arc;
use value::rdb::file::EntryReader;

/// Chunks that stand before all slots, and have to be loaded before them.
const FIRST_CHUNKS: usize = 2;

/// Which chunk says which databases there were.
const DATABASES_AT: u64 = 1;

/// A checkpoint that is loaded.
pub struct Copied<'c> {
    pub engine: &'c Arc<Engine>,
    pub checkpoint: &'c Checkpoint,
    /// None in one of an older version: its slots name databases as commands did.
    databases: Option<Databases>,
    parts: Parts,
}

impl<'c> Copied<'c> {
    /// One that is about to be loaded.
    ///
    /// # Errors
    /// If it cannot be read, or is not right.
    pub fn open(engine: &'c Arc<Engine>, checkpoint: &'c Checkpoint) -> io::Result<Copied<'c>> {
        let databases = databases_in(checkpoint)?;
        Ok(Copied { engine, checkpoint, databases, parts: Parts::default() })
    }

    /// Puts everything in its place.
    ///
    /// # Errors
    /// If it cannot be read, or holds what does not belong here.
    pub fn load(&self, hands: Hands) -> io::Result<()> {
        for _ in 0..FIRST_CHUNKS {
            self.load_chunk(hands.entrant(0))?;
        }
        in_parallel(hands.threads(), |thread| {
            while self.load_chunk(hands.entrant(thread))? {}
            Ok(())
        })?;
        in_parallel(hands.threads(), |thread| {
            while let Some(of_slot) = self.parts.take() {
                let requests = parts::load(self, hands.entrant(thread), &of_slot)?;
                self.engine.durability.loading.note(0, 0, requests);
            }
            Ok(())
        })
    }

    /// Where what is in a chunk of this database belongs. None: there is no such database here.
    pub fn db(&self, number: u32) -> Option<DbIndex> {
        named(self.databases.as_ref(), number).filter(|db| db.0 < self.engine.keyspace.databases())
    }

    /// Loads the next chunk. False: there is none.
    fn load_chunk(&self, worker: usize) -> io::Result<bool> {
        let Some((place, chunk)) = self.checkpoint.next_placed_chunk().map_err(io::Error::other)? else {
            return Ok(false);
        };
        let engine = self.engine;
        let has_store = engine.residency.store().is_some();
        if databases::needed_by(&chunk, self.databases.as_ref()) > engine.keyspace.databases() {
            return Err(TooFew.into());
        }
        let mut library = Ok(());
        let keys = ChunkKind::of(&chunk).and_then(|(kind, body)| match kind {
            ChunkKind::Slots => self.load_slots(worker, body, false),
            ChunkKind::Index if has_store => self.load_slots(worker, body, true),
            // The stamps are of slots, and a key's slot must be the one that it had.
            ChunkKind::Seed => (seed_in(&chunk) == Some(engine.hash_seed)).then_some(0),
            ChunkKind::Databases => self.restore_databases(),
            ChunkKind::Numbers => engine.keyspace.restore_numbers(&numbers_of(body)?).then_some(0),
            ChunkKind::Library => {
                library = libraries::load(engine, body);
                Some(0)
            }
            // They are put together when all are known.
            ChunkKind::Part => self.parts.note(place, body).map(|()| 0),
            // It was opened with this.
            ChunkKind::Store if has_store => Some(0),
            ChunkKind::Index | ChunkKind::Store => None,
        });
        let keys = keys.ok_or_else(|| unreadable(self.checkpoint))?;
        library.map_err(|line| {
            let (path, line) = (self.checkpoint.path().display(), String::from_utf8_lossy(&line));
            io::Error::other(format!("a library of functions in {path} cannot be loaded: {line}"))
        })?;
        engine.durability.loading.note(chunk.len() as u64, keys, 0);
        engine.fail_start_if_ending()?;
        Ok(true)
    }

    /// Gives the databases the numbers by which a store knows them. Without one any numbers do, and there may be fewer databases than
    /// there were, as long as they hold everything.
    fn restore_databases(&self) -> Option<u64> {
        let Databases { has_store, numbers } = self.databases.as_ref()?;
        (!has_store || self.engine.keyspace.restore_numbers(numbers)).then_some(0)
    }

    /// Puts the slots of a chunk in their places; gives how many keys they have. None: they are not right.
    fn load_slots(&self, worker: usize, body: &[u8], has_index: bool) -> Option<u64> {
        let engine = self.engine;
        let (number, mut rest) = body.split_first_chunk::<4>()?;
        let db = self.db(u32::from_le_bytes(*number))?;
        let thresholds = engine.settings.thresholds();
        let now = engine.clock.now();
        let mut keys = 0;
        while !rest.is_empty() {
            residency::wait_for_room(engine);
            let batch = engine.keyspace.enter(worker);
            let (slot, after) = rest.split_first_chunk::<2>()?;
            let (stamp, after) = after.split_first_chunk::<8>()?;
            let (bytes, after) = after.split_first_chunk::<8>()?;
            let bytes = usize::try_from(u64::from_le_bytes(*bytes)).ok()?;
            let (mut body, slot) = (after.get(..bytes)?, Slot(u16::from_le_bytes(*slot)));
            rest = &after[bytes..];
            if usize::from(slot.0) >= SLOTS {
                return None;
            }
            if has_index {
                let mut index = take_index(&mut body)?;
                keys += index.words.len() as u64;
                batch.restore_index(db, slot, &mut index);
            }
            let mut entries = EntryReader::new(body);
            while let Some(entry) = entries.next_entry(&thresholds).ok()? {
                snapshot::put(&batch, db, entry, now);
                keys += 1;
            }
            // What cannot be read back cannot be replaced.
            batch.take_unreadable().is_none().then_some(())?;
            batch.restore_stamp(db, slot, Stamp(u64::from_le_bytes(*stamp)));
        }
        Some(keys)
    }
}

/// The database that slots name by this number in a checkpoint with these. None: no database has it.
pub fn named(databases: Option<&Databases>, number: u32) -> Option<DbIndex> {
    match databases {
        None => Some(DbIndex(number)),
        Some(databases) => databases.named(number),
    }
}

/// The databases as they were when a checkpoint began; None if it is of an older version.
///
/// # Errors
/// If it cannot be read, or is not right.
pub fn databases_in(checkpoint: &Checkpoint) -> io::Result<Option<Databases>> {
    let chunk = checkpoint.chunk(DATABASES_AT).map_err(io::Error::other)?;
    match chunk.as_deref().and_then(ChunkKind::of) {
        Some((ChunkKind::Databases, body)) => {
            Databases::of(body).map(Some).ok_or_else(|| unreadable(checkpoint))
        }
        _ => Ok(None),
    }
}

fn unreadable(checkpoint: &Checkpoint) -> io::Error {
    io::Error::other(format!("{} holds what this version cannot read", checkpoint.path().display()))
}
