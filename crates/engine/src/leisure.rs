//! How long a thread that goes over all that clients use rests behind each step: most of its time where they keep the server's processors busy,
//! and no longer than it worked where these have little to do.
//!
//! It looks at what the process takes of its processors now and then, and takes itself off that. Where the system does not tell, it is as if
//! there were little to do.

use std::time::{Duration, Instant};
use sys::process;

/// How much longer than it worked a thread rests beside clients that need the processors.
const BUSY_FACTOR: u32 = 9;

/// The same where they leave more than half of them.
const FREE_FACTOR: u32 = 1;

/// How often it looks: what the system tells is of hundredths of a second.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What one such thread knows.
#[derive(Debug)]
pub struct Leisure {
    processors: u32,
    looked_at: Instant,
    /// The whole process' time then.
    used: Duration,
    /// This thread's work since then.
    worked: Duration,
    factor: u32,
}

impl Leisure {
    /// Takes the server for busy until it has looked.
    pub fn new() -> Leisure {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        let (looked_at, used) = (Instant::now(), used());
        Leisure { processors, looked_at, used, worked: Duration::ZERO, factor: BUSY_FACTOR }
    }

    /// How much longer than it has worked just now it is to rest.
    pub fn factor(&mut self, worked: Duration) -> u32 {
        self.worked += worked;
        let span = self.looked_at.elapsed();
        if span >= LOOK_EVERY {
            let used = used();
            let others = used.saturating_sub(self.used).saturating_sub(self.worked);
            self.factor = factor(others, span, self.processors);
            (self.looked_at, self.used, self.worked) = (Instant::now(), used, Duration::ZERO);
        }
        self.factor
    }
}

fn used() -> Duration {
    let time = process::cpu_time();
    time.user + time.system
}

fn factor(others: Duration, span: Duration, processors: u32) -> u32 {
    if others * 2 < span * processors { FREE_FACTOR } else { BUSY_FACTOR }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_long_where_others_take_half_of_the_processors() {
        let (span, ms) = (Duration::from_millis(100), Duration::from_millis);
        assert_eq!([0, 49, 50, 100].map(|taken| factor(ms(taken), span, 1)), [1, 1, 9, 9]);
        assert_eq!([0, 99, 100, 200].map(|taken| factor(ms(taken), span, 2)), [1, 1, 9, 9]);
    }
}
