//! Throughput bars: a group for each workload, a bar for each server, the figure at its end.
//!
//! All groups of a section share one scale that begins at zero, so lengths compare across workloads too.

use super::{at, cut};
use crate::report::{Report, Section, number, palette};
use maud::{Markup, html};

const BAR: f64 = 15.0;
const BAR_PITCH: f64 = 19.0;
const GROUP_HEAD: f64 = 20.0;
const GROUP_GAP: f64 = 12.0;
const NAMES: f64 = 94.0;
const FIGURES: f64 = 78.0;

/// One bar.
struct Bar {
    place: usize,
    name: String,
    per_second: f64,
}

/// The bars of a section, drawn for a width in pixels; nothing if nothing was measured.
pub fn bars(report: &Report, section: &Section, id: &str, width: f64) -> Markup {
    let groups: Vec<(&str, Vec<Bar>)> =
        section.rows.iter().map(|row| (row.label.as_str(), of_row(report, row))).collect();
    let top = groups.iter().flat_map(|group| &group.1).map(|bar| bar.per_second).fold(0.0, f64::max);
    if top <= 0.0 {
        return html! {};
    }
    let groups: Vec<_> = groups.into_iter().filter(|group| !group.1.is_empty()).collect();
    let lines: usize = groups.iter().map(|group| group.1.len()).sum();
    let heads = GROUP_HEAD + GROUP_GAP;
    let height = lines as f64 * BAR_PITCH + groups.len() as f64 * heads;
    let room = width - NAMES - FIGURES;
    let mut y = 0.0;
    html! {
        svg viewBox={ "0 0 " (at(width)) " " (at(height)) } role="img" aria-labelledby={ (id) "-t " (id) "-d" } {
            title id={ (id) "-t" } { (section.title) ": operations per second" }
            desc id={ (id) "-d" } { (said(&groups)) }
            @for (label, bars) in &groups {
                text class="head" x="0" y=(at(y + 14.0)) { (label) }
                @for (index, bar) in bars.iter().enumerate() {
                    @let line = y + GROUP_HEAD + index as f64 * BAR_PITCH;
                    @let length = (bar.per_second / top * room).max(1.0);
                    text class={ "name " (palette::class(bar.place)) } x="0" y=(at(line + 11.5)) {
                        (cut(&bar.name))
                    }
                    rect class={ "bar " (palette::class(bar.place)) } x=(at(NAMES)) y=(at(line)) rx="2"
                        width=(at(length)) height=(at(BAR)) {}
                    text class="figure" x=(at(NAMES + length + 6.0)) y=(at(line + 11.5)) {
                        (number::rate(bar.per_second))
                    }
                }
                @let () = y += heads + bars.len() as f64 * BAR_PITCH;
            }
        }
    }
}

fn of_row(report: &Report, row: &crate::report::Row) -> Vec<Bar> {
    let mut bars: Vec<Bar> = row
        .measurements
        .iter()
        .map(|measurement| Bar {
            place: report.place(&measurement.server),
            name: measurement.server.clone(),
            per_second: measurement.operations_per_second(),
        })
        .collect();
    bars.sort_by_key(|bar| bar.place);
    bars
}

/// The chart in words.
fn said(groups: &[(&str, Vec<Bar>)]) -> String {
    let mut text = String::from("Bars; operations per second.");
    for (label, bars) in groups {
        let figures: Vec<String> =
            bars.iter().map(|bar| format!("{} {}", bar.name, number::rate(bar.per_second))).collect();
        text.push_str(&format!(" {label}: {}.", figures.join(", ")));
    }
    text
}
