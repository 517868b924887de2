//! TIME: the server's clock.

use super::row;
use crate::dispatch::Context;
use crate::dispatch::table::ServerHandler;
use command::{Flags, Group, Result, Row};
use wire::Reply;

/// TIME.
pub const ROWS: &[Row<ServerHandler>] =
    &[row("time", 1, Flags::LOADING.union(Flags::STALE).union(Flags::FAST), time)
        .group(Group::Server)
        .since("2.6.0")
        .summary("Replies with the server's time in seconds and microseconds.")
        .tips(&["nondeterministic_output"])];

/// TIME
fn time(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let now_us = context.server.clock.now_us();
    reply.array(2);
    reply.bulk_int((now_us / 1_000_000) as i64);
    reply.bulk_int((now_us % 1_000_000) as i64);
    Ok(())
}
