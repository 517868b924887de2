//! A run from its plan to its measurement: opens the connections, starts the threads, collects what they send.
//!
//! The thread that calls [`run`] measures nothing itself; it merges what the others recorded second by second, looks
//! at the server, and tells the observer.

pub mod channel;
pub mod connection;
pub mod direct;
pub mod loader;
pub mod orders;
pub mod pace;
pub mod tally;
pub mod threads;
pub mod timeline;
mod verdict;

use crate::Failure;
use crate::client::Client;
use crate::command_line::command_line;
use crate::latency::Interval;
use crate::plan::{End, Observer, Plan, Progress, Target};
use crate::results::{ErrorCount, Measurement, Second};
use crate::usage::{Probes, Usage};
use crate::work::Share;
use channel::Channel;
use connection::Connection;
use direct::Cluster;
use direct::link::Link;
use direct::map::Map;
use orders::{Orders, Phases};
use pace::Schedule;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use sys::{TickClock, Ticks};
use tally::{Message, Outcome, Shared, Tally};
use timeline::{Gap, Timing};
use wire::scan::Malformed;
use wire::{SLOTS, Value};

/// How often the observer is told and the server looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Files that a run has open besides its connections, with room to spare.
const OTHER_FILES: u64 = 1000;
/// Bytes that one read takes at most.
const READ_BYTES: usize = 64 * 1024;
/// Longest sleep of a thread, so that the word to stop is heard.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// Below this, waiting for the next operation that is due is not worth an alarm.
const SPIN_MAX: Duration = Duration::from_micros(10);
/// Events taken from one poll.
const EVENTS_MAX: usize = 1024;

/// Why a thread cannot go on.
pub struct Lost(String);

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

/// Makes one measurement. A server that dies in the middle still gives one, with
/// [`Measurement::unfinished`] saying so; of a cluster it is none that ends it.
///
/// # Errors
/// Nothing could be measured: the address is wrong, the password refused, the workload impossible.
pub fn run(plan: &Plan, observer: &mut dyn Observer) -> Result<Measurement, Failure> {
    plan.check()?;
    let mut control = Client::connect(&plan.target)?;
    let cluster = plan.direct.as_ref().map(|_| Map::ask(&mut control, &plan.target)).transpose()?;
    let connected = |targets: Vec<Target>| targets.iter().map(Client::connect).collect::<Result<_, _>>();
    let mut controls: Vec<Client> = match (&cluster, &plan.through) {
        (Some(map), _) => {
            let masters = map.masters().into_iter().map(|node| map.nodes()[node].target(&plan.target));
            connected(masters.collect())?
        }
        (None, Some(through)) => connected(through.servers.clone())?,
        (None, None) => vec![control],
    };
    if let Some(request) = plan.work.before() {
        controls.iter_mut().try_for_each(|client| make_before(client, request))?;
    }
    let proxies = plan.through.iter().flat_map(|through| &through.proxies).map(|proxy| proxy.process);
    let mut probes = Probes::new(controls, proxies);
    let shares = Share::divide(plan.threads, plan.connections, operations_asked(plan));
    let connections = match cluster {
        None => Connections::OfServer(open(plan, &shares, observer)?),
        Some(map) => {
            let clients = open_direct(plan, &shares, &map, observer)?;
            Connections::OfCluster(clients, Box::new(of_cluster(plan, map)))
        }
    };
    let mut has_begun = plan.warm_up.is_zero();
    if has_begun {
        probes.begin();
    }
    let clock = TickClock::default();
    let began = Instant::now();
    let mut run = Run::start(plan, &shares, connections, &clock)?;
    run.collect(plan, began, observer, &mut || {
        if !has_begun && began.elapsed() >= plan.warm_up {
            has_begun = true;
            probes.begin();
        }
        probes.look();
    });
    let operations = run.total.operations();
    let usage = probes.end(operations);
    Ok(run.finish(plan, &clock, usage))
}

/// Makes the request that a workload wants made once.
fn make_before(client: &mut Client, request: &[Vec<u8>]) -> Result<(), Failure> {
    let arguments: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
    if let Value::Error(line) = client.request(&arguments)? {
        let name = String::from_utf8_lossy(arguments[0]).into_owned();
        return Err(Failure(format!("{name} was refused: {}", String::from_utf8_lossy(&line))));
    }
    Ok(())
}

fn operations_asked(plan: &Plan) -> Option<u64> {
    match plan.end {
        End::Operations(operations) => Some(operations),
        End::After(_) => None,
    }
}

/// The connections of a run, by thread.
enum Connections {
    /// To one server.
    OfServer(Vec<Vec<Connection>>),
    /// To all masters of a cluster, by client.
    OfCluster(Vec<Vec<direct::client::Client>>, Box<Cluster>),
}

/// What one thread does with its orders.
type Work = Box<dyn FnOnce(Orders, Tally) -> Outcome + Send>;

impl Connections {
    fn by_thread(self) -> Vec<Work> {
        match self {
            Connections::OfServer(all) => {
                let of = |connections| -> Work {
                    Box::new(move |orders, tally| loader::run(connections, orders, tally))
                };
                all.into_iter().map(of).collect()
            }
            Connections::OfCluster(all, cluster) => {
                let of = |clients| -> Work {
                    let cluster = Cluster::clone(&cluster);
                    Box::new(move |orders, tally| direct::run(clients, cluster, orders, tally))
                };
                all.into_iter().map(of).collect()
            }
        }
    }
}

/// Opens all connections to one server, or to proxies in turn, by thread.
fn open(plan: &Plan, shares: &[Share], observer: &dyn Observer) -> Result<Vec<Vec<Connection>>, Failure> {
    raise_limit(plan, 1);
    let targets = match &plan.through {
        None => vec![&plan.target],
        Some(through) => through.proxies.iter().map(|proxy| &proxy.target).collect(),
    };
    let mut next = targets.iter().cycle();
    let mut one = || {
        let target = next.next().expect("a plan without an address is refused");
        open_one(target, observer).map(Connection::new)
    };
    shares.iter().map(|share| (0..share.connections).map(|_| one()).collect()).collect()
}

/// Opens all clients' connections to all masters, by thread.
fn open_direct(
    plan: &Plan,
    shares: &[Share],
    map: &Map,
    observer: &dyn Observer,
) -> Result<Vec<Vec<direct::client::Client>>, Failure> {
    let masters = map.masters();
    raise_limit(plan, masters.len() as u64);
    let targets: Vec<_> = map.nodes().iter().map(|node| node.target(&plan.target)).collect();
    let one = || {
        let link = |(node, target)| {
            let is_master = masters.contains(&node);
            is_master.then(|| open_one(target, observer).map(Link::new)).transpose()
        };
        let links: Result<Vec<Option<Link>>, Failure> = targets.iter().enumerate().map(link).collect();
        links.map(direct::client::Client::new)
    };
    shares.iter().map(|share| (0..share.connections).map(|_| one()).collect()).collect()
}

/// Without permission for more files, the connection that is one too many says so.
fn raise_limit(plan: &Plan, each: u64) {
    let _ = rlimit::increase_nofile_limit(u64::from(plan.connections) * each + OTHER_FILES);
}

fn open_one(target: &Target, observer: &dyn Observer) -> Result<Channel, Failure> {
    if observer.wants_to_stop() {
        return Err(Failure("stopped before anything was measured".to_owned()));
    }
    let (stream, session) = Client::connect(target)?.into_parts();
    Channel::of_connected(stream, session)
        .map_err(|error| Failure(format!("cannot use the connection to {target}: {error}")))
}

fn of_cluster(plan: &Plan, map: Map) -> Cluster {
    let ranges = plan.direct.as_ref().and_then(|direct| direct.watched.as_ref());
    let watched: Vec<bool> = ranges.map_or_else(Vec::new, |ranges| {
        let is_watched = |slot: u16| ranges.iter().any(|(first, last)| (*first..=*last).contains(&slot));
        (0..=u16::MAX).take(SLOTS).map(is_watched).collect()
    });
    Cluster {
        map,
        target: plan.target.clone(),
        watched: watched.into_boxed_slice(),
        writes: plan.work.writes(),
    }
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
    /// The longest time without a write, if a time line is drawn.
    gap: Option<Arc<Mutex<Gap>>>,
    was_stopped: bool,
}

impl Run {
    fn start(
        plan: &Plan,
        shares: &[Share],
        connections: Connections,
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
        let is_timed = plan.direct.as_ref().is_some_and(|direct| direct.watched.is_some());
        let gap = is_timed.then(|| Arc::new(Mutex::new(Gap::new(measure))));
        let mut threads = Vec::new();
        for ((share, work), feed) in shares.iter().zip(connections.by_thread()).zip(feeds) {
            let orders = Orders {
                feed,
                pipeline: plan.pipeline,
                phases,
                quota: operations_asked(plan).map_or(u64::MAX, |operations| share.part_of(operations)),
                schedule: step.map(|step| Schedule::new(begin, step, share.thread, share.threads)),
            };
            let thread = share.thread as usize;
            let mut tally = Tally::new(thread, kinds, &phases, clock, &shared, &sender);
            tally.timing = gap.clone().map(|gap| Timing::new(measure, clock, gap));
            let (stop, sender) = (shared.clone(), sender.clone());
            let name = format!("load-{}", share.thread);
            let work = move || {
                let outcome = work(orders, tally);
                if outcome.failure.is_some() {
                    stop.stop.store(true, Ordering::Relaxed);
                }
                // Nobody listens any more if the run was given up; then nobody needs to know.
                let _ = sender.send(Message::Done(outcome));
            };
            let thread = Builder::new().name(name).spawn(work).map_err(|error| {
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
            gap,
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
    fn finish(mut self, plan: &Plan, clock: &TickClock, usage: Usage) -> Measurement {
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
            verdict::limit(plan.rate, operations as f64 / seconds.max(1e-9), &threads, usage.all.as_ref());
        let error = |(text, count)| ErrorCount { text, count };
        let timeline = self.gap.as_ref().map(|gap| {
            let measure = self.phases.measure;
            let end = Ticks(measure.0 + clock.ticks_in(Duration::from_secs_f64(seconds)));
            timeline::whole(self.outcomes.iter().map(|outcome| &outcome.steps), gap, (measure, end), clock)
        });
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
            server_usage: usage.all,
            proxy_usage: usage.proxies,
            generator_cpu_us_per_operation: generator.as_secs_f64() * 1e6 / operations.max(1) as f64,
            limit,
            timeline,
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
