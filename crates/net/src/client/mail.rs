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
//! 1. Mail and replies that are not out stay below the hard limit of the session's class, and below what all clients together
//!    may take; a session that does not read is closed, and its mail dropped.
//! 2. If there is mail, the signal is set or about to be set by who posted.
//! 3. What a transaction or a script posts is sealed until its effects are in the log: the session that takes it could not
//!    know up to where the log must be durable for it. Nothing opens a seal but the thread that made it.
//! 4. What was posted before the moment of a session's command leaves before the reply, what was posted later behind it: `posted`
//!    grows under the lock of whatever the message tells of, and is read under the locks of the command.
//! 5. Messages may show anything that was in the log when they are taken. A reply that was posted shows what its poster
//!    says, and is never sealed: it goes before what still is, as if whoever sealed that had come later.

use super::{Client, Clients, Signal, Traits, eviction};
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sys::{Shown, Stamp};
use telemetry::log;
use wire::Protocol;

/// What waits for a session.
#[derive(Default)]
pub(super) struct Mail {
    state: Mutex<State>,
    /// Bytes that were posted since the session began. Changes with `state` locked.
    posted: Arc<AtomicU64>,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    /// What the bytes are, from which on, in order. In front of the first they are messages that anyone may have.
    marks: VecDeque<(usize, Mark)>,
    /// Nothing more is taken: the session is being closed.
    is_closed: bool,
}

/// What a stretch of mail is.
enum Mark {
    /// Messages.
    Messages,
    /// Messages that wait for their seal to be opened.
    Sealed(Seal),
    /// A reply, and what it shows.
    Reply(Shown),
}

/// Opened when what it keeps is in the log.
type Seal = Arc<AtomicBool>;

impl Mark {
    fn is_closed(&self) -> bool {
        matches!(self, Mark::Sealed(seal) if !seal.load(Ordering::Acquire))
    }
}

impl State {
    /// The first mark that a seal keeps, by its place, and where that mail begins. Without one these are the ends.
    fn first_sealed(&self) -> (usize, usize) {
        let first = self.marks.iter().position(|(_, mark)| mark.is_closed());
        first.map_or((self.marks.len(), self.bytes.len()), |place| (place, self.marks[place].0))
    }

    /// Drops all, and takes nothing more.
    fn close(&mut self) {
        *self = State { is_closed: true, ..State::default() };
    }

    fn has_sealed(&self) -> bool {
        self.first_sealed().1 < self.bytes.len()
    }

    /// Takes what no seal keeps.
    fn take(&mut self) -> Letters {
        let (place, end) = self.first_sealed();
        let kept = self.bytes.split_off(end);
        let bytes = mem::replace(&mut self.bytes, kept);
        let marks = self.marks.drain(..place).collect();
        self.marks.iter_mut().for_each(|(from, _)| *from -= end);
        Letters { bytes, marks }
    }

    /// Notes what is about to be appended.
    fn mark(&mut self, seal: Option<Seal>) {
        let is_the_same = match (&seal, self.marks.back()) {
            (None, None | Some((_, Mark::Messages))) => true,
            (Some(seal), Some((_, Mark::Sealed(last)))) => Arc::ptr_eq(seal, last),
            _ => false,
        };
        if !is_the_same {
            self.marks.push_back((self.bytes.len(), seal.map_or(Mark::Messages, Mark::Sealed)));
        }
    }

    /// Puts a reply before what seals keep.
    fn insert(&mut self, reply: &[u8], shown: Shown) {
        let (place, at) = self.first_sealed();
        self.marks.range_mut(place..).for_each(|(from, _)| *from += reply.len());
        self.marks.insert(place, (at, Mark::Reply(shown)));
        self.bytes.splice(at..at, reply.iter().copied());
    }
}

/// Mail that was taken.
#[derive(Default)]
pub struct Letters {
    bytes: Vec<u8>,
    marks: VecDeque<(usize, Mark)>,
}

impl Letters {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All of it, for whoever takes it for something that may show anything.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Stretch by stretch, with that up to which the log must be durable for it. Messages may show anything that was in the log
    /// up to `latest`, which is asked for before they are sent.
    pub fn stretches(&self, latest: Stamp) -> impl Iterator<Item = (&[u8], Shown)> {
        let any = Shown::read(latest);
        let starts = std::iter::once((0, any)).chain(self.marks.iter().map(move |(from, mark)| match mark {
            Mark::Messages | Mark::Sealed(_) => (*from, any),
            Mark::Reply(shown) => (*from, *shown),
        }));
        let ends = self.marks.iter().map(|(from, _)| *from).chain([self.bytes.len()]);
        starts
            .zip(ends)
            .map(|((from, shown), end)| (&self.bytes[from..end], shown))
            .filter(|(bytes, _)| !bytes.is_empty())
    }
}

/// What a thread posts while it holds slots for several commands.
#[derive(Default)]
struct Group {
    seal: Seal,
    /// Sessions that have sealed mail. There may be as many as there are clients, each with many messages.
    recipients: BTreeSet<u64>,
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
fn seal_for(client: &Client) -> Option<Seal> {
    if !IS_IN_GROUP.get() {
        return None;
    }
    GROUP.with_borrow_mut(|group| {
        let group = group.get_or_insert_with(Group::default);
        group.recipients.insert(client.id);
        Some(group.seal.clone())
    })
}

/// They are not any more; and those that are may go.
pub fn end_group(clients: &Clients) {
    IS_IN_GROUP.set(false);
    open_seals(clients);
}

/// Opens the seals of what this thread has posted: all that it did is in the log.
pub fn open_seals(clients: &Clients) {
    let Some(group) = GROUP.take() else { return };
    group.seal.store(true, Ordering::Release);
    for client in group.recipients.iter().filter_map(|id| clients.get(*id)) {
        client.signal(Signal::MAIL);
    }
}

/// Whether this thread has posted messages that are sealed.
pub fn has_sealed() -> bool {
    GROUP.with_borrow(Option::is_some)
}

/// While it is there, what this thread posts is sealed: it is about what a waiting session's request does, and goes behind the reply to
/// that, which is posted meanwhile.
pub struct BehindReply<'c> {
    clients: &'c Clients,
    was_in_group: bool,
}

impl BehindReply<'_> {
    /// Nothing that was sealed before waits.
    pub fn begin(clients: &Clients) -> BehindReply<'_> {
        debug_assert!(!has_sealed(), "what was posted before would go behind the reply, too");
        BehindReply { clients, was_in_group: IS_IN_GROUP.replace(true) }
    }
}

impl Drop for BehindReply<'_> {
    fn drop(&mut self) {
        IS_IN_GROUP.set(self.was_in_group);
        // What is not in the log yet stays sealed until the group ends.
        if !self.was_in_group {
            open_seals(self.clients);
        }
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

/// What bounds the mail of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    /// `client-output-buffer-limit`.
    OfItsClass,
    /// What all clients together may take. Mail that is sealed counts there only when it is taken, which may be long after.
    OfAllClients,
}

/// How many bytes a session may be owed, and by which bound. 0 is any number.
fn bound(clients: &Clients, client: &Client) -> (u64, Bound) {
    let of_class = clients.limits.output_hard_bytes(client.class());
    match clients.limits.memory_bytes() {
        Some(of_all) if (of_class == 0 || of_all < of_class) && !eviction::is_spared(client) => {
            (of_all, Bound::OfAllClients)
        }
        _ => (of_class, Bound::OfItsClass),
    }
}

/// Posts a message that `write` encodes in the protocol given. A session whose unread messages and replies reach the hard limit of
/// `client-output-buffer-limit`, or what all clients together may take, is closed.
pub fn deliver(clients: &Clients, client: &Client, write: impl FnOnce(&mut Vec<u8>, Protocol)) {
    let (bytes_max, bound) = bound(clients, client);
    if client.post_within(bytes_max, seal_for(client), write) == Posted::Overflowed {
        close_unread(clients, client, bound);
    }
}

/// Posts a reply that the session waits for (see [`Client::post`]). A session whose unread messages and replies reach one of these bounds
/// with it is closed.
pub fn answer(clients: &Clients, client: &Client, reply: &[u8], shown: Shown) {
    let (bytes_max, bound) = bound(clients, client);
    if client.post(bytes_max, reply, shown) == Posted::Overflowed {
        close_unread(clients, client, bound);
    }
}

/// Closes a client whose reply went beyond what it may be owed while it was made.
#[cold]
pub fn close_for_its_reply(clients: &Clients, client: &Client) {
    log!(
        Warning,
        "Client closed because a reply reached the limit (client-output-buffer-limit, maxmemory-clients, maxmemory): {}",
        client.line(clients.clock().now())
    );
    clients.output_limit_disconnections.add(1);
    client.signal(Signal::KILL);
}

#[cold]
fn close_unread(clients: &Clients, client: &Client, bound: Bound) {
    let line = client.line(clients.clock().now());
    if bound == Bound::OfAllClients {
        return eviction::close(clients, client, &line);
    }
    clients.output_limit_disconnections.add(1);
    log!(Warning, "Client closed because it reached the hard limit of client-output-buffer-limit: {line}");
    client.signal(Signal::KILL);
}

impl Client {
    /// Posts a reply that the session waits for. It must not stay behind what is
    /// sealed, since the session goes on with its next request.
    fn post(&self, bytes_max: u64, reply: &[u8], shown: Shown) -> Posted {
        let mut mail = self.mail.state.lock();
        if mail.is_closed {
            return Posted::Refused;
        }
        if self.overflows(&mail, reply.len(), bytes_max) {
            mail.close();
            return Posted::Overflowed;
        }
        mail.insert(reply, shown);
        self.mail.posted.fetch_add(reply.len() as u64, Ordering::Release);
        drop(mail);
        self.tell_of_mail();
        Posted::Kept
    }

    /// Whether so much more reaches this limit, with what has not been sent. No limit is 0.
    fn overflows(&self, mail: &State, more: usize, bytes_max: u64) -> bool {
        let waiting = mail.bytes.len() + more + self.output_bytes.load(Ordering::Relaxed);
        bytes_max > 0 && waiting as u64 >= bytes_max
    }

    fn post_within(
        &self,
        bytes_max: u64,
        seal: Option<Seal>,
        write: impl FnOnce(&mut Vec<u8>, Protocol),
    ) -> Posted {
        let mut mail = self.mail.state.lock();
        if mail.is_closed {
            return Posted::Refused;
        }
        mail.mark(seal);
        let from = mail.bytes.len();
        write(&mut mail.bytes, self.protocol());
        self.mail.posted.fetch_add((mail.bytes.len() - from) as u64, Ordering::Release);
        if self.overflows(&mail, 0, bytes_max) {
            mail.close();
            return Posted::Overflowed;
        }
        drop(mail);
        self.tell_of_mail();
        Posted::Kept
    }

    fn tell_of_mail(&self) {
        let before = self.signals.fetch_or(Signal::MAIL.bits(), Ordering::AcqRel);
        if before & Signal::MAIL.bits() == 0 {
            self.wake();
        }
    }

    /// Whether there is mail.
    #[inline]
    pub fn has_mail(&self) -> bool {
        self.signals.load(Ordering::Acquire) & Signal::MAIL.bits() != 0
    }

    /// Takes the mail, which is for its session to send.
    pub fn take_mail(&self) -> Letters {
        // In this order: what is posted in between sets the signal again.
        self.signals.fetch_and(!Signal::MAIL.bits(), Ordering::AcqRel);
        self.mail.state.lock().take()
    }

    /// Counts what is posted.
    pub fn posted(&self) -> &Arc<AtomicU64> {
        &self.mail.posted
    }

    /// Takes the mail, and tells how many bytes of it were there when so many had been posted.
    pub fn take_mail_since(&self, posted: u64) -> (Letters, usize) {
        self.signals.fetch_and(!Signal::MAIL.bits(), Ordering::AcqRel);
        let mut mail = self.mail.state.lock();
        let later = self.mail.posted.load(Ordering::Relaxed).saturating_sub(posted) as usize;
        let before = mail.bytes.len().saturating_sub(later);
        let letters = mail.take();
        let before = before.min(letters.bytes.len());
        (letters, before)
    }

    /// Drops the mail, also what is sealed: the session has left those who send it.
    pub fn drop_mail(&self) {
        let mut mail = self.mail.state.lock();
        *mail = State { is_closed: mail.is_closed, ..State::default() };
    }

    /// Drops the mail, and takes none any more.
    pub(super) fn close_mail(&self) {
        self.mail.state.lock().close();
    }

    /// Whether there is mail that must not leave yet.
    pub fn has_sealed_mail(&self) -> bool {
        self.mail.state.lock().has_sealed()
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

    /// Changes the protocol for messages that are posted from now on; returns those in the old one. None, and nothing is
    /// changed, while there are some that must not leave yet.
    pub fn speak(&self, protocol: Protocol) -> Option<Letters> {
        let mut mail = self.mail.state.lock();
        if protocol != self.protocol() && mail.has_sealed() {
            return None;
        }
        self.set_protocol(protocol);
        Some(mail.take())
    }

    /// The same whatever the mail holds: it stays as it is.
    pub fn speak_at_once(&self, protocol: Protocol) {
        let _mail = self.mail.state.lock();
        self.set_protocol(protocol);
    }

    /// The mail is locked.
    fn set_protocol(&self, protocol: Protocol) {
        let number = match protocol {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        };
        self.protocol.store(number, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{Config, Startup};
    use sys::{Clock, UnixMs};

    fn client() -> Client {
        Client::new(1, String::new(), String::new(), -1, (0, 0), UnixMs(0))
    }

    fn publish(client: &Client, seal: Option<&Seal>, text: &str) {
        let posted = client.post_within(0, seal.cloned(), |mail, _| mail.extend_from_slice(text.as_bytes()));
        assert_eq!(posted, Posted::Kept);
    }

    fn taken(client: &Client) -> String {
        String::from_utf8_lossy(client.take_mail().as_bytes()).into_owned()
    }

    #[test]
    fn what_is_sealed_stays_whatever_is_posted_behind_it_and_a_reply_goes_first() {
        let (client, script, other) = (client(), Seal::default(), Seal::default());
        publish(&client, None, "a");
        publish(&client, Some(&script), "b");
        publish(&client, None, "c");
        publish(&client, Some(&other), "d");
        assert_eq!(client.post(0, b"reply", Shown { up_to: Stamp(7), is_write: true }), Posted::Kept);
        assert!(client.has_sealed_mail());
        assert_eq!(taken(&client), "areply");
        other.store(true, Ordering::Release);
        assert_eq!(taken(&client), "");
        assert_eq!(client.post(100, b"next", Shown { up_to: Stamp(8), is_write: true }), Posted::Kept);
        assert_eq!(taken(&client), "next");
        script.store(true, Ordering::Release);
        assert!(!client.has_sealed_mail());
        publish(&client, None, "e");
        assert_eq!(taken(&client), "bcde");
        assert_eq!(taken(&client), "");
    }

    #[test]
    fn the_protocol_stays_while_sealed_messages_are_written_in_it() {
        let (client, script) = (client(), Seal::default());
        publish(&client, Some(&script), "a");
        assert!(client.speak(Protocol::Resp3).is_none());
        assert_eq!(client.protocol(), Protocol::Resp2);
        assert!(client.speak(Protocol::Resp2).is_some());
        script.store(true, Ordering::Release);
        let letters = client.speak(Protocol::Resp3).unwrap();
        assert_eq!((letters.as_bytes(), client.protocol()), (&b"a"[..], Protocol::Resp3));
    }

    #[test]
    fn mail_that_is_sealed_stays_below_what_all_clients_may_take() {
        let config = match Config::from_text(b"maxmemory-clients 1mb") {
            Ok(Startup::Serve { config, .. }) => config,
            _ => panic!("it is a file of one line"),
        };
        let clients = Clients::new(Clock::Real);
        clients.follow(&config);
        let [monitor, spared] = [1, 2].map(|id| Arc::new(Client { id, ..client() }));
        spared.set_trait(Traits::NO_EVICT, true);
        [&monitor, &spared].into_iter().for_each(|one| clients.add(one.clone()));
        begin_group();
        for _ in 0..100 {
            [&monitor, &spared].into_iter().for_each(|one| {
                deliver(&clients, one, |mail, _| mail.resize(mail.len() + 100_000, b'x'));
            });
            assert!(monitor.mail_bytes() <= 2 << 20, "a vector grows to twice what it holds");
        }
        end_group(&clients);
        assert!(monitor.is_killed() && monitor.take_mail().is_empty());
        assert!(!spared.is_killed() && spared.take_mail().as_bytes().len() == 10_000_000);
        assert_eq!((clients.evicted.get(), clients.output_limit_disconnections.get()), (1, 0));
    }

    #[test]
    fn many_who_hear_much_of_one_transaction_are_no_work() {
        let clients = Clients::new(Clock::Real);
        let all: Vec<_> = (0..40_000).map(|id| Arc::new(Client { id, ..client() })).collect();
        all.iter().for_each(|client| clients.add(client.clone()));
        begin_group();
        // Looking through all of them for each makes minutes of this.
        for _ in 0..10 {
            all.iter().for_each(|client| deliver(&clients, client, |mail, _| mail.push(b'x')));
        }
        end_group(&clients);
        assert!(all.iter().all(|client| client.take_mail().as_bytes() == [b'x'; 10]));
    }

    #[test]
    fn a_reply_waits_for_no_more_than_it_shows_and_messages_for_all() {
        let client = client();
        publish(&client, None, "ab");
        assert_eq!(client.post(0, b"reply", Shown { up_to: Stamp(7), is_write: true }), Posted::Kept);
        publish(&client, None, "c");
        let letters = client.take_mail();
        let stretches: Vec<_> = letters.stretches(Stamp(9)).collect();
        let (any, reply) = (Shown::read(Stamp(9)), Shown { up_to: Stamp(7), is_write: true });
        assert_eq!(stretches, [(&b"ab"[..], any), (b"reply", reply), (b"c", any)]);
    }
}
