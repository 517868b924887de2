//! The rate second by second: whether a server kept it up, and where it stood still.
//!
//! The vertical axis begins at zero. A second with errors has a cross at the foot; the last second of a run is left out
//! unless it was a whole one.

use super::{Curve, at, curves, steps};
use crate::report::{Report, Row, number, palette};
use crate::results::{Measurement, Second};
use maud::{Markup, html};

/// Whole seconds that a run needs for a line worth drawing.
pub const SECONDS_MIN: usize = 3;

const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 50.0;
const RIGHT: f64 = 266.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 162.0;

/// Part of a second that may lack for it to count as a whole one.
const SLACK: f64 = 0.05;

/// The whole seconds of a run.
fn whole(run: &Measurement) -> &[Second] {
    let count =
        run.series.iter().take_while(|one| f64::from(one.second) + 1.0 <= run.seconds + SLACK).count();
    &run.series[..count]
}

/// Whether a run has a line.
pub fn has_line(run: &Measurement) -> bool {
    whole(run).len() >= SECONDS_MIN
}

/// One workload's panel; nothing unless a run of it was long enough.
pub fn seconds(report: &Report, row: &Row, id: &str) -> Markup {
    let runs: Vec<&Measurement> = row.measurements.iter().filter(|run| has_line(run)).collect();
    if runs.is_empty() {
        return html! {};
    }
    let top = runs.iter().flat_map(|run| whole(run)).map(|second| second.operations).max().unwrap_or(0);
    let marks = steps(top as f64);
    let top = marks.last().copied().unwrap_or(1.0);
    let last = runs.iter().flat_map(|run| whole(run)).map(|second| second.second).max().unwrap_or(1).max(1);
    let x = |second: u32| LEFT + f64::from(second) / f64::from(last) * (RIGHT - LEFT);
    let y = |operations: f64| BOTTOM - operations / top * (BOTTOM - TOP);
    let lines: Vec<Curve> = runs
        .iter()
        .map(|run| Curve {
            place: report.place(&run.server),
            name: run.server.clone(),
            points: whole(run).iter().map(|one| (x(one.second), y(one.operations as f64))).collect(),
        })
        .collect();
    html! {
        figure class="panel" {
            figcaption { (row.label) }
            svg viewBox={ "0 0 " (at(WIDTH)) " " (at(HEIGHT)) } role="img"
                aria-labelledby={ (id) "-t " (id) "-d" } {
                title id={ (id) "-t" } { (row.label) ": operations in each second" }
                desc id={ (id) "-d" } { (said(&runs)) }
                @for mark in &marks {
                    line class="grid" x1=(at(LEFT)) x2=(at(RIGHT)) y1=(at(y(*mark))) y2=(at(y(*mark))) {}
                    text class="tick end" x=(at(LEFT - 6.0)) y=(at(y(*mark) + 4.0)) { (number::compact(*mark)) }
                }
                text class="tick" x=(at(LEFT)) y=(at(BOTTOM + 15.0)) { "0" }
                text class="tick end" x=(at(RIGHT)) y=(at(BOTTOM + 15.0)) { (last) " s" }
                (curves(&lines, RIGHT + 6.0, TOP + 4.0, BOTTOM - 4.0))
                @for run in &runs {
                    @for one in whole(run).iter().filter(|one| one.errors > 0) {
                        text class={ "cross " (palette::class(report.place(&run.server))) }
                            x=(at(x(one.second))) y=(at(BOTTOM - 3.0)) { "×" }
                    }
                }
            }
        }
    }
}

/// The panel in words.
fn said(runs: &[&Measurement]) -> String {
    let mut text = String::from("Lines; operations in each second.");
    for run in runs {
        let rates = || whole(run).iter().map(|second| second.operations);
        let errors: u64 = whole(run).iter().map(|second| second.errors).sum();
        text.push_str(&format!(
            " {}: between {} and {} over {} seconds, {} errors.",
            run.server,
            number::rate(rates().min().unwrap_or(0) as f64),
            number::rate(rates().max().unwrap_or(0) as f64),
            whole(run).len(),
            number::grouped(errors)
        ));
    }
    text
}
