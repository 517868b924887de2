//! The server's end waits for replicas that are behind, holds writes back meanwhile, and may be given up.

use crate::{info, tarn};
use std::fs;
use std::process::Command;
use testkit::ask::{ask, call, is_error, ok, shown, wait_until};
use testkit::{Client, Program, Server};
use wire::Value;

fn port(server: &Server) -> String {
    server.address().port().to_string()
}

/// A master of this edition, and a replica that has all it has.
fn pair(edition: &str, directives: &[&str]) -> (Server, Server) {
    let own = ["--edition", edition, "--repl-rdb-version", "10"];
    let master = Server::start(tarn(), &[&own[..], directives].concat()).unwrap();
    let follows = ["--replicaof", &format!("127.0.0.1 {}", port(&master))];
    let replica = Server::start(Program::Redis, &follows).unwrap();
    let listed = format!("port={},state=online", port(&replica));
    let mut client = master.connect().unwrap();
    wait_until("the replica is there", || ask(&mut client, &["INFO", "replication"]).contains(&listed));
    (master, replica)
}

pub(crate) fn signal(server: &Server, signal: &str) {
    assert!(Command::new("kill").args([signal, &server.pid().to_string()]).status().unwrap().success());
}

/// Has the replica stand still, and writes what it lacks then.
fn fall_behind(client: &mut Client, replica: &Server) {
    signal(replica, "-STOP");
    assert_eq!(call(client, &["SET", "a", "1"]), ok());
}

/// For how much longer the server waits, if it ends.
fn left_ms(client: &mut Client) -> Option<u64> {
    let told = ask(client, &["INFO", "server"]);
    told.lines().find_map(|line| line.strip_prefix("shutdown_in_milliseconds:")?.trim().parse().ok())
}

fn await_end(server: &mut Server) -> Option<i32> {
    let mut ended = None;
    wait_until("it ends", || {
        ended = server.ended().unwrap();
        ended.is_some()
    });
    ended.and_then(|status| status.code())
}

#[test]
fn the_end_waits_for_a_replica() {
    for edition in ["memory", "durable"] {
        for by_signal in [false, true] {
            let (mut master, replica) = pair(edition, &["--shutdown-timeout", "300"]);
            let (mut client, mut writer) = (master.connect().unwrap(), master.connect().unwrap());
            let mut asking = master.connect().unwrap();
            fall_behind(&mut client, &replica);
            match by_signal {
                false => asking.send_request(&["SHUTDOWN"]).unwrap(),
                true => signal(&master, "-TERM"),
            }
            wait_until("it ends", || left_ms(&mut client).is_some_and(|left| left > 200_000));
            writer.send_request(&["SET", "a", "2"]).unwrap();
            wait_until("the write waits", || info(&mut client, "paused_clients") == 1);
            assert_eq!(info(&mut client, "blocked_clients"), 1 + u64::from(!by_signal));
            assert_eq!(call(&mut client, &["CLIENT", "UNPAUSE"]), ok());
            assert_eq!(shown(&call(&mut client, &["GET", "a"])), "1");
            signal(&replica, "-CONT");
            assert_eq!(await_end(&mut master), Some(0), "{}", master.last_lines());
            assert!(asking.read_to_close().unwrap().is_empty());
            assert!(writer.read_to_close().unwrap().is_empty(), "what was not written is not answered");
            let told = master.await_output(&["1 of 1 replicas are in sync when shutting down."]);
            assert!(!told.contains("Lagging replica"), "{told}");
            assert_eq!(shown(&call(&mut replica.connect().unwrap(), &["GET", "a"])), "1");
        }
    }
}

#[test]
fn an_end_that_waits_can_be_given_up() {
    let (master, replica) = pair("durable", &[]);
    let mut client = master.connect().unwrap();
    assert_eq!(ask(&mut client, &["SHUTDOWN", "ABORT"]), "ERR No shutdown in progress.");
    fall_behind(&mut client, &replica);
    let mut asking = [master.connect().unwrap(), master.connect().unwrap()];
    for (number, other) in asking.iter_mut().enumerate() {
        // Who asks for it while it is under way waits with the others, whatever it says.
        other.send_request(&["SHUTDOWN", ["SAVE", "NOW"][number]]).unwrap();
        wait_until("it waits", || info(&mut client, "blocked_clients") == number as u64 + 1);
    }
    assert_eq!(info(&mut client, "connected_clients"), 3);
    let mut writer = master.connect().unwrap();
    writer.send_request(&["SET", "a", "2"]).unwrap();
    wait_until("the write waits", || info(&mut client, "paused_clients") == 1);
    assert_eq!(call(&mut client, &["SHUTDOWN", "ABORT"]), ok());
    for other in &mut asking {
        assert_eq!(shown(&other.read_value().unwrap()), "ERR Errors trying to SHUTDOWN. Check logs.");
        assert_eq!(shown(&call(other, &["PING"])), "PONG");
    }
    assert_eq!(writer.read_value().unwrap(), ok());
    assert_eq!(left_ms(&mut client), None);
    wait_until("it is told", || master.output().contains("Shutdown manually aborted."));
    // The next one waits again.
    asking[0].send_request(&["SHUTDOWN"]).unwrap();
    wait_until("it waits", || left_ms(&mut client).is_some());
    assert_eq!(call(&mut client, &["SHUTDOWN", "ABORT"]), ok());
    signal(&replica, "-CONT");
}

#[test]
fn the_end_does_not_wait_for_ever() {
    let ways: [(&[&str], &[&str], &str); 5] = [
        (&["--shutdown-timeout", "1"], &["SHUTDOWN"], ""),
        (&["--shutdown-timeout", "1"], &[], "-INT"),
        (&["--shutdown-timeout", "0"], &["SHUTDOWN"], ""),
        (&["--shutdown-timeout", "300"], &["SHUTDOWN", "NOW"], ""),
        (&["--shutdown-timeout", "300", "--shutdown-on-sigterm", "now"], &[], "-TERM"),
    ];
    for (directives, request, by_signal) in ways {
        let (mut master, replica) = pair("memory", directives);
        let mut client = master.connect().unwrap();
        fall_behind(&mut client, &replica);
        match request {
            [] => signal(&master, by_signal),
            request => client.send_request(request).unwrap(),
        }
        assert_eq!(await_end(&mut master), Some(0), "{}", master.last_lines());
        let lags = format!("Lagging replica 127.0.0.1:{} reported", port(&replica));
        master.await_output(&[&lags, "0 of 1 replicas are in sync when shutting down."]);
        signal(&replica, "-CONT");
    }
}

#[test]
fn a_server_that_cannot_save_stays() {
    let (mut master, replica) = pair("memory", &["--save", "3600 1"]);
    let mut client = master.connect().unwrap();
    // A file cannot take the place of a directory that is not empty.
    let in_the_way = master.dir().join("dump.rdb");
    fs::create_dir(&in_the_way).unwrap();
    fs::write(in_the_way.join("file"), "").unwrap();
    fall_behind(&mut client, &replica);
    let mut asking = master.connect().unwrap();
    asking.send_request(&["SHUTDOWN"]).unwrap();
    wait_until("it waits", || left_ms(&mut client).is_some());
    signal(&replica, "-CONT");
    assert!(is_error(&asking.read_value().unwrap(), "ERR Errors trying to SHUTDOWN. Check logs."));
    assert_eq!(left_ms(&mut client), None);
    assert_eq!(call(&mut client, &["SET", "a", "2"]), ok());
    wait_until("it says so", || master.output().contains("Errors trying to shut down the server."));
    assert_eq!(ask(&mut client, &["SHUTDOWN", "NOW"]), "ERR Errors trying to SHUTDOWN. Check logs.");
    client.send_request(&["SHUTDOWN", "NOW", "FORCE"]).unwrap();
    await_end(&mut master);
    assert_eq!(client.read_to_close().unwrap(), b"");
}

#[test]
fn who_has_nothing_to_wait_for_ends_at_once() {
    let (mut master, replica) = pair("durable", &["--shutdown-timeout", "300"]);
    let mut client = master.connect().unwrap();
    let end = info(&mut client, "master_repl_offset");
    let listed = format!("port={},state=online,offset={end}", port(&replica));
    wait_until("it has all", || ask(&mut client, &["INFO", "replication"]).contains(&listed));
    assert!(matches!(call(&mut client, &["CLIENT", "SETNAME", "x"]), Value::Simple(_)));
    client.send_request(&["SHUTDOWN"]).unwrap();
    assert_eq!(await_end(&mut master), Some(0));
    assert!(!master.output().contains("Waiting for replicas"), "{}", master.last_lines());
}
