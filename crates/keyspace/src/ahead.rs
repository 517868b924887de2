//! Asking for the memory of a batch's requests before they run, so that their misses overlap.
//!
//! In passes, each of which leads to the next: the keys' slots (and stamps), table words, objects, and in large collections the
//! words and elements that the requests look for.
//!
//! Thread rule: slots are locked for a moment one after the other, and passed over if another worker has them.
//! An address may be stale by the time it is asked for, which harms nothing. No lock is taken while addresses are being
//! asked for: an atomic instruction waits for all memory that is on its way, and would undo the overlap.

use crate::database::SlotCell;
use crate::ids::{DbIndex, Position, Slot};
use crate::keyspace::Batch;
use smallvec::SmallVec;
use sys::prefetch::{LINE_BYTES, prefetch};
use value::collection::CollectionRef;

/// Lines of an object that are worth fetching: header, key and a value of some
/// hundred bytes; the processor itself fetches on from there.
const OBJECT_LINES: usize = 3;

/// Where a request looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// The slot of its key.
    pub slot: Slot,
    /// The key's position in the slot.
    pub position: Position,
    /// The position of the element that it looks for in the collection at the key.
    pub element: Option<Position>,
}

type Addresses = SmallVec<[usize; 32]>;

impl Batch<'_> {
    /// Fetches a slot: the first pass, which can be made as soon as the key is known.
    #[inline]
    pub fn prefetch_slot(&self, db: DbIndex, slot: Slot) {
        let database = self.keyspace.database(db);
        if let Some(slots) = database.used_slots() {
            prefetch(std::ptr::from_ref(&slots[usize::from(slot.0)]).addr());
        }
        if let Some(stamps) = database.stamps() {
            prefetch(std::ptr::from_ref(&stamps[usize::from(slot.0)]).addr());
        }
    }

    /// Fetches what the requests will most likely look at, from the words of their slots on.
    #[inline]
    pub fn prefetch(&self, db: DbIndex, ahead: impl Iterator<Item = Ahead> + Clone) {
        let Some(slots) = self.keyspace.database(db).used_slots() else { return };
        for at in ahead.clone() {
            let home = slots[usize::from(at.slot.0)].home_address(at.position);
            prefetch(home);
            prefetch(home + LINE_BYTES);
        }
        for address in objects(slots, ahead.clone()) {
            (0..OBJECT_LINES).for_each(|line| prefetch(address + line * LINE_BYTES));
        }
        let elements = ahead.filter(|at| at.element.is_some());
        if elements.clone().next().is_some() {
            let homes = in_collections(slots, elements.clone(), |collection, at| collection.home_address(at));
            homes.into_iter().for_each(prefetch);
            let likely = in_collections(slots, elements, |collection, at| collection.likely_address(at));
            likely.into_iter().for_each(prefetch);
        }
    }
}

/// The addresses of the keys' objects.
#[inline]
fn objects(slots: &[SlotCell], ahead: impl Iterator<Item = Ahead>) -> Addresses {
    let mut addresses = Addresses::new();
    let mut last = None;
    for at in ahead {
        // Requests for one key often follow each other.
        if last.replace((at.slot, at.position)) == Some((at.slot, at.position)) {
            continue;
        }
        if let Some(keys) = slots[usize::from(at.slot.0)].keys.try_lock() {
            addresses.extend(keys.table().likely_address(at.position).map(|address| address as usize));
        }
    }
    addresses
}

/// What `look` says of each element, in collections that have a table.
#[inline]
fn in_collections(
    slots: &[SlotCell],
    ahead: impl Iterator<Item = Ahead>,
    look: impl Fn(CollectionRef<'_>, Position) -> Option<usize>,
) -> Addresses {
    let mut addresses = Addresses::new();
    let mut ahead = ahead.peekable();
    while let Some(first) = ahead.next() {
        let Some(keys) = slots[usize::from(first.slot.0)].keys.try_lock() else { continue };
        let Some(collection) = keys.table().likely_native(first.position) else { continue };
        let mut at = Some(first);
        while let Some(element) = at.and_then(|at| at.element) {
            addresses.extend(look(collection, element));
            at = ahead.next_if(|next| next.slot == first.slot && next.position == first.position);
        }
    }
    addresses
}
