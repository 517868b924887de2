//! What a Redis left behind: its append-only files and its RDB file are found, told apart and loaded.
//!
//! At a server's start, before the first client, and in `tarn import` and `tarn export`. Files are only read.
//!
//! 1. Either everything that was found is loaded, or there is an error that says in one sentence where and why not.
//! 2. A directory without any such file is no error: nothing is found.

mod append_only;
pub mod check;
mod manifest;
mod noted;
pub mod rdb;
mod requests;

pub use append_only::{Cut, Tally};
pub use manifest::{BadManifest, Manifest};
pub use noted::note;

use crate::Engine;
use crate::apply::Apply;
use crate::moment::Moment;
use crate::residency;
use config::Config;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use sys::UnixMs;
use sys::file::{Fs, Kind, about, replaced_by};
use telemetry::log;

/// Longest manifest that is read: a line takes less than a hundred bytes, and a Redis has few files.
pub const MANIFEST_BYTES_MAX: u64 = 16 << 20;

/// The name of an RDB file where nothing else is said.
pub const USUAL_SNAPSHOT: &str = "dump.rdb";

/// Which of the files of a directory is the one that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preference {
    /// The append-only directory, if it has a manifest; else the single append-only file; else the RDB file. As a Redis with
    /// `appendonly yes`; one that was set to `no` has left an RDB file that is newer, which is not passed over in silence.
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

impl Names {
    /// Those that a server's configuration says.
    fn of(engine: &Engine) -> Names {
        Names::in_config(&engine.config)
    }

    fn in_config(config: &Config) -> Names {
        let [directory, file, snapshot] =
            [config.appenddirname(), config.appendfilename(), config.dbfilename()].map(OsString::from_vec);
        Names { directory, file, snapshot }
    }

    /// The usual ones, with another RDB file.
    fn with_snapshot(snapshot: &OsStr) -> Names {
        Names { snapshot: snapshot.to_owned(), ..Names::usual() }
    }

    /// Those that a Redis has where nothing else is said.
    fn usual() -> Names {
        Names {
            directory: "appendonlydir".into(),
            file: "appendonly.aof".into(),
            snapshot: USUAL_SNAPSHOT.into(),
        }
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [directory, file, snapshot] =
            [&self.directory, &self.file, &self.snapshot].map(|name| name.to_string_lossy());
        write!(f, "{directory}, {file} or {snapshot}")
    }
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
pub fn load_foreign(
    engine: &Engine,
    apply: &mut dyn Apply,
    preference: Preference,
) -> io::Result<Option<Found>> {
    let names = Names::of(engine);
    let dir = engine.dir();
    let place = locate(&Fs::Real, &dir, &names, preference)?;
    match (&place, preference) {
        (Some(place), Preference::AppendOnly) => {
            if let Some(passed) = PassedOver::beside(place, &dir.join(&names.snapshot)) {
                passed.judge_at_start(engine)?;
            }
        }
        (_, Preference::Snapshot) => {
            let other = locate(&Fs::Real, &dir, &names, Preference::AppendOnly).unwrap_or(None);
            let wants_log = crate::durability::policy(&engine.config).is_some();
            other.iter().for_each(|place| warn_of_append_only(place, wants_log));
        }
        (None, _) => {}
    }
    if place.is_none() {
        warn_of_other_snapshots(&dir, &names.snapshot);
    }
    place.map(|place| load_place(engine, apply, place)).transpose()
}

/// Says that append-only files are not read because the configuration has no log, or was given one beside clients that did not read them.
fn warn_of_append_only(place: &Place, wants_log: bool) {
    let Place::AppendOnly { path, files } = place else { return };
    let written = newest(files).map_or(String::new(), |(time, _)| format!(", last written {}", Moment(time)));
    log!(
        Warning,
        "{}{written}, is left aside: read it with {}tarn import",
        path.display(),
        if wants_log { "" } else { "appendonly yes, or with " }
    );
}

/// Says which RDB files lie where one of another name is looked for, and nothing was found: an empty server must not surprise anybody.
fn warn_of_other_snapshots(dir: &Path, name: &OsStr) {
    let mut others = Fs::Real.list(dir).unwrap_or_default();
    // What a Redis or a Tarn was writing when it was killed.
    let is_unfinished =
        |other: &OsString| other.as_bytes().starts_with(b"temp-") || other.as_bytes().ends_with(b".tmp");
    others.retain(|other| !is_unfinished(other) && rdb::Age::of(&dir.join(other)).is_some());
    others.sort_unstable();
    let others: Vec<_> = others.iter().map(|name| name.to_string_lossy()).collect();
    if let Some(first) = others.first() {
        log!(
            Warning,
            "There is no data, and {} has {}, which is not read: `dbfilename` is {}. If that is the data, end this server, move {} away, and \
             start with `--dbfilename {first}`",
            dir.display(),
            others.join(", "),
            name.to_string_lossy(),
            residency::files_of_log(dir),
        );
    }
}

/// Up to when the newest of some append-only files have what was written, and whether their content says so.
fn newest(files: &[PathBuf]) -> Option<(UnixMs, bool)> {
    // What is written while a base is, is not in it. Other files are appended to.
    let is_base = |path: &&PathBuf| path.extension() == Some(OsStr::new("rdb"));
    let of_content = |path: &PathBuf| {
        rdb::Age::of(Some(path).filter(is_base)?).map(|age| (age.moment(), age.is_to_the_ms))
    };
    let of_file = |path: &PathBuf| Some((Fs::Real.modified(path).unwrap_or(None)?, false));
    let moment = |path: &PathBuf| of_content(path).or_else(|| of_file(path));
    files.iter().filter_map(moment).max()
}

/// An RDB file beside append-only files that are read instead of it.
struct PassedOver {
    snapshot: PathBuf,
    age: rdb::Age,
    append_only: PathBuf,
    /// When the newest of these was written.
    written: UnixMs,
    /// That is what it says itself, and not what the file system does.
    is_by_content: bool,
}

impl PassedOver {
    /// None: nothing is passed over.
    fn beside(place: &Place, snapshot: &Path) -> Option<PassedOver> {
        let Place::AppendOnly { path, files } = place else { return None };
        let age = rdb::Age::of(snapshot)?;
        // Of a manifest the directory, which is what can be moved.
        let is_manifest = path.extension() == Some(OsStr::new("manifest"));
        let append_only = path.parent().filter(|_| is_manifest).unwrap_or(path).to_owned();
        let (written, is_by_content) = newest(files)?;
        Some(PassedOver { snapshot: snapshot.to_owned(), age, append_only, written, is_by_content })
    }

    /// Whether it was written later. Then either holds what the other does not, or both the same: only who has run the Redis knows.
    fn is_newer(&self) -> bool {
        match self.is_by_content {
            true => self.age.is_after_content(self.written),
            false => self.age.is_after(self.written),
        }
    }

    /// A Redis with `appendonly yes` has all that it has in these files, and so they count; else somebody has to say which do.
    fn judge_at_start(&self, engine: &Engine) -> io::Result<()> {
        if !self.is_newer() {
            log!(Notice, "{} is left aside: {}", self.snapshot.display(), self);
            return Ok(());
        }
        if engine.config.appendonly() {
            log!(
                Warning,
                "{snapshot} is left aside because `appendonly` is yes, but {self}; if it counts, end this server, move {append_only} and \
                 {files} away, and start again",
                snapshot = self.snapshot.display(),
                files = residency::files_of_log(&engine.dir()),
                append_only = self.append_only.display(),
            );
            return Ok(());
        }
        Err(io::Error::other(self.refusal_at_start()))
    }

    /// Why a start without `appendonly yes` is refused.
    fn refusal_at_start(&self) -> String {
        format!(
            "{self}, and only one of them can count: if {snapshot} does (a Redis with `appendonly no` reads it), move {append_only} away; \
             if the append-only files do, move {snapshot} away, or set `appendonly yes` as for that Redis",
            snapshot = self.snapshot.display(),
            append_only = self.append_only.display(),
        )
    }

    /// Who imports names the file that counts.
    fn judge_import(&self) -> io::Result<()> {
        if !self.is_newer() {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{self}, and only one of them can count: name it, as in `tarn import {}` or `tarn import {}`",
            self.snapshot.display(),
            self.append_only.display()
        )))
    }
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (snapshot, append_only) = (self.snapshot.display(), self.append_only.display());
        let (taken, written) = (Moment(self.age.moment()), Moment(self.written));
        match self.is_newer() {
            true => write!(
                f,
                "the append-only files of {append_only} were last written {written}, and {snapshot} later, {taken}"
            ),
            false => write!(
                f,
                "it is of {taken}, and the append-only files of {append_only} were last written {written}"
            ),
        }
    }
}

/// Refuses a start from the log beside an RDB file that was written later, and not by a server with that log: what it holds would be passed
/// over, and the next SAVE would replace it.
///
/// # Errors
/// The sentence that says what to do.
pub fn refuse_newer_snapshot(engine: &Engine, recovery: &::log::Recovery) -> io::Result<()> {
    let path = crate::snapshot::path(engine);
    let log =
        LogEnd { history: recovery.history(), last_time: recovery.last_time(), now: engine.clock.now() };
    match beside(&engine.dir(), &Names::of(engine), log) {
        BesideLog::Nothing => {}
        BesideLog::Older(taken) => log!(
            Notice,
            "{} of {} is not read: there is a log, which was written to later",
            path.display(),
            Moment(taken)
        ),
        BesideLog::Newer(sentence) => return Err(io::Error::other(sentence)),
    }
    Ok(())
}

/// An RDB file beside a log.
pub enum BesideLog {
    /// There is none, or the log has all that it has.
    Nothing,
    /// It is of this moment, and the log's last is later.
    Older(UnixMs),
    /// A start is refused, in this sentence.
    Newer(String),
}

/// What an RDB file of this name means beside a log with such a mark that was last written to then; other files have their usual names.
pub fn beside_log(dir: &Path, snapshot: &OsStr, log: LogEnd) -> BesideLog {
    beside(dir, &Names::with_snapshot(snapshot), log)
}

/// What is known of a log beside which an RDB file lies.
#[derive(Clone, Copy, Debug)]
pub struct LogEnd {
    /// Its mark.
    pub history: Option<u64>,
    /// When it was last written to, as far as its own times tell.
    pub last_time: UnixMs,
    /// The time by which it is looked at.
    pub now: UnixMs,
}

fn beside(dir: &Path, names: &Names, log: LogEnd) -> BesideLog {
    let path = dir.join(&names.snapshot);
    let Some(age) = rdb::Age::of(&path) else { return BesideLog::Nothing };
    let lay_there = noted::lay_there(dir, &path);
    if age.log.is_some() && age.log == log.history || lay_there == Some(true) && age.is_after(log.last_time) {
        return BesideLog::Nothing;
    }
    // Where the log's times are ahead of the clock they say nothing, and a file that came since may have been saved since.
    let is_unsure = log.last_time > log.now && lay_there == Some(false);
    if !age.is_after(log.last_time) && !is_unsure {
        return BesideLog::Older(age.moment());
    }
    let was = if is_unsure { "came after the log" } else { "was written after the end of the log" };
    BesideLog::Newer(format!(
        "{path} {was} in {dir} ({taken}; the log {ended}), by a server that did not write that log: if the log counts, \
         move {path} away; if {path} counts, move {files} away{too}, and the next start reads it",
        files = residency::files_of_log(dir),
        too = and_append_only(dir, names),
        taken = Moment(age.moment()),
        ended = Moment(log.last_time),
        path = path.display(),
        dir = dir.display(),
    ))
}

/// What else has to be moved away for an RDB file to count, as words behind others: a start with a log would read append-only files.
fn and_append_only(dir: &Path, names: &Names) -> String {
    let (directory, single) = (dir.join(&names.directory), dir.join(&names.file));
    let is_of_them = |name: &OsString| name.as_bytes().starts_with(names.file.as_bytes());
    let is_there = match Fs::Real.list(&directory) {
        Ok(files) if files.iter().any(is_of_them) => Some(directory),
        _ => Some(single).filter(|single| matches!(Fs::Real.kind(single), Ok(Some(Kind::File)))),
    };
    is_there.map_or(String::new(), |path| format!(", and {}", path.display()))
}

/// Why a start does not go by a log that was begun beside clients, was not complete, and holds something: the sentence.
pub fn not_complete(engine: &Engine) -> String {
    not_complete_with(&engine.dir(), &Names::of(engine))
}

/// The same of a directory whose files have their usual names.
pub fn not_complete_in(dir: &Path) -> String {
    not_complete_with(dir, &Names::usual())
}

fn not_complete_with(dir: &Path, names: &Names) -> String {
    let refusal = ::log::Refusal::NotComplete;
    match older_append_only(dir, names) {
        None => refusal.to_string(),
        Some(older) => format!(
            "{refusal}; move {} away, too, which is older than {}",
            older.append_only.display(),
            older.snapshot.display()
        ),
    }
}

/// Append-only files beside an RDB file that was written later.
fn older_append_only(dir: &Path, names: &Names) -> Option<PassedOver> {
    let place = locate(&Fs::Real, dir, names, Preference::AppendOnly).ok()??;
    PassedOver::beside(&place, &dir.join(&names.snapshot)).filter(PassedOver::is_newer)
}

/// Whether the directory of a configuration holds an RDB file or append-only files.
///
/// # Errors
/// As [`load_foreign`].
pub fn is_there(config: &Config) -> io::Result<bool> {
    let names = Names::in_config(config);
    Ok(locate(&Fs::Real, &config.dir(), &names, Preference::AppendOnly)?.is_some())
}

/// Which of a server's files count where what it had in memory is gone: those that were written later.
pub fn newer(engine: &Engine) -> Preference {
    newer_of(&engine.dir(), &Names::of(engine))
}

/// The same of a directory whose RDB file has this name.
pub fn newer_in(dir: &Path, snapshot: &OsStr) -> Preference {
    newer_of(dir, &Names::with_snapshot(snapshot))
}

fn newer_of(dir: &Path, names: &Names) -> Preference {
    match older_append_only(dir, names) {
        Some(_) => Preference::Snapshot,
        None => Preference::AppendOnly,
    }
}

/// Why a start that does an import again asks which file counts, in a directory whose RDB file has this name: the sentence, if so.
pub fn passed_over(dir: &Path, snapshot: &OsStr) -> Option<String> {
    older_append_only(dir, &Names::with_snapshot(snapshot)).map(|passed| passed.refusal_at_start())
}

/// Refuses to begin with nothing where an import was cut short whose files are gone.
///
/// # Errors
/// The sentence that says what to do.
pub fn refuse_without_files(engine: &Engine) -> io::Result<()> {
    match gone(&engine.dir(), &Names::of(engine))? {
        Some(sentence) => Err(io::Error::other(sentence)),
        None => Ok(()),
    }
}

/// The same for a directory whose RDB file has this name, and its other files the usual ones: the sentence.
///
/// # Errors
/// As [`load_foreign`].
pub fn files_gone(dir: &Path, snapshot: &OsStr) -> io::Result<Option<String>> {
    gone(dir, &Names::with_snapshot(snapshot))
}

fn gone(dir: &Path, names: &Names) -> io::Result<Option<String>> {
    let place = locate(&Fs::Real, dir, names, Preference::AppendOnly)?;
    Ok(place.is_none().then(|| {
        format!(
            "An import into {dir} was cut short, and what was imported is not there any more: put {names} back, or remove {files} from \
             {dir} to begin with nothing",
            files = residency::files_of_log(dir),
            dir = dir.display(),
        )
    }))
}

/// Loads a file or directory of a Redis wherever it lies: an RDB file, an append-only file, a manifest, an append-only directory,
/// or a directory with any of these under their usual names.
///
/// # Errors
/// As [`load_foreign`], and if there is nothing there.
pub fn load_from(engine: &Engine, apply: &mut dyn Apply, from: &Path) -> io::Result<Found> {
    let place = match Fs::Real.kind(from).map_err(about(from))? {
        Some(Kind::Directory) => {
            let place = place_in(&Fs::Real, from, &Names::usual())?;
            let passed =
                place.as_ref().and_then(|place| PassedOver::beside(place, &from.join(USUAL_SNAPSHOT)));
            passed.map_or(Ok(()), |passed| passed.judge_import())?;
            place
        }
        Some(_) if from.extension() == Some(OsStr::new("manifest")) => Some(in_manifest(&Fs::Real, from)?),
        Some(_) => Some(Place::AppendOnly { path: from.to_owned(), files: vec![from.to_owned()] }),
        None => None,
    };
    let nothing = || {
        let sentence = format!("{}: there is no RDB file and no append-only file", from.display());
        io::Error::new(io::ErrorKind::NotFound, sentence)
    };
    load_place(engine, apply, place.ok_or_else(nothing)?)
}

fn load_place(engine: &Engine, apply: &mut dyn Apply, place: Place) -> io::Result<Found> {
    let found = match place {
        Place::Snapshot(path) => {
            let now = engine.clock.now();
            let loaded = rdb::load_snapshot(engine, &path, now, apply)?;
            let loaded = loaded.ok_or_else(|| io::Error::other(format!("{} is gone", path.display())))?;
            engine.snapshots.note_load(loaded.keys, loaded.expired);
            Found::Snapshot { path, keys: loaded.keys, expired: loaded.expired }
        }
        Place::AppendOnly { path, files } => {
            let tally = append_only::load(engine, apply, &files)?;
            engine.snapshots.note_load(tally.base_keys, 0);
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
        refuse_without_manifest(fs, &directory, &names.file)?;
        if is_file(&single)? {
            return Ok(Some(Place::AppendOnly { path: single.clone(), files: vec![single] }));
        }
    }
    let snapshot = dir.join(&names.snapshot);
    Ok(is_file(&snapshot)?.then_some(Place::Snapshot(snapshot)))
}

/// Whether this is the name of a manifest by which a server keeps files that it has neither read nor written.
fn is_kept_aside(name: &OsStr) -> bool {
    let stem = name.as_bytes().strip_suffix(b".manifest").unwrap_or_default();
    let digits = stem.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && stem[..stem.len() - digits].ends_with(b".before-")
}

/// What a directory holds that somebody names: an append-only directory, or one with files under their usual names.
fn place_in(fs: &Fs, dir: &Path, names: &Names) -> io::Result<Option<Place>> {
    let mut manifests = fs.list(dir).map_err(about(dir))?;
    manifests.retain(|name| name.as_bytes().ends_with(b".manifest"));
    if !manifests.iter().all(|name| is_kept_aside(name)) {
        // Beside the one that counts.
        manifests.retain(|name| !is_kept_aside(name));
    }
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
    locate(fs, dir, names, Preference::AppendOnly)
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

/// A Redis would begin anew beside append-only files whose manifest is gone; data must not be passed over like that. What BGREWRITEAOF leaves
/// of its first files when it is cut short has the beginning of a manifest beside it, and counts for nothing.
pub fn refuse_without_manifest(fs: &Fs, directory: &Path, file: &OsStr) -> io::Result<()> {
    if fs.kind(directory)? != Some(Kind::Directory) {
        return Ok(());
    }
    let names = fs.list(directory)?;
    let is_begun = |name: &OsString| replaced_by(name).is_some_and(|target| is_manifest(target, file));
    match names.iter().find(|name| is_part(name, file)) {
        Some(part) if !names.iter().any(is_begun) => Err(io::Error::other(format!(
            "{} has {} and no manifest: put it back, or move the directory away",
            directory.display(),
            part.display()
        ))),
        _ => Ok(()),
    }
}

/// Whether a name is one of append-only files, whatever they hold. Temporary ones are not.
pub fn is_part(name: &OsStr, file: &OsStr) -> bool {
    let rest = name.as_bytes().strip_prefix(file.as_bytes());
    rest.is_some_and(|rest| rest.starts_with(b".") && !rest.ends_with(b".tmp"))
}

fn is_manifest(name: &OsStr, file: &OsStr) -> bool {
    name.as_bytes().strip_prefix(file.as_bytes()) == Some(b".manifest")
}

#[cfg(test)]
mod tests;
