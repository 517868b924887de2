//! A file of lines that others move away while it is written, as rotating a server's log does.
//!
//! One owner. Nothing is synced.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The open file, and which file it was when opened: one that was moved away is opened anew.
#[derive(Debug)]
pub struct Appended {
    path: PathBuf,
    file: File,
    identity: (u64, u64),
}

impl Appended {
    /// The end of a file, made if there is none, as a place for what a child of this process prints.
    ///
    /// # Errors
    /// Those of the system.
    pub fn for_child(path: &Path) -> io::Result<std::process::Stdio> {
        std::fs::File::options().create(true).append(true).open(path).map(std::process::Stdio::from)
    }

    /// Opens a file of the machine to append to it; makes it if there is none.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(path: &Path) -> io::Result<Appended> {
        let path = std::path::absolute(path)?;
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        let identity = identity(&file.metadata()?);
        Ok(Appended { path, file, identity })
    }

    /// Appends, to the file that has the name now.
    ///
    /// # Errors
    /// Those of the system; some of the bytes may have been written.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if fs::metadata(&self.path).map_or(true, |now| identity(&now) != self.identity)
            && let Ok(reopened) = Appended::open(&self.path)
        {
            *self = reopened;
        }
        self.file.write_all(bytes)
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}
