//! What the server's tick measures: rates over the last second and a half, and the
//! highest use of memory. INFO shows them.
//!
//! Thread rule: the first worker's tick takes samples, anyone reads.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use sys::UnixMs;

/// Samples that a rate is the mean of.
const SAMPLES: usize = 16;
/// Time between two samples.
const PERIOD_MS: u64 = 100;

/// What rates are taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Commands run.
    Commands,
    /// Bytes received.
    InputBytes,
    /// Bytes sent.
    OutputBytes,
    /// Rounds of workers.
    Rounds,
    /// Microseconds that these took.
    RoundMicros,
}

/// How many rates there are.
const RATES: usize = 5;

#[derive(Debug, Default)]
struct Track {
    taken_at: UnixMs,
    totals: [u64; RATES],
    per_second: [[u64; SAMPLES]; RATES],
    micros_per_round: [u64; SAMPLES],
    next: usize,
}

/// Rates and peaks.
#[derive(Debug, Default)]
pub struct Samples {
    track: Mutex<Track>,
    peak_bytes: AtomicU64,
}

impl Samples {
    /// Takes a sample if it is time for one. `totals` are in the order of [`Rate`].
    pub fn take(&self, now: UnixMs, totals: [u64; RATES]) {
        let mut track = self.track.lock();
        let elapsed_ms = now.0.saturating_sub(track.taken_at.0);
        if elapsed_ms < PERIOD_MS {
            return;
        }
        let next = track.next;
        let is_first = track.taken_at == UnixMs(0);
        let gained = |rate: usize, track: &Track| totals[rate].saturating_sub(track.totals[rate]);
        for rate in 0..RATES {
            track.per_second[rate][next] =
                if is_first { 0 } else { gained(rate, &track) * 1000 / elapsed_ms };
        }
        let rounds = gained(Rate::Rounds as usize, &track).max(1);
        track.micros_per_round[next] =
            if is_first { 0 } else { gained(Rate::RoundMicros as usize, &track) / rounds };
        track.totals = totals;
        track.taken_at = now;
        track.next = (next + 1) % SAMPLES;
    }

    /// The mean of the last samples, per second.
    pub fn per_second(&self, rate: Rate) -> u64 {
        self.track.lock().per_second[rate as usize].iter().sum::<u64>() / SAMPLES as u64
    }

    /// How long a round took in the last samples, in microseconds.
    pub fn micros_per_round(&self) -> u64 {
        self.track.lock().micros_per_round.iter().sum::<u64>() / SAMPLES as u64
    }

    /// Notes how much memory is used and returns the highest use so far.
    pub fn note_used_bytes(&self, bytes: u64) -> u64 {
        self.peak_bytes.fetch_max(bytes, Ordering::Relaxed).max(bytes)
    }

    /// Begins again (CONFIG RESETSTAT): rates from zero, the peak from the present use.
    pub fn reset(&self, used_bytes: u64) {
        *self.track.lock() = Track::default();
        self.peak_bytes.store(used_bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_means_over_sixteen_samples() {
        let samples = Samples::default();
        for step in 0..=SAMPLES as u64 {
            samples.take(UnixMs(1000 + step * 100), [step * 10, 0, 0, step * 2, step * 60]);
            samples.take(UnixMs(1001 + step * 100), [u64::MAX, 0, 0, 0, 0]);
        }
        assert_eq!(samples.per_second(Rate::Commands), 100);
        assert_eq!(samples.per_second(Rate::InputBytes), 0);
        assert_eq!((samples.per_second(Rate::Rounds), samples.micros_per_round()), (20, 30));
        assert_eq!(samples.note_used_bytes(7).max(samples.note_used_bytes(5)), 7);
    }
}
