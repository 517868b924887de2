//! What a start finds, and what it does about it.
//!
//! [`recover`] locks the directory, looks, and decides by one [`table`](Case). Then the caller reads the checkpoint's
//! chunks and replays the log's blocks, and at last [`Recovery::open`] begins a fresh segment where the log ends. Until
//! that call nothing in the directory is changed, so that a refused or interrupted start can be tried again.

mod survey;
mod table;

pub(crate) use survey::{Survey, end_of};
pub use table::Case;

use crate::checkpoint::Checkpoint;
use crate::directory::Directory;
use crate::reader::{Blocks, Link};
use crate::segment::BadHeader;
use crate::writer::Writer;
use crate::{Failure, Log, Lsn, Observer, Options, Refusal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use survey::End;
use sys::Prng;
use sys::file::{Fs, Kind, Lock};
use table::{Origin, Reach, Signs, Tail};

/// The file that the directory's lock hangs on.
const LOCK_NAME: &str = "log.lock";

/// A directory that can be opened, and what is in it.
#[derive(Debug)]
pub struct Recovery {
    fs: Fs,
    dir: PathBuf,
    lock: Option<Lock>,
    survey: Survey,
    case: Case,
    base: Option<usize>,
    links: Arc<[Link]>,
    end: Lsn,
}

/// Locks a directory, making it if there is none, and decides what a start can do with it.
///
/// # Errors
/// Why it is not opened.
pub fn recover(fs: &Fs, dir: &Path) -> Result<Recovery, Refusal> {
    match fs.kind(dir).map_err(Refusal::disk(dir))? {
        None => fs.create_dir_all(dir).map_err(Refusal::disk(dir))?,
        Some(Kind::Directory) => {}
        Some(_) => return Err(Refusal::NotDirectory(dir.to_owned())),
    }
    let lock_path = dir.join(LOCK_NAME);
    let lock = fs.lock(&lock_path).map_err(Refusal::disk(&lock_path))?;
    let lock = lock.ok_or_else(|| Refusal::InUse(dir.to_owned()))?;
    let mut recovery = inspect(fs, dir)?;
    recovery.lock = Some(lock);
    Ok(recovery)
}

/// The checkpoint with which a start would begin, without a lock and without a look at the log behind it; None for nothing.
///
/// # Errors
/// That the disk does not read.
pub fn newest_checkpoint(fs: &Fs, dir: &Path) -> Result<Option<Checkpoint>, Refusal> {
    let mut survey = Survey::of(fs, dir)?;
    let (_, index) = survey.base();
    Ok(index.map(|index| survey.checkpoints.swap_remove(index)))
}

/// As [`recover`], without a lock.
pub(crate) fn inspect(fs: &Fs, dir: &Path) -> Result<Recovery, Refusal> {
    let mut survey = Survey::of(fs, dir)?;
    let (base, index) = survey.base();
    let needed = index.map_or(Lsn::ZERO, |index| survey.checkpoints[index].start());
    let headers = survey.headers();
    let reach = survey.reach(needed);
    let is_readable = headers == table::Headers::Good && base != Origin::Lost && reach == Reach::Enough;
    let mut end = End::whole(Tail::Clean, Lsn::ZERO);
    if is_readable {
        end = survey::end_of(fs, &survey.chain, needed)?;
        let short = index.is_some_and(|index| end.lsn < survey.checkpoints[index].end());
        if short && end.tail != Tail::Damaged {
            end.tail = Tail::Short;
        }
    }
    let signs = Signs { headers, base, reach, tail: end.tail };
    let case = signs.case();
    if let Some(refusal) = refusal(case, &survey, index, needed, &end) {
        return Err(refusal);
    }
    if let Some(last) = survey.chain.last_mut() {
        last.end = end.lsn;
    }
    let links = survey.chain.clone().into();
    Ok(Recovery {
        fs: fs.clone(),
        dir: dir.to_owned(),
        lock: None,
        survey,
        case,
        base: index,
        links,
        end: end.lsn,
    })
}

/// The sentence for a case that is refused.
fn refusal(case: Case, survey: &Survey, index: Option<usize>, needed: Lsn, end: &End) -> Option<Refusal> {
    let bad = survey.bad_header.clone();
    let bad_path = bad.as_ref().map(|(path, _)| path.clone()).unwrap_or_default();
    Some(match case {
        Case::New | Case::Whole | Case::TornTail | Case::OlderCheckpoint => return None,
        Case::NewerVersion => match bad {
            Some((path, BadHeader::Newer(version))) => Refusal::Newer { path, version },
            _ => unreachable!("the case names such a header"),
        },
        Case::NotOurs => Refusal::NotOurs(bad_path),
        Case::HeaderDamaged => Refusal::HeaderDamaged(bad_path),
        Case::Mixed => Refusal::Mixed(survey.stranger.clone().expect("the case names a stranger")),
        Case::CheckpointDamaged => {
            let (_, path, offset) = survey.damaged.iter().max().expect("the case names a damaged one");
            Refusal::CheckpointDamaged { path: path.clone(), offset: *offset }
        }
        Case::LogGone => Refusal::LogLate { start: None, needed },
        Case::LogLate => {
            Refusal::LogLate { start: survey.chain.first().map(|link| link.header.start), needed }
        }
        Case::SegmentMissing => {
            let oldest = survey.chain.first().expect("the case names the segment after the gap");
            Refusal::SegmentMissing { number: oldest.header.previous, next: oldest.path.clone() }
        }
        Case::DamagedMiddle => {
            let last = survey.chain.last().expect("the case names a segment");
            let (offset, lsn) = end.damage.expect("the case names a place");
            let path = end.damaged_path.clone().unwrap_or_else(|| last.path.clone());
            Refusal::Damaged { path, offset, lsn, what: "a block is not what was written there" }
        }
        Case::LogShort => {
            let index = index.expect("only a checkpoint can be longer than the log");
            Refusal::LogShort { end: end.lsn, needed: survey.checkpoints[index].end() }
        }
    })
}

impl Recovery {
    /// What was found.
    pub fn case(&self) -> Case {
        self.case
    }

    /// Whether there is nothing of a log in the directory.
    pub fn is_new(&self) -> bool {
        self.case == Case::New
    }

    /// The checkpoint to begin with; None for nothing.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.base.map(|index| &self.survey.checkpoints[index])
    }

    /// Where replaying begins: the checkpoint's start, or 0.
    pub fn start(&self) -> Lsn {
        self.checkpoint().map_or(Lsn::ZERO, Checkpoint::start)
    }

    /// Where the log ends. What lies behind was never acknowledged, and will be no part of the log.
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// The records from [`Recovery::start`] to [`Recovery::end`]. Each call gives a reader of its own, so that several
    /// threads can each read all and apply what is theirs.
    pub fn replay(&self) -> Blocks {
        Blocks::new(&self.fs, Arc::clone(&self.links), self.start(), self.end)
    }

    /// Opens the log for appending, at its end. From here on the directory is changed: what an interrupted program left
    /// is removed, and a fresh segment begins.
    ///
    /// # Errors
    /// Why no segment can be begun. What was there stays.
    pub fn open(self, options: &Options, observer: Arc<dyn Observer>) -> Result<Log, Failure> {
        let Recovery { fs, dir, lock, survey, links, end, .. } = self;
        let is_linked = |path: &Path| links.iter().any(|link| link.path == path);
        let unlinked = survey.segments.iter().map(|link| &link.path).filter(|path| !is_linked(path));
        for leftover in survey.leftovers.iter().chain(unlinked) {
            // What cannot be removed does no harm.
            let _ = fs.remove(leftover);
        }
        let last_number = survey.segments.last().map_or(0, |link| link.header.number);
        // Segments at the end that hold nothing: starting again and again must not fill the disk.
        let filled = links.iter().rposition(|link| link.header.start < end).map_or(0, |last| last + 1);
        let (kept, empty) = links.split_at(filled);
        let previous = kept.last().map_or(0, |link| link.header.number);
        let live = kept.iter().map(|link| link.header).collect();
        let checkpoints = survey.checkpoints.iter().map(|found| found.mark).collect();
        let history = survey.history.unwrap_or_else(|| Prng::from_entropy().next_u64());
        let mut directory = Directory::new(fs.clone(), dir, history, last_number, options);
        directory.adopt(live, checkpoints, lock);
        let directory = Arc::new(directory);
        let writer = Writer::new(Arc::clone(&directory), end, previous);
        let log = Log::start(directory, writer, options, observer)?;
        for link in empty {
            let _ = fs.remove(&link.path);
        }
        Ok(log)
    }
}
