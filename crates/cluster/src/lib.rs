//! The cluster's control plane: config servers over a store of decisions, and the operator's tool.
//!
//! [`store`] is where decisions lie, behind one trait. [`control`] decides (who leads, which server has which place, when a shard begins, who has its slots, who takes a lost
//! copy's place) as a state machine without I/O. [`service`] is what runs it. `backup` takes the data of all shards as of one moment, and brings it to a new cluster. [`roles`] are `tarn config` and the operator's tool, `tarn cluster`.
//!
//! It knows no server but by what is said over the wire.

#![forbid(unsafe_code)]

mod asking;
mod backup;
pub mod control;
pub mod roles;
mod screen;
pub mod service;
pub mod store;
mod table;
