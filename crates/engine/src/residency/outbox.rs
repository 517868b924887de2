//! Copies of objects on their way to the store: gathered slot by slot in chunks, written, and then the objects let go, or told where they
//! lie.
//!
//! Thread rule: whoever has copies on their way has the turn, from the first until they are written and their objects say so: the
//! spiller, or a checkpoint's thread. Nobody else has copies on their way, and no segment is cleaned meanwhile.

use crate::Engine;
use keyspace::Slot;
use keyspace::residency::spill::{Aim, Carrier, Copied, Fate, Spilled, Sweep};
use parking_lot::MutexGuard;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use store::{Chunk, Image, PageNo, Record, Room, Store};

/// What is gathered, and by whom.
pub struct Outbox<'s> {
    engine: &'s Engine,
    guest: usize,
    sweep: Sweep,
    gathered: Gathered<'s>,
    turn: Option<MutexGuard<'s, ()>>,
    /// See [`Outbox::take_waited`].
    waited: Duration,
}

/// Chunks that are being filled.
struct Gathered<'s> {
    engine: &'s Engine,
    store: &'s Store,
    small: Option<Chunk>,
    large: Vec<Chunk>,
    refusal: Option<io::Error>,
    /// Whether nothing is taken, since the disk has refused.
    is_closed: bool,
}

impl<'s> Outbox<'s> {
    /// An empty one, for a guest of the keyspace.
    pub fn new(engine: &'s Engine, store: &'s Store, guest: usize, aim: Aim) -> Outbox<'s> {
        let gathered =
            Gathered { engine, store, small: None, large: Vec::new(), refusal: None, is_closed: false };
        Outbox { engine, guest, sweep: Sweep::new(aim), gathered, turn: None, waited: Duration::ZERO }
    }

    /// What it does with objects from now on. Nothing may be on its way.
    pub fn set_aim(&mut self, aim: Aim) {
        debug_assert!(!self.sweep.has_leaving());
        self.sweep.aim = aim;
    }

    /// Takes no copies from now on, or takes them again: while it does not, only what lies on disk goes.
    pub fn set_closed(&mut self, is_closed: bool) {
        self.gathered.is_closed = is_closed;
    }

    /// Looks at a slot of a database (by its constant number). What is on its way has to be [written](Outbox::write) before the same slot's next turn; if it says that it is
    /// full, it has been, and the slot is not at its end.
    ///
    /// # Errors
    /// If the disk refuses; nothing is on its way then.
    pub fn take(&mut self, db: u32, slot: Slot) -> io::Result<Spilled> {
        let asked = Instant::now();
        self.turn.get_or_insert_with(|| self.engine.residency.turn.lock());
        let spilled = {
            let batch = self.engine.keyspace.enter(self.guest);
            self.waited += asked.elapsed();
            batch.spill(db, slot, &mut self.sweep, &mut self.gathered)
        };
        let refusal = self.gathered.refusal.take();
        if spilled.is_full || refusal.is_some() {
            self.write()?;
        }
        refusal.map_or(Ok(spilled), Err)
    }

    /// Whether what lies at a place can be read.
    pub fn is_written(&self, at: u32) -> bool {
        self.gathered.is_written(at)
    }

    /// How long it has waited for its turn, for the keyspace and for slots since this was last asked: nobody was held up by that.
    pub fn take_waited(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }

    /// Writes what was gathered, and lets go of it.
    ///
    /// # Errors
    /// If the disk refuses; the objects stay in memory.
    pub fn write(&mut self) -> io::Result<()> {
        let written = self.gathered.write();
        if self.sweep.has_leaving() {
            let asked = Instant::now();
            let batch = self.engine.keyspace.enter(self.guest);
            self.waited += asked.elapsed();
            self.waited += batch.let_go(&mut self.sweep, written.is_ok());
        }
        self.turn.take().into_iter().for_each(MutexGuard::unlock_fair);
        written
    }
}

impl Carrier for Gathered<'_> {
    fn is_written(&self, at: u32) -> bool {
        PageNo::new(at).is_some_and(|page| self.store.is_written(page))
    }

    fn take(&mut self, copied: Copied<'_>) -> Fate {
        if self.is_closed {
            return Fate::Stays;
        }
        let Copied { db: database, key, expires_at, image } = copied;
        let record = Record { database, key, expires_at, kind: 0, flags: 0, image: Image::Plain(image) };
        let page = match self.store.room_for(&record) {
            Room::Small => self.add_small(&record),
            room @ Room::Large { .. } => self.add_large(&record, room),
            Room::Parts => self.store.write_parts(&record).map(Some),
            Room::TooLong => return Fate::Stays,
        };
        match page {
            Ok(Some(page)) => {
                let bytes = (key.len() + image.len()) as u64;
                self.engine.residency.counts.image_bytes.fetch_add(bytes, Ordering::Relaxed);
                Fate::LeavesTo(page.get())
            }
            Ok(None) => Fate::Waits,
            Err(error) => {
                self.refusal = Some(error);
                Fate::Waits
            }
        }
    }
}

impl Gathered<'_> {
    fn add_small(&mut self, record: &Record<'_>) -> io::Result<Option<PageNo>> {
        let chunk = match &mut self.small {
            Some(chunk) => chunk,
            none => none.insert(self.store.chunk(Room::Small)?),
        };
        Ok(chunk.add(record))
    }

    /// Large records are written some at a time, so that their memory is bounded.
    fn add_large(&mut self, record: &Record<'_>, room: Room) -> io::Result<Option<PageNo>> {
        const LARGE_CHUNKS_MAX: usize = 8;
        if let Some(page) = self.large.last_mut().and_then(|chunk| chunk.add(record)) {
            return Ok(Some(page));
        }
        if self.large.len() >= LARGE_CHUNKS_MAX {
            return Ok(None);
        }
        let mut chunk = self.store.chunk(room)?;
        let page = chunk.add(record);
        self.large.push(chunk);
        Ok(page)
    }

    fn write(&mut self) -> io::Result<()> {
        let chunks = self.small.take().into_iter().chain(self.large.drain(..));
        chunks.map(Chunk::write).fold(Ok(()), Result::and)
    }
}
