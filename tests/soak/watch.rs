//! The most memory that a server ever has resident, whichever process it is just now.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use testkit::process;

const EVERY: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
struct Seen {
    /// The process that is looked at.
    pid: AtomicU32,
    most_bytes: AtomicU64,
}

/// Looks ten times a second, in a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct Watch {
    seen: Arc<Seen>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub fn new() -> Watch {
        let seen = Arc::new(Seen::default());
        let (stop, is_over) = channel();
        let shared = Arc::clone(&seen);
        let thread = std::thread::spawn(move || {
            while is_over.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                // Between two processes there is none.
                if let Ok(bytes) = process::resident_bytes(shared.pid.load(Ordering::Relaxed)) {
                    shared.most_bytes.fetch_max(bytes, Ordering::Relaxed);
                }
            }
        });
        Watch { seen, stop: Some(stop), thread: Some(thread) }
    }

    /// From now on this process is looked at.
    pub fn look_at(&self, pid: u32) {
        self.seen.pid.store(pid, Ordering::Relaxed);
    }

    pub fn most_bytes(&self) -> u64 {
        self.seen.most_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
