//! What administrators watch a server with: MONITOR, SLOWLOG, LATENCY, INFO, and
//! what ends it.

use crate::harness::{Peer, TestServer};
use engine::Attention;

/// A field of INFO.
fn info(peer: &mut Peer, section: &str, field: &str) -> String {
    let text = peer.ask(&format!("INFO {section}"));
    let value = text.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
    value.unwrap_or_else(|| panic!("{field} is not in {text}")).to_owned()
}

/// A line of MONITOR without its moment.
fn shown(peer: &mut Peer) -> String {
    peer.text().split_once(' ').expect("a moment comes first").1.to_owned()
}

#[test]
fn monitors_see_the_commands_of_all_sessions_but_no_secrets() {
    let server = TestServer::start("");
    let mut monitor = server.connect();
    assert_eq!(monitor.ask("MONITOR"), "OK");
    let mut other = server.connect();
    let from = other.field("addr");
    other.send(&[
        "SELECT 3",
        r#"SET a "b\"c\x00""#,
        "CONFIG GET port",
        "NOSUCH",
        "GET",
        "HELLO 2 AUTH default pw",
    ]);
    let expected = [
        r#"[0 ADDRESS] "CLIENT" "INFO""#,
        r#"[0 ADDRESS] "SELECT" "3""#,
        r#"[3 ADDRESS] "SET" "a" "b\"c\x00""#,
        r#"[3 ADDRESS] "HELLO" "2" "AUTH" "(redacted)" "(redacted)""#,
    ];
    for line in expected {
        assert_eq!(shown(&mut monitor), line.replace("ADDRESS", &from));
    }
}

#[test]
fn reset_and_the_end_of_the_session_end_monitor() {
    let server = TestServer::start("");
    let (mut monitor, mut other) = (server.connect(), server.connect());
    assert_eq!(monitor.ask("MONITOR"), "OK");
    assert_eq!(monitor.ask("RESET"), "RESET");
    assert_eq!(other.ask("PING"), "PONG");
    assert!(monitor.is_silent());
    assert_eq!(monitor.ask("MONITOR"), "OK");
    drop(monitor);
    server.wait_until("the monitor is gone", || server.server.net.clients.count() == 1);
    assert!(server.server.engine.attention().is_empty());
}

#[test]
fn a_monitor_that_does_not_read_is_closed_at_the_output_limit() {
    let server = TestServer::start("client-output-buffer-limit normal 100000 0 0");
    let (mut monitor, mut other) = (server.connect(), server.connect());
    assert_eq!(monitor.ask("MONITOR"), "OK");
    // More than the buffers of both sockets hold.
    let line = format!("ECHO {}", "x".repeat(60_000));
    let closed = (0..1000).any(|_| {
        assert_eq!(other.ask(&line).len(), 60_000);
        server.server.net.clients.count() == 1
    });
    assert!(closed);
    assert_eq!(server.server.net.clients.output_limit_disconnections.get(), 1);
    assert!(server.server.engine.attention().is_empty());
}

#[test]
fn slow_commands_are_logged_with_their_client() {
    let server =
        TestServer::start("slowlog-log-slower-than 20000\nslowlog-max-len 2\nenable-debug-command local");
    let mut peer = server.connect();
    assert_eq!(peer.ask("CLIENT SETNAME worker"), "OK");
    (0..3).for_each(|_| assert_eq!(peer.ask("DEBUG SLEEP 0.03"), "OK"));
    assert_eq!(peer.ask("SLOWLOG LEN"), "2");
    let newest = &server.server.slowlog.newest(1)[0];
    assert_eq!(
        (newest.id, newest.words.join(&b' '), newest.name.clone()),
        (2, b"DEBUG SLEEP 0.03".to_vec(), b"worker".to_vec())
    );
    assert!(newest.micros >= 30_000 && newest.address == peer.field("addr"));
    server.set("slowlog-log-slower-than", "-1");
    assert_eq!(peer.ask("SLOWLOG RESET"), "OK");
    assert_eq!(peer.ask("DEBUG SLEEP 0.03"), "OK");
    assert_eq!(peer.ask("SLOWLOG LEN"), "0");
}

#[test]
fn the_latency_monitor_follows_its_threshold() {
    let server = TestServer::start("enable-debug-command yes");
    let mut peer = server.connect();
    assert_eq!(peer.ask("DEBUG SLEEP 0.03"), "OK");
    assert_eq!(peer.ask("LATENCY RESET"), "0");
    assert_eq!(peer.ask("CONFIG SET latency-monitor-threshold 20"), "OK");
    assert_eq!(peer.ask("DEBUG SLEEP 0.03"), "OK");
    assert!(server.server.latency.series(b"command").expect("it was slow").worst_ms >= 30);
    assert!(peer.ask("LATENCY DOCTOR").contains("- command: "));
}

#[test]
fn info_counts_what_happened() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    for line in ["SET a 1", "GET a", "GET b", "INCR a", "LPUSH", "NOSUCH", "SETRANGE a x y"] {
        peer.ask(line);
    }
    assert_eq!(info(&mut peer, "stats", "keyspace_hits"), "1");
    assert_eq!(info(&mut peer, "stats", "keyspace_misses"), "1");
    assert_eq!(info(&mut peer, "keyspace", "db0"), "keys=1,expires=0,avg_ttl=0");
    peer.ask("EXPIREAT a 99999999999");
    let keys = info(&mut peer, "keyspace", "db0");
    let average = keys.strip_prefix("keys=1,expires=1,avg_ttl=").and_then(|ms| ms.parse::<u64>().ok());
    assert!(average.is_some_and(|ms| ms > 1 << 40), "{keys}");
    assert_eq!(info(&mut peer, "clients", "connected_clients"), "1");
    assert!(info(&mut peer, "commandstats", "cmdstat_get").starts_with("calls=2,usec="));
    assert!(
        info(&mut peer, "commandstats", "cmdstat_setrange").ends_with(",rejected_calls=0,failed_calls=1")
    );
    assert!(info(&mut peer, "latencystats", "latency_percentiles_usec_get").starts_with("p50="));
    assert_eq!(info(&mut peer, "errorstats", "errorstat_ERR"), "count=3");
    assert_eq!(peer.ask("CONFIG RESETSTAT"), "OK");
    assert_eq!(info(&mut peer, "stats", "keyspace_hits"), "0");
    assert!(!peer.ask("INFO errorstats").contains("errorstat_ERR"));
}

#[test]
fn a_change_of_the_configuration_is_in_force_at_once() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    assert_eq!(peer.ask("CONFIG SET maxmemory 1mb maxmemory-policy allkeys-lfu"), "OK");
    assert_eq!(server.server.engine.keyspace.policy().memory_bytes_max(), 1 << 20);
    assert_eq!(peer.ask("CONFIG SET proto-max-bulk-len 1mb"), "OK");
    assert!(peer.ask("SETRANGE a 1048576 x").starts_with("ERR string exceeds maximum"));
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().port();
    assert_eq!(
        peer.ask(&format!("CONFIG SET timeout 7 port {taken}")),
        "ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen on this port. Check server \
         logs."
    );
    assert_eq!(server.server.engine.config.timeout_s(), 0);
}

#[test]
fn shutdown_ends_the_server_without_a_reply() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    assert!(peer.ask("SHUTDOWN SAVE").starts_with("ERR "));
    assert_eq!(peer.ask("PING"), "PONG");
    assert_eq!(peer.ask("SHUTDOWN NOSAVE NOW"), "END");
    assert_eq!(server.stop(), 0);
}

#[test]
fn nobody_looks_at_data_or_writes_its_file_while_it_is_loaded() {
    let server = TestServer::start("edition memory\nenable-debug-command yes");
    let mut peer = server.connect();
    server.server.engine.set_attention(Attention::LOADING, true);
    for action in [
        "CHANGE-REPL-ID",
        "DIGEST",
        "DIGEST-VALUE a",
        "HTSTATS 0",
        "HTSTATS-KEY a",
        "LOADAOF",
        "OBJECT a",
        "POPULATE 10",
        "RELOAD",
        "RELOAD NOSAVE",
    ] {
        let said = peer.ask(&format!("DEBUG {action}"));
        assert_eq!(said, "LOADING Redis is loading the dataset in memory", "{action}");
    }
    for action in ["SLEEP 0", "SET-ACTIVE-EXPIRE 1", "LOG told", "STRINGMATCH-LEN a a"] {
        let said = peer.ask(&format!("DEBUG {action}"));
        assert!(!said.starts_with("LOADING"), "{action}: {said}");
    }
    server.server.engine.set_attention(Attention::LOADING, false);
    assert_eq!(peer.ask("DBSIZE"), "0");
    assert_eq!(server.stop(), 0);
}

#[test]
fn what_names_the_data_is_not_set_while_it_is_loaded() {
    let server = TestServer::start("edition memory\nenable-protected-configs yes");
    let mut peer = server.connect();
    server.server.engine.set_attention(Attention::LOADING, true);
    for line in
        ["dir /tmp", "appendonly yes", "appendonly no", "repl-diskless-load disabled", "timeout 0 dir /tmp"]
    {
        let said = peer.ask(&format!("CONFIG SET {line}"));
        assert!(said.contains("LOADING Redis is loading the dataset in memory"), "{line}: {said}");
    }
    assert!(peer.ask("CONFIG SET timeout 0").contains("OK"));
    server.server.engine.set_attention(Attention::LOADING, false);
    assert_eq!(server.stop(), 0);
}
