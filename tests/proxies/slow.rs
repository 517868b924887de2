//! A server behind a proxy that takes a long request slowly, or not at all.

use super::secure;
use crate::tarn_path;
use socket2::SockRef;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::ask::{accept, is_error, ok, shown};
use testkit::tls::Files;
use testkit::{Program, Server, free_port};
use wire::encode_request;

/// So much is taken at once, with a pause before it.
#[derive(Clone, Copy)]
struct Pace {
    bytes: usize,
    pause: Duration,
}

/// So fast that what the system keeps is taken in no time when the proxy has written all.
const SWIFT: Pace = Pace { bytes: 1 << 20, pause: Duration::from_millis(80) };
/// As a network is that takes longer for what the proxy's system keeps than a server may be silent.
const SLOW: Pace = Pace { bytes: 64 << 10, pause: Duration::from_millis(400) };

/// Where the proxy finds a server that is none. Its system keeps no more than a little of what it has not taken.
pub(super) fn place() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    SockRef::from(&listener).set_recv_buffer_size(SLOW.bytes).unwrap();
    let place = listener.local_addr().unwrap().to_string();
    (listener, place)
}

/// A connection on which a server has said what a proxy wants to hear at first.
pub(super) fn introduced(listener: &TcpListener) -> TcpStream {
    let mut socket = accept(listener);
    let (mut said, mut piece) = (Vec::new(), vec![0; 1 << 10]);
    while !said.ends_with(b"$4\r\nINFO\r\n$6\r\nserver\r\n") {
        let read = socket.read(&mut piece).unwrap();
        assert!(read > 0, "it asks how the server is: {}", said.escape_ascii());
        said.extend_from_slice(&piece[..read]);
    }
    socket.write_all(b"+OK\r\n$0\r\n\r\n").unwrap();
    socket
}

/// Takes a long request slowly, and answers it.
fn take_slowly(listener: &TcpListener, pace: Pace, bytes: usize) {
    let mut socket = introduced(listener);
    let (mut left, mut piece) = (bytes, vec![0; pace.bytes]);
    while left > 0 {
        thread::sleep(pace.pause);
        let now = left.min(piece.len());
        socket.read_exact(&mut piece[..now]).unwrap();
        left -= now;
    }
    socket.write_all(b"+OK\r\n").unwrap();
}

fn long_request(bytes: usize) -> Vec<u8> {
    let mut request = Vec::new();
    encode_request(&mut request, &[b"SET", b"k", &vec![b'v'; bytes]]);
    request
}

/// A request so long is answered, though that takes longer than the server may be silent, and than this.
fn is_answered(bytes: usize, pace: Pace, silence_max: &str, longer_than: Duration) {
    let (listener, place) = place();
    let words = ["--proxy-shards", &place, "--proxy-shard-timeout", silence_max];
    let proxy = Server::start(Program::Proxy(tarn_path()), &words).unwrap();
    let request = long_request(bytes);
    thread::scope(|scope| {
        scope.spawn(|| take_slowly(&listener, pace, request.len()));
        let (mut client, began) = (proxy.connect().unwrap(), Instant::now());
        client.send(&request).unwrap();
        let reply = client.read_value().unwrap();
        assert_eq!(reply, ok(), "{} after {:?}", shown(&reply), began.elapsed());
        assert!(began.elapsed() > longer_than, "it was not slow");
    });
}

#[test]
fn a_shard_that_takes_a_long_request_slowly_is_not_lost() {
    is_answered(80 << 20, SWIFT, "5", Duration::from_secs(6));
}

#[test]
fn a_shard_is_not_lost_while_the_network_takes_what_the_proxy_has_written() {
    // The proxy's system takes all of it at once.
    is_answered(1 << 20, SLOW, "2", Duration::from_secs(5));
}

#[test]
fn a_shard_that_takes_no_more_of_a_long_request_is_lost_whoever_goes_on_writing_to_it() {
    let (listener, place) = place();
    let words = ["--proxy-shards", &place, "--proxy-shard-timeout", "1"];
    let proxy = Server::start(Program::Proxy(tarn_path()), &words).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        let mut client = proxy.connect().unwrap();
        client.send(&long_request(1 << 20)).unwrap();
        let _stands_still = introduced(&listener);
        scope.spawn(|| {
            let mut others = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let mut other = proxy.connect().unwrap();
                other.send_request(&["INCR", "k"]).unwrap();
                others.push(other);
                thread::sleep(Duration::from_millis(100));
            }
        });
        let reply = client.read_value().unwrap();
        assert!(is_error(&reply, "UNANSWERED"), "{}", shown(&reply));
    });
}

/// What is said at first is taken at once: keys are agreed on in a time that has its own end.
const GREETING_BYTES: usize = 16 << 10;

/// Passes what comes on to a server, slowly what comes behind the first words, until it ends.
fn pass_on(listener: &TcpListener, port: u16, pace: Pace) {
    let mut near = accept(listener);
    let mut far = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (mut from, mut back) = (far.try_clone().unwrap(), near.try_clone().unwrap());
    thread::scope(|scope| {
        scope.spawn(move || io::copy(&mut from, &mut back));
        let (mut passed, mut piece) = (0, vec![0; pace.bytes]);
        loop {
            if passed > GREETING_BYTES {
                thread::sleep(pace.pause);
            }
            match near.read(&mut piece) {
                Ok(read @ 1..) if far.write_all(&piece[..read]).is_ok() => passed += read,
                _ => break,
            }
        }
        let _ = far.shutdown(Shutdown::Both);
    });
}

#[test]
fn a_shard_is_not_lost_while_the_network_takes_what_was_written_with_tls() {
    let (files, port) = (Files::new().unwrap(), free_port().unwrap());
    let tls = secure::words(&files);
    let tls: Vec<&str> = tls.iter().map(String::as_str).collect();
    let named = port.to_string();
    let _shard = Server::start(crate::tarn(), &[&tls[..], &["--tls-port", &named]].concat()).unwrap();
    let (listener, place) = place();
    let own = ["--proxy-shards", &place, "--proxy-shard-timeout", "2", "--tls-cluster", "yes"];
    let proxy = Server::start(Program::Proxy(tarn_path()), &[&own[..], &tls].concat()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| pass_on(&listener, port, SLOW));
        // Its end is that of what is passed on.
        let proxy = proxy;
        let (mut client, began) = (proxy.connect().unwrap(), Instant::now());
        client.send(&long_request(1 << 20)).unwrap();
        let reply = client.read_value().unwrap();
        assert_eq!(reply, ok(), "{} after {:?}", shown(&reply), began.elapsed());
        assert!(began.elapsed() > Duration::from_secs(5), "it was not slow");
    });
}
