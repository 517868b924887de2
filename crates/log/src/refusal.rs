//! Why a directory is not opened: a sentence that names the place and what to do. Nothing was changed then.

use crate::Lsn;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a directory is not opened.
#[derive(Debug)]
pub enum Refusal {
    /// The system refused something.
    Disk {
        /// What it concerns.
        path: PathBuf,
        /// The system's words.
        error: io::Error,
    },
    /// Something that is no directory lies in its place.
    NotDirectory(PathBuf),
    /// Another process has the directory.
    InUse(PathBuf),
    /// A file was written by a newer program.
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format's version.
        version: u32,
    },
    /// A file has a log's name and is not of a log.
    NotOurs(PathBuf),
    /// The beginning of a file is damaged.
    HeaderDamaged(PathBuf),
    /// A file belongs to another log than the others.
    Mixed(PathBuf),
    /// A checkpoint is damaged, and nothing older can stand in for it.
    CheckpointDamaged {
        /// The file.
        path: PathBuf,
        /// Where, bytes.
        offset: u64,
    },
    /// The log begins after what is needed.
    LogLate {
        /// Where it begins; None if there is no log at all.
        start: Option<Lsn>,
        /// Where it must begin: the newest checkpoint's beginning, or 0.
        needed: Lsn,
    },
    /// A segment in the middle is not there.
    SegmentMissing {
        /// Its number.
        number: u64,
        /// The segment that goes on from it.
        next: PathBuf,
    },
    /// Damage before the log's end: more than a crash does.
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Where in it, bytes.
        offset: u64,
        /// All before this is intact.
        lsn: Lsn,
        /// What is wrong there.
        what: &'static str,
    },
    /// A copy is wanted as of a moment to which no checkpoint and no log go back.
    OutOfReach(PathBuf),
    /// A copy is to go where there is a log already.
    Occupied(PathBuf),
    /// The log ends before the checkpoint does.
    LogShort {
        /// Where it ends.
        end: Lsn,
        /// Where the checkpoint ends.
        needed: Lsn,
    },
}

impl Refusal {
    pub(crate) fn disk(path: &Path) -> impl Fn(io::Error) -> Refusal {
        move |error| Refusal::Disk { path: path.to_owned(), error }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Disk { path, error } => write!(out, "{}: {error}", path.display()),
            Refusal::NotDirectory(path) => write!(out, "{} is not a directory", path.display()),
            Refusal::InUse(path) => {
                write!(out, "{} is in use by another server; stop that one first", path.display())
            }
            Refusal::Newer { path, version } => write!(
                out,
                "{} has format version {version}, which is newer than this program reads; start it with the program that \
                 wrote it",
                path.display()
            ),
            Refusal::NotOurs(path) => {
                write!(out, "{} has the name of a log's file and is none; move it away", path.display())
            }
            Refusal::HeaderDamaged(path) => write!(
                out,
                "the header of {} is damaged; put the file back from a copy, or see with `tarn check` what else is left",
                path.display()
            ),
            Refusal::Mixed(path) => {
                write!(out, "{} belongs to another log than the other files; move it away", path.display())
            }
            Refusal::CheckpointDamaged { path, offset } => write!(
                out,
                "the checkpoint {} is damaged at offset {offset}, and the log does not reach back to an older one; put the \
                 file back from a copy",
                path.display()
            ),
            Refusal::LogLate { start: Some(start), needed } => write!(
                out,
                "the log begins at {start} and is needed from {needed} on; put the older segments back from a copy"
            ),
            Refusal::LogLate { start: None, needed } => {
                write!(
                    out,
                    "there is a checkpoint and no log from {needed} on; put the segments back from a copy"
                )
            }
            Refusal::SegmentMissing { number, next } => write!(
                out,
                "segment number {number} is missing, from which {} goes on; put it back from a copy, or give `tarn restore` \
                 an LSN before it",
                next.display()
            ),
            Refusal::Damaged { path, offset, lsn, what } => write!(
                out,
                "{} is damaged at offset {offset}: {what}; all before LSN {lsn} is intact: put the file back from a copy, or \
                 take what is intact with `tarn restore --to {lsn}`",
                path.display()
            ),
            Refusal::OutOfReach(path) => {
                write!(out, "neither a checkpoint nor the log in {} goes back that far", path.display())
            }
            Refusal::Occupied(path) => {
                write!(out, "{} holds a log already; name an empty one", path.display())
            }
            Refusal::LogShort { end, needed } => write!(
                out,
                "the log ends at {end}, before the end of the checkpoint at {needed}; put the newest segments back from a copy"
            ),
        }
    }
}

impl std::error::Error for Refusal {}
