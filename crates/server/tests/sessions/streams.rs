//! Readers of streams that wait: what ends the wait, and with which reply. Each was tried on Valkey.

use crate::harness::{Peer, TestServer};

const NO_GROUP: &str = "NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// A reader that has begun to wait, over a stream with one entry that its group has read.
fn reader(server: &TestServer, writer: &mut Peer, request: &str) -> Peer {
    writer.send(&["FLUSHALL", "XADD s 1-0 a 1", "XGROUP CREATE s g $"]);
    assert_eq!(writer.texts(3), ["OK", "1-0", "OK"]);
    let mut reader = server.connect();
    reader.send(&[request]);
    server.wait_until("the reader waits", || server.server.engine.keyspace.waiting().keys() > 0);
    reader
}

fn replies_to(server: &TestServer, request: &str, changes: &[&str]) -> String {
    let mut writer = server.connect();
    let mut reader = reader(server, &mut writer, request);
    writer.send(changes);
    changes.iter().for_each(|_| drop(writer.reply()));
    reader.text()
}

#[test]
fn waiting_readers_get_what_is_added_behind_the_last_id() {
    let server = TestServer::start("");
    let added = &["XADD s 2-0 a 2"];
    for request in ["XREAD BLOCK 0 STREAMS s t $ $", "XREADGROUP GROUP g c BLOCK 0 STREAMS s >"] {
        let reply = replies_to(&server, request, added);
        assert!(reply.contains("Array([Bulk([50, 45, 48])"), "{request}: {reply}");
    }
    let again = &["DEL s", "XADD s 0-5 a 1", "XADD s 3-0 a 2"];
    let reply = replies_to(&server, "XREAD BLOCK 0 STREAMS s $", again);
    assert!(reply.contains("Bulk([51, 45, 48])") && !reply.contains("Bulk([48, 45, 53])"), "{reply}");
}

#[test]
fn waiting_group_readers_get_an_error_when_their_group_goes_away() {
    let server = TestServer::start("");
    let request = "XREADGROUP GROUP g c BLOCK 0 STREAMS s >";
    for change in ["XGROUP DESTROY s g", "DEL s", "RENAME s u", "FLUSHALL", "PEXPIRE s 20"] {
        assert_eq!(replies_to(&server, request, &[change]), NO_GROUP, "{change}");
    }
    assert_eq!(replies_to(&server, request, &["SET s 1"]), WRONG_TYPE);
}

#[test]
fn waits_outlast_changes_that_bring_nothing() {
    let server = TestServer::start("");
    let mut writer = server.connect();
    let mut reader = reader(&server, &mut writer, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    let changes = ["XGROUP CREATE s h 0", "XGROUP DESTROY s h", "XGROUP SETID s g 0", "XACK s g 1-0"];
    for change in changes {
        writer.ask(change);
    }
    assert!(reader.is_silent());
    writer.ask("XGROUP SETID s g $");
    writer.ask("XADD s 2-0 a 2");
    assert!(reader.text().contains("Bulk([50, 45, 48])"));
}

#[test]
fn wait_that_is_over_gets_null() {
    let server = TestServer::start("");
    assert_eq!(replies_to(&server, "XREAD BLOCK 30 STREAMS s $", &[]), "NULL");
}
