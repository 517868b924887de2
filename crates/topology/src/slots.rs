//! Which shard has which slot.

use crate::ids::ShardId;
use wire::SLOTS;

/// Slots that follow each other, both ends among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotRange {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

impl SlotRange {
    /// How many there are.
    #[must_use]
    pub fn len(self) -> usize {
        usize::from(self.last - self.first) + 1
    }

    /// Whether a slot is among them.
    #[must_use]
    pub fn contains(self, slot: u16) -> bool {
        (self.first..=self.last).contains(&slot)
    }

    /// Each of them.
    pub fn slots(self) -> impl Iterator<Item = u16> + Clone {
        self.first..=self.last
    }

    /// Whether there are none, which is never so.
    #[must_use]
    pub fn is_empty(self) -> bool {
        false
    }
}

/// The owner of each slot.
#[derive(Clone, PartialEq, Eq)]
pub struct SlotMap {
    /// [`ShardId::END`]: nobody's.
    owners: Box<[ShardId]>,
}

impl Default for SlotMap {
    fn default() -> SlotMap {
        SlotMap { owners: vec![ShardId::END; SLOTS].into_boxed_slice() }
    }
}

impl std::fmt::Debug for SlotMap {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.ranges()).finish()
    }
}

impl SlotMap {
    /// The shard that has a slot; None: it is nobody's, or there is no such slot.
    #[must_use]
    pub fn owner(&self, slot: u16) -> Option<ShardId> {
        self.owners.get(usize::from(slot)).copied().filter(|owner| *owner != ShardId::END)
    }

    /// Gives a slot to a shard, or to nobody. A slot that there is not stays nobody's.
    pub fn set(&mut self, slot: u16, owner: Option<ShardId>) {
        if let Some(place) = self.owners.get_mut(usize::from(slot)) {
            *place = owner.unwrap_or(ShardId::END);
        }
    }

    /// The ranges of slots that have an owner, from the lowest on, each as long as it can be.
    pub fn ranges(&self) -> impl Iterator<Item = (SlotRange, ShardId)> + '_ {
        let mut next = 0;
        std::iter::from_fn(move || {
            let first = self.owners[next..].iter().position(|owner| *owner != ShardId::END)? + next;
            let owner = self.owners[first];
            let count = self.owners[first..].iter().take_while(|other| **other == owner).count();
            next = first + count;
            let number = |slot: usize| u16::try_from(slot).unwrap_or(u16::MAX);
            Some((SlotRange { first: number(first), last: number(next - 1) }, owner))
        })
    }

    /// The ranges of one shard.
    pub fn ranges_of(&self, shard: ShardId) -> impl Iterator<Item = SlotRange> + '_ {
        self.ranges().filter(move |(_, owner)| *owner == shard).map(|(range, _)| range)
    }

    /// How many slots a shard has.
    #[must_use]
    pub fn count_of(&self, shard: ShardId) -> usize {
        self.owners.iter().filter(|owner| **owner == shard).count()
    }

    /// How many slots have an owner.
    #[must_use]
    pub fn count(&self) -> usize {
        self.owners.iter().filter(|owner| **owner != ShardId::END).count()
    }

    /// All slots in even parts, in the order of the shards.
    #[must_use]
    pub fn even(shards: &[ShardId]) -> SlotMap {
        let mut map = SlotMap::default();
        for (index, owner) in map.owners.iter_mut().enumerate() {
            if let Some(shard) = shards.get(index * shards.len() / SLOTS) {
                *owner = *shard;
            }
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_as_long_as_they_can_be() {
        let mut map = SlotMap::default();
        assert_eq!(map.ranges().count(), 0);
        for slot in [0, 1, 2, 9, 16_383] {
            map.set(slot, Some(ShardId(3)));
        }
        map.set(2, Some(ShardId(4)));
        map.set(16_384, Some(ShardId(4)));
        let range = |first, last| SlotRange { first, last };
        let all: Vec<_> = map.ranges().collect();
        assert_eq!(
            all,
            [
                (range(0, 1), ShardId(3)),
                (range(2, 2), ShardId(4)),
                (range(9, 9), ShardId(3)),
                (range(16_383, 16_383), ShardId(3))
            ]
        );
        assert_eq!((map.count(), map.count_of(ShardId(3)), map.owner(2)), (5, 4, Some(ShardId(4))));
        map.set(2, None);
        assert_eq!((map.owner(2), map.owner(16_384)), (None, None));
    }

    #[test]
    fn slots_are_parted_evenly() {
        for count in [1, 2, 3, 7, 1000] {
            let shards: Vec<ShardId> = (0..count).map(ShardId).collect();
            let map = SlotMap::even(&shards);
            assert_eq!(map.count(), SLOTS);
            let parts: Vec<usize> = shards.iter().map(|shard| map.count_of(*shard)).collect();
            let (least, most) = (parts.iter().min().unwrap(), parts.iter().max().unwrap());
            assert!(most - least <= 1, "{parts:?}");
            assert_eq!(map.ranges().count(), shards.len());
        }
        assert_eq!(SlotMap::even(&[]).count(), 0);
    }
}
