//! Keys of an access that are on disk only: those that it names are brought into memory before, others are lent to it.

#![allow(unsafe_code)] // Lends what it owns for as long as the access lasts.

use super::Access;
use crate::ids::Key;
use crate::object::{Block, Detached, Object};
use crate::table::Place;

/// What keys are looked up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be read.
    Read,
    /// To be changed, perhaps.
    Change,
}

impl Access<'_> {
    /// Brings keys into memory that are on disk only. Nothing on disk counts any more as like one that may change.
    pub(crate) fn admit(&mut self, keys: &[Key<'_>], purpose: Purpose) {
        for key in keys {
            match self.slot(key).find(key) {
                Some(place) if purpose == Purpose::Change => {
                    let block = self.slot_mut(key).block(place);
                    self.keyspace().note_dead(block.at());
                    block.soil();
                }
                Some(_) => {}
                None => self.warm(key, purpose),
            }
        }
    }

    fn warm(&mut self, key: &Key<'_>, purpose: Purpose) {
        if let Some((place, at, block)) = self.read_cold(key) {
            let block = match purpose {
                Purpose::Read => block.placed(at),
                Purpose::Change => {
                    self.keyspace().note_dead(Some(at));
                    block
                }
            };
            self.slot_mut(key).warm(place, block);
        }
    }

    fn read_cold(&self, key: &Key<'_>) -> Option<(Place, u32, Block)> {
        let reader = self.keyspace().slot_reader(self.keyspace().slot_id(key))?;
        let found = reader.find(self.slot(key), key);
        found.unwrap_or_else(|error| {
            self.batch.note_unreadable(error);
            None
        })
    }

    /// An object that is on disk only, for as long as the access lasts. The keys that a command names are in memory by now; these are
    /// others, which it finds on its way.
    #[cold]
    pub(super) fn borrow_cold(&self, key: &Key<'_>) -> Option<Object<'_>> {
        let (_, _, block) = self.read_cold(key)?;
        let detached = Detached::new(block);
        // SAFETY: the block lives as long as the access, wherever its handle lies, and nobody changes it.
        let object = unsafe { block.object() };
        self.lent.borrow_mut().push(detached);
        if object.is_expired(self.now) {
            self.note_expired(key);
            return None;
        }
        Some(object)
    }
}
