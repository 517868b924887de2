//! Wall-clock time in milliseconds, real or set by hand.
//!
//! A batch of commands reads the clock once and all of them see that moment, as
//! a Redis command or script sees one frozen time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMs(pub u64);

impl UnixMs {
    /// Whole seconds since 1970-01-01 UTC, rounded down.
    pub fn seconds(self) -> u64 {
        self.0 / 1000
    }
}

/// Where the time comes from. Cheap to clone; every clone of a simulated clock
/// shows the same time.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's clock.
    Real,
    /// A clock that stands still until a test moves it, in microseconds.
    Simulated(Arc<AtomicU64>),
}

impl Clock {
    /// A clock that a test sets and moves.
    pub fn simulated(start: UnixMs) -> Clock {
        Clock::Simulated(Arc::new(AtomicU64::new(start.0 * 1000)))
    }

    /// The present moment. A machine clock before 1970 counts as 1970.
    pub fn now(&self) -> UnixMs {
        UnixMs(self.now_us() / 1000)
    }

    /// Microseconds since 1970-01-01 UTC.
    pub fn now_us(&self) -> u64 {
        match self {
            Clock::Real => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64),
            Clock::Simulated(at) => at.load(Ordering::SeqCst),
        }
    }

    /// Moves a simulated clock forward.
    ///
    /// # Panics
    /// On the real clock, which nobody moves.
    pub fn advance_ms(&self, by_ms: u64) {
        match self {
            Clock::Real => panic!("the machine's clock cannot be moved"),
            Clock::Simulated(at) => at.fetch_add(by_ms * 1000, Ordering::SeqCst),
        };
    }

    /// Sets a simulated clock.
    ///
    /// # Panics
    /// On the real clock, which nobody moves.
    pub fn set_us(&self, at_us: u64) {
        match self {
            Clock::Real => panic!("the machine's clock cannot be moved"),
            Clock::Simulated(at) => at.store(at_us, Ordering::SeqCst),
        }
    }
}
