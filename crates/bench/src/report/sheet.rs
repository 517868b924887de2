//! The report as comma-separated values: a line for each measurement and for each published figure beside it.
//!
//! The first columns are those of the list of published figures, in its order and units, so that the two can be laid
//! under each other; what only a measurement has comes after.

use super::{Chapter, Figure, Machine, Report, Residence, Section, layouts};
use crate::results::{KindLatency, Measurement};
use serde::Serialize;

/// One line. What is not known is empty.
#[derive(Serialize, Default)]
struct Record<'a> {
    source: &'a str,
    edition: &'a str,
    instance: &'a str,
    cores: Option<u32>,
    masters: Option<u32>,
    max_connections: Option<u64>,
    bandwidth_mb_s: Option<f64>,
    scenario: &'a str,
    records: Option<u64>,
    operations: Option<u64>,
    threads: Option<u32>,
    workload: &'a str,
    value_bytes: Option<u64>,
    qps: Option<f64>,
    read_avg_us: Option<f64>,
    read_p99_us: Option<f64>,
    write_avg_us: Option<f64>,
    write_p99_us: Option<f64>,
    seconds: Option<f64>,
    chapter: &'a str,
    row: &'a str,
    connections: Option<u32>,
    pipeline: Option<u32>,
    average_us: Option<f64>,
    p50_us: Option<f64>,
    p90_us: Option<f64>,
    p99_us: Option<f64>,
    p999_us: Option<f64>,
    max_us: Option<f64>,
    server_cpu_us_per_operation: Option<f64>,
    proxy_cpu_us_per_operation: Option<f64>,
    server_cores_used: Option<f64>,
    server_cores_lacked: Option<f64>,
    server_rss_bytes_max: Option<u64>,
    ceiling_bytes: Option<u64>,
    hit_ratio: Option<f64>,
    cold_reads: Option<u64>,
    store_bytes_live: Option<u64>,
    store_bytes_dead: Option<u64>,
    store_write_amplification: Option<f64>,
    disk_read_bytes: Option<u64>,
    disk_written_bytes: Option<u64>,
    generator_cpu_us_per_operation: Option<f64>,
    errors: Option<u64>,
    without_writes_ms: Option<f64>,
    limit: &'a str,
    unfinished: &'a str,
    command: &'a str,
}

/// The whole report as CSV.
pub fn sheet(report: &Report) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for chapter in &report.chapters {
        for section in &chapter.sections {
            write_section(&mut writer, report, chapter, section).expect("memory takes what is written");
        }
    }
    writer.into_inner().expect("memory takes what is written")
}

fn write_section(
    writer: &mut csv::Writer<Vec<u8>>,
    report: &Report,
    chapter: &Chapter,
    section: &Section,
) -> csv::Result<()> {
    for (index, row) in section.rows.iter().enumerate() {
        for measured in &row.measurements {
            let is_local =
                report.servers.iter().any(|server| server.name == measured.server && server.is_local);
            let record = of_measurement(measured, is_local.then_some(&report.machine));
            let allowance = section.allowance.as_ref().filter(|one| one.server == measured.server);
            writer.serialize(Record {
                chapter: &chapter.name,
                row: &row.label,
                ceiling_bytes: allowance.map(|allowance| allowance.ceiling_bytes),
                ..with_residence(record, row.residence(&measured.server))
            })?;
        }
        for figure in section.figures.iter().filter(|figure| figure.row == index) {
            writer.serialize(Record { chapter: &chapter.name, row: &row.label, ..of_figure(figure) })?;
        }
    }
    Ok(())
}

fn of_measurement<'a>(measured: &'a Measurement, machine: Option<&Machine>) -> Record<'a> {
    let average = |latency: Option<&KindLatency>| latency.map(|latency| latency.average_us);
    let p99 = |latency: Option<&KindLatency>| latency.map(|latency| latency.p99_us);
    let usage = measured.server_usage.as_ref();
    Record {
        source: "measured",
        instance: &measured.server,
        cores: machine.map(|machine| machine.cores),
        records: measured.records,
        operations: Some(measured.operations),
        threads: Some(measured.threads),
        workload: &measured.workload,
        value_bytes: Some(measured.value_bytes),
        qps: Some(measured.operations_per_second()),
        read_avg_us: average(layouts::reads(measured)),
        read_p99_us: p99(layouts::reads(measured)),
        write_avg_us: average(layouts::writes(measured)),
        write_p99_us: p99(layouts::writes(measured)),
        seconds: Some(measured.seconds),
        connections: Some(measured.connections),
        pipeline: Some(measured.pipeline),
        average_us: Some(measured.all.average_us),
        p50_us: Some(measured.all.p50_us),
        p90_us: Some(measured.all.p90_us),
        p99_us: Some(measured.all.p99_us),
        p999_us: Some(measured.all.p999_us),
        max_us: Some(measured.all.max_us),
        server_cpu_us_per_operation: usage.map(|usage| usage.cpu_us_per_operation),
        proxy_cpu_us_per_operation: measured.proxy_usage.as_ref().map(|usage| usage.cpu_us_per_operation),
        server_cores_used: usage.map(|usage| usage.cores_used),
        server_cores_lacked: usage.and_then(|usage| usage.cores_lacked),
        server_rss_bytes_max: usage.map(|usage| usage.rss_bytes_max),
        generator_cpu_us_per_operation: Some(measured.generator_cpu_us_per_operation),
        errors: Some(measured.errors_total()),
        without_writes_ms: measured.timeline.as_ref().map(|line| line.silence.ms),
        limit: &measured.limit.sentence,
        unfinished: measured.unfinished.as_deref().unwrap_or(""),
        command: &measured.command,
        ..Record::default()
    }
}

/// A line with what the server took of memory and disk. Its memory was looked at more often, and for longer.
fn with_residence<'a>(record: Record<'a>, residence: Option<&Residence>) -> Record<'a> {
    let Some(residence) = residence else { return record };
    Record {
        server_rss_bytes_max: residence.rss_bytes_max.max(record.server_rss_bytes_max),
        hit_ratio: residence.hit_ratio,
        cold_reads: residence.cold_reads,
        store_bytes_live: residence.stored_number("store_bytes_live"),
        store_bytes_dead: residence.stored_number("store_bytes_dead"),
        store_write_amplification: residence.stored_number("store_write_amplification"),
        disk_read_bytes: residence.disk_read_bytes,
        disk_written_bytes: residence.disk_written_bytes,
        ..record
    }
}

fn of_figure(figure: &Figure) -> Record<'_> {
    let published = &figure.published;
    Record {
        source: &published.source,
        edition: &published.edition,
        instance: &published.instance,
        cores: published.cores,
        masters: published.masters,
        max_connections: published.max_connections,
        bandwidth_mb_s: published.bandwidth_mb_s,
        scenario: &published.scenario,
        records: published.records,
        operations: published.operations,
        threads: published.threads,
        workload: &published.workload,
        value_bytes: published.value_bytes,
        qps: published.qps,
        read_avg_us: published.read_avg_us,
        read_p99_us: published.read_p99_us,
        write_avg_us: published.write_avg_us,
        write_p99_us: published.write_p99_us,
        seconds: published.seconds,
        ..Record::default()
    }
}
