//! The door to files. For now the server reads and rewrites its configuration
//! and writes its process id; the log and the store will come in here as well.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Reads a whole file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path)
}

/// Puts `bytes` in place of the file at `path`, so that a crash at any moment
/// leaves the old contents or the new, never a mixture: a temporary file beside
/// it, synced, renamed over it, and the directory synced.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let written = write_synced(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = written {
        // The first error is the one to tell; a leftover is harmless.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    fs::File::open(directory)?.sync_all()
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
