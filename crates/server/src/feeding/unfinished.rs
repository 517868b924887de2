//! Full copies that replicas have not passed yet, as a start has to know of them.
//!
//! A copy is of no one moment, and what was written while it was made is sent filtered for it: a replica that has the copy and not all of
//! that cannot go on from the stream that all others read. While the server runs it knows who these are (`Ranges`). A server that was killed
//! does not; so a file says that there are some, and a start that finds it gives the stream a new name.

use crate::replicas::Unfinished;
use crate::replicas::replica::Replica;
use crate::server::Server;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use sys::file::{Fs, Mode};
use telemetry::log;

/// The file's name in the server's directory.
const NAME: &str = "replica-copies-unfinished";

fn path(server: &Server) -> PathBuf {
    server.engine.dir().join(NAME)
}

/// A copy begins. Where the stream goes on over starts, the directory says so before the replica is told anything.
///
/// # Errors
/// If the disk refuses.
pub fn note_begun(server: &Server, replica: &Arc<Replica>) -> io::Result<()> {
    let mut unfinished = server.feeding.unfinished.lock();
    unfinished.copies.push((replica.clone(), u64::MAX));
    unfinished.is_told |= server.engine.durability.log().is_some();
    note(server, &mut unfinished)
}

/// The stream of a server without a log goes on over a start, since a log begins or a file names its place: from now on the directory says
/// whether there are some.
///
/// # Errors
/// If the disk refuses.
pub fn note_lasting(server: &Server) -> io::Result<()> {
    let mut unfinished = server.feeding.unfinished.lock();
    unfinished.is_told = true;
    note(server, &mut unfinished)
}

fn note(server: &Server, unfinished: &mut Unfinished) -> io::Result<()> {
    let is_due = unfinished.was_left || !unfinished.copies.is_empty();
    if is_due && unfinished.is_told && !unfinished.is_noted {
        Fs::Real.open(&path(server), Mode::Truncate)?.sync_data()?;
        Fs::Real.sync_dir(&server.engine.dir())?;
        unfinished.is_noted = true;
    }
    Ok(())
}

/// A replica was sent all that belongs to its copy, which is up to this offset.
pub fn note_sent(server: &Server, replica: &Arc<Replica>, until: u64) {
    let mut unfinished = server.feeding.unfinished.lock();
    let of_it = unfinished.copies.iter_mut().filter(|(one, _)| Arc::ptr_eq(one, replica));
    of_it.for_each(|(_, end)| *end = until);
}

/// Takes the note back when all have passed their copies. One that left before may come again whenever it likes: then the note stays.
pub fn look_after(server: &Server) {
    let unfinished = &mut *server.feeding.unfinished.lock();
    unfinished.copies.retain(|(replica, until)| {
        let has_passed = replica.acknowledged() >= *until;
        unfinished.was_left |= !has_passed && replica.is_gone();
        !has_passed && !replica.is_gone()
    });
    let is_over = unfinished.copies.is_empty() && !unfinished.was_left;
    if unfinished.is_noted && is_over && Fs::Real.remove(&path(server)).is_ok() {
        unfinished.is_noted = false;
    }
}

/// Whether the run before left some.
pub fn is_noted(server: &Server) -> bool {
    Fs::Real.kind(&path(server)).is_ok_and(|kind| kind.is_some())
}

/// Gives the stream a new name if the run before left copies unfinished. Once, when the log is open, and before any replica is served.
pub fn begin(server: &Server) {
    if !is_noted(server) {
        return;
    }
    // That of a follower is its master's, who made no such copies of it.
    let log = server.engine.durability.log().filter(|_| server.engine.config.replicaof().is_none());
    if let Some(log) = log {
        log!(Notice, "Replicas were left with copies that were not finished: the stream gets a new name");
        if let Err(error) = log.begin_stream(Some(log.stream().renamed())) {
            log!(Warning, "Its name is not on disk yet: {error}");
            log.rename_stream();
            return;
        }
    }
    // What stays costs another name.
    let _ = Fs::Real.remove(&path(server));
}
