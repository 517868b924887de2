//! Consumer groups: how far a group has read, what it has delivered and to whom, and its consumers.
//!
//! An entry that was delivered and not yet acknowledged is pending: once in its group, with the moment
//! and the count of its deliveries, and once with the consumer that owns it. The entry itself may be gone
//! from the stream by then. Plain data; any thread.
//!
//! 1. An id is pending with a consumer if and only if the group says that this consumer owns it.
//! 2. A [`ConsumerId`] in the group's pending entries is that of a consumer that is there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::id::StreamId;

/// Milliseconds since 1970. What a payload holds may be any number.
pub type Moment = i64;

/// A consumer of a group, while it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerId(u32);

/// A delivery that was not acknowledged yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Who owns it.
    pub consumer: ConsumerId,
    /// When it was last delivered.
    pub delivered_at: Moment,
    /// How often it was delivered.
    pub deliveries: u64,
}

/// Someone who reads as a member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    name: Arc<[u8]>,
    /// When it last tried to read or claim.
    pub seen_at: Moment,
    /// When it last got something; none if it never did.
    pub active_at: Option<Moment>,
    pending: BTreeSet<StreamId>,
}

/// A group of consumers that share a stream's entries.
#[derive(Clone, Debug)]
pub struct Group {
    /// The last entry that was delivered.
    pub last_id: StreamId,
    /// How many entries had been added up to `last_id`; none if that is not known.
    pub entries_read: Option<i64>,
    pending: BTreeMap<StreamId, Pending>,
    /// In the order of the names' bytes.
    by_name: BTreeMap<Arc<[u8]>, ConsumerId>,
    consumers: Vec<Option<Consumer>>,
    free: Vec<ConsumerId>,
}

impl Consumer {
    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// How many entries it has not acknowledged.
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// The ids of what it has not acknowledged, from `start` on.
    pub fn pending_from(&self, start: StreamId) -> impl Iterator<Item = StreamId> + '_ {
        self.pending.range(start..).copied()
    }
}

impl Group {
    /// A group that begins behind `last_id`.
    pub fn new(last_id: StreamId, entries_read: Option<i64>) -> Group {
        Group {
            last_id,
            entries_read,
            pending: BTreeMap::new(),
            by_name: BTreeMap::new(),
            consumers: Vec::new(),
            free: Vec::new(),
        }
    }

    /// How many consumers it has.
    pub fn consumer_count(&self) -> usize {
        self.by_name.len()
    }

    /// The consumers, in the order of their names' bytes.
    pub fn consumers(&self) -> impl Iterator<Item = (ConsumerId, &Consumer)> + '_ {
        self.by_name.values().map(|id| (*id, self.consumer(*id)))
    }

    /// The consumer of this name.
    pub fn find_consumer(&self, name: &[u8]) -> Option<ConsumerId> {
        self.by_name.get(name).copied()
    }

    /// A consumer.
    ///
    /// # Panics
    /// If it was removed.
    pub fn consumer(&self, id: ConsumerId) -> &Consumer {
        self.consumers[id.0 as usize].as_ref().expect("ids of consumers are not kept beyond their removal")
    }

    /// A consumer, to be changed.
    ///
    /// # Panics
    /// If it was removed.
    pub fn consumer_mut(&mut self, id: ConsumerId) -> &mut Consumer {
        self.consumers[id.0 as usize].as_mut().expect("ids of consumers are not kept beyond their removal")
    }

    /// Makes a consumer that was seen now and never active. None: the name is taken.
    pub fn create_consumer(&mut self, name: &[u8], now: Moment) -> Option<ConsumerId> {
        if self.by_name.contains_key(name) {
            return None;
        }
        let name: Arc<[u8]> = name.into();
        let consumer =
            Consumer { name: name.clone(), seen_at: now, active_at: None, pending: BTreeSet::new() };
        let id = self.free.pop().unwrap_or_else(|| {
            self.consumers.push(None);
            ConsumerId(u32::try_from(self.consumers.len() - 1).expect("2^32 consumers do not fit in memory"))
        });
        self.consumers[id.0 as usize] = Some(consumer);
        self.by_name.insert(name, id);
        Some(id)
    }

    /// Removes a consumer with what is pending with it; tells how much that was.
    pub fn remove_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let id = self.by_name.remove(name)?;
        let consumer = self.consumers[id.0 as usize].take().expect("a name stands for a consumer");
        self.free.push(id);
        for id in &consumer.pending {
            self.pending.remove(id);
        }
        Some(consumer.pending.len())
    }

    /// How many entries are pending.
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// The lowest and the highest pending id.
    pub fn pending_edges(&self) -> Option<(StreamId, StreamId)> {
        let (first, _) = self.pending.first_key_value()?;
        let (last, _) = self.pending.last_key_value()?;
        Some((*first, *last))
    }

    /// The delivery of an entry.
    pub fn pending(&self, id: StreamId) -> Option<Pending> {
        self.pending.get(&id).copied()
    }

    /// The pending deliveries, from `start` on.
    pub fn pending_from(&self, start: StreamId) -> impl Iterator<Item = (StreamId, Pending)> + '_ {
        self.pending.range(start..).map(|(id, pending)| (*id, *pending))
    }

    /// Notes a delivery, whoever owned the entry before.
    pub fn deliver(&mut self, id: StreamId, delivery: Pending) {
        let before = self.pending.insert(id, delivery);
        match before {
            Some(before) if before.consumer == delivery.consumer => {}
            Some(before) => {
                self.consumer_mut(before.consumer).pending.remove(&id);
                self.consumer_mut(delivery.consumer).pending.insert(id);
            }
            None => {
                self.consumer_mut(delivery.consumer).pending.insert(id);
            }
        }
    }

    /// Counts another delivery of a pending entry to its owner.
    pub fn deliver_again(&mut self, id: StreamId, now: Moment) {
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.delivered_at = now;
            pending.deliveries = pending.deliveries.wrapping_add(1);
        }
    }

    /// Forgets a delivery, because it was acknowledged or the entry is gone. False: it was not pending.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        let Some(pending) = self.pending.remove(&id) else { return false };
        self.consumer_mut(pending.consumer).pending.remove(&id);
        true
    }
}

/// Bytes that a pending delivery takes in the trees of its group and of its consumer, about.
const PENDING_BYTES: usize = 96;

impl Group {
    /// Bytes of memory, estimated from at most `samples` consumers.
    pub(super) fn allocated_bytes(&self, samples: usize) -> usize {
        let names = self.by_name.keys().map(|name| 2 * size_of::<Consumer>() + name.len());
        size_of::<Group>() + self.pending.len() * PENDING_BYTES + super::estimate(names, samples)
    }

    /// How many separate allocations it has, roughly.
    pub(super) fn pieces(&self) -> usize {
        // The trees keep several in one piece.
        1 + self.by_name.len() + self.pending.len() / 3
    }
}

impl Pending {
    /// How long ago it was last delivered, in milliseconds; negative if that lies ahead.
    pub fn idle_ms(&self, now: Moment) -> i64 {
        now.saturating_sub(self.delivered_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(consumer: ConsumerId) -> Pending {
        Pending { consumer, delivered_at: 5, deliveries: 1 }
    }

    fn ids(group: &Group, consumer: ConsumerId) -> Vec<u64> {
        group.consumer(consumer).pending_from(StreamId::MIN).map(|id| id.ms).collect()
    }

    #[test]
    fn delivery_to_another_consumer_changes_the_owner() {
        let mut group = Group::new(StreamId::MIN, None);
        let first = group.create_consumer(b"b", 1).unwrap();
        let second = group.create_consumer(b"a", 1).unwrap();
        assert_eq!(group.create_consumer(b"a", 1), None);
        for ms in 1..=3 {
            group.deliver(StreamId::new(ms, 0), delivery(first));
        }
        group.deliver(StreamId::new(2, 0), delivery(second));
        assert_eq!((ids(&group, first), ids(&group, second)), (vec![1, 3], vec![2]));
        assert!(group.acknowledge(StreamId::new(3, 0)));
        assert!(!group.acknowledge(StreamId::new(3, 0)));
        assert_eq!(group.pending_edges(), Some((StreamId::new(1, 0), StreamId::new(2, 0))));
        assert_eq!(group.consumers().map(|(_, consumer)| consumer.name()).collect::<Vec<_>>(), [b"a", b"b"]);
    }

    #[test]
    fn removed_consumer_takes_its_pending_entries_along() {
        let mut group = Group::new(StreamId::MIN, None);
        let first = group.create_consumer(b"a", 1).unwrap();
        let second = group.create_consumer(b"b", 1).unwrap();
        group.deliver(StreamId::new(1, 0), delivery(first));
        group.deliver(StreamId::new(2, 0), delivery(second));
        assert_eq!(group.remove_consumer(b"a"), Some(1));
        assert_eq!((group.remove_consumer(b"a"), group.pending_count()), (None, 1));
        let third = group.create_consumer(b"c", 1).unwrap();
        assert_eq!((third, group.consumer_count()), (first, 2));
    }
}
