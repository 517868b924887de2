//! How workers are told that there is something to do which no client asks for (see `tick`).
//!
//! Thread rule: any thread rings; each worker listens to its own bell.

use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// The workers' bells.
pub struct Bells {
    workers: Box<[Notify]>,
    /// See [`Bells::collections`].
    collections: AtomicU64,
}

impl Bells {
    /// For so many workers.
    pub fn new(workers: usize) -> Bells {
        Bells { workers: (0..workers).map(|_| Notify::new()).collect(), collections: AtomicU64::new(0) }
    }

    /// Has a worker look around.
    pub fn ring(&self, worker: usize) {
        self.workers[worker].notify_one();
    }

    /// Has all workers look around.
    pub fn ring_all(&self) {
        (0..self.workers.len()).for_each(|worker| self.ring(worker));
    }

    /// Has all workers look around but this one.
    pub fn ring_all_but(&self, worker: usize) {
        (0..self.workers.len()).filter(|other| *other != worker).for_each(|other| self.ring(other));
    }

    /// Returns when a worker has been rung for.
    pub async fn rung(&self, worker: usize) {
        self.workers[worker].notified().await;
    }

    /// Has all workers collect what was freed of their memory.
    pub fn ring_for_collection(&self) {
        self.collections.fetch_add(1, Ordering::Relaxed);
        self.ring_all();
    }

    /// How many times all workers were to do that.
    pub fn collections(&self) -> u64 {
        self.collections.load(Ordering::Relaxed)
    }
}
