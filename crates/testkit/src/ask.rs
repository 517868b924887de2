//! How tests ask a server and say what they expect: a request in, its value out. Where there is no reply the test is over.

use crate::Client;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use wire::Value;

/// Longest wait for anything that a test waits for.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// The reply to a request, also if it is an error.
///
/// # Panics
/// If none comes.
#[track_caller]
pub fn call<A: AsRef<[u8]>>(client: &mut Client, request: &[A]) -> Value {
    client.call(request).expect("a reply comes")
}

/// The same of a request whose words have spaces between them.
///
/// # Panics
/// If none comes.
#[track_caller]
pub fn call_line(client: &mut Client, line: &str) -> Value {
    call(client, &line.split(' ').collect::<Vec<_>>())
}

/// The reply to a request, which is no error.
///
/// # Panics
/// If none comes, or one that is.
#[track_caller]
pub fn call_well<A: AsRef<[u8]>>(client: &mut Client, request: &[A]) -> Value {
    let reply = call(client, request);
    let words =
        || request.iter().map(|word| word.as_ref().escape_ascii().to_string() + " ").collect::<String>();
    assert!(!matches!(reply, Value::Error(_)), "{}: {reply:?}", words());
    reply
}

/// The same of a request whose words have spaces between them.
///
/// # Panics
/// As [`call_well`].
#[track_caller]
pub fn call_line_well(client: &mut Client, line: &str) -> Value {
    call_well(client, &line.split(' ').collect::<Vec<_>>())
}

/// The reply to a request as [`shown`].
///
/// # Panics
/// If none comes.
#[track_caller]
pub fn ask<A: AsRef<[u8]>>(client: &mut Client, request: &[A]) -> String {
    shown(&call(client, request))
}

/// A reply as text: what strings and errors hold, and of others what they are.
pub fn shown(reply: &Value) -> String {
    match reply {
        Value::Simple(text) | Value::Error(text) | Value::Bulk(text) => {
            String::from_utf8_lossy(text).into_owned()
        }
        other => format!("{other:?}"),
    }
}

/// `+OK`.
pub fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

/// A bulk string.
pub fn text(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

/// Whether a reply is an error that begins so.
pub fn is_error(reply: &Value, code: &str) -> bool {
    matches!(reply, Value::Error(line) if line.starts_with(code.as_bytes()))
}

/// Looks again and again until something is so.
///
/// # Panics
/// If that takes longer than anything does.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The next connection that comes to a listener. Who reads from it does not wait for ever either.
///
/// # Panics
/// If none comes for longer than anything takes.
#[track_caller]
pub fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).expect("it is a socket");
    let mut accepted = None;
    wait_until("somebody connects", || {
        accepted = listener.accept().ok();
        accepted.is_some()
    });
    listener.set_nonblocking(false).expect("it is a socket");
    let (stream, _) = accepted.expect("it was waited for");
    stream.set_nonblocking(false).expect("it is a socket");
    stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
    stream
}
