//! Whole files: reading within a limit, reading from the beginning on, and replacing content in one step.
//! The configuration, users and snapshots use it.

use super::{File, Fs, Mode};
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

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
/// and goes away otherwise. Each has a file of its own, so that of several for one file each is whole, and the one that is committed
/// last counts. The system's lock on it tells it from one that was left behind.
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
        let (temporary, file) = begin_temporary(fs, &target)?;
        let replacement = Replacement { fs: fs.clone(), file, written: 0, temporary, target };
        fs.copy_permissions(&replacement.target, &replacement.temporary)?;
        Ok(replacement)
    }

    /// Where the new content is until it is committed. Whoever removes that file has the commit fail.
    pub fn temporary(&self) -> &Path {
        &self.temporary
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

    /// Makes durable what was written so far, so that little is left to do for [`Replacement::commit`].
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
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

/// Makes the temporary file of a replacement, under a name that nothing has.
fn begin_temporary(fs: &Fs, target: &Path) -> io::Result<(PathBuf, File)> {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    loop {
        let mut name = name.to_owned();
        name.push(format!(".{}.{}.tmp", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)));
        let temporary = directory_of(target).join(name);
        match fs.open(&temporary, Mode::CreateNew) {
            Ok(file) => {
                // One that cannot be locked is taken for a leftover at worst, by a program that starts beside this one.
                let _ = file.try_lock();
                return Ok((temporary, file));
            }
            // Another process has left it, which had this one's id.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Removes what programs have left of replacements of this file that they did not come to the end of. Those that are still being written
/// stay.
///
/// # Errors
/// If the directory cannot be read, or one of them cannot be removed.
pub fn remove_unfinished(fs: &Fs, path: &Path) -> io::Result<()> {
    let target = fs.followed(path);
    let dir = directory_of(&target);
    let Some(target_name) = target.file_name() else { return Ok(()) };
    for name in fs.list(dir)? {
        if replaced_by(&name) == Some(target_name) && is_left(fs, &dir.join(&name))? {
            fs.remove(&dir.join(&name))?;
        }
    }
    Ok(())
}

/// The name of the file whose content a temporary one of this name is to replace: `NAME` of `NAME.PROCESS.NUMBER.tmp`. None: it is none.
pub fn replaced_by(name: &OsStr) -> Option<&OsStr> {
    let is_number = |word: &[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    let mut words = name.as_bytes().strip_suffix(b".tmp")?.rsplitn(3, |byte| *byte == b'.');
    let are_numbers = words.next().is_some_and(is_number) && words.next().is_some_and(is_number);
    words.next().filter(|target| are_numbers && !target.is_empty()).map(OsStr::from_bytes)
}

/// Whether nobody writes a temporary file any more.
fn is_left(fs: &Fs, path: &Path) -> io::Result<bool> {
    match fs.open(path, Mode::Read) {
        Ok(file) => file.try_lock(),
        // It has taken its place meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
