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
use super::orders::Orders;
use super::pace::Alarm;
use super::tally::{Outcome, Tally};
use super::{EVENTS_MAX, Lost, READ_BYTES, SLEEP_MAX};
use crate::work::Then;
use mio::{Events, Interest, Poll, Token};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use sys::Ticks;

/// A running thread.
pub struct Loader {
    connections: Vec<Connection>,
    orders: Orders,
    tally: Tally,
    poll: Poll,
    alarm: Option<Alarm>,
    /// Connections that wait for operations to be due.
    idle: VecDeque<usize>,
    /// Connections that wait for replies.
    busy: usize,
}

/// Runs a thread of the generator to its end.
pub fn run(connections: Vec<Connection>, orders: Orders, tally: Tally) -> Outcome {
    match prepare(connections, &orders) {
        Ok((poll, alarm, connections)) => {
            let idle = (0..connections.len()).collect();
            Loader { connections, orders, tally, poll, alarm, idle, busy: 0 }.run()
        }
        Err(error) => tally.finish(0, Some(format!("the generator cannot poll its connections: {error}"))),
    }
}

/// Registers connections, and in open loop an alarm, whose token is behind theirs.
fn prepare(
    mut connections: Vec<Connection>,
    orders: &Orders,
) -> io::Result<(Poll, Option<Alarm>, Vec<Connection>)> {
    let poll = Poll::new()?;
    for (at, connection) in connections.iter_mut().enumerate() {
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(connection.channel.stream(), Token(at), interest)?;
    }
    let token = Token(connections.len());
    let alarm = orders.schedule.as_ref().map(|_| Alarm::new(poll.registry(), token)).transpose()?;
    Ok((poll, alarm, connections))
}

impl Loader {
    fn run(mut self) -> Outcome {
        let failure = self.load().err().map(|lost| lost.0);
        let unsent = self.orders.unsent(self.tally.clock.now());
        self.tally.finish(unsent, failure)
    }

    fn load(&mut self) -> Result<(), Lost> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let now = self.tally.clock.now();
            self.tally.keep_time(now);
            if self.tally.is_stopped() || self.has_ended(now)? {
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
                if at == self.connections.len() {
                    continue;
                }
                if event.is_writable() {
                    self.connections[at].channel.flush()?;
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
        let waiting = || self.connections.iter().map(Connection::waiting).sum();
        self.orders.has_ended(now, self.busy > 0, &self.tally, waiting)
    }

    /// Gives operations to connections that have nothing to do.
    fn start_idle(&mut self, now: Ticks) -> Result<(), Lost> {
        for _ in 0..self.idle.len() {
            let Some(at) = self.idle.pop_front() else { break };
            self.issue(at, now);
            if self.connections[at].is_idle() {
                self.idle.push_front(at);
                break;
            }
            self.busy += 1;
            self.connections[at].channel.flush()?;
        }
        Ok(())
    }

    /// Sets the alarm for the next operation that is due, if a connection is waiting for it. Returns how long to
    /// sleep at most.
    fn set_alarm(&mut self) -> Result<Duration, Lost> {
        let Some(alarm) = self.alarm.as_ref().filter(|_| !self.idle.is_empty()) else { return Ok(SLEEP_MAX) };
        self.orders.set_alarm(alarm, &self.tally, SLEEP_MAX)
    }

    /// Appends the next operations to an idle connection.
    #[inline]
    fn issue(&mut self, at: usize, now: Ticks) {
        let connection = &mut self.connections[at];
        for _ in 0..self.orders.pipeline {
            let Some((start, is_measured)) = self.orders.take(now) else { return };
            let issued = self.orders.feed.issue(at, &mut connection.channel.out);
            connection.expect(issued, start, is_measured);
        }
    }

    /// Reads all that a connection has, accounts for it, and sends what comes next.
    #[inline]
    fn read(&mut self, at: usize, buffer: &mut [u8], is_closed: bool) -> Result<(), Lost> {
        let was_idle = self.connections[at].is_idle();
        while let Some(read) = self.connections[at].channel.read(buffer)? {
            if read == 0 {
                return Err(Lost("the server closed a connection".to_owned()));
            }
            let now = self.tally.clock.now();
            self.tally.keep_time(now);
            self.tally.last_reply = now;
            self.account(at, &buffer[..read], now)?;
            // Less than was asked for: the socket is empty, unless its end has been announced as well.
            if read < buffer.len() && !is_closed {
                break;
            }
        }
        let connection = &self.connections[at];
        if connection.is_idle() && !was_idle {
            self.issue(at, self.tally.last_reply);
            if self.connections[at].is_idle() {
                self.busy -= 1;
                self.idle.push_back(at);
            }
        }
        self.connections[at].channel.flush()?;
        Ok(())
    }

    #[inline]
    fn account(&mut self, at: usize, mut bytes: &[u8], now: Ticks) -> Result<(), Lost> {
        while !bytes.is_empty() {
            let tally = &mut self.tally;
            let on_error = |pending: &Pending, line: &[u8]| {
                if pending.is_measured {
                    tally.count_error(line);
                }
            };
            let (used, completed) = self.connections[at].absorb(bytes, on_error)?;
            bytes = &bytes[used..];
            match completed {
                Completed::Nothing => {}
                Completed::Good { pending, kind, operations } => self.count(&pending, kind, operations, now),
                Completed::Step { pending, kind, then, has_failed } => {
                    self.follow(at, &pending, kind, then, has_failed, now);
                }
            }
        }
        self.tally.publish();
        Ok(())
    }

    #[inline]
    fn count(&mut self, pending: &Pending, kind: u8, operations: u64, now: Ticks) {
        if pending.is_measured {
            self.tally.count(kind, pending.start, operations, now);
        }
    }

    /// Goes on with an operation of several steps.
    fn follow(&mut self, at: usize, pending: &Pending, kind: u8, then: Then, has_failed: bool, now: Ticks) {
        let connection = &mut self.connections[at];
        let reply = connection.take_captured();
        let has_next = !has_failed || matches!(then, Then::Inserted(_));
        let out = &mut connection.channel.out;
        let next = if has_next { self.orders.feed.follow(then, &reply, out) } else { None };
        match next {
            Some(issued) => connection.expect(issued, pending.start, pending.is_measured),
            None if has_failed => {}
            None => self.count(pending, kind, 1, now),
        }
    }
}
