//! Time spans of single commands, at the cost of one read of the processor's
//! counter (crate `quanta`; the system's monotonic clock where that counter
//! cannot be trusted).

use std::time::Duration;

/// A reading of the counter. Only differences mean anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticks(pub u64);

/// Reads the counter and turns differences into nanoseconds.
#[derive(Clone, Debug)]
pub struct TickClock {
    clock: quanta::Clock,
}

impl Default for TickClock {
    fn default() -> Self {
        TickClock { clock: quanta::Clock::new() }
    }
}

impl TickClock {
    /// The counter now.
    #[inline]
    pub fn now(&self) -> Ticks {
        Ticks(self.clock.raw())
    }

    /// Nanoseconds from `earlier` to `later`; 0 if they are in the other order.
    #[inline]
    pub fn nanos_between(&self, earlier: Ticks, later: Ticks) -> u64 {
        self.clock.delta_as_nanos(earlier.0, later.0.max(earlier.0))
    }

    /// Nanoseconds in a sum of differences.
    pub fn nanos(&self, ticks: u64) -> u64 {
        self.clock.delta_as_nanos(0, ticks)
    }

    /// How many ticks a span of time takes.
    pub fn ticks_in(&self, span: Duration) -> u64 {
        const SAMPLE: u64 = 1 << 30;
        let nanos = u128::from(self.nanos(SAMPLE).max(1));
        u64::try_from(span.as_nanos() * u128::from(SAMPLE) / nanos).unwrap_or(u64::MAX)
    }
}
