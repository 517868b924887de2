//! The in-sync set of one shard: which nodes hold everything that was acknowledged, who of them is the master, and up to
//! where the log is committed.
//!
//! [`Member`] is one node's part as a pure state machine: [`step`](Member::step) takes an event and the node's time, and gives the
//! actions that follow. It has no I/O, clock, thread or randomness of its own, so that whole shards run from one seed (`tests`).
//!
//! The scheme is PacificA's (Lin, Yang, Zhang, Zhou: PacificA, Microsoft Research, 2008): a configuration of members in a store of
//! its own, changed by compare-and-set; writes go to every member; leases between members and master. Epochs, and
//! what a new master does with what it has, are as views in Viewstamped Replication (Oki and Liskov, 1988).
//!
//! What holds at all times:
//! 1. Whatever is committed is durable on every member of every decision made from then on.
//! 2. Only a member of the current decision becomes master, and with it the epoch rises. One life of one process is master
//!    of an epoch at most, so an epoch and a position name one record.
//! 3. Whoever is not sure of a decision's outcome acts as if both were true: both sets of members must acknowledge and lend.
//! 4. A member that has lent the master time to read does not ask to be master before that time is over, or the master has said that it reads no more.

mod candidacy;
mod decisions;
mod event;
mod fault;
mod following;
mod handover;
mod history;
mod identity;
mod lease;
mod mastership;
mod member;
mod message;
mod options;
mod peer;
#[cfg(test)]
mod tests;
mod text;

#[cfg(test)]
use fault::Fault;

pub use decisions::{Answer, Decision, Decisions, Register, Request, Ticket, Version};
pub use event::{Action, Contradiction, Event, Loss, Obstacle};
pub use history::{Beginning, History};
pub use identity::{Epoch, Life, LinkId, MemberId, Moment, NodeId};
pub use lease::stretched;
pub use member::{Member, Restored, Role, Writes};
pub use message::{Lease, Message, Reached};
pub use options::Options;
pub use text::Kept;
