//! What is published at servers behind the proxy: it listens once for all of its clients, and tells them.
//!
//! A topic is a channel, a shard channel or a pattern that clients of the proxy listen to. A channel is listened to at one server, the one that has its slot;
//! patterns, and the channels of events of keys (`__key...`), at all. A client is told that it listens when all these servers have said so, and is closed when
//! the connection to one of them is lost, since messages may have been: as by a server that ends.
//!
//! Thread rule: shared. [`ear`] runs on a thread of its own.

mod ear;

use crate::serve::Proxy;
use crate::upstream::{NodeNo, Routes, Upstream};
use net::client::{Client, Signal};
use notify::pubsub::{self, Kind, PubSub};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use wire::key_slot;

/// How long a topic is listened to that nobody has subscribed to yet, or any more.
const UNHEARD_MAX: Duration = Duration::from_secs(2);
/// How long a refusal counts.
const REFUSED_FOR: Duration = Duration::from_millis(500);
/// How channels begin that each server has its own messages of: events of keys.
const EVENTS: &[u8] = b"__key";

/// What is listened to.
pub type Topic = (Kind, Arc<[u8]>);

/// A topic that somebody wants to hear of, or has.
struct Wanted {
    /// At which servers.
    at: BTreeSet<NodeNo>,
    /// Those of them that have said that they are listened to.
    confirmed: BTreeSet<NodeNo>,
    /// Clients that wait for that.
    waiting: Vec<Arc<Client>>,
    /// Why it cannot be had, and since when.
    refused: Option<(Instant, String)>,
    since: Instant,
}

impl Wanted {
    fn is_heard(&self) -> bool {
        self.at.is_subset(&self.confirmed)
    }

    fn wake(&mut self) {
        self.waiting.drain(..).for_each(|client| client.wake());
    }
}

/// What a server is to be told.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Listen(Topic),
    Leave(Topic),
}

#[derive(Default)]
struct State {
    topics: BTreeMap<Topic, Wanted>,
    /// By server: what it is to be told.
    changes: BTreeMap<NodeNo, Vec<Change>>,
}

impl State {
    fn change(&mut self, node: NodeNo, change: Change) {
        self.changes.entry(node).or_default().push(change);
    }
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

/// At which servers a topic is listened to.
fn places(routes: &Routes, (kind, name): &Topic, now: Option<&BTreeSet<NodeNo>>) -> BTreeSet<NodeNo> {
    let is_master = |node: &NodeNo| routes.masters.contains(node);
    match kind {
        Kind::Pattern => routes.masters.iter().copied().collect(),
        Kind::Channel if name.starts_with(EVENTS) => routes.masters.iter().copied().collect(),
        // Nodes of a cluster tell each other: any of them does, and one that is listened to stays.
        Kind::Channel if routes.is_cluster && now.is_some_and(|now| now.iter().all(is_master)) => {
            now.cloned().unwrap_or_default()
        }
        Kind::Channel | Kind::ShardChannel => routes.of(key_slot(name)).into_iter().collect(),
    }
}

impl Hearing {
    /// Begins to listen for a proxy's clients.
    ///
    /// # Errors
    /// Those of the system.
    pub fn begin(proxy: &Arc<Proxy>) -> io::Result<()> {
        ear::begin(proxy.clone())
    }

    /// A client wants to listen to all of these.
    pub fn listen(&self, routes: &Routes, topics: &[Topic], client: &Arc<Client>) -> Heard {
        let now = Instant::now();
        let state = &mut *self.state.lock();
        let mut is_heard = true;
        for topic in topics {
            if !state.topics.contains_key(topic) {
                let at = places(routes, topic, None);
                at.iter().for_each(|node| state.change(*node, Change::Listen(topic.clone())));
                let wanted =
                    Wanted { at, confirmed: BTreeSet::new(), waiting: Vec::new(), refused: None, since: now };
                state.topics.insert(topic.clone(), wanted);
                is_heard = false;
            }
            let Some(wanted) = state.topics.get_mut(topic) else { continue };
            wanted.since = now;
            is_heard &= wanted.is_heard();
            let Some((at, reason)) = wanted.refused.take() else { continue };
            if now - at < REFUSED_FOR {
                wanted.refused = Some((at, reason.clone()));
                return Heard::Refused(reason);
            }
            let missing: Vec<NodeNo> = wanted.at.difference(&wanted.confirmed).copied().collect();
            missing.into_iter().for_each(|node| state.change(node, Change::Listen(topic.clone())));
        }
        if is_heard {
            return Heard::Yes;
        }
        for topic in topics {
            if let Some(wanted) = state.topics.get_mut(topic).filter(|wanted| !wanted.is_heard()) {
                wanted.waiting.push(client.clone());
            }
        }
        self.note_change();
        Heard::NotYet
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

    /// What a server is to be told, all of it where its connection is new.
    fn take_changes(&self, node: NodeNo, is_new: bool) -> Vec<Change> {
        let state = &mut *self.state.lock();
        let changes = state.changes.remove(&node).unwrap_or_default();
        match is_new {
            false => changes,
            true => {
                let wanted = state.topics.iter().filter(|(_, wanted)| wanted.at.contains(&node));
                wanted.map(|(topic, _)| Change::Listen(topic.clone())).collect()
            }
        }
    }

    /// Servers that are to be listened to.
    fn nodes(&self) -> BTreeSet<NodeNo> {
        self.state.lock().topics.values().flat_map(|wanted| wanted.at.iter().copied()).collect()
    }

    fn is_wanted_at(&self, node: NodeNo) -> bool {
        self.state.lock().topics.values().any(|wanted| wanted.at.contains(&node))
    }

    /// A server says that it is listened to.
    fn confirm(&self, node: NodeNo, topic: &Topic) {
        let state = &mut *self.state.lock();
        let Some(wanted) = state.topics.get_mut(topic) else { return };
        wanted.refused = None;
        if wanted.at.contains(&node) {
            wanted.confirmed.insert(node);
        }
        if wanted.is_heard() {
            wanted.wake();
        }
    }

    /// A topic cannot be listened to at a server; None: none of those that are to be, there.
    fn refuse(&self, node: NodeNo, topic: Option<&Topic>, reason: &str) {
        let state = &mut *self.state.lock();
        let refused = Some((Instant::now(), reason.to_owned()));
        let is_it = |name: &Topic, wanted: &Wanted| {
            topic.map_or_else(
                || wanted.at.contains(&node) && !wanted.confirmed.contains(&node),
                |one| one == name,
            )
        };
        state.topics.iter_mut().filter(|(name, wanted)| is_it(name, wanted)).for_each(|(_, wanted)| {
            wanted.refused.clone_from(&refused);
            wanted.wake();
        });
    }

    /// The connection to a server is lost: those who listen by it may have missed something, and those who wait try again.
    fn lose(&self, node: NodeNo, proxy: &Proxy) {
        let mut lost = BTreeSet::new();
        {
            let state = &mut *self.state.lock();
            for (topic, wanted) in &mut state.topics {
                if wanted.confirmed.remove(&node) {
                    wanted.wake();
                    lost.insert(topic.clone());
                }
            }
        }
        close_listeners(&proxy.host.pubsub, &lost);
    }

    /// Another server has the slot of a shard channel.
    fn move_on(&self, node: NodeNo, topic: &Topic, upstream: &Upstream) {
        if let Some(wanted) = self.state.lock().topics.get_mut(topic) {
            wanted.confirmed.remove(&node);
        }
        upstream.hurry();
    }

    /// Listens elsewhere to what is elsewhere by now, and not any more to what nobody hears.
    fn look(&self, routes: &Routes, pubsub: &PubSub) {
        let state = &mut *self.state.lock();
        let mut changes = Vec::new();
        state.topics.retain(|topic, wanted| {
            let is_unheard = wanted.waiting.is_empty() && pubsub.listeners(topic.0, &topic.1) == 0;
            if is_unheard && wanted.since.elapsed() > UNHEARD_MAX {
                changes.extend(wanted.at.iter().map(|node| (*node, Change::Leave(topic.clone()))));
                return false;
            }
            let at = places(routes, topic, Some(&wanted.at));
            let added = at.difference(&wanted.at).map(|node| (*node, Change::Listen(topic.clone())));
            let left = wanted.at.difference(&at).map(|node| (*node, Change::Leave(topic.clone())));
            changes.extend(added.chain(left));
            wanted.confirmed.retain(|node| at.contains(node));
            wanted.at = at;
            true
        });
        if !changes.is_empty() {
            changes.into_iter().for_each(|(node, change)| state.change(node, change));
            self.note_change();
        }
    }
}

/// Closes the connections of all who listen to one of these.
fn close_listeners(pubsub: &PubSub, topics: &BTreeSet<Topic>) {
    if topics.is_empty() {
        return;
    }
    pubsub.for_each(|kind, name, client| {
        if topics.contains(&(kind, Arc::from(name))) {
            client.signal(Signal::KILL);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::Upstream;
    use sys::UnixMs;

    fn client() -> Arc<Client> {
        let nowhere = || "127.0.0.1:1".to_owned();
        Arc::new(Client::new(1, nowhere(), nowhere(), 0, (0, 0), UnixMs(0)))
    }

    fn topic(kind: Kind, name: &str) -> Topic {
        (kind, Arc::from(name.as_bytes()))
    }

    #[test]
    fn a_client_listens_when_all_servers_say_so() {
        let routes = Upstream::fixed("a:1,b:1,c:1").unwrap().routes();
        let hearing = Hearing::default();
        // Slot of foo: 12,182.
        let topics = [topic(Kind::Channel, "foo"), topic(Kind::Pattern, "f*")];
        assert_eq!(hearing.listen(&routes, &topics, &client()), Heard::NotYet);
        assert_eq!(hearing.take_changes(0, false), [Change::Listen(topics[1].clone())]);
        assert_eq!(hearing.take_changes(2, false).len(), 2);
        assert_eq!(hearing.take_changes(2, true).len(), 2);
        for node in 0..3 {
            assert_eq!(hearing.listen(&routes, &topics, &client()), Heard::NotYet);
            hearing.confirm(node, &topics[1]);
        }
        hearing.confirm(2, &topics[0]);
        assert_eq!(hearing.listen(&routes, &topics, &client()), Heard::Yes);
        hearing.refuse(0, Some(&topics[0]), "no");
        assert_eq!(hearing.listen(&routes, &topics, &client()), Heard::Refused("no".to_owned()));
    }

    #[test]
    fn events_of_keys_are_everywhere() {
        let routes = Upstream::fixed("a:1,b:1,c:1").unwrap().routes();
        assert_eq!(places(&routes, &topic(Kind::Channel, "__keyevent@0__:set"), None).len(), 3);
        assert_eq!(places(&routes, &topic(Kind::Channel, "foo"), None), BTreeSet::from([2]));
        assert_eq!(places(&routes, &topic(Kind::ShardChannel, "__key"), None).len(), 1);
    }
}
