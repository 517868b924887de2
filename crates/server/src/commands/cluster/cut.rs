//! CLUSTER CUT: a moment that all shards of a cluster have in common, for who takes a backup of all of them (`docs/cluster.md`, "Backups").
//!
//! HOLD holds writes back; what was begun before has taken effect by then. POSITION tells how far the stream goes, if nothing was written since HOLD; the answer leaves when
//! all of that is committed, and only while nobody else can be master. RELEASE ends it, and so does the time that was said.

use super::view;
use crate::dispatch::Context;
use crate::feeding;
use crate::server::Server;
use command::parse::int;
use command::{Error, Result};
use replication::insync::Role;
use std::time::Duration;
use wire::Reply;

/// Writes are held back for no longer than that.
const HOLD_MS_MAX: u64 = 10_000;

/// CLUSTER CUT HOLD milliseconds, CLUSTER CUT POSITION cut, CLUSTER CUT RELEASE cut
pub(super) fn cut(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    view(context)?;
    let number = u64::try_from(int(context.request.arg(3))?).map_err(|_| Error::NotInteger)?;
    let word = context.request.arg(2).to_ascii_lowercase();
    match word.as_slice() {
        b"hold" => hold(context, number, reply),
        b"position" => position(context, number, reply),
        b"release" => {
            let server = context.server;
            server.pause.release(&server.engine, &server.net.clients, number);
            reply.ok();
            Ok(())
        }
        _ => Err(Error::Syntax),
    }
}

fn hold(context: &mut Context<'_, '_>, milliseconds: u64, reply: &mut Reply<'_>) -> Result<()> {
    if !(1..=HOLD_MS_MAX).contains(&milliseconds) {
        return Err(Error::text("ERR writes are held back for 1 to 10000 milliseconds"));
    }
    let server = context.server;
    epoch(server)?;
    let cut = crate::commands::settled(context, |context| {
        let now = context.batch.moment(context.now);
        server.pause.hold(&server.engine, now, Duration::from_millis(milliseconds))
    })?;
    let cut = cut.ok_or(Error::text("ERR another backup is holding writes back at this moment"))?;
    reply.int(i64::try_from(cut).unwrap_or(i64::MAX));
    Ok(())
}

fn position(context: &mut Context<'_, '_>, cut: u64, reply: &mut Reply<'_>) -> Result<()> {
    let server = context.server;
    let epoch = epoch(server)?;
    let end = feeding::end(server);
    // What is written by clients is held back; where nobody has ended that, the end was the same when this was asked.
    if !server.pause.is_held(cut, server.engine.clock.now()) {
        return Err(Error::text("ERR writes are not held back any more for this cut"));
    }
    context.batch.see_all();
    reply.array(3);
    reply.bulk(server.stream().id.to_string().as_bytes());
    reply.int(i64::try_from(end).unwrap_or(i64::MAX));
    reply.int(i64::try_from(epoch).unwrap_or(i64::MAX));
    Ok(())
}

/// The epoch in which this server is master of its shard.
///
/// # Errors
/// It is not.
fn epoch(server: &Server) -> Result<u64> {
    let standing = server.shard.get().map(|shard| shard.standing());
    let leads = standing.filter(|standing| standing.role == Role::Master && !standing.is_halted);
    leads.map(|standing| standing.epoch.0).ok_or(Error::text("ERR this server is not master of its shard"))
}
