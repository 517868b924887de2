//! What comes before a command runs, in Redis' order: does it exist, are there
//! enough words, may this session run it, is there memory, is there a pause.

use crate::clustered::Part;
use crate::dispatch::Context;
use crate::dispatch::ownership;
use crate::dispatch::reach;
use crate::dispatch::transaction::flags_in_effect;
use crate::pause::Paused;
use crate::refusals::{self, Fullness};
use crate::rights;
use crate::server::Server;
use crate::session::Session;
use command::table::Command;
use command::{Error, Flags, Shows};
use config::Access;
use engine::Attention;
use engine::residency;
use keyspace::{Batch, OutOfMemory};
use net::client::Traits;
use sys::UnixMs;
use value::text::until_zero;
use wire::Request;

/// What the checks found.
pub enum Verdict {
    /// The command runs.
    Run,
    /// The client gets this instead of a reply.
    Refuse(Error),
    /// The client gets this, which sends it to another server or says that there is none.
    Elsewhere(Error),
    /// It waits until this moment, unless woken before.
    Wait(UnixMs),
}

/// Whether a request names a container and none of its subcommands, so that it stands for no command.
#[inline]
pub fn lacks_subcommand(command: &Command, request: &Request<'_>) -> bool {
    !command.subcommands.is_empty() && request.len() > 1
}

/// Checks a request for a command that exists: is it whole, and may this session make it? Whatever looks into its words comes after.
#[inline]
pub fn check_request(
    server: &Server,
    session: &mut Session,
    command: &Command,
    request: &Request<'_>,
    now: UnixMs,
) -> Verdict {
    if lacks_subcommand(command, request) {
        return Verdict::Refuse(Error::unknown_subcommand(command.row.name, request.arg(1)));
    }
    if !command.row.accepts(request.len()) {
        return Verdict::Refuse(Error::arity(command.row.name));
    }
    if command.is(Flags::ON_LEAVE)
        && let Some(error) = lack_of_leave(server, session, command)
    {
        return Verdict::Refuse(error);
    }
    if session.transaction.is_some() && command.is(Flags::NO_MULTI) {
        return Verdict::Refuse(Error::text("ERR Command not allowed inside a transaction"));
    }
    if !session.access.is_unrestricted(&server.acl)
        && let Err(error) = rights::admit(server, session, command, request, session.setting(), now)
    {
        return Verdict::Refuse(error);
    }
    Verdict::Run
}

/// Why nobody, or nobody from elsewhere, may use a command, whatever their rights.
#[cold]
fn lack_of_leave(server: &Server, session: &Session, command: &Command) -> Option<Error> {
    let config = &server.engine.config;
    let (what, directive, access) = match command.row.name {
        "debug" => ("DEBUG", "enable-debug-command", config.enable_debug_command()),
        _ => ("MODULE", "enable-module-command", config.enable_module_command()),
    };
    let is_allowed = match access {
        Access::Yes => true,
        Access::Local => session.client.is_local(),
        Access::No => false,
    };
    (!is_allowed).then(|| {
        Error::line(format!(
            "ERR {what} command not allowed. If the {directive} option is set to \"local\", you can run it from a \
             local connection, otherwise you need to set this option in the configuration file, and then restart \
             the server."
        ))
    })
}

/// Checks what the server's state, and the session's, have against such a request.
#[inline]
pub fn check_circumstances(
    server: &Server,
    attention: Attention,
    batch: &Batch<'_>,
    session: &mut Session,
    command: &Command,
    request: &Request<'_>,
    now: UnixMs,
) -> Verdict {
    if attention.is_empty() && session.subscriptions.is_none() {
        return Verdict::Run;
    }
    check_attention(server, batch, session, attention, command, request, now)
}

#[cold]
fn check_attention(
    server: &Server,
    batch: &Batch<'_>,
    session: &mut Session,
    attention: Attention,
    command: &Command,
    request: &Request<'_>,
    now: UnixMs,
) -> Verdict {
    if attention.contains(Attention::SLOW_SCRIPT) {
        match reach::check(server, session, command, request, now) {
            Verdict::Run => {}
            held_back => return held_back,
        }
    }
    let verdict = check_state(server, batch, session, attention, command, request, now);
    if let Verdict::Wait(_) = verdict {
        // Nobody waits for one who could not run anyway.
        session.give_up_claim(server);
    }
    verdict
}

/// Checks what the server's state has against a command.
fn check_state(
    server: &Server,
    batch: &Batch<'_>,
    session: &Session,
    attention: Attention,
    command: &Command,
    request: &Request<'_>,
    now: UnixMs,
) -> Verdict {
    let flags = flags_in_effect(server, command, session, request);
    // Before memory, which is full because of it where what waits for the log fills it.
    if attention.contains(Attention::LOG_FAILED)
        && flags.contains(Flags::WRITE)
        && let Some(error) = refusals::log_error(&server.engine)
    {
        return Verdict::Refuse(error);
    }
    let ignores_ceiling =
        attention.contains(Attention::FOLLOWING) && server.engine.config.replica_ignore_maxmemory();
    if attention.contains(Attention::MEMORY_CEILING)
        && !(ignores_ceiling && server.engine.residency.store().is_none())
    {
        // What is queued takes memory, whatever it is.
        let may_grow = flags.contains(Flags::DENYOOM)
            || session.transaction.is_some() && !command.is(Flags::ENDS_TRANSACTION);
        match check_memory(server, batch, attention, command, may_grow, now) {
            Verdict::Run => {}
            held_back => return held_back,
        }
    }
    if attention.contains(Attention::SAVE_FAILED)
        && (flags.contains(Flags::WRITE) || command.is(Flags::ASKS_HEALTH))
        && refusals::are_writes_stopped(&server.engine)
    {
        return Verdict::Refuse(refusals::MISCONF);
    }
    match check_role(server, session, attention, command, (flags, now)) {
        Verdict::Run => {}
        held_back => return held_back,
    }
    if attention.contains(Attention::LOADING_BESIDE)
        && (flags.contains(Flags::NO_ASYNC_LOADING) || may_append(command.row.flags))
    {
        return Verdict::Refuse(LOADING);
    }
    if !attention.contains(Attention::LOG_FAILED)
        && attention.contains(Attention::LOG_FULL)
        && flags.intersects(Flags::WRITE | Flags::MAY_REPLICATE)
    {
        return Verdict::Wait(UnixMs(now.0 + LOG_PATIENCE_MS));
    }
    if attention.contains(Attention::MONITORS)
        && let Some(error) = watching_only(session, flags)
    {
        return Verdict::Refuse(error);
    }
    if attention.contains(Attention::PAUSED)
        && let Some(until) = pause_of(server, session, command, flags, now)
    {
        return Verdict::Wait(until);
    }
    // What is queued is shown when EXEC runs it, and EXEC itself after that.
    let runs_now = session.transaction.is_none() || command.is(Flags::RUNS_IN_MULTI) && !command.is_exec();
    if attention.contains(Attention::MONITORS) && runs_now {
        server.monitors.show(&server.net.clients, &session.caller(), command, request);
    }
    Verdict::Run
}

/// Until when a pause holds a request back.
#[inline]
pub fn paused_until(
    server: &Server,
    session: &Session,
    command: &Command,
    request: &Request<'_>,
    now: UnixMs,
) -> Option<UnixMs> {
    let is_paused = server.engine.attention().contains(Attention::PAUSED);
    is_paused.then(|| {
        pause_of(server, session, command, flags_in_effect(server, command, session, request), now)
    })?
}

/// Until when a pause holds a command back. What nodes of a shard say to each other is nobody's request.
fn pause_of(
    server: &Server,
    session: &Session,
    command: &Command,
    flags: Flags,
    now: UnixMs,
) -> Option<UnixMs> {
    // Who monitors counts as a replica here, too.
    let is_exempt = || {
        session.link.is_some()
            || command.row.name.starts_with("insync")
            || session.client.traits().contains(Traits::MONITOR)
    };
    let (paused, until) = server.pause.at(&server.engine, now)?;
    let is_held = match paused {
        Paused::All => !is_exempt(),
        Paused::Writes => flags.intersects(Flags::WRITE | Flags::MAY_REPLICATE),
    };
    is_held.then_some(until)
}

/// Checks what the roles of server and session have against a command: the one may follow a master, or lack replicas, the other may have
/// subscribed.
fn check_role(
    server: &Server,
    session: &Session,
    attention: Attention,
    command: &Command,
    (flags, now): (Flags, UnixMs),
) -> Verdict {
    let follows = attention.contains(Attention::FOLLOWING);
    if flags.contains(Flags::WRITE) {
        if follows && is_read_only(server) && !is_kept_for_later(server, command) {
            return Verdict::Refuse(refusals::READ_ONLY);
        }
        if !follows && attention.contains(Attention::NO_REPLICAS) {
            return Verdict::Refuse(refusals::NO_REPLICAS);
        }
    }
    if let Some(error) = confinement(session, command) {
        return Verdict::Refuse(error);
    }
    match follows && is_hidden(server, session, command, flags) {
        false => Verdict::Run,
        // It is about to follow it.
        true if ownership::is_master_new(server) => Verdict::Wait(UnixMs(now.0 + MASTER_PATIENCE_MS)),
        true => Verdict::Refuse(refusals::MASTER_DOWN),
    }
}

/// Whether a command would show what may not be shown while a master is followed.
fn is_hidden(server: &Server, session: &Session, command: &Command, flags: Flags) -> bool {
    // EXEC shows what its requests do.
    let queued =
        session.transaction.as_ref().filter(|_| command.is_exec()).map_or(&[][..], |all| all.queue());
    let mut is_harmless =
        flags.contains(Flags::STALE) && queued.iter().all(|one| one.command().is(Flags::STALE));
    // It would be held for as long as it is not known what is committed.
    is_harmless &=
        !server.shard.hides_all() || command.row.shows == Shows::Nothing || command.row.name == "info";
    !is_harmless && hides_stale_data(server)
}

/// Whether what only reads may write to the log all the same, as a count that it keeps. While a copy is loaded beside what is here nothing is appended.
pub fn may_append(flags: Flags) -> bool {
    flags.contains(Flags::MAY_REPLICATE) && !flags.contains(Flags::LOADING)
}

/// Whether clients may not write while a master is followed. What they wrote while a copy is loaded would be gone behind it.
fn is_read_only(server: &Server) -> bool {
    let is_replaced = || server.engine.attention().contains(Attention::LOADING_BESIDE);
    server.engine.config.replica_read_only() || server.shard.is_on() || is_replaced()
}

/// Whether a server that waits for its place in a cluster keeps what a command says until it has one, and changes nothing now.
fn is_kept_for_later(server: &Server, command: &Command) -> bool {
    command.row.name == "function|restore" && waits_for_a_place(server)
}

/// Whether config servers have told that this server has no place in its cluster yet, and was not removed from it.
pub fn waits_for_a_place(server: &Server) -> bool {
    let waits = |part: &Part| {
        let view = part.view();
        view.is_confirmed && !view.is_removed && view.own().is_some_and(|own| own.place.is_none())
    };
    !server.shard.is_on() && server.clustered.get().is_some_and(waits)
}

/// Whether what there is may not be shown: it is a master's, whose link is down, and `replica-serve-stale-data` is no.
pub fn hides_stale_data(server: &Server) -> bool {
    let is_stale = || !server.engine.config.replica_serve_stale_data() && server.following.is_stale();
    server.engine.attention().contains(Attention::FOLLOWING) && (server.shard.hides_all() || is_stale())
}

/// Checks a command while there is a ceiling of memory: where there is a store it waits until there is room, else keys are evicted.
fn check_memory(
    server: &Server,
    batch: &Batch<'_>,
    attention: Attention,
    command: &Command,
    may_grow: bool,
    now: UnixMs,
) -> Verdict {
    let needs_room = may_grow || command.first_key > 0;
    if needs_room && residency::is_over(&server.engine) && !server.engine.residency.is_stuck() {
        server.engine.residency.ring();
        return Verdict::Wait(UnixMs(now.0 + ROOM_PATIENCE_MS));
    }
    match refusals::fullness(&server.engine, &server.feeding) {
        Fullness::Room => return Verdict::Run,
        Fullness::Refused(error) if may_grow => return Verdict::Refuse(error),
        Fullness::Refused(_) => return Verdict::Run,
        Fullness::Full => {}
    }
    // During a pause nothing changes by itself.
    let may_evict = batch.is_inside() && !attention.contains(Attention::PAUSED);
    if may_evict && make_room(server, batch, now).is_err() && may_grow {
        return Verdict::Refuse(Error::text("OOM command not allowed when used memory > 'maxmemory'."));
    }
    Verdict::Run
}

/// Whether a followed master says it: what it has done is done here, whatever clients are refused.
pub fn is_of_master(context: &Context<'_, '_>) -> bool {
    context.worker == context.server.engine.following_guest()
}

/// Why a script may not write: writes need replicas, or the last snapshot failed, or the log does not go on, or the store does not where memory is full. Behind writes of its own transaction it
/// may: they are one record.
#[cold]
pub fn disk_error(context: &Context<'_, '_>, fullness: &Fullness) -> Option<Error> {
    let server = context.server;
    if is_of_master(context) {
        return None;
    }
    let attention = server.engine.attention();
    let of_snapshot =
        attention.contains(Attention::SAVE_FAILED) && refusals::are_writes_stopped(&server.engine);
    let of_log =
        || attention.contains(Attention::LOG_FAILED).then(|| refusals::log_error(&server.engine)).flatten();
    let of_store = || match fullness {
        Fullness::Refused(error) => Some(error.clone()),
        Fullness::Room | Fullness::Full => None,
    };
    if attention.contains(Attention::FOLLOWING) {
        // Whatever it has written: who may not write may write nothing.
        return is_read_only(server).then_some(refusals::READ_ONLY);
    }
    let of_replicas = || attention.contains(Attention::NO_REPLICAS).then_some(refusals::NO_REPLICAS);
    let error =
        of_snapshot.then_some(refusals::MISCONF).or_else(of_log).or_else(of_store).or_else(of_replicas);
    error.filter(|_| !context.batch.has_effects())
}

/// Why a command of a transaction or a script may not write: what was written before it, which becomes one record of the log, takes
/// all the memory that one record may. What was written stays; that the others are refused is for the script, or the client, to
/// deal with, as it is where memory is full.
#[cold]
pub fn record_error(context: &Context<'_, '_>, command: &Command, request: &Request<'_>) -> Option<Error> {
    let gathered = context.batch.effects_bytes();
    if gathered == 0 || is_of_master(context) {
        // A single command is as long as it is.
        return None;
    }
    let most = refusals::record_bytes_max(&context.server.engine);
    // Who only takes away is refused later.
    let most = if command.is(Flags::DENYOOM) { most } else { most * 2 };
    let bytes: usize = request.iter().map(<[u8]>::len).sum();
    (gathered + bytes > most).then(|| {
        Error::text("OOM command not allowed: the transaction or script has written as much as one record of the log may hold")
    })
}

/// How long a command waits before it looks again whether there is room in memory.
const ROOM_PATIENCE_MS: u64 = 1;

/// How long a write waits before it looks again whether the disk has caught up.
const LOG_PATIENCE_MS: u64 = 1;

/// How long a request waits before it looks again whether a new master is followed.
const MASTER_PATIENCE_MS: u64 = 1;

/// The error of a command that needs data which is being loaded.
pub(crate) const LOADING: Error = Error::text("LOADING Redis is loading the dataset in memory");

/// Checks a command that is to run in a batch outside of the keyspace.
#[cold]
pub fn check_outside(
    server: &Server,
    session: &mut Session,
    command: &Command,
    request: &Request<'_>,
    now: UnixMs,
) -> Verdict {
    match server.engine.attention().contains(Attention::LOADING) {
        false => reach::check_outside(server, session, command, request, now),
        true if command.is(Flags::LOADING) && !command.is(Flags::NEEDS_DATA) => Verdict::Run,
        true => Verdict::Refuse(LOADING),
    }
}

/// Evicts until memory is below its ceiling, or for as long as one command may be
/// held up; then it goes on before the next.
///
/// # Errors
/// The policy allows no key to be freed.
#[cold]
pub fn make_room(server: &Server, batch: &Batch<'_>, now: UnixMs) -> Result<(), OutOfMemory> {
    let began = server.ticks.now();
    server.engine.durability.log().inspect(|log| log.let_unused_go());
    let evicted = batch.evict(now, || refusals::counted_bytes(&server.engine, &server.feeding), |_, _| {});
    server.note_latency("eviction-cycle", began);
    evicted.map(|_| ())
}

/// Why a session that monitors may not make a request with these flags: as in Redis, where such are a kind of replicas.
pub fn watching_only(session: &Session, flags: Flags) -> Option<Error> {
    let is_of_keys = flags.intersects(Flags::READONLY | Flags::WRITE | Flags::MAY_REPLICATE);
    (is_of_keys && session.client.traits().contains(Traits::MONITOR))
        .then_some(Error::text("ERR Replica can't interact with the keyspace"))
}

/// Why a session may not make a request while it listens.
pub fn confinement(session: &Session, command: &Command) -> Option<Error> {
    (session.is_confined() && !command.is(Flags::AMONG_MESSAGES)).then(|| {
        Error::line(format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
             context",
            command.row.name
        ))
    })
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
