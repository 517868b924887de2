//! What is published at servers behind the proxy: it listens once for all of its clients, and tells them.
//!
//! A topic is a channel, a shard channel or a pattern that clients of the proxy listen to. A channel is listened to at one server, the one that has its slot;
//! patterns, and the channels of events of keys, at all. A client is told that it listens when all these servers have said so, and is closed when
//! the connection to one of them is lost, or when they are others, since messages may have been lost: as by a server that ends.
//!
//! Lock order: the state before a lock of the registry of subscribers, never behind one.
//!
//! Keys that are modified are heard of by connections of their own ([`changes`]).
//!
//! Thread rule: shared. Connections are on the thread of all that listens.

mod changes;
mod ear;
mod line;

use crate::serve::Proxy;
use crate::upstream::{NodeNo, Routes};
pub use changes::Changes;
pub use ear::patience;
pub use line::{Line, Waited};
use net::client::{Client, Signal};
use notify::pubsub::{self, Kind, PubSub};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};
use wire::key_slot;

/// How long a topic is listened to that nobody has subscribed to yet, or any more.
const UNHEARD_MAX: Duration = Duration::from_secs(2);
/// How long a refusal counts.
const REFUSED_FOR: Duration = Duration::from_millis(500);
/// Before a server is told again what it has not confirmed.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How many topics are looked at once: whoever publishes waits for that, and one client may listen to any number of them.
const LOOKED_AT_ONCE: usize = 1 << 14;
/// How channels begin that each server has its own messages of: events of keys.
const EVENTS: [&[u8]; 2] = [b"__keyspace@", b"__keyevent@"];
/// Why what has a slot that nobody has cannot be listened to.
const NOT_SERVED: &str = "Hash slot not served";

/// What is listened to.
pub type Topic = (Kind, Arc<[u8]>);

/// A topic that somebody wants to hear of, or has.
struct Wanted {
    /// Another one each time that it is wanted anew, after servers were told that it is not.
    number: u64,
    /// At which servers.
    at: BTreeSet<NodeNo>,
    /// The node that has the slot of a channel by now, where that is none of these: what is published there they hear of it, as long as it does not end.
    by_way_of: Option<NodeNo>,
    /// Those of them that have said that they are listened to.
    confirmed: BTreeSet<NodeNo>,
    /// The numbers of clients that wait for that, or did and wait for others still.
    waiting: Vec<u64>,
    /// Why it cannot be had, and since when.
    refused: Option<(Instant, String)>,
    /// When somebody wanted it last.
    since: Instant,
    /// When servers were told so last.
    told_at: Instant,
}

impl Wanted {
    fn is_heard(&self) -> bool {
        !self.at.is_empty() && self.at.is_subset(&self.confirmed)
    }

    /// Notes by way of which node it is heard. Whether that is another.
    fn find_way(&mut self, node: Option<NodeNo>, counts: &mut BTreeMap<NodeNo, usize>) -> bool {
        let before = std::mem::replace(&mut self.by_way_of, node);
        if before == node {
            return false;
        }
        before.into_iter().for_each(|node| release(counts, node));
        node.into_iter().for_each(|node| *counts.entry(node).or_default() += 1);
        true
    }
}

/// A client that waits, and for how many topics.
struct Waiting {
    client: Arc<Client>,
    missing: usize,
}

/// What a server is to be told.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    /// The number is that of who wants it: what is confirmed of the one before is about to end.
    Listen(Topic, u64),
    Leave(Topic),
}

#[derive(Default)]
struct State {
    topics: BTreeMap<Topic, Wanted>,
    /// By the numbers of clients.
    waiting: HashMap<u64, Waiting>,
    /// By server: what it is to be told, where that is anything.
    changes: BTreeMap<NodeNo, VecDeque<Change>>,
    /// How many topics are to be listened to at each server, or come by way of it, where that is any.
    counts: BTreeMap<NodeNo, usize>,
    /// The topic that was looked at last, unless all were.
    looked_at: Option<Topic>,
    /// How many topics have begun.
    begun: u64,
}

impl State {
    fn change(&mut self, node: NodeNo, change: Change) {
        self.changes.entry(node).or_default().push_back(change);
    }

    /// These have what they waited for of one topic.
    fn note_heard(&mut self, clients: Vec<u64>) {
        for id in clients {
            let Some(waiting) = self.waiting.get_mut(&id) else { continue };
            waiting.missing = waiting.missing.saturating_sub(1);
            if waiting.missing == 0 {
                self.wake(id);
            }
        }
    }

    /// A client finds out how it stands.
    fn wake(&mut self, id: u64) {
        if let Some(waiting) = self.waiting.remove(&id) {
            waiting.client.wake();
        }
    }

    /// Has servers told to listen to a topic, if they have not said that they are.
    fn tell(&mut self, topic: &Topic, now: Instant) {
        let Some(wanted) = self.topics.get_mut(topic) else { return };
        wanted.told_at = now;
        let number = wanted.number;
        let missing: Vec<NodeNo> = wanted.at.difference(&wanted.confirmed).copied().collect();
        missing.into_iter().for_each(|node| self.change(node, Change::Listen(topic.clone(), number)));
    }

    /// Begins a topic, to be listened to at these servers.
    fn begin(&mut self, topic: &Topic, at: BTreeSet<NodeNo>, now: Instant) {
        at.iter().for_each(|node| *self.counts.entry(*node).or_default() += 1);
        self.begun += 1;
        let wanted = Wanted {
            number: self.begun,
            at,
            by_way_of: None,
            confirmed: BTreeSet::new(),
            waiting: Vec::new(),
            refused: None,
            since: now,
            told_at: now,
        };
        self.topics.insert(topic.clone(), wanted);
    }

    /// Ends a topic: whoever listens to it is closed, and whoever waits for it asks again.
    fn give_up(&mut self, topic: &Topic) {
        let Some(wanted) = self.topics.remove(topic) else { return };
        wanted.at.iter().for_each(|node| self.change(*node, Change::Leave(topic.clone())));
        wanted.at.iter().chain(&wanted.by_way_of).for_each(|node| release(&mut self.counts, *node));
        wanted.waiting.into_iter().for_each(|id| self.wake(id));
    }
}

/// One topic less is to be heard of a server.
fn release(counts: &mut BTreeMap<NodeNo, usize>, node: NodeNo) {
    if let Some(count) = counts.get_mut(&node) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&node);
        }
    }
}

/// Ticks so often, and not at once again where what is done each time takes longer: others on the thread have their turns.
fn every(time: Duration) -> Interval {
    let mut ticks = interval(time);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Listens for a proxy's clients as long as it runs.
pub async fn follow(proxy: Arc<Proxy>) {
    tokio::join!(ear::listen_for(proxy.clone()), changes::follow(proxy));
}

/// What all of a proxy's clients listen to.
pub struct Hearing {
    state: Mutex<State>,
    /// Counts changes.
    version: watch::Sender<u64>,
}

/// Whether a client can be told that it listens.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// It does.
    Yes,
    /// It is woken when that is so, or is not to be.
    NotYet,
    /// It cannot be had.
    Refused(String),
}

impl Default for Hearing {
    fn default() -> Hearing {
        Hearing { state: Mutex::default(), version: watch::Sender::new(0) }
    }
}

/// Whether each server has its own messages of a channel.
fn is_of_events(channel: &[u8]) -> bool {
    EVENTS.iter().any(|events| channel.starts_with(events))
}

/// At which servers a topic is to be listened to, which is at these by now.
fn places(routes: &Routes, (kind, name): &Topic, heard_at: Option<&BTreeSet<NodeNo>>) -> BTreeSet<NodeNo> {
    let is_master = |node: &NodeNo| routes.masters.contains(node);
    match kind {
        Kind::Pattern => routes.masters.iter().copied().collect(),
        Kind::Channel if is_of_events(name) => routes.masters.iter().copied().collect(),
        // Nodes of a cluster tell each other: the one that is listened to does, as long as it is one.
        Kind::Channel if routes.is_cluster && heard_at.is_some_and(|nodes| nodes.iter().all(is_master)) => {
            heard_at.cloned().unwrap_or_default()
        }
        Kind::Channel | Kind::ShardChannel => routes.of(key_slot(name)).into_iter().collect(),
    }
}

/// The node by way of which a channel is heard: it has the slot, so that it is published there, and another is listened to.
fn way_of(routes: &Routes, (kind, name): &Topic, at: &BTreeSet<NodeNo>) -> Option<NodeNo> {
    let is_anywhere = *kind == Kind::Channel && routes.is_cluster && !is_of_events(name);
    let owner = if is_anywhere { routes.of(key_slot(name)) } else { None };
    owner.filter(|owner| !at.contains(owner))
}

impl Hearing {
    /// A client wants to listen to all of these.
    pub fn listen(&self, routes: &Routes, topics: &[Topic], client: &Arc<Client>) -> Heard {
        let now = Instant::now();
        let state = &mut *self.state.lock();
        if state.waiting.contains_key(&client.id) {
            return Heard::NotYet;
        }
        for topic in topics {
            match state.topics.get_mut(topic) {
                Some(wanted) => {
                    wanted.since = now;
                    let Some((at, reason)) = wanted.refused.clone() else { continue };
                    if now - at < REFUSED_FOR {
                        return Heard::Refused(reason);
                    }
                    wanted.refused = None;
                }
                None => {
                    let at = places(routes, topic, None);
                    if at.is_empty() {
                        return Heard::Refused(NOT_SERVED.to_owned());
                    }
                    state.begin(topic, at, now);
                }
            }
            state.tell(topic, now);
        }
        let mut missing = 0;
        for topic in topics {
            if let Some(wanted) = state.topics.get_mut(topic).filter(|wanted| !wanted.is_heard()) {
                wanted.waiting.push(client.id);
                missing += 1;
            }
        }
        if missing == 0 {
            return Heard::Yes;
        }
        state.waiting.insert(client.id, Waiting { client: client.clone(), missing });
        self.note_change();
        Heard::NotYet
    }

    /// Whether all of these are listened to.
    pub fn is_heard(&self, topics: &[Topic]) -> bool {
        let state = self.state.lock();
        topics.iter().all(|topic| state.topics.get(topic).is_some_and(Wanted::is_heard))
    }

    /// By how much a server's count of those who got a message of a channel differs from that of all: the proxy's own clients count in the place of its
    /// connections.
    pub fn correction(&self, pubsub: &PubSub, node: NodeNo, (kind, channel): (Kind, &[u8])) -> i64 {
        let state = self.state.lock();
        let hears =
            |topic: &Topic| state.topics.get(topic).is_some_and(|wanted| wanted.confirmed.contains(&node));
        let is_heard = !state.topics.is_empty() && hears(&(kind, Arc::from(channel)));
        let patterns = state.topics.range((Kind::Pattern, Arc::default())..);
        let patterns = patterns.take_while(|((kind, _), _)| *kind == Kind::Pattern);
        let fitting = patterns.filter(|((_, pattern), wanted)| {
            wanted.confirmed.contains(&node) && pubsub::fits(pattern, channel)
        });
        let (direct, fitting) = (pubsub.listeners(kind, channel), fitting.count());
        let told = match kind {
            Kind::Channel => direct + pubsub.fitting(channel),
            Kind::ShardChannel | Kind::Pattern => direct,
        };
        let counted = usize::from(is_heard) + if kind == Kind::Channel { fitting } else { 0 };
        told as i64 - counted as i64
    }

    fn note_change(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    /// The first of what a server is to be told, so many of these; of all that it is to know where its connection is new.
    fn take_changes(&self, node: NodeNo, is_new: bool, most: usize) -> Vec<Change> {
        let state = &mut *self.state.lock();
        if is_new {
            let wanted = state.topics.iter().filter(|(_, wanted)| wanted.at.contains(&node));
            let listen = |(topic, wanted): (&Topic, &Wanted)| Change::Listen(topic.clone(), wanted.number);
            state.changes.insert(node, wanted.map(listen).collect());
        }
        let Some(changes) = state.changes.get_mut(&node) else { return Vec::new() };
        let taken = changes.drain(..most.min(changes.len())).collect();
        if changes.is_empty() {
            state.changes.remove(&node);
        }
        taken
    }

    /// Servers that are to be listened to.
    fn nodes(&self) -> BTreeSet<NodeNo> {
        self.state.lock().counts.keys().copied().collect()
    }

    fn is_wanted_at(&self, node: NodeNo) -> bool {
        self.state.lock().counts.contains_key(&node)
    }

    /// A server says that it is listened to, as it was told by this number. One that was told before to leave it, and is about to, says nothing of who wants it
    /// since.
    fn confirm(&self, node: NodeNo, topic: &Topic, number: u64) {
        let state = &mut *self.state.lock();
        let Some(wanted) = state.topics.get_mut(topic).filter(|wanted| wanted.number == number) else {
            return;
        };
        wanted.refused = None;
        let was_heard = wanted.is_heard();
        if wanted.at.contains(&node) {
            wanted.confirmed.insert(node);
        }
        if wanted.is_heard() && !was_heard {
            // Who waits for others still wants this one, too.
            let clients = wanted.waiting.clone();
            state.note_heard(clients);
        }
    }

    /// A topic cannot be listened to at a server; None: none of those that are to be, there.
    fn refuse(&self, node: NodeNo, topic: Option<&Topic>, reason: &str) {
        let state = &mut *self.state.lock();
        let refused = Some((Instant::now(), reason.to_owned()));
        let is_it = |name: &Topic, wanted: &Wanted| match topic {
            None => wanted.at.contains(&node) && !wanted.confirmed.contains(&node),
            Some(one) => one == name,
        };
        let mut waiting = Vec::new();
        for (_, wanted) in state.topics.iter_mut().filter(|(name, wanted)| is_it(name, wanted)) {
            wanted.refused.clone_from(&refused);
            waiting.append(&mut wanted.waiting);
        }
        waiting.into_iter().for_each(|id| state.wake(id));
    }

    /// The connection to a server is lost, or there is none: those who listen by it may have missed something, also where another tells them of it, who may find it
    /// again later than publishers do; and those who wait ask again.
    fn lose(&self, node: NodeNo, pubsub: &PubSub) {
        let state = &mut *self.state.lock();
        let is_its = |wanted: &Wanted| wanted.confirmed.contains(&node) || wanted.by_way_of == Some(node);
        let lost: BTreeSet<Topic> = state
            .topics
            .iter()
            .filter(|(_, wanted)| is_its(wanted))
            .map(|(topic, _)| topic.clone())
            .collect();
        if lost.is_empty() {
            return;
        }
        lost.iter().for_each(|topic| state.give_up(topic));
        close_listeners(pubsub, &lost);
        self.note_change();
    }

    /// A server has ended a subscription: another has the slot of the shard channel.
    fn move_on(&self, node: NodeNo, topic: &Topic, pubsub: &PubSub) {
        let state = &mut *self.state.lock();
        if state.topics.get(topic).is_some_and(|wanted| wanted.at.contains(&node)) {
            state.give_up(topic);
            close_listeners(pubsub, &BTreeSet::from([topic.clone()]));
            self.note_change();
        }
    }

    /// Whether clients are told of a topic's message by this server: it has said that it is listened to, and it still is. What comes late of one that was is not
    /// told behind what another has told since. Of those that all have the message (`is_everywhere`) one tells it.
    fn is_told_by(&self, node: NodeNo, topic: &Topic, is_everywhere: bool) -> bool {
        let state = self.state.lock();
        let confirmed = state.topics.get(topic).map(|wanted| &wanted.confirmed);
        confirmed.is_some_and(|nodes| match is_everywhere {
            true => nodes.first() == Some(&node),
            false => nodes.contains(&node),
        })
    }

    /// Ends what is to be listened to elsewhere by now, and what nobody hears any more; tells servers again what they have not confirmed. Of many topics it looks
    /// at some, and at the next ones the next time.
    fn look(&self, routes: &Routes, pubsub: &PubSub) {
        let state = &mut *self.state.lock();
        let (mut unheard, mut moved, mut again) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        let mut has_other_ways = false;
        let State { topics, waiting, changes, counts, looked_at, .. } = &mut *state;
        let behind = looked_at.take();
        let from = behind.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        for ((topic, wanted), number) in topics.range_mut((from, Bound::Unbounded)).zip(1..) {
            has_other_ways |= wanted.find_way(way_of(routes, topic, &wanted.at), counts);
            let is_heard = wanted.is_heard();
            let heard_at = Some(&wanted.at).filter(|_| is_heard);
            wanted.waiting.retain(|id| waiting.contains_key(id));
            if places(routes, topic, heard_at) != wanted.at {
                moved.insert(topic.clone());
            } else if wanted.since.elapsed() > UNHEARD_MAX
                && wanted.waiting.is_empty()
                && pubsub.listeners(topic.0, &topic.1) == 0
            {
                unheard.insert(topic.clone());
            } else if !is_heard
                && wanted.told_at.elapsed() > AGAIN_AFTER
                // A server that is told much is told bit by bit.
                && !wanted.at.iter().any(|node| changes.contains_key(node))
            {
                again.push(topic.clone());
            }
            if number == LOOKED_AT_ONCE {
                *looked_at = Some(topic.clone());
                break;
            }
        }
        if unheard.is_empty() && moved.is_empty() && again.is_empty() && !has_other_ways {
            return;
        }
        unheard.iter().chain(&moved).for_each(|topic| state.give_up(topic));
        // Nobody listens before it is told so.
        close_listeners(pubsub, &moved);
        again.iter().for_each(|topic| state.tell(topic, Instant::now()));
        self.note_change();
    }
}

/// Closes the connections of all who listen to one of these. They are told nothing of it before they have ended: it may be listened to anew by then, for others, and
/// they would have missed something in between.
fn close_listeners(pubsub: &PubSub, topics: &BTreeSet<Topic>) {
    for (kind, name) in topics {
        let mut ended = Vec::new();
        pubsub.each_of(*kind, name, |client| ended.push(client.clone()));
        // The last one first: they stand in a row.
        for client in ended.into_iter().rev() {
            pubsub.close(&client, *kind, name);
            client.signal(Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::Upstream;
    use sys::UnixMs;

    fn client(id: u64) -> Arc<Client> {
        let nowhere = || "127.0.0.1:1".to_owned();
        Arc::new(Client::new(id, nowhere(), nowhere(), 0, (0, 0), UnixMs(0)))
    }

    fn topic(kind: Kind, name: &str) -> Topic {
        (kind, Arc::from(name.as_bytes()))
    }

    /// A server says that what it is told of a topic now is so.
    fn confirm(hearing: &Hearing, node: NodeNo, topic: &Topic) {
        hearing.confirm(node, topic, number_of(hearing, topic));
    }

    fn number_of(hearing: &Hearing, topic: &Topic) -> u64 {
        hearing.state.lock().topics[topic].number
    }

    fn listen(hearing: &Hearing, topic: &Topic) -> Change {
        Change::Listen(topic.clone(), number_of(hearing, topic))
    }

    #[test]
    fn a_client_listens_when_all_servers_say_so() {
        let routes = Upstream::fixed("a:1,b:1,c:1").unwrap().routes();
        let hearing = Hearing::default();
        // Slot of foo: 12,182.
        let topics = [topic(Kind::Channel, "foo"), topic(Kind::Pattern, "f*")];
        assert_eq!(hearing.listen(&routes, &topics, &client(1)), Heard::NotYet);
        assert_eq!(hearing.listen(&routes, &topics, &client(1)), Heard::NotYet, "it waits already");
        assert_eq!(hearing.take_changes(0, false, usize::MAX), [listen(&hearing, &topics[1])]);
        assert_eq!(hearing.take_changes(2, false, usize::MAX).len(), 2);
        assert_eq!(hearing.take_changes(2, true, usize::MAX).len(), 2);
        for node in 0..3 {
            assert_eq!(hearing.listen(&routes, &topics, &client(10 + u64::from(node))), Heard::NotYet);
            confirm(&hearing, node, &topics[1]);
        }
        assert!(!hearing.is_heard(&topics));
        confirm(&hearing, 2, &topics[0]);
        assert!(hearing.is_heard(&topics));
        assert!(hearing.state.lock().waiting.is_empty(), "all were woken");
        assert_eq!(hearing.listen(&routes, &topics, &client(1)), Heard::Yes);
        assert!(hearing.is_told_by(0, &topics[1], true) && !hearing.is_told_by(1, &topics[1], true));
        assert!((0..3).all(|node| hearing.is_told_by(node, &topics[1], false)));
        hearing.refuse(0, Some(&topics[0]), "no");
        assert_eq!(hearing.listen(&routes, &topics, &client(1)), Heard::Refused("no".to_owned()));
        hearing.lose(2, &PubSub::default());
        assert!(hearing.state.lock().topics.is_empty(), "who wants it asks for it anew");
    }

    #[test]
    fn what_is_elsewhere_is_listened_to_anew() {
        let routes = Upstream::fixed("a:1,b:1,c:1").unwrap().routes();
        let (hearing, pubsub) = (Hearing::default(), PubSub::default());
        let topics = [topic(Kind::ShardChannel, "foo")];
        hearing.listen(&routes, &topics, &client(1));
        confirm(&hearing, 2, &topics[0]);
        hearing.look(&routes, &pubsub);
        assert!(hearing.is_heard(&topics));
        let others = Upstream::fixed("a:1,b:1").unwrap().routes();
        hearing.look(&others, &pubsub);
        assert!(!hearing.is_heard(&topics));
        assert_eq!(hearing.listen(&others, &topics, &client(2)), Heard::NotYet);
        assert!(hearing.take_changes(1, false, usize::MAX).contains(&listen(&hearing, &topics[0])));
        confirm(&hearing, 1, &topics[0]);
        hearing.move_on(1, &topics[0], &pubsub);
        assert!(!hearing.is_heard(&topics));
    }

    #[test]
    fn who_waits_for_many_keeps_those_that_are_there_and_a_server_is_told_them_bit_by_bit() {
        let routes = Upstream::fixed("a:1").unwrap().routes();
        let (hearing, pubsub) = (Hearing::default(), PubSub::default());
        let topics = ["1", "2", "3"].map(|name| topic(Kind::Channel, name));
        assert_eq!(hearing.listen(&routes, &topics, &client(1)), Heard::NotYet);
        for wanted in hearing.state.lock().topics.values_mut() {
            let long_ago = Instant::now().checked_sub(2 * UNHEARD_MAX).unwrap();
            (wanted.since, wanted.told_at) = (long_ago, long_ago);
        }
        let [first, second, third] = [0, 1, 2].map(|at| listen(&hearing, &topics[at]));
        assert_eq!(hearing.take_changes(0, false, 1), [first]);
        confirm(&hearing, 0, &topics[0]);
        hearing.look(&routes, &pubsub);
        let rest = [second, third];
        assert_eq!(hearing.take_changes(0, false, usize::MAX), rest, "nothing is given up or told twice");
        hearing.look(&routes, &pubsub);
        assert_eq!(hearing.take_changes(0, false, usize::MAX), rest, "they are not answered for long");
        topics.iter().for_each(|topic| confirm(&hearing, 0, topic));
        assert!(hearing.state.lock().waiting.is_empty(), "it was woken");
        hearing.look(&routes, &pubsub);
        assert!(hearing.state.lock().topics.is_empty(), "it went away");
    }

    #[test]
    fn what_a_server_confirms_before_it_is_told_to_leave_counts_for_nobody_who_comes_behind_that() {
        let routes = Upstream::fixed("a:1").unwrap().routes();
        let (hearing, pubsub) = (Hearing::default(), PubSub::default());
        let topics = [topic(Kind::Channel, "foo")];
        hearing.listen(&routes, &topics, &client(1));
        let first = number_of(&hearing, &topics[0]);
        assert_eq!(hearing.take_changes(0, false, usize::MAX), [Change::Listen(topics[0].clone(), first)]);
        // It is not answered for long, and the client goes away.
        hearing.state.lock().waiting.clear();
        for wanted in hearing.state.lock().topics.values_mut() {
            wanted.since = Instant::now().checked_sub(2 * UNHEARD_MAX).unwrap();
        }
        hearing.look(&routes, &pubsub);
        assert_eq!(hearing.listen(&routes, &topics, &client(2)), Heard::NotYet);
        let [left, anew] = [Change::Leave(topics[0].clone()), listen(&hearing, &topics[0])];
        assert_eq!(hearing.take_changes(0, false, usize::MAX), [left, anew]);
        hearing.confirm(0, &topics[0], first);
        assert!(!hearing.is_heard(&topics), "the server is about to leave it");
        confirm(&hearing, 0, &topics[0]);
        assert!(hearing.is_heard(&topics) && hearing.is_told_by(0, &topics[0], false));
    }

    #[test]
    fn of_many_topics_some_are_looked_at_at_once_and_all_in_turn() {
        let routes = Upstream::fixed("a:1,b:1").unwrap().routes();
        let (hearing, pubsub) = (Hearing::default(), PubSub::default());
        let count = 2 * LOOKED_AT_ONCE + 1;
        let topics: Vec<Topic> =
            (0..count).map(|number| topic(Kind::ShardChannel, &number.to_string())).collect();
        hearing.listen(&routes, &topics, &client(1));
        assert_eq!(hearing.nodes(), BTreeSet::from([0, 1]));
        let others = Upstream::fixed("a:1").unwrap().routes();
        let left = || {
            hearing.look(&others, &pubsub);
            hearing.state.lock().topics.values().filter(|wanted| wanted.at.contains(&1)).count()
        };
        let before = hearing.state.lock().counts[&1];
        let each = [left(), left(), left()];
        assert!(before > each[0] && each[0] > each[1] && each[2] == 0, "{before}, {each:?}");
        assert!(!hearing.is_wanted_at(1) && hearing.is_wanted_at(0));
        assert_eq!(hearing.state.lock().looked_at, None);
    }

    #[test]
    fn who_has_missed_something_hears_no_more_and_what_comes_late_is_told_to_nobody() {
        let routes = Upstream::fixed("a:1,b:1,c:1").unwrap().routes();
        let (hearing, pubsub, listener) = (Hearing::default(), PubSub::default(), client(1));
        let topics = [topic(Kind::ShardChannel, "foo"), topic(Kind::Channel, "foo")];
        hearing.listen(&routes, &topics, &listener);
        topics.iter().for_each(|topic| confirm(&hearing, 2, topic));
        let mut subscriptions = None;
        for (kind, name) in &topics {
            pubsub.subscribe(&listener, &mut subscriptions, *kind, name);
            assert!(hearing.is_told_by(2, &(*kind, name.clone()), false));
        }
        let others = Upstream::fixed("a:1,b:1").unwrap().routes();
        hearing.look(&others, &pubsub);
        assert!(listener.is_killed() && topics.iter().all(|(kind, name)| pubsub.listeners(*kind, name) == 0));
        // Another client wants it, by the server that has it now.
        hearing.listen(&others, &topics, &client(2));
        topics.iter().for_each(|topic| confirm(&hearing, 1, topic));
        assert!(topics.iter().all(|topic| hearing.is_heard(std::slice::from_ref(topic))));
        assert!(topics.iter().all(|topic| hearing.is_told_by(1, topic, false)));
        assert!(!topics.iter().any(|topic| hearing.is_told_by(2, topic, false)));
    }

    #[test]
    fn who_hears_by_way_of_another_node_is_closed_when_that_is_lost() {
        let of = |places: &str| {
            let mut routes = Routes::clone(&Upstream::fixed(places).unwrap().routes());
            routes.is_cluster = true;
            routes
        };
        let (hearing, pubsub, listener) = (Hearing::default(), PubSub::default(), client(1));
        let topics = [topic(Kind::Channel, "foo")];
        hearing.listen(&of("a:1,b:1"), &topics, &listener);
        confirm(&hearing, 1, &topics[0]);
        pubsub.subscribe(&listener, &mut None, Kind::Channel, b"foo");
        // Its slot goes to another node, and comes back: it is listened to where it was.
        let moved = of("a:1,b:1,c:1");
        hearing.look(&moved, &pubsub);
        assert_eq!(hearing.nodes(), BTreeSet::from([1, 2]));
        hearing.look(&of("a:1,b:1"), &pubsub);
        assert_eq!(hearing.nodes(), BTreeSet::from([1]));
        hearing.lose(2, &pubsub);
        hearing.look(&moved, &pubsub);
        hearing.look(&moved, &pubsub);
        assert!(!listener.is_killed() && hearing.is_heard(&topics));
        hearing.lose(2, &pubsub);
        assert!(listener.is_killed() && hearing.nodes().is_empty());
    }

    #[test]
    fn events_of_keys_are_everywhere() {
        let routes = Upstream::fixed("a:1,b:1,c:1").unwrap().routes();
        assert_eq!(places(&routes, &topic(Kind::Channel, "__keyevent@0__:set"), None).len(), 3);
        assert_eq!(places(&routes, &topic(Kind::Channel, "foo"), None), BTreeSet::from([2]));
        assert_eq!(places(&routes, &topic(Kind::ShardChannel, "__key"), None).len(), 1);
    }
}
