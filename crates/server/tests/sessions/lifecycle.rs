//! How connections and servers end.

use crate::harness::{PATIENCE, TestServer};
use ::log::Flushing;
use engine::replacement;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use value::rdb::file::{FileValue, FileWriter};

#[test]
fn a_client_that_closes_its_half_gets_its_replies() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    peer.send(&["PING", "ECHO 1"]);
    peer.half_close();
    assert_eq!(peer.texts(3), ["PONG", "1", "END"]);
    let mut peer = server.connect();
    peer.send(&["SETRANGE big 16777215 x", "GET big", "PING"]);
    peer.stream.write_all(b"*2\r\n$3\r\nGE").unwrap();
    peer.half_close();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(peer.text(), "16777216");
    assert_eq!(peer.text().len(), 16 << 20);
    assert_eq!(peer.texts(2), ["PONG", "END"]);
    server.wait_until("sessions are over", || server.server.net.placement.connections() == 0);
}

#[test]
fn nothing_behind_quit_is_answered() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    peer.stream.write_all(b"PING\r\nQUIT\r\nSET a 1\r\n*x\r\n").unwrap();
    assert_eq!(peer.texts(3), ["PONG", "OK", "END"]);
    assert_eq!(server.connect().ask("EXISTS a"), "0");
}

#[test]
fn replies_before_a_protocol_error_arrive_although_more_was_sent() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    peer.stream.write_all(b"PING\r\n*x\r\n").unwrap();
    let _ = peer.stream.write_all(&vec![b'a'; 200_000]);
    assert_eq!(peer.texts(3), ["PONG", "ERR Protocol error: invalid multibulk length", "END"]);
}

#[test]
fn a_stopping_server_sends_what_it_has_answered() {
    // Its time for those who do not read would be the same each time; whatever else holds it up is not.
    assert!((0..5).any(|_| time_to_send_the_last() < net::worker::DRAIN_TIME), "it waits for who is idle");
}

/// How long a server takes to end that has a long reply to send, and a client without any.
fn time_to_send_the_last() -> Duration {
    let server = TestServer::start("");
    let mut idle = server.connect();
    assert_eq!(idle.ask("PING"), "PONG");
    let mut reading = server.connect();
    reading.send(&["SETRANGE big 33554431 x", "GET big"]);
    assert_eq!(reading.text(), "33554432");
    let reader = std::thread::spawn(move || (reading.text().len(), reading.text()));
    std::thread::sleep(Duration::from_millis(20));
    let begun = Instant::now();
    assert_eq!(server.stop(), 0);
    let took = begun.elapsed();
    assert_eq!(reader.join().unwrap(), (32 << 20, "END".to_owned()));
    assert_eq!(idle.text(), "END");
    took
}

#[test]
fn clients_that_never_stop_do_not_keep_the_server_alive() {
    let server = TestServer::start("");
    let is_over = AtomicBool::new(false);
    let mut deaf = server.connect();
    deaf.send(&["SETRANGE big 33554431 x", "GET big"]);
    let mut busy = [server.connect(), server.connect()];
    std::thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        for peer in &mut busy {
            scope.spawn(|| {
                let (mut from, mut to) = (peer.stream.try_clone().unwrap(), &peer.stream);
                let batch = b"INCR counter\r\n".repeat(1000);
                scope.spawn(move || std::io::copy(&mut from, &mut std::io::sink()));
                while !is_over.load(Ordering::Relaxed) {
                    if to.write_all(&batch).is_err() {
                        break;
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_millis(100));
        let begun = Instant::now();
        assert_eq!(server.stop(), 0);
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
        is_over.store(true, Ordering::Relaxed);
    });
    drop(deaf);
}

#[test]
fn the_unix_socket_serves_with_its_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::temp_dir().join(format!("tarn-sessions-{}.sock", std::process::id()));
    let server = TestServer::start(&format!("unixsocket {}\nunixsocketperm 700\nport 0", path.display()));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"CLIENT INFO\r\n").unwrap();
    let mut reply = [0; 1024];
    let bytes = stream.read(&mut reply).unwrap();
    let line = String::from_utf8_lossy(&reply[..bytes]).into_owned();
    let address = format!(" addr={0}:0 laddr={0}:0 ", path.display());
    assert!(line.contains(&address) && line.contains(" flags=U "), "{line}");
    assert_eq!(server.stop(), 0);
}

#[test]
fn an_address_in_use_is_named_in_one_sentence() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let text = format!("port {port}\nbind 127.0.0.1");
    let Ok(config::Startup::Serve { config, .. }) = config::Config::from_text(text.as_bytes()) else {
        panic!("not served")
    };
    let error = net::listen::Listeners::bind(&config).err().unwrap();
    let expected =
        format!("Failed listening on port {port} (TCP): 127.0.0.1:{port} is in use by another program");
    assert_eq!(error.to_string(), expected);
}

/// The master hears of somebody who takes its copy all the while, also as long as a checkpoint with it is written.
#[test]
fn who_takes_a_copy_looks_after_its_link_while_it_writes_a_checkpoint() {
    let server = TestServer::start_durable("edition durable", Flushing::Threads);
    let mut writer = FileWriter::new();
    writer.database(0, 1, 0);
    writer.entry(b"key", FileValue::String(b"1"), None, None);
    let path = std::env::temp_dir().join(format!("tarn-taken-{}.rdb", std::process::id()));
    std::fs::write(&path, writer.finish()).unwrap();
    let engine = &server.server.engine;
    let checked = replacement::check(engine, &path, std::fs::File::open(&path).unwrap()).unwrap();
    let alone = replacement::Alone::begin(engine, &mut || Ok(())).unwrap();
    let mut calls = 0;
    let (copy, stream) = ((&*path, checked.libraries), ::log::Stream::begin(::log::Lsn(7)));
    replacement::replace(&alone, copy, stream, &mut || {
        calls += 1;
        Ok(())
    })
    .unwrap();
    drop(alone);
    std::fs::remove_file(&path).unwrap();
    // It is one key: loading it takes no time.
    assert!(calls > 0);
    assert_eq!(server.connect().ask("GET key"), "1");
}
