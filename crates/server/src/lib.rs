//! The server: threads, sessions, dispatch, commands of its own.

#![forbid(unsafe_code)]

pub mod apply;
pub mod attention;
pub mod blocking;
pub mod commands;
mod connect;
pub mod connection;
pub mod descriptors;
pub mod dispatch;
pub mod durability;
pub mod durable;
pub mod encryption;
pub mod engine;
pub mod gate;
pub mod holders;
pub mod import;
pub mod listen;
mod moment;
pub mod placement;
pub mod replay;
pub mod residency;
pub mod roles;
pub mod scripts;
pub mod server;
pub mod session;
pub mod slow;
pub mod snapshot;
pub mod start;
pub mod supervision;
pub mod switches;
pub mod tick;
pub mod tls;
pub mod transaction;
pub mod worker;

pub use start::run;
