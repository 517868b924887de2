//! Keys on disk that are to be evicted: a word or a timer is all that is known of them in memory.

use super::shadow;
use crate::keyspace::Batch;
use crate::locks::SlotId;
use crate::slot::SlotKeys;
use crate::table::Place;
use std::cell::Cell;
use value::table::Cold;

impl Batch<'_> {
    /// Reads the object of a word back into memory. None: it is not there any more, or cannot be read.
    pub(crate) fn warm_word(&self, id: SlotId, keys: &mut SlotKeys, cold: Cold) -> Option<Place> {
        let found = Cell::new(None);
        let is_it = |position| {
            found.set(cold.may_be(position).then_some(position));
            found.get().is_some()
        };
        let block = self.keyspace.slot_reader(id)?.load_at(cold.at, is_it).ok()??;
        let position = found.get()?;
        let find = |keys: &SlotKeys| keys.find_position(self.keyspace.frame(), position);
        if find(keys).is_some() {
            // What was read is an older version of it, whose word goes.
            return self.resolve_position(id, keys, position).then(|| find(keys))?;
        }
        let place = shadow::word_at(keys, position, cold.at)?;
        keys.warm(place, block.placed(cold.at));
        Some(place)
    }

    /// The same for an object that a timer stands for.
    pub(crate) fn warm_timed(&self, id: SlotId, keys: &mut SlotKeys, prefix: u32) -> Option<Place> {
        let (change, warmed) = self.keyspace.slot_reader(id)?.warm_with_prefix(keys, prefix);
        self.keyspace.database_at(id.0).note_found(id.1, keys, change);
        warmed.ok()?;
        let mut objects = keys.table().with_prefix(prefix);
        objects.find(|(_, object)| object.expires_at().is_some()).map(|(place, _)| place)
    }
}
