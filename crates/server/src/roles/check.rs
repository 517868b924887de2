//! `tarn check`: what lies in a directory of the log, and what a start would do with it. Of a Redis' files: `foreign`.

use super::{Complaint, Given, Verdict, foreign, store};
use config::DATABASES_MAX;
use engine::durability::{self, databases};
use engine::import::{self, BesideLog, LogEnd, Preference};
use engine::moment::Moment;
use log::{Case, CheckpointReport, Report, SegmentReport};
use std::ffi::OsStr;
use std::fmt::{self, Write};
use std::path::{Path, PathBuf};
use sys::Clock;
use sys::file::{Fs, Kind, about};

pub(super) const USAGE: &str = "\
Usage: tarn check DIR [--dbfilename NAME] [--databases COUNT]
       tarn check FILE [--databases COUNT] [--cut-into NEWFILE]

Of a Tarn's directory: looks at every block of the log in DIR, and at its checkpoints: from where to where they go, from when to when, and what is
damaged. Says what a start would do. Of the capacity edition also at every page of the store that the newest checkpoint names. Changes
nothing, and may run beside a server; of a store that is in use, segments may be used again meanwhile.

  --dbfilename NAME      what the RDB file beside the log is called, if not dump.rdb: a start refuses one that is newer than the log
  --databases COUNT      how many a start has, if not 16: it refuses what was written with more

Of a Redis' files: looks at an RDB file, an append-only file with or without an RDB file at its beginning, a manifest, a directory of
append-only files, or a Redis' directory with any of these. Says what each holds, the place of the first thing that is wrong, and whether a
Redis and `tarn import` take it over. Does what redis-check-rdb and redis-check-aof do; nothing is changed, and so there is no --fix:

  --cut-into NEWFILE     write what is whole of an append-only file before its first fault to a file that is not there yet

Ends with 0 if all is intact, or the cut was made, else with 1.";

pub(super) fn run(words: &[String], shown: &mut String) -> Result<Verdict, Complaint> {
    let mut given = Given::read(words, &[])?;
    let dir = PathBuf::from(given.only_word("DIR")?);
    let snapshot = given.take("dbfilename").unwrap_or_else(|| import::USUAL_SNAPSHOT.to_owned());
    let databases =
        given.take("databases").map_or(Ok(databases::BY_DEFAULT), |count| parse_databases(&count))?;
    let cut = given.take("cut-into").map(PathBuf::from);
    given.nothing_else()?;
    let kind = Fs::Real.kind(&dir).map_err(about(&dir))?;
    kind.ok_or_else(|| Complaint(format!("{}: there is no such file or directory", dir.display())))?;
    let is_ours = kind == Some(Kind::Directory) && durability::has_log(&Fs::Real, &dir)?;
    if !is_ours
        && let Some(verdict) = foreign::check(&dir, OsStr::new(&snapshot), databases, cut.as_deref(), shown)?
    {
        return Ok(verdict);
    }
    if let Some(sentence) = durability::orphaned_store(&Fs::Real, &dir)? {
        return Err(Complaint(sentence));
    }
    if cut.is_some() {
        return Err(Complaint(format!(
            "--cut-into is for append-only files; of a log, `tarn restore {} --to LSN --into NEWDIR` makes a copy",
            dir.display()
        )));
    }
    let report = look_at(&Fs::Real, &dir)?;
    let store = store::look_at(&Fs::Real, &dir)?;
    let beside = match beside(&dir, OsStr::new(&snapshot), databases, &report)? {
        None if report.verdict.is_ok() => {
            databases::too_few(&dir, &log::inspect(&Fs::Real, &dir)?, databases)?
        }
        beside => beside,
    };
    let is_intact =
        report.is_intact() && store.as_ref().is_none_or(::store::Report::is_intact) && beside.is_none();
    write!(shown, "{}", Shown { dir: &dir, report: &report, store: store.as_ref(), beside })
        .expect("a string takes all");
    Ok(if is_intact { Verdict::Good } else { Verdict::Bad })
}

fn parse_databases(count: &str) -> Result<u32, Complaint> {
    let wrong =
        || Complaint(format!("'{count}' is no number of databases: there may be 1 to {DATABASES_MAX}"));
    count.parse().ok().filter(|count| (1..=DATABASES_MAX).contains(count)).ok_or_else(wrong)
}

/// Checks a directory in which there is a log.
pub(super) fn look_at(fs: &Fs, dir: &Path) -> Result<Report, Complaint> {
    if fs.kind(dir).map_err(about(dir))? != Some(Kind::Directory) {
        return Err(Complaint(format!("{} is not a directory", dir.display())));
    }
    let report = log::check(fs, dir)?;
    match (&report.verdict, report.segments.is_empty() && report.checkpoints.is_empty()) {
        (Ok(_), true) => {
            Err(Complaint(format!("there is no log in {}, and no file of a Redis", dir.display())))
        }
        _ => Ok(report),
    }
}

/// Why a start refuses the log because of what lies beside it, or does not any more.
fn beside(
    dir: &Path,
    snapshot: &OsStr,
    databases: u32,
    report: &Report,
) -> Result<Option<String>, Complaint> {
    match report.verdict {
        Ok((Case::CutShort, _)) => match import::files_gone(dir, snapshot)? {
            None => match import::passed_over(dir, snapshot) {
                None => foreign::refusal(dir, snapshot, databases),
                passed => Ok(passed),
            },
            gone => Ok(gone),
        },
        Ok((Case::NotComplete, _)) => match import::newer_in(dir, snapshot) {
            Preference::Snapshot => foreign::refusal(&dir.join(snapshot), snapshot, databases),
            Preference::AppendOnly => foreign::refusal(dir, snapshot, databases),
        },
        Ok(_) => match import::beside_log(dir, snapshot, end_of(report)) {
            BesideLog::Newer(sentence) => Ok(Some(sentence)),
            BesideLog::Nothing | BesideLog::Older(_) => Ok(None),
        },
        Err(_) => Ok(None),
    }
}

fn end_of(report: &Report) -> LogEnd {
    LogEnd { history: report.history, last_time: report.last_time, now: Clock::Real.now() }
}

/// A report as people read it.
pub(super) struct Shown<'a> {
    pub dir: &'a Path,
    pub report: &'a Report,
    /// Of the store, if there is one.
    pub store: Option<&'a ::store::Report>,
    /// Why a start refuses it, if that lies beside the log or in how the start is made.
    pub beside: Option<String>,
}

impl Shown<'_> {
    /// Why a start refuses the directory.
    fn refusal(&self) -> Option<String> {
        let missing =
            self.store.and_then(|store| store.segments.iter().find_map(|segment| segment.missing.as_ref()));
        match &self.report.verdict {
            Err(refusal) => Some(durability::sentence(&Fs::Real, self.dir, refusal)),
            Ok((Case::OlderCheckpoint, _)) if self.store.is_some() => {
                Some(durability::OLDER_IS_USED.to_owned())
            }
            Ok(_) => missing
                .map(|missing| format!("{missing}; `tarn export --skip-damaged` writes what lies elsewhere"))
                .or_else(|| self.beside.clone()),
        }
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { segments, checkpoints, leftovers, verdict, .. } = self.report;
        writeln!(f, "{}", self.dir.display())?;
        checkpoints.iter().try_for_each(|checkpoint| show_checkpoint(f, checkpoint))?;
        segments.iter().try_for_each(|segment| show_segment(f, segment))?;
        for leftover in leftovers {
            writeln!(f, "  {}: of no use; a start removes it", name(leftover))?;
        }
        if let Some(store) = self.store {
            write!(f, "{}", store::Shown(store))?;
        }
        match (self.refusal(), verdict) {
            (Some(refusal), _) => writeln!(f, "A start refuses this: {refusal}."),
            (None, Ok((case, end))) => writeln!(f, "A start {}, up to LSN {end}.", what_happens(*case)),
            (None, Err(_)) => Ok(()),
        }
    }
}

fn what_happens(case: Case) -> &'static str {
    match case {
        Case::New => "begins a new log",
        Case::CutShort => "does the import again that was cut short before all was written to the log",
        Case::NotComplete => {
            "goes by what was saved before a server began the log, which that did not complete"
        }
        Case::Whole => "replays it all",
        Case::TornTail => "replays it without its end, which was being written and never acknowledged",
        Case::OlderCheckpoint => "replays it from an older checkpoint, because the newest is damaged",
        // These come as refusals.
        Case::NewerVersion
        | Case::NotOurs
        | Case::HeaderDamaged
        | Case::Mixed
        | Case::CheckpointDamaged
        | Case::LogGone
        | Case::LogLate
        | Case::SegmentMissing
        | Case::DamagedMiddle
        | Case::LogShort
        | Case::LastMissing => "refuses it",
    }
}

fn show_checkpoint(f: &mut fmt::Formatter<'_>, checkpoint: &CheckpointReport) -> fmt::Result {
    write!(f, "  {}: checkpoint, LSN {}", name(&checkpoint.path), checkpoint.start)?;
    if let Some(end) = checkpoint.end {
        write!(f, " to {end}, {} chunks, {} bytes", checkpoint.chunks, checkpoint.bytes)?;
    }
    if let Some(time) = checkpoint.time {
        write!(f, ", begun {}", Moment(time))?;
    }
    writeln!(f)?;
    match &checkpoint.damage {
        Some(what) => writeln!(f, "    DAMAGED: {what}"),
        None => Ok(()),
    }
}

fn show_segment(f: &mut fmt::Formatter<'_>, segment: &SegmentReport) -> fmt::Result {
    let SegmentReport { start, end, blocks, records, .. } = segment;
    let name = name(&segment.path);
    write!(f, "  {name}: segment, LSN {start} to {end}, {blocks} blocks, {records} records")?;
    if let (Some(first), Some(last)) = (segment.first_time, segment.last_time) {
        write!(f, ", {} to {}", Moment(first), Moment(last))?;
    }
    writeln!(f, "{}", if segment.is_linked { "" } else { "; superseded, of no use" })?;
    match segment.damage {
        Some((offset, what)) => writeln!(f, "    DAMAGED at offset {offset}: {what}"),
        None => Ok(()),
    }
}

pub(super) fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
