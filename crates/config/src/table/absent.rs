//! Directives of persistence, replication, cluster, scripts and modules that steer what this version does not have, or does in one way only.

use crate::row::{BOOL, Flags, INT, Kind, LONG, MEMORY, PORT, Row, TEXT, absent, int};

const APPEND_ONLY: &str = "the append-only file does not exist in this version";
const SNAPSHOTS: &str = "snapshots are always compressed, checked, and written beside the work of clients";
const PAYLOADS: &str = "payloads are always checked";
const LINKS: &str = "what replicas are sent waits for nothing";
const MASTERS_WRITES: &str = "what a master sends and cannot be done is told in the log, and passed over";
const DISK: &str = "a replica whose disk refuses waits until it does not";
const REPLACED: &str = "what a full copy takes the place of is freed afterwards";
const COPIES: &str = "each replica gets a full copy of its own, as soon as the one before it is made";
const CLUSTER: &str = "config servers decide what nodes of a cluster elsewhere agree on by a bus";
const SCRIPTS: &str = "scripts find what Redis 7 offers them and nothing older";
const MODULES: &str = "modules cannot be loaded";
const TEST_HOOK: &str = "it only serves Redis' own tests";

/// Sorted by name.
pub(super) const ROWS: &[Row] = &[
    absent("aof-disable-auto-gc", BOOL, "no", APPEND_ONLY).flags(Flags::HIDDEN),
    absent("aof-rewrite-incremental-fsync", BOOL, "yes", APPEND_ONLY),
    absent("aof-timestamp-enabled", BOOL, "no", APPEND_ONLY),
    absent("aof-use-rdb-preamble", BOOL, "yes", SNAPSHOTS),
    absent("cluster-allow-replica-migration", BOOL, "yes", CLUSTER),
    absent("cluster-announce-bus-port", PORT, "0", CLUSTER),
    absent("cluster-config-file", TEXT, "nodes.conf", CLUSTER).at_start(),
    absent("cluster-link-sendbuf-limit", MEMORY, "0", CLUSTER),
    absent("cluster-migration-barrier", INT, "1", CLUSTER),
    absent("cluster-node-timeout", LONG, "15000", CLUSTER),
    absent("cluster-ping-interval", LONG, "0", TEST_HOOK).flags(Flags::HIDDEN),
    absent("cluster-port", PORT, "0", CLUSTER).at_start(),
    absent("cluster-replica-no-failover", BOOL, "no", CLUSTER).alias("cluster-slave-no-failover"),
    absent("cluster-replica-validity-factor", INT, "10", CLUSTER).alias("cluster-slave-validity-factor"),
    absent("key-load-delay", int(i32::MIN as i64, i32::MAX as i64), "0", TEST_HOOK).flags(Flags::HIDDEN),
    absent("loading-process-events-interval-bytes", int(1024, i32::MAX as i64), "2097152", TEST_HOOK)
        .flags(Flags::HIDDEN),
    absent("loadmodule", Kind::Lines { words_min: 1 }, "", MODULES).flags(Flags::FILE_ONLY),
    absent("lua-enable-deprecated-api", BOOL, "no", SCRIPTS).at_start().flags(Flags::HIDDEN),
    absent("no-appendfsync-on-rewrite", BOOL, "no", APPEND_ONLY),
    absent(
        "propagation-error-behavior",
        Kind::Enum(&["ignore", "panic", "panic-on-replicas"]),
        "ignore",
        MASTERS_WRITES,
    ),
    absent("rdb-del-sync-files", BOOL, "no", SNAPSHOTS),
    absent("rdb-save-incremental-fsync", BOOL, "yes", SNAPSHOTS),
    absent("rdbchecksum", BOOL, "yes", SNAPSHOTS).at_start(),
    absent("rdbcompression", BOOL, "yes", SNAPSHOTS),
    absent("repl-disable-tcp-nodelay", BOOL, "no", LINKS),
    absent("repl-diskless-sync-delay", INT, "5", COPIES),
    absent("repl-diskless-sync-max-replicas", INT, "0", COPIES),
    absent("replica-ignore-disk-write-errors", BOOL, "no", DISK),
    absent("replica-lazy-flush", BOOL, "no", REPLACED).alias("slave-lazy-flush"),
    absent("sanitize-dump-payload", Kind::Enum(&["no", "yes", "clients"]), "no", PAYLOADS),
];
