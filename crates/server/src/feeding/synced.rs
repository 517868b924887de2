//! Holds replies back until as many replicas have what was written as must have it (`min-sync-replicas`), on disk where the server itself
//! promises that.
//!
//! What replicas acknowledge moves the gate (`net/gate`). They are asked by a request in the stream (GETACK), once for all that a worker's
//! round has written, so that a Redis answers as a Tarn does. Where they are too few for `sync-timeout`, the server falls short: writes
//! are refused, what waits is failed, reads go by the disk alone. It goes on when enough replicas have all that was written up to there.
//!
//! Thread rule: any thread, with nothing locked; who changes how it stands has its lock until the gate says the same.

use super::upkeep;
use crate::replicas::synced::{Floor, Lacking, Standing};
use crate::server::Server;
use ::log::{Lsn, SyncPolicy};
use engine::Attention;
use std::time::{Duration, Instant};
use sys::Stamp;
use telemetry::log;

/// What is written from now on is another stream, or has another history: nothing counts that was acknowledged before.
pub fn begin_anew(server: &Server) {
    if server.feeding.synced.is_wanted() {
        let mut standing = server.feeding.synced.standing.lock();
        begin_anew_locked(server, &mut standing);
    }
}

fn begin_anew_locked(server: &Server, standing: &mut Standing) {
    fall_short(server, standing);
    standing.floor = None;
    // Stamps of another stream without a log are offsets in that.
    server.net.gate.forget_replicas();
}

/// Takes over what the directives say.
pub fn follow_config(server: &Server) {
    // In a shard it is its members that count.
    let is_of_shard = server.clustered.is_on() || !server.engine.config.shard_name().is_empty();
    let wanted = if is_of_shard { 0 } else { server.engine.config.min_sync_replicas() };
    let synced = &server.feeding.synced;
    let mut standing = synced.standing.lock();
    if wanted == standing.wanted {
        return;
    }
    let is_first = standing.wanted == 0;
    synced.want(&mut standing, wanted);
    if wanted == 0 {
        *standing = Standing::default();
        keep_before(server, None);
        upkeep::note_minimum(server, &standing);
        server.net.gate.set_short(false);
        server.net.gate.replicate(Stamp::LAST);
    } else if is_first {
        begin_anew_locked(server, &mut standing);
    }
    drop(standing);
    look_after(server);
}

/// A replica has acknowledged something: opens the gate as far as enough of them have.
pub fn note(server: &Server) {
    if server.feeding.synced.is_wanted() {
        let mut standing = server.feeding.synced.standing.lock();
        note_replicated(server, &mut standing);
    }
}

/// Asks replicas how far they are, if something was written since they were asked. Called by a worker that has nothing else to do.
#[inline]
pub fn ask(server: &Server) {
    if server.feeding.synced.is_wanted() {
        super::ask_behind(server, super::end(server));
    }
}

/// To be called several times a second.
pub fn look_after(server: &Server) {
    if !server.feeding.synced.is_wanted() {
        return;
    }
    let mut standing = server.feeding.synced.standing.lock();
    if server.engine.attention().contains(Attention::FOLLOWING) {
        begin_anew_locked(server, &mut standing);
        return;
    }
    if standing.floor.is_none() {
        standing.floor = place(server);
    }
    note_replicated(server, &mut standing);
    let wanted = super::asked_for(server);
    let has = offset(server, &standing);
    if has.is_some_and(|has| has >= wanted) && !standing.is_short {
        standing.lacking = None;
        return;
    }
    let is_answerable = has.is_some();
    note_lacking(server, &mut standing, has.unwrap_or(0), wanted);
    let is_short = standing.is_short;
    drop(standing);
    if is_answerable {
        match is_short && !super::is_awaited(server) {
            true => super::ask_again(server),
            false => ask(server),
        }
    }
}

fn note_lacking(server: &Server, standing: &mut Standing, has: u64, wanted: u64) {
    let patience = Duration::from_millis(server.engine.config.sync_timeout_ms());
    let now = Instant::now();
    match standing.lacking {
        Some(Lacking { offset, since }) if has < offset || has < wanted && offset == wanted => {
            if now.duration_since(since) >= patience {
                fall_short(server, standing);
            }
        }
        _ => standing.lacking = Some(Lacking { offset: wanted, since: now }),
    }
}

/// Up to which offset enough replicas have the stream.
fn offset(server: &Server, standing: &Standing) -> Option<u64> {
    let log = server.engine.durability.log();
    let durable = log.is_some_and(|log| log.sync_policy() == SyncPolicy::Always);
    server.feeding.offset_of_all_of(standing.wanted, durable)
}

fn note_replicated(server: &Server, standing: &mut Standing) {
    let Some(floor) = standing.floor else { return };
    let Some(offset) = offset(server, standing) else { return };
    let Some(up_to) = floor.stamp_of(offset) else { return };
    server.net.gate.replicate(up_to);
    standing.acknowledged = Some((server.stream().id, offset));
    keep_before(server, Some(up_to));
    if standing.is_short {
        standing.is_short = false;
        standing.lacking = None;
        server.net.gate.set_short(false);
        upkeep::note_minimum(server, standing);
        log!(Notice, "Enough replicas have everything (min-sync-replicas): writes are taken");
    }
}

/// Has a checkpoint be kept that ends by then: what is behind may have to be given up for another master. Of a store only the newest can be
/// gone back to.
pub fn keep_before(server: &Server, acknowledged: Option<Stamp>) {
    if let Some(log) = server.engine.durability.log().filter(|_| server.engine.residency.store().is_none()) {
        log.keep_before(acknowledged.map(|stamp| Lsn(stamp.0)));
    }
}

/// The place from where on what is written counts.
fn place(server: &Server) -> Option<Floor> {
    if server.engine.attention().contains(Attention::FOLLOWING) {
        return None;
    }
    match server.engine.durability.log() {
        Some(_) => Some(super::place_of_end(server)),
        None => server.feeding.end_without_log().map(|end| Floor { offset: end, stamp: Stamp(end) }),
    }
}

fn fall_short(server: &Server, standing: &mut Standing) {
    if standing.is_short {
        return;
    }
    standing.is_short = true;
    // Who was let in before this is failed at the gate.
    upkeep::note_minimum(server, standing);
    server.net.gate.set_short(true);
    (standing.floor, standing.lacking) = (place(server), None);
    log!(
        Warning,
        "Writes are refused until replicas have everything, {} at least (min-sync-replicas)",
        standing.wanted
    );
}
