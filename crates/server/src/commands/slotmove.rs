//! SLOTMOVE: what the master of a shard that gives slots away says to the master of the one that gets them ([`crate::moving`]).
//!
//! What is brought is done as writes of this server's own: its log and its replicas have it, and the answer leaves when it is committed. No key of it is anybody's to see
//! before the slots are this shard's.

use super::scripting::add_missing_libraries;
use super::{HELP_FLAGS, help, row, settled, unknown_subcommand};
use crate::arrivals::RESTORE;
use crate::clustered::View;
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use crate::replay::Replay;
use crate::session::Brings;
use ::script::limits::LOAD_TIMEOUT;
use command::parse::int;
use command::table::{self, Runs};
use command::{Error, Flags, Group, Reach, Result, Row, Shows};
use engine::apply::Rejection;
use keyspace::{DbIndex, NO_TIME_IS_UP, Slot};
use replication::insync::Role;
use topology::{Move, Stage};
use wire::{Authenticated, Batch, Limits, Parser, Reply, Request, RequestBuf};

const FLAGS: Flags = Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::NO_MULTI);
const WRITES: Flags = FLAGS.union(Flags::WRITE).union(Flags::DENYOOM);

/// SLOTMOVE and its subcommands.
pub const ROWS: &[Row<ServerHandler>] =
    &[row("slotmove", -2, Reach::All, Flags::empty(), |context, _| unknown_subcommand(context))
        .shows(Shows::Nothing)
        .group(Group::Cluster)
        .complexity("Depends on the subcommand.")
        .summary("Is a container for what masters say to each other of slots that move.")
        .subcommands(SUBCOMMANDS)];

const SUBCOMMANDS: &[Row<ServerHandler>] = &[
    sub("slotmove|apply", 4, WRITES, apply)
        .complexity("O(N), N being the number of requests")
        .shows(Shows::WhatItNotes)
        .syntax("db requests")
        .summary("Is what the slots that are brought hold, and what is done in them."),
    sub("slotmove|begin", 4, FLAGS, begin)
        .complexity("O(N), N being the number of slots")
        .syntax("move attempt")
        .summary("Is what a master says that brings slots."),
    sub("slotmove|confirm", 2, FLAGS, confirm)
        .shows(Shows::Everything)
        .complexity("O(1)")
        .summary("Is what it asks before the slots change hands."),
    sub("slotmove|help", 2, HELP_FLAGS, |_, reply| help(reply, "SLOTMOVE", HELP))
        .complexity("O(1)")
        .summary("Lists the subcommands."),
    row("slotmove|libraries", -3, Reach::Around, WRITES, libraries)
        .group(Group::Cluster)
        .complexity("O(N), N being the number of functions in the libraries")
        .shows(Shows::Everything)
        .syntax("code [code ...]")
        .summary("Is what libraries of functions a shard gets before its first slots."),
    sub("slotmove|restore", 3, FLAGS.union(Flags::WRITE), restore)
        .shows(Shows::Everything)
        .complexity("O(N), N being the number of keys that an earlier attempt has left")
        .syntax("restore")
        .summary("Is what is said by who brings a backup, as long as no slot is anybody's."),
];

const HELP: &[&str] = &[
    "BEGIN <move> <attempt>",
    "    Bring the slots of a move; said by masters of a cluster, and by nobody else. Answers with the epoch.",
    "APPLY <db> <requests>",
    "    Do these requests, whose keys are of the slots that are brought.",
    "LIBRARIES <code> [<code> ...]",
    "    Load those of these libraries of functions that are not here; said before the shard's first slots are brought.",
    "CONFIRM",
    "    Tell whether all that was brought is here, and the slots are known to be about to change hands.",
    "RESTORE <restore>",
    "    Bring the slots of a backup to a cluster that waits for one; said by `tarn cluster restore`. Empties all databases.",
];

const fn sub(name: &'static str, arity: i32, flags: Flags, handler: ServerHandler) -> Row<ServerHandler> {
    row(name, arity, Reach::All, flags, handler).group(Group::Cluster).shows(Shows::Nothing)
}

/// It is too early: the same may be said again.
const NOT_YET: Error = Error::text("SLOTMOVE-LATER The move is not known here, or not all is cleared yet");
/// Whoever brings slots has been replaced, or what was brought is gone.
pub(super) const OVER: Error =
    Error::text("SLOTMOVE-OVER What was brought is not whole, or somebody else brings it");

/// SLOTMOVE BEGIN move attempt
fn begin(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let (id, attempt) = (number(&context.request, 2)?, number(&context.request, 3)?);
    let (server, keyspace) = (context.server, &context.server.engine.keyspace);
    let view = server.clustered.get().map(|part| part.view()).unwrap_or_default();
    let one = find(&view, id, |one| u64::from(one.attempt) == attempt && one.stage == Stage::Copying)?;
    let standing = server.shard.get().map(|shard| shard.standing()).ok_or(NOT_YET)?;
    if !view.leads || standing.role != Role::Master {
        return Err(NOT_YET);
    }
    let mut known = server.arrivals.lock();
    known.follow(&view.topology);
    // Before the slots are looked at: whoever was let in before brings nothing from here on.
    let token = known.let_in(id, one.attempt, one.slots.clone(), keyspace.upheavals());
    let mut slots = one.each_slot().map(Slot);
    let is_clear = slots
        .all(|slot| server.engine.databases().all(|db| context.batch.try_count_slot(db, slot) == Some(0)));
    if !is_clear {
        known.forget(id);
        return Err(NOT_YET);
    }
    context.session.bring(Brings { id, token, done: 0 });
    reply.int(i64::try_from(standing.epoch.0).unwrap_or(i64::MAX));
    Ok(())
}

/// The move of this number that brings slots to this server's shard.
fn find(view: &View, id: u64, is_so: impl Fn(&Move) -> bool) -> Result<Move> {
    let one = view.topology.moves.get(&id).filter(|one| view.shard() == Some(one.to) && is_so(one));
    one.cloned().ok_or(NOT_YET)
}

fn number(request: &Request<'_>, at: usize) -> Result<u64> {
    u64::try_from(int(request.arg(at))?).map_err(|_| Error::NotInteger)
}

/// SLOTMOVE RESTORE restore
///
/// What an earlier attempt has left goes. It is nobody's: no slot is.
fn restore(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let number = number(&context.request, 2)?;
    let (server, keyspace) = (context.server, &context.server.engine.keyspace);
    let view = server.clustered.get().map(|part| part.view()).unwrap_or_default();
    let standing = server.shard.get().map(|shard| shard.standing()).ok_or(NOT_YET)?;
    if !view.leads || standing.role != Role::Master {
        return Err(NOT_YET);
    }
    if view.topology.slots.count() != 0 {
        return Err(refused("slots have owners here: a backup is brought to a new cluster only"));
    }
    let mut replay = Replay::new(server, context.worker);
    // Nobody else may bring something from here on. What this server was told since it leads, or in this run, is no older than any restore that it,
    // or who was master before, has let in.
    let is_latest = {
        let mut known = server.arrivals.lock();
        known.follow(&view.topology);
        known.begin_restore(number)
    };
    if !is_latest {
        return Err(refused("another restore has begun since"));
    }
    for words in [&["FLUSHALL"][..], &["FUNCTION", "FLUSH"]] {
        let request = RequestBuf::from_args(words.iter().copied());
        match replay.apply_within(context.batch, DbIndex(0), NO_TIME_IS_UP, &request.as_request()) {
            Ok(_) => {}
            Err(Rejection::Failed(_, error)) => return Err(error),
            Err(rejection) => return Err(refused(&rejection.to_string())),
        }
    }
    let token = server.arrivals.lock().let_in_restore(number, keyspace.upheavals());
    let token = token.ok_or_else(|| refused("another restore has begun since"))?;
    context.session.bring(Brings { id: RESTORE, token, done: 0 });
    reply.int(i64::try_from(standing.epoch.0).unwrap_or(i64::MAX));
    Ok(())
}

/// SLOTMOVE APPLY db requests
fn apply(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    const UNLIMITED: Limits = Limits { bulk_bytes_max: u64::MAX, authenticated: Authenticated::Yes };
    let (server, keyspace) = (context.server, &context.server.engine.keyspace);
    let db = u32::try_from(number(&context.request, 2)?).map(DbIndex).map_err(|_| Error::NotInteger)?;
    let input = context.request.arg(3);
    let mut requests = Batch::new();
    let parsed = Parser::new().parse(input, &UNLIMITED, &mut requests, usize::MAX);
    if db.0 >= keyspace.databases() || parsed.ok() != Some(input.len()) {
        return Err(refused(
            "it is no sequence of requests, or of a database that is not here (see `databases`)",
        ));
    }
    let Some(brings) = context.session.brings.as_deref().copied() else { return Err(OVER) };
    // As long as it is held nobody else is let in, and nothing is cleared.
    let known = server.arrivals.lock();
    let slots = known.slots_of(brings.id, brings.token, keyspace.upheavals()).ok_or(OVER)?;
    let mut replay = Replay::new(server, context.worker);
    let mut done = brings.done;
    let result = requests.iter(input).skip(brings.done).try_for_each(|request| {
        judge(&request, |key| {
            let slot = keyspace.key(db, key).slot.0;
            slots.iter().any(|range| range.contains(slot))
        })?;
        match replay.apply_within(context.batch, db, NO_TIME_IS_UP, &request) {
            Ok(_) => done += 1,
            Err(Rejection::Failed(_, Error::InUse)) => return Err(Error::InUse),
            Err(rejection) => return Err(refused(&rejection.to_string())),
        }
        Ok(())
    });
    drop(known);
    // What is done is not done twice where something slow is in the way.
    let is_held_back = matches!(result, Err(Error::InUse));
    if let Some(brings) = &mut context.session.brings {
        brings.done = if is_held_back { done } else { 0 };
    }
    result?;
    reply.ok();
    Ok(())
}

/// SLOTMOVE LIBRARIES code [code ...]
///
/// A shard that begins has no libraries of functions; one of the same name that is here stays as it is.
fn libraries(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let Some(brings) = context.session.brings.as_deref().copied() else { return Err(OVER) };
    let upheavals = context.server.engine.keyspace.upheavals();
    if context.server.arrivals.lock().slots_of(brings.id, brings.token, upheavals).is_none() {
        return Err(OVER);
    }
    let codes: Vec<&[u8]> = context.request.iter().skip(2).collect();
    match add_missing_libraries(context, &codes) {
        Ok(()) => {
            reply.ok();
            Ok(())
        }
        Err(Error::InUse) => Err(Error::InUse),
        // The machine was busy with something else.
        Err(error) if error.as_bytes().ends_with(LOAD_TIMEOUT.as_bytes()) => Err(error),
        Err(error) => {
            let why = String::from_utf8_lossy(error.as_bytes()).into_owned();
            Err(refused(&format!("the libraries of functions cannot be loaded there: {why}")))
        }
    }
}

/// Another attempt would be refused alike.
fn refused(why: &str) -> Error {
    Error::quoting("SLOTMOVE-REFUSED ", why.as_bytes(), "")
}

/// Whether a request is one that changes keys that may be brought, and nothing else.
fn judge(request: &Request<'_>, is_brought: impl Fn(&[u8]) -> bool) -> Result<()> {
    let unknown = || {
        let name = request.get(0).unwrap_or_default().escape_ascii().to_string();
        refused(&format!("'{name}' is nothing that is known here of what may be brought"))
    };
    let command = table::find_for(request).ok_or_else(unknown)?;
    if !matches!(command.row.handler, Runs::Data(_)) || command.effect.is_none() {
        return Err(unknown());
    }
    let mut positions = Vec::new();
    command::execute::key_positions(command.row.keys, request, &mut positions);
    let is_right = |at: &usize| request.get(*at).is_some_and(&is_brought);
    match !positions.is_empty() && positions.iter().all(is_right) {
        true => Ok(()),
        false => Err(unknown()),
    }
}

/// SLOTMOVE CONFIRM
fn confirm(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let server = context.server;
    let Some(brings) = context.session.brings.as_deref() else { return Err(OVER) };
    let view = server.clustered.get().map(|part| part.view()).unwrap_or_default();
    let (id, token) = (brings.id, brings.token);
    let is_known = id == RESTORE || find(&view, id, |one| one.stage == Stage::Switching).is_ok();
    // Whoever empties databases from here on knows that slots switch.
    let is_whole = settled(context, |context| {
        context.batch.begin_era();
        let known = server.arrivals.lock();
        known.slots_of(id, token, server.engine.keyspace.upheavals()).is_some()
    })?;
    if !is_whole {
        return Err(OVER);
    }
    context.batch.see_all();
    reply.int(i64::from(is_known));
    Ok(())
}
