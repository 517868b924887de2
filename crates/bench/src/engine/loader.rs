//! One thread of the generator: an edge-triggered loop over its connections.
//!
//! Each wake-up reads what a connection has, accounts for it, and writes the next requests at once; so a request
//! costs one read, one write and a share of a poll. Nothing is shared with the other threads but the word to stop
//! and figures for the progress line.
//!
//! Invariants:
//! 1. In closed loop a connection without pending requests gets new ones at once, until the end. In open loop it gets
//!    those that are due, or waits in `idle`.
//! 2. An operation counts if its start, which in open loop is the moment it was due, lies within the measurement.

use super::connection::{Completed, Connection, Pending};
use super::pace::{Alarm, Schedule};
use super::threads::ThreadTime;
use crate::latency::Interval;
use crate::plan::SILENCE_MAX;
use crate::replies::Malformed;
use crate::work::{Feed, Then};
use mio::{Events, Interest, Poll, Token};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use sys::{TickClock, Ticks};

/// Bytes that one read takes at most.
const READ_BYTES: usize = 64 * 1024;
/// Longest sleep, so that the word to stop is heard.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// Below this, waiting for the next operation that is due is not worth an alarm.
const SPIN_MAX: Duration = Duration::from_micros(10);
/// Events taken from one poll.
const EVENTS_MAX: usize = 1024;
/// How long replies that are still missing at the end are waited for.
const DRAIN_MAX: Duration = Duration::from_secs(5);

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

/// When a run's parts begin and end.
#[derive(Clone, Copy, Debug)]
pub struct Phases {
    /// When the warm-up ends.
    pub measure: Ticks,
    /// When no more operations are issued, if time ends the run.
    pub deadline: Option<Ticks>,
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
}

/// What a thread is made from.
pub struct Parts {
    /// Its number.
    pub thread: usize,
    /// Its connections.
    pub connections: Vec<Connection>,
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
    /// How many kinds of operations there are.
    pub kinds: usize,
    /// The clock of the whole run.
    pub clock: TickClock,
    /// What all threads look at.
    pub shared: Arc<Shared>,
    /// Where it tells.
    pub messages: Sender<Message>,
}

/// A running thread.
pub struct Loader {
    parts: Parts,
    poll: Poll,
    alarm: Option<Alarm>,
    interval: Interval,
    second: u32,
    second_ends: Ticks,
    ticks_per_second: u64,
    /// Connections that wait for operations to be due.
    idle: VecDeque<usize>,
    /// Connections that wait for replies.
    busy: usize,
    good: u64,
    last_reply: Ticks,
    time_before: Option<ThreadTime>,
}

/// Why a connection cannot go on.
struct Lost(String);

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Lost {
        Lost(format!("a connection was lost: {error}"))
    }
}

impl From<Malformed> for Lost {
    fn from(_: Malformed) -> Lost {
        Lost("what the server sent is no reply of the Redis protocol".to_owned())
    }
}

/// Runs a thread of the generator to its end and tells how it ended.
pub fn run(parts: Parts) {
    let messages = parts.messages.clone();
    let clock = parts.clock.clone();
    let shared = parts.shared.clone();
    let outcome = Loader::new(parts).map(Loader::run).unwrap_or_else(|error| Outcome {
        failure: Some(format!("the generator cannot poll its connections: {error}")),
        last_reply: clock.now(),
        time: ThreadTime::default(),
        elapsed: Ticks(0),
    });
    if outcome.failure.is_some() {
        shared.stop.store(true, Ordering::Relaxed);
    }
    // Nobody listens any more if the run was given up; then nobody needs to know.
    let _ = messages.send(Message::Done(outcome));
}

impl Loader {
    fn new(mut parts: Parts) -> io::Result<Loader> {
        let poll = Poll::new()?;
        for (at, connection) in parts.connections.iter_mut().enumerate() {
            poll.registry().register(
                connection.stream(),
                Token(at),
                Interest::READABLE | Interest::WRITABLE,
            )?;
        }
        let alarm_token = Token(parts.connections.len());
        let alarm = parts.schedule.as_ref().map(|_| Alarm::new(poll.registry(), alarm_token)).transpose()?;
        let ticks_per_second = parts.clock.ticks_in(Duration::from_secs(1));
        Ok(Loader {
            interval: Interval::new(parts.kinds),
            second_ends: Ticks(parts.phases.measure.0 + ticks_per_second),
            idle: (0..parts.connections.len()).collect(),
            last_reply: parts.clock.now(),
            poll,
            alarm,
            second: 0,
            ticks_per_second,
            busy: 0,
            good: 0,
            time_before: None,
            parts,
        })
    }

    fn run(mut self) -> Outcome {
        let failure = self.load().err().map(|lost| lost.0);
        let now = self.parts.clock.now();
        let unsent = self.parts.schedule.as_ref().zip(self.parts.phases.deadline);
        let unsent = unsent.map_or(0, |(schedule, deadline)| schedule.left_before(deadline.min(now)));
        if unsent > 0 {
            self.interval.errors.add("not sent: the server did not keep up with the rate", unsent);
        }
        self.end_second(self.second + 1);
        let time = ThreadTime::now().since(&self.time_before.unwrap_or_default());
        let elapsed = Ticks(now.0.saturating_sub(self.parts.phases.measure.0));
        Outcome { failure, last_reply: self.last_reply, time, elapsed }
    }

    fn load(&mut self) -> Result<(), Lost> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let now = self.parts.clock.now();
            self.keep_time(now);
            if self.parts.shared.stop.load(Ordering::Relaxed) || self.has_ended(now)? {
                return Ok(());
            }
            self.start_idle(now)?;
            let patience = self.set_alarm()?;
            match self.poll.poll(&mut events, Some(patience)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error.into()),
                _ => {}
            }
            for event in &events {
                let Token(at) = event.token();
                if at == self.parts.connections.len() {
                    continue;
                }
                if event.is_writable() {
                    self.parts.connections[at].flush()?;
                }
                if event.is_readable() || event.is_read_closed() {
                    let is_closed = event.is_read_closed();
                    self.read(at, &mut buffer, is_closed)?;
                }
            }
        }
    }

    /// Whether there is nothing more to do.
    fn has_ended(&self, now: Ticks) -> Result<bool, Lost> {
        let is_over = self.is_over(now);
        if self.busy == 0 {
            return Ok(is_over);
        }
        let since = |from: Ticks| Duration::from_nanos(self.parts.clock.nanos_between(from, now));
        if let Some(deadline) = self.parts.phases.deadline
            && now > deadline
            && since(deadline) > DRAIN_MAX
        {
            let waiting: u64 = self.parts.connections.iter().map(Connection::waiting).sum();
            let seconds = DRAIN_MAX.as_secs();
            return if since(self.last_reply) > DRAIN_MAX {
                Err(Lost(format!("{waiting} operations had no reply {seconds} s after the end")))
            } else {
                Ok(true)
            };
        }
        if since(self.last_reply) > SILENCE_MAX {
            return Err(Lost(format!("the server sent nothing for {} s", SILENCE_MAX.as_secs())));
        }
        Ok(false)
    }

    /// Whether no more operations are to be issued.
    fn is_over(&self, now: Ticks) -> bool {
        match (self.parts.phases.deadline, &self.parts.schedule) {
            (None, _) => self.parts.quota == 0,
            (Some(deadline), None) => now >= deadline,
            // What was due is still made up for.
            (Some(deadline), Some(schedule)) => now >= deadline && schedule.left_before(deadline) == 0,
        }
    }

    /// Notices the end of the warm-up and of seconds.
    #[inline]
    fn keep_time(&mut self, now: Ticks) {
        if now < self.parts.phases.measure {
            return;
        }
        if self.time_before.is_none() {
            self.time_before = Some(ThreadTime::now());
        }
        if now >= self.second_ends {
            let past = (now.0 - self.parts.phases.measure.0) / self.ticks_per_second;
            self.end_second(u32::try_from(past).unwrap_or(u32::MAX));
        }
    }

    #[cold]
    fn end_second(&mut self, next: u32) {
        let spare = self.parts.shared.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let empty = spare.unwrap_or_else(|| Interval::new(self.parts.kinds));
        let full = std::mem::replace(&mut self.interval, empty);
        // As in `run`: without a listener nobody needs to know.
        let _ = self.parts.messages.send(Message::Second(self.second, full));
        self.second = next;
        self.second_ends = Ticks(self.parts.phases.measure.0 + (u64::from(next) + 1) * self.ticks_per_second);
    }

    /// Gives operations to connections that have nothing to do.
    fn start_idle(&mut self, now: Ticks) -> Result<(), Lost> {
        for _ in 0..self.idle.len() {
            let Some(at) = self.idle.pop_front() else { break };
            self.issue(at, now);
            if self.parts.connections[at].is_idle() {
                self.idle.push_front(at);
                break;
            }
            self.busy += 1;
            self.parts.connections[at].flush()?;
        }
        Ok(())
    }

    /// Sets the alarm for the next operation that is due, if a connection is waiting for it. Returns how long to
    /// sleep at most.
    fn set_alarm(&mut self) -> Result<Duration, Lost> {
        let (Some(schedule), Some(alarm)) = (&self.parts.schedule, &self.alarm) else { return Ok(SLEEP_MAX) };
        if self.idle.is_empty() {
            return Ok(SLEEP_MAX);
        }
        let now = self.parts.clock.now();
        let wait = Duration::from_nanos(self.parts.clock.nanos_between(now, schedule.due()));
        if wait < SPIN_MAX {
            return Ok(Duration::ZERO);
        }
        if wait < SLEEP_MAX {
            alarm.set(wait)?;
        }
        Ok(SLEEP_MAX)
    }

    /// Appends the next operations to an idle connection.
    #[inline]
    fn issue(&mut self, at: usize, now: Ticks) {
        let parts = &mut self.parts;
        let connection = &mut parts.connections[at];
        let measure = parts.phases.measure;
        let deadline = parts.phases.deadline.unwrap_or(Ticks(u64::MAX));
        for _ in 0..parts.pipeline {
            let start = match &mut parts.schedule {
                None if now >= deadline => return,
                None => now,
                Some(schedule) if schedule.due() >= deadline => return,
                Some(schedule) => match schedule.take(now) {
                    Some(due) => due,
                    None => return,
                },
            };
            let is_measured = start >= measure;
            if is_measured {
                if parts.quota == 0 {
                    return;
                }
                parts.quota -= 1;
            }
            let issued = parts.feed.issue(at, &mut connection.out);
            connection.expect(issued, start, is_measured);
        }
    }

    /// Reads all that a connection has, accounts for it, and sends what comes next.
    #[inline]
    fn read(&mut self, at: usize, buffer: &mut [u8], is_closed: bool) -> Result<(), Lost> {
        let was_idle = self.parts.connections[at].is_idle();
        while let Some(read) = self.parts.connections[at].read(buffer)? {
            if read == 0 {
                return Err(Lost("the server closed a connection".to_owned()));
            }
            let now = self.parts.clock.now();
            self.keep_time(now);
            self.last_reply = now;
            self.account(at, &buffer[..read], now)?;
            // Less than was asked for: the socket is empty, unless its end has been announced as well.
            if read < buffer.len() && !is_closed {
                break;
            }
        }
        let connection = &self.parts.connections[at];
        if connection.is_idle() && !was_idle {
            self.issue(at, self.last_reply);
            if self.parts.connections[at].is_idle() {
                self.busy -= 1;
                self.idle.push_back(at);
            }
        }
        self.parts.connections[at].flush()?;
        Ok(())
    }

    #[inline]
    fn account(&mut self, at: usize, mut bytes: &[u8], now: Ticks) -> Result<(), Lost> {
        while !bytes.is_empty() {
            let interval = &mut self.interval;
            let on_error = |pending: &Pending, line: &[u8]| {
                if pending.is_measured {
                    interval.errors.add_reply(line);
                }
            };
            let (used, completed) = self.parts.connections[at].absorb(bytes, on_error)?;
            bytes = &bytes[used..];
            match completed {
                Completed::Nothing => {}
                Completed::Good { pending, kind, operations } => self.count(&pending, kind, operations, now),
                Completed::Step { pending, kind, then, has_failed } => {
                    self.follow(at, &pending, kind, then, has_failed, now);
                }
            }
        }
        self.parts.shared.operations[self.parts.thread].store(self.good, Ordering::Relaxed);
        Ok(())
    }

    #[inline]
    fn count(&mut self, pending: &Pending, kind: u8, operations: u64, now: Ticks) {
        if pending.is_measured {
            self.good += operations;
            self.interval.record(kind, self.parts.clock.nanos_between(pending.start, now), operations);
        }
    }

    /// Goes on with an operation of several steps.
    fn follow(&mut self, at: usize, pending: &Pending, kind: u8, then: Then, has_failed: bool, now: Ticks) {
        let connection = &mut self.parts.connections[at];
        let reply = connection.take_captured();
        let has_next = !has_failed || matches!(then, Then::Inserted(_));
        let next = if has_next { self.parts.feed.follow(then, &reply, &mut connection.out) } else { None };
        match next {
            Some(issued) => connection.expect(issued, pending.start, pending.is_measured),
            None if has_failed => {}
            None => self.count(pending, kind, 1, now),
        }
    }
}
