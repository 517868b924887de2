//! INFO's section Persistence: snapshots, the log and its checkpoints.
//!
//! The fields that Redis has for its append-only file tell of the log; those that it has not begin with `log_`.

use super::Page;
use crate::dispatch::Context;
use crate::server::Server;
use engine::Attention;
use engine::durability;
use std::fmt::Display;
use sys::UnixMs;

pub(super) fn persistence(context: &mut Context<'_, '_>, page: &mut Page) {
    let server = context.server;
    loading(server, page);
    page.lines(&[
        ("async_loading", &u8::from(server.engine.attention().contains(Attention::LOADING_BESIDE))),
        ("current_cow_peak", &0),
        ("current_cow_size", &0),
        ("current_cow_size_age", &0),
        ("current_fork_perc", &"0.00"),
    ]);
    snapshots(context, page);
    rewrites(server, page);
    page.lines(&[("module_fork_in_progress", &0), ("module_fork_last_cow_size", &0)]);
    log(server, page);
}

fn loading(server: &Server, page: &mut Page) {
    let is_loading = server.engine.attention().contains(Attention::LOADING);
    page.line("loading", u8::from(is_loading));
    if is_loading {
        let (done, all) = server.engine.durability.loading.progress();
        let seconds = seconds_since(server, server.started_at);
        page.lines(&[
            ("loading_start_time", &server.started_at.seconds()),
            ("loading_total_bytes", &all),
            ("loading_loaded_bytes", &done),
            ("loading_loaded_perc", &format!("{:.2}", done as f64 * 100.0 / all.max(1) as f64)),
            ("loading_eta_seconds", &(seconds * all.saturating_sub(done) / done.max(1))),
        ]);
    }
}

fn snapshots(context: &Context<'_, '_>, page: &mut Page) {
    let server = context.server;
    let saves = server.engine.snapshots.figures();
    let kept = server.engine.durability.key_counts.while_behind(&server.engine, || server.net.gate.open_to());
    let counted = kept.unwrap_or_else(|| durability::counts_of_now(&server.engine, context.batch));
    page.lines(&[
        ("current_save_keys_processed", &saves.keys_written),
        ("current_save_keys_total", &saves.keys_total),
        ("rdb_changes_since_last_save", &counted.writes.saturating_sub(saves.changes_saved)),
        ("rdb_bgsave_in_progress", &u8::from(saves.running_since.is_some() || server.feeding.is_copying())),
        ("rdb_last_save_time", &saves.saved_at.seconds()),
        ("rdb_last_bgsave_status", &status(saves.failed_last)),
        ("rdb_last_bgsave_time_sec", &or_never(saves.last_duration_s)),
        ("rdb_current_bgsave_time_sec", &or_never(saves.running_since.map(|at| seconds_since(server, at)))),
        ("rdb_saves", &saves.saves),
        ("rdb_last_cow_size", &0),
        ("rdb_last_load_keys_expired", &saves.expired_at_load),
        ("rdb_last_load_keys_loaded", &saves.loaded),
    ]);
}

fn rewrites(server: &Server, page: &mut Page) {
    let rewrites = server.engine.durability.rewrites.figures();
    let has_log = server.engine.durability.kept_log().is_some();
    // It may go on for a checkpoint only.
    let is_enabled = has_log && durability::policy(&server.engine.config).is_some();
    let failure = server.engine.durability.log().and_then(|log| log.writable().err());
    page.lines(&[
        ("aof_enabled", &u8::from(is_enabled)),
        ("aof_rewrite_in_progress", &u8::from(rewrites.running_since.is_some())),
        ("aof_rewrite_scheduled", &u8::from(rewrites.is_owed && rewrites.running_since.is_none())),
        ("aof_last_rewrite_time_sec", &or_never(rewrites.last_duration_s)),
        (
            "aof_current_rewrite_time_sec",
            &or_never(rewrites.running_since.map(|at| seconds_since(server, at))),
        ),
        ("aof_last_bgrewrite_status", &status(rewrites.failed_last)),
        ("aof_rewrites", &rewrites.count),
        ("aof_rewrites_consecutive_failures", &rewrites.failures_in_a_row),
        ("aof_last_write_status", &status(failure.is_some())),
        ("aof_last_cow_size", &0),
    ]);
}

/// What there is only with a log.
fn log(server: &Server, page: &mut Page) {
    let Some(log) = server.engine.durability.kept_log() else { return };
    let (status, rewrites) = (log.status(), server.engine.durability.rewrites.figures());
    let checkpoint = log.last_checkpoint();
    page.lines(&[
        ("aof_current_size", &status.segment_bytes),
        ("aof_base_size", &rewrites.last_bytes),
        ("aof_pending_rewrite", &0),
        ("aof_buffer_length", &status.buffer_bytes),
        ("aof_pending_bio_fsync", &0),
        ("aof_delayed_fsync", &0),
        ("log_appended_lsn", &status.appended.0),
        ("log_written_lsn", &status.written.0),
        ("log_durable_lsn", &status.durable.0),
        ("log_oldest_lsn", &status.oldest.0),
        ("log_checkpoint_lsn", &checkpoint.0),
        ("log_bytes_since_checkpoint", &status.appended.0.saturating_sub(checkpoint.0)),
        ("log_segments", &status.segments),
        ("log_syncs", &status.syncs),
        ("log_last_sync_usec", &status.last_sync_us),
        ("log_checkpoint_keys_processed", &rewrites.keys_copied),
        ("log_checkpoint_keys_total", &rewrites.keys_total),
    ]);
    if let Some(failure) = status.failure {
        page.line("log_last_error", failure);
    }
}

fn seconds_since(server: &Server, at: UnixMs) -> u64 {
    server.engine.clock.now().0.saturating_sub(at.0) / 1000
}

/// A time, or -1 for what has not been yet.
fn or_never(seconds: Option<u64>) -> impl Display {
    seconds.map_or(-1, |seconds| seconds as i64)
}

fn status(has_failed: bool) -> &'static str {
    if has_failed { "err" } else { "ok" }
}
