//! How a command takes a key away.

use super::Edit;
use crate::ids::Key;
use crate::object::Detached;

impl Edit<'_> {
    /// Takes a key away and frees it. False: it was not there.
    pub fn remove(&mut self, key: &Key<'_>) -> bool {
        self.take(key).is_some()
    }

    /// Takes a key away and frees it, whether or not its time is up. False: it was not there.
    pub fn remove_as_it_lies(&mut self, key: &Key<'_>) -> bool {
        let place = self.access.slot(key).find(key);
        // What is shadowing could not be read.
        let is_there = place.is_some_and(|place| !self.access.slot(key).object(place).is_shadowing());
        if is_there {
            self.access.remove_there(key);
            self.access.note_modified(key);
        }
        is_there
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
