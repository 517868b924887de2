//! Brings the keyspace to where the log ends: the checkpoint's slots, then the log's records over them.
//!
//! As many threads as there are workers. Each takes chunks of the checkpoint; then each reads the whole log and runs the
//! requests on keys of its own slots. What concerns whole databases is run by one of them, while the others wait
//! before it ([`Crossing`]).
//!
//! Invariants:
//! 1. A slot's requests run in the order of the log, those left out that its copy in the checkpoint holds.
//! 2. A request that fails means that state and log do not belong together: the start is refused.

use super::slots::{ChunkKind, numbers_of, seed_in, take_index};
use crate::commands::scripting::load_library;
use crate::dispatch::table;
use crate::replay::{Rejection, Replay};
use crate::residency::{self, ReadAhead};
use crate::server::Server;
use crate::snapshot;
use crate::start::STACK_BYTES;
use ::log::{Checkpoint, Record, Recovery};
use command::execute;
use keyspace::{DbIndex, Key, SLOTS, Slot, Stamp, Touch};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use sys::UnixMs;
use value::number::parse_i64;
use value::rdb::file::EntryReader;
use wire::{Limits, Parser, Request};

/// Fills the empty keyspace, by the workers numbered below `threads`.
///
/// # Errors
/// One sentence for the operator.
pub fn recover(server: &Arc<Server>, recovery: &Recovery, threads: usize) -> io::Result<()> {
    let checkpoint_bytes = recovery.checkpoint().map_or(0, Checkpoint::bytes);
    let log_bytes = recovery.end().0 - recovery.start().0;
    server.durability.loading.begin(checkpoint_bytes + log_bytes);
    if let Some(checkpoint) = recovery.checkpoint() {
        for _ in 0..FIRST_CHUNKS {
            load_chunk(server, checkpoint, 0)?;
        }
        in_parallel(threads, |worker| {
            while load_chunk(server, checkpoint, worker)? {}
            Ok(())
        })?;
    }
    let crossing = Crossing::new(threads);
    in_parallel(threads, |worker| {
        Player::new(server, worker, threads, &crossing).play(recovery).inspect_err(|_| crossing.give_up())
    })
}

/// Runs `work` for every worker's number, each on a thread of its own. The first error counts.
fn in_parallel(threads: usize, work: impl Fn(usize) -> io::Result<()> + Sync) -> io::Result<()> {
    std::thread::scope(|scope| {
        let work = &work;
        let start = |worker| {
            // The log may hold scripts.
            let thread =
                std::thread::Builder::new().name(format!("recover-{worker}")).stack_size(STACK_BYTES);
            thread.spawn_scoped(scope, move || work(worker)).expect("the system gives a start its threads")
        };
        let running: Vec<_> = (0..threads).map(start).collect();
        running
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Chunks that stand before all slots, and have to be loaded before them.
const FIRST_CHUNKS: usize = 2;

/// Loads the next chunk of a checkpoint. False: there is none.
fn load_chunk(server: &Server, checkpoint: &Checkpoint, worker: usize) -> io::Result<bool> {
    let Some(chunk) = checkpoint.next_chunk().map_err(io::Error::other)? else { return Ok(false) };
    let has_store = server.residency.store().is_some();
    let keys = ChunkKind::of(&chunk).and_then(|(kind, body)| match kind {
        ChunkKind::Slots => load_slots(server, worker, body, false),
        ChunkKind::Index if has_store => load_slots(server, worker, body, true),
        // The stamps are of slots, and a key's slot must be the one that it had.
        ChunkKind::Seed => (seed_in(&chunk) == Some(server.hash_seed)).then_some(0),
        ChunkKind::Numbers => server.keyspace.restore_numbers(&numbers_of(body)?).then_some(0),
        ChunkKind::Library => load_library(server, body).ok().map(|()| 0),
        // It was opened with this.
        ChunkKind::Store if has_store => Some(0),
        ChunkKind::Index | ChunkKind::Store => None,
    });
    let wrong = || format!("{} holds what this version cannot read", checkpoint.path().display());
    let keys = keys.ok_or_else(|| io::Error::other(wrong()))?;
    server.durability.loading.note(chunk.len() as u64, keys, 0);
    server.fail_start_if_ending()?;
    Ok(true)
}

/// Puts the slots of a chunk in their places; gives how many keys they have. None: they are not right.
fn load_slots(server: &Server, worker: usize, body: &[u8], has_index: bool) -> Option<u64> {
    let (db, mut rest) = body.split_first_chunk::<4>()?;
    let db = DbIndex(u32::from_le_bytes(*db));
    if db.0 >= server.keyspace.databases() {
        return None;
    }
    let thresholds = server.settings.thresholds();
    let now = server.clock.now();
    let mut keys = 0;
    while !rest.is_empty() {
        residency::wait_for_room(server);
        let batch = server.keyspace.enter(worker);
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
            snapshot::put(server, &batch, db, entry, now);
            keys += 1;
        }
        // What cannot be read back cannot be replaced.
        batch.take_unreadable().is_none().then_some(())?;
        batch.restore_stamp(db, slot, Stamp(u64::from_le_bytes(*stamp)));
    }
    Some(keys)
}

/// Replays the part of one thread.
struct Player<'s> {
    server: &'s Arc<Server>,
    replay: Replay<'s>,
    worker: usize,
    threads: usize,
    crossing: &'s Crossing,
    parser: Parser,
    requests: wire::Batch,
    /// Slots that the record at hand has changed. They get its stamp behind it: until then, a stamp tells only what was there
    /// before the record.
    changed: Vec<(DbIndex, Slot)>,
    run: u64,
    ahead: Option<ReadAhead<'s>>,
}

impl<'s> Player<'s> {
    fn new(server: &'s Arc<Server>, worker: usize, threads: usize, crossing: &'s Crossing) -> Player<'s> {
        Player {
            server,
            replay: Replay::new(server, worker),
            worker,
            threads,
            crossing,
            parser: Parser::new(),
            requests: wire::Batch::new(),
            changed: Vec::new(),
            run: 0,
            ahead: ReadAhead::new(server, worker),
        }
    }

    fn play(mut self, recovery: &Recovery) -> io::Result<()> {
        let mut blocks = recovery.replay();
        while let Some(block) = blocks.next_block().map_err(io::Error::other)? {
            for record in block.records() {
                self.look_ahead(&record);
            }
            self.ahead.as_mut().into_iter().for_each(ReadAhead::read);
            for record in block.records() {
                self.record(&record)?;
            }
            // All threads read all blocks.
            let bytes = if self.worker == 0 { block.end().0 - block.lsn().0 } else { 0 };
            self.server.durability.loading.note(bytes, 0, std::mem::take(&mut self.run));
            self.server.fail_start_if_ending()?;
        }
        Ok(())
    }

    /// Has the keys of this thread read that a record needs and that are on disk only. What cannot be told ahead is read later.
    fn look_ahead(&mut self, record: &Record<'_>) {
        let Some(ahead) = &mut self.ahead else { return };
        residency::wait_for_room(self.server);
        self.requests.clear();
        let parsed = self.parser.parse(record.payload, &Limits::default(), &mut self.requests, usize::MAX);
        if parsed.is_err() || record.database >= self.server.keyspace.databases() {
            return;
        }
        for request in self.requests.iter(record.payload) {
            let Some(command) = table::find_for(&request) else { continue };
            let first_key = command.first_key;
            if first_key == 0 || first_key >= request.len() {
                continue;
            }
            let key = self.server.keyspace.key(DbIndex(record.database), request.arg(first_key));
            if usize::from(key.slot.0) % self.threads == self.worker {
                let batch = self.server.keyspace.enter(self.worker);
                let is_due = batch.stamp_of(&key) < Stamp(record.end().0);
                let cold = batch.find_cold(&key, execute::purpose(&command.row, &request)).filter(|_| is_due);
                drop(batch);
                cold.into_iter().for_each(|cold| ahead.want(cold));
            }
        }
    }

    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        let wrong = |what: &dyn std::fmt::Display| {
            io::Error::other(format!("The log cannot be replayed: at LSN {}, {what}", record.lsn.0))
        };
        residency::wait_for_room(self.server);
        self.requests.clear();
        let parsed = self.parser.parse(record.payload, &Limits::default(), &mut self.requests, usize::MAX);
        if parsed.ok() != Some(record.payload.len()) {
            return Err(wrong(&"a record is not made of requests"));
        }
        let mut db = DbIndex(record.database);
        let requests = std::mem::take(&mut self.requests);
        for request in requests.iter(record.payload) {
            db = self.request(db, record, &request).map_err(|rejection| wrong(&rejection))?;
        }
        self.requests = requests;
        if !self.changed.is_empty() {
            let batch = self.server.keyspace.enter(self.worker);
            let end = Stamp(record.end().0);
            self.changed.drain(..).for_each(|(db, slot)| batch.restore_stamp(db, slot, end));
        }
        Ok(())
    }

    /// Runs a request if it is this thread's; gives the database of the next.
    fn request(
        &mut self,
        db: DbIndex,
        record: &Record<'_>,
        request: &Request<'_>,
    ) -> Result<DbIndex, Rejection> {
        if db.0 >= self.server.keyspace.databases() {
            return Err(Rejection::Unknown(format!("database {} (see `databases`)", db.0)));
        }
        let end = Stamp(record.end().0);
        let first_key = table::find_for(request).map_or(0, |command| command.first_key);
        if first_key > 0 && first_key < request.len() {
            let key = self.server.keyspace.key(db, request.arg(first_key));
            if usize::from(key.slot.0) % self.threads == self.worker {
                self.on_key(&key, end, record.time, request)?;
            }
            return Ok(db);
        }
        if request.arg(0).eq_ignore_ascii_case(b"select") {
            return self.replay.run(db, record.time, request);
        }
        if !self.crossing.cross(self.worker, || self.on_all(db, end, record.time, request))? {
            // Another thread tells why.
            return Err(Rejection::Unknown("the replay was given up".to_owned()));
        }
        self.follow_swap(request);
        Ok(db)
    }

    fn on_key(
        &mut self,
        key: &Key<'_>,
        end: Stamp,
        now: UnixMs,
        request: &Request<'_>,
    ) -> Result<(), Rejection> {
        if self.server.keyspace.enter(self.worker).stamp_of(key) >= end {
            return Ok(());
        }
        self.replay.run(key.db, now, request)?;
        self.run += 1;
        self.changed.push((key.db, key.slot));
        Ok(())
    }

    /// Keeps what the record has changed in view when it exchanges two databases (SWAPDB).
    fn follow_swap(&mut self, request: &Request<'_>) {
        if self.changed.is_empty() || request.len() != 3 || !request.arg(0).eq_ignore_ascii_case(b"swapdb") {
            return;
        }
        let number = |word: &[u8]| parse_i64(word).and_then(|db| u32::try_from(db).ok()).map(DbIndex);
        let (Some(one), Some(other)) = (number(request.arg(1)), number(request.arg(2))) else { return };
        for (db, _) in &mut self.changed {
            *db = match *db {
                db if db == one => other,
                db if db == other => one,
                db => db,
            };
        }
    }

    /// Runs a request on whole databases, the others waiting.
    fn on_all(
        &mut self,
        db: DbIndex,
        end: Stamp,
        now: UnixMs,
        request: &Request<'_>,
    ) -> Result<(), Rejection> {
        self.run += 1;
        let word = request.arg(0);
        let flushes_all = word.eq_ignore_ascii_case(b"flushall");
        if flushes_all || word.eq_ignore_ascii_case(b"flushdb") {
            // What was copied to the checkpoint later than this stays.
            let mut batch = self.server.keyspace.enter(self.worker);
            let databases = self.server.databases().filter(|one| flushes_all || *one == db);
            batch.exclusively(now, Touch::No, |all| {
                let cleared = databases.map(|one| all.clear_before(one, end)).collect();
                all.free_afterwards(cleared);
            });
            return Ok(());
        }
        self.replay.run(db, now, request).map(|_| ())
    }
}

/// Where all threads meet before one of them does something alone, and after.
struct Crossing {
    threads: usize,
    state: Mutex<Meeting>,
    changed: Condvar,
}

#[derive(Default)]
struct Meeting {
    arrived: usize,
    /// Counts meetings.
    number: u64,
    is_given_up: bool,
}

impl Crossing {
    fn new(threads: usize) -> Crossing {
        Crossing { threads, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits for all, then thread 0 works while the others wait. False: somebody has given up.
    fn cross(&self, thread: usize, work: impl FnOnce() -> Result<(), Rejection>) -> Result<bool, Rejection> {
        if !self.meet() {
            return Ok(false);
        }
        if thread == 0 {
            work().inspect_err(|_| self.give_up())?;
        }
        Ok(self.meet())
    }

    fn meet(&self) -> bool {
        let mut state = self.state.lock();
        let number = state.number;
        state.arrived += 1;
        if state.arrived == self.threads {
            state.arrived = 0;
            state.number += 1;
            self.changed.notify_all();
        }
        while state.number == number && !state.is_given_up {
            self.changed.wait(&mut state);
        }
        !state.is_given_up
    }

    /// Lets nobody wait any more.
    fn give_up(&self) {
        self.state.lock().is_given_up = true;
        self.changed.notify_all();
    }
}
