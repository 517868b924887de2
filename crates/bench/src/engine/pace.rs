//! When operations of an open loop are due, and waiting for it.
//!
//! The times follow from the rate alone: operation `i` of thread `t` of `n` is due `(i * n + t) / rate` after the
//! beginning, whatever the server does. A latency that counts from there shows a stall to everyone it delayed.

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;
use sys::Ticks;

/// The times at which one thread's operations are due.
#[derive(Clone, Debug)]
pub struct Schedule {
    begin: Ticks,
    /// Ticks between two operations of all threads.
    step: f64,
    thread: u64,
    threads: u64,
    next: u64,
}

impl Schedule {
    /// The schedule of `thread` of `threads`, with `step` ticks between two operations of all threads together.
    pub fn new(begin: Ticks, step: f64, thread: u32, threads: u32) -> Schedule {
        Schedule { begin, step, thread: thread.into(), threads: threads.into(), next: 0 }
    }

    /// When the next operation is due.
    pub fn due(&self) -> Ticks {
        let number = self.next * self.threads + self.thread;
        Ticks(self.begin.0 + (number as f64 * self.step) as u64)
    }

    /// Takes the next operation if it is due by `now`.
    pub fn take(&mut self, now: Ticks) -> Option<Ticks> {
        let due = self.due();
        (due <= now).then(|| {
            self.next += 1;
            due
        })
    }

    /// How many more are due before `end`.
    pub fn left_before(&self, end: Ticks) -> u64 {
        // The division below may come out a little above a whole number; what is due decides.
        if self.due() >= end {
            return 0;
        }
        let until = end.0.saturating_sub(self.begin.0) as f64 / self.step;
        let all = ((until - self.thread as f64) / self.threads as f64).ceil().max(0.0) as u64;
        all.saturating_sub(self.next)
    }
}

/// Wakes a poll at a moment more exactly than its own time limit of whole milliseconds.
#[derive(Debug)]
pub struct Alarm {
    timer: OwnedFd,
}

impl Alarm {
    /// An alarm that shows as an event with this token.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Alarm> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        registry.register(&mut SourceFd(&timer.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Alarm { timer })
    }

    /// Sets it off after `delay`, which must not be zero, in place of what it was set to before.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn set(&self, delay: Duration) -> io::Result<()> {
        let once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let seconds = i64::try_from(delay.as_secs()).unwrap_or(i64::MAX);
        let value = Timespec { tv_sec: seconds, tv_nsec: delay.subsec_nanos().into() };
        let setting = Itimerspec { it_interval: once, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &setting)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_before_the_end_once_the_next_is_due_then() {
        // Steps that are no whole number of ticks, as a processor's clock gives them.
        for ticks_per_second in [2_499_999_371u64, 2_500_000_137, 2_893_201_999] {
            let begin = Ticks(ticks_per_second * 1_000_003 / 7);
            let step = ticks_per_second as f64 / 2000.0;
            let mut schedule = Schedule::new(begin, step, 0, 1);
            let end = Ticks(begin.0 + 4 * ticks_per_second);
            while schedule.due() < end {
                assert!(schedule.left_before(end) > 0);
                assert!(schedule.take(Ticks(end.0 - 1)).is_some());
            }
            assert_eq!(schedule.left_before(end), 0);
        }
    }

    #[test]
    fn operations_are_due_at_the_rate_whatever_was_late() {
        let mut a = Schedule::new(Ticks(1000), 10.0, 0, 2);
        let mut b = Schedule::new(Ticks(1000), 10.0, 1, 2);
        assert_eq!(a.take(Ticks(999)), None);
        let due: Vec<_> = (0..4).map(|_| a.take(Ticks(5000)).unwrap().0).collect();
        assert_eq!(due, [1000, 1020, 1040, 1060]);
        assert_eq!((b.take(Ticks(5000)), b.take(Ticks(5000))), (Some(Ticks(1010)), Some(Ticks(1030))));
    }

    #[test]
    fn what_is_left_before_the_end_is_known() {
        let mut schedule = Schedule::new(Ticks(0), 10.0, 1, 2);
        // Due at 10, 30, 50, 70 and 90.
        assert_eq!(schedule.left_before(Ticks(100)), 5);
        assert_eq!(schedule.left_before(Ticks(90)), 4);
        schedule.take(Ticks(10));
        assert_eq!(schedule.left_before(Ticks(91)), 4);
        assert_eq!(schedule.left_before(Ticks(5)), 0);
    }
}
