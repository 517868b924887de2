//! What idle connections with TLS cost. Alone in its process, which counts all that is allocated.

#![allow(clippy::unwrap_used)] // Tests may.

#[path = "sessions/harness.rs"]
#[allow(dead_code)] // It serves other tests too.
mod harness;

use harness::TestServer;
use net::client::{CLIENT_BYTES, TLS_CLIENT_BYTES};
use net::descriptors::clients_possible;
use std::net::{SocketAddr, TcpStream};
use sys::memory::{CountingAllocator, used_bytes};
use testkit::free_port;
use testkit::tls::{Files, SecureClient};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const CONNECTIONS: u64 = 1000;
/// Redis takes 37 KB.
const BYTES_MAX: u64 = 6000;

#[test]
fn an_idle_connection_with_tls_takes_little_memory() {
    let (files, port) = (Files::new().unwrap(), free_port().unwrap());
    let named = files.directives().map(|(name, value)| format!("{name} {value}\n")).concat();
    let server = TestServer::start(&format!("{named}tls-port {port}\ntls-auth-clients no"));
    // Both ends are in this process.
    let descriptors = clients_possible(&server.server.engine.config, 2 * CONNECTIONS as u32 + 500).unwrap();
    assert!(descriptors > 2 * CONNECTIONS, "the limit of open files is too low");
    let address = ([127, 0, 0, 1], port).into();
    // What is allocated once is there before the first is counted.
    let _few: Vec<_> = (0..50).map(|_| quiet_connection(address)).collect();
    let before = used_bytes();
    let sockets: Vec<_> = (0..CONNECTIONS).map(|_| quiet_connection(address)).collect();
    let bytes = (used_bytes() - before) / CONNECTIONS;
    let counted = (CLIENT_BYTES + TLS_CLIENT_BYTES) as u64;
    println!("{bytes} bytes an idle connection with TLS, counted as {counted}");
    assert!(bytes < BYTES_MAX, "{bytes}");
    assert!(bytes.abs_diff(counted) < counted / 4, "{bytes} are counted as {counted}");
    drop(sockets);
}

/// A connection that was used once, without what its own side kept for it.
fn quiet_connection(address: SocketAddr) -> TcpStream {
    let mut client = SecureClient::connect(address, None).unwrap();
    client.call(&["PING"]).unwrap();
    client.into_socket()
}
