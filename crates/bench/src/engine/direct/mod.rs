//! One thread of the generator at a cluster, in direct mode: an edge-triggered loop over clients that each hold a connection to every master.
//!
//! Each request goes to the master of its key's slot, by a map that this thread keeps. MOVED and ASK are followed and are no errors. Everything
//! else that goes wrong fails the operation, which is counted as an error and not made again: a write may have been done. Nothing
//! that happens to a node ends the run.
//!
//! Invariants:
//! 1. As in `loader`: a client without operations gets new ones at once, or waits in `idle` until one is due.
//! 2. A client that met what will pass (a node that is gone, CLUSTERDOWN) rests for a moment in `resting`, so that a cluster that is down is not asked
//!    in a frenzy. The map is asked for anew then.
//! 3. A node that did not accept or broke off is tried again by one client of the thread at a time, every [`TRY_EVERY`]; until then its
//!    slots' operations fail at once, and those of other nodes go on.

pub mod client;
pub mod link;
pub mod map;
mod replies;
mod requests;

use super::orders::Orders;
use super::pace::Alarm;
use super::tally::{Outcome, Tally};
use super::{EVENTS_MAX, Lost, READ_BYTES, SLEEP_MAX};
use crate::plan::Target;
use client::{Client, Operation, State};
use link::{Link, Waiting};
use map::{Map, NODES_MAX};
use mio::{Events, Interest, Poll, Token};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use sys::Ticks;
use wire::{SLOTS, encode_request};

/// How long a client rests that met what will pass.
const REST: Duration = Duration::from_millis(5);
/// How often a node is tried that cannot be reached.
const TRY_EVERY: Duration = Duration::from_millis(10);
/// How often the map is asked for at most.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// A node that sends nothing for so long, although something is waited for, is given up: sooner than a run that ends waits for its last replies.
const REPLY_MAX: Duration = Duration::from_secs(4);
/// How often it is looked for such nodes.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long the answer with a map may take before another node is asked.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// By so much the slots differ to which requests without a key go one after the other.
const KEYLESS_STEP: usize = 7_919;
/// What goes before a request that ASK has sent elsewhere.
const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";
/// The alarm's token; those of connections are below.
const ALARM: Token = Token(usize::MAX - 1);

/// What a thread has to know of the cluster.
#[derive(Clone)]
pub struct Cluster {
    /// The masters, and who has which slot.
    pub map: Map,
    /// As whom nodes are spoken to.
    pub target: Target,
    /// Which slots are watched, by number; empty if none are.
    pub watched: Box<[bool]>,
    /// Which kinds of operations write.
    pub writes: Vec<bool>,
}

/// Whether a newer map is wanted, and asked for.
#[derive(Clone, Copy, Default)]
struct Asking {
    is_wanted: bool,
    /// The client and the node that were asked, and when.
    asked: Option<(usize, usize)>,
    at: Ticks,
    /// The node that is asked next.
    next: usize,
}

/// A running thread.
struct Direct {
    clients: Vec<Client>,
    cluster: Cluster,
    /// When each node may be tried again, if it could not be reached.
    closed_until: Vec<Ticks>,
    asking: Asking,
    orders: Orders,
    tally: Tally,
    poll: Poll,
    alarm: Option<Alarm>,
    idle: VecDeque<usize>,
    /// Clients that rest, and until when, the first first.
    resting: VecDeque<(Ticks, usize)>,
    /// Clients that wait for replies.
    busy: usize,
    next_look: Ticks,
    /// Counts requests without a key, which go to the masters in turn.
    keyless: usize,
    request: Vec<u8>,
}

/// Runs a thread of the generator to its end.
pub fn run(clients: Vec<Client>, cluster: Cluster, orders: Orders, tally: Tally) -> Outcome {
    let prepared = prepare(clients, &orders);
    let (poll, alarm, clients) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            return tally.finish(0, Some(format!("the generator cannot poll its connections: {error}")));
        }
    };
    let mut direct = Direct {
        idle: (0..clients.len()).collect(),
        clients,
        cluster,
        closed_until: Vec::new(),
        asking: Asking::default(),
        orders,
        tally,
        poll,
        alarm,
        resting: VecDeque::new(),
        busy: 0,
        next_look: Ticks(0),
        keyless: 0,
        request: Vec::new(),
    };
    let failure = direct.load().err().map(|lost| lost.0);
    let unsent = direct.orders.unsent(direct.tally.clock.now());
    direct.tally.finish(unsent, failure)
}

fn prepare(mut clients: Vec<Client>, orders: &Orders) -> io::Result<(Poll, Option<Alarm>, Vec<Client>)> {
    let poll = Poll::new()?;
    for (at, client) in clients.iter_mut().enumerate() {
        for (node, link) in client.links.iter_mut().enumerate() {
            if let Some(link) = link {
                register(&poll, at, node, link)?;
            }
        }
    }
    let alarm = orders.schedule.as_ref().map(|_| Alarm::new(poll.registry(), ALARM)).transpose()?;
    Ok((poll, alarm, clients))
}

fn register(poll: &Poll, at: usize, node: usize, link: &mut Link) -> io::Result<()> {
    let interest = Interest::READABLE | Interest::WRITABLE;
    poll.registry().register(link.channel.stream(), Token(at * NODES_MAX + node), interest)
}

impl Direct {
    fn load(&mut self) -> Result<(), Lost> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let now = self.tally.clock.now();
            self.tally.keep_time(now);
            if self.tally.is_stopped() || self.has_ended(now)? {
                return Ok(());
            }
            self.wake(now);
            self.ask_for_map(now);
            self.give_up_silent(now);
            let patience = self.set_alarm(now)?;
            match self.poll.poll(&mut events, Some(patience)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error.into()),
                _ => {}
            }
            for event in &events {
                if event.token() == ALARM {
                    continue;
                }
                let (at, node) = (event.token().0 / NODES_MAX, event.token().0 % NODES_MAX);
                let now = self.tally.clock.now();
                if event.is_writable() || event.is_error() {
                    self.write(at, node, now);
                }
                if event.is_readable() || event.is_read_closed() {
                    self.read(at, node, &mut buffer, event.is_read_closed());
                }
                self.settle(at);
            }
        }
    }

    fn has_ended(&self, now: Ticks) -> Result<bool, Lost> {
        let waiting = || self.clients.iter().map(|client| client.open as u64).sum();
        self.orders.has_ended(now, self.busy > 0, &self.tally, waiting)
    }

    /// Gives operations to clients that have none.
    fn wake(&mut self, now: Ticks) {
        while let Some((_, at)) = self.resting.pop_front_if(|(until, _)| *until <= now) {
            self.clients[at].state = State::Idle;
            self.idle.push_back(at);
        }
        for _ in 0..self.idle.len() {
            let Some(at) = self.idle.pop_front() else { break };
            self.clients[at].state = State::Busy;
            self.busy += 1;
            self.settle(at);
            if self.clients[at].state == State::Idle {
                // Nothing is due. It is the first that gets what will be.
                self.idle.rotate_right(1);
                break;
            }
        }
    }

    /// Sends what a client has to send, and if it has nothing more to do, gives it new operations, or sends it to rest.
    fn settle(&mut self, at: usize) {
        loop {
            let now = self.tally.clock.now();
            self.flush(at, now);
            if self.clients[at].state != State::Busy || self.clients[at].open > 0 {
                return;
            }
            self.clients[at].clear();
            if std::mem::take(&mut self.clients[at].is_hurt) {
                self.clients[at].state = State::Resting;
                self.busy -= 1;
                self.resting.push_back((Ticks(now.0 + self.tally.clock.ticks_in(REST)), at));
                return;
            }
            self.begin(at, now);
            if self.clients[at].operations.is_empty() {
                self.clients[at].state = State::Idle;
                self.busy -= 1;
                self.idle.push_back(at);
                return;
            }
        }
    }

    /// Issues a client's next operations.
    fn begin(&mut self, at: usize, now: Ticks) {
        for _ in 0..self.orders.pipeline {
            let Some((start, is_measured)) = self.orders.take(now) else { return };
            let client = &mut self.clients[at];
            let from = client.buffer.len();
            let issued = self.orders.feed.issue(at, &mut client.buffer);
            let operation = client.operations.len();
            let lacking = issued.replies;
            client.operations.push(Operation {
                issued,
                start,
                is_measured,
                lacking,
                has_failed: false,
                is_watched: false,
            });
            client.open += 1;
            self.dispatch(at, operation, from, now);
        }
    }

    /// Sends the requests of an operation's step, which stand in the buffer from `from` on, each to where its key is.
    fn dispatch(&mut self, at: usize, operation: usize, from: usize, now: Ticks) {
        let client = &mut self.clients[at];
        let first = client.divide(from, operation);
        let last = client.requests.len();
        if !self.cluster.watched.is_empty() {
            let is_watched =
                |slot: Option<u16>| slot.is_some_and(|slot| self.cluster.watched[usize::from(slot)]);
            client.operations[operation].is_watched |=
                client.requests[first..last].iter().any(|request| is_watched(request.slot));
        }
        for number in first..last {
            // What has no key goes to some slot's master, to each in turn.
            let slot = self.clients[at].requests[number].slot.unwrap_or_else(|| {
                self.keyless = (self.keyless + KEYLESS_STEP) % SLOTS;
                u16::try_from(self.keyless).unwrap_or_default()
            });
            match self.cluster.map.owner(slot) {
                Some(node) => self.send(at, number, node, false, now),
                None => self.hurt(at, number, &format!("no node is known to have slot {slot}"), now),
            }
        }
    }

    /// Sends a request to a node, which is connected to if it is not.
    fn send(&mut self, at: usize, number: usize, node: usize, is_asking: bool, now: Ticks) {
        if self.clients[at].link(node).is_none() && !self.open(at, node, now) {
            let why = format!("{} cannot be reached", self.cluster.map.nodes()[node]);
            return self.hurt(at, number, &why, now);
        }
        let Client { links, buffer, requests, .. } = &mut self.clients[at];
        let Some(link) = links.get_mut(node).and_then(Option::as_mut) else { return };
        if is_asking {
            link.send(ASKING, Waiting::Asking, now);
        }
        link.send(&buffer[requests[number].range()], Waiting::Request(number), now);
    }

    /// Begins to connect a client to a node; false if that has just failed, or is being tried by another one.
    fn open(&mut self, at: usize, node: usize, now: Ticks) -> bool {
        let nodes = self.cluster.map.nodes();
        self.closed_until.resize(nodes.len(), Ticks(0));
        if self.closed_until[node] > now {
            return false;
        }
        if self.closed_until[node] > Ticks(0) {
            self.close(node, now);
        }
        let begun = Link::begin(&self.cluster.map.nodes()[node], &self.cluster.target, now);
        let registered = begun.and_then(|mut link| {
            register(&self.poll, at, node, &mut link)?;
            Ok(link)
        });
        match registered {
            Ok(link) => {
                let links = &mut self.clients[at].links;
                if links.len() <= node {
                    links.resize_with(node + 1, || None);
                }
                links[node] = Some(link);
                true
            }
            Err(_) => {
                self.close(node, now);
                false
            }
        }
    }

    /// Leaves a node alone for a while.
    fn close(&mut self, node: usize, now: Ticks) {
        self.closed_until.resize(self.cluster.map.nodes().len(), Ticks(0));
        self.closed_until[node] = Ticks(now.0 + self.tally.clock.ticks_in(TRY_EVERY));
        self.asking.is_wanted = true;
    }

    /// A connection is lost, and with it all that waits for a reply there.
    fn lose(&mut self, at: usize, node: usize, why: &str, now: Ticks) {
        let Some(link) = self.clients[at].links.get_mut(node).and_then(Option::take) else { return };
        self.close(node, now);
        if self.asking.asked == Some((at, node)) {
            self.asking.asked = None;
        }
        for waiting in link.waiting {
            if let Waiting::Request(number) = waiting {
                self.hurt(at, number, why, now);
            }
        }
    }

    /// Sends what a client's sockets take.
    #[inline]
    fn flush(&mut self, at: usize, now: Ticks) {
        for node in 0..self.clients[at].links.len() {
            let link = self.clients[at].link(node).filter(|link| link.is_connected);
            if let Some(Err(error)) = link.map(|link| link.channel.flush()) {
                self.lose(at, node, &format!("a connection was lost: {error}"), now);
            }
        }
    }

    /// A socket takes more, or has just been connected.
    fn write(&mut self, at: usize, node: usize, now: Ticks) {
        let Some(link) = self.clients[at].link(node).filter(|link| !link.is_connected) else { return };
        match link.connect() {
            Ok(true) => {
                if let Some(until) = self.closed_until.get_mut(node) {
                    *until = Ticks(0);
                }
            }
            Ok(false) => {}
            Err(error) => self.lose(at, node, &format!("cannot connect: {error}"), now),
        }
    }

    /// Asks a node for a newer map, if one is wanted: any that lives, each time another.
    fn ask_for_map(&mut self, now: Ticks) {
        let since = Duration::from_nanos(self.tally.clock.nanos_between(self.asking.at, now));
        if self.asking.asked.is_some() && since > ANSWER_MAX {
            self.asking = Asking { asked: None, is_wanted: true, ..self.asking };
        }
        if !self.asking.is_wanted || self.asking.asked.is_some() || since < ASK_EVERY {
            return;
        }
        self.asking.at = now;
        let nodes = self.cluster.map.nodes().len();
        for _ in 0..nodes {
            let node = self.asking.next % nodes;
            self.asking.next = node + 1;
            let is_open = |client: &mut Client| client.link(node).is_some_and(|link| link.is_open());
            if let Some(at) = self.clients.iter_mut().position(is_open) {
                self.asking = Asking { is_wanted: false, asked: Some((at, node)), ..self.asking };
                self.request.clear();
                encode_request(&mut self.request, &[b"CLUSTER", b"SLOTS"]);
                if let Some(link) = self.clients[at].link(node) {
                    link.send(&self.request, Waiting::Map, now);
                }
                return self.settle(at);
            }
        }
        // Nobody is reached: one client goes looking.
        if nodes > 0 && self.clients[0].link(self.asking.next % nodes).is_none() {
            self.open(0, self.asking.next % nodes, now);
        }
        self.asking.next += 1;
    }

    /// Gives up connections on which something is waited for and nothing comes.
    fn give_up_silent(&mut self, now: Ticks) {
        if now < self.next_look {
            return;
        }
        self.next_look = Ticks(now.0 + self.tally.clock.ticks_in(LOOK_EVERY));
        let longest = self.tally.clock.ticks_in(REPLY_MAX);
        for at in 0..self.clients.len() {
            for node in 0..self.clients[at].links.len() {
                let is_silent = |link: &mut Link| {
                    !link.waiting.is_empty() && now.0.saturating_sub(link.since.0) > longest
                };
                if self.clients[at].link(node).is_some_and(is_silent) {
                    self.lose(at, node, &format!("no reply within {} s", REPLY_MAX.as_secs()), now);
                    self.settle(at);
                }
            }
        }
    }

    /// How long to sleep at most, until the next operation is due, if one is waited for, or a client has rested.
    fn set_alarm(&mut self, now: Ticks) -> Result<Duration, Lost> {
        let rested = self.resting.front().map(|(until, _)| self.tally.clock.nanos_between(now, *until));
        let asking = self.asking.is_wanted.then_some(ASK_EVERY);
        let patience =
            rested.map(Duration::from_nanos).into_iter().chain(asking).fold(SLEEP_MAX, Duration::min);
        let Some(alarm) = self.alarm.as_ref().filter(|_| !self.idle.is_empty()) else { return Ok(patience) };
        self.orders.set_alarm(alarm, &self.tally, patience)
    }
}

#[cfg(test)]
mod tests;
