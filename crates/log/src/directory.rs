//! The directory that a log lives in: its segments, the spare ones, and beginning and retiring them.
//!
//! Shared by the flusher, the thread that prepares spares and whoever retires. Nobody else waits for a lock that is held
//! over a call to the disk, except the flusher for whoever retires, when it begins a segment. Invariants:
//! 1. A segment has its name only after its header is durable, and is written to only after its name is.
//! 2. Segments of the log are removed from the oldest on, without gaps.
//! 3. Numbers grow; a number is never used twice, not even for a segment that could not be begun.
//! 4. A file gets another segment's header only after the name of the former one is gone from the disk for good: with that name and
//!    the new header it would be a damaged segment.
//! 5. Before a segment is written to, the name of a file says durably that it was begun, and that file stays until the next
//!    segment's is said there: so a start notices that the last one is gone.

use crate::checkpoint::{self, Mark};
use crate::limits::{BLOCK_ALIGN, SHORT_SEGMENT_BYTES, SPARE_SEGMENTS, SPARE_SEGMENTS_KEPT};
use crate::segment::{FIRST_BLOCK, Header, newest_path};
use crate::{Failure, Lsn, Operation, Options, Stream};
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sys::Clock;
use sys::file::{AlignedBytes, File, Fs, Lock, Mode};

#[derive(Debug)]
pub(crate) struct Directory {
    pub fs: Fs,
    pub path: PathBuf,
    pub history: u64,
    pub segment_bytes: u64,
    clock: Clock,
    next_number: AtomicU64,
    /// What the log is as a stream, seen from where it is durable; segments that are begun say so. None: what is appended is none.
    stream: Mutex<Option<Stream>>,
    /// See [`Header::coming`].
    coming: Mutex<Option<Stream>>,
    /// From which offset on the stream is kept for replicas, whatever else is dispensable.
    kept_from: Mutex<Option<u64>>,
    /// See [`Directory::keep_before`]; the highest number where nothing is kept for that.
    committed: AtomicU64,
    /// See [`Header::is_beside_clients`].
    is_beside_clients: AtomicBool,
    /// Where its first segment begins: what is before that is in no file, or in those of the log that ended.
    first_start: AtomicU64,
    /// From the oldest to the one that is written to.
    live: Mutex<Vec<Header>>,
    spares: Mutex<Vec<PathBuf>>,
    /// See [`Directory::save_space`].
    saves_space: AtomicBool,
    /// One of the spares had a segment's name for a moment, and may have it on disk still.
    is_spare_named: AtomicBool,
    /// The file whose name says which segment is the newest.
    newest: Mutex<Option<PathBuf>>,
    /// Complete ones, from the oldest on.
    checkpoints: Mutex<Vec<Mark>>,
    /// Keeps other processes out.
    _lock: Option<Lock>,
}

/// What to keep of a log that a checkpoint has made dispensable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retention {
    /// Nothing.
    #[default]
    None,
    /// What restoring any moment takes that is younger than this.
    Milliseconds(u64),
    /// As much as restoring takes and so many bytes of segments hold, but always what a start needs.
    Bytes(u64),
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retired {
    /// Checkpoints.
    pub checkpoints: usize,
    /// Segments, removed or made spare.
    pub segments: usize,
}

/// Segments that were taken away and are kept as spares.
#[derive(Debug)]
struct Kept {
    recycled: Vec<PathBuf>,
    /// How many spares there may be.
    most: usize,
}

/// The segment that is written to.
#[derive(Debug)]
pub(crate) struct Current {
    pub file: File,
    pub header: Header,
    pub path: PathBuf,
    /// Where the next block goes.
    pub position: u64,
    /// Length of the file.
    pub bytes: u64,
}

impl Directory {
    /// A directory without segments.
    pub fn new(
        fs: Fs,
        path: PathBuf,
        history: u64,
        (last_number, stream): (u64, Option<Stream>),
        options: &Options,
    ) -> Directory {
        Directory {
            fs,
            path,
            history,
            segment_bytes: options.whole_segment_bytes(),
            clock: options.clock.clone(),
            next_number: AtomicU64::new(last_number + 1),
            stream: Mutex::new(stream),
            coming: Mutex::new(None),
            kept_from: Mutex::new(None),
            committed: AtomicU64::new(u64::MAX),
            is_beside_clients: AtomicBool::new(false),
            first_start: AtomicU64::new(0),
            live: Mutex::new(Vec::new()),
            checkpoints: Mutex::new(Vec::new()),
            spares: Mutex::new(Vec::new()),
            saves_space: AtomicBool::new(false),
            is_spare_named: AtomicBool::new(false),
            newest: Mutex::new(None),
            _lock: None,
        }
    }

    /// Takes over what recovery found.
    pub fn adopt(
        &mut self,
        live: Vec<Header>,
        checkpoints: Vec<Mark>,
        newest: Option<PathBuf>,
        lock: Option<Lock>,
    ) {
        *self.live.get_mut() = live;
        *self.newest.get_mut() = newest;
        *self.checkpoints.get_mut() = checkpoints;
        self._lock = lock;
    }

    /// The first segment that is begun is that of a log that begins beside clients.
    pub fn set_beside_clients(&self, on: bool) {
        self.is_beside_clients.store(on, Ordering::Relaxed);
    }

    /// Where the first segment begins that this process began as such; 0 without one.
    pub fn first_start(&self) -> Lsn {
        Lsn(self.first_start.load(Ordering::Acquire))
    }

    /// What the log is as a stream; None in a copy that is none.
    pub fn stream(&self) -> Option<Stream> {
        *self.stream.lock()
    }

    /// From the next segment on it is something else.
    pub fn change_stream(&self, change: impl FnOnce(Option<Stream>) -> Option<Stream>) {
        let mut stream = self.stream.lock();
        *stream = change(*stream);
    }

    /// While it is no stream, segments that are begun say what it is to be.
    pub fn expect_stream(&self, coming: Option<Stream>) {
        *self.coming.lock() = coming;
    }

    /// Notes that it is durable up to `durable` now, so many bytes of the stream further on, and what is selected there if there are any.
    pub fn advance_stream(&self, durable: Lsn, bytes: u64, selected: Option<u32>) {
        if let Some(stream) = &mut *self.stream.lock() {
            *stream = stream.moved(durable, bytes, selected);
        }
    }

    /// Keeps the segments that hold the stream from this offset on.
    pub fn keep_stream_from(&self, offset: Option<u64>) {
        *self.kept_from.lock() = offset;
    }

    /// Keeps the newest checkpoint that ends by then, and the log from there.
    pub fn keep_before(&self, committed: Option<Lsn>) {
        self.committed.store(committed.map_or(u64::MAX, |lsn| lsn.0), Ordering::Relaxed);
    }

    /// The segments that hold the stream as it is called now, from the oldest on.
    pub fn live_of_stream(&self) -> Vec<Header> {
        let Some(stream) = self.stream() else { return Vec::new() };
        let is_of_it = |header: &Header| {
            header
                .stream
                .is_some_and(|own| own.id == stream.id || stream.former.is_some_and(|(id, _)| own.id == id))
        };
        let live = self.live.lock();
        let others = live.iter().rposition(|header| !is_of_it(header)).map_or(0, |last| last + 1);
        // Before the first of a log that began again some of the stream is in no segment.
        let first = live.iter().rposition(|header| header.previous == 0).unwrap_or(0);
        live[others.max(first)..].to_vec()
    }

    /// Begins a segment at `start`, behind the one with the number `previous`.
    ///
    /// # Errors
    /// What went wrong; nothing counts as begun then.
    pub fn begin(&self, start: Lsn, previous: u64) -> Result<Current, Failure> {
        self.forget_names_of_spares()?;
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let time = self.clock.now();
        let stream = self.stream();
        let coming = self.coming.lock().filter(|_| stream.is_none());
        debug_assert!(
            stream.is_none_or(|stream| stream.at == start),
            "a segment begins where all is durable"
        );
        let is_beside_clients = previous == 0 && self.is_beside_clients.load(Ordering::Relaxed);
        let history = self.history;
        let mut header =
            Header { history, number, previous, start, time, length: 0, stream, coming, is_beside_clients };
        let ready = self.spares.lock().pop();
        let spare = ready.map_or_else(|| self.make_spare(number), Ok)?;
        let path = header.path(&self.path);
        let current = self.name(&spare, &path, &mut header).inspect_err(|failure| {
            // Neither counts, should it stay: recovery passes over a segment that the next one supersedes.
            if failure.is_out_of_descriptors {
                // Nothing is wrong with it, and each try would fill another.
                if self.fs.rename(&path, &spare).is_ok() {
                    self.is_spare_named.store(true, Ordering::Relaxed);
                }
                self.spares.lock().push(spare.clone());
            } else {
                let _ = self.fs.remove(&spare);
                let _ = self.fs.remove(&path);
            }
        })?;
        // The segment stays if this fails: its name may have been said.
        self.say_newest(number)?;
        self.live.lock().push(header);
        if previous == 0 {
            self.first_start.store(start.0, Ordering::Release);
        }
        Ok(current)
    }

    /// Has the disk forget the names that spares had.
    fn forget_names_of_spares(&self) -> Result<(), Failure> {
        if self.is_spare_named.load(Ordering::Relaxed) {
            let synced = self.fs.sync_dir(&self.path);
            synced.map_err(|error| Failure::new(Operation::Sync, &self.path, &error))?;
            self.is_spare_named.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Says durably that this segment was begun.
    fn say_newest(&self, number: u64) -> Result<(), Failure> {
        let path = newest_path(&self.path, number);
        let failed = |operation| {
            let path = &path;
            move |error: io::Error| Failure::new(operation, path, &error)
        };
        let mut newest = self.newest.lock();
        let said = match &*newest {
            Some(former) => self.fs.rename(former, &path),
            None => self.fs.open(&path, Mode::Truncate).map(drop),
        };
        said.map_err(failed(Operation::Prepare))?;
        *newest = Some(path.clone());
        self.fs.sync_dir(&self.path).map_err(failed(Operation::Sync))
    }

    fn name(&self, spare: &Path, path: &Path, header: &mut Header) -> Result<Current, Failure> {
        let failed = |operation| move |error: io::Error| Failure::new(operation, path, &error);
        let file = self.fs.open(spare, Mode::DirectSynced).map_err(failed(Operation::Prepare))?;
        let length = file.len().map_err(failed(Operation::Prepare))?;
        header.length = Header::length_of(length);
        let mut bytes = AlignedBytes::zeroed(BLOCK_ALIGN);
        header.encode(bytes.as_mut_slice());
        file.write_at(bytes.as_slice(), 0).map_err(failed(Operation::Write))?;
        file.sync_data().map_err(failed(Operation::Sync))?;
        self.fs.rename(spare, path).map_err(failed(Operation::Prepare))?;
        self.fs.sync_dir(&self.path).map_err(failed(Operation::Sync))?;
        Ok(Current { file, header: *header, path: path.to_owned(), position: FIRST_BLOCK, bytes: length })
    }

    fn make_spare(&self, number: u64) -> Result<PathBuf, Failure> {
        let path = self.path.join(format!("spare-{number:08}.tmp"));
        let mut bytes = self.spare_length();
        loop {
            let Err(error) = self.fill_spare(&path, bytes) else { return Ok(path) };
            let _ = self.fs.remove(&path);
            let failure = Failure::new(Operation::Prepare, &path, &error);
            if !failure.is_full() || bytes <= SHORT_SEGMENT_BYTES {
                return Err(failure);
            }
            // What is left of a small disk is still good for a short one.
            bytes = (bytes / 4).next_multiple_of(BLOCK_ALIGN as u64).max(SHORT_SEGMENT_BYTES);
        }
    }

    /// Past the page cache, one write after the other: what gathers there would reach the disk at once, and hold up the
    /// log's own writes for as long as that takes.
    fn fill_spare(&self, path: &Path, bytes: u64) -> io::Result<()> {
        drop(self.fs.open(path, Mode::Truncate)?);
        self.fs.open(path, Mode::Direct)?.preallocate(bytes)
    }

    /// Makes a spare segment, if there are not enough.
    ///
    /// # Errors
    /// What went wrong. Nobody needs it yet, so that this is no failure of the log.
    pub fn prepare(&self) -> Result<(), Failure> {
        if self.spares.lock().len() < SPARE_SEGMENTS {
            let spare = self.make_spare(self.next_number.fetch_add(1, Ordering::Relaxed))?;
            self.spares.lock().push(spare);
        }
        Ok(())
    }

    /// Whether there are fewer spares than there should be.
    pub fn lacks_spares(&self) -> bool {
        self.spares.lock().len() < SPARE_SEGMENTS
    }

    /// From now on as little of the disk is taken beforehand as can be, or not any more: segments that are begun are short, and none that was taken
    /// away is kept.
    pub fn save_space(&self, on: bool) {
        if self.saves_space.swap(on, Ordering::Relaxed) != on && on {
            self.drop_spares();
        }
    }

    /// How long a segment is that is begun now.
    fn spare_length(&self) -> u64 {
        match self.saves_space.load(Ordering::Relaxed) {
            true => self.segment_bytes.min(SHORT_SEGMENT_BYTES),
            false => self.segment_bytes,
        }
    }

    /// What the spares take of the disk.
    pub fn spare_bytes(&self) -> u64 {
        self.spares.lock().len() as u64 * self.spare_length()
    }

    /// Removes the spares, for whoever needs their space.
    pub fn drop_spares(&self) {
        let spares = std::mem::take(&mut *self.spares.lock());
        for spare in spares {
            // What stays is removed by the next start.
            let _ = self.fs.remove(&spare);
        }
    }

    /// Notes a checkpoint that was completed.
    pub fn add_checkpoint(&self, mark: Mark) {
        let mut checkpoints = self.checkpoints.lock();
        checkpoints.retain(|other| other.start != mark.start);
        checkpoints.push(mark);
    }

    /// Where the newest checkpoint begins, or 0.
    pub fn last_checkpoint(&self) -> Lsn {
        self.checkpoints.lock().last().map_or(Lsn::ZERO, |mark| mark.start)
    }

    /// Removes the checkpoints and segments that neither a start nor `retention` needs.
    ///
    /// # Errors
    /// The first; what was removed until then is gone.
    pub fn retire(&self, retention: Retention) -> io::Result<Retired> {
        let mut base = self.oldest_needed(retention);
        if let (Some(base), Some(kept)) = (&mut base, self.oldest_kept()) {
            *base = kept.min(*base);
        }
        let mut retired = Retired::default();
        let Some(base) = base.map(|base| base.min(self.oldest_committed())) else { return Ok(retired) };
        retired.checkpoints = self.retire_checkpoints(retention, base)?;
        let mut live = self.live.lock();
        let needed = live.windows(2).take_while(|pair| pair[1].start <= base).count();
        let mut kept = Kept { recycled: Vec::new(), most: needed.max(SPARE_SEGMENTS_KEPT) };
        if self.saves_space.load(Ordering::Relaxed) {
            kept.most = 0;
        }
        while let [oldest, next, ..] = live[..]
            && next.start <= base
        {
            self.take_away(&oldest, &mut kept)?;
            live.remove(0);
            retired.segments += 1;
        }
        drop(live);
        if retired == Retired::default() {
            return Ok(retired);
        }
        self.fs.sync_dir(&self.path)?;
        // Not before their old names are gone for good.
        let mut spares = self.spares.lock();
        spares.extend(kept.recycled);
        let surplus = spares.len().saturating_sub(kept.most);
        for spare in spares.drain(..surplus) {
            self.remove(&spare)?;
        }
        Ok(retired)
    }

    fn retire_checkpoints(&self, retention: Retention, base: Lsn) -> io::Result<usize> {
        let mut checkpoints = self.checkpoints.lock();
        let Some(newest) = checkpoints.last().map(|mark| mark.start) else { return Ok(0) };
        // Without one whose end is committed, the oldest will be the first.
        let committed = checkpoints.iter().rfind(|mark| mark.end <= self.committed()).or(checkpoints.first());
        let committed = committed.map(|mark| mark.start);
        let is_of_use = |mark: &Mark| match retention {
            Retention::None => mark.start == newest || Some(mark.start) == committed,
            Retention::Milliseconds(_) | Retention::Bytes(_) => mark.start >= base,
        };
        let before = checkpoints.len();
        while let Some(at) = checkpoints.iter().position(|mark| !is_of_use(mark)) {
            self.remove(&checkpoint::path(&self.path, checkpoints[at].start))?;
            checkpoints.remove(at);
        }
        Ok(before - checkpoints.len())
    }

    /// Whether the newest checkpoint's end is committed: none before it is kept for that.
    pub fn is_newest_committed(&self) -> bool {
        self.checkpoints.lock().last().is_none_or(|mark| mark.end <= self.committed())
    }

    /// Where the checkpoint begins before which nothing is needed; None if everything is.
    fn oldest_needed(&self, retention: Retention) -> Option<Lsn> {
        let now = self.clock.now();
        let checkpoints = self.checkpoints.lock();
        let newest = checkpoints.last()?.start;
        match retention {
            Retention::None => Some(newest),
            // The newest that is old enough: from there every moment can be restored that is to be kept.
            Retention::Milliseconds(ms) => {
                let is_old = |mark: &&Mark| now.0.saturating_sub(mark.time.0) >= ms;
                checkpoints.iter().rfind(is_old).map(|mark| mark.start)
            }
            Retention::Bytes(bytes) => {
                let live = self.live.lock();
                let from = |start| live.iter().filter(|segment| segment.start >= start).count() as u64 + 1;
                let fits = |mark: &&Mark| from(mark.start) * self.segment_bytes <= bytes;
                Some(checkpoints.iter().find(fits).map_or(newest, |mark| mark.start))
            }
        }
    }

    fn committed(&self) -> Lsn {
        Lsn(self.committed.load(Ordering::Relaxed))
    }

    /// Where the newest checkpoint begins whose end is committed; without one, where the log may begin.
    fn oldest_committed(&self) -> Lsn {
        let (committed, checkpoints) = (self.committed(), self.checkpoints.lock());
        checkpoints.iter().rfind(|mark| mark.end <= committed).map_or(Lsn::ZERO, |mark| mark.start)
    }

    /// Where the first segment begins that is kept for replicas.
    fn oldest_kept(&self) -> Option<Lsn> {
        let kept_from = (*self.kept_from.lock())?;
        let begins_before = |header: &Header| header.stream.is_some_and(|stream| stream.offset <= kept_from);
        let of_stream = self.live_of_stream();
        let first = of_stream.iter().rfind(|header| begins_before(header)).or(of_stream.first());
        first.map(|header| header.start)
    }

    /// Removes a segment, or makes a spare of it if there are few.
    fn take_away(&self, segment: &Header, kept: &mut Kept) -> io::Result<()> {
        let path = segment.path(&self.path);
        let spares = self.spares.lock().len() + kept.recycled.len();
        if spares >= kept.most || !self.is_whole(&path) {
            return self.remove(&path);
        }
        let spare = self.path.join(format!("spare-{:08}.tmp", segment.number));
        self.fs.rename(&path, &spare)?;
        kept.recycled.push(spare);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match self.fs.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether it is as long as segments are now.
    fn is_whole(&self, path: &Path) -> bool {
        let len = self.fs.open(path, Mode::Read).and_then(|file| file.len());
        len.is_ok_and(|len| len == self.segment_bytes)
    }

    /// The segments, from the oldest to the one that is written to.
    pub fn live(&self) -> Vec<Header> {
        self.live.lock().clone()
    }

    /// How many bytes the segments have that begin there or later.
    pub fn bytes_from(&self, start: Lsn) -> u64 {
        self.live.lock().iter().filter(|segment| segment.start >= start).count() as u64 * self.segment_bytes
    }

    /// How many bytes the segments have in all.
    pub fn bytes(&self) -> u64 {
        (self.live.lock().len() + self.spares.lock().len()) as u64 * self.segment_bytes
    }
}
