//! What a start finds, and what it does about it.
//!
//! [`recover`] locks the directory, looks, and decides by one [`table`](Case). Then the caller reads the checkpoint's
//! chunks and replays the log's blocks, and at last [`Recovery::open`] begins a fresh segment where the log ends. Until
//! that call nothing in the directory is changed, so that a refused or interrupted start can be tried again.

mod back;
mod settle;
mod survey;
mod table;

pub(crate) use back::look_back;
pub use survey::is_there;
pub(crate) use survey::{CUT, NOT_WRITTEN, Survey, UNFINISHED_NAME, end_of, is_of_log};
pub use table::Case;

use crate::checkpoint::Checkpoint;
use crate::directory::Directory;
use crate::limits::{BESIDE_CLIENTS_START, IMPORTED_START};
use crate::reader::{Blocks, Link};
use crate::restore::way_to;
use crate::segment::{self, BadHeader};
use crate::writer::Writer;
use crate::{Failure, Log, Lsn, Observer, Options, Refusal, Stream};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use survey::{End, LOCK_NAME};
use sys::file::{Fs, Kind, Lock};
use sys::{Prng, UnixMs};
use table::{Origin, Reach, Signs, Tail};

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
    stream: Option<Stream>,
    is_beside_clients: bool,
    last_time: UnixMs,
    moment: UnixMs,
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

/// The same for whoever only reads, also from where nothing can be written.
///
/// # Errors
/// Why it cannot be read.
pub fn recover_to_read(fs: &Fs, dir: &Path) -> Result<Recovery, Refusal> {
    let lock_path = dir.join(LOCK_NAME);
    let lock = fs.lock_to_read(&lock_path).map_err(Refusal::disk(&lock_path))?;
    let lock = lock.ok_or_else(|| Refusal::InUse(dir.to_owned()))?;
    let mut recovery = inspect(fs, dir)?;
    recovery.lock = lock;
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

/// The same without a lock: of a directory that a server may have, whose files may go meanwhile.
///
/// # Errors
/// Why it cannot be read.
pub fn inspect(fs: &Fs, dir: &Path) -> Result<Recovery, Refusal> {
    let mut survey = Survey::of(fs, dir)?;
    if survey.is_unfinished {
        return Err(Refusal::Unfinished(dir.to_owned()));
    }
    let (base, index) = survey.base();
    let needed = index.map_or(Lsn::ZERO, |index| survey.checkpoints[index].start());
    let headers = survey.headers();
    let mut reach = survey.reach(needed);
    let mut end = End::whole(Tail::Clean, Lsn::ZERO);
    if headers == table::Headers::Good && base != Origin::Lost {
        match reach {
            Reach::Enough => end = end_for(fs, &survey, index, needed)?,
            Reach::Late if base == Origin::Beginning => {
                if let Some((behind, start)) = empty_behind(fs, &survey)? {
                    (reach, end) = (behind, End::whole(Tail::Clean, start));
                }
            }
            _ => {}
        }
    }
    if let Some(stream) = survey.settled_stream(fs, needed)? {
        end.stream = stream;
    }
    let signs = Signs { headers, base, reach, tail: end.tail };
    let case = signs.case();
    if let Some(refusal) = refusal(case, &survey, index, needed, &end) {
        return Err(refusal.with_way(|lsn| way_to(fs, dir, lsn)));
    }
    if let Some(last) = survey.chain.last_mut() {
        last.end = end.lsn;
    }
    let links = survey.chain.clone().into();
    let begun = survey.chain.last().map(|link| link.header.time);
    let copied = index.map(|index| survey.checkpoints[index].time());
    let last_time = begun.into_iter().chain(copied).fold(end.time, UnixMs::max);
    let moment = copied.map_or(end.time, |copied| end.time.max(copied));
    Ok(Recovery {
        fs: fs.clone(),
        dir: dir.to_owned(),
        lock: None,
        survey,
        case,
        base: index,
        links,
        end: end.lsn,
        // What was not completed was another stream.
        stream: end.stream.filter(|_| !is_new(case)),
        is_beside_clients: case == Case::NotComplete,
        last_time,
        moment,
    })
}

/// How far a log without a checkpoint goes back, and where it begins, that holds nothing and goes on from data that were elsewhere.
fn empty_behind(fs: &Fs, survey: &Survey) -> Result<Option<(Reach, Lsn)>, Refusal> {
    let Some((reach, start)) = survey.begins_behind() else { return Ok(None) };
    let last = survey::end_of(fs, &survey.chain, start)?;
    let is_empty = last.lsn == start && last.tail != Tail::Damaged && survey.missing_newest().is_none();
    Ok(is_empty.then_some((reach, start)))
}

/// How the chain ends, of which `needed` is the beginning.
fn end_for(fs: &Fs, survey: &Survey, index: Option<usize>, needed: Lsn) -> Result<End, Refusal> {
    let mut end = survey::end_of(fs, &survey.chain, needed)?;
    if end.tail != Tail::Damaged {
        let is_short = index.is_some_and(|index| end.lsn < survey.checkpoints[index].end());
        if survey.missing_newest().is_some() {
            end.tail = Tail::Missing;
        } else if is_short {
            end.tail = Tail::Short;
        }
    }
    Ok(end)
}

/// The sentence for a case that is refused.
fn refusal(case: Case, survey: &Survey, index: Option<usize>, needed: Lsn, end: &End) -> Option<Refusal> {
    let bad = survey.bad_header.clone();
    let bad_path = bad.as_ref().map(|(path, _)| path.clone()).unwrap_or_default();
    Some(match case {
        Case::New
        | Case::CutShort
        | Case::NotComplete
        | Case::Whole
        | Case::TornTail
        | Case::OlderCheckpoint => return None,
        Case::NewerVersion => match bad {
            Some((path, BadHeader::Newer(version))) => Refusal::Newer { path, version },
            _ => unreachable!("the case names such a header"),
        },
        Case::NotOurs => Refusal::NotOurs(bad_path),
        Case::HeaderDamaged => {
            let name = bad_path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let lsn = segment::parse_name(name).map_or(Lsn::ZERO, |(start, _)| start);
            Refusal::HeaderDamaged { path: bad_path, lsn, way: None }
        }
        Case::Mixed => {
            let (path, native) = survey.stranger.clone().expect("the case names a stranger");
            Refusal::Mixed { path, native }
        }
        Case::CheckpointDamaged => {
            let (_, path, offset) = survey.damaged.iter().max().expect("the case names a damaged one");
            Refusal::CheckpointDamaged { path: path.clone(), offset: *offset, is_needed: true }
        }
        Case::LogGone => Refusal::LogGone { needed },
        Case::LogLate => match survey.begins_behind().filter(|_| index.is_none()) {
            Some((Reach::Imported, _)) => Refusal::ImportGone,
            Some(_) => Refusal::NotComplete,
            None => {
                let start = survey.chain.first().map_or(Lsn::ZERO, |link| link.header.start);
                Refusal::LogLate { start, needed }
            }
        },
        Case::SegmentMissing => {
            let oldest = survey.chain.first().expect("the case names the segment after the gap");
            let before = |link: &&Link| link.header.number < oldest.header.number;
            let lsn = survey.segments.iter().rfind(before).map_or(Lsn::ZERO, |_| oldest.header.start);
            let (number, next) = (oldest.header.previous, oldest.path.clone());
            Refusal::SegmentMissing { number, next, lsn, way: None }
        }
        Case::LastMissing => {
            let number = survey.missing_newest().expect("the case names a segment");
            Refusal::LastMissing { number, lsn: end.lsn, way: None }
        }
        Case::DamagedMiddle => {
            let damage = end.damage.clone().expect("the case names a place");
            let survey::Damage { path, offset, what } = damage;
            Refusal::Damaged { path, offset, lsn: end.lsn, what, way: None }
        }
        Case::LogShort => {
            let index = index.expect("only a checkpoint can be longer than the log");
            Refusal::LogShort { end: end.lsn, needed: survey.checkpoints[index].end() }
        }
    })
}

fn is_new(case: Case) -> bool {
    matches!(case, Case::New | Case::CutShort | Case::NotComplete)
}

impl Recovery {
    /// What was found.
    pub fn case(&self) -> Case {
        self.case
    }

    /// Whether there is nothing in the log that was acknowledged: it begins with this start, an import was cut short and
    /// is to be done again, or a server did not complete the log that it began beside clients.
    pub fn is_new(&self) -> bool {
        is_new(self.case)
    }

    /// Has a log begin behind imported data: the next start finds a checkpoint with them or does the import again.
    ///
    /// # Panics
    /// If there is a log.
    pub fn begin_behind_import(&mut self) {
        assert!(self.is_new(), "only a log that begins has data before it");
        self.end = IMPORTED_START;
    }

    /// Has a log begin beside clients, behind what they have written to memory: the next start finds a checkpoint with that, or goes by what
    /// the directory held before. It begins behind this place, so that positions in a history that was kept in memory are before its first
    /// record; where there is a stream, it goes on in the log.
    ///
    /// # Panics
    /// If there is a log.
    pub fn begin_beside_clients(&mut self, behind: Lsn, stream: Option<Stream>) {
        assert!(self.is_new(), "only a log that begins has data before it");
        self.end = behind.max(BESIDE_CLIENTS_START);
        self.stream = stream;
        self.is_beside_clients = true;
    }

    /// The checkpoint to begin with; None for nothing.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.base.map(|index| &self.survey.checkpoints[index])
    }

    /// Whether what it begins with is the newest checkpoint that there is, or nothing, and there is none.
    pub fn is_of_newest(&self) -> bool {
        self.base.map_or(0, |index| index + 1) == self.survey.checkpoints.len()
            && self.survey.damaged.is_empty()
    }

    /// Reads all that bringing it back would read. Calls `meanwhile` often.
    ///
    /// # Errors
    /// That the disk does not read, or damage.
    pub fn read_through(&self, mut meanwhile: impl FnMut() -> io::Result<()>) -> io::Result<()> {
        if let Some(checkpoint) = self.checkpoint() {
            while checkpoint.next_chunk().map_err(io::Error::other)?.is_some() {
                meanwhile()?;
            }
            checkpoint.begin_again();
        }
        let mut blocks = self.replay();
        while blocks.next_block().map_err(io::Error::other)?.is_some() {
            meanwhile()?;
        }
        Ok(())
    }

    /// Where replaying begins: the checkpoint's start, or where a log does that has none.
    pub fn start(&self) -> Lsn {
        match self.case {
            Case::CutShort | Case::NotComplete => self.end,
            _ => self.checkpoint().map_or(Lsn::ZERO, Checkpoint::start),
        }
    }

    /// Where the log ends. What lies behind was never acknowledged, and will be no part of the log.
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// When the log was last written to, as far as its own times tell: its last record, segment and checkpoint.
    pub fn last_time(&self) -> UnixMs {
        self.last_time
    }

    /// The moment of which its content is: of the last record, or of the checkpoint if there is none behind it. A copy keeps it.
    pub fn moment(&self) -> UnixMs {
        self.moment
    }

    /// What all files of the log have in common, and no other log's; None if there are none.
    pub fn history(&self) -> Option<u64> {
        self.survey.history
    }

    /// The records from [`Recovery::start`] to [`Recovery::end`]. Each call gives a reader of its own, so that several
    /// threads can each read all and apply what is theirs.
    pub fn replay(&self) -> Blocks {
        Blocks::new(&self.fs, Arc::clone(&self.links), self.start(), self.end).of_dir(&self.dir)
    }

    /// Opens the log for appending, at its end. From here on the directory is changed: what an interrupted program left
    /// is removed, and a fresh segment begins. Where the disk is full for that and there is a log to go on from, it opens as one that has
    /// failed, and goes on when there is space.
    ///
    /// # Errors
    /// Why no segment can be begun. What was there stays.
    pub fn open(self, options: &Options, observer: Arc<dyn Observer>) -> Result<Log, Failure> {
        let is_new = self.is_new();
        let Recovery { fs, dir, lock, survey, links, end, stream, is_beside_clients, .. } = self;
        let is_linked = |path: &Path| links.iter().any(|link| link.path == path);
        let last_linked = links.last().map_or(u64::MAX, |link| link.header.number);
        let unlinked = survey.segments.iter().filter(|link| !is_linked(&link.path));
        // Of a log that began again, and was not completed.
        let (behind, unlinked): (Vec<&Link>, Vec<&Link>) =
            unlinked.partition(|link| link.header.number > last_linked);
        for leftover in survey.leftovers.iter().chain(unlinked.into_iter().map(|link| &link.path)) {
            // What cannot be removed does no harm.
            let _ = fs.remove(leftover);
        }
        let last_number = survey.segments.last().map_or(0, |link| link.header.number);
        // Segments at the end that hold nothing: starting again and again must not fill the disk.
        let filled = links.iter().rposition(|link| link.header.start < end).map_or(0, |last| last + 1);
        let (kept, empty) = links.split_at(filled);
        if let Some(last) = kept.last() {
            settle::make_durable(&fs, last)?;
        }
        let previous = kept.last().map_or(0, |link| link.header.number);
        let live = kept.iter().map(|link| link.header).collect();
        let checkpoints = survey.checkpoints.iter().map(|found| found.mark).collect();
        let history = survey.history.or(options.history).unwrap_or_else(|| Prng::from_entropy().next_u64());
        let stream = stream.map_or_else(|| Stream::begin(end), |stream| Stream { at: end, ..stream });
        let mut directory = Directory::new(fs.clone(), dir, history, (last_number, Some(stream)), options);
        directory.adopt(live, checkpoints, survey.newest.map(|(_, path)| path), lock);
        directory.set_beside_clients(is_beside_clients);
        let directory = Arc::new(directory);
        let writer = Writer::new(Arc::clone(&directory), end, previous);
        let log = Log::start(directory, writer, options, observer, is_new)?;
        // Without a fresh segment they are what the log ends with, or what is known to be the newest.
        for link in empty.iter().chain(behind).filter(|_| log.writable().is_ok()) {
            let _ = fs.remove(&link.path);
        }
        Ok(log)
    }
}
