//! INFO's sections Stats, CPU, Commandstats, Errorstats and Latencystats.

use super::Page;
use crate::dispatch::Context;
use crate::server::Server;
use command::table::{self, CommandId};
use sys::process::{CpuTime, cpu_time, main_thread_cpu_time};
use telemetry::rounds;
use telemetry::samples::Rate;
use telemetry::stats::{CommandTotals, bucket_floor};

pub(super) fn stats(context: &mut Context<'_, '_>, page: &mut Page) {
    let server = context.server;
    let (counts, keys) = (&server.counts, server.engine.keyspace.stats());
    let kilobytes = |rate| format!("{:.2}", server.samples.per_second(rate) as f64 / 1024.0);
    page.lines(&[
        ("total_connections_received", &counts.connections.get()),
        ("total_commands_processed", &counts.commands.get()),
        ("instantaneous_ops_per_sec", &server.samples.per_second(Rate::Commands)),
        ("total_net_input_bytes", &counts.input_bytes.get()),
        ("total_net_output_bytes", &counts.output_bytes.get()),
        ("total_net_repl_input_bytes", &0),
        ("total_net_repl_output_bytes", &server.feeding.sent_bytes.get()),
        ("instantaneous_input_kbps", &kilobytes(Rate::InputBytes)),
        ("instantaneous_output_kbps", &kilobytes(Rate::OutputBytes)),
        ("instantaneous_input_repl_kbps", &"0.00"),
        ("instantaneous_output_repl_kbps", &"0.00"),
        ("rejected_connections", &counts.rejected_connections.get()),
        ("sync_full", &server.feeding.full_copies.get()),
        ("sync_partial_ok", &server.feeding.continued.get()),
        ("sync_partial_err", &server.feeding.refused.get()),
        ("sync_rewinds", &server.feeding.rewinds.get()),
        ("expired_keys", &keys.expired.get()),
        ("expired_stale_perc", &"0.00"),
        ("expired_time_cap_reached_count", &0),
        ("expire_cycle_cpu_milliseconds", &0),
        ("evicted_keys", &keys.evicted.get()),
        ("evicted_clients", &server.net.clients.evicted.get()),
        ("evicted_scripts", &context.server.engine.scripts.evicted.get()),
        ("total_eviction_exceeded_time", &0),
        ("current_eviction_exceeded_time", &0),
        ("keyspace_hits", &keys.hits.get()),
        ("keyspace_misses", &keys.misses.get()),
    ]);
    let pubsub = &server.pubsub;
    page.lines(&[
        ("pubsub_channels", &pubsub.channels.count()),
        ("pubsub_patterns", &pubsub.patterns.count()),
        ("pubsubshard_channels", &pubsub.shard_channels.count()),
        ("slave_expires_tracked_keys", &server.engine.keyspace.remembered_beside()),
    ]);
    absent(page);
    page.lines(&[
        ("tracking_total_keys", &server.tracking.key_count()),
        ("tracking_total_items", &server.tracking.item_count()),
        ("tracking_total_prefixes", &server.tracking.prefix_count()),
        ("unexpected_error_replies", &0),
        ("total_error_replies", &counts.errors.get()),
        ("dump_payload_sanitizations", &0),
        ("total_reads_processed", &counts.reads.get()),
        ("total_writes_processed", &counts.writes.get()),
        ("io_threaded_reads_processed", &0),
        ("io_threaded_writes_processed", &0),
        ("reply_buffer_shrinks", &0),
        ("reply_buffer_expands", &0),
        ("client_query_buffer_limit_disconnections", &counts.query_limit_disconnections.get()),
        ("client_output_buffer_limit_disconnections", &server.net.clients.output_limit_disconnections.get()),
        ("acl_access_denied_auth", &counts.auth_failures.get()),
        ("acl_access_denied_cmd", &counts.denied_commands.get()),
        ("acl_access_denied_key", &counts.denied_keys.get()),
        ("acl_access_denied_channel", &counts.denied_channels.get()),
        ("acl_access_denied_tls_cert", &counts.denied_certificates.get()),
    ]);
    event_loop(server, page);
}

/// Workers have a loop each; what is told is of all of them.
fn event_loop(server: &Server, page: &mut Page) {
    let ticks = table::all().iter().map(|command| totals(server, command.id).ticks).sum();
    let rounds = rounds::totals(&server.net.rounds);
    page.lines(&[
        ("eventloop_cycles", &rounds.rounds),
        ("eventloop_duration_sum", &micros(server, rounds.ticks)),
        ("eventloop_duration_cmd_sum", &micros(server, ticks)),
        ("instantaneous_eventloop_cycles_per_sec", &server.samples.per_second(Rate::Rounds)),
        ("instantaneous_eventloop_duration_usec", &server.samples.micros_per_round()),
    ]);
}

pub(super) fn debug(context: &mut Context<'_, '_>, page: &mut Page) {
    let server = context.server;
    let rounds = rounds::totals(&server.net.rounds);
    page.lines(&[
        ("eventloop_duration_aof_sum", &micros(server, rounds.log_ticks)),
        ("eventloop_duration_cron_sum", &micros(server, rounds.tick_ticks)),
        ("eventloop_duration_max", &micros(server, rounds.longest_ticks)),
        ("eventloop_cmd_per_cycle_max", &rounds.most_commands),
    ]);
}

fn micros(server: &Server, ticks: u64) -> u64 {
    server.ticks.nanos(ticks) / 1000
}

/// What the server does not have.
fn absent(page: &mut Page) {
    const NAMES: [&str; 9] = [
        "latest_fork_usec",
        "total_forks",
        "migrate_cached_sockets",
        "active_defrag_hits",
        "active_defrag_misses",
        "active_defrag_key_hits",
        "active_defrag_key_misses",
        "total_active_defrag_time",
        "current_active_defrag_time",
    ];
    NAMES.iter().for_each(|name| page.line(name, 0));
}

pub(super) fn cpu(_: &mut Context<'_, '_>, page: &mut Page) {
    let mut times = |suffix: &str, time: CpuTime| {
        page.line(&format!("used_cpu_sys{suffix}"), format_args!("{:.6}", time.system.as_secs_f64()));
        page.line(&format!("used_cpu_user{suffix}"), format_args!("{:.6}", time.user.as_secs_f64()));
    };
    times("", cpu_time());
    times("_children", CpuTime::default());
    times("_main_thread", main_thread_cpu_time());
}

/// The counts of one command, over all workers.
fn totals(server: &Server, id: CommandId) -> CommandTotals {
    let mut totals = CommandTotals::default();
    server.worker_counts.iter().for_each(|worker| worker.add_to(id, &mut totals));
    totals
}

pub(super) fn commandstats(context: &mut Context<'_, '_>, page: &mut Page) {
    for command in table::all() {
        let totals = totals(context.server, command.id);
        let CommandTotals { calls, rejected, failed, .. } = totals;
        if calls + rejected + failed == 0 {
            continue;
        }
        let nanos = context.server.ticks.nanos(totals.ticks);
        let each = if calls == 0 { 0.0 } else { nanos as f64 / 1000.0 / calls as f64 };
        page.line(
            &format!("cmdstat_{}", command.row.name),
            format_args!(
                "calls={calls},usec={},usec_per_call={each:.2},rejected_calls={rejected},failed_calls={failed}",
                nanos / 1000
            ),
        );
    }
}

pub(super) fn errorstats(context: &mut Context<'_, '_>, page: &mut Page) {
    for (code, count) in context.server.counts.errors_by_code.all() {
        page.line(&format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

pub(super) fn latencystats(context: &mut Context<'_, '_>, page: &mut Page) {
    let percentiles = context.server.engine.config.latency_percentiles();
    for command in table::all() {
        let counts = duration_counts(context.server, command.id);
        if counts.is_empty() {
            continue;
        }
        let each = percentiles.iter().map(|percentile| {
            let nanos = percentile_nanos(&counts, *percentile);
            format!("p{percentile}={:.3}", nanos as f64 / 1000.0)
        });
        page.line(
            &format!("latency_percentiles_usec_{}", command.row.name),
            each.collect::<Vec<_>>().join(","),
        );
    }
}

/// How many runs of a command lasted at most so many nanoseconds, in ascending
/// order of the durations that occurred. Empty if none was recorded.
pub(crate) fn duration_counts(server: &Server, id: CommandId) -> Vec<(u64, u64)> {
    let mut sum = 0;
    let counts = totals(server, id).durations;
    let occurred = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    occurred
        .map(|(bucket, count)| {
            sum += count;
            (server.ticks.nanos(bucket_floor(bucket + 1) - 1), sum)
        })
        .collect()
}

fn percentile_nanos(counts: &[(u64, u64)], percentile: f64) -> u64 {
    let all = counts.last().map_or(0, |(_, sum)| *sum);
    let wanted = ((percentile / 100.0 * all as f64).ceil() as u64).clamp(1, all);
    counts.iter().find(|(_, sum)| *sum >= wanted).map_or(0, |(nanos, _)| *nanos)
}

#[cfg(test)]
mod tests {
    use super::percentile_nanos;

    #[test]
    fn percentile_is_the_duration_that_so_many_runs_keep() {
        let counts = [(100, 98), (200, 99), (5000, 100)];
        assert_eq!(
            [0.0, 50.0, 98.0, 99.0, 99.9, 100.0].map(|percentile| percentile_nanos(&counts, percentile)),
            [100, 100, 100, 200, 5000, 5000]
        );
    }
}
