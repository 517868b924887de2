//! The registry of all clients.

use super::limits::Limits;
use super::{Client, Signal};
use config::Config;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use sys::{Clock, Counter, Prng};

/// All clients, in the order in which they connected.
pub struct Clients {
    by_id: Mutex<BTreeMap<u64, Arc<Client>>>,
    next_id: AtomicU64,
    /// Bytes of all clients' buffers and of what their sessions keep; sessions add what changes.
    pub buffer_bytes: Counter,
    /// The part of those that have not authenticated and must.
    pub stranger_bytes: Counter,
    /// Clients closed because they did not read their replies.
    pub output_limit_disconnections: Counter,
    /// Clients closed because of `maxmemory-clients`.
    pub evicted: Counter,
    pub(super) limits: Limits,
    clock: Clock,
}

impl Clients {
    /// Nobody is connected, and there are no limits before the first [`Clients::follow`].
    pub fn new(clock: Clock) -> Clients {
        Clients {
            by_id: Mutex::default(),
            next_id: AtomicU64::new(0),
            buffer_bytes: Counter::default(),
            stranger_bytes: Counter::default(),
            output_limit_disconnections: Counter::default(),
            evicted: Counter::default(),
            limits: Limits::default(),
            clock,
        }
    }

    /// Takes over the limits that the configuration has: at the start and after each change of it.
    pub fn follow(&self, config: &Config) {
        self.limits.follow(config);
    }

    /// Counts of what was closed begin again (CONFIG RESETSTAT).
    pub fn reset_counts(&self) {
        self.output_limit_disconnections.reset();
        self.evicted.reset();
    }

    /// The clock by which they come and go.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Clients have numbers from anywhere on, so that one of another process is most likely nobody's here.
    pub fn begin_anywhere(&self) {
        // Numbers stay exact in whatever reads them as a double.
        self.next_id.store(Prng::from_entropy().below(1 << 32) << 16, Ordering::Relaxed);
    }

    /// A number for a new client.
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Adds a client.
    pub fn add(&self, client: Arc<Client>) {
        self.by_id.lock().insert(client.id, client);
    }

    /// Takes a client out when its session ends.
    pub fn remove(&self, id: u64) {
        self.by_id.lock().remove(&id);
    }

    /// Closes a client's connection at once. Others do not see it any more, even if
    /// its session has yet to notice, and its mail is dropped. False: somebody else has closed it.
    pub fn kill(&self, client: &Client) -> bool {
        let was_there = self.by_id.lock().remove(&client.id).is_some();
        client.close_mail();
        client.signal(Signal::KILL);
        was_there
    }

    /// Wakes all sessions up to look at the state of things again.
    pub fn wake_all(&self) {
        self.all().iter().for_each(|client| client.wake());
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.by_id.lock().len()
    }

    /// One of them.
    pub fn get(&self, id: u64) -> Option<Arc<Client>> {
        self.by_id.lock().get(&id).cloned()
    }

    /// All of them, as of now.
    pub fn all(&self) -> Vec<Arc<Client>> {
        self.by_id.lock().values().cloned().collect()
    }
}
