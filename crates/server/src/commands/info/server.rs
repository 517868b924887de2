//! INFO's sections Server, Clients, Persistence, Replication, Cluster and Keyspace.

use super::Page;
use crate::commands::insync;
use crate::dispatch::Context;
use crate::feeding;
use crate::followed::{Phase, Status};
use crate::replicas::standing;
use command::version::REDIS_VERSION;
use config::Supervision;
use engine::durability::{self, KeyCount};
use net::client::Traits;
use std::sync::atomic::Ordering;
use sys::UnixMs;

/// The Redis clock of access times has 24 bits.
const LRU_CLOCK_MASK: u64 = (1 << 24) - 1;

/// How many users are named whose lines in the cluster's store a proxy cannot read.
const UNREAD_SHOWN: usize = 10;

pub(super) fn server(context: &mut Context<'_, '_>, page: &mut Page) {
    let (server, config) = (context.server, &context.server.engine.config);
    let uptime_s = context.now.0.saturating_sub(server.started_at.0) / 1000;
    let supervised = config.supervised();
    let executable = std::env::current_exe().unwrap_or_default();
    let file = config.file().map(|file| std::path::absolute(file).unwrap_or_else(|_| file.to_owned()));
    page.lines(&[
        ("redis_version", &REDIS_VERSION),
        ("redis_git_sha1", &"00000000"),
        ("redis_git_dirty", &0),
        ("redis_build_id", &"0"),
        ("redis_mode", &server.mode()),
        ("tarn_version", &env!("CARGO_PKG_VERSION")),
        ("edition", &config.edition().word()),
        ("os", &format_args!("Linux {} {}", sys::process::kernel_release(), std::env::consts::ARCH)),
        ("arch_bits", &usize::BITS),
        ("monotonic_clock", &"processor counter"),
        ("multiplexing_api", &"epoll"),
        ("process_id", &std::process::id()),
        ("process_supervised", &if supervised == Supervision::No { "no" } else { supervised.word() }),
        ("run_id", &server.run_id),
        ("tcp_port", &server.port()),
        ("server_time_usec", &server.engine.clock.now_us()),
        ("uptime_in_seconds", &uptime_s),
        ("uptime_in_days", &(uptime_s / 86_400)),
        ("hz", &config.hz()),
        ("configured_hz", &config.hz()),
        ("lru_clock", &(context.now.seconds() & LRU_CLOCK_MASK)),
        ("executable", &executable.display()),
        ("config_file", &file.unwrap_or_default().display()),
        ("worker_threads", &server.net.placement.spare()),
        ("worker_threads_active", &server.net.placement.active()),
        ("worker_moves", &server.net.placement.moves()),
        ("io_threads_active", &0),
    ]);
    if let Some(kept) = server.acl.kept() {
        let unread: Vec<_> =
            kept.unread.iter().take(UNREAD_SHOWN).map(|name| String::from_utf8_lossy(name)).collect();
        page.line("users_revision", kept.revision);
        page.line("users_unread", kept.unread.len());
        page.line("users_unread_names", unread.join(","));
    }
    if let Some(left_ms) = server.departure.left_ms() {
        page.line("shutdown_in_milliseconds", left_ms);
    }
    for (number, (speech, address)) in server.net.doors.addresses().into_iter().enumerate() {
        let (name, ip, port) = (speech.name(), address.ip(), address.port());
        page.line(&format!("listener{number}"), format_args!("name={name},bind={ip},port={port}"));
    }
}

pub(super) fn clients(context: &mut Context<'_, '_>, page: &mut Page) {
    let all = context.server.net.clients.all();
    let most = |bytes: fn(&net::client::Client) -> usize| all.iter().map(|client| bytes(client)).max();
    let watching = all.iter().map(|client| client.watched.load(Ordering::Relaxed)).filter(|keys| *keys > 0);
    let replicas = all.iter().filter(|client| client.traits().contains(Traits::REPLICA)).count();
    let subscribed = all.iter().filter(|client| client.traits().contains(Traits::SUBSCRIBED)).count();
    let paused = all.iter().filter(|client| client.traits().contains(Traits::PAUSED)).count();
    page.lines(&[
        ("connected_clients", &(all.len() - replicas)),
        ("cluster_connections", &0),
        ("maxclients", &context.server.engine.config.maxclients()),
        (
            "client_recent_max_input_buffer",
            &most(|client| client.input_capacity.load(Ordering::Relaxed)).unwrap_or(0),
        ),
        (
            "client_recent_max_output_buffer",
            &most(|client| client.output_bytes.load(Ordering::Relaxed)).unwrap_or(0),
        ),
        // Who is held by a pause waits, too.
        ("blocked_clients", &(context.server.blocked.count() + paused)),
        ("paused_clients", &paused),
        ("tracking_clients", &context.server.tracking.client_count()),
        ("pubsub_clients", &subscribed),
        ("watching_clients", &watching.clone().count()),
        ("clients_in_timeout_table", &context.server.blocked.count_with_timeout()),
        ("total_watched_keys", &watching.sum::<usize>()),
        ("total_blocking_keys", &context.server.engine.keyspace.waiting().keys()),
        ("total_blocking_keys_on_nokey", &context.server.engine.keyspace.waiting().keys_on_gone()),
    ]);
}

pub(super) fn replication(context: &mut Context<'_, '_>, page: &mut Page) {
    let server = context.server;
    let (stream, config) = (server.stream(), &server.engine.config);
    let replicas = server.feeding.replicas();
    match server.following.status() {
        Some(status) => follower(context, page, &status),
        None => page.line("role", "master"),
    }
    page.line("connected_slaves", replicas.len());
    let (wanted, max_lag_s) = (config.min_replicas_to_write(), config.min_replicas_max_lag_s());
    if wanted > 0 && max_lag_s > 0 {
        page.line("min_slaves_good_slaves", server.feeding.count_good(max_lag_s, context.now));
    }
    if server.feeding.synced.is_wanted() && server.following.status().is_none() {
        let is_short = server.feeding.synced.standing.lock().is_short;
        page.line("min_sync_status", if is_short { "short" } else { "ok" });
    }
    if let Some(shard) = server.shard.get() {
        let standing = shard.standing();
        page.line("shard_name", &shard.settings.name);
        page.line("shard_role", insync::role(&standing));
        page.line("shard_epoch", standing.epoch.0);
        page.line("shard_members", standing.decision.as_ref().map_or(0, |known| known.members.len()));
        page.line("shard_committed_offset", standing.committed.0);
    }
    for (number, replica) in replicas.iter().enumerate() {
        page.line(
            &format!("slave{number}"),
            format_args!(
                "ip={},port={},state={},offset={},lag={}",
                replica.host(),
                replica.said.port,
                standing::state_name(replica.stage()),
                replica.acknowledged(),
                standing::lag_s(replica, context.now)
            ),
        );
    }
    let (former, former_until) = match stream.former {
        // Redis counts from 1, and says up to where somebody may ask.
        Some((id, until)) => (id.to_string(), i64::try_from(until + 1).unwrap_or(i64::MAX)),
        None => ("0".repeat(40), -1),
    };
    let backlog = server.feeding.backlog_figures();
    page.lines(&[
        ("master_failover_state", &server.failover.word()),
        ("master_replid", &stream.id),
        ("master_replid2", &former),
        ("master_repl_offset", &feeding::told(server)),
        ("second_repl_offset", &former_until),
        ("repl_backlog_active", &u8::from(backlog.is_active)),
        ("repl_backlog_size", &config.repl_backlog_size()),
        ("repl_backlog_first_byte_offset", &backlog.first_byte),
        ("repl_backlog_histlen", &backlog.bytes),
    ]);
}

/// What is told of the link to the master.
fn follower(context: &mut Context<'_, '_>, page: &mut Page, status: &Status) {
    let (config, offset) = (&context.server.engine.config, feeding::told(context.server));
    let since = |moment: UnixMs| context.now.0.saturating_sub(moment.0) / 1000;
    let is_up = status.phase == Phase::Connected;
    let is_syncing = status.phase == Phase::Sync;
    page.lines(&[
        ("role", &"slave"),
        ("master_host", &status.master.host),
        ("master_port", &status.master.port),
        ("master_link_status", &if is_up { "up" } else { "down" }),
        (
            "master_last_io_seconds_ago",
            &if is_up { since(status.heard_at).to_string() } else { "-1".to_owned() },
        ),
        ("master_sync_in_progress", &u8::from(is_syncing)),
        ("slave_read_repl_offset", &if is_up { status.read } else { offset }),
        ("slave_repl_offset", &offset),
    ]);
    if is_syncing {
        let (copied, all) = (status.copied_bytes, status.copy_bytes);
        let percent = all.map_or(0.0, |all| 100.0 * copied as f64 / all.max(1) as f64);
        page.lines(&[
            ("master_sync_total_bytes", &all.unwrap_or(0)),
            ("master_sync_read_bytes", &copied),
            ("master_sync_left_bytes", &all.map_or(0, |all| all.saturating_sub(copied))),
            ("master_sync_perc", &format_args!("{percent:.2}")),
            ("master_sync_last_io_seconds_ago", &since(status.heard_at)),
        ]);
    }
    if !is_up {
        // It may never have been up.
        let seconds = status.down_since.map_or("-1".to_owned(), |down| since(down).to_string());
        page.line("master_link_down_since_seconds", seconds);
    }
    page.lines(&[
        ("slave_priority", &config.replica_priority()),
        ("slave_read_only", &u8::from(config.replica_read_only())),
        ("replica_announced", &u8::from(config.replica_announced())),
    ]);
}

pub(super) fn cluster(context: &mut Context<'_, '_>, page: &mut Page) {
    page.line("cluster_enabled", u8::from(context.server.clustered.is_on()));
}

pub(super) fn keyspace(context: &mut Context<'_, '_>, page: &mut Page) {
    let server = context.server;
    let kept = server.engine.durability.key_counts.while_behind(&server.engine, || server.net.gate.open_to());
    let is_now = kept.is_none();
    if is_now && server.shard.is_on() && !server.net.gate.is_open_for(sys::Shown::read(server.latest())) {
        // Not all of that is known to be committed, and an operator is not to wait for it.
        return;
    }
    let counted = kept.unwrap_or_else(|| durability::counts_of_now(&server.engine, context.batch));
    for KeyCount { db, keys, expires } in counted.keys {
        let average = match is_now && expires > 0 && context.batch.is_inside() {
            true => context.batch.average_ttl_ms(db, context.now),
            false => 0,
        };
        page.line(&format!("db{}", db.0), format_args!("keys={keys},expires={expires},avg_ttl={average}"));
    }
    if is_now {
        // The averages are later than the counts.
        context.batch.see_all();
    }
}
