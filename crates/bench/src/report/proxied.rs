//! The table of a load that goes through proxies: rate, latency, and what proxies and servers took, each by itself.
//!
//! Laid out as the published clusters are: by the number of shards, with the connections that an instance admits.

use super::layouts::{cores, rate_cell};
use super::table::{Cell, Line, Origin, Table};
use super::{Published, Report, Row, Section, number};
use crate::results::Measurement;

const HEAD: [&str; 9] = [
    "Workload",
    "Server",
    "Cores",
    "Connections",
    "QPS",
    "Avg µs",
    "99 % µs",
    "Proxies' CPU µs/op",
    "Servers' CPU µs/op",
];

/// A line for each workload and server, the published ones of the same number of shards behind them.
pub fn table(report: &Report, section: &Section) -> Table {
    let mut lines = Vec::new();
    for (index, row) in section.rows.iter().enumerate() {
        for (place, server) in report.servers.iter().enumerate() {
            lines.extend(row.of(&server.name).map(|measured| measured_line(report, row, place, measured)));
        }
        let figures = section.figures.iter().filter(|figure| figure.row == index);
        lines.extend(figures.map(|figure| published_line(row, &figure.published)));
    }
    let caption =
        format!("{}: operations per second, latency, and processor time for each operation", section.title);
    Table { caption, head: HEAD.map(str::to_owned).to_vec(), text_columns: 2, lines }
}

fn measured_line(report: &Report, row: &Row, place: usize, measured: &Measurement) -> Line {
    let [proxies, servers] = costs(measured);
    Line {
        origin: Origin::Measured(place),
        cells: vec![
            row.label.as_str().into(),
            format!("{}, measured", measured.server).into(),
            cores(report, place).into(),
            number::grouped(measured.connections.into()).into(),
            rate_cell(Some(measured), None),
            number::micros(measured.all.average_us).into(),
            number::micros(measured.all.p99_us).into(),
            proxies,
            servers,
        ],
    }
}

/// What proxies and servers took for an operation; empty where it is not known.
fn costs(measured: &Measurement) -> [Cell; 2] {
    let proxies = measured.proxy_usage.as_ref().map(|usage| usage.cpu_us_per_operation);
    let all = measured.server_usage.as_ref().map(|usage| usage.cpu_us_per_operation);
    let servers = all.zip(proxies).map(|(all, proxies)| all - proxies);
    [proxies, servers].map(|cost| cost.map(|cost| format!("{cost:.2}")).unwrap_or_default().into())
}

fn published_line(row: &Row, published: &Published) -> Line {
    let network = published.bandwidth_mb_s.map(|most| format!("at most, {} MB/s", number::short(most)));
    let mut cells = vec![
        row.label.as_str().into(),
        format!("{}, published", published.label()).into(),
        published.cores.map_or("not said".into(), |cores| cores.to_string()).into(),
        Cell {
            text: published.max_connections.map(number::grouped).unwrap_or_default(),
            note: network,
            marks: Vec::new(),
        },
        published.qps.map(number::rate).unwrap_or_default().into(),
    ];
    cells.resize(HEAD.len(), Cell::default());
    Line { origin: Origin::Published, cells }
}
