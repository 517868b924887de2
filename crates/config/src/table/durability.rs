//! Directives of the log, of snapshots and of the store.

use crate::retention;
use crate::row::{BOOL, Flags, INT, Kind, MEMORY, Row, int, works};
use crate::words::{AppendFsync, StoreCompression};

const SEGMENT_BYTES_MIN: i64 = log::limits::SHORT_SEGMENT_BYTES as i64;
const SEGMENT_BYTES_MAX: i64 = log::limits::SEGMENT_BYTES_MAX as i64;

const PIECE_BYTES_MIN: i64 = 64;
const PIECE_BYTES_MAX: i64 = 1 << 20;

/// Sorted by name.
pub(super) const ROWS: &[Row] = &[
    works("appendfsync", Kind::Enum(AppendFsync::WORDS), "everysec")
        .here("for the log of edition memory; the others sync before each reply"),
    works("appendonly", BOOL, "no").flags(Flags::NOT_WHILE_LOADING).here(
        "edition memory: has a log of Tarn's own, which CONFIG SET begins and ends; the others always have it",
    ),
    works("auto-aof-rewrite-min-size", MEMORY, "64mb")
        .here("how long the log is before a checkpoint is worth it"),
    works("auto-aof-rewrite-percentage", INT, "100")
        .here("how much longer than the last checkpoint the log becomes before another; 0 is never"),
    works("eager-spill", BOOL, "no")
        .flags(Flags::HIDDEN)
        .here("Tarn's own, for tests: what is written goes to disk at once"),
    works("log-piece-size", Kind::Memory { min: PIECE_BYTES_MIN, max: PIECE_BYTES_MAX }, "120kb")
        .flags(Flags::HIDDEN)
        .here("Tarn's own, for tests: how much of a large value one request of the log holds"),
    works("log-retention", Kind::Text(retention::check), "no").here(
        "Tarn's own: how much of the log stays for `tarn restore`, as a time (`12h`) or a size (`20gb`)",
    ),
    works("log-segment-size", Kind::Memory { min: SEGMENT_BYTES_MIN, max: SEGMENT_BYTES_MAX }, "64mb")
        .fixed()
        .here("Tarn's own: length of the log's files"),
    works("rdb-key-save-delay", int(i32::MIN as i64, i32::MAX as i64), "0")
        .flags(Flags::HIDDEN)
        .here("for tests: how long a snapshot in the background rests behind each key, in microseconds"),
    works("store-compression", Kind::Enum(StoreCompression::WORDS), "no")
        .fixed()
        .here("Tarn's own: `lz4` compresses what lies on disk only"),
];
