//! The connections of one worker to the servers behind the proxy, and what its clients are owed by them.
//!
//! One multiplexed link for each server and protocol: it pipelines everyone's requests, and gives replies back in the order in which
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
use std::collections::VecDeque;
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
    /// None: nobody's.
    whose: Option<(Key, u32)>,
    /// How long the request is.
    bytes: u32,
    /// The database that it is for.
    db: u32,
    /// It only selects that.
    is_select: bool,
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
    /// The database of the last request.
    db: u32,
    /// The link's task, once it runs.
    waker: Option<Waker>,
    /// It was woken for what is to be written.
    is_woken: bool,
    /// It was not woken yet.
    is_held: bool,
    /// It has a task.
    is_begun: bool,
    /// Clients whose next request waits until there is room.
    waiting: Vec<Arc<Client>>,
}

/// All links of a worker.
pub struct Links {
    links: Vec<Link>,
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
        links: (0..2 * nodes).map(|_| Link::default()).collect(),
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
    /// Sends a request; gives nothing, for its reply comes later. `whose` is None where nobody wants it.
    #[inline]
    pub fn push(&mut self, at: usize, db: u32, request: &[u8], whose: Option<Key>) {
        let whose = whose.map(|key| (key, self.conversations.owe(key)));
        let link = &mut self.links[at];
        link.append(db, request, whose);
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
                self.held.push(at);
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
            link.is_held
        });
    }

    /// Whether a link takes no more for now; the client is woken when it does.
    #[inline]
    pub fn is_full(&mut self, at: usize, client: &Arc<Client>) -> bool {
        let link = &mut self.links[at];
        let is_full = link.is_full();
        if is_full {
            link.waiting.push(client.clone());
        }
        is_full
    }

    /// Whether a link's task has yet to begin; it counts as begun from now on.
    pub fn begins(&mut self, at: usize) -> bool {
        !std::mem::replace(&mut self.links[at].is_begun, true)
    }

    /// Begins what a client is owed.
    pub fn converse(&mut self, client: &Arc<Client>) -> Key {
        self.conversations.begin(client)
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
        under_way > self.gathered * UNDER_WAY_MIN && self.requests.len() - self.written < GATHERED_BYTES_MAX
    }

    #[inline]
    fn wake(&mut self) {
        self.is_held = false;
        if let Some(waker) = &self.waker {
            self.is_woken = true;
            waker.wake_by_ref();
        }
    }

    #[inline]
    fn append(&mut self, db: u32, request: &[u8], whose: Option<(Key, u32)>) {
        if self.db != db {
            self.select(db);
        }
        self.requests.extend_from_slice(request);
        self.tickets.push_back(Ticket { whose, bytes: request.len() as u32, db, is_select: false });
        self.gathered += 1;
    }

    /// Whether so much waits that no more is taken.
    #[inline]
    fn is_full(&self) -> bool {
        self.tickets.len() >= REQUESTS_MAX || self.requests.len() - self.answered >= BYTES_MAX
    }

    /// Wakes those who wait for room, if there is some.
    fn wake_waiting(&mut self) {
        if !self.waiting.is_empty() && !self.is_full() {
            self.waiting.drain(..).for_each(|client| client.wake());
        }
    }

    #[cold]
    fn select(&mut self, db: u32) {
        let before = self.requests.len();
        wire::encode_request(&mut self.requests, &[b"SELECT", db.to_string().as_bytes()]);
        let bytes = (self.requests.len() - before) as u32;
        self.tickets.push_back(Ticket { whose: None, bytes, db, is_select: true });
        self.gathered += 1;
        self.db = db;
    }
}

/// The place of a link.
#[inline]
pub fn place(node: NodeNo, protocol: Protocol) -> usize {
    2 * usize::from(node) + usize::from(protocol == Protocol::Resp3)
}

/// Whose link it is, and which protocol is spoken on it.
pub fn node_of(place: usize) -> (NodeNo, Protocol) {
    let protocol = if place % 2 == 1 { Protocol::Resp3 } else { Protocol::Resp2 };
    ((place / 2) as NodeNo, protocol)
}

/// Starts the task of a link.
pub fn start(links: &SharedLinks, node: NodeNo, protocol: Protocol, proxy: &Arc<Proxy>) {
    tokio::task::spawn_local(task::run(links.clone(), usize::from(node), protocol, proxy.clone()));
}
