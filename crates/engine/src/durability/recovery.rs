//! Brings the keyspace to where the log ends: the checkpoint's slots, then the log's records over them.
//!
//! As many threads as there are workers. Each takes chunks of the checkpoint; then each reads the whole log and applies the
//! effects on keys of its own slots. What concerns two keys, or whole databases, is applied by one of them, while the others wait
//! before it ([`Crossing`]).
//!
//! The databases are those of the checkpoint's beginning, whose exchanges (SWAPDB) are in the log like all else: from then on the
//! number in a record means what it meant when that was written.
//!
//! Invariants:
//! 1. A slot's effects are applied in the order of the log, those left out that its copy in the checkpoint holds.
//! 2. An effect that fails, or whose key cannot be told, means that state and log do not belong together: the start is refused.
//! 3. Nothing that was judged when it was executed is judged again: neither sizes nor rights nor directives.

use super::apply::{Applier, OnDatabases, Refusal, database, placed};
use super::copied::Copied;
use super::crossing::Crossing;
use super::databases::{self, TooFew};
use crate::Engine;
use crate::residency::{self, ReadAhead};
use ::log::{Checkpoint, Record, Recovery};
use command::effects::Scope;
use command::execute;
use command::table::{self, Command, Runs};
use keyspace::{DbIndex, Key, NO_TIME_IS_UP, Slot, Stamp};
use script::limits::STACK_BYTES;
use std::io;
use std::sync::{Arc, OnceLock};
use wire::{Authenticated, Limits, Parser, Request};

/// What the log holds was bounded when it was executed.
pub(super) const UNLIMITED: Limits = Limits { bulk_bytes_max: u64::MAX, authenticated: Authenticated::Yes };

/// Who brings the keyspace to where the log ends.
#[derive(Clone, Copy, Debug)]
pub enum Hands {
    /// The workers numbered below this, which do not run yet.
    Workers(usize),
    /// One guest, beside workers that let no client in.
    Guest(usize),
}

impl Hands {
    pub fn threads(self) -> usize {
        match self {
            Hands::Workers(threads) => threads,
            Hands::Guest(_) => 1,
        }
    }

    /// The number under which a thread enters the keyspace.
    pub fn entrant(self, thread: usize) -> usize {
        match self {
            Hands::Workers(_) => thread,
            Hands::Guest(guest) => guest,
        }
    }
}

/// Fills the empty keyspace.
///
/// # Errors
/// One sentence for the operator.
pub fn recover(engine: &Arc<Engine>, recovery: &Recovery, hands: Hands) -> io::Result<()> {
    recover_by(engine, recovery, hands).map_err(|error| databases::explained(engine, recovery, error))
}

fn recover_by(engine: &Arc<Engine>, recovery: &Recovery, hands: Hands) -> io::Result<()> {
    let checkpoint_bytes = recovery.checkpoint().map_or(0, Checkpoint::bytes);
    let log_bytes = recovery.end().0 - recovery.start().0;
    engine.durability.loading.begin(checkpoint_bytes + log_bytes);
    if let Some(checkpoint) = recovery.checkpoint() {
        Copied::open(engine, checkpoint)?.load(hands)?;
    }
    let crossing = Crossing::new(hands.threads());
    let played = in_parallel(hands.threads(), |worker| {
        Player::new(engine, worker, hands, &crossing).play(recovery).map_err(|error| crossing.give_up(error))
    });
    crossing.cause().map_or(played, Err)
}

/// Runs `work` for every worker's number, each on a thread of its own: all of them, since they may wait for each other, or none. The error
/// of the lowest number counts.
pub(super) fn in_parallel(threads: usize, work: impl Fn(usize) -> io::Result<()> + Sync) -> io::Result<()> {
    let are_all_there = OnceLock::new();
    std::thread::scope(|scope| {
        let (work, are_all_there) = (&work, &are_all_there);
        let start = |worker| {
            // The log may hold scripts.
            let thread =
                std::thread::Builder::new().name(format!("recover-{worker}")).stack_size(STACK_BYTES);
            thread.spawn_scoped(scope, move || if *are_all_there.wait() { work(worker) } else { Ok(()) })
        };
        let running: io::Result<Vec<_>> = (0..threads).map(start).collect();
        are_all_there.get_or_init(|| running.is_ok());
        running
            .map_err(|error| io::Error::new(error.kind(), format!("cannot begin a thread: {error}")))?
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Replays the part of one thread.
struct Player<'s> {
    engine: &'s Engine,
    applier: Applier<'s>,
    worker: usize,
    entrant: usize,
    threads: usize,
    crossing: &'s Crossing,
    parser: Parser,
    requests: wire::Batch,
    /// Slots that the record at hand has changed. They get its stamp behind it: until then, a stamp tells only what was there
    /// before the record.
    changed: Vec<(DbIndex, Slot)>,
    applied: u64,
    ahead: Option<ReadAhead<'s>>,
}

impl<'s> Player<'s> {
    fn new(engine: &'s Arc<Engine>, worker: usize, hands: Hands, crossing: &'s Crossing) -> Player<'s> {
        let entrant = hands.entrant(worker);
        Player {
            engine,
            applier: Applier::new(engine, entrant),
            worker,
            entrant,
            threads: hands.threads(),
            crossing,
            parser: Parser::new(),
            requests: wire::Batch::new(),
            changed: Vec::new(),
            applied: 0,
            ahead: ReadAhead::new(engine, entrant),
        }
    }

    fn play(mut self, recovery: &Recovery) -> io::Result<()> {
        let mut blocks = recovery.replay();
        while let Some(block) = blocks.next_block().map_err(io::Error::other)? {
            // Where the log is read up to a place before its end, a block may go on.
            let records = || block.records().take_while(|record| record.end() <= recovery.end());
            for record in records() {
                self.look_ahead(&record);
            }
            self.ahead.as_mut().into_iter().for_each(ReadAhead::read);
            for record in records() {
                self.record(&record)?;
            }
            // All threads read all blocks.
            let bytes = if self.worker == 0 { block.end().0 - block.lsn().0 } else { 0 };
            self.engine.durability.loading.note(bytes, 0, std::mem::take(&mut self.applied));
            self.engine.fail_start_if_ending()?;
        }
        Ok(())
    }

    /// Has the keys of this thread read that a record needs and that are on disk only. What cannot be told ahead is read later.
    fn look_ahead(&mut self, record: &Record<'_>) {
        let Some(ahead) = &mut self.ahead else { return };
        residency::wait_for_room(self.engine);
        self.requests.clear();
        let parsed = self.parser.parse(record.payload, &UNLIMITED, &mut self.requests, usize::MAX);
        if parsed.is_err() || record.database >= self.engine.keyspace.databases() {
            return;
        }
        for effect in self.requests.iter(record.payload) {
            let Some((command, scope)) = known(&effect) else { continue };
            let Some(position) = scope.key_position(&command.row, &effect) else { continue };
            let key = self.engine.keyspace.key(DbIndex(record.database), effect.arg(position));
            if usize::from(key.slot.0) % self.threads == self.worker {
                let batch = self.engine.keyspace.enter(self.entrant);
                let is_due = batch.stamp_of(&key) < Stamp(record.end().0);
                let cold = batch.find_cold(&key, execute::purpose(&command.row, &effect)).filter(|_| is_due);
                drop(batch);
                cold.into_iter().for_each(|cold| ahead.want(cold));
            }
        }
    }

    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        let wrong = |what: &dyn std::fmt::Display| {
            io::Error::other(format!("The log cannot be replayed: at LSN {}, {what}", record.lsn.0))
        };
        self.requests.clear();
        let parsed = self.parser.parse(record.payload, &UNLIMITED, &mut self.requests, usize::MAX);
        if parsed.ok() != Some(record.payload.len()) {
            return Err(wrong(&"a record is not made of requests"));
        }
        let mut db = DbIndex(record.database);
        let requests = std::mem::take(&mut self.requests);
        for effect in requests.iter(record.payload) {
            residency::wait_for_room(self.engine);
            let applied = self.effect(db, record, &effect).map_err(|refusal| match refusal {
                Refusal::Database(_) => TooFew.into(),
                refusal => wrong(&refusal),
            });
            match applied? {
                Next::In(next) => db = next,
                Next::GivenUp => return Err(wrong(&"the replay was given up")),
            }
        }
        self.requests = requests;
        if !self.changed.is_empty() {
            let batch = self.engine.keyspace.enter(self.entrant);
            let end = Stamp(record.end().0);
            self.changed.drain(..).for_each(|(db, slot)| batch.restore_stamp(db, slot, end));
        }
        Ok(())
    }

    /// Applies an effect if it is this thread's; says where the next one is.
    fn effect(&mut self, db: DbIndex, record: &Record<'_>, effect: &Request<'_>) -> Result<Next, Refusal> {
        if db.0 >= self.engine.keyspace.databases() {
            return Err(Refusal::Database(db.0.to_string()));
        }
        let (command, scope) = known(effect).ok_or_else(|| Refusal::unknown(effect))?;
        match scope {
            Scope::Key(_) | Scope::OnlyKey => {
                self.on_key(db, record, (command, scope), effect)?;
            }
            Scope::Transfer => return self.transfer(db, record, command, effect),
            Scope::Selection if effect.len() == 2 => {
                return database(self.engine, effect.arg(1)).map(Next::In);
            }
            Scope::Selection => return Err(Refusal::Arity(command.row.name)),
            Scope::Databases => {
                let what = OnDatabases::of(self.engine, db, effect)?;
                let end = Stamp(record.end().0);
                let applier = &self.applier;
                let crossed = self.crossing.cross(self.worker, || {
                    applier.on_databases(what, record.time, end);
                    Ok(())
                })?;
                if !crossed {
                    return Ok(Next::GivenUp);
                }
                self.follow(what);
            }
            Scope::Libraries => {
                let applier = &self.applier;
                if !self.crossing.cross(self.worker, || applier.libraries(command, effect))? {
                    return Ok(Next::GivenUp);
                }
            }
        }
        Ok(Next::In(db))
    }

    fn on_key(
        &mut self,
        db: DbIndex,
        record: &Record<'_>,
        (command, scope): (&'static Command, Scope),
        effect: &Request<'_>,
    ) -> Result<(), Refusal> {
        let Runs::Data(row) = command.row.handler else { return Err(Refusal::unknown(effect)) };
        let position = scope.key_position(row, effect).ok_or(Refusal::NoKey(row.name))?;
        let key = self.engine.keyspace.key(db, effect.arg(position));
        if usize::from(key.slot.0) % self.threads != self.worker {
            return Ok(());
        }
        let mut batch = self.applier.enter();
        // The slot's copy in the checkpoint holds it.
        if batch.stamp_of(&key) >= Stamp(record.end().0) {
            return Ok(());
        }
        // A master elsewhere has said what went, and when.
        let now = if record.is_followed { NO_TIME_IS_UP } else { record.time };
        self.applier.on_key(&mut batch, row, (db, now), effect)?;
        self.applied += 1;
        self.changed.push((db, key.slot));
        Ok(())
    }

    /// Applies an effect on two keys: all threads have come as far, so that both are as they were.
    fn transfer(
        &mut self,
        db: DbIndex,
        record: &Record<'_>,
        command: &'static Command,
        effect: &Request<'_>,
    ) -> Result<Next, Refusal> {
        let Runs::Data(row) = command.row.handler else { return Err(Refusal::unknown(effect)) };
        let placed = placed(self.engine, db, row, effect)?;
        let (end, applier) = (Stamp(record.end().0), &self.applier);
        if !self.crossing.cross(self.worker, || applier.transfer(row, &placed, end))? {
            return Ok(Next::GivenUp);
        }
        self.applied += u64::from(self.worker == 0);
        // Each thread stamps its own slots.
        let batch = self.applier.enter();
        let (_, keys) = placed;
        let is_own = |key: &Key<'_>| usize::from(key.slot.0) % self.threads == self.worker;
        let changed = keys.iter().filter(|key| is_own(key) && batch.stamp_of(key) < end);
        self.changed.extend(changed.map(|key| (key.db, key.slot)));
        Ok(Next::In(db))
    }

    /// Keeps what the record has changed in view when it exchanges two databases.
    fn follow(&mut self, what: OnDatabases) {
        let OnDatabases::Swap(one, other) = what else { return };
        for (db, _) in &mut self.changed {
            *db = match *db {
                db if db == one => other,
                db if db == other => one,
                db => db,
            };
        }
    }
}

/// What comes behind an effect.
enum Next {
    /// Another one, in this database.
    In(DbIndex),
    /// Nothing: another thread has failed, and tells why.
    GivenUp,
}

/// The command of an effect, and what it concerns. None: no log holds such a thing.
#[inline]
fn known(effect: &Request<'_>) -> Option<(&'static Command, Scope)> {
    let command = table::find_for(effect)?;
    command.effect.map(|scope| (command, scope))
}
