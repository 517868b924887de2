//! The door to files: reading within a limit, and replacing a file in one step.
//! For now the configuration uses it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

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

/// Replaces a file's content so that a crash leaves the old or the new one, whole: a temporary file beside it, synced,
/// renamed over it, and the directory synced. Follows a symbolic link and keeps the permissions.
///
/// # Errors
/// The first that occurs; the old content is there then, unless only the last sync failed.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = directory.join(name);
    let written = write_new(&temporary, &target, content)
        .and_then(|()| fs::rename(&temporary, &target))
        .and_then(|()| File::open(directory)?.sync_all());
    if written.is_err() {
        // Nothing is left to report: the first error is the one that matters.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_new(temporary: &Path, target: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create(temporary)?;
    if let Ok(existing) = fs::metadata(target) {
        file.set_permissions(existing.permissions())?;
    }
    file.write_all(content)?;
    file.sync_all()
}
