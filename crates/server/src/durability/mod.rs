//! What makes writes durable: the log of the durable edition, and of the memory edition with `appendonly yes`.
//!
//! On a command's path this is what comes after the keyspace: effects go to the [`journal`], replies through the [`gate`].
//! A start goes through [`open`]: [`recovery`], or what a Redis left in the directory; then the log is open. [`checkpoint`]s
//! bound how much of it the next start has to replay.
//!
//! Promises and crash cases: `docs/durability.md`.

mod apply;
pub mod checkpoint;
mod copied;
mod counts;
mod crossing;
pub mod databases;
pub mod gate;
mod journal;
mod loading;
mod parts;
mod recovery;
mod rewrite;
mod slots;

pub use counts::{FunctionCount, KeyCount, KeyCounts, of_now as counts_of_now};
pub use journal::{gather, write_gathered};
pub use loading::Loading;
pub use rewrite::{Rewrites, begin_if_due, begin_rewrite};

use crate::engine::Engine;
use crate::import::{self, Preference};
use crate::residency::{self, Labour};
use crate::server::Server;
use crate::snapshot;
use ::log::{Case, Checkpoint, Flushing, Log, Lsn, Options, Recovery, Refusal, SyncPolicy};
use checkpoint::Pace;
use config::{AppendFsync, Config, Edition};
use gate::Gate;
use journal::{ToLog, Watcher};
use keyspace::{HashSeed, Stamp};
use slots::ChunkKind;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use sys::Prng;
use sys::file::{Fs, about};
use telemetry::log;
use tokio::sync::Notify;

/// The state of durability.
pub struct Durability {
    /// Holds replies back.
    pub gate: Gate,
    /// Told whenever the log is durable further than before.
    pub committed: Notify,
    /// Checkpoints.
    pub rewrites: Rewrites,
    /// How far the start is.
    pub loading: Loading,
    /// How many keys there are on disk.
    pub key_counts: KeyCounts,
    log: OnceLock<Arc<Log>>,
    history: OnceLock<u64>,
}

impl Durability {
    /// For a server with so many workers, and without a log.
    pub fn new(workers: usize) -> Durability {
        Durability {
            gate: Gate::new(workers),
            committed: Notify::new(),
            rewrites: Rewrites::default(),
            loading: Loading::default(),
            key_counts: KeyCounts::default(),
            log: OnceLock::new(),
            history: OnceLock::new(),
        }
    }

    /// What the log's files have in common, also of one that was only read, and of one that may begin later.
    pub fn history(&self) -> u64 {
        *self.history.get_or_init(|| Prng::from_entropy().next_u64())
    }

    /// The log, if there is one.
    #[inline]
    pub fn log(&self) -> Option<&Arc<Log>> {
        self.log.get()
    }
}

/// Whether a configuration wants a log, and when it syncs.
pub fn policy(config: &Config) -> Option<SyncPolicy> {
    match config.edition() {
        Edition::Durable | Edition::Capacity => Some(SyncPolicy::Always),
        Edition::Memory => config.appendonly().then(|| match config.appendfsync() {
            AppendFsync::Always => SyncPolicy::Always,
            AppendFsync::Everysec => SyncPolicy::EverySecond,
            AppendFsync::No => SyncPolicy::Never,
        }),
    }
}

/// Which of a Redis' files count: whoever wants a log of its own reads the one that a Redis left.
pub fn preference(config: &Config) -> Preference {
    match policy(config) {
        Some(_) => Preference::AppendOnly,
        None => Preference::Snapshot,
    }
}

/// The same beside what is there of a log. Where a server began it beside clients, and did not complete it, what was saved last counts.
fn preference_of(server: &Server, case: Case) -> Preference {
    match case {
        Case::NotComplete => import::newer(server),
        _ => preference(&server.engine.config),
    }
}

/// Which of a Redis' files count in the server's directory, where [`load`] has found no log to load.
///
/// # Errors
/// As [`load`].
pub fn preference_in(server: &Server, fs: &Fs) -> io::Result<Preference> {
    let dir = server.engine.dir();
    if policy(&server.engine.config).is_none() || !has_log(fs, &dir)? {
        return Ok(preference(&server.engine.config));
    }
    let recovery = ::log::recover_to_read(fs, &dir).map_err(io::Error::other)?;
    Ok(preference_of(server, recovery.case()))
}

/// Fills the keyspace from the log of a directory, and leaves that as it is; gives where it ends. None: there is none, or the
/// configuration wants none. With `passes_damage` what the store lacks is passed by when it is read.
///
/// # Errors
/// As [`open`].
pub fn load(server: &Arc<Server>, fs: &Fs, passes_damage: bool) -> io::Result<Option<Lsn>> {
    let dir = server.engine.dir();
    if policy(&server.engine.config).is_none() || !has_log(fs, &dir)? {
        return Ok(None);
    }
    let recovery = ::log::recover_to_read(fs, &dir).map_err(io::Error::other)?;
    if recovery.is_new() {
        return Ok(None);
    }
    import::refuse_newer_snapshot(server, &recovery)?;
    fill(server, fs, &recovery, passes_damage)?;
    Ok(Some(recovery.end()))
}

/// The same from the directory of a server of this process, which writes nothing to it meanwhile, and gives nothing up of it.
///
/// # Errors
/// As [`load`].
pub(crate) fn load_beside(server: &Arc<Server>, fs: &Fs) -> io::Result<()> {
    let recovery = ::log::inspect(fs, &server.engine.dir()).map_err(io::Error::other)?;
    fill(server, fs, &recovery, false)
}

fn fill(server: &Arc<Server>, fs: &Fs, recovery: &Recovery, passes_damage: bool) -> io::Result<()> {
    note_history(server, recovery.history());
    if let Some(table) = store_table(recovery)? {
        residency::open_to_read(server, fs, &table, passes_damage)?;
    }
    recovery::recover(server, recovery, 1).map_err(|error| explained(fs, &server.engine.dir(), error))
}

/// The seed by which keys had their slots when the newest checkpoint of a directory was written; None without one. What is
/// wrong with the directory is told when it is opened.
pub fn seed_of_checkpoint(config: &Config, fs: &Fs) -> Option<HashSeed> {
    policy(config)?;
    let checkpoint = ::log::newest_checkpoint(fs, &config.dir()).ok()??;
    slots::seed_in(&checkpoint.next_chunk().ok()??)
}

/// Why a damaged checkpoint of the capacity edition has no substitute.
pub(crate) const OLDER_IS_USED: &str = "the newest checkpoint is damaged, and what an older one names in the store may have been used again: put the directory back \
     from a copy";

/// The sentence of a refusal: that of the log, unless what it says to do would be wrong where there is a store, or append-only files.
pub(crate) fn sentence(fs: &Fs, dir: &Path, refusal: &Refusal) -> String {
    let has_store = fs.kind(&residency::folder(dir)).is_ok_and(|kind| kind.is_some());
    match refusal {
        Refusal::CheckpointDamaged { is_needed: false, .. } if has_store => OLDER_IS_USED.to_owned(),
        Refusal::NotComplete => import::not_complete_in(dir),
        refusal => refusal.to_string(),
    }
}

fn explained(fs: &Fs, dir: &Path, error: io::Error) -> io::Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Refusal>()) {
        Some(refusal) => io::Error::other(sentence(fs, dir, refusal)),
        None => error,
    }
}

/// The table of the store in which a checkpoint's objects lie, if they do.
fn store_table(recovery: &Recovery) -> io::Result<Option<Vec<u8>>> {
    let table = recovery.checkpoint().map_or(Ok(None), table_in)?;
    if table.is_some() && recovery.case() == Case::OlderCheckpoint {
        return Err(io::Error::other(OLDER_IS_USED));
    }
    Ok(table)
}

/// The same of the newest checkpoint of a directory.
///
/// # Errors
/// If the log's files cannot be read.
pub(crate) fn store_table_in(fs: &Fs, dir: &Path) -> io::Result<Option<Vec<u8>>> {
    let checkpoint = ::log::newest_checkpoint(fs, dir).map_err(io::Error::other)?;
    checkpoint.as_ref().map_or(Ok(None), table_in)
}

fn table_in(checkpoint: &Checkpoint) -> io::Result<Option<Vec<u8>>> {
    let of_kind = |number, kind| {
        let chunk = checkpoint.chunk(number).map_err(io::Error::other)?;
        let found = chunk.as_deref().and_then(ChunkKind::of).filter(|(found, _)| *found == kind);
        Ok::<_, io::Error>(found.map(|(_, body)| body.to_vec()))
    };
    // One that has no store is not gone through for that.
    let has_store = match copied::databases_in(checkpoint)? {
        Some(databases) => databases.has_store,
        None => of_kind(1, ChunkKind::Numbers)?.is_some(),
    };
    if has_store { of_kind(checkpoint.chunks() - 1, ChunkKind::Store) } else { Ok(None) }
}

/// Fills the keyspace from the directory, and opens the log if the configuration wants one. Called once, before the first
/// client, with so many threads.
///
/// # Errors
/// One sentence for the operator: a server must not start without the data that it was meant to have.
pub fn open(server: &Arc<Server>, fs: &Fs, threads: usize) -> io::Result<()> {
    let segment_bytes = server.engine.config.log_segment_size();
    open_with(server, fs, threads, Options { segment_bytes, ..Options::default() })
}

/// The same with a log of other segments, another buffer, or one that is flushed by hand; then the store is worked on by hand,
/// too. When it syncs, and the time, are the server's.
///
/// # Errors
/// Those of [`open`].
pub fn open_with(server: &Arc<Server>, fs: &Fs, threads: usize, options: Options) -> io::Result<()> {
    let _past = server.engine.keyspace.in_the_past();
    let Some(sync) = policy(&server.engine.config) else {
        warn_of_log(server, fs)?;
        return import::load_foreign(server, preference(&server.engine.config)).map(|_| ());
    };
    let dir = server.engine.dir();
    let began = server.ticks.now();
    if let Some(sentence) = orphaned_store(fs, &dir)? {
        return Err(io::Error::other(sentence));
    }
    let recovered = ::log::recover(fs, &dir).map_err(|refusal| match refusal {
        Refusal::NotComplete => io::Error::other(import::not_complete(server)),
        refusal => io::Error::other(refusal),
    });
    let mut recovery = recovered?;
    let is_new = recovery.is_new();
    let labour = if options.flushing == Flushing::ByHand { Labour::ByHand } else { Labour::Threads };
    residency::open(server, fs, store_table(&recovery)?.as_deref(), labour)?;
    if is_new {
        import_for(server, &mut recovery)?;
    } else {
        import::refuse_newer_snapshot(server, &recovery)?;
        recovery::recover(server, &recovery, threads).map_err(|error| explained(fs, &dir, error))?;
        residency::give_back(server);
        let (keys, requests) = server.engine.durability.loading.counts();
        let seconds = server.ticks.nanos_between(began, server.ticks.now()) as f64 / 1e9;
        log!(
            Notice,
            "Recovered to LSN {} in {seconds:.3} seconds: {keys} keys of a checkpoint, {requests} requests of the log",
            recovery.end().0
        );
    }
    server.engine.residency.note_loaded();
    let has_imported = is_new && recovery.end() > Lsn::ZERO;
    if is_new && matches!(fs, Fs::Real) {
        import::note(&dir, &snapshot::path(server)).map_err(about(&dir))?;
    }
    begin(server, recovery, Options { sync, ..options })?;
    residency::mark(server, fs)?;
    if has_imported {
        // What was loaded is in no record of the log. Until this is complete the next start loads it again.
        let log = server.engine.durability.log().expect("it has just begun");
        checkpoint::write(server, log, server.engine.guest(), Pace::Full)?;
    }
    Ok(())
}

/// Refuses to write what a start with `appendonly yes` would read where a log lies that this server, which has none, has not read: the start
/// would read that one.
///
/// # Errors
/// There is one, or the directory cannot be read.
pub fn refuse_unread_log(server: &Server) -> io::Result<()> {
    let dir = server.engine.dir();
    if !has_log(&Fs::Real, &dir)? {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{dir} holds a log that this server does not have its data from: restart with 'appendonly yes' if that log counts, \
         or move {files} away",
        files = residency::files_of_log(&dir),
        dir = dir.display(),
    )))
}

/// Begins the log of a server that has none, while a batch holds the whole keyspace: whatever is written from then on is in it. What was
/// there before comes with the checkpoint that is begun here, and that is owed until it is complete ([`Rewrites`]); until then the
/// directory is worth what it was before, and a start that finds the log without it refuses.
///
/// # Errors
/// A sentence for the client: there is no log then.
pub fn begin_amid_traffic(server: &Arc<Server>) -> io::Result<()> {
    refuse_unread_log(server)?;
    let (fs, dir) = (Fs::Real, server.engine.dir());
    let sync = policy(&server.engine.config).expect("a log is wanted");
    let mut recovery = ::log::recover(&fs, &dir).map_err(io::Error::other)?;
    recovery.begin_beside_clients();
    import::note(&dir, &snapshot::path(server)).map_err(about(&dir))?;
    let segment_bytes = server.engine.config.log_segment_size();
    begin(server, recovery, Options { sync, segment_bytes, ..Options::default() })?;
    server.engine.durability.rewrites.owe();
    log!(Notice, "A log begins in {}; it is complete with its first checkpoint", dir.display());
    // If it cannot begin now, it is tried again.
    let _ = begin_rewrite(server);
    Ok(())
}

/// Notes to which log belongs what is there now.
fn note_history(server: &Server, history: Option<u64>) {
    if let Some(history) = history {
        // One that was read is the one that is opened.
        let _ = server.engine.durability.history.set(history);
    }
}

/// Loads what a Redis left where no log is that goes on from it, and has the log begin behind that: a log that begins there, and has no
/// checkpoint, is one whose import was cut short.
fn import_for(server: &Arc<Server>, recovery: &mut Recovery) -> io::Result<()> {
    let case = recovery.case();
    let found = import::load_foreign(server, preference_of(server, case))?;
    match case {
        Case::CutShort => {
            if found.is_none() {
                import::refuse_without_files(server)?;
            }
            log!(Notice, "An import was cut short before all of it was in the log; it was done again");
        }
        Case::NotComplete => {
            log!(
                Warning,
                "A server had begun the log in {} and ended before its first checkpoint was complete: what was saved before counts, and \
                 what was in its memory only is gone",
                server.engine.dir().display()
            );
            // It goes on from the same, should this be cut short, too.
            return Ok(());
        }
        _ => {}
    }
    let has_keys = || server.engine.databases().any(|db| !server.engine.keyspace.is_empty(db));
    if case == Case::CutShort || has_keys() || !server.engine.scripts.libraries().by_name.is_empty() {
        recovery.begin_behind_import();
    }
    Ok(())
}

/// Keeps what waits for the disk to its share of `maxmemory`: where the disk is slow, it would else take the place of data.
pub(crate) fn limit_buffer(engine: &Engine, log: &Log) {
    /// An eighth, so that memory near its ceiling has room for it.
    const SHARE: u64 = 8;
    let share = Some(engine.config.maxmemory() / SHARE).filter(|bytes| *bytes > 0);
    log.set_buffer_bytes_max(share.map_or(usize::MAX, |bytes| bytes as usize));
}

/// Opens the log where recovery ended: effects and replies go through it from now on.
fn begin(server: &Arc<Server>, recovery: Recovery, options: Options) -> io::Result<()> {
    let watcher = Arc::new(Watcher(Arc::downgrade(server)));
    note_history(server, recovery.history());
    let history = Some(server.engine.durability.history());
    let options = Options { clock: server.engine.clock.clone(), history, ..options };
    let log = recovery.open(&options, watcher).map_err(|failure| {
        io::Error::other(format!("Can't begin the log in {}: {failure}", server.engine.dir().display()))
    })?;
    let log = Arc::new(log);
    limit_buffer(&server.engine, &log);
    let is_first = server.engine.durability.log.set(log.clone()).is_ok();
    assert!(is_first, "a server has one log");
    let gate = &server.engine.durability.gate;
    gate.commit(Stamp(log.durable().0));
    gate.hold(options.sync == SyncPolicy::Always);
    server.engine.keyspace.set_journal(Box::new(ToLog { log, server: Arc::downgrade(server) }));
    Ok(())
}

/// Says that a log is left alone.
fn warn_of_log(server: &Server, fs: &Fs) -> io::Result<()> {
    if has_log(fs, &server.engine.dir())? {
        log!(
            Warning,
            "{} holds a log, which `edition memory` without `appendonly yes` does not read",
            server.engine.dir().display()
        );
    }
    Ok(())
}

/// What is to be said of a directory with a store whose log is not there any more.
///
/// # Errors
/// If the directory cannot be read.
pub(crate) fn orphaned_store(fs: &Fs, dir: &Path) -> io::Result<Option<String>> {
    if !residency::is_marked(fs, dir)? || has_log(fs, dir)? {
        return Ok(None);
    }
    Ok(Some(format!(
        "{store} holds data of a log that is not in {dir} any more: put all of its `log-*` back, or, if that data does not count, move \
         {store} away, too",
        store = residency::folder(dir).display(),
        dir = dir.display(),
    )))
}

/// Whether a directory holds a log.
pub(crate) fn has_log(fs: &Fs, dir: &Path) -> io::Result<bool> {
    ::log::is_there(fs, dir).map_err(about(dir))
}

/// Follows a change of `appendfsync`.
pub fn apply_config(server: &Server) {
    let (Some(log), Some(sync)) = (server.engine.durability.log(), policy(&server.engine.config)) else {
        return;
    };
    if log.sync_policy() != sync {
        log.set_sync_policy(sync);
        server.engine.durability.gate.hold(sync == SyncPolicy::Always);
    }
}

/// Makes all that was written durable; where there is a store, so that the next start need not replay it. After the last client.
///
/// # Errors
/// If the disk refuses.
pub fn close(server: &Server) -> io::Result<()> {
    if let Some(log) = server.engine.durability.log() {
        rewrite::write_last(server, log);
    }
    sync(server)?;
    refuse_owed(server)
}

/// Says in an error that the log is worth nothing yet.
///
/// # Errors
/// If it was begun beside clients, and its first checkpoint is not complete.
pub fn refuse_owed(server: &Server) -> io::Result<()> {
    match server.engine.durability.rewrites.figures().is_owed {
        true => Err(io::Error::other(
            "The log has not become complete: its first checkpoint could not be written",
        )),
        false => Ok(()),
    }
}

/// How often it looks whether the log is durable.
const SYNC_POLL: Duration = Duration::from_micros(200);

/// How often it says that it waits for that.
const SYNC_TOLD_EVERY: Duration = Duration::from_secs(5);

/// Makes all that was appended durable.
///
/// # Errors
/// If the disk refuses.
pub fn sync(server: &Server) -> io::Result<()> {
    let Some(log) = server.engine.durability.log() else { return Ok(()) };
    let end = log.appended();
    log.request_sync();
    let mut told = Instant::now();
    while log.durable() < end {
        log.writable().map_err(|failure| io::Error::other(format!("The log is not complete: {failure}")))?;
        std::thread::sleep(SYNC_POLL);
        if told.elapsed() >= SYNC_TOLD_EVERY {
            told = Instant::now();
            log!(Warning, "Waiting for the disk to take the rest of the log");
        }
    }
    Ok(())
}

/// Up to where replies are held back now, for messages that may show anything.
#[inline]
pub fn latest(server: &Server) -> Stamp {
    server.engine.durability.log().map_or(Stamp(0), |log| Stamp(log.appended().0))
}
