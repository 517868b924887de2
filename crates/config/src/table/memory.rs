//! Directives about memory, eviction, expiry and the encodings of the data types.

use crate::row::{BOOL, INT, Kind, LONG, MEMORY, Row, absent, int, memory_from, works};
use crate::words::MaxmemoryPolicy;

const DEFRAG: &str = "the allocator returns memory on its own; there is no defragmentation to steer";

/// Sorted by name.
pub(super) const ROWS: &[Row] = &[
    absent("active-defrag-cycle-max", int(1, 99), "25", DEFRAG),
    absent("active-defrag-cycle-min", int(1, 99), "1", DEFRAG),
    absent("active-defrag-ignore-bytes", memory_from(1), "100mb", DEFRAG),
    absent("active-defrag-max-scan-fields", int(1, i64::MAX), "1000", DEFRAG),
    absent("active-defrag-threshold-lower", int(0, 1000), "10", DEFRAG),
    absent("active-defrag-threshold-upper", int(0, 1000), "100", DEFRAG),
    works("active-expire-effort", int(1, 10), "1"),
    absent("activedefrag", BOOL, "no", DEFRAG),
    absent(
        "activerehashing",
        BOOL,
        "yes",
        "a slot's table grows in one short step; there is no rehashing to steer",
    ),
    works("hash-max-listpack-entries", LONG, "512").alias("hash-max-ziplist-entries"),
    works("hash-max-listpack-value", MEMORY, "64").alias("hash-max-ziplist-value"),
    works("hll-sparse-max-bytes", MEMORY, "3000"),
    absent("jemalloc-bg-thread", BOOL, "yes", "the allocator is not jemalloc"),
    works("lazyfree-lazy-eviction", BOOL, "no"),
    works("lazyfree-lazy-expire", BOOL, "no"),
    works("lazyfree-lazy-server-del", BOOL, "no"),
    works("lazyfree-lazy-user-del", BOOL, "no"),
    works("lazyfree-lazy-user-flush", BOOL, "no"),
    works("lfu-decay-time", INT, "1"),
    works("lfu-log-factor", INT, "10"),
    absent("list-compress-depth", INT, "0", "the inner nodes of a list are not compressed"),
    works("list-max-listpack-size", int(i32::MIN as i64, i32::MAX as i64), "-2")
        .alias("list-max-ziplist-size"),
    works("maxmemory", MEMORY, "0")
        .here("in edition capacity the ceiling of what is in memory, and the rest lies on disk"),
    works("maxmemory-clients", Kind::MemoryOrPercent, "0")
        .here("at 0, `maxmemory` bounds all clients together"),
    absent(
        "maxmemory-eviction-tenacity",
        int(0, 100),
        "10",
        "the worker that needs memory evicts until there is room",
    ),
    works("maxmemory-policy", Kind::Enum(MaxmemoryPolicy::WORDS), "noeviction")
        .here("in edition capacity only once not even the tables fit"),
    works("maxmemory-samples", int(1, i32::MAX as i64), "5"),
    works("set-max-intset-entries", LONG, "512"),
    works("set-max-listpack-entries", LONG, "128"),
    works("set-max-listpack-value", LONG, "64"),
    works("stream-node-max-bytes", MEMORY, "4096"),
    works("stream-node-max-entries", LONG, "100"),
    works("zset-max-listpack-entries", LONG, "128").alias("zset-max-ziplist-entries"),
    works("zset-max-listpack-value", MEMORY, "64").alias("zset-max-ziplist-value"),
];
