//! A session's mail: whole messages that others have for it (published messages,
//! invalidations, MONITOR's lines), in the order in which they were posted.
//!
//! Whoever posts appends under a lock of its own and wakes the session up, unless
//! somebody has done so already: a burst of messages costs one wake-up and leaves
//! with one write. Messages are encoded in the session's protocol while the lock is
//! held, and the protocol changes under the same lock, so that no message comes in
//! the old one after the reply to HELLO.
//!
//! Invariants:
//! 1. Mail and replies that are not out stay below the hard limit of the session's
//!    class; a session that does not read is closed, and its mail dropped.
//! 2. If there is mail, the signal is set or about to be set by who posted.

use super::{Client, Signal, Traits};
use crate::log;
use crate::server::Server;
use parking_lot::Mutex;
use std::sync::atomic::Ordering;
use wire::Protocol;

/// What waits for a session.
#[derive(Default)]
pub(super) struct Mail {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    /// Nothing more is taken: the session is being closed.
    is_closed: bool,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Posted {
    /// The session will send it.
    Kept,
    /// It was too much: the mail is closed now.
    Overflowed,
    /// The mail had been closed before.
    Refused,
}

/// Posts a message that `write` encodes in the protocol given. A session whose unread
/// messages and replies reach the hard limit of `client-output-buffer-limit` is closed.
pub fn deliver(server: &Server, client: &Client, write: impl FnOnce(&mut Vec<u8>, Protocol)) {
    let limit = server.config.output_limit(client.class()).hard_bytes;
    if client.post_within(limit, write) == Posted::Overflowed {
        close_unread(server, client);
    }
}

#[cold]
fn close_unread(server: &Server, client: &Client) {
    server.counts.output_limit_disconnections.add(1);
    log!(
        Warning,
        "Client closed because it reached the hard limit of client-output-buffer-limit: {}",
        client.line(server.clock.now())
    );
    client.signal(Signal::KILL);
}

impl Client {
    /// Posts a reply that the session waits for.
    pub fn post(&self, reply: &[u8]) {
        self.post_within(0, |mail, _| mail.extend_from_slice(reply));
    }

    fn post_within(&self, bytes_max: u64, write: impl FnOnce(&mut Vec<u8>, Protocol)) -> Posted {
        let mut mail = self.mail.state.lock();
        if mail.is_closed {
            return Posted::Refused;
        }
        write(&mut mail.bytes, self.protocol());
        let waiting = (mail.bytes.len() + self.output_bytes.load(Ordering::Relaxed)) as u64;
        if bytes_max > 0 && waiting >= bytes_max {
            *mail = State { bytes: Vec::new(), is_closed: true };
            return Posted::Overflowed;
        }
        drop(mail);
        let before = self.signals.fetch_or(Signal::MAIL.bits(), Ordering::AcqRel);
        if before & Signal::MAIL.bits() == 0 {
            self.wake();
        }
        Posted::Kept
    }

    /// Whether there is mail.
    #[inline]
    pub fn has_mail(&self) -> bool {
        self.signals.load(Ordering::Acquire) & Signal::MAIL.bits() != 0
    }

    /// Takes the mail, which is for its session to send.
    pub fn take_mail(&self) -> Vec<u8> {
        // In this order: what is posted in between sets the signal again.
        self.signals.fetch_and(!Signal::MAIL.bits(), Ordering::AcqRel);
        std::mem::take(&mut self.mail.state.lock().bytes)
    }

    /// Bytes that the mail takes.
    pub fn mail_bytes(&self) -> usize {
        self.mail.state.lock().bytes.capacity()
    }

    /// The session has no subscriptions any more. Who finds the flag while it posts can
    /// rely on it.
    pub fn stop_listening(&self) {
        let _mail = self.mail.state.lock();
        self.set_trait(Traits::SUBSCRIBED, false);
    }

    /// The protocol that the session speaks.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        match self.protocol.load(Ordering::Relaxed) {
            3 => Protocol::Resp3,
            _ => Protocol::Resp2,
        }
    }

    /// Changes the protocol for messages that are posted from now on; returns those in
    /// the old one.
    pub fn speak(&self, protocol: Protocol) -> Vec<u8> {
        let mut mail = self.mail.state.lock();
        let number = match protocol {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        };
        self.protocol.store(number, Ordering::Relaxed);
        std::mem::take(&mut mail.bytes)
    }
}
