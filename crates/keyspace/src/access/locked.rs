//! What a handler may ask about the locks that it was given: since when, and of which keys; and who waits for more.

use super::{Access, Edit, View};
use crate::ids::Key;
use crate::locks::Locks;
use crate::waiting::{Ticket, Waiter};
use sys::UnixMs;
use value::collection::TypeName;

impl Access<'_> {
    /// Whether a key's slot is among those that are locked.
    pub(super) fn reaches(&self, key: &Key<'_>) -> bool {
        match self.locks {
            Locks::OfBatch => self.batch.holds(std::slice::from_ref(key)),
            // Those of a command are the slots of all its keys.
            Locks::One(..) | Locks::Many(_) => true,
        }
    }

    /// Queues up a session that waits for these keys.
    pub(super) fn wait(&self, ticket: Ticket, keys: &[Key<'_>], wants: TypeName, also_when_gone: bool) {
        for key in keys {
            let waiter = Waiter { ticket, wants, also_when_gone };
            self.keyspace().add_waiter((key.db, key.bytes.into()), waiter);
        }
    }
}

impl View<'_> {
    /// The moment at which the keys were locked.
    #[inline]
    pub fn now(&self) -> UnixMs {
        self.access.now
    }

    /// Whether a key may be looked at. All of a command's may, unless it is run again for a session that waits.
    pub fn reaches(&self, key: &Key<'_>) -> bool {
        self.access.reaches(key)
    }
}

impl Edit<'_> {
    /// The moment at which the keys were locked.
    #[inline]
    pub fn now(&self) -> UnixMs {
        self.access.now
    }

    /// Whether a key may be looked at. All of a command's may, unless it is run again for a session that waits.
    pub fn reaches(&self, key: &Key<'_>) -> bool {
        self.access.reaches(key)
    }

    /// Notes which keys a session will touch beside those for which it queues up next.
    pub fn wait_beside(&self, ticket: Ticket, keys: &[Key<'_>]) {
        let names = keys.iter().map(|key| (key.db, key.bytes.into())).collect();
        self.access.keyspace().waiting().add_reach(ticket, names);
    }
}
