//! The tables of a report: the published layouts, the details of every measurement, the comparison.
//!
//! Pure functions from the model to a [`Table`]; which columns there are and what stands in them is decided here alone.

use super::table::{Cell, Line, Mark, Origin, Table};
use super::{Layout, Report, Row, Section, number, proxied, timeline};
use crate::results::{KindLatency, LimitedBy, Measurement};
use std::collections::BTreeSet;

/// A section in the layout of its publication, measured lines first.
pub fn published_layout(report: &Report, section: &Section) -> Table {
    match section.layout {
        Layout::Rates | Layout::Costs => rates(report, section, None),
        Layout::Times(operations) => rates(report, section, Some(operations)),
        Layout::Operations => operations(report, section),
        Layout::Proxied => proxied::table(report, section),
        Layout::TimeLine => timeline::table(report, section),
    }
}

/// A line for each server and published instance, a column for each workload.
fn rates(report: &Report, section: &Section, times: Option<u64>) -> Table {
    let mut head = vec!["Server".to_owned(), "Cores".to_owned()];
    head.extend(section.rows.iter().map(|row| row.label.clone()));
    let measured = report.servers.iter().enumerate().filter_map(|(place, server)| {
        let cell = |row: &Row| {
            let measured = row.of(&server.name);
            let cost = measured.filter(|_| section.layout == Layout::Costs).and_then(cost);
            let cell = rate_cell(measured, times);
            Cell { note: cell.note.or(cost), ..cell }
        };
        let cells: Vec<Cell> = section.rows.iter().map(cell).collect();
        let is_there = cells.iter().any(|cell| !cell.text.is_empty());
        is_there.then(|| {
            let mut line = vec![format!("{}, measured", server.name).into(), cores(report, place).into()];
            line.extend(cells);
            Line { origin: Origin::Measured(place), cells: line }
        })
    });
    let mut lines: Vec<Line> = measured.collect();
    lines.extend(published_rates(section, times));
    let figure = match section.layout {
        Layout::Times(_) => "operations per second, and the time they take",
        Layout::Costs => "operations per second, and the servers' processor time for each",
        _ => "operations per second",
    };
    Table { caption: format!("{}: {figure}", section.title), head, text_columns: 1, lines }
}

/// A rate, with what there is to know of it.
pub fn rate_cell(measured: Option<&Measurement>, times: Option<u64>) -> Cell {
    let Some(measured) = measured else { return Cell::default() };
    let per_second = measured.operations_per_second();
    Cell {
        text: number::rate(per_second),
        note: times.filter(|_| per_second > 0.0).map(|count| time_of(count, per_second)),
        marks: Mark::of(measured),
    }
}

/// What all of a server's processes took for an operation.
fn cost(measured: &Measurement) -> Option<String> {
    let usage = measured.server_usage.as_ref()?;
    Some(format!("{:.2} µs of CPU", usage.cpu_us_per_operation))
}

fn time_of(operations: u64, per_second: f64) -> String {
    format!("{} s", number::short(operations as f64 / per_second))
}

fn published_rates(section: &Section, times: Option<u64>) -> Vec<Line> {
    let mut instances: Vec<(&str, &str)> = Vec::new();
    for figure in &section.figures {
        let key = (figure.published.source.as_str(), figure.published.instance.as_str());
        if !instances.contains(&key) {
            instances.push(key);
        }
    }
    let of = |key: (&str, &str), row: usize| {
        section
            .figures
            .iter()
            .find(move |figure| {
                figure.row == row
                    && (figure.published.source.as_str(), figure.published.instance.as_str()) == key
            })
            .map(|figure| &figure.published)
    };
    let line = |key: (&str, &str)| {
        let any = section.figures.iter().find(|figure| figure.published.instance == key.1);
        let cores = any
            .and_then(|figure| figure.published.cores)
            .map_or("not said".into(), |cores| cores.to_string());
        let name = any.map_or(String::new(), |figure| figure.published.label());
        let mut cells = vec![Cell::from(format!("{name}, published")), cores.into()];
        cells.extend((0..section.rows.len()).map(|row| {
            of(key, row).map_or(Cell::default(), |figure| Cell {
                text: figure.qps.map(number::rate).unwrap_or_default(),
                note: times.and_then(|count| {
                    figure
                        .seconds
                        .map(|seconds| format!("{} s", number::short(seconds)))
                        .or_else(|| figure.qps.map(|per_second| time_of(count, per_second)))
                }),
                marks: Vec::new(),
            })
        }));
        Line { origin: Origin::Published, cells }
    };
    instances.into_iter().map(line).collect()
}

/// The cores that a measured server had.
pub fn cores(report: &Report, place: usize) -> String {
    match report.servers.get(place) {
        Some(server) if server.is_local => format!("{}, shared", report.machine.cores),
        _ => "not known".to_owned(),
    }
}

/// A line for each workload and server.
fn operations(report: &Report, section: &Section) -> Table {
    let head = [
        "Workload",
        "Server",
        "Cores",
        "QPS",
        "Read avg µs",
        "Read 99 % µs",
        "Load or update avg µs",
        "Load or update 99 % µs",
    ];
    let mut lines = Vec::new();
    for (index, row) in section.rows.iter().enumerate() {
        for (place, server) in report.servers.iter().enumerate() {
            if let Some(measured) = row.of(&server.name) {
                lines.push(operations_line(report, row, place, measured));
            }
        }
        for figure in section.figures.iter().filter(|figure| figure.row == index) {
            let published = &figure.published;
            let micros = |value: Option<f64>| Cell::from(value.map(number::micros).unwrap_or_default());
            lines.push(Line {
                origin: Origin::Published,
                cells: vec![
                    row.label.as_str().into(),
                    format!("{}, published", published.label()).into(),
                    published.cores.map_or("not said".into(), |cores| cores.to_string()).into(),
                    published.qps.map(number::rate).unwrap_or_default().into(),
                    micros(published.read_avg_us),
                    micros(published.read_p99_us),
                    micros(published.write_avg_us),
                    micros(published.write_p99_us),
                ],
            });
        }
    }
    let caption = format!("{}: operations per second and latencies", section.title);
    Table { caption, head: head.map(str::to_owned).to_vec(), text_columns: 2, lines }
}

fn operations_line(report: &Report, row: &Row, place: usize, measured: &Measurement) -> Line {
    let latencies = |of: Option<&KindLatency>| match of {
        Some(latency) => [number::micros(latency.average_us), number::micros(latency.p99_us)],
        None => [String::new(), String::new()],
    };
    let [read_average, read_p99] = latencies(reads(measured));
    let [write_average, write_p99] = latencies(writes(measured));
    Line {
        origin: Origin::Measured(place),
        cells: vec![
            row.label.as_str().into(),
            format!("{}, measured", measured.server).into(),
            cores(report, place).into(),
            rate_cell(Some(measured), None),
            read_average.into(),
            read_p99.into(),
            write_average.into(),
            write_p99.into(),
        ],
    }
}

/// The latencies of what a publication calls reads.
pub fn reads(measured: &Measurement) -> Option<&KindLatency> {
    of_kinds(measured, &["read", "get", "scan"])
}

/// The latencies of what a publication calls load, update or write.
pub fn writes(measured: &Measurement) -> Option<&KindLatency> {
    of_kinds(measured, &["update", "insert", "set", "read-modify-write"])
}

/// The first of some kinds of operations that occurred, in capitals or not.
fn of_kinds<'a>(measured: &'a Measurement, kinds: &[&str]) -> Option<&'a KindLatency> {
    let of = |kind: &&str| {
        measured.kinds.iter().find(|latency| latency.count > 0 && latency.kind.eq_ignore_ascii_case(kind))
    };
    kinds.iter().find_map(of)
}

/// Every measurement of a section with all that was found out.
pub fn details(report: &Report, section: &Section) -> Table {
    let head = [
        "Workload",
        "Server",
        "Ops/s",
        "Avg µs",
        "50 % µs",
        "90 % µs",
        "99 % µs",
        "99.9 % µs",
        "Max µs",
        "Server CPU µs/op",
        "Cores used",
        "Lacked",
        "Memory",
        "Errors",
        "Limit",
    ];
    let mut lines = Vec::new();
    for row in &section.rows {
        for (place, server) in report.servers.iter().enumerate() {
            let Some(measured) = row.of(&server.name) else { continue };
            lines.push(details_line(row, place, measured));
        }
    }
    let caption = format!("{}: every measurement", section.title);
    Table { caption, head: head.map(str::to_owned).to_vec(), text_columns: 2, lines }
}

fn details_line(row: &Row, place: usize, measured: &Measurement) -> Line {
    let all = &measured.all;
    let usage = measured.server_usage.as_ref();
    let mut cells = vec![
        row.label.as_str().into(),
        measured.server.as_str().into(),
        rate_cell(Some(measured), None),
        number::micros(all.average_us).into(),
        number::micros(all.p50_us).into(),
        number::micros(all.p90_us).into(),
        number::micros(all.p99_us).into(),
        number::micros(all.p999_us).into(),
        number::micros(all.max_us).into(),
    ];
    cells.push(usage.map(|usage| format!("{:.2}", usage.cpu_us_per_operation)).unwrap_or_default().into());
    cells.push(usage.map(|usage| format!("{:.2}", usage.cores_used)).unwrap_or_default().into());
    let lacked = usage.and_then(|usage| usage.cores_lacked);
    cells.push(lacked.map(|cores| format!("{cores:.2}")).unwrap_or_default().into());
    cells.push(usage.map(|usage| number::bytes(usage.rss_bytes_max)).unwrap_or_default().into());
    cells.push(number::grouped(measured.errors_total()).into());
    cells.push(limit(measured.limit.by).into());
    Line { origin: Origin::Measured(place), cells }
}

fn limit(by: LimitedBy) -> &'static str {
    match by {
        LimitedBy::Server => "server",
        LimitedBy::Generator => "generator",
        LimitedBy::Machine => "machine",
        LimitedBy::Rate => "rate",
        LimitedBy::Unknown => "none seen",
    }
}

/// The first server's rate by each other's, over the workloads of each section.
pub fn comparison(report: &Report) -> Option<Table> {
    let (first, others) = report.servers.split_first()?;
    let mut lines = Vec::new();
    let sections = report
        .chapters
        .iter()
        .flat_map(|chapter| chapter.sections.iter().map(move |section| (chapter, section)))
        // Whoever is down for longer has made fewer operations, by as much as the measurement is short.
        .filter(|(_, section)| section.layout != Layout::TimeLine);
    for (chapter, section) in sections {
        for (place, other) in others.iter().enumerate() {
            let mut ratios: Vec<f64> = Vec::new();
            let mut marks = BTreeSet::new();
            for row in &section.rows {
                let (Some(own), Some(its)) = (row.of(&first.name), row.of(&other.name)) else { continue };
                if its.operations_per_second() > 0.0 && own.operations_per_second() > 0.0 {
                    ratios.push(own.operations_per_second() / its.operations_per_second());
                    marks.extend(Mark::of(own).into_iter().chain(Mark::of(its)));
                }
            }
            ratios.sort_by(f64::total_cmp);
            let (Some(low), Some(high)) = (ratios.first(), ratios.last()) else { continue };
            let middle = f64::midpoint(ratios[(ratios.len() - 1) / 2], ratios[ratios.len() / 2]);
            lines.push(Line {
                origin: Origin::Measured(place + 1),
                cells: vec![
                    section.title.as_str().into(),
                    Cell {
                        text: other.name.clone(),
                        note: chapter
                            .is_promise_in_doubt(&other.name)
                            .then(|| "its promise is less or not known".to_owned()),
                        marks: Vec::new(),
                    },
                    Cell { text: number::factor(middle), note: None, marks: marks.into_iter().collect() },
                    match ratios.len() {
                        1 => "one workload".into(),
                        _ => format!("{} to {}", number::factor(*low), number::factor(*high)).into(),
                    },
                ],
            });
        }
    }
    let head = ["Workloads", "Against", "Median", "Range"].map(str::to_owned).to_vec();
    let caption = format!("Operations per second of {}, as a multiple of the other server's", first.name);
    (!lines.is_empty()).then_some(Table { caption, head, text_columns: 2, lines })
}
