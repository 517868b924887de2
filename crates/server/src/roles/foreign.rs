//! The part of `tarn check` for a Redis' files: what redis-check-rdb and redis-check-aof tell of them.

use super::check::name;
use super::{Complaint, Verdict};
use engine::import::check::{Fault, FileReport, RdbReport, Report, look_at};
use engine::moment::Moment;
use std::ffi::OsStr;
use std::fmt::{self, Display, Write};
use std::path::Path;
use sys::Clock;
use sys::file::{Fs, Mode, Replacement, about};

/// How much is copied at once.
const PIECE_BYTES: usize = 1 << 20;

/// Checks a file, or a directory in which there is no log; None if there is nothing of a Redis.
pub(super) fn check(
    path: &Path,
    snapshot: &OsStr,
    databases: u32,
    cut_into: Option<&Path>,
    shown: &mut String,
) -> Result<Option<Verdict>, Complaint> {
    let now = Clock::Real.now();
    let Some(report) = look_at(&Fs::Real, path, snapshot, now)? else { return Ok(None) };
    let judged = Judged { path, report: &report, databases: databases.into() };
    write!(shown, "{judged}").expect("a string takes all");
    let Some(to) = cut_into else { return Ok(Some(judged.verdict())) };
    let [file] = &report.files[..] else {
        return Err(Complaint("--cut-into is for one file: name the one that has the fault".to_owned()));
    };
    cut(&Fs::Real, file, to)?;
    writeln!(
        shown,
        "Wrote the {} bytes that are whole to {}; {} bytes are left out.",
        file.whole,
        to.display(),
        file.bytes - file.whole
    )
    .expect("a string takes all");
    Ok(Some(Verdict::Good))
}

/// Why a start does not load a file, or what counts in a directory; None if it does, or there is nothing.
pub(super) fn refusal(path: &Path, snapshot: &OsStr, databases: u32) -> Result<Option<String>, Complaint> {
    let report = look_at(&Fs::Real, path, snapshot, Clock::Real.now())?;
    let judge = |report: Report| Judged { path, report: &report, databases: databases.into() }.refusal();
    Ok(report.and_then(judge))
}

/// Copies what is whole of an append-only file.
fn cut(fs: &Fs, file: &FileReport, to: &Path) -> Result<(), Complaint> {
    let path = file.path.display();
    if file.fault.is_none() {
        return Err(Complaint(format!("{path} is whole: there is nothing to cut off")));
    }
    if file.whole == 0 {
        let why = match &file.rdb {
            Some(_) => "an RDB file is of use as a whole only: put it back from a copy",
            None => "nothing of it is whole",
        };
        return Err(Complaint(format!("{path} cannot be cut: {why}")));
    }
    if fs.kind(to).map_err(about(to))?.is_some() {
        return Err(Complaint(format!("{} is there already: name a new file", to.display())));
    }
    let from = fs.open(&file.path, Mode::Read).map_err(about(&file.path))?;
    let mut copy = Replacement::begin(fs, to).map_err(about(to))?;
    let (mut piece, mut at) = (vec![0; PIECE_BYTES], 0);
    while at < file.whole {
        let wanted = usize::try_from(file.whole - at).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
        let count = from.read_full_at(&mut piece[..wanted], at).map_err(about(&file.path))?;
        if count < wanted {
            return Err(Complaint(format!("{path} has become shorter meanwhile: a server writes to it")));
        }
        copy.write(&piece[..count]).map_err(about(to))?;
        at += count as u64;
    }
    copy.commit().map_err(about(to))?;
    Ok(())
}

/// A report, and what it means for a server with so many databases.
struct Judged<'a> {
    path: &'a Path,
    report: &'a Report,
    databases: u64,
}

impl Judged<'_> {
    fn verdict(&self) -> Verdict {
        let is_intact = self.report.files.iter().all(|file| file.fault.is_none());
        match self.refusal().is_none() && is_intact {
            true => Verdict::Good,
            false => Verdict::Bad,
        }
    }

    /// Why it is not taken over.
    fn refusal(&self) -> Option<String> {
        let files = &self.report.files;
        let damaged = files.iter().find(|file| file.fault.is_some() && !is_cut_only(file));
        let lacking = files.iter().find(|file| file.databases > self.databases);
        self.report
            .refusal
            .clone()
            .or_else(|| damaged.map(damage_sentence))
            .or_else(|| lacking.map(|file| lack_sentence(file, self.databases)))
    }
}

/// Whether a load takes over what is whole, and leaves out the rest.
fn is_cut_only(file: &FileReport) -> bool {
    file.may_be_cut && file.fault == Some(Fault::CutOff)
}

fn damage_sentence(file: &FileReport) -> String {
    let path = file.path.display();
    let back = format!("put {path} back from a copy");
    match &file.fault {
        Some(Fault::CutOff) => format!("{back}: it is not the last file, and only that one may be cut off"),
        _ if file.rdb.as_ref().is_some_and(|rdb| !rdb.is_whole) => back,
        Some(Fault::Damaged(_, what)) if what.contains("unknown command") => format!(
            "{back}; or, if the Redis that wrote it has `rename-command` in its file, start `tarn server` on it with the same lines, which reads it"
        ),
        _ if file.whole == 0 => back,
        _ => format!(
            "{back}; or `tarn check {path} --cut-into NEWFILE` writes the {} bytes before the fault, and loses all that follows",
            file.whole
        ),
    }
}

fn lack_sentence(file: &FileReport, databases: u64) -> String {
    let FileReport { path, databases: needed, .. } = file;
    format!("{} needs `--databases {needed}`, and there are {databases}", path.display())
}

impl Display for Judged<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.path.display())?;
        self.report.files.iter().try_for_each(|file| show_file(f, file))?;
        if let Some(refusal) = self.refusal() {
            return writeln!(f, "A Tarn does not take this over: {refusal}.");
        }
        match self.report.files.iter().find(|file| file.fault.is_some()) {
            None => {
                writeln!(
                    f,
                    "All of it is whole: `tarn import {} --dir DIR` takes it over.",
                    self.path.display()
                )
            }
            Some(file) => writeln!(
                f,
                "A Redis with `aof-load-truncated yes`, which is usual, and `tarn import` leave out the end. `tarn check {} --cut-into \
                 NEWFILE` writes the file without it.",
                file.path.display()
            ),
        }
    }
}

fn show_file(f: &mut fmt::Formatter<'_>, file: &FileReport) -> fmt::Result {
    let FileReport { path, bytes, rdb, requests, whole, fault, .. } = file;
    let is_snapshot = rdb.is_some() && *requests == 0 && whole == bytes;
    let is_snapshot = is_snapshot || file.is_snapshot || rdb.as_ref().is_some_and(|rdb| !rdb.is_whole);
    let kind = if is_snapshot { "RDB file" } else { "append-only file" };
    write!(f, "  {}: {kind}, {bytes} bytes", name(path))?;
    if let Some(rdb) = rdb {
        show_rdb(f, rdb, is_snapshot)?;
    }
    if !is_snapshot {
        write!(f, ", {requests} requests")?;
    }
    if fault.is_none() && whole < bytes {
        write!(f, ", and {} bytes behind its end that count for nothing", bytes - whole)?;
    }
    writeln!(f)?;
    match fault {
        None => Ok(()),
        Some(Fault::CutOff) => writeln!(
            f,
            "    CUT OFF: whole up to offset {whole}, and {} bytes behind it that are not",
            bytes - whole
        ),
        Some(Fault::Damaged(offset, what)) => {
            writeln!(f, "    DAMAGED at offset {offset}: {what}; whole up to offset {whole}")
        }
    }
}

fn show_rdb(f: &mut fmt::Formatter<'_>, rdb: &RdbReport, is_alone: bool) -> fmt::Result {
    let RdbReport { version, keys, expiring, expired, libraries, writer, written, .. } = rdb;
    write!(f, "{} RDB version {version}", if is_alone { "," } else { ", begins with an RDB file:" })?;
    if let Some(writer) = writer {
        write!(f, " of Redis {}", writer.escape_debug())?;
    }
    if let Some(written) = written {
        write!(f, ", {}", Moment(*written))?;
    }
    write!(f, ", {keys} keys")?;
    if *expiring > 0 {
        write!(f, ", {expiring} of them with times to live ({expired} are over)")?;
    }
    match libraries {
        0 => Ok(()),
        _ => write!(f, ", {libraries} libraries of functions"),
    }
}
