//! Reads from replicas: they spare the master, see what the client has written, and cost nobody an error.

use super::Proxied;
use super::waits::followers;
use crate::departures::signal;
use crate::tarn_path;
use testkit::ask::{ask, call, call_line, is_error, ok, text, wait_until};
use testkit::{Client, Program, Server};
use wire::Value;

const FROM_REPLICAS: [&str; 2] = ["--proxy-read-from", "replica"];

/// How many GETs a server has done.
fn gets(server: &Server) -> u64 {
    let stats = ask(&mut server.connect().unwrap(), &["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_get:calls="));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

/// Waits until a replica is read from.
fn await_reads(client: &mut Client, key: &str, replica: &Server) {
    wait_until("the replica is read from", || {
        let before = gets(replica);
        call(client, &["GET", key]);
        gets(replica) > before
    });
}

#[test]
fn a_client_finds_what_it_has_written_wherever_it_reads() {
    for program in [Program::Redis, Program::Tarn(tarn_path())] {
        let proxied = Proxied::of((&program, &[]), 2, &FROM_REPLICAS);
        let replicas = followers(&proxied, &program);
        let (mut client, key) = (proxied.proxy.connect().unwrap(), proxied.key(0));
        await_reads(&mut client, &key, &replicas[0]);
        let before = gets(&replicas[0]);
        for number in 0..2_000 {
            let value = number.to_string();
            assert_eq!(call(&mut client, &["SET", &key, &value]), ok());
            if number % 500 == 0 {
                await_reads(&mut client, &key, &replicas[0]);
            }
            assert_eq!(call(&mut client, &["GET", &key]), text(&value));
        }
        assert!(gets(&replicas[0]) > before);
        // It stands still: what was written is read where it is.
        signal(&replicas[0], "-STOP");
        for number in 0..500 {
            let value = number.to_string();
            assert_eq!(call(&mut client, &["SET", &key, &value]), ok());
            assert_eq!(call(&mut client, &["GET", &key]), text(&value));
        }
        signal(&replicas[0], "-CONT");
    }
}

#[test]
fn requests_of_a_client_are_done_in_their_order_wherever() {
    let proxied = Proxied::of((&Program::Redis, &[]), 2, &FROM_REPLICAS);
    let replicas = followers(&proxied, &Program::Redis);
    let (mut client, key) = (proxied.proxy.connect().unwrap(), proxied.key(0));
    for number in 0..300u32 {
        if number % 50 == 0 {
            await_reads(&mut client, &key, &replicas[0]);
        }
        let (value, last) = (number.to_string(), number.wrapping_sub(1).to_string());
        for words in [&["GET", &key][..], &["SET", &key, &value], &["GET", &key]] {
            client.send_request(words).unwrap();
        }
        let before = if number == 0 { Value::Null } else { text(&last) };
        let replies: Vec<Value> = (0..3).map(|_| client.read_value().unwrap()).collect();
        assert_eq!(replies, [before, ok(), text(&value)]);
    }
}

#[test]
fn a_replica_that_ends_is_no_error_to_anybody() {
    let proxied = Proxied::of((&Program::Redis, &[]), 2, &["--proxy-read-from", "any"]);
    let mut replicas = followers(&proxied, &Program::Redis);
    let key = proxied.key(0);
    let mut clients: Vec<Client> = (0..8).map(|_| proxied.proxy.connect().unwrap()).collect();
    assert_eq!(call(&mut clients[0], &["SET", &key, "v"]), ok());
    wait_until("some read there", || {
        let before = gets(&replicas[0]);
        clients.iter_mut().for_each(|client| drop(call(client, &["GET", &key])));
        gets(&replicas[0]) > before + 2
    });
    let mut replica = Some(replicas.remove(0));
    for turn in 0..300 {
        clients.iter_mut().for_each(|client| client.send_request(&["GET", &key]).unwrap());
        if turn == 100 {
            drop(replica.take());
        }
        for client in &mut clients {
            assert_eq!(client.read_value().unwrap(), text("v"));
        }
    }
    // What cannot be read there goes to the master by itself, too.
    assert!(is_error(&call_line(&mut clients[0], "CONFIG SET proxy-read-from nobody"), "ERR"));
    assert_eq!(call_line(&mut clients[0], "CONFIG SET proxy-read-from master"), ok());
    assert_eq!(call(&mut clients[0], &["GET", &key]), text("v"));
}
