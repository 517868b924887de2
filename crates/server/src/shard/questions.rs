//! What is asked of the store of decisions, until somebody sends it there.
//!
//! Thread rule: any thread asks; one takes.

use parking_lot::{Condvar, Mutex};
use replication::insync::{Request, Ticket};
use std::collections::VecDeque;
use std::time::Duration;

/// So many requests wait at the most.
const WAITING_MAX: usize = 4;

/// What is to be asked.
#[derive(Default)]
pub struct Questions {
    waiting: Mutex<VecDeque<(Ticket, Request)>>,
    changed: Condvar,
}

impl Questions {
    /// Asks.
    pub fn ask(&self, ticket: Ticket, request: Request) {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= WAITING_MAX {
            waiting.pop_front();
        }
        waiting.push_back((ticket, request));
        self.changed.notify_all();
    }

    /// The oldest, for which it is waited so long.
    pub fn take(&self, patience: Duration) -> Option<(Ticket, Request)> {
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() {
            self.changed.wait_for(&mut waiting, patience);
        }
        waiting.pop_front()
    }
}
