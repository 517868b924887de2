//! Where the threads of a recovery meet: before one of them does something alone, and after.
//!
//! Invariant: whoever fails is the reason why the others give up, and its error is the one that is told.

use super::apply::Refusal;
use parking_lot::{Condvar, Mutex};
use std::io;

/// A meeting place of so many threads.
pub struct Crossing {
    threads: usize,
    state: Mutex<Meeting>,
    changed: Condvar,
}

#[derive(Default)]
struct Meeting {
    arrived: usize,
    /// Counts meetings.
    number: u64,
    is_given_up: bool,
    /// Why, until it is asked for.
    cause: Option<io::Error>,
}

impl Crossing {
    pub fn new(threads: usize) -> Crossing {
        Crossing { threads, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits for all, then thread 0 works while the others wait. False: somebody has given up.
    pub fn cross(&self, thread: usize, work: impl FnOnce() -> Result<(), Refusal>) -> Result<bool, Refusal> {
        if !self.meet() {
            return Ok(false);
        }
        // Whoever fails here gives up with its error.
        if thread == 0 {
            work()?;
        }
        Ok(self.meet())
    }

    fn meet(&self) -> bool {
        let mut state = self.state.lock();
        let number = state.number;
        state.arrived += 1;
        if state.arrived == self.threads {
            state.arrived = 0;
            state.number += 1;
            self.changed.notify_all();
        }
        while state.number == number && !state.is_given_up {
            self.changed.wait(&mut state);
        }
        !state.is_given_up
    }

    /// Lets nobody wait any more. The first error is the cause; gives what stands for it in its thread.
    pub fn give_up(&self, error: io::Error) -> io::Error {
        let mut state = self.state.lock();
        state.is_given_up = true;
        state.cause.get_or_insert(error);
        self.changed.notify_all();
        io::Error::other("the replay was given up")
    }

    /// Why it was given up, if it was.
    pub fn cause(&self) -> Option<io::Error> {
        self.state.lock().cause.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_told_whichever_thread_it_is_in() {
        for failing in 0..3 {
            let crossing = Crossing::new(3);
            let run = |thread: usize| {
                if thread == failing {
                    return Err(crossing.give_up(io::Error::other("the cause")));
                }
                match crossing.cross(thread, || Ok(())) {
                    Ok(true) => Ok(()),
                    _ => Err(crossing.give_up(io::Error::other("given up"))),
                }
            };
            std::thread::scope(|scope| {
                let run = &run;
                let threads: Vec<_> = (0..3).map(|thread| scope.spawn(move || run(thread))).collect();
                assert!(threads.into_iter().all(|thread| thread.join().unwrap().is_err()));
            });
            assert_eq!(crossing.cause().unwrap().to_string(), "the cause");
        }
    }
}
