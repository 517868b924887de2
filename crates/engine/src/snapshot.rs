//! Snapshots: all keys in an RDB file, `dbfilename` in `dir`.
//!
//! SAVE holds the keyspace and writes. BGSAVE needs no fork: a task of the first worker copies the keys out, some
//! at a time with only their slots locked, and a thread of its own writes, syncs and renames the file.
//!
//! 1. There is one snapshot at a time; the file is replaced in one step, by a whole one. One in the background is given up for the server's
//!    end and for FLUSHALL ([`turn`]), as its file would have less, or more, than what is to be saved.
//! 2. BGSAVE's file holds every key that is there throughout and does not move, each as it was at one moment
//!    while the snapshot ran.
//! 3. At most a few chunks wait for the disk.

pub mod append_only;
mod turn;

use crate::Attention;
use crate::Engine;
use crate::frozen::FrozenKey;
use ::log::ReplicationId;
use keyspace::{Batch, Cursor, DbIndex, Expiry, NewValue, Object, Touch, Unreadable, Usage, ValueRef};
use parking_lot::Mutex;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use sys::UnixMs;
use sys::file::{Fs, Replacement};
use telemetry::log;
use tokio::sync::mpsc::{Receiver, channel};
use turn::{Turn, Turns};
use value::collection::{Collection, CollectionRef};
use value::hash::{FieldExpiry, Hash};
use value::number::{IntBuffer, format_i64};
use value::rdb::Restored;
use value::rdb::file::{FileEntry, FileUsage, FileValue, FileWriter};

/// Keys that are copied out before the worker looks at its clients again.
const STEP_KEYS: usize = 128;
/// How long it waits where a slot is held for long.
const HELD_UP: Duration = Duration::from_millis(5);
/// Bytes that go to the writing thread at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// Chunks that may wait for the disk.
const CHUNKS_MAX: usize = 8;
/// After a failure, save points wait this long.
const RETRY_MS: u64 = 5_000;

/// Under this name a file says beside which log it was written.
pub const LOG_FACT: &str = "tarn-log";

/// Of a file, the moment from which on its keys were taken, in milliseconds.
pub const MOMENT_FACT: &str = "tarn-moment";

/// A place in a stream: a file that was written there holds all that the stream came to before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The stream's name.
    pub id: ReplicationId,
    /// Its bytes before that place.
    pub offset: u64,
    /// The database that is selected there.
    pub database: u32,
}

/// Tells the place of this moment, while nobody writes.
type PlaceNow = Box<dyn Fn() -> Option<Place> + Send + Sync>;

/// What is known of the snapshots of one server.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// When the last good one was finished; when the server started, if there is none.
    pub saved_at: UnixMs,
    /// When the one that runs was asked for.
    pub running_since: Option<UnixMs>,
    /// Whether the last one in the background failed.
    pub failed_last: bool,
    /// When the last one was tried.
    pub tried_at: UnixMs,
    /// How long the last one in the background took.
    pub last_duration_s: Option<u64>,
    /// Good ones since the start.
    pub saves: u64,
    /// The count of changes that the last good one is sure to hold.
    pub changes_saved: u64,
    /// The place in the stream that the last file of all names, if that is one of one moment.
    pub place_saved: Option<Place>,
    /// Keys that the one that runs has copied.
    pub keys_written: u64,
    /// Keys that there were when it began.
    pub keys_total: u64,
    /// Keys loaded at the start.
    pub loaded: u64,
    /// Keys of the file loaded whose time was up.
    pub expired_at_load: u64,
}

/// The state of snapshots.
pub struct Snapshots {
    figures: Mutex<Figures>,
    turns: Arc<Turns>,
    /// Asked for and not begun.
    asked: Mutex<Option<Turn>>,
    /// What the end needs.
    last: Mutex<Last>,
    /// Who knows where in its stream the server is.
    place: OnceLock<PlaceNow>,
}

/// Whether the server's end writes what has changed since the last snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Last {
    /// If there are save points.
    #[default]
    ByPoints,
    /// Yes: what was written while SHUTDOWN saved belongs to it.
    Wanted,
    /// No.
    Unwanted,
}

/// Why a snapshot does not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InProgress;

impl Snapshots {
    /// For a server that starts now.
    pub fn new(now: UnixMs) -> Snapshots {
        let figures = Figures {
            saved_at: now,
            running_since: None,
            failed_last: false,
            tried_at: UnixMs(0),
            last_duration_s: None,
            saves: 0,
            changes_saved: 0,
            place_saved: None,
            keys_written: 0,
            keys_total: 0,
            loaded: 0,
            expired_at_load: 0,
        };
        Snapshots {
            figures: Mutex::new(figures),
            turns: Arc::default(),
            asked: Mutex::default(),
            last: Mutex::default(),
            place: OnceLock::new(),
        }
    }

    /// Names the one who knows where in its stream the server is, who is asked while nobody writes. Once.
    pub fn ask_for_place(&self, place: impl Fn() -> Option<Place> + Send + Sync + 'static) {
        let is_first = self.place.set(Box::new(place)).is_ok();
        assert!(is_first, "there is one who knows");
    }

    fn place(&self) -> Option<Place> {
        self.place.get().and_then(|place| place())
    }

    /// All figures, as they stand.
    pub fn figures(&self) -> Figures {
        *self.figures.lock()
    }

    /// Asks for a snapshot in the background; it begins within a tick.
    ///
    /// # Errors
    /// If there is one already.
    pub fn ask(&self, now: UnixMs) -> Result<(), InProgress> {
        let turn = self.claim(now)?;
        *self.asked.lock() = Some(turn);
        Ok(())
    }

    /// Says what the server's end needs: SHUTDOWN has decided about that.
    pub fn settle(&self, last: Last) {
        *self.last.lock() = last;
    }

    /// Keeps what a start has loaded.
    pub fn note_load(&self, keys: u64, expired: u64) {
        let mut figures = self.figures.lock();
        (figures.loaded, figures.expired_at_load) = (keys, expired);
    }

    fn claim(&self, now: UnixMs) -> Result<Turn, InProgress> {
        let mut figures = self.figures.lock();
        if figures.running_since.is_some() {
            return Err(InProgress);
        }
        figures.begin(now);
        drop(figures);
        Ok(self.turns.take())
    }

    /// Gives up the one in the background: what it goes over is replaced.
    pub fn give_up(&self) {
        self.turns.take();
    }

    /// The same in place of one in the background, which is given up.
    fn claim_instead(&self, now: UnixMs) -> Turn {
        let turn = self.turns.take();
        let mut figures = self.figures.lock();
        if figures.running_since.is_some() {
            log!(Notice, "The snapshot in the background is given up: another takes its place");
        }
        figures.begin(now);
        turn
    }

    fn note_end(&self, turn: &Turn, now: UnixMs, changes: u64, written: Option<Option<Place>>) {
        let mut figures = self.figures.lock();
        if !turn.is_over() {
            figures.running_since = None;
            figures.keys_written = 0;
            figures.keys_total = 0;
        }
        figures.tried_at = now;
        if let Some(place) = written {
            figures.place_saved = place;
            figures.saved_at = now;
            figures.saves += 1;
            // One that was given up a moment too late is not told before the one that took its place.
            figures.changes_saved = figures.changes_saved.max(changes);
        }
    }

    /// Counts keys that the one in the background has copied.
    fn note_copied(&self, turn: &Turn, keys: u64) {
        if !turn.is_over() {
            self.figures.lock().keys_written += keys;
        }
    }
}

impl Figures {
    fn begin(&mut self, now: UnixMs) {
        self.running_since = Some(now);
        (self.keys_written, self.keys_total) = (0, 0);
    }
}

/// Where its file lies.
pub fn path(engine: &Engine) -> PathBuf {
    engine.dir().join(OsString::from_vec(engine.config.dbfilename()))
}

/// Removes what is there of snapshots that were being written when their server was killed. Called once, at the start.
pub fn remove_unfinished(engine: &Engine) {
    if let Err(error) = sys::file::remove_unfinished(&Fs::Real, &path(engine)) {
        log!(Warning, "Can't remove what is left of a snapshot in {}: {error}", engine.dir().display());
    }
}

/// Why no snapshot was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsaved {
    /// There is one.
    InProgress,
    /// A slow script has some of the keys.
    InUse,
}

/// SAVE: writes all keys while nothing else runs. The inner result is that of writing.
///
/// # Errors
/// If none can be begun at this moment.
pub fn save_now(engine: &Engine, batch: &mut Batch<'_>, now: UnixMs) -> Result<io::Result<()>, Unsaved> {
    if !batch.try_hold_all() {
        return Err(Unsaved::InUse);
    }
    let turn = engine.snapshots.claim(now);
    let saved = turn.map(|turn| save_in_turn(engine, batch, now, &turn, Says::Place));
    batch.release();
    saved.map_err(|_| Unsaved::InProgress)
}

/// The same in place of a snapshot in the background, which is given up. None: a slow script has some of the keys, and nothing is changed.
pub fn save_instead(engine: &Engine, batch: &mut Batch<'_>, now: UnixMs) -> Option<io::Result<()>> {
    let holds = batch.try_hold_all();
    holds.then(|| {
        let turn = engine.snapshots.claim_instead(now);
        let saved = save_in_turn(engine, batch, now, &turn, Says::Place);
        batch.release();
        saved
    })
}

/// As [`save_instead`] for a batch that holds everything. What it has done so far may be in no stream yet, so that the file names no place in
/// one.
pub fn save_held_instead(engine: &Engine, batch: &mut Batch<'_>, now: UnixMs) -> io::Result<()> {
    let turn = engine.snapshots.claim_instead(now);
    save_in_turn(engine, batch, now, &turn, Says::Nothing)
}

fn save_in_turn(
    engine: &Engine,
    batch: &mut Batch<'_>,
    now: UnixMs,
    turn: &Turn,
    says: Says,
) -> io::Result<()> {
    let changes = batch.writes();
    let written = write(engine, batch, &path(engine), (now, Leaving::default()), says);
    let result = written.map(|written| written.place);
    engine.snapshots.note_end(turn, engine.clock.now(), changes, result.as_ref().ok().copied());
    if result.is_ok() {
        engine.snapshots.figures.lock().failed_last = false;
        engine.set_attention(Attention::SAVE_FAILED, false);
    }
    match &result {
        Ok(_) => log!(Notice, "DB saved on disk"),
        Err(error) => log!(Warning, "Can't save {}: {error}", path(engine).display()),
    }
    result.map(drop)
}

/// Whether FLUSHALL is to be in the file at once: there are save points, and what is gone must not come back with a crash.
pub fn is_wanted_of_flush(engine: &Engine) -> bool {
    !engine.config.save_points().is_empty() && !engine.attention().contains(Attention::LOADING)
}

/// What a file leaves out of what is there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Leaving {
    /// Keys that cannot be read; otherwise there is no file then.
    pub damage: bool,
    /// Times to live that end by this moment, with the keys and fields kept.
    pub times_by: UnixMs,
}

/// Writes all keys to a file while nothing else runs, and replaces what had its name. Gives how many keys were left out.
///
/// # Errors
/// Those of the disk; the old file is there then.
pub fn write_all(
    engine: &Engine,
    batch: &mut Batch<'_>,
    path: &Path,
    now: UnixMs,
    leaving: Leaving,
) -> io::Result<u64> {
    write(engine, batch, path, (now, leaving), Says::Nothing).map(|written| written.left_out)
}

/// Whether a file says where in the stream it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Place,
    Nothing,
}

/// What has become of a file.
struct Written {
    left_out: u64,
    place: Option<Place>,
}

fn write(
    engine: &Engine,
    batch: &mut Batch<'_>,
    path: &Path,
    (now, leaving): (UnixMs, Leaving),
    says: Says,
) -> io::Result<Written> {
    batch.exclusively(now, Touch::No, |all| {
        let place = (says == Says::Place).then(|| engine.snapshots.place()).flatten();
        let mut file = Replacement::begin(&Fs::Real, path)?;
        let mut writer = begin_file(engine, now, Part::Snapshot, place);
        let mut left_out = 0;
        all.take_passed();
        for db in engine.databases() {
            if all.is_empty(db) {
                continue;
            }
            let mut written = Ok(());
            writer.database(db.0, all.len(db), all.expiring(db));
            let mut write = |object: Object<'_>| {
                add(engine, &mut writer, object, now, leaving.times_by);
                if written.is_ok() && writer.pending_bytes() >= CHUNK_BYTES {
                    written = file.write(&writer.take());
                }
            };
            // What the stream has not said to be gone is there for who goes on with it.
            match place {
                Some(_) => all.for_each_also_over(db, &mut write),
                None => all.for_each(db, &mut write),
            }
            written?;
            let unreadable = all.take_unreadable().filter(|_| !leaving.damage);
            unreadable.map_or(Ok(()), |error| Err(unwritten(&error)))?;
            left_out += all.take_passed();
        }
        file.write(&writer.finish())?;
        file.commit()?;
        Ok(Written { left_out, place })
    })
}

/// A file without what cannot be read would be taken for one with all.
fn unwritten(error: &Unreadable) -> io::Error {
    io::Error::other(format!("{error}; `tarn export --skip-damaged` writes what can be read"))
}

/// Whether the server's end has something to save.
pub fn is_due_at_end(engine: &Engine) -> bool {
    let is_wanted = match *engine.snapshots.last.lock() {
        Last::ByPoints => !engine.config.save_points().is_empty(),
        Last::Wanted => true,
        Last::Unwanted => false,
    };
    is_wanted
        // What is there is not all yet.
        && !engine.attention().contains(Attention::LOADING)
        && !is_saved(engine)
}

/// Whether the file has all there is, and says where in the stream that was.
fn is_saved(engine: &Engine) -> bool {
    let (figures, place) = (engine.snapshots.figures(), engine.snapshots.place());
    engine.keyspace.writes() == figures.changes_saved
        && place.is_none_or(|place| figures.place_saved == Some(place))
}

/// Saves while clients are still there, so that a server that cannot save can stay. A snapshot in the background is given up for it, which
/// has not all of what is to be saved. Waits for no slow script: it might not end. Nothing is saved then, and it is due still.
///
/// # Errors
/// If the file cannot be written; the log says which.
pub fn save_before_end(engine: &Engine) -> io::Result<()> {
    log!(Notice, "Saving the final RDB snapshot before exiting.");
    let is_slow = || engine.keyspace.has_any_slow_holder();
    let batch = engine.keyspace.enter_unless(engine.ending_guest(), is_slow);
    let saved = batch.and_then(|mut batch| save_instead(engine, &mut batch, engine.clock.now()));
    saved.unwrap_or(Ok(()))
}

/// Saves after the last client what has changed since. A snapshot in the background goes no further than this.
///
/// # Errors
/// If the file cannot be written.
pub fn save_at_end(engine: &Engine) -> io::Result<()> {
    if !is_due_at_end(engine) {
        engine.snapshots.turns.take();
        return Ok(());
    }
    log!(Notice, "Saving the final RDB snapshot before exiting.");
    let now = engine.clock.now();
    let saved = save_instead(engine, &mut engine.keyspace.enter(0), now).unwrap_or(Ok(()));
    saved.map_err(|error| sys::file::about(&path(engine))(error))
}

/// Begins a snapshot that was asked for; `is_second` in a tick once a second, when the save points are looked at.
pub fn begin_if_due(engine: &Arc<Engine>, worker: usize, is_second: bool) {
    let now = engine.clock.now();
    if is_second && let Some((seconds, changes)) = due_point(engine, now) {
        log!(Notice, "{changes} changes in {seconds} seconds. Saving...");
        // One that is in progress will do.
        let _ = engine.snapshots.ask(now);
    }
    if let Some(turn) = engine.snapshots.asked.lock().take() {
        tokio::task::spawn_local(run(engine.clone(), worker, turn));
    }
}

fn due_point(engine: &Engine, now: UnixMs) -> Option<(i64, i64)> {
    let figures = engine.snapshots.figures();
    let rests = figures.failed_last && now.0 < figures.tried_at.0 + RETRY_MS;
    if figures.running_since.is_some() || rests {
        return None;
    }
    let changes = engine.keyspace.writes().saturating_sub(figures.changes_saved) as i64;
    let seconds = now.seconds().saturating_sub(figures.saved_at.seconds()) as i64;
    engine.config.save_points().into_iter().find(|point| changes >= point.1 && seconds > point.0)
}

/// One snapshot in the background.
async fn run(engine: Arc<Engine>, worker: usize, turn: Turn) {
    let (began, changes) = (engine.clock.now(), engine.keyspace.writes());
    log!(Notice, "Background saving started");
    let result = match write_in_background(&engine, turn.clone()) {
        Ok((chunks, done)) => {
            copy_out(&engine, worker, &turn, chunks).await.and(done.await.unwrap_or_else(|_| lost()))
        }
        Err(error) => Err(error),
    };
    if result.is_err() && turn.is_over() {
        log!(Notice, "Background saving was given up");
        return;
    }
    let now = engine.clock.now();
    engine.snapshots.note_end(&turn, now, changes, result.as_ref().ok().map(|()| None));
    let mut figures = engine.snapshots.figures.lock();
    figures.failed_last = result.is_err();
    engine.set_attention(Attention::SAVE_FAILED, result.is_err());
    figures.last_duration_s = Some(now.0.saturating_sub(began.0) / 1000);
    drop(figures);
    match result {
        Ok(()) => log!(Notice, "Background saving terminated with success"),
        Err(error) => log!(Warning, "Background saving error: {}: {error}", path(&engine).display()),
    }
}

fn lost() -> io::Result<()> {
    Err(io::Error::other("the writing thread has ended"))
}

/// What the copying task sends; the file is complete only with the last of them.
enum Chunk {
    More(Vec<u8>),
    /// Long values, to be written with this writer, which the task gets back.
    Long(FileWriter, Vec<FrozenKey>, tokio::sync::oneshot::Sender<FileWriter>),
    Last(Vec<u8>),
}

type Writing = (tokio::sync::mpsc::Sender<Chunk>, tokio::sync::oneshot::Receiver<io::Result<()>>);

/// Starts the thread that writes.
fn write_in_background(engine: &Engine, turn: Turn) -> io::Result<Writing> {
    let (sender, receiver) = channel(CHUNKS_MAX);
    let (tell, done) = tokio::sync::oneshot::channel();
    let path = path(engine);
    std::thread::Builder::new().name("snapshot".to_owned()).spawn(move || {
        // Nobody asks any more if the server has ended.
        let _ = tell.send(write_chunks(&path, &turn, receiver));
    })?;
    Ok((sender, done))
}

fn write_chunks(path: &Path, turn: &Turn, mut chunks: Receiver<Chunk>) -> io::Result<()> {
    let mut file = turn.begin(path)?;
    loop {
        match chunks.blocking_recv() {
            Some(Chunk::More(bytes)) => {
                turn.holds()?;
                file.write(&bytes)?;
            }
            Some(Chunk::Long(mut writer, keys, give_back)) => {
                for key in keys {
                    key.write(&mut writer, CHUNK_BYTES, &mut |bytes| {
                        turn.holds()?;
                        file.write(&bytes)
                    })?;
                }
                // Nobody wants it any more if the server has ended.
                let _ = give_back.send(writer);
            }
            Some(Chunk::Last(bytes)) => {
                file.write(&bytes)?;
                return turn.commit(file);
            }
            None => return Err(io::Error::other("the snapshot was given up")),
        }
    }
}

/// Copies all keys to the writing thread. If that has ended, it tells why.
async fn copy_out(
    engine: &Engine,
    worker: usize,
    turn: &Turn,
    chunks: tokio::sync::mpsc::Sender<Chunk>,
) -> io::Result<()> {
    let (began, mut writer) = (Instant::now(), begin_file(engine, engine.clock.now(), Part::Snapshot, None));
    engine.snapshots.figures.lock().keys_total = engine.databases().map(|db| engine.keyspace.len(db)).sum();
    let mut copied = 0;
    for db in engine.databases().filter(|db| !engine.keyspace.is_empty(*db)) {
        writer.database(db.0, engine.keyspace.len(db), engine.keyspace.expiring(db));
        let mut cursor = Cursor(0);
        loop {
            turn.holds()?;
            let Some(step) = copy_step(engine, worker, db, cursor, &mut writer)? else {
                // A script has the slot, or everything.
                tokio::time::sleep(HELD_UP).await;
                continue;
            };
            if !step.long.is_empty() {
                let (give_back, given_back) = tokio::sync::oneshot::channel();
                let long = Chunk::Long(writer, step.long, give_back);
                // If the thread has ended, it tells why.
                let Ok(()) = chunks.send(long).await else { return Ok(()) };
                let Ok(back) = given_back.await else { return Ok(()) };
                writer = back;
            }
            engine.snapshots.note_copied(turn, step.keys);
            copied += step.keys;
            cursor = step.next;
            linger(engine, turn, copied, began).await;
            if writer.pending_bytes() >= CHUNK_BYTES && chunks.send(Chunk::More(writer.take())).await.is_err()
            {
                return Ok(());
            }
            if cursor == Cursor(0) {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    // As above.
    let _ = chunks.send(Chunk::Last(writer.finish())).await;
    Ok(())
}

/// Rests as long as `rdb-key-save-delay` says that the keys copied so far take, for tests that look at a snapshot while it is taken.
async fn linger(engine: &Engine, turn: &Turn, keys: u64, began: Instant) {
    // The delay may be taken back meanwhile.
    while !turn.is_over() && began.elapsed() < time_for_keys(engine, keys) {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Between two looks whether it has rested enough.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// How long so many keys take by `rdb-key-save-delay`, at least.
pub(crate) fn time_for_keys(engine: &Engine, keys: u64) -> Duration {
    Duration::from_micros(match engine.config.rdb_key_save_delay() {
        delay @ 0.. => keys.saturating_mul(delay.unsigned_abs()),
        delay => keys / delay.unsigned_abs(),
    })
}

/// What a step has copied.
struct Step {
    next: Cursor,
    keys: u64,
    /// Those of the keys that are still to be written.
    long: Vec<FrozenKey>,
}

/// Copies some keys; None if it cannot go on at this moment.
fn copy_step(
    engine: &Engine,
    worker: usize,
    db: DbIndex,
    cursor: Cursor,
    writer: &mut FileWriter,
) -> io::Result<Option<Step>> {
    let now = engine.clock.now();
    let (mut keys, mut long) = (0, Vec::new());
    let Some(batch) = engine.keyspace.try_enter(worker) else { return Ok(None) };
    let next = batch.scan_soon(db, cursor, STEP_KEYS, now, |object| {
        keys += 1;
        match FrozenKey::of(engine, object, now) {
            Some(frozen) => long.push(frozen),
            None => add(engine, writer, object, now, UnixMs(0)),
        }
    });
    match batch.take_unreadable() {
        None => Ok(next.map(|next| Step { next, keys, long })),
        Some(error) => Err(unwritten(&error)),
    }
}

/// What a file is: a snapshot, or what append-only files start from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Snapshot,
    Base,
}

fn begin_file(engine: &Engine, now: UnixMs, part: Part, place: Option<Place>) -> FileWriter {
    let mut writer = FileWriter::new();
    writer.aux("redis-ver", command::version::REDIS_VERSION);
    writer.aux("redis-bits", "64");
    writer.aux("ctime", &now.seconds().to_string());
    writer.aux("used-mem", &sys::memory::used_bytes().to_string());
    if let Some(Place { id, offset, database }) = place {
        writer.aux("repl-stream-db", &database.to_string());
        writer.aux("repl-id", &id.to_string());
        writer.aux("repl-offset", &offset.to_string());
    }
    writer.aux("aof-base", if part == Part::Base { "1" } else { "0" });
    writer.aux(MOMENT_FACT, &now.0.to_string());
    // What this holds is in the log, too, or will be if one begins.
    writer.aux(LOG_FACT, &format!("{:016x}", engine.durability.history()));
    for library in engine.scripts.libraries().by_name.values() {
        writer.add_function_library(&library.code);
    }
    writer
}

/// Writes one key, with its use if the eviction policy goes by that, and with its time to live if that ends after `times_by`.
pub(crate) fn add(
    engine: &Engine,
    writer: &mut FileWriter,
    object: Object<'_>,
    now: UnixMs,
    times_by: UnixMs,
) {
    let usage = usage_of(engine, object, now);
    let expires_at = object.expires_at().filter(|at| *at > times_by).map(|at| at.0);
    if let Some(hash) = with_fields_kept(engine, object, now, times_by) {
        if !hash.is_empty() {
            writer.entry(object.key(), FileValue::Collection(hash.as_ref()), expires_at, usage);
        }
        return;
    }
    with_value(object, |value| writer.entry(object.key(), value, expires_at, usage));
}

/// How much an object was used, if the eviction policy goes by that.
pub(crate) fn usage_of(engine: &Engine, object: Object<'_>, now: UnixMs) -> Option<FileUsage> {
    let policy = engine.keyspace.policy();
    let word = engine.config.maxmemory_policy().word();
    match () {
        () if policy.eviction().counts_frequency() => {
            Some(FileUsage::Frequency(object.frequency(policy, now)))
        }
        () if word.ends_with("lru") => Some(FileUsage::IdleSeconds(object.idle_seconds(now))),
        () => None,
    }
}

/// A hash as it was at `now`, without the times of its fields that end by `times_by`. None: no field has one.
fn with_fields_kept(
    engine: &Engine,
    object: Object<'_>,
    now: UnixMs,
    times_by: UnixMs,
) -> Option<Collection> {
    let ValueRef::Collection(CollectionRef::Hash(hash)) = object.value() else { return None };
    hash.next_expiry().filter(|_| times_by > UnixMs(0))?;
    let (mut kept, thresholds) = (Hash::default(), engine.settings.thresholds());
    let (mut name_digits, mut value_digits) = (IntBuffer::new(), IntBuffer::new());
    hash.for_each(now, |name, value| {
        let (name, value) = (name.bytes(&mut name_digits), value.bytes(&mut value_digits));
        kept.set(name, value, FieldExpiry::Clear, &thresholds, now);
        let later = hash.expires_at(name, now).flatten().filter(|at| *at > times_by);
        later.into_iter().for_each(|at| kept.set_expiry(name, Some(at)));
    });
    Some(Collection::Hash(kept))
}

/// Shows an object's value as files hold it.
pub fn with_value(object: Object<'_>, show: impl FnOnce(FileValue<'_>)) {
    let mut digits = IntBuffer::new();
    show(match object.value() {
        ValueRef::Bytes(bytes) => FileValue::String(bytes),
        ValueRef::Int(number) => FileValue::String(format_i64(number, &mut digits)),
        ValueRef::Collection(collection) => FileValue::Collection(collection),
    });
}

/// Puts a key that a file held into the keyspace.
pub fn put(batch: &Batch<'_>, db: DbIndex, entry: FileEntry, now: UnixMs) {
    let keyspace = batch.keyspace();
    let key = keyspace.key(db, &entry.key);
    let keys = [key];
    let mut edit = batch.edit(&keys, now, Touch::No);
    let expiry = entry.expires_at_ms.map_or(Expiry::Clear, |at| Expiry::At(UnixMs(at)));
    match entry.value {
        Restored::String(bytes) => edit.set(&key, NewValue::from_bytes(&bytes), expiry),
        Restored::Collection(collection) => edit.put_collection(&key, collection, expiry),
    }
    // A clock of the other policy's kind would mean nothing.
    let counts_frequency = keyspace.policy().eviction().counts_frequency();
    match entry.usage {
        Some(FileUsage::IdleSeconds(seconds)) if !counts_frequency => {
            edit.set_usage(&key, Usage::IdleSeconds(seconds));
        }
        Some(FileUsage::Frequency(frequency)) if counts_frequency => {
            edit.set_usage(&key, Usage::Frequency(frequency));
        }
        _ => {}
    }
    edit.finish();
}
