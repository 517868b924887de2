//! Transactions: MULTI, EXEC, DISCARD, WATCH and UNWATCH.
//!
//! EXEC holds the slots of all keys that its requests name and of all keys that are
//! watched, or the whole keyspace if one of them asks for more, and runs them under
//! that as any other request: nobody sees a part of it.

use super::row;
use crate::dispatch::handlers::ServerHandler;
use crate::dispatch::reach::{self, reach_of};
use crate::dispatch::{Context, checks};
use crate::rights;
use crate::server::Server;
use crate::session::Session;
use crate::slow;
use crate::transaction::Queued;
use command::key_use::LOOKS;
use command::{Error, Flags, Group, Hashed, Keys, Reach, Result, Row, Shows};
use engine::Attention;
use keyspace::Key;
use net::client::Traits;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;
use telemetry::stats::Ending;
use wire::Reply;

const ALWAYS: Flags = Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE).union(Flags::RUNS_IN_MULTI);
const QUICK: Flags = ALWAYS.union(Flags::FAST).union(Flags::ALLOW_BUSY);

/// The transactions group.
pub const ROWS: &[Row<ServerHandler>] = &[
    row("discard", 1, Reach::Nothing, QUICK, discard)
        .flags(Flags::ENDS_TRANSACTION)
        .shows(Shows::Nothing)
        .since("2.0.0")
        .group(Group::Transactions)
        .complexity("O(N), N being the number of queued commands")
        .summary("Gives a transaction up."),
    row("exec", 1, Reach::Queue, ALWAYS.union(Flags::SKIP_SLOWLOG), exec)
        .flags(Flags::ENDS_TRANSACTION.union(Flags::NEEDS_DATA))
        .shows(Shows::WhatItNotes)
        .since("1.2.0")
        .group(Group::Transactions)
        .complexity("Depends on the commands of the transaction")
        .summary("Runs all commands of a transaction."),
    row("multi", 1, Reach::Keys, QUICK, multi)
        .shows(Shows::Nothing)
        .since("1.2.0")
        .group(Group::Transactions)
        .summary("Begins a transaction."),
    // In a transaction it is queued, and does nothing when it runs.
    row("unwatch", 1, Reach::Nothing, QUICK.difference(Flags::RUNS_IN_MULTI), unwatch)
        .shows(Shows::Nothing)
        .since("2.2.0")
        .group(Group::Transactions)
        .summary("Forgets about watched keys."),
    row("watch", -2, Reach::Keys, QUICK, watch)
        .flags(Flags::NEEDS_DATA)
        .shows(Shows::WhatItNotes)
        .since("2.2.0")
        .group(Group::Transactions)
        .keys(Keys::ALL)
        .key_flags(&[LOOKS])
        .complexity("O(1) for every key")
        .syntax("key [key ...]")
        .summary("Watches keys: the next transaction runs only if none of them has changed."),
];

/// MULTI. A second one is an error that does the transaction no harm, as is a WATCH within it.
fn multi(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    if context.session.transaction.is_some() {
        return Err(Error::text("ERR MULTI calls can not be nested"));
    }
    context.session.transaction = Some(Box::default());
    let client = &context.session.client;
    client.set_trait(Traits::MULTI, true);
    client.queued.store(0, Ordering::Relaxed);
    reply.ok();
    Ok(())
}

/// DISCARD
fn discard(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    if context.session.leave_transaction().is_none() {
        return Err(Error::text("ERR DISCARD without MULTI"));
    }
    forget_watched(context);
    reply.ok();
    Ok(())
}

/// WATCH key [key ...]
fn watch(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    if context.session.transaction.is_some() {
        return Err(Error::text("ERR WATCH inside MULTI is not allowed"));
    }
    let (request, server, db) = (context.request, context.server, context.session.db);
    let keys: SmallVec<[Key<'_>; 4]> =
        request.iter().skip(1).map(|name| server.engine.keyspace.key(db, name)).collect();
    // All or none.
    if !context.batch.try_hold(&keys) {
        return Err(Error::InUse);
    }
    context.now = context.batch.moment(context.now);
    let session = &mut *context.session;
    let watched = keys.iter().try_for_each(|key| {
        session.watched.add(
            (&server.watches, &server.engine.keyspace),
            context.batch,
            &session.client,
            *key,
            context.now,
        )
    });
    context.batch.release();
    watched?;
    reply.ok();
    Ok(())
}

/// UNWATCH
fn unwatch(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    forget_watched(context);
    reply.ok();
    Ok(())
}

fn forget_watched(context: &mut Context<'_, '_>) {
    let session = &mut *context.session;
    session.watched.clear(&context.server.watches, &context.server.engine.keyspace, &session.client);
}

/// EXEC
fn exec(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let was_begun = context.session.transaction.is_some();
    let result = end_transaction(context, reply);
    // Behind what it ran.
    let has_run = was_begun && result != Err(Error::InUse);
    let server = context.server;
    if has_run && server.engine.attention().contains(Attention::MONITORS) {
        let caller = context.session.caller();
        server.monitors.show(&server.net.clients, &caller, context.command, &context.request);
    }
    result
}

fn end_transaction(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let Some(transaction) = &context.session.transaction else {
        return Err(Error::text("ERR EXEC without MULTI"));
    };
    if transaction.is_doomed {
        context.session.leave_transaction();
        forget_watched(context);
        return Err(Error::text("EXECABORT Transaction discarded because of previous errors."));
    }
    let is_held = match reach_of(context.server, context.session, transaction.queue(), context.now) {
        reach::Reach::All => context.batch.try_hold_all(),
        reach::Reach::Keys(keys) => context.batch.try_hold(&keys),
    };
    if !is_held {
        return Err(Error::InUse);
    }
    context.session.give_up_claim(context.server);
    context.now = context.batch.moment(context.now);
    // While its requests run that is what the session shows of itself.
    context.session.client.note_batch(Some(context.command.id), 0, context.now);
    // Requests find themselves in a transaction while they run: they may not wait.
    let transaction = context.session.transaction.replace(Box::default()).unwrap_or_default();
    let queue = transaction.into_queue();
    let session = &mut *context.session;
    let disturbed = session.watched.is_disturbed(
        &context.server.engine.keyspace,
        context.batch,
        &session.client,
        context.now,
    );
    let has_left = has_left(context.server, context.session);
    forget_watched(context);
    let answered = disturbed.map(|is_disturbed| {
        if is_disturbed || has_left {
            reply.null_array();
        } else {
            reply.array(queue.len());
            queue.iter().for_each(|queued| run(context, queued, reply));
        }
    });
    context.session.leave_transaction();
    // What became ready is served before anyone else sees the keys.
    if !context.batch.has_ready() {
        context.batch.release();
    }
    answered
}

/// Whether a watched key is another shard's by now.
fn has_left(server: &Server, session: &Session) -> bool {
    let Some(part) = server.clustered.get() else { return false };
    let view = part.view();
    session.watched.keys(&server.engine.keyspace).any(|key| !view.routes.has(key.slot.0))
}

/// Runs one request of the transaction.
fn run(context: &mut Context<'_, '_>, queued: &Queued, reply: &mut Reply<'_>) {
    let (server, command) = (context.server, queued.command());
    let began = server.ticks.now();
    let request = queued.request();
    if let Err(error) = rights::admit_queued(server, context.session, command, &request, context.now) {
        reply.error(error.as_bytes());
        server.counts.note_error(error.as_bytes());
        return;
    }
    let is_beside = server.engine.attention().contains(Attention::LOADING_BESIDE);
    let refusal = match is_beside && checks::may_append(command.row.flags) {
        true => Some(checks::LOADING),
        false if command.is(Flags::WRITE) => checks::record_error(context, command, &request),
        false => None,
    };
    if let Some(error) = refusal {
        reply.error(error.as_bytes());
        server.counts.note_error(error.as_bytes());
        return;
    }
    if server.engine.attention().contains(Attention::MONITORS) {
        server.monitors.show(&server.net.clients, &context.session.caller(), command, &request);
    }
    let mut inner = Context {
        server,
        worker: context.worker,
        session: context.session,
        request,
        command,
        now: context.now,
        batch: context.batch,
    };
    let ending: Ending = inner.call(Hashed::NONE, reply);
    let (counts, track) = (&server.worker_counts[context.worker], server.engine.config.latency_tracking());
    let ended = server.ticks.now();
    counts.note(command.id, began, ended, ending, track);
    let spent = ended.0.saturating_sub(began.0);
    slow::note_if_slow(server, &context.session.client, command, &request, spent);
    server.counts.commands.add(1);
}
