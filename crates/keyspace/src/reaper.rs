//! Frees large collections on a thread of its own, so that nobody waits for it.
//!
//! Thread rule: any thread hands over; one thread, started with the first, frees.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use value::collection::Collection;

/// Collections of fewer separate allocations are freed at once (Redis'
/// `LAZYFREE_THRESHOLD`).
const PIECES_MIN: usize = 64;

/// Elements from which the memory of what waits is estimated.
const SAMPLES: usize = 5;

static HANDED_OVER: OnceLock<Sender<Box<Collection>>> = OnceLock::new();
static PENDING: AtomicU64 = AtomicU64::new(0);
static PENDING_BYTES: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Estimated bytes of all that this thread has handed over.
    static HANDED_OVER_BYTES: Cell<i64> = const { Cell::new(0) };
}

/// Frees a collection, now if that takes no time to speak of.
pub(crate) fn free(collection: Box<Collection>) {
    if collection.as_ref().as_ref().pieces() < PIECES_MIN {
        return;
    }
    let bytes = bytes_of(&collection);
    PENDING.fetch_add(1, Ordering::Relaxed);
    PENDING_BYTES.fetch_add(bytes, Ordering::Relaxed);
    // Without a thread the sender gives the collection back, and it is freed here.
    if HANDED_OVER.get_or_init(start).send(collection).is_err() {
        note_freed(bytes);
    } else {
        HANDED_OVER_BYTES.set(HANDED_OVER_BYTES.get() + bytes as i64);
    }
}

/// [`sys::memory::bytes_of_this_thread`] with what it handed over as good as freed.
pub(crate) fn bytes_of_this_thread() -> i64 {
    sys::memory::bytes_of_this_thread() - HANDED_OVER_BYTES.get()
}

/// Collections that wait to be freed (INFO's `lazyfree_pending_objects`).
pub fn pending() -> u64 {
    PENDING.load(Ordering::Relaxed)
}

/// What is left of so many bytes in use when all that waits is freed: it is as good as gone.
pub fn without_pending(used_bytes: u64) -> u64 {
    used_bytes.saturating_sub(PENDING_BYTES.load(Ordering::Relaxed))
}

/// Collections that were freed in the background.
pub fn freed() -> u64 {
    FREED.load(Ordering::Relaxed)
}

/// Starts the count of [`freed`] anew.
pub fn reset_freed() {
    FREED.store(0, Ordering::Relaxed);
}

fn bytes_of(collection: &Collection) -> u64 {
    collection.as_ref().allocated_bytes(SAMPLES) as u64
}

fn note_freed(bytes: u64) {
    PENDING.fetch_sub(1, Ordering::Relaxed);
    PENDING_BYTES.fetch_sub(bytes, Ordering::Relaxed);
    FREED.fetch_add(1, Ordering::Relaxed);
}

fn start() -> Sender<Box<Collection>> {
    let (sender, receiver) = channel::<Box<Collection>>();
    let work = move || {
        sys::process::yield_to_other_threads();
        for collection in receiver {
            let bytes = bytes_of(&collection);
            drop(collection);
            note_freed(bytes);
        }
    };
    // Without a thread the receiver goes away, and senders free for themselves.
    let _ = std::thread::Builder::new().name("reaper".to_owned()).spawn(work);
    sender
}
