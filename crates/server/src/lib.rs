//! The server: threads, sessions, dispatch, commands of its own.

#![forbid(unsafe_code)]

pub mod assembly;
pub mod bells;
pub mod blocked;
pub mod blocking;
pub mod commands;
mod connect;
pub mod connection;
pub mod descriptors;
pub mod dispatch;
pub mod durable;
pub mod encryption;
pub mod gate;
pub mod holders;
pub mod listen;
pub mod names;
pub mod pause;
pub mod placement;
pub mod refusals;
pub mod replay;
pub mod rights;
pub mod roles;
pub mod server;
pub mod session;
pub mod slow;
pub mod start;
pub mod supervision;
pub mod switches;
pub mod tick;
pub mod tls;
pub mod transaction;
pub mod worker;

pub use start::run;
