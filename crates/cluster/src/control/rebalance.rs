//! Which slots go where, so that all shards have their part.
//!
//! What a slot holds is not known, only what a shard holds: each of its slots counts for the same part of it.

use super::moves::Shift;
use std::collections::BTreeMap;
use topology::{Move, ShardId, SlotMap, SlotRange};

/// What shards are to have the same of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Slots.
    Slots,
    /// Keys.
    Keys,
    /// Memory.
    Bytes,
    /// Requests in a second.
    Ops,
}

impl Measure {
    /// Its name, which is also that of the figure that masters say.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Measure::Slots => "slots",
            Measure::Keys => "keys",
            Measure::Bytes => "bytes",
            Measure::Ops => "ops",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Measure> {
        [Measure::Slots, Measure::Keys, Measure::Bytes, Measure::Ops]
            .into_iter()
            .find(|measure| measure.name() == name)
    }
}

/// How much a shard has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Which.
    pub shard: ShardId,
    /// Of what is measured.
    pub amount: u64,
}

/// By how much of the mean a shard may be off, if it is not slots that are counted: what is measured changes all the time, and moves are not for nothing.
const TOLERANCE: f64 = 0.02;

/// A shard, and what it is to have.
struct Part {
    shard: ShardId,
    /// With all moves done.
    amount: f64,
    /// How much one of its slots counts.
    of_a_slot: f64,
    /// Slots that it has and that are on no way.
    free: Vec<u16>,
}

/// What is to go where, on top of the moves that are not finished.
#[must_use]
pub fn shifts(loads: &[Load], slots: &SlotMap, moves: &[&Move], by: Measure) -> Vec<Shift> {
    let mut parts: Vec<Part> = loads
        .iter()
        .map(|load| {
            let own: Vec<u16> = slots.ranges_of(load.shard).flat_map(|range| range.slots()).collect();
            let amount = load.amount as f64;
            let of_a_slot = if own.is_empty() { 0.0 } else { amount / own.len() as f64 };
            let stays = |slot: &u16| !moves.iter().any(|one| one.contains(*slot));
            Part { shard: load.shard, amount, of_a_slot, free: own.into_iter().filter(stays).collect() }
        })
        .collect();
    for one in moves {
        let find = |shard| parts.iter().position(|part| part.shard == shard);
        if let (Some(from), Some(to)) = (find(one.from), find(one.to)) {
            let amount = one.count() as f64 * parts[from].of_a_slot;
            parts[from].amount -= amount;
            parts[to].amount += amount;
        }
    }
    let counts = counts(&mut parts, by);
    counts
        .into_iter()
        .map(|((from, to), count)| {
            let free = &mut parts[from].free;
            // From the highest on, so that ranges stay long.
            let taken = free.split_off(free.len() - count);
            Shift { from: Some(parts[from].shard), to: parts[to].shard, slots: ranges(&taken) }
        })
        .collect()
}

/// Where the slots of a shard go that is to have none: to those of the others that have the fewest, with all moves done.
#[must_use]
pub fn emptied(shard: ShardId, others: &[ShardId], slots: &SlotMap, moves: &[&Move]) -> Vec<Shift> {
    let own = slots.ranges_of(shard).flat_map(|range| range.slots());
    let free: Vec<u16> = own.filter(|slot| !moves.iter().any(|one| one.contains(*slot))).collect();
    let moved = |is_meant: &dyn Fn(&Move) -> bool| -> usize {
        moves.iter().filter(|one| is_meant(one)).map(|one| one.count()).sum()
    };
    let will_have = |other: ShardId| {
        slots.count_of(other) + moved(&|one| one.to == other) - moved(&|one| one.from == other)
    };
    let mut counts: BTreeMap<ShardId, (usize, usize)> =
        others.iter().map(|other| (*other, (will_have(*other), 0))).collect();
    for _ in &free {
        if let Some((all, more)) = counts.values_mut().min_by_key(|(all, _)| *all) {
            (*all, *more) = (*all + 1, *more + 1);
        }
    }
    let mut left = free.as_slice();
    let shift = |(to, (_, more)): (ShardId, (usize, usize))| {
        let (taken, rest) = left.split_at(more);
        left = rest;
        Shift { from: Some(shard), to, slots: ranges(taken) }
    };
    counts.into_iter().map(shift).filter(|shift| !shift.slots.is_empty()).collect()
}

/// How many slots go from which part to which.
fn counts(parts: &mut [Part], by: Measure) -> BTreeMap<(usize, usize), usize> {
    let mut counts = BTreeMap::new();
    let mut left: Vec<usize> = parts.iter().map(|part| part.free.len()).collect();
    let mean = parts.iter().map(|part| part.amount).sum::<f64>() / parts.len().max(1) as f64;
    let slack = if by == Measure::Slots { 0.0 } else { TOLERANCE * mean };
    loop {
        let amount = |at: &usize| parts[*at].amount;
        let givers = (0..parts.len()).filter(|at| left[*at] > 0);
        let Some(from) = givers.max_by(|a, b| amount(a).total_cmp(&amount(b))) else { return counts };
        let Some(to) = (0..parts.len()).min_by(|a, b| amount(a).total_cmp(&amount(b))) else { return counts };
        let (most, least, slot) = (parts[from].amount, parts[to].amount, parts[from].of_a_slot);
        let is_even = most - mean <= slack && mean - least <= slack;
        // What would only change places stays.
        if from == to || slot <= 0.0 || is_even || most - least <= slot * 1.001 {
            return counts;
        }
        parts[from].amount -= slot;
        parts[to].amount += slot;
        left[from] -= 1;
        *counts.entry((from, to)).or_default() += 1;
    }
}

/// As few ranges as there can be, of slots from the lowest on.
#[must_use]
pub fn ranges(slots: &[u16]) -> Vec<SlotRange> {
    let mut ranges: Vec<SlotRange> = Vec::new();
    for slot in slots {
        match ranges.last_mut() {
            Some(range) if range.last + 1 == *slot => range.last = *slot,
            _ => ranges.push(SlotRange { first: *slot, last: *slot }),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::Stage;

    fn loads(amounts: &[u64]) -> Vec<Load> {
        let load = |(shard, amount): (usize, &u64)| Load { shard: ShardId(shard as u16), amount: *amount };
        amounts.iter().enumerate().map(load).collect()
    }

    fn by_slots(slots: &SlotMap, shards: u16) -> Vec<Load> {
        let amounts: Vec<u64> = (0..shards).map(|shard| slots.count_of(ShardId(shard)) as u64).collect();
        loads(&amounts)
    }

    fn done(slots: &SlotMap, shifts: &[Shift]) -> SlotMap {
        let mut slots = slots.clone();
        for shift in shifts {
            for slot in shift.slots.iter().flat_map(|range| range.slots()) {
                assert_eq!(slots.owner(slot), shift.from, "slot {slot}");
                slots.set(slot, Some(shift.to));
            }
        }
        slots
    }

    #[test]
    fn a_new_shard_gets_its_part_and_no_slot_goes_for_nothing() {
        for old in [1, 2, 3, 7, 99] {
            let slots = SlotMap::even(&(0..old).map(ShardId).collect::<Vec<_>>());
            for new in [0, 1, 2] {
                let shifts = shifts(&by_slots(&slots, old + new), &slots, &[], Measure::Slots);
                let after = done(&slots, &shifts);
                let parts: Vec<usize> = (0..old + new).map(|shard| after.count_of(ShardId(shard))).collect();
                let (least, most) = (parts.iter().min().unwrap(), parts.iter().max().unwrap());
                assert!(most - least <= 1, "{old} and {new}: {parts:?}");
                let moved: usize =
                    shifts.iter().flat_map(|shift| &shift.slots).map(|range| range.len()).sum();
                assert!(moved <= 16_384 * usize::from(new) / usize::from(old + new) + 1, "{moved}");
                assert!(shifts.iter().all(|shift| shift.to.0 >= old && shift.slots.len() <= 2));
            }
        }
    }

    #[test]
    fn what_is_on_its_way_counts_where_it_goes() {
        let slots = SlotMap::even(&[ShardId(0)]);
        let all = shifts(&by_slots(&slots, 2), &slots, &[], Measure::Slots);
        let [shift] = all.as_slice() else { panic!("{all:?}") };
        let Shift { from, to, slots: moving } = shift.clone();
        let from = from.expect("it is said");
        let mut one = Move { id: 1, from, to, attempt: 1, stage: Stage::Copying, slots: moving };
        assert_eq!(shifts(&by_slots(&slots, 2), &slots, &[&one], Measure::Slots), []);
        one.slots = vec![SlotRange { first: 0, last: 8000 }];
        let rest = shifts(&by_slots(&slots, 2), &slots, &[&one], Measure::Slots);
        assert_eq!(rest.iter().flat_map(|shift| &shift.slots).map(|range| range.len()).sum::<usize>(), 191);
        assert!(rest.iter().flat_map(|shift| &shift.slots).all(|range| range.first > 8000));
    }

    #[test]
    fn a_shard_that_is_to_go_leaves_all_to_those_with_least() {
        let slots = SlotMap::even(&[ShardId(0), ShardId(1), ShardId(2)]);
        let others = [ShardId(0), ShardId(2), ShardId(3)];
        let all = emptied(ShardId(1), &others, &slots, &[]);
        let after = done(&slots, &all);
        assert_eq!((after.count_of(ShardId(1)), after.count_of(ShardId(3))), (0, 5461));
        assert_eq!(after.count(), 16_384);
        let own = slots.ranges_of(ShardId(1)).collect::<Vec<_>>();
        let half = vec![SlotRange { first: own[0].first, last: own[0].first + 999 }];
        let one =
            Move { id: 1, from: ShardId(1), to: ShardId(0), attempt: 1, stage: Stage::Copying, slots: half };
        let rest = emptied(ShardId(1), &others[..2], &slots, &[&one]);
        let count = |to: u16| -> usize {
            let to = rest.iter().filter(|shift| shift.to == ShardId(to));
            to.flat_map(|shift| &shift.slots).map(|range| range.len()).sum()
        };
        assert_eq!(count(0) + count(2), slots.count_of(ShardId(1)) - 1000);
        assert!((count(0) + 1000).abs_diff(count(2)) <= 1, "{rest:?}");
    }

    #[test]
    fn who_has_more_gives_to_who_has_less() {
        let slots = SlotMap::even(&[ShardId(0), ShardId(1), ShardId(2)]);
        let shifts_of = |amounts: &[u64]| shifts(&loads(amounts), &slots, &[], Measure::Keys);
        assert_eq!(shifts_of(&[0, 0, 0]), []);
        assert_eq!(shifts_of(&[100_000, 100_500, 99_500]), []);
        let all = shifts_of(&[600_000, 200_000, 100_000]);
        let count = |to: u16| -> usize {
            let to = all.iter().filter(|shift| shift.to == ShardId(to));
            to.flat_map(|shift| &shift.slots).map(|range| range.len()).sum()
        };
        assert!(all.iter().all(|shift| shift.from == Some(ShardId(0))), "{all:?}");
        // 600,000 keys in 5462 slots: two of the six parts go to the last one, one to the other.
        assert!((1700..=1830).contains(&count(2)) && (800..=911).contains(&count(1)), "{all:?}");
        done(&slots, &all);
        // One slot that has everything helps nobody elsewhere.
        let mut one = SlotMap::default();
        one.set(5, Some(ShardId(0)));
        assert_eq!(shifts(&loads(&[1000, 0]), &one, &[], Measure::Ops), []);
    }
}
