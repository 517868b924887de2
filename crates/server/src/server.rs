//! What all workers share: one `Server` for the life of the process.

use crate::blocking::{self, Blocked};
use crate::commands::{self, scripting::InterpreterBytes};
use crate::dispatch::names::Names;
use crate::dispatch::pause::Pause;
use crate::durability::{self, Durability};
use crate::holders::Holders;
use crate::listen::{Doors, Speech};
use crate::placement::Placement;
use crate::residency::Residency;
use crate::scripts::Scripts;
use crate::session::Session;
use crate::slow;
use crate::snapshot::Snapshots;
use crate::switches::Switches;
use crate::tick::Bells;
use crate::tls::Tls;
use acl::Registry;
use command::Settings;
use config::{ClientClass, Config};
use keyspace::Interest;
use keyspace::{DbIndex, Eviction, HashSeed, KeyHasher, Keyspace, Options};
use net::client::{Client, Clients, Traits, eviction};
use notify::audience::Audience;
use notify::events::Events;
use notify::monitor::Monitors;
use notify::pubsub::PubSub;
use notify::tracking::Tracking;
use notify::watches::Watches;
use parking_lot::Mutex;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use sys::file::Fs;
use sys::prng::entropy_seed;
use sys::{Clock, Prng, TickClock, Ticks, UnixMs};
use telemetry::latency::LatencyMonitor;
use telemetry::samples::Samples;
use telemetry::slowlog::SlowLog;
use telemetry::stats::{ServerCounts, WorkerCounts};
use tokio::sync::watch;
use value::collection::Thresholds;

bitflags::bitflags! {
    /// What every command has to look at before it runs. As long as none of these
    /// is set, dispatch takes its short way.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Attention: u32 {
        /// Some session monitors.
        const MONITORS = 1 << 0;
        /// A pause is on.
        const PAUSED = 1 << 1;
        /// There is a ceiling to memory.
        const MEMORY_CEILING = 1 << 2;
        /// A script, or MIGRATE, holds keys for longer than it should, or somebody has waited for such a one and has not had his turn.
        const SLOW_SCRIPT = 1 << 3;
        /// The last snapshot in the background failed.
        const SAVE_FAILED = 1 << 4;
        /// The log does not go on.
        const LOG_FAILED = 1 << 5;
        /// The disk is so far behind that no write should run for now.
        const LOG_FULL = 1 << 6;
        /// The data is being loaded.
        const LOADING = 1 << 7;
        /// Writes need replicas, and there are none.
        const NO_REPLICAS = 1 << 8;
    }
}

/// Threads that enter the keyspace and are no workers: the one that writes a checkpoint, and the spiller.
const GUESTS: usize = 3;

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
    /// What it was told.
    pub config: Config,
    /// The data.
    pub keyspace: Keyspace,
    /// What handlers of data commands are told.
    pub settings: Settings,
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
    /// The time.
    pub clock: Clock,
    /// The time of single commands.
    pub ticks: TickClock,
    /// When it started.
    pub started_at: UnixMs,
    /// By which keys have their slots.
    pub hash_seed: HashSeed,
    /// Forty random hexadecimal digits that name this run.
    pub run_id: String,
    replication_id: Mutex<String>,
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
    /// Scripts and functions.
    pub scripts: Scripts,
    /// Who holds keys for long.
    pub holders: Holders,
    /// What the interpreters hold.
    pub interpreter_bytes: InterpreterBytes,
    /// Who listens to what.
    pub pubsub: Arc<PubSub>,
    /// Which events of keys are published.
    pub events: Arc<Events>,
    /// Who caches what.
    pub tracking: Arc<Tracking>,
    /// Files of all keys.
    pub snapshots: Snapshots,
    /// The log.
    pub durability: Durability,
    /// What is not in memory.
    pub residency: Residency,
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
    attention: AtomicU32,
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
        let now = clock.now();
        let keyspace = Keyspace::new(Options {
            databases: config.databases() as u32,
            workers: workers + GUESTS,
            guests: GUESTS,
            hasher: KeyHasher::new(hash_seed),
            seed: entropy_seed(),
            now,
        });
        keyspace.set_clock(clock.clone());
        let server = Server {
            acl: Registry::default(),
            // The start has refused what cannot be followed.
            names: Names::of(&config.renamed_commands()).unwrap_or_default(),
            config,
            keyspace,
            settings: Settings::default(),
            clients: Arc::new(Clients::new(clock.clone())),
            counts: ServerCounts::default(),
            worker_counts: (0..workers).map(|_| WorkerCounts::new(command::table::command_count())).collect(),
            clock,
            ticks: TickClock::default(),
            started_at: now,
            hash_seed,
            run_id: random_hex(&mut Prng::from_entropy()),
            replication_id: Mutex::new(random_hex(&mut Prng::from_entropy())),
            pause: Pause::default(),
            slowlog: SlowLog::default(),
            latency: LatencyMonitor::default(),
            monitors: Monitors::default(),
            watches: Arc::default(),
            blocked: Blocked::default(),
            scripts: Scripts::default(),
            holders: Holders::default(),
            interpreter_bytes: InterpreterBytes::default(),
            pubsub: Arc::default(),
            events: Arc::default(),
            tracking: Arc::new(Tracking::new(workers)),
            snapshots: Snapshots::new(now),
            durability: Durability::new(workers),
            residency: Residency::default(),
            samples: Samples::default(),
            switches: Switches::default(),
            startup_bytes: sys::memory::used_bytes(),
            doors: Doors::default(),
            tls: Tls::default(),
            placement: Placement::new(workers),
            bells: Bells::new(workers),
            attention: AtomicU32::new(0),
            slow_ticks: AtomicU64::new(u64::MAX),
            reply_bytes_max: AtomicUsize::new(usize::MAX),
            ending: watch::Sender::new(Ending::NotYet),
        };
        let server = Arc::new(server);
        server.keyspace.set_observer(Box::new(server.audience()));
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
        let (config, policy) = (&self.config, self.keyspace.policy());
        self.acl.follow_requirepass(&config.requirepass());
        policy.set_memory_bytes_max(config.maxmemory());
        policy.set_eviction(
            Eviction::from_name(config.maxmemory_policy().word())
                .expect("both tables have Redis' eight policies"),
        );
        policy.set_samples(config.maxmemory_samples());
        policy.set_lfu_log_factor(config.lfu_log_factor());
        policy.set_lfu_decay_minutes(config.lfu_decay_time_min());
        self.settings.set_string_bytes_max(config.proto_max_bulk_len() as u64);
        self.settings.set_piece_bytes(config.log_piece_size());
        self.settings.set_flushes_in_background(config.lazyfree_lazy_user_flush());
        self.settings.set_thresholds(Thresholds {
            list_max_listpack_size: config.list_max_listpack_size(),
            list_plain_bytes_min: self.switches.list_plain_bytes_min(),
            hash_max_listpack_entries: config.hash_max_listpack_entries(),
            hash_max_listpack_value: config.hash_max_listpack_value(),
            set_max_intset_entries: config.set_max_intset_entries(),
            set_max_listpack_entries: config.set_max_listpack_entries(),
            set_max_listpack_value: config.set_max_listpack_value(),
            zset_max_listpack_entries: config.zset_max_listpack_entries(),
            zset_max_listpack_value: config.zset_max_listpack_value(),
            stream_node_max_bytes: config.stream_node_max_bytes(),
            stream_node_max_entries: config.stream_node_max_entries(),
            hll_sparse_max_bytes: config.hll_sparse_max_bytes(),
        });
        self.set_attention(Attention::MEMORY_CEILING, config.maxmemory() > 0);
        let needs_replicas = config.min_replicas_to_write() > 0 && config.min_replicas_max_lag_s() > 0;
        self.set_attention(Attention::NO_REPLICAS, needs_replicas);
        self.clients.follow(config);
        self.durability.log().inspect(|log| durability::limit_buffer(self, log));
        self.reply_bytes_max.store(longest_reply(self, eviction::limit_bytes(config)), Ordering::Relaxed);
        self.slow_ticks.store(slow::threshold_ticks(self), Ordering::Relaxed);
        self.keyspace.set_interest(Interest::EVENTS, self.events.follow(config));
        durability::apply_config(self);
        self.tracking.follow(config, &self.clients);
        self.placement.look_at_load();
        telemetry::logger::set_level(config.log_level());
    }

    /// What commands have to look at.
    #[inline]
    pub fn attention(&self) -> Attention {
        Attention::from_bits_truncate(self.attention.load(Ordering::Relaxed))
    }

    /// Whether somebody is shown all commands.
    pub fn is_monitored(&self) -> bool {
        self.attention().contains(Attention::MONITORS)
    }

    /// Sets or takes away something to look at.
    pub fn set_attention(&self, flag: Attention, on: bool) {
        if on {
            self.attention.fetch_or(flag.bits(), Ordering::Relaxed);
        } else {
            self.attention.fetch_and(!flag.bits(), Ordering::Relaxed);
        }
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
        let threshold_ms = self.config.latency_monitor_threshold_ms();
        if threshold_ms > 0 {
            let ms = self.ticks.nanos_between(began, self.ticks.now()) / 1_000_000;
            self.latency.note(event, self.clock.now(), ms, threshold_ms);
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
                *ending = Ending::Stop { status, scripts };
            }
            first
        });
    }

    /// Whether the end has begun.
    pub fn is_ending(&self) -> bool {
        *self.ending.borrow() != Ending::NotYet
    }

    /// For a start that takes long.
    ///
    /// # Errors
    /// If the end has begun.
    pub fn fail_start_if_ending(&self) -> io::Result<()> {
        match self.is_ending() {
            true => Err(io::Error::other("The start was interrupted")),
            false => Ok(()),
        }
    }

    /// Tells when the end begins.
    pub fn ending(&self) -> watch::Receiver<Ending> {
        self.ending.subscribe()
    }

    /// Tells a session of nothing any more: no commands, no messages, no invalidations.
    pub fn listen_no_more(&self, session: &mut Session) {
        let client = &session.client;
        self.monitors.leave(client, |any| self.set_attention(Attention::MONITORS, any));
        self.tracking.disable(&self.keyspace, client, &mut session.tracking);
        self.pubsub.leave_all(client, &mut session.subscriptions);
    }

    /// Gives back what a session held in the server.
    pub fn session_ended(&self, session: &mut Session) {
        self.listen_no_more(session);
        blocking::forget(self, session.client.id);
        session.give_up_claim(self);
        session.watched.clear(&self.watches, &self.keyspace, &session.client);
        self.placement.leave(session.client.worker());
    }

    /// The number under which a guest enters the keyspace.
    pub fn guest(&self) -> usize {
        self.placement.workers()
    }

    /// The same for the spiller.
    pub fn spiller_guest(&self) -> usize {
        self.guest() + 1
    }

    /// The same for whoever saves before the end.
    pub fn ending_guest(&self) -> usize {
        self.guest() + 2
    }

    /// Whether clients have to give a password.
    pub fn requires_password(&self) -> bool {
        !self.acl.is_open()
    }

    /// All databases by number.
    pub fn databases(&self) -> impl Iterator<Item = DbIndex> {
        (0..self.keyspace.databases()).map(DbIndex)
    }

    /// Forty random hexadecimal digits that name the history of this server's data (INFO's master_replid).
    pub fn replication_id(&self) -> String {
        self.replication_id.lock().clone()
    }

    /// Names it anew.
    pub fn change_replication_id(&self) {
        *self.replication_id.lock() = random_hex(&mut Prng::from_entropy());
    }

    /// The TCP port, or 0 without one.
    pub fn port(&self) -> u16 {
        match self.doors.port(Speech::Plain) {
            0 => self.doors.port(Speech::Tls),
            port => port,
        }
    }

    /// Where files go.
    pub fn dir(&self) -> PathBuf {
        self.config.dir()
    }
}

/// The longest reply: what one client may be owed, or all of them.
fn longest_reply(server: &Server, clients_bytes_max: Option<u64>) -> usize {
    let hard = server.config.output_limit(ClientClass::Normal).hard_bytes;
    let least = Some(hard).filter(|bytes| *bytes > 0).into_iter().chain(clients_bytes_max).min();
    least.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX)
}

fn random_hex(prng: &mut Prng) -> String {
    (0..40).map(|_| char::from_digit(prng.below(16) as u32, 16).expect("below 16")).collect()
}
