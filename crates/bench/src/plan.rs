//! What shall be measured: a server, a workload, and how hard it is pushed.

use crate::Failure;
use crate::secure::Tls;
use crate::work::Work;
use std::fmt;
use std::time::Duration;

/// A server that sends nothing for so long counts as hanging.
pub const SILENCE_MAX: Duration = Duration::from_secs(60);
/// More connections than one machine opens to one address.
const CONNECTIONS_MAX: u32 = 60_000;
/// Threads beyond this many only get in each other's way.
const THREADS_MAX: u32 = 256;
/// Requests that a connection sends at once at most.
const PIPELINE_MAX: u32 = 100_000;
/// The largest value that the protocol knows.
const VALUE_BYTES_MAX: u64 = 512 << 20;

/// Where the server is and who we are to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// For AUTH; none is the default user.
    pub user: Option<String>,
    /// For AUTH, if there is one.
    pub password: Option<String>,
    /// For SELECT.
    pub database: u32,
    /// For TLS, if that is spoken.
    pub tls: Option<Tls>,
}

impl Default for Target {
    fn default() -> Self {
        Target {
            host: "127.0.0.1".to_owned(),
            port: 6379,
            user: None,
            password: None,
            database: 0,
            tls: None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A cluster whose nodes are spoken to directly: each request goes to the master of its key's slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Direct {
    /// Slots, by the first and the last of each range, of which a time line tells by itself; none: there is no time line.
    pub watched: Option<Vec<(u16, u16)>>,
}

/// Proxies that a load goes through: each has as many of its connections as the others, or one fewer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Through {
    /// The proxies.
    pub proxies: Vec<Door>,
    /// The servers behind them, to see what they use.
    pub servers: Vec<Target>,
}

/// A proxy of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Door {
    /// Where it is.
    pub target: Target,
    /// Its process.
    pub process: u32,
}

/// When a run is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    /// After this many operations over all threads.
    Operations(u64),
    /// After this much time.
    After(Duration),
}

/// One measurement to be made.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the server is called in tables; its address if nobody has a better name.
    pub server: String,
    /// The command line that repeats this measurement alone, if it is not [`crate::command_line`]'s.
    pub command: Option<String>,
    /// Where the server is.
    pub target: Target,
    /// If it is a node of a cluster whose nodes are all spoken to: how.
    pub direct: Option<Direct>,
    /// If the load goes through proxies, of which the target is one: which.
    pub through: Option<Through>,
    /// Connections over all threads, at least one for each thread.
    pub connections: u32,
    /// Threads of the generator, at least 1.
    pub threads: u32,
    /// Requests that a connection sends before it waits for their replies, at least 1.
    pub pipeline: u32,
    /// When it is over.
    pub end: End,
    /// Time before measuring begins, with the same load.
    pub warm_up: Duration,
    /// Operations per second over all threads, sent by the clock whether or not the server keeps up
    /// (open loop). None: as fast as replies come in (closed loop).
    pub rate: Option<f64>,
    /// The same seed gives the same operations in each thread.
    pub seed: u64,
    /// What is asked of the server.
    pub work: Work,
}

impl Plan {
    /// A closed loop of one connection on one thread for a million operations; to be adjusted.
    pub fn new(server: &str, target: Target, work: Work) -> Plan {
        Plan {
            server: server.to_owned(),
            command: None,
            target,
            direct: None,
            through: None,
            connections: 1,
            threads: 1,
            pipeline: 1,
            end: End::Operations(1_000_000),
            warm_up: Duration::ZERO,
            rate: None,
            seed: 1,
            work,
        }
    }

    /// Finds what cannot be run.
    ///
    /// # Errors
    /// One sentence about the first number that is out of its range.
    pub fn check(&self) -> Result<(), Failure> {
        let within = |what: &str, value: u32, max: u32| {
            let is_within = (1..=max).contains(&value);
            if is_within { Ok(()) } else { Err(Failure(format!("{what} must be between 1 and {max}"))) }
        };
        within("the number of threads", self.threads, THREADS_MAX)?;
        within("the number of connections", self.connections, CONNECTIONS_MAX)?;
        within("the pipeline", self.pipeline, PIPELINE_MAX)?;
        let refuse = |sentence: &str| Err(Failure(sentence.to_owned()));
        if self.threads > self.connections {
            return refuse("there must be at least one connection for each thread");
        }
        match self.end {
            End::Operations(0) => return refuse("at least one operation is needed"),
            End::After(time) if time < Duration::from_millis(100) => {
                return refuse("a run takes at least 0.1 seconds");
            }
            _ => {}
        }
        if self.rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
            return refuse("the rate must be above 0");
        }
        if self.direct.is_some() && self.work.spans_slots() {
            return refuse("mset has keys of several slots, which no master of a cluster takes together");
        }
        if self.through.as_ref().is_some_and(|through| self.direct.is_some() || through.proxies.is_empty()) {
            return refuse(
                "a load goes to the nodes of a cluster or through proxies, of which there is one at least",
            );
        }
        if self.work.records() == Some(0) {
            return refuse("at least one record is needed");
        }
        if self.work.value_bytes() > VALUE_BYTES_MAX {
            return refuse("values are at most 512 MB");
        }
        Ok(())
    }
}

/// How a run is going.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Time since measuring began; none during the warm-up.
    pub measured: Option<Duration>,
    /// Operations that were answered so far.
    pub operations: u64,
    /// Errors so far.
    pub errors: u64,
    /// Operations per second over the last moment.
    pub rate: f64,
    /// Estimated time to the end.
    pub left: Option<Duration>,
}

/// Told how a run is going, and asked whether it shall go on. Called about four times a second by the
/// thread that called [`crate::run`].
pub trait Observer {
    /// A moment has passed.
    fn progress(&mut self, progress: &Progress);

    /// Whether to stop now and keep what was measured so far.
    fn wants_to_stop(&self) -> bool {
        false
    }
}

/// An observer that does not look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn progress(&mut self, _progress: &Progress) {}
}
