//! `maxmemory-clients`: closes the clients that take the most memory until all of
//! them together stay below the limit.
//!
//! Sessions note how much they have buffered; one that has grown calls
//! [`keep_within_limit`] at the end of its turn, so that memory never exceeds the
//! limit by more than what one turn adds. Replicas and those that asked for it with
//! CLIENT NO-EVICT are spared.

use super::{CLIENT_BYTES, Traits};
use crate::config::{ClientClass, ClientsMemory};
use crate::log;
use crate::server::Server;

/// A lower limit would leave no client to raise it again.
const LIMIT_BYTES_MIN: u64 = 128 << 10;

/// How much all clients together may take.
pub fn limit_bytes(server: &Server) -> Option<u64> {
    let bytes = match server.config.maxmemory_clients() {
        ClientsMemory::Unlimited => return None,
        ClientsMemory::Bytes(bytes) => bytes,
        ClientsMemory::PercentOfMaxmemory(percent) => match server.config.maxmemory() {
            0 => return None,
            maxmemory => (u128::from(maxmemory) * u128::from(percent) / 100) as u64,
        },
    };
    Some(bytes.max(LIMIT_BYTES_MIN))
}

/// Closes the largest clients if all together take too much.
pub fn keep_within_limit(server: &Server) {
    let Some(limit) = limit_bytes(server) else { return };
    let estimate = server.clients.buffer_bytes.get() + (server.clients.count() * CLIENT_BYTES) as u64;
    if estimate > limit {
        evict_down_to(server, limit);
    }
}

#[cold]
fn evict_down_to(server: &Server, limit: u64) {
    let mut clients: Vec<_> =
        server.clients.all().into_iter().map(|client| (client.memory_bytes() as u64, client)).collect();
    let mut total: u64 = clients.iter().map(|(bytes, _)| bytes).sum();
    clients.retain(|(_, client)| {
        !client.traits().contains(Traits::NO_EVICT) && client.class() != ClientClass::Replica
    });
    clients.sort_by_key(|(bytes, client)| (std::cmp::Reverse(*bytes), client.id));
    for (bytes, client) in clients {
        if total <= limit {
            return;
        }
        log!(Notice, "Evicting client: {}", client.line(server.clock.now()));
        server.counts.evicted_clients.add(1);
        server.clients.kill(&client);
        total -= bytes;
    }
}
