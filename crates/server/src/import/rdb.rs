//! Loads an RDB file into the keyspace: a server's own snapshot, one that a Redis left, or the beginning of an
//! append-only file.
//!
//! Runs before the first client, on any one thread. A file that is not right is refused as a whole; what was loaded of it until
//! then stays in a keyspace that nobody will use.

use crate::commands::scripting::load_library;
use crate::server::Server;
use crate::snapshot::put;
use keyspace::DbIndex;
use std::fmt::Display;
use std::io;
use std::path::Path;
use sys::UnixMs;
use sys::file::{Content, Fs};
use value::rdb::file::FileReader;

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

/// Loads a file as of `now`; None if there is none.
///
/// # Errors
/// One sentence for the operator that names the file.
pub fn load(server: &Server, path: &Path, now: UnixMs, expired: Expired) -> io::Result<Option<Loaded>> {
    let wrong = |error: &dyn Display| io::Error::other(format!("Can't load {}: {error}", path.display()));
    let Some(source) = Content::open(&Fs::Real, path).map_err(|error| wrong(&error))? else {
        return Ok(None);
    };
    let mut reader = FileReader::open(source).map_err(|error| wrong(&error))?;
    let thresholds = server.settings.thresholds();
    let mut loaded = Loaded { keys: 0, expired: 0, end: 0 };
    while let Some(entry) = reader.next_entry(&thresholds).map_err(|error| wrong(&error))? {
        if expired == Expired::Passed && entry.expires_at_ms.is_some_and(|at| at <= now.0) {
            loaded.expired += 1;
            continue;
        }
        let db = u32::try_from(entry.database).ok().filter(|db| *db < server.keyspace.databases());
        let db = db.ok_or_else(|| {
            wrong(&format_args!(
                "it has a database {}, and `databases` is {}",
                entry.database,
                server.keyspace.databases()
            ))
        })?;
        put(server, &server.keyspace.enter(0), DbIndex(db), entry, now);
        loaded.keys += 1;
    }
    for code in reader.take_libraries() {
        let wrong_code = |line: Vec<u8>| wrong(&String::from_utf8_lossy(&line));
        load_library(server, &code).map_err(wrong_code)?;
    }
    loaded.end = reader.end_offset();
    Ok(Some(loaded))
}
