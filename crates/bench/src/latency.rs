//! Latencies as they are recorded, and what is said about them.
//!
//! A thread of the generator records into an [`Interval`] that it owns; at the end of each second it hands the
//! interval to the thread that waits for the results and takes an empty one. So nothing is shared while
//! operations are counted, and each is recorded once.

use crate::results::{KindLatency, Second};
use hdrhistogram::Histogram;
use std::collections::HashMap;

/// Digits that latencies are exact to.
const DIGITS: u8 = 3;
/// The longest latency that is told from longer ones: ten minutes, in nanoseconds.
const NANOS_MAX: u64 = 600_000_000_000;
/// Different texts of errors that are told apart; all further ones count as one.
const ERROR_TEXTS_MAX: usize = 50;
/// How much of an error's text is kept.
const ERROR_TEXT_BYTES_MAX: usize = 160;
/// The name of the errors beyond [`ERROR_TEXTS_MAX`].
const OTHER_ERRORS: &str = "other errors";

/// Errors by their text.
#[derive(Clone, Debug, Default)]
pub struct Errors(HashMap<String, u64>);

impl Errors {
    /// Counts `count` errors with this text.
    pub fn add(&mut self, text: &str, count: u64) {
        if let Some(known) = self.0.get_mut(text) {
            *known += count;
        } else {
            let text = if self.0.len() < ERROR_TEXTS_MAX { text } else { OTHER_ERRORS };
            *self.0.entry(text.to_owned()).or_default() += count;
        }
    }

    /// Counts an error reply; only the beginning of a long one matters.
    pub fn add_reply(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(&line[..line.len().min(ERROR_TEXT_BYTES_MAX)]);
        self.add(&text, 1);
    }

    /// Takes in the errors of others.
    pub fn merge(&mut self, other: &Errors) {
        other.0.iter().for_each(|(text, count)| self.add(text, *count));
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Texts and counts, the most frequent first.
    pub fn sorted(&self) -> Vec<(String, u64)> {
        let mut all: Vec<_> = self.0.iter().map(|(text, count)| (text.clone(), *count)).collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        all
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// What a span of time saw: latencies by kind, and errors.
#[derive(Clone, Debug)]
pub struct Interval {
    kinds: Vec<Histogram<u64>>,
    /// The errors.
    pub errors: Errors,
}

impl Interval {
    /// An empty one for this many kinds of operations.
    pub fn new(kinds: usize) -> Interval {
        Interval { kinds: vec![histogram(); kinds], errors: Errors::default() }
    }

    /// Counts operations that were answered after the same time.
    #[inline]
    pub fn record(&mut self, kind: u8, nanos: u64, operations: u64) {
        self.kinds[usize::from(kind)].saturating_record_n(nanos.max(1), operations);
    }

    /// Operations that were answered.
    pub fn operations(&self) -> u64 {
        self.kinds.iter().map(Histogram::len).sum()
    }

    /// Takes in what others saw.
    pub fn merge(&mut self, other: &Interval) {
        for (own, other) in self.kinds.iter_mut().zip(&other.kinds) {
            if !other.is_empty() {
                own.add(other).expect("all histograms have the same bounds");
            }
        }
        self.errors.merge(&other.errors);
    }

    /// Makes it empty again.
    pub fn clear(&mut self) {
        self.kinds.iter_mut().filter(|kind| !kind.is_empty()).for_each(Histogram::reset);
        self.errors.clear();
    }

    /// The latencies of each kind that occurred, and of all together.
    pub fn latencies(&self, names: &[String]) -> (Vec<KindLatency>, KindLatency) {
        let occurred = self.kinds.iter().zip(names).filter(|(kind, _)| !kind.is_empty());
        let kinds = occurred.map(|(kind, name)| latency(name, kind)).collect();
        (kinds, latency("all", &self.all()))
    }

    /// As an element of a series.
    pub fn second(&self, second: u32) -> Second {
        let all = latency("all", &self.all());
        Second {
            second,
            operations: all.count,
            errors: self.errors.total(),
            average_us: all.average_us,
            p99_us: all.p99_us,
            max_us: all.max_us,
        }
    }

    fn all(&self) -> Histogram<u64> {
        let mut all = histogram();
        self.kinds.iter().for_each(|kind| all.add(kind).expect("all histograms have the same bounds"));
        all
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, NANOS_MAX, DIGITS).expect("the bounds are in order and 3 digits are few")
}

/// Percentiles at which curves have their points: ever closer to 100, as tails are looked at.
fn curve_percentiles() -> impl Iterator<Item = f64> {
    let begin = (0..18).map(|step| f64::from(step) * 5.0);
    let tail = [90.0, 99.0, 99.9, 99.99].into_iter().flat_map(|from: f64| {
        let width = (100.0 - from) * 0.9;
        (0..6).map(move |step| from + width * f64::from(step) / 6.0)
    });
    begin.chain(tail).chain([99.999, 100.0])
}

fn latency(kind: &str, histogram: &Histogram<u64>) -> KindLatency {
    if histogram.is_empty() {
        return KindLatency { kind: kind.to_owned(), ..KindLatency::default() };
    }
    let max = histogram.max();
    let micros = |nanos: u64| nanos.min(max) as f64 / 1000.0;
    let at = |percentile: f64| micros(histogram.value_at_quantile(percentile / 100.0));
    KindLatency {
        kind: kind.to_owned(),
        count: histogram.len(),
        average_us: histogram.mean() / 1000.0,
        min_us: micros(histogram.min()),
        p50_us: at(50.0),
        p90_us: at(90.0),
        p95_us: at(95.0),
        p99_us: at(99.0),
        p999_us: at(99.9),
        max_us: micros(max),
        curve: curve_percentiles().map(|percentile| (percentile, at(percentile))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_exact_to_three_digits() {
        let mut interval = Interval::new(2);
        (1..=1000u64).for_each(|micros| interval.record(1, micros * 1000, 1));
        let (kinds, all) = interval.latencies(&["get".to_owned(), "set".to_owned()]);
        assert_eq!(kinds.len(), 1, "what did not occur has no latency");
        assert_eq!(kinds[0].kind, "set");
        assert_eq!(all.count, 1000);
        let near = |value: f64, expected: f64| (value - expected).abs() <= expected / 500.0;
        assert!(near(all.p50_us, 500.0) && near(all.p99_us, 990.0) && near(all.p999_us, 999.0));
        assert!(near(all.average_us, 500.5) && near(all.max_us, 1000.0) && near(all.min_us, 1.0));
        assert!(all.curve.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
        assert_eq!(all.curve.last().map(|point| point.0), Some(100.0));
    }

    #[test]
    fn merging_is_like_recording_together() {
        let (mut a, mut b) = (Interval::new(1), Interval::new(1));
        a.record(0, 1000, 3);
        b.record(0, 9000, 1);
        b.errors.add_reply(b"ERR no");
        a.merge(&b);
        let second = a.second(7);
        assert_eq!((second.second, second.operations, second.errors), (7, 4, 1));
        assert!((second.average_us - 3.0).abs() < 0.1);
        a.clear();
        assert_eq!((a.operations(), a.errors.total()), (0, 0));
    }

    #[test]
    fn endless_different_errors_take_bounded_memory() {
        let mut errors = Errors::default();
        (0..1000).for_each(|number| errors.add_reply(format!("ERR {number}").as_bytes()));
        assert_eq!(errors.total(), 1000);
        assert_eq!(errors.sorted()[0], (OTHER_ERRORS.to_owned(), 1000 - ERROR_TEXTS_MAX as u64));
    }
}
