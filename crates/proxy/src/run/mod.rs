//! One batch of requests: which way each goes.

mod judging;
mod sending;
mod users;

use crate::cache::Heat;
use crate::computed;
use crate::heard::Topic;
use crate::links::{self, SharedLinks};
use crate::parts::Plan;
use crate::serve::{Front, Proxy, Wait};
use crate::users::Answer;
use crate::ways::Way;
use command::table::{Command, CommandId};
use command::{Error, Flags};
use config::ReadFrom;
use engine::Attention;
use net::client::{Signal, Traits};
use net::service::{Closing, OUTPUT_FLUSH_BYTES, Service, Stop};
use notify::pubsub::Kind;
use server::dispatch::transaction;
use server::session::ReplyMode;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use sys::{Shown, Ticks, UnixMs};
use telemetry::stats::Ending;
use wire::{Batch, Reply, Request};

/// The most that a client may be owed before no more is run for it.
const OWED_MAX: usize = 1024;
const NOT_SERVED: &str = "CLUSTERDOWN Hash slot not served";

/// Runs the requests of one worker's sessions.
pub struct Runner {
    proxy: Arc<Proxy>,
    worker: usize,
    host: server::dispatch::Runner,
    links: SharedLinks,
    heat: RefCell<Heat>,
}

/// What becomes of a request.
enum Verdict {
    /// It goes to servers.
    Send(Plan),
    /// This is the reply.
    Cached(Arc<[u8]>),
    /// The host answers.
    Here,
    /// It is judged again when what the client wants to listen to is listened to.
    Wait,
    /// It is judged again at this moment: clients are paused.
    Paused(UnixMs),
    /// It is done: the reply.
    Changed(Answer),
    /// It is refused.
    Refuse(Error),
}

impl Runner {
    /// The runner of worker number `worker`.
    pub fn new(proxy: Arc<Proxy>, worker: usize) -> Runner {
        let host = proxy.host.runner(worker);
        let links = links::begin(&proxy, worker);
        computed::begin(&proxy.host);
        Runner { proxy, worker, host, links, heat: RefCell::default() }
    }

    /// Runs the requests of a batch from index `from` on. Replies that come from elsewhere are fed later; who answers at once waits for them.
    pub fn run(
        &mut self,
        front: &mut Front,
        requests: &Batch,
        input: &[u8],
        from: usize,
        out: &mut Vec<u8>,
    ) -> (Stop, Shown) {
        let now = self.proxy.host.engine.clock.now();
        self.links.borrow_mut().begin_round();
        let mut forwarded = Forwarded::default();
        let mut stop = Stop::Done;
        for at in from..requests.len() {
            let request = requests.request(at, input);
            let command = self.proxy.host.names.find_for(&request);
            match (self.judge(front, command, &request, now), command) {
                (Verdict::Send(plan), Some(command)) => {
                    if !self.send(front, plan, command, &request) {
                        stop = Stop::Fetching { next: at };
                        break;
                    }
                    forwarded.note(command.id);
                    self.show(front, command, &request);
                    if front.is_blocked {
                        stop = Stop::Blocked { next: at + 1 };
                        break;
                    }
                }
                (Verdict::Cached(reply), Some(command)) => {
                    self.give_kept(front, command, (&request, &reply), out);
                    forwarded.note(command.id);
                    if out.len() >= OUTPUT_FLUSH_BYTES {
                        stop = Stop::Flush { next: at + 1 };
                        break;
                    }
                }
                (Verdict::Wait, _) => {
                    wait_without_silence(front, Wait::Heard);
                    stop = Stop::Fetching { next: at };
                    break;
                }
                (Verdict::Paused(until), _) => {
                    stop = Stop::Paused { next: at, until };
                    break;
                }
                (verdict, _) if front.owed > 0 => {
                    wait_for_all(front, verdict);
                    stop = Stop::Fetching { next: at };
                    break;
                }
                (verdict, _) => {
                    let given = (requests, input, at);
                    if let Some(stopped) = self.answer_here(front, (command, verdict), given, out) {
                        stop = stopped;
                        break;
                    }
                }
            }
        }
        self.end_batch(front, &forwarded, now);
        (stop, Shown::NOTHING)
    }

    /// Answers a request that goes nowhere else. Gives why nothing further is run now, if it is not.
    fn answer_here(
        &mut self,
        front: &mut Front,
        (command, verdict): (Option<&Command>, Verdict),
        (requests, input, at): (&Batch, &[u8], usize),
        out: &mut Vec<u8>,
    ) -> Option<Stop> {
        match verdict {
            Verdict::Refuse(error) => self.refuse(front, command, error, out),
            Verdict::Changed(answer) => {
                self.give_answer(front, command, answer, out);
                return (front.inner.closing != Closing::No).then_some(Stop::Closing);
            }
            _ => {
                self.forget_watched_by(front, command);
                let span = (at, at + 1);
                let (stopped, _) = self.host.run(&mut front.inner, requests, input, span, out);
                self.close_unless_heard(front, command, &requests.request(at, input));
                let goes_on = matches!(stopped, Stop::Done | Stop::Flush { .. });
                return (!goes_on || out.len() >= OUTPUT_FLUSH_BYTES).then_some(stopped);
            }
        }
        None
    }

    /// Answers with what was kept.
    fn give_kept(
        &self,
        front: &Front,
        command: &Command,
        (request, reply): (&Request<'_>, &[u8]),
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(reply);
        self.note(command, Ending::Done);
        self.show(front, command, request);
    }

    /// A client was told that it listens. What was lost in the very moment before closes it, as it does all others.
    fn close_unless_heard(&self, front: &Front, command: Option<&Command>, request: &Request<'_>) {
        let listens = |command: &&Command| self.proxy.ways[command.id.0] == Way::Listen;
        let Some(command) = command.filter(listens).filter(|_| front.inner.subscriptions.is_some()) else {
            return;
        };
        if !self.proxy.hearing.is_heard(&topics_of(command, request)) {
            front.inner.client.signal(Signal::KILL);
        }
    }

    #[cold]
    fn refuse(&self, front: &mut Front, command: Option<&Command>, error: Error, out: &mut Vec<u8>) {
        let host = &self.proxy.host;
        let is_exec = command.is_some_and(Command::is_exec);
        let error = match command {
            // It ends the transaction all the same.
            Some(command) if is_exec => transaction::refusal_of(host, command, &mut front.inner, error),
            _ => error,
        };
        if is_exec {
            front.queued_slot = None;
            self.forget_watched(front);
        }
        host.counts.note_error(error.as_bytes());
        front.inner.doom_transaction();
        if let Some(command) = command {
            self.note(command, Ending::Rejected);
        }
        match front.inner.reply_mode {
            ReplyMode::Skip => front.inner.reply_mode = front.inner.usual_mode(),
            _ if front.inner.is_silent() => {}
            _ => Reply::new(out, front.inner.protocol).error(error.as_bytes()),
        }
    }

    /// The host is about to run a command, which may end what the client watches.
    fn forget_watched_by(&self, front: &mut Front, command: Option<&Command>) {
        let Some(command) = command.filter(|_| front.watched_slot.is_some()) else { return };
        let ends = match front.inner.transaction {
            Some(_) => command.is(Flags::ENDS_TRANSACTION),
            None => self.proxy.ways[command.id.0] == Way::Unwatch,
        };
        if ends || command.row.name == "reset" {
            self.forget_watched(front);
        }
    }

    fn forget_watched(&self, front: &mut Front) {
        if front.watched_slot.take().is_some() {
            self.links.borrow_mut().unwatch(front.inner.client.id);
        }
    }

    /// Shows a request to those who monitor.
    fn show(&self, front: &Front, command: &Command, request: &Request<'_>) {
        let host = &self.proxy.host;
        if host.engine.attention().contains(Attention::MONITORS) {
            host.monitors.show(&host.net.clients, &front.inner.caller(), command, request);
        }
    }

    /// Counts a command that the host does not run.
    fn note(&self, command: &Command, ending: Ending) {
        let now = Ticks(0);
        self.proxy.host.worker_counts[self.worker].note(command.id, now, now, ending, false);
    }

    fn end_batch(&self, front: &Front, forwarded: &Forwarded, now: UnixMs) {
        if forwarded.count > 0 {
            let host = &self.proxy.host;
            front.inner.client.note_batch(forwarded.last, forwarded.count, now);
            host.counts.commands.add(forwarded.count);
            if let Some(rounds) = host.net.rounds.get(self.worker) {
                rounds.note_commands(forwarded.count as u64);
            }
        }
    }

    /// Appends the replies that have come.
    pub fn feed(&mut self, front: &mut Front, out: &mut Vec<u8>) {
        let links = &mut *self.links.borrow_mut();
        if let Some(key) = front.key {
            if front.is_blocked {
                links.end_called(front.inner.client.id, key);
            }
            front.owed = links.conversations.take(key, out);
            let redirected = links.conversations.redirected(key);
            let is_redirected = redirected.is_some();
            if let Some(asked) = redirected {
                front.written.note_elsewhere(links.routes.version, asked);
            }
            if front.owed == 0 {
                // Who has been asked for once is no master that tells, maybe.
                let is_whole = front.inner.tracking.is_none()
                    || !is_redirected && self.proxy.changes.is_whole(&links.routes);
                front.reading.end(&self.proxy.host.net.clients, &front.inner.client, is_whole);
                links.conversations.end(key);
                let config = &self.proxy.host.engine.config;
                let is_asked = config.proxy_read_from() != ReadFrom::Master || config.proxy_cache_bytes() > 0;
                front.written.note_answered(|| is_asked.then(Instant::now));
                front.key = None;
                (front.is_alone, front.is_at_replica) = (false, false);
                if std::mem::take(&mut front.is_blocked) {
                    self.proxy.waits.end(front.inner.client.id);
                    front.inner.client.set_trait(Traits::BLOCKED, false);
                }
            }
            if !out.is_empty() {
                // Who is answered is not silent.
                let now = self.proxy.host.engine.clock.now();
                front.inner.client.active_at_ms.store(now.0, Ordering::Relaxed);
            }
        }
        if front.key.is_none() {
            front.inner.client.set_trait(Traits::OWED, false);
        }
        // Whoever waits for room is told of it, and queues up anew if others were faster.
        front.look_whether_it_waits();
    }
}

/// A client waits until it is owed nothing. What was refused was judged, and noted, and is not judged again.
fn wait_for_all(front: &mut Front, verdict: Verdict) {
    if let Verdict::Refuse(error) = verdict {
        front.refused = Some(error);
    }
    front.wait_for(Wait::Owed(0));
}

/// A client waits, which is no silence of its own.
fn wait_without_silence(front: &mut Front, wait: Wait) {
    front.inner.client.set_trait(Traits::OWED, true);
    front.wait_for(wait);
}

/// What a request wants to listen to.
fn topics_of(command: &Command, request: &Request<'_>) -> Vec<Topic> {
    let kind = kind_of(command);
    request.iter().skip(1).map(|name| (kind, Arc::from(name))).collect()
}

/// What a command that listens or publishes is about.
fn kind_of(command: &Command) -> Kind {
    match command.row.name {
        "psubscribe" => Kind::Pattern,
        "ssubscribe" | "spublish" => Kind::ShardChannel,
        _ => Kind::Channel,
    }
}

/// What of a batch went elsewhere.
#[derive(Default)]
struct Forwarded {
    count: i64,
    last: Option<CommandId>,
}

impl Forwarded {
    fn note(&mut self, command: CommandId) {
        self.count += 1;
        self.last = Some(command);
    }
}
