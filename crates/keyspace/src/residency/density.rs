//! How densely objects lie in memory, and moving those that lie too far apart.
//!
//! Objects that go leave holes. What is stored next fills holes of its own size only, and a page of the allocator goes back to the
//! system when nothing is left in it. So while the tables grow and objects give way, pages with few objects pile up. A census
//! tells which stretches of memory those are; who moves their objects allocates new blocks, which lie close together in its own pages.
//!
//! Thread rule: one thread does so, a slot at a time.

use crate::ids::Slot;
use crate::keyspace::Batch;
use crate::locks;
use crate::object::Object;
use crate::table::Place;
use std::collections::{HashMap, HashSet};

/// A stretch: what mimalloc keeps blocks of one size in, up to [`BLOCK_BYTES_MAX`].
const STRETCH_BITS: u32 = 16;
const STRETCH_BYTES: u64 = 1 << STRETCH_BITS;
/// Larger blocks lie in longer stretches, and are left alone.
const BLOCK_BYTES_MAX: usize = 8 << 10;
/// Fuller stretches are not worth the moving, in hundredths.
const FULL_SHARE: u64 = 60;

/// Bytes of objects in each stretch of memory.
#[derive(Debug, Default)]
pub struct Census(HashMap<u64, u64>);

/// Stretches of which little is in use.
#[derive(Debug, Default)]
pub struct Sparse {
    stretches: HashSet<u64>,
    /// Bytes that are free once they are empty, if others than objects keep nothing in them.
    pub gain: u64,
    places: Vec<Place>,
}

impl Census {
    /// The emptiest stretches, until emptying them gains so many bytes, or objects of so many bytes would move.
    pub fn sparse(self, gain: u64, moved: u64) -> Sparse {
        let is_sparse = |bytes: u64| bytes * 100 < STRETCH_BYTES * FULL_SHARE;
        let mut stretches: Vec<_> = self.0.into_iter().filter(|(_, bytes)| is_sparse(*bytes)).collect();
        stretches.sort_unstable_by_key(|(_, bytes)| *bytes);
        let (mut sparse, mut left) = (Sparse::default(), moved);
        for (stretch, bytes) in stretches {
            if sparse.gain >= gain || bytes > left {
                break;
            }
            left -= bytes;
            sparse.gain += STRETCH_BYTES - bytes;
            sparse.stretches.insert(stretch);
        }
        sparse
    }
}

impl Sparse {
    /// How many they are.
    pub fn stretches(&self) -> u64 {
        self.stretches.len() as u64
    }
}

impl Batch<'_> {
    /// Counts the objects of a slot; the database by its constant number.
    pub fn count_density(&self, db: u32, slot: Slot, census: &mut Census) {
        let Some(keys) = self.keyspace.slot_with_keys((db, slot)).and_then(locks::lock_soon) else { return };
        for (stretch, bytes) in keys.table().places().filter_map(|(_, object)| stretch_of(object)) {
            *census.0.entry(stretch).or_default() += bytes;
        }
    }

    /// Moves the objects of a slot that lie in sparse stretches. One of which a copy is on its way stays.
    pub fn move_sparse(&self, db: u32, slot: Slot, sparse: &mut Sparse) {
        let Some(mut keys) = self.keyspace.slot_with_keys((db, slot)).and_then(locks::lock_soon) else {
            return;
        };
        let Sparse { stretches, places, .. } = sparse;
        let is_sparse = |object| stretch_of(object).is_some_and(|(stretch, _)| stretches.contains(&stretch));
        places.extend(keys.table().places().filter(|(_, object)| is_sparse(*object)).map(|(place, _)| place));
        places.drain(..).for_each(|place| keys.relocate(place));
    }
}

/// The stretch in which an object lies, and how many bytes of it that takes. None: it lies in a longer one.
fn stretch_of(object: Object<'_>) -> Option<(u64, u64)> {
    let bytes = object.block_bytes();
    (bytes <= BLOCK_BYTES_MAX).then(|| (object.address() >> STRETCH_BITS, bytes as u64))
}
