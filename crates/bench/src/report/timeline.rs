//! What happened to clusters while they were measured, and what clients saw of it.

use super::table::{Cell, Line, Mark, Origin, Table};
use super::{Report, Row, Section, number};
use crate::results::{Measurement, TimeLine};

/// What clients saw, in figures.
pub struct Seen {
    /// Operations a second before anything happened.
    pub before: f64,
    /// The lowest rate of a step from then on.
    pub lowest: f64,
    /// How long what happened took, if it was more than a moment and has ended.
    pub took_ms: Option<f64>,
}

impl TimeLine {
    /// What clients saw; none if nothing happened, or it happened at once.
    pub fn seen(&self, seconds: f64) -> Option<Seen> {
        let first = self.events.first()?.at_ms;
        let whole = self.whole(seconds);
        let begun = (first / f64::from(self.step_ms)) as usize;
        let (before, after) = whole.split_at_checked(begun)?;
        let rate = |operations: u64, steps: usize| {
            operations as f64 * 1e3 / (steps.max(1) as f64 * f64::from(self.step_ms))
        };
        let lowest = after.iter().map(|step| step.operations).min()?;
        let took_ms = self.events.get(1).map(|last| last.at_ms - first);
        let sum = before.iter().map(|step| step.operations).sum();
        (!before.is_empty()).then(|| Seen {
            before: rate(sum, before.len()),
            lowest: rate(lowest, 1),
            took_ms,
        })
    }

    /// The steps that are whole.
    pub fn whole(&self, seconds: f64) -> &[crate::results::Step] {
        let count = (seconds * 1e3 / f64::from(self.step_ms.max(1)) + 1e-6) as usize;
        &self.steps[..count.min(self.steps.len())]
    }
}

/// A line for each workload and server.
pub fn table(report: &Report, section: &Section) -> Table {
    let head = [
        "What happens",
        "Server",
        "Without acknowledged writes, ms",
        "It took, ms",
        "Ops/s before",
        "Lowest 100 ms, ops/s",
        "Errors",
    ];
    let mut lines = Vec::new();
    for row in &section.rows {
        for (place, server) in report.servers.iter().enumerate() {
            if let Some(measured) = row.of(&server.name) {
                lines.push(line(row, place, measured));
            }
        }
    }
    let caption = format!("{}: what clients see of it", section.title);
    Table { caption, head: head.map(str::to_owned).to_vec(), text_columns: 2, lines }
}

fn line(row: &Row, place: usize, measured: &Measurement) -> Line {
    let timeline = measured.timeline.as_ref();
    let silence = timeline.map(|line| (line.silence, line.silence.from_ms + line.silence.ms));
    let seen = timeline.and_then(|line| line.seen(measured.seconds));
    let rate = |of: fn(&Seen) -> f64| Cell::from(seen.as_ref().map(of).map(number::rate).unwrap_or_default());
    let took = seen.as_ref().and_then(|seen| seen.took_ms);
    let is_open = |end: f64| end >= measured.seconds * 1e3 - 1.0;
    let marks = Mark::of(measured).into_iter().filter(|mark| *mark == Mark::Unfinished).collect();
    Line {
        origin: Origin::Measured(place),
        cells: vec![
            row.label.as_str().into(),
            format!("{}, measured", measured.server).into(),
            Cell {
                text: silence.map(|(silence, _)| format!("{:.1}", silence.ms)).unwrap_or_default(),
                note: silence
                    .filter(|(_, end)| is_open(*end))
                    .map(|_| "not over when the measurement ended".to_owned()),
                marks,
            },
            took.map(|ms| format!("{ms:.0}")).unwrap_or_default().into(),
            rate(|seen| seen.before),
            rate(|seen| seen.lowest),
            number::grouped(measured.errors_total()).into(),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Event, Step};

    #[test]
    fn before_and_lowest_are_of_whole_steps_on_both_sides_of_the_event() {
        let steps = [100, 120, 110, 7, 0, 90, 3].map(|operations| Step { operations, ..Step::default() });
        let event = |at_ms| Event { at_ms, what: String::new() };
        let line =
            TimeLine { step_ms: 100, steps: steps.into(), events: vec![event(250.0)], ..TimeLine::default() };
        let seen = line.seen(0.65).unwrap();
        assert_eq!((seen.before, seen.lowest, seen.took_ms), (1_100.0, 0.0, None));
        let line = TimeLine { events: vec![event(450.0), event(530.5)], ..line };
        let seen = line.seen(0.65).unwrap();
        assert_eq!((seen.before, seen.lowest, seen.took_ms), (842.5, 0.0, Some(80.5)));
        assert_eq!(line.whole(0.65).len(), 6, "the last one was cut off");
        for events in [vec![], vec![event(20.0)], vec![event(5_000.0)]] {
            assert!(TimeLine { events, ..line.clone() }.seen(0.65).is_none());
        }
    }
}
