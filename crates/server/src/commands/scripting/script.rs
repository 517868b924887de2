//! SCRIPT: the cache of scripts, and the end of one that runs for too long.

use super::{HELP_FLAGS, help, row, sub};
use crate::dispatch::handlers::ServerHandler;
use crate::dispatch::{Context, reach};
use crate::holders::{Run, What};
use crate::server::Server;
use ::script::Sha;
use command::{Error, Flags, Group, Reach, Result, Row, Shows};
use engine::scripts::interpreter::with_interpreter;
use std::sync::atomic::Ordering;
use wire::Reply;

pub(super) const ROWS: &[Row<ServerHandler>] = &[
    sub("script|debug", 3, Flags::empty(), debug)
        .shows(Shows::Nothing)
        .since("3.2.0")
        .syntax("<YES | SYNC | NO>")
        .summary("Chooses how scripts are debugged."),
    sub("script|exists", -3, Flags::empty(), exists)
        .shows(Shows::Nothing)
        .since("2.6.0")
        .complexity("O(N), N being the number of names")
        .syntax("sha1 [sha1 ...]")
        .tips(&["request_policy:all_shards", "response_policy:agg_logical_and"])
        .summary("Tells which scripts are in the cache."),
    sub("script|flush", -2, Flags::empty(), flush)
        .shows(Shows::Nothing)
        .since("2.6.0")
        .complexity("O(N), N being the number of scripts")
        .syntax("[ASYNC | SYNC]")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .summary("Empties the cache of scripts."),
    row("script|help", 2, Reach::Around, HELP_FLAGS, |_, reply| help(reply, "SCRIPT", HELP))
        .shows(Shows::Nothing)
        .since("5.0.0")
        .group(Group::Scripting)
        .summary("Lists the subcommands."),
    sub("script|kill", 2, Flags::ALLOW_BUSY, kill)
        .shows(Shows::Nothing)
        .since("2.6.0")
        .tips(&["request_policy:all_shards", "response_policy:one_succeeded"])
        .summary("Ends a script that runs for too long."),
    sub("script|load", 3, Flags::STALE, load)
        .shows(Shows::Nothing)
        .since("2.6.0")
        .complexity("O(N), N being the length of the script")
        .syntax("script")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .summary("Puts a script into the cache."),
];

const HELP: &[&str] = &[
    "DEBUG (YES|SYNC|NO)",
    "    Chooses how the scripts that follow are debugged. There is no debugger: only NO.",
    "EXISTS <sha1> [<sha1> ...]",
    "    For each name 1 if the script is in the cache, else 0.",
    "FLUSH [ASYNC|SYNC]",
    "    Forget all scripts.",
    "KILL",
    "    End the script that runs for too long, unless it has changed something.",
    "LOAD <script>",
    "    Put a script into the cache without running it; its name comes back.",
];

/// SCRIPT LOAD script
fn load(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let (server, text) = (context.server, context.request.arg(2));
    let known = with_interpreter(&server.engine, |interpreter| interpreter.by_text(&server.engine, text));
    let known = known.map_err(Error::line)?;
    if !server.engine.scripts.keep(known.name, &known.script) {
        return Err(Error::text("OOM too many scripts are loaded: SCRIPT FLUSH forgets them"));
    }
    reply.bulk(&known.name);
    Ok(())
}

/// SCRIPT EXISTS sha1 [sha1 ...]
fn exists(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let names = context.request.skip(2);
    reply.array(names.len());
    for name in names.iter() {
        let name = Sha::try_from(name.to_ascii_lowercase());
        let is_there = name.is_ok_and(|name| context.server.engine.scripts.get(&name).is_some());
        reply.int(i64::from(is_there));
    }
    Ok(())
}

/// SCRIPT FLUSH [ASYNC | SYNC]
fn flush(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let words = context.request.skip(2);
    let is_known = |word: &[u8]| word.eq_ignore_ascii_case(b"sync") || word.eq_ignore_ascii_case(b"async");
    if words.len() > 1 || !words.iter().all(is_known) {
        return Err(Error::text("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    context.server.engine.scripts.flush();
    // Those who run no script for now give up their interpreters, too.
    context.server.bells.ring_all();
    reply.ok();
    Ok(())
}

/// SCRIPT DEBUG YES | SYNC | NO
fn debug(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let mode = context.request.arg(2).to_ascii_lowercase();
    match &mode[..] {
        b"no" => {
            reply.ok();
            Ok(())
        }
        b"yes" | b"sync" => Err(Error::text("ERR Tarn has no debugger for scripts")),
        _ => Err(Error::text("ERR Use SCRIPT DEBUG YES/SYNC/NO")),
    }
}

/// SCRIPT KILL
fn kill(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    kill_slow(context.server, "SCRIPT", |run| run.what == What::Script)?;
    reply.ok();
    Ok(())
}

/// Ends the slow scripts or functions.
pub(super) fn kill_slow(server: &Server, container: &str, is_meant: impl Fn(&Run) -> bool) -> Result<()> {
    let slow = server.holders.scripts();
    if slow.is_empty() {
        return Err(Error::text("NOTBUSY No scripts in execution right now."));
    }
    let has_unwritten = slow.iter().any(|run| !run.wrote.load(Ordering::Relaxed));
    if has_unwritten && !slow.iter().any(|run| is_meant(run)) {
        return Err(if container == "SCRIPT" { reach::BUSY_FUNCTION } else { reach::BUSY_SCRIPT });
    }
    let mut are_killed = 0;
    for run in slow.iter().filter(|run| is_meant(run)) {
        if !run.wrote.load(Ordering::Relaxed) {
            run.is_killed.store(true, Ordering::Relaxed);
            are_killed += 1;
        }
    }
    if are_killed == 0 {
        return Err(Error::text(
            "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait \
             the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
        ));
    }
    Ok(())
}
