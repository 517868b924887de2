//! The capacity edition's residency: a store on disk under the keyspace, and a thread that keeps memory below its ceiling.
//!
//! On a command's path it lies behind the keyspace: a command whose keys are on disk only has them read ([`shelf`]). The
//! [`spiller`] sends away what was not used of late as soon as memory comes near `maxmemory`, and the [`cleaner`] writes anew what
//! lives in segments that are mostly dead. Commands that need memory wait while there is none ([`room`]), and are refused while the disk has no more
//! than it takes to give back what is deleted ([`headroom`]).
//!
//! A checkpoint holds where everything lies, and the store's table of segments: from these the next start goes on. Thread rule: one
//! thread spills and cleans.

mod ahead;
pub mod by_hand;
mod cleaner;
mod density;
pub mod fetch;
pub mod headroom;
mod outbox;
mod shelf;
mod spiller;

use crate::Engine;
pub use ahead::ReadAhead;
use config::{Edition, StoreCompression};
use headroom::Headroom;
use keyspace::{Batch, SLOTS, Slot, reaper};
pub use outbox::Outbox;
use parking_lot::{Condvar, Mutex};
use shelf::OnDisk;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::{Compression, Options, Store, ToRead};
use sys::file::Fs;
use sys::prng::entropy_seed;
use telemetry::log;

/// The directory of the store, in `dir`.
const FOLDER: &str = "store";

/// Segments in a store's share of memory: cleaning one holds that much of the disk back.
const SEGMENTS_PER_CEILING: u64 = 32;

/// The state of residency.
#[derive(Default)]
pub struct Residency {
    store: OnceLock<Store>,
    /// How many files the store may have open; 0: nobody has said so.
    handles: AtomicUsize,
    /// Whether every key's word is where it belongs: the start is through.
    is_loaded: AtomicBool,
    /// Whether threads do what is to be done.
    is_by_hand: AtomicBool,
    /// Of who has copies on their way (see [`outbox`]).
    turn: Mutex<()>,
    /// Keys that went with their databases since what lives was counted.
    cleared_keys: AtomicU64,
    /// Wakes the spiller.
    bell: Mutex<bool>,
    rung: Condvar,
    /// Nothing more can be sent away. Changes only with `refusal` locked.
    is_stuck: AtomicBool,
    /// What is known of its disk.
    headroom: Headroom,
    /// The disk has no more than is kept for checkpoints. Changes only with `refusal` locked.
    is_short: AtomicBool,
    /// Why the disk refused what was sent there last, or nothing is sent there.
    refusal: Mutex<Option<String>>,
    /// Pages from which something could not be read, and why; the first of them.
    damage: Mutex<BTreeMap<u32, String>>,
    /// What happened since the start.
    pub counts: Counts,
}

/// Pages with damage that are remembered, and told once each.
const DAMAGE_MAX: usize = 1000;

/// What happened since the start.
#[derive(Debug, Default)]
pub struct Counts {
    /// Objects read back from disk.
    pub cold_reads: AtomicU64,
    /// Reads of objects that failed.
    pub failed_reads: AtomicU64,
    /// Objects sent away.
    pub spilled: AtomicU64,
    /// Of these, objects that lay on disk already.
    pub dropped_clean: AtomicU64,
    /// Bytes of keys and images that were written.
    pub image_bytes: AtomicU64,
    /// Segments that were cleaned.
    pub cleaned_segments: AtomicU64,
    /// Records that the cleaner wrote anew.
    pub cleaned_records: AtomicU64,
    /// Stretches of memory that objects were moved out of.
    pub stretches_emptied: AtomicU64,
}

impl Residency {
    /// The store; None but in the capacity edition.
    #[inline]
    pub fn store(&self) -> Option<&Store> {
        self.store.get()
    }

    /// Whether cold keys are read before the requests run that name them.
    #[inline]
    pub fn fetches(&self) -> bool {
        self.store.get().is_some() && !self.is_by_hand.load(Ordering::Relaxed)
    }

    /// Notes that all keys are loaded: what no word refers to from now on is dead.
    pub fn note_loaded(&self) {
        self.is_loaded.store(true, Ordering::Release);
    }

    /// Has the last checkpoint's index be loaded again, in the place of all keys: until [`Residency::note_loaded`] nobody knows what lives.
    ///
    /// # Errors
    /// What it refers to may not be on disk.
    pub(crate) fn load_again(&self) -> io::Result<()> {
        let Some(store) = self.store.get() else { return Ok(()) };
        self.is_loaded.store(false, Ordering::Release);
        // Whoever cleans a segment has seen that, or has ended.
        let _turn = self.turn.lock();
        if !store.revive() {
            self.note_loaded();
            return Err(io::Error::other("the store has segments that were lost to a sync that failed"));
        }
        Ok(())
    }

    /// The same as [`Residency::note_loaded`] where it was loaded again: what lives is counted anew.
    pub(crate) fn note_loaded_again(&self) {
        if self.store.get().is_some() {
            // As if more had gone than there can be; what goes meanwhile is added.
            self.cleared_keys.store(u64::MAX / 2, Ordering::Relaxed);
            self.note_loaded();
            self.ring();
        }
    }

    /// Notes that keys went with their databases: what lives is counted anew if that is soon done.
    fn note_cleared(&self, keys: u64) {
        self.cleared_keys.fetch_add(keys, Ordering::Relaxed);
        self.ring();
    }

    /// Whether memory is full and nothing can be sent away.
    pub fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed)
    }

    /// Why the disk refused what was sent there last; None if it did not.
    pub fn refusal(&self) -> Option<String> {
        self.refusal.lock().clone()
    }

    /// Notes that something could not be read from a page.
    fn note_failed_read(&self, page: u32, why: &str) {
        self.counts.failed_reads.fetch_add(1, Ordering::Relaxed);
        let mut damage = self.damage.lock();
        if damage.len() < DAMAGE_MAX && !damage.contains_key(&page) {
            log!(Warning, "What lies in page {page} of the store cannot be read: {why}");
            damage.insert(page, why.to_owned());
        }
    }

    /// Why pages could not be read, as far as that was noticed.
    pub fn damage(&self) -> Vec<String> {
        self.damage.lock().values().cloned().collect()
    }

    /// Whether the disk has no more than is kept for checkpoints.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// Why nothing more is to be written; None if it may be.
    pub fn shortage(&self) -> Option<String> {
        if !self.is_short() {
            return None;
        }
        let refusal = self.refusal.lock();
        refusal.clone().filter(|_| self.is_short())
    }

    /// Notes that the disk has no more than is kept for checkpoints. To be said again as long as it is so.
    fn begin_shortage(&self, why: String) {
        let mut refusal = self.refusal.lock();
        *refusal = Some(why);
        self.is_short.store(true, Ordering::Relaxed);
    }

    /// Notes that it has more.
    fn end_shortage(&self) {
        self.is_short.store(false, Ordering::Relaxed);
        self.end_refusal();
    }

    /// Both, as they are at one moment: why nothing can be sent away tells who must not be blamed for it.
    pub fn standing(&self) -> (bool, Option<String>) {
        let refusal = self.refusal.lock();
        (self.is_stuck(), refusal.clone())
    }

    /// Notes whether memory is full and nothing can be sent away; whether it was noted before.
    fn set_stuck(&self, on: bool) -> bool {
        let _refusal = self.refusal.lock();
        self.is_stuck.swap(on, Ordering::Relaxed)
    }

    /// Notes that the disk takes what is sent there: what could not go because of it can.
    fn end_refusal(&self) {
        let mut refusal = self.refusal.lock();
        *refusal = None;
        self.is_stuck.store(false, Ordering::Relaxed);
    }

    /// How many files the store may have open from now on.
    pub fn set_handles(&self, most: usize) {
        self.handles.store(most, Ordering::Relaxed);
        if let Some(store) = self.store() {
            store.set_handles(most);
        }
    }

    /// Wakes the spiller.
    pub fn ring(&self) {
        *self.bell.lock() = true;
        self.rung.notify_all();
    }

    /// Waits until the spiller is woken, or for so long.
    fn wait_for_news(&self, patience: Duration) {
        self.rung.wait_for(&mut self.bell.lock(), patience);
    }

    fn wait_for_bell(&self, patience: Duration) {
        let mut is_rung = self.bell.lock();
        if !*is_rung {
            self.rung.wait_for(&mut is_rung, patience);
        }
        *is_rung = false;
    }
}

/// Opens the store as the table of the newest checkpoint says, or makes one, if the edition has one; and starts the thread that
/// keeps memory below its ceiling. Called once, before the data is loaded.
///
/// # Errors
/// One sentence for the operator.
pub fn open(engine: &Arc<Engine>, fs: &Fs, table: Option<&[u8]>, labour: Labour) -> io::Result<()> {
    if engine.config.edition() != Edition::Capacity {
        let dir = engine.dir();
        let message = || {
            let start = "start it with `--edition capacity`, or take the data over with `tarn export`";
            format!("{} was written by the capacity edition: {start}", dir.display())
        };
        return table.map_or(Ok(()), |_| Err(io::Error::other(message())));
    }
    let dir = folder(&engine.dir());
    let options = match labour {
        Labour::Threads => options(engine),
        Labour::ByHand => Options { segment_pages: store::limits::SEGMENT_PAGES_MIN, ..options(engine) },
    };
    engine.residency.is_by_hand.store(labour == Labour::ByHand, Ordering::Relaxed);
    let store = match table {
        Some(table) => Store::open(fs, &dir, &options, table),
        None => Store::create(fs, &dir, &options),
    };
    attach(engine, store.map_err(io::Error::other)?);
    log!(Notice, "What does not fit into memory lies in {}", dir.display());
    match labour {
        Labour::Threads => spiller::start(engine).and_then(|()| headroom::start(engine)),
        Labour::ByHand => Ok(()),
    }
}

/// Who spills and cleans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labour {
    /// A thread.
    Threads,
    /// Whoever calls [`by_hand`]: for tests, with segments so short that there are many.
    ByHand,
}

/// Opens the store of a directory whose data is only read, whatever the edition. Nothing goes back there.
///
/// # Errors
/// One sentence for the operator.
pub fn open_to_read(engine: &Arc<Engine>, fs: &Fs, table: &[u8], way: ToRead) -> io::Result<()> {
    let store = Store::open_to_read(fs, &folder(&engine.dir()), &options(engine), table, way);
    attach(engine, store.map_err(io::Error::other)?);
    Ok(())
}

/// In the store's folder: a log goes with it.
const MARK: &str = "has-a-log";

/// Marks the store as one that a log goes with, which has begun by now: from here on a start that finds no log does not take it for free.
///
/// # Errors
/// If the disk refuses.
pub fn mark(engine: &Engine, fs: &Fs) -> io::Result<()> {
    let mark = folder(&engine.dir()).join(MARK);
    if engine.config.edition() != Edition::Capacity || fs.kind(&mark)?.is_some() {
        return Ok(());
    }
    fs.replace(&mark, b"")
}

/// Whether a directory has a store that a log went with.
///
/// # Errors
/// If the directory cannot be read.
pub fn is_marked(fs: &Fs, dir: &Path) -> io::Result<bool> {
    Ok(fs.kind(&folder(dir).join(MARK))?.is_some())
}

/// What has to go with a log that does not count.
pub fn files_of_log(dir: &Path) -> &'static str {
    let has_store = Fs::Real.kind(&folder(dir)).is_ok_and(|kind| kind.is_some());
    if has_store { "all `log-*` and `store`" } else { "all `log-*`" }
}

/// Where the store of a directory lies.
pub fn folder(dir: &Path) -> PathBuf {
    dir.join(FOLDER)
}

fn attach(engine: &Arc<Engine>, store: Store) {
    engine.keyspace.set_shelf(Box::new(OnDisk { store: store.clone(), engine: Arc::downgrade(engine) }));
    let is_first = engine.residency.store.set(store).is_ok();
    assert!(is_first, "a server has one store");
}

fn options(engine: &Engine) -> Options {
    let ceiling = engine.keyspace.policy().memory_bytes_max();
    let segment_pages = ceiling / SEGMENTS_PER_CEILING / store::limits::PAGE_BYTES as u64;
    let segment_pages = segment_pages.clamp(SEGMENT_PAGES_MIN, SEGMENT_PAGES_MAX) as u32;
    let compression = match engine.config.store_compression() {
        StoreCompression::No => Compression::None,
        StoreCompression::Lz4 => Compression::Lz4,
    };
    let usual = Options::new(entropy_seed());
    let handles = Some(engine.residency.handles.load(Ordering::Relaxed)).filter(|handles| *handles > 0);
    Options { segment_pages, compression, handles: handles.unwrap_or(usual.handles), ..usual }
}

/// Segments are 4 MB at least, so that few of them are open files.
const SEGMENT_PAGES_MIN: u64 = 1 << 10;
/// And 256 MB at most, so that one is cleaned in seconds.
const SEGMENT_PAGES_MAX: u64 = 1 << 16;

/// Waits until there is room in memory; for threads that load data. It is the spiller that makes it.
pub fn wait_for_room(engine: &Engine) {
    while is_over(engine) && !engine.residency.is_stuck() && !engine.is_ending() {
        engine.residency.ring();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Databases that have keys, by their constant numbers: an exchange of databases makes nobody who goes over them meet one twice.
fn numbers_with_keys(engine: &Engine) -> impl Iterator<Item = u32> {
    (0..engine.keyspace.databases()).filter(|number| !engine.keyspace.is_number_empty(*number))
}

/// Shows every slot that may have keys to the spiller's thread, each in a stay of its own.
fn for_each_slot(engine: &Engine, mut work: impl FnMut(&Batch<'_>, u32, Slot)) {
    for db in numbers_with_keys(engine) {
        for slot in (0..SLOTS as u16).map(Slot) {
            work(&engine.keyspace.enter(engine.spiller_guest()), db, slot);
        }
    }
}

/// The ceiling of memory in the capacity edition, if there is one.
fn ceiling(engine: &Engine) -> Option<u64> {
    engine.residency.store()?;
    Some(engine.keyspace.policy().memory_bytes_max()).filter(|bytes| *bytes > 0)
}

/// Whether the spiller has to send something away before anything more is stored.
pub fn is_over(engine: &Engine) -> bool {
    ceiling(engine).is_some_and(|ceiling| reaper::without_pending(sys::memory::used_bytes()) > ceiling)
}

/// Whether the process has so much more in memory than its data takes that the ceiling's promise is near its end: what the
/// allocator holds back has to be given back.
pub fn is_tight(engine: &Engine) -> bool {
    ceiling(engine).is_some_and(|ceiling| sys::process::resident_bytes() > ceiling + RESIDENT_SLACK_BYTES)
}

/// A quarter of what may be resident beyond the ceiling.
const RESIDENT_SLACK_BYTES: u64 = 16 << 20;

/// Gives back what threads have left with the allocator that loaded the data and have ended, if there is a ceiling to keep to.
pub fn give_back(engine: &Engine) {
    if engine.residency.store().is_some() {
        sys::memory::release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_full_because_of_the_disk_is_never_told_as_full_for_another_reason() {
        let residency = Residency::default();
        assert_eq!(residency.standing(), (false, None));
        *residency.refusal.lock() = Some("no space".to_owned());
        assert!(!residency.set_stuck(true));
        assert_eq!(residency.standing(), (true, Some("no space".to_owned())));
        // The disk takes data again: what could not go can, and whoever needs memory waits until it has.
        residency.end_refusal();
        assert_eq!(residency.standing(), (false, None));
    }
}
