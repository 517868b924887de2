//! Keys that clients write beside a master, where that is allowed (a writable replica), and whose time is up some day: the master does
//! not know them, so that nobody says that they are over. They are remembered as long as they have an expiry, and freed when it has come.
//! All other keys stay until the master says so.
//!
//! Thread rule: any worker, with slots locked. Nothing else is locked under this lock.

use crate::changes::Interest;
use crate::ids::DbIndex;
use crate::keyspace::{Batch, Keyspace, Touch};
use crate::waiting::KeyName;
use parking_lot::Mutex;
use std::collections::HashSet;
use sys::UnixMs;

/// The keys that are remembered.
#[derive(Default)]
pub(crate) struct Beside(Mutex<HashSet<KeyName>>);

impl Beside {
    /// Remembers a key.
    pub(crate) fn note(&self, db: DbIndex, key: &[u8]) {
        self.0.lock().insert((db, key.into()));
    }
}

impl Keyspace {
    /// Remembers from now on which keys clients give an expiry, or no longer. Those that were remembered before are forgotten.
    pub fn remember_beside(&self, on: bool) {
        self.set_interest(Interest::BESIDE, on);
        *self.beside.0.lock() = HashSet::new();
    }

    /// How many keys are remembered.
    pub fn remembered_beside(&self) -> usize {
        self.beside.0.lock().len()
    }
}

impl Batch<'_> {
    /// Frees those of the keys that are remembered whose time is up, and forgets those that have no expiry any more.
    pub fn sweep_beside(&self, now: UnixMs) {
        let keyspace = self.keyspace;
        if !keyspace.active_expiry() {
            return;
        }
        let names: Vec<KeyName> = keyspace.beside.0.lock().iter().cloned().collect();
        for name in names {
            let key = [keyspace.key(name.0, &name.1)];
            // Who has it for long does with it what it likes.
            let Some(edit) = self.try_edit(&key, now, Touch::No) else { continue };
            // The look finds that its time is up; then it goes with the end of the access.
            let lasts = edit.peek(&key[0]).is_some_and(|object| object.expires_at().is_some());
            if !lasts {
                keyspace.beside.0.lock().remove(&name);
            }
            edit.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::{DB, NOW, new_keyspace, seconds_later, set};
    use crate::{Expiry, KeepsAll, NO_TIME_IS_UP};

    #[test]
    fn only_keys_that_no_master_has_written_go_by_themselves() {
        let keyspace = new_keyspace(1);
        keyspace.keep_all(KeepsAll::Following, true);
        keyspace.remember_beside(true);
        set(&keyspace, 1, NOW, Expiry::At(seconds_later(1)));
        set(&keyspace, 2, NO_TIME_IS_UP, Expiry::At(seconds_later(1)));
        set(&keyspace, 3, NOW, Expiry::Keep);
        set(&keyspace, 4, NOW, Expiry::At(seconds_later(1)));
        set(&keyspace, 4, NOW, Expiry::Clear);
        assert_eq!(keyspace.remembered_beside(), 2);
        keyspace.enter(0).sweep_beside(NOW);
        assert_eq!((keyspace.len(DB), keyspace.remembered_beside()), (4, 1));
        keyspace.enter(0).sweep_beside(seconds_later(2));
        assert_eq!((keyspace.len(DB), keyspace.remembered_beside()), (3, 0));
    }
}
