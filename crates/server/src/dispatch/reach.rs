//! What a request will touch of the keyspace, told before it runs; and whether a slow script is in its way.
//!
//! Nobody waits for the locks of a slow script with a worker's thread: who needs what one holds is held back until the script ends,
//! or told that it is busy once it has run for `busy-reply-threshold`. All others go on.

use super::checks::Verdict;
use super::table::{Command, Runs};
use super::transaction::is_exec;
use crate::client::Signal;
use crate::commands::{scripting, transactions};
use crate::config::BusyScope;
use crate::holders::{Asking, Needs, Run, Way, What};
use crate::server::Server;
use crate::session::Session;
use command::execute::{key_positions, keys_locked, needs_all};
use command::{Args, Error, Flags, Group};
use keyspace::{Holding, Key};
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
            let args = Args::new(*request, &server.keyspace, (session.db, now), &server.settings);
            let mut keys = Vec::new();
            keys_locked(row, &args, &mut keys);
            return if needs_all(row, &args) { Reach::All } else { Reach::Keys(keys) };
        }
        let container = command.row.name.split('|').next().unwrap_or_default();
        match container {
            "client" if command.looks_around() => Reach::All,
            "exec" => {
                let queue = session.transaction.as_ref().map_or(&[][..], |transaction| transaction.queue());
                transactions::reach_of(server, session, queue, now)
            }
            "bgrewriteaof" | "bgsave" | "debug" | "save" | "shutdown" => Reach::All,
            "memory" if !command.names_keys() => Reach::All,
            _ if scripting::runs_script(command) && scripting::takes_all(server, command, request) => {
                Reach::All
            }
            _ => {
                let mut positions = Vec::new();
                key_positions(command.row.keys, request, &mut positions);
                let key =
                    |position: usize| request.get(position).map(|key| server.keyspace.key(session.db, key));
                Reach::Keys(positions.into_iter().filter_map(key).collect())
            }
        }
    }
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
        free_workers: server.placement.free_workers(own),
    };
    match server.holders.ask(server, &mut session.claim, &asking) {
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
    if server.config.busy_reply_scope() == BusyScope::Keys
        || command.is(Flags::ALLOW_BUSY) && command.row.name != "shutdown"
        || is_always_served(command, request)
    {
        return None;
    }
    let threshold = server.config.busy_reply_threshold()?;
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
    let beside = server.keyspace.waiting().reached_from(names);
    let beside = beside.iter().map(|(db, bytes)| server.keyspace.key(*db, bytes));
    let keys: Vec<Key<'_>> = keys.iter().copied().chain(beside).collect();
    Holding::of(&server.keyspace, &keys)
}

/// Whether a request may not run where its client is: the spare worker must stay free, to serve those who end what keeps the others. The
/// client leaves for a worker that is free.
pub fn is_misplaced(server: &Server, session: &Session, command: &Command) -> bool {
    if session.client.worker() != server.placement.spare() || !may_take_long(session, command) {
        return false;
    }
    if server.placement.has_free_worker() {
        session.client.signal(Signal::GO_HOME);
    }
    true
}

/// Whether a command looks at all there is, but leaves out what it cannot lock, or at none of it. Behind a script it is held back all the
/// same, as in Redis.
fn passes_by(command: &Command, request: &Request<'_>) -> bool {
    let is = |word: &str| request.get(1).is_some_and(|given| given.eq_ignore_ascii_case(word.as_bytes()));
    match command.row.name {
        "bgrewriteaof" | "bgsave" | "dbsize" | "randomkey" => true,
        "debug" => !["object", "populate", "sleep"].into_iter().any(is),
        name => name.starts_with("memory|") && !command.names_keys(),
    }
}

/// Whether a request may hold keys for long.
fn may_take_long(session: &Session, command: &Command) -> bool {
    let is_long = |command: &Command| scripting::runs_script(command) || waits_for_others(command);
    match &session.transaction {
        Some(transaction) if is_exec(command) => {
            transaction.queue().iter().any(|queued| is_long(queued.command()))
        }
        _ => is_long(command),
    }
}

/// Whether a command waits for another server while it holds its keys.
pub fn waits_for_others(command: &Command) -> bool {
    command.row.name == "migrate"
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

/// Whether Redis serves it, too, while a script is busy.
fn is_always_served(command: &Command, request: &Request<'_>) -> bool {
    match command.row.name {
        "shutdown" => request.iter().skip(1).any(|word| word.eq_ignore_ascii_case(b"nosave")),
        // It looks at keys.
        "watch" => false,
        _ => command.is(Flags::ALLOW_BUSY),
    }
}

/// Whether it can do its work outside of the keyspace.
fn needs_no_keyspace(command: &Command) -> bool {
    let row = &command.row;
    let looks_at_no_key = matches!(row.group, Group::Connection | Group::Pubsub) && row.name != "reset"
        || matches!(row.name, "time" | "lastsave" | "command" | "config|get" | "role")
        || ["slowlog|", "latency|", "command|", "acl|"]
            .iter()
            .any(|container| row.name.starts_with(container));
    looks_at_no_key && !command.looks_around() && !command.names_keys() && !command.is(Flags::WRITE)
}

fn held_back_by(server: &Server, run: &Run, now: UnixMs) -> Verdict {
    let elapsed = run.began.elapsed();
    // MIGRATE ends by itself.
    match server.config.busy_reply_threshold().filter(|_| run.is_script()) {
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
