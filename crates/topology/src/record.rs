//! What is known of a server and of a shard.

use crate::ids::{ServerId, ShardId};
use std::collections::BTreeSet;

/// What a server holds its data in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edition {
    /// In memory, without a log.
    Memory,
    /// In memory and in a log.
    Durable,
    /// Beyond memory, and in a log.
    Capacity,
}

impl Edition {
    /// Its name, as the directive `edition` has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Edition::Memory => "memory",
            Edition::Durable => "durable",
            Edition::Capacity => "capacity",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Edition> {
        [Edition::Memory, Edition::Durable, Edition::Capacity]
            .into_iter()
            .find(|edition| edition.name() == name)
    }
}

/// A server's place: in which shard, and as which of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The shard.
    pub shard: ShardId,
    /// The number of the node in it, which no other server has had there.
    pub node: u32,
}

/// A server, as it has introduced itself, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Who it is.
    pub id: ServerId,
    /// Where clients and other servers reach it: an IP address, or a name.
    pub host: String,
    /// The port without TLS; 0: none.
    pub port: u16,
    /// The port with TLS; 0: none.
    pub tls_port: u16,
    /// A name that clients are told beside the address; empty: none.
    pub hostname: String,
    /// The machine, rack or building: copies of a shard go to different ones. Empty: not said.
    pub zone: String,
    /// What it holds its data in.
    pub edition: Edition,
    /// The machine that it runs on, since that was switched on: two that introduce themselves from the same address are told apart by it. Empty: not said.
    pub machine: String,
    /// Its place; None: it waits for one.
    pub place: Option<Place>,
    /// Whether somebody has said CLUSTER MEET of it, while it waits for a place: who speaks Redis Cluster is told of it, and it may begin a shard.
    pub is_met: bool,
}

/// How it stands with a shard: whom the decision on it names, by their numbers in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which one.
    pub id: ShardId,
    /// Rises with every promotion. 0: nobody was master yet.
    pub epoch: u64,
    /// The master's number; None: nobody was master yet.
    pub master: Option<u32>,
    /// The nodes that hold everything that was acknowledged.
    pub members: BTreeSet<u32>,
    /// The node with whose data it begins, until it has begun.
    pub beginner: Option<u32>,
}
