//! Loads an RDB file into the keyspace: a server's own snapshot, one that a Redis left, or the beginning of an
//! append-only file.
//!
//! Runs before the first client, on any one thread. A file that is not right is refused as a whole; what was loaded of it until
//! then stays in a keyspace that nobody will use.

use crate::Engine;
use crate::apply::Apply;
use crate::full_copy::WHOLE_FACT;
use crate::scripts::libraries;
use crate::snapshot::{LOG_FACT, MOMENT_FACT, Place, put};
use ::log::ReplicationId;
use ::log::limits::DATABASES_MAX;
use keyspace::DbIndex;
use std::cell::RefCell;
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::str::FromStr;
use sys::UnixMs;
use sys::file::{Content, Fs};
use value::rdb::file::{FileEntry, FileReader};

/// What becomes of keys whose time is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// They are passed over.
    Passed,
    /// They are loaded: requests follow that were executed while they were there.
    Kept,
}

/// What a file held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Keys loaded.
    pub keys: u64,
    /// Keys passed over because their time was up.
    pub expired: u64,
    /// Offset of the first byte behind the file's end, where an append-only file goes on.
    pub end: u64,
    /// From which place of the stream on it is of one moment, where it is a master's copy that says so.
    pub whole_from: Option<u64>,
    /// The database that is selected in the stream behind a master's copy: the first, unless it says so; None: there can be none such.
    pub selected: Option<u32>,
}

/// When a file was written, and beside which log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    /// The log's mark, if there was one.
    pub log: Option<u64>,
    /// The moment that the writer says, or the end of the second.
    written: Option<UnixMs>,
    /// What the file system says.
    modified: Option<UnixMs>,
    /// The writer says it to the millisecond.
    pub is_to_the_ms: bool,
}

/// What the writer of a file says of itself.
struct Facts(Vec<(Vec<u8>, Vec<u8>)>);

impl Facts {
    /// None: there is no file, or it is no RDB file.
    fn of(path: &Path) -> Option<Facts> {
        let source = Content::open(&Fs::Real, path).ok()??;
        Some(Facts(FileReader::open(source).ok()?.facts()))
    }

    fn get<T: FromStr>(&self, name: &str) -> Option<T> {
        said(&self.0, name)
    }
}

/// What a file says of the stream in which it was written.
const STREAM_DATABASE_FACT: &str = "repl-stream-db";

/// The last fact of this name.
fn said<T: FromStr>(facts: &[(Vec<u8>, Vec<u8>)], name: &str) -> Option<T> {
    let (_, value) = facts.iter().rfind(|(known, _)| known == name.as_bytes())?;
    str::from_utf8(value).ok()?.parse().ok()
}

/// Where in a stream a file was written; None: it does not say.
pub fn place(path: &Path) -> Option<Place> {
    let facts = Facts::of(path)?;
    // A Redis knows no offsets beyond.
    let offset = facts.get("repl-offset").filter(|offset| i64::try_from(*offset).is_ok())?;
    let database = facts.get(STREAM_DATABASE_FACT).filter(|database| *database < DATABASES_MAX)?;
    let id = facts.get("repl-id").filter(|id| *id != ReplicationId::NONE)?;
    Some(Place { id, offset, database })
}

/// How far the times of a file system may lie behind the clock: it goes by the kernel's ticks.
const FILE_TIME_LAG_MS: u64 = 10;

impl Age {
    /// Of a file; None if there is none, or it is no RDB file.
    pub fn of(path: &Path) -> Option<Age> {
        let facts = Facts::of(path)?;
        let number = |name: &str| facts.get::<u64>(name);
        let of_second =
            number("ctime").map(|seconds| UnixMs(seconds.saturating_add(1).saturating_mul(1000) - 1));
        Some(Age {
            log: facts.get::<String>(LOG_FACT).and_then(|text| u64::from_str_radix(&text, 16).ok()),
            written: number(MOMENT_FACT).map(UnixMs).or(of_second),
            modified: Fs::Real.modified(path).unwrap_or(None),
            is_to_the_ms: number(MOMENT_FACT).is_some(),
        })
    }

    /// Of which moment it is: the earliest that is said of it. A writer that says it to the millisecond knows better than a file system.
    pub fn moment(&self) -> UnixMs {
        let modified = if self.is_to_the_ms { self.modified_at_the_latest() } else { self.modified };
        [self.written, modified].into_iter().flatten().min().unwrap_or(UnixMs(0))
    }

    /// Whether it was written after another file had all that it has: that file tells the moment by the clock, by which a file system
    /// may be late.
    pub fn is_after_content(&self, moment: UnixMs) -> bool {
        is_all_after([self.written, self.modified_at_the_latest()], moment)
    }

    fn modified_at_the_latest(&self) -> Option<UnixMs> {
        self.modified.map(|time| UnixMs(time.0.saturating_add(FILE_TIME_LAG_MS)))
    }

    /// Whether it was written after a moment: by all that is known, since a file may be a copy, and come from another machine.
    pub fn is_after(&self, moment: UnixMs) -> bool {
        is_all_after([self.written, self.modified], moment)
    }
}

fn is_all_after(known: [Option<UnixMs>; 2], moment: UnixMs) -> bool {
    known.iter().any(Option::is_some) && known.into_iter().flatten().all(|time| time > moment)
}

/// Loads a file as of `now`; None if there is none.
///
/// # Errors
/// One sentence for the operator that names the file.
pub fn load(engine: &Engine, path: &Path, now: UnixMs, expired: Expired) -> io::Result<Option<Loaded>> {
    let read = read(engine, path, now, expired, |db, entry| {
        put(&engine.keyspace.enter(0), db, entry, now);
        Ok(())
    })?;
    finish(engine, path, read)
}

/// Loads a server's own snapshot as of `now`, which may go on with the stream in which it was written; None if there is none.
///
/// # Errors
/// As [`load`].
pub fn load_snapshot(
    engine: &Engine,
    path: &Path,
    now: UnixMs,
    apply: &mut dyn Apply,
) -> io::Result<Option<Loaded>> {
    let expired = apply.begin_snapshot(place(path));
    let apply = RefCell::new(apply);
    let passed = |db, key: &[u8]| apply.borrow_mut().passed(db, key);
    let read = read_all(engine, path, (now, expired), passed, |db, entry| {
        put(&engine.keyspace.enter(0), db, entry, now);
        Ok(())
    })?;
    let loaded = finish(engine, path, read)?;
    apply.into_inner().end_snapshot();
    Ok(loaded)
}

/// A file's keys and, once they are there, the code of its libraries.
type Read = Option<(Loaded, Vec<Vec<u8>>)>;

fn finish(engine: &Engine, path: &Path, read: Read) -> io::Result<Option<Loaded>> {
    let Some((loaded, libraries)) = read else { return Ok(None) };
    for code in libraries {
        libraries::load(engine, &code).map_err(|line| wrong(path, &String::from_utf8_lossy(&line)))?;
    }
    Ok(Some(loaded))
}

/// Reads a file as of `now`, with what becomes of each key, and gives the code of its libraries; None if there is none.
///
/// # Errors
/// One sentence for the operator that names the file; that of `take` if it refuses a key.
pub fn read(
    engine: &Engine,
    path: &Path,
    now: UnixMs,
    expired: Expired,
    take: impl FnMut(DbIndex, FileEntry) -> io::Result<()>,
) -> io::Result<Read> {
    read_all(engine, path, (now, expired), |_, _| (), take)
}

/// The same of a file on its way to a path: what is known of it, and the code of its libraries.
///
/// # Errors
/// As [`read`].
pub fn read_coming(
    engine: &Engine,
    path: &Path,
    source: impl io::Read,
    take: impl FnMut(DbIndex, FileEntry) -> io::Result<()>,
) -> io::Result<(Loaded, Vec<Vec<u8>>)> {
    let as_of = (engine.clock.now(), Expired::Kept);
    let longest = u64::try_from(engine.config.proto_max_bulk_len()).unwrap_or(0).max(STRING_BYTES_COMING);
    let mut reader = FileReader::open(source).map_err(|error| wrong(path, &error))?;
    reader.set_string_max(longest);
    read_from(engine, (path, reader), as_of, |_, _| (), take)
}

/// The same, told of the keys that are passed over.
fn read_all(
    engine: &Engine,
    path: &Path,
    as_of: (UnixMs, Expired),
    passed: impl FnMut(DbIndex, &[u8]),
    take: impl FnMut(DbIndex, FileEntry) -> io::Result<()>,
) -> io::Result<Read> {
    let Some(source) = Content::open(&Fs::Real, path).map_err(|error| wrong(path, &error))? else {
        return Ok(None);
    };
    let reader = FileReader::open(source).map_err(|error| wrong(path, &error))?;
    read_from(engine, (path, reader), as_of, passed, take).map(Some)
}

/// A string that a master declares to be longer is refused before it comes, unless `proto-max-bulk-len` lets clients have such here: as much as one
/// request of a master's may have.
const STRING_BYTES_COMING: u64 = 2 << 30;

fn read_from(
    engine: &Engine,
    (path, mut reader): (&Path, FileReader<impl io::Read>),
    (now, expired): (UnixMs, Expired),
    mut passed: impl FnMut(DbIndex, &[u8]),
    mut take: impl FnMut(DbIndex, FileEntry) -> io::Result<()>,
) -> io::Result<(Loaded, Vec<Vec<u8>>)> {
    reader.set_checksum(engine.settings.checksum());
    let thresholds = engine.settings.thresholds();
    let first_facts = reader.facts();
    let mut loaded = Loaded { keys: 0, expired: 0, end: 0, whole_from: None, selected: None };
    while let Some(entry) = reader.next_entry(&thresholds).map_err(|error| wrong(path, &error))? {
        let db = u32::try_from(entry.database).ok().filter(|db| *db < engine.keyspace.databases());
        if expired == Expired::Passed && entry.expires_at_ms.is_some_and(|at| at <= now.0) {
            db.into_iter().for_each(|db| passed(DbIndex(db), &entry.key));
            loaded.expired += 1;
            continue;
        }
        let db = db.ok_or_else(|| {
            let (number, databases) = (entry.database, engine.keyspace.databases());
            wrong(path, &format_args!("it has a database {number}, and `databases` is {databases}"))
        })?;
        take(DbIndex(db), entry)?;
        loaded.keys += 1;
    }
    loaded.end = reader.end_offset();
    loaded.whole_from = said(reader.late_facts(), WHOLE_FACT);
    let selected = [reader.late_facts(), &first_facts]
        .into_iter()
        .find_map(|facts| said::<u64>(facts, STREAM_DATABASE_FACT));
    loaded.selected = u32::try_from(selected.unwrap_or(0)).ok().filter(|database| *database < DATABASES_MAX);
    Ok((loaded, reader.take_libraries()))
}

fn wrong(path: &Path, error: &dyn Display) -> io::Error {
    io::Error::other(format!("Can't load {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_is_late_makes_no_earlier_file_the_newer_one() {
        let age = |written: u64, modified: u64| Age {
            log: None,
            written: Some(UnixMs(written)),
            modified: Some(UnixMs(modified)),
            is_to_the_ms: true,
        };
        // Within one tick of the kernel, which began at 1,000.
        let (snapshot, base) = (age(1_002, 1_000), age(1_003, 1_000));
        assert_eq!(base.moment(), UnixMs(1_003));
        assert!(!snapshot.is_after_content(base.moment()));
        assert!(base.is_after_content(snapshot.moment()));
        // One that was written elsewhere, by a clock that is ahead.
        assert_eq!(age(900_000, 1_000).moment(), UnixMs(1_010));
    }
}
