//! A cluster for tests.

use crate::ids::{ServerId, ShardId};
use crate::record::{Edition, Place, Server, Shard};
use crate::slots::SlotMap;
use crate::view::Topology;

/// The server of this number.
pub(crate) fn id(number: u8) -> ServerId {
    ServerId::from_bytes([number; 20])
}

fn server(number: u8, place: Option<(u16, u32)>) -> Server {
    Server {
        id: id(number),
        host: format!("10.0.0.{number}"),
        port: 7000 + u16::from(number),
        tls_port: 8000 + u16::from(number),
        hostname: if number == 1 { "one.example".to_owned() } else { String::new() },
        zone: String::new(),
        edition: Edition::Durable,
        machine: String::new(),
        place: place.map(|(shard, node)| Place { shard: ShardId(shard), node }),
        is_met: place.is_none() && number == 9,
    }
}

fn shard(number: u16, epoch: u64, master: Option<u32>, members: &[u32]) -> Shard {
    let beginner = master.is_none().then_some(1);
    Shard { id: ShardId(number), epoch, master, members: members.iter().copied().collect(), beginner }
}

/// Shard 0 of servers 1, which is its master, and 2; shard 1 of 4, and of 3, which is its master, and of 5, which is no member; shard 2 of 6,
/// which has not begun it; and 9, which waits, and was met.
pub(crate) fn three_shards() -> Topology {
    let servers = [
        server(1, Some((0, 1))),
        server(2, Some((0, 2))),
        server(3, Some((1, 2))),
        server(4, Some((1, 1))),
        server(5, Some((1, 3))),
        server(6, Some((2, 1))),
        server(9, None),
    ];
    let shards = [shard(0, 4, Some(1), &[1, 2]), shard(1, 7, Some(2), &[1, 2]), shard(2, 0, None, &[])];
    Topology {
        cluster: "c0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ff".to_owned(),
        revision: 42,
        servers: servers.into_iter().map(|server| (server.id, server)).collect(),
        shards: shards.into_iter().map(|shard| (shard.id, shard)).collect(),
        slots: SlotMap::even(&[ShardId(0), ShardId(1), ShardId(2)]),
        last_move: 0,
        restore: 0,
        moves: std::collections::BTreeMap::new(),
    }
}
