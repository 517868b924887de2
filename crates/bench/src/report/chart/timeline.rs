//! Throughput and errors in each tenth of a second of a measurement in which something happened.
//!
//! A line for each server, a thinner one for its slots that it happened to, crosses at the foot where there were errors, a rule at each event.
//! The vertical axis begins at zero.

use super::{Curve, at, curves, path, steps};
use crate::report::{Report, Row, number, palette};
use crate::results::{Measurement, Step, TimeLine};
use maud::{Markup, html};

const HEIGHT: f64 = 230.0;
const LEFT: f64 = 50.0;
/// Room for names behind the lines.
const NAMES: f64 = 80.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 192.0;
/// Crosses are drawn this far apart at least: more would be a bar.
const CROSSES_MAX: usize = 60;

/// A run and its line.
struct Run<'a> {
    measured: &'a Measurement,
    line: &'a TimeLine,
    steps: &'a [Step],
}

/// Whether a run has a line.
pub fn has_timeline(run: &Measurement) -> bool {
    run.timeline.as_ref().is_some_and(|line| line.whole(run.seconds).len() > 1)
}

/// One workload's panel, so many pixels wide; nothing if no run of it has a line.
pub fn timeline(report: &Report, row: &Row, id: &str, width: f64) -> Markup {
    let right = width - NAMES;
    let runs: Vec<Run<'_>> = row
        .measurements
        .iter()
        .filter(|run| has_timeline(run))
        .filter_map(|measured| {
            let line = measured.timeline.as_ref()?;
            Some(Run { measured, line, steps: line.whole(measured.seconds) })
        })
        .collect();
    let Some(step_ms) = runs.first().map(|run| f64::from(run.line.step_ms)) else { return html! {} };
    let per_second = |operations: u64| operations as f64 * 1e3 / step_ms;
    let most = runs.iter().flat_map(|run| run.steps).map(|step| step.operations).max().unwrap_or(0);
    let marks = steps(per_second(most));
    let top = marks.last().copied().unwrap_or(1.0);
    let last_ms = runs.iter().map(|run| run.steps.len()).max().unwrap_or(1) as f64 * step_ms;
    let x = |ms: f64| LEFT + (ms / last_ms).min(1.0) * (right - LEFT);
    let middle = |number: usize| x((number as f64 + 0.5) * step_ms);
    let y = |operations: u64| BOTTOM - per_second(operations) / top * (BOTTOM - TOP);
    let points = |run: &Run<'_>, of: fn(&Step) -> u64| -> Vec<(f64, f64)> {
        run.steps.iter().enumerate().map(|(number, step)| (middle(number), y(of(step)))).collect()
    };
    let lines: Vec<Curve> = runs
        .iter()
        .map(|run| Curve {
            place: report.place(&run.measured.server),
            name: run.measured.server.clone(),
            points: points(run, |step| step.operations),
        })
        .collect();
    html! {
        figure class="panel" {
            figcaption { (row.label) }
            svg viewBox={ "0 0 " (at(width)) " " (at(HEIGHT)) } role="img"
                aria-labelledby={ (id) "-t " (id) "-d" } {
                title id={ (id) "-t" } { (row.label) ": operations per second and errors in each tenth of a second" }
                desc id={ (id) "-d" } { (said(&runs)) }
                @for mark in &marks {
                    @let height = BOTTOM - mark / top * (BOTTOM - TOP);
                    line class="grid" x1=(at(LEFT)) x2=(at(right)) y1=(at(height)) y2=(at(height)) {}
                    text class="tick end" x=(at(LEFT - 6.0)) y=(at(height + 4.0)) { (number::compact(*mark)) }
                }
                text class="tick" x=(at(LEFT)) y=(at(BOTTOM + 15.0)) { "0" }
                text class="tick end" x=(at(right)) y=(at(BOTTOM + 15.0)) { (number::short(last_ms / 1e3)) " s" }
                @for run in &runs {
                    @let class = palette::class(report.place(&run.measured.server));
                    @for event in &run.line.events {
                        line class={ "event " (class) } x1=(at(x(event.at_ms))) x2=(at(x(event.at_ms)))
                            y1=(at(TOP)) y2=(at(BOTTOM)) {}
                    }
                    path class={ "curve watched " (class) } d=(path(&points(run, |step| step.watched))) {}
                }
                (curves(&lines, right + 6.0, TOP + 4.0, BOTTOM - 4.0))
                @for run in &runs {
                    @for number in crosses(run.steps) {
                        text class={ "cross " (palette::class(report.place(&run.measured.server))) }
                            x=(at(middle(number))) y=(at(BOTTOM - 3.0)) { "×" }
                    }
                }
            }
        }
    }
}

/// The steps at which a cross is drawn: those with errors, thinned out where there are many.
fn crosses(steps: &[Step]) -> Vec<usize> {
    let pitch = steps.len().div_ceil(CROSSES_MAX).max(1);
    let chunks = steps.chunks(pitch).enumerate();
    let first = |(chunk, steps): (usize, &[Step])| {
        steps.iter().position(|step| step.errors > 0).map(|at| chunk * pitch + at)
    };
    chunks.filter_map(first).collect()
}

/// The panel in words.
fn said(runs: &[Run<'_>]) -> String {
    let mut text = String::from("Lines; operations per second in each tenth of a second.");
    for run in runs {
        let silence = run.line.silence;
        text.push_str(&format!(
            " {}: {} errors, {} without acknowledged writes from {} on.",
            run.measured.server,
            number::grouped(run.measured.errors_total()),
            number::latency(silence.ms * 1e3),
            number::latency(silence.from_ms * 1e3)
        ));
        for event in &run.line.events {
            text.push_str(&format!(" At {}: {}.", number::latency(event.at_ms * 1e3), event.what));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crosses_stand_where_errors_are_and_never_too_close() {
        let step = |errors| Step { errors, ..Step::default() };
        assert_eq!(crosses(&[step(0), step(2), step(0), step(1)]), [1, 3]);
        let many: Vec<Step> = (0..300).map(|_| step(1)).collect();
        let drawn = crosses(&many);
        assert!(
            drawn.len() <= CROSSES_MAX && drawn.windows(2).all(|pair| pair[1] - pair[0] == 5),
            "{drawn:?}"
        );
        assert!(crosses(&[]).is_empty());
    }
}
