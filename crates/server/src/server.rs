//! What all workers share: one `Server` for the life of the process.

use crate::blocking::{self, Blocked};
use crate::commands;
use crate::dispatch::names::Names;
use crate::dispatch::pause::Pause;
use crate::gate::Gate;
use crate::holders::{Holders, Run};
use crate::listen::{Doors, Speech};
use crate::placement::Placement;
use crate::session::Session;
use crate::slow;
use crate::switches::Switches;
use crate::tick::Bells;
use crate::tls::Tls;
use ::log::{Lsn, ReplicationId, Stream, SyncPolicy};
use acl::Registry;
use config::{ClientClass, Config};
use engine::Attention;
use engine::Engine;
use engine::durability;
use keyspace::{HashSeed, Interest};
use net::client::{Client, Clients, Traits, eviction};
use notify::audience::Audience;
use notify::events::Events;
use notify::monitor::Monitors;
use notify::pubsub::PubSub;
use notify::tracking::Tracking;
use notify::watches::Watches;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sys::file::Fs;
use sys::{Clock, Prng, TickClock, Ticks, UnixMs};
use telemetry::latency::LatencyMonitor;
use telemetry::samples::Samples;
use telemetry::slowlog::SlowLog;
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
    /// Holds replies back.
    pub gate: Gate,
    /// Who may do what.
    pub acl: Registry,
    /// What clients call commands.
    pub names: Names,
    /// Who is connected.
    pub clients: Arc<Clients>,
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
    replication_id: Mutex<ReplicationId>,
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
    /// Bytes in use before the first client came.
    pub startup_bytes: u64,
    /// Where it listens for TCP connections, with the port really taken.
    pub doors: Doors,
    /// What TLS connections are made from.
    pub tls: Tls,
    /// Which worker has which connections.
    pub placement: Placement,
    /// How workers are told that there is something to do.
    pub bells: Bells,
    slow_ticks: AtomicU64,
    reply_bytes_max: AtomicUsize,
    ending: watch::Sender<Ending>,
}

impl Server {
    /// A server with an empty keyspace, to be run by `workers` workers, the last of which is
    /// the spare one.
    pub fn new(config: Config, workers: usize) -> Arc<Server> {
        let seed = durability::seed_of_checkpoint(&config, &Fs::Real);
        Server::with_seed(config, workers, Clock::Real, seed.unwrap_or_else(HashSeed::from_entropy))
    }

    /// The same, by another clock, and for an empty directory.
    pub fn with_clock(config: Config, workers: usize, clock: Clock) -> Arc<Server> {
        Server::with_seed(config, workers, clock, HashSeed::from_entropy())
    }

    /// A server whose keys have their slots by this seed: that of the checkpoint that it will load, if there is one.
    pub fn with_seed(config: Config, workers: usize, clock: Clock, hash_seed: HashSeed) -> Arc<Server> {
        commands::install();
        let started_at = clock.now();
        let engine = Engine::new(config, workers, clock, hash_seed);
        let server = Server {
            acl: Registry::default(),
            // The start has refused what cannot be followed.
            names: Names::of(&engine.config.renamed_commands()).unwrap_or_default(),
            clients: Arc::new(Clients::new(engine.clock.clone())),
            engine,
            gate: Gate::new(workers),
            counts: ServerCounts::default(),
            worker_counts: (0..workers).map(|_| WorkerCounts::new(command::table::command_count())).collect(),
            ticks: TickClock::default(),
            started_at,
            run_id: random_hex(&mut Prng::from_entropy()),
            replication_id: Mutex::default(),
            pause: Pause::default(),
            slowlog: SlowLog::default(),
            latency: LatencyMonitor::default(),
            monitors: Monitors::default(),
            watches: Arc::default(),
            blocked: Blocked::default(),
            functions: Mutex::default(),
            holders: Holders::default(),
            pubsub: Arc::default(),
            events: Arc::default(),
            tracking: Arc::new(Tracking::new(workers)),
            samples: Samples::default(),
            switches: Switches::default(),
            startup_bytes: sys::memory::used_bytes(),
            doors: Doors::default(),
            tls: Tls::default(),
            placement: Placement::new(workers),
            bells: Bells::new(workers),
            slow_ticks: AtomicU64::new(u64::MAX),
            reply_bytes_max: AtomicUsize::new(usize::MAX),
            ending: watch::Sender::new(Ending::NotYet),
        };
        let server = Arc::new(server);
        server.engine.keyspace.set_observer(Box::new(server.audience()));
        server.apply_config();
        server
    }

    /// Those who are told of changes of keys.
    fn audience(&self) -> Audience {
        Audience {
            clients: self.clients.clone(),
            watches: self.watches.clone(),
            tracking: self.tracking.clone(),
            events: self.events.clone(),
            pubsub: self.pubsub.clone(),
        }
    }

    /// Hands what the configuration says on to those who do not read it themselves.
    /// Called at the start and after each change.
    pub fn apply_config(&self) {
        let config = &self.engine.config;
        self.acl.follow_requirepass(&config.requirepass());
        self.engine.follow_config(self.switches.list_plain_bytes_min());
        let needs_replicas = config.min_replicas_to_write() > 0 && config.min_replicas_max_lag_s() > 0;
        self.engine.set_attention(Attention::NO_REPLICAS, needs_replicas);
        self.clients.follow(config);
        self.reply_bytes_max.store(longest_reply(self, eviction::limit_bytes(config)), Ordering::Relaxed);
        self.slow_ticks.store(slow::threshold_ticks(self), Ordering::Relaxed);
        self.engine.keyspace.set_interest(Interest::EVENTS, self.events.follow(config));
        if let Some(sync) = durability::follow_config(&self.engine) {
            self.gate.hold(sync == SyncPolicy::Always);
        }
        self.tracking.follow(config, &self.clients);
        self.placement.look_at_load();
        telemetry::logger::set_level(config.log_level());
    }

    /// Whether somebody is shown all commands.
    pub fn is_monitored(&self) -> bool {
        self.engine.attention().contains(Attention::MONITORS)
    }

    /// The ticks from which a command is slow: see [`slow::note_if_slow`].
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
            _ if client.traits().contains(Traits::NO_EVICT) => longest_reply(self, None),
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

    /// Tells a session of nothing any more: no commands, no messages, no invalidations.
    pub fn listen_no_more(&self, session: &mut Session) {
        let client = &session.client;
        self.monitors.leave(client, |any| self.engine.set_attention(Attention::MONITORS, any));
        self.tracking.disable(&self.engine.keyspace, client, &mut session.tracking);
        self.pubsub.leave_all(client, &mut session.subscriptions);
    }

    /// Gives back what a session held in the server.
    pub fn session_ended(&self, session: &mut Session) {
        self.listen_no_more(session);
        blocking::forget(self, session.client.id);
        session.give_up_claim(self);
        session.watched.clear(&self.watches, &self.engine.keyspace, &session.client);
        self.placement.leave(session.client.worker());
    }

    /// Whether clients have to give a password.
    pub fn requires_password(&self) -> bool {
        !self.acl.is_open()
    }

    /// What this server's data are as a replication stream: that of its log, which outlives the process, or one that has only a
    /// name.
    pub fn stream(&self) -> Stream {
        match self.engine.durability.log() {
            Some(log) => log.stream(),
            None => Stream { id: *self.replication_id.lock(), ..Stream::begin(Lsn::ZERO) },
        }
    }

    /// Names it anew.
    pub fn rename_stream(&self) {
        match self.engine.durability.log() {
            Some(log) => log.rename_stream(),
            None => *self.replication_id.lock() = ReplicationId::new(),
        }
    }

    /// The TCP port, or 0 without one.
    pub fn port(&self) -> u16 {
        match self.doors.port(Speech::Plain) {
            0 => self.doors.port(Speech::Tls),
            port => port,
        }
    }
}

/// The longest reply: what one client may be owed, or all of them.
fn longest_reply(server: &Server, clients_bytes_max: Option<u64>) -> usize {
    let hard = server.engine.config.output_limit(ClientClass::Normal).hard_bytes;
    let least = Some(hard).filter(|bytes| *bytes > 0).into_iter().chain(clients_bytes_max).min();
    least.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX)
}

fn random_hex(prng: &mut Prng) -> String {
    (0..40).map(|_| char::from_digit(prng.below(16) as u32, 16).expect("below 16")).collect()
}
