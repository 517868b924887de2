//! What a thread of the generator counts: latencies and errors second by second, and its own processor time.
//!
//! Nothing of it is shared with other threads but figures for the progress line, and where a time line is drawn, the
//! last acknowledged write.

use super::orders::Phases;
use super::threads::ThreadTime;
use super::timeline::Timing;
use crate::latency::Interval;
use crate::results::Step;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use sys::{TickClock, Ticks};

/// What all threads of a run look at.
#[derive(Debug, Default)]
pub struct Shared {
    /// Set by whoever wants the run to end now.
    pub stop: AtomicBool,
    /// Operations that were answered well, by thread.
    pub operations: Vec<AtomicU64>,
    /// Empty intervals to be used again.
    pub spare: Mutex<Vec<Interval>>,
}

/// What a thread tells.
#[derive(Debug)]
pub enum Message {
    /// What a second of the measurement saw.
    Second(u32, Interval),
    /// It has ended.
    Done(Outcome),
}

/// How a thread ended.
#[derive(Debug)]
pub struct Outcome {
    /// Why it ended early.
    pub failure: Option<String>,
    /// When the last reply came.
    pub last_reply: Ticks,
    /// The thread's processor time from the end of the warm-up on.
    pub time: ThreadTime,
    /// Ticks from the end of the warm-up to the thread's end.
    pub elapsed: Ticks,
    /// What each step of the time line saw, if there is one.
    pub steps: Vec<Step>,
}

/// What one thread counts.
pub struct Tally {
    /// The clock of the whole run.
    pub clock: TickClock,
    /// When the last reply came.
    pub last_reply: Ticks,
    /// What all threads look at.
    pub shared: Arc<Shared>,
    /// Where the time line is kept, if there is one.
    pub timing: Option<Timing>,
    thread: usize,
    measure: Ticks,
    kinds: usize,
    messages: Sender<Message>,
    interval: Interval,
    second: u32,
    second_ends: Ticks,
    ticks_per_second: u64,
    good: u64,
    time_before: Option<ThreadTime>,
}

impl Tally {
    /// Nothing was counted.
    pub fn new(
        thread: usize,
        kinds: usize,
        phases: &Phases,
        clock: &TickClock,
        shared: &Arc<Shared>,
        messages: &Sender<Message>,
    ) -> Tally {
        let ticks_per_second = clock.ticks_in(Duration::from_secs(1));
        Tally {
            last_reply: clock.now(),
            clock: clock.clone(),
            shared: shared.clone(),
            timing: None,
            thread,
            measure: phases.measure,
            kinds,
            messages: messages.clone(),
            interval: Interval::new(kinds),
            second: 0,
            second_ends: Ticks(phases.measure.0 + ticks_per_second),
            ticks_per_second,
            good: 0,
            time_before: None,
        }
    }

    /// Whether the run is to end now.
    pub fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    /// Notices the end of the warm-up and of seconds.
    #[inline]
    pub fn keep_time(&mut self, now: Ticks) {
        if now < self.measure {
            return;
        }
        if self.time_before.is_none() {
            self.time_before = Some(ThreadTime::now());
        }
        if now >= self.second_ends {
            let past = (now.0 - self.measure.0) / self.ticks_per_second;
            self.end_second(u32::try_from(past).unwrap_or(u32::MAX));
        }
    }

    #[cold]
    fn end_second(&mut self, next: u32) {
        let spare = self.shared.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let empty = spare.unwrap_or_else(|| Interval::new(self.kinds));
        let full = std::mem::replace(&mut self.interval, empty);
        // Nobody listens any more if the run was given up; then nobody needs to know.
        let _ = self.messages.send(Message::Second(self.second, full));
        self.second = next;
        self.second_ends = Ticks(self.measure.0 + (u64::from(next) + 1) * self.ticks_per_second);
    }

    /// Counts operations that were answered well.
    #[inline]
    pub fn count(&mut self, kind: u8, start: Ticks, operations: u64, now: Ticks) {
        self.good += operations;
        self.interval.record(kind, self.clock.nanos_between(start, now), operations);
    }

    /// Counts an operation that got an error.
    pub fn count_error(&mut self, text: &[u8]) {
        self.interval.errors.add_reply(text);
    }

    /// Tells the progress line how far it is.
    #[inline]
    pub fn publish(&self) {
        self.shared.operations[self.thread].store(self.good, Ordering::Relaxed);
    }

    /// The thread ends, perhaps too early.
    pub fn finish(mut self, unsent: u64, failure: Option<String>) -> Outcome {
        let now = self.clock.now();
        if unsent > 0 {
            self.interval.errors.add("not sent: the server did not keep up with the rate", unsent);
        }
        self.end_second(self.second + 1);
        let time = ThreadTime::now().since(&self.time_before.unwrap_or_default());
        let elapsed = Ticks(now.0.saturating_sub(self.measure.0));
        let steps = self.timing.map_or_else(Vec::new, Timing::into_steps);
        Outcome { failure, last_reply: self.last_reply, time, elapsed, steps }
    }
}
