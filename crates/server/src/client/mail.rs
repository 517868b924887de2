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
//! 3. What a transaction or a script posts is sealed until its effects are in the log: the session that takes it could not
//!    know up to where the log must be durable for it.

use super::{Client, Signal, Traits};
use crate::log;
use crate::server::Server;
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::Protocol;

/// What waits for a session.
#[derive(Default)]
pub(super) struct Mail {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    /// From which byte on a seal keeps the mail, in order.
    seals: VecDeque<(usize, Arc<AtomicBool>)>,
    /// Nothing more is taken: the session is being closed.
    is_closed: bool,
}

impl State {
    /// Takes what no seal keeps.
    fn take(&mut self) -> Vec<u8> {
        while self.seals.front().is_some_and(|(_, is_open)| is_open.load(Ordering::Acquire)) {
            self.seals.pop_front();
        }
        let Some(from) = self.seals.front().map(|(from, _)| *from) else {
            return std::mem::take(&mut self.bytes);
        };
        self.seals.iter_mut().for_each(|(at, _)| *at -= from);
        let kept = self.bytes.split_off(from);
        std::mem::replace(&mut self.bytes, kept)
    }
}

/// What a thread posts while it holds slots for several commands.
#[derive(Default)]
struct Group {
    is_open: Arc<AtomicBool>,
    /// Sessions that have sealed mail.
    recipients: Vec<u64>,
}

thread_local! {
    static IS_IN_GROUP: Cell<bool> = const { Cell::new(false) };
    /// Made with the first message.
    static GROUP: RefCell<Option<Group>> = const { RefCell::new(None) };
}

/// Messages that this thread posts from now on are sealed.
pub fn begin_group() {
    IS_IN_GROUP.set(true);
}

/// The seal for a message to a session, if it needs one.
fn seal_for(client: &Client) -> Option<Arc<AtomicBool>> {
    if !IS_IN_GROUP.get() {
        return None;
    }
    GROUP.with_borrow_mut(|group| {
        let group = group.get_or_insert_with(Group::default);
        if !group.recipients.contains(&client.id) {
            group.recipients.push(client.id);
        }
        Some(group.is_open.clone())
    })
}

/// Opens their seals.
pub fn end_group(server: &Server) {
    IS_IN_GROUP.set(false);
    let Some(group) = GROUP.take() else { return };
    group.is_open.store(true, Ordering::Release);
    for client in group.recipients.iter().filter_map(|id| server.clients.get(*id)) {
        client.signal(Signal::MAIL);
    }
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
    if client.post_within(limit, seal_for(client), write) == Posted::Overflowed {
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
    /// Posts a reply that the session waits for. The effects of what it tells are in the log. It must not stay behind, since
    /// the session goes on with its next request, nor overtake: it opens the seals before it.
    pub fn post(&self, reply: &[u8]) {
        self.mail.state.lock().seals.clear();
        self.post_within(0, None, |mail, _| mail.extend_from_slice(reply));
    }

    fn post_within(
        &self,
        bytes_max: u64,
        seal: Option<Arc<AtomicBool>>,
        write: impl FnOnce(&mut Vec<u8>, Protocol),
    ) -> Posted {
        let mut mail = self.mail.state.lock();
        if mail.is_closed {
            return Posted::Refused;
        }
        if let Some(seal) = seal
            && mail.seals.back().is_none_or(|(_, last)| !Arc::ptr_eq(last, &seal))
        {
            let from = mail.bytes.len();
            mail.seals.push_back((from, seal));
        }
        write(&mut mail.bytes, self.protocol());
        let waiting = (mail.bytes.len() + self.output_bytes.load(Ordering::Relaxed)) as u64;
        if bytes_max > 0 && waiting >= bytes_max {
            *mail = State { is_closed: true, ..State::default() };
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
        self.mail.state.lock().take()
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
        mail.seals.clear();
        std::mem::take(&mut mail.bytes)
    }
}
