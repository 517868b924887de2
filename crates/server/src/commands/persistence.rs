//! SAVE, BGSAVE, LASTSAVE: requests for snapshots, which `snapshot` takes; and BGREWRITEAOF, for a checkpoint, or
//! without a log for append-only files.

use super::row;
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use crate::feeding::handover;
use command::{Categories, Error, Flags, Group, Reach, Result, Row, Shows};
use engine::durability;
use engine::snapshot::{self, InProgress, Unsaved};
use std::io;
use wire::Reply;

const FLAGS: Flags = Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::NO_ASYNC_LOADING);

/// SAVE, BGSAVE, LASTSAVE and BGREWRITEAOF.
pub const ROWS: &[Row<ServerHandler>] = &[
    row("bgrewriteaof", 1, Reach::All, FLAGS, bgrewriteaof)
        .passes_by(|_| true)
        .shows(Shows::Nothing)
        .group(Group::Server)
        .complexity("O(1)")
        .summary("Begins a checkpoint of the log in the background."),
    row("bgsave", -1, Reach::All, FLAGS, bgsave)
        .passes_by(|_| true)
        .shows(Shows::Nothing)
        .group(Group::Server)
        .complexity("O(1)")
        .syntax("[SCHEDULE]")
        .summary("Begins a snapshot in the background."),
    row("lastsave", 1, Reach::Nothing, Flags::LOADING.union(Flags::STALE).union(Flags::FAST), lastsave)
        .shows(Shows::Nothing)
        .group(Group::Server)
        .in_categories(Categories::ADMIN.union(Categories::DANGEROUS))
        .complexity("O(1)")
        .summary("Tells when the last snapshot was finished.")
        .tips(&["nondeterministic_output"]),
    row("save", 1, Reach::All, FLAGS.union(Flags::NO_MULTI), save)
        .shows(Shows::Nothing)
        .group(Group::Server)
        .complexity("O(N), N being the number of keys in all databases")
        .summary("Takes a snapshot while nothing else runs."),
];

fn in_progress(_: InProgress) -> Error {
    Error::text("ERR Background save already in progress")
}

/// SAVE
fn save(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    // It holds everything, and shows nothing of it but that it was written.
    let earlier = context.batch.take_seen();
    let saved = snapshot::save_now(&context.server.engine, context.batch, context.now);
    context.batch.take_seen();
    context.batch.see(earlier);
    let saved = saved.map_err(|why| match why {
        Unsaved::InProgress => in_progress(InProgress),
        Unsaved::InUse => Error::InUse,
    })?;
    // The log says why.
    saved.map_err(|_| Error::text("ERR"))?;
    reply.ok();
    Ok(())
}

/// BGSAVE [SCHEDULE]
fn bgsave(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    match context.request.len() {
        1 => {}
        2 if context.request.arg(1).eq_ignore_ascii_case(b"schedule") => {}
        _ => return Err(Error::Syntax),
    }
    context.server.engine.snapshots.ask(context.now).map_err(in_progress)?;
    context.server.bells.ring(context.server.net.placement.spare());
    reply.simple("Background saving started");
    Ok(())
}

/// BGREWRITEAOF
fn bgrewriteaof(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let (engine, said) = (&context.server.engine, |error: io::Error| Error::line(format!("ERR {error}")));
    if engine.durability.log().is_none() {
        durability::refuse_unread_log(engine).map_err(said)?;
    }
    if engine.durability.log().is_some_and(|log| log.rests()) {
        handover::go_on_for_checkpoint(context.server).map_err(said)?;
    } else {
        durability::begin_rewrite(engine)
            .map_err(|_| Error::text("ERR Background append only file rewriting already in progress"))?;
    }
    // What a transaction has done is in it when that has ended.
    let is_in_exec = context.batch.is_holding();
    reply.simple(match is_in_exec {
        true => "Background append only file rewriting scheduled",
        false => "Background append only file rewriting started",
    });
    Ok(())
}

/// LASTSAVE
fn lastsave(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    reply.int(context.server.engine.snapshots.figures().saved_at.seconds() as i64);
    Ok(())
}
