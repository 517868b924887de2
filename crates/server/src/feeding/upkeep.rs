//! What is done for replicas once a second: heartbeats, those that are silent or too far behind, and how much of the stream is kept.

use super::behind::close;
use super::{PING, copying, say, synced, unfinished};
use crate::replicas::State;
use crate::replicas::away::Away;
use crate::replicas::replica::{Form, Identity, Replica, Stage};
use crate::replicas::synced::Standing;
use crate::server::Server;
use config::{ClientClass, OutputLimit};
use engine::Attention;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::UnixMs;

/// To be called once a second.
pub fn look_after(server: &Arc<Server>) {
    let now = server.engine.clock.now();
    let replicas = server.feeding.replicas();
    for replica in &replicas {
        if replica.stage() != Stage::Online {
            replica.say_blank();
        }
        if let Some(reason) = reason_to_close(server, replica, now) {
            close(server, replica, &io::Error::other(reason));
        }
    }
    end_renamed(server);
    unfinished::look_after(server);
    copying::begin_next(server);
    if is_ping_due(server, now) {
        say(server, PING);
    }
    follow_config(server);
    keep_stream(server);
    end_stream(server, now);
}

/// Where the stream has another name, replicas ask to go on under that. Before one joins that knows it, too.
pub fn end_renamed(server: &Server) {
    let id = server.stream().id;
    let mut state = server.feeding.state.lock();
    if state.id.replace(id).is_some_and(|before| before != id) {
        state
            .replicas
            .iter()
            .filter(|replica| replica.stage() == Stage::Online)
            .for_each(|replica| replica.end());
    }
}

fn is_ping_due(server: &Server, now: UnixMs) -> bool {
    if server.failover.is_quiet() {
        return false;
    }
    let period_ms = server.engine.config.repl_ping_replica_period_s() * 1000;
    let mut state = server.feeding.state.lock();
    // With nobody there, the next is due a period after the first has come: what nothing was written to stays as it is so long.
    let is_due = now.0.saturating_sub(state.pinged_at.0) >= period_ms;
    let is_alone = state.replicas.is_empty() || state.pinged_at == UnixMs(0);
    if is_due || is_alone {
        state.pinged_at = now;
    }
    is_due && !is_alone
}

fn reason_to_close(server: &Server, replica: &Replica, now: UnixMs) -> Option<&'static str> {
    let config = &server.engine.config;
    let silent_ms = now.0.saturating_sub(replica.acknowledged_at().0);
    let is_silent = silent_ms > config.repl_timeout_s() * 1000;
    if is_silent && replica.form == Form::Psync && replica.stage() == Stage::Online {
        return Some("it has said nothing for too long (repl-timeout)");
    }
    if server.engine.durability.kept_log().is_some() {
        // What it does not read is in segments.
        return None;
    }
    // One that is copied for is behind, too.
    let behind = super::end(server).saturating_sub(replica.position().unwrap_or(u64::MAX));
    let mut limit = config.output_limit(ClientClass::Replica);
    if limit.hard_bytes > 0 {
        // What the backlog keeps by itself takes no memory for a replica.
        limit.hard_bytes = limit.hard_bytes.max(config.repl_backlog_size());
    }
    let is_over = is_over(replica, limit, behind, now);
    if is_over.is_some() {
        server.net.clients.output_limit_disconnections.add(1);
    }
    is_over
}

fn is_over(replica: &Replica, limit: OutputLimit, behind: u64, now: UnixMs) -> Option<&'static str> {
    if limit.hard_bytes > 0 && behind >= limit.hard_bytes {
        return Some("it reached the hard limit of client-output-buffer-limit");
    }
    let since = &replica.over_soft_since_ms;
    if limit.soft_bytes == 0 || behind < limit.soft_bytes {
        since.store(0, Ordering::Relaxed);
        return None;
    }
    match since.load(Ordering::Relaxed) {
        0 => since.store(now.0, Ordering::Relaxed),
        began if now.0.saturating_sub(began) > limit.soft_s * 1000 => {
            return Some("it was above the soft limit of client-output-buffer-limit for too long");
        }
        _ => {}
    }
    None
}

/// Keeps what comes behind an offset for servers that have not followed this one, as for those that have and are away.
pub fn keep_for(server: &Server, who: impl Iterator<Item = Identity>, from: u64) {
    let now = server.engine.clock.now();
    let mut state = server.feeding.state.lock();
    who.for_each(|who| state.away.leave(who, Some(from), now));
    drop(state);
    keep_stream(server);
}

/// Keeps the segments that replicas need, or those that were here of late, as far as `replica-log-keep` goes.
pub fn keep_stream(server: &Server) {
    let Some(log) = server.engine.durability.log() else { return };
    let ttl_ms = server.engine.config.repl_backlog_ttl_s() * 1000;
    let now = server.engine.clock.now();
    let state = &mut *server.feeding.state.lock();
    if state.backlog.is_none() {
        return;
    }
    if ttl_ms > 0 {
        state.away.forget_before(UnixMs(now.0.saturating_sub(ttl_ms)));
    }
    let State { away, replicas, .. } = state;
    replicas.iter().filter(|one| one.acknowledged() > 0).for_each(|one| away.forget(one.identity()));
    let end = log.stream().offset;
    let of_replicas = state.replicas.iter().filter_map(|replica| replica.position());
    let of_away = state.away.first();
    let of_others = state.readers.values().copied();
    let needed = of_replicas.chain(of_away).chain(of_others).min().unwrap_or(end).min(end);
    let least = end.saturating_sub(server.engine.config.replica_log_keep());
    log.keep_stream_from(Some(needed.max(least)));
}

/// Forgets the stream when nobody has followed for `repl-backlog-ttl`. A follower does not, since it may become the master of those who follow
/// its own: as in Redis.
fn end_stream(server: &Server, now: UnixMs) {
    if super::is_relayed(server)
        || server.shard.is_on()
        || !is_unwanted(server, &server.feeding.state.lock(), now)
    {
        return;
    }
    match server.engine.durability.log() {
        Some(log) => {
            let mut state = server.feeding.state.lock();
            (state.backlog, state.away) = (None, Away::default());
            drop(state);
            log.set_streamed(false);
            log.keep_stream_from(None);
        }
        // Under another name those that came again would give up nothing for a copy (`min-sync-replicas`), and without them nothing is written.
        None if server.feeding.synced.is_wanted() => {}
        None => end_stream_without_log(server, now),
    }
}

fn is_unwanted(server: &Server, state: &State, now: UnixMs) -> bool {
    let ttl_ms = server.engine.config.repl_backlog_ttl_s() * 1000;
    state.replicas.is_empty()
        && ttl_ms > 0
        && state.away.since().is_some_and(|left| now.0.saturating_sub(left.0) > ttl_ms)
}

/// The same without a log: from now on nobody says what writes come down to. It is tried again where something slow has the keyspace.
fn end_stream_without_log(server: &Server, now: UnixMs) {
    let engine = &server.engine;
    let Some(mut batch) = engine.keyspace.try_enter(engine.copying_guest()) else { return };
    if !batch.try_hold_all() {
        return;
    }
    let mut state = server.feeding.state.lock();
    // Somebody may have come.
    let is_over = is_unwanted(server, &state, now);
    if is_over {
        (state.backlog, state.away) = (None, Away::default());
        drop(state);
        engine.keyspace.rest_journal(true);
        // What is written from now on is in no stream.
        server.rename_stream();
    } else {
        drop(state);
    }
    batch.release();
    if is_over {
        synced::begin_anew(server);
    }
}

/// Takes over what the directives say.
pub fn follow_config(server: &Server) {
    let config = &server.engine.config;
    let hard = config.output_limit(ClientClass::Replica).hard_bytes;
    let has_log = server.engine.durability.kept_log().is_some();
    let mut state = server.feeding.state.lock();
    // What segments hold is kept nowhere else.
    let is_in_segments = has_log && !state.lacks_segments();
    state.held_bytes_max = match (is_in_segments, hard) {
        (true, _) => 0,
        (false, 0) => u64::MAX,
        (false, hard) => hard,
    };
    if let Some(backlog) = &mut state.backlog {
        backlog.set_size(config.repl_backlog_size());
    }
    drop(state);
    synced::follow_config(server);
    follow_minimum(server);
}

/// Notes whether there are replicas enough for writes (`min-replicas-to-write`, `min-sync-replicas`).
pub fn follow_minimum(server: &Server) {
    note_minimum(server, &server.feeding.synced.standing.lock());
}

/// The same, with how it stands locked.
pub(super) fn note_minimum(server: &Server, standing: &Standing) {
    let config = &server.engine.config;
    let (wanted, max_lag_s) = (config.min_replicas_to_write(), config.min_replicas_max_lag_s());
    let is_wanted = wanted > 0 && max_lag_s > 0;
    let lacks = is_wanted && {
        let good = server.feeding.count_good(max_lag_s, server.engine.clock.now());
        i64::try_from(good).is_ok_and(|good| good < wanted)
    };
    server
        .engine
        .set_attention(Attention::NO_REPLICAS, lacks || standing.is_short || server.shard.is_short());
}
