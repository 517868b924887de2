//! What a request will touch of the keyspace, told before it runs; and whether a slow script is in its way.
//!
//! Nobody waits for the locks of a slow script with a worker's thread: who needs what one holds is held back until the script ends,
//! or told that it is busy once it has run for `busy-reply-threshold`. All others go on.

use super::checks::Verdict;
use crate::holders::{Asking, Needs, Run, Way, What};
use crate::server::Server;
use crate::session::Session;
use crate::transaction::Queued;
use command::effects::Scope;
use command::execute::{key_positions, keys_locked, needs_all};
use command::table::{Command, Runs};
use command::{Args, Error, Flags, row};
use config::BusyScope;
use engine::scripts::plan;
use keyspace::{DbIndex, Holding, Key};
use net::client::Signal;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use std::time::Duration;
use sys::UnixMs;
use wire::Request;

/// How long somebody is held back who is not told that a script is busy: until it ends, which wakes all.
const UNTIL_WOKEN: Duration = Duration::from_secs(3600);

/// What a request will touch.
pub enum Reach<'a> {
    /// The slots of these keys.
    Keys(Vec<Key<'a>>),
    /// Any slot.
    All,
}

impl<'a> Reach<'a> {
    /// What a request will touch, if it runs now.
    pub fn of(
        server: &'a Server,
        session: &'a Session,
        command: &Command,
        request: &Request<'a>,
        now: UnixMs,
    ) -> Reach<'a> {
        if let Runs::Data(row) = command.row.handler {
            let args =
                Args::new(*request, &server.engine.keyspace, (session.db, now), &server.engine.settings);
            let mut keys = Vec::new();
            keys_locked(row, &args, &mut keys);
            return if needs_all(row, &args) { Reach::All } else { Reach::Keys(keys) };
        }
        let named = || {
            let mut positions = Vec::new();
            key_positions(command.row.keys, request, &mut positions);
            let key = |position: usize| {
                request.get(position).map(|key| server.engine.keyspace.key(session.db, key))
            };
            Reach::Keys(positions.into_iter().filter_map(key).collect())
        };
        match command.row.reach {
            row::Reach::All => Reach::All,
            row::Reach::Queue => {
                let queue = session.transaction.as_ref().map_or(&[][..], |transaction| transaction.queue());
                reach_of(server, session, queue, now)
            }
            row::Reach::Script(_)
                if plan::takes_all(&server.engine.scripts, server.is_monitored(), command, request) =>
            {
                Reach::All
            }
            row::Reach::Script(_) | row::Reach::Nothing | row::Reach::Keys | row::Reach::Around => named(),
        }
    }
}

/// All that requests will touch, and what is watched.
///
/// A SELECT may be refused when it runs: rights change, by an AUTH in front of it or by somebody else. So what follows one may
/// touch its keys in each database that was current before, too.
pub fn reach_of<'a>(server: &'a Server, session: &'a Session, queue: &'a [Queued], now: UnixMs) -> Reach<'a> {
    let mut keys: Vec<Key<'_>> = session.watched.keys(&server.engine.keyspace).collect();
    let mut databases: SmallVec<[DbIndex; 2]> = smallvec![session.db];
    let mut takes_all = false;
    for queued in queue {
        let (request, command) = (queued.request(), queued.command());
        match command.row.handler {
            Runs::Data(row) => {
                for db in &databases {
                    let args =
                        Args::new(request, &server.engine.keyspace, (*db, now), &server.engine.settings);
                    takes_all |= needs_all(row, &args);
                    keys_locked(row, &args, &mut keys);
                }
            }
            Runs::Server(_) if command.effect == Some(Scope::Selection) => {
                let chosen = value::number::parse_i64(request.arg(1)).and_then(|db| u32::try_from(db).ok());
                let chosen = chosen.filter(|db| *db < server.engine.keyspace.databases()).map(DbIndex);
                databases.extend(chosen.filter(|db| !databases.contains(db)));
            }
            Runs::Server(_) => takes_all |= command.looks_around() || command.names_keys(),
        }
    }
    if takes_all { Reach::All } else { Reach::Keys(keys) }
}

/// Whether a request has to wait for a slow script, or for others who do.
#[cold]
pub fn check(
    server: &Server,
    session: &mut Session,
    command: &Command,
    request: &Request<'_>,
    now: UnixMs,
) -> Verdict {
    if let Some(run) = busy_for_all(server, command, request) {
        return Verdict::Refuse(busy(&run));
    }
    if needs_nothing(session, command, request) {
        return Verdict::Run;
    }
    let is_misplaced = is_misplaced(server, session, command);
    let own = session.client.worker();
    let asking = Asking {
        client: &session.client.clone(),
        needs: Needs {
            slots: wanted(server, session, command, request, now),
            passes_migrations: passes_by(command, request),
        },
        may_take_long: may_take_long(session, command),
        is_misplaced,
        free_workers: server.net.placement.free_workers(own),
    };
    match server.holders.ask(&server.engine, &mut session.claim, &asking) {
        Way::Free => Verdict::Run,
        // It is on its way.
        Way::Elsewhere => Verdict::Wait(UnixMs(now.0 + 1)),
        Way::Behind(run) => held_back_by(server, &run, now),
        Way::InLine => after(UNTIL_WOKEN, now),
    }
}

/// The script because of which a request is refused whatever it needs, where everybody is to be told that one is busy. Redis goes by the
/// command's flag alone.
fn busy_for_all(server: &Server, command: &Command, request: &Request<'_>) -> Option<Arc<Run>> {
    if server.engine.config.busy_reply_scope() == BusyScope::Keys
        || command.is(Flags::ALLOW_BUSY) && command.row.allow_busy_if.is_none()
        || is_always_served(command, request)
    {
        return None;
    }
    let threshold = server.engine.config.busy_reply_threshold()?;
    server.holders.any().filter(|run| run.is_script() && run.began.elapsed() >= threshold)
}

/// What a request needs of the keyspace.
fn wanted(
    server: &Server,
    session: &Session,
    command: &Command,
    request: &Request<'_>,
    now: UnixMs,
) -> Holding {
    let Reach::Keys(keys) = Reach::of(server, session, command, request, now) else { return Holding::all() };
    // A change to a key is not over before those are served who wait for it.
    let changed: &[Key<'_>] = if command.is(Flags::READONLY) { &[] } else { &keys };
    let names = changed.iter().map(|key| (key.db, key.bytes.into()));
    let beside = server.engine.keyspace.waiting().reached_from(names);
    let beside = beside.iter().map(|(db, bytes)| server.engine.keyspace.key(*db, bytes));
    let keys: Vec<Key<'_>> = keys.iter().copied().chain(beside).collect();
    Holding::of(&server.engine.keyspace, &keys)
}

/// Whether a request may not run where its client is: the spare worker must stay free, to serve those who end what keeps the others. The
/// client leaves for a worker that is free.
pub fn is_misplaced(server: &Server, session: &Session, command: &Command) -> bool {
    if session.client.worker() != server.net.placement.spare() || !may_take_long(session, command) {
        return false;
    }
    if server.net.placement.has_free_worker() {
        session.client.signal(Signal::GO_HOME);
    }
    true
}

/// Whether a command looks at all there is, but leaves out what it cannot lock, or at none of it. Behind a script it is held back all the
/// same, as in Redis.
fn passes_by(command: &Command, request: &Request<'_>) -> bool {
    command.row.passes_by.is_some_and(|passes| passes(request))
}

/// Whether a request may hold keys for long.
fn may_take_long(session: &Session, command: &Command) -> bool {
    let is_long = |command: &Command| command.runs_script() || command.is(Flags::WAITS_FOR_OTHERS);
    match &session.transaction {
        Some(transaction) if command.is_exec() => {
            transaction.queue().iter().any(|queued| is_long(queued.command()))
        }
        _ => is_long(command),
    }
}

/// As [`check`], for a batch outside of the keyspace, which a slow script holds as a whole.
#[cold]
pub fn check_outside(
    server: &Server,
    session: &mut Session,
    command: &Command,
    request: &Request<'_>,
    now: UnixMs,
) -> Verdict {
    match check(server, session, command, request, now) {
        // The script has ended meanwhile.
        Verdict::Run if !needs_nothing(session, command, request) => Verdict::Wait(now),
        verdict => verdict,
    }
}

/// The same for a command whose session has messages of what is not over: perhaps of that script. None: there is none.
#[cold]
pub fn check_sealed(server: &Server, now: UnixMs) -> Option<Verdict> {
    server.holders.any().map(|run| held_back_by(server, &run, now))
}

fn busy(run: &Run) -> Error {
    if let What::Function(_) = run.what { BUSY_FUNCTION } else { BUSY_SCRIPT }
}

/// Whether a request runs whatever anybody holds.
fn needs_nothing(session: &Session, command: &Command, request: &Request<'_>) -> bool {
    is_apart(session, command, request) || needs_no_keyspace(command)
}

/// Whether a request is only put into a queue, or served whoever is busy.
fn is_apart(session: &Session, command: &Command, request: &Request<'_>) -> bool {
    let is_queued = session.transaction.is_some() && !command.is(Flags::RUNS_IN_MULTI);
    is_queued || is_always_served(command, request)
}

/// Whether Redis serves it, too, while a script is busy. What looks at keys is not served.
fn is_always_served(command: &Command, request: &Request<'_>) -> bool {
    command.is(Flags::ALLOW_BUSY)
        && !command.names_keys()
        && command.row.allow_busy_if.is_none_or(|is_allowed| is_allowed(request))
}

/// Whether it can do its work outside of the keyspace.
fn needs_no_keyspace(command: &Command) -> bool {
    command.row.reach == row::Reach::Nothing
}

fn held_back_by(server: &Server, run: &Run, now: UnixMs) -> Verdict {
    let elapsed = run.began.elapsed();
    // MIGRATE ends by itself.
    match server.engine.config.busy_reply_threshold().filter(|_| run.is_script()) {
        None => after(UNTIL_WOKEN, now),
        Some(threshold) if elapsed < threshold => after(threshold - elapsed, now),
        Some(_) => Verdict::Refuse(busy(run)),
    }
}

fn after(wait: Duration, now: UnixMs) -> Verdict {
    Verdict::Wait(UnixMs(now.0 + wait.as_millis() as u64 + 1))
}

/// What others are told of while a script is busy.
pub const BUSY_SCRIPT: Error =
    Error::text("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.");
/// What others are told of while a function is busy.
pub const BUSY_FUNCTION: Error =
    Error::text("BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.");
