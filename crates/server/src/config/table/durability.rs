//! Directives of the log.

use super::super::retention;
use super::super::row::{BOOL, INT, Kind, MEMORY, Row, works};
use super::super::words::AppendFsync;

/// Sorted by name.
pub(super) const ROWS: &[Row] = &[
    works("appendfsync", Kind::Enum(AppendFsync::WORDS), "everysec"),
    works("appendonly", BOOL, "no").at_start(),
    works("auto-aof-rewrite-min-size", MEMORY, "64mb"),
    works("auto-aof-rewrite-percentage", INT, "100"),
    works("log-retention", Kind::Text(retention::check), "no"),
];
