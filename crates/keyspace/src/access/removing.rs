//! How a command takes a key away.

use super::Edit;
use crate::changes::What;
use crate::ids::Key;
use crate::object::Detached;

impl Edit<'_> {
    /// Takes a key away and frees it. False: it was not there.
    pub fn remove(&mut self, key: &Key<'_>) -> bool {
        self.take(key).is_some()
    }

    /// Takes a key away and frees it, whether or not its time is up. False: it was not there, or this edit has seen that its time is up, by
    /// which it goes.
    pub fn remove_as_it_lies(&mut self, key: &Key<'_>) -> bool {
        let slot = self.access.slot(key);
        // What is shadowing could not be read.
        let there = slot.find(key).map(|place| slot.object(place)).filter(|object| !object.is_shadowing());
        let Some(object) = there.filter(|_| !self.access.has_noted_expired(key)) else { return false };
        let what = if object.is_expired(self.access.now) { What::Cleared } else { What::Modified };
        self.access.remove_there(key);
        self.access.note_change(key, what);
        true
    }

    /// Takes a key away and gives its object to the caller.
    pub fn take(&mut self, key: &Key<'_>) -> Option<Detached> {
        // What is shadowing could not be read.
        let (place, _) = self.access.find(key).filter(|(_, object)| !object.is_shadowing())?;
        let frame = self.access.keyspace().frame();
        let taken = self.access.change(key, |slot| slot.take(frame, place)).0;
        self.access.note_modified(key);
        Some(taken)
    }
}
