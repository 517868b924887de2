//! The server: threads, sessions, dispatch, configuration and the log of what it does.

#![forbid(unsafe_code)]

pub mod config;
pub mod logger;
