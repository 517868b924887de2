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
                self.hold(&mut batch, group);
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

    /// Holds what the commands of a transaction touch, so that nobody sees a part of it. One with more words than are noted at a time
    /// holds everything: the names of its keys would take more memory than itself.
    fn hold(&self, batch: &mut Batch<'_>, group: Group<'_>) {
        if !group.is_all {
            return batch.hold_all();
        }
        let engine = &self.server.engine;
        let mut keys: Vec<Key<'_>> = Vec::new();
        for request in group.commands() {
            let row = table::find_for(&request.request).map(|command| command.row.handler);
            let Some(Runs::Data(row)) = row else { return batch.hold_all() };
            if !row.accepts(request.request.len()) || request.database >= engine.keyspace.databases() {
                continue;
            }
            let place = (DbIndex(request.database), NO_TIME_IS_UP);
            let args = Args::new(request.request, &engine.keyspace, place, &engine.settings);
            if needs_all(row, &args) {
                return batch.hold_all();
            }
            keys_locked(row, &args, &mut keys);
        }
        batch.hold(&keys);
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
