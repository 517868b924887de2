//! What a cluster looks like: its servers, the shards in which they have places, who is master of each, and which shard has which slots.
//!
//! Pure: no clock, no I/O, no randomness. Who decides any of it is above (`cluster`); here are its terms, how it travels as text, and where a slot's
//! requests go.

#![forbid(unsafe_code)]

#[cfg(test)]
mod examples;
mod ids;
mod moves;
mod record;
mod routes;
mod slots;
mod text;
mod view;
mod wire_form;

pub use ids::{ServerId, ShardId};
pub use moves::{Move, Stage};
pub use record::{Edition, Place, Server, Shard};
pub use routes::{Route, Routes};
pub use slots::{SlotMap, SlotRange};
pub use view::Topology;
pub use wire_form::{CLUSTER_FIELD, Endpoint, REVISION_FIELD, Telling};
