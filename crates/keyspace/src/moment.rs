//! The moment of a command, for whoever has to know what came before it: a counter is read when the command has its locks.
//! What somebody counts before another change of the same keys is in the reading of all that see that change.
//!
//! Thread rule: a batch belongs to a thread; the counter is anybody's.

use crate::keyspace::{Batch, Keyspace};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that is read at moments, and what it was at the last.
#[derive(Default)]
pub(crate) struct Reading {
    is_wanted: Cell<bool>,
    counter: RefCell<Option<Arc<AtomicU64>>>,
    last: Cell<Option<u64>>,
}

/// See [`Keyspace::in_the_past`].
pub struct Past<'k>(&'k Keyspace);

impl Drop for Past<'_> {
    fn drop(&mut self) {
        self.0.is_in_the_past.store(false, Ordering::Release);
    }
}

impl Keyspace {
    /// What is done from now on, until the guard is dropped, is done at the moments that are given to it, whoever has to wait for locks: what
    /// was done before is done again, and no time is up that was not then.
    pub fn in_the_past(&self) -> Past<'_> {
        self.is_in_the_past.store(true, Ordering::Release);
        Past(self)
    }
}

impl Batch<'_> {
    /// Has this counter read whenever locks are taken, until [`Batch::take_reading`].
    pub fn read_at_moment(&self, counter: Arc<AtomicU64>) {
        self.reading.is_wanted.set(true);
        self.reading.last.set(None);
        self.reading.counter.replace(Some(counter));
    }

    /// What the counter was when locks were taken last; None if none were. It is not read any more.
    pub fn take_reading(&self) -> Option<u64> {
        self.reading.is_wanted.set(false);
        self.reading.counter.take();
        self.reading.last.take()
    }

    /// Locks have just been taken.
    #[inline]
    pub(crate) fn reach_moment(&self) {
        if self.reading.is_wanted.get() {
            self.read_counter();
        }
    }

    #[cold]
    fn read_counter(&self) {
        let count = self.reading.counter.borrow().as_ref().map(|counter| counter.load(Ordering::Acquire));
        self.reading.last.set(count);
    }
}
