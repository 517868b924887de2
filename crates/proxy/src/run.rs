//! One batch of requests: which way each goes.

use crate::computed;
use crate::heard::{Heard, Topic};
use crate::links::own::Watching;
use crate::links::{self, LinkTo, Links, Pushed, SharedLinks, conversation::Key};
use crate::parts::{Plan, parts_of};
use crate::serve::{Front, Proxy, Wait};
use crate::upstream::NodeNo;
use crate::ways::{self, Way};
use command::table::{Command, CommandId};
use command::{Error, Flags};
use engine::Attention;
use net::client::{Signal, Traits};
use net::service::{OUTPUT_FLUSH_BYTES, Service, Stop};
use notify::pubsub::Kind;
use server::dispatch::checks;
use server::dispatch::{ownership, transaction};
use server::rights;
use server::session::ReplyMode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::{Shown, Ticks, UnixMs};
use telemetry::stats::Ending;
use wire::{Batch, Protocol, Reply, Request, RequestBuf, key_slot};

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
    /// It is judged again when what the client wants to listen to is listened to.
    Wait,
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
                    self.show(front, command, &request);
                    if front.is_blocked {
                        stop = Stop::Blocked { next: at + 1 };
                        break;
                    }
                }
                (Verdict::Wait, _) => {
                    wait_without_silence(front, Wait::Heard);
                    stop = Stop::Fetching { next: at };
                    break;
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
                    self.forget_watched_by(front, command);
                    let span = (at, at + 1);
                    let (stopped, _) = self.host.run(&mut front.inner, requests, input, span, out);
                    self.close_unless_heard(front, command, &request);
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
        let confined = checks::confinement(&front.inner, command);
        if let Some(error) = confined.or_else(|| checks::watching_only(&front.inner, command.row.flags)) {
            return Verdict::Refuse(error);
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
                return self.to_owner(slot, Plan::One);
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
            Way::Blocks if is_of_one && !ways::may_block(command, request) => {
                return self.to_owner(slot, Plan::One);
            }
            Way::Blocks if is_of_one => return self.to_owner(slot, Plan::Blocks),
            Way::Watch if is_of_one && front.watched_slot.is_none_or(|watched| Some(watched) == slot) => {
                return self.to_owner(slot, Plan::Watch);
            }
            Way::Blocks | Way::Watch => return Verdict::Refuse(Error::text(CROSSSLOT)),
            Way::Listen => return self.listen(front, command, request),
            Way::Publish => {
                let (hearing, channel) = (&self.proxy.hearing, request.arg(1));
                let pubsub = &self.proxy.host.pubsub;
                let by = |node| hearing.correction(pubsub, node, (kind_of(command), channel));
                let publish = |node, slot| Plan::Publish(node, slot, by(node));
                return self.to_owner(Some(key_slot(channel)), publish);
            }
            // There is none to execute.
            Way::Exec | Way::Unwatch => return Verdict::Here,
            Way::Slot | Way::Split(_) | Way::Computed | Way::Here | Way::Refused => {
                return Verdict::Refuse(ways::refusal(command));
            }
        })
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

    /// Has a client listen, once that is so at servers, too.
    fn listen(&self, front: &Front, command: &Command, request: &Request<'_>) -> Verdict {
        let topics = topics_of(command, request);
        let routes = self.links.borrow().routes.clone();
        match self.proxy.hearing.listen(&routes, &topics, &front.inner.client) {
            Heard::Yes => Verdict::Here,
            Heard::NotYet => Verdict::Wait,
            Heard::Refused(reason) => Verdict::Refuse(Error::line(format!("ERR proxy: {reason}"))),
        }
    }

    /// Sends a request to the server that has this slot. One of a command with keys that has none is wrong, which any server says in its words.
    fn to_owner(&self, slot: Option<u16>, plan: impl FnOnce(NodeNo, Option<u16>) -> Plan) -> Verdict {
        match self.links.borrow().routes.of(slot.unwrap_or(0)) {
            Some(node) => Verdict::Send(plan(node, slot)),
            None => Verdict::Refuse(Error::text(NOT_SERVED)),
        }
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
                match front.watched_slot {
                    Some(slot) => self.to_owner(Some(slot), Plan::Watched),
                    None => self.to_owner(front.queued_slot, Plan::Transaction),
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
            Way::Slot | Way::Split(_) | Way::Computed | Way::Blocks => {
                let mut slot = front.queued_slot.or(front.watched_slot);
                let is_of_one = ownership::gather(command, request, &mut slot).is_ok();
                front.queued_slot = front.queued_slot.or(slot);
                if is_of_one { Verdict::Here } else { Verdict::Refuse(Error::text(CROSSSLOT)) }
            }
            Way::Publish => {
                let slot = Some(key_slot(request.arg(1)));
                let wanted = front.queued_slot.or(front.watched_slot).or(slot);
                if wanted != slot {
                    return Verdict::Refuse(Error::text(CROSSSLOT));
                }
                front.queued_slot = wanted;
                Verdict::Here
            }
            // In a transaction it does nothing.
            Way::Unwatch => Verdict::Here,
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
        let is_apart = front.is_alone || plan.own().is_some();
        if front.owed > 0 && (front.version != version || is_redirected || is_apart) {
            front.wait_for(Wait::Owed(0));
            return false;
        }
        front.version = version;
        let own = self.proxy.host.names.own(Some(command), request);
        if let (Plan::One(node, slot), None, Some(sent)) = (plan, &own, request.as_sent()) {
            return self.send_as_it_is(front, (node, slot), command, sent);
        }
        let request = own.as_ref().map_or(*request, RequestBuf::as_request);
        if let Some((node, slot)) = plan.own() {
            self.send_alone(front, (plan, node, slot), &request);
            return true;
        }
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
            Pushed { whose, reply: (number, 0), slot, is_of_script: command.runs_script(), ..Pushed::ONE },
        );
        true
    }

    /// Sends a request over a connection that the client has to itself. It is owed nothing else.
    fn send_alone(
        &mut self,
        front: &mut Front,
        (plan, node, slot): (Plan, NodeNo, Option<u16>),
        request: &Request<'_>,
    ) {
        let links = &mut *self.links.borrow_mut();
        let client = front.inner.client.id;
        let (protocol, db) = (front.inner.protocol, front.inner.db.0 as usize);
        let way = LinkTo { node, protocol, db };
        let parts = parts_of(plan, &links.routes, request, front.inner.transaction.as_deref(), 0);
        let (whose, is_wanted) = begin_owing(&self.proxy, front, links);
        let number = links.conversations.owe(whose, is_wanted);
        front.is_alone = true;
        let one = Pushed { whose, reply: (number, 0), slot, ..Pushed::ONE };
        let (at, pushed) = match plan {
            Plan::Watched(..) => {
                end_transaction(&self.proxy, front);
                front.watched_slot = None;
                let Some(at) = links.watching(client, (protocol, db)) else {
                    // What was watched may have changed.
                    links.conversations.answer(whose, (number, 0), null(protocol));
                    return links.unwatch(client);
                };
                (at, Pushed { unless_executed: Some(null(protocol)), watching: Watching::Ends, ..one })
            }
            Plan::Watch(..) => {
                front.watched_slot = slot;
                (links.take_own(client, way), Pushed { watching: Watching::Begins, ..one })
            }
            _ => {
                front.is_blocked = true;
                front.inner.client.set_trait(Traits::BLOCKED, true);
                (links.take_own(client, way), Pushed { waits: true, ..one })
            }
        };
        for (.., bytes) in parts.iter().flat_map(|parts| &parts.each) {
            let replies = parts.as_ref().map_or(1, |parts| parts.replies);
            links.push_own(at, bytes, Pushed { replies, ..pushed });
        }
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
            end_transaction(&self.proxy, front);
        }
        let (whose, is_wanted) = begin_owing(&self.proxy, front, links);
        let number = match parts.join {
            Some(join) => {
                links.conversations.owe_joined(whose, (join, places.len()), (protocol, db), is_wanted)
            }
            None => links.conversations.owe(whose, is_wanted),
        };
        // What it asks later comes behind what is asked for it further.
        front.is_alone |= matches!(plan, Plan::Scan | Plan::Computed(..));
        let is_of_script = command.runs_script();
        for (part, (at, (_, slot, bytes))) in places.into_iter().zip(&parts.each).enumerate() {
            let reply = (number, part as u16);
            let replies = parts.replies;
            links.push(at, bytes, Pushed { whose, reply, slot: *slot, replies, is_of_script, ..Pushed::ONE });
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
                front.is_alone = false;
                if std::mem::take(&mut front.is_blocked) {
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

/// A client's transaction is executed elsewhere. Who monitors sees it now.
fn end_transaction(proxy: &Proxy, front: &mut Front) {
    front.queued_slot = None;
    let Some(transaction) = front.inner.leave_transaction() else { return };
    let host = &proxy.host;
    if host.engine.attention().contains(Attention::MONITORS) {
        for queued in transaction.queue() {
            let (caller, request) = (front.inner.caller(), queued.request());
            host.monitors.show(&host.net.clients, &caller, queued.command(), &request);
        }
    }
}

/// What EXEC says where keys that were watched have changed.
fn null(protocol: Protocol) -> &'static [u8] {
    if protocol == Protocol::Resp3 { b"_\r\n" } else { b"*-1\r\n" }
}

/// A client waits until a link takes requests again.
fn wait_for_room(front: &mut Front) -> bool {
    wait_without_silence(front, Wait::Room);
    false
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
