//! The whole of a cluster at one revision.

use crate::ids::{ServerId, ShardId};
use crate::moves::Move;
use crate::record::{Place, Server, Shard};
use crate::slots::SlotMap;
use std::collections::BTreeMap;

/// A cluster as the store of decisions had it at a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Which cluster: drawn when it began, 40 hexadecimal digits. Servers of another are none of its.
    pub cluster: String,
    /// Rises with every change of anything.
    pub revision: u64,
    /// All servers that have introduced themselves and were not removed.
    pub servers: BTreeMap<ServerId, Server>,
    /// All shards.
    pub shards: BTreeMap<ShardId, Shard>,
    /// Who has which slots.
    pub slots: SlotMap,
    /// The number of the last move that was ever begun: a topology with less is of a store that has forgotten some.
    pub last_move: u64,
    /// The number of the last attempt to bring a backup to a cluster that waits for one; 0: it waits for none.
    pub restore: u64,
    /// Slots that are on their way, or were to be.
    pub moves: BTreeMap<u64, Move>,
}

impl Topology {
    /// The server that has a place.
    #[must_use]
    pub fn server_at(&self, place: Place) -> Option<&Server> {
        self.servers_of(place.shard).find(|server| server.place == Some(place))
    }

    /// The servers with places in a shard, by their numbers in it.
    pub fn servers_of(&self, shard: ShardId) -> impl Iterator<Item = &Server> {
        let mut servers: Vec<&Server> = self
            .servers
            .values()
            .filter(|server| server.place.is_some_and(|place| place.shard == shard))
            .collect();
        servers.sort_by_key(|server| server.place);
        servers.into_iter()
    }

    /// The server that is master of a shard; None: nobody, or one that is no server of the cluster any more.
    #[must_use]
    pub fn master_of(&self, shard: ShardId) -> Option<&Server> {
        let node = self.shards.get(&shard)?.master?;
        self.server_at(Place { shard, node })
    }

    /// Whether a server is master of its shard.
    #[must_use]
    pub fn is_master(&self, server: &Server) -> bool {
        server.place.is_some_and(|place| {
            self.shards.get(&place.shard).is_some_and(|shard| shard.master == Some(place.node))
        })
    }

    /// Whether a server holds everything that its shard has acknowledged.
    #[must_use]
    pub fn is_member(&self, server: &Server) -> bool {
        server.place.is_some_and(|place| {
            self.shards.get(&place.shard).is_some_and(|shard| shard.members.contains(&place.node))
        })
    }

    /// The servers of a shard that are not its master.
    pub fn replicas_of(&self, shard: ShardId) -> impl Iterator<Item = &Server> {
        self.servers_of(shard).filter(|server| !self.is_master(server))
    }
}
