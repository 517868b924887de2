//! What lies in a directory: files by their names and headers, the chain of segments, how the last one ends. Only reads.

use super::table::{Headers, Origin, Reach, Tail};
use crate::block::{Joiner, begins_record, selected_in, stream_in};
use crate::checkpoint::{self, Checkpoint, NotWhole};
use crate::limits::{BESIDE_CLIENTS_START, BLOCK_ALIGN, IMPORTED_START};
use crate::reader::{Found, Link, Segment};
use crate::segment::{self, BadHeader};
use crate::{Lsn, Refusal, Stream};
use std::io;
use std::path::{Path, PathBuf};
use sys::UnixMs;
use sys::file::{Fs, Mode};

/// Everything of a log that a directory holds.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Complete ones, from the oldest on.
    pub checkpoints: Vec<Checkpoint>,
    /// Those that have the name of one, and are damaged, with the place.
    pub damaged: Vec<(Lsn, PathBuf, u64)>,
    /// All segments, by number.
    pub segments: Vec<Link>,
    /// The segments that go on from each other up to the last one.
    pub chain: Vec<Link>,
    /// What an interrupted program left: spares, unfinished checkpoints.
    pub leftovers: Vec<PathBuf>,
    /// The first file whose header will not do.
    pub bad_header: Option<(PathBuf, BadHeader)>,
    /// A file of another history than most, and one of those.
    pub stranger: Option<(PathBuf, PathBuf)>,
    /// Drawn when the log began; None if there are no files.
    pub history: Option<u64>,
    /// What says which segment is the newest, and its number; None in a directory of a program that did not say.
    pub newest: Option<(u64, PathBuf)>,
    /// Whether a copy was being made here, and was not finished.
    pub is_unfinished: bool,
    /// Segments and checkpoints that do not begin as such, with their numbers and starts as their names say.
    foreign: Vec<(PathBuf, Named)>,
}

/// What the name of a file says that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Segment(u64),
    Checkpoint(Lsn),
}

/// The file that the directory's lock hangs on.
pub(super) const LOCK_NAME: &str = "log.lock";

/// The file that is in a directory for as long as a copy is being made there.
pub(crate) const UNFINISHED_NAME: &str = "log-copy.unfinished";

/// How the last segment ends.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub tail: Tail,
    /// Where the last whole record ends.
    pub lsn: Lsn,
    /// When the last record of the last segments was executed.
    pub time: UnixMs,
    /// What the log is as a stream there, if it is one.
    pub stream: Option<Stream>,
    /// The damage, if there is some.
    pub damage: Option<Damage>,
}

/// Damage to a segment.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    pub path: PathBuf,
    /// Where in it, bytes.
    pub offset: u64,
    pub what: &'static str,
}

impl End {
    /// The end of a log that is not damaged.
    pub fn whole(tail: Tail, lsn: Lsn) -> End {
        End { tail, lsn, time: UnixMs(0), stream: None, damage: None }
    }

    fn damaged(link: &Link, offset: u64, lsn: Lsn, what: &'static str) -> End {
        End {
            tail: Tail::Damaged,
            lsn,
            time: UnixMs(0),
            stream: None,
            damage: Some(Damage { path: link.path.clone(), offset, what }),
        }
    }
}

impl Survey {
    /// Looks at a directory.
    pub fn of(fs: &Fs, dir: &Path) -> Result<Survey, Refusal> {
        let mut survey = Survey::default();
        for name in fs.list(dir).map_err(Refusal::disk(dir))? {
            let Some(name) = name.to_str() else { continue };
            let path = dir.join(name);
            if let Some((start, number)) = segment::parse_name(name) {
                survey.add_segment(fs, path, start, number)?;
            } else if let Some(start) = checkpoint::parse_name(name) {
                survey.add_checkpoint(fs, path, start)?;
            } else if let Some(number) = segment::parse_newest(name) {
                survey.add_newest(path, number);
            } else if name == UNFINISHED_NAME {
                survey.is_unfinished = true;
            } else if is_leftover(name) {
                survey.leftovers.push(path);
            }
        }
        survey.segments.sort_by_key(|link| link.header.number);
        survey.checkpoints.sort_by_key(Checkpoint::start);
        survey.chain = survey.counted();
        survey.judge_foreign();
        survey.find_stranger();
        for index in 0..survey.checkpoints.len() {
            let is_needed = !survey.reaches_without(survey.checkpoints[index].start());
            survey.checkpoints[index].is_needed = is_needed;
        }
        Ok(survey)
    }

    /// The segments that go on from each other up to the last one. Where a server ended its log and began it again beside its clients, what
    /// is behind counts with its first checkpoint: until then the log does that had ended.
    fn counted(&self) -> Vec<Link> {
        let mut upto = self.segments.len();
        loop {
            let found = chain(&self.segments[..upto]);
            let Some(first) = found.first().map(|link| link.header) else { return found };
            let is_former = |link: &Link| link.header.number < first.number;
            let former = self.segments[..upto].iter().take_while(|link| is_former(link)).count();
            let began_again = first.previous == 0 && first.is_beside_clients && former > 0;
            if !began_again || self.has_checkpoint_from(first.start) {
                return found;
            }
            upto = former;
        }
    }

    fn has_checkpoint_from(&self, lsn: Lsn) -> bool {
        let whole = self.checkpoints.iter().map(Checkpoint::start);
        whole.chain(self.damaged.iter().map(|(start, ..)| *start)).any(|start| start >= lsn)
    }

    /// Of several, which only a crash in between leaves, the last counts.
    fn add_newest(&mut self, path: PathBuf, number: u64) {
        match &mut self.newest {
            Some((said, former)) if *said < number => {
                self.leftovers.push(std::mem::replace(former, path));
                *said = number;
            }
            Some(_) => self.leftovers.push(path),
            newest @ None => *newest = Some((number, path)),
        }
    }

    /// Whether a segment with this number was begun here, by what the others say.
    fn was_begun(&self, number: u64) -> bool {
        // Where nothing says which is the newest, any may have been.
        self.newest.as_ref().is_none_or(|(newest, _)| number <= *newest)
    }

    /// A file that does not begin as what it is named for is somebody else's only if nothing here is missing without it.
    fn judge_foreign(&mut self) {
        for (path, named) in std::mem::take(&mut self.foreign) {
            match named {
                Named::Segment(number) if self.was_begun(number) => {
                    self.note_bad_header(path, BadHeader::Damaged);
                }
                Named::Checkpoint(start) if !self.reaches_without(start) => {
                    self.damaged.push((start, path, 0));
                }
                _ => self.note_bad_header(path, BadHeader::Magic),
            }
        }
    }

    /// Whether the log reaches back to a checkpoint other than that at `start`, or to its beginning.
    pub fn reaches_without(&self, start: Lsn) -> bool {
        self.reaches(Lsn::ZERO)
            || self.checkpoints.iter().any(|other| other.start() != start && self.reaches(other.start()))
    }

    fn add_segment(&mut self, fs: &Fs, path: PathBuf, start: Lsn, number: u64) -> Result<(), Refusal> {
        let mut bytes = vec![0; BLOCK_ALIGN];
        let file = fs.open(&path, Mode::Read).map_err(Refusal::disk(&path))?;
        let read = file.read_full_at(&mut bytes, 0).map_err(Refusal::disk(&path))?;
        match segment::Header::decode(&bytes[..read]) {
            Ok(header) if (header.start, header.number) == (start, number) => {
                self.segments.push(Link { path, header, end: Lsn(u64::MAX) });
            }
            Ok(_) => self.note_bad_header(path, BadHeader::Damaged),
            Err(BadHeader::Magic) => self.foreign.push((path, Named::Segment(number))),
            Err(bad) => self.note_bad_header(path, bad),
        }
        Ok(())
    }

    fn add_checkpoint(&mut self, fs: &Fs, path: PathBuf, start: Lsn) -> Result<(), Refusal> {
        match Checkpoint::open(fs, &path) {
            Ok(checkpoint) if checkpoint.start() == start => self.checkpoints.push(checkpoint),
            Ok(_) => self.damaged.push((start, path, 0)),
            Err(NotWhole::Damaged { offset }) => self.damaged.push((start, path, offset)),
            Err(NotWhole::Magic) => self.foreign.push((path, Named::Checkpoint(start))),
            Err(NotWhole::Newer(version)) => self.note_bad_header(path, BadHeader::Newer(version)),
            Err(NotWhole::Disk(error)) => return Err(Refusal::Disk { path, error }),
        }
        Ok(())
    }

    fn note_bad_header(&mut self, path: PathBuf, bad: BadHeader) {
        self.bad_header.get_or_insert((path, bad));
    }

    fn find_stranger(&mut self) {
        let segments = self.segments.iter().map(|link| (link.header.history, link.path.as_path()));
        let checkpoints = self.checkpoints.iter().map(|found| (found.mark.history, found.path()));
        let all: Vec<_> = segments.chain(checkpoints).collect();
        let count = |history: u64| all.iter().filter(|(other, _)| *other == history).count();
        let native = all.iter().max_by_key(|(history, _)| count(*history)).copied();
        self.history = native.map(|(history, _)| history);
        let other = all.iter().find(|(history, _)| Some(*history) != self.history);
        // What goes on from a segment begins after it, or the files are of several logs.
        let shuffled = self.chain.windows(2).find(|pair| pair[0].header.start > pair[1].header.start);
        let stranger =
            other.zip(native).map(|((_, path), (_, native))| (path.to_path_buf(), native.to_owned()));
        self.stranger = stranger.or(shuffled.map(|pair| (pair[1].path.clone(), pair[0].path.clone())));
    }

    pub fn headers(&self) -> Headers {
        match (&self.bad_header, &self.stranger) {
            (Some((_, BadHeader::Newer(_))), _) => Headers::Newer,
            (Some((_, BadHeader::Magic)), _) => Headers::Foreign,
            (Some((_, BadHeader::Damaged)), _) => Headers::Damaged,
            (None, Some(_)) => Headers::Mixed,
            (None, None) => Headers::Good,
        }
    }

    /// Whether the log goes back to `lsn`.
    pub fn reaches(&self, lsn: Lsn) -> bool {
        self.chain.first().is_some_and(|oldest| oldest.header.start <= lsn)
    }

    /// What to begin with: the index of a checkpoint, or none for the beginning.
    pub fn base(&self) -> (Origin, Option<usize>) {
        let newest = self.checkpoints.len().checked_sub(1);
        let newest_start = newest.map(|index| self.checkpoints[index].start());
        let damaged =
            self.damaged.iter().filter(|(start, ..)| newest_start.is_none_or(|whole| *start > whole));
        if damaged.count() == 0 {
            return (if newest.is_some() { Origin::Newest } else { Origin::Beginning }, newest);
        }
        match newest_start {
            Some(start) if self.reaches(start) && !self.is_replaced_behind(start) => (Origin::Older, newest),
            None if self.reaches(Lsn::ZERO) && !self.is_replaced_behind(Lsn::ZERO) => (Origin::Older, None),
            _ => (Origin::Lost, None),
        }
    }

    /// Whether other data took the place of all behind `lsn`: no record says so, and the log from there on does not lead to what it was.
    fn is_replaced_behind(&self, lsn: Lsn) -> bool {
        self.chain.windows(2).any(|pair| {
            let [before, after] = [pair[0].header, pair[1].header];
            before.stream.is_some() && after.stream.is_none() && after.start > lsn
        })
    }

    /// What the log is as a stream, where it ends with segments that were begun for data which was to take the place of all: what they say
    /// if the checkpoint that begins at `needed` has these data, else what it was before. None: it ends otherwise.
    pub fn settled_stream(&self, fs: &Fs, needed: Lsn) -> Result<Option<Option<Stream>>, Refusal> {
        let Some(coming) = self.chain.last().and_then(|last| last.header.coming) else { return Ok(None) };
        let is_other = |link: &Link| link.header.coming.is_none();
        let first = self.chain.iter().rposition(is_other).map_or(0, |other| other + 1);
        if needed >= self.chain[first].header.start {
            return Ok(Some(Some(coming)));
        }
        end_of(fs, &self.chain[..first], needed).map(|end| Some(end.stream))
    }

    pub fn reach(&self, needed: Lsn) -> Reach {
        let Some(oldest) = self.chain.first() else {
            return if self.newest.is_some() { Reach::Gone } else { Reach::None };
        };
        let is_missing = oldest.header.previous != 0
            && self.segments.iter().any(|link| link.header.number < oldest.header.number);
        match oldest.header.start <= needed {
            true => Reach::Enough,
            false if is_missing => Reach::Gap,
            false => Reach::Late,
        }
    }

    /// Where the log begins, if that is behind data of which it has nothing, and how far back it goes then: imported, or of a server that
    /// began it beside clients.
    pub fn begins_behind(&self) -> Option<(Reach, Lsn)> {
        let oldest = self.chain.first().map(|link| link.header).filter(|oldest| oldest.previous == 0)?;
        match oldest.start {
            IMPORTED_START => Some((Reach::Imported, oldest.start)),
            // Programs that wrote no mark began it nowhere else.
            BESIDE_CLIENTS_START => Some((Reach::BesideClients, oldest.start)),
            start => oldest.is_beside_clients.then_some((Reach::BesideClients, start)),
        }
    }

    /// The number of the newest segment, if it is not there.
    pub fn missing_newest(&self) -> Option<u64> {
        let (newest, _) = self.newest.as_ref()?;
        let last = self.segments.last().map_or(0, |link| link.header.number);
        Some(*newest).filter(|newest| *newest > last)
    }

    /// The segments up to `lsn`: those that the last one goes on from, or, where something is missing behind `lsn`, the
    /// last one before it.
    pub fn chain_before(&self, lsn: Lsn) -> Vec<Link> {
        let is_before = |link: &Link| link.header.start <= lsn;
        if self.chain.first().is_some_and(is_before) {
            return self.chain.clone();
        }
        let before: Vec<Link> = self.segments.iter().filter(|link| is_before(link)).cloned().collect();
        chain(&before)
    }
}

/// What is said of a place where a block must be that was durable.
pub(crate) const NOT_WRITTEN: &str = "a block is not what was written there";
/// What is said of a segment that is shorter than it was.
pub(crate) const CUT: &str = "the file is cut off there";

/// Reads the last segment of a chain to its end. Where `needed` is, a record begins; nothing before it counts.
pub(crate) fn end_of(fs: &Fs, chain: &[Link], needed: Lsn) -> Result<End, Refusal> {
    if chain.is_empty() {
        return Ok(End::whole(Tail::Clean, Lsn::ZERO));
    }
    // A record may have begun in the segments before.
    let mut joiner = Joiner::new(needed);
    let links = last_links(fs, chain)?;
    let (mut lsn, mut time) = (links[0].header.start, UnixMs(0));
    // Behind all records that are whole, and behind all blocks.
    let (mut stream, mut all_of_stream): (Option<Stream>, Option<Stream>) = (None, None);
    for link in links {
        if joiner.open_since().is_none() {
            stream = link.header.stream;
            all_of_stream = stream;
        }
        let mut segment = Segment::open(fs, &link.path, link.header).map_err(Refusal::disk(&link.path))?;
        while segment.lsn < link.end {
            let (position, begin) = (segment.position, segment.lsn);
            let found = segment.next().map_err(Refusal::disk(&link.path))?;
            let is_torn = matches!(found, Found::Torn);
            if let Found::Block(header, body) = found {
                let bytes = stream_in(&body).map(<[u8]>::len).sum::<usize>() as u64;
                let selected = selected_in(&body);
                all_of_stream = all_of_stream.map(|stream| stream.moved(header.end(), bytes, selected));
                match joiner.push(&header, body) {
                    Ok(block) => {
                        let last = block.as_ref().and_then(|block| block.records().last());
                        time = last.map_or(time, |record| time.max(record.time));
                    }
                    Err(what) => return Ok(End::damaged(link, position, begin, what)),
                }
                lsn = joiner.open_since().unwrap_or(header.end());
                if joiner.open_since().is_none() {
                    stream = all_of_stream;
                }
                continue;
            }
            let is_last = link.end == Lsn(u64::MAX);
            if !is_last || segment.has_proof_of_loss().map_err(Refusal::disk(&link.path))? {
                return Ok(End::damaged(link, position, lsn, NOT_WRITTEN));
            }
            if segment.is_cut() {
                return Ok(End::damaged(link, segment.bytes(), lsn, CUT));
            }
            let tail = if is_torn || joiner.open_since().is_some() { Tail::Torn } else { Tail::Clean };
            return Ok(End { time, stream, ..End::whole(tail, lsn) });
        }
    }
    Ok(End { time, stream, ..End::whole(Tail::Clean, lsn) })
}

/// The last segments, as many as a record that is unfinished at the end may reach back over.
fn last_links<'a>(fs: &Fs, chain: &'a [Link]) -> Result<&'a [Link], Refusal> {
    let mut from = chain.len() - 1;
    while from > 0 {
        let link = &chain[from];
        let mut segment = Segment::open(fs, &link.path, link.header).map_err(Refusal::disk(&link.path))?;
        let first = segment.next().map_err(Refusal::disk(&link.path))?;
        let is_boundary = match first {
            Found::Block(_, body) => begins_record(&body),
            Found::Torn | Found::Nothing => None,
        };
        if is_boundary == Some(true) {
            break;
        }
        from -= 1;
    }
    Ok(&chain[from..])
}

/// What a program leaves that is interrupted.
fn is_leftover(name: &str) -> bool {
    segment::is_spare(name)
        || name.strip_suffix(".tmp").is_some_and(|name| checkpoint::parse_name(name).is_some())
}

/// Whether a file of this name belongs to a log: by its whole name, as what is called alike may be anybody's.
pub(crate) fn is_of_log(name: &str) -> bool {
    holds_log(name) || is_leftover(name) || name == LOCK_NAME
}

/// Whether there is a log, or was, where a file has this name; spares and unfinished checkpoints say nothing of that.
fn holds_log(name: &str) -> bool {
    segment::parse_name(name).is_some()
        || segment::parse_newest(name).is_some()
        || checkpoint::parse_name(name).is_some()
        || name == UNFINISHED_NAME
}

/// Whether a directory holds a log, or what is left of one.
///
/// # Errors
/// If it cannot be read.
pub fn is_there(fs: &Fs, dir: &Path) -> io::Result<bool> {
    let names = fs.list(dir)?;
    Ok(names.iter().any(|name| name.to_str().is_some_and(holds_log)))
}

/// The segments that the last one goes on from, oldest first, each with its end: where the next begins.
fn chain(segments: &[Link]) -> Vec<Link> {
    let mut chain: Vec<Link> = Vec::new();
    let mut next = segments.last().cloned();
    while let Some(link) = next {
        let (previous, start) = (link.header.previous, link.header.start);
        chain.push(link);
        next = segments.iter().rfind(|link| link.header.number == previous).cloned();
        if let Some(before) = &mut next {
            before.end = start;
        }
    }
    chain.reverse();
    chain
}
