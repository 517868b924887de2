//! What clients with TLS can make the server keep, before keys are agreed on and afterwards (docs/security.md).

use crate::harness::{PATIENCE, TestServer};
use net::descriptors::clients_possible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;
use sys::{Clock, UnixMs};
use testkit::free_port;
use testkit::tls::{Files, SecureClient};

const MIB: usize = 1 << 20;

struct Site {
    server: TestServer,
    address: SocketAddr,
    _files: Files,
}

/// One that asks no client for a certificate.
fn start(clock: Clock, directives: &str) -> Site {
    let (files, port) = (Files::new().unwrap(), free_port().unwrap());
    let named = files.directives().map(|(name, value)| format!("{name} {value}\n")).concat();
    let text = format!("{named}tls-port {port}\ntls-auth-clients no\n{directives}");
    Site { server: TestServer::start_at(clock, &text), address: ([127, 0, 0, 1], port).into(), _files: files }
}

impl Site {
    fn connect(&self) -> SecureClient {
        SecureClient::connect(self.address, None).unwrap()
    }

    fn plain_socket(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    fn stranger_bytes(&self) -> u64 {
        self.server.server.net.clients.stranger_bytes.get()
    }
}

/// The beginning of a first word that is announced as 60,000 bytes long: so many bytes of it, in records.
fn endless_hello(length: usize) -> Vec<u8> {
    let message =
        [&[1, 0, 60_000u16.to_be_bytes()[0], 60_000u16.to_be_bytes()[1]][..], &[0; 60_000]].concat();
    let record = |part: &[u8]| [&[0x16, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
    let mut bytes: Vec<u8> = message.chunks(16 << 10).flat_map(record).collect();
    bytes.truncate(length);
    bytes
}

fn is_closed(mut socket: TcpStream) -> bool {
    let mut told = Vec::new();
    match socket.read_to_end(&mut told) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn handshakes_that_do_not_end_are_closed() {
    let clock = Clock::simulated(UnixMs(1_000_000));
    let site = start(clock.clone(), "");
    let mut done = site.connect();
    done.call(&["PING"]).unwrap();
    let sockets: Vec<TcpStream> = [0, 3, 1000]
        .map(|length| {
            let mut socket = site.plain_socket();
            socket.write_all(&endless_hello(length)).unwrap();
            socket
        })
        .into();
    // Whose time begins when a worker has it.
    site.server.wait_until("all are known", || site.server.server.net.clients.count() == 4);
    clock.advance_ms(9_000);
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(site.server.server.net.placement.connections(), 4);
    clock.advance_ms(2_000);
    assert!(sockets.into_iter().all(is_closed));
    done.call(&["PING"]).unwrap();
    assert_eq!(site.stranger_bytes(), 0);
}

#[test]
fn a_handshake_keeps_little() {
    let site = start(Clock::Real, "");
    let mut socket = site.plain_socket();
    socket.write_all(&endless_hello(30_000)).unwrap();
    site.server.wait_until("it is kept", || site.stranger_bytes() >= 30_000);
    assert!(site.stranger_bytes() <= 64 << 10);
    let _ = socket.write_all(&endless_hello(60_000)[30_000..]);
    assert!(is_closed(socket));
    site.server.wait_until("nothing is left", || site.stranger_bytes() == 0);
}

#[test]
fn unfinished_handshakes_together_have_little() {
    const NEWCOMERS: usize = 700;
    let site = start(Clock::Real, "");
    let descriptors =
        clients_possible(&site.server.server.engine.config, 2 * NEWCOMERS as u32 + 500).unwrap();
    assert!(descriptors > 2 * NEWCOMERS as u64, "the limit of open files is too low");
    let sockets: Vec<TcpStream> = (0..NEWCOMERS)
        .map(|_| {
            let mut socket = site.plain_socket();
            socket.write_all(&endless_hello(30_000)).unwrap();
            socket
        })
        .collect();
    site.server.wait_until("some are closed", || site.server.server.net.placement.connections() < NEWCOMERS);
    assert!(site.stranger_bytes() <= 17 * MIB as u64);
    // Whose first word comes whole needs none of it.
    site.connect().call(&["PING"]).unwrap();
    drop(sockets);
    site.server.wait_until("nothing is left", || site.stranger_bytes() == 0);
}

#[test]
fn sealed_replies_count_as_replies() {
    let site = start(Clock::Real, "client-output-buffer-limit normal 4mb 0 0");
    let mut client = site.connect();
    client.call(&["SETRANGE", "mib", "1048575", "x"]).unwrap();
    client.send(&b"GET mib\r\n".repeat(100)).unwrap();
    let clients = &site.server.server.net.clients;
    site.server.wait_until("it is closed", || clients.output_limit_disconnections.get() == 1);
    // A little that the socket does not take is shown as well.
    let client = site.connect();
    let (mut client, id) = (client, 2);
    client.send(&b"GET mib\r\n".repeat(4)).unwrap();
    site.server.wait_until("some is left", || {
        site.server
            .server
            .net
            .clients
            .get(id)
            .is_some_and(|client| client.output_bytes.load(Ordering::Relaxed) > 0)
    });
}
