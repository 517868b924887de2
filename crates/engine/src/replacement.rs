//! Other data take the place of all that is here, while clients are told that they are being loaded: a full copy of a master's, or what
//! the directory itself held at an earlier place of the stream ([`rewind`]). Or a copy is loaded beside what clients are shown, and takes its
//! place at one moment ([`load_beside`], [`take_over`]).
//!
//! 1. They are read once before anything is given up for them: what is damaged does no harm.
//! 2. In editions with a log what was there before counts until a checkpoint with the new is complete: a crash leaves the one or the other,
//!    each with the stream that it belongs to.
//! 3. Nothing of them is in the log behind that place: it begins there, as behind an import.
//!
//! Thread rule: any thread, one at a time, in the place of a guest of the keyspace.

use crate::Engine;
use crate::durability::checkpoint::{self, Pace};
use crate::durability::{self, Durability, Hands};
use crate::import::rdb::{self, Expired};
use crate::scripts::{Libraries, libraries};
use crate::{Attention, loading};
use ::log::{Log, Recovery, ReplicationId, Stream, Unit};
use keyspace::{DbIndex, Exclusive, Keyspace, Touch};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use sys::prng::entropy_seed;
use telemetry::log;
use value::rdb::file::FileEntry;

/// Keys between two calls of whoever has to look after something else meanwhile.
const KEYS_BETWEEN_CALLS: u64 = 512;

/// Why a copy did not take the place of all.
#[derive(Debug)]
pub enum Failure {
    /// What was there is there still.
    Kept(io::Error),
    /// It is gone, and there is no log that has it: the keyspace is empty.
    Emptied(io::Error),
    /// It is gone from memory, and the log has it: whoever goes on from here must start anew.
    Torn(io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Kept(error) | Failure::Emptied(error) | Failure::Torn(error) => error.fmt(f),
        }
    }
}

/// What is known of a copy that was read through.
pub struct Checked {
    /// Its libraries.
    pub libraries: Libraries,
    /// From which place of the stream on it is of one moment, if it says so.
    pub whole_from: Option<u64>,
    /// The database that is selected in the stream behind it.
    pub selected: u32,
}

/// Reads a copy through while it comes, and keeps nothing of it but its libraries, which are made here. It goes to a file of this name.
///
/// # Errors
/// One sentence that says what is wrong with it.
pub fn check(engine: &Engine, path: &Path, source: impl io::Read) -> io::Result<Checked> {
    read_through(engine, path, source, |_, _| Ok(()))
}

/// The same, and loads it beside what is here, where there is no store: it is read once.
///
/// # Errors
/// As [`check`]. All is as it was.
pub fn load_coming(engine: &Engine, path: &Path, source: impl io::Read) -> io::Result<(Checked, Loaded)> {
    let keyspace = twin(engine);
    let checked = loading::with_loaders(engine, &keyspace, |loaders| {
        let checked = read_through(engine, path, source, |db, entry| {
            loaders.take(db, entry);
            Ok(())
        });
        loaders.finish();
        checked
    })?;
    Ok((checked, Loaded(keyspace)))
}

fn read_through(
    engine: &Engine,
    path: &Path,
    mut source: impl io::Read,
    take: impl FnMut(DbIndex, FileEntry) -> io::Result<()>,
) -> io::Result<Checked> {
    let (loaded, codes) = rdb::read_coming(engine, path, &mut source, take)?;
    // What stands behind the end is nobody's, and need not be kept.
    drop(source);
    let selected = loaded
        .selected
        .ok_or_else(|| io::Error::other("The master's copy names no database that there can be"))?;
    let made = libraries::made_of(engine, &codes).map_err(|line| {
        io::Error::other(format!(
            "a library of the copy cannot be loaded: {}",
            String::from_utf8_lossy(&line)
        ))
    });
    Ok(Checked { libraries: made?, whole_from: loaded.whole_from, selected })
}

/// Puts a copy in the place of all keys and functions. What is appended to the log from then on is `stream`. Calls `meanwhile` often.
///
/// # Errors
/// What became of what was there.
pub fn replace(
    Alone(Unwritten(engine)): &Alone<'_>,
    (path, libraries): (&Path, Libraries),
    stream: Stream,
    meanwhile: &mut dyn FnMut() -> io::Result<()>,
) -> Result<(), Failure> {
    let log = engine.durability.log();
    if let Some(log) = log {
        give_way(engine, log, stream).map_err(Failure::Kept)?;
    }
    clear(engine);
    let loaded = load(engine, (&engine.keyspace, path), meanwhile).and_then(|()| {
        set_libraries(engine, libraries);
        log.map_or(Ok(()), |log| settle(engine, log, stream, meanwhile))
    });
    loaded.map_err(|error| {
        if log.is_some() {
            return Failure::Torn(error);
        }
        clear(engine);
        Failure::Emptied(error)
    })
}

/// Says that a copy is being loaded beside what clients are shown: they may write nothing, since it would be gone, nor do what Redis forbids then.
pub struct Beside<'e>(&'e Engine);

impl Beside<'_> {
    /// From here on. Calls `meanwhile` as long as a script is slow.
    ///
    /// # Errors
    /// That of `meanwhile`.
    pub fn begin<'e>(
        engine: &'e Engine,
        meanwhile: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<Beside<'e>> {
        engine.set_attention(Attention::LOADING_BESIDE, true);
        let beside = Beside(engine);
        // Whoever was let in before has left.
        alone(engine, meanwhile, |_| ())?;
        Ok(beside)
    }
}

/// Between two attempts to have the keyspace alone that a script has.
const SCRIPT_POLL: Duration = Duration::from_millis(5);

/// Does something while nobody else is in the keyspace. A script that is slow is not waited for in line: who would kill it could not be heard.
fn alone<T>(
    engine: &Engine,
    meanwhile: &mut dyn FnMut() -> io::Result<()>,
    mut work: impl FnMut(&mut Exclusive<'_>) -> T,
) -> io::Result<T> {
    loop {
        let is_slow = || engine.keyspace.has_any_slow_holder();
        if let Some(mut batch) = engine.keyspace.enter_unless(engine.following_guest(), is_slow)
            && batch.try_hold_all()
        {
            let done = batch.exclusively(engine.clock.now(), Touch::No, &mut work);
            batch.release();
            return Ok(done);
        }
        meanwhile()?;
        thread::sleep(SCRIPT_POLL);
    }
}

/// The same with nothing else to do.
pub fn alone_behind_scripts<T>(engine: &Engine, work: impl FnMut(&mut Exclusive<'_>) -> T) -> T {
    alone(engine, &mut || Ok(()), work).expect("what has nothing to do cannot fail")
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        self.0.set_attention(Attention::LOADING_BESIDE, false);
    }
}

/// The keys of a copy that are in memory, and that nobody is shown.
pub struct Loaded(Keyspace);

fn twin(engine: &Engine) -> Keyspace {
    let keyspace = engine.keyspace.twin(entropy_seed());
    keyspace.set_clock(engine.clock.clone());
    keyspace
}

/// Loads a copy beside what is here, where there is no store. Calls `meanwhile` often.
///
/// # Errors
/// That of the file, or of `meanwhile`. All is as it was.
pub fn load_beside(
    Beside(engine): &Beside<'_>,
    path: &Path,
    meanwhile: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<Loaded> {
    let keyspace = twin(engine);
    load(engine, (&keyspace, path), meanwhile)?;
    Ok(Loaded(keyspace))
}

/// Has a copy that is loaded take the place of all keys and functions, at one moment. What is appended to the log from then on is `stream`. Where
/// there is a log, clients are shown what was here before until the copy is on disk: nobody is shown what a crash could take back. What
/// `claim` gives is kept from where all are to leave for a moment until they have.
///
/// # Errors
/// What became of what was there.
pub fn take_over<C>(
    Beside(engine): &Beside<'_>,
    coming: (Loaded, Libraries),
    stream: Stream,
    meanwhile: &mut dyn FnMut() -> io::Result<()>,
    claim: impl FnOnce() -> C,
) -> Result<(), Failure> {
    let _held = Unwritten::begin(engine);
    let log = engine.durability.log();
    if let Some(log) = log {
        give_way(engine, log, stream).map_err(Failure::Kept)?;
        write_coming(engine, log, &coming, meanwhile).map_err(Failure::Torn)?;
    }
    let claimed = claim();
    exchange(engine, coming, meanwhile);
    drop(claimed);
    log.map_or(Ok(()), |log| begin(engine, log, stream)).map_err(Failure::Torn)
}

/// Has the log begin with what takes the place of all.
fn write_coming(
    engine: &Engine,
    log: &Log,
    (Loaded(keyspace), libraries): &(Loaded, Libraries),
    meanwhile: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<()> {
    match log.rests() {
        true => durability::sync(engine),
        false => {
            let (coming, meanwhile) = ((keyspace, libraries), &mut undisturbed(meanwhile));
            checkpoint::write_coming(engine, log, coming, engine.guest(), meanwhile).map(drop)
        }
    }
}

/// What is called where nothing is left undone, whatever has become of the master.
fn undisturbed(meanwhile: &mut dyn FnMut() -> io::Result<()>) -> impl FnMut() {
    move || {
        let _ = meanwhile();
    }
}

/// Shows what was loaded, and tells those who watch keys, but no log.
fn exchange(
    engine: &Engine,
    (Loaded(keyspace), libraries): (Loaded, Libraries),
    meanwhile: &mut dyn FnMut() -> io::Result<()>,
) {
    let mut libraries = Some(libraries);
    // Nothing is left undone from here on, whatever has become of the master.
    let mut meanwhile = || {
        let _ = meanwhile();
        Ok(())
    };
    let cleared = alone(engine, &mut meanwhile, |all| {
        // One that has begun since would have some keys of what was there and some of what comes.
        engine.snapshots.give_up();
        let cleared = all.take_over(&keyspace);
        set_libraries(engine, libraries.take().unwrap_or_default());
        if engine.durability.log().is_none() {
            all.forget_stamps();
        }
        cleared
    });
    // Others are let in again while it is freed.
    drop(cleared);
}

/// Reads through what the directory held where the stream of this name, or of whatever name, was at an offset, or somewhat before. None: it does not go back so
/// far. No checkpoint is written from here on until what is given is dropped.
///
/// # Errors
/// It cannot be read.
pub fn look_back(
    engine: &Arc<Engine>,
    (id, offset): (Option<ReplicationId>, u64),
    mut meanwhile: impl FnMut() -> io::Result<()>,
) -> io::Result<Option<Past>> {
    let Some(log) = engine.durability.log() else { return Ok(None) };
    engine.durability.rewrites.hold();
    let held = Held(engine.clone());
    let Some((recovery, stream)) = log.look_back(id, offset).map_err(io::Error::other)? else {
        return Ok(None);
    };
    // What an older checkpoint names in the store may have been used again.
    if engine.residency.store().is_some() && !recovery.is_of_newest() {
        return Ok(None);
    }
    recovery.read_through(&mut meanwhile)?;
    Ok(Some(Past { recovery, stream, _held: held }))
}

/// What the directory held at an earlier place.
pub struct Past {
    recovery: Recovery,
    /// The stream as it was there.
    pub stream: Stream,
    _held: Held,
}

/// Checkpoints are held.
struct Held(Arc<Engine>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.durability.rewrites.let_go();
    }
}

/// How far going back is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// The log is no stream until the data are others.
    Expected = 1,
    /// All keys are gone from memory.
    Cleared = 2,
    /// They are as they were.
    Done = 3,
    /// A checkpoint with them is complete.
    Kept = 4,
}

/// Puts what the directory held in the place of all keys and functions: all that was written behind it is cut. What is appended to the log
/// from then on goes on behind it in the stream. Tells each step.
///
/// # Errors
/// What became of what was there.
pub fn rewind(
    engine: &Arc<Engine>,
    _alone: &Alone<'_>,
    past: &Past,
    tell: &dyn Fn(Step),
) -> Result<(), Failure> {
    let log = engine.durability.log().expect("what was looked back to is in it");
    engine.residency.load_again().map_err(Failure::Kept)?;
    if let Err(error) = give_way(engine, log, past.stream) {
        engine.residency.note_loaded_again();
        return Err(Failure::Kept(error));
    }
    tell(Step::Expected);
    clear(engine);
    tell(Step::Cleared);
    let settled = replay(engine, &past.recovery).and_then(|()| {
        tell(Step::Done);
        checkpoint::write(engine, log, engine.guest(), Pace::Full)?;
        tell(Step::Kept);
        begin(engine, log, past.stream)
    });
    settled.map_err(Failure::Torn)
}

/// Brings the empty keyspace to where it was. Nobody is told, and nothing of it is appended.
fn replay(engine: &Arc<Engine>, recovery: &Recovery) -> io::Result<()> {
    let (keyspace, guest) = (&engine.keyspace, engine.following_guest());
    let now = engine.clock.now();
    let _past = keyspace.in_the_past();
    keyspace.enter(guest).exclusively(now, Touch::No, |all| {
        // What is done again has the places where it was done.
        all.forget_stamps();
        keyspace.rest_journal(true);
        keyspace.mute(true);
    });
    let done = durability::recover(engine, recovery, Hands::Guest(guest));
    engine.residency.note_loaded_again();
    keyspace.enter(guest).exclusively(now, Touch::No, |_| {
        keyspace.mute(false);
        keyspace.rest_journal(false);
    });
    done
}

/// An effect that changes nothing.
const SELECT: &[u8] = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n";

/// Has the log be no stream until the new data are complete. What is written here only moves it on: a checkpoint with them begins behind
/// every other.
fn give_way(engine: &Engine, log: &Log, coming: Stream) -> io::Result<()> {
    let time = engine.clock.now();
    log.append_unit(
        &Unit { database: 0, ends_in: 0, time, stream: &[], is_followed: false },
        vec![SELECT.to_vec()],
    );
    durability::sync(engine)?;
    log.expect_stream(coming)
}

/// No file of all keys is being written while this is there.
struct Unwritten<'s>(&'s Engine);

impl Unwritten<'_> {
    fn begin(engine: &Engine) -> Unwritten<'_> {
        engine.durability.rewrites.hold();
        engine.snapshots.give_up();
        Unwritten(engine)
    }
}

impl Drop for Unwritten<'_> {
    fn drop(&mut self) {
        let Durability { rewrites, .. } = &self.0.durability;
        rewrites.let_go();
    }
}

/// Nobody else is in the keyspace, and nothing goes over it, while this is there.
pub struct Alone<'s>(Unwritten<'s>);

impl Alone<'_> {
    /// From here on, when all have left: until then nobody is told that data are being loaded, and who would end a slow script is heard. Calls
    /// `meanwhile` as long as one is slow.
    ///
    /// # Errors
    /// That of `meanwhile`.
    pub fn begin<'e>(
        engine: &'e Engine,
        meanwhile: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<Alone<'e>> {
        let unwritten = Unwritten::begin(engine);
        alone(engine, meanwhile, |_| engine.set_attention(Attention::LOADING, true))?;
        Ok(Alone(unwritten))
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.0.set_attention(Attention::LOADING, false);
    }
}

/// Takes all keys and functions away, and tells those who watch them, but no log.
fn clear(engine: &Engine) {
    let now = engine.clock.now();
    engine.keyspace.enter(engine.following_guest()).exclusively(now, Touch::No, |all| {
        let cleared = engine.databases().map(|db| all.clear(db)).collect();
        all.free_afterwards(cleared);
        if engine.durability.log().is_none() {
            // The stream goes on where the master's is, which may be before what was written here.
            all.forget_stamps();
        }
    });
    set_libraries(engine, Libraries::default());
}

fn set_libraries(engine: &Engine, libraries: Libraries) {
    let set = engine.scripts.change_libraries(|all| {
        *all = libraries;
        Ok::<(), ()>(())
    });
    set.unwrap_or_default();
}

/// Puts a copy's keys into a keyspace.
fn load(
    engine: &Engine,
    (keyspace, path): (&Keyspace, &Path),
    meanwhile: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<()> {
    let now = engine.clock.now();
    let mut keys = 0;
    let read = loading::with_loaders(engine, keyspace, |loaders| {
        let read = rdb::read(engine, path, now, Expired::Kept, |db, entry| {
            loaders.take(db, entry);
            keys += 1;
            if keys % KEYS_BETWEEN_CALLS == 0 { meanwhile() } else { Ok(()) }
        });
        loaders.finish();
        read
    })?;
    let (loaded, _) = read.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the copy is gone"))?;
    log!(Notice, "Loaded {} keys of the master's", loaded.keys);
    Ok(())
}

/// Has the log begin with what was loaded.
fn settle(
    engine: &Engine,
    log: &Log,
    stream: Stream,
    meanwhile: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<()> {
    match log.rests() {
        // What was appended meanwhile goes to no file, and counts as durable once it was passed by.
        true => durability::sync(engine)?,
        false => drop(checkpoint::write_while(engine, log, engine.guest(), &mut undisturbed(meanwhile))?),
    }
    begin(engine, log, stream)
}

/// The log is a stream again. What there was before counts no more, and goes as behind any other checkpoint.
fn begin(engine: &Engine, log: &Log, stream: Stream) -> io::Result<()> {
    log.begin_stream(Some(stream))?;
    if !log.rests() {
        durability::retire(engine, log);
    }
    Ok(())
}
