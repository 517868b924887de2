//! Slots that move without anybody's order where one shard has much more than the others, or much less (`auto-rebalance`).
//!
//! So that nothing goes to and fro:
//! 1. It goes by averages of a minute, in which no slot was on its way, some time after the last move. A shard has to be off the mean by more than a threshold; then slots move
//!    until all are near the mean.
//! 2. A step is a few moves of so many slots at most, and the next is thought of when they are over.
//! 3. What a slot holds is not known, so that a step may bring nothing. After one that did, or that took slots from a shard which had got some, it rests twice as long as
//!    the time before, up to a day. That is forgotten when all were well for a day.
//!
//! What it knows lies in the leader's memory: another leader begins to look anew.

use super::moves::{Shift, begin, is_unfinished};
use super::plan::Draft;
use super::rebalance::{self, Load, Measure};
use super::{Control, Policy};
use replication::insync::Moment;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use topology::{ShardId, SlotMap, SlotRange};

/// How long after the last move what is measured has come to rest: what was moved is cleared away a little at a time.
const REST: Duration = Duration::from_secs(30);
/// The longest rest.
const REST_MAX: Duration = Duration::from_secs(24 * 3600);
/// Over how long it is averaged.
const WINDOW: Duration = Duration::from_secs(60);
/// How often masters say what they have.
const SAMPLE: Duration = Duration::from_secs(1);
/// Moves of a step at most,
const MOVES_MAX: usize = 8;
/// and slots, in all of them: an eighth of all.
const SLOTS_MAX: usize = 2048;
/// Of what a step was to bring, so much has to come.
const GAIN_MIN: f64 = 0.25;

/// What is known of how well shards are balanced.
#[derive(Debug, Default)]
pub struct Balance {
    /// Since when no slot is on its way.
    quiet_since: Option<Moment>,
    window: Option<Window>,
    last: Option<Step>,
    /// How often in a row it was in vain: so often the rest is doubled.
    in_vain: u32,
    /// Shards that have got slots in a step.
    receivers: BTreeSet<ShardId>,
    /// Since when all are well.
    well_since: Option<Moment>,
}

/// What there is to look at.
pub struct Seen<'s> {
    /// What shards are to have the same of.
    pub by: Measure,
    /// By how many percent of the mean one may be off.
    pub threshold: u32,
    /// What each has; None: one has not said it.
    pub loads: Option<Vec<Load>>,
    /// Who has which slots.
    pub slots: &'s SlotMap,
    /// The number of the last move that ever was.
    pub last_move: u64,
}

/// What was said in some time.
#[derive(Debug)]
struct Window {
    by: Measure,
    from: Moment,
    sums: BTreeMap<ShardId, u64>,
    samples: u64,
    sampled_at: Option<Moment>,
}

/// What is to come of moves.
#[derive(Debug)]
struct Step {
    by: Measure,
    /// The last move before them.
    last_move: u64,
    /// Which part of everything was too much where it was,
    excess: f64,
    /// and which part goes elsewhere.
    expected: f64,
    /// Whether it takes slots from a shard that had got some.
    is_back: bool,
}

impl Balance {
    /// Slots are on their way, or nobody may move any.
    fn wait(&mut self) {
        (self.quiet_since, self.window) = (None, None);
    }

    /// Looks at how it is now. What is to move, and why: nothing, mostly.
    pub fn look(&mut self, seen: Seen<'_>, now: Moment) -> Option<(Vec<Shift>, String)> {
        let quiet_since = *self.quiet_since.get_or_insert(now);
        if now.since(quiet_since) < self.rest() {
            self.window = None;
            return None;
        }
        let loads = self.averages(&seen, now)?;
        let spread = Spread::of(&loads, seen.by);
        self.judge(&seen, spread.excess);
        let Some((shard, percent)) = spread.off(seen.threshold) else {
            self.is_well(now);
            return None;
        };
        self.well_since = None;
        // It may have been in vain.
        if now.since(quiet_since) < self.rest() {
            return None;
        }
        let shifts = bounded(rebalance::shifts(&loads, seen.slots, &[], seen.by));
        if shifts.is_empty() {
            return None;
        }
        let is_back =
            shifts.iter().any(|shift| shift.from.is_some_and(|from| self.receivers.contains(&from)));
        self.receivers.extend(shifts.iter().map(|shift| shift.to));
        let expected = spread.expected(&shifts, &loads, seen.slots);
        let (by, last_move, excess) = (seen.by, seen.last_move, spread.excess);
        self.last = Some(Step { by, last_move, excess, expected, is_back });
        self.wait();
        let count: usize = shifts.iter().map(count).sum();
        let told = format!(
            "{count} slots move by themselves (auto-rebalance): shard {shard} has {percent} % of the mean of {}",
            by.name()
        );
        Some((shifts, told))
    }

    fn rest(&self) -> Duration {
        REST.saturating_mul(2_u32.saturating_pow(self.in_vain)).min(REST_MAX)
    }

    /// What each shard has had on average, if that was looked at for long enough.
    fn averages(&mut self, seen: &Seen<'_>, now: Moment) -> Option<Vec<Load>> {
        let Some(loads) = seen.loads.as_ref() else {
            // What was said before a master was away says nothing of the minute in which it came back.
            self.window = None;
            return None;
        };
        let is_of_these = |window: &Window| {
            window.by == seen.by && window.sums.keys().copied().eq(loads.iter().map(|load| load.shard))
        };
        if !self.window.as_ref().is_some_and(is_of_these) {
            let sums = loads.iter().map(|load| (load.shard, 0)).collect();
            self.window = Some(Window { by: seen.by, from: now, sums, samples: 0, sampled_at: None });
        }
        let window = self.window.as_mut()?;
        if window.sampled_at.is_none_or(|at| now.since(at) >= SAMPLE) {
            window.sampled_at = Some(now);
            window.samples += 1;
            for load in loads {
                let sum = window.sums.entry(load.shard).or_default();
                *sum = sum.saturating_add(load.amount);
            }
        }
        if now.since(window.from) < WINDOW {
            return None;
        }
        let window = self.window.take()?;
        let average = |(shard, sum)| Load { shard, amount: sum / window.samples.max(1) };
        Some(window.sums.into_iter().map(average).collect())
    }

    /// Whether the last step has brought what it was to bring.
    fn judge(&mut self, seen: &Seen<'_>, excess: f64) {
        let Some(step) = self.last.take() else { return };
        // It may not have been written down, or be of something else.
        if step.by != seen.by || seen.last_move <= step.last_move {
            return;
        }
        match step.is_back || step.excess - excess < step.expected * GAIN_MIN {
            true => self.in_vain = self.in_vain.saturating_add(1),
            false => self.in_vain = self.in_vain.saturating_sub(1),
        }
    }

    fn is_well(&mut self, now: Moment) {
        let since = *self.well_since.get_or_insert(now);
        if now.since(since) >= REST_MAX {
            self.in_vain = 0;
            self.receivers.clear();
        }
    }
}

/// How far shards are apart.
struct Spread {
    mean: f64,
    total: f64,
    /// The part of everything that is too much where it is.
    excess: f64,
    most: Option<Load>,
    least: Option<Load>,
    /// What is too little to move slots for.
    trifle: f64,
}

impl Spread {
    fn of(loads: &[Load], by: Measure) -> Spread {
        let total = loads.iter().map(|load| load.amount as f64).sum::<f64>();
        let mean = total / loads.len().max(1) as f64;
        let excess = loads.iter().map(|load| (load.amount as f64 - mean).max(0.0)).sum::<f64>();
        let trifle = match by {
            Measure::Slots => 2.0,
            Measure::Keys => 1000.0,
            // Buffers, and what every process needs.
            Measure::Bytes => (64 << 20) as f64,
            Measure::Ops => 200.0,
        };
        Spread {
            mean,
            total,
            excess: if total > 0.0 { excess / total } else { 0.0 },
            most: loads.iter().max_by_key(|load| load.amount).copied(),
            least: loads.iter().min_by_key(|load| load.amount).copied(),
            trifle,
        }
    }

    /// A shard that is off the mean by more than so many percent of it, and how many percent of the mean it has.
    fn off(&self, threshold: u32) -> Option<(ShardId, u64)> {
        let bound = (self.mean * f64::from(threshold) / 100.0).max(self.trifle);
        let is_off = |load: &Load| (load.amount as f64 - self.mean).abs() > bound;
        let load = self.most.filter(is_off).or(self.least.filter(is_off))?;
        Some((load.shard, (load.amount as f64 / self.mean * 100.0).round() as u64))
    }

    /// Which part of everything these slots are, if each is as much as any other of its shard.
    fn expected(&self, shifts: &[Shift], loads: &[Load], slots: &SlotMap) -> f64 {
        let part = |shift: &Shift| {
            let load = loads.iter().find(|load| Some(load.shard) == shift.from);
            load.map_or(0.0, |load| {
                load.amount as f64 * count(shift) as f64 / slots.count_of(load.shard).max(1) as f64
            })
        };
        shifts.iter().map(part).sum::<f64>() / self.total.max(1.0)
    }
}

fn count(shift: &Shift) -> usize {
    shift.slots.iter().map(|range| range.len()).sum()
}

/// The largest of them, as many as one step may have.
fn bounded(mut shifts: Vec<Shift>) -> Vec<Shift> {
    shifts.sort_by_key(|shift| Reverse(count(shift)));
    shifts.truncate(MOVES_MAX);
    let mut left = SLOTS_MAX;
    for shift in &mut shifts {
        let slots = shift.slots.iter().flat_map(|range: &SlotRange| range.slots());
        let taken: Vec<u16> = slots.take(left).collect();
        left -= taken.len();
        shift.slots = rebalance::ranges(&taken);
    }
    shifts.retain(|shift| !shift.slots.is_empty());
    shifts
}

impl Control {
    /// Has slots move where shards have much more than others, if that is wanted and nothing else moves.
    pub(super) fn plan_balance(&mut self, draft: &mut Draft, now: Moment) {
        let view = &draft.after;
        let Some((by, policy)) =
            view.policy.and_then(|policy: Policy| Some((policy.auto_rebalance?, policy)))
        else {
            self.balance = Balance::default();
            return;
        };
        let spoilt = view.why_no_move().or_else(|| view.why_senseless("shards/"));
        let is_moving = view.moves.values().any(is_unfinished);
        let has_begun = view.begun().count() == view.shards.len();
        if is_moving || spoilt.is_some() || !has_begun || view.slots.count() != wire::SLOTS || draft.is_full()
        {
            return self.balance.wait();
        }
        let lives = view.begun().all(|shard| self.has_living_master(view, shard, now));
        let loads = self.loads(view, by, now).ok().filter(|_| lives);
        let seen = Seen {
            by,
            threshold: policy.rebalance_threshold,
            loads,
            slots: &view.slots,
            last_move: view.last_move,
        };
        if let Some((shifts, told)) = self.balance.look(seen, now) {
            draft.then.notes.push(told);
            // What there was no room for is seen to in another step.
            drop(begin(draft, shifts, BTreeSet::new()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600;
    /// How many seconds pass between two looks.
    const LOOKING: u64 = 5;
    /// Loads do not change.
    const NEVER: u64 = u64::MAX;

    /// Shards whose slots hold something, and move at once.
    struct Model {
        shards: u16,
        slots: SlotMap,
        balance: Balance,
        last_move: u64,
        second: u64,
        by: Measure,
        /// Moves come to nothing.
        fails: bool,
    }

    impl Model {
        fn new(shards: u16, with_slots: u16, by: Measure) -> Model {
            let slots = SlotMap::even(&(0..with_slots).map(ShardId).collect::<Vec<_>>());
            let balance = Balance::default();
            Model { shards, slots, balance, last_move: 0, second: 0, by, fails: false }
        }

        fn loads(&self, weigh: &dyn Fn(u64, u16) -> u64) -> Vec<Load> {
            let load = |shard| {
                let slots = self.slots.ranges_of(ShardId(shard)).flat_map(|range| range.slots());
                Load { shard: ShardId(shard), amount: slots.map(|slot| weigh(self.second, slot)).sum() }
            };
            (0..self.shards).map(load).collect()
        }

        fn parts(&self, weigh: &dyn Fn(u64, u16) -> u64) -> Vec<u64> {
            self.loads(weigh).iter().map(|load| load.amount).collect()
        }

        /// For so many seconds, in which loads change so often; gives how many steps were made.
        fn run(&mut self, seconds: u64, changing: u64, weigh: &dyn Fn(u64, u16) -> u64) -> usize {
            let mut steps = 0;
            let mut loads = self.loads(weigh);
            for _ in 0..seconds / LOOKING {
                self.second += LOOKING;
                if self.second.is_multiple_of(changing) {
                    loads = self.loads(weigh);
                }
                let seen = Seen {
                    by: self.by,
                    threshold: 25,
                    loads: Some(loads.clone()),
                    slots: &self.slots,
                    last_move: self.last_move,
                };
                let now = Moment(self.second * 1_000_000);
                let Some((shifts, _)) = self.balance.look(seen, now) else { continue };
                steps += 1;
                assert!(shifts.len() <= MOVES_MAX && shifts.iter().map(count).sum::<usize>() <= SLOTS_MAX);
                for shift in shifts {
                    self.last_move += 1;
                    let moved = shift.slots.iter().flat_map(|range| range.slots());
                    for slot in moved.filter(|_| !self.fails) {
                        assert_eq!(self.slots.owner(slot), shift.from);
                        self.slots.set(slot, Some(shift.to));
                    }
                }
                loads = self.loads(weigh);
            }
            steps
        }
    }

    #[test]
    fn what_is_nearly_even_stays() {
        let mut model = Model::new(3, 3, Measure::Keys);
        // Shard 0 has a fifth more than the mean.
        assert_eq!(model.run(3600, NEVER, &|_, slot| if slot < 5462 { 130 } else { 100 }), 0);
        // And where there is hardly anything nobody cares.
        assert_eq!(model.run(3600, NEVER, &|_, slot| u64::from(slot % 50 == 0 && slot < 5462)), 0);
    }

    #[test]
    fn a_new_shard_gets_its_part_in_some_steps_and_then_all_rest() {
        for by in [Measure::Slots, Measure::Keys] {
            let mut model = Model::new(4, 3, by);
            let weight = if by == Measure::Slots { 1 } else { 1000 };
            let weigh = &move |_: u64, _: u16| weight;
            let steps = model.run(3600, NEVER, weigh);
            assert!((2..=3).contains(&steps), "{by:?}: {steps}");
            let parts = model.parts(weigh);
            let (least, most) = (parts.iter().min().unwrap(), parts.iter().max().unwrap());
            assert!(*most as f64 / (*least as f64) < 1.25, "{by:?}: {parts:?}");
            assert_eq!(model.run(DAY, NEVER, weigh), 0, "{by:?}");
        }
    }

    #[test]
    fn slots_that_hold_much_are_found_in_the_end() {
        let mut model = Model::new(3, 3, Measure::Keys);
        let weigh = |_: u64, slot: u16| if slot < 1000 { 1000 } else { 10 };
        let steps = model.run(DAY, NEVER, &weigh);
        assert!((3..20).contains(&steps), "{steps}");
        let parts = model.parts(&weigh);
        let mean = parts.iter().sum::<u64>() as f64 / 3.0;
        assert!(parts.iter().all(|part| (*part as f64 - mean).abs() < 0.25 * mean), "{parts:?}");
    }

    #[test]
    fn what_nothing_helps_against_is_tried_ever_more_seldom() {
        // One slot has it all: wherever it goes, that shard has too much.
        let mut model = Model::new(2, 2, Measure::Ops);
        let steps = model.run(7 * DAY, NEVER, &|_, slot| if slot == 5 { 100_000 } else { 0 });
        assert!(steps < 25, "{steps}");
        // Moves that fail.
        let mut model = Model { fails: true, ..Model::new(2, 1, Measure::Keys) };
        let steps = model.run(7 * DAY, NEVER, &|_, _| 1000);
        assert!((10..25).contains(&steps), "{steps}");
    }

    #[test]
    fn slots_do_not_follow_a_load_that_goes_to_and_fro() {
        // A quarter of an hour here, a quarter of an hour there.
        let mut model = Model::new(2, 2, Measure::Ops);
        let weigh = |second: u64, slot: u16| match (second / 900).is_multiple_of(2) == (slot < 8192) {
            true => 10,
            false => 1,
        };
        let steps = model.run(7 * DAY, 900, &weigh);
        assert!(steps < 60, "{steps}");
        // In a minute it is the same on average.
        let mut model = Model::new(2, 2, Measure::Ops);
        let weigh = |second: u64, slot: u16| match (second / 10).is_multiple_of(2) == (slot < 8192) {
            true => 10,
            false => 1,
        };
        assert_eq!(model.run(2 * 3600, 10, &weigh), 0);
    }

    #[test]
    fn nothing_is_done_by_what_one_shard_has_not_said() {
        let mut balance = Balance::default();
        let slots = SlotMap::even(&[ShardId(0)]);
        let mut look = |second: u64, loads: Option<Vec<Load>>| {
            let seen = Seen { by: Measure::Keys, threshold: 25, loads, slots: &slots, last_move: 0 };
            balance.look(seen, Moment(second * 1_000_000)).is_some()
        };
        assert!((0..1000).all(|second| !look(second, None)));
        let loads = |shards: u16| {
            let load = |shard| Load { shard: ShardId(shard), amount: if shard == 0 { 100_000 } else { 0 } };
            Some((0..shards).map(load).collect())
        };
        // What is averaged is of the same shards.
        assert!((1000..2000).all(|second| !look(second, loads(2 + (second / 50 % 2) as u16))));
        assert!((2000..2100).any(|second| look(second, loads(2))));
    }
}
