//! A run from its plan to its measurement: opens the connections, starts the threads, collects what they send.
//!
//! The thread that calls [`run`] measures nothing itself; it merges what the others recorded second by second, looks
//! at the server, and tells the observer.

pub mod connection;
pub mod loader;
pub mod pace;
pub mod threads;
mod verdict;

use crate::Failure;
use crate::client::Client;
use crate::command_line::command_line;
use crate::latency::Interval;
use crate::plan::{End, Observer, Plan, Progress};
use crate::results::{ErrorCount, Measurement, Second, ServerUsage};
use crate::usage::Probe;
use crate::work::Share;
use connection::Connection;
use loader::{Message, Outcome, Parts, Phases, Shared};
use mio::net::TcpStream;
use pace::Schedule;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use sys::{TickClock, Ticks};
use wire::Value;

/// How often the observer is told and the server looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Files that a run has open besides its connections, with room to spare.
const OTHER_FILES: u64 = 1000;

/// Makes one measurement. A server that dies in the middle still gives one, with
/// [`Measurement::unfinished`] saying so.
///
/// # Errors
/// Nothing could be measured: the address is wrong, the password refused, the workload impossible.
pub fn run(plan: &Plan, observer: &mut dyn Observer) -> Result<Measurement, Failure> {
    plan.check()?;
    let mut control = Client::connect(&plan.target)?;
    if let Some(request) = plan.work.before() {
        let arguments: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        if let Value::Error(line) = control.request(&arguments)? {
            let name = String::from_utf8_lossy(arguments[0]).into_owned();
            return Err(Failure(format!("{name} was refused: {}", String::from_utf8_lossy(&line))));
        }
    }
    let shares = Share::divide(plan.threads, plan.connections, operations_asked(plan));
    let connections = open(plan, &shares, observer)?;
    let mut probe = Probe::new(&mut control);
    let mut has_begun = plan.warm_up.is_zero();
    if has_begun {
        probe.begin(&mut control);
    }
    let clock = TickClock::default();
    let began = Instant::now();
    let mut run = Run::start(plan, &shares, connections, &clock)?;
    run.collect(plan, began, observer, &mut || {
        if !has_begun && began.elapsed() >= plan.warm_up {
            has_begun = true;
            probe.begin(&mut control);
        }
        probe.look();
    });
    let operations = run.total.operations();
    let usage = probe.end(&mut control, operations);
    Ok(run.finish(plan, &clock, usage))
}

fn operations_asked(plan: &Plan) -> Option<u64> {
    match plan.end {
        End::Operations(operations) => Some(operations),
        End::After(_) => None,
    }
}

/// Opens all connections, by thread.
fn open(plan: &Plan, shares: &[Share], observer: &dyn Observer) -> Result<Vec<Vec<Connection>>, Failure> {
    // Without permission for more, the connection that is one too many says so.
    let _ = rlimit::increase_nofile_limit(u64::from(plan.connections) + OTHER_FILES);
    let one = || {
        if observer.wants_to_stop() {
            return Err(Failure("stopped before anything was measured".to_owned()));
        }
        let (stream, session) = Client::connect(&plan.target)?.into_parts();
        let nonblocking =
            stream.set_nonblocking(true).map(|()| Connection::new(TcpStream::from_std(stream), session));
        nonblocking.map_err(|error| Failure(format!("cannot use the connection to {}: {error}", plan.target)))
    };
    shares.iter().map(|share| (0..share.connections).map(|_| one()).collect()).collect()
}

/// The threads of a run, and what they have told.
struct Run {
    shared: Arc<Shared>,
    messages: Receiver<Message>,
    threads: Vec<JoinHandle<()>>,
    phases: Phases,
    total: Interval,
    /// Seconds that not all threads have told of.
    open: BTreeMap<u32, Interval>,
    /// How many threads have told of each open second.
    told: BTreeMap<u32, usize>,
    series: Vec<Second>,
    outcomes: Vec<Outcome>,
    was_stopped: bool,
}

impl Run {
    fn start(
        plan: &Plan,
        shares: &[Share],
        connections: Vec<Vec<Connection>>,
        clock: &TickClock,
    ) -> Result<Run, Failure> {
        let kinds = plan.work.kinds().len();
        let operations = shares.iter().map(|_| AtomicU64::new(0)).collect();
        let shared = Arc::new(Shared { operations, ..Shared::default() });
        let (sender, messages) = channel();
        let feeds = plan.work.feeds(shares, plan.seed);
        let begin = clock.now();
        let measure = Ticks(begin.0 + clock.ticks_in(plan.warm_up));
        let deadline = match plan.end {
            End::After(time) => Some(Ticks(measure.0 + clock.ticks_in(time))),
            End::Operations(_) => None,
        };
        let phases = Phases { measure, deadline };
        let step = plan.rate.map(|rate| clock.ticks_in(Duration::from_secs(1)) as f64 / rate);
        let mut threads = Vec::new();
        for ((share, connections), feed) in shares.iter().zip(connections).zip(feeds) {
            let parts = Parts {
                thread: share.thread as usize,
                connections,
                feed,
                pipeline: plan.pipeline,
                phases,
                quota: operations_asked(plan).map_or(u64::MAX, |operations| share.part_of(operations)),
                schedule: step.map(|step| Schedule::new(begin, step, share.thread, share.threads)),
                kinds,
                clock: clock.clone(),
                shared: shared.clone(),
                messages: sender.clone(),
            };
            let name = format!("load-{}", share.thread);
            let thread = Builder::new().name(name).spawn(move || loader::run(parts)).map_err(|error| {
                shared.stop.store(true, Ordering::Relaxed);
                Failure(format!("cannot start a thread of the generator: {error}"))
            })?;
            threads.push(thread);
        }
        Ok(Run {
            shared,
            messages,
            threads,
            phases,
            total: Interval::new(kinds),
            open: BTreeMap::new(),
            told: BTreeMap::new(),
            series: Vec::new(),
            outcomes: Vec::new(),
            was_stopped: false,
        })
    }

    /// Takes what the threads tell until all have ended.
    fn collect(&mut self, plan: &Plan, began: Instant, observer: &mut dyn Observer, look: &mut dyn FnMut()) {
        let mut moment = Moment { at: began, operations: 0, rate: 0.0 };
        let mut next_look = began + plan.warm_up.min(LOOK_EVERY);
        while self.outcomes.len() < self.threads.len() {
            let patience = next_look.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(patience) {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    look();
                    let to_begin = plan.warm_up.saturating_sub(began.elapsed());
                    let pause = if to_begin.is_zero() { LOOK_EVERY } else { to_begin.min(LOOK_EVERY) };
                    next_look = Instant::now() + pause;
                    observer.progress(&self.progress(plan, began, &mut moment));
                    if observer.wants_to_stop() {
                        self.was_stopped = true;
                        self.shared.stop.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended the program already, or has told no outcome.
            let _ = thread.join();
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Done(outcome) => self.outcomes.push(outcome),
            Message::Second(second, interval) => self.take_second(second, interval),
        }
    }

    fn take_second(&mut self, second: u32, interval: Interval) {
        self.total.merge(&interval);
        if let Some(open) = self.open.get_mut(&second) {
            open.merge(&interval);
            self.give_back(interval);
        } else {
            self.open.insert(second, interval);
        }
        let told = self.told.entry(second).or_default();
        *told += 1;
        if *told == self.threads.len() {
            self.close_second(second);
        }
    }

    fn close_second(&mut self, second: u32) {
        self.told.remove(&second);
        if let Some(interval) = self.open.remove(&second) {
            if interval.operations() + interval.errors.total() > 0 {
                self.series.push(interval.second(second));
            }
            self.give_back(interval);
        }
    }

    fn give_back(&self, mut interval: Interval) {
        interval.clear();
        self.shared.spare.lock().unwrap_or_else(PoisonError::into_inner).push(interval);
    }

    fn progress(&self, plan: &Plan, began: Instant, moment: &mut Moment) -> Progress {
        let operations = self.shared.operations.iter().map(|cell| cell.load(Ordering::Relaxed)).sum::<u64>();
        let now = Instant::now();
        let measured = now.checked_duration_since(began + plan.warm_up);
        moment.see(now, operations);
        let left = match plan.end {
            End::After(time) => measured.map(|measured| time.saturating_sub(measured)),
            End::Operations(asked) if moment.rate > 0.0 => {
                Duration::try_from_secs_f64(asked.saturating_sub(operations) as f64 / moment.rate).ok()
            }
            End::Operations(_) => None,
        };
        Progress { measured, operations, errors: self.total.errors.total(), rate: moment.rate, left }
    }

    /// What was measured, after all threads have ended.
    fn finish(mut self, plan: &Plan, clock: &TickClock, usage: Option<ServerUsage>) -> Measurement {
        let open: Vec<u32> = self.open.keys().copied().collect();
        open.into_iter().for_each(|second| self.close_second(second));
        let unfinished = self.outcomes.iter().find_map(|outcome| outcome.failure.clone());
        let unfinished = unfinished.or_else(|| self.was_stopped.then(|| "stopped by the user".to_owned()));
        let seconds = self.seconds(clock, unfinished.is_some());
        let (kinds, all) = self.total.latencies(&plan.work.kinds());
        let generator: Duration = self.outcomes.iter().map(|outcome| outcome.time.ran).sum();
        let operations = self.total.operations();
        let threads = verdict::Threads::of(&self.outcomes, clock);
        let limit =
            verdict::limit(plan.rate, operations as f64 / seconds.max(1e-9), &threads, usage.as_ref());
        let error = |(text, count)| ErrorCount { text, count };
        Measurement {
            server: plan.server.clone(),
            workload: plan.work.name(),
            command: plan.command.clone().unwrap_or_else(|| command_line(plan)),
            connections: plan.connections,
            threads: plan.threads,
            pipeline: plan.pipeline,
            value_bytes: plan.work.value_bytes(),
            records: plan.work.records(),
            operations_asked: operations_asked(plan),
            rate_asked: plan.rate,
            seconds,
            operations,
            kinds,
            all,
            series: whole_series(self.series),
            errors: self.total.errors.sorted().into_iter().map(error).collect(),
            server_usage: usage,
            generator_cpu_us_per_operation: generator.as_secs_f64() * 1e6 / operations.max(1) as f64,
            limit,
            unfinished,
        }
    }

    /// How long was measured: to the last reply, and at least to the end that was asked for.
    fn seconds(&self, clock: &TickClock, is_unfinished: bool) -> f64 {
        let measure = self.phases.measure;
        let last = self.outcomes.iter().map(|outcome| outcome.last_reply).max().unwrap_or(measure);
        let elapsed = self.outcomes.iter().map(|outcome| outcome.elapsed).max().unwrap_or_default();
        let end = match self.phases.deadline {
            _ if is_unfinished => Ticks(measure.0 + elapsed.0),
            Some(deadline) => deadline.max(last),
            None => last,
        };
        clock.nanos_between(measure, end) as f64 / 1e9
    }
}

/// How far a run was when the observer was last told.
struct Moment {
    at: Instant,
    operations: u64,
    rate: f64,
}

impl Moment {
    /// Brings the rate up to date.
    fn see(&mut self, now: Instant, operations: u64) {
        let span = now.saturating_duration_since(self.at).as_secs_f64();
        if span > 0.05 {
            self.rate = operations.saturating_sub(self.operations) as f64 / span;
            (self.at, self.operations) = (now, operations);
        }
    }
}

/// Sorted, with the seconds in which nothing came back.
fn whole_series(series: Vec<Second>) -> Vec<Second> {
    let last = series.iter().map(|second| second.second).max();
    let mut whole: Vec<Second> =
        (0..last.map_or(0, |last| last + 1)).map(|second| Second { second, ..Second::default() }).collect();
    for second in series {
        let at = second.second as usize;
        whole[at] = second;
    }
    whole
}

#[cfg(test)]
mod tests;
