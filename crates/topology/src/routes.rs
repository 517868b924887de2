//! Where a slot's requests go, seen from one server: made once for a topology, then asked with every command.

use crate::ids::{ServerId, ShardId};
use crate::record::{Place, Server};
use crate::view::Topology;
use wire::SLOTS;

/// Where the requests of a slot go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// To the shard in which the server has its place.
    Own,
    /// To the master of another shard.
    Master(&'a Server),
    /// Nowhere: the slot has no owner, or one of which nobody was master yet.
    Nobody,
}

/// The routes of all slots, for one server.
#[derive(Clone, Debug)]
pub struct Routes {
    own: Option<Place>,
    /// By slot: [`OWN`], [`NOBODY`] or an index of `masters`.
    slots: Box<[u16]>,
    masters: Box<[Server]>,
    /// How many slots somebody serves.
    served: usize,
}

/// The slot is of the server's own shard.
const OWN: u16 = u16::MAX;
/// The slot is nobody's.
const NOBODY: u16 = u16::MAX - 1;

impl Default for Routes {
    fn default() -> Routes {
        Routes {
            own: None,
            slots: vec![NOBODY; SLOTS].into_boxed_slice(),
            masters: Box::default(),
            served: 0,
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
        routes.masters = with_masters.into_iter().map(|(_, master)| master.clone()).collect();
        routes
    }

    /// Where the requests of a slot go.
    #[inline]
    #[must_use]
    pub fn of(&self, slot: u16) -> Route<'_> {
        match self.slots.get(usize::from(slot)).copied() {
            Some(OWN) => Route::Own,
            Some(index) => self.masters.get(usize::from(index)).map_or(Route::Nobody, Route::Master),
            None => Route::Nobody,
        }
    }

    /// Whether a slot is of the server's own shard.
    #[inline]
    #[must_use]
    pub fn is_own(&self, slot: u16) -> bool {
        self.slots.get(usize::from(slot)) == Some(&OWN)
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
