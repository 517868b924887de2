//! A server that has written what its new master does not have goes back to where both have the same, instead of taking a full copy.
//!
//! The master says up to where it has the stream under one of the names that this server knows it by (`REPLCONF common`). What is here
//! behind that was acknowledged to nobody who asked for replicas, or was given up by whoever chose the master: it is cut. The newest
//! checkpoint before it and the log up to it take the place of all keys ([`replacement::rewind`]), as a full copy does, and the stream is
//! asked for from there on.
//!
//! Thread rule: the thread that has the link, while there is none.

use crate::server::Server;
use ::log::{ReplicationId, Stream};
use engine::replacement::{self, Alone, Failure, Past, Step};
use std::io;
use std::time::Instant;
use telemetry::log;

/// Whether this server may be able to: its log has what was there before, which one that has ended has not, and nobody has to be asked
/// first whether what is here may be given up (see [`crate::followed::State::history`]).
pub fn is_possible(server: &Server) -> bool {
    let is_bound =
        server.engine.config.min_sync_replicas() > 0 && server.following.state.lock().history.is_some();
    server.engine.durability.kept_log().is_some() && !is_bound
}

/// Goes back to where the stream of this name was at an offset. Where that cannot be done, nothing changes: the master will send a copy.
///
/// # Errors
/// What must end the link: the master is followed no more, or the server has to begin anew.
pub fn go_back(
    server: &Server,
    (id, offset): (ReplicationId, u64),
    look: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<()> {
    let engine = &server.engine;
    let (began, before) = (Instant::now(), server.stream());
    log!(
        Notice,
        "What is here of the stream, up to {}:{}, parts from the master's at {id}:{offset}",
        before.id,
        before.offset
    );
    if id != before.id && offset == before.offset {
        // Nothing was written under the other name.
        return super::begin_stream(server, Stream { id, former: None, ..before });
    }
    let past = replacement::look_back(engine, (Some(id), offset), &mut *look);
    look()?;
    let is_within_copy = |at: u64| {
        server.feeding.state.lock().ranges.cover(at) || !server.following.taken.lock().are_before(at)
    };
    let past = match past {
        Ok(Some(past)) if is_within_copy(past.stream.offset) || is_within_copy(offset) => {
            log!(
                Notice,
                "That place is within what was written while a copy was made: what was here then is of no one moment"
            );
            return Ok(());
        }
        Ok(Some(past)) => past,
        Ok(None) => {
            log!(
                Notice,
                "There is no checkpoint before that place, or not all of the log behind one: the data cannot go back to it"
            );
            return Ok(());
        }
        Err(error) => {
            log!(Warning, "The data cannot go back to it: {error}");
            return Ok(());
        }
    };
    let alone = server.holders.claiming_all(engine, || Alone::begin(engine, look))?;
    tell_of_acknowledged(server, &past);
    let _still = server.following.stand_still();
    match replacement::rewind(engine, &alone, &past, &|step| stop_if_wanted(server, step)) {
        Ok(()) => {
            note_done(server, before, past.stream, began);
            Ok(())
        }
        Err(Failure::Torn(error)) => {
            log!(
                Warning,
                "The data cannot go back to where it parts from the master's: {error}. The server ends; its directory holds what was there \
                 before"
            );
            server.stop(1);
            Err(error)
        }
        Err(failure) => {
            log!(Warning, "The data cannot go back to where it parts from the master's: {failure}");
            Ok(())
        }
    }
}

/// Says it where something is to be cut that as many replicas had as must have a write before it is acknowledged.
fn tell_of_acknowledged(server: &Server, past: &Past) {
    let acknowledged = server.feeding.synced.standing.lock().acknowledged;
    let cut = past.stream;
    if let Some((id, until)) = acknowledged.filter(|(id, until)| *id == cut.id && *until > cut.offset) {
        log!(
            Warning,
            "Acknowledged writes are cut: replicas had the stream up to {id}:{until} (min-sync-replicas), and the new master has it up to {}:{} \
             only, which is {} bytes less",
            cut.id,
            cut.offset,
            until - cut.offset
        );
    }
}

/// Stands still if a test has said so: nothing more is done, and nobody waits for it but who ends the process.
fn stop_if_wanted(server: &Server, step: Step) {
    if server.switches.rewind_stop() == step as u8 {
        log!(Notice, "Going back stands still at step {}, as DEBUG said", step as u8);
        loop {
            std::thread::park();
        }
    }
}

/// What was cut is gone: says so, and counts it.
pub fn note_done(server: &Server, before: Stream, now: Stream, began: Instant) {
    server.feeding.break_off(now.offset);
    // Who had more of it comes by a name that is good up to there.
    server.feeding.state.lock().ranges.cut(now.offset);
    server.tracking.invalidate_all(&server.net.clients, None);
    // What was written beside the former data is gone.
    server.engine.keyspace.remember_beside(true);
    server.feeding.rewinds.add(1);
    log!(
        Notice,
        "Went back to {}:{} in {:.3} seconds: {} bytes of the stream are cut that the master does not have",
        now.id,
        now.offset,
        began.elapsed().as_secs_f64(),
        before.offset.saturating_sub(now.offset)
    );
}
