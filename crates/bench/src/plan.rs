//! What shall be measured: a server, a workload, and how hard it is pushed.

use crate::work::Work;
use std::time::Duration;

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
}

impl Default for Target {
    fn default() -> Self {
        Target { host: "127.0.0.1".to_owned(), port: 6379, user: None, password: None, database: 0 }
    }
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
    /// The command line that repeats this measurement alone.
    pub command: String,
    /// Where the server is.
    pub target: Target,
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
