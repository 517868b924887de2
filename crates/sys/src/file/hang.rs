//! A disk that hangs: calls that are to change it wait until it goes on. For tests; no call of a program's own does it.
//!
//! Any thread. While nothing hangs a call costs one load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What keeps calls waiting.
#[derive(Debug, Default)]
pub(super) struct Hang {
    is_on: AtomicBool,
    /// How many calls wait.
    waiting: Mutex<usize>,
    /// One more waits, or all may go on.
    changed: Condvar,
}

impl Hang {
    pub(super) const fn new() -> Hang {
        Hang { is_on: AtomicBool::new(false), waiting: Mutex::new(0), changed: Condvar::new() }
    }

    /// Keeps calls waiting from now on, or lets all go on.
    pub(super) fn set(&self, on: bool) {
        let _waiting = self.waiting();
        self.is_on.store(on, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Called before a change.
    #[inline]
    pub(super) fn pass(&self) {
        if self.is_on.load(Ordering::Relaxed) {
            self.wait();
        }
    }

    /// Waits until a call waits.
    pub(super) fn wait_for_one(&self) {
        let _waiting = self.changed.wait_while(self.waiting(), |waiting| *waiting == 0);
    }

    #[cold]
    fn wait(&self) {
        let mut waiting = self.waiting();
        *waiting += 1;
        self.changed.notify_all();
        while self.is_on.load(Ordering::Relaxed) {
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        *waiting -= 1;
    }

    fn waiting(&self) -> MutexGuard<'_, usize> {
        // A test that panicked with the lock is over anyway.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
