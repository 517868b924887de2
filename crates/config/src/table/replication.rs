//! Directives of replication: whom the server follows, and how.

use crate::row::{BOOL, Flags, INT, Kind, PORT, Row, TEXT, int, works};

/// Sorted by name.
pub(super) const ROWS: &[Row] = &[
    works("masterauth", TEXT, "").flags(Flags::SENSITIVE),
    works("masteruser", TEXT, "").flags(Flags::SENSITIVE),
    works("repl-diskless-load", Kind::Enum(&["disabled", "on-empty-db", "swapdb"]), "disabled")
        .flags(Flags::NOT_WHILE_LOADING)
        .here("a copy is always written to disk first, and the old data is served until it is there as a whole. Then it takes the place of all while clients are told `LOADING`; with `swapdb` a copy of the same history is loaded beside the old data, which is served until then"),
    works("repl-timeout", int(1, i32::MAX as i64), "60"),
    works("replica-announce-ip", TEXT, "").alias("slave-announce-ip"),
    works("replica-announce-port", PORT, "0").alias("slave-announce-port"),
    works("replica-announced", BOOL, "yes"),
    works("replica-ignore-maxmemory", BOOL, "yes").alias("slave-ignore-maxmemory"),
    works("replica-priority", INT, "100").alias("slave-priority"),
    works("replica-read-only", BOOL, "yes").alias("slave-read-only"),
    works("replica-serve-stale-data", BOOL, "yes").alias("slave-serve-stale-data"),
    works("replicaof", Kind::ReplicaOf, "").at_start().alias("slaveof"),
];
