//! How far a start is with loading: for INFO and for lines in the log.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use telemetry::log;

/// How often a long start tells how far it is.
const INTERVAL: Duration = Duration::from_secs(5);

/// What has been loaded, by any number of threads.
#[derive(Default)]
pub struct Loading {
    bytes: AtomicU64,
    bytes_total: AtomicU64,
    keys: AtomicU64,
    requests: AtomicU64,
    said: Mutex<Option<Instant>>,
}

impl Loading {
    /// Bytes done with, and all of them.
    pub fn progress(&self) -> (u64, u64) {
        (self.bytes.load(Ordering::Relaxed), self.bytes_total.load(Ordering::Relaxed))
    }

    /// Keys and requests so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.keys.load(Ordering::Relaxed), self.requests.load(Ordering::Relaxed))
    }

    /// Begins; so many bytes are to be loaded.
    pub fn begin(&self, bytes_total: u64) {
        self.bytes_total.store(bytes_total, Ordering::Relaxed);
        *self.said.lock() = Some(Instant::now());
    }

    /// Counts what was loaded, and says now and then how far it is.
    pub fn note(&self, bytes: u64, keys: u64, requests: u64) {
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let keys = self.keys.fetch_add(keys, Ordering::Relaxed) + keys;
        let requests = self.requests.fetch_add(requests, Ordering::Relaxed) + requests;
        let Some(mut said) = self.said.try_lock() else { return };
        if said.is_some_and(|at| at.elapsed() >= INTERVAL) {
            *said = Some(Instant::now());
            let total = self.bytes_total.load(Ordering::Relaxed).max(1);
            let percent = bytes * 100 / total;
            log!(Notice, "Loading: {percent} % of {} MB, {keys} keys, {requests} requests", total >> 20);
        }
    }
}
