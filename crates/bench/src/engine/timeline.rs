//! A run as a line over time: what each tenth of a second saw, and the longest time in which no write was acknowledged.
//!
//! Each thread has its own steps; the last acknowledged write is everybody's, under a lock that is taken once for each.

use crate::results::{Silence, Step, TimeLine};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use sys::{TickClock, Ticks};

/// The length of a step.
pub const STEP: Duration = Duration::from_millis(100);
/// Steps that are kept at most, an hour's: what comes later is in no line.
const STEPS_MAX: u64 = 36_000;

/// The longest time without an acknowledged write among those that are watched.
#[derive(Debug)]
pub struct Gap {
    /// When the last one was acknowledged.
    last: Ticks,
    /// Where the longest time began.
    from: Ticks,
    /// How long it was.
    ticks: u64,
}

impl Gap {
    /// One that counts from a moment on.
    pub fn new(begin: Ticks) -> Gap {
        Gap { last: begin, from: begin, ticks: 0 }
    }

    /// A write was acknowledged. Threads may tell of theirs a little out of order.
    pub fn end(&mut self, now: Ticks) {
        let ticks = now.0.saturating_sub(self.last.0);
        if ticks > self.ticks {
            (self.from, self.ticks) = (self.last, ticks);
        }
        self.last = self.last.max(now);
    }

    /// The longest one until now.
    pub fn longest(&self, measure: Ticks, clock: &TickClock) -> Silence {
        let ms = |ticks| clock.nanos(ticks) as f64 / 1e6;
        Silence { from_ms: ms(self.from.0.saturating_sub(measure.0)), ms: ms(self.ticks) }
    }
}

/// One thread's part of the line.
pub struct Timing {
    measure: Ticks,
    ticks_per_step: u64,
    steps: Vec<Step>,
    gap: Arc<Mutex<Gap>>,
}

impl Timing {
    /// Nothing was seen.
    pub fn new(measure: Ticks, clock: &TickClock, gap: Arc<Mutex<Gap>>) -> Timing {
        Timing { measure, ticks_per_step: ticks_per_step(clock), steps: Vec::new(), gap }
    }

    /// An operation was answered well, or, if `is_error`, not.
    pub fn see(&mut self, now: Ticks, is_error: bool, is_watched: bool, is_write: bool) {
        let number = now.0.saturating_sub(self.measure.0) / self.ticks_per_step;
        if number < STEPS_MAX {
            let number = number as usize;
            if self.steps.len() <= number {
                self.steps.resize(number + 1, Step::default());
            }
            let step = &mut self.steps[number];
            step.operations += u64::from(!is_error);
            step.errors += u64::from(is_error);
            step.watched += u64::from(!is_error && is_watched);
        }
        if !is_error && is_watched && is_write {
            self.gap.lock().unwrap_or_else(PoisonError::into_inner).end(now);
        }
    }

    /// All of them.
    pub fn into_steps(self) -> Vec<Step> {
        self.steps
    }
}

fn ticks_per_step(clock: &TickClock) -> u64 {
    clock.ticks_in(STEP).max(1)
}

/// The line of all threads, for a run that ended at `end`: all steps that are whole by then are there, also where nothing was answered.
pub fn whole<'a>(
    parts: impl Iterator<Item = &'a Vec<Step>>,
    gap: &Mutex<Gap>,
    (measure, end): (Ticks, Ticks),
    clock: &TickClock,
) -> TimeLine {
    let mut gap = gap.lock().unwrap_or_else(PoisonError::into_inner);
    gap.end(end);
    let count = (end.0.saturating_sub(measure.0) / ticks_per_step(clock)).min(STEPS_MAX);
    let mut steps: Vec<Step> = vec![Step::default(); count as usize];
    for part in parts {
        if steps.len() < part.len() {
            steps.resize(part.len(), Step::default());
        }
        for (step, seen) in steps.iter_mut().zip(part) {
            step.operations += seen.operations;
            step.errors += seen.errors;
            step.watched += seen.watched;
        }
    }
    let step_ms = u32::try_from(STEP.as_millis()).unwrap_or(u32::MAX);
    TimeLine { step_ms, steps, silence: gap.longest(measure, clock), events: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_time_without_a_write_is_found_wherever_it_is() {
        let clock = TickClock::default();
        let at = |ms: u64| Ticks(1_000_000 + clock.ticks_in(Duration::from_millis(ms)));
        let silence = |writes: &[u64], end: u64| {
            let gap = Arc::new(Mutex::new(Gap::new(at(0))));
            let mut timing = Timing::new(at(0), &clock, gap.clone());
            writes.iter().for_each(|ms| timing.see(at(*ms), false, true, true));
            // None of these is a write of those that are watched.
            timing.see(at(550), true, true, true);
            timing.see(at(560), false, false, true);
            timing.see(at(570), false, true, false);
            let line = whole([timing.into_steps()].iter(), &gap, (at(0), at(end)), &clock);
            (line.silence.from_ms.round() as u64, line.silence.ms.round() as u64, line.steps)
        };
        let (from, ms, steps) = silence(&[10, 20, 300, 310, 900, 890, 910], 1_000);
        assert_eq!((from, ms), (310, 590));
        assert_eq!(steps.len(), 10);
        let step = |operations, errors, watched| Step { operations, errors, watched };
        assert_eq!([&steps[0], &steps[3], &steps[5]], [&step(2, 0, 2), &step(2, 0, 2), &step(2, 1, 1)]);
        let (from, ms, steps) = silence(&[10, 20], 1_000);
        assert_eq!((from, ms), (20, 980), "the end ends it");
        assert_eq!(steps.len(), 10, "and that of the line");
        let (from, ms, _) = silence(&[900], 1_000);
        assert_eq!((from, ms), (0, 900), "it may begin with the measurement");
    }
}
