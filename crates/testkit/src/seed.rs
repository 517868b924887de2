//! Seeds and budgets of seeded tests, from the environment: `TARN_SEED` says what
//! to do, `TARN_STEPS` or `TARN_SECONDS` for how long.

use std::time::{Duration, Instant};

/// What a seeded test may spend, and the seed that it starts from.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// The first seed.
    pub seed: u64,
    steps: u64,
    deadline: Option<Instant>,
}

impl Budget {
    /// From the environment; without it, `seed` and `steps`. Prints what it chose.
    ///
    /// # Panics
    /// If a variable is set and is no number.
    pub fn from_env(seed: u64, steps: u64) -> Budget {
        let seed = env_number("TARN_SEED").unwrap_or(seed);
        let deadline =
            env_number("TARN_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let unlimited = if deadline.is_some() { u64::MAX } else { steps };
        let steps = env_number("TARN_STEPS").unwrap_or(unlimited);
        println!("TARN_SEED={seed}");
        Budget { seed, steps, deadline }
    }

    /// A fixed budget.
    pub fn steps(seed: u64, steps: u64) -> Budget {
        Budget { seed, steps, deadline: None }
    }

    /// Whether a test that has done `steps` may go on.
    pub fn allows(&self, steps: u64) -> bool {
        steps < self.steps && self.deadline.is_none_or(|deadline| Instant::now() < deadline)
    }
}

fn env_number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    match text.trim().parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{name} is '{text}', which is no number"),
    }
}
