//! The other nodes of a cluster that listen here: they are told of everything that is published, for their own subscribers.

use super::Subscribers;
use net::client::Client;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Nodes that listen here, each by its session.
#[derive(Default)]
pub struct Nodes {
    /// Whether there are any; changes with them locked.
    any: AtomicBool,
    listening: Mutex<Subscribers>,
}

impl Nodes {
    /// A node listens from now on.
    pub fn join(&self, client: &Arc<Client>) {
        let mut listening = self.listening.lock();
        listening.add(client);
        self.any.store(true, Ordering::Release);
    }

    /// A node listens no more.
    pub fn leave(&self, client: &Client) {
        let mut listening = self.listening.lock();
        listening.remove(client);
        self.any.store(!listening.is_empty(), Ordering::Release);
    }

    /// Does something with them, if there are any. One load if not.
    pub(super) fn with(&self, act: impl FnOnce(&Subscribers) -> usize) {
        if self.any.load(Ordering::Acquire) {
            act(&self.listening.lock());
        }
    }
}
