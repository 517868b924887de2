//! A log begins on a server without one (CONFIG SET `appendonly yes`), perhaps while replicas follow: it takes over as the keyspace's journal,
//! and the stream goes on in it.
//!
//! Without a log a stamp is an offset of the stream. The log begins at the stream's offset, so that every stamp that slots, replies and copies
//! bear is before its first record, and offsets are what they were; replicas read on in the same backlog.
//!
//! CONFIG SET `appendonly no` ends that log again, and `yes` has it go on: its files, that is. It gives stamps and makes the stream all the time.
//!
//! Thread rule: the worker that runs the command; where a log begins, which holds the whole keyspace, with nothing of a master's being done. Nobody appends
//! meanwhile: heartbeats, which hold nothing, find the journal given up.

use super::{PING, is_relayed, say, synced, unfinished, upkeep};
use crate::replicas::replica::Stage;
use crate::server::Server;
use ::log::SyncPolicy;
use engine::durability::{self, Beginning, Until};
use std::io;
use sys::Stamp;

/// No log begins beside clients before this place.
const FIRST_OFFSET: u64 = 2;

/// Has the log begin, which `begin` does.
///
/// # Errors
/// A sentence for the client: there is no log then, and all goes on as before.
pub fn begin_log(server: &Server, begin: impl FnOnce(Beginning) -> io::Result<()>) -> io::Result<()> {
    // A crash behind this must not have forgotten them.
    unfinished::note_lasting(server)?;
    if server.feeding.end_without_log().is_some_and(|end| end < FIRST_OFFSET) && !is_relayed(server) {
        say(server, PING);
    }
    let before = server.stream().id;
    let begun = begin(give_up_journal(server));
    let mut state = server.feeding.state.lock();
    if begun.is_err() {
        state.taken_over_at = None;
        return begun;
    }
    // A question to replicas may have found nobody to take it.
    (state.asked_at, state.asked_end) = (0, 0);
    // What had gathered for replicas: its writers tell the log only from now on.
    state.wake();
    drop(state);
    let stream = server.stream();
    if stream.id != before || stream.at.0 != stream.offset {
        end_copies(server);
        synced::begin_anew(server);
    }
    upkeep::follow_config(server);
    begun
}

/// Has what is written from now on be in no log. The stream goes on as it was, in the backlog only, and so do those who wait for the disk.
pub fn end_log(server: &Server) {
    durability::rest(&server.engine);
    server.net.gate.hold(false);
    // Who waits for it to be on disk, whom nobody else tells.
    server.net.gate.committed.notify_waiters();
    upkeep::follow_config(server);
}

/// The log goes on that has ended: what the stream has had meanwhile is in the backlog only.
///
/// # Errors
/// A sentence for the client: it has not begun again.
pub fn begin_again(server: &Server) -> io::Result<()> {
    go_on(server, Until::Ended)?;
    let holds = durability::policy(&server.engine.config) == Some(SyncPolicy::Always);
    server.net.gate.hold(holds);
    upkeep::follow_config(server);
    Ok(())
}

/// The same for a checkpoint, behind which it rests again.
///
/// # Errors
/// A sentence for the client.
pub fn go_on_for_checkpoint(server: &Server) -> io::Result<()> {
    go_on(server, Until::Checkpoint)
}

fn go_on(server: &Server, until: Until) -> io::Result<()> {
    durability::begin_again(&server.engine, until)?;
    server.feeding.state.lock().taken_over_at = Some(server.stream().offset);
    Ok(())
}

/// Has nothing more come by way of the journal without a log; says where that has ended.
fn give_up_journal(server: &Server) -> Beginning {
    let (has_journal, behind, has_backlog) = {
        let state = &mut *server.feeding.state.lock();
        state.taken_over_at = state.has_journal.then_some(state.journal_end);
        (state.has_journal, state.stamped_until.max(state.journal_end), state.backlog.is_some())
    };
    let stream = server.stream();
    let stream = match (has_journal, has_backlog) {
        // What was written while nobody followed is in no stream.
        (true, false) if !stream.is_masters => Some(stream.renamed()),
        (false, _) if !stream.is_masters => None,
        _ => Some(stream),
    };
    Beginning { behind: Stamp(behind), stream, is_streamed: has_backlog }
}

/// Where the log could not begin at the stream's offset, since later stamps had been given in another stream, copies that are being made
/// cannot be told from what was written meanwhile: their replicas come again.
fn end_copies(server: &Server) {
    let replicas = server.feeding.replicas();
    for replica in replicas.iter().filter(|replica| replica.stage() != Stage::Online) {
        server.net.clients.kill(&replica.client);
    }
}
