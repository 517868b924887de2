//! A client of a cluster: a connection to each master, and the operations that it has under way.
//!
//! In closed loop its operations are a batch: it begins new ones when all of them are answered or have failed. Requests stay in its buffer until
//! then, since a redirection has one sent again.
//!
//! Invariant: `open` operations lack at least one reply.

use super::link::Link;
use super::requests;
use crate::work::Issued;
use sys::Ticks;

/// An operation, or the step of one that is under way.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// What it was issued as.
    pub issued: Issued,
    /// From when its latency counts.
    pub start: Ticks,
    /// Whether it counts at all.
    pub is_measured: bool,
    /// Replies that it lacks.
    pub lacking: u32,
    /// Whether one of those that came was an error, or could not come.
    pub has_failed: bool,
    /// Whether one of its keys is in a slot that is watched.
    pub is_watched: bool,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    begin: usize,
    end: usize,
    /// The slot of its key, or of the request before it that has one.
    pub slot: Option<u16>,
    /// Whose it is.
    pub operation: usize,
    /// How often it was sent elsewhere.
    pub redirections: u8,
}

impl Request {
    /// Where its bytes are.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.begin..self.end
    }
}

/// What a client does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It waits for an operation to be due.
    #[default]
    Idle,
    /// It waits for replies.
    Busy,
    /// It waits until what went wrong may have passed.
    Resting,
}

/// A client.
#[derive(Debug, Default)]
pub struct Client {
    /// Its connections, by the number of the node.
    pub links: Vec<Option<Link>>,
    /// Operations of the batch.
    pub operations: Vec<Operation>,
    /// Requests of the batch.
    pub requests: Vec<Request>,
    /// What it does.
    pub state: State,
    /// Operations that are not over.
    pub open: usize,
    /// Whether one has failed in a way that passes.
    pub is_hurt: bool,
    /// The bytes of the requests.
    pub buffer: Vec<u8>,
}

impl Client {
    /// One with these connections.
    pub fn new(links: Vec<Option<Link>>) -> Client {
        Client { links, ..Client::default() }
    }

    /// Its connection to a node, if it has one.
    #[inline]
    pub fn link(&mut self, node: usize) -> Option<&mut Link> {
        self.links.get_mut(node)?.as_mut()
    }

    /// Puts down the requests that were written behind `from`, all of them one operation's. Gives the number of the first of them.
    #[inline]
    pub fn divide(&mut self, from: usize, operation: usize) -> usize {
        let first = self.requests.len();
        let (mut begin, mut slot) = (from, None);
        while begin < self.buffer.len() {
            let request = requests::first(&self.buffer[begin..]);
            let end = begin + request.bytes.max(1);
            slot = request.slot.or(slot);
            self.requests.push(Request { begin, end, slot, operation, redirections: 0 });
            begin = end;
        }
        first
    }

    /// A batch is over.
    pub fn clear(&mut self) {
        self.operations.clear();
        self.requests.clear();
        self.buffer.clear();
    }
}
