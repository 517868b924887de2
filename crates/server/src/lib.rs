//! The server: threads, sessions, dispatch, commands of its own.

#![forbid(unsafe_code)]

pub mod arrivals;
pub mod assembly;
pub mod bells;
pub mod blocked;
pub mod blocking;
pub mod clustered;
pub mod commands;
pub mod departure;
pub mod dispatch;
pub mod durable;
pub mod failover;
pub mod feeding;
pub mod followed;
mod following;
pub mod hearing;
pub mod holders;
pub mod insync;
pub mod joining;
pub mod moving;
pub mod names;
pub mod pause;
pub mod refusals;
pub mod replay;
pub mod replicas;
pub mod rights;
pub mod roles;
mod serve;
pub mod server;
pub mod session;
pub mod shard;
pub mod slow;
pub mod start;
pub mod supervision;
pub mod switches;
pub mod tick;
pub mod transaction;

pub use start::run;
