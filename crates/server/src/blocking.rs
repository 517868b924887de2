//! What becomes of sessions that wait ([`crate::blocked`]): for a key (BLPOP), or only for time to pass (WAIT).
//!
//! A session that has to wait leaves its request in the registry and runs nothing more. Whoever
//! makes one of its keys ready runs the request again in the session's place, still
//! holding the key's slot, and posts the reply; or its time is up, or CLIENT UNBLOCK
//! ends the wait, or the client goes away. Exactly one of these happens.
//!
//! Thread rule: any worker.

use crate::blocked::{Waiter, WaitingRequest};
use crate::refusals;
use crate::rights;
use crate::server::Server;
use crate::session::Session;
use crate::slow;
use command::table::{Command, Runs};
use command::{Args, Error, Outcome, Sessions, Wait, Waiting, execute};
use keyspace::{Batch, Key, KeyName, Stamp, Ticket, Touch};
use net::client::{self, BehindReply, Signal};
use net::service::Until;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use sys::{Shown, Ticks, UnixMs};
use telemetry::stats::Ending;
use wire::{Reply, RequestBuf};

/// Why a wait ends before a key is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Its time is up, or it is as if it were.
    Timeout,
    /// CLIENT UNBLOCK ... ERROR.
    Error,
    /// What it waits for is another server's now, which this says.
    Elsewhere(Error),
    /// Its server follows a master now, which nobody here may write beside; the client is closed behind the answer.
    Demoted,
}

/// For a request that may have to wait: the session that would.
pub struct Beginner<'a> {
    /// The server.
    pub server: &'a Server,
    /// The session.
    pub session: &'a Session,
    /// Its command.
    pub command: &'static Command,
    /// When it was begun.
    pub first_tried: Ticks,
    /// Set when it begins to wait: until when, if not for ever.
    pub began: &'a Cell<Option<Until>>,
}

impl Sessions for Beginner<'_> {
    fn ticket(&self) -> Ticket {
        self.session.client.id
    }

    fn begin_wait(&self, wait: &Wait, args: &Args<'_>, keys: &[Key<'_>]) {
        let protocol = self.session.protocol;
        let originals = wait.rewritten.iter().map(|(at, _)| (*at, args.request.arg(*at).into())).collect();
        let mut words: Vec<&[u8]> = args.request.iter().collect();
        for (position, word) in &wait.rewritten {
            words[*position] = word;
        }
        let mut on_timeout = Vec::new();
        wait.null.write(&mut Reply::new(&mut on_timeout, protocol));
        let request = WaitingRequest {
            command: self.command,
            words: RequestBuf::from_args(words),
            originals,
            db: self.session.db,
            protocol,
            touch: self.session.touch,
            keys: keys.iter().map(|key| (key.db, key.bytes.into())).collect(),
            rights: self.server.acl.version(),
            reads_replicas: self.session.reads_replicas,
            is_cached: self.session.tracking.as_ref().is_some_and(|tracker| tracker.caches(self.command)),
            ticks: self.server.ticks.now().0.saturating_sub(self.first_tried.0),
        };
        let shows = self.server.latest();
        begin(self.server, self.session, Some(request), (on_timeout, shows), wait.until);
        self.began.set(Some(wait.until));
    }
}

/// Makes a session wait for time to pass; then it gets `on_timeout`, unless it is answered before.
pub fn wait_for_time(server: &Server, session: &Session, until: Until, on_timeout: Vec<u8>) -> Arc<Waiter> {
    begin(server, session, None, (on_timeout, Stamp(0)), until)
}

fn begin(
    server: &Server,
    session: &Session,
    request: Option<WaitingRequest>,
    on_timeout: (Vec<u8>, Stamp),
    until: Until,
) -> Arc<Waiter> {
    let client = session.client.clone();
    server.blocked.add(Waiter::new(client, session.is_silent(), request, on_timeout, until))
}

/// Ends a wait that no key has ended, on this worker. False: it does not wait, or not any more.
pub fn cut(server: &Server, worker: usize, ticket: Ticket, how: Cut) -> bool {
    let Some(waiter) = server.blocked.end(&server.engine.keyspace, ticket) else { return false };
    tell(server, worker, &waiter, how);
    true
}

/// Tells a session whose wait has ended how it has.
pub fn tell(server: &Server, worker: usize, waiter: &Waiter, how: Cut) {
    let ending = match &how {
        Cut::Timeout => time_out(server, waiter),
        Cut::Error => {
            fail(server, waiter, b"UNBLOCKED client unblocked via CLIENT UNBLOCK");
            Ending::Failed
        }
        Cut::Elsewhere(error) => {
            fail(server, waiter, error.as_bytes());
            Ending::Failed
        }
        Cut::Demoted => {
            let text = "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
            fail(server, waiter, text.as_bytes());
            Ending::Failed
        }
    };
    count(server, waiter, worker, ending, 0);
    let closes = if how == Cut::Demoted { Signal::DRAIN } else { Signal::empty() };
    waiter.client.signal(Signal::UNBLOCKED | closes);
}

/// Ends all waits, whose sessions are told later ([`tell`]): the server has become another's replica. What others do on their keys is the master's affair.
pub fn end_all(server: &Server) -> Vec<Arc<Waiter>> {
    let end = |ticket| server.blocked.end(&server.engine.keyspace, ticket);
    server.blocked.tickets().into_iter().filter_map(end).collect()
}

/// Serves those who wait for keys that have changed in this batch, in the order in which
/// they came, and releases what the batch holds for it. A key that a slow script has is put off: when that is over, all workers are
/// rung for.
#[cold]
pub fn serve(server: &Server, batch: &mut Batch<'_>, worker: usize, now: UnixMs) {
    let mut put_off = Vec::new();
    while let Some(name) = batch.next_ready() {
        if !serve_key(server, batch, worker, now, &name) {
            put_off.push(name);
        }
    }
    batch.release();
    batch.put_off(put_off);
}

/// Serves those who wait for a key. False: a slow script has it.
fn serve_key(server: &Server, batch: &mut Batch<'_>, worker: usize, now: UnixMs, name: &KeyName) -> bool {
    for waiting in server.engine.keyspace.waiting().queue(name) {
        let key = [server.engine.keyspace.key(name.0, &name.1)];
        if !try_hold(batch, &key) {
            return false;
        }
        let now = batch.moment(now);
        let view = batch.view(&key, now, Touch::No);
        let type_now = view.peek(&key[0]).map(|object| object.value().type_name());
        view.finish();
        // What cannot be read is told to who waits for it, not to whoever made it ready.
        let is_unreadable = batch.take_unreadable().is_some();
        if !is_unreadable && !waiting.is_woken_by(type_now) {
            continue;
        }
        if let Some(waiter) = server.blocked.get(waiting.ticket) {
            batch.append_earlier(now);
            try_again(server, &waiter, batch, worker, now);
        }
    }
    true
}

/// Holds a key that is ready, with all that serving may touch. A change holds all that it made ready; what went by itself is held now,
/// unless a slow script has it.
fn try_hold(batch: &mut Batch<'_>, key: &[Key<'_>]) -> bool {
    if batch.holds(key) {
        return true;
    }
    batch.release();
    batch.try_hold(key)
}

/// Ends the wait with this reply, if it has not ended.
pub fn answer(server: &Server, waiter: &Waiter, reply: &[u8], shown: Shown) {
    if let Some(mut held) = waiter.hold() {
        held.end(&server.blocked, &server.engine.keyspace);
        post(server, waiter, reply, shown);
        waiter.client.signal(Signal::UNBLOCKED);
    }
}

/// Tells that there was nothing; while the log does not go on, that this is not known.
fn time_out(server: &Server, waiter: &Waiter) -> Ending {
    let error = match server.net.gate.is_open(waiter.shows) {
        true => None,
        false => refusals::held_error(&server.engine),
    };
    match error {
        None => {
            post(server, waiter, &waiter.on_timeout, Shown::read(waiter.shows));
            Ending::Done
        }
        Some(error) => {
            fail(server, waiter, error.as_bytes());
            Ending::Failed
        }
    }
}

/// Sends the client a reply, if it wants one.
fn post(server: &Server, waiter: &Waiter, reply: &[u8], shown: Shown) {
    if !waiter.is_silent {
        client::answer(&server.net.clients, &waiter.client, reply, shown);
    }
}

fn fail(server: &Server, waiter: &Waiter, line: &[u8]) {
    server.counts.note_error(line);
    post(server, waiter, &[b"-", line, b"\r\n"].concat(), Shown::NOTHING);
}

/// Counts the request that ends now; `ticks` is what it took since it waits. What waited for time alone counts for nothing,
/// as in Redis.
fn count(server: &Server, waiter: &Waiter, worker: usize, ending: Ending, ticks: u64) {
    let Some(request) = &waiter.request else { return };
    let (counts, track) = (&server.worker_counts[worker], server.engine.config.latency_tracking());
    let ticks = request.ticks + ticks;
    counts.note(request.command.id, Ticks(0), Ticks(ticks), ending, track);
    if ending != Ending::Rejected && ticks >= server.slow_ticks() {
        let words = request.original();
        slow::note_if_slow(server, &waiter.client, request.command, &words.as_request(), ticks);
    }
}

/// Runs the request again; if it need not wait any more, its client gets the reply.
fn try_again(server: &Server, waiter: &Waiter, batch: &mut Batch<'_>, worker: usize, now: UnixMs) {
    let Some(request) = &waiter.request else { return };
    let Runs::Data(row) = request.command.row.handler else { return };
    let args = Args {
        waiting: Waiting::Already,
        ..Args::new(
            request.words.as_request(),
            &server.engine.keyspace,
            (request.db, now),
            &server.engine.settings,
        )
    };
    let mut keys = Vec::new();
    command::execute::keys_locked(row, &args, &mut keys);
    // It looks at what is held and at what is free. Whoever has the others serves it if there is anything.
    batch.try_hold_also(&keys, Duration::ZERO);
    let Some(mut held) = waiter.hold() else { return };
    if client::has_sealed() {
        // What was done before gets its place in the history, and whoever is told of that, too.
        batch.settle_held();
        client::open_seals(&server.net.clients);
    }
    let behind_reply = BehindReply::begin(&server.net.clients);
    if request.is_cached {
        server.tracking.remember(&server.net.clients, waiter.client.id, request.command, &args.request);
    }
    let began = server.ticks.now();
    let mut out = Vec::new();
    let bytes_max = server.reply_bytes_max(&waiter.client);
    let mut reply = Reply::new(&mut out, request.protocol).at_most(bytes_max);
    let admitted =
        rights::admit_waiting(server, &waiter.client, request.rights, request.command, &args.request, now);
    let if_fails = if admitted.is_ok() { Ending::Failed } else { Ending::Rejected };
    // What it changes is its client's doing.
    let served = server.tracking.begin_served(worker, &waiter.client);
    let outcome = admitted.and_then(|()| execute(row, batch, &args, request.touch, &mut reply));
    let end_served = || server.tracking.end_served(&server.net.clients, worker, &waiter.client, served);
    // Who only reads is owed nothing of what others wrote.
    let has_changed = matches!(outcome, Ok(Outcome::Changed));
    let ending = match outcome {
        Ok(Outcome::Blocked(_)) => return end_served(),
        Ok(outcome) => {
            if outcome == Outcome::Changed {
                batch.count_write();
            }
            Ending::Done
        }
        Err(error) => {
            out.clear();
            Reply::new(&mut out, request.protocol).error(error.as_bytes());
            server.counts.note_error(error.as_bytes());
            if_fails
        }
    };
    // Nobody learns of it before it has its place in the history.
    batch.settle_held();
    waiter.client.note_written_waiting(batch.appended());
    held.end(&server.blocked, &server.engine.keyspace);
    count(server, waiter, worker, ending, server.ticks.now().0.saturating_sub(began.0));
    if out.len() > bytes_max {
        client::close_for_its_reply(&server.net.clients, &waiter.client);
    } else {
        post(server, waiter, &out, Shown { up_to: server.latest(), is_write: has_changed });
    }
    end_served();
    drop(behind_reply);
    client::open_seals(&server.net.clients);
    waiter.client.signal(Signal::UNBLOCKED);
}
