//! What all workers share: one `Server` for the life of the process.

use crate::arrivals::Arrivals;
use crate::bells::Bells;
use crate::blocked::Blocked;
use crate::clustered::Clustered;
use crate::departure::Departure;
use crate::failover::Failover;
use crate::followed::Following;
use crate::holders::{Holders, Run};
use crate::names::Names;
use crate::pause::Pause;
use crate::replicas::{Feeding, State};
use crate::shard;
use crate::switches::Switches;
use ::log::{Lsn, Stream};
use acl::Registry;
use config::{ClientClass, Config, OomScoreAdj};
use engine::{Attention, Engine, durability};
use net::Shared;
use net::client::{Client, Traits, eviction};
use net::listen::Speech;
use notify::events::Events;
use notify::monitor::Monitors;
use notify::pubsub::PubSub;
use notify::tracking::Tracking;
use notify::watches::Watches;
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use sys::oom::Wanted;
use sys::{OomScore, Prng, Stamp, TickClock, Ticks, UnixMs};
use telemetry::latency::LatencyMonitor;
use telemetry::log;
use telemetry::samples::Samples;
use telemetry::slowlog::{self, SlowLog};
use telemetry::stats::{ServerCounts, WorkerCounts};
use tokio::sync::watch;

/// How the server is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It runs on.
    NotYet,
    /// Replies go out, then the process ends with this status.
    Stop {
        /// The exit status.
        status: u8,
        /// What becomes of scripts that have written something.
        scripts: Scripting,
    },
}

/// What becomes at the server's end of scripts that have written something. All others end at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scripting {
    /// They have time to come to their end.
    Awaited,
    /// The process ends as soon as the replies of all others are out, and nothing is kept of them.
    LeftBehind,
}

/// The server.
pub struct Server {
    /// The database.
    pub engine: Arc<Engine>,
    /// What it shares with those who move its clients' bytes.
    pub net: Shared,
    /// Who may do what.
    pub acl: Registry,
    /// What clients call commands.
    pub names: Names,
    /// Rare counts.
    pub counts: ServerCounts,
    /// Counts of commands by worker.
    pub worker_counts: Box<[WorkerCounts]>,
    /// The time of single commands.
    pub ticks: TickClock,
    /// When it started.
    pub started_at: UnixMs,
    /// Forty random hexadecimal digits that name this run.
    pub run_id: String,
    /// What the data are as a replication stream while there is no log.
    stream: Mutex<Stream>,
    /// Who follows this server.
    pub feeding: Arc<Feeding>,
    /// The pause, if there is one.
    pub pause: Pause,
    /// Commands that took long.
    pub slowlog: SlowLog,
    /// Events that took long.
    pub latency: LatencyMonitor,
    /// Sessions that monitor.
    pub monitors: Monitors,
    /// Keys that sessions watch.
    pub watches: Arc<Watches>,
    /// The master that is followed.
    pub following: Following,
    /// The shard that it is a node of, if it is of one.
    pub shard: shard::Place,
    /// Its part in a cluster, if it is a node of one.
    pub clustered: Clustered,
    /// Slots that come to it from other shards.
    pub arrivals: Arrivals,
    /// The failover by hand, if there is one.
    pub failover: Failover,
    /// Sessions that wait for keys.
    pub blocked: Blocked,
    /// Functions that run now.
    pub functions: Mutex<Vec<Arc<Run>>>,
    /// Who holds keys for long.
    pub holders: Holders,
    /// Who listens to what.
    pub pubsub: Arc<PubSub>,
    /// Which events of keys are published.
    pub events: Arc<Events>,
    /// Who caches what.
    pub tracking: Arc<Tracking>,
    /// Rates and peaks.
    pub samples: Samples,
    /// What tests have switched.
    pub switches: Switches,
    /// How willingly the kernel ends the process where memory is short.
    oom_score: OomScore,
    /// It is the main process to whoever supervises, and not one of the others that have or had the same clients.
    pub is_main: AtomicBool,
    /// Bytes in use before the first client came.
    pub startup_bytes: u64,
    /// How workers are told that there is something to do.
    pub bells: Bells,
    slow_ticks: AtomicU64,
    reply_bytes_max: AtomicUsize,
    /// The end while it waits for replicas.
    pub departure: Departure,
    /// What INFO tells of whoever has this server for its host.
    section: OnceLock<(&'static str, Section)>,
    ending: watch::Sender<Ending>,
}

/// Gives the names and values of a section of INFO.
pub type Section = Box<dyn Fn() -> Vec<(String, String)> + Send + Sync>;

impl Server {
    /// The state of a server with this database, to be run by `workers` workers, the last of which is the spare one. None of it
    /// follows the configuration yet.
    ///
    /// # Panics
    /// If the table of commands has not been told of the server's own.
    pub fn new(engine: Arc<Engine>, workers: usize) -> Server {
        let (started_at, entrants) = (engine.clock.now(), engine.entrants());
        let clustered = Clustered::of(&engine.config);
        Server {
            acl: Registry::default(),
            // The start has refused what cannot be followed.
            names: Names::of(&engine.config.renamed_commands()).unwrap_or_default(),
            net: Shared::new(workers, engine.clock.clone()),
            engine,
            counts: ServerCounts::default(),
            worker_counts: (0..entrants)
                .map(|_| WorkerCounts::new(command::table::command_count()))
                .collect(),
            ticks: TickClock::default(),
            started_at,
            run_id: random_hex(&mut Prng::from_entropy()),
            stream: Mutex::new(Stream::begin(Lsn::ZERO)),
            feeding: Arc::default(),
            pause: Pause::default(),
            slowlog: SlowLog::default(),
            latency: LatencyMonitor::default(),
            monitors: Monitors::default(),
            watches: Arc::default(),
            following: Following::default(),
            shard: shard::Place::default(),
            clustered,
            arrivals: Arrivals::default(),
            failover: Failover::default(),
            blocked: Blocked::default(),
            functions: Mutex::default(),
            holders: Holders::default(),
            pubsub: Arc::default(),
            events: Arc::default(),
            tracking: Arc::new(Tracking::new(entrants)),
            samples: Samples::default(),
            switches: Switches::default(),
            oom_score: OomScore::default(),
            is_main: AtomicBool::new(true),
            startup_bytes: sys::memory::used_bytes(),
            bells: Bells::new(workers),
            slow_ticks: AtomicU64::new(u64::MAX),
            reply_bytes_max: AtomicUsize::new(usize::MAX),
            departure: Departure::default(),
            section: OnceLock::new(),
            ending: watch::Sender::new(Ending::NotYet),
        }
    }

    /// Has INFO tell of whoever has this server for its host, in a section of this title, once for all.
    pub fn begin_section(&self, title: &'static str, section: Section) {
        let is_first = self.section.set((title, section)).is_ok();
        debug_assert!(is_first, "a host is of one");
    }

    /// Such a section, if there is one.
    pub fn section(&self) -> Option<&(&'static str, Section)> {
        self.section.get()
    }

    /// Takes over from the configuration what is looked at with every command: [`Server::slow_ticks`] and [`Server::reply_bytes_max`]; and how long
    /// the slow log may be.
    pub fn follow_bounds(&self) {
        let config = &self.engine.config;
        let slow_ticks = slowlog::threshold(config).map_or(u64::MAX, |span| self.ticks.ticks_in(span));
        self.slow_ticks.store(slow_ticks, Ordering::Relaxed);
        self.reply_bytes_max.store(longest_reply(config, eviction::limit_bytes(config)), Ordering::Relaxed);
        self.slowlog.follow(config);
    }

    /// Tells the kernel what `oom-score-adj` says of a master, or of a replica.
    ///
    /// # Errors
    /// The kernel's, which the log has.
    pub fn follow_oom_score(&self) -> io::Result<()> {
        let config = &self.engine.config;
        let [of_master, of_replica, _] = config.oom_score_adj_values();
        let score = if self.following.status().is_some() { of_replica } else { of_master };
        let wanted = match config.oom_score_adj() {
            OomScoreAdj::No => Wanted::AsItWas,
            OomScoreAdj::Yes | OomScoreAdj::Relative => Wanted::Relative(score),
            OomScoreAdj::Absolute => Wanted::Absolute(score),
        };
        let set = self.oom_score.set(wanted);
        set.inspect_err(|error| log!(Warning, "Unable to write oom_score_adj: {error}"))
    }

    /// Whether somebody is shown all commands.
    pub fn is_monitored(&self) -> bool {
        self.engine.attention().contains(Attention::MONITORS)
    }

    /// The ticks from which a command took long enough for the slow log or the latency monitor.
    #[inline]
    pub fn slow_ticks(&self) -> u64 {
        self.slow_ticks.load(Ordering::Relaxed)
    }

    /// Replies longer than this end their session while they are still being made, so that
    /// they never take much more.
    #[inline]
    pub fn reply_bytes_max(&self, client: &Client) -> usize {
        match self.reply_bytes_max.load(Ordering::Relaxed) {
            usize::MAX => usize::MAX,
            _ if client.traits().contains(Traits::NO_EVICT) => longest_reply(&self.engine.config, None),
            bytes => bytes,
        }
    }

    /// Shows the latency monitor an event that began at `began` and ends now.
    pub fn note_latency(&self, event: &'static str, began: Ticks) {
        let threshold_ms = self.engine.config.latency_monitor_threshold_ms();
        if threshold_ms > 0 {
            let ms = self.ticks.nanos_between(began, self.ticks.now()) / 1_000_000;
            self.latency.note(event, self.engine.clock.now(), ms, threshold_ms);
        }
    }

    /// Begins the end: workers stop accepting, send what they have answered, and return. Scripts that have written something come to
    /// their end.
    pub fn stop(&self, status: u8) {
        self.stop_with(status, Scripting::Awaited);
    }

    /// The same, and says what becomes of scripts that have written something.
    pub fn stop_with(&self, status: u8, scripts: Scripting) {
        self.ending.send_if_modified(|ending| {
            let first = *ending == Ending::NotYet;
            if first {
                self.engine.end();
                *ending = Ending::Stop { status, scripts };
            }
            first
        });
    }

    /// Tells when the end begins.
    pub fn ending(&self) -> watch::Receiver<Ending> {
        self.ending.subscribe()
    }

    /// What this server's data are as a replication stream: that of its log, which outlives the process, or one that has only a
    /// name.
    pub fn stream(&self) -> Stream {
        match self.engine.durability.log() {
            Some(log) => log.stream(),
            None => self.stream_without_log(&self.feeding.state.lock()),
        }
    }

    /// The same with what is known of replicas locked: until that is let go, nobody is told that another one has begun.
    pub fn stream_beside(&self, state: &State) -> Stream {
        match self.engine.durability.log() {
            Some(log) => log.stream(),
            None => self.stream_without_log(state),
        }
    }

    fn stream_without_log(&self, state: &State) -> Stream {
        let stream = self.stream_noted();
        match state.end_without_log() {
            Some(end) => {
                Stream { at: Lsn(end), offset: end, selected: state.selected_without_log(&stream), ..stream }
            }
            None => stream,
        }
    }

    /// What was noted of it without a log, which may be behind.
    pub fn stream_noted(&self) -> Stream {
        *self.stream.lock()
    }

    /// The end of the history of what was written, as far as anybody waits for it: for the disk, or for replicas.
    pub fn latest(&self) -> Stamp {
        let is_awaited = self.feeding.synced.is_wanted() || self.shard.is_on();
        match is_awaited.then(|| self.feeding.end_without_log()).flatten() {
            Some(end) if self.engine.durability.log().is_none() => Stamp(end),
            _ => durability::latest(&self.engine),
        }
    }

    /// Names it anew.
    pub fn rename_stream(&self) {
        match self.engine.durability.log() {
            Some(log) => log.rename_stream(),
            None => {
                let now = self.stream().renamed();
                *self.stream.lock() = now;
            }
        }
    }

    /// Notes what it is while there is no log.
    pub fn set_stream(&self, stream: Stream) {
        *self.stream.lock() = stream;
        self.feeding.follow_stream(stream.offset);
    }

    /// What it is, as HELLO and INFO say.
    pub fn mode(&self) -> &'static str {
        if self.clustered.is_on() { "cluster" } else { "standalone" }
    }

    /// The TCP port, or 0 without one.
    pub fn port(&self) -> u16 {
        match self.net.doors.port(Speech::Plain) {
            0 => self.net.doors.port(Speech::Tls),
            port => port,
        }
    }
}

/// The longest reply: what one client may be owed, or all of them.
fn longest_reply(config: &Config, clients_bytes_max: Option<u64>) -> usize {
    let hard = config.output_limit(ClientClass::Normal).hard_bytes;
    let least = Some(hard).filter(|bytes| *bytes > 0).into_iter().chain(clients_bytes_max).min();
    least.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX)
}

fn random_hex(prng: &mut Prng) -> String {
    (0..40).map(|_| char::from_digit(prng.below(16) as u32, 16).expect("below 16")).collect()
}
