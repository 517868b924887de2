//! Which operations a thread of the generator is to begin, and when it has begun all of them.
//!
//! In closed loop the next one is due at once, in open loop when the clock says so; either way until time or a number
//! of operations ends the run.

use super::pace::{Alarm, Schedule};
use super::tally::Tally;
use super::{Lost, SLEEP_MAX, SPIN_MAX};
use crate::plan::SILENCE_MAX;
use crate::work::Feed;
use std::time::Duration;
use sys::Ticks;

/// How long replies that are still missing at the end are waited for.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// When a run's parts begin and end.
#[derive(Clone, Copy, Debug)]
pub struct Phases {
    /// When the warm-up ends.
    pub measure: Ticks,
    /// When no more operations are issued, if time ends the run.
    pub deadline: Option<Ticks>,
}

/// What a thread is to do.
pub struct Orders {
    /// Where its requests come from.
    pub feed: Box<dyn Feed>,
    /// Requests sent before replies are waited for.
    pub pipeline: u32,
    /// When what happens.
    pub phases: Phases,
    /// Operations to measure; `u64::MAX` if time ends the run.
    pub quota: u64,
    /// In open loop, when operations are due.
    pub schedule: Option<Schedule>,
}

impl Orders {
    /// Takes the next operation if one is to begin now: from when its latency counts, and whether it counts at all.
    #[inline]
    pub fn take(&mut self, now: Ticks) -> Option<(Ticks, bool)> {
        let deadline = self.phases.deadline.unwrap_or(Ticks(u64::MAX));
        let start = match &mut self.schedule {
            None if now >= deadline => return None,
            None => now,
            Some(schedule) if schedule.due() >= deadline => return None,
            Some(schedule) => schedule.take(now)?,
        };
        let is_measured = start >= self.phases.measure;
        if is_measured {
            if self.quota == 0 {
                return None;
            }
            self.quota -= 1;
        }
        Some((start, is_measured))
    }

    /// Whether no more operations are to be issued.
    pub fn is_over(&self, now: Ticks) -> bool {
        match (self.phases.deadline, &self.schedule) {
            (None, _) => self.quota == 0,
            (Some(deadline), None) => now >= deadline,
            // What was due is still made up for.
            (Some(deadline), Some(schedule)) => now >= deadline && schedule.left_before(deadline) == 0,
        }
    }

    /// Operations that were due and were never begun.
    pub fn unsent(&self, now: Ticks) -> u64 {
        let due = self.schedule.as_ref().zip(self.phases.deadline);
        due.map_or(0, |(schedule, deadline)| schedule.left_before(deadline.min(now)))
    }

    /// Whether there is nothing more to do: all has been issued, and answered or waited for.
    pub fn has_ended(
        &self,
        now: Ticks,
        is_busy: bool,
        tally: &Tally,
        waiting: impl Fn() -> u64,
    ) -> Result<bool, Lost> {
        if !is_busy {
            return Ok(self.is_over(now));
        }
        let since = |from: Ticks| Duration::from_nanos(tally.clock.nanos_between(from, now));
        if let Some(deadline) = self.phases.deadline
            && now > deadline
            && since(deadline) > DRAIN_MAX
        {
            let seconds = DRAIN_MAX.as_secs();
            return if since(tally.last_reply) > DRAIN_MAX {
                Err(Lost(format!("{} operations had no reply {seconds} s after the end", waiting())))
            } else {
                Ok(true)
            };
        }
        if since(tally.last_reply) > SILENCE_MAX {
            return Err(Lost(format!("the server sent nothing for {} s", SILENCE_MAX.as_secs())));
        }
        Ok(false)
    }

    /// Sets the alarm for the next operation that is due. Returns how long to sleep at most, which is no longer than `patience`.
    pub fn set_alarm(&self, alarm: &Alarm, tally: &Tally, patience: Duration) -> Result<Duration, Lost> {
        match self.due_in(tally) {
            Some(wait) if wait < SPIN_MAX => return Ok(Duration::ZERO),
            Some(wait) => alarm.set(wait)?,
            None => {}
        }
        Ok(patience)
    }

    /// How long it is until the next operation is due; none in closed loop, or if it is further away than a sleep may be.
    fn due_in(&self, tally: &Tally) -> Option<Duration> {
        let schedule = self.schedule.as_ref()?;
        let wait = Duration::from_nanos(tally.clock.nanos_between(tally.clock.now(), schedule.due()));
        (wait < SLEEP_MAX).then_some(wait)
    }
}
