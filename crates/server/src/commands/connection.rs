//! The connection group: PING, ECHO, SELECT, HELLO, AUTH, RESET, QUIT.

use super::row;
use crate::dispatch::Context;
use crate::dispatch::table::ServerHandler;
use crate::session::Closing;
use command::{Error, Flags, Group, Result, Row};
use keyspace::DbIndex;
use wire::Reply;

/// The connection group, without CLIENT.
pub const ROWS: &[Row<ServerHandler>] = &[
    row("ping", -1, Flags::FAST, ping)
        .group(Group::Connection)
        .syntax("[message]")
        .summary("Answers, to show that the server is there."),
    row("echo", 2, Flags::FAST.union(Flags::LOADING).union(Flags::STALE), echo)
        .group(Group::Connection)
        .syntax("message")
        .summary("Answers with the message."),
    row("select", 2, Flags::FAST.union(Flags::LOADING).union(Flags::STALE), select)
        .group(Group::Connection)
        .syntax("index")
        .summary("Changes the database of the connection."),
    row("quit", -1, Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE).union(Flags::FAST).union(Flags::NO_AUTH), quit)
        .group(Group::Connection)
        .summary("Closes the connection."),
];

/// PING [message]
fn ping(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    match context.request.len() {
        1 => reply.simple("PONG"),
        2 => reply.bulk(context.request.arg(1)),
        _ => return Err(Error::arity("ping")),
    }
    Ok(())
}

/// ECHO message
fn echo(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    reply.bulk(context.request.arg(1));
    Ok(())
}

/// SELECT index
fn select(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let index = value::number::parse_i64(context.request.arg(1)).ok_or(Error::NotInteger)?;
    let db = u32::try_from(index).ok().filter(|db| *db < context.server.keyspace.databases());
    context.session.select(DbIndex(db.ok_or(Error::text("ERR DB index is out of range"))?));
    reply.ok();
    Ok(())
}

/// QUIT
fn quit(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    context.session.closing = Closing::AfterReplies;
    reply.ok();
    Ok(())
}
