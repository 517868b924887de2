//! CLIENT PAUSE and UNPAUSE.

use crate::harness::TestServer;

#[test]
fn a_paused_pipeline_keeps_its_order() {
    let server = TestServer::start("");
    let (mut admin, mut writer, mut reader) = (server.connect(), server.connect(), server.connect());
    assert_eq!(admin.ask("CLIENT PAUSE 600000 WRITE"), "OK");
    writer.send(&["GET a", "SET a 1", "GET a", "INCR a", "GET a"]);
    assert_eq!(writer.text(), "NULL", "what comes before the first write is answered");
    assert!(writer.is_silent());
    assert_eq!(reader.ask("GET a"), "NULL");
    let list = admin.ask("CLIENT LIST");
    assert_eq!(list.lines().filter(|line| line.contains(" flags=b ")).count(), 1, "{list}");
    writer.send(&["APPEND a 0"]);
    assert!(writer.is_silent());
    assert_eq!(admin.ask("CLIENT UNPAUSE"), "OK");
    assert_eq!(writer.texts(5), ["OK", "1", "2", "2", "2"]);
    assert_eq!(writer.ask("GET a"), "20");
}

#[test]
fn a_pause_of_all_ends_by_itself() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    assert_eq!(peer.ask("CLIENT PAUSE 20"), "OK");
    assert_eq!(peer.ask("CLIENT PAUSE 10 WRITE"), "OK", "which waits for the first one");
    assert_eq!(peer.ask("PING"), "PONG");
}

#[test]
fn requests_of_a_client_that_went_away_in_a_pause_still_run() {
    let server = TestServer::start("");
    let (mut admin, mut peer) = (server.connect(), server.connect());
    assert_eq!(admin.ask("CLIENT PAUSE 600000 WRITE"), "OK");
    peer.send(&["SET a 1", "GET a"]);
    peer.half_close();
    assert!(peer.is_silent());
    assert_eq!(admin.ask("CLIENT UNPAUSE"), "OK");
    assert_eq!(peer.texts(3), ["OK", "1", "END"]);
}
