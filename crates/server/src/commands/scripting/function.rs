//! FUNCTION: libraries of functions.

use super::script::kill_slow;
use super::{HELP_FLAGS, help, row, sub};
use crate::commands::slotmove::OVER;
use crate::dispatch::handlers::ServerHandler;
use crate::dispatch::{Context, checks};
use crate::holders::What;
use crate::refusals::READ_ONLY;
use crate::session::Brings;
use ::script::ScriptFlags;
use ::script::limits::LOAD_TIME_MAX;
use ::script::shebang::library_name;
use command::effects::Scope;
use command::{Error, Flags, Group, Reach, Result, Row, Shows};
use engine::Attention;
use engine::scripts::{Libraries, Library, libraries};
use std::collections::HashSet;
use std::sync::Arc;
use value::glob::{Case, glob_match};
use value::rdb::{self, RestoreError};
use wire::Reply;

const EVERYWHERE: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];

pub(super) const ROWS: &[Row<ServerHandler>] = &[
    sub("function|delete", 3, Flags::WRITE, delete)
        .since("7.0.0")
        .syntax("library-name")
        .tips(EVERYWHERE)
        .summary("Takes a library away."),
    sub("function|dump", 2, Flags::empty(), dump)
        .shows(Shows::WhatItNotes)
        .since("7.0.0")
        .complexity("O(N), N being the number of libraries")
        .summary("Replies with all libraries as a payload."),
    sub("function|flush", -2, Flags::WRITE, flush)
        .since("7.0.0")
        .complexity("O(N), N being the number of libraries")
        .syntax("[ASYNC | SYNC]")
        .tips(EVERYWHERE)
        .summary("Takes all libraries away."),
    row("function|help", 2, Reach::Around, HELP_FLAGS, |_, reply| help(reply, "FUNCTION", HELP))
        .shows(Shows::Nothing)
        .since("7.0.0")
        .group(Group::Scripting)
        .summary("Lists the subcommands."),
    sub("function|kill", 2, Flags::ALLOW_BUSY, kill)
        .shows(Shows::Nothing)
        .since("7.0.0")
        .tips(&["request_policy:all_shards", "response_policy:one_succeeded"])
        .summary("Ends a function that runs for too long."),
    sub("function|list", -2, Flags::empty(), list)
        .shows(Shows::WhatItNotes)
        .since("7.0.0")
        .complexity("O(N), N being the number of functions")
        .syntax("[LIBRARYNAME library-name-pattern] [WITHCODE]")
        .tips(&["nondeterministic_output_order"])
        .summary("Lists the libraries."),
    sub("function|load", -3, Flags::WRITE.union(Flags::DENYOOM), load)
        .since("7.0.0")
        .syntax("[REPLACE] function-code")
        .tips(EVERYWHERE)
        .summary("Adds a library."),
    sub("function|restore", -3, Flags::WRITE.union(Flags::DENYOOM), restore)
        .effect(Scope::Libraries)
        .since("7.0.0")
        .complexity("O(N), N being the number of functions in the payload")
        .syntax("serialized-value [FLUSH | APPEND | REPLACE]")
        .tips(EVERYWHERE)
        .summary("Adds the libraries of a payload."),
    sub("function|stats", 2, Flags::ALLOW_BUSY, stats)
        .shows(Shows::WhatItNotes)
        .since("7.0.0")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
        .summary("Tells which function runs, and how many there are."),
];

const HELP: &[&str] = &[
    "LOAD [REPLACE] <FUNCTION CODE>",
    "    Add a library; its name stands in the first line of its code.",
    "DELETE <LIBRARY NAME>",
    "    Take a library away.",
    "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
    "    The libraries: name, engine, functions, and code if asked for.",
    "STATS",
    "    The function that runs now, and how many libraries and functions there are.",
    "KILL",
    "    End the function that runs for too long, unless it has changed something.",
    "FLUSH [ASYNC|SYNC]",
    "    Take all libraries away.",
    "DUMP",
    "    All libraries as a payload for RESTORE.",
    "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
    "    Add the libraries of a payload: in place of all others (FLUSH), only if none of them is there",
    "    (APPEND, the default), or in place of those with the same names (REPLACE).",
];

/// Changes the libraries; what they are then goes to the journal.
fn change<T>(
    context: &Context<'_, '_>,
    change: impl FnOnce(&mut Libraries) -> std::result::Result<T, Vec<u8>>,
) -> Result<T> {
    let (server, batch) = (context.server, &*context.batch);
    // Who brings a backup's libraries may have been replaced, or stand behind what has become a cluster that serves.
    let known = context.session.brings.as_deref().map(|brings| (brings, server.arrivals.lock()));
    if let Some((Brings { id, token, .. }, known)) = &known
        && known.slots_of(*id, *token, server.engine.keyspace.upheavals()).is_none()
    {
        return Err(OVER);
    }
    let result = server.engine.scripts.change_libraries(|all| {
        let changed = change(all)?;
        if batch.effects().is_some() {
            let payload = rdb::dump_libraries(all.by_name.values().map(|library| &library.code[..]));
            batch.append_apart(context.now, &[b"FUNCTION", b"RESTORE", &payload, b"FLUSH"]);
        }
        Ok::<T, Vec<u8>>(changed)
    });
    if result.is_ok() {
        batch.count_write();
    }
    result.map_err(Error::line)
}

/// FUNCTION LOAD [REPLACE] function-code
fn load(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let (server, request) = (context.server, context.request);
    let code_at = request.len() - 1;
    for option in (2..code_at).map(|index| request.arg(index)) {
        if !option.eq_ignore_ascii_case(b"replace") {
            return Err(Error::quoting("ERR Unknown option given: ", option, ""));
        }
    }
    let (replaces, code) = (code_at > 2, request.arg(code_at));
    let name = library_name(code).map_err(Error::line)?;
    if !replaces && server.engine.scripts.with_libraries(|all| all.by_name.contains_key(&name)) {
        return Err(Error::quoting("ERR Library '", &name, "' already exists"));
    }
    let library = libraries::make(&server.engine, code, LOAD_TIME_MAX).map_err(Error::line)?;
    change(context, |all| all.add(library, replaces))?;
    reply.bulk(&name);
    Ok(())
}

/// FUNCTION DELETE library-name
fn delete(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let name = context.request.arg(2);
    change(context, |all| match all.remove(name) {
        true => Ok(()),
        false => Err(b"ERR Library not found".to_vec()),
    })?;
    reply.ok();
    Ok(())
}

/// FUNCTION FLUSH [ASYNC | SYNC]
fn flush(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let words = context.request.skip(2);
    let is_known = |word: &[u8]| word.eq_ignore_ascii_case(b"sync") || word.eq_ignore_ascii_case(b"async");
    if words.len() > 1 {
        return Err(Error::subcommand_syntax("FUNCTION", context.request.arg(1)));
    }
    if !words.iter().all(is_known) {
        return Err(Error::text("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
    }
    change(context, |all| {
        *all = Libraries::default();
        Ok(())
    })?;
    reply.ok();
    Ok(())
}

/// FUNCTION LIST [LIBRARYNAME library-name-pattern] [WITHCODE]
fn list(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let words = context.request.skip(2);
    let (mut pattern, mut shows_code, mut at) = (None, false, 0);
    while let Some(word) = words.get(at) {
        at += 1;
        if !shows_code && word.eq_ignore_ascii_case(b"withcode") {
            shows_code = true;
        } else if pattern.is_none() && word.eq_ignore_ascii_case(b"libraryname") {
            let name = words.get(at).ok_or(Error::text("ERR library name argument was not given"))?;
            pattern = Some(name);
            at += 1;
        } else {
            return Err(Error::quoting("ERR Unknown argument ", word, ""));
        }
    }
    let libraries = context.server.engine.scripts.libraries();
    context.batch.see_apart();
    let is_meant = |library: &&Arc<Library>| {
        pattern.is_none_or(|pattern| glob_match(pattern, &library.name, Case::Insensitive))
    };
    let shown: Vec<&Arc<Library>> = libraries.by_name.values().filter(is_meant).collect();
    reply.array(shown.len());
    for library in shown {
        list_library(reply, library, shows_code);
    }
    Ok(())
}

fn list_library(reply: &mut Reply<'_>, library: &Library, shows_code: bool) {
    reply.map(if shows_code { 4 } else { 3 });
    reply.bulk(b"library_name");
    reply.bulk(&library.name);
    reply.bulk(b"engine");
    reply.bulk(b"LUA");
    reply.bulk(b"functions");
    reply.array(library.functions.len());
    for function in &library.functions {
        reply.map(3);
        reply.bulk(b"name");
        reply.bulk(&function.name);
        reply.bulk(b"description");
        match &function.description {
            Some(text) => reply.bulk(text),
            None => reply.null(),
        }
        reply.bulk(b"flags");
        let flags = ScriptFlags::NAMES.iter().filter(|(flag, _)| function.flags.contains(*flag));
        let names: Vec<&str> = flags.map(|(_, name)| *name).collect();
        reply.set(names.len());
        names.iter().for_each(|name| reply.simple(name));
    }
    if shows_code {
        reply.bulk(b"library_code");
        reply.bulk(&library.code);
    }
}

/// FUNCTION STATS
fn stats(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let scripts = &context.server.engine.scripts;
    reply.map(2);
    reply.bulk(b"running_script");
    match context.server.functions.lock().first() {
        None => reply.null(),
        Some(run) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(if let What::Function(name) = &run.what { name } else { b"" });
            reply.bulk(b"command");
            reply.array(run.words.len());
            run.words.iter().for_each(|word| reply.bulk(word));
            reply.bulk(b"duration_ms");
            reply.int(run.began.elapsed().as_millis() as i64);
        }
    }
    let (libraries, functions) =
        scripts.with_libraries(|all| (all.by_name.len() as i64, all.functions() as i64));
    context.batch.see_apart();
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.int(libraries);
    reply.bulk(b"functions_count");
    reply.int(functions);
    Ok(())
}

/// FUNCTION KILL
fn kill(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    kill_slow(context.server, "FUNCTION", |run| run.what != What::Script)?;
    reply.ok();
    Ok(())
}

/// FUNCTION DUMP
fn dump(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let libraries = context.server.engine.scripts.libraries();
    context.batch.see_apart();
    let payload = rdb::dump_libraries(libraries.by_name.values().map(|library| &library.code[..]));
    reply.bulk(&payload);
    Ok(())
}

/// What happens to libraries that are there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// They go.
    Flush,
    /// They stay, and none of the others may have the name of one.
    Append,
    /// They stay, and of the others come those whose name none has.
    Fill,
    /// Those with the same names go.
    Replace,
}

/// Puts libraries beside those that are there, or in their place.
///
/// # Errors
/// Why they cannot be; all are as they were then.
pub fn put_libraries(context: &Context<'_, '_>, codes: &[Vec<u8>], policy: Policy) -> Result<()> {
    let libraries = codes.iter().map(|code| libraries::make(&context.server.engine, code, LOAD_TIME_MAX));
    let libraries: Vec<Arc<Library>> =
        libraries.collect::<std::result::Result<_, Vec<u8>>>().map_err(Error::line)?;
    let mut names = HashSet::new();
    if let Some(twice) = libraries.iter().find(|library| !names.insert(&library.name)) {
        return Err(Error::quoting("ERR Library '", &twice.name, "' already exists"));
    }
    change(context, |all| {
        if policy == Policy::Flush {
            *all = Libraries::default();
        }
        let is_there = |all: &Libraries, library: &Library| all.by_name.contains_key(&library.name);
        libraries.into_iter().try_for_each(|library| {
            match policy == Policy::Fill && is_there(all, &library) {
                true => Ok(()),
                false => all.add(library, policy == Policy::Replace),
            }
        })
    })
}

/// FUNCTION RESTORE serialized-value [FLUSH | APPEND | REPLACE]
fn restore(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let (server, request) = (context.server, context.request);
    if request.len() > 4 {
        return Err(Error::subcommand_syntax("FUNCTION", request.arg(1)));
    }
    let policy = match request.get(3).map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"append") => Policy::Append,
        Some(b"flush") => Policy::Flush,
        Some(b"replace") => Policy::Replace,
        Some(_) => {
            return Err(Error::text(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ));
        }
    };
    let codes = rdb::restore_libraries(request.arg(2), server.engine.settings.checksum()).map_err(
        |error| match error {
            RestoreError::BadFooter => Error::DUMP_FOOTER,
            RestoreError::BadFormat => Error::text("ERR given type is not a function"),
            RestoreError::OfCandidate => Error::text("ERR Pre-GA function format not supported"),
        },
    )?;
    if is_told_to_wait(context) {
        keep_libraries(context, codes, policy)?;
    } else if codes.is_empty() && policy != Policy::Flush {
        // It is a write all the same, and of as little as was said.
        if context.batch.effects().is_some() {
            // What was taken without a look at its checksum is not written down as it is.
            let none = rdb::dump_libraries(std::iter::empty());
            context.batch.append_apart(context.now, &[b"FUNCTION", b"RESTORE", &none]);
        }
        context.batch.count_write();
    } else {
        put_libraries(context, &codes, policy)?;
    }
    reply.ok();
    Ok(())
}

/// Whether a client says it to a node of a cluster that is no master.
fn is_told_to_wait(context: &Context<'_, '_>) -> bool {
    let server = context.server;
    let follows = server.engine.attention().contains(Attention::FOLLOWING);
    server.clustered.is_on() && follows && !checks::is_of_master(context)
}

/// A server that waits for its place in a cluster loads libraries when it begins a shard, as a node does that `redis-cli --cluster add-node` is about to add. If it has a place in
/// another's shard, it has that one's.
fn keep_libraries(context: &Context<'_, '_>, codes: Vec<Vec<u8>>, policy: Policy) -> Result<()> {
    let server = context.server;
    let part = server.clustered.get().filter(|_| checks::waits_for_a_place(server)).ok_or(READ_ONLY)?;
    let mut all = Libraries::default();
    for code in part.take_libraries().into_iter().filter(|_| policy != Policy::Flush) {
        let library = libraries::make(&server.engine, &code, LOAD_TIME_MAX).map_err(Error::line)?;
        all.add(library, true).map_err(Error::line)?;
    }
    let kept = |all: &Libraries| all.by_name.values().map(|library| library.code.to_vec()).collect();
    let before = kept(&all);
    let added = codes.iter().try_for_each(|code| {
        let library = libraries::make(&server.engine, code, LOAD_TIME_MAX)?;
        all.add(library, policy == Policy::Replace)
    });
    part.keep_libraries(if added.is_ok() { kept(&all) } else { before });
    added.map_err(Error::line)
}

/// Loads those of these libraries that are not there, by their names. The others stay as they are.
///
/// # Errors
/// Why one of them cannot be; all are as they were then.
pub fn add_missing_libraries(context: &Context<'_, '_>, codes: &[&[u8]]) -> Result<()> {
    let known = context.server.engine.scripts.libraries();
    let mut missing = Vec::new();
    for code in codes {
        let name = library_name(code).map_err(Error::line)?;
        if !known.by_name.contains_key(&name) {
            missing.push(code.to_vec());
        }
    }
    match missing.is_empty() {
        true => Ok(()),
        false => put_libraries(context, &missing, Policy::Fill),
    }
}
