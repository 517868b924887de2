//! CLIENT PAUSE and UNPAUSE.

use crate::harness::TestServer;
use std::time::Duration;
use sys::UnixMs;

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
    assert!(admin.ask("INFO clients").contains("blocked_clients:1"));
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

#[test]
fn no_write_takes_effect_behind_the_beginning_of_a_pause() {
    let server = TestServer::start("");
    let (mut admin, mut writer) = (server.connect(), server.connect());
    let worker = server.server.net.clients.get(writer.id()).unwrap().worker();
    let mut batch = server.server.engine.keyspace.enter(server.server.engine.guest());
    batch.hold(&[server.server.engine.keyspace.key(keyspace::DbIndex(0), b"k")]);
    // It has been let through, and waits for its key.
    writer.send(&["SET k v"]);
    server.wait_until("it waits", || server.server.net.placement.is_occupied(worker));
    admin.send(&["CLIENT PAUSE 600000 WRITE"]);
    assert!(admin.is_silent(), "the pause has not begun");
    drop(batch);
    assert_eq!(admin.text(), "OK");
    let changes = server.server.engine.keyspace.writes();
    assert_eq!((writer.text().as_str(), changes), ("OK", 1), "it was before the pause");
    writer.send(&["SET k w"]);
    assert!(writer.is_silent());
    assert_eq!(admin.ask("GET k"), "v");
    assert_eq!(admin.ask("CLIENT UNPAUSE"), "OK");
    assert_eq!(writer.text(), "OK");
}

#[test]
fn a_pause_in_a_transaction_lets_that_one_come_to_its_end() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    peer.send(&["MULTI", "CLIENT PAUSE 600000 WRITE", "SET k v", "EXEC", "GET k", "CLIENT UNPAUSE"]);
    assert_eq!(peer.texts(3), ["OK", "QUEUED", "QUEUED"]);
    assert!(peer.text().contains("Simple"));
    assert_eq!(peer.texts(2), ["v", "OK"]);
}

#[test]
fn keys_whose_time_is_up_stay_where_they_are_during_a_pause() {
    let clock = sys::Clock::simulated(sys::UnixMs(1_700_000_000_000));
    let server = TestServer::start_at(clock.clone(), "");
    let mut peer = server.connect();
    let expired = &server.server.engine.keyspace.stats().expired;
    peer.send(&["SET k v PX 10", "HSET h f v", "PEXPIRE h 10", "CLIENT PAUSE 600000 WRITE"]);
    assert_eq!(peer.texts(4), ["OK", "1", "1", "OK"]);
    clock.advance_ms(1000);
    peer.send(&["GET k", "EXISTS h", "TTL k", "DBSIZE", "CLIENT UNPAUSE"]);
    assert_eq!(peer.texts(5), ["NULL", "0", "-2", "2", "OK"]);
    peer.send(&["GET k", "EXISTS h", "DBSIZE"]);
    assert_eq!(peer.texts(3), ["NULL", "0", "0"]);
    assert_eq!(expired.get(), 2);
}

#[test]
fn a_cut_ends_in_its_time_whatever_the_clock_says() {
    let server = TestServer::start("");
    let (pause, engine) = (&server.server.pause, &server.server.engine);
    // Where the clock was an hour ahead.
    let now = engine.clock.now();
    let ahead = UnixMs(now.0 + 3_600_000);
    let cut = pause.hold(engine, ahead, Duration::from_secs(1)).expect("there is no other");
    // It was put back, and stays there: who waits looks again when the cut is over.
    let (_, until) = pause.at(engine, now).expect("it is on");
    assert!(until.0 <= now.0 + 1001, "{until:?}");
    server.wait_until("it is over", || !pause.is_held(cut, now));
    assert_eq!(pause.at(engine, now), None);
    assert!(pause.hold(engine, now, Duration::from_millis(20)).is_some());
}
