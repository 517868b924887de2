//! Everything between sockets and what is served: listening, accepting, TLS, reading and writing, which worker has which connection,
//! and who is connected, as all others see and reach it.
//!
//! It knows no keys, no commands' handlers and no server: what requests mean is a [`service::Service`]'s, which is handed in where
//! a worker begins. What clients are owed and may take follows the configuration, and whoever has something for one posts it.

#![forbid(unsafe_code)]

pub mod accept;
pub mod accepted;
pub mod client;
pub mod connect;
pub mod connection;
pub mod descriptors;
pub mod desk;
pub mod encryption;
pub mod gate;
pub mod handshakes;
pub mod inboxes;
pub mod listen;
pub mod placement;
pub mod service;
mod shared;
pub mod stream;
pub mod tls;
pub mod worker;

pub use shared::Shared;
