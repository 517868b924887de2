//! Makes a copy of a log as it was at a time or an Lsn, in another directory. For `tarn restore`.
//!
//! The newest checkpoint that ended by then, and the log from there: records keep their Lsns and times. The source is only
//! read. The copy is a history of its own.

use crate::buffer::Buffer;
use crate::checkpoint::{Checkpoint, CheckpointWriter};
use crate::directory::Directory;
use crate::limits::{BUFFER_BYTES_DEFAULT, UNSYNCED_BYTES_MAX};
use crate::reader::Link;
use crate::recovery::{Case, Survey, UNFINISHED_NAME, end_of, inspect, is_of_log, recover};
use crate::writer::{Until, Writer};
use crate::{Blocks, Failure, Lsn, Options, Refusal, Stream};
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;
use sys::file::{Fs, Mode};
use sys::{Prng, UnixMs};

/// Up to where a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// All records before the first that is later than this.
    Time(UnixMs),
    /// All records that end by this Lsn.
    Lsn(Lsn),
}

/// What a copy holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Where the checkpoint in it begins; None if it has none.
    pub checkpoint: Option<Lsn>,
    /// Where it ends.
    pub end: Lsn,
    /// Time of its last record; None if it has none after the checkpoint.
    pub last_time: Option<UnixMs>,
    /// Where the last record ends that is behind the copy and yet not later than the time that was wanted: the clock was set back. None if
    /// there is none.
    pub earlier_behind: Option<Lsn>,
}

/// Copies the log in `from` as it was at `target` to the directory `to`, which must hold none. Of the options only the
/// length of segments counts.
///
/// # Errors
/// Why that cannot be done. What was copied until then is removed; where that fails, or the program is ended, what stays is refused by
/// every start.
pub fn restore(
    fs: &Fs,
    from: &Path,
    target: Target,
    to: &Path,
    options: &Options,
) -> Result<Restored, Refusal> {
    let survey = Survey::of(fs, from)?;
    let links = match target {
        Target::Time(_) => survey.chain.clone(),
        // What comes behind may be missing.
        Target::Lsn(lsn) => survey.chain_before(lsn),
    };
    let source = Source { fs, from, survey, links: links.into(), target };
    let (base, cut) = source.base_and_cut().map_err(|refusal| source.with_range(refusal))?;
    let intact = source.intact(base)?;
    match target {
        // What is not there may have been of that time.
        Target::Time(_) if cut == intact => drop(inspect(fs, from)?),
        Target::Lsn(wanted) if wanted > intact => return Err(source.beyond(wanted)),
        _ => {}
    }
    let was_there = fs.kind(to).map_err(Refusal::disk(to))?.is_some();
    let others = if was_there { fs.list(to).map_err(Refusal::disk(to))? } else { Vec::new() };
    let copy = recover(fs, to)?;
    // One that was cut short begins elsewhere, and would be mixed with the copy.
    let is_free = copy.case() == Case::New;
    let restored = match is_free {
        true => source.copy(base, cut, to, options),
        false => Err(Refusal::Occupied(to.to_owned())),
    };
    drop(copy);
    if restored.is_err() {
        give_up(fs, to, &others, was_there);
    }
    restored
}

/// Removes what there is of a copy that failed, and nothing that was there before. Of what stays, the mark says what it is.
fn give_up(fs: &Fs, to: &Path, others: &[OsString], was_there: bool) {
    let is_of_copy = |name: &OsString| !others.contains(name) && name.to_str().is_some_and(is_of_log);
    let mut names = fs.list(to).unwrap_or_default();
    names.retain(is_of_copy);
    names.sort_by_key(|name| name == UNFINISHED_NAME);
    if names.iter().all(|name| fs.remove(&to.join(name)).is_ok()) && !was_there {
        let _ = fs.remove_dir(to);
    }
}

/// Up to where a copy of `dir` goes that is to end at `lsn`, behind which something is missing; None if there can be none, or none that
/// holds anything.
pub(crate) fn way_to(fs: &Fs, dir: &Path, lsn: Lsn) -> Option<Lsn> {
    let reach = |lsn| {
        let survey = Survey::of(fs, dir).ok()?;
        let links = survey.chain_before(lsn).into();
        let source = Source { fs, from: dir, survey, links, target: Target::Lsn(lsn) };
        let (checkpoint, cut) = source.base_and_cut().ok()?;
        (checkpoint.is_some() || cut > Lsn::ZERO).then_some(cut)
    };
    // Where what is missing begins, what comes behind it may begin, too.
    reach(lsn).or_else(|| reach(Lsn(lsn.0.checked_sub(1)?)))
}

/// Where the copy comes from.
struct Source<'a> {
    fs: &'a Fs,
    from: &'a Path,
    survey: Survey,
    links: Arc<[Link]>,
    target: Target,
}

impl Source<'_> {
    /// Writes the copy. Until it is complete, a mark beside it keeps it from being taken for a log that ends early.
    fn copy(
        &self,
        base: Option<&Checkpoint>,
        cut: Lsn,
        to: &Path,
        options: &Options,
    ) -> Result<Restored, Refusal> {
        let fs = self.fs;
        let mark = to.join(UNFINISHED_NAME);
        let marked = fs.open(&mark, Mode::Truncate).and_then(|_| fs.sync_dir(to));
        marked.map_err(Refusal::disk(&mark))?;
        let history = Prng::from_entropy().next_u64();
        if let Some(checkpoint) = base {
            copy_checkpoint(fs, checkpoint, to, history)?;
        }
        let mut restored = self.copy_records(base, cut, to, options, history)?;
        restored.earlier_behind = self.earlier_behind(base, cut)?;
        fs.remove(&mark).and_then(|()| fs.sync_dir(to)).map_err(Refusal::disk(&mark))?;
        Ok(restored)
    }

    fn copy_records(
        &self,
        base: Option<&Checkpoint>,
        cut: Lsn,
        to: &Path,
        options: &Options,
        history: u64,
    ) -> Result<Restored, Refusal> {
        let failed = |failure: Failure| failed(to, &failure);
        let start = base.map_or(Lsn::ZERO, Checkpoint::start);
        // Records of programs that knew of no stream are copied as they are.
        let is_stream = self.links.iter().all(|link| link.header.stream.is_some());
        let stream = is_stream.then(|| Stream::begin(start));
        let directory = Directory::new(self.fs.clone(), to.to_owned(), history, (0, stream), options);
        let mut writer = Writer::new(Arc::new(directory), start, 0);
        writer.begin().map_err(failed)?;
        let buffer = Buffer::new(start, options.block_bytes(), BUFFER_BYTES_DEFAULT);
        let mut last_time = None;
        let mut blocks = self.blocks(start, cut);
        while let Some(block) = blocks.next_block()? {
            for record in block.records().take_while(|record| record.end() <= cut) {
                buffer.append_copy(&record);
                last_time = Some(record.time);
            }
            if buffer.held_bytes() >= UNSYNCED_BYTES_MAX {
                write_out(&buffer, &mut writer).map_err(failed)?;
            }
        }
        write_out(&buffer, &mut writer).and_then(|()| writer.seal()).map_err(failed)?;
        let checkpoint = base.map(Checkpoint::start);
        Ok(Restored { checkpoint, end: buffer.appended(), last_time, earlier_behind: None })
    }

    /// Where the last record ends that is behind `cut` although its time is not.
    fn earlier_behind(&self, base: Option<&Checkpoint>, cut: Lsn) -> Result<Option<Lsn>, Refusal> {
        let Target::Time(wanted) = self.target else { return Ok(None) };
        let mut blocks = self.blocks(cut, self.intact(base)?);
        let mut last = None;
        while let Some(block) = blocks.next_block()? {
            let ends = block.records().filter(|record| record.end() > cut && record.time <= wanted);
            last = ends.map(|record| record.end()).last().or(last);
        }
        Ok(last)
    }

    /// Up to where all is intact from a checkpoint on, or from the beginning.
    fn intact(&self, base: Option<&Checkpoint>) -> Result<Lsn, Refusal> {
        let start = base.map_or(Lsn::ZERO, Checkpoint::start);
        Ok(end_of(self.fs, &self.links, start)?.lsn.max(start))
    }

    /// From where to where there are copies, if nothing is damaged or missing.
    fn range(&self) -> Result<Option<(Lsn, Lsn)>, Refusal> {
        let recovery = inspect(self.fs, self.from)?;
        let reaches = |lsn| self.survey.reaches(lsn);
        let whole = reaches(Lsn::ZERO).then_some(Lsn::ZERO);
        let oldest = || self.survey.checkpoints.iter().find(|checkpoint| reaches(checkpoint.start()));
        let from = whole.or_else(|| oldest().map(Checkpoint::end));
        Ok(from.map(|from| (from, recovery.end())))
    }

    /// Adds to a refusal what there is.
    fn with_range(&self, refusal: Refusal) -> Refusal {
        match (refusal, self.target) {
            (Refusal::OutOfReach { dir, .. }, target) => match (self.range(), target) {
                (Ok(Some((_, end))), Target::Lsn(wanted)) if wanted > end => self.beyond(wanted),
                (Ok(range), _) => Refusal::OutOfReach { dir, range },
                (Err(Refusal::OutOfReach { .. }), _) => Refusal::OutOfReach { dir, range: None },
                (Err(loss), Target::Lsn(_)) => loss,
                (Err(_), Target::Time(_)) => Refusal::OutOfReach { dir, range: None },
            },
            (other, _) => other,
        }
    }

    /// Why there is no copy up to there: the log ends before, or what would be there is damaged or missing.
    fn beyond(&self, wanted: Lsn) -> Refusal {
        let dir = self.from.to_owned();
        match self.range() {
            Ok(Some(range)) => Refusal::Beyond { dir, wanted, range },
            Ok(None) => Refusal::OutOfReach { dir, range: None },
            Err(loss) => loss,
        }
    }

    /// Whether there was nothing at the moment that is wanted because it is before the log.
    fn is_before_all(&self, cut: Lsn) -> bool {
        let began = self.links.first().map(|link| link.header.time);
        cut == Lsn::ZERO && matches!((self.target, began), (Target::Time(time), Some(began)) if time < began)
    }

    /// The checkpoint to begin with, and where the copy ends.
    fn base_and_cut(&self) -> Result<(Option<&Checkpoint>, Lsn), Refusal> {
        for checkpoint in self.survey.checkpoints.iter().rev().map(Some).chain([None]) {
            let start = checkpoint.map_or(Lsn::ZERO, Checkpoint::start);
            let end = checkpoint.map_or(Lsn::ZERO, Checkpoint::end);
            let is_late = match self.target {
                Target::Time(time) => checkpoint.is_some_and(|checkpoint| checkpoint.time() > time),
                Target::Lsn(lsn) => end > lsn,
            };
            if is_late || !self.reaches(start) {
                continue;
            }
            let cut = self.cut(start)?;
            if cut >= end && !(checkpoint.is_none() && self.is_before_all(cut)) {
                return Ok((checkpoint, cut));
            }
        }
        Err(Refusal::OutOfReach { dir: self.from.to_owned(), range: None })
    }

    /// Whether the segments go back to `start`.
    fn reaches(&self, start: Lsn) -> bool {
        self.links.first().is_some_and(|oldest| oldest.header.start <= start)
    }

    fn blocks(&self, start: Lsn, end: Lsn) -> Blocks {
        Blocks::new(self.fs, self.links.clone(), start, end)
    }

    /// Where the last record ends that belongs to the copy.
    fn cut(&self, start: Lsn) -> Result<Lsn, Refusal> {
        let intact = end_of(self.fs, &self.links, start)?.lsn;
        let (limit, time) = match self.target {
            Target::Lsn(lsn) => (intact.min(lsn), UnixMs(u64::MAX)),
            Target::Time(time) => (intact, time),
        };
        let mut blocks = self.blocks(start, limit);
        let mut cut = start;
        while let Some(block) = blocks.next_block()? {
            for record in block.records() {
                if record.end() > limit || record.time > time {
                    return Ok(cut);
                }
                cut = record.end();
            }
        }
        Ok(cut)
    }
}

fn copy_checkpoint(fs: &Fs, checkpoint: &Checkpoint, to: &Path, history: u64) -> Result<(), Refusal> {
    let failed = Refusal::disk(to);
    let mut copy =
        CheckpointWriter::begin(fs, to, history, checkpoint.start(), checkpoint.time()).map_err(&failed)?;
    while let Some(chunk) = checkpoint.next_chunk()? {
        copy.chunk(&chunk).map_err(&failed)?;
    }
    copy.complete(checkpoint.end()).map_err(&failed)?;
    Ok(())
}

/// Makes durable what was appended.
fn write_out(buffer: &Buffer, writer: &mut Writer) -> Result<(), Failure> {
    buffer.take(&mut writer.held);
    writer.advance(Until::Durable)?;
    writer.take_released().for_each(|block| buffer.give_back(block));
    Ok(())
}

fn failed(to: &Path, failure: &Failure) -> Refusal {
    Refusal::Disk { path: to.to_owned(), error: io::Error::new(failure.kind, failure.to_string()) }
}
