//! The connections of one worker to the servers behind the proxy, and what its clients are owed by them.
//!
//! One multiplexed link for each server, protocol and database, and another for what is to be no use of keys: it pipelines everyone's requests, and gives replies back in the order in which
//! requests were sent. What is pushed in one round of the worker is written at once: the first push wakes the link's task, which runs
//! when all connections that were ready have had their turns.
//!
//! Thread rule: a worker's own.

pub mod conversation;
mod course;
mod crowds;
mod elsewhere;
pub mod heirs;
mod measured;
pub mod own;
pub mod redirect;
mod socket;
mod tally;
mod task;
mod turns;

use crate::joins;
use crate::limits::DATABASES_MAX;
use crate::serve::Proxy;
use crate::shards::ShardCounts;
use crate::upstream::{NodeNo, Routes};
use command::table::CommandId;
use conversation::{Behind, Conversations, Further, Key};
use elsewhere::Parked;
use net::client::Client;
use own::{Lane, Owners, Ownership, Watching};
pub use socket::Socket;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use sys::{TickClock, Ticks};
use tally::{Sequence, Tally};
pub use task::{MAY_BE_LOST, connect};
use turns::Turns;
use wire::Protocol;

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
/// How many requests have to be on their way for each that waits to be written with others.
const UNDER_WAY_MIN: usize = 1;
/// Requests of a link that may be unanswered before no more are taken.
const REQUESTS_MAX: usize = 16_384;
/// The same in bytes.
const BYTES_MAX: usize = 16 << 20;
/// The most bytes that wait.
const GATHERED_BYTES_MAX: usize = 16 << 10;
/// The longest that a request waits, by a worker that is busy; one that rests is woken by what is on its way.
const PATIENCE: Duration = Duration::from_micros(50);

/// How many of those who wait for room are woken at once.
const TURNS_AT_ONCE: usize = 4;
/// What a node says that serves its slots no more, or not now.
const DOWN: [&[u8]; 3] = [b"-CLUSTERDOWN ", b"-MASTERDOWN ", READONLY];
/// What a replica says of a write.
const READONLY: &[u8] = b"-READONLY ";

/// Whose reply comes next.
#[derive(Clone, Debug)]
struct Ticket {
    pushed: Pushed,
    /// How long the request is.
    bytes: usize,
    /// How many of its replies have come.
    came: usize,
    /// By which number the server knows its client, if it has said so.
    number: Option<i64>,
    /// The first of these that was an error, where that counts; of a transaction, that which sent it elsewhere.
    refused: Option<Box<[u8]>>,
    /// How often it was sent elsewhere.
    redirections: u8,
    /// How many bytes of it stand in front of what is asked, with an ASKING, which is for one server.
    asking_bytes: usize,
}

/// One link: requests on their way to a server, and whose they are.
struct Link {
    way: LinkTo,
    /// Requests that were not answered, from the first byte of the first on.
    requests: Vec<u8>,
    /// How many of these bytes are of requests that were answered.
    answered: usize,
    /// How many of them the socket has taken.
    written: usize,
    tickets: VecDeque<Ticket>,
    /// How many of these are of which client and slot, while that is asked for.
    tally: Tally,
    /// Requests that were sent elsewhere, while others of their clients and slots are under way behind them.
    parked: HashMap<Sequence, Vec<Parked>>,
    /// How many of the tickets are of requests that were not written.
    gathered: usize,
    /// When the first of these came.
    gathers_since: Ticks,
    /// The socket has not taken all that it was given.
    is_blocked: bool,
    /// The link's task, once it runs.
    waker: Option<Waker>,
    /// It was woken for what is to be written.
    is_woken: bool,
    /// It was not woken yet.
    is_held: bool,
    /// It stands among those that are held, or were.
    is_listed: bool,
    /// It has a task.
    is_begun: bool,
    /// Clients whose next request waits until there is room.
    waiting: Turns,
    /// It is one client's at a time; None: it is everybody's.
    own: Option<Ownership>,
    /// Its task is to end.
    is_over: bool,
    /// What is counted of its server.
    counts: Arc<ShardCounts>,
}

/// Which link.
#[derive(Clone, Copy, Debug)]
pub struct LinkTo {
    /// The server.
    pub node: NodeNo,
    /// What is spoken.
    pub protocol: Protocol,
    /// The database, or [`NO_DB`].
    pub db: usize,
    /// It is read from as a replica, which nodes of a cluster want to be told.
    pub is_replica: bool,
    /// What is asked over it is no use of keys (CLIENT NO-TOUCH).
    pub is_no_touch: bool,
}

impl LinkTo {
    fn speech(self) -> Speech {
        Speech { protocol: self.protocol, db: self.db, is_no_touch: self.is_no_touch }
    }
}

/// How a client's requests are said to whichever server: over which of its links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speech {
    /// What is spoken.
    pub protocol: Protocol,
    /// The database, or [`NO_DB`].
    pub db: usize,
    /// They are no use of keys.
    pub is_no_touch: bool,
}

impl Speech {
    /// The way to a server.
    #[inline]
    pub fn to(self, node: NodeNo) -> LinkTo {
        let Speech { protocol, db, is_no_touch } = self;
        LinkTo { node, protocol, db, is_replica: false, is_no_touch }
    }
}

/// In place of a database: a link over which only that is asked which servers answer while a script holds up everything else.
pub const NO_DB: usize = DATABASES_MAX;

/// A request on its way: whose it is, and what is expected of it.
#[derive(Clone, Copy, Debug)]
pub struct Pushed {
    /// Whose.
    pub whose: Key,
    /// Which reply it is of those that its client is owed, and which part of it.
    pub reply: (u32, u16),
    /// The slot of its keys, if they have one.
    pub slot: Option<u16>,
    /// How many replies there are to it, of which the last one counts.
    pub replies: usize,
    /// If one of them is an error, that one counts.
    pub needs_all: bool,
    /// A script makes its reply.
    pub is_of_script: bool,
    /// It waits at the server for so long, or as long as it likes. In front of it the server is asked by which number it knows the connection.
    pub waits: Option<Patience>,
    /// What its client is told if it is certain that it was not executed, and is not to be tried again.
    pub unless_executed: Option<&'static [u8]>,
    /// What it means for keys that are watched over the same link.
    pub watching: Watching,
    /// It is not to be done if its server was lost since there were so many losses.
    pub unless_lost: Option<u64>,
    /// Which command it counts as; None: as none.
    pub command: Option<CommandId>,
    /// When it was sent.
    pub since: Ticks,
    /// It is a read from a replica: this master is asked where that one cannot answer.
    pub instead: Option<NodeNo>,
}

/// How long a request may wait at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// So long.
    Until(Duration),
    /// Without end.
    ForEver,
}

impl Pushed {
    /// A request with one reply, which comes to nobody.
    pub const ONE: Pushed = Pushed {
        whose: Key::NOBODY,
        reply: (0, 0),
        slot: None,
        replies: 1,
        needs_all: false,
        is_of_script: false,
        waits: None,
        unless_executed: None,
        watching: Watching::GoesOn,
        unless_lost: None,
        command: None,
        since: Ticks(0),
        instead: None,
    };
}

/// All links of a worker.
pub struct Links {
    links: Vec<Link>,
    /// Where the links are: by database, then by server and protocol.
    places: Vec<Vec<Option<usize>>>,
    /// Which of them clients have to themselves.
    owners: Owners,
    /// What clients are owed.
    pub conversations: Conversations,
    /// Who has which slot, as far as this worker has seen.
    pub routes: Arc<Routes>,
    proxy: Arc<Proxy>,
    worker: usize,
    /// The clock, as it was when this round began.
    pub moment: Ticks,
    buffer: Vec<u8>,
    /// Links that gather requests.
    held: Vec<usize>,
    ticks: TickClock,
    /// How long they may.
    patience: u64,
}

/// They are shared by the worker's tasks.
pub type SharedLinks = Rc<RefCell<Links>>;

thread_local! {
    /// This thread's.
    static HERE: RefCell<Option<SharedLinks>> = const { RefCell::new(None) };
}

/// Begins those of this thread, which is a worker's.
pub fn begin(proxy: &Arc<Proxy>, worker: usize) -> SharedLinks {
    let ticks = TickClock::default();
    let links = Links {
        links: Vec::new(),
        places: Vec::new(),
        owners: Owners::default(),
        conversations: Conversations::default(),
        routes: proxy.upstream.routes(),
        proxy: proxy.clone(),
        worker,
        moment: ticks.now(),
        buffer: vec![0; READ_BYTES],
        held: Vec::new(),
        patience: ticks.ticks_in(PATIENCE),
        ticks,
    };
    let links = Rc::new(RefCell::new(links));
    HERE.set(Some(links.clone()));
    links
}

/// Does something with those of this thread, if it is a worker's.
fn here<T>(does: impl FnOnce(&mut Links) -> T) -> Option<T> {
    HERE.with_borrow(|here| here.as_ref().map(|links| does(&mut links.borrow_mut())))
}

/// A client of this thread has gone away: what it is owed comes to nobody.
pub fn forget(key: Key) {
    here(|links| links.conversations.end(key));
}

/// A client of this thread has gone away that has a link to itself, or may have.
pub fn dismiss(client: u64) {
    here(|links| links.dismiss(client));
}

/// A client of this thread sends no more. Whether it is to be told what there is, and has not waited for that yet.
pub fn leave(client: u64, key: Key) -> bool {
    here(|links| links.leave(client, key)) == Some(true)
}

impl Links {
    /// Requests are about to be sent.
    #[inline]
    pub fn begin_round(&mut self) {
        self.moment = self.ticks.now();
        self.look_at_routes();
    }

    /// Looks whether slots have gone elsewhere.
    #[inline]
    fn look_at_routes(&mut self) {
        if self.proxy.upstream.is_past(&self.routes) {
            self.routes = self.proxy.upstream.routes();
        }
    }

    /// Where the link to a server is on which this protocol is spoken, for a database: none has requests for several, so that
    /// nothing can be done in the wrong one.
    #[inline]
    pub fn place(&mut self, way: LinkTo) -> usize {
        let kinds = [way.is_no_touch, way.is_replica, way.protocol == Protocol::Resp3];
        let at = kinds.into_iter().fold(usize::from(way.node), |at, is| 2 * at + usize::from(is));
        match self.places.get(way.db).and_then(|places| *places.get(at)?) {
            Some(place) => place,
            None => self.begin_link(way, at),
        }
    }

    #[cold]
    fn begin_link(&mut self, way: LinkTo, at: usize) -> usize {
        if self.places.len() <= way.db {
            self.places.resize_with(way.db + 1, Vec::new);
        }
        let places = &mut self.places[way.db];
        if places.len() <= at {
            places.resize(at + 1, None);
        }
        places[at] = Some(self.links.len());
        let counts = self.proxy.shards.of(way.node, way.is_replica);
        self.links.push(Link::new(way, counts));
        self.links.len() - 1
    }

    /// Sends a request, whose reply comes later: the last of so many.
    #[inline]
    pub fn push(&mut self, at: usize, request: &[u8], pushed: Pushed) {
        let ticket = Ticket {
            pushed,
            bytes: request.len(),
            came: 0,
            number: None,
            refused: None,
            redirections: 0,
            asking_bytes: 0,
        };
        self.enqueue(at, request, ticket);
    }

    #[inline]
    fn enqueue(&mut self, at: usize, request: &[u8], ticket: Ticket) {
        let link = &mut self.links[at];
        link.requests.extend_from_slice(request);
        link.tally.add(ticket.sequence());
        link.tickets.push_back(ticket);
        link.gathered += 1;
        link.counts.requests.add(1);
        link.counts.under_way.add(1);
        if !link.is_begun {
            link.is_begun = true;
            start(at, link.way, &self.proxy);
        }
        if !link.is_woken {
            self.wake_or_hold(at);
        }
    }

    /// Has a link written, unless that can wait.
    #[inline]
    fn wake_or_hold(&mut self, at: usize) {
        let link = &mut self.links[at];
        if link.may_wait() {
            if !link.is_held {
                link.is_held = true;
                link.gathers_since = self.ticks.now();
                if !std::mem::replace(&mut link.is_listed, true) {
                    self.held.push(at);
                }
            }
        } else {
            link.wake();
        }
    }

    /// Has those links written that have waited for long enough. The worker is about to rest.
    pub fn rest(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let now = self.ticks.now();
        let (links, patience) = (&mut self.links, self.patience);
        self.held.retain(|at| {
            let link = &mut links[*at];
            if link.is_held && now.0.saturating_sub(link.gathers_since.0) >= patience {
                link.wake();
            }
            link.is_listed = link.is_held;
            link.is_listed
        });
    }

    /// Whether a link takes no more for now.
    pub fn is_without_room(&self, at: usize) -> bool {
        self.links[at].is_full()
    }

    /// Whether a link takes no more for now; the client is woken when it does.
    #[inline]
    pub fn is_full(&mut self, at: usize, client: &Arc<Client>) -> bool {
        let link = &mut self.links[at];
        if !link.is_full() && link.waiting.may_go(client.id) {
            return false;
        }
        link.waiting.wait(client);
        true
    }

    /// A reply has come by a link.
    ///
    /// # Errors
    /// Nobody is owed one: the connection is of no use.
    fn take_reply(&mut self, at: usize, reply: &[u8]) -> io::Result<()> {
        let link = &mut self.links[at];
        let (answered, written) = (link.answered, link.written);
        // What nobody asked for is no reply.
        let asked = link.tickets.front_mut().filter(|ticket| ticket.may_be_told(answered, written));
        let Some(ticket) = asked.filter(|_| reply.first() != Some(&b'>')) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        ticket.came += 1;
        if ticket.came < ticket.pushed.replies {
            let counts: &[u8] = if ticket.pushed.needs_all { b"-" } else { b"-MOVED " };
            if ticket.refused.is_none() && reply.starts_with(counts) {
                ticket.refused = Some(reply.into());
            }
            let is_next = ticket.came + 1 == ticket.pushed.replies;
            if ticket.pushed.waits.is_some() {
                ticket.number = ticket.number.or_else(|| joins::number(reply));
                if let Some(number) = ticket.number.filter(|_| is_next) {
                    let whose = ticket.pushed.whose;
                    self.note_waiting(at, whose, number);
                }
            }
            return Ok(());
        }
        let Some(mut ticket) = link.tickets.pop_front() else { return Ok(()) };
        link.counts.under_way.add(-1);
        link.tally.take(ticket.sequence());
        link.answered += ticket.bytes;
        let refused = ticket.refused.take();
        // Whether its error is the replica's or the request's the master says.
        if ticket.pushed.instead.is_some() && reply.starts_with(b"-") {
            let begin = link.answered - ticket.bytes;
            let request = link.requests[begin..link.answered].to_vec();
            self.ask_master(at, ticket, &request);
            return Ok(());
        }
        if reply.first() == Some(&b'-') && self.routes.is_cluster {
            // Of a transaction none of whose requests was done.
            let line = refused.as_deref().filter(|_| reply.starts_with(b"-EXECABORT")).unwrap_or(reply);
            if self.redirect(at, &ticket, line) {
                return Ok(());
            }
            // Another may have its slots by now.
            if DOWN.iter().any(|down| line.starts_with(down)) {
                self.proxy.upstream.hurry();
                if line.starts_with(READONLY) && self.adopt(at, &ticket, line) {
                    return Ok(());
                }
            }
        }
        let reply = refused.as_deref().filter(|_| ticket.pushed.needs_all).unwrap_or(reply);
        let reply = self.said_to_who_waits(at, &ticket, reply);
        let end = self.links[at].answered;
        let begin = (end - ticket.bytes + ticket.asking_bytes).min(end);
        self.answer(at, &ticket, reply, begin..end);
        self.ask_further();
        if !self.links[at].parked.is_empty() {
            self.note_done(at, &ticket);
        }
        if self.links[at].own.is_some() {
            self.settle_own(at);
        }
        Ok(())
    }

    /// What a client is told that waits for what it has written, where a server says this: that may be lost with the server meanwhile, or with one that was
    /// asked for once and is no master now, of which no routes tell.
    fn said_to_who_waits<'r>(&self, at: usize, ticket: &Ticket, reply: &'r [u8]) -> &'r [u8] {
        if ticket.pushed.unless_lost.is_none() {
            return reply;
        }
        if reply.starts_with(READONLY) {
            self.note_no_master(at);
        }
        if self.is_lost(at, ticket) { MAY_BE_LOST } else { reply }
    }

    /// The server of a link is no master that could be waited for: if it has no slots it was one when it was asked for once.
    fn note_no_master(&self, at: usize) {
        let node = self.links[at].way.node;
        if !self.routes.masters.contains(&node) {
            self.proxy.upstream.losses.note_demoted(node);
        }
    }

    /// Sends a read to the master that a replica cannot answer.
    fn ask_master(&mut self, at: usize, mut ticket: Ticket, request: &[u8]) {
        let Some(node) = ticket.pushed.instead.take() else { return };
        let to = self.place(LinkTo { node, is_replica: false, ..self.links[at].way });
        ticket.came = 0;
        self.enqueue(to, request, ticket);
    }

    /// Asks what is to be known before a reply can be made of which a part has come.
    #[inline]
    fn ask_further(&mut self) {
        for client in self.conversations.take_come() {
            self.end_waits(client);
        }
        for Behind { who, client, time } in self.conversations.take_behind() {
            match (self.proxy.waits.called_here(client), time) {
                (Some(called), _) => self.end_wait(who, called),
                (None, Some(time)) => self.end_in_time(who, time),
                (None, None) => {}
            }
        }
        self.look_at_routes();
        for Further { whose, reply, speaks, part, waits, follows } in self.conversations.take_further() {
            let (node, slot, request) = part;
            // Who waits may have waited for long.
            let now = slot.filter(|_| follows).and_then(|slot| self.routes.of(slot));
            let node = now.unwrap_or(node);
            let (way, pushed) = (speaks.to(node), Pushed { whose, reply, slot, ..Pushed::ONE });
            let Some((patience, client)) = waits else {
                let to = self.place(way);
                self.push(to, &request, pushed);
                continue;
            };
            // It was called while it was looked what there is.
            if let Some(called) = self.proxy.waits.called_here(client) {
                self.end_wait((whose, reply.0), called);
                continue;
            }
            let to = self.take_own(Lane { client, number: reply.1 + 1 }, way);
            let bytes = [asking_who(), request].concat();
            self.push_own(to, &bytes, Pushed { waits: Some(patience), replies: 2, ..pushed });
        }
    }
}

/// What goes in front of a request that waits: by which number the server knows the connection, for those who wake its client.
pub fn asking_who() -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::encode_request(&mut bytes, &[b"CLIENT", b"ID"]);
    bytes
}

/// This thread is about to rest.
pub fn rest() {
    here(Links::rest);
}

impl Ticket {
    /// Whose it is, and of which slot.
    #[inline]
    fn sequence(&self) -> Sequence {
        (self.pushed.whose, self.pushed.slot)
    }

    /// Whether a reply may be to it that comes when so many bytes are with the server, of which it stands behind so many: whatever comes before a request is there
    /// whole is none, unless it is one of several before the last, which a server says as it reads (those to a long transaction).
    fn may_be_told(&self, answered: usize, written: usize) -> bool {
        let is_last = self.came + 1 >= self.pushed.replies;
        answered + if is_last { self.bytes } else { 1 } <= written
    }
}

impl Link {
    fn new(way: LinkTo, counts: Arc<ShardCounts>) -> Link {
        Link {
            way,
            requests: Vec::new(),
            answered: 0,
            written: 0,
            tickets: VecDeque::new(),
            tally: Tally::default(),
            parked: HashMap::new(),
            gathered: 0,
            gathers_since: Ticks(0),
            is_blocked: false,
            waker: None,
            is_woken: false,
            is_held: false,
            is_listed: false,
            is_begun: false,
            waiting: Turns::default(),
            own: None,
            is_over: false,
            counts,
        }
    }

    /// Whether nothing is asked by it, nor is to be sent elsewhere from it.
    fn is_done(&self) -> bool {
        self.tickets.is_empty() && self.parked.is_empty()
    }

    /// Whether a client has requests of a slot under way.
    fn has_of(&mut self, sequence: Sequence) -> bool {
        self.tally.has(sequence, self.tickets.iter().map(Ticket::sequence))
    }

    /// Takes a client's requests of a slot that were sent elsewhere, in their order.
    fn take_parked(&mut self, sequence: Sequence) -> Vec<Parked> {
        self.parked.remove(&sequence).unwrap_or_default()
    }

    /// Whether requests may wait for others to be written with them: while so many are on their way that the shard has enough to do.
    #[inline]
    fn may_wait(&self) -> bool {
        let under_way = self.tickets.len() - self.gathered;
        !self.is_blocked
            && under_way > self.gathered * UNDER_WAY_MIN
            && self.requests.len() - self.written < GATHERED_BYTES_MAX
    }

    #[inline]
    fn wake(&mut self) {
        self.is_held = false;
        if let Some(waker) = &self.waker {
            self.is_woken = true;
            waker.wake_by_ref();
        }
    }

    /// Whether so much waits that no more is taken.
    #[inline]
    fn is_full(&self) -> bool {
        self.tickets.len() >= REQUESTS_MAX || self.requests.len() - self.answered >= BYTES_MAX
    }

    /// Wakes those who wait for room, if there is some: a few, or all where nothing is under way that would wake the others.
    fn wake_waiting(&mut self) {
        if !self.waiting.is_empty() && !self.is_full() {
            self.waiting.wake(if self.tickets.is_empty() { usize::MAX } else { TURNS_AT_ONCE });
        }
    }
}

/// Starts the task of a link of this thread.
fn start(at: usize, way: LinkTo, proxy: &Arc<Proxy>) {
    HERE.with_borrow(|here| {
        if let Some(links) = here {
            tokio::task::spawn_local(task::run(links.clone(), at, way, proxy.clone()));
        }
    });
}
