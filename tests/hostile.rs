//! Clients that mean harm, or behave as if: whatever they send or leave unread, the
//! server stays up, small and ready for the next one.
//!
//! Every test runs against `redis-server` as well, so that it asks nothing that a
//! real server does not give, and against a proxy.

use crate::proxies::Proxied;
use crate::tarn;
use std::io;
use std::time::Duration;
use sys::Prng;
use testkit::generate::Generator;
use testkit::{Budget, Client, Program, Server, Spec};
use wire::Value;

/// What resident memory may grow by while a hostile client is served.
const GROWTH_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The same of a proxy, which has in hand what servers have sent by the time that it closes a client, too.
const PROXY_GROWTH_BYTES_MAX: u64 = 2 * GROWTH_BYTES_MAX;

/// Runs `attack` on a fresh Redis, a fresh Tarn and a fresh proxy; each must answer others afterwards, and be no larger.
fn survives(directives: &[&str], attack: fn(&Server)) {
    let edition = [directives, &["--edition", "memory"]].concat();
    for (program, directives) in [(Program::Redis, directives), (tarn(), &edition)] {
        let mut server = Server::start(program, directives).unwrap();
        survives_at(&mut server, directives, GROWTH_BYTES_MAX, attack);
    }
    let mut proxied = Proxied::of((&tarn(), &["--edition", "memory"]), 2, directives);
    survives_at(&mut proxied.proxy, directives, PROXY_GROWTH_BYTES_MAX, attack);
    for shard in &mut proxied.shards {
        survives_at(shard, &[], GROWTH_BYTES_MAX, |_| {});
    }
}

fn survives_at(server: &mut Server, directives: &[&str], growth_max: u64, attack: fn(&Server)) {
    let before = server.resident_bytes().unwrap();
    attack(server);
    let name = server.program().name();
    assert!(server.ended().unwrap().is_none(), "{name} ended:\n{}", server.output());
    let grown = server.resident_bytes().unwrap().saturating_sub(before);
    assert!(grown < growth_max, "{name} grew by {grown} bytes");
    let mut other = server.connect().unwrap();
    if directives.contains(&"--requirepass") {
        other.call(&["AUTH", "secret"]).unwrap();
    }
    assert_eq!(other.call(&["PING"]).unwrap(), simple("PONG"), "{name}");
}

fn simple(text: &str) -> Value {
    Value::Simple(text.as_bytes().to_vec())
}

/// Sends `bytes` and expects one error line and the end of the connection.
fn is_refused(server: &Server, bytes: &[u8], error: &str) {
    let mut client = server.connect().unwrap();
    client.send(bytes).unwrap();
    let answer = client.read_to_close().unwrap();
    let shown = answer.escape_ascii().to_string();
    assert!(answer.starts_with(error.as_bytes()), "{}: {shown}", server.program().name());
}

#[test]
fn impossible_counts_and_lengths_are_refused() {
    survives(&[], |server| {
        is_refused(server, b"*1\r\n$-5\r\n", "-ERR Protocol error: invalid bulk length\r\n");
        is_refused(server, b"*1\r\n$abc\r\n", "-ERR Protocol error: invalid bulk length\r\n");
        is_refused(server, b"*1\r\n$1000000000000\r\n", "-ERR Protocol error: invalid bulk length\r\n");
        is_refused(server, b"*abc\r\n", "-ERR Protocol error: invalid multibulk length\r\n");
        is_refused(server, b"*99999999999\r\n", "-ERR Protocol error: invalid multibulk length\r\n");
        is_refused(server, b"*1\r\n:5\r\n", "-ERR Protocol error: expected '$', got ':'\r\n");
    });
}

#[test]
fn declared_sizes_reserve_no_memory() {
    survives(&[], |server| {
        let mut open = Vec::new();
        for _ in 0..20 {
            for bytes in [
                b"*1000000000\r\n$3\r\nGET\r\n".as_slice(),
                b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$500000000\r\nabc",
            ] {
                let mut client = server.connect().unwrap();
                client.send(bytes).unwrap();
                open.push(client);
            }
        }
        // All of these have been read once a later request is answered.
        assert_eq!(server.connect().unwrap().call(&["PING"]).unwrap(), simple("PONG"));
        let resident = server.resident_bytes().unwrap();
        assert!(resident < 300 * 1024 * 1024, "{} holds {resident} bytes", server.program().name());
    });
}

#[test]
fn requests_may_come_byte_by_byte() {
    survives(&[], |server| {
        let mut client = server.connect().unwrap();
        for byte in b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\nGET k\r\n*1\r\n$4\r\nPING\r\n" {
            client.send(&[*byte]).unwrap();
        }
        assert_eq!(client.read_value().unwrap(), simple("OK"));
        assert_eq!(client.read_value().unwrap(), Value::Bulk(b"a\r\nb".to_vec()));
        assert_eq!(client.read_value().unwrap(), simple("PONG"));
    });
}

#[test]
fn half_closed_connection_gets_its_replies() {
    survives(&[], |server| {
        let mut client = server.connect().unwrap();
        client.send(&b"PING\r\n".repeat(10)).unwrap();
        // Redis drops what it has not answered when it sees the end, so the replies are awaited first.
        for _ in 0..10 {
            assert_eq!(client.read_value().unwrap(), simple("PONG"));
        }
        client.close_write().unwrap();
        assert_eq!(client.read_to_close().unwrap(), b"");
    });
}

#[test]
fn requests_sent_before_the_half_close_are_answered() {
    let server = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    let mut client = server.connect().unwrap();
    client.send(&b"PING\r\n".repeat(1_000)).unwrap();
    client.close_write().unwrap();
    assert_eq!(client.read_to_close().unwrap(), b"+PONG\r\n".repeat(1_000));
}

#[test]
fn garbage_is_answered_or_refused() {
    survives(&[], |server| {
        let mut prng = sys::Prng::from_seed(1);
        for _ in 0..200 {
            let bytes: Vec<u8> = (0..prng.below(2_000)).map(|_| prng.next_u64() as u8).collect();
            let mut client = server.connect().unwrap();
            // The server may close while this is being sent.
            let _ = client.send(&bytes);
            let _ = client.close_write();
            client.read_to_close().unwrap();
        }
    });
}

#[test]
fn inline_requests_have_limits() {
    survives(&[], |server| {
        is_refused(
            server,
            b"SET k \"unbalanced\r\n",
            "-ERR Protocol error: unbalanced quotes in request\r\n",
        );
        is_refused(server, &[b'a'; 66 * 1024], "-ERR Protocol error: too big inline request\r\n");
        is_refused(
            server,
            &[b"*", [b'1'; 66 * 1024].as_slice()].concat(),
            "-ERR Protocol error: too big mbulk count string\r\n",
        );
        let mut client = server.connect().unwrap();
        let long = [b"ECHO ", [b'x'; 60_000].as_slice(), b"\r\n"].concat();
        client.send(&long).unwrap();
        assert_eq!(client.read_value().unwrap(), Value::Bulk(vec![b'x'; 60_000]));
    });
}

#[test]
fn strangers_get_little_room() {
    survives(&["--requirepass", "secret"], |server| {
        is_refused(server, b"*11\r\n", "-ERR Protocol error: unauthenticated multibulk length\r\n");
        is_refused(
            server,
            b"*2\r\n$4\r\nAUTH\r\n$16385\r\n",
            "-ERR Protocol error: unauthenticated bulk length\r\n",
        );
        let mut client = server.connect().unwrap();
        let refused = client.call(&["GET", "k"]).unwrap();
        assert_eq!(refused, Value::Error(b"NOAUTH Authentication required.".to_vec()));
        assert_eq!(client.call(&["AUTH", "secret"]).unwrap(), simple("OK"));
        assert_eq!(client.call(&["GET", "k"]).unwrap(), Value::Null);
    });
}

/// Asks for a megabyte `count` times and reads nothing.
fn ask_and_leave_unread(server: &Server, count: usize) -> io::Result<Client> {
    let mut client = server.connect()?;
    client.call(&[b"SET".as_slice(), b"big", &vec![b'x'; 1 << 20]])?;
    client.send(&b"GET big\r\n".repeat(count))?;
    Ok(client)
}

#[test]
fn slow_reader_is_cut_off_at_its_limit() {
    survives(&["--client-output-buffer-limit", "normal 8mb 0 0"], |server| {
        let mut client = ask_and_leave_unread(server, 1_000).unwrap();
        assert_eq!(server.connect().unwrap().call(&["PING"]).unwrap(), simple("PONG"));
        let received = client.read_to_close().unwrap();
        assert!(received.len() < 64 << 20, "{} bytes", received.len());
    });
}

#[test]
fn unread_replies_do_not_stall_other_clients() {
    let directives = ["--edition", "memory", "--client-output-buffer-limit", "normal 0 0 0"];
    let server = Server::start(tarn(), &directives).unwrap();
    let mut slow = ask_and_leave_unread(&server, 1_000).unwrap();
    for _ in 0..100 {
        assert_eq!(server.connect().unwrap().call(&["PING"]).unwrap(), simple("PONG"));
    }
    for _ in 0..1_000 {
        assert_eq!(slow.read_reply().unwrap().len(), "$1048576\r\n\r\n".len() + (1 << 20));
    }
}

/// Valid requests with some bytes changed, cut out, doubled or put in.
fn mutated(prng: &mut Prng, generator: &mut Generator<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..=prng.below(8) {
        let request = generator.request();
        let words: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        wire::encode_request(&mut bytes, &words);
    }
    for _ in 0..prng.below(6) {
        let at = prng.below(bytes.len() as u64) as usize;
        let end = bytes.len().min(at + prng.below(40) as usize);
        match prng.below(5) {
            0 => bytes[at] ^= 1 << prng.below(8),
            1 => bytes[at] = b"*$\r\n0123456789-"[prng.below(15) as usize],
            2 => drop(bytes.drain(at..end)),
            3 => bytes.extend_from_within(at..end),
            _ => bytes.insert(at, prng.next_u64() as u8),
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

#[test]
fn mutated_requests_do_no_harm() {
    let directives = ["--edition", "memory", "--proto-max-bulk-len", "1mb"];
    mutations_do_no_harm(&mut Server::start(tarn(), &directives).unwrap());
}

#[test]
fn mutated_requests_do_a_proxy_no_harm() {
    let mut proxied = Proxied::of((&tarn(), &["--edition", "memory"]), 2, &["--proto-max-bulk-len", "1mb"]);
    mutations_do_no_harm(&mut proxied.proxy);
    for shard in &mut proxied.shards {
        survives_at(shard, &[], GROWTH_BYTES_MAX, |_| {});
    }
}

fn mutations_do_no_harm(server: &mut Server) {
    let budget = Budget::from_env(1, 1_500);
    let is_sent = |spec: &Spec| !["shutdown", "client|pause"].contains(&spec.name.as_str());
    let specs: Vec<Spec> = crate::specs().into_iter().filter(is_sent).collect();
    let (mut prng, mut generator) = (Prng::from_seed(budget.seed), Generator::new(&specs, budget.seed));
    let before = server.resident_bytes().unwrap();
    let mut sent = 0;
    while budget.allows(sent) {
        let mut client = server.connect().unwrap();
        let bytes = mutated(&mut prng, &mut generator);
        // The server may close while this is being sent.
        let _ = client.send(&bytes);
        let _ = client.close_write();
        if prng.one_in(4) {
            client.stream().set_read_timeout(Some(Duration::from_millis(5))).unwrap();
            let _ = client.read_reply();
        }
        sent += 1;
        if sent.is_multiple_of(500) {
            // A CLIENT KILL may still be under way, and mean this one too.
            let _ = server.connect().unwrap().call(&["FLUSHALL"]);
            assert!(server.ended().unwrap().is_none(), "after {sent}: {}", server.output());
            let grown = server.resident_bytes().unwrap().saturating_sub(before);
            assert!(grown < 2 * GROWTH_BYTES_MAX, "grew by {grown} bytes after {sent} connections");
        }
    }
    assert!(server.ended().unwrap().is_none(), "{}", server.output());
}
