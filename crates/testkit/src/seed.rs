//! Seeds and budgets of seeded tests, from the environment: `TARN_SEED` says what
//! to do, `TARN_STEPS` or `TARN_SECONDS` for how long.

use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// What a seeded test may spend, and the seed that it starts from.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// The first seed.
    pub seed: u64,
    steps: u64,
    began: Instant,
    length: Option<Duration>,
}

impl Budget {
    /// From the environment; without it, `seed` and `steps`. Prints what it chose.
    ///
    /// # Panics
    /// If a variable is set and is no number.
    pub fn from_env(seed: u64, steps: u64) -> Budget {
        let seed = env_number("TARN_SEED").unwrap_or(seed);
        let length = env_number("TARN_SECONDS").map(Duration::from_secs);
        let unlimited = if length.is_some() { u64::MAX } else { steps };
        let steps = env_number("TARN_STEPS").unwrap_or(unlimited);
        println!("TARN_SEED={seed}");
        Budget { seed, steps, began: Instant::now(), length }
    }

    /// A fixed budget.
    pub fn steps(seed: u64, steps: u64) -> Budget {
        Budget { seed, steps, began: Instant::now(), length: None }
    }

    /// Whether a test that has done `steps` may go on.
    pub fn allows(&self, steps: u64) -> bool {
        steps < self.steps && self.length.is_none_or(|length| self.began.elapsed() < length)
    }

    /// For how long, if the budget is one of time.
    pub fn length(&self) -> Option<Duration> {
        self.length
    }

    /// How much of it a test has spent that has done `steps`: from 0 to 1, and more if it goes on.
    pub fn spent(&self, steps: u64) -> f64 {
        let of_time =
            self.length.map_or(0.0, |length| self.began.elapsed().as_secs_f64() / length.as_secs_f64());
        of_time.max(steps as f64 / self.steps as f64)
    }
}

/// Tries seeds for a mistake that was planted, until one finds it: by what `play` says, or by an assertion.
///
/// # Panics
/// If none does.
pub fn found_within<T>(what: &str, seeds: RangeInclusive<u64>, play: impl Fn(u64) -> Result<T, String>) {
    for seed in seeds.clone() {
        match catch_unwind(AssertUnwindSafe(|| play(seed))) {
            Ok(Ok(_)) => {}
            Ok(Err(wrong)) => return println!("{what} is found by seed {seed}: {wrong}"),
            Err(_) => return println!("{what} is found by an assertion with seed {seed}"),
        }
    }
    panic!("{what} was not found by the seeds {seeds:?}");
}

fn env_number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    match text.trim().parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{name} is '{text}', which is no number"),
    }
}
