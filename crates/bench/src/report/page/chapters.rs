//! The chapters of the page: for each section its published table measured again, its charts, and every figure.
//!
//! Bars and time lines are drawn twice, for a wide and for a narrow page, and the style shows one: their text keeps its size on a phone.

use super::{dense, drawn, server_sheet};
use crate::report::chart::{self, Bounds};
use crate::report::{Chapter, Layout, Report, Section, layouts, palette, residence};
use maud::{Markup, html};
use std::collections::BTreeSet;

/// Pixels of bars and time lines on a wide page and on a narrow one.
const BARS: [(&str, f64); 2] = [("broad", 1_040.0), ("slim", 340.0)];

/// One chapter.
pub fn chapter(report: &Report, chapter: &Chapter) -> Markup {
    html! {
        section class="chapter" id=(chapter.name) {
            h2 { (chapter.title) }
            p { (chapter.about) }
            @if !chapter.servers.is_empty() {
                div class="sheets" {
                    @for server in &chapter.servers { (server_sheet(report.place(&server.name), server)) }
                }
            }
            @for (index, section) in chapter.sections.iter().enumerate() {
                (part(report, section, &format!("{}-{index}", chapter.name)))
            }
        }
    }
}

fn part(report: &Report, section: &Section, id: &str) -> Markup {
    html! {
        section class="part" id=(id) {
            h3 { (section.title) }
            p { (section.about) }
            @if section.is_measured() {
                (drawn(&layouts::published_layout(report, section)))
                (cautions(section))
                (memory_and_disk(report, section))
                @if section.layout == Layout::TimeLine {
                    (timelines(report, section, id))
                } @else {
                    (throughput(report, section, id))
                    (percentiles(report, section, id))
                    (seconds(report, section, id))
                }
                h4 { "Every measurement" }
                (dense(&layouts::details(report, section)))
                (errors(section))
            } @else {
                p class="note" { "Nothing was measured here." }
            }
        }
    }
}

/// What stands between the published figures and the measured ones, and where they come from.
fn cautions(section: &Section) -> Markup {
    let sources: BTreeSet<&str> = section.figures.iter().map(|figure| figure.published.title()).collect();
    html! {
        @if !sources.is_empty() {
            p class="note" {
                "Published by: "
                @for (index, source) in sources.iter().enumerate() { @if index > 0 { "; " } (source) }
                "."
            }
        }
        @if !section.cautions.is_empty() {
            aside {
                h4 { "What cannot be compared" }
                ul { @for caution in &section.cautions { li { (caution) } } }
            }
        }
    }
}

/// What the servers took of memory and disk, where that was watched.
fn memory_and_disk(report: &Report, section: &Section) -> Markup {
    let Some(table) = residence::table(report, section) else { return html! {} };
    html! {
        h4 { "Memory and disk" }
        (dense(&table))
        @if let Some(allowance) = &section.allowance { p class="note" { (allowance.sentences()) } }
        @if let Some(read) = &report.machine.random_read {
            p class="note" { "The disk itself: " (read.sentence()) "." }
        }
    }
}

fn throughput(report: &Report, section: &Section, id: &str) -> Markup {
    html! {
        h4 { "Throughput, operations per second" }
        @for (class, width) in BARS {
            div class=(class) { (chart::bars(report, section, &format!("{id}-{class}"), width)) }
        }
    }
}

fn percentiles(report: &Report, section: &Section, id: &str) -> Markup {
    let Some(bounds) = Bounds::of(section) else { return html! {} };
    html! {
        h4 { "Latency by percentile" }
        (legend(report, section))
        div class="panels" {
            @for (index, row) in section.rows.iter().enumerate() {
                (chart::percentiles(report, row, bounds, &format!("{id}-p{index}")))
            }
        }
    }
}

fn seconds(report: &Report, section: &Section, id: &str) -> Markup {
    let measured = || section.rows.iter().flat_map(|row| &row.measurements);
    if !measured().any(chart::has_line) {
        return html! {};
    }
    html! {
        h4 { "Second by second, operations per second" }
        (legend(report, section))
        div class="panels" {
            @for (index, row) in section.rows.iter().enumerate() {
                (chart::seconds(report, row, &format!("{id}-s{index}")))
            }
        }
        @if !measured().all(chart::has_line) {
            p class="note" { "Runs of fewer than " (chart::SECONDS_MIN) " seconds have no line here." }
        }
    }
}

fn timelines(report: &Report, section: &Section, id: &str) -> Markup {
    let measured = || section.rows.iter().flat_map(|row| &row.measurements);
    if !measured().any(chart::has_timeline) {
        return html! {};
    }
    html! {
        h4 { "Tenth by tenth of a second, operations per second" }
        (legend(report, section))
        @for (index, row) in section.rows.iter().enumerate() {
            @for (class, width) in BARS {
                div class=(class) { (chart::timeline(report, row, &format!("{id}-l{index}-{class}"), width)) }
            }
        }
        p class="note" {
            "The thin lines are the operations on the slots that it happened to; crosses are steps with errors, vertical rules are when it happened."
        }
    }
}

/// The servers of a section with their colours.
fn legend(report: &Report, section: &Section) -> Markup {
    let is_there = |name: &str| section.rows.iter().any(|row| row.of(name).is_some());
    html! {
        p class="legend" aria-hidden="true" {
            @for (place, server) in report.servers.iter().enumerate().filter(|(_, one)| is_there(&one.name)) {
                span class=(palette::class(place)) { (server.name) }
            }
        }
    }
}

/// Errors by their text, and why runs ended early.
fn errors(section: &Section) -> Markup {
    let measured = || section.rows.iter().flat_map(|row| row.measurements.iter().map(move |run| (row, run)));
    let has_some = measured().any(|(_, run)| !run.errors.is_empty() || run.unfinished.is_some());
    html! {
        @if has_some {
            ul class="errors" {
                @for (row, run) in measured() {
                    @for error in &run.errors {
                        li { (row.label) ", " (run.server) ": " (error.count) " × " code { (error.text) } }
                    }
                    @if let Some(why) = &run.unfinished { li { (row.label) ", " (run.server) ": " (why) } }
                }
            }
        }
    }
}
