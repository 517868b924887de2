//! What the server tells of itself: its log, what it counts and measures, what was slow; and what of a request may be shown.
//!
//! Nothing here knows a session or the server: who has something to tell hands it down.

#![forbid(unsafe_code)]

pub mod error_counts;
pub mod latency;
pub mod logger;
pub mod redaction;
pub mod rounds;
pub mod samples;
pub mod slowlog;
pub mod stats;
