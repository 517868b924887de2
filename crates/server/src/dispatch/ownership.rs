//! Whether a request is for this server, in a cluster: are its keys of one slot, is the slot its shard's, and may this session have it here? If not, the
//! client is told where to go, as by a node of Redis Cluster.
//!
//! No slot is ever half here: a client is asked neither to try again nor to ask somebody else once.
//!
//! Invariant: a request runs on keys only while this server is the slot's master, or while it may be read from a replica; and never before a config server
//! has told in this run who has which slots.

use crate::blocked::{Waiter, WaitingRequest};
use crate::blocking::{self, Cut};
use crate::clustered::{Part, View};
use crate::dispatch::checks::Verdict;
use crate::dispatch::transaction::flags_in_effect;
use crate::server::Server;
use crate::session::Session;
use command::effects::Scope;
use command::execute::{key_positions, range};
use command::table::Command;
use command::{Error, Flags, Keys};
use engine::Attention;
use keyspace::{Slot, Ticket};
use net::client::{self, Signal, Traits};
use notify::pubsub::Kind;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use sys::UnixMs;
use topology::{Endpoint, Route, ServerId, Telling, Topology};
use wire::{Reply, Request, SLOTS, key_slot};

/// How long requests wait for who is master of the own shard to be seen: a switch or a failover is on its way.
const LIMBO_MAX: Duration = Duration::from_secs(2);

/// How long a request waits before it looks again.
const PATIENCE_MS: u64 = 1;

/// Why a request cannot run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its keys are of several slots.
    CrossSlot,
    /// Its slot is nobody's.
    NotServed,
    /// The cluster is down.
    Down,
    /// The cluster is down, and may be read only.
    DownForWrites,
    /// Somebody else has its slot.
    Moved {
        /// The slot.
        slot: u16,
        /// The server that has it.
        to: ServerId,
    },
    /// It is not known yet who has its slot.
    NotYet,
}

/// Whether a request can run here without a further look: it names no key, or one key of a slot whose master this server is. `ahead` is the slot of
/// the key at its only place.
#[inline]
pub fn is_here(view: &View, attention: Attention, command: &Command, ahead: Option<u16>) -> bool {
    match command.row.keys {
        Keys::None => !(command.is_exec() || view.routes.are_switching() && is_of_databases(command)),
        Keys::Range { first, last, .. } if last == first as isize => {
            ahead.is_some_and(|slot| is_led_here(view, attention, slot))
        }
        Keys::Range { .. } | Keys::Movable(_) => false,
    }
}

/// Whether a command waits since slots switch, whose it may be to change.
pub fn is_held_off(view: &View, command: &Command) -> bool {
    view.leads && view.routes.are_switching() && is_of_databases(command)
}

/// Whether a command changes whole databases.
fn is_of_databases(command: &Command) -> bool {
    command.effect == Some(Scope::Databases)
}

/// Whether this server is the master of a slot, in a cluster that is up.
#[inline]
fn is_led_here(view: &View, attention: Attention, slot: u16) -> bool {
    view.routes.is_own(slot) && view.leads && view.is_up && !attention.contains(Attention::FOLLOWING)
}

/// Checks whether a request can run here. The session is told by which view, if that is another than the one that was seen. `sent_by` is the one
/// by which a request that came with it was sent elsewhere.
pub fn check(
    server: &Server,
    seen: &View,
    sent_by: &mut Option<Arc<View>>,
    session: &mut Session,
    command: &Command,
    request: &Request<'_>,
) -> Verdict {
    session.let_in_by = None;
    let Some(part) = server.clustered.get() else { return Verdict::Run };
    if seen.routes.are_switching() && empties(session, command) && holds(&part.view()) {
        return wait_a_little(server, part);
    }
    let slot = match slot_of(session, command, request) {
        Ok(None) => return Verdict::Run,
        Ok(Some(slot)) if is_led_here(seen, server.engine.attention(), slot) => return Verdict::Run,
        Ok(Some(slot)) => Ok(slot),
        Err(first) => Err(first),
    };
    let asked = Asked {
        flags: flags_in_effect(server, command, session, request),
        is_of_channels: is_of_channels(command),
        reads_replicas: session.reads_replicas,
    };
    if find(server, seen, slot, &asked).is_ok() {
        return Verdict::Run;
    }
    // Later than what the worker has seen, perhaps.
    let view = sent_by.clone().unwrap_or_else(|| part.view());
    match find(server, &view, slot, &asked) {
        Ok(()) => {
            session.let_in_by = Some(view);
            Verdict::Run
        }
        Err(Cause::NotYet) if is_limbo_short(server, &view) => wait_a_little(server, part),
        Err(Cause::Moved { slot, .. }) if view.awaits(slot) => wait_a_little(server, part),
        Err(cause) => {
            let error = error_of(server, &view, session.is_secure(), &cause);
            *sent_by = Some(view);
            Verdict::Elsewhere(error)
        }
    }
}

fn wait_a_little(server: &Server, part: &Part) -> Verdict {
    part.waits.fetch_add(1, Ordering::Relaxed);
    Verdict::Wait(UnixMs(server.engine.clock.now().0 + PATIENCE_MS))
}

/// Whether what empties databases waits: what is in slots that switch may be somebody else's by now.
fn holds(view: &View) -> bool {
    view.leads && view.routes.are_switching()
}

/// Whether a request, or a transaction that it executes, changes whole databases.
fn empties(session: &Session, command: &Command) -> bool {
    let queued = session.transaction.as_ref().filter(|_| command.is_exec());
    is_of_databases(command)
        || queued.is_some_and(|queued| queued.queue().iter().any(|one| is_of_databases(one.command())))
}

/// What counts of a request beside its slot.
pub struct Asked {
    /// Its flags.
    pub flags: Flags,
    /// Its keys are channels of a shard.
    pub is_of_channels: bool,
    /// Its session may read from replicas.
    pub reads_replicas: bool,
}

/// Whether a command's keys are channels of a shard.
pub fn is_of_channels(command: &Command) -> bool {
    command.is(Flags::PUBSUB)
}

/// Finds whether what has this slot, or several, the first of which is in `Err`, can run here.
///
/// # Errors
/// Why not.
pub fn find(server: &Server, view: &View, slot: Result<u16, u16>, asked: &Asked) -> Result<(), Cause> {
    let first = slot.unwrap_or_else(|first| first);
    let route = view.routes.of(first);
    if route == Route::Nobody {
        return Err(Cause::NotServed);
    }
    let slot = slot.map_err(|_| Cause::CrossSlot)?;
    if !view.is_confirmed {
        return Err(Cause::NotYet);
    }
    let config = &server.engine.config;
    if !view.is_up {
        let may_run = match asked.is_of_channels {
            true => config.cluster_allow_pubsubshard_when_down(),
            false => config.cluster_allow_reads_when_down(),
        };
        if !may_run {
            return Err(Cause::Down);
        }
        if !asked.is_of_channels && asked.flags.contains(Flags::WRITE) {
            return Err(Cause::DownForWrites);
        }
    }
    if let Route::Master(master) = route {
        return Err(Cause::Moved { slot, to: master.id });
    }
    let follows = server.engine.attention().contains(Attention::FOLLOWING);
    if view.leads && !follows {
        if route == Route::Held {
            return Err(Cause::NotYet);
        }
        return Ok(());
    }
    // What is published at a replica would not come to its master.
    let listens = asked.is_of_channels && !asked.flags.contains(Flags::MAY_REPLICATE);
    if (asked.reads_replicas && !asked.is_of_channels || listens)
        && !asked.flags.contains(Flags::WRITE)
        && !view.leads
    {
        return Ok(());
    }
    match view.other_master().filter(|_| !view.leads) {
        Some(master) => Err(Cause::Moved { slot, to: master.id }),
        None => Err(Cause::NotYet),
    }
}

/// Whether it is worth waiting for who is master of the own shard.
fn is_limbo_short(server: &Server, view: &View) -> bool {
    // Who leads and follows is about to change one of them.
    server.shard.is_on() && (view.leads || view.since.elapsed() < LIMBO_MAX)
}

/// Whether another has become master of the own shard, or is to be seen to have, so short a while ago that what cannot be shown before that one is followed waits.
pub fn is_master_new(server: &Server) -> bool {
    server.clustered.get().is_some_and(|part| part.view().since.elapsed() < LIMBO_MAX)
}

/// The slot of a request's keys; of all that EXEC will run. None: it names no key.
///
/// # Errors
/// The first slot, if there are several.
fn slot_of(session: &Session, command: &Command, request: &Request<'_>) -> Result<Option<u16>, u16> {
    let mut slot = None;
    match &session.transaction {
        Some(transaction) if command.is_exec() => {
            for queued in transaction.queue() {
                gather(queued.command(), &queued.request(), &mut slot)?;
            }
        }
        _ => gather(command, request, &mut slot)?,
    }
    Ok(slot)
}

/// Looks at the slots of a request's keys, beside one that was seen before.
///
/// # Errors
/// The one seen before, if there is another.
pub fn gather(command: &Command, request: &Request<'_>, slot: &mut Option<u16>) -> Result<(), u16> {
    let look = |position: usize| match (request.get(position).map(key_slot), *slot) {
        (Some(this), Some(first)) if this != first => Err(first),
        (Some(this), None) => {
            *slot = Some(this);
            Ok(())
        }
        _ => Ok(()),
    };
    match command.row.keys {
        Keys::None => Ok(()),
        Keys::Range { first, last, step } => range(first, last, step, request.len()).try_for_each(look),
        keys @ Keys::Movable(_) => {
            let mut positions = Vec::new();
            key_positions(keys, request, &mut positions);
            positions.into_iter().try_for_each(look)
        }
    }
}

/// What a client is told whose keys are of several slots.
pub const CROSSSLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";

/// The error that a client gets.
pub fn error_of(server: &Server, view: &View, is_secure: bool, cause: &Cause) -> Error {
    match cause {
        Cause::CrossSlot => Error::text(CROSSSLOT),
        Cause::NotServed => Error::text("CLUSTERDOWN Hash slot not served"),
        Cause::Down | Cause::NotYet => Error::text("CLUSTERDOWN The cluster is down"),
        Cause::DownForWrites => Error::text("CLUSTERDOWN The cluster is down and only accepts read commands"),
        Cause::Moved { slot, to } => match view.topology.servers.get(to) {
            Some(server_there) => Error::line(telling(server, view, is_secure).moved(*slot, server_there)),
            None => Error::text("CLUSTERDOWN Hash slot not served"),
        },
    }
}

/// The cluster as a client is told it.
pub fn telling<'a>(server: &Server, view: &'a View, is_secure: bool) -> Telling<'a> {
    Telling {
        topology: &view.topology,
        own: view.id.unwrap_or(NOBODY),
        endpoint: Endpoint::from_number(server.engine.config.cluster_preferred_endpoint()),
        is_secure,
        offset: server.stream().offset,
        is_up: view.is_up,
        silent: &view.silent,
    }
}

/// No server's id, before this one has introduced itself.
const NOBODY: ServerId = ServerId::from_bytes([0; 20]);

/// Takes a topology, and has sessions that wait look again at once. False: it is not later than the one that there is.
pub fn publish(server: &Server, topology: Topology) -> bool {
    let Some(part) = server.clustered.get() else { return false };
    let before = part.view();
    if !part.publish(topology) {
        return false;
    }
    let view = part.view();
    if let Some(own) = view.shard() {
        // Where no slot has ever been anybody's, what lies in one comes of a backup that is restored.
        let is_new = view.topology.slots.count() == 0 && view.topology.last_move == 0;
        let is_hidden = |slot: Slot| view.topology.slots.owner(slot.0).map_or(is_new, |owner| owner != own);
        server.engine.keyspace.hide(is_hidden);
    }
    // Who caches keys of slots that are another shard's is told before the first of them is cleared, which may take long.
    let is_gone = |slot: u16| before.routes.has(slot) && !view.routes.has(slot);
    if (0..SLOTS as u16).any(is_gone) {
        server.tracking.forget_all(&server.net.clients, |key| !view.routes.has(key_slot(key)));
    }
    server.arrivals.lock().follow(&view.topology);
    server.bells.ring_all();
    true
}

/// A config server has said in this run that what was published is as it is now.
pub fn confirm(server: &Server) {
    if server.clustered.get().is_some_and(|part| part.confirm()) {
        server.bells.ring_all();
    }
}

/// Has all sessions look again whether what they wait for, or listen to, is still here: the cluster has changed.
pub fn settle(server: &Server, worker: usize) {
    let Some(part) = server.clustered.get() else { return };
    let view = part.view();
    for ticket in server.blocked.tickets() {
        let Some(waiter) = server.blocked.get(ticket) else { continue };
        if let Some(cause) = waiter.request.as_ref().and_then(|request| elsewhere(server, &view, request)) {
            let error = error_of(server, &view, waiter.client.traits().contains(Traits::TLS), &cause);
            blocking::cut(server, worker, ticket, Cut::Elsewhere(error));
        }
    }
    leave_channels(server, &view);
}

/// Why a session does not wait here any more for what its request waits for. None: it does, or that is not known yet.
fn elsewhere(server: &Server, view: &View, request: &WaitingRequest) -> Option<Cause> {
    let (_, key) = request.keys.first()?;
    let asked = Asked {
        flags: request.command.row.flags,
        is_of_channels: false,
        reads_replicas: request.reads_replicas,
    };
    let cause = match view.is_up {
        true => find(server, view, Ok(key_slot(key)), &asked).err(),
        false => Some(Cause::Down),
    };
    cause.filter(|cause| *cause != Cause::NotYet)
}

/// What a session is told that waited for a key when this server ceased to be master: to ask here once more, where it is held until it is seen who is.
/// None: it waited for no key, or the server is no node of a cluster.
pub fn ask_again(server: &Server, waiter: &Waiter) -> Option<Error> {
    let view = server.clustered.get()?.view();
    let (_, key) = waiter.request.as_ref()?.keys.first()?;
    let cause = Cause::Moved { slot: key_slot(key), to: view.id? };
    Some(error_of(server, &view, waiter.client.traits().contains(Traits::TLS), &cause))
}

/// A session has begun to wait. It was let in by a view that may have passed since, with all others who waited looked at by then.
pub fn note_wait(server: &Server, ticket: Ticket) {
    let is_elsewhere = |view: &View, waiter: &Waiter| {
        waiter.request.as_ref().is_some_and(|request| elsewhere(server, view, request).is_some())
    };
    look_again_if(server, |view| {
        server.blocked.get(ticket).is_some_and(|waiter| is_elsewhere(view, &waiter))
    });
}

/// A session listens to a channel of the shard, likewise.
pub fn note_listener(server: &Server, channel: &[u8]) {
    look_again_if(server, |view| !view.routes.has(key_slot(channel)));
}

fn look_again_if(server: &Server, is_gone: impl FnOnce(&View) -> bool) {
    let Some(part) = server.clustered.get() else { return };
    if is_gone(&part.view()) {
        part.unsettle();
        server.bells.ring_all();
    }
}

/// Has those leave channels of the shard whose slots are not this shard's any more.
fn leave_channels(server: &Server, view: &View) {
    let mut gone: SmallVec<[_; 8]> = SmallVec::new();
    server.pubsub.for_each(|kind, name, client| {
        if kind == Kind::ShardChannel && !view.routes.has(key_slot(name)) {
            gone.push(client.clone());
        }
    });
    for client in gone {
        client.signal(Signal::MOVED);
    }
}

/// A session leaves the channels of the shard whose slots are not this shard's any more, and its client is told.
pub fn leave_moved(server: &Server, session: &mut Session) {
    let Some(part) = server.clustered.get() else { return };
    let (view, kind) = (part.view(), Kind::ShardChannel);
    let known = session.subscriptions.as_ref().map(|known| known.all(kind)).unwrap_or_default();
    for name in known.iter().filter(|name| !view.routes.has(key_slot(name))) {
        server.pubsub.close(&session.client, kind, name);
        let count = session.subscriptions.as_ref().map_or(0, |known| known.shown_count(kind));
        client::deliver(&server.net.clients, &session.client, |mail, protocol| {
            let mut reply = Reply::new(mail, protocol);
            reply.push(3);
            reply.bulk(b"sunsubscribe");
            reply.bulk(name);
            reply.int(count.saturating_sub(1) as i64);
        });
        server.pubsub.unsubscribe(&session.client, &mut session.subscriptions, kind, name);
    }
}
