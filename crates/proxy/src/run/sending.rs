//! Requests on their way: to one server, to several, or over connections that the client has to itself.

use super::{NOT_SERVED, OWED_MAX, Runner, wait_without_silence};
use crate::joins::{Join, Keeping};
use crate::links::conversation::{Asked, Key};
use crate::links::own::{Lane, Watching};
use crate::links::{self, LinkTo, Links, Pushed, Speech, heirs};
use crate::parts::{Parts, Plan, parts_of};
use crate::serve::{Front, Proxy, Wait};
use crate::upstream::NodeNo;
use crate::waits::Ends;
use crate::ways;
use command::table::Command;
use command::{Error, Flags};
use engine::Attention;
use net::client::Traits;
use server::session::{ReplyMode, Session};
use wire::{Protocol, Request, RequestBuf, encode_request};

impl Runner {
    /// Sends a request where it is to go. False: the client has to wait first.
    #[inline]
    pub(super) fn send(
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
        if front.reading.is_held(&front.inner.client) && front.owed > 0 {
            front.wait_for(Wait::Owed(0));
            return false;
        }
        // What was asked by other routes is answered first, so that nothing overtakes it.
        let (version, is_redirected) = {
            let links = &mut *self.links.borrow_mut();
            let is_redirected = |key| links.conversations.redirected(key).is_some();
            (links.routes.version, front.key.is_some_and(is_redirected))
        };
        // Nor does anything else overtake what a replica is asked.
        let is_read = matches!(plan, Plan::Read(..));
        // What all masters do may be sent elsewhere, and overtake or be overtaken.
        let is_of_masters = self.is_of_masters(plan, command);
        let is_apart = front.is_alone
            || plan.asks_further()
            || plan.is_apart()
            || is_of_masters
            || front.is_at_replica && !is_read;
        if front.owed > 0 && (front.version != version || is_redirected || is_apart) {
            front.wait_for(Wait::Owed(0));
            return false;
        }
        front.version = version;
        front.is_at_replica |= is_read;
        let own = self.proxy.host.names.own(Some(command), request);
        if let (Some(to), None, Some(sent)) = (plan.as_it_is(), &own, request.as_sent()) {
            return self.send_as_it_is(front, to, (command, request), sent);
        }
        if let (Plan::Kept(node, slot), None, Some(sent)) = (plan, &own, request.as_sent()) {
            return self.send_kept(front, (node, slot), (command, request), sent);
        }
        let request = own.as_ref().map_or(*request, RequestBuf::as_request);
        match plan.own() {
            Some((node, slot)) => {
                self.send_alone(front, (plan, node, slot), command, &request);
                true
            }
            None if plan.is_apart() => self.send_beside(front, plan, (command, &request)),
            None => self.send_parts(front, plan, command, &request),
        }
    }

    /// Whether a request is something that masters of a cluster do, all of them, and nobody else.
    fn is_of_masters(&self, plan: Plan, command: &Command) -> bool {
        matches!(plan, Plan::Everywhere(_))
            && command.is(Flags::WRITE)
            && self.links.borrow().routes.is_cluster
    }

    #[inline]
    fn send_as_it_is(
        &mut self,
        front: &mut Front,
        (node, slot, instead): (NodeNo, Option<u16>, Option<NodeNo>),
        (command, request): (&Command, &Request<'_>),
        sent: &[u8],
    ) -> bool {
        let links = &mut *self.links.borrow_mut();
        let way = LinkTo { is_replica: instead.is_some(), ..front.speech().to(node) };
        let mut at = links.place(way);
        if let Some(master) = instead.filter(|_| links.is_without_room(at)) {
            at = links.place(LinkTo { node: master, is_replica: false, ..way });
        }
        if links.is_full(at, &front.inner.client) {
            return wait_for_room(front);
        }
        let (whose, is_wanted) = begin_owing(&self.proxy, front, links);
        let number = links.conversations.owe(whose, is_wanted);
        if front.inner.tracking.is_some() {
            self.proxy.put_down(front, command, request);
        }
        let is_of_script = command.runs_script();
        if is_of_script || command.is(Flags::WRITE) {
            self.proxy.note_written(front, node);
        }
        links.push(
            at,
            sent,
            Pushed {
                whose,
                reply: (number, 0),
                slot,
                is_of_script,
                instead,
                command: Some(command.id),
                since: links.moment,
                ..Pushed::ONE
            },
        );
        true
    }

    /// Sends a read whose reply is to be kept.
    fn send_kept(
        &mut self,
        front: &mut Front,
        (node, slot): (NodeNo, Option<u16>),
        (command, request): (&Command, &Request<'_>),
        sent: &[u8],
    ) -> bool {
        let speaks = front.speech();
        let bytes_max = self.proxy.host.engine.config.proxy_cache_bytes();
        let filling = self.proxy.cache.begin(request.arg(1), (sent, (speaks.protocol, speaks.db)), bytes_max);
        let is_whole = self.proxy.changes.is_whole(&self.links.borrow().routes);
        let Some(filling) = filling.filter(|_| is_whole) else {
            return self.send_as_it_is(front, (node, slot, None), (command, request), sent);
        };
        let links = &mut *self.links.borrow_mut();
        let at = links.place(speaks.to(node));
        if links.is_full(at, &front.inner.client) {
            return wait_for_room(front);
        }
        let (whose, is_wanted) = begin_owing(&self.proxy, front, links);
        let mut asks = Vec::new();
        encode_request(&mut asks, &[b"PTTL", request.arg(1)]);
        let join = Join::Kept(Box::new(Keeping::begin(filling, (node, slot, asks))));
        let (command, since) = (Some(command.id), links.moment);
        let asked = Asked { command, since: Some(since) };
        let number = links.conversations.owe_joined(whose, (join, 1), speaks, (asked, is_wanted));
        links.push(at, sent, Pushed { whose, reply: (number, 0), slot, command, since, ..Pushed::ONE });
        true
    }

    /// Sends a request over a connection that the client has to itself. It is owed nothing else.
    fn send_alone(
        &mut self,
        front: &mut Front,
        (plan, node, slot): (Plan, NodeNo, Option<u16>),
        command: &Command,
        request: &Request<'_>,
    ) {
        let links = &mut *self.links.borrow_mut();
        let client = front.inner.client.id;
        let (protocol, way) = (front.inner.protocol, front.speech().to(node));
        let transaction = front.inner.transaction.as_deref();
        let parts = parts_of(plan, &links.routes, request, transaction, 0, None);
        let (whose, is_wanted) = begin_owing(&self.proxy, front, links);
        let number = links.conversations.owe(whose, is_wanted);
        self.proxy.put_down(front, command, request);
        front.is_alone = true;
        let (counts_as, since) = (Some(command.id), links.moment);
        let one = Pushed { whose, reply: (number, 0), slot, command: counts_as, since, ..Pushed::ONE };
        let (at, pushed) = match plan {
            Plan::Watched(..) => {
                end_transaction(&self.proxy, front);
                front.watched_slot = None;
                self.proxy.note_written(front, node);
                let Some(at) = links.watching(client, front.speech()) else {
                    // What was watched may have changed.
                    links.conversations.answer(whose, (number, 0), null(protocol));
                    return links.unwatch(client);
                };
                (at, Pushed { unless_executed: Some(null(protocol)), watching: Watching::Ends, ..one })
            }
            Plan::Watch(..) => {
                front.watched_slot = slot;
                (links.take_own(Lane::of_keys(client), way), Pushed { watching: Watching::Begins, ..one })
            }
            _ => {
                self.proxy.note_written(front, node);
                self.proxy.block(front, Ends::There);
                (
                    links.take_own(Lane::of_keys(client), way),
                    Pushed { waits: Some(ways::patience(command, request)), ..one },
                )
            }
        };
        for (.., bytes) in parts.iter().flat_map(|parts| &parts.each) {
            let replies = parts.as_ref().map_or(1, |parts| parts.replies);
            links.push_own(at, bytes, Pushed { replies, ..pushed });
        }
    }

    /// Sends a request to several servers over connections that the client has to itself. It is owed nothing else.
    fn send_beside(
        &mut self,
        front: &mut Front,
        plan: Plan,
        (command, request): (&Command, &Request<'_>),
    ) -> bool {
        let links = &mut *self.links.borrow_mut();
        let parts = parts_of(plan, &links.routes, request, None, 0, None);
        let Some(Parts { each, join: Some(join), replies }) = parts.filter(|parts| !parts.each.is_empty())
        else {
            return self.refuse_unserved(front);
        };
        let speaks = front.speech();
        let (whose, is_wanted) = begin_owing(&self.proxy, front, links);
        let asked = Asked { command: Some(command.id), since: None };
        let owed = (join, each.len());
        let number = links.conversations.owe_joined(whose, owed, speaks, (asked, is_wanted));
        front.is_alone = true;
        self.proxy.block(front, Ends::There);
        let (client, waits) = (front.inner.client.id, Some(ways::patience(command, request)));
        for ((node, slot, bytes), part) in each.into_iter().zip(0..) {
            let at = links.take_own(Lane { client, number: part + 1 }, speaks.to(node));
            let (command, since) = (Some(command.id), links.moment);
            let one = Pushed { whose, reply: (number, part), slot, command, since, ..Pushed::ONE };
            let pushed = Pushed {
                replies,
                needs_all: true,
                waits,
                unless_lost: Some(front.written.losses()).filter(|_| !front.written.is_nothing()),
                ..one
            };
            links.push_own(at, &bytes, pushed);
        }
        true
    }

    /// No server has what a request is about.
    fn refuse_unserved(&self, front: &mut Front) -> bool {
        self.proxy.upstream.hurry();
        front.refused = Some(Error::text(NOT_SERVED));
        front.wait_for(Wait::Owed(0));
        front.inner.client.wake();
        false
    }

    fn send_parts(
        &mut self,
        front: &mut Front,
        plan: Plan,
        command: &Command,
        request: &Request<'_>,
    ) -> bool {
        let is_of_masters = self.is_of_masters(plan, command);
        let links = &mut *self.links.borrow_mut();
        let luck = self.proxy.host.ticks.now().0 as usize;
        let transaction = front.inner.transaction.as_deref();
        let woken = match plan {
            Plan::Unblock(client, called) => self.proxy.waits.call(client, called),
            _ => None,
        };
        let parts = parts_of(plan, &links.routes, request, transaction, luck, woken);
        let Some(parts) = parts.filter(|parts| !parts.each.is_empty()) else {
            return self.refuse_unserved(front);
        };
        let goes_past = matches!(plan, Plan::Everywhere(one) if one.is_about_scripts_that_run());
        let speaks = match goes_past {
            true => Speech { db: links::NO_DB, is_no_touch: false, ..front.speech() },
            false => front.speech(),
        };
        let is_replica = matches!(plan, Plan::Read(..));
        let to = parts.each.iter().map(|(node, ..)| LinkTo { is_replica, ..speaks.to(*node) });
        let places: Vec<usize> = to.map(|way| links.place(way)).collect();
        // All or none.
        if places.iter().any(|at| links.is_full(*at, &front.inner.client)) {
            return wait_for_room(front);
        }
        let (whose, is_wanted) = begin_owing(&self.proxy, front, links);
        self.proxy.put_down(front, command, request);
        if matches!(plan, Plan::Transaction(..)) {
            end_transaction(&self.proxy, front);
        }
        // What is wrong a server says at once.
        let may_wait = parts.join.as_ref().is_some_and(Join::may_wait);
        let number = owe_parts(links, (whose, is_wanted), (parts.join, places.len()), (speaks, command));
        if is_of_masters {
            links.conversations.note_masters(whose, number, heirs::seats(&links.routes));
        }
        // What it asks later comes behind what is asked for it further.
        let asks_further = plan.asks_further();
        front.is_alone |= asks_further
            || is_of_masters
            || matches!(plan, Plan::Scan | Plan::Computed(..) | Plan::Everywhere(ways::Gathering::AnyOne));
        if may_wait && command.is(Flags::BLOCKING) && ways::may_block(command, request) {
            self.proxy.block(front, Ends::Here);
        }
        let is_of_script = command.runs_script();
        let may_write = is_of_script || command.is(Flags::WRITE) || matches!(plan, Plan::Transaction(..));
        for (node, ..) in parts.each.iter().filter(|_| may_write) {
            self.proxy.note_written(front, *node);
        }
        for (part, (at, (_, slot, bytes))) in places.into_iter().zip(&parts.each).enumerate() {
            let reply = (number, part as u16);
            let replies = parts.replies;
            let instead = plan.as_it_is().and_then(|(.., instead)| instead);
            let (slot, command, since) = (*slot, Some(command.id), links.moment);
            let pushed =
                Pushed { whose, reply, slot, replies, is_of_script, instead, command, since, ..Pushed::ONE };
            links.push(at, bytes, pushed);
        }
        true
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

impl Proxy {
    /// A client writes to a server.
    #[inline]
    fn note_written(&self, front: &mut Front, node: NodeNo) {
        if front.written.is_nothing() {
            front.written.begin(self.upstream.losses_at(front.version));
        }
        front.written.note(node, front.version);
    }

    /// Puts a client that tracks down for what a request is about to read, or those of its transaction are.
    fn put_down(&self, front: &mut Front, command: &Command, request: &Request<'_>) {
        let Front { inner: Session { client, tracking, transaction, .. }, reading, .. } = front;
        let Some(tracker) = tracking.as_deref_mut() else { return };
        let told_by = (&*self.host.tracking, &*self.host.net.clients);
        match transaction {
            Some(transaction) => {
                for queued in transaction.queue() {
                    reading.put_down(told_by, (client, &*tracker), (queued.command(), &queued.request()));
                }
            }
            None => reading.put_down(told_by, (client, &*tracker), (command, request)),
        }
        tracker.is_singled_out = false;
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

/// The reply is owed that so many parts make, or the only one gives; its number.
fn owe_parts(
    links: &mut Links,
    (whose, is_wanted): (Key, bool),
    (join, count): (Option<Join>, usize),
    (speaks, command): (Speech, &Command),
) -> u32 {
    let asked = Asked { command: Some(command.id), since: Some(links.moment) };
    match join {
        Some(join) => links.conversations.owe_joined(whose, (join, count), speaks, (asked, is_wanted)),
        None => links.conversations.owe(whose, is_wanted),
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
