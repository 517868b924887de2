//! Cold keys that somebody will look for: where they lie, and bringing them into memory before that.

use super::{record, shadow};
use crate::access::Purpose;
use crate::ids::{Key, Position};
use crate::keyspace::Batch;
use crate::locks::SlotId;
use sys::UnixMs;

/// A key that is on disk only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColdKey {
    pub(super) slot: SlotId,
    pub(super) position: Position,
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
    /// Where a key probably lies that is on disk only, or an older version of it, if that has to be known. None: it is in
    /// memory, or nowhere, or its slot is locked.
    pub fn find_cold(&self, key: &Key<'_>, purpose: Purpose) -> Option<ColdKey> {
        let slot = self.keyspace.slot_id(key);
        let slots = self.keyspace.database(key.db).used_slots()?;
        let keys = slots[usize::from(key.slot.0)].keys.try_lock()?;
        let (_, at) = keys.table().find_cold(key.position).next()?;
        // In memory there may be another that looks alike.
        let is_wanted = match (keys.find(key), purpose) {
            (None, Purpose::Replace) => !self.may_be_blind(key.db),
            (None, _) => true,
            (Some(place), Purpose::Change) => keys.object(place).is_shadowing(),
            (Some(_), _) => false,
        };
        is_wanted.then_some(ColdKey { slot, position: key.position, at })
    }

    /// Brings an object into memory that was read from where it lies. False: it is not there any more, or its slot is locked; or
    /// it was an older version of one in memory, which is known now.
    pub fn admit(&self, db: u32, key: &Key<'_>, expires_at: Option<UnixMs>, image: &[u8], at: u32) -> bool {
        let id: SlotId = (db, key.slot);
        let Some(mut keys) = self.keyspace.keys_of_slot(id).try_lock() else { return false };
        if let Some(place) = keys.find(key) {
            self.keyspace.part(id, &mut keys, (place, key.position), at, expires_at);
            return false;
        }
        let Some(place) = shadow::word_at(&keys, key.position, at) else { return false };
        let Some(block) = record::read(key.bytes, expires_at, image) else { return false };
        keys.warm(place, block.placed(at));
        true
    }
}
