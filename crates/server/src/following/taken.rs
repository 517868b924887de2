//! Where the copy that was taken of a master is not whole: it holds what was written while it was made, slot by slot, and is of one moment only
//! behind all of that, as its end says. Up to there nobody else has the same where the stream is at the same place, and what is here of the
//! stream was left out in part: nothing is gone back to, gone on with, or handed to others there.
//!
//! The directory says it, too, before the copy counts: a line for each, the offsets of beginning and end. What was taken before is said
//! until then, since a crash leaves the one or the other.
//!
//! Thread rule: the thread that has the link; at a start, the one that loads.

use crate::server::Server;
use replication::feed::Ranges;
use std::io;
use std::path::PathBuf;
use telemetry::log;

/// The file's name in the server's directory.
const NAME: &str = "copy-whole-from";

/// The longest file that is looked at.
const FILE_BYTES_MAX: u64 = 1 << 16;

fn path(server: &Server) -> PathBuf {
    server.engine.dir().join(NAME)
}

/// A copy is about to take the place of all.
///
/// # Errors
/// If the disk refuses.
pub fn note_coming(server: &Server, (from, until): (u64, u64)) -> io::Result<()> {
    let mut ranges = server.following.taken.lock().clone();
    ranges.add(from, until);
    keep(server, ranges)
}

/// It has. What was taken before is gone.
pub fn note_here(server: &Server, (from, until): (u64, u64)) {
    let mut ranges = Ranges::default();
    ranges.add(from, until);
    server.feeding.state.lock().ranges.add(from, until);
    if let Err(error) = keep(server, ranges) {
        // What it says besides costs copies at the most.
        log!(Warning, "Can't write {}: {error}", path(server).display());
    }
}

fn keep(server: &Server, ranges: Ranges) -> io::Result<()> {
    if *server.following.taken.lock() == ranges {
        return Ok(());
    }
    let lines: String = ranges.iter().map(|(from, until)| format!("{from} {until}\n")).collect();
    match lines.is_empty() {
        true => server.engine.fs().remove(&path(server))?,
        false => server.engine.fs().replace(&path(server), lines.as_bytes())?,
    }
    *server.following.taken.lock() = ranges;
    Ok(())
}

/// Takes up what the directory says. Once, before anybody is followed or served. What cannot be read counts as if nothing were whole. It is
/// nothing for a stream of this server's own that goes on from no other.
pub fn begin(server: &Server) {
    let goes_on = server.engine.durability.log().is_some() || server.feeding.end_without_log().is_some();
    if !goes_on && server.engine.config.replicaof().is_none() {
        // What stays is taken for nothing at the next start, too, or replaced by what is taken then.
        let _ = server.engine.fs().remove(&path(server));
        return;
    }
    let ranges = match server.engine.fs().read(&path(server), FILE_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(_) => everything(),
        Ok(bytes) => parse(&bytes).unwrap_or_else(everything),
    };
    let mut state = server.feeding.state.lock();
    ranges.iter().for_each(|(from, until)| state.ranges.add(from, until));
    drop(state);
    *server.following.taken.lock() = ranges;
}

fn everything() -> Ranges {
    let mut ranges = Ranges::default();
    ranges.add(0, u64::MAX);
    ranges
}

fn parse(bytes: &[u8]) -> Option<Ranges> {
    let mut ranges = Ranges::default();
    for line in std::str::from_utf8(bytes).ok()?.lines() {
        let (from, until) = line.split_once(' ')?;
        ranges.add(from.parse().ok()?, until.parse().ok()?);
    }
    Some(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_ranges_and_anything_else_is_nothing_to_go_by() {
        let ranges = parse(b"5 9\n20 30\n").unwrap();
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(5, 9), (20, 30)]);
        assert!([&b"5"[..], b"5 x", b"\xff 1"].into_iter().all(|bytes| parse(bytes).is_none()));
        assert!(everything().cover(0) && everything().cover(1 << 60));
    }
}
