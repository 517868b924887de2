//! From parsed requests to replies: finds each command, checks whether it may run,
//! runs it, and counts. The part of the command's path between wire and keyspace.
//!
//! Requests of one read are run in groups: the commands of a group are looked up
//! and their keys hashed first, and the memory that they will touch is asked for
//! early, so that the waits for it overlap.
//!
//! Thread rule: a [`Runner`] belongs to a worker; everything shared is in `Server`.

pub mod checks;
mod data_commands;
pub mod handlers;
mod messages;
pub mod ownership;
pub mod reach;
pub mod transaction;

use crate::blocking;
use crate::clustered::{Seen, View};
use crate::feeding;
use crate::refusals;
use crate::server::Server;
use crate::session::{ReplyMode, Session};
use crate::slow;
use checks::Verdict;
use command::table::{Command, Runs};
use command::{Error, Flags, Hashed, Shows, Waiting, execute};
use engine::residency;
use engine::{Attention, Engine};
use keyspace::{Ahead, Batch, Key, Stamp};
use net::client::{self, Letters, Traits};
use net::service::{Closing, OUTPUT_FLUSH_BYTES, Stop};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use sys::{Shown, Ticks, UnixMs};
use telemetry::log;
use telemetry::stats::Ending;
use wire::{Reply, Request, RequestBuf};

/// Requests that are prepared together. More would ask for more memory lines than
/// the first-level cache holds.
const GROUP_REQUESTS: usize = 32;

/// Cold keys that are read together for one session.
const FETCH_KEYS_MAX: usize = 256;

/// How old the moment may be that commands take for the present one.
pub const MOMENT_AGE_MAX: Duration = Duration::from_millis(1);

/// How long a command waits before it looks again whether the mail before it may leave.
const SEAL_PATIENCE_MS: u64 = 100;

/// How long what the spare worker does not run waits before it looks again whether it may leave.
const SPARE_PATIENCE_MS: u64 = 1;

/// When a read is run again that showed what is not on disk while the log does not go on.
const ASK_AGAIN_MS: u64 = 50;

/// What a server command works with.
pub struct Context<'a, 'k> {
    /// What all share.
    pub server: &'a Arc<Server>,
    /// The number of the worker that runs it.
    pub worker: usize,
    /// Whose command it is.
    pub session: &'a mut Session,
    /// Its words.
    pub request: Request<'a>,
    /// Its row.
    pub command: &'static Command,
    /// The moment at which it runs.
    pub now: UnixMs,
    /// For those that look at keys.
    pub batch: &'a mut Batch<'k>,
}

impl Context<'_, '_> {
    /// Runs the command and answers. The checks come before, statistics after.
    #[inline]
    pub fn call(&mut self, hashed: Hashed<'_>, reply: &mut Reply<'_>) -> Ending {
        let mark = reply.mark();
        let tracked = self.session.tracking.as_ref().map(|tracker| {
            let (server, reader) = (self.server, (&*self.session.client, &**tracker));
            server.tracking.begin_command(
                &server.net.clients,
                self.worker,
                reader,
                self.command,
                &self.request,
            )
        });
        let result = match self.command.row.handler {
            Runs::Data(row) if row.flags.contains(Flags::BLOCKING) => self.run_blocking(row, hashed, reply),
            Runs::Data(row) => self.run_data(row, hashed, Waiting::Never, reply),
            Runs::Server(_) if reach::is_misplaced(self.server, self.session, self.command) => {
                Err(Error::InUse)
            }
            Runs::Server(number) => {
                let answered = handlers::get(number)(self, reply);
                execute::readable(self.batch).and(answered)
            }
        };
        if self.command.row.shows == Shows::Everything {
            self.batch.see_all();
        }
        if let Some(before) = tracked {
            let reader = (&self.session.client, self.session.tracking.as_deref());
            let (clients, read) = (&self.server.net.clients, (self.command, &self.request));
            self.server.tracking.end_command(clients, self.worker, reader, before, read);
        }
        match result {
            Ok(()) => Ending::Done,
            Err(Error::InUse) => {
                reply.rollback(mark);
                Ending::HeldBack
            }
            Err(Error::Replied) => Ending::Failed,
            Err(error) => {
                reply.rollback(mark);
                // The session may have changed its protocol before it failed.
                reply.set_protocol(self.session.protocol);
                reply.error(error.as_bytes());
                self.server.counts.note_error(error.as_bytes());
                Ending::Failed
            }
        }
    }

    /// Puts mail into a reply, which must not go before it.
    pub fn enclose(&self, letters: &Letters, reply: &mut Reply<'_>) {
        if !letters.is_empty() {
            reply.raw(letters.as_bytes());
            // It may show anything.
            self.batch.see_all();
        }
    }
}

/// Runs the requests of one worker's sessions.
pub struct Runner {
    server: Arc<Server>,
    worker: usize,
    prepared: Vec<Prepared>,
    stale_ticks: u64,
    /// What the worker knows of the cluster.
    seen: Seen,
}

/// A request looked at ahead of its turn.
#[derive(Clone, Copy)]
struct Prepared {
    command: Option<&'static Command>,
    /// Where it looks: coordinates of the key at the command's `first_key`; the database may
    /// still change.
    ahead: Option<Ahead>,
}

impl Runner {
    /// The runner of worker number `worker`.
    pub fn new(server: Arc<Server>, worker: usize) -> Runner {
        let stale_ticks = server.ticks.ticks_in(MOMENT_AGE_MAX);
        Runner {
            server,
            worker,
            prepared: Vec::with_capacity(GROUP_REQUESTS),
            stale_ticks,
            seen: Seen::default(),
        }
    }

    /// Whose requests it runs.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Runs the requests of a batch from the first of two indices to the one before the second, appending replies to `out`. Gives also what of
    /// the history the replies show.
    pub fn run(
        &mut self,
        session: &mut Session,
        requests: &wire::Batch,
        input: &[u8],
        (from, until): (usize, usize),
        out: &mut Vec<u8>,
    ) -> (Stop, Shown) {
        let server = &self.server;
        let (batch, is_outside) = enter(server, self.worker);
        let engine = &*server.engine;
        // Inside, so that whoever waits until nobody is knows that all have seen it.
        let view = self.seen.renew(&server.clustered);
        let mut turn = Turn {
            server,
            engine,
            worker: self.worker,
            reply_bytes_max: server.reply_bytes_max(&session.client),
            session,
            now: engine.clock.now(),
            tick: server.ticks.now(),
            track: engine.config.latency_tracking(),
            stale_ticks: self.stale_ticks,
            batch,
            is_outside,
            view,
            sent_by: None,
            has_log_failed: engine.attention().contains(Attention::LOG_FAILED),
            moment: 0,
            last: None,
            is_asked: false,
            count: 0,
            waits_for_replicas: server.feeding.synced.is_wanted(),
            has_written: false,
            has_shown: false,
        };
        let stop = match turn.fetch(requests, input, from) {
            Some(fence) if fence == from => Stop::Fetching { next: from },
            fence => turn.run_groups(
                &mut self.prepared,
                requests,
                input,
                from,
                fence.map_or(until, |fence| fence.min(until)),
                out,
            ),
        };
        (stop, turn.end())
    }
}

/// Enters the keyspace. If a slow script holds it, or it is being loaded, the batch stays outside, which is
/// told in the second place.
#[inline]
fn enter(server: &Server, worker: usize) -> (Batch<'_>, bool) {
    if server.engine.attention().contains(Attention::LOADING) {
        return (server.engine.keyspace.stay_outside(worker), true);
    }
    let is_held_for_long =
        || server.engine.attention().contains(Attention::SLOW_SCRIPT) && server.holders.has_all();
    match server.engine.keyspace.enter_unless(worker, is_held_for_long) {
        // It may have begun since: then nobody is let in.
        Some(_) if server.engine.attention().contains(Attention::LOADING) => {
            (server.engine.keyspace.stay_outside(worker), true)
        }
        Some(batch) => (batch, false),
        None => (server.engine.keyspace.stay_outside(worker), true),
    }
}

/// What to do after a request.
enum Flow {
    Next,
    Wait(UnixMs),
    Block,
    Close,
}

/// One stay of a session in the keyspace: the requests that one read brought.
struct Turn<'a> {
    server: &'a Arc<Server>,
    engine: &'a Engine,
    worker: usize,
    session: &'a mut Session,
    now: UnixMs,
    /// When the command before ended and this one begins.
    tick: Ticks,
    track: bool,
    /// A command that takes longer than this makes `now` too old for the next.
    stale_ticks: u64,
    reply_bytes_max: usize,
    batch: Batch<'a>,
    /// A slow script holds the keyspace, or it is being loaded: only what touches no key may run.
    is_outside: bool,
    /// The cluster; None: the server stands alone.
    view: Option<&'a Arc<View>>,
    /// By which view a request was sent elsewhere: it counts for those behind it, too, since none is done before one that was sent in front of it.
    sent_by: Option<Arc<View>>,
    /// The log does not go on: what would wait for it is refused.
    has_log_failed: bool,
    /// How much mail a session that gets messages had been posted at the moment of its command.
    moment: u64,
    /// What the latest request named, if it named a command.
    last: Option<&'static Command>,
    /// There was a request.
    is_asked: bool,
    /// How many commands have run.
    count: i64,
    /// Replicas have to have what is written.
    waits_for_replicas: bool,
    /// A command that writes has run, whether or not it changed anything.
    has_written: bool,
    /// A command has shown something of what was written, or that nothing was.
    has_shown: bool,
}

/// Whether a request may write; None: there is none, or it is not known yet.
fn may_write(one: Option<&Prepared>) -> Option<bool> {
    let command = one?.command;
    Some(command.is_some_and(|command| {
        command.row.flags.intersects(Flags::WRITE | Flags::ENDS_TRANSACTION) || command.runs_script()
    }))
}

impl Turn<'_> {
    /// Has the cold keys of the next requests read together. Some: only the requests before this index may run now; the
    /// very first one, if something is on its way.
    #[inline]
    fn fetch(&mut self, requests: &wire::Batch, input: &[u8], from: usize) -> Option<usize> {
        if !self.engine.residency.fetches() {
            return None;
        }
        // What was fetched once and is cold again is read by its command: nobody is held back for ever.
        if let Some(fetch) = self.session.fetch.take() {
            return Some(requests.len().min(from + fetch.requests));
        }
        // While there is no room, what came back would only have to go again.
        if self.is_outside || residency::is_over(self.engine) && !self.engine.residency.is_stuck() {
            return None;
        }
        self.fetch_cold(requests, input, from)
    }

    fn fetch_cold(&mut self, requests: &wire::Batch, input: &[u8], from: usize) -> Option<usize> {
        let (mut cold, mut positions) = (Vec::new(), Vec::new());
        let mut fence = from;
        while fence < requests.len() && cold.len() < FETCH_KEYS_MAX {
            let request = requests.request(fence, input);
            fence += 1;
            let Some(command) =
                self.server.names.find_for(&request).filter(|one| one.row.accepts(request.len()))
            else {
                continue;
            };
            execute::key_positions(command.row.keys, &request, &mut positions);
            let keys = positions.iter().map(|at| self.engine.keyspace.key(self.session.db, request.arg(*at)));
            let purpose = execute::purpose(&command.row, &request);
            cold.extend(keys.filter_map(|key| self.batch.find_cold(&key, purpose)));
        }
        if !cold.is_empty() {
            let (waker, covered) = (self.session.client.waker(), fence - from);
            let engine = &self.server.engine;
            self.session.fetch = residency::fetch::begin(engine, self.worker, waker, covered, &cold);
            if self.session.fetch.is_some() {
                return Some(from);
            }
        }
        Some(fence)
    }

    /// Runs the requests from index `from` to `fence`.
    fn run_groups(
        &mut self,
        prepared: &mut Vec<Prepared>,
        requests: &wire::Batch,
        input: &[u8],
        from: usize,
        fence: usize,
        out: &mut Vec<u8>,
    ) -> Stop {
        let mut first = from;
        while first < fence {
            let end = fence.min(first + GROUP_REQUESTS);
            self.prepare(prepared, requests, input, first, end);
            self.begin_group(first > from);
            for index in first..end {
                let request = requests.request(index, input);
                let own = self.server.names.own(prepared[index - first].command, &request);
                let request = own.as_ref().map_or(request, RequestBuf::as_request);
                let heard = self.session.hears_itself();
                if heard {
                    self.begin_request(out);
                }
                let before = out.len();
                let flow = self.run_one(&request, prepared[index - first], out);
                // What it has told itself before it stopped to listen comes behind this reply, too.
                if heard || self.session.hears_itself() {
                    self.end_request(&flow, prepared[index - first].command, before, out);
                }
                match flow {
                    Flow::Next
                        if out.len() < OUTPUT_FLUSH_BYTES && !self.parts(&prepared[index - first..]) => {}
                    Flow::Next => return Stop::Flush { next: index + 1 },
                    Flow::Wait(until) => return Stop::Paused { next: index, until },
                    Flow::Block => return Stop::Blocked { next: index + 1 },
                    Flow::Close => return Stop::Closing,
                }
            }
            first = end;
        }
        if fence < requests.len() { Stop::Flush { next: fence } } else { Stop::Done }
    }

    /// Whether the next request's reply is to be held apart from those before: where replicas have to have what is written, what
    /// fails is what was written, and nothing else.
    #[inline]
    fn parts(&self, this_and_next: &[Prepared]) -> bool {
        self.waits_for_replicas && may_write(this_and_next.first()) != may_write(this_and_next.get(1))
    }

    /// Looks up the commands of a group and asks for the memory of their keys, in
    /// three passes: slots, table words, objects.
    fn prepare(
        &self,
        prepared: &mut Vec<Prepared>,
        requests: &wire::Batch,
        input: &[u8],
        first: usize,
        end: usize,
    ) {
        let (keyspace, db) = (&self.engine.keyspace, self.session.db);
        // Nothing is ahead of a request alone, and a slow script's keyspace is not looked at.
        let is_group = end - first > 1 && !self.is_outside;
        prepared.clear();
        for index in first..end {
            let request = requests.request(index, input);
            let command = self.server.names.find_for(&request);
            let key = command
                .filter(|command| command.first_key > 0)
                .and_then(|command| request.get(command.first_key))
                .map(|bytes| keyspace.key(db, bytes));
            let element = command
                .filter(|command| command.row.element > 0 && is_group)
                .and_then(|command| request.get(command.row.element))
                .map(value::table::position_of);
            let ahead = key.map(|key| Ahead { slot: key.slot, position: key.position, element });
            prepared.push(Prepared { command, ahead });
            if let Some(ahead) = ahead.filter(|_| is_group) {
                self.batch.prefetch_slot(db, ahead.slot);
            }
        }
        if is_group {
            self.batch.prefetch(db, prepared.iter().filter_map(|one| one.ahead));
        }
    }

    fn begin_group(&mut self, follows_another: bool) {
        if follows_another {
            self.now = self.engine.clock.now();
        }
    }

    #[inline]
    fn run_one(&mut self, request: &Request<'_>, prepared: Prepared, out: &mut Vec<u8>) -> Flow {
        let before = out.len();
        (self.last, self.is_asked) = (prepared.command, true);
        let Some(command) = prepared.command else {
            if checks::is_http(request) {
                return self.close_at_once();
            }
            self.refuse(checks::unknown_command(request), out);
            self.settle_reply(before, out);
            return self.go_on();
        };
        let verdict = self.check(command, request, prepared.ahead.map(|ahead| ahead.slot.0));
        if self.session.hears_itself() {
            // Keys that were evicted to make room are told of in front of the reply.
            self.moment = self.session.client.posted().load(Ordering::Acquire);
        }
        match verdict {
            Verdict::Run => {}
            Verdict::Refuse(error) => {
                let error = transaction::refusal_of(self.server, command, self.session, error);
                self.session.give_up_claim(self.server);
                self.refuse(error, out);
                if checks::lacks_subcommand(command, request) {
                    self.last = None;
                } else {
                    self.count_one(command, request, Ending::Rejected);
                }
                self.settle_reply(before, out);
                return self.go_on();
            }
            Verdict::Elsewhere(error) => return self.send_elsewhere(command, request, error, out),
            Verdict::Wait(until) => return Flow::Wait(until),
        }
        if self.session.transaction.is_some()
            && transaction::queue(self.server, self.session, command, request, out)
        {
            self.settle_reply(before, out);
            return self.go_on();
        }
        let earlier = if self.has_log_failed { self.batch.take_seen() } else { Stamp(0) };
        let ending = self.call(command, request, prepared, out);
        self.note_kind(command);
        if self.has_log_failed
            && let Some(again) = self.withhold(command, earlier, before, out)
        {
            return Flow::Wait(again);
        }
        if ending == Ending::HeldBack {
            // The script that has what it needs is known by now, and the next check finds it. Who waits for a seal is
            // woken when that is opened.
            return Flow::Wait(UnixMs(self.now.0 + self.patience_ms()));
        }
        self.session.give_up_claim(self.server);
        self.end_call(command, request, ending);
        if self.session.waits.is_some() {
            // Whoever ends the wait knows whether the reply is wanted.
            self.settle_reply(before, out);
            return Flow::Block;
        }
        let is_message = ending == Ending::Done && command.is(Flags::ANSWERS_BY_MESSAGE);
        let may_stay = is_message && self.session.replica.is_none();
        self.settle_reply(if may_stay { out.len() } else { before }, out);
        self.go_on()
    }

    /// Counts a call that was run, and serves who waited for its keys: those are calls of their own, behind it.
    #[inline]
    fn end_call(&mut self, command: &'static Command, request: &Request<'_>, ending: Ending) {
        let is_ready = !self.is_outside && self.batch.has_ready();
        match self.session.waits.is_some() {
            // It counts as a call when it ends.
            true => self.count += 1,
            false => self.count_one(command, request, ending),
        }
        if is_ready {
            // The command, or the transaction, may have taken longer than its keys were to live.
            blocking::serve(self.server, &mut self.batch, self.worker, self.engine.clock.now());
            self.tick = self.server.ticks.now();
        }
    }

    /// Notes what the batch has to wait for because of a command that was run.
    #[inline]
    fn note_kind(&mut self, command: &Command) {
        self.has_written |= command.is(Flags::WRITE);
        // INFO notes by itself what it shows of keys, and an operator is not to wait for members.
        self.has_shown |= command.row.shows != Shows::Nothing && command.row.name != "info";
    }

    #[inline]
    fn go_on(&self) -> Flow {
        if self.session.closing == Closing::No { Flow::Next } else { Flow::Close }
    }

    /// How long a command waits that was held back when it ran.
    #[cold]
    fn patience_ms(&self) -> u64 {
        if self.session.client.has_sealed_mail() {
            SEAL_PATIENCE_MS
        } else if self.worker == self.server.net.placement.spare() {
            SPARE_PATIENCE_MS
        } else {
            0
        }
    }

    #[inline]
    fn check(&mut self, command: &Command, request: &Request<'_>, ahead: Option<u16>) -> Verdict {
        if self.session.hears_itself() {
            if self.session.is_leaving {
                // It was admitted when it began, and what it has closed stays so.
                return Verdict::Run;
            }
            if self.is_behind_seals(command) {
                // Nobody waits for one who could not run anyway.
                self.session.give_up_claim(self.server);
                return reach::check_sealed(self.server, self.now)
                    .unwrap_or(Verdict::Wait(self.seals_again_at()));
            }
        }
        match checks::check_request(self.server, self.session, command, request, self.now) {
            Verdict::Run => {}
            refused => return refused,
        }
        if let Some(view) = self.view
            && !ownership::is_here(view, self.engine.attention(), command, ahead)
        {
            match ownership::check(self.server, view, &mut self.sent_by, self.session, command, request) {
                Verdict::Run => {}
                elsewhere => return elsewhere,
            }
        }
        if self.is_outside {
            match checks::check_outside(self.server, self.session, command, request, self.now) {
                Verdict::Run => {}
                held_back => return held_back,
            }
        }
        checks::check_circumstances(
            self.server,
            self.engine.attention(),
            &self.batch,
            self.session,
            command,
            request,
            self.now,
        )
    }

    /// Answers a request that does not run.
    #[cold]
    fn refuse(&mut self, error: Error, out: &mut Vec<u8>) {
        Reply::new(out, self.session.protocol).error(error.as_bytes());
        self.server.counts.note_error(error.as_bytes());
        self.session.doom_transaction();
    }

    /// Answers a request that is for another server. A transaction that was to be executed is over.
    #[cold]
    fn send_elsewhere(
        &mut self,
        command: &'static Command,
        request: &Request<'_>,
        error: Error,
        out: &mut Vec<u8>,
    ) -> Flow {
        let before = out.len();
        if command.is_exec() {
            transaction::forget(self.server, self.session);
        }
        self.session.give_up_claim(self.server);
        self.refuse(error, out);
        self.count_one(command, request, Ending::Rejected);
        self.settle_reply(before, out);
        self.go_on()
    }

    /// For a request that no Redis client sends: a page in somebody's browser may have been
    /// made to send it, and what follows must not run.
    #[cold]
    fn close_at_once(&mut self) -> Flow {
        // Anybody can send one, and must not fill the server's log.
        if self.server.counts.notes_http(self.now) {
            log!(
                Warning,
                "Client {} at {} sent an HTTP request, possibly an attack by way of a browser; closed (told once a minute)",
                self.session.client.id,
                self.session.client.address
            );
        }
        self.session.closing = Closing::Now;
        Flow::Close
    }

    #[inline]
    fn call(
        &mut self,
        command: &'static Command,
        request: &Request<'_>,
        prepared: Prepared,
        out: &mut Vec<u8>,
    ) -> Ending {
        let bytes_max = out.len().saturating_add(self.reply_bytes_max);
        let mut reply = Reply::new(out, self.session.protocol).at_most(bytes_max);
        let db = self.session.db;
        let key = prepared.ahead.map(|Ahead { slot, position, .. }| Key {
            bytes: request.arg(command.first_key),
            db,
            slot,
            position,
        });
        let mut context = Context {
            server: self.server,
            worker: self.worker,
            session: self.session,
            request: *request,
            command,
            now: self.now,
            batch: &mut self.batch,
        };
        if let Some(view) = self.view.filter(|_| command.runs_script() || command.is_exec()) {
            // What it calls is let in with it; perhaps by a later one than the worker has seen.
            context.session.let_in_by.get_or_insert_with(|| view.clone());
        }
        let hears_itself = context.session.hears_itself();
        if hears_itself {
            context.batch.read_at_moment(context.session.client.posted().clone());
        }
        let ending = context.call(Hashed::new(command.first_key, 1, key.as_slice()), &mut reply);
        if self.view.is_some() {
            context.session.let_in_by = None;
        }
        if hears_itself {
            self.note_moment(command, request);
        }
        if out.len() > bytes_max {
            self.close_for_its_output(out);
        }
        ending
    }

    /// A reply went beyond what the client may be owed.
    #[cold]
    fn close_for_its_output(&mut self, out: &mut Vec<u8>) {
        client::close_for_its_reply(&self.server.net.clients, &self.session.client);
        self.session.closing = Closing::Now;
        *out = Vec::new();
    }

    /// Counts a command, and the time since the one before ended as its own.
    #[inline]
    fn count_one(&mut self, command: &'static Command, request: &Request<'_>, ending: Ending) {
        let tick = self.server.ticks.now();
        self.server.worker_counts[self.worker].note(command.id, self.tick, tick, ending, self.track);
        let spent = tick.0.saturating_sub(self.tick.0);
        self.tick = tick;
        if ending != Ending::Rejected {
            self.count += 1;
            slow::note_if_slow(self.server, &self.session.client, command, request, spent);
        }
        if spent >= self.stale_ticks {
            self.now = self.engine.clock.now();
        }
    }

    /// While the log does not go on, a reply that shows what is not on disk is taken back. Who only reads keys may ask again for a
    /// while, in case it goes on; then, and all others at once, are told: nobody waits for ever. Not whoever has written: what
    /// it did could not be told from what was refused, and whether it holds is known when the log goes on. Some: when to run
    /// the request again.
    #[cold]
    fn withhold(
        &mut self,
        command: &Command,
        earlier: Stamp,
        before: usize,
        out: &mut Vec<u8>,
    ) -> Option<UnixMs> {
        let is_shown = self.server.net.gate.is_open(self.batch.seen()) || command.row.shows == Shows::Nothing;
        let has_written = self.batch.has_appended() && !command.is(Flags::READONLY);
        let is_answered = self.session.waits.is_none() && out.len() > before;
        let error = match is_answered && !is_shown && !has_written {
            true => refusals::held_error(self.engine),
            false => None,
        };
        let Some(error) = error else {
            self.batch.see(earlier);
            return None;
        };
        self.batch.take_seen();
        self.batch.see(earlier);
        out.truncate(before);
        let is_read_of_keys = matches!(command.row.handler, Runs::Data(row) if row.shows == Shows::WhatItNotes && command.is(Flags::READONLY));
        if is_read_of_keys && self.session.may_ask_again(self.now) {
            return Some(UnixMs(self.now.0 + ASK_AGAIN_MS));
        }
        Reply::new(out, self.session.protocol).error(error.as_bytes());
        self.server.counts.note_error(error.as_bytes());
        None
    }

    /// Takes the reply back if the session wants none.
    #[inline]
    fn settle_reply(&mut self, before: usize, out: &mut Vec<u8>) {
        match self.session.reply_mode {
            ReplyMode::On => {}
            ReplyMode::Off => out.truncate(before),
            ReplyMode::SkipNext => self.session.reply_mode = ReplyMode::Skip,
            ReplyMode::Skip => {
                out.truncate(before);
                self.session.reply_mode = self.session.usual_mode();
            }
            ReplyMode::Stream if out.len() > before => self.end_replica(before, out),
            ReplyMode::Stream => {}
        }
    }

    /// A replica has said what is answered, and would take the answer for a part of the stream.
    #[cold]
    fn end_replica(&mut self, before: usize, out: &mut Vec<u8>) {
        out.truncate(before);
        let name = self.last.map_or("<unknown>", |command| command.row.name);
        let line = self.session.client.line(self.now);
        log!(Warning, "Replica generated a reply to command '{name}', disconnecting it: {line}");
        self.session.closing = Closing::Now;
    }

    /// Ends the stay; gives what of the history it has seen.
    fn end(mut self) -> Shown {
        if self.batch.is_inside() && self.batch.has_ready() {
            // By an eviction in front of a request that was refused then.
            blocking::serve(self.server, &mut self.batch, self.worker, self.now);
        }
        self.server.tracking.end_batch(&self.server.net.clients, self.worker);
        self.session.note_written(self.batch.appended());
        if !self.session.published.is_empty() {
            let published = mem::take(&mut self.session.published);
            feeding::pass_on(self.server, (&self.session.client, self.session.db), &published);
        }
        residency::fetch::look_up(&self.server.engine, self.worker, self.batch.take_shadowed());
        if self.is_asked {
            self.session.client.note_batch(self.last.map(|command| command.id), self.count, self.now);
            self.server.counts.commands.add(self.count);
            if let Some(rounds) = self.server.net.rounds.get(self.worker) {
                rounds.note_commands(self.count as u64);
            }
        }
        if self.session.closing != Closing::No {
            self.session.client.set_trait(Traits::CLOSING, true);
        }
        let mut up_to = self.batch.take_seen();
        if self.has_shown && self.server.shard.is_on() {
            // What was never written is shown, too, and only while it may be.
            up_to = up_to.max(Stamp(1));
        }
        Shown { up_to, is_write: self.has_written || self.batch.has_appended() }
    }
}
