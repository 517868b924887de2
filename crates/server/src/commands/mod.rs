//! The server's own commands: rows and handlers over a session and the server.

pub mod client;
pub mod connection;

use crate::dispatch::table::ServerHandler;
use command::{Flags, Row};

/// Their rows, family by family.
pub const FAMILIES: &[&[Row<ServerHandler>]] = &[client::ROWS, connection::ROWS];

/// Begins a row of a server command.
pub(crate) const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    handler: ServerHandler,
) -> Row<ServerHandler> {
    Row::new(name, arity, flags, handler)
}
