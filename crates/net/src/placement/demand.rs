//! How many workers the load asks for. Pure: it is told how busy everybody was, and says how many are to be active.
//!
//! One worker that finds many requests whenever it looks takes less time for each than two that find half as many. So
//! one worker serves until it has no time left, and only where the machine has: beside clients that take all other cores, another
//! worker would only take turns with them. Where every read brings many requests anyway, two workers take no more time for each than
//! one: then another is of use beside busy clients too.
//!
//! Invariants:
//! 1. What makes it grow is far from what makes it shrink: [`FULL`] of every active worker's time against [`GATHERED`] of what would be
//!    left of them, and shrinking takes [`SHRINKS_AFTER`] samples in a row. A load that stays the same changes nothing for long.
//! 2. Each time that it shrinks and has to grow again soon, it waits twice as long before the next time.

/// The share of its time from which on a worker has none left.
pub(super) const FULL: f64 = 0.9;
/// The share of its time that a worker may have to give after others have become inactive.
const GATHERED: f64 = 0.65;
/// Cores that must have had nothing to do for another worker to be of use.
const IDLE_CORES_MIN: f64 = 0.5;
/// Requests that a read brings, on average, where the time for each does not depend on how many workers there are.
const PIPELINED: f64 = 8.0;
/// So many samples in a row must be full: one alone may be a single long command.
const GROWS_AFTER: u32 = 2;
/// So many samples in a row must leave room.
const SHRINKS_AFTER: u32 = 12;
/// The same at most, when it had to grow again each time.
const SHRINKS_AFTER_MAX: u32 = 1500;
/// Growing so many samples after it shrank is growing again.
const SOON: u32 = 100;

/// What was measured since the sample before.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// The share of its time that each worker used, without the spare one.
    pub(super) busy: Vec<f64>,
    /// How many of the machine's cores had nothing to do.
    pub(super) idle_cores: f64,
    /// How many requests each read from a client brought, on average.
    pub(super) requests_per_read: f64,
}

/// What is known of the load.
#[derive(Debug)]
pub(super) struct Demand {
    active: usize,
    full: u32,
    roomy: u32,
    shrinks_after: u32,
    since_shrunk: u32,
}

impl Demand {
    /// One worker is active.
    pub(super) fn new() -> Demand {
        Demand { active: 1, full: 0, roomy: 0, shrinks_after: SHRINKS_AFTER, since_shrunk: u32::MAX }
    }

    /// How many workers, counted from the first, are to be active now.
    pub(super) fn step(&mut self, sample: &Sample) -> usize {
        let most = sample.busy.len().max(1);
        self.since_shrunk = self.since_shrunk.saturating_add(1);
        let active = &sample.busy[..self.active.min(sample.busy.len())];
        let is_of_use = sample.idle_cores >= IDLE_CORES_MIN || sample.requests_per_read >= PIPELINED;
        let is_full = active.iter().any(|busy| *busy >= FULL) && is_of_use;
        self.full = if is_full { self.full + 1 } else { 0 };
        let total: f64 = sample.busy.iter().sum();
        let is_roomy = self.active > 1 && total < GATHERED * (self.active - 1) as f64;
        self.roomy = if is_roomy { self.roomy + 1 } else { 0 };
        if self.full >= GROWS_AFTER && self.active < most {
            self.grow(most, sample.idle_cores);
        } else if self.roomy >= self.shrinks_after {
            (self.active, self.roomy, self.since_shrunk) = (self.active - 1, 0, 0);
        }
        self.active
    }

    /// By as many as there are, if so many cores have time: a load that comes at once has all workers after a few samples.
    fn grow(&mut self, most: usize, idle_cores: f64) {
        let with_time = (idle_cores + 1.0 - IDLE_CORES_MIN) as usize;
        self.active = (self.active + with_time.clamp(1, self.active)).min(most);
        self.full = 0;
        self.shrinks_after = match self.since_shrunk <= SOON {
            true => (self.shrinks_after * 2).min(SHRINKS_AFTER_MAX),
            false => SHRINKS_AFTER,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::Prng;

    fn sample(busy: &[f64], idle_cores: f64) -> Sample {
        Sample { busy: busy.to_vec(), idle_cores, requests_per_read: 1.0 }
    }

    /// Steps until the number changes; how many steps that took.
    fn until_changed(demand: &mut Demand, sample: &Sample) -> u32 {
        let before = demand.active;
        (1..10_000).find(|_| demand.step(sample) != before).expect("the number never changed")
    }

    #[test]
    fn one_that_has_no_time_left_gets_another_within_two_samples() {
        let mut demand = Demand::new();
        assert_eq!(until_changed(&mut demand, &sample(&[0.97, 0.0], 1.0)), 2);
        assert_eq!(demand.active, 2);
    }

    #[test]
    fn sixteen_are_active_after_eight_samples() {
        let mut demand = Demand::new();
        for _ in 0..4 * GROWS_AFTER {
            demand.step(&sample(&[1.0; 16], 20.0));
        }
        assert_eq!(demand.active, 16);
    }

    #[test]
    fn beside_clients_that_take_the_rest_of_the_machine_one_is_enough() {
        let mut demand = Demand::new();
        for _ in 0..1000 {
            assert_eq!(demand.step(&sample(&[0.99, 0.0], 0.1)), 1);
        }
    }

    #[test]
    fn where_requests_come_in_batches_another_is_of_use_beside_busy_clients() {
        let mut demand = Demand::new();
        let batches = Sample { requests_per_read: 50.0, ..sample(&[0.99, 0.0], 0.1) };
        assert_eq!(until_changed(&mut demand, &batches), 2);
        assert_eq!(demand.active, 2);
    }

    #[test]
    fn one_long_command_is_no_load() {
        let mut demand = Demand::new();
        for round in 0..1000 {
            let busy = if round % 2 == 0 { 1.0 } else { 0.2 };
            assert_eq!(demand.step(&sample(&[busy, 0.0], 1.0)), 1);
        }
    }

    #[test]
    fn a_load_that_went_leaves_one() {
        let mut demand = Demand::new();
        until_changed(&mut demand, &sample(&[1.0, 0.0, 0.0], 2.0));
        until_changed(&mut demand, &sample(&[1.0, 1.0, 0.0], 1.0));
        assert_eq!(demand.active, 3);
        assert_eq!(until_changed(&mut demand, &sample(&[0.1, 0.1, 0.0], 2.0)), SHRINKS_AFTER);
        assert_eq!(until_changed(&mut demand, &sample(&[0.1, 0.1, 0.0], 2.0)), SHRINKS_AFTER);
        assert_eq!(demand.active, 1);
    }

    #[test]
    fn a_steady_load_of_any_size_does_not_go_back_and_forth() {
        // What one worker has to do, in cores; two have a tenth more in all.
        for load in (1..=30).map(|tenths| f64::from(tenths) / 10.0) {
            let (mut demand, mut prng, mut changes) = (Demand::new(), Prng::from_seed(1), 0);
            for _ in 0..3000 {
                let before = demand.active;
                let noise = prng.below(100) as f64 / 1000.0 - 0.05;
                let extra = 1.0 + 0.1 * (before - 1) as f64;
                let each = (load * extra / before as f64 + noise).min(1.0);
                let busy: Vec<f64> = (0..4).map(|worker| if worker < before { each } else { 0.0 }).collect();
                changes += u32::from(demand.step(&sample(&busy, 4.0 - busy.iter().sum::<f64>())) != before);
            }
            assert!(changes <= 4, "a load of {load}: {changes} changes in a minute");
        }
    }

    #[test]
    fn a_load_that_comes_and_goes_is_followed_less_and_less_eagerly() {
        let mut demand = Demand::new();
        let mut taken = Vec::new();
        for _ in 0..4 {
            until_changed(&mut demand, &sample(&[1.0, 0.0], 1.0));
            taken.push(until_changed(&mut demand, &sample(&[0.2, 0.2], 1.6)));
        }
        assert_eq!(taken, [12, 24, 48, 96]);
        // Calm for a while, and it starts anew.
        (0..SOON).for_each(|_| _ = demand.step(&sample(&[0.2, 0.0], 1.8)));
        until_changed(&mut demand, &sample(&[1.0, 0.0], 1.0));
        assert_eq!(until_changed(&mut demand, &sample(&[0.2, 0.2], 1.6)), SHRINKS_AFTER);
    }
}
