//! Those who are told when keys change: watchers of keys. The keyspace tells of each
//! change here, under the lock of the key's slot.

use crate::server::Server;
use keyspace::{Change, DbIndex, Observer};
use std::sync::Weak;

/// Passes changes on to those whom the server knows to care.
pub struct Audience(pub Weak<Server>);

impl Observer for Audience {
    fn observe(&self, _worker: usize, changes: &[Change]) {
        if let Some(server) = self.0.upgrade() {
            server.watches.note(changes);
        }
    }

    fn observe_database(&self, _worker: usize, db: DbIndex, is_there: &dyn Fn(&[u8]) -> bool) {
        if let Some(server) = self.0.upgrade() {
            server.watches.note_database(db, is_there);
        }
    }
}
