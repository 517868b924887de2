//! Scripts and functions: EVAL and its relatives, SCRIPT and FUNCTION.
//!
//! A script runs on the worker that its client is on, in that worker's interpreter, and is atomic: what it
//! touches is held from its first command to its end, as in a transaction.
//!
//! 1. A script whose text shows that all its keys are words of KEYS holds the slots of those keys only, and runs
//!    beside whatever touches others. So does one that may not write. All others hold the whole keyspace.
//! 2. One of the first kind that asks for a key it does not hold, and of which nobody has seen anything, begins again with the
//!    whole keyspace held; from then on its name is known, and it holds everything from the start. A function is seen from its
//!    beginning: its library remembers the call.
//! 3. If it has changed something, or something of it was seen, it cannot begin again. The slot is taken if it is free within a
//!    moment; if not, the command fails. Waiting longer could be for somebody who waits for this script.
//! 4. At the server's end a script ends at once, unless it has written something or is part of a transaction: that comes to its
//!    end, or the process ends first and nothing of it is kept.

mod eval;
mod function;
mod host;
mod script;

use super::{HELP_FLAGS, help, row, unknown_subcommand};
use crate::dispatch::handlers::ServerHandler;
use command::key_use::{KeyFlags, KeySpec};
use command::key_use::{READS, UPDATES};
use command::{Flags, Group, Keys, Reach, Row, ScriptBy, Shows};

pub use function::{Policy, add_missing_libraries, put_libraries};

/// The rows of scripting.
pub const ROWS: &[Row<ServerHandler>] = &[
    runs("eval", ScriptBy::Text, eval::eval, Flags::empty(), WRITES)
        .shows(Shows::WhatItNotes)
        .since("2.6.0")
        .syntax("script numkeys [key [key ...]] [arg [arg ...]]")
        .summary("Runs a script."),
    runs("eval_ro", ScriptBy::Text, eval::eval_ro, Flags::READONLY, LOOKS_AT)
        .shows(Shows::WhatItNotes)
        .since("7.0.0")
        .syntax("script numkeys [key [key ...]] [arg [arg ...]]")
        .summary("Runs a script that changes nothing."),
    runs("evalsha", ScriptBy::Sha, eval::evalsha, Flags::empty(), WRITES)
        .shows(Shows::WhatItNotes)
        .since("2.6.0")
        .syntax("sha1 numkeys [key [key ...]] [arg [arg ...]]")
        .summary("Runs a script by its name."),
    runs("evalsha_ro", ScriptBy::Sha, eval::evalsha_ro, Flags::READONLY, LOOKS_AT)
        .shows(Shows::WhatItNotes)
        .since("7.0.0")
        .syntax("sha1 numkeys [key [key ...]] [arg [arg ...]]")
        .summary("Runs a script that changes nothing by its name."),
    runs("fcall", ScriptBy::Function, eval::fcall, Flags::empty(), WRITES)
        .shows(Shows::WhatItNotes)
        .since("7.0.0")
        .syntax("function numkeys [key [key ...]] [arg [arg ...]]")
        .summary("Calls a function."),
    runs("fcall_ro", ScriptBy::Function, eval::fcall_ro, Flags::READONLY, LOOKS_AT)
        .shows(Shows::WhatItNotes)
        .since("7.0.0")
        .syntax("function numkeys [key [key ...]] [arg [arg ...]]")
        .summary("Calls a function that changes nothing."),
    row("function", -2, Reach::Around, Flags::empty(), |context, _| unknown_subcommand(context))
        .shows(Shows::Nothing)
        .since("7.0.0")
        .group(Group::Scripting)
        .flags(Flags::PROTECTED)
        .complexity("Depends on the subcommand.")
        .summary("Looks after libraries of functions.")
        .subcommands(function::ROWS),
    row("script", -2, Reach::Around, Flags::empty(), |context, _| unknown_subcommand(context))
        .shows(Shows::Nothing)
        .since("2.6.0")
        .group(Group::Scripting)
        .flags(Flags::PROTECTED)
        .complexity("Depends on the subcommand.")
        .summary("Looks after scripts.")
        .subcommands(script::ROWS),
];

const WRITES: &[KeySpec] = &[KeySpec::numkeys(2, UPDATES.union(KeyFlags::ACCESS))];
const LOOKS_AT: &[KeySpec] = &[KeySpec::numkeys(2, READS)];

const fn runs(
    name: &'static str,
    by: ScriptBy,
    handler: ServerHandler,
    flags: Flags,
    specs: &'static [KeySpec],
) -> Row<ServerHandler> {
    const ALWAYS: Flags = Flags::NOSCRIPT
        .union(Flags::STALE)
        .union(Flags::SKIP_MONITOR)
        .union(Flags::NO_MANDATORY_KEYS)
        .union(Flags::MOVABLEKEYS);
    row(name, -3, Reach::Script(by), ALWAYS.union(flags), handler)
        .group(Group::Scripting)
        .complexity("Depends on the script that is run.")
        .keys(Keys::Movable(keys))
        .key_specs(specs)
}

/// The keys behind their number, which is word 2.
fn keys(request: &wire::Request<'_>, positions: &mut Vec<usize>) {
    let number = request.get(2).and_then(value::number::parse_i64).unwrap_or(0);
    let most = request.len().saturating_sub(3);
    if let Ok(number) = usize::try_from(number)
        && number <= most
    {
        positions.extend(3..3 + number);
    }
}

/// A row of SCRIPT or FUNCTION.
const fn sub(name: &'static str, arity: i32, flags: Flags, handler: ServerHandler) -> Row<ServerHandler> {
    row(name, arity, Reach::Around, Flags::NOSCRIPT.union(flags), handler).group(Group::Scripting)
}
