//! Keyspace events: what happens to keys, published to whoever subscribes to
//! `__keyspace@<db>__:<key>` or `__keyevent@<db>__:<event>`, as far as
//! `notify-keyspace-events` asks for it.
//!
//! Thread rule: called by the worker that makes the change, under the locks of the
//! keys' slots; a subscriber is told of one key's events in their order.

use crate::pubsub::PubSub;
use config::{Config, KeyspaceEvents};
use keyspace::{Class, DbIndex};
use net::client::Clients;
use std::sync::atomic::{AtomicU32, Ordering};

/// Which events are published.
#[derive(Default)]
pub struct Events {
    /// As the configuration last had it.
    wanted: AtomicU32,
}

impl Events {
    /// Takes over what the configuration asks for: at the start and after each change of it. Returns whether any event is to be
    /// published.
    pub fn follow(&self, config: &Config) -> bool {
        let wanted = config.notify_keyspace_events();
        self.wanted.store(wanted.bits(), Ordering::Relaxed);
        let channels = KeyspaceEvents::KEYSPACE | KeyspaceEvents::KEYEVENT;
        wanted.intersects(channels) && !(wanted - channels).is_empty()
    }

    /// Publishes an event of a key.
    pub fn publish(
        &self,
        (pubsub, clients): (&PubSub, &Clients),
        class: Class,
        event: &str,
        db: DbIndex,
        key: &[u8],
    ) {
        let wanted = KeyspaceEvents::from_bits_truncate(self.wanted.load(Ordering::Relaxed));
        if !wanted.contains(letter_of(class)) || pubsub.is_idle() {
            return;
        }
        let channel = |kind: &str, name: &[u8]| [format!("__{kind}@{}__:", db.0).as_bytes(), name].concat();
        if wanted.contains(KeyspaceEvents::KEYSPACE) {
            pubsub.publish_here(clients, &channel("keyspace", key), event.as_bytes());
        }
        if wanted.contains(KeyspaceEvents::KEYEVENT) {
            pubsub.publish_here(clients, &channel("keyevent", event.as_bytes()), key);
        }
    }
}

fn letter_of(class: Class) -> KeyspaceEvents {
    match class {
        Class::GENERIC => KeyspaceEvents::GENERIC,
        Class::STRING => KeyspaceEvents::STRING,
        Class::LIST => KeyspaceEvents::LIST,
        Class::SET => KeyspaceEvents::SET,
        Class::HASH => KeyspaceEvents::HASH,
        Class::ZSET => KeyspaceEvents::ZSET,
        Class::EXPIRED => KeyspaceEvents::EXPIRED,
        Class::EVICTED => KeyspaceEvents::EVICTED,
        Class::STREAM => KeyspaceEvents::STREAM,
        Class::MISS => KeyspaceEvents::KEY_MISS,
        Class::NEW => KeyspaceEvents::NEW,
        _ => unreachable!("an event has one class"),
    }
}
