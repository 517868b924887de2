//! Results on standard output: a table for people, and redis-benchmark's two short forms.

use super::options::Form;
use crate::results::{KindLatency, Measurement, UsageSource};
use crate::work::KV_TESTS;
use std::io::{self, Write};

/// Prints measurements as they come.
pub struct Printer {
    form: Form,
    has_printed: bool,
}

impl Printer {
    /// A printer that has not printed.
    pub fn new(form: Form) -> Printer {
        Printer { form, has_printed: false }
    }

    /// Prints one measurement.
    pub fn print(&mut self, measurement: &Measurement) {
        let text = match self.form {
            Form::Table if self.has_printed => format!("\n{}", table(measurement)),
            Form::Table => table(measurement),
            Form::Quiet => quiet(measurement),
            Form::Csv if self.has_printed => csv_row(measurement),
            Form::Csv => format!("{CSV_HEADER}\n{}", csv_row(measurement)),
        };
        self.has_printed = true;
        // A closed pipe has read enough.
        let _ = writeln!(io::stdout(), "{text}");
    }
}

/// redis-benchmark's columns.
const CSV_HEADER: &str = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\
                          \"p99_latency_ms\",\"max_latency_ms\"";

fn csv_row(measurement: &Measurement) -> String {
    let all = &measurement.all;
    let figures = [all.average_us, all.min_us, all.p50_us, all.p95_us, all.p99_us, all.max_us];
    let mut row = format!(
        "\"{}\",\"{:.2}\"",
        title(measurement).replace('"', "\"\""),
        measurement.operations_per_second()
    );
    figures.iter().for_each(|micros| row.push_str(&format!(",\"{:.3}\"", micros / 1000.0)));
    row
}

fn quiet(measurement: &Measurement) -> String {
    let mut line = format!(
        "{}: {:.2} requests per second, p50={:.3} msec",
        title(measurement),
        measurement.operations_per_second(),
        measurement.all.p50_us / 1000.0
    );
    if measurement.errors_total() > 0 {
        line.push_str(&format!(", {} errors ({})", measurement.errors_total(), measurement.errors[0].text));
    }
    line
}

/// redis-benchmark's title of its tests, else the label.
fn title(measurement: &Measurement) -> &str {
    let test = KV_TESTS.iter().find(|test| test.name == measurement.workload);
    test.map_or(&measurement.workload, |test| test.title)
}

fn table(measurement: &Measurement) -> String {
    let mut text =
        format!("{} on {}\n{}\n\n", measurement.workload, measurement.server, conditions(measurement));
    text.push_str(&format!(
        "  {:<18}{:>13}{:>12}{:>11}{:>11}{:>11}{:>11}{:>11}\n",
        "", "operations", "per second", "average", "p50", "p99", "p99.9", "max"
    ));
    let seconds = measurement.seconds.max(1e-9);
    if measurement.kinds.len() > 1 {
        measurement.kinds.iter().for_each(|kind| text.push_str(&row(&kind.kind, kind, seconds)));
        text.push_str(&row("all", &measurement.all, seconds));
    } else {
        let name = measurement.kinds.first().map_or("all", |kind| &kind.kind);
        text.push_str(&row(name, &measurement.all, seconds));
    }
    text.push('\n');
    notes(measurement).iter().for_each(|(name, note)| text.push_str(&format!("  {name:<11}{note}\n")));
    text.pop();
    text
}

fn conditions(measurement: &Measurement) -> String {
    let plural = |count: u32, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let mut parts = vec![
        plural(measurement.connections, "connection"),
        plural(measurement.threads, "thread"),
        format!("pipeline {}", measurement.pipeline),
    ];
    if measurement.value_bytes > 0 {
        parts.push(format!("values of {} bytes", measurement.value_bytes));
    }
    parts.extend(measurement.records.map(|records| format!("{records} keys")));
    parts.push(match measurement.rate_asked {
        Some(rate) => format!("{rate} a second by the clock"),
        None => "as fast as replies come".to_owned(),
    });
    parts.push(format!("{:.1} s", measurement.seconds));
    parts.join(", ")
}

fn row(name: &str, latency: &KindLatency, seconds: f64) -> String {
    let mut name = name.to_owned();
    if let Some((at, _)) = name.char_indices().nth(17) {
        name.truncate(at);
    }
    let times = [latency.average_us, latency.p50_us, latency.p99_us, latency.p999_us, latency.max_us];
    let mut row = format!("  {name:<18}{:>13}{:>12.0}", latency.count, latency.count as f64 / seconds);
    times.iter().for_each(|micros| row.push_str(&format!("{:>11}", time(*micros))));
    row.push('\n');
    row
}

fn time(micros: f64) -> String {
    match micros {
        micros if micros < 1000.0 => format!("{micros:.1} us"),
        micros if micros < 1_000_000.0 => format!("{:.3} ms", micros / 1000.0),
        micros => format!("{:.3} s", micros / 1_000_000.0),
    }
}

/// Lines below the table: what they are about, and what they say.
fn notes(measurement: &Measurement) -> Vec<(&'static str, String)> {
    let mut notes = Vec::new();
    if let Some(usage) = &measurement.server_usage {
        let source = match usage.source {
            UsageSource::Proc => "by /proc",
            UsageSource::Info => "by its INFO",
        };
        notes.push((
            "server",
            format!(
                "{:.2} us of CPU an operation, {:.2} cores, {:.1} MB resident ({source})",
                usage.cpu_us_per_operation,
                usage.cores_used,
                usage.rss_bytes as f64 / 1e6
            ),
        ));
    }
    let generator = measurement.generator_cpu_us_per_operation;
    notes.push(("generator", format!("{generator:.2} us of CPU an operation")));
    for error in &measurement.errors {
        notes.push(("errors", format!("{} times: {}", error.count, error.text)));
    }
    notes.push(("limit", measurement.limit.sentence.clone()));
    if let Some(reason) = &measurement.unfinished {
        notes.push(("unfinished", reason.clone()));
    }
    notes
}
