//! `tarn migrate`: data from a Redis, a Valkey or a Tarn, or from each master of a Redis Cluster, into a server, a cluster, or what is behind a proxy, while
//! clients go on writing to the source.
//!
//! The path of a key: [`source`] is a replica to whoever has it; [`copying`] brings its copy, and [`round`] what its stream says; [`target`] has it done, once.
//! [`following`] is one source's part, [`course`] is all of them, and the end. [`held`] says why times to live are put right last. docs/migrate.md is the contract.

#![forbid(unsafe_code)]

mod connection;
mod copying;
mod course;
mod ending;
mod following;
mod held;
mod limits;
mod options;
mod place;
mod round;
mod screen;
mod settling;
mod source;
mod target;
mod values;
mod verifying;
mod words;

pub use options::run;
