//! A log that is open: appending, the states of durability, failing and going on again.
//!
//! Workers append and ask; the flusher (a thread of the log's own, or a test by hand) does turns. Invariants:
//! 1. `durable` only grows, and only to what a sync without error covers.
//! 2. While the log has failed, `durable` stays; what was appended is kept and written anew.
//! 3. Nothing that a worker calls waits for the disk.

use crate::buffer::Buffer;
use crate::directory::Directory;
use crate::limits::{RETRY_INTERVAL_MS, SYNC_INTERVAL_MS, WRITE_INTERVAL_MS};
use crate::stream_reader::StreamReader;
use crate::threads::Threads;
use crate::writer::{Until, Writer};
use crate::{
    CheckpointWriter, Failure, Flushing, Lsn, Options, Recovery, Refusal, ReplicationId, Retention, Retired,
    Span, Stream, SyncPolicy, Unit, recovery,
};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;
use sys::file::Fs;
use sys::{Clock, UnixMs};

/// Is told what becomes of what was appended, by the thread that flushes. Must not block and must not append.
pub trait Observer: Send + Sync {
    /// These bytes of the stream may go to replicas: they are durable, or, where the policy does not sync at once, written. Each call
    /// goes on where the one before ended, unless the log has become another stream, or was not told to say so meanwhile
    /// ([`Log::set_streamed`]). Told before [`Observer::committed`].
    fn streamed(&self, from: u64, bytes: &[u8]) {
        let _ = (from, bytes);
    }

    /// The log is durable up to here, further than before; and where it was full, there may be room again.
    fn committed(&self, up_to: Lsn);

    /// The log does not go on; told once until [`Observer::resumed`].
    fn failed(&self, failure: &Failure);

    /// The log goes on: all that was appended before the failure is durable.
    fn resumed(&self);
}

/// A log that is open. Dropping it without [`Log::close`] is what a crash does, as far as a program can.
#[derive(Debug)]
pub struct Log {
    shared: Arc<Shared>,
    threads: Option<Threads>,
}

/// What the log is doing, for INFO.
#[derive(Clone, Debug)]
pub struct Status {
    /// The end of what was appended.
    pub appended: Lsn,
    /// The end of what was handed to the operating system.
    pub written: Lsn,
    /// The end of what is on disk.
    pub durable: Lsn,
    /// Memory of records that are not durable, bytes.
    pub buffer_bytes: usize,
    /// Segments, and their bytes with the spare ones.
    pub segments: usize,
    /// Bytes of all segments.
    pub segment_bytes: u64,
    /// Where the oldest segment begins.
    pub oldest: Lsn,
    /// Syncs that were done since the log was opened.
    pub syncs: u64,
    /// How long the last turn with a sync took, microseconds.
    pub last_sync_us: u64,
    /// Why the log does not go on.
    pub failure: Option<Failure>,
}

/// What the log's handle and its threads share.
pub(crate) struct Shared {
    buffer: Buffer,
    written: AtomicU64,
    durable: AtomicU64,
    policy: AtomicU8,
    sync_requested: AtomicBool,
    /// A fresh segment is to be begun, whatever room there is.
    is_segment_wanted: AtomicBool,
    /// Somebody follows the stream.
    is_streamed: AtomicBool,
    /// What is appended goes to no file.
    rests: AtomicBool,
    has_failed: AtomicBool,
    failure: Mutex<Option<Failure>>,
    writer: Mutex<Turning>,
    pub directory: Arc<Directory>,
    observer: Arc<dyn Observer>,
    clock: Clock,
    syncs: AtomicU64,
    last_sync_us: AtomicU64,
}

struct Turning {
    writer: Writer,
    last_sync: UnixMs,
    last_attempt: UnixMs,
    is_sealed: bool,
}

/// What a turn left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing until something is appended.
    Nothing,
    /// Something that is not due for so many milliseconds.
    After(u64),
}

impl Log {
    /// A log that has something to go on from also starts where the disk is full, as one that has failed for that.
    pub(crate) fn start(
        directory: Arc<Directory>,
        mut writer: Writer,
        options: &Options,
        observer: Arc<dyn Observer>,
        is_new: bool,
    ) -> Result<Log, Failure> {
        let failure = match writer.begin() {
            Ok(()) => None,
            Err(failure) if failure.is_full() && !is_new => Some(failure),
            Err(failure) => return Err(failure),
        };
        let end = writer.durable();
        let block_bytes = options.block_bytes();
        let now = options.clock.now();
        let turning = Turning { writer, last_sync: now, last_attempt: now, is_sealed: false };
        let shared = Arc::new(Shared {
            buffer: Buffer::new(end, block_bytes, options.buffer_bytes_max),
            written: AtomicU64::new(end.0),
            durable: AtomicU64::new(end.0),
            policy: AtomicU8::new(options.sync as u8),
            sync_requested: AtomicBool::new(false),
            is_segment_wanted: AtomicBool::new(false),
            is_streamed: AtomicBool::new(false),
            rests: AtomicBool::new(false),
            has_failed: AtomicBool::new(failure.is_some()),
            failure: Mutex::new(failure.clone()),
            writer: Mutex::new(turning),
            directory,
            observer,
            clock: options.clock.clone(),
            syncs: AtomicU64::new(0),
            last_sync_us: AtomicU64::new(0),
        });
        if let Some(failure) = &failure {
            shared.observer.failed(failure);
        }
        let threads = match options.flushing {
            Flushing::Threads => Some(Threads::start(&shared)?),
            Flushing::ByHand => None,
        };
        Ok(Log { shared, threads })
    }

    /// Appends the effects of a record: RESP requests that were executed together, in one or more databases. For who follows the
    /// stream SELECT, MULTI and EXEC are put round them where these are needed. Gives the Lsn up to which the log must be durable for
    /// the record to be.
    ///
    /// Called while the slots of the keys are held, so that the log's order is the execution order of each key. Never
    /// waits for the disk and never fails: whoever executes writes asks [`Log::writable`] and [`Log::is_full`] before.
    /// Says nothing to the flusher: see [`Log::nudge`].
    ///
    /// # Panics
    /// If there are none, or the database is beyond `DATABASES_MAX`.
    #[inline]
    pub fn append_effects(&self, span: Span, time: UnixMs, effects: &[u8]) -> Lsn {
        self.shared.buffer.append_effects(span, time, effects)
    }

    /// The same for effects that lie in several parts, cut anywhere. They take memory once: each part is freed as it is copied.
    ///
    /// # Panics
    /// As [`Log::append_effects`].
    pub fn append_parts(&self, span: Span, time: UnixMs, parts: Vec<Vec<u8>>) -> Lsn {
        self.shared.buffer.append_parts(span, time, parts)
    }

    /// The same for a record that is to be in the log as it is; `database` is the one that its first request is for.
    ///
    /// # Panics
    /// As [`Log::append_effects`].
    pub fn append(&self, database: u32, time: UnixMs, payload: &[u8]) -> Lsn {
        self.shared.buffer.append(database, time, payload)
    }

    /// Appends what was done on a server that follows a master: its effects, requests in parts that are cut anywhere, and what the
    /// master's stream has of it. Both are one record. Either may be empty: a heartbeat has no effect, and what is written here only is
    /// in nobody's stream.
    ///
    /// # Panics
    /// If both are empty, or as [`Log::append_effects`].
    pub fn append_unit(&self, unit: &Unit<'_>, effects: Vec<Vec<u8>>) -> Lsn {
        self.shared.buffer.append_unit(unit, effects)
    }

    /// The same where what the master's stream has is the effects, all of them in the unit's database.
    ///
    /// # Panics
    /// As [`Log::append_effects`].
    #[inline]
    pub fn append_unit_as_sent(&self, unit: &Unit<'_>) -> Lsn {
        self.shared.buffer.append_unit_as_sent(unit)
    }

    /// Appends requests that have no effect, for whoever reads the stream, in the database in which they are to find them: it is selected in
    /// front, unless it is.
    ///
    /// # Panics
    /// As [`Log::append_effects`].
    pub fn append_told(&self, database: u32, time: UnixMs, requests: &[u8]) -> Lsn {
        self.shared.buffer.append_told(database, time, requests)
    }

    /// Wants what was appended to be written, and wakes the flusher if it sleeps. A worker calls this, with no slot held, when
    /// it has appended something and has nothing else to do, or enough has gathered.
    #[inline]
    pub fn nudge(&self) {
        if let Some(threads) = &self.threads {
            threads.nudge();
        }
    }

    /// Whether writes may be executed.
    ///
    /// # Errors
    /// Why not. It goes away by itself when the log has written all that it holds.
    #[inline]
    pub fn writable(&self) -> Result<(), Failure> {
        if !self.shared.has_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.shared.failure.lock().clone().map_or(Ok(()), Err)
    }

    /// Has the next record select its database, whichever is selected, and gives where it will begin: a place from which somebody who
    /// knows nothing of what was selected before can read the stream.
    pub fn begin_selection(&self) -> Lsn {
        self.shared.buffer.forget_selected()
    }

    /// Whether the disk is so far behind that no writes should be executed for now; [`Observer::committed`] tells when to
    /// ask again.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.shared.buffer.is_full()
    }

    /// Holds at most so many bytes of memory for records that are not durable from now on, or as many as the option says if that is less.
    pub fn set_buffer_bytes_max(&self, bytes: usize) {
        self.shared.buffer.set_held_bytes_max(bytes);
    }

    /// Memory of the blocks that come and go with what waits for the disk, as the allocator counts it, bytes: none a while after
    /// nothing waits. And what `read` gives while none of them comes or goes.
    pub fn passing_beside<T>(&self, read: impl FnOnce() -> T) -> (usize, T) {
        self.shared.buffer.passing_beside(read)
    }

    /// Frees those of them that nobody has needed since this was last called: memory is short, or time has passed.
    #[inline]
    pub fn let_unused_go(&self) {
        self.shared.buffer.let_unused_go();
    }

    /// The end of the last record that was appended.
    #[inline]
    pub fn appended(&self) -> Lsn {
        self.shared.buffer.appended()
    }

    /// Up to where the operating system has it: survives the end of the process.
    #[inline]
    pub fn written(&self) -> Lsn {
        Lsn(self.shared.written.load(Ordering::Acquire))
    }

    /// Up to where it is on disk: survives a power cut. Under every policy.
    #[inline]
    pub fn durable(&self) -> Lsn {
        Lsn(self.shared.durable.load(Ordering::Acquire))
    }

    /// When the log syncs.
    pub fn sync_policy(&self) -> SyncPolicy {
        self.shared.policy()
    }

    /// Syncs by another policy from now on.
    pub fn set_sync_policy(&self, policy: SyncPolicy) {
        self.shared.policy.store(policy as u8, Ordering::Release);
        self.nudge();
    }

    /// Writes, and syncs as the policy says, whatever has been appended. With [`Flushing::ByHand`] the only one who does;
    /// otherwise the log's thread does it by itself.
    pub fn flush(&self) {
        self.shared.turn();
    }

    /// Rests for a moment, for one who waits until something is durable; where nobody else flushes, it is done here.
    pub fn await_disk(&self, moment: Duration) {
        match &self.threads {
            Some(_) => std::thread::sleep(moment),
            None => self.flush(),
        }
    }

    /// Where its files are.
    pub fn fs(&self) -> &Fs {
        &self.shared.directory.fs
    }

    /// Asks for a sync soon, whatever the policy; [`Observer::committed`] tells when it is done.
    pub fn request_sync(&self) {
        self.shared.sync_requested.store(true, Ordering::Release);
        self.nudge();
    }

    /// Begins a checkpoint at `start`: the end of the log at a moment before the first of its content is copied.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn begin_checkpoint(&self, start: Lsn) -> io::Result<CheckpointWriter> {
        let directory = &self.shared.directory;
        CheckpointWriter::begin(
            &directory.fs,
            &directory.path,
            directory.history,
            start,
            self.shared.clock.now(),
        )
    }

    /// Completes a checkpoint. `end` is the log's end at a moment after the last of its content was copied; the log must
    /// be durable up to there (see [`Log::request_sync`]), since the checkpoint holds effects up to there.
    ///
    /// # Errors
    /// If the disk refuses, or the log is not durable up to `end`. The checkpoint is gone then.
    pub fn finish_checkpoint(&self, checkpoint: CheckpointWriter, end: Lsn) -> io::Result<()> {
        if self.durable() < end {
            return Err(io::Error::other("the log is not durable up to the checkpoint's end"));
        }
        // In this order: what is passed by counts as durable only after it shows that the log rests.
        let start = checkpoint.start();
        self.refuse_ended(start)?;
        let mark = checkpoint.complete(end)?;
        self.shared.directory.add_checkpoint(mark);
        self.refuse_ended(start)
    }

    /// Fails where the log that a checkpoint belongs to, which begins at `start`, has ended: another may have begun.
    ///
    /// # Errors
    /// It has.
    fn refuse_ended(&self, start: Lsn) -> io::Result<()> {
        match self.rests() || start < self.shared.directory.first_start() {
            true => Err(io::Error::new(io::ErrorKind::Interrupted, "the log has ended")),
            false => Ok(()),
        }
    }

    /// Where the newest checkpoint begins, or 0: a start replays from there.
    pub fn last_checkpoint(&self) -> Lsn {
        self.shared.directory.last_checkpoint()
    }

    /// Length of the segments that a start replays, the room in them included.
    pub fn bytes_to_replay(&self) -> u64 {
        self.shared.directory.bytes_from(self.last_checkpoint())
    }

    /// Length of a segment.
    pub fn segment_bytes(&self) -> u64 {
        self.shared.directory.segment_bytes
    }

    /// Whether the log that is written began beside clients, in this process, and has no checkpoint yet.
    pub fn lacks_checkpoint(&self) -> bool {
        self.last_checkpoint() < self.shared.directory.first_start()
    }

    /// Removes the checkpoints and segments that neither a start nor `retention` needs.
    ///
    /// # Errors
    /// The first of the disk; the log itself goes on.
    pub fn retire(&self, retention: Retention) -> io::Result<Retired> {
        self.shared.directory.retire(retention)
    }

    /// Takes as little of the disk beforehand as can be, or not any more.
    pub fn save_space(&self, on: bool) {
        self.shared.directory.save_space(on);
    }

    /// What segments take of the disk that are kept for what is written next.
    pub fn spare_bytes(&self) -> u64 {
        self.shared.directory.spare_bytes()
    }

    /// Gives up the space of segments that are kept for what is written next.
    pub fn drop_spares(&self) {
        self.shared.directory.drop_spares();
    }

    /// What the log is as a stream, seen from the end of what is on disk: nobody is told of more. One that is none has the id
    /// [`ReplicationId::NONE`].
    pub fn stream(&self) -> Stream {
        self.shared.directory.stream().unwrap_or_else(|| Stream::none(self.durable()))
    }

    /// Gives the stream a new name that nobody has, for all that is appended from now on. The next turn of the flusher begins a
    /// segment that says so.
    pub fn rename_stream(&self) {
        self.shared.directory.change_stream(|stream| stream.map(Stream::renamed));
        self.shared.is_segment_wanted.store(true, Ordering::Release);
        self.nudge();
    }

    /// Has what is appended from now on be another stream, whose offset and names these are; None: it is no stream. When it returns, the
    /// directory says so. Waits for the disk; nobody appends to the stream meanwhile, and all that was appended to it is durable. What is in
    /// nobody's stream may come all the time.
    ///
    /// # Errors
    /// It is not, or the disk refuses.
    pub fn begin_stream(&self, stream: Option<Stream>) -> io::Result<()> {
        self.change_stream(stream, None)
    }

    /// Has what is appended from now on be no stream until [`Log::begin_stream`], because other data is to take the place of all. A start
    /// that finds a checkpoint which begins behind this goes on with it, and with the stream that is named here; one that does not, with
    /// what was before. Whoever calls this has appended a record since the last checkpoint began.
    ///
    /// # Errors
    /// As of [`Log::begin_stream`].
    pub fn expect_stream(&self, coming: Stream) -> io::Result<()> {
        self.change_stream(None, Some(coming))
    }

    fn change_stream(&self, stream: Option<Stream>, coming: Option<Stream>) -> io::Result<()> {
        let mut turning = self.shared.writer.lock();
        let offset = |stream: Option<Stream>| stream.map(|stream| stream.offset);
        let expected = offset(self.shared.directory.stream());
        self.shared.finish_turning(&mut turning).map_err(|failure| failure_of_disk(&failure))?;
        let (at, before) = (turning.writer.durable(), self.shared.directory.stream());
        if offset(before) != expected {
            return Err(io::Error::other("the stream is not durable up to its end"));
        }
        self.shared.directory.expect_stream(coming);
        self.shared.directory.change_stream(|_| stream.map(|stream| Stream { at, ..stream }));
        let begun = turning.writer.begin();
        let error = begun.as_ref().err().map(failure_of_disk);
        if error.is_some() {
            self.shared.directory.change_stream(|_| before);
        }
        self.shared.publish(&mut turning, begun);
        error.map_or(Ok(()), Err)
    }

    /// Ends the files: what was appended is on disk, and what is appended from now on goes to no file and counts as durable at once. The stream
    /// goes on, and so do positions. The files stay as they are.
    ///
    /// # Errors
    /// Something of what was appended is not on disk, and will not be. The log rests all the same.
    pub fn rest(&self) -> Result<(), Failure> {
        let mut turning = self.shared.writer.lock();
        self.shared.buffer.take(&mut turning.writer.held);
        let ended = turning.writer.rest();
        self.shared.rests.store(true, Ordering::Release);
        self.shared.publish(&mut turning, Ok(()));
        ended
    }

    /// Writes to files again from now on. As with a log that begins beside clients, these are worth nothing before the first checkpoint that
    /// begins behind this; until then a start goes by those that were there.
    ///
    /// # Errors
    /// The disk refuses: the log rests on.
    pub fn begin_again(&self) -> io::Result<()> {
        let mut turning = self.shared.writer.lock();
        self.shared.buffer.take(&mut turning.writer.held);
        let begun = turning.writer.begin_again();
        self.shared.rests.store(begun.is_err(), Ordering::Release);
        self.shared.publish(&mut turning, Ok(()));
        begun.map_err(|failure| failure_of_disk(&failure))
    }

    /// Whether what is appended goes to no file now.
    pub fn rests(&self) -> bool {
        self.shared.rests.load(Ordering::Acquire)
    }

    /// Has the observer told of the stream from the next turn on, or not any more.
    pub fn set_streamed(&self, on: bool) {
        self.shared.is_streamed.store(on, Ordering::Release);
    }

    /// Reads the stream from an offset on, up to what is durable now. None: that is not there, or not any more.
    ///
    /// # Errors
    /// That the disk does not read, or damage.
    pub fn read_stream(&self, from: u64) -> Result<Option<StreamReader>, Refusal> {
        if self.rests() {
            return Ok(None);
        }
        StreamReader::open(&self.shared.directory, from)
    }

    /// What the directory held where the stream of this name was at an offset, or at the end of the last record before it, and which stream
    /// that is there; without a name, whatever it was called. None: it does not go back so far. Nothing is to be retired meanwhile, and all that is asked for is durable.
    ///
    /// # Errors
    /// That the disk does not read, or damage.
    pub fn look_back(
        &self,
        id: Option<ReplicationId>,
        offset: u64,
    ) -> Result<Option<(Recovery, Stream)>, Refusal> {
        let directory = &self.shared.directory;
        recovery::look_back(&directory.fs, &directory.path, (id, offset), self.durable())
    }

    /// Keeps the segments that hold the stream from this offset on, whatever checkpoints there are; None: no more than a start needs.
    pub fn keep_stream_from(&self, offset: Option<u64>) {
        self.shared.directory.keep_stream_from(offset);
    }

    /// Keeps the newest checkpoint that ends by then, with the log from there, whatever later ones there are: what is behind may have to be
    /// given up ([`Log::look_back`]). None: no more than a start needs.
    pub fn keep_before(&self, committed: Option<Lsn>) {
        self.shared.directory.keep_before(committed);
    }

    /// Whether nothing is kept for [`Log::keep_before`] that the newest checkpoint has not replaced.
    pub fn is_checkpoint_committed(&self) -> bool {
        self.shared.directory.is_newest_committed()
    }

    /// What all files of the log have in common, and no other log's.
    pub fn history(&self) -> u64 {
        self.shared.directory.history
    }

    /// What the log is doing.
    pub fn status(&self) -> Status {
        let live = self.shared.directory.live();
        Status {
            appended: self.appended(),
            written: self.written(),
            durable: self.durable(),
            buffer_bytes: self.shared.buffer.held_bytes(),
            segments: live.len(),
            segment_bytes: self.shared.directory.bytes(),
            oldest: live.first().map_or(Lsn::ZERO, |oldest| oldest.start),
            syncs: self.shared.syncs.load(Ordering::Relaxed),
            last_sync_us: self.shared.last_sync_us.load(Ordering::Relaxed),
            failure: self.writable().err(),
        }
    }

    /// Makes all that was appended durable and ends the log. Nothing may be appended any more.
    ///
    /// # Errors
    /// Why that could not be done.
    pub fn close(mut self) -> Result<(), Failure> {
        if let Some(threads) = self.threads.take() {
            threads.stop();
        }
        self.shared.finish()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            threads.stop();
        }
    }
}

impl Shared {
    pub fn policy(&self) -> SyncPolicy {
        SyncPolicy::from_u8(self.policy.load(Ordering::Acquire))
    }

    /// Whether something was appended that is not written, or a sync is asked for.
    pub fn has_work(&self) -> bool {
        self.sync_requested.load(Ordering::Acquire)
            || self.is_segment_wanted.load(Ordering::Acquire)
            || self.buffer.appended().0 > self.written.load(Ordering::Acquire)
    }

    /// Takes what was appended as far as the policy says.
    pub fn turn(&self) -> Left {
        let mut turning = self.writer.lock();
        let now = self.clock.now();
        let has_failed = self.has_failed.load(Ordering::Acquire);
        // A clock that was set back says nothing of how long ago that was: it is due.
        let since = |before: UnixMs| now.0.checked_sub(before.0).unwrap_or(u64::MAX);
        let since_attempt = since(turning.last_attempt);
        if has_failed && since_attempt < RETRY_INTERVAL_MS {
            return Left::After(RETRY_INTERVAL_MS - since_attempt);
        }
        turning.last_attempt = now;
        self.buffer.take(&mut turning.writer.held);
        let since_sync = since(turning.last_sync);
        let until = match self.policy() {
            _ if has_failed || self.sync_requested.swap(false, Ordering::AcqRel) => Until::Durable,
            SyncPolicy::Always => Until::Durable,
            // What is not synced is held, each turn's in a block of its own.
            _ if self.buffer.is_nearly_full() => Until::Durable,
            SyncPolicy::EverySecond if since_sync >= SYNC_INTERVAL_MS => Until::Durable,
            SyncPolicy::EverySecond | SyncPolicy::Never => Until::Written,
        };
        let has_work = turning.writer.has_unwritten();
        let is_segment_wanted = self.is_segment_wanted.swap(false, Ordering::AcqRel);
        let until = if is_segment_wanted { Until::Durable } else { until };
        let mut result = self.advance(&mut turning, until);
        if is_segment_wanted && result.is_ok() {
            // After a failure the log goes on with a fresh one anyway.
            result = turning.writer.begin();
        }
        self.publish(&mut turning, result);
        match self.policy() {
            _ if self.has_failed.load(Ordering::Acquire) => Left::After(RETRY_INTERVAL_MS),
            SyncPolicy::Never if has_work => Left::After(WRITE_INTERVAL_MS),
            SyncPolicy::EverySecond if !turning.writer.held.is_empty() => {
                Left::After(SYNC_INTERVAL_MS.saturating_sub(since_sync).max(1))
            }
            _ => Left::Nothing,
        }
    }

    fn advance(&self, turning: &mut Turning, until: Until) -> Result<(), Failure> {
        let has_work = !turning.writer.held.is_empty();
        if !has_work && !self.has_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let begun = self.clock.now_us();
        turning.is_sealed = false;
        let result = turning.writer.advance(until);
        if until == Until::Durable {
            turning.last_sync = self.clock.now();
            let took = self.clock.now_us().saturating_sub(begun);
            self.last_sync_us.store(took, Ordering::Relaxed);
        }
        result
    }

    fn publish(&self, turning: &mut Turning, result: Result<(), Failure>) {
        let writer = &mut turning.writer;
        self.syncs.store(writer.syncs, Ordering::Relaxed);
        self.written.store(writer.written().0, Ordering::Release);
        match self.is_streamed.load(Ordering::Acquire) {
            true => {
                let until = if self.policy() == SyncPolicy::Always { Until::Durable } else { Until::Written };
                writer.tell(until, |from, bytes| self.observer.streamed(from, bytes));
            }
            false => writer.tell_nobody(),
        }
        writer.take_released().for_each(|block| self.buffer.give_back(block));
        let durable = writer.durable();
        if durable.0 > self.durable.swap(durable.0, Ordering::AcqRel) {
            self.observer.committed(durable);
        }
        let had_failed = self.has_failed.load(Ordering::Acquire);
        match result {
            Ok(()) if had_failed => {
                *self.failure.lock() = None;
                self.has_failed.store(false, Ordering::Release);
                self.observer.resumed();
            }
            Ok(()) => {}
            Err(failure) => {
                *self.failure.lock() = Some(failure.clone());
                self.has_failed.store(true, Ordering::Release);
                if !had_failed {
                    self.observer.failed(&failure);
                }
            }
        }
    }

    /// Writes a mark behind the last block once nothing has been appended for a while.
    pub fn rest(&self) {
        let mut turning = self.writer.lock();
        let is_idle = turning.writer.held.is_empty() && !self.has_failed.load(Ordering::Acquire);
        if is_idle && !turning.is_sealed {
            turning.is_sealed = true;
            // The mark is a kindness to a later recovery; if it fails, the next record begins a fresh segment.
            let _ = turning.writer.seal();
        }
    }

    fn finish(&self) -> Result<(), Failure> {
        let mut turning = self.writer.lock();
        let result = self.finish_turning(&mut turning);
        drop(turning);
        result.map(|()| self.rest())
    }

    /// Makes durable what was appended.
    fn finish_turning(&self, turning: &mut Turning) -> Result<(), Failure> {
        self.buffer.take(&mut turning.writer.held);
        let result = self.advance(turning, Until::Durable);
        self.publish(turning, result.clone());
        result
    }
}

fn failure_of_disk(failure: &Failure) -> io::Error {
    io::Error::new(failure.kind, failure.to_string())
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shared").field("buffer", &self.buffer).finish_non_exhaustive()
    }
}
