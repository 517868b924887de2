//! Objects that were stored without a look at the disk: whether they have taken the place of an older version there is found
//! out later.
//!
//! A cold word knows a part of its key's hash only. A command that gives a key a value whatever was there does not wait for the
//! disk to tell whether a word that looks like the key is the key's: the new object is *shadowing*, and the word stays. The two
//! count as one key until they are *resolved*: what the word stands for is read, and if it is an older version of the object its
//! word goes; if it is another key's nothing was lost, and there is one key more than was thought.
//!
//! Who needs to know at once resolves with the slot locked ([`SlotReader::resolve`]): who changes the object otherwise, sends it
//! away or lets it expire. All other such objects are named to who reads in the background ([`Batch::take_shadowed`],
//! [`Batch::note_seen`]).

use super::Unreadable;
use super::ahead::ColdKey;
use super::load::SlotReader;
use crate::ids::{Key, Position};
use crate::keyspace::{Batch, Keyspace};
use crate::limits::{SHADOWED_NAMES_MAX, SHADOWING_MAX};
use crate::locks::{self, SlotId};
use crate::slot::{Change, SlotKeys};
use crate::table::Place;
use crate::{DbIndex, Interest};
use smallvec::SmallVec;
use sys::UnixMs;

/// What lies in a page of the store.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The database, by its constant number.
    pub db: u32,
    /// The key.
    pub key: &'a [u8],
    /// When it expires.
    pub expires_at: Option<UnixMs>,
}

impl Keyspace {
    /// How many keys are shadowing.
    pub fn shadowing(&self) -> u64 {
        (0..self.databases()).map(|db| self.database_at(db).shadowing(Change::default())).sum()
    }

    /// Resolves an object in memory whose key was found on disk at `at`. False: there is nothing to resolve there.
    pub(super) fn part(
        &self,
        id: SlotId,
        keys: &mut SlotKeys,
        (place, position): (Place, Position),
        at: u32,
        expires_at: Option<UnixMs>,
    ) -> bool {
        let block = keys.block(place);
        let Some(word) = word_at(keys, position, at).filter(|_| block.is_shadowing()) else { return false };
        let change = keys.end_shadowing(self.frame(), block, Some((word, expires_at.is_some())));
        self.note_dead(Some(at));
        self.database_at(id.0).note_found(id.1, keys, change);
        true
    }
}

impl SlotReader<'_> {
    /// Finds out whether a word of the slot is an older version's of a key in memory, if that is not known.
    pub(crate) fn resolve(&self, keys: &mut SlotKeys, key: &Key<'_>) -> Result<Change, Unreadable> {
        let block = keys.find(key).map(|place| keys.block(place));
        let Some(block) = block.filter(|block| block.is_shadowing()) else { return Ok(Change::default()) };
        let words: SmallVec<[(Place, u32); 2]> = keys.table().find_cold(key.position).collect();
        for (place, at) in words {
            if let Some(record) = self.read(at, |bytes| bytes == key.bytes)? {
                self.shelf.note_dead(at);
                return Ok(keys.end_shadowing(self.frame, block, Some((place, record.expires_at.is_some()))));
            }
        }
        Ok(keys.end_shadowing(self.frame, block, None))
    }

    /// Does that for all keys in memory that a timer may stand for.
    pub(super) fn resolve_with_prefix(
        &self,
        keys: &mut SlotKeys,
        prefix: u32,
    ) -> (Change, Result<(), Unreadable>) {
        let shadowing = keys.table().with_prefix(prefix).filter(|(_, object)| object.is_shadowing());
        let names: SmallVec<[Box<[u8]>; 1]> = shadowing.map(|(_, object)| object.key().into()).collect();
        let mut change = Change::default();
        for name in names {
            match self.resolve(keys, &self.frame.hasher.key(DbIndex(0), &name)) {
                Ok(resolved) => change += resolved,
                Err(error) => return (change, Err(error)),
            }
        }
        (change, Ok(()))
    }
}

impl Batch<'_> {
    /// Whether a key of this database may be given a value without a look at the disk. Not if somebody wants to know whether it
    /// was there, or too many keys have not been resolved.
    pub(crate) fn may_be_blind(&self, db: DbIndex) -> bool {
        !self.keyspace.interest().contains(Interest::EVENTS)
            && self.state().shadowed.borrow().len() < SHADOWED_NAMES_MAX
            && self.shadowing(db) < SHADOWING_MAX
    }

    /// Names what is to be read for a key that was given a value blindly.
    pub(crate) fn note_blind(&self, keys: &SlotKeys, key: &Key<'_>) {
        self.name_words((self.keyspace.slot_id(key), key.position), keys, |_| true);
    }

    fn name_words(
        &self,
        (slot, position): (SlotId, Position),
        keys: &SlotKeys,
        is_meant: impl Fn(u32) -> bool,
    ) {
        let words = keys.table().find_cold(position).filter(|(_, at)| is_meant(*at));
        self.state().shadowed.borrow_mut().extend(words.map(|(_, at)| ColdKey { slot, position, at }));
    }

    /// What this worker's commands have not read: for each key that was given a value blindly what may be older versions of it.
    #[inline]
    pub fn take_shadowed(&self) -> Vec<ColdKey> {
        match &self.gate {
            Some(state) if self.keyspace.has_shelf() => state.shadowed.take(),
            _ => Vec::new(),
        }
    }

    /// Resolves a key in memory before it goes away. False: it cannot be read, and the key has to stay.
    pub(crate) fn resolve_position(&self, id: SlotId, keys: &mut SlotKeys, position: Position) -> bool {
        let Some(place) = keys.find_position(self.keyspace.frame(), position) else { return true };
        let Some(reader) = self.keyspace.slot_reader(id).filter(|_| keys.object(place).is_shadowing()) else {
            return true;
        };
        let name: Box<[u8]> = keys.object(place).key().into();
        let resolved = reader.resolve(keys, &self.keyspace.key(DbIndex(0), &name));
        resolved.map(|change| self.keyspace.database_at(id.0).note_found(id.1, keys, change)).is_ok()
    }

    /// Resolves a key that was given a value blindly, if nobody has yet: these records lie where its older version may lie, and no
    /// others.
    pub fn note_seen(&self, cold: &ColdKey, records: &[Seen<'_>]) {
        let id = cold.slot;
        let Some(mut keys) = locks::lock_soon(self.keyspace.keys_of_slot(id)) else {
            return self.state().shadowed.borrow_mut().push(*cold);
        };
        let Some(place) = find_shadowing(&keys, self.keyspace, cold) else { return };
        let key = keys.object(place).key();
        let own = records.iter().find(|seen| seen.db == id.0 && seen.key == key);
        if let Some(own) = own
            && self.keyspace.part(id, &mut keys, (place, cold.position), cold.at, own.expires_at)
        {
            return;
        }
        let lies_elsewhere = keys.table().find_cold(cold.position).any(|(_, at)| at != cold.at);
        if own.is_some() && lies_elsewhere {
            self.name_words((id, cold.position), &keys, |at| at != cold.at);
        } else if lies_elsewhere {
            // Several look like it, which hardly ever happens.
            self.resolve_position(id, &mut keys, cold.position);
        } else {
            let block = keys.block(place);
            let change = keys.end_shadowing(self.keyspace.frame(), block, None);
            self.keyspace.database_at(id.0).note_found(id.1, &keys, change);
        }
    }

    /// The same if nothing could be read there: perhaps it lies elsewhere by now.
    pub fn note_unseen(&self, cold: &ColdKey) {
        let Some(keys) = locks::lock_soon(self.keyspace.keys_of_slot(cold.slot)) else { return };
        if find_shadowing(&keys, self.keyspace, cold).is_some() {
            self.name_words((cold.slot, cold.position), &keys, |at| at != cold.at);
        }
    }
}

/// The key that was given a value blindly, if that is not resolved yet.
fn find_shadowing(keys: &SlotKeys, keyspace: &Keyspace, cold: &ColdKey) -> Option<Place> {
    let place = keys.find_position(keyspace.frame(), cold.position)?;
    keys.object(place).is_shadowing().then_some(place)
}

/// The cold word that looks like this position and says that its object lies there.
pub(super) fn word_at(keys: &SlotKeys, position: Position, at: u32) -> Option<Place> {
    keys.table().find_cold(position).find(|(_, there)| *there == at).map(|(place, _)| place)
}
