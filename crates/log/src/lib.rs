//! The log: what makes effects durable, in the order in which they were executed.
//!
//! On a command's path it sits between the keyspace and the gate. Workers [`append`](Log::append) records while they hold the
//! slots of the keys that changed; one thread writes what has been appended, syncs it and says how far the log is durable;
//! the gate lets replies out up to there. A start goes through [`recover`]: what is in a directory, decided by one table,
//! then the newest checkpoint and the log from there.
//!
//! Promises, crash cases and assumptions about the disk: `docs/durability.md`. Bytes: `docs/formats/`. All limits: [`limits`].

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]

mod block;
mod buffer;
mod check;
mod checkpoint;
mod directory;
mod failure;
pub mod limits;
mod log;
mod lsn;
mod options;
mod reader;
mod recovery;
mod refusal;
mod restore;
mod segment;
mod stream;
mod stream_reader;
mod threads;
mod writer;

pub use block::{Block, Record, Records};
pub use check::{CheckpointReport, Report, SegmentReport, check};
pub use checkpoint::{Checkpoint, CheckpointWriter, ChunkPlace};
pub use directory::{Retention, Retired};
pub use failure::{Failure, Operation};
pub use log::{Log, Observer, Status};
pub use lsn::Lsn;
pub use options::{Flushing, Options, SyncPolicy};
pub use reader::Blocks;
pub use recovery::{Case, Recovery, inspect, is_there, newest_checkpoint, recover, recover_to_read};
pub use refusal::Refusal;
pub use restore::{Restored, Target, restore};
pub use stream::{Dresser, ReplicationId, Span, Stream, Unit};
pub use stream_reader::StreamReader;
