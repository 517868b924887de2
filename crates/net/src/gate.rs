//! Holds replies back until what they reveal is on disk.
//!
//! A session's replies carry a stamp: up to where in the history its batch has seen what was written. Those whose stamp
//! the log has not made durable wait with their connection (`connection`), which waits here. The log's flusher
//! rings a bell for each worker whose connections wait; the worker then wakes those whose turn it is.
//!
//! Thread rule: a [`Queue`] belongs to a worker. The flusher moves the gate and rings; nobody waits for a lock.
//!
//! Invariants:
//! 1. While the gate holds, it is open as far as the log is durable, and no further.
//! 2. Who queues up looks at the gate once more afterwards; who moves the gate looks for bells afterwards. One of the two
//!    sees the other.

use crate::client::Client;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use sys::Stamp;
use tokio::sync::Notify;

/// The gate, shared by all.
pub struct Gate {
    /// What is on disk.
    durable: AtomicU64,
    /// Whether replies wait for the disk.
    is_holding: AtomicBool,
    bells: Box<[Bell]>,
    /// Told whenever the log is durable further than before.
    pub committed: Notify,
}

/// A worker's bell, on a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Bell {
    is_awaited: AtomicBool,
    rung: Notify,
}

impl Gate {
    /// A gate that holds nothing back, for so many workers.
    pub fn new(workers: usize) -> Gate {
        Gate {
            durable: AtomicU64::new(0),
            is_holding: AtomicBool::new(false),
            bells: (0..workers).map(|_| Bell::default()).collect(),
            committed: Notify::new(),
        }
    }

    /// Whether replies with this stamp may go out.
    #[inline]
    pub fn is_open(&self, stamp: Stamp) -> bool {
        stamp <= self.open_to()
    }

    /// Up to where replies may go out.
    #[inline]
    pub fn open_to(&self) -> Stamp {
        match self.is_holding.load(Ordering::Acquire) {
            true => Stamp(self.durable.load(Ordering::Acquire)),
            false => Stamp::LAST,
        }
    }

    /// Notes that the log is durable up to here.
    pub fn commit(&self, durable: Stamp) {
        self.durable.fetch_max(durable.0, Ordering::AcqRel);
        self.ring();
    }

    /// Holds replies back that show what is not durable, or no longer.
    pub fn hold(&self, on: bool) {
        self.is_holding.store(on, Ordering::Release);
        self.ring();
    }

    /// Tells those who wait to look again.
    fn ring(&self) {
        fence(Ordering::SeqCst);
        for bell in &self.bells {
            if bell.is_awaited.load(Ordering::Relaxed) && bell.is_awaited.swap(false, Ordering::Relaxed) {
                bell.rung.notify_one();
            }
        }
    }
}

/// The connections of one worker that wait at the gate.
#[derive(Default)]
pub struct Queue(RefCell<BinaryHeap<Reverse<Waiting>>>);

/// One of them, in the order of stamps.
struct Waiting(Stamp, Arc<Client>);

impl Queue {
    /// Wakes a session when the gate is open for this stamp.
    pub fn wait(&self, gate: &Gate, worker: usize, stamp: Stamp, client: &Arc<Client>) {
        self.0.borrow_mut().push(Reverse(Waiting(stamp, client.clone())));
        gate.bells[worker].is_awaited.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if gate.is_open(stamp) {
            gate.bells[worker].rung.notify_one();
        }
    }

    /// Wakes sessions whenever the bell rings, for as long as the worker lives.
    pub async fn attend(&self, gate: &Gate, worker: usize) {
        loop {
            gate.bells[worker].rung.notified().await;
            let mut queue = self.0.borrow_mut();
            while let Some(Reverse(first)) = queue.peek() {
                if gate.is_open(first.0) {
                    // The gate may be closed again when the session looks: it queues up once more then.
                    first.1.set_at_gate(false);
                    first.1.wake();
                    queue.pop();
                    continue;
                }
                gate.bells[worker].is_awaited.store(true, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                if !gate.is_open(first.0) {
                    break;
                }
            }
        }
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.0 == other.0
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Wake, Waker};
    use sys::UnixMs;

    /// A session that finds the gate closed again when it is woken.
    struct Closes(Arc<Gate>);

    impl Wake for Closes {
        fn wake(self: Arc<Self>) {
            self.0.hold(true);
        }
    }

    #[test]
    fn who_is_woken_while_the_gate_is_open_for_a_moment_can_queue_up_again() {
        let gate = Arc::new(Gate::new(1));
        let client = Arc::new(Client::new(1, String::new(), String::new(), -1, (0, 0), UnixMs(0)));
        client.set_waker(&Waker::from(Arc::new(Closes(gate.clone()))));
        gate.hold(true);
        let queue = Queue::default();
        client.set_at_gate(true);
        queue.wait(&gate, 0, Stamp(5), &client);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let look = || {
            let attending = async { queue.attend(&gate, 0).await };
            runtime.block_on(async {
                tokio::select! { biased; () = attending => {}, () = tokio::task::yield_now() => {} }
            });
        };
        look();
        assert!(client.is_at_gate(), "it is not open");
        // `appendfsync` was "everysec" for a moment.
        gate.hold(false);
        look();
        assert!(!gate.is_open(Stamp(5)) && !client.is_at_gate());
        queue.wait(&gate, 0, Stamp(5), &client);
        gate.commit(Stamp(5));
        look();
        assert!(queue.0.borrow().is_empty());
    }
}
