//! Puts the keys of a copy into the keyspace, or another one beside it, with all cores: one thread takes the file apart, others insert what they are handed.
//!
//! All keys of a slot go to the same thread, in the order of the file, so that no two of them meet at a lock, and a key that a file has
//! twice is what it says last.
//!
//! Thread rule: one thread reads, as many as [`Engine::loading_guests`] has numbers insert. Invariant: what is on the way between them is
//! bounded ([`BATCH_BYTES`], [`BATCHES`]), but for a single value.

use crate::snapshot::put;
use crate::{Engine, residency};
use keyspace::{DbIndex, Keyspace, NO_TIME_IS_UP};
use std::mem;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use value::rdb::file::FileEntry;

/// A batch is handed over when its keys take so much of the file.
const BATCH_BYTES: usize = 32 << 10;

/// Batches that wait for each thread.
const BATCHES: usize = 4;

type Entries = Vec<(DbIndex, FileEntry)>;

/// Those who insert, as the one who reads sees them.
pub struct Loaders<'l> {
    engine: &'l Engine,
    keyspace: &'l Keyspace,
    lanes: Vec<Lane>,
}

struct Lane {
    batch: Entries,
    bytes: usize,
    to: SyncSender<Entries>,
}

/// Runs `read` beside threads that insert what it hands over into a keyspace; all is there when this returns. Where the system gives
/// fewer threads, these do it, and without any who reads.
pub fn with_loaders<T>(engine: &Engine, keyspace: &Keyspace, read: impl FnOnce(&mut Loaders<'_>) -> T) -> T {
    thread::scope(|scope| {
        let lanes = engine.loading_guests().map_while(|guest| {
            let (to, from) = sync_channel(BATCHES);
            let work = move || from.iter().for_each(|entries| insert(engine, (keyspace, guest), entries));
            thread::Builder::new().spawn_scoped(scope, work).ok()?;
            Some(Lane { batch: Vec::new(), bytes: 0, to })
        });
        read(&mut Loaders { engine, keyspace, lanes: lanes.collect() })
    })
}

fn insert(engine: &Engine, (keyspace, guest): (&Keyspace, usize), entries: Entries) {
    residency::wait_for_room(engine);
    for (db, entry) in entries {
        // All of it is the master's, who says what goes.
        put(&keyspace.enter(guest), db, entry, NO_TIME_IS_UP);
    }
}

impl Loaders<'_> {
    /// Takes a key.
    pub fn take(&mut self, db: DbIndex, entry: FileEntry) {
        let count = self.lanes.len();
        if count == 0 {
            let guest = self.engine.loading_guests().start;
            return insert(self.engine, (self.keyspace, guest), vec![(db, entry)]);
        }
        let slot = self.keyspace.key(db, &entry.key).slot;
        let lane = &mut self.lanes[usize::from(slot.0) % count];
        lane.bytes += entry.file_bytes;
        lane.batch.push((db, entry));
        if lane.bytes >= BATCH_BYTES {
            lane.hand_over();
        }
    }

    /// Hands over what there is yet.
    pub fn finish(&mut self) {
        self.lanes.iter_mut().for_each(Lane::hand_over);
    }
}

impl Lane {
    fn hand_over(&mut self) {
        self.bytes = 0;
        // Whoever inserts ends when this does; a panic of it is seen where the threads are joined.
        let _ = self.to.send(mem::take(&mut self.batch));
    }
}
