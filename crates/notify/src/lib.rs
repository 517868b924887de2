//! Who is told what happens: subscribers of channels and of keyspace events, clients that cache what they read, sessions
//! that watch keys, and those who are shown every command.
//!
//! Each has a registry, and a part that its session owns. It knows no session, no server and no durability: who serves a
//! session hands the client and that part down, and the keyspace tells the [`audience`] what has changed.

#![forbid(unsafe_code)]

pub mod audience;
pub mod events;
pub mod monitor;
pub mod pubsub;
pub mod tracking;
pub mod watches;
