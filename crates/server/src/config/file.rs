//! The configuration's only door to the disk: reading files and standard input, expanding `include` patterns, and
//! replacing a file in one step.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::glob;

/// More than any configuration needs; it keeps a device or a mistaken path from filling the memory.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads a whole file.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_limited(File::open(path)?)
}

/// Reads standard input to its end.
pub(super) fn read_stdin() -> io::Result<Vec<u8>> {
    read_limited(io::stdin().lock())
}

fn read_limited(source: impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    source.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    match text.len() as u64 > FILE_BYTES_MAX {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, "File too large")),
        false => Ok(text),
    }
}

/// Fails, as the system would, unless the path is a directory that may be entered.
pub(super) fn check_directory(path: &[u8]) -> io::Result<()> {
    fs::read_dir(OsStr::from_bytes(path)).map(drop)
}

/// The system's sentence for an error, without the number that Rust adds.
pub(super) fn sentence(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// Replaces a file's content so that a crash leaves the old or the new one, whole. Follows a symbolic link and keeps
/// the permissions.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
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
    found.retain(|path| path.exists());
    found
}

fn is_pattern(text: &[u8]) -> bool {
    text.iter().any(|byte| b"*?[".contains(byte))
}

/// Directories that cannot be read hold no match.
fn matching(directory: &Path, pattern: &[u8]) -> Vec<PathBuf> {
    let listed = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let mut names: Vec<_> = fs::read_dir(listed)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .filter(|name| !name.as_bytes().starts_with(b".") || pattern.starts_with(b"."))
        .filter(|name| glob::matches(pattern, name.as_bytes(), glob::Case::Sensitive))
        .collect();
    names.sort();
    names.iter().map(|name| directory.join(name)).collect()
}
