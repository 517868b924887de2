//! Sessions over real sockets, against a server in this process.

#![allow(clippy::unwrap_used)] // Tests may.

mod acl;
mod admin;
mod auth;
mod blocking;
mod bounds;
mod cluster;
mod commands;
mod harness;
mod kill;
mod lifecycle;
mod limits;
mod order;
mod pause;
mod pubsub;
mod rows;
mod secrets;
mod streams;
mod tls;
mod tracking;
mod transactions;
