//! CLIENT KILL.

use crate::harness::TestServer;

#[test]
fn killed_clients_are_gone_at_once_and_others_stay() {
    let server = TestServer::start("");
    let mut peers: Vec<_> = (0..6).map(|_| server.connect()).collect();
    let ids: Vec<u64> = peers.iter_mut().map(|peer| peer.id()).collect();
    let address = peers[1].stream.local_addr().unwrap();
    assert_eq!(peers[0].ask(&format!("CLIENT KILL {address}")), "OK");
    assert_eq!(peers[0].ask("CLIENT LIST").lines().count(), 5);
    assert_eq!(peers[1].text(), "END");
    assert_eq!(peers[0].ask(&format!("CLIENT KILL ID {} ADDR 1.2.3.4:5", ids[2])), "0");
    assert_eq!(peers[0].ask(&format!("CLIENT KILL ID {}", ids[2])), "1");
    assert_eq!(peers[2].text(), "END");
    assert_eq!(peers[0].ask(&format!("CLIENT KILL LADDR {} TYPE normal", server.address())), "3");
    assert!(peers[3..].iter_mut().all(|peer| peer.text() == "END"));
    assert_eq!(peers[0].ask("PING"), "PONG");
    server.wait_until("sessions are over", || server.server.net.placement.connections() == 1);
}

#[test]
fn own_kill_is_answered_before_the_connection_closes() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    let address = peer.stream.local_addr().unwrap();
    peer.send(&["PING", &format!("CLIENT KILL {address}"), "SET after 1"]);
    assert_eq!(peer.texts(3), ["PONG", "OK", "END"]);
    let mut peer = server.connect();
    assert_eq!(peer.ask("CLIENT KILL TYPE normal SKIPME no"), "1");
    assert_eq!(peer.text(), "END");
    assert_eq!(server.connect().ask("EXISTS after"), "0");
}

#[test]
fn a_client_that_does_not_read_can_be_killed() {
    let server = TestServer::start("");
    let mut stuck = server.connect();
    let id = stuck.id();
    stuck.send(&["SETRANGE big 33554432 x", "GET big"]);
    let client = server.server.net.clients.get(id).unwrap();
    server.wait_until("replies pile up", || {
        client.output_bytes.load(std::sync::atomic::Ordering::Relaxed) > 1 << 20
    });
    assert_eq!(server.connect().ask(&format!("CLIENT KILL ID {id}")), "1");
    server.wait_until("it is gone", || server.server.net.placement.connections() == 0);
    assert_eq!(server.server.net.clients.buffer_bytes.get(), 0);
}
