//! The latency monitor: for each kind of event the worst of each second in which
//! one took longer than `latency-monitor-threshold`.
//!
//! Any thread notes events; each note that passes the threshold takes a lock.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use sys::UnixMs;

/// Samples kept for each event.
const SAMPLES_MAX: usize = 160;

/// The worst of one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Seconds since 1970.
    pub at_s: u64,
    /// Its duration in milliseconds.
    pub ms: u64,
}

/// What is known about one kind of event. It has at least one sample.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Oldest first.
    pub samples: VecDeque<Sample>,
    /// The longest since the last reset, in milliseconds.
    pub worst_ms: u64,
}

/// All events seen.
#[derive(Debug, Default)]
pub struct LatencyMonitor {
    events: Mutex<BTreeMap<&'static str, Series>>,
}

impl LatencyMonitor {
    /// Notes an event, if the monitor is on and the event took that long.
    pub fn note(&self, event: &'static str, now: UnixMs, ms: u64, threshold_ms: u64) {
        if threshold_ms == 0 || ms < threshold_ms {
            return;
        }
        let mut events = self.events.lock();
        let series = events.entry(event).or_default();
        series.worst_ms = series.worst_ms.max(ms);
        let at_s = now.seconds();
        match series.samples.back_mut() {
            Some(last) if last.at_s == at_s => last.ms = last.ms.max(ms),
            _ => {
                if series.samples.len() == SAMPLES_MAX {
                    series.samples.pop_front();
                }
                series.samples.push_back(Sample { at_s, ms });
            }
        }
    }

    /// Every event with its samples, by name.
    pub fn all(&self) -> Vec<(&'static str, Series)> {
        self.events.lock().iter().map(|(event, series)| (*event, series.clone())).collect()
    }

    /// The samples of one event.
    pub fn series(&self, event: &[u8]) -> Option<Series> {
        let event = str::from_utf8(event).ok()?;
        self.events.lock().get(event).cloned()
    }

    /// Forgets one event, in whatever case it is written. False: there was none.
    pub fn reset(&self, event: &[u8]) -> bool {
        let mut events = self.events.lock();
        let before = events.len();
        events.retain(|known, _| !event.eq_ignore_ascii_case(known.as_bytes()));
        events.len() < before
    }

    /// Forgets all events and returns how many there were.
    pub fn reset_all(&self) -> usize {
        std::mem::take(&mut *self.events.lock()).len()
    }
}

impl Series {
    /// The newest sample.
    pub fn last(&self) -> Sample {
        *self.samples.back().expect("a series begins with a sample")
    }

    /// The shortest and the longest sample kept, in milliseconds.
    pub fn range_ms(&self) -> (u64, u64) {
        let ms = || self.samples.iter().map(|sample| sample.ms);
        (ms().min().unwrap_or(0), ms().max().unwrap_or(0))
    }

    /// The mean of the samples kept, in milliseconds.
    pub fn mean_ms(&self) -> u64 {
        self.samples.iter().map(|sample| sample.ms).sum::<u64>() / self.samples.len().max(1) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sample_a_second_is_the_worst() {
        let monitor = LatencyMonitor::default();
        for (at_ms, ms) in [(1000, 20), (1500, 70), (1900, 30), (2000, 9), (2100, 10)] {
            monitor.note("command", UnixMs(at_ms), ms, 10);
        }
        monitor.note("command", UnixMs(9000), 500, 0);
        let series = monitor.series(b"command").expect("it was noted");
        assert_eq!(series.samples, [Sample { at_s: 1, ms: 70 }, Sample { at_s: 2, ms: 10 }]);
        assert_eq!((series.worst_ms, series.mean_ms(), series.range_ms()), (70, 40, (10, 70)));
        assert!(!monitor.reset(b"nothing"));
        assert!(monitor.reset(b"COMMAND") && !monitor.reset(b"command"));
        monitor.note("command", UnixMs(1000), 20, 10);
        assert_eq!(monitor.reset_all(), 1);
    }

    #[test]
    fn old_samples_make_room() {
        let monitor = LatencyMonitor::default();
        (0..1000).for_each(|second| monitor.note("x", UnixMs(second * 1000), 5, 1));
        assert_eq!(monitor.series(b"x").expect("it was noted").samples.len(), SAMPLES_MAX);
    }
}
