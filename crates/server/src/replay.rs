//! Runs requests without a client: those of a Redis' append-only file, when a server starts. What Tarn's own log holds is applied by
//! `durability::apply`.
//!
//! A data command goes straight to `command::execute`; scripts, functions and published messages get a session of
//! their own, which has every right and no connection. None of the checks that a client's request passes is made: what
//! was executed once is executed again, whatever memory, users or limits have become since.
//!
//! One thread owns a [`Replay`]; several, each with a worker's number of its own, may run at the same time.
//!
//! 1. Nothing is allocated for a data command on one key, once the first few have run.
//! 2. The keyspace is left between two requests, so that a request of another thread can have it alone.
//! 3. Nothing is held back: MULTI and EXEC are for whoever reads the log, which knows what belongs together.

use crate::dispatch::Context;
use crate::dispatch::handlers::{self, ServerHandler};
use crate::feeding::resuming;
use crate::server::Server;
use crate::session::Session;
use acl::Access;
use command::table::{self, Command, Runs};
use command::{Args, Error, Flags, Hashed, execute};
use engine::apply::{Apply, Rejection, judge_found};
use engine::import::rdb::Expired;
use engine::snapshot::Place;
use keyspace::{Ahead, Batch, DbIndex, Key, Position, Touch};
use net::client::Client;
use std::sync::Arc;
use sys::{Ticks, UnixMs};
use telemetry::stats::Ending;
use wire::{Protocol, Reply, Request, RequestBuf};

/// Bytes that are kept for replies, which nobody reads.
const REPLY_BYTES_KEPT_MAX: usize = 1 << 20;

/// A request's command, and its key where that has been hashed.
#[derive(Clone, Copy)]
pub struct Found<'k> {
    /// None: there is no such command.
    pub command: Option<&'static Command>,
    /// The first, if it has any.
    pub key: Option<Key<'k>>,
    /// The position of the element that it looks for at that key.
    pub element: Option<Position>,
}

impl<'k> Found<'k> {
    /// Looks for the command.
    pub fn find(request: &Request<'_>) -> Found<'k> {
        Found { command: table::find_for(request), key: None, element: None }
    }

    /// Where it looks.
    pub fn ahead(&self) -> Option<Ahead> {
        let Found { key, element, .. } = *self;
        key.map(|key| Ahead { slot: key.slot, position: key.position, element })
    }

    fn hashed(&self) -> Hashed<'_> {
        match self.command {
            Some(command) => Hashed::new(command.first_key, 1, self.key.as_slice()),
            None => Hashed::NONE,
        }
    }
}

/// Runs requests one by one.
pub struct Replay<'s> {
    server: &'s Arc<Server>,
    worker: usize,
    /// For the server's own commands; none as long as there were none.
    session: Option<Box<Session>>,
    reply: Vec<u8>,
    /// Whether it counts what it runs, as what clients run is counted.
    counts: bool,
}

impl<'s> Replay<'s> {
    /// In the place of a worker that does not run yet.
    ///
    /// # Panics
    /// When the first request runs, if the server has no such worker.
    pub fn new(server: &'s Arc<Server>, worker: usize) -> Replay<'s> {
        Replay { server, worker, session: None, reply: Vec::new(), counts: false }
    }

    /// The same for what a master sends, which shows in the statistics of commands.
    pub fn of_master(server: &'s Arc<Server>, worker: usize) -> Replay<'s> {
        Replay { counts: true, ..Replay::new(server, worker) }
    }

    /// As [`Apply::apply`], within a batch of the same worker's.
    ///
    /// # Errors
    /// As there.
    pub fn apply_within(
        &mut self,
        batch: &mut Batch<'_>,
        db: DbIndex,
        now: UnixMs,
        request: &Request<'_>,
    ) -> Result<DbIndex, Rejection> {
        let found = Found::find(request);
        self.apply_found(batch, (db, now), request, &found, &mut self.server.ticks.now())
    }

    /// The same for a request that was looked at ahead. It begins at a tick, which becomes the one at which it ends.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn apply_found(
        &mut self,
        batch: &mut Batch<'_>,
        (db, now): (DbIndex, UnixMs),
        request: &Request<'_>,
        found: &Found<'_>,
        tick: &mut Ticks,
    ) -> Result<DbIndex, Rejection> {
        let command = judge_found(found.command, request)?;
        self.reply.clear();
        let result = self.run(command, batch, (db, now), request, found.hashed());
        // What is held back is run again.
        let is_over = !matches!(result, Err(Rejection::Failed(_, Error::InUse)));
        if self.counts && is_over {
            let began = std::mem::replace(tick, self.server.ticks.now());
            let ending = if result.is_ok() { Ending::Done } else { Ending::Failed };
            let (counts, track) =
                (&self.server.worker_counts[self.worker], self.server.engine.config.latency_tracking());
            counts.note(command.id, began, *tick, ending, track);
        }
        result
    }

    fn run(
        &mut self,
        command: &'static Command,
        batch: &mut Batch<'_>,
        (db, now): (DbIndex, UnixMs),
        request: &Request<'_>,
        hashed: Hashed<'_>,
    ) -> Result<DbIndex, Rejection> {
        match command.row.handler {
            Runs::Data(row) => {
                let engine = &self.server.engine;
                let args = Args::new(*request, &engine.keyspace, (db, now), &engine.settings);
                let args = Args { hashed, ..args.of_log() };
                let mut reply = Reply::new(&mut self.reply, Protocol::Resp2);
                let done = execute(row, batch, &args, Touch::No, &mut reply);
                if row.flags.contains(Flags::EMPTIES_DATABASE) && done.is_ok() {
                    // Nobody here did it.
                    self.server.tracking.invalidate_all(&self.server.net.clients, None);
                }
                done.map(|_| db).map_err(|error| Rejection::Failed(row.name, error))
            }
            Runs::Server(number) => {
                self.run_on_server(command, handlers::get(number), db, now, request, batch)
            }
        }
    }

    /// Runs one of the server's own commands, if it is one that a log may hold.
    #[cold]
    fn run_on_server(
        &mut self,
        command: &'static Command,
        handler: ServerHandler,
        db: DbIndex,
        now: UnixMs,
        request: &Request<'_>,
        batch: &mut Batch<'_>,
    ) -> Result<DbIndex, Rejection> {
        let row = &command.row;
        let (server, worker) = (self.server, self.worker);
        let session = self.session.get_or_insert_with(|| own_session(worker, now));
        session.select(db);
        let mut context = Context { server, worker, session, request: *request, command, now, batch };
        let result = handler(&mut context, &mut Reply::new(&mut self.reply, Protocol::Resp2));
        if self.reply.capacity() > REPLY_BYTES_KEPT_MAX {
            self.reply = Vec::new();
        }
        let chosen = session.db;
        result.map(|()| chosen).map_err(|error| Rejection::Failed(row.name, error))
    }
}

impl Apply for Replay<'_> {
    fn apply(&mut self, db: DbIndex, now: UnixMs, request: &Request<'_>) -> Result<DbIndex, Rejection> {
        let mut batch = self.server.engine.keyspace.enter(self.worker);
        self.apply_within(&mut batch, db, now, request)
    }

    fn own(&self, request: &Request<'_>) -> Option<RequestBuf> {
        let names = &self.server.names;
        names.own(names.find_for(request), request)
    }

    fn begin_snapshot(&mut self, place: Option<Place>) -> Expired {
        resuming::take_up(self.server, place)
    }

    fn passed(&mut self, db: DbIndex, key: &[u8]) {
        resuming::pass_over(self.server, db, key);
    }

    fn end_snapshot(&mut self) {
        resuming::begin(self.server);
    }
}

/// A session without a connection, that may do everything: what users may do now was not asked when it was done.
fn own_session(worker: usize, now: UnixMs) -> Box<Session> {
    /// No client has this number, nor a descriptor that is none.
    const NOBODY: (u64, i32) = (0, -1);
    let client = Client::new(NOBODY.0, String::new(), String::new(), NOBODY.1, (worker, worker), now);
    let mut session = Session::new(Arc::new(client), Access::of_server());
    session.touch = Touch::No;
    Box::new(session)
}

#[cfg(test)]
mod tests;
