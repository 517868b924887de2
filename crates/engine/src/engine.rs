//! A database without clients: the data, what it was told, and what makes it last. It is filled from files, keeps a log, sends away
//! what does not fit into memory and writes snapshots; who asks it for something, and by which rights, it does not know.
//!
//! Thread rule: any thread. Workers enter the keyspace by their numbers, and so do the guests, whose numbers come behind them.

use crate::Attention;
use crate::durability::{self, Durability};
use crate::residency::Residency;
use crate::scripts::Scripts;
use crate::scripts::interpreter::InterpreterBytes;
use crate::snapshot::Snapshots;
use command::Settings;
use config::Config;
use keyspace::{DbIndex, Eviction, HashSeed, KeyHasher, Keyspace, Options, Removal};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use sys::Clock;
use sys::file::Fs;
use sys::prng::entropy_seed;
use value::collection::Thresholds;
use value::stream::Reads;

/// Threads that enter the keyspace and are no workers: the one that writes a checkpoint, the spiller, whoever saves before the end, and
/// the ones that follow a master and that copy everything for a replica.
const GUESTS: usize = 6;

/// The most threads that put a copy's keys into the keyspace at a time. They are guests, too.
const LOADERS_MAX: usize = 8;

/// A database without clients.
pub struct Engine {
    /// What it was told.
    pub config: Config,
    /// The data.
    pub keyspace: Keyspace,
    /// What handlers of data commands are told.
    pub settings: Settings,
    /// The time.
    pub clock: Clock,
    /// By which keys have their slots.
    pub hash_seed: HashSeed,
    /// Scripts and functions.
    pub scripts: Scripts,
    /// What the interpreters hold.
    pub interpreter_bytes: InterpreterBytes,
    /// Files of all keys.
    pub snapshots: Snapshots,
    /// The log.
    pub durability: Durability,
    /// What is not in memory.
    pub residency: Residency,
    workers: usize,
    loaders: usize,
    attention: AtomicU32,
    /// What commands never look at.
    ignored: OnceLock<Attention>,
    is_ending: AtomicBool,
    is_idle: AtomicBool,
}

impl Engine {
    /// An empty one for so many workers. Keys have their slots by this seed: that of the checkpoint that it will load, if there is one.
    pub fn new(config: Config, workers: usize, clock: Clock, hash_seed: HashSeed) -> Arc<Engine> {
        let now = clock.now();
        let loaders = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(LOADERS_MAX));
        let keyspace = Keyspace::new(Options {
            databases: config.databases() as u32,
            workers: workers + GUESTS + loaders,
            guests: GUESTS + loaders,
            hasher: KeyHasher::new(hash_seed),
            seed: entropy_seed(),
            now,
        });
        keyspace.set_clock(clock.clone());
        Arc::new(Engine {
            config,
            keyspace,
            settings: Settings::default(),
            clock,
            hash_seed,
            scripts: Scripts::default(),
            interpreter_bytes: InterpreterBytes::default(),
            snapshots: Snapshots::new(now),
            durability: Durability::default(),
            residency: Residency::default(),
            workers,
            loaders,
            attention: AtomicU32::new(0),
            ignored: OnceLock::new(),
            is_ending: AtomicBool::new(false),
            is_idle: AtomicBool::new(false),
        })
    }

    /// Hands what the configuration says on to those who do not read it themselves. Called at the start and after each change. From
    /// `list_plain_bytes_min` bytes on texts of lists lie by themselves, however much a node may hold.
    pub fn follow_config(&self, list_plain_bytes_min: usize) {
        let (config, policy) = (&self.config, self.keyspace.policy());
        policy.set_memory_bytes_max(config.maxmemory());
        policy.set_eviction(
            Eviction::from_name(config.maxmemory_policy().word())
                .expect("both tables have Redis' eight policies"),
        );
        policy.set_samples(config.maxmemory_samples());
        policy.set_lfu_log_factor(config.lfu_log_factor());
        policy.set_lfu_decay_minutes(config.lfu_decay_time_min());
        policy.set_unlinks(Removal::Command, config.lazyfree_lazy_server_del());
        policy.set_unlinks(Removal::Expiry, config.lazyfree_lazy_expire());
        policy.set_unlinks(Removal::Eviction, config.lazyfree_lazy_eviction());
        self.settings.set_string_bytes_max(config.proto_max_bulk_len() as u64);
        self.settings.set_piece_bytes(config.log_piece_size());
        self.settings.set_image_reads(image_reads(config));
        self.settings.set_flushes_in_background(config.lazyfree_lazy_user_flush());
        self.settings.set_thresholds(Thresholds {
            list_max_listpack_size: config.list_max_listpack_size(),
            list_plain_bytes_min,
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
        self.durability.log().inspect(|log| durability::limit_buffer(self, log));
    }

    /// What commands have to look at.
    #[inline]
    pub fn attention(&self) -> Attention {
        Attention::from_bits_truncate(self.attention.load(Ordering::Relaxed))
    }

    /// Has commands never look at these, whatever the directives say. Said once, before anybody is served.
    pub fn ignore(&self, flags: Attention) {
        let is_first = self.ignored.set(flags).is_ok();
        debug_assert!(is_first, "it is said once");
        self.set_attention(flags, false);
    }

    /// Sets or takes away something to look at.
    pub fn set_attention(&self, flag: Attention, on: bool) {
        if on && !self.ignored.get().is_some_and(|ignored| ignored.contains(flag)) {
            self.attention.fetch_or(flag.bits(), Ordering::Relaxed);
        } else {
            self.attention.fetch_and(!flag.bits(), Ordering::Relaxed);
        }
    }

    /// Begins the end: what runs in the background gives up.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
    }

    /// Whether the end has begun.
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// Notes whether nothing has happened for a while, and wakes who sleeps longer then.
    pub fn set_idle(&self, on: bool) {
        if self.is_idle.swap(on, Ordering::Relaxed) && !on {
            self.residency.ring();
        }
    }

    /// Whether nothing has happened for a while.
    pub fn is_idle(&self) -> bool {
        self.is_idle.load(Ordering::Relaxed)
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

    /// The number under which a guest enters the keyspace.
    pub fn guest(&self) -> usize {
        self.workers
    }

    /// The same for the spiller.
    pub fn spiller_guest(&self) -> usize {
        self.guest() + 1
    }

    /// The same for whoever saves before the end.
    pub fn ending_guest(&self) -> usize {
        self.guest() + 2
    }

    /// The same for whoever does what a master wants.
    pub fn following_guest(&self) -> usize {
        self.guest() + 3
    }

    /// How many numbers there are under which somebody enters the keyspace.
    pub fn entrants(&self) -> usize {
        self.workers + GUESTS + self.loaders
    }

    /// The same for those who put a copy's keys into the keyspace together.
    pub fn loading_guests(&self) -> std::ops::Range<usize> {
        self.workers + GUESTS..self.entrants()
    }

    /// The same for whoever copies everything for a replica.
    pub fn copying_guest(&self) -> usize {
        self.guest() + 4
    }

    /// The same for whoever gives slots to another server, and clears those that are not its own.
    pub fn moving_guest(&self) -> usize {
        self.guest() + 5
    }

    /// All databases by number.
    pub fn databases(&self) -> impl Iterator<Item = DbIndex> {
        (0..self.keyspace.databases()).map(DbIndex)
    }

    /// Where what lies in its directory is, as the log itself.
    pub fn fs(&self) -> Fs {
        self.durability.fs()
    }

    /// Where files go.
    pub fn dir(&self) -> PathBuf {
        self.config.dir()
    }
}

/// For whom values are written that replicas are sent (`repl-rdb-version`).
pub fn image_reads(config: &Config) -> Reads {
    match config.repl_rdb_version() {
        9 => Reads::Redis50,
        10 => Reads::Redis70,
        _ => Reads::Redis72,
    }
}
