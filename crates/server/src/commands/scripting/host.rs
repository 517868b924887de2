//! What a script asks of the server: its commands, checked as Redis checks them and run under what the script holds.

use crate::commands::debug;
use crate::dispatch::ownership::{self, Asked, Cause};
use crate::dispatch::{Context, checks};
use crate::feeding;
use crate::holders::{Run, What};
use crate::rights;
use crate::slow;
use ::script::limits::OUTPUT_BYTES_MAX;
use ::script::{Host, Pulse, Ran, Refusal};
use acl::Setting;
use command::execute::{key_positions, keys_locked, needs_all};
use command::table::{Command, Runs};
use command::{Args, Error, Flags, Handler, Hashed, Keys};
use config::LogLevel as Level;
use engine::Attention;
use keyspace::Key;
use net::worker::make_way;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use telemetry::log;
use telemetry::logger;
use telemetry::stats::Ending;
use wire::{Protocol, Reply, Request, RequestBuf};

/// From here on a run is slow: it makes way, and others ask before they wait for what it holds.
const SLOW: Duration = Duration::from_millis(5);

/// A run that has not taken longer comes to its end when the server ends.
const OVER_SOON: Duration = Duration::from_millis(100);

/// How long a script that has changed something waits for the slot of a key that it did not declare.
const SLOT_WAIT_MAX: Duration = Duration::from_millis(50);

/// How many lines for the log wait until it is sure that a run does not begin again.
const LINES_KEPT_MAX: usize = 64;

/// What a run may not do.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// It may not write.
    pub reads_only: bool,
    /// Memory was full when it began, and it did not say that it may run nevertheless.
    pub is_oom: bool,
    /// In a cluster: it may touch several slots of those that are here.
    pub crosses_slots: bool,
}

/// The server for one run.
pub(super) struct ScriptHost<'h, 'a, 'k> {
    context: &'h mut Context<'a, 'k>,
    limits: Limits,
    /// Why it may not write, found when it began: what fails later does not cut it in two.
    disk_error: Option<Error>,
    is_function: bool,
    began: Instant,
    /// It has changed something.
    wrote: bool,
    /// Somebody may have seen that it runs: it cannot begin again.
    is_seen: bool,
    /// Lines for the log of a run that may still begin again.
    lines: Vec<(Level, Vec<u8>)>,
    /// Its reply has an error.
    has_error: bool,
    /// Most runs are over before anybody could see them.
    shown: Option<Arc<Run>>,
    is_slow: bool,
    /// Others are told that it is busy, and the log, too.
    is_busy: bool,
    /// The command that it called last.
    last: Option<&'static Command>,
    /// In a cluster: the slot of the first key that it named.
    slot: Option<u16>,
}

impl<'h, 'a, 'k> ScriptHost<'h, 'a, 'k> {
    pub fn new(
        context: &'h mut Context<'a, 'k>,
        limits: Limits,
        disk_error: Option<Error>,
        is_function: bool,
        began: Instant,
    ) -> ScriptHost<'h, 'a, 'k> {
        let is_monitored = context.server.engine.attention().contains(Attention::MONITORS);
        let slot = slot_declared(context);
        ScriptHost {
            context,
            limits,
            slot,
            disk_error,
            is_function,
            began,
            wrote: false,
            // Its library remembers.
            is_seen: is_function || is_monitored,
            lines: Vec::new(),
            has_error: false,
            shown: None,
            is_slow: false,
            is_busy: false,
            last: None,
        }
    }

    /// The run is over, or is to begin again. True: its reply has an error.
    pub fn end(mut self, ran: Ran) -> bool {
        if ran != Ran::Restart {
            self.write_lines();
        }
        let Some(run) = self.shown else { return self.has_error };
        let server = self.context.server;
        server.functions.lock().retain(|other| !Arc::ptr_eq(other, &run));
        if self.is_slow {
            server.holders.remove(&server.engine, &server.bells, &run);
        }
        self.has_error
    }

    /// The run, for others to see.
    fn shown(&mut self) -> Arc<Run> {
        if let Some(run) = &self.shown {
            return run.clone();
        }
        let request = &self.context.request;
        let run = Arc::new(Run {
            what: if self.is_function { What::Function(request.arg(1).to_vec()) } else { What::Script },
            words: request.iter().map(<[u8]>::to_vec).collect(),
            began: self.began,
            wrote: self.wrote.into(),
            is_killed: false.into(),
            holding: Mutex::new(self.context.batch.holding()),
        });
        if self.is_function {
            self.context.server.functions.lock().push(run.clone());
        }
        self.shown.insert(run).clone()
    }

    /// Shows the run among those that are slow: whoever needs what it holds asks from now on before it waits.
    fn note_slow(&mut self) {
        if !self.is_slow {
            self.is_slow = true;
            let (run, server) = (self.shown(), self.context.server);
            server.holders.add(&server.engine, &run);
        }
    }

    /// Whether it may be told to begin again.
    fn may_begin_again(&self) -> bool {
        !self.wrote && !self.is_seen && !self.context.batch.holds_all()
    }

    /// Writes what waited for it to be sure that it is written once.
    fn write_lines(&mut self) {
        for (level, line) in self.lines.drain(..) {
            logger::write(level, format_args!("{}", String::from_utf8_lossy(&line)));
        }
    }

    /// Whether the server's end waits for it: what it has done must not be there without what it will do, nor a transaction without
    /// the script that is part of it.
    fn is_whole_or_nothing(&self) -> bool {
        self.wrote || self.context.session.transaction.is_some()
    }

    fn note_write(&mut self) {
        self.wrote = true;
        if let Some(run) = &self.shown {
            run.wrote.store(true, Ordering::Relaxed);
        }
    }

    fn find(&mut self, request: &Request<'_>) -> Result<&'static Command, Refusal> {
        // Most scripts call the same command again and again.
        let names = &self.context.server.names;
        if let Some(last) = self.last
            && !names.are_changed()
            && request.arg(0).eq_ignore_ascii_case(last.row.name.as_bytes())
        {
            return Ok(last);
        }
        let command = names
            .find_for(request)
            .filter(|command| command.subcommands.is_empty() || request.len() == 1)
            .ok_or_else(|| self.refuse(None, Error::text("ERR Unknown Redis command called from script")))?;
        self.last = Some(command).filter(|command| command.subcommands.is_empty());
        Ok(command)
    }

    /// A call that is not run counts as an error, and as one of its command.
    #[cold]
    fn refuse(&self, command: Option<&Command>, error: Error) -> Refusal {
        let context = &self.context;
        context.server.counts.note_error(error.as_bytes());
        if let Some(command) = command {
            let (counts, now) = (&context.server.worker_counts[context.worker], context.server.ticks.now());
            counts.note(command.id, now, now, Ending::Rejected, false);
        }
        Refusal::Error(error.as_bytes().to_vec())
    }

    fn check(&mut self, command: &Command, request: &Request<'_>) -> Result<(), Error> {
        if !command.row.accepts(request.len()) {
            return Err(Error::text("ERR Wrong number of args calling Redis command from script"));
        }
        if command.is(Flags::NOSCRIPT) && !self.admits(command, request) {
            return Err(Error::text("ERR This Redis command is not allowed from script"));
        }
        let context = &mut *self.context;
        if !command.is(Flags::STALE) && checks::hides_stale_data(context.server) {
            return Err(Error::text("ERR Can not execute the command on a stale replica"));
        }
        if !context.session.access.is_unrestricted(&context.server.acl) {
            // What is refused is shown with the command that the client sent.
            if context.session.transaction.is_none() {
                context.session.client.note_command(context.command.id);
            }
            rights::admit(context.server, context.session, command, request, Setting::Script, context.now)
                .map_err(|error| {
                    // What else is denied the command itself denies.
                    match error.as_bytes().strip_prefix(b"NOPERM ") {
                        Some(reason) => Error::line([b"ERR ACL failure in script: ", reason].concat()),
                        None => error,
                    }
                })?;
        }
        let may_write = command.row.flags.intersects(Flags::WRITE | Flags::MAY_REPLICATE);
        if may_write && self.limits.reads_only {
            return Err(Error::text("ERR Write commands are not allowed from read-only scripts."));
        }
        if checks::may_append(command.row.flags)
            && self.context.server.engine.attention().contains(Attention::LOADING_BESIDE)
        {
            return Err(checks::LOADING);
        }
        if command.is(Flags::WRITE)
            && let Some(error) = &self.disk_error
        {
            return Err(error.clone());
        }
        if self.wrote
            && command.is(Flags::WRITE)
            && let Some(error) = checks::record_error(self.context, command, request)
        {
            return Err(error);
        }
        if self.limits.is_oom && command.is(Flags::DENYOOM) && !self.wrote {
            return Err(Error::text("OOM command not allowed when used memory > 'maxmemory'."));
        }
        self.check_slot(command, request)
    }

    /// In a cluster a script touches one slot, which is here.
    fn check_slot(&mut self, command: &Command, request: &Request<'_>) -> Result<(), Error> {
        let Some(part) = self.context.server.clustered.get() else { return Ok(()) };
        // The script that has begun goes on as it was let in: slots switch behind it.
        let view = self.context.session.let_in_by.clone().unwrap_or_else(|| part.view());
        if ownership::is_held_off(&view, command) {
            return Err(Error::text("ERR Script attempted to empty databases while slots move; try again"));
        }
        let mut slot = None;
        let found = match (ownership::gather(command, request, &mut slot), slot) {
            (_, None) => return Ok(()),
            (Ok(()), Some(slot)) => Ok(slot),
            (Err(first), _) => Err(first),
        };
        let asked = Asked {
            flags: command.row.flags,
            is_of_channels: ownership::is_of_channels(command),
            reads_replicas: self.context.session.reads_replicas,
        };
        ownership::find(self.context.server, &view, found, &asked).map_err(|refusal| match refusal {
            Cause::DownForWrites => Error::text(
                "ERR Script attempted to execute a write command while the cluster is down and readonly",
            ),
            Cause::Down => Error::text("ERR Script attempted to execute a command while the cluster is down"),
            _ => Error::text("ERR Script attempted to access a non local key in a cluster node"),
        })?;
        let slot = found.unwrap_or_else(|first| first);
        if !self.limits.crosses_slots && *self.slot.get_or_insert(slot) != slot {
            return Err(Error::text("ERR Script attempted to access keys that do not hash to the same slot"));
        }
        Ok(())
    }

    /// Whether a test lets scripts call this, though it is not for them.
    fn admits(&self, command: &Command, request: &Request<'_>) -> bool {
        self.context.server.switches.admits_to_scripts() && debug::suits_scripts(command, request)
    }

    /// Sees to it that what a command touches is held. `first` is its first key, if it has one at a fixed place.
    fn hold(
        &mut self,
        command: &Command,
        request: Request<'_>,
        first: Option<&Key<'_>>,
    ) -> Result<(), Refusal> {
        let context = &mut *self.context;
        if context.batch.holds_all() {
            return Ok(());
        }
        if let Some(key) = first
            && touches_one_key(command)
            && context.batch.holds(std::slice::from_ref(key))
        {
            return Ok(());
        }
        let mut keys: Vec<Key<'_>> = Vec::new();
        let needs_more = match command.row.handler {
            Runs::Data(row) => {
                let args = Args::new(
                    request,
                    &context.server.engine.keyspace,
                    (context.session.db, context.now),
                    &context.server.engine.settings,
                );
                keys_locked(row, &args, &mut keys);
                needs_all(row, &args)
            }
            Runs::Server(_) => {
                let (keyspace, db) = (&context.server.engine.keyspace, context.session.db);
                let mut positions = Vec::new();
                key_positions(command.row.keys, &request, &mut positions);
                keys.extend(positions.into_iter().map(|at| keyspace.key(db, request.arg(at))));
                command.looks_around()
            }
        };
        if !needs_more && context.batch.holds(&keys) {
            return Ok(());
        }
        if self.may_begin_again() {
            return Err(Refusal::Restart);
        }
        let context = &mut *self.context;
        if !needs_more && context.batch.try_hold_also(&keys, SLOT_WAIT_MAX) {
            if let Some(run) = &self.shown {
                *run.holding.lock() = context.batch.holding();
                if self.is_slow {
                    context.server.holders.note_holding_more(&context.server.engine);
                }
            }
            return Ok(());
        }
        Err(Refusal::Error(
            b"ERR Script attempted to access a key that it did not declare, and that is in use; pass it in KEYS"
                .to_vec(),
        ))
    }
}

/// The slot of the first key that a request gives its script, in a cluster.
fn slot_declared(context: &Context<'_, '_>) -> Option<u16> {
    let mut slot = None;
    if context.server.clustered.is_on() {
        // Several were refused before.
        let _ = ownership::gather(context.command, &context.request, &mut slot);
    }
    slot
}

/// Whether nobody can tell that it ran twice: it changes nothing, and tells nobody.
fn leaves_nothing_behind(command: &Command) -> bool {
    !command.row.flags.intersects(Flags::WRITE | Flags::MAY_REPLICATE)
}

/// Whether it touches its first key and nothing else.
fn touches_one_key(command: &Command) -> bool {
    let Runs::Data(row) = command.row.handler else { return false };
    let Keys::Range { first, last, .. } = row.keys else { return false };
    last == first as isize && matches!(row.handler, Handler::Read(_) | Handler::Write(_))
}

impl Host for ScriptHost<'_, '_, '_> {
    fn call(&mut self, request: Request<'_>, protocol: Protocol, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let command = self.find(&request)?;
        let own = self.context.server.names.own(Some(command), &request);
        let request = own.as_ref().map_or(request, RequestBuf::as_request);
        self.check(command, &request).map_err(|line| self.refuse(Some(command), line))?;
        let key = request
            .get(command.first_key)
            .filter(|_| command.first_key > 0)
            .map(|bytes| self.context.server.engine.keyspace.key(self.context.session.db, bytes));
        self.hold(command, request, key.as_ref())?;
        if command.is(Flags::WRITE) {
            self.note_write();
        }
        self.is_seen |= !leaves_nothing_behind(command);
        if command.is(Flags::WAITS_FOR_OTHERS) {
            // No pulse comes meanwhile, and whoever asks what runs is to find the script.
            self.note_slow();
        }
        let context = &mut *self.context;
        let server = context.server;
        if server.engine.attention().contains(Attention::MONITORS) {
            server.monitors.show(&server.net.clients, &context.session.caller(), command, &request);
        }
        context.session.protocol = protocol;
        let mut inner = Context {
            server,
            worker: context.worker,
            session: &mut *context.session,
            request,
            command,
            now: context.now,
            batch: &mut *context.batch,
        };
        let began = server.ticks.now();
        let hashed = Hashed::new(command.first_key, 1, key.as_slice());
        let bytes_max = out.len().saturating_add(OUTPUT_BYTES_MAX);
        let ending = inner.call(hashed, &mut Reply::new(out, protocol).at_most(bytes_max));
        if out.len() > bytes_max {
            *out = Vec::new();
            Reply::new(out, protocol).error("ERR the reply is longer than a script may be given");
        }
        let (counts, track) =
            (&server.worker_counts[context.worker], server.engine.config.latency_tracking());
        let ended = server.ticks.now();
        counts.note(command.id, began, ended, ending, track);
        let spent = ended.0.saturating_sub(began.0);
        slow::note_if_slow_in_script(server, command, &request, spent);
        server.counts.commands.add(1);
        Ok(())
    }

    fn may_run(&mut self, request: Request<'_>) -> Option<bool> {
        let context = &mut *self.context;
        let command = context
            .server
            .names
            .find_for(&request)
            .filter(|command| command.subcommands.is_empty() || request.len() == 1)?;
        let user = context.server.acl.get(context.session.access.user().name());
        Some(user.is_some_and(|user| user.check(command, &request).is_ok()))
    }

    fn note_error(&mut self, line: &[u8], is_counted: bool) {
        self.has_error = true;
        if !is_counted {
            self.context.server.counts.note_error(line);
        }
    }

    fn log(&mut self, level: u8, line: &[u8]) {
        let level = match level {
            0 => Level::Debug,
            1 => Level::Verbose,
            2 => Level::Notice,
            _ => Level::Warning,
        };
        if !logger::is_on(level) {
            return;
        }
        // Nobody counts what waits here, so it is short.
        self.lines.push((level, logger::shown(line).to_vec()));
        // So many are not kept for one that might begin again.
        self.is_seen |= self.lines.len() >= LINES_KEPT_MAX;
        if !self.may_begin_again() {
            self.write_lines();
        }
    }

    fn began(&self) -> Instant {
        self.began
    }

    fn pulse(&mut self) -> Pulse {
        let server = self.context.server;
        feeding::pass_gathered(server, || server.net.placement.connections_of(self.context.worker));
        let run = self.shown();
        if run.is_killed.load(Ordering::Relaxed) {
            return Pulse::End("Script killed by user with SCRIPT KILL...");
        }
        let elapsed = self.began.elapsed();
        if elapsed < SLOW {
            return Pulse::GoOn;
        }
        // One that is late at this look may have been kept from running.
        let is_over_soon = !self.is_slow || elapsed < OVER_SOON;
        if server.engine.is_ending() && !is_over_soon && !self.is_whole_or_nothing() {
            return Pulse::End("The server is shutting down");
        }
        self.note_slow();
        make_way();
        // A script may wait for time to pass.
        self.context.session.script_time_us = None;
        if !self.is_busy
            && server.engine.config.busy_reply_threshold().is_some_and(|threshold| elapsed >= threshold)
        {
            self.is_busy = true;
            log!(
                Warning,
                "Slow script detected: still in execution after {} milliseconds. You can try killing the script using \
                 the {} command.",
                elapsed.as_millis(),
                if self.is_function { "FUNCTION KILL" } else { "SCRIPT KILL" }
            );
        }
        Pulse::GoOn
    }
}
