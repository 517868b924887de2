//! The log's own threads: the flusher, which does turns while there is something to do, and one that keeps a spare segment
//! ready, so that the flusher never waits for 64 MB of zeros.
//!
//! Under `always` the flusher writes when it is nudged, not whenever something has been appended: who appends nudges when it
//! has nothing else to do, or enough has gathered, so that one sync covers what would be many. The flusher sleeps only after
//! it has said so and has looked once more for a nudge; who nudges looks whether it sleeps. One of the two sees the other.

use crate::limits::{RETRY_INTERVAL_MS, WRITE_INTERVAL_MS};
use crate::log::{Left, Shared};
use crate::{Failure, Operation, SyncPolicy};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

/// How long nothing must be appended before the log is marked as idle.
const REST_AFTER: Duration = Duration::from_millis(1000);

#[derive(Debug)]
pub(crate) struct Threads {
    flusher: JoinHandle<()>,
    preparer: JoinHandle<()>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The flusher sleeps, or is about to.
    sleeps: AtomicBool,
    /// Somebody wants what was appended to be written.
    nudged: AtomicBool,
    stop: AtomicBool,
}

impl Threads {
    /// Starts both, or none.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(shared: &Arc<Shared>) -> Result<Threads, Failure> {
        let state = Arc::new(State::default());
        let preparer = {
            let (shared, state) = (Arc::clone(shared), Arc::clone(&state));
            spawn("log-prepare", move || prepare(&shared, &state))?
        };
        let flusher = {
            let (shared, state, preparer) =
                (Arc::clone(shared), Arc::clone(&state), preparer.thread().clone());
            spawn("log-flush", move || flush(&shared, &state, &preparer))
        };
        match flusher {
            Ok(flusher) => Ok(Threads { flusher, preparer, state }),
            Err(failure) => {
                state.stop.store(true, Ordering::SeqCst);
                end(preparer);
                Err(failure)
            }
        }
    }

    #[inline]
    pub fn nudge(&self) {
        self.state.nudged.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.state.sleeps.load(Ordering::Relaxed) && self.state.sleeps.swap(false, Ordering::Relaxed) {
            self.flusher.thread().unpark();
        }
    }

    /// Waits for their ends, but for that of the calling thread: the flusher calls this when what it told an observer gave
    /// that one the last handle for a moment.
    pub fn stop(self) {
        self.state.stop.store(true, Ordering::SeqCst);
        for thread in [self.flusher, self.preparer] {
            if thread.thread().id() == thread::current().id() {
                thread.thread().unpark();
                continue;
            }
            end(thread);
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Failure> {
    let begun = thread::Builder::new().name(name.to_owned()).spawn(run);
    begun.map_err(|error| Failure::new(Operation::Prepare, Path::new(&format!("the thread {name}")), &error))
}

/// Waits for one that was told to stop.
fn end(thread: JoinHandle<()>) {
    thread.thread().unpark();
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn flush(shared: &Shared, state: &State, preparer: &Thread) {
    let mut has_rested = true;
    while !state.stop.load(Ordering::SeqCst) {
        state.nudged.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let left = shared.turn();
        if shared.directory.lacks_spares() {
            preparer.unpark();
        }
        match left {
            // Replies do not wait for these writes, so that they may gather.
            Left::After(_) if shared.policy() != SyncPolicy::Always => {
                has_rested = false;
                thread::sleep(Duration::from_millis(WRITE_INTERVAL_MS));
            }
            Left::After(ms) => thread::park_timeout(Duration::from_millis(ms)),
            Left::Nothing => {
                has_rested = sleep(shared, state, has_rested);
            }
        }
    }
}

/// Sleeps until something is appended. Gives whether the log is marked as idle.
fn sleep(shared: &Shared, state: &State, has_rested: bool) -> bool {
    state.sleeps.store(true, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    if state.nudged.load(Ordering::Acquire) || state.stop.load(Ordering::SeqCst) {
        state.sleeps.store(false, Ordering::Relaxed);
        return false;
    }
    if has_rested && !shared.has_work() {
        thread::park();
    } else {
        // Who forgets to nudge is late, not lost.
        thread::park_timeout(REST_AFTER);
    }
    let was_nudged = !state.sleeps.swap(false, Ordering::Relaxed);
    if was_nudged || shared.has_work() {
        return false;
    }
    if !has_rested {
        shared.rest();
    }
    true
}

fn prepare(shared: &Shared, state: &State) {
    while !state.stop.load(Ordering::SeqCst) {
        match shared.directory.prepare() {
            Ok(()) if !shared.directory.lacks_spares() => thread::park(),
            Ok(()) => {}
            // The flusher tells whoever must know, if it comes to need the segment.
            Err(_) => thread::park_timeout(Duration::from_millis(RETRY_INTERVAL_MS)),
        }
    }
}
