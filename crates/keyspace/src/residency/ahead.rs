//! Cold keys that somebody will look for: where they lie, and bringing them into memory before that.

use super::record;
use crate::ids::{Key, Position};
use crate::keyspace::Batch;
use crate::locks::SlotId;
use sys::UnixMs;

/// A key that is on disk only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColdKey {
    slot: SlotId,
    position: Position,
    /// Where it probably lies.
    pub at: u32,
}

impl ColdKey {
    /// Whether it is this key of a database (by its constant number).
    pub fn is_of(&self, db: u32, key: &Key<'_>) -> bool {
        self.slot == (db, key.slot) && self.position == key.position
    }
}

impl Batch<'_> {
    /// Where a key probably lies that is on disk only. None: it is in memory, or nowhere, or its slot is locked.
    pub fn find_cold(&self, key: &Key<'_>) -> Option<ColdKey> {
        let slot = self.keyspace.slot_id(key);
        let slots = self.keyspace.database(key.db).used_slots()?;
        let keys = slots[usize::from(key.slot.0)].keys.try_lock()?;
        let (_, at) = keys.table().find_cold(key.position).next()?;
        // In memory there may be another that looks alike.
        keys.find(key).is_none().then_some(ColdKey { slot, position: key.position, at })
    }

    /// Brings an object into memory that was read from where it lies. False: it is not there any more, or its slot is locked.
    pub fn admit(&self, db: u32, key: &Key<'_>, expires_at: Option<UnixMs>, image: &[u8], at: u32) -> bool {
        let Some(mut keys) = self.keyspace.keys_of_slot((db, key.slot)).try_lock() else { return false };
        let place = match keys.find(key) {
            None => keys.table().find_cold(key.position).find(|(_, there)| *there == at),
            Some(_) => None,
        };
        let Some((place, _)) = place else { return false };
        let Some(block) = record::read(key.bytes, expires_at, image) else { return false };
        keys.warm(place, block.placed(at));
        true
    }
}
