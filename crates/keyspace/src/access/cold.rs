//! Keys of an access that are on disk only: those that it names are brought into memory before, others are lent to it.

#![allow(unsafe_code)] // Lends what it owns for as long as the access lasts.

use super::{Access, Lent};
use crate::ids::Key;
use crate::object::{Block, Detached, Object};
use crate::residency::Unreadable;
use crate::slot::Change;
use crate::table::Place;
use crate::waiting::KeyName;

/// The part of `maxmemory` that one access may be lent: it has to fit in beside all else, and nothing of it goes before the access ends.
const LENT_PART: usize = 4;
/// How many elements of a collection are looked at to estimate what it takes.
const LENT_SAMPLES: usize = 5;

/// What keys are looked up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To be read.
    Read,
    /// To be changed, perhaps.
    Change,
    /// To be given a value, whatever is there.
    Replace,
}

impl Access<'_> {
    /// Brings keys into memory that are on disk only, unless they are to be replaced. Nothing on disk counts any more as like one
    /// that may change.
    pub(crate) fn admit(&mut self, keys: &[Key<'_>], purpose: Purpose) {
        for key in keys {
            match self.slot(key).find(key) {
                Some(_) if purpose == Purpose::Read => {}
                Some(place) => {
                    let block = self.slot_mut(key).block(place);
                    self.keyspace().note_dead(block.at());
                    block.soil();
                    if block.is_shadowing() && purpose == Purpose::Change {
                        self.resolve(key);
                    }
                }
                None if self.slot(key).table().find_cold(key.position).next().is_none() => {}
                None if purpose == Purpose::Replace && self.batch.may_be_blind(key.db) => {
                    self.is_blind = true;
                }
                None => self.warm(key, purpose),
            }
        }
    }

    fn warm(&mut self, key: &Key<'_>, purpose: Purpose) {
        if let Some((place, at, block)) = self.read_cold(key) {
            let block = match purpose {
                Purpose::Read => block.placed(at),
                Purpose::Change | Purpose::Replace => {
                    self.keyspace().note_dead(Some(at));
                    block
                }
            };
            self.slot_mut(key).warm(place, block);
        }
    }

    #[cold]
    fn resolve(&mut self, key: &Key<'_>) {
        let reader = self.keyspace().slot_reader(self.keyspace().slot_id(key));
        let reader = reader.expect("only what was on a shelf is shadowed");
        let (resolved, _) = self.change(key, |slot| match reader.resolve(slot, key) {
            Ok(change) => (Ok(()), change),
            Err(error) => (Err(error), Change::default()),
        });
        if let Err(error) = resolved {
            self.batch.note_unreadable(error);
        }
    }

    /// Looks a key up that may be on disk only, without counting.
    #[inline]
    pub(super) fn look(&self, key: &Key<'_>) -> Option<Object<'_>> {
        match self.find(key) {
            Some((_, object)) => Some(object),
            None if self.keyspace().has_shelf() => self.borrow_cold(key),
            None => None,
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
    fn borrow_cold(&self, key: &Key<'_>) -> Option<Object<'_>> {
        // One in memory whose time is up may have an older version on disk.
        if self.slot(key).find(key).is_some() {
            return None;
        }
        let name: KeyName = (key.db, key.bytes.into());
        let mut lent = self.noted().lent.borrow_mut();
        let (block, is_new) = match lent.objects.get(&name) {
            Some(detached) => (detached.block(), false),
            None => (self.lend(&mut lent, name, key)?, true),
        };
        // SAFETY: the block lives as long as the access, wherever its handle lies, and nobody changes it.
        let object = unsafe { block.object() };
        if object.is_expired(self.now) && !is_new {
            return None;
        }
        if object.is_expired(self.now) {
            self.note_expired(key);
            return None;
        }
        Some(object)
    }

    /// Shows a key's object, and counts as a use of the key. What is on disk only is in memory for no longer than that, so that any number may
    /// be looked at.
    pub(super) fn show<R>(&self, key: &Key<'_>, show: impl FnOnce(Option<Object<'_>>) -> R) -> R {
        let is_on_disk = self.keyspace().has_shelf() && self.slot(key).find(key).is_none();
        if !is_on_disk || self.batch.has_unreadable() {
            return show(self.find_and_use(key));
        }
        let Some((_, _, block)) = self.read_cold(key) else { return show(None) };
        let read = Detached::new(block);
        match read.object().is_expired(self.now) {
            true => {
                self.note_expired(key);
                show(None)
            }
            false => show(Some(read.object())),
        }
    }

    /// Reads an object that the access has not been lent yet.
    fn lend(&self, lent: &mut Lent, name: KeyName, key: &Key<'_>) -> Option<Block> {
        if self.batch.has_unreadable() {
            // The command fails, whatever else it finds.
            return None;
        }
        let memory_bytes_max =
            usize::try_from(self.keyspace().policy().memory_bytes_max()).unwrap_or(usize::MAX);
        if memory_bytes_max > 0 && lent.bytes > memory_bytes_max / LENT_PART {
            self.batch.note_unreadable(Unreadable(format!(
                "what is looked at and on disk only takes more than 1/{LENT_PART} of maxmemory"
            )));
            return None;
        }
        let (_, _, block) = self.read_cold(key)?;
        let detached = Detached::new(block);
        lent.bytes += detached.object().bytes(LENT_SAMPLES);
        let block = detached.block();
        lent.objects.insert(name, detached);
        Some(block)
    }
}
