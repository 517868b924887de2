//! What goes wrong: sentences that name the file and the place in it.
//!
//! Two kinds are kept apart: the disk's errors, which may pass, and damage, which stays. Neither ever becomes a value.

use crate::number::{PageNo, SegmentNo};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What is wrong with the bytes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wrong {
    /// Fewer bytes than there should be.
    Length,
    /// The checksum is not that of the bytes.
    Checksum,
    /// The page was written by a newer program.
    Newer,
    /// The page belongs to another store.
    Store,
    /// The page was written when the file held an earlier segment: what should have replaced it never reached the disk. Or the
    /// segment was freed and used again after the read was issued.
    Stale,
    /// The page belongs to another place.
    Place,
    /// The checksum is right, and the records in it are not: how.
    Content(&'static str),
    /// Nothing is written there: there is no such segment, or it was freed, or this page was not written.
    Unwritten,
}

/// A page that is not what was written there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// Where in it, bytes.
    pub offset: u64,
    /// The segment.
    pub segment: SegmentNo,
    /// The page.
    pub page: PageNo,
    /// What is wrong.
    pub wrong: Wrong,
}

impl fmt::Display for Wrong {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Wrong::Length => "the file ends before the page does",
            Wrong::Checksum => "its checksum is wrong",
            Wrong::Newer => "it was written by a newer program",
            Wrong::Store => "it belongs to another store",
            Wrong::Stale => "it is of an earlier use of the file",
            Wrong::Place => "it belongs to another place",
            Wrong::Content(what) => what,
            Wrong::Unwritten => "nothing is written there",
        })
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { path, offset, segment, page, wrong } = self;
        let path = path.display();
        write!(out, "page {page} of segment {segment} is damaged, {path} at offset {offset}: {wrong}")
    }
}

impl std::error::Error for Damage {}

/// Why something could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// The disk did not read; it may another time.
    Disk {
        /// The file.
        path: PathBuf,
        /// Where in it, bytes.
        offset: u64,
        /// The system's words.
        error: io::Error,
    },
    /// What was read is not what was written.
    Damage(Damage),
}

impl From<Damage> for ReadError {
    fn from(damage: Damage) -> ReadError {
        ReadError::Damage(damage)
    }
}

impl ReadError {
    pub(crate) fn disk(path: &Path, offset: u64) -> impl Fn(io::Error) -> ReadError {
        move |error| ReadError::Disk { path: path.to_owned(), offset, error }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Disk { path, offset, error } => {
                write!(out, "reading {} at offset {offset}: {error}", path.display())
            }
            ReadError::Damage(damage) => damage.fmt(out),
        }
    }
}

impl std::error::Error for ReadError {}

/// Why a store is not opened. Nothing was changed then.
#[derive(Debug)]
pub enum Refusal {
    /// The system refused something.
    Disk {
        /// What it concerns.
        path: PathBuf,
        /// The system's words.
        error: io::Error,
    },
    /// Another process has the directory.
    InUse(PathBuf),
    /// The table of segments is damaged: how.
    Table(&'static str),
    /// The table of segments was written by a newer program: its version.
    NewerTable(u32),
    /// A segment's file is not there.
    Missing(PathBuf),
    /// A segment's file ends before what was written to it does.
    Short {
        /// The file.
        path: PathBuf,
        /// Its length, bytes.
        bytes: u64,
        /// How long it must be at least, bytes.
        needed: u64,
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
            Refusal::InUse(path) => {
                write!(out, "{} is in use by another server; stop that one first", path.display())
            }
            Refusal::Table(what) => {
                write!(
                    out,
                    "the checkpoint's table of segments is damaged: {what}; put the checkpoint back from a copy"
                )
            }
            Refusal::NewerTable(version) => write!(
                out,
                "the checkpoint's table of segments has version {version}, which is newer than this program reads; start it \
                 with the program that wrote it"
            ),
            Refusal::Missing(path) => {
                write!(out, "the segment {} is missing; put it back from a copy", path.display())
            }
            Refusal::Short { path, bytes, needed } => write!(
                out,
                "the segment {} ends at {bytes}, and {needed} bytes of it are in use; put it back from a copy",
                path.display()
            ),
        }
    }
}

impl std::error::Error for Refusal {}

/// An error of the system with what it concerns.
pub(crate) fn named(doing: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{doing} {}: {error}", path.display()))
}
