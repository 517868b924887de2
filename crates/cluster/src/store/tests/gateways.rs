//! What is no etcd, or is not well: each answer that makes no sense comes to a sentence, and none to something that would be believed.

use super::put;
use crate::store::etcd::{Etcd, Options};
use crate::store::{Change, Outcome, Revision, Seen, Store};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Somebody who answers each request with the same bytes.
struct Fake {
    endpoint: String,
    is_over: Arc<AtomicBool>,
}

impl Fake {
    fn answering(answer: Vec<u8>, hangs: bool) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("it has one"));
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        std::thread::spawn(move || {
            let mut hanging = Vec::new();
            for socket in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(mut socket) = socket else { continue };
                take_request(&mut socket);
                let _ = socket.write_all(&answer);
                if hangs {
                    hanging.push(socket);
                }
            }
        });
        Fake { endpoint, is_over }
    }

    fn store(&self) -> Etcd {
        let endpoints = vec![self.endpoint.clone()];
        Etcd::new(Options { endpoints, ..Options::default() }).expect("that makes sense")
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.endpoint.trim_start_matches("http://"));
    }
}

/// Reads a request, so that its answer is not taken for one that comes too early.
fn take_request(socket: &mut TcpStream) {
    let _ = socket.set_read_timeout(Some(Duration::from_millis(500)));
    let (mut got, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = socket.read(&mut buffer) {
        got.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&got).to_ascii_lowercase();
        let Some(head) = text.find("\r\n\r\n") else { continue };
        let length = text.split("content-length: ").nth(1).and_then(|rest| rest.split('\r').next());
        let length = length.and_then(|length| length.parse().ok()).unwrap_or(0);
        if got.len() >= head + 4 + length {
            return;
        }
    }
}

fn http(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
        .into_bytes()
}

/// Asks for everything; nothing of it may come to anything.
fn ask_for_all(store: &Etcd, what: &str) {
    assert!(store.read("/t/").is_err_and(|why| !why.0.is_empty()), "{what}");
    assert!(store.get("/t/a").is_err(), "{what}");
    let change = Change { compares: Vec::new(), writes: vec![put("/t/a", "1")] };
    let outcome = store.change(&change);
    assert!(matches!(outcome, Outcome::Unknown(_) | Outcome::Unreached(_)), "{what}: {outcome:?}");
    assert!(store.grant(Duration::from_secs(1)).is_err(), "{what}");
    assert!(store.renew(crate::store::LeaseId(5)).is_err(), "{what}");
    if let Ok(mut watch) = store.watch("/t/", Revision(1)) {
        let seen = watch.next(Duration::from_millis(50));
        assert!(matches!(seen, Err(_) | Ok(Seen::Quiet)), "{what}: {seen:?}");
    }
}

#[test]
fn what_makes_no_sense_is_not_believed() {
    let key = "L3QvYQ==";
    for body in [
        "",
        "null",
        "[]",
        "{}",
        "{\"header\":",
        "{\"header\":{\"revision\":\"x\"},\"succeeded\":1,\"kvs\":{},\"ID\":\"-1\",\"result\":[]}",
        "{\"header\":{\"revision\":-1},\"succeeded\":true,\"ID\":null,\"result\":{\"ID\":6}}",
        "{\"header\":{\"revision\":\"5\"},\"succeeded\":\"true\",\"kvs\":[1],\"result\":{\"events\":5}}",
        &format!("{{\"header\":{{\"revision\":\"99999999999999999999\"}},\"kvs\":[{{\"key\":\"{key}\"}}]}}"),
        &format!(
            "{{\"header\":{{\"revision\":\"7\"}},\"succeeded\":[],\"kvs\":[{{\"key\":\"{key}\",\"mod_revision\":\"1\",\"value\":\"%%%\"}}]}}"
        ),
        "{\"error\":{\"grpc_code\":14,\"message\":\"etcdserver: request timed out\"}}",
        &"[".repeat(100_000),
        &format!("{{\"a\":{}", "{\"a\":".repeat(50_000)),
    ] {
        let fake = Fake::answering(http("200 OK", body), false);
        ask_for_all(&fake.store(), &body[..body.len().min(80)]);
    }
}

#[test]
fn what_is_no_answer_is_not_believed() {
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(1 << 20));
    for (answer, hangs) in [
        (Vec::new(), false),
        (b"garbage\r\n\r\n".to_vec(), false),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"header\":{\"revision\":\"5\"}".to_vec(), false),
        (long.into_bytes(), false),
        (http("404 Not Found", "404 page not found"), false),
        (http("500 Internal Server Error", "{\"error\":{}}"), false),
        (http("503 Service Unavailable", "{\"code\":14,\"message\":\"no leader\"}"), false),
        (http("302 Found", ""), false),
        (Vec::new(), true),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".to_vec(), true),
    ] {
        let shown = String::from_utf8_lossy(&answer[..answer.len().min(60)]).into_owned();
        let fake = Fake::answering(answer, hangs);
        ask_for_all(&fake.store(), &format!("{shown} hangs={hangs}"));
    }
}

#[test]
fn what_was_refused_was_not_done() {
    let refused = |code: u64, why: &str| {
        let body = format!("{{\"error\":\"{why}\",\"code\":{code},\"message\":\"etcdserver: {why}\"}}");
        let fake = Fake::answering(http("400 Bad Request", &body), false);
        let change = Change { compares: Vec::new(), writes: vec![put("/t/a", "1")] };
        (fake.store().change(&change), fake)
    };
    // That is said of a change that has used up the last of it, too.
    let (outcome, _) = refused(8, "mvcc: database space exceeded");
    assert!(matches!(&outcome, Outcome::Unknown(why) if why.contains("space exceeded")), "{outcome:?}");
    let (outcome, fake) = refused(7, "permission denied");
    assert!(matches!(&outcome, Outcome::Unreached(why) if why.contains("permission")), "{outcome:?}");
    // Nobody is there at all.
    let endpoint = fake.endpoint.clone();
    drop(fake);
    let store =
        Etcd::new(Options { endpoints: vec![endpoint], ..Options::default() }).expect("that makes sense");
    testkit::ask::wait_until("nobody listens", || {
        matches!(
            store.change(&Change { compares: Vec::new(), writes: vec![put("/t/a", "1")] }),
            Outcome::Unreached(_)
        )
    });
    for wrong in ["", "127.0.0.1:2379", "ftp://127.0.0.1", "http://", "http://host/path"] {
        assert!(
            Etcd::new(Options { endpoints: vec![wrong.to_owned()], ..Options::default() }).is_err(),
            "{wrong}"
        );
    }
}
