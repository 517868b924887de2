//! The charts, as inline SVG: throughput bars, latency by percentile, the rate second by second, and what an event did to it.
//!
//! Drawn by hand since a page that follows the reader's light or dark needs classes in place of colours, and a reader who cannot
//! see needs the figures in a title and a description; chart libraries write neither. Colours come from the page's
//! variables; every drawing is sized for the width at which it is shown, so that its text keeps its size.
//!
//! 1. A chart without points is not drawn.
//! 2. Every chart has a title and a description that says what a reader would see.

mod bars;
mod percentiles;
mod seconds;
mod timeline;

pub use bars::bars;
pub use percentiles::{Bounds, percentiles};
pub use seconds::{SECONDS_MIN, has_line, seconds};
pub use timeline::{has_timeline, timeline};

use super::palette;
use maud::{Markup, html};
use std::fmt::Write;

/// Letters of a server's name that fit beside a line or a bar.
const NAME_LETTERS: usize = 12;
/// Lines of text must be this far apart.
const LABEL_PITCH: f64 = 13.0;

/// A name cut to the room there is; the whole one stands in the chart's title.
fn cut(name: &str) -> String {
    if name.chars().count() <= NAME_LETTERS {
        return name.to_owned();
    }
    name.chars().take(NAME_LETTERS - 1).chain(['…']).collect()
}

/// A coordinate: a tenth of a pixel is enough, and the same on every machine.
fn at(value: f64) -> String {
    format!("{value:.1}")
}

/// Round steps that divide `0..=top` into four parts at most; the last is not below `top`.
fn steps(top: f64) -> Vec<f64> {
    if !top.is_finite() || top <= 0.0 {
        return vec![0.0, 1.0];
    }
    let rough = top / 4.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power);
    let step = step.into_iter().find(|step| *step >= rough * 0.999_999).unwrap_or(power * 10.0);
    let count = (top / step - 1e-9).ceil().max(1.0) as usize;
    (0..=count).map(|at| at as f64 * step).collect()
}

/// One line of a chart and the name at its end.
struct Curve {
    place: usize,
    name: String,
    points: Vec<(f64, f64)>,
}

/// The curves, drawn, with their names at their right ends, moved apart where they would overlap.
fn curves(curves: &[Curve], labels_at: f64, top: f64, bottom: f64) -> Markup {
    let mut ends: Vec<(f64, &Curve)> =
        curves.iter().filter_map(|curve| curve.points.last().map(|end| (end.1, curve))).collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.place.cmp(&b.1.place)));
    let mut heights: Vec<f64> = ends.iter().map(|end| end.0).collect();
    spread(&mut heights, top, bottom);
    html! {
        @for curve in curves {
            path class={ "curve " (palette::class(curve.place)) } d=(path(&curve.points)) {}
            @if let [only] = curve.points[..] {
                circle class={ "dot " (palette::class(curve.place)) } cx=(at(only.0)) cy=(at(only.1)) r="2.5" {}
            }
        }
        @for ((_, curve), height) in ends.iter().zip(&heights) {
            text class={ "name " (palette::class(curve.place)) } x=(at(labels_at)) y=(at(height + 4.0)) {
                (cut(&curve.name))
            }
        }
    }
}

/// Moves sorted heights apart by [`LABEL_PITCH`], within the frame.
fn spread(heights: &mut [f64], top: f64, bottom: f64) {
    let mut floor = top;
    for height in heights.iter_mut() {
        *height = height.max(floor);
        floor = *height + LABEL_PITCH;
    }
    let mut ceiling = bottom;
    for height in heights.iter_mut().rev() {
        *height = height.min(ceiling);
        ceiling = *height - LABEL_PITCH;
    }
}

fn path(points: &[(f64, f64)]) -> String {
    let mut text = String::new();
    for (index, (x, y)) in points.iter().enumerate() {
        let _ = write!(text, "{}{} {}", if index == 0 { "M" } else { "L" }, at(*x), at(*y));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_reach_the_top() {
        assert_eq!(steps(1_000_000.0), [0.0, 250_000.0, 500_000.0, 750_000.0, 1_000_000.0]);
        assert_eq!(steps(7.3), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(steps(0.0), [0.0, 1.0]);
        for top in [1.0, 3.7, 99.0, 123_456.0, 9.9e9] {
            let steps = steps(top);
            assert!(*steps.last().unwrap() >= top * 0.999 && steps.len() <= 6, "{top}: {steps:?}");
        }
    }

    #[test]
    fn names_at_the_ends_of_lines_never_overlap() {
        let mut heights = [10.0, 11.0, 90.0, 99.0, 100.0];
        spread(&mut heights, 10.0, 100.0);
        assert!(heights.windows(2).all(|pair| pair[1] - pair[0] >= LABEL_PITCH - 1e-9), "{heights:?}");
        assert!(heights[0] >= 0.0 && heights[4] <= 100.0, "{heights:?}");
    }

    #[test]
    fn long_names_are_cut_at_letters() {
        assert_eq!(cut("redis"), "redis");
        assert_eq!(cut("ééééééééééééé"), "ééééééééééé…");
    }
}
