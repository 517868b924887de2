//! Requests as clients sent them, where nobody is a client: those of a Redis' append-only file. Who runs them is handed in, since
//! scripts and functions are among them, and run as a client's do. What Tarn's own log holds is applied by `durability::apply`, which asks
//! nobody.

use crate::import::rdb::Expired;
use crate::snapshot::Place;
use command::table::{self, Command, Runs};
use command::{Error, Flags, Group};
use keyspace::DbIndex;
use std::fmt;
use sys::UnixMs;
use wire::{Request, RequestBuf};

/// Runs requests that were executed once before.
pub trait Apply {
    /// Runs a request on a database, and gives back the database for the next one: SELECT changes it. The request has at
    /// least one word. Keys whose time is up at `now` are gone, and what counts from the present counts from `now`.
    ///
    /// # Errors
    /// If it does not run, or is answered with an error; the keyspace is as it was then, except behind a script.
    fn apply(&mut self, db: DbIndex, now: UnixMs, request: &Request<'_>) -> Result<DbIndex, Rejection>;

    /// The request with the table's name for its command, if that has got another one here.
    fn own(&self, request: &Request<'_>) -> Option<RequestBuf>;

    /// The keys of a snapshot come, which may say where in a stream it was written: what becomes of those whose time is up.
    fn begin_snapshot(&mut self, _place: Option<Place>) -> Expired {
        Expired::Passed
    }

    /// A key of it is passed over because its time is up.
    fn passed(&mut self, _db: DbIndex, _key: &[u8]) {}

    /// All of it is there.
    fn end_snapshot(&mut self) {}
}

/// Why a request did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// There is no such command: the log is of a newer version, or of a server with modules.
    Unknown(String),
    /// It has too few words, or too many.
    Arity(&'static str),
    /// It is none that changes anything, and was never logged.
    Foreign(&'static str),
    /// It ran, and this was the reply. A Redis would go on with the next.
    Failed(&'static str, Error),
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rejection::Unknown(name) => write!(f, "unknown command '{name}'"),
            Rejection::Arity(name) => write!(f, "wrong number of arguments for '{name}'"),
            Rejection::Foreign(name) => write!(f, "'{name}' is no command that a log holds"),
            Rejection::Failed(name, error) => write!(f, "'{name}' was answered with '{error}'"),
        }
    }
}

impl std::error::Error for Rejection {}

/// The command of a request that a log may hold. The request has at least one word.
///
/// # Errors
/// If no server would run it from there.
#[inline]
pub fn judge(request: &Request<'_>) -> Result<&'static Command, Rejection> {
    judge_found(table::find_for(request), request)
}

/// The same, once the command was looked for.
///
/// # Errors
/// As there.
#[inline]
pub fn judge_found(
    found: Option<&'static Command>,
    request: &Request<'_>,
) -> Result<&'static Command, Rejection> {
    let Some(command) = found else { return Err(unknown(request)) };
    let row = &command.row;
    if !row.accepts(request.len()) {
        return Err(Rejection::Arity(row.name));
    }
    let is_told = row.group == Group::Scripting
        || matches!(row.handler, Runs::Data(_))
        || row.flags.contains(Flags::IN_APPEND_ONLY_FILE);
    if is_told { Ok(command) } else { Err(Rejection::Foreign(row.name)) }
}

#[cold]
fn unknown(request: &Request<'_>) -> Rejection {
    const SHOWN_BYTES_MAX: usize = 128;
    let name = request.get(0).unwrap_or_default();
    Rejection::Unknown(name[..name.len().min(SHOWN_BYTES_MAX)].escape_ascii().to_string())
}
