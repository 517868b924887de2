//! EVAL, EVALSHA, FCALL and those of them that change nothing.

use super::host::{Limits, ScriptHost};
use super::load::{Interpreter, Known, with_interpreter};
use crate::dispatch::Context;
use crate::dispatch::checks;
use crate::dispatch::table::Command;
use crate::scripts::{Holds, Locks};
use crate::server::Attention;
use crate::server::Server;
use ::script::{Ran, ScriptFlags, Sha, sha};
use command::{Error, Flags, Result};
use keyspace::Key;
use smallvec::SmallVec;
use std::time::Instant;
use wire::{Reply, Request};

/// EVAL script numkeys [key [key ...]] [arg [arg ...]]
pub(super) fn eval(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    eval_text(context, reply)
}

/// EVAL_RO script numkeys [key [key ...]] [arg [arg ...]]
pub(super) fn eval_ro(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    eval_text(context, reply)
}

fn eval_text(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let keys = key_count(context)?;
    let (server, text) = (context.server, context.request.arg(1));
    with_interpreter(server, |interpreter| {
        let known = interpreter.by_text(server, text).map_err(Error::line)?;
        run_script(context, &known, keys, interpreter, reply)
    })
}

/// EVALSHA sha1 numkeys [key [key ...]] [arg [arg ...]]
pub(super) fn evalsha(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    eval_named(context, reply)
}

/// EVALSHA_RO sha1 numkeys [key [key ...]] [arg [arg ...]]
pub(super) fn evalsha_ro(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    eval_named(context, reply)
}

const NO_SCRIPT: Error = Error::text("NOSCRIPT No matching script. Please use EVAL.");

fn eval_named(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let server = context.server;
    let mut name = Sha::try_from(context.request.arg(1)).map_err(|_| NO_SCRIPT)?;
    name.make_ascii_lowercase();
    let keys = key_count(context)?;
    with_interpreter(server, |interpreter| {
        let known = interpreter.by_name(server, &name).map_err(Error::line)?.ok_or(NO_SCRIPT)?;
        run_script(context, &known, keys, interpreter, reply)
    })
}

fn run_script(
    context: &mut Context<'_, '_>,
    known: &Known,
    keys: usize,
    interpreter: &mut Interpreter,
    reply: &mut Reply<'_>,
) -> Result<()> {
    let (flags, locks) = (known.script.flags, &known.script.locks);
    Plan { keys, flags, locks, what: What::Script(known) }.run(context, interpreter, reply)
}

/// FCALL function numkeys [key [key ...]] [arg [arg ...]]
pub(super) fn fcall(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    call_function(context, reply)
}

/// FCALL_RO function numkeys [key [key ...]] [arg [arg ...]]
pub(super) fn fcall_ro(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    call_function(context, reply)
}

fn call_function(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let (server, name) = (context.server, context.request.arg(1));
    let (library, flags) = server.scripts.function(name).ok_or(Error::text("ERR Function not found"))?;
    let keys = match key_count(context) {
        Err(Error::NotInteger) => return Err(Error::text("ERR Bad number of keys provided")),
        other => other?,
    };
    with_interpreter(server, |interpreter| {
        interpreter.load(&library).map_err(Error::line)?;
        let what = What::Function(library.number, name);
        Plan { keys, flags: Some(flags), locks: &library.locks, what }.run(context, interpreter, reply)
    })
}

fn key_count(context: &Context<'_, '_>) -> Result<usize> {
    let request = &context.request;
    let count = value::number::parse_i64(request.arg(2)).ok_or(Error::NotInteger)?;
    if count > request.len() as i64 - 3 {
        return Err(Error::text("ERR Number of keys can't be greater than number of args"));
    }
    usize::try_from(count).map_err(|_| Error::text("ERR Number of keys can't be negative"))
}

/// Whether a request to run a script or function will hold the whole keyspace.
pub fn takes_all(server: &Server, command: &Command, request: &Request<'_>) -> bool {
    let writes = |flags: Option<ScriptFlags>| {
        let reads_only = match flags {
            Some(flags) => flags.contains(ScriptFlags::NO_WRITES),
            None => command.row.flags.contains(Flags::READONLY),
        };
        !reads_only
    };
    let name = request.arg(1);
    let by_name = |name: &Sha| server.scripts.get(name);
    let holds = match command.row.name {
        "fcall" | "fcall_ro" => {
            server.scripts.function(name).map(|(library, flags)| library.locks.holds(writes(Some(flags))))
        }
        "evalsha" | "evalsha_ro" => {
            let lower = Sha::try_from(&name.to_ascii_lowercase()[..]);
            let script = lower.ok().and_then(|name| by_name(&name));
            script.map(|script| script.locks.holds(writes(script.flags)))
        }
        _ => match by_name(&sha(name)) {
            Some(script) => Some(script.locks.holds(writes(script.flags))),
            None => Some(Locks::of(name).holds(writes(None))),
        },
    };
    holds == Some(Holds::All)
}

/// What is run.
enum What<'a> {
    Script(&'a Known),
    Function(u64, &'a [u8]),
}

/// One run.
struct Plan<'a> {
    keys: usize,
    /// None: a script without a header, which is judged by what it does.
    flags: Option<ScriptFlags>,
    locks: &'a Locks,
    what: What<'a>,
}

impl Plan<'_> {
    fn run(
        &self,
        context: &mut Context<'_, '_>,
        interpreter: &mut Interpreter,
        reply: &mut Reply<'_>,
    ) -> Result<()> {
        let is_full = context.server.attention().contains(Attention::MEMORY_CEILING)
            && checks::is_memory_full(context.server);
        let reads_only = self.check(context, is_full)?;
        let disk_error = checks::disk_error(context);
        if let Some(error) = disk_error.filter(|_| self.flags.is_some() && !reads_only) {
            return Err(error);
        }
        let mark = reply.mark();
        let mut holds = self.locks.holds(!reads_only);
        let began = Instant::now();
        let ran = loop {
            let takes_locks = !context.batch.is_holding();
            if takes_locks && !self.hold(context, holds) {
                return Err(Error::InUse);
            }
            let ran = self.run_held(context, interpreter, reply, (reads_only, is_full, began));
            if takes_locks && (ran == Ran::Restart || !context.batch.has_ready()) {
                context.batch.release();
            }
            if ran != Ran::Restart {
                break ran;
            }
            reply.rollback(mark);
            self.locks.note_reaching_out();
            holds = Holds::All;
        };
        if ran == Ran::Failed {
            let line = reply.since(mark);
            let line = line.strip_prefix(b"-").and_then(|line| line.strip_suffix(b"\r\n"));
            return Err(Error::line(line.unwrap_or(b"ERR execution failure")));
        }
        Ok(())
    }

    /// Whether it may run at all, and whether it may only read.
    fn check(&self, context: &Context<'_, '_>, is_full: bool) -> Result<bool> {
        let is_ro = context.command.row.flags.contains(Flags::READONLY);
        let Some(flags) = self.flags else { return Ok(is_ro) };
        let reads_only = flags.contains(ScriptFlags::NO_WRITES);
        if is_ro && !reads_only {
            return Err(Error::text("ERR Can not execute a script with write flag using *_ro command."));
        }
        if is_full && !reads_only && !flags.contains(ScriptFlags::ALLOW_OOM) {
            return Err(Error::text(
                "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
            ));
        }
        Ok(reads_only)
    }

    /// False: a slow script has it.
    fn hold(&self, context: &mut Context<'_, '_>, holds: Holds) -> bool {
        match holds {
            Holds::All => context.batch.try_hold_all(),
            Holds::Declared => {
                let (server, db, request) = (context.server, context.session.db, context.request);
                let key = |position| server.keyspace.key(db, request.arg(position));
                let keys: SmallVec<[Key<'_>; 4]> = (3..3 + self.keys).map(key).collect();
                context.batch.try_hold(&keys)
            }
        }
    }

    fn run_held(
        &self,
        context: &mut Context<'_, '_>,
        interpreter: &mut Interpreter,
        reply: &mut Reply<'_>,
        (reads_only, is_full, began): (bool, bool, Instant),
    ) -> Ran {
        let (db, protocol) = (context.session.db, context.session.protocol);
        let words = (context.request, 3, self.keys);
        context.session.runs_script = true;
        let oom_allowed = self.flags.is_some_and(|flags| flags.contains(ScriptFlags::ALLOW_OOM));
        let is_function = matches!(self.what, What::Function(..));
        let limits = Limits { reads_only, is_oom: is_full && !oom_allowed };
        let mut host = ScriptHost::new(context, limits, is_function, began);
        let ran = match self.what {
            What::Script(known) => {
                interpreter.engine.run_script(known.compiled, &known.name, words, &mut host, reply)
            }
            What::Function(library, name) => {
                interpreter.engine.run_function(library, name, words, &mut host, reply)
            }
        };
        host.end();
        let session = &mut *context.session;
        session.runs_script = false;
        session.protocol = protocol;
        if session.db != db {
            session.select(db);
        }
        ran
    }
}
