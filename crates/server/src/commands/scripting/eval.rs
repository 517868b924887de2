//! EVAL, EVALSHA, FCALL and those of them that change nothing.

use super::host::{Limits, ScriptHost};
use crate::dispatch::Context;
use crate::dispatch::checks;
use crate::refusals::{self, Fullness};
use ::script::{Ran, ScriptFlags, Sha};
use command::{Error, Flags, Result};
use engine::Attention;
use engine::scripts::interpreter::{Interpreter, Known, with_interpreter};
use engine::scripts::{Holds, Locks, plan};
use keyspace::Key;
use smallvec::SmallVec;
use std::time::Instant;
use wire::Reply;

/// EVAL script numkeys [key [key ...]] [arg [arg ...]]
pub(super) fn eval(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    eval_text(context, reply)
}

/// EVAL_RO script numkeys [key [key ...]] [arg [arg ...]]
pub(super) fn eval_ro(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    eval_text(context, reply)
}

/// Shows it to those who monitor, before what it calls.
fn show(context: &Context<'_, '_>) {
    let server = context.server;
    if server.is_monitored() {
        let caller = context.session.caller();
        server.monitors.show_script(&server.net.clients, &caller, context.command, &context.request);
    }
}

fn eval_text(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    show(context);
    let keys = key_count(context)?;
    let (server, text) = (context.server, context.request.arg(1));
    with_interpreter(&server.engine, |interpreter| {
        let known = interpreter.by_text(&server.engine, text).map_err(Error::line)?;
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
    show(context);
    let server = context.server;
    let mut name = Sha::try_from(context.request.arg(1)).map_err(|_| NO_SCRIPT)?;
    name.make_ascii_lowercase();
    let keys = key_count(context)?;
    with_interpreter(&server.engine, |interpreter| {
        let known = interpreter.by_name(&server.engine, &name).map_err(Error::line)?.ok_or(NO_SCRIPT)?;
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
    show(context);
    let found = server.engine.scripts.function(name);
    context.batch.see_apart();
    let (library, index) = found.ok_or(Error::text("ERR Function not found"))?;
    let function = &library.functions[index];
    let keys = match key_count(context) {
        Err(Error::NotInteger) => return Err(Error::text("ERR Bad number of keys provided")),
        other => other?,
    };
    with_interpreter(&server.engine, |interpreter| {
        interpreter.load(&library).map_err(Error::line)?;
        let what = What::Function(library.number, &function.name);
        Plan { keys, flags: Some(function.flags), locks: &library.locks, what }.run(
            context,
            interpreter,
            reply,
        )
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
        let has_ceiling = context.server.engine.attention().contains(Attention::MEMORY_CEILING);
        let fullness = match has_ceiling && !checks::is_of_master(context) {
            true => refusals::fullness(&context.server.engine, &context.server.feeding),
            false => Fullness::Room,
        };
        let is_full = matches!(fullness, Fullness::Full);
        let reads_only = self.check(context, is_full)?;
        let disk_error = checks::disk_error(context, &fullness);
        if let Some(error) = disk_error.filter(|_| self.flags.is_some() && !reads_only) {
            return Err(error);
        }
        let mark = reply.mark();
        let is_function = matches!(self.what, What::Function(..));
        let mut holds =
            self.locks.holds(plan::may_begin_again(context.server.is_monitored(), reads_only, is_function));
        let began = Instant::now();
        let (ran, has_error) = loop {
            let takes_locks = !context.batch.is_holding();
            if takes_locks && !self.hold(context, holds) {
                return Err(Error::InUse);
            }
            if takes_locks {
                context.session.give_up_claim(context.server);
                context.now = context.batch.moment(context.now);
            }
            let (ran, has_error) = self.run_held(context, interpreter, reply, (reads_only, &fullness, began));
            if takes_locks && (ran == Ran::Restart || !context.batch.has_ready()) {
                context.batch.release();
            }
            if ran != Ran::Restart {
                break (ran, has_error);
            }
            debug_assert!(
                !context.batch.is_holding(),
                "one that is part of a transaction holds all that there is"
            );
            reply.rollback(mark);
            self.locks.note_reaching_out();
            holds = Holds::All;
        };
        if ran == (Ran::Failed { is_counted: false }) {
            let line = reply.since(mark);
            context.server.counts.note_error(line.strip_prefix(b"-").unwrap_or(line));
        }
        if ran == Ran::Replied && !has_error { Ok(()) } else { Err(Error::Replied) }
    }

    /// Whether it may run at all, and whether it may only read.
    fn check(&self, context: &Context<'_, '_>, is_full: bool) -> Result<bool> {
        if context.server.clustered.is_on()
            && self.flags.is_some_and(|flags| flags.contains(ScriptFlags::NO_CLUSTER))
        {
            return Err(Error::text("ERR Can not run script on cluster, 'no-cluster' flag is set."));
        }
        let of_command = context.command.row.flags;
        let reads_only = plan::reads_only(of_command, self.flags);
        let allows_stale = self.flags.is_some_and(|flags| flags.contains(ScriptFlags::ALLOW_STALE));
        if !allows_stale && checks::hides_stale_data(context.server) {
            return Err(refusals::MASTER_DOWN);
        }
        let Some(flags) = self.flags else { return Ok(reads_only) };
        if of_command.contains(Flags::READONLY) && !reads_only {
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
                let key = |position| server.engine.keyspace.key(db, request.arg(position));
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
        (reads_only, fullness, began): (bool, &Fullness, Instant),
    ) -> (Ran, bool) {
        let (db, protocol) = (context.session.db, context.session.protocol);
        let words = (context.request, 3, self.keys);
        context.session.runs_script = true;
        context.session.script_time_us = None;
        let oom_allowed = self.flags.is_some_and(|flags| flags.contains(ScriptFlags::ALLOW_OOM));
        let is_function = matches!(self.what, What::Function(..));
        let is_oom = matches!(fullness, Fullness::Full) && !oom_allowed;
        // One that says nothing of itself may, as in Redis.
        let crosses_slots = self.flags.is_none_or(|flags| flags.contains(ScriptFlags::ALLOW_CROSS_SLOT_KEYS));
        let limits = Limits { reads_only, is_oom, crosses_slots };
        let disk_error = checks::disk_error(context, fullness);
        let mut host = ScriptHost::new(context, limits, disk_error, is_function, began);
        let ran = match self.what {
            What::Script(known) => {
                interpreter.engine.run_script(known.compiled, &known.name, words, &mut host, reply)
            }
            What::Function(library, name) => {
                interpreter.engine.run_function(library, name, words, &mut host, reply)
            }
        };
        let has_error = host.end(ran);
        let session = &mut *context.session;
        session.runs_script = false;
        session.protocol = protocol;
        if session.db != db {
            session.select(db);
        }
        (ran, has_error)
    }
}
