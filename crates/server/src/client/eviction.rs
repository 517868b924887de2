//! `maxmemory-clients`: closes the clients that take the most memory until all of
//! them together stay below the limit.
//!
//! Sessions note how much they have buffered and keep (requests of a transaction, names of what they watch, listen to, track
//! and wait for); one that has grown calls
//! [`note_growth`] at the end of its turn, so that memory never exceeds the
//! limit by more than what one turn adds. Replicas and those that asked for it with
//! CLIENT NO-EVICT are spared.

use super::{CLIENT_BYTES, Traits};
use crate::server::Server;
use config::{ClientClass, ClientsMemory};
use telemetry::log;

/// However small memory is to be, so much is for clients unless they have a limit of their own.
const IMPLIED_BYTES_MIN: u64 = 64 << 20;
/// Where they have none, a client that has less than this is not the one that fills memory: the tick looks at all of them.
const IMPLIED_LOOK_BYTES: usize = 64 << 10;

/// A lower limit would leave no client to raise it again.
const LIMIT_BYTES_MIN: u64 = 128 << 10;

/// How much all clients together may take: what `maxmemory-clients` says, or else no more than `maxmemory`. Keys would have to
/// go for what clients do not read, and then there would be nothing left to go.
pub fn limit_bytes(server: &Server) -> Option<u64> {
    let maxmemory = Some(server.engine.config.maxmemory()).filter(|bytes| *bytes > 0);
    match server.engine.config.maxmemory_clients() {
        ClientsMemory::Unlimited => maxmemory.map(|bytes| bytes.max(IMPLIED_BYTES_MIN)),
        ClientsMemory::Bytes(bytes) => Some(bytes.max(LIMIT_BYTES_MIN)),
        ClientsMemory::PercentOfMaxmemory(percent) => maxmemory.map(|maxmemory| {
            let bytes = u128::from(maxmemory) * u128::from(percent) / 100;
            u64::try_from(bytes).unwrap_or(u64::MAX).max(LIMIT_BYTES_MIN)
        }),
    }
}

/// Called by a session that has grown to so many bytes.
pub fn note_growth(server: &Server, bytes: usize) {
    if bytes >= IMPLIED_LOOK_BYTES || server.engine.config.maxmemory_clients() != ClientsMemory::Unlimited {
        keep_within_limit(server);
    }
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
        let line = client.line(server.engine.clock.now());
        // Several workers may find at once that it has to go.
        if server.clients.kill(&client) {
            log!(Notice, "Evicting client: {line}");
            server.counts.evicted_clients.add(1);
        }
        total -= bytes;
    }
}
