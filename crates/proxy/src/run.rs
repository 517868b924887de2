//! One batch of requests: which way each goes.

use crate::links::{self, LinkTo, SharedLinks, conversation::Key};
use crate::serve::{Front, Proxy, Wait};
use crate::ways::{self, Way};
use command::Error;
use command::table::{Command, CommandId};
use net::client::Traits;
use net::service::{OUTPUT_FLUSH_BYTES, Service, Stop};
use server::dispatch::checks;
use server::dispatch::ownership;
use server::session::ReplyMode;
use std::sync::Arc;
use sys::{Shown, Ticks, UnixMs};
use telemetry::stats::Ending;
use wire::{Batch, Reply, Request, RequestBuf};

/// The most that a client may be owed before no more is run for it.
const OWED_MAX: usize = 1024;
/// What is kept of the memory in which requests are put into their usual form.
const REQUEST_BYTES_KEPT_MAX: usize = 64 << 10;

/// Runs the requests of one worker's sessions.
pub struct Runner {
    proxy: Arc<Proxy>,
    worker: usize,
    host: server::dispatch::Runner,
    links: SharedLinks,
    request: Vec<u8>,
}

/// What becomes of a request.
enum Verdict {
    /// It goes over this link.
    Forward(LinkTo),
    /// The host answers.
    Here,
    /// It is refused.
    Refuse(Error),
}

impl Runner {
    /// The runner of worker number `worker`.
    pub fn new(proxy: Arc<Proxy>, worker: usize) -> Runner {
        let host = proxy.host.runner(worker);
        let links = links::begin(proxy.layout.nodes.len());
        Runner { proxy, worker, host, links, request: Vec::new() }
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
        let mut forwarded = Forwarded::default();
        let mut stop = Stop::Done;
        for at in from..requests.len() {
            let request = requests.request(at, input);
            let command = self.proxy.host.names.find_for(&request);
            match (self.judge(front, command, &request, now), command) {
                (Verdict::Forward(way), Some(command)) => {
                    if !self.forward(front, way, command, &request) {
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
                (Verdict::Refuse(error), _) => self.refuse(front, command, &error, out),
                (Verdict::Here | Verdict::Forward(_), _) => {
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
        if way == Way::Here && !ways::is_of_files(command, request) {
            return Verdict::Here;
        }
        match checks::check_request(&self.proxy.host, &mut front.inner, command, request, now) {
            checks::Verdict::Run if way == Way::Slot => {}
            checks::Verdict::Refuse(error) => return Verdict::Refuse(error),
            _ => return Verdict::Refuse(ways::refusal(command)),
        }
        let mut slot = None;
        if ownership::gather(command, request, &mut slot).is_err() {
            return Verdict::Refuse(Error::text("CROSSSLOT Keys in request don't hash to the same slot"));
        }
        if ways::reaches_out(command, request) {
            return Verdict::Refuse(ways::refusal(command));
        }
        // A request of such a command without a key is wrong, which any server says in its words.
        let node = self.proxy.layout.of(slot.unwrap_or(0));
        Verdict::Forward(LinkTo { node, protocol: front.inner.protocol, db: front.inner.db.0 as usize })
    }

    #[cold]
    fn refuse(&self, front: &mut Front, command: Option<&Command>, error: &Error, out: &mut Vec<u8>) {
        self.proxy.host.counts.note_error(error.as_bytes());
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

    /// Sends a request over a link. False: the client has to wait first.
    #[inline]
    fn forward(
        &mut self,
        front: &mut Front,
        way: LinkTo,
        command: &'static Command,
        request: &Request<'_>,
    ) -> bool {
        if front.owed >= OWED_MAX {
            front.wait_for(Wait::Owed(OWED_MAX / 2));
            return false;
        }
        let links = &mut *self.links.borrow_mut();
        let at = links.place(&way);
        if links.is_full(at, &front.inner.client) {
            front.wait_for(Wait::Room);
            return false;
        }
        if links.begins(at) {
            links::start(&self.links, at, way, &self.proxy);
        }
        let is_wanted = !front.inner.is_silent();
        if front.inner.reply_mode == ReplyMode::Skip {
            front.inner.reply_mode = front.inner.usual_mode();
        }
        let client = &front.inner.client;
        let whose = *front.key.get_or_insert_with(|| {
            client.set_trait(Traits::OWED, true);
            links.conversations.begin(client)
        });
        front.owed += 1;
        let own = self.proxy.host.names.own(Some(command), request);
        match request.as_sent() {
            Some(sent) if own.is_none() => links.push(at, sent, whose, is_wanted),
            _ => {
                let request = own.as_ref().map_or(*request, RequestBuf::as_request);
                self.request.clear();
                wire::encode_request_header(&mut self.request, request.len());
                request.iter().for_each(|arg| wire::encode_arg(&mut self.request, arg));
                links.push(at, &self.request, whose, is_wanted);
                self.request.shrink_to(REQUEST_BYTES_KEPT_MAX);
            }
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
                front.inner.client.set_trait(Traits::OWED, false);
            }
        }
        // Whoever waits for room is told of it, and queues up anew if others were faster.
        front.look_whether_it_waits();
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

/// A client that has gone away is owed nothing.
pub fn forget(key: Key) {
    links::forget(key);
}
