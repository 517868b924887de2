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

use crate::client::Client;
use crate::dispatch::Context;
use crate::dispatch::handlers::{self, ServerHandler};
use crate::server::Server;
use crate::session::Session;
use acl::Access;
use command::table::{self, Command, Runs};
use command::{Args, Error, Flags, Group, execute};
use keyspace::{DbIndex, Touch};
use std::fmt;
use std::sync::Arc;
use sys::UnixMs;
use wire::{Protocol, Reply, Request};

/// Bytes that are kept for replies, which nobody reads.
const REPLY_BYTES_KEPT_MAX: usize = 1 << 20;

/// Runs requests one by one.
pub struct Replay<'s> {
    server: &'s Arc<Server>,
    worker: usize,
    /// For the server's own commands; none as long as there were none.
    session: Option<Box<Session>>,
    reply: Vec<u8>,
}

/// Why a request did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// There is no such command: the log is of a newer version, or of a server with modules.
    Unknown(String),
    /// It has too few words, or too many.
    Arity(&'static str),
    /// It is none that changes anything, and was never logged.
    Foreign(&'static str),
    /// It ran, and this was the reply. A Redis would go on with the next.
    Failed(&'static str, Error),
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rejection::Unknown(name) => write!(f, "unknown command '{name}'"),
            Rejection::Arity(name) => write!(f, "wrong number of arguments for '{name}'"),
            Rejection::Foreign(name) => write!(f, "'{name}' is no command that a log holds"),
            Rejection::Failed(name, error) => write!(f, "'{name}' was answered with '{error}'"),
        }
    }
}

impl std::error::Error for Rejection {}

impl<'s> Replay<'s> {
    /// In the place of a worker that does not run yet.
    ///
    /// # Panics
    /// When the first request runs, if the server has no such worker.
    pub fn new(server: &'s Arc<Server>, worker: usize) -> Replay<'s> {
        Replay { server, worker, session: None, reply: Vec::new() }
    }

    /// Runs a request on a database, and gives back the database for the next one: SELECT changes it. The request has at
    /// least one word. Keys whose time is up at `now` are gone, and what counts from the present counts from `now`.
    ///
    /// # Errors
    /// If it does not run, or is answered with an error; the keyspace is as it was then, except behind a script.
    #[inline]
    pub fn run(&mut self, db: DbIndex, now: UnixMs, request: &Request<'_>) -> Result<DbIndex, Rejection> {
        let command = judge(request)?;
        self.reply.clear();
        match command.row.handler {
            Runs::Data(row) => {
                let server = self.server;
                let args =
                    Args::new(*request, &server.engine.keyspace, (db, now), &server.engine.settings).of_log();
                let mut batch = server.engine.keyspace.enter(self.worker);
                let mut reply = Reply::new(&mut self.reply, Protocol::Resp2);
                execute(row, &mut batch, &args, Touch::No, &mut reply)
                    .map(|_| db)
                    .map_err(|error| Rejection::Failed(row.name, error))
            }
            Runs::Server(number) => self.run_on_server(command, handlers::get(number), db, now, request),
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
    ) -> Result<DbIndex, Rejection> {
        let row = &command.row;
        let (server, worker) = (self.server, self.worker);
        let session = self.session.get_or_insert_with(|| own_session(worker, now));
        session.select(db);
        let result = {
            let mut batch = server.engine.keyspace.enter(worker);
            let mut context =
                Context { server, worker, session, request: *request, command, now, batch: &mut batch };
            handler(&mut context, &mut Reply::new(&mut self.reply, Protocol::Resp2))
        };
        if self.reply.capacity() > REPLY_BYTES_KEPT_MAX {
            self.reply = Vec::new();
        }
        let chosen = session.db;
        result.map(|()| chosen).map_err(|error| Rejection::Failed(row.name, error))
    }
}

/// The command of a request that a log may hold. The request has at least one word.
///
/// # Errors
/// If no server would run it from there.
#[inline]
pub fn judge(request: &Request<'_>) -> Result<&'static Command, Rejection> {
    let Some(command) = table::find_for(request) else { return Err(unknown(request)) };
    let row = &command.row;
    if !row.accepts(request.len()) {
        return Err(Rejection::Arity(row.name));
    }
    let is_told = row.group == Group::Scripting
        || matches!(row.handler, Runs::Data(_))
        || row.flags.contains(Flags::IN_APPEND_ONLY_FILE);
    if is_told { Ok(command) } else { Err(Rejection::Foreign(row.name)) }
}

#[cold]
fn unknown(request: &Request<'_>) -> Rejection {
    const SHOWN_BYTES_MAX: usize = 128;
    let name = request.get(0).unwrap_or_default();
    Rejection::Unknown(name[..name.len().min(SHOWN_BYTES_MAX)].escape_ascii().to_string())
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
