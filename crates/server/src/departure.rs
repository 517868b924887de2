//! The server's end while it waits for replicas: until when, what was asked for, and who is told if it comes to nothing. Who acts on it is
//! above (`commands::shutdown`, `start`).
//!
//! Thread rule: one lock, held for a moment; the main thread is told that there is something to do.

use crate::blocked::Waiter;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// What an end was asked for with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Nothing is saved.
    pub nosave: bool,
    /// Whatever save points there are, it is saved.
    pub save: bool,
    /// No replica is waited for.
    pub now: bool,
    /// What cannot be saved does not keep the server.
    pub force: bool,
}

/// An end that is under way.
pub struct Underway {
    /// What was asked for.
    pub wish: Wish,
    /// Until when replicas are waited for.
    pub until: Instant,
    /// Clients that have asked for it.
    waiters: Vec<Arc<Waiter>>,
}

#[derive(Default)]
struct State {
    underway: Option<Underway>,
    /// Counts ends that were begun.
    number: u64,
}

/// The server's end.
#[derive(Default)]
pub struct Departure {
    state: Mutex<State>,
    changed: Condvar,
    wanted: Notify,
}

impl Departure {
    /// Whether an end is under way.
    pub fn is_waiting(&self) -> bool {
        self.state.lock().underway.is_some()
    }

    /// For how much longer replicas are waited for; None: no end is under way.
    pub fn left_ms(&self) -> Option<u64> {
        let state = self.state.lock();
        let left = state.underway.as_ref()?.until.saturating_duration_since(Instant::now());
        u64::try_from(left.as_millis()).ok()
    }

    /// Begins one, and tells the main thread.
    pub fn begin(&self, wish: Wish, until: Instant) {
        let mut state = self.state.lock();
        state.number += 1;
        state.underway = Some(Underway { wish, until, waiters: Vec::new() });
        self.wanted.notify_one();
    }

    /// A client waits for it. False: it is not under way any more.
    pub fn join(&self, waiter: &Arc<Waiter>) -> bool {
        let mut state = self.state.lock();
        state.underway.as_mut().map(|underway| underway.waiters.push(waiter.clone())).is_some()
    }

    /// The one that is under way, by number; None: there is none.
    pub fn underway(&self) -> Option<(u64, Wish, Instant)> {
        let state = self.state.lock();
        state.underway.as_ref().map(|underway| (state.number, underway.wish, underway.until))
    }

    /// Whether this one is still under way.
    pub fn is_underway(&self, number: u64) -> bool {
        self.underway().is_some_and(|(newest, ..)| newest == number)
    }

    /// Gives up the one that is under way, if it is this, and gives who is to be told; None: there is none.
    pub fn give_up(&self, number: Option<u64>) -> Option<Vec<Arc<Waiter>>> {
        let mut state = self.state.lock();
        if number.is_some_and(|number| number != state.number) {
            return None;
        }
        let underway = state.underway.take()?;
        self.changed.notify_all();
        Some(underway.waiters)
    }

    /// Waits, but not beyond the end of this one's being under way.
    pub fn rest(&self, number: u64, time: Duration) {
        let mut state = self.state.lock();
        if state.underway.is_some() && state.number == number {
            self.changed.wait_for(&mut state, time);
        }
    }

    /// Returns when one was begun.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }
}
