//! What the rest of the server asks the configuration: one method a directive, named after it, with its unit.
//!
//! The number methods cost one relaxed load and may be called anywhere. The text and list methods take a read lock
//! and copy: call them at start, when a connection opens or when a change is announced.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::Config;
use crate::parsed::{OutputLimit, Value};
use crate::retention;
use crate::special::{KeyspaceEvents, ShutdownFlags};
use crate::table::index_of;
use crate::words::{
    Access, AppendFsync, BusyScope, DisklessLoad, Edition, LogLevel, MaxmemoryPolicy, OomScoreAdj, ReadFrom,
    StoreCompression, Supervision, SyslogFacility, TlsAuthClients, UsersFrom,
};
use log::Retention;

/// Methods that read one number, converted by the expression over `number`.
macro_rules! numbers {
    ($($(#[$doc:meta])* $method:ident: $type:ty = $name:literal, |$number:ident| $convert:expr;)*) => {
        impl Config {
            $(
                $(#[$doc])*
                #[inline]
                pub fn $method(&self) -> $type {
                    let $number = self.number(const { index_of($name) });
                    $convert
                }
            )*
        }
    };
}

/// Methods that copy one text.
macro_rules! texts {
    ($($(#[$doc:meta])* $method:ident = $name:literal;)*) => {
        impl Config {
            $(
                $(#[$doc])*
                pub fn $method(&self) -> Vec<u8> {
                    self.text(const { index_of($name) })
                }
            )*
        }
    };
}

numbers! {
    /// When the log of the memory edition syncs.
    appendfsync: AppendFsync = "appendfsync", |n| AppendFsync::from_number(n);
    /// Whether the memory edition has a log.
    appendonly: bool = "appendonly", |n| n != 0;
    /// From how many bytes on the log is worth a checkpoint.
    auto_aof_rewrite_min_size: u64 = "auto-aof-rewrite-min-size", |n| n as u64;
    /// How long the log becomes, in percent of the last checkpoint, before another is written; 0 is never.
    auto_aof_rewrite_percentage: u64 = "auto-aof-rewrite-percentage", |n| n.max(0) as u64;
    /// Entries that the ACL log keeps.
    acllog_max_len: usize = "acllog-max-len", |n| n as usize;
    /// Effort of the expiry sweep, 1 to 10.
    active_expire_effort: u32 = "active-expire-effort", |n| n as u32;
    /// Whether new users may use every channel.
    acl_pubsub_default_is_all: bool = "acl-pubsub-default", |n| n == 0;
    /// Whether an append-only file that ends in the middle of something is loaded up to there.
    aof_load_truncated: bool = "aof-load-truncated", |n| n != 0;
    /// Bytes that a client's unread requests may take.
    client_query_buffer_limit: usize = "client-query-buffer-limit", |n| n as usize;
    /// How long a script may run before others are told that the server is busy; None: for ever.
    busy_reply_threshold: Option<Duration> = "busy-reply-threshold",
        |n| u64::try_from(n).ok().filter(|ms| *ms > 0).map(Duration::from_millis);
    /// Who is told then.
    busy_reply_scope: BusyScope = "busy-reply-scope", |n| BusyScope::from_number(n);
    /// Whether channels of a shard go on while the cluster is down.
    cluster_allow_pubsubshard_when_down: bool = "cluster-allow-pubsubshard-when-down", |n| n != 0;
    /// Whether keys may be read while the cluster is down.
    cluster_allow_reads_when_down: bool = "cluster-allow-reads-when-down", |n| n != 0;
    /// The port that others are told instead of the server's own; 0: that.
    cluster_announce_port: u16 = "cluster-announce-port", |n| n as u16;
    /// The port with TLS that others are told instead of the server's own; 0: that.
    cluster_announce_tls_port: u16 = "cluster-announce-tls-port", |n| n as u16;
    /// Whether the server is a node of a cluster.
    cluster_enabled: bool = "cluster-enabled", |n| n != 0;
    /// By what clients are told to reach other nodes: 0, their addresses; 1, their names; 2, that of this one.
    cluster_preferred_endpoint: u8 = "cluster-preferred-endpoint-type", |n| n as u8;
    /// Whether the cluster is down as soon as one slot is nobody's.
    cluster_require_full_coverage: bool = "cluster-require-full-coverage", |n| n != 0;
    /// Number of databases.
    databases: usize = "databases", |n| n as usize;
    /// Whether objects go to disk at once, used or not and however much room there is: for tests that want everything there.
    eager_spill: bool = "eager-spill", |n| n != 0;
    /// How much of a large value one request of the log, or one piece of a checkpoint, holds: for tests that want many.
    log_piece_size: usize = "log-piece-size", |n| n as usize;
    /// What is done to objects that lie on disk only.
    store_compression: StoreCompression = "store-compression", |n| StoreCompression::from_number(n);
    /// The edition served.
    edition: Edition = "edition", |n| Edition::from_number(n);
    /// Who may use DEBUG.
    enable_debug_command: Access = "enable-debug-command", |n| Access::from_number(n);
    /// Who may use MODULE LOAD and its kin.
    enable_module_command: Access = "enable-module-command", |n| Access::from_number(n);
    /// Who may CONFIG SET protected directives.
    enable_protected_configs: Access = "enable-protected-configs", |n| Access::from_number(n);
    /// Largest number of fields in a packed hash.
    hash_max_listpack_entries: usize = "hash-max-listpack-entries", |n| n as usize;
    /// Longest field or value in a packed hash, in bytes.
    hash_max_listpack_value: usize = "hash-max-listpack-value", |n| n as usize;
    /// Largest sparse HyperLogLog, in bytes.
    hll_sparse_max_bytes: usize = "hll-sparse-max-bytes", |n| n as usize;
    /// Background ticks a second, 1 to 500.
    hz: u32 = "hz", |n| n as u32;
    /// Milliseconds from which LATENCY records an event; 0 records none.
    latency_monitor_threshold_ms: u64 = "latency-monitor-threshold", |n| n as u64;
    /// Whether the latency of each command is tracked.
    latency_tracking: bool = "latency-tracking", |n| n != 0;
    /// Whether eviction frees in the background.
    lazyfree_lazy_eviction: bool = "lazyfree-lazy-eviction", |n| n != 0;
    /// Whether expiry frees in the background.
    lazyfree_lazy_expire: bool = "lazyfree-lazy-expire", |n| n != 0;
    /// Whether implicit deletes free in the background.
    lazyfree_lazy_server_del: bool = "lazyfree-lazy-server-del", |n| n != 0;
    /// Whether DEL behaves as UNLINK.
    lazyfree_lazy_user_del: bool = "lazyfree-lazy-user-del", |n| n != 0;
    /// Whether FLUSHALL and FLUSHDB are asynchronous unless told otherwise.
    lazyfree_lazy_user_flush: bool = "lazyfree-lazy-user-flush", |n| n != 0;
    /// Minutes after which the LFU counter loses one.
    lfu_decay_time_min: u32 = "lfu-decay-time", |n| n as u32;
    /// How slowly the LFU counter saturates.
    lfu_log_factor: u32 = "lfu-log-factor", |n| n as u32;
    /// Size of a list node: elements if positive, -1 to -5 for 4 KiB to 64 KiB.
    list_max_listpack_size: i32 = "list-max-listpack-size", |n| n as i32;
    /// After how many seconds of silence a replica does not count for [`Config::min_replicas_to_write`]; 0: none is needed.
    min_replicas_max_lag_s: i64 = "min-replicas-max-lag", |n| n;
    /// How many replicas must have a write before it is answered.
    min_sync_replicas: usize = "min-sync-replicas", |n| n as usize;
    /// How many replicas there have to be for writes.
    min_replicas_to_write: i64 = "min-replicas-to-write", |n| n;
    /// After how many milliseconds without [`Config::min_sync_replicas`] writes are refused.
    sync_timeout_ms: u64 = "sync-timeout", |n| n as u64;
    /// After how many milliseconds of its master's silence a member proposes itself; 0: never.
    shard_failover_ms: u64 = "shard-failover", |n| n as u64;
    /// For how many milliseconds a member lends its master time to read.
    shard_lease_ms: u64 = "shard-lease", |n| n as u64;
    /// The number of this node among those of its shard.
    shard_node: u32 = "shard-node", |n| n as u32;
    /// After how many milliseconds of silence a member is removed.
    shard_silence_ms: u64 = "shard-silence", |n| n as u64;
    /// Where a master's copy is loaded.
    repl_diskless_load: DisklessLoad = "repl-diskless-load", |n| DisklessLoad::from_number(n);
    /// After how many seconds of silence a link between a master and a replica is given up.
    repl_timeout_s: u64 = "repl-timeout", |n| n as u64;
    /// The port by which a master is to know this server; 0: the one that it listens on.
    replica_announce_port: u16 = "replica-announce-port", |n| n as u16;
    /// Whether Sentinel is to know of this replica.
    replica_announced: bool = "replica-announced", |n| n != 0;
    /// Whether a replica goes above `maxmemory` rather than evict what its master keeps.
    replica_ignore_maxmemory: bool = "replica-ignore-maxmemory", |n| n != 0;
    /// How eagerly Sentinel makes this replica the master: the lowest first, 0 never.
    replica_priority: i64 = "replica-priority", |n| n;
    /// Whether clients of a replica may only read.
    replica_read_only: bool = "replica-read-only", |n| n != 0;
    /// Whether a replica answers from what it has while its master is away.
    replica_serve_stale_data: bool = "replica-serve-stale-data", |n| n != 0;
    /// Whether links to a master, and to other servers, are encrypted.
    tls_replication: bool = "tls-replication", |n| n != 0;
    /// Microseconds that a snapshot in the background rests after each key, for tests; negative: so many keys for one.
    rdb_key_save_delay: i64 = "rdb-key-save-delay", |n| n;
    /// How loud the log is.
    log_level: LogLevel = "loglevel", |n| LogLevel::from_number(n);
    /// Length of the log's segments.
    log_segment_size: u64 = "log-segment-size", |n| n as u64;
    /// Most clients at a time.
    maxclients: u32 = "maxclients", |n| n as u32;
    /// Bytes that the server may use; 0 stands for no limit.
    maxmemory: u64 = "maxmemory", |n| n as u64;
    /// What is evicted at `maxmemory`.
    maxmemory_policy: MaxmemoryPolicy = "maxmemory-policy", |n| MaxmemoryPolicy::from_number(n);
    /// Keys that eviction looks at to choose one.
    maxmemory_samples: u32 = "maxmemory-samples", |n| n as u32;
    /// Which keyspace notifications are published.
    notify_keyspace_events: KeyspaceEvents = "notify-keyspace-events",
        |n| KeyspaceEvents::from_bits_truncate(n as u32);
    /// Whether the kernel is told how willingly it ends the process.
    oom_score_adj: OomScoreAdj = "oom-score-adj", |n| OomScoreAdj::from_number(n);
    /// TCP port; 0 stands for any free one.
    port: u16 = "port", |n| n as u16;
    /// Whether strangers are refused while there is no password.
    protected_mode: bool = "protected-mode", |n| n != 0;
    /// Longest bulk string of a request, in bytes.
    proto_max_bulk_len: usize = "proto-max-bulk-len", |n| n as usize;
    /// Largest number of members in an intset.
    set_max_intset_entries: usize = "set-max-intset-entries", |n| n as usize;
    /// Largest number of members in a packed set.
    set_max_listpack_entries: usize = "set-max-listpack-entries", |n| n as usize;
    /// Longest member in a packed set, in bytes.
    set_max_listpack_value: usize = "set-max-listpack-value", |n| n as usize;
    /// How SIGINT ends the server.
    shutdown_on_sigint: ShutdownFlags = "shutdown-on-sigint", |n| ShutdownFlags::from_bits_truncate(n as u8);
    /// How SIGTERM does.
    shutdown_on_sigterm: ShutdownFlags = "shutdown-on-sigterm", |n| ShutdownFlags::from_bits_truncate(n as u8);
    /// Seconds that a shutdown waits for replicas.
    shutdown_timeout_s: u32 = "shutdown-timeout", |n| n as u32;
    /// Microseconds from which a command enters the slow log; `None` while it is off.
    slowlog_log_slower_than_us: Option<u64> = "slowlog-log-slower-than", |n| u64::try_from(n).ok();
    /// Entries that the slow log keeps.
    slowlog_max_len: usize = "slowlog-max-len", |n| n as usize;
    /// Largest stream node in bytes; 0 stands for no limit.
    stream_node_max_bytes: usize = "stream-node-max-bytes", |n| n as usize;
    /// Whether writes are refused after a snapshot that failed.
    stop_writes_on_bgsave_error: bool = "stop-writes-on-bgsave-error", |n| n != 0;
    /// Largest number of entries in a stream node; 0 stands for no limit.
    stream_node_max_entries: usize = "stream-node-max-entries", |n| n as usize;
    /// The service manager to be told.
    supervised: Supervision = "supervised", |n| Supervision::from_number(n);
    /// Whether the log goes to syslog as well.
    syslog_enabled: bool = "syslog-enabled", |n| n != 0;
    /// Under which facility.
    syslog_facility: SyslogFacility = "syslog-facility", |n| SyslogFacility::from_number(n);
    /// Bytes of the stream that are kept in memory for replicas.
    repl_backlog_size: u64 = "repl-backlog-size", |n| n as u64;
    /// Seconds that it is kept when nobody follows; 0 stands for ever.
    repl_backlog_ttl_s: u64 = "repl-backlog-ttl", |n| n.max(0) as u64;
    /// Whether full copies go to replicas while they are made.
    repl_diskless_sync: bool = "repl-diskless-sync", |n| n != 0;
    /// Seconds between heartbeats.
    repl_ping_replica_period_s: u64 = "repl-ping-replica-period", |n| n as u64;
    /// The RDB version of full copies.
    repl_rdb_version: u16 = "repl-rdb-version", |n| n as u16;
    /// Bytes of the log that are kept for replicas.
    replica_log_keep: u64 = "replica-log-keep", |n| n as u64;
    /// Whether a proxy does in parts what writes to several shards.
    proxy_split_writes: bool = "proxy-split-writes", |n| n != 0;
    /// Whether users of a proxy whose rights are limited may run scripts, which know no limits at the servers.
    proxy_restricted_scripts: bool = "proxy-restricted-scripts", |n| n != 0;
    /// How long the copies of keys may be on which a proxy answers one command.
    proxy_computed_bytes: usize = "proxy-computed-bytes", |n| n as usize;
    /// How many bytes a second a proxy moves for its clients; 0: as many as come.
    proxy_bandwidth_limit: u64 = "proxy-bandwidth-limit", |n| n as u64;
    /// How much a proxy may keep of replies to reads of hot keys; 0: nothing.
    proxy_cache_bytes: usize = "proxy-cache-bytes", |n| n as usize;
    /// For how long a proxy that was taken over serves the connections that it has, in seconds; 0: until they end.
    proxy_drain_timeout_s: u64 = "proxy-drain-timeout", |n| n as u64;
    /// Whom a proxy reads from.
    proxy_read_from: ReadFrom = "proxy-read-from", |n| ReadFrom::from_number(n);
    /// Who keeps the users of a proxy.
    proxy_users: UsersFrom = "proxy-users", |n| UsersFrom::from_number(n);
    /// Seconds of silence after which a server behind a proxy counts as lost; 0: never.
    proxy_shard_timeout_s: u32 = "proxy-shard-timeout", |n| n as u32;
    /// Length of the accept queue.
    tcp_backlog: u32 = "tcp-backlog", |n| n as u32;
    /// Seconds between keep-alive probes of an idle connection; 0 stands for none.
    tcp_keepalive_s: u32 = "tcp-keepalive", |n| n as u32;
    /// Worker threads; 0 stands for one per core.
    threads: usize = "threads", |n| n as usize;
    /// How many of them are active whatever the load is.
    threads_min: usize = "threads-min", |n| n as usize;
    /// Seconds of silence after which a client is disconnected; 0 stands for never.
    timeout_s: u32 = "timeout", |n| n as u32;
    /// Whether clients show certificates.
    tls_auth_clients: TlsAuthClients = "tls-auth-clients", |n| TlsAuthClients::from_number(n);
    /// Whether a client's certificate may say which user it is.
    tls_auth_clients_user: bool = "tls-auth-clients-user", |n| n != 0;
    /// Whether connections to other servers use TLS.
    tls_cluster: bool = "tls-cluster", |n| n != 0;
    /// The port at which TLS is spoken; 0 is none.
    tls_port: u16 = "tls-port", |n| n as u16;
    /// Whether the order of suites is the server's and not the client's.
    tls_prefer_server_ciphers: bool = "tls-prefer-server-ciphers", |n| n != 0;
    /// How long a session can be gone on with, in seconds.
    tls_session_cache_timeout_s: u32 = "tls-session-cache-timeout", |n| n as u32;
    /// Whether sessions can be gone on with.
    tls_session_caching: bool = "tls-session-caching", |n| n != 0;
    /// Most keys that client-side caching remembers; 0 stands for no limit.
    tracking_table_max_keys: usize = "tracking-table-max-keys", |n| n as usize;
    /// Permissions of the Unix socket; `None` where the process' own apply.
    unixsocketperm: Option<u32> = "unixsocketperm", |n| (n != 0).then_some(n as u32);
    /// Largest number of members in a packed sorted set.
    zset_max_listpack_entries: usize = "zset-max-listpack-entries", |n| n as usize;
    /// Longest member in a packed sorted set, in bytes.
    zset_max_listpack_value: usize = "zset-max-listpack-value", |n| n as usize;
}

texts! {
    /// A name that clients are told beside the address; empty: none.
    cluster_announce_hostname = "cluster-announce-hostname";
    /// The address that others are told instead of the server's own; empty: that.
    cluster_announce_ip = "cluster-announce-ip";
    /// The config servers of the cluster.
    cluster_config_servers = "cluster-config-servers";
    /// The machine, rack or building of this server; empty: not said.
    cluster_zone = "cluster-zone";
    /// Nodes of the cluster behind a proxy.
    proxy_cluster = "proxy-cluster";
    /// The config servers that keep the users of a proxy.
    proxy_config_servers = "proxy-config-servers";
    /// The servers behind a proxy.
    proxy_shards = "proxy-shards";
    /// The socket file by which a proxy is taken over.
    proxy_takeover = "proxy-takeover";
    /// What a master is given to authenticate this server, if it wants a password.
    masterauth = "masterauth";
    /// As whom, where it has users.
    masteruser = "masteruser";
    /// The address by which a master is to know this server, if not the connection's.
    replica_announce_ip = "replica-announce-ip";
    /// The file of ACL users; empty where there is none.
    aclfile = "aclfile";
    /// The name of the directory in `dir` of a Redis' append-only files.
    appenddirname = "appenddirname";
    /// What the names of these files begin with.
    appendfilename = "appendfilename";
    /// The name of the snapshot's file in `dir`.
    dbfilename = "dbfilename";
    /// The log file; empty for standard output.
    logfile = "logfile";
    /// Where the process id is written; empty for nowhere.
    pidfile = "pidfile";
    /// The password of the default user; empty where it has none.
    requirepass = "requirepass";
    /// The shard that this server is a node of; empty: of none.
    shard_name = "shard-name";
    /// All nodes of the shard.
    shard_nodes = "shard-nodes";
    /// The address of the store of decisions.
    shard_store = "shard-store";
    /// The name under which syslog gets the log.
    syslog_ident = "syslog-ident";
    /// The directory with certificates of authorities.
    tls_ca_cert_dir = "tls-ca-cert-dir";
    /// The file with certificates of authorities.
    tls_ca_cert_file = "tls-ca-cert-file";
    /// The file with the server's certificate.
    tls_cert_file = "tls-cert-file";
    /// Suites of TLS 1.2, as OpenSSL lists them.
    tls_ciphers = "tls-ciphers";
    /// Suites of TLS 1.3, as OpenSSL lists them.
    tls_ciphersuites = "tls-ciphersuites";
    /// The file with the certificate that other servers are shown; empty: the server's own.
    tls_client_cert_file = "tls-client-cert-file";
    /// The file with its key.
    tls_client_key_file = "tls-client-key-file";
    /// The file with the server's key.
    tls_key_file = "tls-key-file";
    /// Versions of TLS, by name.
    tls_protocols = "tls-protocols";
    /// The path of the Unix socket; empty where there is none.
    unixsocket = "unixsocket";
}

/// What one client class is called where output limits are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientClass {
    /// Clients of no other class, MONITOR among them.
    Normal,
    /// Replicas.
    Replica,
    /// Subscribers.
    Pubsub,
}

/// How much memory all clients together may take before some are disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientsMemory {
    /// There is no limit.
    Unlimited,
    /// So many bytes.
    Bytes(u64),
    /// So many per cent of `maxmemory`.
    PercentOfMaxmemory(u32),
}

impl Config {
    /// The output limit of a client class: three relaxed loads. In Redis a buffer of 16 KB is no part of what counts.
    #[inline]
    pub fn output_limit(&self, class: ClientClass) -> OutputLimit {
        /// What a client may be owed whatever its limits say (Redis' `PROTO_REPLY_CHUNK_BYTES`).
        const UNCOUNTED_BYTES: u64 = 16 << 10;
        let [hard, soft, seconds] = &self.output_limits[class as usize];
        let bytes = |limit: &AtomicU64| match limit.load(Ordering::Relaxed) {
            0 => 0,
            bytes => bytes.max(UNCOUNTED_BYTES),
        };
        OutputLimit {
            hard_bytes: bytes(hard),
            soft_bytes: bytes(soft),
            soft_s: seconds.load(Ordering::Relaxed),
        }
    }

    /// `maxmemory-clients`.
    pub fn maxmemory_clients(&self) -> ClientsMemory {
        match self.number(const { index_of("maxmemory-clients") }) {
            0 => ClientsMemory::Unlimited,
            bytes @ 1.. => ClientsMemory::Bytes(bytes as u64),
            percent => ClientsMemory::PercentOfMaxmemory(percent.unsigned_abs() as u32),
        }
    }

    /// The addresses to listen on, as written: `*` stands for all, a leading `-` for "if it can be had".
    pub fn bind(&self) -> Vec<String> {
        match &self.values.read()[const { index_of("bind") }] {
            Value::Words(words) => {
                words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
            }
            _ => unreachable!("bind is kept as words"),
        }
    }

    /// The server's directory, as seen from the root.
    pub fn dir(&self) -> PathBuf {
        PathBuf::from(OsString::from_vec(self.text(const { index_of("dir") })))
    }

    /// The percentiles that INFO reports of each command's latency.
    pub fn latency_percentiles(&self) -> Vec<f64> {
        match &self.values.read()[const { index_of("latency-tracking-info-percentiles") }] {
            Value::Percentiles(percentiles) => percentiles.clone(),
            _ => unreachable!("percentiles are kept as such"),
        }
    }

    /// How much of the log stays when it is dispensable.
    pub fn log_retention(&self) -> Retention {
        let text = self.text(const { index_of("log-retention") });
        retention::parse(&text).expect("the text was checked when it was set")
    }

    /// `oom-score-adj-values`: of a master, of a replica, and of a child.
    pub fn oom_score_adj_values(&self) -> [i64; 3] {
        match &self.values.read()[const { index_of("oom-score-adj-values") }] {
            Value::OomScores(scores) => *scores,
            _ => unreachable!("scores are kept as such"),
        }
    }

    /// The save points: after so many seconds a snapshot is taken if there were so many changes.
    pub fn save_points(&self) -> Vec<(i64, i64)> {
        match &self.values.read()[const { index_of("save") }] {
            Value::Save(points) => points.clone(),
            _ => unreachable!("save points are kept as such"),
        }
    }

    /// The words of each `user` line: a name and its ACL rules.
    pub fn users(&self) -> Vec<Vec<Vec<u8>>> {
        self.lines(const { index_of("user") })
    }

    /// The words of each `rename-command` line: a command's name, and its new one or an empty word.
    pub fn renamed_commands(&self) -> Vec<Vec<Vec<u8>>> {
        self.lines(const { index_of("rename-command") })
    }

    fn lines(&self, index: usize) -> Vec<Vec<Vec<u8>>> {
        match &self.values.read()[index] {
            Value::Lines(lines) => lines.clone(),
            // None was given.
            _ => Vec::new(),
        }
    }

    /// The `user` lines for CONFIG REWRITE, as `users` gives them.
    pub fn set_users(&self, lines: Vec<Vec<Vec<u8>>>) {
        self.values.write()[const { index_of("user") }] = Value::Lines(lines);
    }

    /// The master that is followed, if there is one.
    pub fn replicaof(&self) -> Option<(String, u16)> {
        match &self.values.read()[const { index_of("replicaof") }] {
            Value::ReplicaOf(master) => master.clone(),
            _ => None,
        }
    }

    /// Notes whom REPLICAOF named, for CONFIG REWRITE.
    pub fn set_replicaof(&self, master: Option<(String, u16)>) {
        self.values.write()[const { index_of("replicaof") }] = Value::ReplicaOf(master);
    }

    fn text(&self, index: usize) -> Vec<u8> {
        match &self.values.read()[index] {
            Value::Text(text) => text.clone(),
            _ => unreachable!("a text directive is kept as text"),
        }
    }
}
