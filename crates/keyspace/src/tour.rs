//! How far a checkpoint, or a full copy for a replica, has come on its way over all slots, for whoever would say of a key that it is now
//! what another key was.
//!
//! Such an effect ([`Keyspace::may_name_source`]) is on two slots. A checkpoint that is copied meanwhile could hold the target as it was
//! before the effect and the source as it was after: whoever replays the journal over it would find nothing at the source, and the value
//! would be lost. All other orders are harmless, since each slot's stamp says whether the effect is still to be made there.
//!
//! A tour copies the slots in the order of their [`Place`]s, one after the other. So the target is copied before the effect, and the source
//! after it, only if
//! - the source comes after the target in that order,
//! - the source is not copied yet, and
//! - copying the target has begun.
//!
//! Whoever asks has both slots locked until the effect is appended and they are stamped. Meanwhile neither is copied, so what was true of
//! them when it was asked is true of the effect; and a tour that begins meanwhile copies both behind it. A slot that is copied in parts is
//! between its beginning and its end all the while: what counts is copied in between.
//!
//! Thread rule: there are [`TOURS_MAX`] tours at a time, in any threads; anybody asks how far they are.

use crate::ids::{Key, SLOTS, Slot};
use crate::keyspace::Keyspace;
use crate::object::Object;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use sys::Counter;

/// Elements from which the bytes of a collection are estimated.
const SAMPLES: usize = 5;

/// Tours that may be under way at a time: a checkpoint's, and two of copies for replicas.
pub(crate) const TOURS_MAX: usize = 3;

/// Where a slot stands in the order of a tour: by its database's constant number, and its own.
type Place = u64;

/// How far the tour is that is under way; zeros if none is.
#[derive(Debug, Default)]
pub(crate) struct Way {
    is_under_way: AtomicBool,
    /// Copying any from here on has not begun.
    begun: AtomicU64,
    /// All before this are copied.
    done: AtomicU64,
}

/// All tours.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    all: [Way; TOURS_MAX],
    /// Bytes of all values that were named, or made of their names by a replay.
    named_bytes: Counter,
}

fn place(number: u32, slot: Slot) -> Place {
    u64::from(number) * SLOTS as Place + Place::from(slot.0)
}

impl Way {
    /// Whether a tour may hold the target as it was before what is about to be done, and the source as it will be afterwards.
    fn may_part(&self, source: Place, target: Place) -> bool {
        if source <= target {
            return false;
        }
        // See `Tour::passes_unused`: the target's database is in use by now.
        fence(Ordering::SeqCst);
        target < self.begun.load(Ordering::Acquire) && source >= self.done.load(Ordering::Acquire)
    }
}

impl Keyspace {
    /// Whether the effect that makes `target` what `source` is may be said as that, by their names: a checkpoint that is being written
    /// holds neither key without the other. Asked with both slots locked, as they are until the effect is in the journal.
    pub fn may_name_source(&self, source: &Key<'_>, target: &Key<'_>) -> bool {
        let place = |key: &Key<'_>| place(self.physical(key.db), key.slot);
        let (source, target) = (place(source), place(target));
        !self.ways.all.iter().any(|way| way.may_part(source, target))
    }

    /// Counts the value of a key that was named, or has been made of its name, and gives its bytes, roughly: it is little journal, and
    /// costs whoever replays it what the value costs.
    pub fn note_named(&self, object: Object<'_>) -> usize {
        let bytes = object.bytes(SAMPLES);
        self.ways.named_bytes.add(bytes as i64);
        bytes
    }

    /// Bytes of all values that were named, roughly.
    pub fn named_bytes(&self) -> u64 {
        self.ways.named_bytes.get()
    }

    /// Begins a tour. None: as many as there may be are under way.
    pub fn begin_tour(&self) -> Option<Tour<'_>> {
        let way = self.ways.all.iter().find(|way| !way.is_under_way.swap(true, Ordering::AcqRel))?;
        Some(Tour { keyspace: self, way })
    }
}

/// A way over all slots: of the databases by their constant numbers, from 0 on, each slot from 0 on. It ends when it is
/// dropped, wherever it is then: a copy that is given up counts for nothing.
pub struct Tour<'k> {
    keyspace: &'k Keyspace,
    way: &'k Way,
}

impl Tour<'_> {
    /// Says, before a slot is locked, that it is copied now.
    pub fn enter(&self, number: u32, slot: Slot) {
        self.way.begun.store(place(number, slot) + 1, Ordering::Release);
    }

    /// Says that the slot is copied: what its copy holds stays as it is.
    pub fn leave(&self, number: u32, slot: Slot) {
        self.way.done.store(place(number, slot) + 1, Ordering::Release);
    }

    /// Whether a database was never used; it counts as copied then.
    pub fn passes_unused(&self, number: u32) -> bool {
        if self.keyspace.is_number_used(number) {
            return false;
        }
        let (way, end) = (self.way, place(number + 1, Slot(0)));
        way.begun.store(end, Ordering::Release);
        // It may be used from any moment on. Whoever does so before the next look is seen by it, or has seen that this has begun.
        fence(Ordering::SeqCst);
        let is_unused = !self.keyspace.is_number_used(number);
        if is_unused {
            way.done.store(end, Ordering::Release);
        }
        is_unused
    }
}

impl Drop for Tour<'_> {
    fn drop(&mut self) {
        let way = self.way;
        // In this order, so that whoever looks in between finds too little copied, and not too little begun.
        way.done.store(0, Ordering::Release);
        way.begun.store(0, Ordering::Release);
        way.is_under_way.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    /// Which of some places are copied before a moment, for every moment of a tour over them: the naive model.
    #[test]
    fn only_a_target_that_is_copied_and_a_source_that_is_not_are_kept_apart() {
        let keyspace = fixture::new_keyspace(1);
        let way = &keyspace.ways.all[0];
        let slots = || (0..4).map(Slot);
        let pairs = || slots().flat_map(|source| slots().map(move |target| (source, target)));
        let parts = |pair: (Slot, Slot)| way.may_part(place(0, pair.0), place(0, pair.1));
        assert!(!pairs().any(parts), "no tour is under way");
        let tour = keyspace.begin_tour().unwrap();
        let others = [keyspace.begin_tour().unwrap(), keyspace.begin_tour().unwrap()];
        assert!(keyspace.begin_tour().is_none());
        drop(others);
        for next in slots() {
            for (source, target) in pairs() {
                assert_eq!(parts((source, target)), target < next && source >= next, "before {next:?}");
            }
            tour.enter(0, next);
            for (source, target) in pairs() {
                let is_copied_before = target <= next && source >= next && source != target;
                assert_eq!(parts((source, target)), is_copied_before, "while {next:?} is copied");
            }
            tour.leave(0, next);
        }
        drop(tour);
        assert!(!pairs().any(parts));
        assert!(keyspace.begin_tour().is_some());
    }

    #[test]
    fn a_database_that_nobody_has_used_is_passed_as_a_whole() {
        let keyspace = fixture::new_keyspace(1);
        let way = &keyspace.ways.all[0];
        let tour = keyspace.begin_tour().unwrap();
        assert!(tour.passes_unused(0));
        // What comes to be in it from now on is not in the checkpoint, and what is in later ones will be.
        assert!(way.may_part(place(1, Slot(0)), place(0, Slot(9))));
        assert!(!way.may_part(place(0, Slot(9)), place(0, Slot(0))));
        keyspace.database_at(1).slot(Slot(0));
        assert!(!tour.passes_unused(1));
        assert!(!way.may_part(place(1, Slot(9)), place(1, Slot(0))));
    }
}
