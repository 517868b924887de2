//! Slots that come to this server's shard from another: which attempt of which move may bring them.
//!
//! What they hold is there before they are this shard's; nobody sees it ([`keyspace::Keyspace::hide`]), and whoever clears slots that are another's leaves it alone.
//!
//! A backup that is restored comes in the same way ([`RESTORE`]), as long as no slot is anybody's.
//!
//! Thread rule: any thread; the lock is held for a moment, and slots may be locked while it is.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use topology::{SlotRange, Topology};

/// By what a backup that is restored goes in the place of a move.
pub const RESTORE: u64 = u64::MAX;

/// One attempt of a move that was let in.
#[derive(Debug)]
struct Arrival {
    attempt: u32,
    slots: Vec<SlotRange>,
    /// Of whom it was let in last.
    token: u64,
    /// [`keyspace::Keyspace::upheavals`] then: what has come is not whole any more if databases were emptied since.
    upheavals: u64,
}

/// All of them.
#[derive(Default)]
pub struct Arrivals {
    known: Mutex<Known>,
}

/// What is known of arrivals, by the number of the move.
#[derive(Default)]
pub struct Known {
    all: BTreeMap<u64, Arrival>,
    tokens: u64,
    /// The highest number of a restore that was heard of.
    restore: u64,
}

impl Arrivals {
    /// What is known, which stays so as long as it is held.
    pub fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }
}

impl Known {
    /// Lets somebody bring what a move is to bring. Who was let in before for the same move is not any more. Gives by what it is known.
    pub fn let_in(&mut self, id: u64, attempt: u32, slots: Vec<SlotRange>, upheavals: u64) -> u64 {
        self.tokens += 1;
        self.all.insert(id, Arrival { attempt, slots, token: self.tokens, upheavals });
        self.tokens
    }

    /// Has nobody bring anything of a backup who began before this restore. False: another one has begun since.
    pub fn begin_restore(&mut self, number: u64) -> bool {
        self.all.remove(&RESTORE);
        let is_latest = number >= self.restore;
        self.restore = self.restore.max(number);
        is_latest
    }

    /// Lets somebody bring all slots in a restore, unless another one has begun since.
    pub fn let_in_restore(&mut self, number: u64, upheavals: u64) -> Option<u64> {
        let slots = vec![SlotRange { first: 0, last: wire::SLOTS as u16 - 1 }];
        (number == self.restore).then(|| self.let_in(RESTORE, 0, slots, upheavals))
    }

    /// The slots that who is known by this may bring in a move; None: he may not go on.
    #[must_use]
    pub fn slots_of(&self, id: u64, token: u64, upheavals: u64) -> Option<&[SlotRange]> {
        let arrival = self.all.get(&id)?;
        (arrival.token == token && arrival.upheavals == upheavals).then_some(&arrival.slots)
    }

    /// Has nobody bring what a move is to bring.
    pub fn forget(&mut self, id: u64) {
        self.all.remove(&id);
    }

    /// Whether an attempt of a move was let in.
    #[must_use]
    pub fn has(&self, id: u64, attempt: u32) -> bool {
        self.all.get(&id).is_some_and(|arrival| arrival.attempt == attempt)
    }

    /// Forgets what a topology says is over, and who began a restore before the one that it tells of: this server may not have been there then.
    pub fn follow(&mut self, topology: &Topology) {
        if topology.restore > self.restore {
            self.begin_restore(topology.restore);
        }
        let is_anybodys = topology.slots.count() != 0;
        self.all.retain(|id, arrival| {
            if *id == RESTORE {
                return !is_anybodys;
            }
            topology.moves.get(id).is_some_and(|one| one.is_under_way() && one.attempt == arrival.attempt)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::{Move, ShardId, Stage};

    #[test]
    fn a_backup_is_brought_by_the_latest_restore_as_long_as_no_slot_is_anybodys() {
        let mut known = Known::default();
        assert!(known.begin_restore(4));
        let token = known.let_in_restore(4, 0).expect("it is the latest");
        let mut topology = Topology::default();
        known.follow(&topology);
        assert!(known.slots_of(RESTORE, token, 0).is_some_and(|slots| slots[0].len() == wire::SLOTS));
        assert!(!known.begin_restore(3) && known.let_in_restore(3, 0).is_none());
        assert!(known.slots_of(RESTORE, token, 0).is_none());
        let token = known.let_in_restore(4, 0).expect("it is the latest");
        // Another has begun, of which this server was not told by who brings it.
        topology.restore = 5;
        known.follow(&topology);
        assert!(known.slots_of(RESTORE, token, 0).is_none() && !known.begin_restore(4));
        assert!(known.begin_restore(5));
        let token = known.let_in_restore(5, 0).expect("it is the latest");
        known.follow(&topology);
        assert!(known.slots_of(RESTORE, token, 0).is_some());
        topology.slots.set(7, Some(ShardId(0)));
        known.follow(&topology);
        assert!(known.slots_of(RESTORE, token, 0).is_none());
    }

    #[test]
    fn who_was_let_in_last_may_bring_the_moves_slots_until_it_is_over() {
        let arrivals = Arrivals::default();
        let slots = vec![SlotRange { first: 5, last: 9 }];
        let mut known = arrivals.lock();
        let first = known.let_in(7, 1, slots.clone(), 0);
        assert_eq!(known.slots_of(7, first, 0), Some(&slots[..]));
        assert_eq!((known.slots_of(8, first, 0), known.slots_of(7, first, 1)), (None, None));
        let second = known.let_in(7, 1, slots.clone(), 1);
        assert_eq!((known.slots_of(7, first, 0), known.slots_of(7, second, 1)), (None, Some(&slots[..])));
        assert!(known.has(7, 1) && !known.has(7, 2));
        let third = known.let_in(7, 1, slots.clone(), 1);
        let mut topology = Topology::default();
        let one = |attempt, stage| Move {
            id: 7,
            from: ShardId(0),
            to: ShardId(1),
            attempt,
            stage,
            slots: slots.clone(),
        };
        topology.moves.insert(7, one(1, Stage::Switching));
        known.follow(&topology);
        assert!(known.slots_of(7, third, 1).is_some());
        topology.moves.insert(7, one(2, Stage::Copying));
        known.follow(&topology);
        assert!(known.slots_of(7, third, 1).is_none() && !known.has(7, 1));
    }
}
