//! Links that a client has to itself, for what holds up all behind it on a connection or stands in the state of one: commands that wait for a key or
//! for replicas, and watched keys.
//!
//! A client has one at most of each of its lanes, with one request under way. It is given back in the state of a new one, or else closed: what nobody has
//! serves the next client that wants one to that server.
//!
//! Invariant: a transaction behind WATCH goes over the very connection that watches, or is not executed at all.

use super::conversation::{Alarm, Key};
use super::crowds::Who;
use super::{Link, LinkTo, Links, Pushed, Speech};
use crate::upstream::NodeNo;
use crate::waits::Called;
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::sleep;
use wire::{Protocol, encode_request};

/// How many that nobody has are kept of a kind.
const IDLE_MAX: usize = 16;
/// How long a server may take to be reached that is to tell somebody who sends no more whether there is anything.
const UNREACHED_MAX: Duration = Duration::from_millis(500);
/// What a server says where nothing has come.
const NOTHING: &[u8] = b"*-1\r\n";
/// What a client is told whose wait was ended with an error.
const UNBLOCKED: &[u8] = b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n";

/// Who has which.
#[derive(Default)]
pub struct Owners {
    held: BTreeMap<Lane, Held>,
    /// Those that nobody has.
    idle: HashMap<Kind, Vec<usize>>,
    /// Places of links that are over.
    free: Vec<usize>,
}

/// A client's.
struct Held {
    at: usize,
    /// How many requests to watch keys went over it.
    watches: usize,
    /// Somebody has had it woken, who may come late.
    is_called: bool,
    /// Keys that were watched may have changed since: the connection was lost, or the slot is elsewhere.
    is_disturbed: bool,
    /// So it was before any were watched over it.
    was_disturbed: bool,
}

/// What a request means for the keys that its client watches over the same link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watching {
    /// It watches some more.
    Begins,
    /// It leaves them as they are.
    GoesOn,
    /// None is watched when it is done.
    Ends,
}

/// How many connections clients of all workers have to themselves, or had. Each takes a descriptor, of which the system may give few: then those come first over which
/// everybody's requests go, and those of clients.
#[derive(Default)]
pub struct OwnConnections {
    count: AtomicU64,
    /// How many there may be, as it was when the last one was made.
    most: AtomicU64,
}

/// One of them, as long as this is there.
pub struct OwnConnection<'c>(&'c AtomicU64);

impl Drop for OwnConnection<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OwnConnections {
    /// One more of at most so many.
    ///
    /// # Errors
    /// One sentence: there are as many.
    pub fn begin(&self, most: u64) -> Result<OwnConnection<'_>, String> {
        self.most.store(most, Ordering::Relaxed);
        let begun = OwnConnection(&self.count);
        match self.count.fetch_add(1, Ordering::Relaxed) < most {
            true => Ok(begun),
            false => Err(format!(
                "the limit of open files leaves no more than {most} connections to clients that wait for keys or watch some"
            )),
        }
    }

    /// Whether there are so many that nobody keeps one that nobody has.
    fn are_scarce(&self) -> bool {
        self.count.load(Ordering::Relaxed) > self.most.load(Ordering::Relaxed) / 2
    }
}

/// One of those that a client may have at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane {
    /// The client's number.
    pub client: u64,
    /// 0: where it watches, and waits for keys; others: where it waits for a server beside others.
    pub number: u16,
}

impl Lane {
    /// The one where keys are watched, and waited for.
    pub fn of_keys(client: u64) -> Lane {
        Lane { client, number: 0 }
    }

    /// All of a client's.
    pub fn all_of(client: u64) -> RangeInclusive<Lane> {
        Lane::of_keys(client)..=Lane { client, number: u16::MAX }
    }
}

/// What a link is to the client that has it: which of its lanes; None: nobody's for now.
#[derive(Debug)]
pub struct Ownership(Option<Lane>);

/// The server, whether RESP3 is spoken, the database, and whether it is no use of keys.
type Kind = (NodeNo, bool, usize, bool);

fn kind(way: LinkTo) -> Kind {
    (way.node, way.protocol == Protocol::Resp3, way.db, way.is_no_touch)
}

impl Links {
    /// The link that a client has to itself from now on in a lane, to this server, for this database and protocol. What it had watched by another one is as good as
    /// changed.
    pub fn take_own(&mut self, lane: Lane, way: LinkTo) -> usize {
        let had = self.owners.held.get(&lane).map(|held| (held.at, held.watches > 0, held.is_disturbed));
        if let Some((at, ..)) = had.filter(|(at, ..)| kind(self.links[*at].way) == kind(way)) {
            return at;
        }
        let is_called =
            self.proxy.waits.end_at(lane) || self.owners.held.get(&lane).is_some_and(|held| held.is_called);
        let at = self.find_own(lane, way);
        match had {
            // Its connection watches what nobody else does, or is to be woken still.
            Some((before, watches, _)) if watches || is_called => self.close(before),
            Some((before, ..)) => self.let_go(before),
            None => {}
        }
        let is_disturbed = had.is_some_and(|(_, watches, was_disturbed)| watches || was_disturbed);
        let was_disturbed = is_disturbed;
        self.owners.held.insert(lane, Held { at, watches: 0, is_disturbed, was_disturbed, is_called: false });
        at
    }

    /// Sends a request over a link that a client has to itself.
    pub fn push_own(&mut self, at: usize, request: &[u8], pushed: Pushed) {
        let owner = self.links[at].own.as_ref().and_then(|own| own.0);
        if let Some(held) = owner.and_then(|owner| self.owners.held.get_mut(&owner)) {
            held.watches = match pushed.watching {
                Watching::Begins => held.watches + 1,
                Watching::GoesOn => held.watches,
                Watching::Ends => 0,
            };
        }
        if pushed.waits.is_some() {
            self.expect_waiting(at);
        }
        self.push(at, request, pushed);
    }

    /// The link by which a client that speaks so watches keys, if nothing is known to have happened to them.
    pub fn watching(&self, client: u64, speaks: Speech) -> Option<usize> {
        let held = self
            .owners
            .held
            .get(&Lane::of_keys(client))
            .filter(|held| held.watches > 0 && !held.is_disturbed)?;
        (self.links[held.at].way.speech() == speaks).then_some(held.at)
    }

    /// Whether a client watches keys, or has watched some that may have changed.
    pub fn has_watched(&self, client: u64) -> bool {
        let held = self.owners.held.get(&Lane::of_keys(client));
        held.is_some_and(|held| held.watches > 0 || held.is_disturbed)
    }

    /// A request to watch keys has failed: where it was the first, nothing is watched, and its client need not say that it watches nothing any more.
    pub(super) fn note_unwatched(&mut self, at: usize) {
        let owner = self.links[at].own.as_ref().and_then(|own| own.0);
        let held = owner.and_then(|owner| self.owners.held.get_mut(&owner));
        if let Some(held) = held.filter(|held| held.at == at && held.watches == 1) {
            (held.watches, held.is_disturbed) = (0, held.was_disturbed);
        }
    }

    /// A client watches nothing any more.
    pub fn unwatch(&mut self, client: u64) {
        let lane = Lane::of_keys(client);
        let Some(held) = self.owners.held.get(&lane) else { return };
        let (at, is_sound) = (held.at, held.watches > 0 && !held.is_disturbed);
        if is_sound && self.links[at].tickets.is_empty() {
            let mut request = Vec::new();
            encode_request(&mut request, &[b"UNWATCH"]);
            self.push_own(at, &request, Pushed { watching: Watching::Ends, ..Pushed::ONE });
        } else {
            self.close_own(lane, at);
        }
    }

    /// A client has gone away, or waits for nothing any more: what it has asked for by links of its own is not done if that can be helped.
    pub fn dismiss(&mut self, client: u64) {
        let had: Vec<_> =
            self.owners.held.range(Lane::all_of(client)).map(|(lane, held)| (*lane, held.at)).collect();
        had.into_iter().for_each(|(lane, at)| self.close_own(lane, at));
    }

    /// A client does not wait at several servers any more: what has not answered is closed.
    pub(super) fn end_waits(&mut self, client: u64) {
        let lanes = Lane { client, number: 1 }..=Lane { client, number: u16::MAX };
        let had: Vec<_> = self.owners.held.range(lanes).map(|(lane, held)| (*lane, held.at)).collect();
        for (lane, at) in had {
            // Nor is what was to be sent elsewhere: its answer would be taken for that to what is asked next.
            if !self.links[at].is_done() {
                self.close_own(lane, at);
            }
        }
    }

    /// The owner of a link is about to wait there.
    pub(super) fn expect_waiting(&self, at: usize) {
        if let Some(lane) = self.links[at].own.as_ref().and_then(|own| own.0) {
            self.proxy.waits.expect_at(lane);
        }
    }

    fn close_own(&mut self, lane: Lane, at: usize) {
        self.owners.held.remove(&lane);
        self.proxy.waits.end_at(lane);
        self.close(at);
    }

    /// A server has said by which number it knows the client of a link, which is about to wait. Who was called meanwhile is woken there.
    pub(super) fn note_waiting(&mut self, at: usize, whose: Key, number: i64) {
        self.conversations.note_waiting(whose);
        let way = self.links[at].way;
        let Some(lane) = self.links[at].own.as_ref().and_then(|own| own.0) else { return };
        let Some(called) = self.proxy.waits.begin_at(lane, (way.node, number)) else { return };
        let (mut request, number) = (Vec::new(), number.to_string());
        encode_request(&mut request, &[b"CLIENT", b"UNBLOCK", number.as_bytes(), called.word().as_bytes()]);
        let to = self.place(way);
        self.push(to, &request, Pushed::ONE);
    }

    /// A client sends no more. Whether it is told what there is, of which it has not heard yet whether it has to wait for it: what is there a server says in one breath
    /// with the number of its connection. One that is not reached for a while says nothing.
    pub(super) fn leave(&mut self, client: u64, key: Key) -> bool {
        let is_looked_for = self.conversations.is_looked_for(key);
        let is_told = is_looked_for || !self.proxy.waits.has_begun(client);
        if !is_told || self.conversations.is_given_up(key) {
            return false;
        }
        if self.conversations.note_leaving(key) && !is_looked_for {
            tokio::task::spawn_local(async move {
                sleep(UNREACHED_MAX).await;
                super::here(|links| links.give_up_unreached(client, key));
            });
        }
        true
    }

    /// A client has sent no more for a while: where nothing of what it waits for was handed to a server it waits for nothing any more.
    fn give_up_unreached(&mut self, client: u64, key: Key) {
        let mut had = self.owners.held.range(Lane::all_of(client)).map(|(_, held)| &self.links[held.at]);
        if had.all(|link| link.written == 0) {
            self.conversations.give_up(key);
        }
    }

    /// Ends the wait of a client that was called, if it waits.
    pub fn end_called(&mut self, client: u64, key: Key) {
        if let Some(called) = self.proxy.waits.called_here(client)
            && let Some(number) = self.conversations.waited_for(key)
        {
            self.end_wait((key, number), called);
        }
        self.ask_further();
    }

    /// Ends the wait of a client: it is told that there was nothing, or an error.
    pub(super) fn end_wait(&mut self, who: Who, called: Called) {
        if !self.conversations.cut(who) {
            return;
        }
        let (key, number) = who;
        let said = match called {
            Called::Timeout => NOTHING,
            Called::Error => UNBLOCKED,
        };
        let came = self.conversations.answer(key, (number, 0), said);
        self.note_came(key, &came);
        self.ask_further();
    }

    /// Ends the wait of a client that waits behind another, when its time is up.
    pub(super) fn end_in_time(&mut self, who: Who, time: Duration) {
        let alarm = tokio::task::spawn_local(async move {
            sleep(time).await;
            super::here(|links| {
                if links.conversations.is_behind(who) {
                    links.end_wait(who, Called::Timeout);
                }
            });
        });
        self.conversations.set_alarm(who, Alarm(alarm.abort_handle()));
    }

    /// Finds one that nobody has, or begins one.
    fn find_own(&mut self, lane: Lane, way: LinkTo) -> usize {
        let own = Ownership(Some(lane));
        if let Some(at) = self.owners.idle.get_mut(&kind(way)).and_then(Vec::pop) {
            self.links[at].own = Some(own);
            return at;
        }
        let counts = self.proxy.shards.of(way.node, way.is_replica);
        let link = Link { own: Some(own), ..Link::new(way, counts) };
        match self.owners.free.pop() {
            Some(at) => {
                self.links[at] = link;
                at
            }
            None => {
                self.links.push(link);
                self.links.len() - 1
            }
        }
    }

    /// Something has come by a link, or is not to come any more: its client may be done with it.
    pub(super) fn settle_own(&mut self, at: usize) {
        let link = &self.links[at];
        let Some(owner) = link.own.as_ref().and_then(|own| own.0) else { return };
        if !link.is_done() {
            return;
        }
        // Who is woken late is to be nobody else.
        let mut is_called = self.proxy.waits.end_at(owner);
        if let Some(held) = self.owners.held.get_mut(&owner).filter(|held| held.at == at) {
            held.is_called |= is_called;
            is_called = held.is_called;
        }
        // What was disturbed is known until its transaction ends.
        let is_done = |held: &Held| held.at == at && held.watches == 0 && !held.is_disturbed;
        if self.owners.held.get(&owner).is_some_and(is_done) {
            self.owners.held.remove(&owner);
            match is_called {
                true => self.close(at),
                false => self.let_go(at),
            }
        }
    }

    /// Nobody has a link any more.
    fn let_go(&mut self, at: usize) {
        let link = &mut self.links[at];
        let Some(own) = link.own.as_mut() else { return };
        own.0 = None;
        let idle = self.owners.idle.entry(kind(link.way)).or_default();
        if !link.is_done() || idle.len() >= IDLE_MAX || self.proxy.own_connections.are_scarce() {
            self.close(at);
        } else {
            idle.push(at);
        }
    }

    /// The connection of a link is lost, and with it what it watches.
    pub(super) fn disturb_own(&mut self, at: usize) {
        let Some(owner) = self.links[at].own.as_ref().and_then(|own| own.0) else { return };
        if let Some(held) = self.owners.held.get_mut(&owner).filter(|held| held.at == at) {
            held.is_disturbed |= held.watches > 0;
        }
    }

    /// The link for a request that goes elsewhere than over this one.
    pub(super) fn elsewhere(&mut self, at: usize, way: LinkTo, watching: Watching) -> usize {
        let Some(owner) = self.links[at].own.as_ref().and_then(|own| own.0) else { return self.place(way) };
        let state = |held: &Held| (held.watches, held.is_disturbed, held.was_disturbed);
        let held = self.owners.held.get(&owner).map_or((0, false, false), state);
        let to = self.take_own(owner, way);
        if let Some(now) = self.owners.held.get_mut(&owner) {
            // What it watches it watches by this request alone.
            now.is_disturbed = held.1 || held.0 > usize::from(watching == Watching::Begins);
            (now.watches, now.was_disturbed) = (held.0, held.2);
        }
        to
    }

    /// Has the task of a link end, and nothing more done by it.
    fn close(&mut self, at: usize) {
        let link = &mut self.links[at];
        link.is_over = true;
        if let Some(own) = &mut link.own {
            own.0 = None;
        }
        link.counts.under_way.add(-(link.tickets.len() as i64));
        link.tickets.clear();
        link.tally.forget();
        link.parked.clear();
        if link.is_begun {
            link.wake();
        } else {
            self.owners.free.push(at);
        }
    }

    /// The task of a link that is over has ended.
    pub(super) fn note_over(&mut self, at: usize) {
        self.owners.free.push(at);
    }
}
