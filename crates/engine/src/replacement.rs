//! A full copy of a master's data takes the place of all that is here, while clients are told that it is being loaded.
//!
//! 1. The file is read once before anything is given up for it: one that is damaged does no harm.
//! 2. In editions with a log what was there before counts until a checkpoint with the new is complete: a crash leaves the one or the other,
//!    and in between the log is no stream that anybody could go on from.
//! 3. Nothing of the copy is in the log: it begins behind it, as behind an import.
//!
//! Thread rule: any thread, one at a time, in the place of a guest of the keyspace.

use crate::Engine;
use crate::durability::checkpoint::{self, Pace};
use crate::durability::{self, Durability};
use crate::import::rdb::{self, Expired};
use crate::scripts::{Libraries, libraries};
use crate::snapshot::put;
use crate::{Attention, residency};
use ::log::{Log, Stream};
use keyspace::Touch;
use std::fmt;
use std::io;
use std::path::Path;
use telemetry::log;

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

/// Reads a copy through, and keeps nothing of it but its libraries, which are made here. Calls `meanwhile` often.
///
/// # Errors
/// One sentence that says what is wrong with it.
pub fn check(
    engine: &Engine,
    path: &Path,
    meanwhile: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<Libraries> {
    let mut keys = 0;
    let read = rdb::read(engine, path, engine.clock.now(), Expired::Kept, |_, _| {
        keys += 1;
        if keys % KEYS_BETWEEN_CALLS == 0 { meanwhile() } else { Ok(()) }
    })?;
    let (_, codes) = read.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the copy is gone"))?;
    libraries::made_of(engine, &codes).map_err(|line| {
        io::Error::other(format!(
            "a library of the copy cannot be loaded: {}",
            String::from_utf8_lossy(&line)
        ))
    })
}

/// Puts a copy in the place of all keys and functions. What is appended to the log from then on is `stream`. Calls `meanwhile` often.
///
/// # Errors
/// What became of what was there.
pub fn replace(
    engine: &Engine,
    (path, libraries): (&Path, Libraries),
    stream: Stream,
    meanwhile: &mut dyn FnMut() -> io::Result<()>,
) -> Result<(), Failure> {
    let _alone = Alone::begin(engine);
    let log = engine.durability.log();
    if let Some(log) = log {
        durability::sync(engine).and_then(|()| log.begin_stream(None)).map_err(Failure::Kept)?;
    }
    clear(engine);
    let loaded = load(engine, path, libraries, meanwhile).and_then(|()| match log {
        Some(log) => settle(engine, log, stream),
        None => Ok(()),
    });
    loaded.map_err(|error| {
        if log.is_some() {
            return Failure::Torn(error);
        }
        clear(engine);
        Failure::Emptied(error)
    })
}

/// Nobody else is in the keyspace, and nothing goes over it, while this is there.
struct Alone<'s>(&'s Engine);

impl Alone<'_> {
    fn begin(engine: &Engine) -> Alone<'_> {
        engine.durability.rewrites.hold();
        engine.snapshots.give_up();
        engine.set_attention(Attention::LOADING, true);
        Alone(engine)
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        let Durability { rewrites, .. } = &self.0.durability;
        rewrites.let_go();
        self.0.set_attention(Attention::LOADING, false);
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

fn load(
    engine: &Engine,
    path: &Path,
    libraries: Libraries,
    meanwhile: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<()> {
    let (guest, now) = (engine.following_guest(), engine.clock.now());
    let mut keys = 0;
    let read = rdb::read(engine, path, now, Expired::Kept, |db, entry| {
        residency::wait_for_room(engine);
        put(engine, &engine.keyspace.enter(guest), db, entry, now);
        keys += 1;
        if keys % KEYS_BETWEEN_CALLS == 0 { meanwhile() } else { Ok(()) }
    })?;
    let (loaded, _) = read.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the copy is gone"))?;
    set_libraries(engine, libraries);
    log!(Notice, "Loaded {} keys of the master's", loaded.keys);
    Ok(())
}

/// Has the log begin with what was loaded.
fn settle(engine: &Engine, log: &Log, stream: Stream) -> io::Result<()> {
    checkpoint::write(engine, log, engine.guest(), Pace::Full)?;
    log.begin_stream(Some(stream))
}
