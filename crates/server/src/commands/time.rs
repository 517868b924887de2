//! TIME: the server's clock.

use super::row;
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use command::{Flags, Group, Reach, Result, Row, Shows};
use wire::Reply;

/// TIME.
pub const ROWS: &[Row<ServerHandler>] =
    &[row("time", 1, Reach::Nothing, Flags::LOADING.union(Flags::STALE).union(Flags::FAST), time)
        .shows(Shows::Nothing)
        .group(Group::Server)
        .since("2.6.0")
        .summary("Replies with the server's time in seconds and microseconds.")
        .tips(&["nondeterministic_output"])];

/// TIME; in a script the same until that is slow, as in Redis 7.2.
fn time(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let clock_us = || context.server.engine.clock.now_us();
    let now_us = match context.session.runs_script {
        true => *context.session.script_time_us.get_or_insert_with(clock_us),
        false => clock_us(),
    };
    reply.array(2);
    reply.bulk_int((now_us / 1_000_000) as i64);
    reply.bulk_int((now_us % 1_000_000) as i64);
    Ok(())
}
