//! Does what the master wants, unit by unit: each is in the keyspace and in the log as a whole or not at all.
//!
//! No check that a client's request passes is made: neither rights nor memory nor limits. What the master did is done; an answer
//! that is an error is told in the log, as it means that both hold different data.
//!
//! Thread rule: the thread that has the link, in the place of a guest of the keyspace.

use crate::blocking;
use crate::replay::Replay;
use crate::server::Server;
use command::Args;
use command::execute::{keys_locked, needs_all};
use command::table::{self, Runs};
use engine::residency;
use keyspace::{Batch, DbIndex, Key, NO_TIME_IS_UP};
use replication::link::{Group, Unit, UnitKind, UnitRequest, Words};
use std::collections::BTreeMap;
use std::sync::Arc;
use telemetry::log;

/// Errors that are told one by one; of more only now and then.
const ERRORS_TOLD: u64 = 20;

/// Does units of one master's.
pub struct Applier<'s> {
    server: &'s Arc<Server>,
    guest: usize,
    replay: Replay<'s>,
    words: Words,
    errors: u64,
}

impl<'s> Applier<'s> {
    pub fn new(server: &'s Arc<Server>) -> Applier<'s> {
        let guest = server.engine.following_guest();
        Applier {
            server,
            guest,
            replay: Replay::of_master(server, guest),
            words: Words::default(),
            errors: 0,
        }
    }

    /// Does a unit.
    pub fn apply(&mut self, unit: &Unit<'_>) {
        residency::wait_for_room(&self.server.engine);
        let server = self.server;
        let now = server.engine.clock.now();
        let mut batch = server.engine.keyspace.enter(self.guest);
        batch.begin_unit(unit.bytes(), DbIndex(unit.end().database), now);
        let mut words = std::mem::take(&mut self.words);
        let mut walk = unit.walk(&mut words);
        while let Some(group) = walk.next_group() {
            if unit.kind() == UnitKind::Transaction && !batch.is_holding() {
                match group.is_all {
                    true => self.hold(&mut batch, group),
                    false => self.hold_long(&mut batch, unit),
                }
            }
            for request in group.commands() {
                self.command(&mut batch, &request);
            }
        }
        self.words = words;
        if batch.is_holding() {
            batch.settle_held();
        }
        batch.end_unit();
        if batch.has_ready() {
            blocking::serve(server, &mut batch, self.guest, now);
        }
        batch.release();
        server.tracking.end_batch(&server.net.clients, self.guest);
    }

    fn command(&mut self, batch: &mut Batch<'_>, request: &UnitRequest<'_>) {
        if request.database >= self.server.engine.keyspace.databases() {
            self.tell(request, &"there is no such database here (see `databases`)");
            return;
        }
        let done =
            self.replay.apply_within(batch, DbIndex(request.database), NO_TIME_IS_UP, &request.request);
        if let Err(rejection) = done {
            self.tell(request, &rejection);
        }
    }

    /// Holds what the commands of a transaction touch, so that nobody sees a part of it.
    fn hold(&self, batch: &mut Batch<'_>, group: Group<'_>) {
        let mut keys = Vec::new();
        match self.note_keys(group, &mut |key| keys.push(key)) {
            true => batch.hold(&keys),
            false => batch.hold_all(),
        }
    }

    /// The same for one with more words than are noted at a time: it is gone over once more for that, and of each slot one key is noted, since
    /// the names of all would take more memory than itself.
    #[cold]
    fn hold_long(&self, batch: &mut Batch<'_>, unit: &Unit<'_>) {
        let (mut words, mut slots) = (Words::default(), BTreeMap::new());
        let mut walk = unit.walk(&mut words);
        while let Some(group) = walk.next_group() {
            let mut note = |key: Key<'_>| {
                slots.entry((key.db, key.slot)).or_insert_with(|| key.bytes.to_vec());
            };
            if !self.note_keys(group, &mut note) {
                return batch.hold_all();
            }
        }
        let keyspace = &self.server.engine.keyspace;
        let keys: Vec<Key<'_>> = slots.iter().map(|((db, _), name)| keyspace.key(*db, name)).collect();
        batch.hold(&keys);
    }

    /// Shows the keys of commands. False: one of them may touch any.
    fn note_keys<'g>(&'g self, group: Group<'g>, note: &mut impl FnMut(Key<'g>)) -> bool {
        let engine = &self.server.engine;
        let mut keys: Vec<Key<'g>> = Vec::new();
        for request in group.commands() {
            let row = table::find_for(&request.request).map(|command| command.row.handler);
            let Some(Runs::Data(row)) = row else { return false };
            if !row.accepts(request.request.len()) || request.database >= engine.keyspace.databases() {
                continue;
            }
            let place = (DbIndex(request.database), NO_TIME_IS_UP);
            let args = Args::new(request.request, &engine.keyspace, place, &engine.settings);
            if needs_all(row, &args) {
                return false;
            }
            keys_locked(row, &args, &mut keys);
            keys.drain(..).for_each(&mut *note);
        }
        true
    }

    #[cold]
    fn tell(&mut self, request: &UnitRequest<'_>, why: &dyn std::fmt::Display) {
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
