//! Loads an RDB file into the keyspace: a server's own snapshot, one that a Redis left, or the beginning of an
//! append-only file.
//!
//! Runs before the first client, on any one thread. A file that is not right is refused as a whole; what was loaded of it until
//! then stays in a keyspace that nobody will use.

use crate::Engine;
use crate::scripts::libraries;
use crate::snapshot::{LOG_FACT, MOMENT_FACT, put};
use ::log::limits::DATABASES_MAX;
use keyspace::DbIndex;
use std::fmt::Display;
use std::io;
use std::path::Path;
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

/// The database that is selected in the stream behind a master's copy; None: it names one that there cannot be.
pub fn stream_database(path: &Path) -> Option<u32> {
    let read = || {
        let facts = FileReader::open(Content::open(&Fs::Real, path).ok()??).ok()?.facts();
        let (_, value) = facts.into_iter().find(|(name, _)| name == b"repl-stream-db")?;
        std::str::from_utf8(&value).ok()?.parse::<u64>().ok()
    };
    u32::try_from(read().unwrap_or(0)).ok().filter(|database| *database < DATABASES_MAX)
}

/// How far the times of a file system may lie behind the clock: it goes by the kernel's ticks.
const FILE_TIME_LAG_MS: u64 = 10;

impl Age {
    /// Of a file; None if there is none, or it is no RDB file.
    pub fn of(path: &Path) -> Option<Age> {
        let source = Content::open(&Fs::Real, path).ok()??;
        let facts = FileReader::open(source).ok()?.facts();
        let fact = |name: &str| {
            let (_, value) = facts.iter().find(|(known, _)| known == name.as_bytes())?;
            std::str::from_utf8(value).ok()
        };
        let number = |name: &str| fact(name).and_then(|text| text.parse::<u64>().ok());
        let of_second =
            number("ctime").map(|seconds| UnixMs(seconds.saturating_add(1).saturating_mul(1000) - 1));
        Some(Age {
            log: fact(LOG_FACT).and_then(|text| u64::from_str_radix(text, 16).ok()),
            written: number(MOMENT_FACT).map(UnixMs).or(of_second),
            modified: Fs::Real.modified(path).unwrap_or(None),
            is_to_the_ms: number(MOMENT_FACT).is_some(),
        })
    }

    /// Of which moment it is: the earliest that is said of it.
    pub fn moment(&self) -> UnixMs {
        [self.written, self.modified].into_iter().flatten().min().unwrap_or(UnixMs(0))
    }

    /// Whether it was written after another file had all that it has: that file tells the moment by the clock, by which a file system
    /// may be late.
    pub fn is_after_content(&self, moment: UnixMs) -> bool {
        let modified = self.modified.map(|time| UnixMs(time.0.saturating_add(FILE_TIME_LAG_MS)));
        is_all_after([self.written, modified], moment)
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
        put(engine, &engine.keyspace.enter(0), db, entry, now);
        Ok(())
    })?;
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
    mut take: impl FnMut(DbIndex, FileEntry) -> io::Result<()>,
) -> io::Result<Option<(Loaded, Vec<Vec<u8>>)>> {
    let Some(source) = Content::open(&Fs::Real, path).map_err(|error| wrong(path, &error))? else {
        return Ok(None);
    };
    let mut reader = FileReader::open(source).map_err(|error| wrong(path, &error))?;
    reader.set_checksum(engine.settings.checksum());
    let thresholds = engine.settings.thresholds();
    let mut loaded = Loaded { keys: 0, expired: 0, end: 0 };
    while let Some(entry) = reader.next_entry(&thresholds).map_err(|error| wrong(path, &error))? {
        if expired == Expired::Passed && entry.expires_at_ms.is_some_and(|at| at <= now.0) {
            loaded.expired += 1;
            continue;
        }
        let db = u32::try_from(entry.database).ok().filter(|db| *db < engine.keyspace.databases());
        let db = db.ok_or_else(|| {
            let (number, databases) = (entry.database, engine.keyspace.databases());
            wrong(path, &format_args!("it has a database {number}, and `databases` is {databases}"))
        })?;
        take(DbIndex(db), entry)?;
        loaded.keys += 1;
    }
    loaded.end = reader.end_offset();
    Ok(Some((loaded, reader.take_libraries())))
}

fn wrong(path: &Path, error: &dyn Display) -> io::Error {
    io::Error::other(format!("Can't load {}: {error}", path.display()))
}
