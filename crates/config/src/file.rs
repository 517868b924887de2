//! What the configuration asks of the disk: files of a size that a configuration may have, and the files that an
//! `include` pattern names.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use sys::file::Fs;
use value::glob::{Case, glob_match};

/// More than any configuration needs; it keeps a device or a mistaken path from filling the memory.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads a whole file.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    Fs::Real.read(path, FILE_BYTES_MAX)
}

/// Reads standard input to its end.
pub(super) fn read_stdin() -> io::Result<Vec<u8>> {
    sys::file::read_stdin(FILE_BYTES_MAX)
}

/// Fails, as the system would, unless the path is a directory that may be entered.
pub(super) fn check_directory(path: &[u8]) -> io::Result<()> {
    Fs::Real.list(Path::new(OsStr::from_bytes(path))).map(drop)
}

/// The system's sentence for an error, without the number that Rust adds.
pub fn sentence(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// The files that an `include` names: itself, or those that match its pattern, in the order of their names.
pub(super) fn expand(pattern: &[u8]) -> Vec<PathBuf> {
    if !is_pattern(pattern) {
        return vec![PathBuf::from(OsStr::from_bytes(pattern))];
    }
    let mut found = vec![PathBuf::new()];
    for component in Path::new(OsStr::from_bytes(pattern)).components() {
        found = match component {
            Component::Normal(name) if is_pattern(name.as_bytes()) => {
                found.iter().flat_map(|directory| matching(directory, name.as_bytes())).collect()
            }
            _ => found.iter().map(|directory| directory.join(component)).collect(),
        };
    }
    found.retain(|path| Fs::Real.kind(path).is_ok_and(|kind| kind.is_some()));
    found
}

fn is_pattern(text: &[u8]) -> bool {
    text.iter().any(|byte| b"*?[".contains(byte))
}

/// Directories that cannot be read hold no match.
fn matching(directory: &Path, pattern: &[u8]) -> Vec<PathBuf> {
    let listed = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let names = Fs::Real.list(listed).unwrap_or_default().into_iter();
    names
        .filter(|name| !name.as_bytes().starts_with(b".") || pattern.starts_with(b"."))
        .filter(|name| glob_match(pattern, name.as_bytes(), Case::Sensitive))
        .map(|name| directory.join(name))
        .collect()
}
