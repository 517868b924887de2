//! A server without a log goes on with its stream over a restart: its RDB file, if that is of one moment, says where in the stream it was
//! written, and the start takes that up, as Redis does.
//!
//! A master begins a stream of its own behind that place, of which the former name holds up to there: who has no more than that goes on. What
//! was up in the meantime is taken away by the stream. A server that follows another asks it for what comes behind that place.
//!
//! Thread rule: the thread that loads, before the first client; [`place`] has the keyspace alone.

use super::{dress, unfinished, upkeep};
use crate::followed::Phase;
use crate::replicas::journal::ToBacklog;
use crate::replicas::replica::Identity;
use crate::server::Server;
use ::log::{Lsn, ReplicationId, Stream};
use engine::import::rdb::Expired;
use engine::snapshot::Place;
use engine::{Attention, durability};
use keyspace::{DbIndex, KeepsAll};
use replication::feed::Backlog;
use telemetry::log;
use wire::encode_request;

/// Where in its stream the server is, while nobody writes; None: in none that a start could take up.
pub fn place(server: &Server) -> Option<Place> {
    if server.engine.durability.log().is_some() || !may_be_named(server) {
        return None;
    }
    let phase = server.following.status().map(|status| status.phase);
    let state = server.feeding.state.lock();
    let Stream { id, offset, selected, .. } = server.stream_beside(&state);
    let is_counted = state.has_journal && state.backlog.is_some() && phase != Some(Phase::Sync);
    if id == ReplicationId::NONE || !is_counted || !server.following.is_whole_at(offset) {
        return None;
    }
    Some(Place { id, offset, database: selected? })
}

/// Who has a copy and not all that belongs to it must not go on behind a start that took up an earlier place: from now on the directory says
/// whether there are some.
fn may_be_named(server: &Server) -> bool {
    unfinished::forget_passed(server);
    unfinished::note_lasting(server).is_ok()
}

/// The keys of a file come, which may name a place: what becomes of those whose time is up.
pub fn take_up(server: &Server, place: Option<Place>) -> Expired {
    let engine = &server.engine;
    let is_start = engine.attention().contains(Attention::LOADING);
    if !is_start || durability::policy(&engine.config).is_some() {
        return Expired::Passed;
    }
    if engine.config.replicaof().is_some() {
        // Its master says what goes.
        engine.keyspace.keep_all(KeepsAll::Following, true);
        if let Some(place) = place {
            server.set_stream(Stream { is_masters: true, ..stream_at(place) });
            // There is one start.
            let _ = server.following.of_file.set(place.offset);
        }
        return Expired::Kept;
    }
    if let Some(place) = place.filter(|_| !unfinished::are_anywhere(server)) {
        server.set_stream(stream_at(place).succeeded());
        let mut state = server.feeding.state.lock();
        state.backlog = Some(Backlog::new(place.offset, engine.config.repl_backlog_size()));
        state.journal_end = place.offset;
    }
    Expired::Passed
}

fn stream_at(Place { id, offset, database }: Place) -> Stream {
    Stream { id, at: Lsn(offset), offset, former: None, selected: Some(database), is_masters: false }
}

/// A key is not there any more, though it was where the stream goes on.
pub fn pass_over(server: &Server, db: DbIndex, key: &[u8]) {
    let state = &mut *server.feeding.state.lock();
    if state.backlog.is_some() {
        let mut request = Vec::new();
        encode_request(&mut request, &[b"DEL", key]);
        dress(state, db, &request);
    }
}

/// All keys are there: what is written from now on is in the stream.
pub fn begin(server: &Server) {
    let mut state = server.feeding.state.lock();
    if state.backlog.is_none() || state.has_journal {
        return;
    }
    state.has_journal = true;
    let end = state.journal_end;
    state.away.leave(Identity::Connection(0), Some(end), server.engine.clock.now());
    drop(state);
    server.engine.keyspace.set_first_journal(Box::new(ToBacklog(server.feeding.clone())));
    upkeep::follow_config(server);
    log!(Notice, "The stream goes on from offset {end}, as the RDB file says");
}
