//! Does what the master wants, unit by unit: each is in the keyspace and in the log as a whole or not at all.
//!
//! Units that are one short command each, and have come together, are done in one stay in the keyspace, and the memory that they will touch is
//! asked for first. Nobody else sees a difference: each has its keys' locks, and its record, for itself.
//!
//! No check that a client's request passes is made: neither rights nor memory nor limits. What the master did is done; an answer
//! that is an error means that both hold different data: it is told in the log, and in a shard ends the link before it.
//!
//! What a slow script has is not waited for here: the unit is left, and done later. Whoever has the link goes on reporting meanwhile, and looks
//! whether its order is in force.
//!
//! Thread rule: the thread that has the link, in the place of a guest of the keyspace.

use super::link::PATIENCE;
use crate::blocking;
use crate::dispatch::MOMENT_AGE_MAX;
use crate::holders::Claimed;
use crate::replay::{Found, Replay};
use crate::server::Server;
use command::effects::Scope;
use command::execute::{keys_locked, needs_all, purpose, readable};
use command::table::{self, Runs};
use command::{Args, Error, Flags};
use engine::apply::Rejection;
use engine::full_copy::OneMoment;
use engine::{Attention, residency};
use keyspace::{Batch, DbIndex, Holding, Key, NO_TIME_IS_UP, Purpose, Slot, Touch};
use replication::link::limits::RUN_UNITS_MAX;
use replication::link::{Group, Unit, UnitKind, UnitRequest, Words};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};
use sys::{Ticks, UnixMs};
use telemetry::log;
use value::table::position_of;
use wire::{Request, RequestBuf};

/// Errors that are told one by one; of more only now and then.
const ERRORS_TOLD: u64 = 20;

/// How long a unit stands in line for what it needs.
const IN_LINE_MAX: Duration = Duration::from_millis(100);

/// Why a unit is not done: nothing of it is, and it may be tried again.
#[derive(Debug, PartialEq, Eq)]
pub enum Undone {
    /// Somebody has what it needs, and may have it for long.
    HeldUp,
    /// What it needs cannot be read from the store.
    Unreadable(String),
    /// The master has done what cannot be done here, which a member of a shard does not pass over.
    Impossible(String),
}

/// The commands of units that are done together.
type Run<'g> = SmallVec<[Found<'g>; RUN_UNITS_MAX]>;

/// Which steps of a transaction were counted: it may be tried more than once.
#[derive(Default)]
struct Counted {
    /// The offset in front of it.
    begin: u64,
    /// Commands whose keys were looked up ahead.
    looked_at: u64,
    /// Commands that were done.
    done: u64,
}

impl Counted {
    /// How many of these steps were not counted before.
    fn more(counted: &mut u64, steps: u64) -> u64 {
        steps - std::mem::replace(counted, steps.max(*counted)).min(steps)
    }
}

/// Does units of one master's.
pub struct Applier<'s> {
    server: &'s Arc<Server>,
    guest: usize,
    replay: Replay<'s>,
    words: Words,
    /// A unit that takes longer than this makes the moment too old for the next.
    stale_ticks: u64,
    errors: u64,
    counted: Counted,
    /// That the next unit is held up, for those who may hold keys for long.
    claim: Option<Claimed<'s>>,
}

impl<'s> Applier<'s> {
    pub fn new(server: &'s Arc<Server>) -> Applier<'s> {
        let guest = server.engine.following_guest();
        Applier {
            server,
            guest,
            replay: Replay::of_master(server, guest),
            words: Words::default(),
            stale_ticks: server.ticks.ticks_in(MOMENT_AGE_MAX),
            errors: 0,
            counted: Counted::default(),
            claim: None,
        }
    }

    /// Does a unit.
    ///
    /// # Errors
    /// It is left for later.
    pub fn apply(&mut self, unit: &Unit<'_>) -> Result<(), Undone> {
        residency::wait_for_room(&self.server.engine);
        let server = self.server;
        let now = server.engine.clock.now();
        let Some(mut batch) = self.enter() else {
            self.claim(Holding::all);
            return Err(Undone::HeldUp);
        };
        batch.begin_unit(unit.bytes(), DbIndex(unit.end().database), now);
        let mut words = std::mem::take(&mut self.words);
        let done = self.apply_within(&mut batch, unit, &mut words);
        self.words = words;
        match &done {
            Ok(()) => {
                self.claim = None;
                self.end_unit(&mut batch, now);
            }
            Err(_) => batch.take_back_unit(),
        }
        server.tracking.end_batch(&server.net.clients, self.guest);
        done
    }

    /// What a transaction needs is held before the first of its commands, so that none of them is left.
    fn apply_within(
        &mut self,
        batch: &mut Batch<'_>,
        unit: &Unit<'_>,
        words: &mut Words,
    ) -> Result<(), Undone> {
        let (begin, mut done) = (unit.begin().offset, 0);
        if self.counted.begin != begin {
            self.counted = Counted { begin, ..Counted::default() };
        }
        let mut walk = unit.walk(words);
        while let Some(group) = walk.next_group() {
            if unit.kind() == UnitKind::Transaction && !batch.is_holding() {
                match group.is_all {
                    true => self.hold(batch, group)?,
                    false => self.hold_long(batch, unit)?,
                }
            }
            for request in group.commands() {
                self.command(batch, &request)?;
                if unit.kind() == UnitKind::Transaction {
                    done += 1;
                    self.server.following.note_steps(Counted::more(&mut self.counted.done, done));
                }
            }
        }
        Ok(())
    }

    /// Enters the keyspace, unless somebody has all of it for long.
    fn enter(&self) -> Option<Batch<'s>> {
        let (server, began) = (self.server, Instant::now());
        let is_held_for_long =
            || server.engine.attention().contains(Attention::SLOW_SCRIPT) && server.holders.has_all();
        let gives_up = || began.elapsed() >= IN_LINE_MAX || is_held_for_long();
        let mut batch = server.engine.keyspace.enter_unless(self.guest, gives_up)?;
        batch.leave_lines_after(IN_LINE_MAX);
        Some(batch)
    }

    /// Has others wait who would hold the unit up that is held up now.
    #[cold]
    fn claim(&mut self, needs: impl FnOnce() -> Holding) {
        let server = self.server;
        self.claim.get_or_insert_with(|| server.holders.claim(&server.engine, needs()));
    }

    /// Does units that are a command each, in one stay in the keyspace, for as long as `goes_on` says before each. Gives the offset up to which
    /// they are done, and why not the next.
    pub fn apply_run(
        &mut self,
        run: Group<'_>,
        mut goes_on: impl FnMut() -> bool,
    ) -> (u64, Result<(), Undone>) {
        residency::wait_for_room(&self.server.engine);
        let server = self.server;
        let mut now = server.engine.clock.now();
        let Some(mut batch) = self.enter() else {
            if let Some(request) = run.commands().next() {
                self.claim_for(&request);
            }
            return (run.begin(), Err(Undone::HeldUp));
        };
        let db = DbIndex(run.database().unwrap_or_default());
        let is_there = db.0 < server.engine.keyspace.databases();
        // Whose names are others is looked for by these, one by one.
        let is_plain = is_there && !server.names.are_changed();
        let prepared = if is_plain { self.prepare(&batch, db, run) } else { Run::new() };
        let mut tick = server.ticks.now();
        let mut taken_at = tick;
        let (mut done, mut result) = (run.begin(), Ok(()));
        for (index, request) in run.commands().enumerate() {
            if !goes_on() {
                break;
            }
            if tick.0.saturating_sub(taken_at.0) > self.stale_ticks {
                (now, taken_at) = (server.engine.clock.now(), tick);
            }
            batch.begin_unit(request.bytes, db, now);
            result = match prepared.get(index) {
                Some(found) => self.command_found(&mut batch, &request, found, &mut tick),
                None => self.command(&mut batch, &request),
            };
            if result.is_err() {
                batch.take_back_unit();
                break;
            }
            self.claim = None;
            self.end_unit(&mut batch, now);
            done = request.end;
        }
        server.tracking.end_batch(&server.net.clients, self.guest);
        (done, result)
    }

    /// Has a copy of one moment take what a run's commands change; how many of them, from the first on, may be done now.
    pub fn copied_of_run(&self, copy: &OneMoment, run: Group<'_>) -> usize {
        let (mut slots, mut count) = (BTreeSet::new(), 0);
        for request in run.commands() {
            if !self.note_changed(&request, &mut slots) {
                break;
            }
            count += 1;
        }
        match count {
            0 => usize::from(copy.is_over_soon(Duration::ZERO)),
            _ if copy.is_copied(slots.into_iter(), PATIENCE) => count,
            _ => 0,
        }
    }

    /// Has a copy of one moment take what a unit changes. False: it has not by now.
    pub fn is_unit_copied(&mut self, copy: &OneMoment, unit: &Unit<'_>) -> bool {
        let mut words = std::mem::take(&mut self.words);
        let (mut slots, mut are_known) = (BTreeSet::new(), true);
        let mut walk = unit.walk(&mut words);
        while let Some(group) = walk.next_group() {
            are_known &= group.commands().all(|request| self.note_changed(&request, &mut slots));
        }
        self.words = words;
        match are_known {
            true => copy.is_copied(slots.into_iter(), PATIENCE),
            false => copy.is_over_soon(Duration::ZERO),
        }
    }

    /// Notes the slots that a command may change. False: it may change any.
    fn note_changed(&self, request: &UnitRequest<'_>, slots: &mut BTreeSet<(DbIndex, Slot)>) -> bool {
        let engine = &self.server.engine;
        let own = self.own(&request.request);
        let words = own.as_ref().map_or(request.request, RequestBuf::as_request);
        let Some(command) = table::find_for(&words) else { return true };
        match command.row.handler {
            Runs::Data(_) if command.effect == Some(Scope::Databases) => false,
            Runs::Data(row) => {
                if row.accepts(words.len()) && request.database < engine.keyspace.databases() {
                    let place = (DbIndex(request.database), NO_TIME_IS_UP);
                    let mut keys = Vec::new();
                    keys_locked(row, &Args::new(words, &engine.keyspace, place, &engine.settings), &mut keys);
                    slots.extend(keys.iter().map(|key| (key.db, key.slot)));
                }
                true
            }
            // Libraries are in a copy from its beginning.
            Runs::Server(_) => command.effect.is_some() || command.is(Flags::PUBSUB),
        }
    }

    /// Looks up what a run's commands are, and has the memory of their keys fetched, as for those of clients.
    fn prepare<'g>(&self, batch: &Batch<'_>, db: DbIndex, run: Group<'g>) -> Run<'g> {
        let keyspace = &self.server.engine.keyspace;
        let mut prepared = Run::new();
        // Nothing is ahead of a request alone.
        let is_several = run.count() > 1;
        for UnitRequest { request, .. } in run.commands() {
            let found = Found::find(&request);
            let command = found.command;
            let word = |at: usize| request.get(at).filter(|_| at > 0);
            let key = command.and_then(|command| word(command.first_key)).map(|name| keyspace.key(db, name));
            let element = command.and_then(|command| word(command.row.element)).filter(|_| is_several);
            if let Some(key) = key.filter(|_| is_several) {
                batch.prefetch_slot(db, key.slot);
            }
            prepared.push(Found { key, element: element.map(position_of), ..found });
        }
        if is_several {
            batch.prefetch(db, prepared.iter().filter_map(Found::ahead));
        }
        prepared
    }

    /// What a unit did is in the log by its end, and who waits for it is served.
    #[inline]
    fn end_unit(&self, batch: &mut Batch<'_>, now: UnixMs) {
        if batch.is_holding() {
            batch.settle_held();
        }
        batch.end_unit();
        if batch.has_ready() {
            blocking::serve(self.server, batch, self.guest, now);
        }
        batch.release();
    }

    fn command(&mut self, batch: &mut Batch<'_>, request: &UnitRequest<'_>) -> Result<(), Undone> {
        if request.database >= self.server.engine.keyspace.databases() {
            return self.differ(batch, request, &"there is no such database here (see `databases`)");
        }
        let own = self.own(&request.request);
        let words = own.as_ref().map_or(request.request, RequestBuf::as_request);
        let done = self.replay.apply_within(batch, DbIndex(request.database), NO_TIME_IS_UP, &words);
        done.map(drop).or_else(|rejection| self.judge(batch, request, &rejection))
    }

    #[inline]
    fn command_found(
        &mut self,
        batch: &mut Batch<'_>,
        request: &UnitRequest<'_>,
        found: &Found<'_>,
        tick: &mut Ticks,
    ) -> Result<(), Undone> {
        let place = (DbIndex(request.database), NO_TIME_IS_UP);
        let done = self.replay.apply_found(batch, place, &request.request, found, tick);
        done.map(drop).or_else(|rejection| self.judge(batch, request, &rejection))
    }

    /// Whether a command that came to nothing is left for later. If not, the data are what it left.
    #[cold]
    fn judge(
        &mut self,
        batch: &Batch<'_>,
        request: &UnitRequest<'_>,
        rejection: &Rejection,
    ) -> Result<(), Undone> {
        match rejection {
            Rejection::Failed(_, error @ (Error::Unreadable(_) | Error::InUse)) if batch.has_effects() => {
                end_in_part(request, error)
            }
            Rejection::Failed(_, error @ Error::Unreadable(_)) => Err(Undone::Unreadable(error.to_string())),
            Rejection::Failed(_, Error::InUse) => {
                self.claim_for(request);
                Err(Undone::HeldUp)
            }
            rejection => self.differ(batch, request, rejection),
        }
    }

    /// The master has done something that cannot be done here. It is passed over, as in a Redis, but not in a shard: what a member acknowledges
    /// counts as what the master has.
    #[cold]
    fn differ(
        &mut self,
        batch: &Batch<'_>,
        request: &UnitRequest<'_>,
        why: &dyn Display,
    ) -> Result<(), Undone> {
        match self.server.shard.is_on() {
            true if batch.has_effects() => end_in_part(request, why),
            true => Err(Undone::Impossible(why.to_string())),
            false => {
                self.tell(request, why);
                Ok(())
            }
        }
    }

    /// Nothing more comes for now.
    pub fn rest(&mut self) {
        self.claim = None;
    }

    /// [`Applier::claim`], for a command alone.
    #[cold]
    fn claim_for(&mut self, request: &UnitRequest<'_>) {
        let (server, mut keys) = (self.server, Vec::new());
        let are_known = self.note_keys_of(request, &mut |key, _| keys.push(key));
        self.claim(|| match are_known {
            true => Holding::of(&server.engine.keyspace, &keys),
            false => Holding::all(),
        });
    }

    /// The request by the table's names, if its word is one that `rename-command` gives here: a Redis with the same lines sends what its clients said.
    fn own(&self, request: &Request<'_>) -> Option<RequestBuf> {
        let names = &self.server.names;
        names.own(names.find_for(request), request)
    }

    /// Holds what the commands of a transaction touch, so that nobody sees a part of it.
    fn hold(&mut self, batch: &mut Batch<'_>, group: Group<'_>) -> Result<(), Undone> {
        let (mut keys, mut read) = (Vec::new(), Vec::new());
        let are_known = self.note_keys(group, &mut |key, purpose| {
            keys.push(key);
            if purpose != Purpose::Replace {
                read.push(key);
            }
        });
        self.hold_keys(batch, are_known.then_some(&keys))?;
        match batch.has_shelf() && are_known {
            true => self.read(batch, &read),
            false => Ok(()),
        }
    }

    /// Has what a transaction will look at in memory, as it cannot be left when a part of it is done.
    #[cold]
    fn read(&self, batch: &Batch<'_>, keys: &[Key<'_>]) -> Result<(), Undone> {
        batch.view(keys, NO_TIME_IS_UP, Touch::No).finish();
        match readable(batch) {
            Ok(()) => Ok(()),
            Err(error) => Err(Undone::Unreadable(error.to_string())),
        }
    }

    /// Holds these, or everything.
    fn hold_keys(&mut self, batch: &mut Batch<'_>, keys: Option<&Vec<Key<'_>>>) -> Result<(), Undone> {
        let is_held = match keys {
            Some(keys) => batch.try_hold(keys),
            None => batch.try_hold_all(),
        };
        if is_held {
            return Ok(());
        }
        let keyspace = &self.server.engine.keyspace;
        self.claim(|| keys.map_or_else(Holding::all, |keys| Holding::of(keyspace, keys)));
        Err(Undone::HeldUp)
    }

    /// The same for one with more words than are noted at a time: it is gone over once more for that, and of each slot one key is noted, since
    /// the names of all would take more memory than itself.
    #[cold]
    fn hold_long(&mut self, batch: &mut Batch<'_>, unit: &Unit<'_>) -> Result<(), Undone> {
        let (mut words, mut slots) = (Words::default(), BTreeMap::new());
        let (mut walk, mut looked_at) = (unit.walk(&mut words), 0);
        while let Some(group) = walk.next_group() {
            looked_at += group.count() as u64;
            self.server.following.note_steps(Counted::more(&mut self.counted.looked_at, looked_at));
            let mut note = |key: Key<'_>, _| {
                slots.entry((key.db, key.slot)).or_insert_with(|| key.bytes.to_vec());
            };
            if !self.note_keys(group, &mut note) {
                return self.hold_keys(batch, None);
            }
        }
        let keyspace = &self.server.engine.keyspace;
        let keys: Vec<Key<'_>> = slots.iter().map(|((db, _), name)| keyspace.key(*db, name)).collect();
        self.hold_keys(batch, Some(&keys))
    }

    /// Shows the keys of commands, and what they are wanted for. False: one of them may touch any.
    fn note_keys<'g>(&self, group: Group<'g>, note: &mut impl FnMut(Key<'g>, Purpose)) -> bool
    where
        's: 'g,
    {
        group.commands().all(|request| self.note_keys_of(&request, note))
    }

    /// The same of one.
    fn note_keys_of<'g>(&self, request: &UnitRequest<'g>, note: &mut impl FnMut(Key<'g>, Purpose)) -> bool
    where
        's: 'g,
    {
        let engine = &self.server.engine;
        if self.own(&request.request).is_some() {
            return false;
        }
        let row = table::find_for(&request.request).map(|command| command.row.handler);
        let Some(Runs::Data(row)) = row else { return false };
        if !row.accepts(request.request.len()) || request.database >= engine.keyspace.databases() {
            return true;
        }
        let place = (DbIndex(request.database), NO_TIME_IS_UP);
        let args = Args::new(request.request, &engine.keyspace, place, &engine.settings);
        if needs_all(row, &args) {
            return false;
        }
        let mut keys: Vec<Key<'g>> = Vec::new();
        keys_locked(row, &args, &mut keys);
        let purpose = purpose(row, &request.request);
        keys.drain(..).for_each(|key| note(key, purpose));
        true
    }

    #[cold]
    fn tell(&mut self, request: &UnitRequest<'_>, why: &dyn Display) {
        self.errors += 1;
        if self.errors <= ERRORS_TOLD || self.errors.is_power_of_two() {
            log!(
                Warning,
                "What the master sent before offset {} could not be done here, so that the data differs: {why}",
                request.end
            );
        }
    }
}

/// What is done of a transaction cannot be taken back.
#[cold]
fn end_in_part(request: &UnitRequest<'_>, why: &dyn Display) -> ! {
    log!(
        Warning,
        "Of a transaction that ends before offset {} a part is done here, and the rest cannot be: {why}. The server ends; its directory \
         holds what was there before; where it stays so, a start with an empty directory takes a new copy",
        request.end
    );
    std::process::exit(1);
}
