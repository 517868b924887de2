//! Those who are told when keys change: watchers of keys, clients that cache what they
//! read, and subscribers of events. The keyspace tells of each change here, under the
//! lock of the key's slot.

use crate::events::Events;
use crate::pubsub::PubSub;
use crate::tracking::Tracking;
use crate::watches::Watches;
use keyspace::{Change, DbIndex, Observer, What};
use net::client::{self, Clients};
use std::sync::Arc;

/// Passes changes on to those who care.
pub struct Audience {
    /// Who gets mail.
    pub clients: Arc<Clients>,
    /// Keys that sessions watch.
    pub watches: Arc<Watches>,
    /// Who caches what.
    pub tracking: Arc<Tracking>,
    /// Which events of keys are published.
    pub events: Arc<Events>,
    /// Who listens to them.
    pub pubsub: Arc<PubSub>,
}

impl Observer for Audience {
    fn observe(&self, worker: usize, changes: &[Change]) {
        self.watches.note(changes);
        let is_tracked = self.tracking.is_on();
        for Change { db, key, what } in changes {
            match *what {
                What::Modified | What::Over | What::Cleared if is_tracked => {
                    self.tracking.invalidate(&self.clients, worker, key, *what == What::Over);
                }
                What::Modified | What::Over | What::Cleared | What::Ready => {}
                What::Event(class, event) => {
                    self.events.publish((&self.pubsub, &self.clients), class, event, *db, key);
                }
            }
        }
    }

    /// Caches are emptied behind the command that flushes; SWAPDB leaves them alone, as in Redis.
    fn observe_database(&self, _worker: usize, db: DbIndex, is_there: &dyn Fn(&[u8]) -> bool) {
        self.watches.note_database(db, is_there);
    }

    fn begin_group(&self) {
        client::begin_group();
    }

    fn end_group(&self) {
        client::end_group(&self.clients);
    }
}
