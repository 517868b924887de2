//! What one session listens to.

use super::{Name, PubSub};
use net::client::{Client, Kept, Traits};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a session can listen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A channel.
    Channel,
    /// All channels that fit a pattern.
    Pattern,
    /// A channel of one shard of a cluster.
    ShardChannel,
}

const KINDS: [Kind; 3] = [Kind::Channel, Kind::Pattern, Kind::ShardChannel];

/// The names of what a session listens to, by kind.
#[derive(Default)]
pub struct Subscriptions {
    names: [BTreeSet<Name>; 3],
}

impl Subscriptions {
    /// How many of a kind.
    fn count(&self, kind: Kind) -> usize {
        self.names[kind as usize].len()
    }

    /// The count that a confirmation shows: channels and patterns are counted together.
    pub fn shown_count(&self, kind: Kind) -> usize {
        match kind {
            Kind::ShardChannel => self.count(kind),
            Kind::Channel | Kind::Pattern => self.count(Kind::Channel) + self.count(Kind::Pattern),
        }
    }

    /// All of a kind.
    pub fn all(&self, kind: Kind) -> Vec<Arc<[u8]>> {
        self.names[kind as usize].iter().cloned().collect()
    }
}

impl PubSub {
    /// Lets a session listen. Returns the count for the confirmation.
    pub fn subscribe(
        &self,
        client: &Arc<Client>,
        subscriptions: &mut Option<Box<Subscriptions>>,
        kind: Kind,
        name: &[u8],
    ) -> usize {
        let subscriptions = subscriptions.get_or_insert_default();
        // Its messages count under the limits of subscribers from the first one on.
        client.set_trait(Traits::SUBSCRIBED, true);
        if !subscriptions.names[kind as usize].contains(name) {
            subscriptions.names[kind as usize].insert(self.join(kind, name, client));
            client.note_kept_name(Kept::Subscriptions, name, true);
            note_count(client, subscriptions, kind);
        }
        subscriptions.shown_count(kind)
    }

    /// No more messages of this are posted to a session. It listens until [`PubSub::unsubscribe`].
    pub fn close(&self, client: &Client, kind: Kind, name: &[u8]) {
        self.leave(kind, name, client);
    }

    /// Lets a session listen no more. Returns the count for the confirmation. Messages may
    /// have been posted before.
    pub fn unsubscribe(
        &self,
        client: &Client,
        subscriptions: &mut Option<Box<Subscriptions>>,
        kind: Kind,
        name: &[u8],
    ) -> usize {
        let Some(known) = subscriptions else { return 0 };
        if known.names[kind as usize].remove(name) {
            self.leave(kind, name, client);
            client.note_kept_name(Kept::Subscriptions, name, false);
            note_count(client, known, kind);
        }
        let count = known.shown_count(kind);
        if KINDS.iter().all(|kind| known.count(*kind) == 0) {
            client.stop_listening();
            *subscriptions = None;
        }
        count
    }

    /// Ends all that a session listens to.
    pub fn leave_all(&self, client: &Client, subscriptions: &mut Option<Box<Subscriptions>>) {
        let Some(subscriptions) = subscriptions.take() else { return };
        for kind in KINDS {
            for name in &subscriptions.names[kind as usize] {
                self.leave(kind, name, client);
            }
            note_count(client, &Subscriptions::default(), kind);
        }
        client.note_kept(Kept::Subscriptions, 0);
        client.stop_listening();
    }

    fn join(&self, kind: Kind, name: &[u8], client: &Arc<Client>) -> Name {
        match kind {
            Kind::Channel => self.channels.join(name, client),
            Kind::Pattern => self.patterns.join(name, client),
            Kind::ShardChannel => self.shard_channels.join(name, client),
        }
    }

    fn leave(&self, kind: Kind, name: &[u8], client: &Client) {
        match kind {
            Kind::Channel => self.channels.leave(name, client),
            Kind::Pattern => self.patterns.leave(name, client),
            Kind::ShardChannel => self.shard_channels.leave(name, client),
        }
    }
}

/// For CLIENT LIST.
fn note_count(client: &Client, subscriptions: &Subscriptions, kind: Kind) {
    client.subscriptions[kind as usize].store(subscriptions.count(kind) as u32, Ordering::Relaxed);
}
