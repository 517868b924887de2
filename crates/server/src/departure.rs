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
    /// Nobody can give it up any more.
    is_certain: bool,
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

    /// Begins one, unless one is under way, and tells the main thread. Gives the number of the one that is under way then.
    pub fn begin(&self, wish: Wish, until: Instant) -> u64 {
        let mut state = self.state.lock();
        if state.underway.is_none() {
            state.number += 1;
            state.underway = Some(Underway { wish, until, waiters: Vec::new(), is_certain: false });
            self.wanted.notify_one();
        }
        state.number
    }

    /// A client waits for this one. False: it is not under way any more.
    pub fn join(&self, number: u64, waiter: &Arc<Waiter>) -> bool {
        let mut state = self.state.lock();
        let is_it = state.number == number;
        let underway = state.underway.as_mut().filter(|_| is_it);
        underway.map(|underway| underway.waiters.push(waiter.clone())).is_some()
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

    /// Does something for this one while nobody can give it up: who does so then finds it done. False: it is not under way, and nothing is done.
    pub fn while_underway(&self, number: u64, work: impl FnOnce()) -> bool {
        let state = self.state.lock();
        let is_it = state.underway.is_some() && state.number == number;
        if is_it {
            work();
        }
        is_it
    }

    /// From here on nobody can give this one up. False: that has happened.
    pub fn make_certain(&self, number: u64) -> bool {
        let mut state = self.state.lock();
        let is_it = state.number == number;
        let underway = state.underway.as_mut().filter(|_| is_it);
        underway.map(|underway| underway.is_certain = true).is_some()
    }

    /// Gives up the one that is under way, if it is this, undoes what was done for it, and gives who is to be told; None: there is none that can
    /// be given up.
    pub fn give_up(&self, number: Option<u64>, undo: impl FnOnce()) -> Option<Vec<Arc<Waiter>>> {
        let mut state = self.state.lock();
        if number.is_some_and(|number| number != state.number) {
            return None;
        }
        let underway = state.underway.take_if(|underway| !underway.is_certain)?;
        undo();
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn an_end_that_is_under_way_is_the_one_that_others_ask_for() {
        let (departure, until) = (Departure::default(), Instant::now());
        let wish = Wish { nosave: true, ..Wish::default() };
        let first = departure.begin(wish, until);
        assert_eq!(departure.begin(Wish::default(), until), first);
        assert_eq!(departure.underway(), Some((first, wish, until)));
        let give_up = |number| departure.give_up(Some(number), || {}).is_some();
        assert!(give_up(first) && !give_up(first));
        let second = departure.begin(Wish::default(), until);
        assert!(!departure.is_underway(first) && departure.is_underway(second));
        assert!(!give_up(first), "it is another one that is under way");
        assert!(departure.make_certain(second) && !departure.make_certain(first));
        assert!(!give_up(second) && departure.is_underway(second));
    }

    #[test]
    fn what_is_done_for_an_end_is_undone_when_it_is_given_up_and_not_done_afterwards() {
        let (departure, is_paused) = (Departure::default(), AtomicBool::new(false));
        let number = departure.begin(Wish::default(), Instant::now());
        let set = |on: bool| is_paused.store(on, Ordering::Relaxed);
        assert!(departure.while_underway(number, || set(true)) && is_paused.load(Ordering::Relaxed));
        assert!(departure.give_up(None, || set(false)).is_some());
        assert!(!departure.while_underway(number, || set(true)) && !is_paused.load(Ordering::Relaxed));
    }
}
