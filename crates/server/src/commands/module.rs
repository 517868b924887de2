//! MODULE: there are none, and none can be loaded.
//!
//! Clients list modules when they connect, to see what the server can do; the answer is an empty list.

use super::{HELP_FLAGS, help, row, unknown_subcommand};
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use command::{Error, Flags, Group, Reach, Result, Row, Shows};
use wire::Reply;

/// MODULE.
pub const ROWS: &[Row<ServerHandler>] =
    &[row("module", -2, Reach::Around, Flags::empty(), |context, _| unknown_subcommand(context))
        .shows(Shows::Nothing)
        .group(Group::Server)
        .since("4.0.0")
        .complexity("Depends on the subcommand.")
        .summary("Lists modules.")
        .subcommands(SUBCOMMANDS)];

const LISTS: Flags = Flags::ADMIN.union(Flags::NOSCRIPT);
const CHANGES: Flags = LISTS.union(Flags::NO_ASYNC_LOADING).union(Flags::ON_LEAVE);

const SUBCOMMANDS: &[Row<ServerHandler>] = &[
    sub("module|help", 2, HELP_FLAGS, |_, reply| help(reply, "MODULE", HELP))
        .shows(Shows::Nothing)
        .since("5.0.0")
        .summary("Lists the subcommands."),
    sub("module|list", 2, LISTS, list)
        .shows(Shows::Nothing)
        .complexity("O(1)")
        .summary("Lists the modules, of which there are none.")
        .tips(&["nondeterministic_output_order"]),
    sub("module|load", -3, CHANGES, refuse)
        .shows(Shows::Nothing)
        .syntax("path [arg [arg ...]]")
        .summary("Is refused: modules cannot be loaded."),
    sub("module|loadex", -3, CHANGES, refuse)
        .shows(Shows::Nothing)
        .since("7.0.0")
        .syntax("path [CONFIG name value [CONFIG name value ...]] [ARGS arg [arg ...]]")
        .summary("Is refused: modules cannot be loaded."),
    sub("module|unload", 3, CHANGES, refuse)
        .shows(Shows::Nothing)
        .syntax("name")
        .summary("Is refused: there are no modules."),
];

const HELP: &[&str] = &["LIST", "    The modules: none. LOAD, LOADEX and UNLOAD are refused."];

const fn sub(name: &'static str, arity: i32, flags: Flags, handler: ServerHandler) -> Row<ServerHandler> {
    row(name, arity, Reach::Around, flags, handler).group(Group::Server).since("4.0.0").complexity("O(1)")
}

/// MODULE LIST
fn list(_: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    reply.array(0);
    Ok(())
}

/// MODULE LOAD, LOADEX and UNLOAD
fn refuse(_: &mut Context<'_, '_>, _: &mut Reply<'_>) -> Result<()> {
    Err(Error::text("ERR Modules are not supported by this server"))
}
