//! Looks at what a Redis left behind, for `tarn check`: with the readers that load it, and without loading anything.
//!
//! 1. All that is said to be whole of a file is what a load would take over; it ends between two requests and outside of transactions.
//! 2. Files are only read. One request or one key is in memory at a time.

use super::append_only::RDB_MAGIC;
use super::requests::{Next, Requests};
use super::{Names, PassedOver, Place, Preference, in_manifest, locate, place_in};
use crate::Engine;
use crate::apply;
use crate::scripts::libraries;
use config::Config;
use keyspace::HashSeed;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use sys::file::{Content, File, Fs, Kind, Mode, about};
use sys::{Clock, UnixMs};
use value::collection::Thresholds;
use value::number::parse_i64;
use value::rdb::file::{FileError, FileReader};
use wire::Request;

/// What Tarn's own files begin with.
const OWN_MAGIC: &[u8; 4] = b"TARN";
/// How much is read at once where requests are looked for.
const PIECE_BYTES: usize = 64 << 10;
/// How many places are tried at which a request may begin.
const TRIES_MAX: usize = 64;

/// What was found.
#[derive(Default)]
pub struct Report {
    /// Every file that would be read, in this order, and an RDB file beside them.
    pub files: Vec<FileReport>,
    /// Why nothing would be read, whatever the files hold.
    pub refusal: Option<String>,
}

/// One file.
pub struct FileReport {
    /// Which.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Whether it is read as an RDB file and as nothing else: what is behind its end counts for nothing.
    pub is_snapshot: bool,
    /// The RDB file that it is, or with which it begins.
    pub rdb: Option<RdbReport>,
    /// Requests that are whole.
    pub requests: u64,
    /// How many databases there must be for it.
    pub databases: u64,
    /// Up to where it is whole, in bytes.
    pub whole: u64,
    /// Whether a load takes it over if its end is missing.
    pub may_be_cut: bool,
    /// Where it is not whole, if so; nothing behind it was looked at.
    pub fault: Option<Fault>,
}

/// An RDB file.
#[derive(Default)]
pub struct RdbReport {
    /// Of the format.
    pub version: u32,
    /// How many there are.
    pub keys: u64,
    /// Keys with a time to live.
    pub expiring: u64,
    /// Those of them whose time is over.
    pub expired: u64,
    /// Libraries of functions.
    pub libraries: usize,
    /// The version of the Redis that wrote it, as it says.
    pub writer: Option<String>,
    /// When that was.
    pub written: Option<UnixMs>,
    /// Whether it has its end, and the right checksum.
    pub is_whole: bool,
}

/// The first thing in a file that is wrong.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    /// It ends in the middle of something.
    CutOff,
    /// Here something is not what it should be.
    Damaged(u64, String),
}

/// Looks at a file, or at all that a Redis' directory holds; None if there is nothing.
///
/// # Errors
/// What cannot be read.
pub fn look_at(fs: &Fs, path: &Path, snapshot: &OsStr, now: UnixMs) -> io::Result<Option<Report>> {
    let mut report = Report::default();
    match fs.kind(path).map_err(about(path))? {
        None => return Ok(None),
        Some(Kind::Directory) => report.add_directory(fs, path, &Names::with_snapshot(snapshot), now)?,
        Some(Kind::File) if path.extension() == Some(OsStr::new("manifest")) => {
            report.add_found(fs, in_manifest(fs, path).map(Some), now)?;
        }
        Some(Kind::File) => report.files.push(look_at_file(fs, path, now)?),
        Some(Kind::Other) => {
            return Err(io::Error::other(format!("{} is neither a file nor a directory", path.display())));
        }
    }
    Ok(Some(report).filter(|report| !report.files.is_empty() || report.refusal.is_some()))
}

impl Report {
    fn add_directory(&mut self, fs: &Fs, dir: &Path, names: &Names, now: UnixMs) -> io::Result<()> {
        let found = place_in(fs, dir, names);
        let snapshot = dir.join(&names.snapshot);
        if let Ok(Some(place)) = &found {
            let passed = PassedOver::beside(place, &snapshot);
            self.refusal = passed.and_then(|passed| passed.judge_import().err()).map(|why| why.to_string());
        }
        self.add_found(fs, found, now)?;
        match locate(fs, dir, names, Preference::Snapshot)? {
            Some(Place::Snapshot(path)) if self.files.iter().all(|file| file.path != path) => {
                self.files.push(look_at_snapshot(fs, &path, now)?);
            }
            _ => {}
        }
        Ok(())
    }

    fn add_found(&mut self, fs: &Fs, found: io::Result<Option<Place>>, now: UnixMs) -> io::Result<()> {
        let files = match found {
            Ok(Some(Place::AppendOnly { files, .. })) => files,
            Ok(Some(Place::Snapshot(path))) => {
                self.files.push(look_at_snapshot(fs, &path, now)?);
                return Ok(());
            }
            Ok(None) => return Ok(()),
            Err(why) => {
                self.refusal = Some(why.to_string());
                return Ok(());
            }
        };
        for (index, path) in files.iter().enumerate() {
            let mut file = look_at_file(fs, path, now)?;
            file.may_be_cut &= index + 1 == files.len();
            self.files.push(file);
        }
        Ok(())
    }
}

/// Looks at a file that is read as an RDB file, whatever it is.
fn look_at_snapshot(fs: &Fs, path: &Path, now: UnixMs) -> io::Result<FileReport> {
    look_at_file_as(fs, path, now, true)
}

fn look_at_file(fs: &Fs, path: &Path, now: UnixMs) -> io::Result<FileReport> {
    look_at_file_as(fs, path, now, false)
}

fn look_at_file_as(fs: &Fs, path: &Path, now: UnixMs, is_snapshot: bool) -> io::Result<FileReport> {
    let file = fs.open(path, Mode::Read).map_err(about(path))?;
    let mut begin = [0; RDB_MAGIC.len()];
    file.read_full_at(&mut begin, 0).map_err(about(path))?;
    if begin.starts_with(OWN_MAGIC) {
        let sentence = format!("{} is a file of a Tarn: name its directory", path.display());
        return Err(io::Error::other(sentence));
    }
    let bytes = file.len().map_err(about(path))?;
    let mut report = FileReport {
        path: path.to_owned(),
        bytes,
        is_snapshot,
        rdb: None,
        requests: 0,
        databases: 0,
        whole: 0,
        may_be_cut: true,
        fault: None,
    };
    if begin == *RDB_MAGIC {
        let content = Content::new(file);
        report.read_rdb(content, now).map_err(about(path))?;
        if report.fault.is_some() {
            report.may_be_cut = false;
            return Ok(report);
        }
    }
    if is_snapshot {
        report.may_be_cut = false;
        if report.rdb.is_none() {
            report.fault = Some(Fault::Damaged(0, "it is no RDB file".to_owned()));
        }
        return Ok(report);
    }
    let open = || fs.open(path, Mode::Read);
    report.read_requests(open).map_err(about(path))?;
    Ok(report)
}

impl FileReport {
    /// Reads the RDB file at the beginning.
    fn read_rdb(&mut self, content: Content, now: UnixMs) -> io::Result<()> {
        let mut rdb = RdbReport::default();
        let mut libraries = Vec::new();
        let read = match FileReader::open(content) {
            Ok(mut reader) => {
                let read = rdb.read(&mut reader, now, &mut self.databases);
                let at = reader.position();
                libraries = reader.take_libraries();
                read.map(|()| reader.end_offset()).map_err(|error| (error, at))
            }
            Err(error) => Err((error, 0)),
        };
        match read {
            Ok(end) => match unfit_library(&libraries) {
                None => {
                    rdb.is_whole = true;
                    self.whole = end;
                }
                Some(line) => {
                    let why = format!("a library of functions in front of that does not load: {line}");
                    self.fault = Some(Fault::Damaged(end, why));
                }
            },
            Err((FileError::Source(error), _)) => return Err(error),
            Err((error, at)) => self.fault = Some(rdb_fault(&error, at, self.bytes)),
        }
        rdb.libraries = libraries.len();
        self.rdb = Some(rdb);
        Ok(())
    }

    /// Reads the requests behind what is whole so far.
    fn read_requests(&mut self, open: impl Fn() -> io::Result<File>) -> io::Result<()> {
        let mut requests = Requests::new(open()?, self.whole)?;
        let mut is_in_transaction = false;
        loop {
            let at = requests.position();
            let fault = match requests.next()? {
                Next::Request(request) => match self.note(&request, &mut is_in_transaction) {
                    Ok(()) => {
                        self.requests += 1;
                        if !is_in_transaction {
                            self.whole = requests.position();
                        }
                        continue;
                    }
                    Err(why) => Fault::Damaged(at, why),
                },
                Next::End if !is_in_transaction => {
                    self.whole = at;
                    return Ok(());
                }
                Next::End => Fault::CutOff,
                Next::CutOff => match is_followed(&open, requests.position(), self.bytes)? {
                    true => Fault::Damaged(
                        requests.position(),
                        "a length there is more than the file has left, and whole requests follow".to_owned(),
                    ),
                    false => Fault::CutOff,
                },
                Next::Damaged(0) => {
                    Fault::Damaged(0, "it is neither an RDB file nor an append-only file".to_owned())
                }
                Next::Damaged(offset) => Fault::Damaged(offset, "that is no request".to_owned()),
            };
            self.fault = Some(fault);
            return Ok(());
        }
    }

    /// Looks at a request as a load would that runs it.
    fn note(&mut self, request: &Request<'_>, is_in_transaction: &mut bool) -> Result<(), String> {
        let is = |word: &str| request.arg(0).eq_ignore_ascii_case(word.as_bytes());
        match is_in_transaction {
            false if is("multi") => *is_in_transaction = true,
            true if is("exec") || is("discard") => *is_in_transaction = false,
            _ => {
                apply::judge(request).map_err(|rejection| rejection.to_string())?;
                if is("select") {
                    let number = parse_i64(request.arg(1)).and_then(|number| u64::try_from(number).ok());
                    let number = number.ok_or_else(|| "it selects what is no database".to_owned())?;
                    self.databases = self.databases.max(number.saturating_add(1));
                }
            }
        }
        Ok(())
    }
}

impl RdbReport {
    fn read(
        &mut self,
        reader: &mut FileReader<Content>,
        now: UnixMs,
        databases: &mut u64,
    ) -> Result<(), FileError> {
        self.version = reader.version();
        for (name, value) in reader.facts() {
            let value = String::from_utf8_lossy(&value).into_owned();
            match &name[..] {
                b"redis-ver" => self.writer = Some(value),
                b"ctime" => {
                    let seconds = value.parse::<u64>().ok();
                    self.written = seconds.and_then(|seconds| seconds.checked_mul(1000)).map(UnixMs);
                }
                _ => {}
            }
        }
        while let Some(entry) = reader.next_entry(&Thresholds::default())? {
            *databases = (*databases).max(entry.database.saturating_add(1));
            self.keys += 1;
            self.expiring += u64::from(entry.expires_at_ms.is_some());
            self.expired += u64::from(entry.expires_at_ms.is_some_and(|at| at <= now.0));
        }
        Ok(())
    }
}

/// Why one of these libraries cannot be loaded, if so: they are, into an engine that has nothing else.
fn unfit_library(codes: &[Vec<u8>]) -> Option<String> {
    if codes.is_empty() {
        return None;
    }
    let engine = Engine::new(Config::defaults(), 2, Clock::Real, HashSeed::from_entropy());
    let refused = codes.iter().find_map(|code| libraries::load(&engine, code).err());
    refused.map(|line| String::from_utf8_lossy(&line).into_owned())
}

fn rdb_fault(error: &FileError, at: u64, bytes: u64) -> Fault {
    match error {
        FileError::CutOff => Fault::Damaged(
            at,
            format!(
                "what begins there goes on behind the end at {bytes}: it is cut off, or a length is wrong"
            ),
        ),
        FileError::Corrupt(offset) => {
            Fault::Damaged(*offset, "what begins there is damaged, or of a kind that is not known".to_owned())
        }
        FileError::BadChecksum => {
            Fault::Damaged(at, "the checksum there does not fit what is before it".to_owned())
        }
        other => Fault::Damaged(at, other.to_string()),
    }
}

/// Whether whole requests follow behind the beginning of one: its length is damaged then, and nothing is missing at the end.
fn is_followed(open: &impl Fn() -> io::Result<File>, from: u64, end: u64) -> io::Result<bool> {
    const FRONT: &[u8] = b"\r\n*";
    let file = open()?;
    let (mut piece, mut at, mut tries) = (vec![0; PIECE_BYTES], from, 0);
    while at < end && tries < TRIES_MAX {
        let count = file.read_full_at(&mut piece, at)?;
        let fronts = piece[..count].windows(FRONT.len()).enumerate().filter(|(_, bytes)| *bytes == FRONT);
        for (found, _) in fronts.take(TRIES_MAX - tries) {
            tries += 1;
            let mut requests = Requests::new(open()?, at + (found + FRONT.len() - 1) as u64)?;
            if let Next::Request(_) = requests.next()? {
                return Ok(true);
            }
        }
        if count < piece.len() {
            break;
        }
        // What begins in one piece may end in the next.
        at += (count - FRONT.len() + 1) as u64;
    }
    Ok(false)
}
