//! Which worker has which connections.
//!
//! A new connection goes to the active worker with the fewest; how many are active, from the first on, follows the load
//! ([`scaling`]). A worker that runs a long script, or waits for what one holds, is occupied: its other connections move to workers
//! that are not, active or not, and come back when it is free. The last worker is the spare one: it has connections only while all
//! others are occupied, and runs no scripts, so it never is.
//!
//! Thread rule: any thread.
//!
//! Invariants:
//! 1. A connection counts at one worker, from being given to it until it is lost or given to another.

mod demand;
mod load;
pub mod scaling;

use load::Threads;
use scaling::Watch;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// The workers, as those see them who have connections to give.
pub struct Placement {
    seats: Box<[Seats]>,
    turn: AtomicU32,
    /// How many workers, from the first on, are to have connections that are busy.
    active: AtomicUsize,
    threads: Threads,
    watch: Watch,
}

#[derive(Default)]
struct Seats {
    connections: AtomicU32,
    is_occupied: AtomicBool,
}

impl Placement {
    /// For so many workers, the spare one among them. All are active.
    pub fn new(workers: usize) -> Placement {
        Placement {
            seats: (0..workers).map(|_| Seats::default()).collect(),
            turn: AtomicU32::new(0),
            active: AtomicUsize::new(workers.saturating_sub(1).max(1)),
            threads: Threads::new(workers),
            watch: Watch::default(),
        }
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.seats.len()
    }

    /// The number of the spare one, which is how many others there are.
    pub fn spare(&self) -> usize {
        self.seats.len() - 1
    }

    /// The worker to which a new connection is to come back whoever serves it meanwhile.
    pub fn home(&self) -> usize {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) as usize;
        let fewest = |index: &usize| self.seats[*index].connections.load(Ordering::Relaxed);
        let active = self.active();
        (0..active).map(|offset| (turn + offset) % active).min_by_key(fewest).unwrap_or(0)
    }

    /// How many workers, from the first on, get connections that are busy.
    pub fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Counts a connection that is given to `wanted`, or while that is occupied to the worker that is not and has the fewest; which one
    /// that is.
    pub fn seat(&self, wanted: usize) -> usize {
        let free = (0..self.spare()).filter(|index| !self.is_occupied(*index));
        let fewest = |index: &usize| self.seats[*index].connections.load(Ordering::Relaxed);
        let index = match self.is_occupied(wanted) {
            true => free.min_by_key(fewest).unwrap_or(self.spare()),
            false => wanted,
        };
        self.seats[index].connections.fetch_add(1, Ordering::Relaxed);
        index
    }

    /// A connection has left a worker.
    pub fn leave(&self, worker: usize) {
        self.seats[worker].connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a worker serves nobody at the moment.
    pub fn is_occupied(&self, worker: usize) -> bool {
        self.seats[worker].is_occupied.load(Ordering::Acquire)
    }

    /// Whether there is a worker that is not occupied, besides the spare one.
    pub fn has_free_worker(&self) -> bool {
        (0..self.spare()).any(|index| !self.is_occupied(index))
    }

    /// How many workers could run a request of a connection that is being served by this one: those that are not occupied, and its own.
    pub fn free_workers(&self, own: usize) -> usize {
        (0..self.spare()).filter(|index| *index == own || !self.is_occupied(*index)).count()
    }

    /// Whether a connection whose worker is to be `home`, and that is at another one, has a better place than that.
    pub fn may_leave(&self, worker: usize, home: usize) -> bool {
        worker != home && !self.is_occupied(home) || worker == self.spare() && self.has_free_worker()
    }

    /// Notes whether a worker serves somebody.
    pub fn set_occupied(&self, worker: usize, on: bool) {
        self.seats[worker].is_occupied.store(on, Ordering::Release);
    }

    /// How many connections there are, those counted that a worker is about to begin.
    pub fn connections(&self) -> usize {
        (0..self.workers()).map(|worker| self.connections_of(worker) as usize).sum()
    }

    /// How many connections a worker has.
    pub fn connections_of(&self, worker: usize) -> u32 {
        self.seats[worker].connections.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn come(placement: &Placement) {
        placement.seat(placement.home());
    }

    fn counts(placement: &Placement) -> Vec<u32> {
        (0..placement.workers()).map(|worker| placement.connections_of(worker)).collect()
    }

    #[test]
    fn connections_are_spread_over_all_workers_but_the_spare_one() {
        let placement = Placement::new(4);
        (0..9).for_each(|_| come(&placement));
        assert_eq!(counts(&placement), [3, 3, 3, 0]);
        placement.leave(1);
        come(&placement);
        assert_eq!(counts(&placement), [3, 3, 3, 0]);
    }

    #[test]
    fn an_occupied_worker_gets_none_and_the_spare_one_gets_them_when_all_are() {
        let placement = Placement::new(3);
        placement.set_occupied(0, true);
        (0..4).for_each(|_| come(&placement));
        assert_eq!(counts(&placement), [0, 4, 0]);
        placement.set_occupied(1, true);
        (0..2).for_each(|_| come(&placement));
        assert_eq!(counts(&placement), [0, 4, 2]);
        placement.set_occupied(0, false);
        come(&placement);
        assert_eq!(counts(&placement), [1, 4, 2]);
    }
}
