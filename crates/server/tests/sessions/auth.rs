//! AUTH, HELLO, RESET and `requirepass`.

use crate::harness::TestServer;
use engine::Attention;
use wire::Value;

const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NOAUTH: &str = "NOAUTH Authentication required.";

#[test]
fn pipelined_auth_lets_the_commands_behind_it_run() {
    let server = TestServer::start("requirepass secret");
    let mut peer = server.connect();
    peer.send(&["GET a", "AUTH wrong", "SET a 1", "AUTH secret", "SET a 2", "AUTH default secret", "GET a"]);
    assert_eq!(peer.texts(7), [NOAUTH, WRONG, NOAUTH, "OK", "OK", "OK", "2"]);
    assert_eq!(server.server.counts.auth_failures.get(), 1);
}

#[test]
fn strangers_may_send_small_requests_only() {
    let server = TestServer::start("requirepass secret");
    let mut peer = server.connect();
    peer.send(&["*11"]);
    assert_eq!(peer.text(), "ERR Protocol error: unauthenticated multibulk length");
    assert_eq!(peer.text(), "END");
    let mut peer = server.connect();
    peer.send(&["AUTH secret\r\n*11", "$3", "DEL", &"$1\r\na\r\n".repeat(10)]);
    assert_eq!(peer.texts(2), ["OK", "0"]);
}

#[test]
fn unknown_commands_are_told_from_forbidden_ones() {
    let server = TestServer::start("requirepass secret");
    let mut peer = server.connect();
    assert_eq!(peer.ask("FOO"), "ERR unknown command 'FOO', with args beginning with: ");
    assert_eq!(peer.ask("CLIENT FOO"), "ERR unknown subcommand 'FOO'. Try CLIENT HELP.");
    assert_eq!(peer.ask("CLIENT GETNAME x"), "ERR wrong number of arguments for 'client|getname' command");
    assert_eq!(peer.ask("PING"), NOAUTH);
}

#[test]
fn password_can_be_set_and_taken_away_while_clients_are_connected() {
    let server = TestServer::start("");
    let mut early = server.connect();
    assert!(early.ask("AUTH x").starts_with("ERR AUTH <password> called without any password configured"));
    assert_eq!(early.ask("AUTH default anything"), "OK");
    assert_eq!(early.ask("AUTH other anything"), WRONG);
    server.set("requirepass", "secret");
    assert_eq!(early.ask("PING"), "PONG", "who was in stays in");
    let mut late = server.connect();
    assert_eq!(late.ask("PING"), NOAUTH);
    server.set("requirepass", "");
    assert_eq!(late.ask("PING"), "PONG");
    late.send(&["*12", "$3", "DEL", &"$1\r\na\r\n".repeat(11)]);
    assert_eq!(late.text(), "0", "and no limits for strangers apply");
    server.set("requirepass", "secret");
    assert_eq!(late.ask("PING"), NOAUTH);
}

#[test]
fn hello_authenticates_names_and_chooses_the_protocol() {
    let server = TestServer::start("requirepass secret");
    let mut peer = server.connect();
    assert_eq!(peer.ask("HELLO 4"), "NOPROTO unsupported protocol version");
    assert_eq!(peer.ask("HELLO x"), "ERR Protocol version is not an integer or out of range");
    assert!(
        peer.ask("HELLO 3").starts_with("NOAUTH HELLO must be called with the client already authenticated")
    );
    assert_eq!(peer.ask("HELLO 3 AUTH default no"), WRONG);
    assert_eq!(peer.ask("HELLO 3 AUTH default"), "ERR Syntax error in HELLO option 'AUTH'");
    peer.send(&["HELLO 3 SETNAME me AUTH default secret"]);
    let Some(Value::Map(fields)) = peer.reply() else { panic!("no map") };
    let names: Vec<_> = fields.iter().map(|(name, _)| name.clone()).collect();
    let expected = ["server", "version", "proto", "id", "mode", "role", "modules"];
    assert_eq!(names, expected.map(|name| Value::Bulk(name.into())));
    assert_eq!(fields[2].1, Value::Int(3));
    assert_eq!(fields[6].1, Value::Array(Vec::new()));
    assert_eq!(peer.ask("CLIENT GETNAME"), "me");
    peer.send(&["HELLO 2"]);
    assert!(matches!(peer.reply(), Some(Value::Array(fields)) if fields.len() == 14));
}

#[test]
fn reset_ends_monitoring() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    let client = server.server.net.clients.get(peer.id()).unwrap();
    server.server.monitors.join(&client, |any| server.server.engine.set_attention(Attention::MONITORS, any));
    assert_eq!(server.connect().ask("PING"), "PONG");
    assert!(peer.text().ends_with("\"PING\""));
    peer.send(&["RESET"]);
    while peer.text() != "RESET" {}
    assert_eq!(server.connect().ask("PING"), "PONG");
    assert!(peer.is_silent());
}

#[test]
fn reset_leaves_a_new_connection() {
    let server = TestServer::start("requirepass secret");
    let mut peer = server.connect();
    peer.send(&[
        "HELLO 3 SETNAME me AUTH default secret",
        "SELECT 3",
        "CLIENT NO-EVICT on",
        "CLIENT NO-TOUCH on",
    ]);
    peer.texts(4);
    assert_eq!(peer.field("flags"), "eT");
    peer.send(&["CLIENT REPLY OFF", "PING", "RESET"]);
    assert_eq!(peer.text(), "RESET");
    assert_eq!(peer.ask("PING"), NOAUTH);
    assert_eq!(peer.ask("AUTH secret"), "OK");
    assert_eq!(peer.ask("CLIENT GETNAME"), "NULL");
    let fields = ["db", "flags", "resp"].map(|name| peer.field(name));
    assert_eq!(fields, ["0", "N", "2"]);
}
