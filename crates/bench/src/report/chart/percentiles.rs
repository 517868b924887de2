//! Latency by percentile: how slow the slowest tenth, hundredth, thousandth of the operations were.
//!
//! Both axes are logarithmic: the horizontal one by the share of operations that were slower, so that each nine has the same
//! room. All panels of a section share their vertical scale.

use super::{Curve, at, curves};
use crate::report::{Report, Row, Section, number};
use crate::results::Measurement;
use maud::{Markup, html};

const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 210.0;
const LEFT: f64 = 50.0;
const RIGHT: f64 = 266.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 172.0;
/// Where the horizontal axis has its marks.
const MARKS: [(f64, &str); 6] =
    [(0.0, "0"), (90.0, "90"), (99.0, "99"), (99.9, "99.9"), (99.99, "99.99"), (99.999, "99.999")];

/// The scales that a section's panels share.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    low_us: f64,
    high_us: f64,
    nines: f64,
}

impl Bounds {
    /// The scales for a section; none if it has no curve.
    pub fn of(section: &Section) -> Option<Self> {
        let points = || section.rows.iter().flat_map(|row| &row.measurements).flat_map(points);
        let low = points().map(|point| point.1).fold(f64::INFINITY, f64::min);
        let high = points().map(|point| point.1).fold(0.0, f64::max);
        let nines = points().map(|point| point.0).fold(1.0, f64::max).ceil();
        if high <= 0.0 {
            return None;
        }
        // From one 1-2-5 step below the fastest to one at or above the slowest.
        let low_us = ladder(low / 10.0).take_while(|step| *step <= low).last().unwrap_or(low);
        let high_us = ladder(high / 10.0).find(|step| *step >= high).unwrap_or(high);
        Some(Self { low_us, high_us: high_us.max(low_us * 2.0), nines: nines.min(5.0) })
    }

    fn x(&self, nines: f64) -> f64 {
        LEFT + (nines / self.nines).min(1.0) * (RIGHT - LEFT)
    }

    fn y(&self, micros: f64) -> f64 {
        let share = (micros / self.low_us).ln() / (self.high_us / self.low_us).ln();
        BOTTOM - share.clamp(0.0, 1.0) * (BOTTOM - TOP)
    }

    /// Latencies with a line: powers of ten, and 2 and 5 between them while there is room.
    fn lines(&self) -> Vec<f64> {
        let all: Vec<f64> =
            ladder(self.low_us * 0.999_9).take_while(|step| *step <= self.high_us * 1.000_1).collect();
        if all.len() <= 6 {
            return all;
        }
        all.into_iter().filter(|step| (step.log10() - step.log10().round()).abs() < 1e-6).collect()
    }
}

/// 1, 2, 5, 10, 20 ... from a number on.
fn ladder(from: f64) -> impl Iterator<Item = f64> {
    let first = from.max(1e-3).log10().floor() as i32;
    (first..first + 12)
        .flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)))
        .filter(move |step| *step >= from)
}

/// A measurement's curve as (nines, microseconds): 90 % is one nine, 99 % two. Beyond the share that a single operation
/// is, there is nothing to know.
fn points(measurement: &Measurement) -> impl Iterator<Item = (f64, f64)> + '_ {
    let known = (measurement.all.count.max(1) as f64).log10();
    measurement.all.curve.iter().filter(|point| point.0 < 100.0 && point.1 > 0.0).filter_map(
        move |(percentile, micros)| {
            let nines = (-(1.0 - percentile / 100.0).log10()).max(0.0);
            (nines <= known).then_some((nines, *micros))
        },
    )
}

/// One workload's panel; nothing if it has no curve.
pub fn percentiles(report: &Report, row: &Row, bounds: Bounds, id: &str) -> Markup {
    let lines: Vec<Curve> = row
        .measurements
        .iter()
        .map(|measured| Curve {
            place: report.place(&measured.server),
            name: measured.server.clone(),
            points: points(measured).map(|point| (bounds.x(point.0), bounds.y(point.1))).collect(),
        })
        .filter(|curve| !curve.points.is_empty())
        .collect();
    if lines.is_empty() {
        return html! {};
    }
    html! {
        figure class="panel" {
            figcaption { (row.label) }
            svg viewBox={ "0 0 " (at(WIDTH)) " " (at(HEIGHT)) } role="img"
                aria-labelledby={ (id) "-t " (id) "-d" } {
                title id={ (id) "-t" } { (row.label) ": latency by percentile" }
                desc id={ (id) "-d" } { (said(row)) }
                (grid(bounds))
                (curves(&lines, RIGHT + 6.0, TOP + 4.0, BOTTOM - 4.0))
            }
        }
    }
}

fn grid(bounds: Bounds) -> Markup {
    html! {
        @for micros in bounds.lines() {
            @let y = bounds.y(micros);
            line class="grid" x1=(at(LEFT)) x2=(at(RIGHT)) y1=(at(y)) y2=(at(y)) {}
            text class="tick end" x=(at(LEFT - 6.0)) y=(at(y + 4.0)) { (number::latency(micros)) }
        }
        @for (percentile, label) in MARKS {
            @let nines = -(1.0 - percentile / 100.0_f64).log10();
            @if nines <= bounds.nines + 1e-6 {
                @let x = bounds.x(nines);
                line class="grid" x1=(at(x)) x2=(at(x)) y1=(at(TOP)) y2=(at(BOTTOM)) {}
                text class="tick mid" x=(at(x)) y=(at(BOTTOM + 15.0)) { (label) }
            }
        }
        text class="tick" x=(at(LEFT)) y=(at(BOTTOM + 31.0)) { "% of operations were this fast" }
    }
}

/// The panel in words.
fn said(row: &Row) -> String {
    let mut text = String::from("Lines on logarithmic axes.");
    for measured in &row.measurements {
        let all = &measured.all;
        text.push_str(&format!(
            " {}: median {}, 99 % {}, 99.9 % {}, slowest {}.",
            measured.server,
            number::latency(all.p50_us),
            number::latency(all.p99_us),
            number::latency(all.p999_us),
            number::latency(all.max_us)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_nine_has_the_same_room() {
        let bounds = Bounds { low_us: 10.0, high_us: 1_000.0, nines: 3.0 };
        let widths = [0.0, 1.0, 2.0, 3.0].map(|nines| bounds.x(nines));
        assert!(widths.windows(2).all(|pair| (pair[1] - pair[0] - (RIGHT - LEFT) / 3.0).abs() < 1e-9));
        assert_eq!((bounds.y(10.0), bounds.y(1_000.0)), (BOTTOM, TOP));
        assert!((bounds.y(100.0) - f64::midpoint(TOP, BOTTOM)).abs() < 1e-9);
    }

    #[test]
    fn the_ladder_climbs_in_ones_twos_and_fives() {
        let rungs: Vec<f64> = ladder(9.0).take(4).map(f64::round).collect();
        assert_eq!(rungs, [10.0, 20.0, 50.0, 100.0]);
    }
}
