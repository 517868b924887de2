//! What idle connections cost. Alone in its process, which counts all that is allocated.

#![allow(clippy::unwrap_used)] // Tests may.

#[path = "sessions/harness.rs"]
#[allow(dead_code)] // It serves other tests too.
mod harness;

use harness::TestServer;
use net::client::CLIENT_BYTES;
use net::descriptors::clients_possible;
use sys::memory::{CountingAllocator, used_bytes};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const CONNECTIONS: u64 = 2000;
/// Ten thousand are to take less than 60 MB with all that the server has besides.
const BYTES_MAX: u64 = 3000;

#[test]
fn an_idle_connection_takes_little_memory() {
    let server = TestServer::start("");
    // Both ends are in this process.
    let descriptors = clients_possible(&server.server.engine.config, 2 * CONNECTIONS as u32 + 500).unwrap();
    assert!(descriptors > 2 * CONNECTIONS, "the limit of open files is too low");
    // What is allocated once is there before the first is counted.
    let _few: Vec<_> = (0..50).map(|_| quiet_connection(&server)).collect();
    let before = used_bytes();
    let streams: Vec<_> = (0..CONNECTIONS).map(|_| quiet_connection(&server)).collect();
    let bytes = (used_bytes() - before) / CONNECTIONS;
    println!("{bytes} bytes an idle connection, counted as {CLIENT_BYTES}");
    assert!(bytes < BYTES_MAX, "{bytes}");
    assert!(
        bytes.abs_diff(CLIENT_BYTES as u64) < CLIENT_BYTES as u64 / 2,
        "{bytes} are counted as {CLIENT_BYTES}"
    );
    assert_eq!(server.server.net.placement.connections(), CONNECTIONS as usize + 50);
    drop(streams);
}

/// A connection that was used once.
fn quiet_connection(server: &TestServer) -> std::net::TcpStream {
    let mut peer = server.connect();
    assert_eq!(peer.ask("PING"), "PONG");
    peer.stream
}
