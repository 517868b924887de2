//! One batch of requests: which way each goes.

use crate::computed;
use crate::links::{self, LinkTo, Links, Pushed, SharedLinks, conversation::Key};
use crate::parts::{Plan, parts_of};
use crate::serve::{Front, Proxy, Wait};
use crate::upstream::NodeNo;
use crate::ways::{self, Way};
use command::table::{Command, CommandId};
use command::{Error, Flags};
use net::client::Traits;
use net::service::{OUTPUT_FLUSH_BYTES, Service, Stop};
use server::dispatch::checks;
use server::dispatch::{ownership, transaction};
use server::rights;
use server::session::ReplyMode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::{Shown, Ticks, UnixMs};
use telemetry::stats::Ending;
use wire::{Batch, Reply, Request, RequestBuf};

/// The most that a client may be owed before no more is run for it.
const OWED_MAX: usize = 1024;
const NOT_SERVED: &str = "CLUSTERDOWN Hash slot not served";
const CROSSSLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";

/// Runs the requests of one worker's sessions.
pub struct Runner {
    proxy: Arc<Proxy>,
    worker: usize,
    host: server::dispatch::Runner,
    links: SharedLinks,
}

/// What becomes of a request.
enum Verdict {
    /// It goes to servers.
    Send(Plan),
    /// The host answers.
    Here,
    /// It is refused.
    Refuse(Error),
}

impl Runner {
    /// The runner of worker number `worker`.
    pub fn new(proxy: Arc<Proxy>, worker: usize) -> Runner {
        let host = proxy.host.runner(worker);
        let links = links::begin(&proxy);
        computed::begin(&proxy.host);
        Runner { proxy, worker, host, links }
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
        self.links.borrow_mut().look_at_routes();
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
                    self.note(command, Ending::Done);
                }
                (verdict, _) if front.owed > 0 => {
                    if let Verdict::Refuse(error) = verdict {
                        // It was judged, and noted, and is not judged again.
                        front.refused = Some(error);
                    }
                    front.wait_for(Wait::Owed(0));
                    stop = Stop::Fetching { next: at };
                    break;
                }
                (Verdict::Refuse(error), _) => self.refuse(front, command, error, out),
                (Verdict::Here | Verdict::Send(_), _) => {
                    let span = (at, at + 1);
                    let (stopped, _) = self.host.run(&mut front.inner, requests, input, span, out);
                    let goes_on = matches!(stopped, Stop::Done | Stop::Flush { .. });
                    if !goes_on || out.len() >= OUTPUT_FLUSH_BYTES {
                        stop = stopped;
                        break;
                    }
                }
            }
        }
        self.end_batch(front, &forwarded, now);
        (stop, Shown::NOTHING)
    }

    #[inline]
    fn judge(
        &self,
        front: &mut Front,
        command: Option<&'static Command>,
        request: &Request<'_>,
        now: UnixMs,
    ) -> Verdict {
        if let Some(error) = front.refused.take() {
            return Verdict::Refuse(error);
        }
        // The host says that there is no such command, or no such subcommand.
        let Some(command) = command.filter(|command| !checks::lacks_subcommand(command, request)) else {
            return Verdict::Here;
        };
        let way = self.proxy.ways[command.id.0];
        if way == Way::Here && front.inner.transaction.is_none() && !ways::is_of_files(command, request) {
            return Verdict::Here;
        }
        match checks::check_request(&self.proxy.host, &mut front.inner, command, request, now) {
            checks::Verdict::Run => {}
            checks::Verdict::Refuse(error) => return Verdict::Refuse(error),
            _ => return Verdict::Refuse(ways::refusal(command)),
        }
        if front.inner.transaction.is_some() {
            return self.judge_queued(front, (command, way), request, now);
        }
        let mut slot = None;
        let is_of_one = ownership::gather(command, request, &mut slot).is_ok();
        Verdict::Send(match way {
            Way::Slot | Way::Split(_) | Way::Computed
                if is_of_one && !ways::reaches_out(command, request) =>
            {
                // A request of such a command without a key is wrong, which any server says in its words.
                match self.links.borrow().routes.of(slot.unwrap_or(0)) {
                    Some(node) => Plan::One(node, slot),
                    None => return Verdict::Refuse(Error::text(NOT_SERVED)),
                }
            }
            Way::Split(split) if self.may_split(command) => Plan::Parts(split),
            Way::Computed if request.len() <= computed::WORDS_MAX => {
                Plan::Computed(command.id, front.inner.protocol)
            }
            Way::Slot | Way::Split(_) | Way::Computed if !is_of_one => {
                return Verdict::Refuse(Error::text(CROSSSLOT));
            }
            Way::Everywhere(gathering) => Plan::Everywhere(gathering),
            Way::Scan => Plan::Scan,
            // There is none to execute.
            Way::Exec => return Verdict::Here,
            Way::Slot | Way::Split(_) | Way::Computed | Way::Here | Way::Refused => {
                return Verdict::Refuse(ways::refusal(command));
            }
        })
    }

    /// Whether a request may be done in parts, one of which may fail while others are done.
    fn may_split(&self, command: &Command) -> bool {
        !command.is(Flags::WRITE) || self.proxy.host.engine.config.proxy_split_writes()
    }

    /// Judges what comes between MULTI and EXEC: all of it goes to one server at once.
    fn judge_queued(
        &self,
        front: &mut Front,
        (command, way): (&Command, Way),
        request: &Request<'_>,
        now: UnixMs,
    ) -> Verdict {
        match way {
            Way::Exec if front.inner.transaction.as_ref().is_some_and(|one| !one.is_doomed) => {
                if let Err(error) = self.admit_all(front, now) {
                    return Verdict::Refuse(error);
                }
                let slot = front.queued_slot;
                match self.links.borrow().routes.of(slot.unwrap_or(0)) {
                    Some(node) => Verdict::Send(Plan::Transaction(node, slot)),
                    None => Verdict::Refuse(Error::text(NOT_SERVED)),
                }
            }
            // It is given up, or has been refused, or is another MULTI.
            _ if command.is(Flags::RUNS_IN_MULTI) => {
                if command.is(Flags::ENDS_TRANSACTION) {
                    front.queued_slot = None;
                }
                Verdict::Here
            }
            Way::Slot | Way::Split(_) if ways::reaches_out(command, request) => {
                Verdict::Refuse(ways::refusal(command))
            }
            Way::Slot | Way::Split(_) | Way::Computed => {
                let mut slot = front.queued_slot;
                let is_of_one = ownership::gather(command, request, &mut slot).is_ok();
                front.queued_slot = front.queued_slot.or(slot);
                if is_of_one { Verdict::Here } else { Verdict::Refuse(Error::text(CROSSSLOT)) }
            }
            // They say the same wherever they are executed.
            Way::Here if matches!(command.row.name, "ping" | "echo" | "time") => Verdict::Here,
            _ => Verdict::Refuse(ways::refusal(command)),
        }
    }

    /// Whether a session may still do all that it has queued: its rights may be others by now.
    ///
    /// # Errors
    /// What it may not do.
    fn admit_all(&self, front: &mut Front, now: UnixMs) -> Result<(), Error> {
        let Some(transaction) = front.inner.transaction.take() else { return Ok(()) };
        let admitted = transaction.queue().iter().try_for_each(|queued| {
            let (command, request) = (queued.command(), queued.request());
            rights::admit_queued(&self.proxy.host, &mut front.inner, command, &request, now)
        });
        front.inner.transaction = Some(transaction);
        admitted
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

    /// Sends a request where it is to go. False: the client has to wait first.
    #[inline]
    fn send(
        &mut self,
        front: &mut Front,
        plan: Plan,
        command: &'static Command,
        request: &Request<'_>,
    ) -> bool {
        if front.owed >= OWED_MAX {
            front.wait_for(Wait::Owed(OWED_MAX / 2));
            return false;
        }
        // What was asked by other routes is answered first, so that nothing overtakes it.
        let (version, is_redirected) = {
            let links = &mut *self.links.borrow_mut();
            let is_redirected = |key| links.conversations.is_redirected(key);
            (links.routes.version, front.key.is_some_and(is_redirected))
        };
        if front.owed > 0 && (front.version != version || is_redirected) {
            front.wait_for(Wait::Owed(0));
            return false;
        }
        front.version = version;
        let own = self.proxy.host.names.own(Some(command), request);
        if let (Plan::One(node, slot), None, Some(sent)) = (plan, &own, request.as_sent()) {
            return self.send_as_it_is(front, (node, slot), command, sent);
        }
        let request = own.as_ref().map_or(*request, RequestBuf::as_request);
        self.send_parts(front, plan, command, &request)
    }

    #[inline]
    fn send_as_it_is(
        &mut self,
        front: &mut Front,
        (node, slot): (NodeNo, Option<u16>),
        command: &Command,
        sent: &[u8],
    ) -> bool {
        let links = &mut *self.links.borrow_mut();
        let at = links.place(LinkTo { node, protocol: front.inner.protocol, db: front.inner.db.0 as usize });
        if links.is_full(at, &front.inner.client) {
            return wait_for_room(front);
        }
        let (whose, is_wanted) = begin_owing(&self.proxy, front, links);
        let number = links.conversations.owe(whose, is_wanted);
        links.push(
            at,
            sent,
            Pushed { whose, reply: (number, 0), slot, replies: 1, is_of_script: command.runs_script() },
        );
        true
    }

    fn send_parts(
        &mut self,
        front: &mut Front,
        plan: Plan,
        command: &Command,
        request: &Request<'_>,
    ) -> bool {
        let links = &mut *self.links.borrow_mut();
        let luck = self.proxy.host.ticks.now().0 as usize;
        let transaction = front.inner.transaction.as_deref();
        let parts = parts_of(plan, &links.routes, request, transaction, luck);
        let Some(parts) = parts.filter(|parts| !parts.each.is_empty()) else {
            self.proxy.upstream.hurry();
            front.refused = Some(Error::text(NOT_SERVED));
            front.wait_for(Wait::Owed(0));
            front.inner.client.wake();
            return false;
        };
        let goes_past = matches!(plan, Plan::Everywhere(one) if one.is_about_scripts_that_run());
        let db = if goes_past { links::NO_DB } else { front.inner.db.0 as usize };
        let protocol = front.inner.protocol;
        let ways = parts.each.iter().map(|(node, ..)| LinkTo { node: *node, protocol, db });
        let places: Vec<usize> = ways.map(|way| links.place(way)).collect();
        // All or none.
        if places.iter().any(|at| links.is_full(*at, &front.inner.client)) {
            return wait_for_room(front);
        }
        if matches!(plan, Plan::Transaction(..)) {
            front.inner.leave_transaction();
            front.queued_slot = None;
        }
        let (whose, is_wanted) = begin_owing(&self.proxy, front, links);
        let number = match parts.join {
            Some(join) => links.conversations.owe_joined(whose, (join, places.len()), is_wanted),
            None => links.conversations.owe(whose, is_wanted),
        };
        let is_of_script = command.runs_script();
        for (part, (at, (_, slot, bytes))) in places.into_iter().zip(&parts.each).enumerate() {
            let reply = (number, part as u16);
            links.push(at, bytes, Pushed { whose, reply, slot: *slot, replies: parts.replies, is_of_script });
        }
        true
    }

    /// Appends the replies that have come.
    pub fn feed(&mut self, front: &mut Front, out: &mut Vec<u8>) {
        let links = &mut *self.links.borrow_mut();
        if let Some(key) = front.key {
            front.owed = links.conversations.take(key, out);
            if front.owed == 0 {
                links.conversations.end(key);
                front.key = None;
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

/// A client waits until a link takes requests again, which is no silence of its own.
fn wait_for_room(front: &mut Front) -> bool {
    front.inner.client.set_trait(Traits::OWED, true);
    front.wait_for(Wait::Room);
    false
}

/// A client is owed one reply more: by which name, and whether it wants it.
fn begin_owing(proxy: &Proxy, front: &mut Front, links: &mut Links) -> (Key, bool) {
    let is_wanted = !front.inner.is_silent();
    if front.inner.reply_mode == ReplyMode::Skip {
        front.inner.reply_mode = front.inner.usual_mode();
    }
    let client = &front.inner.client;
    let whose = *front.key.get_or_insert_with(|| {
        let limit = proxy.host.engine.config.output_limit(client.class()).hard_bytes;
        let bytes_max = if limit == 0 { usize::MAX } else { limit as usize };
        client.set_trait(Traits::OWED, true);
        links.conversations.begin(client, bytes_max)
    });
    front.owed += 1;
    (whose, is_wanted)
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
