//! The cleaner: writes anew what lives in segments that are mostly dead, so that these can be used again.
//!
//! It runs in the spiller's thread, a segment at a time, when more is dead than the store should hold. It has the turn meanwhile (see
//! [`super::outbox`]).

use super::for_each_slot;
use crate::Engine;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use store::{Chunk, Found, OwnedRecord, PageNo, Record, Room, SegmentNo, Store};

/// Cleans a segment if the store wants it.
///
/// # Errors
/// If the disk refuses; what was to be moved lies where it was.
pub(super) fn clean_if_due(engine: &Engine, store: &Store) -> io::Result<()> {
    // While the index is loaded, nobody knows what lives.
    let is_due = engine.residency.is_loaded.load(Ordering::Acquire) && store.wants_cleaning();
    if is_due { clean(engine, store) } else { Ok(()) }
}

/// Cleans the segment that is worth most, if what lives there takes no more than so much of the disk. Whether it did.
///
/// # Errors
/// If the disk refuses; what was to be moved lies where it was.
pub(super) fn clean_within(engine: &Engine, store: &Store, bytes: u64) -> io::Result<bool> {
    let is_loaded = engine.residency.is_loaded.load(Ordering::Acquire);
    let victim = store.victim().filter(|victim| is_loaded && store.live_bytes_of(*victim) <= bytes);
    victim.map_or(Ok(false), |_| clean(engine, store).map(|()| true))
}

/// Cleans the segment that is worth most.
///
/// # Errors
/// If the disk refuses; what was to be moved lies where it was.
pub(super) fn clean(engine: &Engine, store: &Store) -> io::Result<()> {
    // A copy that is written while its object does not say so yet would count as dead.
    let _turn = engine.residency.turn.lock();
    if !engine.residency.is_loaded.load(Ordering::Acquire) {
        return Ok(());
    }
    let Some(victim) = store.victim() else { return Ok(()) };
    Cleaner { engine, store, chunk: None, moving: Vec::new(), keys_in_page: Vec::new() }.clean(victim)?;
    engine.residency.counts.cleaned_segments.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Counts anew what lives in each segment.
pub(super) fn recount(engine: &Engine, store: &Store) {
    store.forget_counts();
    let note = |at| PageNo::new(at).into_iter().for_each(|page| store.note_live(page));
    for_each_slot(engine, |batch, db, slot| batch.places(db, slot, note));
}

struct Cleaner<'s> {
    engine: &'s Engine,
    store: &'s Store,
    /// With the class of what it takes.
    chunk: Option<(bool, Chunk)>,
    moving: Vec<Moving>,
    /// The keys that were put into the page last used.
    keys_in_page: Vec<(u32, PageNo, Vec<u8>)>,
}

/// A record that was copied.
struct Moving {
    database: u32,
    key: Vec<u8>,
    from: PageNo,
    to: PageNo,
}

impl Cleaner<'_> {
    fn clean(&mut self, victim: SegmentNo) -> io::Result<()> {
        let mut result = Ok(());
        let damages = self.store.records_of(victim, |page, found| {
            result = self.keep(page, found);
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        result?;
        let damages = damages.map_err(io::Error::other)?;
        self.write()?;
        match damages.into_iter().next() {
            Some(damage) => Err(io::Error::other(damage)),
            None => {
                self.store.retire(victim);
                Ok(())
            }
        }
    }

    /// Copies a record if it lives.
    fn keep(&mut self, page: PageNo, found: Found<'_>) -> io::Result<()> {
        match found {
            Found::Here(record) if self.lives(record.database, record.key, page) => self.copy(page, &record),
            Found::Here(_) => Ok(()),
            Found::Continues(rest) => {
                if rest.key().is_some_and(|key| !self.lives(rest.database(), key, page)) {
                    return Ok(());
                }
                let record: OwnedRecord = self.store.read_rest(rest).map_err(io::Error::other)?;
                match self.lives(record.database, &record.key, page) {
                    true => self.copy(page, &record.as_record()),
                    false => Ok(()),
                }
            }
        }
    }

    fn lives(&self, database: u32, key: &[u8], page: PageNo) -> bool {
        self.engine.keyspace.enter(self.engine.spiller_guest()).lies_at(database, key, page.get())
    }

    fn copy(&mut self, from: PageNo, record: &Record<'_>) -> io::Result<()> {
        let to = match self.store.room_for(record) {
            Room::Parts => self.store.write_parts(record)?,
            Room::TooLong => unreachable!("what was written can be written"),
            room => self.add(record, room)?,
        };
        if self.looks_like_another(record, to) {
            let batch = self.engine.keyspace.enter(self.engine.spiller_guest());
            batch.recall(record.database, record.key, from.get()).map_err(io::Error::other)?;
        }
        let (database, key) = (record.database, record.key.to_vec());
        self.keys_in_page.push((database, to, key.clone()));
        self.moving.push(Moving { database, key, from, to });
        Ok(())
    }

    /// Whether a key in the same page could not be told apart from this one.
    fn looks_like_another(&self, record: &Record<'_>, to: PageNo) -> bool {
        let batch = self.engine.keyspace.enter(self.engine.spiller_guest());
        let mut in_page = self
            .keys_in_page
            .iter()
            .filter(|(database, page, _)| (*database, *page) == (record.database, to));
        in_page.any(|(_, _, key)| batch.look_alike(key, record.key))
    }

    fn add(&mut self, record: &Record<'_>, room: Room) -> io::Result<PageNo> {
        let is_large = room != Room::Small;
        let chunk = self.chunk.as_mut().filter(|(takes_large, _)| *takes_large == is_large);
        if let Some(page) = chunk.and_then(|(_, chunk)| chunk.add(record)) {
            return Ok(page);
        }
        self.write()?;
        let (_, chunk) = self.chunk.insert((is_large, self.store.chunk(room)?));
        Ok(chunk.add(record).expect("the chunk was made for it"))
    }

    /// Writes what was copied, and says where it lies now.
    fn write(&mut self) -> io::Result<()> {
        if let Some((_, chunk)) = self.chunk.take() {
            chunk.write()?;
        }
        self.keys_in_page.clear();
        let counts = &self.engine.residency.counts;
        counts.cleaned_records.fetch_add(self.moving.len() as u64, Ordering::Relaxed);
        for Moving { database, key, from, to } in self.moving.drain(..) {
            let batch = self.engine.keyspace.enter(self.engine.spiller_guest());
            if !batch.move_kept(database, &key, from.get(), to.get()) {
                self.store.note_dead(to);
            }
        }
        Ok(())
    }
}
