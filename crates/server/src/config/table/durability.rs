//! Directives of the log and of the store.

use super::super::retention;
use super::super::row::{BOOL, Flags, INT, Kind, MEMORY, Row, works};
use super::super::words::{AppendFsync, StoreCompression};

const SEGMENT_BYTES_MIN: i64 = log::limits::SHORT_SEGMENT_BYTES as i64;
const SEGMENT_BYTES_MAX: i64 = log::limits::SEGMENT_BYTES_MAX as i64;

const PIECE_BYTES_MIN: i64 = 64;
const PIECE_BYTES_MAX: i64 = 1 << 20;

/// Sorted by name.
pub(super) const ROWS: &[Row] = &[
    works("appendfsync", Kind::Enum(AppendFsync::WORDS), "everysec"),
    works("appendonly", BOOL, "no").at_start(),
    works("auto-aof-rewrite-min-size", MEMORY, "64mb"),
    works("auto-aof-rewrite-percentage", INT, "100"),
    works("eager-spill", BOOL, "no").flags(Flags::HIDDEN),
    works("log-piece-size", Kind::Memory { min: PIECE_BYTES_MIN, max: PIECE_BYTES_MAX }, "120kb")
        .flags(Flags::HIDDEN),
    works("log-retention", Kind::Text(retention::check), "no"),
    works("log-segment-size", Kind::Memory { min: SEGMENT_BYTES_MIN, max: SEGMENT_BYTES_MAX }, "64mb")
        .at_start(),
    works("store-compression", Kind::Enum(StoreCompression::WORDS), "no").at_start(),
];
