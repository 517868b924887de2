//! Sending objects away: who was not used of late gives its memory back.
//!
//! A sweep goes round and round over the slots. An object that was used since the last round stays, as many rounds as it was
//! used times, three at the most: what is looked at once goes soon (as in CLOCK with a counter; Corbató, "A paging
//! experiment with the Multics system", 1968). One that lies on disk as it is goes at once. Any other is shown to who writes
//! ([`Batch::spill`]), and goes when it has been written ([`Batch::let_go`]) unless it has changed meanwhile.
//!
//! Thread rule: one thread at a time spills, and writes what it has gathered before it comes to the same slot again; others
//! may change what it has seen.

use super::record;
use crate::ids::{DbIndex, POSITION_BITS, Position, Slot};
use crate::keyspace::Batch;
use crate::locks::{self, SlotId};
use crate::slot::SlotKeys;
use crate::table::Place;
use sys::UnixMs;
use value::table::{COLD_BITS_MIN, Handle, TAG_BITS};

/// An object that may go once its copy is on disk.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    slot: SlotId,
    position: Position,
    /// The address of its block: nothing else may be meant.
    block: u64,
    /// Where its copy lies.
    at: u32,
}

/// A copy to be written.
#[derive(Clone, Copy, Debug)]
pub struct Copied<'a> {
    /// Which database it is in, whatever number that has now.
    pub db: u32,
    /// Its key.
    pub key: &'a [u8],
    /// When it expires.
    pub expires_at: Option<UnixMs>,
    /// All else.
    pub image: &'a [u8],
}

/// What becomes of an object that was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its copy will lie there.
    LeavesTo(u32),
    /// It stays in memory.
    Stays,
    /// There is no place for it or others now.
    Waits,
}

/// What became of a slot's objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spilled {
    /// Objects that have gone.
    pub gone: usize,
    /// Objects that will go when they are written.
    pub leaving: usize,
    /// Objects that stay.
    pub kept: usize,
    /// Whether there was no place for more copies.
    pub is_full: bool,
}

/// What one sweep needs again and again.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Whether objects that were used go, too.
    pub is_eager: bool,
    image: Vec<u8>,
    seen: Vec<(Place, Position)>,
}

impl Batch<'_> {
    /// Lets go of a slot's objects that were not used of late. Those that are not on disk are shown to `copy`, which says what
    /// becomes of them. `is_written` tells whether what lies at a place can be read.
    pub fn spill(
        &self,
        db: DbIndex,
        slot: Slot,
        scratch: &mut Scratch,
        leaving: &mut Vec<Leaving>,
        is_written: impl Fn(u32) -> bool,
        mut copy: impl FnMut(Copied<'_>) -> Fate,
    ) -> Spilled {
        let mut spilled = Spilled::default();
        let Some(slots) = self.keyspace.database(db).used_slots() else { return spilled };
        let cell = &slots[usize::from(slot.0)];
        if !cell.has_keys() {
            return spilled;
        }
        let Some(mut keys) = locks::lock_soon(&cell.keys) else { return spilled };
        let id = (self.keyspace.physical(db), slot);
        debug_assert!(
            leaving.iter().all(|other| other.slot != id),
            "what was copied is written before its slot's turn"
        );
        scratch.seen.clear();
        scratch.seen.extend(
            keys.table().places().map(|(place, object)| (place, self.keyspace.position(object.key()))),
        );
        let first = leaving.len();
        for (place, position) in scratch.seen.iter().copied() {
            let block = keys.block(place);
            if block.is_leaving() || block.fields_expire() || !scratch.is_eager && block.take_use() > 0 {
                spilled.kept += 1;
                continue;
            }
            if let Some(at) = block.at() {
                match is_written(at) {
                    true => {
                        keys.chill(place, position, at);
                        spilled.gone += 1;
                    }
                    false => spilled.kept += 1,
                }
                continue;
            }
            // Two that look alike cannot be told apart in one page: the second goes another time.
            let is_near = |other: &&Leaving| have_one_tag(other.position, position);
            if leaving[first..]
                .iter()
                .rev()
                .take_while(is_near)
                .any(|other| look_alike(other.position, position))
            {
                spilled.kept += 1;
                continue;
            }
            let object = keys.object(place);
            scratch.image.clear();
            record::write(object, &mut scratch.image);
            let (key, expires_at) = (object.key(), object.expires_at());
            let at = match copy(Copied { db: id.0, key, expires_at, image: &scratch.image }) {
                Fate::LeavesTo(at) => at,
                Fate::Stays => {
                    spilled.kept += 1;
                    continue;
                }
                Fate::Waits => {
                    spilled.is_full = true;
                    break;
                }
            };
            let block = keys.block(place);
            block.set_leaving(true);
            leaving.push(Leaving { slot: id, position, block: block.address(), at });
            spilled.leaving += 1;
        }
        spilled
    }

    /// Lets go of objects whose copies are written, unless they have changed or gone meanwhile. With `is_written` false they
    /// stay as if they had never been copied. Tells how many have gone.
    pub fn let_go(&self, leaving: &[Leaving], is_written: bool) -> usize {
        let mut gone = 0;
        for of_slot in leaving.chunk_by(|a, b| a.slot == b.slot) {
            let mut keys = locks::lock(self.keyspace.keys_of_slot(of_slot[0].slot));
            for one in of_slot {
                let Some(place) = find_leaving(&mut keys, one) else { continue };
                match is_written {
                    true => keys.chill(place, one.position, one.at),
                    false => keys.block(place).set_leaving(false),
                }
                gone += usize::from(is_written);
            }
        }
        gone
    }
}

/// Whether cold words of these positions could not be told apart in one slot.
pub(super) fn look_alike(one: Position, other: Position) -> bool {
    share(one, other, COLD_BITS_MIN)
}

/// Whether they stand side by side in a table.
fn have_one_tag(one: Position, other: Position) -> bool {
    share(one, other, TAG_BITS)
}

fn share(one: Position, other: Position, bits: u32) -> bool {
    (one.0 ^ other.0) >> (POSITION_BITS - bits) == 0
}

fn find_leaving(keys: &mut SlotKeys, leaving: &Leaving) -> Option<Place> {
    let place = keys.table().find_block(leaving.position, leaving.block)?;
    keys.block(place).is_leaving().then_some(place)
}
