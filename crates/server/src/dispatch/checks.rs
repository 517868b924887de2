//! What comes before a command runs, in Redis' order: does it exist, are there
//! enough words, may this session run it, is there memory, is there a pause.

use crate::acl;
use crate::commands::pubsub::is_allowed_among_messages;
use crate::dispatch::Context;
use crate::dispatch::pause::{Pause, Paused};
use crate::dispatch::table::{Command, Runs};
use crate::dispatch::transaction::{flags_in_effect, is_exec};
use crate::monitor;
use crate::server::{Attention, Server};
use crate::session::Session;
use command::error::until_zero;
use command::execute::{keys_locked, needs_all};
use command::{Args, Error, Flags, Group};
use keyspace::{Batch, OutOfMemory};
use sys::UnixMs;
use wire::Request;

/// What the checks found.
pub enum Verdict {
    /// The command runs.
    Run,
    /// The client gets this instead of a reply.
    Refuse(Error),
    /// It waits until this moment, unless woken before.
    Wait(UnixMs),
}

/// Checks a command that exists.
#[inline]
pub fn check(
    server: &Server,
    batch: &Batch<'_>,
    session: &mut Session,
    command: &Command,
    request: &Request<'_>,
    now: UnixMs,
) -> Verdict {
    if !command.subcommands.is_empty() && request.len() > 1 {
        return Verdict::Refuse(Error::unknown_subcommand(command.row.name, request.arg(1)));
    }
    if !command.row.accepts(request.len()) {
        return Verdict::Refuse(Error::arity(command.row.name));
    }
    if session.transaction.is_some() && command.is(Flags::NO_MULTI) {
        return Verdict::Refuse(Error::text("ERR Command not allowed inside a transaction"));
    }
    if !session.access.is_free(&server.acl)
        && let Err(error) = acl::admit(server, session, command, request, session.setting(), now)
    {
        return Verdict::Refuse(error);
    }
    let attention = server.attention();
    if attention.is_empty() && session.subscriptions.is_none() {
        return Verdict::Run;
    }
    check_attention(server, batch, session, attention, command, request, now)
}

#[cold]
fn check_attention(
    server: &Server,
    batch: &Batch<'_>,
    session: &Session,
    attention: Attention,
    command: &Command,
    request: &Request<'_>,
    now: UnixMs,
) -> Verdict {
    let flags = flags_in_effect(command, session);
    if attention.contains(Attention::SLOW_SCRIPT)
        && !runs_outside(command, request)
        && would_wait(server, batch, session, command, request, now)
    {
        return Verdict::Refuse(BUSY);
    }
    let is_full = attention.contains(Attention::MEMORY_CEILING) && is_memory_full(server);
    // During a pause nothing changes by itself.
    if is_full
        && batch.is_inside()
        && !attention.contains(Attention::PAUSED)
        && make_room(server, batch, now).is_err()
        && flags.contains(Flags::DENYOOM)
    {
        return Verdict::Refuse(Error::text("OOM command not allowed when used memory > 'maxmemory'."));
    }
    if attention.contains(Attention::SAVE_FAILED)
        && (flags.contains(Flags::WRITE) || command.row.name == "ping")
        && are_writes_stopped(server)
    {
        return Verdict::Refuse(MISCONF);
    }
    if attention.contains(Attention::LOG_FAILED) {
        if flags.contains(Flags::WRITE)
            && let Some(error) = log_error(server)
        {
            return Verdict::Refuse(error);
        }
    } else if attention.contains(Attention::LOG_FULL) && flags.intersects(Flags::WRITE | Flags::MAY_REPLICATE)
    {
        return Verdict::Wait(UnixMs(now.0 + LOG_PATIENCE_MS));
    }
    if session.is_confined() && !is_allowed_among_messages(command) {
        return Verdict::Refuse(only_messages(command));
    }
    if attention.contains(Attention::PAUSED) {
        match Pause::at(server, now) {
            Some((Paused::All, until)) => return Verdict::Wait(until),
            Some((Paused::Writes, until)) if flags.intersects(Flags::WRITE | Flags::MAY_REPLICATE) => {
                return Verdict::Wait(until);
            }
            Some(_) | None => {}
        }
    }
    // What is queued is shown when EXEC runs it, and EXEC itself after that.
    let runs_now = session.transaction.is_none() || command.is(Flags::RUNS_IN_MULTI) && !is_exec(command);
    if attention.contains(Attention::MONITORS) && runs_now {
        monitor::show(server, session, command, request);
    }
    Verdict::Run
}

/// Why a script may not write: the last snapshot failed, or the log does not go on. Behind writes of its own transaction it
/// may: they are one record.
#[cold]
pub fn disk_error(context: &Context<'_, '_>) -> Option<Error> {
    let server = context.server;
    let error = match server.attention() {
        attention if attention.contains(Attention::SAVE_FAILED) && are_writes_stopped(server) => {
            Some(MISCONF)
        }
        attention if attention.contains(Attention::LOG_FAILED) => log_error(server),
        _ => None,
    };
    error.filter(|_| !context.batch.has_effects())
}

/// How long a write waits before it looks again whether the disk has caught up.
const LOG_PATIENCE_MS: u64 = 1;

/// Why writes are refused while the log does not go on.
#[cold]
pub fn log_error(server: &Server) -> Option<Error> {
    let failure = server.durability.log()?.writable().err()?;
    Some(Error::line(format!("MISCONF Errors writing to the AOF file: {}", failure.reason)))
}

/// The error of a command that would have to wait for a slow script.
pub const BUSY: Error =
    Error::text("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.");

/// The error of a write after a snapshot that failed.
pub const MISCONF: Error = Error::text(
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may \
     modify the data set are disabled, because this instance is configured to report errors during writes if RDB \
     snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB \
     error.",
);

/// Whether writes are refused because the last snapshot failed (`stop-writes-on-bgsave-error`).
#[cold]
pub fn are_writes_stopped(server: &Server) -> bool {
    server.snapshots.figures().failed_last
        && server.config.stop_writes_on_bgsave_error()
        && !server.config.save_points().is_empty()
}

/// The error of a command that needs data which is being loaded.
const LOADING: Error = Error::text("LOADING Redis is loading the dataset in memory");

/// Admits a command that touches no key to a batch outside of the keyspace.
///
/// # Errors
/// Why it has to wait for the keyspace.
#[cold]
pub fn admit_outside(
    server: &Server,
    command: &Command,
    request: &Request<'_>,
) -> std::result::Result<(), Error> {
    let looks_at_keys = matches!(command.row.name, "exec" | "watch" | "unwatch" | "discard");
    if !server.attention().contains(Attention::LOADING) {
        return if runs_outside(command, request) { Ok(()) } else { Err(BUSY) };
    }
    if command.is(Flags::LOADING) && !looks_at_keys { Ok(()) } else { Err(LOADING) }
}

/// Whether a command runs without the keyspace while a slow script holds it.
pub fn runs_outside(command: &Command, request: &Request<'_>) -> bool {
    match command.row.name {
        "shutdown" => request.iter().skip(1).any(|word| word.eq_ignore_ascii_case(b"nosave")),
        // These look at keys.
        "exec" | "watch" | "unwatch" | "discard" => false,
        _ => command.is(Flags::ALLOW_BUSY),
    }
}

/// Whether a slow script, or somebody who waits for one, has a slot that a command needs.
#[cold]
fn would_wait(
    server: &Server,
    batch: &Batch<'_>,
    session: &Session,
    command: &Command,
    request: &Request<'_>,
    now: UnixMs,
) -> bool {
    let Runs::Data(row) = command.row.handler else {
        return matches!(command.row.group, Group::Scripting | Group::Transactions | Group::Server);
    };
    let args = Args::new(*request, &server.keyspace, (session.db, now), &server.settings);
    let mut keys = Vec::new();
    keys_locked(row, &args, &mut keys);
    needs_all(row, &args) || !batch.are_free(&keys)
}

/// Whether memory is above its ceiling.
pub fn is_memory_full(server: &Server) -> bool {
    sys::memory::used_bytes() > server.keyspace.policy().memory_bytes_max()
}

/// Evicts until memory is below its ceiling, or for as long as one command may be
/// held up; then it goes on before the next.
///
/// # Errors
/// The policy allows no key to be freed.
#[cold]
pub fn make_room(server: &Server, batch: &Batch<'_>, now: UnixMs) -> Result<(), OutOfMemory> {
    let began = server.ticks.now();
    let evicted = batch.evict(now, sys::memory::used_bytes, |_, _| {});
    server.note_latency("eviction-cycle", began);
    evicted.map(|_| ())
}

fn only_messages(command: &Command) -> Error {
    Error::line(format!(
        "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
         context",
        command.row.name
    ))
}

/// Whether a request is a line of HTTP.
#[cold]
pub fn is_http(request: &Request<'_>) -> bool {
    let name = request.arg(0);
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// The error for a command that does not exist: its name and the beginning of its
/// arguments, within Redis' bounds of 128 bytes each.
#[cold]
pub fn unknown_command(request: &Request<'_>) -> Error {
    const PART_BYTES_MAX: usize = 128;
    let cut = |bytes: &[u8], most: usize| until_zero(&bytes[..bytes.len().min(most)]).to_vec();
    let mut args = Vec::new();
    for arg in request.iter().skip(1) {
        if args.len() >= PART_BYTES_MAX {
            break;
        }
        args.push(b'\'');
        args.extend(cut(arg, PART_BYTES_MAX - (args.len() - 1)));
        args.extend(b"' ");
    }
    let mut line = b"ERR unknown command '".to_vec();
    line.extend(cut(request.arg(0), PART_BYTES_MAX));
    line.extend(b"', with args beginning with: ");
    line.extend(args);
    Error::line(line)
}
