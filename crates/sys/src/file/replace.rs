//! Whole files: reading within a limit, reading from the beginning on, and replacing content in one step.
//! The configuration, users and snapshots use it.

use super::{File, Fs, Mode};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Reads standard input to its end, with the limit of [`Fs::read`].
///
/// # Errors
/// As [`Fs::read`].
pub fn read_stdin(bytes_max: u64) -> io::Result<Vec<u8>> {
    read_limited(io::stdin().lock(), bytes_max)
}

pub(super) fn read_limited(source: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(bytes_max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > bytes_max {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, "File too large")),
        false => Ok(bytes),
    }
}

/// A file that is read from its beginning to its end.
#[derive(Debug)]
pub struct Content {
    file: File,
    position: u64,
}

impl Content {
    /// From the file's beginning on.
    pub fn new(file: File) -> Content {
        Content { file, position: 0 }
    }

    /// Opens a file to be read from its beginning; None if there is none.
    ///
    /// # Errors
    /// If it is there and cannot be opened.
    pub fn open(fs: &Fs, path: &Path) -> io::Result<Option<Content>> {
        match fs.open(path, Mode::Read) {
            Ok(file) => Ok(Some(Content::new(file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Read for Content {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

/// A file's new content in the making: a temporary file beside it that takes its place when it is committed,
/// and goes away otherwise.
#[derive(Debug)]
pub struct Replacement {
    fs: Fs,
    file: File,
    written: u64,
    temporary: PathBuf,
    target: PathBuf,
}

impl Replacement {
    /// Makes the temporary file.
    ///
    /// # Errors
    /// If that cannot be done.
    pub fn begin(fs: &Fs, path: &Path) -> io::Result<Replacement> {
        let target = fs.followed(path);
        let mut name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = directory_of(&target).join(name);
        let file = fs.open(&temporary, Mode::Truncate)?;
        let replacement = Replacement { fs: fs.clone(), file, written: 0, temporary, target };
        fs.copy_permissions(&replacement.target, &replacement.temporary)?;
        Ok(replacement)
    }

    /// Appends to the new content.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(bytes, self.written)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Syncs the new content, puts it in place of the old one, and syncs the directory.
    ///
    /// # Errors
    /// The first that occurs; the old content is there then, unless only the last sync failed.
    pub fn commit(self) -> io::Result<()> {
        self.file.sync_data()?;
        self.fs.rename(&self.temporary, &self.target)?;
        self.fs.sync_dir(directory_of(&self.target))
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // After a commit it is gone already; otherwise the error that came before is the one that matters.
        let _ = self.fs.remove(&self.temporary);
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
