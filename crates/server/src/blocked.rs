//! The registry of sessions that wait: for a key, or only for time to pass. What becomes of them is decided in `blocking`.
//!
//! Thread rule: any worker. Locks are taken in the order slots, a waiting session's state, the registries.
//!
//! Invariants:
//! 1. A wait ends once: by whoever holds it ([`Waiter::hold`]) while it lasts.
//! 2. A session is here, and in the queues of its keys, as long as its wait lasts.

use command::table::Command;
use keyspace::{DbIndex, KeyName, Keyspace, Stamp, Ticket, Touch};
use net::client::{Client, Kept, Traits};
use net::service::Until;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use wire::{Protocol, RequestBuf};

/// A session that waits.
pub struct Waiter {
    /// Whose it is.
    pub client: Arc<Client>,
    /// What is run again. None: nothing ends the wait but time.
    pub request: Option<WaitingRequest>,
    /// What the client gets when its time is up.
    pub on_timeout: Vec<u8>,
    /// Up to where that shows what was written: it says that there was nothing.
    pub shows: Stamp,
    /// Whether it waits for a limited time.
    pub has_timeout: bool,
    /// Its client wants no reply (CLIENT REPLY).
    pub is_silent: bool,
    state: Mutex<State>,
}

/// A request that is run again when a key is ready.
pub struct WaitingRequest {
    /// Its command.
    pub command: &'static Command,
    /// Its words, some of them rewritten for when it is run again.
    pub words: RequestBuf,
    /// Words that were rewritten, as they were.
    pub originals: Vec<(usize, Box<[u8]>)>,
    /// The database that was selected.
    pub db: DbIndex,
    /// The protocol of the reply.
    pub protocol: Protocol,
    /// Whether it counts as a use of its keys.
    pub touch: Touch,
    /// What it waits for.
    pub keys: Vec<KeyName>,
    /// The version of all rights under which it was admitted.
    pub rights: u64,
    /// Whether its client may read from replicas of a cluster.
    pub reads_replicas: bool,
    /// Whether its client caches what it reads.
    pub is_cached: bool,
    /// What it took until it had to wait.
    pub ticks: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    Ended,
}

/// All sessions that wait.
#[derive(Default)]
pub struct Blocked {
    by_ticket: Mutex<HashMap<Ticket, Arc<Waiter>>>,
}

impl Blocked {
    /// How many sessions wait.
    pub fn count(&self) -> usize {
        self.by_ticket.lock().len()
    }

    /// How many of them wait for a limited time.
    pub fn count_with_timeout(&self) -> usize {
        self.by_ticket.lock().values().filter(|waiter| waiter.has_timeout).count()
    }

    /// The tickets of all of them.
    pub fn tickets(&self) -> Vec<Ticket> {
        self.by_ticket.lock().keys().copied().collect()
    }

    /// The session with this ticket, if it waits.
    pub fn get(&self, ticket: Ticket) -> Option<Arc<Waiter>> {
        self.by_ticket.lock().get(&ticket).cloned()
    }

    /// A session begins to wait.
    pub fn add(&self, waiter: Waiter) -> Arc<Waiter> {
        let client = &waiter.client;
        client.set_trait(Traits::BLOCKED, true);
        client.note_kept(Kept::Waiting, waiter.on_timeout.len());
        if let Some(request) = &waiter.request {
            client.note_kept(Kept::Waiting, waiter.on_timeout.len() + request.words.allocated_bytes());
            request.keys.iter().for_each(|(_, key)| client.note_kept_name(Kept::Waiting, key, true));
        }
        let waiter = Arc::new(waiter);
        self.by_ticket.lock().insert(waiter.client.id, waiter.clone());
        waiter
    }

    /// Ends a wait. None: there is none, or not any more.
    pub fn end(&self, keyspace: &Keyspace, ticket: Ticket) -> Option<Arc<Waiter>> {
        let waiter = self.get(ticket)?;
        waiter.hold()?.end(self, keyspace);
        Some(waiter)
    }
}

impl Waiter {
    /// A session that waits for its request's keys, or only until its time is up; then it gets `on_timeout`, which shows what was written up to `shows`.
    pub fn new(
        client: Arc<Client>,
        is_silent: bool,
        request: Option<WaitingRequest>,
        (on_timeout, shows): (Vec<u8>, Stamp),
        until: Until,
    ) -> Waiter {
        let (has_timeout, state) = (until.is_some(), Mutex::new(State::Waits));
        Waiter { client, request, on_timeout, shows, has_timeout, is_silent, state }
    }

    /// Whether it still waits.
    pub fn waits(&self) -> bool {
        *self.state.lock() == State::Waits
    }

    /// Holds the wait, so that nobody else ends it meanwhile. None: it has ended.
    pub fn hold(&self) -> Option<Held<'_>> {
        let state = self.state.lock();
        (*state == State::Waits).then_some(Held { waiter: self, state })
    }
}

/// A wait that lasts, and that nobody else can end.
pub struct Held<'a> {
    waiter: &'a Waiter,
    state: MutexGuard<'a, State>,
}

impl Held<'_> {
    /// Ends the wait: takes the session out of all registries. Others learn of it when this is dropped.
    pub fn end(&mut self, blocked: &Blocked, keyspace: &Keyspace) {
        let waiter = self.waiter;
        *self.state = State::Ended;
        blocked.by_ticket.lock().remove(&waiter.client.id);
        if let Some(request) = &waiter.request {
            keyspace.stop_waiting(waiter.client.id, &request.keys);
        }
        waiter.client.note_kept(Kept::Waiting, 0);
        waiter.client.set_trait(Traits::BLOCKED, false);
    }
}

impl WaitingRequest {
    /// The words as the client sent them.
    pub fn original(&self) -> RequestBuf {
        let words = self.words.as_request();
        let mut words: Vec<&[u8]> = words.iter().collect();
        self.originals.iter().for_each(|(position, word)| words[*position] = word);
        RequestBuf::from_args(words)
    }
}
