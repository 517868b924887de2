//! LATENCY: events that took long, and how long commands usually take.

use super::info::duration_counts;
use super::{HELP_FLAGS, help, row, unknown_subcommand};
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use crate::server::Server;
use command::table::{self, Command};
use command::{Error, Flags, Group, Reach, Result, Row, Shows};
use std::fmt::Write;
use sys::UnixMs;
use telemetry::latency::{Sample, Series};
use wire::Reply;

/// LATENCY.
pub const ROWS: &[Row<ServerHandler>] =
    &[row("latency", -2, Reach::Around, Flags::empty(), |context, _| unknown_subcommand(context))
        .shows(Shows::Nothing)
        .group(Group::Server)
        .since("2.8.13")
        .complexity("Depends on the subcommand.")
        .summary("Shows what took long and how long commands take.")
        .subcommands(SUBCOMMANDS)];

const VARIES: &[&str] = &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"];

const SUBCOMMANDS: &[Row<ServerHandler>] = &[
    sub("latency|doctor", 2, doctor)
        .shows(Shows::Nothing)
        .summary("Reports on what took long, in words.")
        .tips(VARIES),
    sub("latency|graph", 3, graph)
        .shows(Shows::Nothing)
        .syntax("event")
        .summary("Draws the samples of an event with characters.")
        .tips(VARIES),
    row("latency|help", 2, Reach::Around, HELP_FLAGS, |_, reply| help(reply, "LATENCY", HELP))
        .shows(Shows::Nothing)
        .group(Group::Server)
        .since("2.8.13")
        .summary("Lists the subcommands."),
    sub("latency|histogram", -2, histogram)
        .shows(Shows::Nothing)
        .since("7.0.0")
        .complexity("O(N), N being the number of commands")
        .syntax("[command [command ...]]")
        .summary("Counts how many runs of commands took how long.")
        .tips(VARIES),
    sub("latency|history", 3, history)
        .shows(Shows::Nothing)
        .syntax("event")
        .summary("Replies with the samples of an event.")
        .tips(VARIES),
    sub("latency|latest", 2, latest)
        .shows(Shows::Nothing)
        .summary("Replies with the latest sample of each event.")
        .tips(VARIES),
    sub("latency|reset", -2, reset)
        .shows(Shows::Nothing)
        .syntax("[event [event ...]]")
        .summary("Forgets the samples of events.")
        .tips(&["request_policy:all_nodes", "response_policy:agg_sum"]),
];

const HELP: &[&str] = &[
    "DOCTOR",
    "    A report in words on what took long.",
    "GRAPH <event>",
    "    The samples of an event, drawn with characters.",
    "HISTORY <event>",
    "    The samples of an event.",
    "LATEST",
    "    The latest sample of each event, and its worst.",
    "RESET [<event> ...]",
    "    Forget the samples of the events named, or of all.",
    "HISTOGRAM [<command> ...]",
    "    How many runs took at most so many microseconds, for the commands named or for all.",
];

const fn sub(name: &'static str, arity: i32, handler: ServerHandler) -> Row<ServerHandler> {
    const FLAGS: Flags = Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE);
    row(name, arity, Reach::Around, FLAGS, handler).group(Group::Server).since("2.8.13")
}

/// LATENCY LATEST
fn latest(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let all = context.server.latency.all();
    reply.array(all.len());
    for (event, series) in all {
        let last = series.last();
        reply.array(4);
        reply.bulk(event.as_bytes());
        [last.at_s, last.ms, series.worst_ms].into_iter().for_each(|number| reply.int(number as i64));
    }
    Ok(())
}

/// LATENCY HISTORY event
fn history(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let series = context.server.latency.series(context.request.arg(2)).unwrap_or_default();
    reply.array(series.samples.len());
    for sample in series.samples {
        reply.array(2);
        reply.int(sample.at_s as i64);
        reply.int(sample.ms as i64);
    }
    Ok(())
}

/// LATENCY RESET [event [event ...]]
fn reset(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let monitor = &context.server.latency;
    let forgotten = match context.request.len() {
        2 => monitor.reset_all(),
        _ => context.request.iter().skip(2).filter(|event| monitor.reset(event)).count(),
    };
    reply.int(forgotten as i64);
    Ok(())
}

/// LATENCY GRAPH event
fn graph(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let event = context.request.arg(2);
    let series = context
        .server
        .latency
        .series(event)
        .ok_or_else(|| Error::quoting("ERR No samples available for event '", event, "'"))?;
    let drawing = draw(&String::from_utf8_lossy(event), &series, context.now);
    reply.verbatim("txt", drawing.as_bytes());
    Ok(())
}

/// Rows of a drawing.
const GRAPH_ROWS: u64 = 4;

/// A column for each sample, its age written below it from top to bottom.
fn draw(event: &str, series: &Series, now: UnixMs) -> String {
    let (low, high) = series.range_ms();
    let mut text = format!("{event} - high {high} ms, low {low} ms (all time high {} ms)\n", series.worst_ms);
    text.push_str(&"-".repeat(80));
    text.push('\n');
    // Each row has three levels: `_`, `o` and `#`.
    let level = |sample: &Sample| match high - low {
        0 => 0,
        span => (sample.ms - low) * (GRAPH_ROWS * 3 - 1) / span,
    };
    for row in (0..GRAPH_ROWS).rev() {
        let cells = series.samples.iter().map(|sample| match level(sample).checked_sub(row * 3) {
            None => ' ',
            Some(above @ 0..=2) => ['_', 'o', '#'][above as usize],
            Some(_) => '|',
        });
        let cells: String = cells.collect();
        text.push_str(cells.trim_end());
        text.push('\n');
    }
    text.push('\n');
    let ages: Vec<String> = series.samples.iter().map(|sample| age(sample, now)).collect();
    for place in 0..ages.iter().map(String::len).max().unwrap_or(0) {
        let cells = ages.iter().map(|age| age.as_bytes().get(place).map_or(' ', |byte| char::from(*byte)));
        let cells: String = cells.collect();
        text.push_str(cells.trim_end());
        text.push('\n');
    }
    text
}

/// `5s`, `12m`, `3h` or `2d` ago.
fn age(sample: &Sample, now: UnixMs) -> String {
    let seconds = now.seconds().saturating_sub(sample.at_s);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// LATENCY DOCTOR
fn doctor(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let report = report(context.server, context.now);
    reply.verbatim("txt", report.as_bytes());
    Ok(())
}

fn report(server: &Server, now: UnixMs) -> String {
    let threshold_ms = server.engine.config.latency_monitor_threshold_ms();
    if threshold_ms == 0 {
        return "The latency monitor is off. Switch it on with CONFIG SET latency-monitor-threshold \
                <milliseconds>, and come back when something has been slow."
            .to_owned();
    }
    let all = server.latency.all();
    if all.is_empty() {
        return format!("Nothing has taken {threshold_ms} milliseconds or longer since the last reset.");
    }
    let mut text = format!("What took {threshold_ms} milliseconds or longer:\n\n");
    for (event, series) in &all {
        let last = series.last();
        writeln!(
            text,
            "- {event}: {} samples, mean {} ms, worst {} ms, latest {} ms {} ago.",
            series.samples.len(),
            series.mean_ms(),
            series.worst_ms,
            last.ms,
            age(&last, now)
        )
        .expect("a string takes every text");
    }
    text.push_str("\nWhat may help:\n\n");
    for (event, _) in &all {
        text.push_str(match *event {
            "command" => {
                "- Slow commands: SLOWLOG GET shows which. Prefer SCAN to KEYS, and parts of large values \
                 to whole ones.\n"
            }
            "fast-command" => {
                "- Fast commands were slow, so the machine was busy: look for other programs, for swapping \
                 and for too many worker threads.\n"
            }
            "expire-cycle" => "- Many keys expired at once: spread their times to live.\n",
            "eviction-cycle" => "- Memory is full and writes wait for eviction: raise maxmemory.\n",
            _ => "",
        });
    }
    text
}

/// LATENCY HISTOGRAM [command [command ...]]
fn histogram(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let map = reply.deferred_map();
    let mut count = 0;
    for command in commands_asked_for(context) {
        let counts = duration_counts(context.server, command.id);
        let Some((_, calls)) = counts.last() else { continue };
        count += 1;
        reply.bulk(command.row.name.as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.int(*calls as i64);
        reply.bulk(b"histogram_usec");
        let steps = steps(&counts);
        reply.map(steps.len());
        for (micros, runs) in steps {
            reply.int(micros as i64);
            reply.int(runs as i64);
        }
    }
    reply.end(map, count);
    Ok(())
}

/// A container stands for its subcommands too.
fn commands_asked_for(context: &Context<'_, '_>) -> Vec<&'static Command> {
    if context.request.len() == 2 {
        return table::all().iter().collect();
    }
    let mut all = Vec::new();
    for name in context.request.iter().skip(2) {
        if let Some(command) = context.server.names.find_full(name) {
            all.push(command);
            all.extend(command.subcommands.iter().map(|id| table::get(*id)));
        }
    }
    all
}

/// How many runs took at most so many microseconds, at bounds that double; bounds
/// that no run adds to are left out. The bounds are Redis' own, which come from its
/// histograms' precision of 1 in 128.
fn steps(counts: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut steps: Vec<(u64, u64)> = Vec::new();
    let all = counts.last().map_or(0, |(_, sum)| *sum);
    for exponent in 10..63 {
        let bound = (1u64 << exponent) + (1 << (exponent - 7)) - 1;
        let within = counts.partition_point(|(nanos, _)| *nanos <= bound);
        let runs = within.checked_sub(1).map_or(0, |last| counts[last].1);
        if runs > steps.last().map_or(0, |(_, before)| *before) {
            steps.push((bound / 1000, runs));
        }
        if runs == all {
            break;
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_redis() {
        let counts: Vec<(u64, u64)> = (10..22).map(|exponent| 1u64 << exponent).zip(1..).collect();
        let bounds: Vec<u64> = steps(&counts).into_iter().map(|(bound, _)| bound).collect();
        assert_eq!(bounds, [1, 2, 4, 8, 16, 33, 66, 132, 264, 528, 1056, 2113]);
        assert_eq!(steps(&[(1_100_000, 7)]), [(2113, 7)]);
    }

    #[test]
    fn highest_sample_reaches_the_top_row() {
        let samples = [(90, 10), (95, 500), (99, 200)].map(|(at_s, ms)| Sample { at_s, ms });
        let series = Series { samples: samples.into(), worst_ms: 700 };
        let drawing = draw("command", &series, UnixMs(100_000));
        let rows: Vec<&str> = drawing.lines().collect();
        assert_eq!(rows[0], "command - high 500 ms, low 10 ms (all time high 700 ms)");
        assert_eq!(rows[2..], [" #", " |", " |o", "_||", "", "151", "0ss", "s"]);
    }
}
