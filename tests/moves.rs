//! CONFIG SET `port` and `bind`: who listens where afterwards, who stays connected, and what a failure leaves.

use crate::tarn;
use std::net::{SocketAddr, TcpListener, TcpStream};
use testkit::ask::{ask, call_well};
use testkit::{Client, Server, free_port};

fn listens(port: u16) -> bool {
    TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).is_ok()
}

/// Asks over a connection of its own, which has to be accepted for that.
fn is_served(port: u16) -> bool {
    is_served_at(1, port)
}

/// The same at another of this machine's own addresses.
fn is_served_at(last: u8, port: u16) -> bool {
    let mut client = Client::connect(SocketAddr::from(([127, 0, 0, last], port))).unwrap();
    ask(&mut client, &["PING"]) == "PONG"
}

fn get(client: &mut Client, name: &str) -> String {
    format!("{:?}", call_well(client, &["CONFIG", "GET", name]))
}

#[test]
fn a_server_moves_to_another_port_and_keeps_its_connections() {
    let server = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    let (first, mut client) = (server.address().port(), server.connect().unwrap());
    let second = free_port().unwrap();
    assert_eq!(ask(&mut client, &["CONFIG", "SET", "port", &second.to_string()]), "OK");
    assert!(is_served(second) && !listens(first));
    assert_eq!(ask(&mut client, &["PING"]), "PONG");
    assert!(ask(&mut client, &["INFO", "server"]).contains(&format!("tcp_port:{second}\r\n")));
    // Nowhere at all, and back again.
    assert_eq!(ask(&mut client, &["CONFIG", "SET", "port", "0"]), "OK");
    assert!(!listens(second));
    assert_eq!(ask(&mut client, &["CONFIG", "SET", "port", &second.to_string()]), "OK");
    assert!(is_served(second));
}

#[test]
fn a_port_that_is_taken_changes_nothing() {
    let server = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    let mut client = server.connect().unwrap();
    let (before, limit) = (get(&mut client, "port"), get(&mut client, "maxmemory"));
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().port().to_string();
    assert_eq!(
        ask(&mut client, &["CONFIG", "SET", "maxmemory", "1mb", "port", &taken]),
        "ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen on this port. Check server logs."
    );
    assert_eq!(get(&mut client, "port"), before);
    assert_eq!(get(&mut client, "maxmemory"), limit);
    assert!(is_served(server.address().port()));
}

#[test]
fn addresses_change_and_come_back_if_they_cannot_be_had() {
    let server = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    let port = server.address().port();
    let mut client = server.connect().unwrap();
    let mut bind = |words: &str| ask(&mut client, &["CONFIG", "SET", "bind", words]);
    // The address that is left is in the way of the new one.
    for words in ["*", "127.0.0.1", "* -::*", "127.0.0.1 -::1"] {
        assert_eq!(bind(words), "OK", "{words}");
        assert!(is_served(port), "{words}");
    }
    let refused = "ERR CONFIG SET failed (possibly related to argument 'bind') - Failed to bind to specified addresses.";
    // 192.0.2.1 is nobody's; the first address could be had.
    for words in ["* 192.0.2.1", "127.0.0.2 192.0.2.1", "192.0.2.1", "no.such.name.invalid"] {
        assert_eq!(bind(words), refused, "{words}");
        assert!(is_served(port), "{words}");
    }
    // Whoever accepts must not be kept from it by a door that was out of the way for a moment.
    assert_eq!(bind("127.0.0.1 127.0.0.2"), "OK");
    for round in 0..500 {
        assert_eq!(bind("* 192.0.2.1"), refused, "{round}");
        assert!(is_served_at(1, port) && is_served_at(2, port), "{round}");
    }
    assert_eq!(bind("127.0.0.1 -192.0.2.1"), "OK");
    assert!(is_served(port));
    assert_eq!(bind(""), "OK");
    assert!(!listens(port));
    assert_eq!(bind("127.0.0.1"), "OK");
    assert!(is_served(port));
}
