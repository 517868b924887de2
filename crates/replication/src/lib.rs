//! Replication: how an acknowledged write survives its master.
//!
//! Here is what decides: [`insync`], the in-sync set of one shard as a pure state machine. What carries its messages,
//! streams the log and asks the store of decisions lies outside of it and is handed in as events.
//!
//! [`feed`] is the master's side of Redis' own protocol as far as it is bytes: the backlog, and what stands for what is left out.
//!
//! [`link`] is a replica's side of Redis' own protocol, for following a Redis or Valkey master: bytes in, bytes and events out.
//!
//! What each setting promises, and every failure case by case: `docs/replication.md`.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]

pub mod feed;
pub mod insync;
pub mod link;
