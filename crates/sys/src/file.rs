//! The door to files: reading within a limit, and replacing a file in one step.
//! The configuration, users and snapshots use it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Reads a whole file of at most `bytes_max` bytes.
///
/// # Errors
/// `FileTooLarge` for a longer one, such as a device that never ends.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_limited(File::open(path)?, bytes_max)
}

/// Reads standard input to its end, with the limit of [`read`].
///
/// # Errors
/// As [`read`].
pub fn read_stdin(bytes_max: u64) -> io::Result<Vec<u8>> {
    read_limited(io::stdin().lock(), bytes_max)
}

fn read_limited(source: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(bytes_max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > bytes_max {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, "File too large")),
        false => Ok(bytes),
    }
}

/// Opens a file to be read from its beginning; None if there is none.
///
/// # Errors
/// If it is there and cannot be opened.
pub fn open(path: &Path) -> io::Result<Option<impl Read + use<>>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces a file's content so that a crash leaves the old or the new one, whole. Follows a symbolic link and keeps
/// the permissions.
///
/// # Errors
/// The first that occurs; the old content is there then, unless only the last sync failed.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut replacement = Replacement::begin(path)?;
    replacement.write(content)?;
    replacement.commit()
}

/// A file's new content in the making: a temporary file beside it that takes its place when it is committed,
/// and goes away otherwise.
#[derive(Debug)]
pub struct Replacement {
    file: File,
    temporary: PathBuf,
    target: PathBuf,
}

impl Replacement {
    /// Makes the temporary file.
    ///
    /// # Errors
    /// If that cannot be done.
    pub fn begin(path: &Path) -> io::Result<Replacement> {
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = directory_of(&target).join(name);
        let file = File::create(&temporary)?;
        let replacement = Replacement { file, temporary, target };
        if let Ok(existing) = fs::metadata(&replacement.target) {
            replacement.file.set_permissions(existing.permissions())?;
        }
        Ok(replacement)
    }

    /// Appends to the new content.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Syncs the new content, puts it in place of the old one, and syncs the directory.
    ///
    /// # Errors
    /// The first that occurs; the old content is there then, unless only the last sync failed.
    pub fn commit(self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.temporary, &self.target)?;
        File::open(directory_of(&self.target))?.sync_all()
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // After a commit it is gone already; otherwise the error that came before is the one that matters.
        let _ = fs::remove_file(&self.temporary);
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
