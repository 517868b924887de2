//! MONITOR: shows the session every command.

use super::row;
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use command::{Error, Flags, Group, Reach, Result, Row, Shows};
use engine::Attention;
use net::client::Traits;
use wire::Reply;

/// MONITOR.
pub const ROWS: &[Row<ServerHandler>] = &[row(
    "monitor",
    1,
    Reach::Around,
    Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE),
    monitor,
)
.shows(Shows::Nothing)
.group(Group::Server)
.summary("Shows the connection every command that the server runs, until RESET or the end.")];

/// MONITOR
fn monitor(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let server = context.server;
    if context.batch.is_holding() {
        return Err(Error::text("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    if context.session.client.traits().contains(Traits::MONITOR) {
        // As in Redis there is no answer to a second one.
        return Ok(());
    }
    server
        .monitors
        .join(&context.session.client, |any| server.engine.set_attention(Attention::MONITORS, any));
    reply.ok();
    Ok(())
}
