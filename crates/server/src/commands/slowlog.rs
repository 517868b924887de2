//! SLOWLOG: the commands that took long.

use super::{HELP_FLAGS, help, row, unknown_subcommand};
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use command::parse::int_within;
use command::{Error, Flags, Group, Reach, Result, Row, Shows};
use wire::Reply;

/// Entries that SLOWLOG GET shows unless told otherwise.
const SHOWN_USUALLY: usize = 10;

/// SLOWLOG.
pub const ROWS: &[Row<ServerHandler>] =
    &[row("slowlog", -2, Reach::Around, Flags::empty(), |context, _| unknown_subcommand(context))
        .shows(Shows::Nothing)
        .group(Group::Server)
        .since("2.2.12")
        .complexity("Depends on the subcommand.")
        .summary("Shows which commands took long.")
        .subcommands(SUBCOMMANDS)];

const SUBCOMMANDS: &[Row<ServerHandler>] = &[
    sub("slowlog|get", -2, get)
        .complexity("O(N), N being the number of entries returned")
        .syntax("[count]")
        .summary("Replies with the newest entries.")
        .tips(&["request_policy:all_nodes", "nondeterministic_output"]),
    row("slowlog|help", 2, Reach::Around, HELP_FLAGS, |_, reply| help(reply, "SLOWLOG", HELP))
        .shows(Shows::Nothing)
        .group(Group::Server)
        .since("6.2.0")
        .summary("Lists the subcommands."),
    sub("slowlog|len", 2, len).shows(Shows::Nothing).summary("Replies with the number of entries.").tips(&[
        "request_policy:all_nodes",
        "response_policy:agg_sum",
        "nondeterministic_output",
    ]),
    sub("slowlog|reset", 2, reset)
        .shows(Shows::Nothing)
        .complexity("O(N), N being the number of entries")
        .summary("Forgets all entries.")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
];

const HELP: &[&str] = &[
    "GET [<count>]",
    "    The newest <count> entries (10 if not given, all with -1). Each has a number, the time in",
    "    seconds since 1970, the duration in microseconds, the words of the command, and the client's",
    "    address and name.",
    "LEN",
    "    How many entries there are.",
    "RESET",
    "    Forget all entries.",
];

const fn sub(name: &'static str, arity: i32, handler: ServerHandler) -> Row<ServerHandler> {
    const FLAGS: Flags = Flags::ADMIN.union(Flags::LOADING).union(Flags::STALE);
    row(name, arity, Reach::Around, FLAGS, handler).group(Group::Server).since("2.2.12")
}

/// SLOWLOG GET [count]
fn get(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let most = match context.request.len() {
        2 => SHOWN_USUALLY,
        3 => count(context.request.arg(2))?,
        _ => {
            return Err(Error::text(
                "ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.",
            ));
        }
    };
    let entries = context.server.slowlog.newest(most);
    reply.array(entries.len());
    for entry in entries {
        reply.array(6);
        reply.int(entry.id as i64);
        reply.int(entry.at_s as i64);
        reply.int(entry.micros as i64);
        reply.array(entry.words.len());
        entry.words.iter().for_each(|word| reply.bulk(word));
        reply.bulk(entry.address.as_bytes());
        reply.bulk(&entry.name);
    }
    Ok(())
}

/// -1 stands for all.
fn count(text: &[u8]) -> Result<usize> {
    const REFUSAL: &str = "ERR count should be greater than or equal to -1";
    Ok(usize::try_from(int_within(text, -1..=i64::MAX, REFUSAL)?).unwrap_or(usize::MAX))
}

/// SLOWLOG LEN
fn len(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    reply.int(context.server.slowlog.len() as i64);
    Ok(())
}

/// SLOWLOG RESET
fn reset(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    context.server.slowlog.clear();
    reply.ok();
    Ok(())
}
