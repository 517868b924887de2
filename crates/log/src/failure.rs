//! Why the log does not go on.

use std::fmt;
use std::io;
use std::path::Path;
use sys::file::is_out_of_descriptors;

/// What the log was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Making a new segment.
    Prepare,
    /// Writing to a segment.
    Write,
    /// Syncing a segment or the directory.
    Sync,
}

/// The error that stopped the log. While it lasts, nothing is acknowledged that was appended after the last good sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What failed.
    pub operation: Operation,
    /// The file's name.
    pub file: String,
    /// What kind of error it was; `StorageFull` and `QuotaExceeded` go away when space returns.
    pub kind: io::ErrorKind,
    /// The system's words.
    pub reason: String,
    /// The process has no descriptor left: nothing is wrong with the disk.
    pub(crate) is_out_of_descriptors: bool,
}

impl Failure {
    pub(crate) fn new(operation: Operation, path: &Path, error: &io::Error) -> Failure {
        let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let is_out_of_descriptors = is_out_of_descriptors(error);
        Failure { operation, file, kind: error.kind(), reason: error.to_string(), is_out_of_descriptors }
    }

    /// Whether space is all that is missing.
    pub fn is_full(&self) -> bool {
        matches!(self.kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let doing = match self.operation {
            Operation::Prepare => "preparing",
            Operation::Write => "writing",
            Operation::Sync => "syncing",
        };
        write!(formatter, "{doing} {}: {}", self.file, self.reason)
    }
}

impl std::error::Error for Failure {}
