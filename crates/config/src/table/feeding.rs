//! Directives of a master: who follows it, and what it keeps for them.

use crate::row::{BOOL, Kind, LONG, Row, int, memory_from, works};

/// The backlog is never smaller than this many bytes.
const BACKLOG_BYTES_MIN: i64 = 16 << 10;

/// Sorted by name.
pub(super) const ROWS: &[Row] = &[
    works("min-sync-replicas", int(0, 64), "0")
        .here("Tarn's own: a write is answered when so many replicas have it, on disk where the server has it there"),
    works("repl-backlog-size", memory_from(1), "1mb").adjust(|bytes| bytes.max(BACKLOG_BYTES_MIN)),
    works("repl-backlog-ttl", LONG, "3600"),
    works("repl-diskless-sync", BOOL, "yes")
        .here("`no`: a full copy goes through a file in `dir`, as it does to replicas that need its length"),
    works("repl-ping-replica-period", int(1, i32::MAX as i64), "10").alias("repl-ping-slave-period"),
    works("repl-rdb-version", Kind::Int { min: 9, max: 11 }, "11")
        .here("Tarn's own: the version of full copies; 10 for replicas of Redis 7.0, which cannot read 11, 9 for those of 5.0 to 6.2"),
    works("replica-log-keep", memory_from(0), "1gb")
        .here("Tarn's own: how much of the log stays for replicas that are behind, or away"),
    works("sync-timeout", int(1, i32::MAX as i64), "1000")
        .here("Tarn's own: after so many milliseconds without enough replicas (`min-sync-replicas`) writes get -NOREPLICAS"),
];
