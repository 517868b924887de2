//! The server's own commands: rows and handlers over a session and the server.

pub mod acl;
pub mod client;
pub mod cluster;
pub mod command;
pub mod config;
pub mod connection;
pub mod debug;
pub mod info;
pub mod insync;
pub mod latency;
pub mod lolwut;
pub mod memory;
pub mod migrate;
pub mod module;
pub mod monitor;
pub mod persistence;
pub mod pubsub;
pub mod replication;
pub mod scripting;
pub mod shutdown;
pub mod slotmove;
pub mod slowlog;
pub mod time;
pub mod transactions;
pub mod wait;

use crate::dispatch::Context;
use crate::dispatch::handlers::{self, ServerHandler};
use ::command::{Error, Flags, Reach, Result, Row};
use wire::Reply;

/// Their rows, family by family.
pub const FAMILIES: &[&[Row<ServerHandler>]] = &[
    acl::ROWS,
    client::ROWS,
    cluster::ROWS,
    command::ROWS,
    config::ROWS,
    connection::ROWS,
    debug::ROWS,
    info::ROWS,
    insync::ROWS,
    latency::ROWS,
    lolwut::ROWS,
    memory::ROWS,
    migrate::ROWS,
    module::ROWS,
    monitor::ROWS,
    persistence::ROWS,
    pubsub::ROWS,
    replication::ROWS,
    scripting::ROWS,
    shutdown::ROWS,
    slotmove::ROWS,
    slowlog::ROWS,
    time::ROWS,
    transactions::ROWS,
    wait::ROWS,
];

/// Tells the table of commands of these, unless that has been done. Whatever begins to work with commands calls it first.
pub fn install() {
    handlers::install(FAMILIES);
}

/// Begins a row of a server command: none may leave open what it touches.
pub(crate) const fn row(
    name: &'static str,
    arity: i32,
    reach: Reach,
    flags: Flags,
    handler: ServerHandler,
) -> Row<ServerHandler> {
    Row::new(name, arity, flags, handler).reach(reach)
}

/// The flags of every HELP subcommand.
pub(crate) const HELP_FLAGS: Flags = Flags::LOADING.union(Flags::STALE);

/// Answers a container's HELP: `lines` say what its other subcommands do.
pub(crate) fn help(reply: &mut Reply<'_>, container: &str, lines: &[&str]) -> Result<()> {
    reply.array(lines.len() + 3);
    reply.simple(format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    lines.iter().for_each(|line| reply.simple(line));
    reply.simple("HELP");
    reply.simple("    This list.");
    Ok(())
}

/// What a container does when its first argument is none of its subcommands.
pub(crate) fn unknown_subcommand(context: &Context<'_, '_>) -> Result<()> {
    let word = context.request.get(1).unwrap_or_default();
    Err(Error::unknown_subcommand(context.command.row.name, word))
}

/// Does something while nobody else is in the keyspace: all that was let in before has taken effect.
///
/// # Errors
/// Something that is slow has the keyspace: the command is to be run again.
pub(crate) fn settled<T>(
    context: &mut Context<'_, '_>,
    work: impl FnOnce(&mut Context<'_, '_>) -> T,
) -> Result<T> {
    // While data is loaded nobody is served who touches it.
    let holds = context.batch.is_inside() && !context.batch.holds_all();
    let earlier = context.batch.take_seen();
    if holds && !context.batch.try_hold_all() {
        context.batch.see(earlier);
        return Err(Error::InUse);
    }
    let done = work(context);
    if holds {
        context.batch.release();
    }
    // It has looked at nothing, and the disk may hang.
    context.batch.take_seen();
    context.batch.see(earlier);
    Ok(done)
}

#[cfg(test)]
mod tests;
