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
    HeaderDamaged {
        /// The file.
        path: PathBuf,
        /// Where it begins, by its name.
        lsn: Lsn,
        /// Up to where a copy can be had.
        way: Option<Lsn>,
    },
    /// A file belongs to another log than the others.
    Mixed {
        /// The file.
        path: PathBuf,
        /// One of the others, which are more.
        native: PathBuf,
    },
    /// A checkpoint is damaged.
    CheckpointDamaged {
        /// The file.
        path: PathBuf,
        /// Where, bytes.
        offset: u64,
        /// Whether nothing older can stand in for it.
        is_needed: bool,
    },
    /// A log with imported data before it lacks the checkpoint that holds them.
    ImportGone,
    /// A server began the log beside its clients, and ended before its first checkpoint was complete; something was written since.
    NotComplete,
    /// There are no segments, and there have been some.
    LogGone {
        /// From where on they are needed.
        needed: Lsn,
    },
    /// The log begins after what is needed.
    LogLate {
        /// Where it begins.
        start: Lsn,
        /// Where it must begin: the newest checkpoint's beginning, or 0.
        needed: Lsn,
    },
    /// A segment in the middle is not there.
    SegmentMissing {
        /// Its number.
        number: u64,
        /// The segment that goes on from it.
        next: PathBuf,
        /// It ended here at the latest.
        lsn: Lsn,
        /// Up to where a copy can be had.
        way: Option<Lsn>,
    },
    /// The last segment is not there.
    LastMissing {
        /// Its number.
        number: u64,
        /// Where what is there ends.
        lsn: Lsn,
        /// Up to where a copy can be had.
        way: Option<Lsn>,
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
        /// Up to where a copy can be had.
        way: Option<Lsn>,
    },
    /// A copy is wanted as of a moment to which no checkpoint and no log go back.
    OutOfReach {
        /// The directory.
        dir: PathBuf,
        /// From where to where there are copies, if there are any.
        range: Option<(Lsn, Lsn)>,
    },
    /// A copy is wanted up to an Lsn behind the end.
    Beyond {
        /// The directory.
        dir: PathBuf,
        /// What is wanted.
        wanted: Lsn,
        /// From where to where there are copies.
        range: (Lsn, Lsn),
    },
    /// A copy was being made in the directory, and was not finished.
    Unfinished(PathBuf),
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

    /// The same with the way out that there is, if it is one of those that leave a beginning.
    pub(crate) fn with_way(mut self, find: impl FnOnce(Lsn) -> Option<Lsn>) -> Refusal {
        if let Refusal::Damaged { lsn, way, .. }
        | Refusal::HeaderDamaged { lsn, way, .. }
        | Refusal::SegmentMissing { lsn, way, .. }
        | Refusal::LastMissing { lsn, way, .. } = &mut self
        {
            *way = find(*lsn);
        }
        self
    }
}

/// What to do where a beginning is intact.
struct Way(Option<Lsn>);

impl fmt::Display for Way {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(lsn) => {
                write!(
                    out,
                    "put it back from a copy, or take what is intact with `tarn restore DIR --to {lsn} --into NEWDIR`"
                )
            }
            None => write!(out, "put it back from a copy"),
        }
    }
}

/// From where to where there are copies.
struct Reachable((Lsn, Lsn));

impl fmt::Display for Reachable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = self.0;
        write!(
            out,
            "a copy can be made of any LSN from {from} to {to}, and `tarn check` shows of which times they are"
        )
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
            Refusal::Mixed { path, native } => write!(
                out,
                "{} belongs to another log than {}; move the one away that was put here by mistake",
                path.display(),
                native.display()
            ),
            Refusal::OutOfReach { dir, range } => {
                write!(out, "neither a checkpoint nor the log in {} goes back that far", dir.display())?;
                range.map_or(Ok(()), |range| write!(out, "; {}", Reachable(range)))
            }
            Refusal::Beyond { dir, wanted, range } => write!(
                out,
                "the log in {} ends before LSN {wanted}; {} (a time in seconds is written @{wanted})",
                dir.display(),
                Reachable(*range)
            ),
            Refusal::Occupied(path) => {
                write!(out, "{} holds a log already; name an empty one", path.display())
            }
            Refusal::Unfinished(path) => write!(
                out,
                "a copy was being made in {} and is not complete; remove the directory, and make the copy again",
                path.display()
            ),
            loss => loss.fmt_loss(out),
        }
    }
}

impl Refusal {
    /// The sentences of what is damaged or not there.
    fn fmt_loss(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::HeaderDamaged { path, way, .. } => {
                write!(out, "the header of {} is damaged: {}", path.display(), Way(*way))
            }
            Refusal::CheckpointDamaged { path, offset, is_needed: true } => write!(
                out,
                "the checkpoint {} is damaged at offset {offset}, and the log does not reach back to an older one; put the \
                 file back from a copy",
                path.display()
            ),
            Refusal::CheckpointDamaged { path, offset, is_needed: false } => write!(
                out,
                "the checkpoint {} is damaged at offset {offset}; the log goes back to what is older: move the file away, and \
                 start again",
                path.display()
            ),
            Refusal::ImportGone => write!(
                out,
                "the log goes on from imported data, and no checkpoint that holds them is there; put the newest one back from a \
                 copy, or, if a running server had begun the log and ended before its first checkpoint was complete, remove all log-*: \
                 then what was there before counts"
            ),
            Refusal::NotComplete => write!(
                out,
                "a running server had begun the log, which has no checkpoint that holds what was there before; if there was one, put \
                 it back from a copy; if the server ended before the first was complete, remove all log-*: then what was there before counts"
            ),
            Refusal::LogGone { needed } => {
                write!(
                    out,
                    "there is no log from {needed} on, and there was one; put the segments back from a copy"
                )
            }
            Refusal::LogLate { start, needed } => write!(
                out,
                "the log begins at {start} and is needed from {needed} on; put the older segments back from a copy, or the \
                 checkpoint from which it goes on"
            ),
            Refusal::SegmentMissing { number, next, way, .. } => {
                write!(
                    out,
                    "segment number {number} is missing, from which {} goes on; {}",
                    next.display(),
                    Way(*way)
                )
            }
            Refusal::LastMissing { number, lsn, way } => {
                write!(
                    out,
                    "the last segment, number {number}, is missing; all before LSN {lsn} is there: {}",
                    Way(*way)
                )
            }
            Refusal::Damaged { path, offset, lsn, what, way } => write!(
                out,
                "{} is damaged at offset {offset}: {what}; all before LSN {lsn} is intact: {}",
                path.display(),
                Way(*way)
            ),
            Refusal::LogShort { end, needed } => write!(
                out,
                "the log ends at {end}, before the end of the checkpoint at {needed}; put the newest segments back from a copy"
            ),
            _ => unreachable!("the others are about the place"),
        }
    }
}

impl std::error::Error for Refusal {}
