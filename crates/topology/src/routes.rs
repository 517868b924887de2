//! Where a slot's requests go, seen from one server: made once for a topology, then asked with every command.

use crate::ids::{ServerId, ShardId};
use crate::moves::Stage;
use crate::record::{Place, Server};
use crate::slots::SlotRange;
use crate::view::Topology;
use wire::SLOTS;

/// Where the requests of a slot go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// To the shard in which the server has its place.
    Own,
    /// The same, but its master holds requests back: it is about to be seen whether the slot is another shard's.
    Held,
    /// To the master of another shard.
    Master(&'a Server),
    /// Nowhere: the slot has no owner, or one of which nobody was master yet.
    Nobody,
}

/// The routes of all slots, for one server.
#[derive(Clone, Debug)]
pub struct Routes {
    own: Option<Place>,
    /// By slot: [`OWN`], [`HELD`], [`NOBODY`] or an index of `masters`.
    slots: Box<[u16]>,
    /// A bit for each slot that is [`OWN`]: what every command asks, in few enough bytes to stay in the nearest cache beside the keys.
    own_slots: Box<[u64; SLOTS / WORD_BITS]>,
    masters: Box<[Server]>,
    /// How many slots somebody serves.
    served: usize,
    /// Whether slots are about to come to the own shard, or to leave it.
    switches: bool,
    /// Those that are about to come to it.
    coming: Vec<SlotRange>,
}

/// Bits of a word of `own_slots`.
const WORD_BITS: usize = u64::BITS as usize;

/// The slot is of the server's own shard.
const OWN: u16 = u16::MAX;
/// The slot is nobody's.
const NOBODY: u16 = u16::MAX - 1;
/// The slot is of the server's own shard, and about to be another's.
const HELD: u16 = u16::MAX - 2;

impl Default for Routes {
    fn default() -> Routes {
        Routes {
            own: None,
            slots: vec![NOBODY; SLOTS].into_boxed_slice(),
            own_slots: Box::new([0; SLOTS / WORD_BITS]),
            masters: Box::default(),
            served: 0,
            switches: false,
            coming: Vec::new(),
        }
    }
}

impl Routes {
    /// Those of a topology, seen from this server; from one without a place if it is not in there.
    #[must_use]
    pub fn new(topology: &Topology, own: Option<ServerId>) -> Routes {
        let own = own.and_then(|id| topology.servers.get(&id)).and_then(|server| server.place);
        let own_shard = own.map(|place| place.shard);
        let with_masters: Vec<(ShardId, &Server)> = topology
            .shards
            .keys()
            .filter_map(|shard| topology.master_of(*shard).map(|master| (*shard, master)))
            .collect();
        let mut routes = Routes { own, ..Routes::default() };
        for (range, owner) in topology.slots.ranges() {
            let index = with_masters.binary_search_by_key(&owner, |(shard, _)| *shard).ok();
            let Some(code) = index.and_then(|index| u16::try_from(index).ok()) else { continue };
            let code = if own_shard == Some(owner) { OWN } else { code };
            routes.slots[usize::from(range.first)..=usize::from(range.last)].fill(code);
            routes.served += range.len();
        }
        let switching = topology.moves.values().filter(|one| one.stage == Stage::Switching);
        let coming = switching.clone().filter(|one| Some(one.to) == own_shard);
        routes.coming = coming.flat_map(|one| one.slots.iter().copied()).collect();
        routes.switches = !routes.coming.is_empty();
        for range in switching.filter(|one| Some(one.from) == own_shard).flat_map(|one| &one.slots) {
            for code in &mut routes.slots[usize::from(range.first)..=usize::from(range.last)] {
                *code = if *code == OWN { HELD } else { *code };
                routes.switches |= *code == HELD;
            }
        }
        routes.masters = with_masters.into_iter().map(|(_, master)| master.clone()).collect();
        for (slot, _) in routes.slots.iter().enumerate().filter(|(_, code)| **code == OWN) {
            routes.own_slots[slot / WORD_BITS] |= 1 << (slot % WORD_BITS);
        }
        routes
    }

    /// Where the requests of a slot go.
    #[inline]
    #[must_use]
    pub fn of(&self, slot: u16) -> Route<'_> {
        match self.slots.get(usize::from(slot)).copied() {
            Some(OWN) => Route::Own,
            Some(HELD) => Route::Held,
            Some(index) => self.masters.get(usize::from(index)).map_or(Route::Nobody, Route::Master),
            None => Route::Nobody,
        }
    }

    /// Whether a slot is of the server's own shard, and its requests need not wait.
    #[inline]
    #[must_use]
    pub fn is_own(&self, slot: u16) -> bool {
        let (word, bit) = (usize::from(slot) / WORD_BITS, usize::from(slot) % WORD_BITS);
        self.own_slots.get(word).is_some_and(|word| word & (1 << bit) != 0)
    }

    /// Whether a slot is of the server's own shard, whatever is about to become of it.
    #[must_use]
    pub fn has(&self, slot: u16) -> bool {
        matches!(self.of(slot), Route::Own | Route::Held)
    }

    /// Whether slots are about to come to the server's own shard, or to leave it.
    #[inline]
    #[must_use]
    pub fn are_switching(&self) -> bool {
        self.switches
    }

    /// Whether a slot is another shard's, and about to be the own one's: its master there answers nobody before it has been decided whose it is.
    #[must_use]
    pub fn is_coming(&self, slot: u16) -> bool {
        self.coming.iter().any(|range| range.contains(slot))
    }

    /// The slots that are about to come to the server's own shard.
    #[must_use]
    pub fn coming(&self) -> &[SlotRange] {
        &self.coming
    }

    /// The server's own place.
    #[must_use]
    pub fn own(&self) -> Option<Place> {
        self.own
    }

    /// How many slots somebody serves.
    #[must_use]
    pub fn served(&self) -> usize {
        self.served
    }

    /// Whether each slot is served by somebody.
    #[must_use]
    pub fn are_whole(&self) -> bool {
        self.served == SLOTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples::{id, three_shards};
    use crate::moves::Move;

    #[test]
    fn a_slot_is_ones_own_or_its_masters() {
        let topology = three_shards();
        for own in [1, 2] {
            let routes = Routes::new(&topology, Some(id(own)));
            assert_eq!(routes.own().map(|place| place.shard), Some(ShardId(0)));
            assert_eq!((routes.of(0), routes.is_own(0)), (Route::Own, true));
            assert!(matches!(routes.of(6000), Route::Master(server) if server.id == id(3)));
            assert!(!routes.is_own(6000));
            // The third shard has not begun.
            assert_eq!((routes.of(16_383), routes.of(16_384)), (Route::Nobody, Route::Nobody));
            assert!(!routes.are_whole());
        }
    }

    #[test]
    fn slots_that_switch_are_held_by_the_shard_that_has_them() {
        let mut topology = three_shards();
        let switching = |from, to, slot| Move {
            id: 1,
            from: ShardId(from),
            to: ShardId(to),
            attempt: 1,
            stage: Stage::Switching,
            slots: vec![SlotRange { first: slot, last: slot + 1 }],
        };
        topology.moves.insert(1, switching(0, 1, 7));
        let routes = Routes::new(&topology, Some(id(1)));
        assert_eq!((routes.of(7), routes.is_own(7), routes.has(7)), (Route::Held, false, true));
        assert_eq!((routes.of(9), routes.is_own(9), routes.has(9)), (Route::Own, true, true));
        assert!(routes.are_switching());
        assert!(routes.served() > 10_000, "they are served");
        // Who gets them does not have them yet, and what one does not have one cannot hold.
        let other = Routes::new(&topology, Some(id(3)));
        assert!(matches!(other.of(7), Route::Master(_)) && other.are_switching());
        let coming = |slots: [u16; 4]| slots.map(|slot| other.is_coming(slot));
        assert_eq!(coming([6, 7, 8, 9]), [false, true, true, false]);
        assert!(routes.coming().is_empty());
        topology.moves.insert(1, switching(0, 1, 6000));
        assert!(!Routes::new(&topology, Some(id(1))).are_switching());
        topology.moves.insert(1, Move { stage: Stage::Copying, ..switching(0, 1, 7) });
        assert!(!Routes::new(&topology, Some(id(1))).are_switching());
    }

    #[test]
    fn who_has_no_place_owns_nothing() {
        let mut topology = three_shards();
        if let Some(shard) = topology.shards.get_mut(&ShardId(2)) {
            shard.master = Some(1);
        }
        for own in [None, Some(id(9)), Some(id(77))] {
            let routes = Routes::new(&topology, own);
            assert_eq!(routes.own(), None);
            assert!(routes.are_whole());
            assert!((0..16_384).all(|slot| matches!(routes.of(slot), Route::Master(_))));
        }
        let none = Routes::default();
        assert_eq!((none.of(0), none.served()), (Route::Nobody, 0));
    }

    #[test]
    fn a_master_that_is_gone_serves_nothing() {
        let mut topology = three_shards();
        topology.servers.remove(&id(3));
        let routes = Routes::new(&topology, Some(id(1)));
        assert_eq!((routes.of(6000), routes.of(0)), (Route::Nobody, Route::Own));
    }
}
