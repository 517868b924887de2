//! MIGRATE between Tarn and a real Redis, both ways: keys arrive whole, and only those that arrived are gone.

use crate::tarn;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;
use testkit::{Client, Program, Server};
use wire::Value;

fn start(program: Program) -> Server {
    let edition: &[&str] = if matches!(program, Program::Tarn(_)) { &["--edition", "memory"] } else { &[] };
    Server::start(program, edition).unwrap()
}

fn call(client: &mut Client, request: &[&str]) -> Value {
    client.call(request).unwrap()
}

/// Moves keys from one server to another and looks at both.
fn keys_move(from: Program, to: Program) {
    let (from, to) = (start(from), start(to));
    let (mut here, mut there) = (from.connect().unwrap(), to.connect().unwrap());
    let port = to.address().port().to_string();
    let ok = Value::Simple(b"OK".to_vec());
    call(&mut here, &["SET", "a", "text", "PX", "100000000"]);
    call(&mut here, &["RPUSH", "b", "1", "x"]);
    call(&mut here, &["ZADD", "c", "1.5", "m"]);
    let migrate = |tail: &[&'static str]| {
        let words = ["MIGRATE", "127.0.0.1", &port].map(str::to_owned).into_iter();
        words.chain(tail.iter().map(|word| (*word).to_owned())).collect::<Vec<_>>()
    };
    let send = |here: &mut Client, tail: &[&'static str]| {
        let words = migrate(tail);
        call(here, &words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert_eq!(send(&mut here, &["nothing", "0", "1000"]), Value::Simple(b"NOKEY".to_vec()));
    assert_eq!(send(&mut here, &["a", "0", "1000", "COPY"]), ok);
    assert_eq!(call(&mut here, &["EXISTS", "a"]), Value::Int(1));
    let refused = send(&mut here, &["", "0", "1000", "KEYS", "a", "b", "nothing"]);
    assert!(
        matches!(&refused, Value::Error(text) if text.starts_with(b"ERR Target instance replied with error: BUSYKEY")),
        "{refused:?}"
    );
    // What arrived is gone, what did not is not.
    assert_eq!(call(&mut here, &["EXISTS", "a"]), Value::Int(1));
    assert_eq!(call(&mut here, &["EXISTS", "b"]), Value::Int(0));
    assert_eq!(send(&mut here, &["", "0", "1000", "REPLACE", "KEYS", "a", "c"]), ok);
    assert_eq!(call(&mut here, &["DBSIZE"]), Value::Int(0));
    assert_eq!(call(&mut there, &["GET", "a"]), Value::Bulk(b"text".to_vec()));
    assert!(matches!(call(&mut there, &["PTTL", "a"]), Value::Int(ttl) if ttl > 90_000_000));
    assert_eq!(call(&mut there, &["LINDEX", "b", "1"]), Value::Bulk(b"x".to_vec()));
    assert_eq!(call(&mut there, &["ZSCORE", "c", "m"]), Value::Bulk(b"1.5".to_vec()));
}

#[test]
fn keys_move_to_redis_and_back() {
    keys_move(tarn(), Program::Redis);
    keys_move(Program::Redis, tarn());
}

#[test]
fn keys_stay_when_nobody_takes_them() {
    let server = start(tarn());
    let mut client = server.connect().unwrap();
    call(&mut client, &["SET", "a", "1"]);
    // Nothing listens on the port of a server that has ended.
    let port = start(tarn()).address().port().to_string();
    let failed = call(&mut client, &["MIGRATE", "127.0.0.1", &port, "a", "0", "200"]);
    assert_eq!(failed, Value::Error(b"IOERR error or timeout connecting to the client".to_vec()));
    assert_eq!(call(&mut client, &["GET", "a"]), Value::Bulk(b"1".to_vec()));
}

/// A server that answers each connection as `serve` does; its port.
fn target(serve: fn(TcpStream)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || serve(stream));
        }
    });
    port
}

/// Sends a piece again and again for as long as anybody takes it.
fn send_for_ever(mut stream: TcpStream, piece: &[u8], pause: Duration) {
    while stream.write_all(piece).is_ok() {
        std::thread::sleep(pause);
    }
}

/// A target that means harm: how, and what it does.
type Hostile = (&'static str, fn(TcpStream));

const HOSTILE: [Hostile; 6] = [
    ("silent", |mut stream| drop(stream.read_to_end(&mut Vec::new()))),
    ("dripping", |stream| send_for_ever(stream, b"x", Duration::from_millis(20))),
    ("dripping answers", |stream| send_for_ever(stream, b"+", Duration::from_millis(20))),
    ("flooding without an end", |stream| send_for_ever(stream, &[b'+'; 65536], Duration::ZERO)),
    ("flooding with depth", |stream| send_for_ever(stream, &b"*1\r\n".repeat(16384), Duration::ZERO)),
    ("flooding with strings", |stream| {
        send_for_ever(stream, &b"$5\r\nhello\r\n".repeat(5000), Duration::ZERO)
    }),
];

#[test]
fn targets_that_mean_harm_cost_neither_time_nor_memory() {
    let server = Server::start(tarn(), &["--edition", "memory", "--threads", "2"]).unwrap();
    let mut client = server.connect().unwrap();
    call(&mut client, &["SET", "a", "1"]);
    let before = server.resident_bytes().unwrap();
    for (how, serve) in HOSTILE {
        let port = target(serve);
        let failed = call(&mut client, &["MIGRATE", "127.0.0.1", &port, "a", "0", "200"]);
        assert!(matches!(&failed, Value::Error(text) if text.starts_with(b"IOERR")), "{how}: {failed:?}");
        assert_eq!(call(&mut client, &["GET", "a"]), Value::Bulk(b"1".to_vec()), "{how}");
        let grown = server.resident_bytes().unwrap().saturating_sub(before);
        assert!(grown < 16 << 20, "{how}: {grown} bytes more");
    }
}

#[test]
fn connections_of_a_worker_that_waits_for_a_target_are_served() {
    let server = Server::start(tarn(), &["--edition", "memory", "--threads", "2"]).unwrap();
    let mut clients: Vec<Client> = (0..8).map(|_| server.connect().unwrap()).collect();
    call(&mut clients[0], &["SET", "a", "1"]);
    let port = target(HOSTILE[0].1);
    // It waits for as long as the test runs.
    let request = ["MIGRATE", "127.0.0.1", &port, "a", "0", "60000"];
    clients[0].send_request(&request).unwrap();
    for client in &mut clients[1..] {
        assert_eq!(call(client, &["SET", "another", "1"]), Value::Simple(b"OK".to_vec()));
    }
}
