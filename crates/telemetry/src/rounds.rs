//! The rounds of the workers: a round begins when a worker has something to do, and ends when it has done all that there was.
//!
//! INFO tells of them as of the cycles of an event loop. A worker writes only its own counts, by plain loads and stores, some of them
//! once a round and none for each command; readers sum over the workers.

use std::sync::atomic::{AtomicU64, Ordering};
use sys::Ticks;

/// One worker's counts, on a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct RoundCounts {
    /// When the round began that is going on.
    began_ticks: AtomicU64,
    /// Commands run in it.
    commands: AtomicU64,
    rounds: AtomicU64,
    ticks: AtomicU64,
    log_ticks: AtomicU64,
    tick_ticks: AtomicU64,
    longest_ticks: AtomicU64,
    most_commands: AtomicU64,
}

/// What all workers together have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTotals {
    /// Rounds.
    pub rounds: u64,
    /// Ticks that they took.
    pub ticks: u64,
    /// Those of them in which what had been written was handed to the log.
    pub log_ticks: u64,
    /// Those of them in which was done what is done by itself.
    pub tick_ticks: u64,
    /// The longest of a worker.
    pub longest_ticks: u64,
    /// The most commands in one.
    pub most_commands: u64,
}

impl RoundCounts {
    /// The worker has something to do.
    #[inline]
    pub fn begin(&self, now: Ticks) {
        self.began_ticks.store(now.0, Ordering::Relaxed);
        self.commands.store(0, Ordering::Relaxed);
    }

    /// It has run so many commands.
    #[inline]
    pub fn note_commands(&self, commands: u64) {
        bump(&self.commands, commands);
    }

    /// It has done what is done by itself, for so long.
    pub fn note_tick(&self, ticks: u64) {
        bump(&self.tick_ticks, ticks);
    }

    /// It has done all that there was, and handed what was written to the log since `log_began`.
    #[inline]
    pub fn end(&self, log_began: Ticks, now: Ticks) {
        let began = self.began_ticks.load(Ordering::Relaxed);
        if began == 0 {
            // Its first thing to do is to begin.
            return;
        }
        let ticks = now.0.saturating_sub(began);
        bump(&self.rounds, 1);
        bump(&self.ticks, ticks);
        bump(&self.log_ticks, now.0.saturating_sub(log_began.0));
        raise(&self.longest_ticks, ticks);
        raise(&self.most_commands, self.commands.load(Ordering::Relaxed));
    }

    /// Begins again (CONFIG RESETSTAT). Counts of a round that ends meanwhile may survive.
    pub fn reset(&self) {
        let counts = [
            &self.rounds,
            &self.ticks,
            &self.log_ticks,
            &self.tick_ticks,
            &self.longest_ticks,
            &self.most_commands,
        ];
        counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

/// The sum over all workers.
pub fn totals(workers: &[RoundCounts]) -> RoundTotals {
    workers.iter().fold(RoundTotals::default(), |sum, worker| {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        RoundTotals {
            rounds: sum.rounds + of(&worker.rounds),
            ticks: sum.ticks + of(&worker.ticks),
            log_ticks: sum.log_ticks + of(&worker.log_ticks),
            tick_ticks: sum.tick_ticks + of(&worker.tick_ticks),
            longest_ticks: sum.longest_ticks.max(of(&worker.longest_ticks)),
            most_commands: sum.most_commands.max(of(&worker.most_commands)),
        }
    })
}

/// One writer: a plain load and store lose nothing.
#[inline]
fn bump(count: &AtomicU64, by: u64) {
    count.store(count.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

#[inline]
fn raise(most: &AtomicU64, to: u64) {
    if to > most.load(Ordering::Relaxed) {
        most.store(to, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_counted_from_when_there_is_something_to_do() {
        let workers = [RoundCounts::default(), RoundCounts::default()];
        workers[0].end(Ticks(5), Ticks(6));
        assert_eq!(totals(&workers), RoundTotals::default());
        workers[0].begin(Ticks(10));
        workers[0].note_commands(3);
        workers[0].note_commands(4);
        workers[0].note_tick(2);
        workers[0].end(Ticks(17), Ticks(20));
        workers[1].begin(Ticks(100));
        workers[1].note_commands(1);
        workers[1].end(Ticks(103), Ticks(105));
        let expected = RoundTotals {
            rounds: 2,
            ticks: 15,
            log_ticks: 5,
            tick_ticks: 2,
            longest_ticks: 10,
            most_commands: 7,
        };
        assert_eq!(totals(&workers), expected);
        workers.iter().for_each(RoundCounts::reset);
        assert_eq!(totals(&workers), RoundTotals::default());
    }
}
