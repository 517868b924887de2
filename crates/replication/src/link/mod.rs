//! A replica's side of Redis' replication protocol, for following Redis 7.0 and later or Valkey 8 and later.
//!
//! Pure state machines in the order in which a connection goes through them: [`Handshake`] up to the master's answer to PSYNC,
//! [`Transfer`] for the RDB of a full sync, [`MasterStream`] for what follows, and [`Reports`] for what the replica says
//! meanwhile. They take bytes however they were cut, and give bytes and events; sockets, timeouts, disks and the keyspace are
//! their owner's. Each belongs to one connection and one thread.
//!
//! What holds for all of them:
//! 1. What is handed out, and whether it ends, does not depend on how the bytes were cut into reads.
//! 2. No more is kept than what one limit of [`limits`], or one given by the owner, allows. A declared length reserves nothing.
//! 3. Bytes that are not the protocol end the connection with one sentence, and nothing that came after them counts.
//!
//! Sources: Redis' page "Replication" and the behaviour of its replicas, read in `replication.c` and `networking.c` of Redis 7.2.6
//! (named where a detail was decided by them), and compared with live servers by `tests/follow.rs`.

mod ending;
mod form;
mod handshake;
pub mod limits;
mod line;
mod reports;
mod stream;
#[cfg(test)]
mod tests;
mod transfer;
mod walk;

pub use ending::Ending;
pub use handshake::{Ask, Handshake, NODE, Outcome, Replica, Step};
pub use reports::{Report, Reports, acknowledgement};
pub use stream::{MasterStream, Place, Role, Unit, UnitKind};
pub use transfer::{Form, Taken, Transfer};
pub use walk::{Group, UnitRequest, Walk, Words};
