//! Looks at a directory without opening it: what is there, from when to when, what is damaged. For `tarn check`.
//!
//! Only reads, and takes no lock; of a server that runs, the end may be in the middle of a write.

use crate::block::Joiner;
use crate::checkpoint::Checkpoint;
use crate::reader::{Found, Link, Segment};
use crate::recovery::{CUT, Case, NOT_WRITTEN, Recovery, Survey, inspect};
use crate::{Lsn, Refusal};
use std::path::{Path, PathBuf};
use sys::UnixMs;
use sys::file::Fs;

/// What a directory holds.
#[derive(Debug)]
pub struct Report {
    /// From the oldest on.
    pub segments: Vec<SegmentReport>,
    /// From the oldest on.
    pub checkpoints: Vec<CheckpointReport>,
    /// Files that a start would remove.
    pub leftovers: Vec<PathBuf>,
    /// What a start would do with these files.
    pub verdict: Result<(Case, Lsn), Refusal>,
    /// As [`Recovery::history`], where a start does something.
    pub history: Option<u64>,
    /// As [`Recovery::last_time`], where a start does something.
    pub last_time: UnixMs,
}

impl Report {
    /// Whether everything that was looked at is intact.
    pub fn is_intact(&self) -> bool {
        self.verdict.is_ok()
            && self.segments.iter().all(|segment| segment.damage.is_none())
            && self.checkpoints.iter().all(|checkpoint| checkpoint.damage.is_none())
    }
}

/// A segment.
#[derive(Clone, Debug)]
pub struct SegmentReport {
    /// The file.
    pub path: PathBuf,
    /// Its number.
    pub number: u64,
    /// Where it begins.
    pub start: Lsn,
    /// Where it ends: where the next segment begins, or where the last intact block ends.
    pub end: Lsn,
    /// Blocks.
    pub blocks: u64,
    /// Records that end in it.
    pub records: u64,
    /// Time of the first of them.
    pub first_time: Option<UnixMs>,
    /// Time of the last of them.
    pub last_time: Option<UnixMs>,
    /// Whether the log goes through it, or something superseded it.
    pub is_linked: bool,
    /// Where something is wrong before its end, bytes, and what.
    pub damage: Option<(u64, &'static str)>,
}

/// A checkpoint.
#[derive(Clone, Debug)]
pub struct CheckpointReport {
    /// The file.
    pub path: PathBuf,
    /// Where it begins.
    pub start: Lsn,
    /// Where it ends; None if it is not complete.
    pub end: Option<Lsn>,
    /// When it was begun.
    pub time: Option<UnixMs>,
    /// Chunks.
    pub chunks: u64,
    /// Length, bytes.
    pub bytes: u64,
    /// What is wrong.
    pub damage: Option<String>,
}

/// Looks at every block and chunk of a directory.
///
/// # Errors
/// If the disk does not read.
pub fn check(fs: &Fs, dir: &Path) -> Result<Report, Refusal> {
    let survey = Survey::of(fs, dir)?;
    // The beginning of the oldest segment that is left may be the rest of a record.
    let is_beginning = survey.chain.first().is_none_or(|oldest| oldest.header.previous == 0);
    let mut joiner = if is_beginning { Joiner::default() } else { Joiner::behind_cut() };
    let mut segments = Vec::new();
    for link in &survey.segments {
        let linked = survey.chain.iter().find(|other| other.header.number == link.header.number);
        let mut alone = Joiner::behind_cut();
        let joiner = if linked.is_some() { &mut joiner } else { &mut alone };
        segments.push(look_at(fs, linked.unwrap_or(link), linked.is_some(), joiner)?);
    }
    let mut checkpoints: Vec<_> = survey.checkpoints.iter().map(whole).collect();
    checkpoints.extend(survey.damaged.iter().map(|(start, path, offset)| CheckpointReport {
        path: path.clone(),
        start: *start,
        end: None,
        time: None,
        chunks: 0,
        bytes: 0,
        damage: Some(format!("it is damaged at offset {offset}, or not complete")),
    }));
    checkpoints.sort_by_key(|checkpoint| checkpoint.start);
    let judged = judge(fs, dir);
    let (history, last_time) =
        judged.as_ref().map_or((None, UnixMs(0)), |recovery| (recovery.history(), recovery.last_time()));
    let verdict = judged.map(|recovery| (recovery.case(), recovery.end()));
    Ok(Report { segments, checkpoints, leftovers: survey.leftovers, verdict, history, last_time })
}

/// What a start would do, having read all that it would read.
fn judge(fs: &Fs, dir: &Path) -> Result<Recovery, Refusal> {
    let recovery = inspect(fs, dir)?;
    if let Some(checkpoint) = recovery.checkpoint() {
        while checkpoint.next_chunk()?.is_some() {}
    }
    let mut blocks = recovery.replay();
    while blocks.next_block()?.is_some() {}
    Ok(recovery)
}

fn look_at(fs: &Fs, link: &Link, is_linked: bool, joiner: &mut Joiner) -> Result<SegmentReport, Refusal> {
    let mut segment = Segment::open(fs, &link.path, link.header).map_err(Refusal::disk(&link.path))?;
    let mut report = SegmentReport {
        path: link.path.clone(),
        number: link.header.number,
        start: link.header.start,
        end: link.header.start,
        blocks: 0,
        records: 0,
        first_time: None,
        last_time: None,
        is_linked,
        damage: None,
    };
    // Of a segment that nothing goes on from, the end is where no more blocks follow.
    let is_last = link.end == Lsn(u64::MAX);
    while segment.lsn < link.end {
        let at = segment.position;
        match segment.next().map_err(Refusal::disk(&link.path))? {
            Found::Block(header, body) => {
                report.blocks += 1;
                report.end = header.end();
                match joiner.push(&header, body) {
                    Ok(Some(block)) => block.records().for_each(|record| {
                        report.records += 1;
                        report.first_time.get_or_insert(record.time);
                        report.last_time = Some(record.time);
                    }),
                    Ok(None) => {}
                    Err(what) => {
                        report.damage = report.damage.or(Some((at, what)));
                        *joiner = Joiner::behind_cut();
                    }
                }
            }
            Found::Torn | Found::Nothing => {
                if !is_last || segment.has_proof_of_loss().map_err(Refusal::disk(&link.path))? {
                    report.damage = report.damage.or(Some((at, NOT_WRITTEN)));
                    *joiner = Joiner::behind_cut();
                } else if segment.is_cut() {
                    report.damage = report.damage.or(Some((segment.bytes(), CUT)));
                }
                break;
            }
        }
    }
    Ok(report)
}

fn whole(checkpoint: &Checkpoint) -> CheckpointReport {
    let damage = loop {
        match checkpoint.next_chunk() {
            Ok(Some(_)) => {}
            Ok(None) => break None,
            Err(refusal) => break Some(refusal.to_string()),
        }
    };
    CheckpointReport {
        path: checkpoint.path().to_owned(),
        start: checkpoint.start(),
        end: Some(checkpoint.end()),
        time: Some(checkpoint.time()),
        chunks: checkpoint.chunks(),
        bytes: checkpoint.bytes(),
        damage,
    }
}
