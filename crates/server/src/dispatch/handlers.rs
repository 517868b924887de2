//! The handlers of the server's own commands, which the table of commands knows by number. Whose they are is not known here: they
//! are told once, before anything works with commands.

use super::Context;
use command::{Row, table};
use std::sync::OnceLock;
use wire::Reply;

/// A command of the server itself: it works on its session or on the server.
pub type ServerHandler = fn(&mut Context<'_, '_>, &mut Reply<'_>) -> command::Result<()>;

static HANDLERS: OnceLock<Vec<ServerHandler>> = OnceLock::new();

/// Tells the table of commands of these, unless that has been done.
pub fn install(families: &[&'static [Row<ServerHandler>]]) {
    HANDLERS.get_or_init(|| table::install(families));
}

/// The handler of this number.
///
/// # Panics
/// If nobody has told of any.
#[inline]
pub fn get(number: usize) -> ServerHandler {
    HANDLERS.get().expect("who knows a number has been told of its handler")[number]
}
