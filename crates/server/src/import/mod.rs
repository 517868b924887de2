//! What a Redis left behind: its append-only files and its RDB file are found, told apart and loaded.
//!
//! At a server's start, before the first client, and in `tarn import` and `tarn export`. Files are only read.
//!
//! 1. Either everything that was found is loaded, or there is an error that says in one sentence where and why not.
//! 2. A directory without any such file is no error: nothing is found.

mod append_only;
mod manifest;
pub mod rdb;
mod requests;

pub use append_only::{Cut, Tally};
pub use manifest::{BadManifest, Manifest};

use crate::log;
use crate::server::Server;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use sys::file::{Fs, Kind, about};

/// Longest manifest that is read: a line takes less than a hundred bytes, and a Redis has few files.
const MANIFEST_BYTES_MAX: u64 = 16 << 20;

/// Which of the files of a directory is the one that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preference {
    /// The append-only directory, if it has a manifest; else the single append-only file; else the RDB file. As a Redis with
    /// `appendonly yes`, which has nothing newer than that.
    AppendOnly,
    /// The RDB file; append-only files are left aside, with a warning. As a Redis with `appendonly no`.
    Snapshot,
}

/// What was found and loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Append-only files.
    AppendOnly {
        /// The manifest, or the single file.
        path: PathBuf,
        /// What was in them.
        tally: Tally,
    },
    /// An RDB file.
    Snapshot {
        /// The file.
        path: PathBuf,
        /// Keys loaded.
        keys: u64,
        /// Keys passed over because their time was up.
        expired: u64,
    },
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Found::AppendOnly { path, tally } => {
                let Tally { files, base_keys, requests, errors, .. } = tally;
                write!(f, "Loaded the append-only files of {}: {files} files, ", path.display())?;
                write!(
                    f,
                    "{base_keys} keys of an RDB file, {requests} requests, {errors} of them with errors"
                )?;
                match &tally.cut {
                    Some(cut) => write!(f, "; up to offset {} of {}", cut.offset, cut.path.display()),
                    None => Ok(()),
                }
            }
            Found::Snapshot { path, keys, expired } => {
                write!(f, "Loaded the RDB file {}: {keys} keys, {expired} more had expired", path.display())
            }
        }
    }
}

/// The names under which a Redis keeps its files in its directory.
struct Names {
    directory: OsString,
    file: OsString,
    snapshot: OsString,
}

/// Files to be loaded.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    AppendOnly { path: PathBuf, files: Vec<PathBuf> },
    Snapshot(PathBuf),
}

/// Loads what a Redis left in `dir`, under the names that the configuration says, and logs what that was; None if there is
/// nothing. Called once, before the first client.
///
/// # Errors
/// One sentence for the operator: nothing must start without the data that it was meant to have.
pub fn load_foreign(server: &Arc<Server>, preference: Preference) -> io::Result<Option<Found>> {
    let names = Names {
        directory: OsString::from_vec(server.config.appenddirname()),
        file: OsString::from_vec(server.config.appendfilename()),
        snapshot: OsString::from_vec(server.config.dbfilename()),
    };
    let dir = server.dir();
    let place = locate(&Fs::Real, &dir, &names, preference)?;
    if preference == Preference::Snapshot
        && let Some(Place::AppendOnly { path, .. }) =
            locate(&Fs::Real, &dir, &names, Preference::AppendOnly).unwrap_or(None)
    {
        log!(Warning, "{} is left aside: read it with appendonly yes, or with tarn import", path.display());
    }
    place.map(|place| load_place(server, place)).transpose()
}

/// Refuses a start from the log beside an RDB file that was written later, and not by a server with that log: what it holds would be passed
/// over, and the next SAVE would replace it.
///
/// # Errors
/// The sentence that says what to do.
pub(crate) fn refuse_newer_snapshot(server: &Server, recovery: &::log::Recovery) -> io::Result<()> {
    let path = crate::snapshot::path(server);
    let Some(age) = rdb::Age::of(&path) else { return Ok(()) };
    if age.log.is_some() && age.log == recovery.history() {
        return Ok(());
    }
    if !age.is_after(recovery.last_time()) {
        log!(Notice, "{} is not read: the log goes on from it, or is newer", path.display());
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{path} was written after the end of the log in {dir}, by a server that did not write that log: if the log counts, move {path} \
         away; if {path} counts, move all `log-*` away, and the next start reads it",
        path = path.display(),
        dir = server.dir().display(),
    )))
}

/// The names under which [`load_foreign`] looks, for people.
pub(crate) fn names_of(server: &Server) -> String {
    let config = &server.config;
    let names = [config.appenddirname(), config.appendfilename(), config.dbfilename()];
    let [directory, file, snapshot] = names.map(|name| String::from_utf8_lossy(&name).into_owned());
    format!("{directory}, {file} or {snapshot}")
}

/// Loads a file or directory of a Redis wherever it lies: an RDB file, an append-only file, a manifest, an append-only directory,
/// or a directory with any of these under their usual names.
///
/// # Errors
/// As [`load_foreign`], and if there is nothing there.
pub fn load_from(server: &Arc<Server>, from: &Path) -> io::Result<Found> {
    let place = match Fs::Real.kind(from).map_err(about(from))? {
        Some(Kind::Directory) => place_in(&Fs::Real, from)?,
        Some(_) if from.extension() == Some(OsStr::new("manifest")) => Some(in_manifest(&Fs::Real, from)?),
        Some(_) => Some(Place::AppendOnly { path: from.to_owned(), files: vec![from.to_owned()] }),
        None => None,
    };
    let nothing = || {
        let sentence = format!("{}: there is no RDB file and no append-only file", from.display());
        io::Error::new(io::ErrorKind::NotFound, sentence)
    };
    load_place(server, place.ok_or_else(nothing)?)
}

fn load_place(server: &Arc<Server>, place: Place) -> io::Result<Found> {
    let found = match place {
        Place::Snapshot(path) => {
            let now = server.clock.now();
            let loaded = rdb::load(server, &path, now, rdb::Expired::Passed)?;
            let loaded = loaded.ok_or_else(|| io::Error::other(format!("{} is gone", path.display())))?;
            server.snapshots.note_load(loaded.keys, loaded.expired);
            Found::Snapshot { path, keys: loaded.keys, expired: loaded.expired }
        }
        Place::AppendOnly { path, files } => {
            let tally = append_only::load(server, &files)?;
            server.snapshots.note_load(tally.base_keys, 0);
            // A file that somebody named, and that turned out to be an RDB file and nothing else.
            let is_snapshot = files == [path.clone()] && tally.requests == 0 && tally.cut.is_none();
            match is_snapshot && tally.base_keys > 0 {
                true => Found::Snapshot { path, keys: tally.base_keys, expired: 0 },
                false => Found::AppendOnly { path, tally },
            }
        }
    };
    log!(Notice, "{found}");
    Ok(found)
}

/// Finds what counts in a Redis' directory.
fn locate(fs: &Fs, dir: &Path, names: &Names, preference: Preference) -> io::Result<Option<Place>> {
    let is_file =
        |path: &Path| Ok::<bool, io::Error>(fs.kind(path).map_err(about(path))? == Some(Kind::File));
    if preference == Preference::AppendOnly {
        let directory = dir.join(&names.directory);
        let manifest = directory.join(OsString::from_vec([names.file.as_bytes(), b".manifest"].concat()));
        let single = dir.join(&names.file);
        if is_file(&manifest)? {
            return in_manifest(fs, &manifest).map(Some);
        }
        refuse_without_manifest(fs, &directory, names)?;
        if is_file(&single)? {
            return Ok(Some(Place::AppendOnly { path: single.clone(), files: vec![single] }));
        }
    }
    let snapshot = dir.join(&names.snapshot);
    Ok(is_file(&snapshot)?.then_some(Place::Snapshot(snapshot)))
}

/// What a directory holds that somebody names: an append-only directory, or one with files under their usual names.
fn place_in(fs: &Fs, dir: &Path) -> io::Result<Option<Place>> {
    let manifests: Vec<OsString> = fs
        .list(dir)
        .map_err(about(dir))?
        .into_iter()
        .filter(|name| name.as_bytes().ends_with(b".manifest"))
        .collect();
    match &manifests[..] {
        [] => {}
        [name] => return in_manifest(fs, &dir.join(name)).map(Some),
        _ => {
            return Err(io::Error::other(format!(
                "{} has several manifests: name the one that counts",
                dir.display()
            )));
        }
    }
    let names = Names {
        directory: "appendonlydir".into(),
        file: "appendonly.aof".into(),
        snapshot: "dump.rdb".into(),
    };
    locate(fs, dir, &names, Preference::AppendOnly)
}

/// The files that a manifest names, which lie beside it.
fn in_manifest(fs: &Fs, path: &Path) -> io::Result<Place> {
    let wrong =
        |error: &dyn fmt::Display| io::Error::other(format!("Can't load {}: {error}", path.display()));
    let text = fs.read(path, MANIFEST_BYTES_MAX).map_err(|error| wrong(&error))?;
    let manifest = Manifest::parse(&text).map_err(|error| wrong(&error))?;
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut files: Vec<PathBuf> = manifest.files().map(|name| dir.join(OsStr::from_bytes(name))).collect();
    // A Redis that was ended while it moved an older version's file here.
    if let [only] = &mut files[..]
        && fs.kind(only)?.is_none()
        && let (Some(above), Some(name)) = (dir.parent(), only.file_name())
        && fs.kind(&above.join(name))? == Some(Kind::File)
    {
        *only = above.join(name);
    }
    for file in &files {
        if fs.kind(file)?.is_none() {
            return Err(wrong(&format_args!("it names {}, which is not there", file.display())));
        }
    }
    Ok(Place::AppendOnly { path: path.to_owned(), files })
}

/// A Redis would begin anew beside append-only files whose manifest is gone; data must not be passed over like that.
fn refuse_without_manifest(fs: &Fs, directory: &Path, names: &Names) -> io::Result<()> {
    if fs.kind(directory)? != Some(Kind::Directory) {
        return Ok(());
    }
    let is_part = |name: &OsString| {
        name.as_bytes().strip_prefix(names.file.as_bytes()).is_some_and(|rest| rest.starts_with(b"."))
    };
    match fs.list(directory)?.iter().find(|name| is_part(name)) {
        Some(part) => Err(io::Error::other(format!(
            "{} has {} and no manifest: put it back, or move the directory away",
            directory.display(),
            part.display()
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
