//! Those who are told when keys change: watchers of keys, clients that cache what they
//! read, and subscribers of events. The keyspace tells of each change here, under the
//! lock of the key's slot.

use crate::server::Server;
use crate::{events, tracking};
use keyspace::{Change, DbIndex, Interest, Observer, What};
use std::sync::Weak;

/// Passes changes on to those whom the server knows to care.
pub struct Audience(pub Weak<Server>);

impl Observer for Audience {
    fn observe(&self, worker: usize, changes: &[Change]) {
        let Some(server) = self.0.upgrade() else { return };
        server.watches.note(changes);
        let is_tracked = server.engine.keyspace.interest().contains(Interest::TRACKED);
        for Change { db, key, what } in changes {
            match *what {
                What::Modified | What::Over if is_tracked => {
                    tracking::invalidate(&server, worker, key, *what == What::Over);
                }
                What::Modified | What::Over | What::Ready => {}
                What::Event(class, event) => events::publish(&server, class, event, *db, key),
            }
        }
    }

    /// Caches are emptied behind the command that flushes; SWAPDB leaves them alone, as in Redis.
    fn observe_database(&self, _worker: usize, db: DbIndex, is_there: &dyn Fn(&[u8]) -> bool) {
        if let Some(server) = self.0.upgrade() {
            server.watches.note_database(db, is_there);
        }
    }
}
