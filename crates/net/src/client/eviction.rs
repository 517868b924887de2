//! `maxmemory-clients`: closes the clients that take the most memory until all of
//! them together stay below the limit.
//!
//! Sessions note how much they have buffered and keep (requests of a transaction, names of what they watch, listen to, track
//! and wait for); one that has grown calls
//! [`note_growth`] before it runs what has gathered and at the end of its turn, so that memory
//! never exceeds the limit by more than what one turn adds. Replicas and those that asked for it with
//! CLIENT NO-EVICT are spared.

use super::{CLIENT_BYTES, Client, Clients, Traits};
use config::{ClientClass, ClientsMemory, Config};
use telemetry::log;

/// However small memory is to be, so much is for clients unless they have a limit of their own.
const IMPLIED_BYTES_MIN: u64 = 64 << 20;
/// Where they have none, a client that has less than this is not the one that fills memory: the tick looks at all of them.
const IMPLIED_LOOK_BYTES: usize = 64 << 10;

/// A lower limit would leave no client to raise it again.
const LIMIT_BYTES_MIN: u64 = 128 << 10;

/// How much all clients together may take: what `maxmemory-clients` says, or else no more than `maxmemory`. Keys would have to
/// go for what clients do not read, and then there would be nothing left to go.
pub fn limit_bytes(config: &Config) -> Option<u64> {
    let maxmemory = Some(config.maxmemory()).filter(|bytes| *bytes > 0);
    match config.maxmemory_clients() {
        ClientsMemory::Unlimited => maxmemory.map(|bytes| bytes.max(IMPLIED_BYTES_MIN)),
        ClientsMemory::Bytes(bytes) => Some(bytes.max(LIMIT_BYTES_MIN)),
        ClientsMemory::PercentOfMaxmemory(percent) => maxmemory.map(|maxmemory| {
            let bytes = u128::from(maxmemory) * u128::from(percent) / 100;
            u64::try_from(bytes).unwrap_or(u64::MAX).max(LIMIT_BYTES_MIN)
        }),
    }
}

/// Called by a session that has grown to so many bytes, before its client shows them.
pub fn note_growth(clients: &Clients, client: &Client, bytes: usize) {
    if bytes >= IMPLIED_LOOK_BYTES || clients.limits.is_explicit() {
        keep_within(clients, Some((client, bytes)));
    }
}

/// Closes the largest clients if all together take too much.
pub fn keep_within_limit(clients: &Clients) {
    keep_within(clients, None);
}

/// The same where one has so many bytes that it does not show yet.
fn keep_within(clients: &Clients, grown: Option<(&Client, usize)>) {
    let Some(limit) = clients.limits.memory_bytes() else { return };
    let estimate = clients.buffer_bytes.get() + (clients.count() * CLIENT_BYTES) as u64;
    if estimate > limit {
        evict_down_to(clients, limit, grown);
    }
}

#[cold]
fn evict_down_to(clients: &Clients, limit: u64, grown: Option<(&Client, usize)>) {
    let bytes_of = |client: &Client| match grown {
        Some((grown, bytes)) if grown.id == client.id => CLIENT_BYTES + bytes + client.mail_bytes(),
        _ => client.memory_bytes(),
    };
    let mut largest: Vec<_> =
        clients.all().into_iter().map(|client| (bytes_of(&client) as u64, client)).collect();
    let mut total: u64 = largest.iter().map(|(bytes, _)| bytes).sum();
    largest.retain(|(_, client)| !is_spared(client));
    largest.sort_by_key(|(bytes, client)| (std::cmp::Reverse(*bytes), client.id));
    for (bytes, client) in largest {
        if total <= limit {
            return;
        }
        close(clients, &client, &client.line(clients.clock().now()));
        total -= bytes;
    }
}

/// Whether a client stays, whatever it takes.
pub(super) fn is_spared(client: &Client) -> bool {
    client.traits().contains(Traits::NO_EVICT) || client.class() == ClientClass::Replica
}

/// Closes a client for what it takes, and tells what it was.
pub(super) fn close(clients: &Clients, client: &Client, line: &str) {
    // Several workers may find at once that it has to go.
    if clients.kill(client) {
        log!(Notice, "Evicting client: {line}");
        clients.evicted.add(1);
    }
}
