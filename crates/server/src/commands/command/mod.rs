//! COMMAND: the table of commands, for clients to route by and for people to read.
//!
//! Everything is derived from the rows of `command::table`.

mod describe;
mod docs;
pub(crate) mod keys;
mod syntax;

use super::{HELP_FLAGS, help, row};
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use crate::server::Server;
use command::table::{self, Command};
use command::{Categories, Error, Flags, Group, Reach, Result, Row, Secrets, Shows};
use std::iter;
use value::glob::{Case, glob_match};
use wire::Reply;

const VARIES: &[&str] = &["nondeterministic_output_order"];

/// COMMAND.
pub const ROWS: &[Row<ServerHandler>] = &[sub("command", -1, all)
    .shows(Shows::Nothing)
    .complexity("O(N), N being the number of commands")
    .summary("Replies with everything that clients need to know about all commands.")
    .tips(VARIES)
    .subcommands(SUBCOMMANDS)];

const SUBCOMMANDS: &[Row<ServerHandler>] = &[
    sub("command|count", 2, count).shows(Shows::Nothing).summary("Replies with the number of commands."),
    sub("command|docs", -2, docs::docs)
        .shows(Shows::Nothing)
        .since("7.0.0")
        .complexity("O(N), N being the number of commands asked for")
        .syntax("[command-name [command-name ...]]")
        .summary("Replies with what people need to know about commands.")
        .tips(VARIES),
    sub("command|getkeys", -3, keys::getkeys)
        .shows(Shows::Nothing)
        .secrets(Secrets::OfRequest(2))
        .complexity("O(N), N being the number of arguments")
        .syntax("command [arg [arg ...]]")
        .summary("Replies with the keys of a command given in full."),
    sub("command|getkeysandflags", -3, keys::getkeysandflags)
        .shows(Shows::Nothing)
        .secrets(Secrets::OfRequest(2))
        .since("7.0.0")
        .complexity("O(N), N being the number of arguments")
        .syntax("command [arg [arg ...]]")
        .summary("Replies with the keys of a command given in full, and what happens to each."),
    sub("command|help", 2, |_, reply| help(reply, "COMMAND", HELP))
        .shows(Shows::Nothing)
        .since("5.0.0")
        .summary("Lists the subcommands."),
    sub("command|info", -2, info)
        .shows(Shows::Nothing)
        .complexity("O(N), N being the number of commands asked for")
        .syntax("[command-name [command-name ...]]")
        .summary("Replies with what clients need to know about commands.")
        .tips(VARIES),
    sub("command|list", -2, list)
        .shows(Shows::Nothing)
        .since("7.0.0")
        .complexity("O(N), N being the number of commands")
        .syntax("[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]")
        .summary("Replies with the names of commands.")
        .tips(VARIES),
];

const HELP: &[&str] = &[
    "(no subcommand)",
    "    Everything that clients need to know about all commands.",
    "COUNT",
    "    The number of commands.",
    "LIST [FILTERBY <MODULE <name>|ACLCAT <category>|PATTERN <pattern>>]",
    "    The names of all commands, or of those that pass the filter.",
    "INFO [<command> ...]",
    "    What clients need to know about the commands named, or about all.",
    "DOCS [<command> ...]",
    "    What people need to know about the commands named, or about all.",
    "GETKEYS <full command>",
    "    The keys of a command.",
    "GETKEYSANDFLAGS <full command>",
    "    The keys of a command, and what happens to each.",
];

const fn sub(name: &'static str, arity: i32, handler: ServerHandler) -> Row<ServerHandler> {
    row(name, arity, Reach::Around, HELP_FLAGS, handler)
        .group(Group::Server)
        .in_categories(Categories::CONNECTION)
        .since("2.8.13")
}

/// COMMAND
fn all(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let commands = named(context.server);
    reply.array(commands.len());
    commands.iter().for_each(|command| describe::describe(command, reply));
    Ok(())
}

/// COMMAND COUNT
fn count(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    reply.int(named(context.server).len() as i64);
    Ok(())
}

/// The commands that have a name.
fn named(server: &Server) -> Vec<&'static Command> {
    table::top_level().filter(|command| server.names.has(command)).collect()
}

/// COMMAND INFO [command-name [command-name ...]]
fn info(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let request = context.request;
    if request.len() == 2 {
        return all(context, reply);
    }
    reply.array(request.len() - 2);
    for name in request.iter().skip(2) {
        if reply.is_over() {
            break;
        }
        match context.server.names.find_full(name) {
            Some(command) => describe::describe(command, reply),
            None => reply.null(),
        }
    }
    Ok(())
}

/// What COMMAND LIST is narrowed to.
enum Filter<'a> {
    All,
    Nothing,
    Category(Categories),
    Pattern(&'a [u8]),
}

impl Filter<'_> {
    fn passes(&self, command: &Command) -> bool {
        match self {
            Filter::All => true,
            Filter::Nothing => false,
            Filter::Category(category) => command.row.categories().contains(*category),
            Filter::Pattern(pattern) => glob_match(pattern, command.row.name.as_bytes(), Case::Insensitive),
        }
    }
}

/// COMMAND LIST [FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]
fn list(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let words: Vec<&[u8]> = context.request.iter().skip(2).collect();
    let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let filter = match words[..] {
        [] => Filter::All,
        [by, kind, _] if is(by, "filterby") && is(kind, "module") => Filter::Nothing,
        [by, kind, name] if is(by, "filterby") && is(kind, "aclcat") => {
            acl::category(name).map_or(Filter::Nothing, Filter::Category)
        }
        [by, kind, pattern] if is(by, "filterby") && is(kind, "pattern") => Filter::Pattern(pattern),
        _ => return Err(Error::Syntax),
    };
    let with_subcommands = |command: &'static Command| {
        iter::once(command).chain(command.subcommands.iter().map(|id| table::get(*id)))
    };
    let names: Vec<&str> = named(context.server)
        .into_iter()
        .flat_map(with_subcommands)
        .filter(|command| filter.passes(command))
        .map(|command| command.row.name)
        .collect();
    reply.array(names.len());
    names.iter().for_each(|name| reply.bulk(name.as_bytes()));
    Ok(())
}

/// The flags that clients see, in Redis' order; the others are Tarn's own.
const SHOWN_FLAGS: &[(Flags, &str)] = &[
    (Flags::WRITE, "write"),
    (Flags::READONLY, "readonly"),
    (Flags::DENYOOM, "denyoom"),
    (Flags::ADMIN, "admin"),
    (Flags::PUBSUB, "pubsub"),
    (Flags::NOSCRIPT, "noscript"),
    (Flags::BLOCKING, "blocking"),
    (Flags::LOADING, "loading"),
    (Flags::STALE, "stale"),
    (Flags::SKIP_MONITOR, "skip_monitor"),
    (Flags::SKIP_SLOWLOG, "skip_slowlog"),
    (Flags::ASKING, "asking"),
    (Flags::FAST, "fast"),
    (Flags::NO_AUTH, "no_auth"),
    (Flags::NO_ASYNC_LOADING, "no_async_loading"),
    (Flags::NO_MULTI, "no_multi"),
    (Flags::MOVABLEKEYS, "movablekeys"),
    (Flags::NO_MANDATORY_KEYS, "no_mandatory_keys"),
    (Flags::ALLOW_BUSY, "allow_busy"),
];
