//! DEBUG RELOAD and LOADAOF: what is there once more, from the files that hold it.
//!
//! Thread rule: the handlers have the keyspace alone.
//!
//! 1. A file is read to its end, and found right, before anything changes because of it.
//! 2. RELOAD of what was just saved puts every value back where it is, and says nothing to the log: that holds the same. Values that a
//!    file does not hold to the last bit stay as they are. What comes from an older file is one record of the log, like any other change.
//! 3. LOADAOF changes nothing: it is right only if the log holds what is in memory.
//! 4. Neither is for transactions and scripts, whose changes so far are in no file and no record.

use super::{digest, with_all};
use crate::assembly;
use crate::commands::scripting::{Policy, put_libraries};
use crate::dispatch::Context;
use crate::durable::load_foreign;
use crate::refusals;
use crate::server::Server;
use ::log::Log;
use command::execute::readable;
use command::table::{self, Runs};
use command::{Args, Error, Result, execute};
use engine::durability;
use engine::import::rdb::{self, Expired};
use engine::import::{Found, Preference};
use engine::snapshot;
use keyspace::{Batch, DbIndex, HashSeed, Key, Purpose, Touch, ValueRef};
use std::io;
use std::path::Path;
use std::time::Duration;
use sys::file::Fs;
use sys::{Clock, UnixMs};
use telemetry::log;
use value::collection::CollectionRef;
use value::rdb::file::{FileEntry, FileUsage};
use value::rdb::{Restored, dump, dump_string};
use value::zset::image::is_minus_zero;
use wire::{Protocol, Reply, RequestBuf};

const NO_DUMP: Error = Error::text("ERR Error trying to load the RDB dump, check server logs.");
const NO_LOG: Error = Error::text("ERR Error trying to load the AOF files, check server logs.");

const IN_GROUP: Error = Error::text("ERR DEBUG RELOAD and LOADAOF are not for transactions and scripts");

/// What a reload does.
struct Options {
    saves: bool,
    flushes: bool,
    merges: bool,
}

/// DEBUG RELOAD [NOSAVE] [NOFLUSH] [MERGE]
pub fn reload(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let mut options = Options { saves: true, flushes: true, merges: false };
    for word in context.request.iter().skip(2) {
        match word.to_ascii_lowercase().as_slice() {
            b"merge" => options.merges = true,
            b"noflush" => options.flushes = false,
            b"nosave" => options.saves = false,
            _ => {
                return Err(Error::text(
                    "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.",
                ));
            }
        }
    }
    refuse_in_group(context)?;
    with_all(context, |context| run(context, &options))?;
    log!(Notice, "DB reloaded by DEBUG RELOAD");
    reply.ok();
    Ok(())
}

fn refuse_in_group(context: &Context<'_, '_>) -> Result<()> {
    let is_in_group = context.session.transaction.is_some() || context.session.runs_script;
    // EXEC has ended the transaction by now, and holds what it needs.
    if is_in_group || context.batch.is_holding() { Err(IN_GROUP) } else { Ok(()) }
}

fn run(context: &mut Context<'_, '_>, options: &Options) -> Result<()> {
    if options.saves {
        // In place of one in the background, which has less. The log says why not.
        snapshot::save_held_instead(&context.server.engine, context.batch, context.now)
            .map_err(|_| Error::text("ERR"))?;
    }
    let path = snapshot::path(&context.server.engine);
    let done = match options.saves && options.flushes {
        true => put_back(context, &path),
        false => replace(context, &path, options),
    };
    done.map_err(|error| {
        log!(Warning, "DEBUG RELOAD: {error}");
        NO_DUMP
    })
}

/// Puts every value of a file in the place of itself. What lies on disk only is read from there anyway.
fn put_back(context: &mut Context<'_, '_>, path: &Path) -> io::Result<()> {
    let (server, now) = (context.server, context.now);
    read(context, path, |context, db, entry| {
        let (batch, key) = (&*context.batch, server.engine.keyspace.key(db, &entry.key));
        let is_cold = batch.has_shelf() && batch.find_cold(&key, Purpose::Read).is_some();
        if !is_cold && is_held_whole(batch, &key, now) {
            snapshot::put(batch, db, entry, now);
        }
        Ok(())
    })
    .map(drop)
}

/// Whether a file holds all that there is to a value: not when a stream's consumers were last active, and no scores of -0.
fn is_held_whole(batch: &Batch<'_>, key: &Key<'_>, now: UnixMs) -> bool {
    let view = batch.view(&[*key], now, Touch::No);
    let is_held = match view.peek(key).map(|object| object.value()) {
        Some(ValueRef::Collection(CollectionRef::Stream(_))) => false,
        Some(ValueRef::Collection(CollectionRef::Zset(zset))) => {
            !zset.iter(0..zset.len()).any(|(_, score)| is_minus_zero(score))
        }
        _ => true,
    };
    view.finish();
    is_held
}

/// Puts a file in the place of what is there, or beside it: all of it in one record of the log.
fn replace(context: &mut Context<'_, '_>, path: &Path, options: &Options) -> io::Result<()> {
    let (server, now) = (context.server, context.now);
    let has_log = server.engine.durability.log().is_some();
    let most = if has_log { refusals::record_bytes_max(&server.engine) } else { usize::MAX };
    let mut bytes = 0;
    let may_meet = options.flushes || options.merges;
    let libraries = read(context, path, |context, db, entry| {
        let keys = [server.engine.keyspace.key(db, &entry.key)];
        let view = context.batch.view(&keys, now, Touch::No);
        let meets = !may_meet && view.peek(&keys[0]).is_some();
        view.finish();
        bytes += if has_log { entry.key.len() + payload(&entry.value).len() } else { 0 };
        match (meets, bytes > most) {
            (true, _) => Err(io::Error::other("a key of the file is there already")),
            (_, true) => Err(io::Error::other("it is longer than one record of the log may be")),
            (false, false) => Ok(()),
        }
    })?;
    let policy = match () {
        () if options.flushes => Policy::Flush,
        () if options.merges => Policy::Replace,
        () => Policy::Append,
    };
    put_libraries(context, &libraries, policy).map_err(io::Error::other)?;
    if options.flushes {
        run_request(context, DbIndex(0), &[b"FLUSHALL", b"SYNC"])?;
    }
    read(context, path, |context, db, entry| restore(context, db, &entry)).map(drop)
}

/// Reads a file as of now, and gives the code of its libraries.
fn read(
    context: &mut Context<'_, '_>,
    path: &Path,
    mut take: impl FnMut(&mut Context<'_, '_>, DbIndex, FileEntry) -> io::Result<()>,
) -> io::Result<Vec<Vec<u8>>> {
    let (server, now) = (context.server, context.now);
    let read = rdb::read(&server.engine, path, now, Expired::Passed, |db, entry| take(context, db, entry))?;
    let (_, libraries) = read.ok_or_else(|| io::Error::other(format!("{} is not there", path.display())))?;
    Ok(libraries)
}

/// Makes a key what it is in a file.
fn restore(context: &mut Context<'_, '_>, db: DbIndex, entry: &FileEntry) -> io::Result<()> {
    let payload = payload(&entry.value);
    let expires_at = entry.expires_at_ms.unwrap_or(0).to_string();
    let (option, used) = match entry.usage {
        Some(FileUsage::IdleSeconds(seconds)) => (&b"IDLETIME"[..], seconds.to_string()),
        Some(FileUsage::Frequency(frequency)) => (&b"FREQ"[..], frequency.to_string()),
        None => (&b""[..], String::new()),
    };
    let words = [
        b"RESTORE",
        &entry.key[..],
        expires_at.as_bytes(),
        &payload,
        b"REPLACE",
        b"ABSTTL",
        option,
        used.as_bytes(),
    ];
    run_request(context, db, if entry.usage.is_some() { &words } else { &words[..6] })
}

fn payload(value: &Restored) -> Vec<u8> {
    match value {
        Restored::String(bytes) => dump_string(bytes),
        Restored::Collection(collection) => dump(collection.as_ref()),
    }
}

/// Runs a data command on what is held.
fn run_request(context: &mut Context<'_, '_>, db: DbIndex, words: &[&[u8]]) -> io::Result<()> {
    let request = RequestBuf::from_args(words);
    let request = request.as_request();
    let command = table::find_for(&request).expect("it is in the table");
    let Runs::Data(row) = command.row.handler else { unreachable!("it is a data command") };
    let server = context.server;
    let args = Args::new(request, &server.engine.keyspace, (db, context.now), &server.engine.settings);
    let mut out = Vec::new();
    execute(row, context.batch, &args, Touch::No, &mut Reply::new(&mut out, Protocol::Resp2))
        .map(drop)
        .map_err(|error| io::Error::other(error.to_string()))?;
    context.batch.count_write();
    Ok(())
}

/// DEBUG LOADAOF
pub fn load_log(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    refuse_in_group(context)?;
    with_all(context, |context| {
        check_log(context).map_err(|error| {
            log!(Warning, "DEBUG LOADAOF: {error}");
            NO_LOG
        })
    })?;
    log!(Notice, "Append Only File loaded by DEBUG LOADAOF");
    reply.ok();
    Ok(())
}

/// Loads the log beside what is in memory, and compares the two; where there is none, the append-only files that are there.
fn check_log(context: &mut Context<'_, '_>) -> io::Result<()> {
    let (server, now) = (context.server, context.now);
    if let Some(log) = server.engine.durability.log() {
        may_be_read(server)?;
        write_out(log)?;
    }
    let of_log = std::thread::scope(|scope| {
        // What it compiles of libraries is no worker's.
        let loading = std::thread::Builder::new().spawn_scoped(scope, || state_of_log(server, now));
        let loading = loading.map_err(|error| io::Error::other(format!("Can't start a thread: {error}")))?;
        loading.join().unwrap_or_else(|_| Err(io::Error::other("the loading thread has ended")))
    })?;
    let here = State::of(server, context.batch, now)?;
    match here == of_log {
        true => Ok(()),
        false => Err(io::Error::other("what the log holds is not what is in memory")),
    }
}

/// Whether the log stays as it is for as long as everything is held, and has all that there is.
fn may_be_read(server: &Server) -> io::Result<()> {
    if server.engine.durability.rewrites.figures().running_since.is_some() {
        return Err(io::Error::other("a checkpoint is being written, and will replace files of the log"));
    }
    Ok(())
}

/// Waits until all that was appended is in files.
fn write_out(log: &Log) -> io::Result<()> {
    while log.written() < log.appended() {
        log.writable().map_err(|failure| io::Error::other(failure.reason))?;
        log.nudge();
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// What a server has.
#[derive(PartialEq, Eq)]
struct State {
    digest: String,
    libraries: Vec<Vec<u8>>,
}

impl State {
    fn of(server: &Server, batch: &mut Batch<'_>, now: UnixMs) -> io::Result<State> {
        let digest = digest::of_keyspace(server, batch, now);
        readable(batch).map_err(|error| io::Error::other(error.to_string()))?;
        let libraries =
            server.engine.scripts.libraries().by_name.values().map(|library| library.code.to_vec()).collect();
        Ok(State { digest, libraries })
    }
}

/// What a server has that is started from the log, or from append-only files.
fn state_of_log(server: &Server, now: UnixMs) -> io::Result<State> {
    let config = server.engine.config.copy();
    // It may be compared while the configuration wants none any more.
    let has_log = server.engine.durability.log().is_some();
    let seed = has_log.then(|| durability::seed_of_checkpoint_in(&config.dir(), &Fs::Real)).flatten();
    let seed = seed.unwrap_or_else(HashSeed::from_entropy);
    // A worker for whoever loads, and the spare one.
    let loaded = assembly::with_seed(config, 2, Clock::simulated(now), seed);
    if has_log {
        durability::load_beside(&loaded.engine, &Fs::Real)?;
    } else if !matches!(load_foreign(&loaded, Preference::AppendOnly)?, Some(Found::AppendOnly { .. })) {
        return Err(io::Error::other("there is no log, and there are no append-only files"));
    }
    State::of(&loaded, &mut loaded.engine.keyspace.enter(0), now)
}
