//! Publish and subscribe: who listens to which channels and patterns, and the way of
//! a message to them.
//!
//! A message is encoded once and appended to the mail of each subscriber, on whatever
//! worker that is; see `client::mail`. The subscriptions of a session are its own
//! ([`Subscriptions`]); the registry knows them by channel.
//!
//! Thread rule: channels are spread over shards with a lock each, which is held while
//! a message is posted, so that all subscribers of a channel see its messages in the
//! same order, and publishers of different channels do not wait for each other. Locks
//! are taken in this order: keyspace slots, a shard, the patterns, mail.
//!
//! Invariants:
//! 1. A session is in the registry exactly for what its `Subscriptions` say.
//! 2. A session that has unsubscribed finds no message in its mail that was not posted
//!    before, and sends those before it answers.
//! 3. A node of the cluster is told of what was published here by a client, and of nothing
//!    that it was told of itself: so every node has a message once.

mod channels;
mod message;
mod nodes;
mod patterns;
mod subscribers;
mod subscriptions;

pub use channels::Channels;
pub use message::Message;
pub use nodes::Nodes;
pub use patterns::Patterns;
pub use subscribers::Subscribers;
pub use subscriptions::{Kind, Subscriptions};

use net::client::{self, Client, Clients};
use std::sync::Arc;
use value::glob::{Case, glob_match};

/// The name of a channel or a pattern, shared by the registry and the sessions.
type Name = Arc<[u8]>;

/// Who listens to what.
#[derive(Default)]
pub struct PubSub {
    /// Channels.
    pub channels: Channels,
    /// Channels of one shard of a cluster (SSUBSCRIBE).
    pub shard_channels: Channels,
    /// Patterns of channels.
    pub patterns: Patterns,
    /// Other nodes of the cluster.
    pub nodes: Nodes,
}

impl PubSub {
    /// Whether nobody listens to any channel or pattern.
    pub fn is_idle(&self) -> bool {
        self.patterns.count() == 0 && self.channels.count() == 0
    }

    /// PUBLISH: posts a message to all subscribers of a channel and of patterns that fit it, and to other nodes of the cluster.
    /// Returns how many times it was posted to subscribers.
    pub fn publish(&self, clients: &Clients, channel: &[u8], message: &[u8]) -> usize {
        self.channels.with(channel, |subscribers| {
            self.nodes.with(|nodes| post(clients, nodes, &[b"message", channel, message]));
            self.post(clients, subscribers, channel, message)
        })
    }

    /// Posts a message that concerns this node's subscribers only: an event of a key, or what another node has told of.
    /// Returns how many times it was posted.
    pub fn publish_here(&self, clients: &Clients, channel: &[u8], message: &[u8]) -> usize {
        self.channels.with(channel, |subscribers| self.post(clients, subscribers, channel, message))
    }

    fn post(
        &self,
        clients: &Clients,
        subscribers: Option<&Subscribers>,
        channel: &[u8],
        message: &[u8],
    ) -> usize {
        let words: [&[u8]; 3] = [b"message", channel, message];
        let direct = subscribers.map_or(0, |subscribers| post(clients, subscribers, &words));
        direct
            + self.patterns.matching(channel, |pattern, subscribers| {
                post(clients, subscribers, &[b"pmessage", pattern, channel, message])
            })
    }

    /// Posts a message of a channel to those who listen to it by this name: what whoever was heard of it has told. Of patterns that is told apart.
    pub fn tell(&self, clients: &Clients, channel: &[u8], message: &[u8]) {
        self.channels.with(channel, |subscribers| {
            subscribers.map_or(0, |subscribers| post(clients, subscribers, &[b"message", channel, message]))
        });
    }

    /// Posts a message of a channel to those who listen to this very pattern.
    pub fn tell_pattern(&self, clients: &Clients, pattern: &[u8], channel: &[u8], message: &[u8]) {
        self.patterns.with(pattern, |subscribers| {
            post(clients, subscribers, &[b"pmessage", pattern, channel, message]);
        });
    }

    /// How many listen to this channel or pattern, by this very name.
    pub fn listeners(&self, kind: Kind, name: &[u8]) -> usize {
        match kind {
            Kind::Channel => self.channels.subscribers_of(name),
            Kind::ShardChannel => self.shard_channels.subscribers_of(name),
            Kind::Pattern => self.patterns.subscribers_of(name),
        }
    }

    /// How many listen to patterns that fit a channel.
    pub fn fitting(&self, channel: &[u8]) -> usize {
        self.patterns.matching(channel, |_, all| all.iter().len())
    }

    /// SPUBLISH: posts a message to all subscribers of a shard channel. Returns how many
    /// they are.
    pub fn publish_in_shard(&self, clients: &Clients, channel: &[u8], message: &[u8]) -> usize {
        self.shard_channels.with(channel, |subscribers| {
            subscribers.map_or(0, |subscribers| post(clients, subscribers, &[b"smessage", channel, message]))
        })
    }

    /// Visits those who listen to this channel or pattern, by this very name, with its lock held.
    pub fn each_of(&self, kind: Kind, name: &[u8], visit: impl FnMut(&Arc<Client>)) {
        let all = |subscribers: Option<&Subscribers>| {
            subscribers.into_iter().flat_map(Subscribers::iter).for_each(visit);
        };
        match kind {
            Kind::Channel => self.channels.with(name, all),
            Kind::ShardChannel => self.shard_channels.with(name, all),
            Kind::Pattern => self.patterns.with(name, |subscribers| all(Some(subscribers))),
        }
    }

    /// Visits every subscription, with the locks of the visited channel held.
    pub fn for_each(&self, mut visit: impl FnMut(Kind, &[u8], &Arc<Client>)) {
        self.channels.for_each(|name, client| visit(Kind::Channel, name, client));
        self.shard_channels.for_each(|name, client| visit(Kind::ShardChannel, name, client));
        self.patterns.for_each(|name, client| visit(Kind::Pattern, name, client));
    }
}

/// Whether a channel fits a pattern.
pub fn fits(pattern: &[u8], channel: &[u8]) -> bool {
    glob_match(pattern, channel, Case::Sensitive)
}

fn post(clients: &Clients, subscribers: &Subscribers, words: &[&[u8]]) -> usize {
    let message = Message::of_words(words);
    for subscriber in subscribers.iter() {
        client::deliver(clients, subscriber, |mail, protocol| message.write_to(mail, protocol));
    }
    subscribers.iter().len()
}
