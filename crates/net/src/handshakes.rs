//! A worker's line of clients whose handshakes have to be gone on with. One step of one client takes as long as hundreds of
//! requests, and clients come in thousands when a network comes back: without a line those who are served already would wait for all
//! of them.
//!
//! One step is made in a turn of the worker: all tasks that are ready run, and sockets are looked at, between two of them. Whoever comes while nobody has
//! had the turn goes on at once.
//!
//! Thread rule: the worker's own.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::{Context, Waker};
use tokio::sync::Notify;

/// The line of one worker.
#[derive(Default)]
pub struct Handshakes {
    /// Somebody has had this turn.
    is_taken: Cell<bool>,
    /// Whose turn it is, by the client's number.
    called: Cell<Option<u64>>,
    line: RefCell<VecDeque<(u64, Waker)>>,
    taken: Notify,
}

impl Handshakes {
    /// Whether a client may go on now. If not, it is woken when it may; `waits` says that it stands in line.
    pub fn may_go_on(&self, client: u64, context: &Context<'_>, waits: &mut bool) -> bool {
        if self.called.get() == Some(client) {
            self.called.set(None);
            *waits = false;
            return true;
        }
        if !*waits && !self.is_taken.replace(true) {
            self.taken.notify_one();
            return true;
        }
        if !*waits {
            *waits = true;
            self.line.borrow_mut().push_back((client, context.waker().clone()));
        }
        false
    }

    /// Calls one client after the other. Runs for the life of the worker.
    pub async fn attend(&self) {
        loop {
            self.taken.notified().await;
            while self.is_taken.get() {
                // After all that is ready, and after a look at the sockets.
                tokio::task::yield_now().await;
                let next = self.line.borrow_mut().pop_front();
                self.called.set(next.as_ref().map(|(client, _)| *client));
                match next {
                    // Who has gone meanwhile leaves its turn to nobody.
                    Some((_, waker)) => waker.wake(),
                    None => self.is_taken.set(false),
                }
            }
        }
    }
}
