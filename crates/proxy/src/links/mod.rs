//! The connections of one worker to the servers behind the proxy, and what its clients are owed by them.
//!
//! One multiplexed link for each server, protocol and database: it pipelines everyone's requests, and gives replies back in the order in which
//! requests were sent. What is pushed in one round of the worker is written at once: the first push wakes the link's task, which runs
//! when all connections that were ready have had their turns.
//!
//! Thread rule: a worker's own.

pub mod conversation;
mod task;

use crate::serve::Proxy;
use crate::upstream::NodeNo;
use conversation::{Conversations, Key};
use net::client::Client;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use sys::{TickClock, Ticks};
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

/// Whose reply comes next.
#[derive(Clone, Copy)]
struct Ticket {
    whose: Key,
    /// Which reply it is of those that its client is owed, and which part of it.
    reply: (u32, u16),
    /// How long the request is.
    bytes: usize,
    /// How many replies there are to it, of which the last one counts: a transaction is one request here.
    replies: usize,
}

/// One link: requests on their way to a server, and whose they are.
#[derive(Default)]
struct Link {
    /// Requests that were not answered, from the first byte of the first on.
    requests: Vec<u8>,
    /// How many of these bytes are of requests that were answered.
    answered: usize,
    /// How many of them the socket has taken.
    written: usize,
    tickets: VecDeque<Ticket>,
    /// How many of them are of requests that were not written.
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
    waiting: BTreeMap<u64, Arc<Client>>,
}

/// Which link.
#[derive(Clone, Copy, Debug)]
pub struct LinkTo {
    /// The server.
    pub node: NodeNo,
    /// What is spoken.
    pub protocol: Protocol,
    /// The database.
    pub db: usize,
}

/// All links of a worker.
pub struct Links {
    links: Vec<Link>,
    nodes: usize,
    /// What clients are owed.
    pub conversations: Conversations,
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

/// Begins those of this thread.
pub fn begin(nodes: usize) -> SharedLinks {
    let ticks = TickClock::default();
    let links = Links {
        links: Vec::new(),
        nodes,
        conversations: Conversations::default(),
        buffer: vec![0; READ_BYTES],
        held: Vec::new(),
        patience: ticks.ticks_in(PATIENCE),
        ticks,
    };
    let links = Rc::new(RefCell::new(links));
    HERE.set(Some(links.clone()));
    links
}

/// A client of this thread has gone away: what it is owed comes to nobody.
pub fn forget(key: Key) {
    HERE.with_borrow(|here| {
        if let Some(links) = here {
            links.borrow_mut().conversations.end(key);
        }
    });
}

impl Links {
    /// Where the link to a server is on which this protocol is spoken, for a database: none has requests for several, so that
    /// nothing can be done in the wrong one.
    #[inline]
    pub fn place(&mut self, way: &LinkTo) -> usize {
        let is_resp3 = usize::from(way.protocol == Protocol::Resp3);
        let at = 2 * (way.db * self.nodes + usize::from(way.node)) + is_resp3;
        if at >= self.links.len() {
            self.links.resize_with(at + 1, Link::default);
        }
        at
    }

    /// Sends a request, whose reply comes later: the last of so many.
    #[inline]
    pub fn push(&mut self, at: usize, request: &[u8], whose: Key, reply: (u32, u16), replies: usize) {
        let link = &mut self.links[at];
        link.requests.extend_from_slice(request);
        link.tickets.push_back(Ticket { whose, reply, bytes: request.len(), replies });
        link.gathered += 1;
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

    /// Whether a link takes no more for now; the client is woken when it does.
    #[inline]
    pub fn is_full(&mut self, at: usize, client: &Arc<Client>) -> bool {
        let link = &mut self.links[at];
        let is_full = link.is_full();
        if is_full {
            link.waiting.entry(client.id).or_insert_with(|| client.clone());
        }
        is_full
    }

    /// Whether a link's task has yet to begin; it counts as begun from now on.
    pub fn begins(&mut self, at: usize) -> bool {
        !std::mem::replace(&mut self.links[at].is_begun, true)
    }
}

/// This thread is about to rest.
pub fn rest() {
    HERE.with_borrow(|here| {
        if let Some(links) = here {
            links.borrow_mut().rest();
        }
    });
}

impl Link {
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

    /// Wakes those who wait for room, if there is some.
    fn wake_waiting(&mut self) {
        if !self.waiting.is_empty() && !self.is_full() {
            std::mem::take(&mut self.waiting).into_values().for_each(|client| client.wake());
        }
    }
}

/// Starts the task of a link.
pub fn start(links: &SharedLinks, at: usize, way: LinkTo, proxy: &Arc<Proxy>) {
    tokio::task::spawn_local(task::run(links.clone(), at, way, proxy.clone()));
}
