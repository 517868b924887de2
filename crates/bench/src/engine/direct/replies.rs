//! What comes back from the nodes of a cluster, and what follows from it.

use super::Direct;
use super::client::Operation;
use super::link::Waiting;
use super::map::{self, Redirection};
use crate::engine::connection::{CAPTURED_BYTES_MAX, MISSING};
use crate::work::Then;
use std::io::ErrorKind;
use sys::Ticks;
use wire::Decoder;
use wire::scan::Kind;

/// How often a request is sent elsewhere before that counts as an error.
const REDIRECTIONS_MAX: u8 = 16;
/// How the errors begin that pass: of a cluster that has no master for a slot just now, or not yet.
const PASSING: [&[u8]; 6] =
    [b"CLUSTERDOWN", b"MASTERDOWN", b"LOADING", b"READONLY", b"TRYAGAIN", b"NOREPLICAS"];

impl Direct {
    /// Reads all that a connection has and accounts for it.
    pub(super) fn read(&mut self, at: usize, node: usize, buffer: &mut [u8], is_closed: bool) {
        loop {
            let now = self.tally.clock.now();
            let Some(link) = self.clients[at].link(node) else { return };
            match link.channel.read(buffer) {
                Ok(None) => return,
                Ok(Some(0)) => return self.lose(at, node, "the server closed a connection", now),
                Ok(Some(read)) => {
                    link.since = now;
                    self.tally.keep_time(now);
                    self.tally.last_reply = now;
                    self.account(at, node, &buffer[..read], now);
                    self.tally.publish();
                    // Less than was asked for: the socket is empty, unless its end has been announced as well.
                    if read < buffer.len() && !is_closed {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::NotConnected && !link.is_connected => return,
                Err(error) => {
                    return self.lose(at, node, &format!("a connection was lost: {error}"), now);
                }
            }
        }
    }

    fn account(&mut self, at: usize, node: usize, mut bytes: &[u8], now: Ticks) {
        const STRANGE: &str = "what the server sent is no reply of the Redis protocol";
        while !bytes.is_empty() {
            let client = &mut self.clients[at];
            let Some(link) = client.links.get_mut(node).and_then(Option::as_mut) else { return };
            let Some(front) = link.waiting.front().copied() else {
                return self.lose(at, node, STRANGE, now);
            };
            let Ok((used, kind)) = link.scanner.advance(bytes) else {
                return self.lose(at, node, STRANGE, now);
            };
            let is_kept = match front {
                Waiting::Map => true,
                Waiting::Request(number) => {
                    client.operations[client.requests[number].operation].issued.then == Then::ReadAll
                }
                Waiting::Greeting | Waiting::Asking => false,
            };
            if is_kept {
                link.captured.extend_from_slice(&bytes[..used]);
                if link.captured.len() > CAPTURED_BYTES_MAX {
                    return self.lose(at, node, STRANGE, now);
                }
            }
            bytes = &bytes[used..];
            let Some(kind) = kind else { return };
            link.waiting.pop_front();
            let captured = std::mem::take(&mut link.captured);
            let error = if kind == Kind::Error { link.scanner.error().to_vec() } else { Vec::new() };
            match front {
                Waiting::Greeting if kind == Kind::Error => {
                    return self.lose(at, node, &String::from_utf8_lossy(&error), now);
                }
                // What ASKING is answered with shows in the answer to the request behind it.
                Waiting::Greeting | Waiting::Asking => {}
                Waiting::Map => self.take_map(node, &captured),
                Waiting::Request(number) if kind == Kind::Error => {
                    self.take_error(at, node, number, &error, now);
                }
                Waiting::Request(number) => self.take_reply(at, number, kind, &captured, now),
            }
        }
    }

    /// A node has told who has which slot. One that cannot says so to nobody: another is asked when an operation fails.
    fn take_map(&mut self, node: usize, reply: &[u8]) {
        self.asking.asked = None;
        let mut decoder = Decoder::new();
        decoder.feed(reply);
        let host = self.cluster.map.nodes()[node].host().to_owned();
        if let Ok(Some(value)) = decoder.decode()
            && self.cluster.map.take(&value, &host).is_err()
        {
            self.asking.is_wanted = true;
        }
    }

    fn take_reply(&mut self, at: usize, number: usize, kind: Kind, captured: &[u8], now: Ticks) {
        let client = &mut self.clients[at];
        let operation = client.requests[number].operation;
        if kind == Kind::Nothing && client.operations[operation].issued.must_exist {
            return self.fail(at, number, MISSING, now);
        }
        client.operations[operation].lacking -= 1;
        self.end_step(at, operation, captured, now);
    }

    /// An error: a redirection is followed, all else fails the operation.
    fn take_error(&mut self, at: usize, node: usize, number: usize, line: &[u8], now: Ticks) {
        let redirections = self.clients[at].requests[number].redirections;
        if redirections < REDIRECTIONS_MAX
            && let Some(redirection) = map::redirection(line)
            && let Ok(next) = self.cluster.map.follow(redirection, node)
        {
            self.clients[at].requests[number].redirections += 1;
            let is_asking = matches!(redirection, Redirection::Ask(..));
            self.asking.is_wanted |= !is_asking;
            return self.send(at, number, next, is_asking, now);
        }
        if PASSING.iter().any(|begin| line.starts_with(begin)) {
            self.clients[at].is_hurt = true;
            self.asking.is_wanted = true;
        }
        self.fail(at, number, line, now);
    }

    /// A request has failed for a reason that passes.
    pub(super) fn hurt(&mut self, at: usize, number: usize, why: &str, now: Ticks) {
        self.clients[at].is_hurt = true;
        self.asking.is_wanted = true;
        self.fail(at, number, why.as_bytes(), now);
    }

    /// A request has failed, and with it its operation, which is counted once.
    fn fail(&mut self, at: usize, number: usize, text: &[u8], now: Ticks) {
        let client = &mut self.clients[at];
        let number = client.requests[number].operation;
        let operation = &mut client.operations[number];
        operation.lacking -= 1;
        if !std::mem::replace(&mut operation.has_failed, true) && operation.is_measured {
            self.tally.count_error(text);
            if let Some(timing) = &mut self.tally.timing {
                timing.see(now, true, operation.is_watched, false);
            }
        }
        self.end_step(at, number, &[], now);
    }

    /// If an operation's step lacks nothing any more, the operation goes on or is over.
    fn end_step(&mut self, at: usize, number: usize, captured: &[u8], now: Ticks) {
        let client = &mut self.clients[at];
        let Operation { issued, lacking, has_failed, .. } = client.operations[number];
        if lacking > 0 {
            return;
        }
        let then = issued.then;
        if then != Then::Nothing && (!has_failed || matches!(then, Then::Inserted(_))) {
            let from = client.buffer.len();
            if let Some(next) = self.orders.feed.follow(then, captured, &mut client.buffer) {
                let operation = &mut client.operations[number];
                (operation.issued, operation.lacking) = (next, next.replies);
                return self.dispatch(at, number, from, now);
            }
        }
        client.open -= 1;
        let operation = client.operations[number];
        if operation.is_measured && !operation.has_failed {
            let kind = operation.issued.kind;
            self.tally.count(kind, operation.start, 1, now);
            if let Some(timing) = &mut self.tally.timing {
                let is_write = self.cluster.writes.get(usize::from(kind)) == Some(&true);
                timing.see(now, false, operation.is_watched, is_write);
            }
        }
    }
}
