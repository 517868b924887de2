//! Full copies that replicas have not passed yet, as a start has to know of them.
//!
//! A copy is of no one moment, and what was written while it was made is sent filtered for it: a replica that has the copy and not all of
//! that cannot go on from the stream that all others read. While the server runs it knows who these are (`Ranges`). One that was killed
//! does not; so the directory says between which offsets they stand, a line for each copy, and a start goes by that. Of one that was being made
//! it says the beginning alone: it ends where the start finds the end of the stream, since its replica was sent nothing that is behind that.

use super::{sent_end, unsynced};
use crate::replicas::replica::Replica;
use crate::replicas::{Unfinished, Unpassed};
use crate::server::Server;
use ::log::SyncPolicy;
use replication::feed::Ranges;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use telemetry::log;

/// The file's name in the server's directory.
const NAME: &str = "replica-copies-unfinished";

/// The longest file that is looked at.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Stands for the end of a copy that is being made.
const NO_END: &str = "-";

fn path(server: &Server) -> PathBuf {
    server.engine.dir().join(NAME)
}

/// A copy begins at an offset. Where the stream goes on over starts, the directory says so before the replica is told anything.
///
/// # Errors
/// If the disk refuses.
pub fn note_begun(server: &Server, replica: &Arc<Replica>, from: u64) -> io::Result<()> {
    if replica.said.rdb_only {
        // It never asks to go on.
        return Ok(());
    }
    let mut unfinished = server.feeding.unfinished.lock();
    unfinished.copies.push(Unpassed { replica: replica.clone(), from, until: None });
    unfinished.is_told |= server.engine.durability.log().is_some();
    drop(unfinished);
    keep(server)
}

/// The stream of a server without a log goes on over a start, since a log begins or a file names its place: from now on the directory says
/// whether there are some.
///
/// # Errors
/// If the disk refuses.
pub fn note_lasting(server: &Server) -> io::Result<()> {
    server.feeding.unfinished.lock().is_told = true;
    keep(server)
}

/// Has the directory say what is known. Whoever calls this waits for the disk.
fn keep(server: &Server) -> io::Result<()> {
    let _telling = server.feeding.telling.lock();
    let Some(lines) = news(&server.feeding.unfinished.lock()) else { return Ok(()) };
    match lines.is_empty() {
        true => server.engine.fs().remove(&path(server))?,
        false => server.engine.fs().replace(&path(server), lines.as_bytes())?,
    }
    server.feeding.unfinished.lock().told = lines;
    Ok(())
}

/// The same where an error does no harm: what the directory says besides costs copies at the most.
fn try_to_keep(server: &Server) {
    if let Err(error) = keep(server) {
        log!(Warning, "Can't write {}: {error}", path(server).display());
    }
}

/// What the directory is to say, unless it does.
fn news(unfinished: &Unfinished) -> Option<String> {
    let lines = if unfinished.is_told { lines(unfinished) } else { String::new() };
    (lines != unfinished.told).then_some(lines)
}

fn lines(unfinished: &Unfinished) -> String {
    let left = unfinished.left.iter().map(|(from, until)| format!("{from} {until}\n"));
    let copies = unfinished.copies.iter().map(|copy| match copy.until {
        Some(until) => format!("{} {until}\n", copy.from),
        None => format!("{} {NO_END}\n", copy.from),
    });
    left.chain(copies).collect()
}

/// A replica was sent all that belongs to its copy, which is up to this offset.
pub fn note_sent(server: &Server, replica: &Arc<Replica>, until: u64) {
    let mut unfinished = server.feeding.unfinished.lock();
    let of_it = unfinished.copies.iter_mut().filter(|copy| Arc::ptr_eq(&copy.replica, replica));
    of_it.for_each(|copy| copy.until = Some(until));
}

/// Takes back what is said of those that have passed their copies. A thread of its own waits for the disk, unless one does.
pub fn look_after(server: &Arc<Server>) {
    forget_passed(server);
    if news(&server.feeding.unfinished.lock()).is_none() || server.feeding.telling.try_lock().is_none() {
        return;
    }
    let server = server.clone();
    // Where there is no thread to be had, the next look tries again.
    let _ = thread::Builder::new().name("copies".to_owned()).spawn(move || try_to_keep(&server));
}

/// Nothing more is known of those that have passed their copies. One that left before may come again whenever it likes: of it that stays.
pub fn forget_passed(server: &Server) {
    let end = sent_end(server);
    let Unfinished { copies, left, .. } = &mut *server.feeding.unfinished.lock();
    copies.retain(|copy| {
        let has_passed = copy.until.is_some_and(|until| copy.replica.acknowledged() >= until);
        let is_gone = copy.replica.is_gone();
        if is_gone && !has_passed {
            left.add(copy.from, copy.until.unwrap_or(end));
        }
        !has_passed && !is_gone
    });
}

/// What comes is the stream of a name of which nothing is known here.
pub fn forget_all(server: &Server) {
    server.feeding.forget_copies();
    try_to_keep(server);
}

/// What the run before left, where the stream of a start ends at an offset. None: nothing.
fn read(server: &Server, end: u64) -> Option<Option<Ranges>> {
    match server.engine.fs().read(&path(server), FILE_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(_) => Some(None),
        Ok(bytes) => Some(parse(&bytes, end)),
    }
}

/// Ranges; None: the file says that there are some, and not which, as it once did.
fn parse(bytes: &[u8], end: u64) -> Option<Ranges> {
    let mut ranges = Ranges::default();
    for line in std::str::from_utf8(bytes).ok()?.lines() {
        let (from, until) = line.split_once(' ')?;
        ranges.add(from.parse().ok()?, if until == NO_END { end } else { until.parse().ok()? });
    }
    Some(ranges).filter(|_| !bytes.is_empty())
}

/// Whether the run before left some of which nobody knows where they stand.
pub fn are_anywhere(server: &Server) -> bool {
    matches!(read(server, 0), Some(None))
}

/// Takes up what the run before left. Once, when the log is open, and before any replica is served. Where nobody knows where they stand the
/// stream gets a new name.
pub fn begin(server: &Server) {
    let log = server.engine.durability.log();
    let is_whole =
        log.is_some_and(|log| log.sync_policy() == SyncPolicy::Always) && !unsynced::is_noted(server);
    // Who stands at the end may have more of what a power cut has taken back here, or of what was in no file.
    let end = server.stream().offset + u64::from(!is_whole);
    let goes_on = log.is_some() || server.feeding.end_without_log().is_some();
    match read(server, end) {
        None => {}
        Some(Some(ranges)) if goes_on => {
            let mut state = server.feeding.state.lock();
            ranges.iter().for_each(|(from, until)| state.ranges.add(from, until));
            drop(state);
            let mut unfinished = server.feeding.unfinished.lock();
            (unfinished.left, unfinished.is_told) = (ranges, true);
            // It is not known what it says, or has been: it is written anew.
            unfinished.told = NO_END.to_owned();
            drop(unfinished);
            try_to_keep(server);
        }
        Some(_) => rename(server),
    }
}

fn rename(server: &Server) {
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
    let _ = server.engine.fs().remove(&path(server));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{assembly, commands};
    use config::{Config, Startup};

    #[test]
    fn who_keeps_time_does_not_wait_for_the_disk_that_is_told_of_copies() {
        commands::install();
        let dir = tempfile::tempdir().unwrap();
        let text = format!("edition memory\ndir {}", dir.path().display());
        let Ok(Startup::Serve { config, .. }) = Config::from_text(text.as_bytes()) else {
            panic!("it is a file of two lines")
        };
        let server = assembly::new(*config, 2);
        {
            let mut unfinished = server.feeding.unfinished.lock();
            unfinished.left.add(5, 9);
            unfinished.is_told = true;
        }
        let hanging = server.feeding.telling.lock();
        look_after(&server);
        drop(hanging);
        while read(&server, 0).is_none() {
            look_after(&server);
            thread::yield_now();
        }
    }

    #[test]
    fn lines_are_ranges_of_which_the_last_end_with_the_stream() {
        let of = |bytes: &[u8]| parse(bytes, 40).map(|ranges| ranges.iter().collect::<Vec<_>>());
        assert_eq!(of(b"5 9\n20 -\n"), Some(vec![(5, 9), (20, 40)]));
        // Nothing was written meanwhile: who has it has what all have there.
        assert_eq!(of(b"7 7\n40 -\n"), Some(vec![]));
        assert!([&b""[..], b"5", b"5 x\n", b"\xff 1"].into_iter().all(|bytes| of(bytes).is_none()));
    }
}
