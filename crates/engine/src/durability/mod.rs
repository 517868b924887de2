//! What makes writes durable: the log of the durable edition, and of the memory edition with `appendonly yes`.
//!
//! On a command's path this is what comes after the keyspace: effects go to the [`journal`], and a [`Watcher`] holds back what shows them.
//! A start goes through [`open`]: [`recovery`], or what a Redis left in the directory; then the log is open. [`checkpoint`]s
//! bound how much of it the next start has to replay.
//!
//! Promises and crash cases: `docs/durability.md`.

pub mod apply;
pub mod checkpoint;
mod copied;
mod counts;
mod crossing;
pub mod databases;
mod journal;
mod loading;
mod parts;
mod recovery;
mod rewrite;
mod slots;

pub use counts::{FunctionCount, KeyCount, KeyCounts, of_now as counts_of_now};
pub use journal::{Watcher, gather, has_gathered_enough, note_gathered, take_gathered};
pub use loading::Loading;
pub use rewrite::{Rewrites, begin_if_due, begin_rewrite, retire};

use crate::apply::Apply;
use crate::import::{self, Preference};
use crate::residency::{self, Labour};
use crate::snapshot;
use crate::{Attention, Engine};
use ::log::{Case, Checkpoint, Flushing, Log, Lsn, Options, Recovery, Refusal, Stream, SyncPolicy};
use checkpoint::Pace;
use config::{AppendFsync, Config, Edition};
use journal::{Flushed, ToLog};
use keyspace::{HashSeed, Stamp};
pub(crate) use recovery::{Hands, recover};
use slots::ChunkKind;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use store::ToRead;
use sys::Prng;
use sys::file::{Fs, about};
use telemetry::log;

/// The state of durability; without a log at first.
#[derive(Default)]
pub struct Durability {
    /// Checkpoints.
    pub rewrites: Rewrites,
    /// How far the start is.
    pub loading: Loading,
    /// How many keys there are on disk.
    pub key_counts: KeyCounts,
    is_following: Arc<AtomicBool>,
    log: OnceLock<Arc<Log>>,
    history: OnceLock<u64>,
    fs: OnceLock<Fs>,
}

impl Durability {
    /// What the log's files have in common, also of one that was only read, and of one that may begin later.
    pub fn history(&self) -> u64 {
        *self.history.get_or_init(|| Prng::from_entropy().next_u64())
    }

    /// Where the directory is.
    pub fn fs(&self) -> Fs {
        self.fs.get().cloned().unwrap_or(Fs::Real)
    }

    /// Whether there is a log that was begun beside clients and whose first checkpoint is not complete: it is worth nothing yet.
    pub fn owes_checkpoint(&self) -> bool {
        self.rewrites.figures().is_owed
    }

    /// Notes whether a master elsewhere is followed. What is written here meanwhile is in no stream of a replica's.
    pub fn set_following(&self, on: bool) {
        self.is_following.store(on, Ordering::Relaxed);
    }

    /// The log, if there is one.
    #[inline]
    pub fn log(&self) -> Option<&Arc<Log>> {
        self.log.get()
    }

    /// The same unless it rests: what is written is on disk, or will be.
    pub fn kept_log(&self) -> Option<&Arc<Log>> {
        self.log().filter(|log| !log.rests())
    }
}

/// What whoever opens an engine hands in.
pub struct Above<'a> {
    /// Is told what becomes of the log.
    pub watcher: Arc<dyn Watcher>,
    /// Runs the requests of a Redis' files.
    pub apply: &'a mut dyn Apply,
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
fn preference_of(engine: &Engine, case: Case) -> Preference {
    match case {
        Case::NotComplete => import::newer(engine),
        _ => preference(&engine.config),
    }
}

/// Which of a Redis' files count in the server's directory, where [`load`] has found no log to load.
///
/// # Errors
/// As [`load`].
pub fn preference_in(engine: &Engine, fs: &Fs) -> io::Result<Preference> {
    let dir = engine.dir();
    if policy(&engine.config).is_none() || !has_log(fs, &dir)? {
        return Ok(preference(&engine.config));
    }
    let recovery = ::log::recover_to_read(fs, &dir).map_err(io::Error::other)?;
    Ok(preference_of(engine, recovery.case()))
}

/// Fills the keyspace from the log of a directory, and leaves that as it is; gives where it ends. None: there is none, or the
/// configuration wants none. With `passes_damage` what the store lacks is passed by when it is read.
///
/// # Errors
/// As [`open`].
pub fn load(engine: &Arc<Engine>, fs: &Fs, passes_damage: bool) -> io::Result<Option<Lsn>> {
    let dir = engine.dir();
    if policy(&engine.config).is_none() || !has_log(fs, &dir)? {
        return Ok(None);
    }
    let recovery = ::log::recover_to_read(fs, &dir).map_err(io::Error::other)?;
    if recovery.is_new() {
        return Ok(None);
    }
    import::refuse_newer_snapshot(engine, &recovery)?;
    fill(engine, fs, &recovery, if passes_damage { ToRead::PassingDamage } else { ToRead::Alone })?;
    Ok(Some(recovery.end()))
}

/// The same from the directory of a server of this process, which writes nothing to it meanwhile, and gives nothing up of it.
///
/// # Errors
/// As [`load`].
pub fn load_beside(engine: &Arc<Engine>, fs: &Fs) -> io::Result<()> {
    let recovery = ::log::inspect(fs, &engine.dir()).map_err(io::Error::other)?;
    fill(engine, fs, &recovery, ToRead::Beside)
}

fn fill(engine: &Arc<Engine>, fs: &Fs, recovery: &Recovery, way: ToRead) -> io::Result<()> {
    note_history(engine, recovery.history());
    if let Some(table) = store_table(recovery)? {
        residency::open_to_read(engine, fs, &table, way)?;
    }
    recovery::recover(engine, recovery, Hands::Workers(1))
        .map_err(|error| explained(fs, &engine.dir(), error))
}

/// The seed by which keys had their slots when the newest checkpoint of a directory was written; None without one. What is
/// wrong with the directory is told when it is opened.
pub fn seed_of_checkpoint(config: &Config, fs: &Fs) -> Option<HashSeed> {
    policy(config)?;
    seed_of_checkpoint_in(&config.dir(), fs)
}

/// The same whatever the configuration wants.
pub fn seed_of_checkpoint_in(dir: &Path, fs: &Fs) -> Option<HashSeed> {
    let checkpoint = ::log::newest_checkpoint(fs, dir).ok()??;
    slots::seed_in(&checkpoint.next_chunk().ok()??)
}

/// Why a damaged checkpoint of the capacity edition has no substitute.
pub const OLDER_IS_USED: &str = "the newest checkpoint is damaged, and what an older one names in the store may have been used again: put the directory back \
     from a copy";

/// The sentence of a refusal: that of the log, unless what it says to do would be wrong where there is a store, or append-only files.
pub fn sentence(fs: &Fs, dir: &Path, refusal: &Refusal) -> String {
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
pub fn store_table_in(fs: &Fs, dir: &Path) -> io::Result<Option<Vec<u8>>> {
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
pub fn open(engine: &Arc<Engine>, above: Above<'_>, fs: &Fs, threads: usize) -> io::Result<()> {
    let segment_bytes = engine.config.log_segment_size();
    open_with(engine, above, fs, threads, Options { segment_bytes, ..Options::default() })
}

/// The same with a log of other segments, another buffer, or one that is flushed by hand; then the store is worked on by hand,
/// too. When it syncs, and the time, are the server's.
///
/// # Errors
/// Those of [`open`].
pub fn open_with(
    engine: &Arc<Engine>,
    above: Above<'_>,
    fs: &Fs,
    threads: usize,
    options: Options,
) -> io::Result<()> {
    let _past = engine.keyspace.in_the_past();
    engine.durability.fs.get_or_init(|| fs.clone());
    let Some(sync) = policy(&engine.config) else {
        warn_of_log(engine, fs)?;
        return import::load_foreign(engine, above.apply, preference(&engine.config)).map(|_| ());
    };
    let dir = engine.dir();
    let began = Instant::now();
    if let Some(sentence) = orphaned_store(fs, &dir)? {
        return Err(io::Error::other(sentence));
    }
    let recovered = ::log::recover(fs, &dir).map_err(|refusal| match refusal {
        Refusal::NotComplete => io::Error::other(import::not_complete(engine)),
        refusal => io::Error::other(refusal),
    });
    let mut recovery = recovered?;
    let is_new = recovery.is_new();
    let labour = if options.flushing == Flushing::ByHand { Labour::ByHand } else { Labour::Threads };
    residency::open(engine, fs, store_table(&recovery)?.as_deref(), labour)?;
    if is_new {
        import_for(engine, above.apply, &mut recovery)?;
    } else {
        import::refuse_newer_snapshot(engine, &recovery)?;
        recovery::recover(engine, &recovery, Hands::Workers(threads))
            .map_err(|error| explained(fs, &dir, error))?;
        residency::give_back(engine);
        let (keys, requests) = engine.durability.loading.counts();
        let seconds = began.elapsed().as_secs_f64();
        log!(
            Notice,
            "Recovered to LSN {} in {seconds:.3} seconds: {keys} keys of a checkpoint, {requests} requests of the log",
            recovery.end().0
        );
    }
    engine.residency.note_loaded();
    let has_imported = is_new && recovery.end() > Lsn::ZERO;
    if is_new && matches!(fs, Fs::Real) {
        import::note(&dir, &snapshot::path(engine)).map_err(about(&dir))?;
    }
    begin(engine, above.watcher, recovery, false, Options { sync, ..options })?;
    residency::mark(engine, fs)?;
    if has_imported {
        // What was loaded is in no record of the log. Until this is complete the next start loads it again.
        let log = engine.durability.log().expect("it has just begun");
        checkpoint::write(engine, log, engine.guest(), Pace::Full)?;
    }
    Ok(())
}

/// Refuses to write what a start with `appendonly yes` would read where a log lies that this server, which has none, has not read: the start
/// would read that one.
///
/// # Errors
/// There is one, or the directory cannot be read.
pub fn refuse_unread_log(engine: &Engine) -> io::Result<()> {
    let dir = engine.dir();
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

/// From where a log goes on that begins beside clients.
#[derive(Clone, Copy, Debug)]
pub struct Beginning {
    /// No stamp was given that is later.
    pub behind: Stamp,
    /// What it is to replicas; None: a stream of its own.
    pub stream: Option<Stream>,
    /// Whether the watcher is told of the stream from the first byte on.
    pub is_streamed: bool,
}

/// Begins the log of a server that has none, while a batch holds the whole keyspace: whatever is written from then on is in it. What was
/// there before comes with the checkpoint that is begun here, and that is owed until it is complete ([`Rewrites`]); until then the
/// directory is worth what it was before, and a start that finds the log without it refuses.
///
/// # Errors
/// A sentence for the client: there is no log then.
pub fn begin_amid_traffic(
    engine: &Arc<Engine>,
    watcher: Arc<dyn Watcher>,
    beginning: Beginning,
) -> io::Result<()> {
    refuse_unread_log(engine)?;
    let (fs, dir) = (Fs::Real, engine.dir());
    let sync = policy(&engine.config).expect("a log is wanted");
    let mut recovery = ::log::recover(&fs, &dir).map_err(io::Error::other)?;
    recovery.begin_beside_clients(Lsn(beginning.behind.0), beginning.stream);
    import::note(&dir, &snapshot::path(engine)).map_err(about(&dir))?;
    let segment_bytes = engine.config.log_segment_size();
    let options = Options { sync, segment_bytes, ..Options::default() };
    begin(engine, watcher, recovery, beginning.is_streamed, options)?;
    engine.durability.rewrites.owe(true);
    log!(Notice, "A log begins in {}; it is complete with its first checkpoint", dir.display());
    // If it cannot begin now, it is tried again.
    let _ = begin_rewrite(engine);
    Ok(())
}

/// Ends the log of a server that goes on without: what was written is in it, what comes is in no file. Its files stay. Positions go on, and with
/// them the stream and whoever waits for one. A checkpoint that is being written is given up.
pub fn rest(engine: &Engine) {
    let Some(log) = engine.durability.kept_log() else { return };
    match log.rest() {
        Ok(()) if engine.durability.rewrites.figures().is_owed => log!(
            Warning,
            "The log in {} ends here, and its first checkpoint is not complete: a start with appendonly yes goes by what there was when it ended the time before",
            engine.dir().display()
        ),
        Ok(()) => log!(Notice, "The log in {} ends here; its files stay", engine.dir().display()),
        Err(failure) => log!(
            Warning,
            "The log in {} ends before what was written last, which is in no file: {failure}",
            engine.dir().display()
        ),
    }
    engine.durability.rewrites.owe(false);
    engine.durability.rewrites.rest_behind_next(false);
    engine.set_attention(Attention::LOG_FULL, false);
}

/// For how long a log goes on that has rested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// It is ended again.
    Ended,
    /// The next checkpoint is written, behind which it rests.
    Checkpoint,
}

/// Begins the log again that rests. Until the checkpoint that is begun here is complete, a start goes by what there was when it ended.
///
/// # Errors
/// A sentence for the client: it rests on.
pub fn begin_again(engine: &Arc<Engine>, until: Until) -> io::Result<()> {
    let _switching = engine.durability.rewrites.switching();
    if until == Until::Ended {
        engine.durability.rewrites.rest_behind_next(false);
    }
    let Some(log) = engine.durability.log().filter(|log| log.rests()) else { return Ok(()) };
    log.begin_again()?;
    engine.durability.rewrites.rest_behind_next(until == Until::Checkpoint);
    // Not before: what the log that ended had is no more than an older checkpoint.
    engine.durability.rewrites.owe(true);
    if let Some(sync) = policy(&engine.config) {
        log.set_sync_policy(sync);
    }
    log!(
        Notice,
        "The log in {} begins again; it is complete with its first checkpoint",
        engine.dir().display()
    );
    // If it cannot begin now, it is tried again.
    let _ = begin_rewrite(engine);
    Ok(())
}

/// Notes to which log belongs what is there now.
fn note_history(engine: &Engine, history: Option<u64>) {
    if let Some(history) = history {
        // One that was read is the one that is opened.
        let _ = engine.durability.history.set(history);
    }
}

/// Loads what a Redis left where no log is that goes on from it, and has the log begin behind that: a log that begins there, and has no
/// checkpoint, is one whose import was cut short.
fn import_for(engine: &Engine, apply: &mut dyn Apply, recovery: &mut Recovery) -> io::Result<()> {
    let case = recovery.case();
    let found = import::load_foreign(engine, apply, preference_of(engine, case))?;
    match case {
        Case::CutShort => {
            if found.is_none() {
                import::refuse_without_files(engine)?;
            }
            log!(Notice, "An import was cut short before all of it was in the log; it was done again");
        }
        Case::NotComplete => {
            log!(
                Warning,
                "A server had begun the log in {} and ended before its first checkpoint was complete: what was saved before counts, and \
                 what was in its memory only is gone",
                engine.dir().display()
            );
            // It goes on from the same, should this be cut short, too.
            return Ok(());
        }
        _ => {}
    }
    let has_keys = || engine.databases().any(|db| !engine.keyspace.is_empty(db));
    if case == Case::CutShort || has_keys() || !engine.scripts.libraries().by_name.is_empty() {
        recovery.begin_behind_import();
    }
    Ok(())
}

/// Keeps what waits for the disk to its share of `maxmemory`: where the disk is slow, it would else take the place of data, or
/// come on top of it without a bound that goes with it where it does not count (see `checks::uncounted_bytes`).
pub fn limit_buffer(engine: &Engine, log: &Log) {
    /// An eighth, so that memory near its ceiling has room for it.
    const SHARE: u64 = 8;
    let share = Some(engine.config.maxmemory() / SHARE).filter(|bytes| *bytes > 0);
    log.set_buffer_bytes_max(share.map_or(usize::MAX, |bytes| bytes as usize));
}

/// Opens the log where recovery ended: effects and replies go through it from now on.
fn begin(
    engine: &Arc<Engine>,
    watcher: Arc<dyn Watcher>,
    recovery: Recovery,
    is_streamed: bool,
    options: Options,
) -> io::Result<()> {
    note_history(engine, recovery.history());
    let history = Some(engine.durability.history());
    let options = Options { clock: engine.clock.clone(), history, ..options };
    let flushed = Arc::new(Flushed { engine: Arc::downgrade(engine), watcher: watcher.clone() });
    let log = recovery.open(&options, flushed).map_err(|failure| {
        io::Error::other(format!("Can't begin the log in {}: {failure}", engine.dir().display()))
    })?;
    let log = Arc::new(log);
    // Before anybody finds it who may append.
    log.set_streamed(is_streamed);
    limit_buffer(engine, &log);
    let is_first = engine.durability.log.set(log.clone()).is_ok();
    assert!(is_first, "a server has one log");
    watcher.committed(Stamp(log.durable().0));
    watcher.hold(options.sync == SyncPolicy::Always);
    let is_following = engine.durability.is_following.clone();
    engine.keyspace.set_journal(Box::new(ToLog { log, engine: Arc::downgrade(engine), is_following }));
    Ok(())
}

/// Says that a log is left alone.
fn warn_of_log(engine: &Engine, fs: &Fs) -> io::Result<()> {
    if has_log(fs, &engine.dir())? {
        log!(
            Warning,
            "{} holds a log, which `edition memory` without `appendonly yes` does not read",
            engine.dir().display()
        );
    }
    Ok(())
}

/// What is to be said of a directory with a store whose log is not there any more.
///
/// # Errors
/// If the directory cannot be read.
pub fn orphaned_store(fs: &Fs, dir: &Path) -> io::Result<Option<String>> {
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
pub fn has_log(fs: &Fs, dir: &Path) -> io::Result<bool> {
    ::log::is_there(fs, dir).map_err(about(dir))
}

/// Follows a change of `appendfsync`; gives when the log syncs from now on, if that is another time than before.
pub fn follow_config(engine: &Engine) -> Option<SyncPolicy> {
    let (log, sync) = (engine.durability.log()?, policy(&engine.config)?);
    (log.sync_policy() != sync).then(|| {
        log.set_sync_policy(sync);
        sync
    })
}

/// Makes all that was written durable; where there is a store, so that the next start need not replay it. After the last client.
///
/// # Errors
/// If the disk refuses.
pub fn close(engine: &Engine) -> io::Result<()> {
    if let Some(log) = engine.durability.kept_log() {
        rewrite::write_last(engine, log);
    }
    sync(engine)?;
    refuse_owed(engine)
}

/// Has the log become complete that was begun beside clients, while these are served: for as long as `goes_on` says so, which is asked only where it is not.
///
/// # Errors
/// The log says why its checkpoint could not be written.
pub fn complete(engine: &Arc<Engine>, goes_on: impl Fn() -> bool) -> io::Result<()> {
    if !engine.durability.owes_checkpoint() || !goes_on() {
        return Ok(());
    }
    rewrite::complete(engine, goes_on)
}

/// Says in an error that the log is worth nothing yet.
///
/// # Errors
/// If it was begun beside clients, and its first checkpoint is not complete.
pub fn refuse_owed(engine: &Engine) -> io::Result<()> {
    match engine.durability.rewrites.figures().is_owed {
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
pub fn sync(engine: &Engine) -> io::Result<()> {
    let Some(log) = engine.durability.log() else { return Ok(()) };
    let end = log.appended();
    log.request_sync();
    let mut told = Instant::now();
    while log.durable() < end {
        log.writable().map_err(|failure| io::Error::other(format!("The log is not complete: {failure}")))?;
        log.await_disk(SYNC_POLL);
        if told.elapsed() >= SYNC_TOLD_EVERY {
            told = Instant::now();
            log!(Warning, "Waiting for the disk to take the rest of the log");
        }
    }
    Ok(())
}

/// Up to where replies are held back now, for messages that may show anything.
#[inline]
pub fn latest(engine: &Engine) -> Stamp {
    engine.durability.log().map_or(Stamp(0), |log| Stamp(log.appended().0))
}
