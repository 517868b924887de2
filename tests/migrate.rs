//! MIGRATE between Tarn and a real Redis, both ways: keys arrive whole, and only those that arrived are gone.

use crate::tarn;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use testkit::ask::{PATIENCE, call, is_error, ok, text, wait_until};
use testkit::{Client, Program, Server};
use wire::Value;

fn start(program: Program) -> Server {
    let edition: &[&str] = if matches!(program, Program::Tarn(_)) { &["--edition", "memory"] } else { &[] };
    Server::start(program, edition).unwrap()
}

/// Moves keys from one server to another and looks at both.
fn keys_move(from: Program, to: Program) {
    let (from, to) = (start(from), start(to));
    let (mut here, mut there) = (from.connect().unwrap(), to.connect().unwrap());
    let port = to.address().port().to_string();
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
    assert_eq!(send(&mut here, &["a", "0", "1000", "COPY"]), ok());
    assert_eq!(call(&mut here, &["EXISTS", "a"]), Value::Int(1));
    let refused = send(&mut here, &["", "0", "1000", "KEYS", "a", "b", "nothing"]);
    assert!(
        matches!(&refused, Value::Error(text) if text.starts_with(b"ERR Target instance replied with error: BUSYKEY")),
        "{refused:?}"
    );
    // What arrived is gone, what did not is not.
    assert_eq!(call(&mut here, &["EXISTS", "a"]), Value::Int(1));
    assert_eq!(call(&mut here, &["EXISTS", "b"]), Value::Int(0));
    assert_eq!(send(&mut here, &["", "0", "1000", "REPLACE", "KEYS", "a", "c"]), ok());
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
    assert_eq!(failed, Value::Error(b"IOERR error or timeout writing to target instance".to_vec()));
    assert_eq!(call(&mut client, &["GET", "a"]), Value::Bulk(b"1".to_vec()));
}

#[test]
fn a_target_says_why_it_lets_nobody_in() {
    for program in [tarn(), Program::Redis] {
        let (here, there) = (start(program), start(Program::Redis));
        let (mut client, mut admin) = (here.connect().unwrap(), there.connect().unwrap());
        call(&mut admin, &["CONFIG", "SET", "requirepass", "right"]);
        call(&mut client, &["SET", "a", "1"]);
        let port = there.address().port().to_string();
        let refused = call(&mut client, &["MIGRATE", "127.0.0.1", &port, "a", "0", "1000", "AUTH", "wrong"]);
        let text = "ERR Target instance replied with error: WRONGPASS invalid username-password pair or user is disabled.";
        assert_eq!(refused, Value::Error(text.as_bytes().to_vec()));
        // Where nobody listens.
        let port = start(Program::Redis).address().port().to_string();
        let failed = call(&mut client, &["MIGRATE", "127.0.0.1", &port, "a", "0", "200"]);
        assert_eq!(failed, Value::Error(b"IOERR error or timeout writing to target instance".to_vec()));
    }
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
    let server =
        Server::start(tarn(), &["--edition", "memory", "--threads", "2", "--threads-min", "2"]).unwrap();
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
    let server =
        Server::start(tarn(), &["--edition", "memory", "--threads", "2", "--threads-min", "2"]).unwrap();
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

/// A target that says nothing for as long as the connections live that it hands out.
struct Silent {
    port: String,
    accepted: Receiver<TcpStream>,
}

impl Silent {
    fn listen() -> Silent {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let (tell, accepted) = channel();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                // The test may be over.
                let _ = tell.send(stream);
            }
        });
        Silent { port, accepted }
    }

    fn migrate<'a>(&'a self, key: &'a str) -> [&'a str; 6] {
        ["MIGRATE", "127.0.0.1", &self.port, key, "0", "600000"]
    }

    /// Waits for a connection.
    fn accept(&self) -> TcpStream {
        self.accepted.recv_timeout(PATIENCE).unwrap()
    }
}

/// Has each of some clients served who needs nothing that is held.
fn serve_others(clients: &mut [Client]) {
    for client in clients {
        assert_eq!(call(client, &["PING"]), Value::Simple(b"PONG".to_vec()));
        assert_eq!(call(client, &["SET", "another", "v"]), ok());
        assert_eq!(call(client, &["EVAL", "return redis.call('GET', KEYS[1])", "1", "another"]), text("v"));
        assert!(matches!(call(client, &["DBSIZE"]), Value::Int(_)));
        assert!(matches!(call(client, &["RANDOMKEY"]), Value::Bulk(_)));
        assert!(is_error(&call(client, &["SCRIPT", "KILL"]), "NOTBUSY"));
    }
}

/// What needs what MIGRATE holds, and what it is answered afterwards.
fn in_need() -> Vec<(Vec<&'static str>, Value)> {
    vec![
        (vec!["GET", "key"], text("v")),
        (vec!["SET", "{key}other", "v"], ok()),
        (vec!["MGET", "another", "key"], Value::Array(vec![text("v"), text("v")])),
        (vec!["EVAL", "return redis.call('GET', 'k' .. 'ey')", "0"], text("v")),
        (vec!["WATCH", "another", "key"], ok()),
        (vec!["KEYS", "nothing*"], Value::Array(Vec::new())),
        (vec!["MEMORY", "USAGE", "key", "SAMPLES"], Value::Error(b"ERR syntax error".to_vec())),
        (vec!["GET", "key"], text("v")),
    ]
}

#[test]
fn who_needs_a_migrating_key_waits_for_it_and_nobody_else_does() {
    let directives =
        ["--edition", "memory", "--threads", "2", "--threads-min", "2", "--busy-reply-threshold", "1"];
    let server = Server::start(tarn(), &directives).unwrap();
    let mut others: Vec<Client> = (0..8).map(|_| server.connect().unwrap()).collect();
    let mut migrating = server.connect().unwrap();
    call(&mut migrating, &["SET", "key", "v"]);
    serve_others(&mut others);
    let silent = Silent::listen();
    migrating.send_request(&silent.migrate("key")).unwrap();
    let target = silent.accept();
    let mut waiting: Vec<Client> = (0..in_need().len()).map(|_| server.connect().unwrap()).collect();
    for (client, (request, _)) in waiting.iter_mut().zip(in_need()) {
        client.send_request(&request).unwrap();
    }
    serve_others(&mut others);
    serve_others(&mut others);
    drop(target);
    assert!(is_error(&migrating.read_value().unwrap(), "IOERR"));
    for (client, (request, reply)) in waiting.iter_mut().zip(in_need()) {
        assert_eq!(client.read_value().unwrap(), reply, "{request:?}");
    }
}

#[test]
fn who_needs_a_key_that_waits_for_the_disk_to_migrate_waits_for_it_and_nobody_else_does() {
    let directives = ["--threads", "2", "--threads-min", "2", "--enable-debug-command", "yes"];
    let server = Server::start(tarn(), &directives).unwrap();
    let mut clients: Vec<Client> = (0..10).map(|_| server.connect().unwrap()).collect();
    let mut last = clients.remove(0);
    call(&mut last, &["SET", "key", "v"]);
    assert_eq!(call(&mut last, &["DEBUG", "DISK-HANG", "1"]), ok());
    clients[0].send_request(&["APPEND", "key", "w"]).unwrap();
    let is_done = |list: Value| matches!(list, Value::Bulk(list) if String::from_utf8_lossy(&list).contains("cmd=append"));
    wait_until("it is done", || is_done(call(&mut last, &["CLIENT", "LIST"])));
    let silent = Silent::listen();
    // Each is on a worker that is free.
    for client in &mut clients[1..6] {
        client.send_request(&silent.migrate("key")).unwrap();
    }
    for client in &mut clients[6..] {
        assert_eq!(call(client, &["GET", "nothing"]), Value::Null);
    }
    assert!(silent.accepted.try_recv().is_err(), "nothing is sent that is not on disk");
    call(&mut last, &["DEBUG", "DISK-HANG", "0"]);
    assert_eq!(clients[0].read_value().unwrap(), Value::Int(2));
    for _ in 1..6 {
        drop(silent.accept());
    }
    for client in &mut clients[1..6] {
        assert!(is_error(&client.read_value().unwrap(), "IOERR"));
    }
}

#[test]
fn a_server_that_ends_waits_for_no_target() {
    let saving = ["--edition", "memory", "--save", "3600 1"];
    for edition in [&saving[..], &["--edition", "durable"]] {
        let mut server =
            Server::start(tarn(), &[edition, &["--threads", "2", "--threads-min", "2"]].concat()).unwrap();
        let (mut migrating, mut other) = (server.connect().unwrap(), server.connect().unwrap());
        call(&mut migrating, &["SET", "key", "v"]);
        let silent = Silent::listen();
        migrating.send_request(&silent.migrate("key")).unwrap();
        let _target = silent.accept();
        other.send_request(&["GET", "key"]).unwrap();
        let status = Command::new("kill").args(["-TERM", &server.pid().to_string()]).status();
        assert!(status.unwrap().success());
        wait_until("it ends", || server.ended().unwrap().is_some());
        assert!(server.ended().unwrap().unwrap().success(), "{}", server.output());
        assert!(is_error(&migrating.read_value().unwrap(), "IOERR"));
        server.restart().unwrap();
        assert_eq!(call(&mut server.connect().unwrap(), &["GET", "key"]), text("v"));
    }
}

#[test]
fn a_transaction_that_migrates_is_there_as_a_whole_or_not_at_all() {
    let mut server =
        Server::start(tarn(), &["--edition", "durable", "--threads", "2", "--threads-min", "2"]).unwrap();
    let mut client = server.connect().unwrap();
    let silent = Silent::listen();
    let migrates =
        "redis.call('SET', KEYS[1], 'half') redis.call(unpack(ARGV)) redis.call('SET', KEYS[1], 'whole')";
    let script = [&["EVAL", migrates, "1", "one"], &silent.migrate("key")[..]].concat();
    let in_multi =
        [&["MULTI"][..], &["SET", "one", "half"], &silent.migrate("key"), &["SET", "one", "whole"]];
    for requests in [&in_multi[..], &[&script]] {
        call(&mut client, &["SET", "key", "v"]);
        for request in requests {
            client.send_request(request).unwrap();
        }
        client.send_request(&["EXEC"]).unwrap();
        // It has written, and waits for the other server.
        let _target = silent.accept();
        server.restart().unwrap();
        client = server.connect().unwrap();
        assert_eq!(call(&mut client, &["GET", "one"]), Value::Null, "{requests:?}");
        assert_eq!(call(&mut client, &["GET", "key"]), text("v"));
    }
}

#[test]
fn what_its_own_transaction_has_written_is_not_sent() {
    let mut server =
        Server::start(tarn(), &["--edition", "durable", "--threads", "2", "--threads-min", "2"]).unwrap();
    let target = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    let (mut client, mut there) = (server.connect().unwrap(), target.connect().unwrap());
    let port = target.address().port().to_string();
    let migrate = |key: &'static str| ["MIGRATE", "127.0.0.1", &port, key, "0", "5000"].map(str::to_owned);
    for key in ["a", "b", "c"] {
        call(&mut client, &["SET", key, "v"]);
    }
    assert_eq!(call(&mut client, &["MULTI"]), ok());
    call(&mut client, &["APPEND", "a", "w"]);
    for key in ["a", "b", "c", "nothing"] {
        client.call(&migrate(key)).unwrap();
    }
    let Value::Array(replies) = call(&mut client, &["EXEC"]) else { panic!() };
    assert!(is_error(&replies[1], "ERR MIGRATE can't send a key that its own"), "{replies:?}");
    assert_eq!(replies[2..], [ok(), ok(), Value::Simple(b"NOKEY".to_vec())]);
    let script = "redis.call('SET', KEYS[1], 'v') return redis.call(unpack(ARGV))";
    let refused = client.call(&[&["EVAL", script, "1", "d"].map(str::to_owned)[..], &migrate("d")].concat());
    assert!(is_error(&refused.unwrap(), "ERR MIGRATE can't send a key that its own"));
    assert_eq!(client.call(&migrate("a")).unwrap(), ok(), "by itself it is");
    server.restart().unwrap();
    let mut client = server.connect().unwrap();
    for (key, here, sent) in [("a", false, true), ("b", false, true), ("c", false, true), ("d", true, false)]
    {
        assert_eq!(call(&mut client, &["EXISTS", key]), Value::Int(here.into()), "{key}");
        assert_eq!(call(&mut there, &["EXISTS", key]), Value::Int(sent.into()), "{key}");
    }
}

/// What a target answers to SELECT and three RESTOREs before it goes away; what MIGRATE makes of it, and which keys it leaves.
type Cut = (&'static str, &'static str, [bool; 3]);

const CUTS: [Cut; 6] = [
    ("+OK\r\n", "IOERR error or timeout reading to target instance", [true, true, true]),
    ("+OK\r\n+OK\r\n", "IOERR error or timeout reading to target instance", [false, true, true]),
    ("+OK\r\n+OK\r\n+OK\r\n", "IOERR error or timeout reading to target instance", [false, false, true]),
    ("+OK\r\n+OK\r\n+O", "IOERR error or timeout reading to target instance", [false, true, true]),
    ("+OK\r\n+OK\r\n-NO\r\n", "ERR Target instance replied with error: NO", [false, true, true]),
    ("-NO\r\n+OK\r\n", "ERR Target instance replied with error: NO", [true, true, true]),
];

/// Takes all that MIGRATE sends of three keys to each connection, answers so, and goes.
fn cutting(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let (mut decoder, mut requests, mut piece) = (wire::Decoder::new(), 0, [0; 4096]);
            while requests < 4 {
                let count = stream.read(&mut piece).unwrap();
                decoder.feed(&piece[..count]);
                while decoder.decode().unwrap().is_some() {
                    requests += 1;
                }
            }
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    port
}

#[test]
fn keys_that_arrived_before_the_connection_broke_are_gone() {
    for program in [Program::Redis, tarn()] {
        let server = start(program.clone());
        let mut client = server.connect().unwrap();
        for (answer, told, left) in CUTS {
            call(&mut client, &["MSET", "a", "1", "b", "2", "c", "3"]);
            let port = cutting(answer);
            let request = ["MIGRATE", "127.0.0.1", &port, "", "0", "10000", "KEYS", "a", "b", "c"];
            assert_eq!(call(&mut client, &request), Value::Error(told.into()), "{program:?}: {answer:?}");
            let there = ["a", "b", "c"].map(|key| call(&mut client, &["EXISTS", key]) == Value::Int(1));
            assert_eq!(there, left, "{program:?}: {answer:?}");
        }
    }
}

#[test]
fn keys_that_arrived_before_the_connection_broke_are_gone_behind_a_restart() {
    let mut server = Server::start(tarn(), &["--edition", "durable"]).unwrap();
    let mut client = server.connect().unwrap();
    call(&mut client, &["MSET", "a", "1", "b", "2", "c", "3"]);
    let port = cutting("+OK\r\n+OK\r\n");
    let request = ["MIGRATE", "127.0.0.1", &port, "", "0", "10000", "KEYS", "a", "b", "c"];
    assert!(is_error(&call(&mut client, &request), "IOERR"));
    server.restart().unwrap();
    assert_eq!(call(&mut server.connect().unwrap(), &["EXISTS", "a", "b", "c"]), Value::Int(2));
}

#[test]
fn a_script_that_migrates_is_shown_as_one_that_cannot_be_ended() {
    let server =
        Server::start(tarn(), &["--edition", "memory", "--threads", "2", "--threads-min", "2"]).unwrap();
    let (mut migrating, mut other) = (server.connect().unwrap(), server.connect().unwrap());
    let library = "#!lua name=l\nredis.register_function('f', function(keys, args) return redis.call(unpack(args)) end)";
    call(&mut other, &["FUNCTION", "LOAD", library]);
    let silent = Silent::listen();
    for (runs, container) in
        [(["EVAL", "return redis.call(unpack(ARGV))"], "SCRIPT"), (["FCALL", "f"], "FUNCTION")]
    {
        call(&mut other, &["SET", "key", "v"]);
        migrating.send_request(&[&runs[..], &["1", "key"], &silent.migrate("key")].concat()).unwrap();
        let target = silent.accept();
        let refused = call(&mut other, &[container, "KILL"]);
        assert!(is_error(&refused, "UNKILLABLE "), "{container}: {refused:?}");
        let Value::Array(stats) = call(&mut other, &["FUNCTION", "STATS"]) else { panic!() };
        assert_eq!(matches!(stats[1], Value::Array(_)), container == "FUNCTION", "{stats:?}");
        drop(target);
        assert!(is_error(&migrating.read_value().unwrap(), "IOERR"));
        assert!(is_error(&call(&mut other, &[container, "KILL"]), "NOTBUSY"));
    }
}
