//! The store: the capacity edition's disk half. Segments of records, cold reads, cleaning.
//!
//! On a command's path it lies under the keyspace, whose slot tables are its only index: a cold key's word holds the number of the
//! page that its record is in. Workers read pages ([`Store::place_of`], [`Page`]) and count what dies; the spiller writes
//! [`Chunk`]s; a checkpoint makes durable what was written and keeps the [table](Store::table) of segments; the cleaner takes what
//! still lives out of [victims](Store::victim). Nothing here knows slots, types or clocks, and no thread is started.
//!
//! What is durable is what the log says; the store owes nothing before a checkpoint. From then on it owes every record that the
//! checkpoint's index refers to, until a later checkpoint is complete. Bytes: `docs/formats/store.md`. All limits: [`limits`].

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]

mod check;
mod chunk;
mod cleaning;
mod extent;
mod failure;
mod handles;
mod in_order;
mod inventory;
pub mod limits;
mod number;
mod options;
mod pack;
mod page;
mod record;
mod segment;
mod shared;
mod stats;
mod store;
mod table;

pub use check::{Report, SegmentReport, check};
pub use chunk::{Chunk, Room};
pub use extent::{Joined, Rest};
pub use failure::{Damage, ReadError, Refusal, Wrong};
pub use in_order::Kept;
pub use number::{PageNo, Run, SegmentNo};
pub use options::{Class, Compression, Options};
pub use page::{Found, Page};
pub use record::{Image, OwnedRecord, Record};
pub use stats::Stats;
pub use store::{CheckpointMark, Store, ToRead};
