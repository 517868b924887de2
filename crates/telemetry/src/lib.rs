//! What the server tells of itself: its log.
//!
//! Nothing here knows a session or the server: who has something to tell hands it down.

#![forbid(unsafe_code)]

pub mod logger;
