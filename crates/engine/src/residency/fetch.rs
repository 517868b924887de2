//! Fetching: the cold keys of what a client has sent are read together, while its worker serves others.
//!
//! Before requests run, their keys that are cold are looked up, the reads of all their pages are started with one system call, and the
//! session is held back until all have come back; each page is read once, however many sessions ask for it. What was asked for is in
//! memory then, unless it has changed or gone meanwhile: whatever is still cold when its command runs is read by the command
//! itself.
//!
//! What commands have replaced without reading it is looked up here, too, some pages at a time, and nobody is held back for that
//! (see `keyspace::residency::shadow`).
//!
//! Thread rule: each worker fetches for its own sessions.

use crate::Engine;
use keyspace::residency::ahead::ColdKey;
use keyspace::residency::shadow::Seen;
use keyspace::{Batch, DbIndex};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use store::{Found, Page, PageNo, Store};
use sys::file::reads::{Reads, Way};
use sys::file::{AlignedBytes, File};
use telemetry::log;
use tokio::io::unix::AsyncFd;

/// Reads of a worker that are on their way at once; more wait for them.
const DEPTH: usize = 128;

/// Pages that are read at once for nobody.
const LOOK_UPS_MAX: usize = 32;

/// So many are begun with one call of the system, rather than each for itself.
const LOOK_UPS_TOGETHER: usize = 16;

/// What is still to be looked up; what does not find room is left to the spiller.
const LATER_MAX: usize = 1 << 17;

/// What a session waits for.
pub struct Fetch {
    /// For how many of the session's next requests.
    pub requests: usize,
    left: AtomicUsize,
    waker: Waker,
}

impl Fetch {
    /// Whether all has come back.
    pub fn is_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    fn note_page(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.waker.wake_by_ref();
        }
    }
}

thread_local! {
    static HERE: RefCell<Option<Rc<Fetches>>> = const { RefCell::new(None) };
}

/// A worker's fetches.
struct Fetches {
    engine: Arc<Engine>,
    worker: usize,
    reads: RefCell<Reads>,
    pages: RefCell<HashMap<u32, Awaited>>,
    /// Pages that were asked for by nobody.
    look_ups: Cell<usize>,
    /// What is to be looked up when those have come back.
    later: RefCell<VecDeque<ColdKey>>,
}

/// A page that is on its way.
struct Awaited {
    /// While it is held, the page's segment is not used for anything else.
    _file: Arc<File>,
    keys: Vec<ColdKey>,
    fetches: Vec<Arc<Fetch>>,
    /// Keys that were replaced, and whose older versions may lie here.
    shadowed: Vec<ColdKey>,
    /// Whether it counts as a look-up.
    is_look_up: bool,
}

/// Starts to read the pages of some cold keys, for so many requests of the session that is woken when all are here. None: nothing is
/// on its way, and the commands read for themselves.
pub fn begin(
    engine: &Arc<Engine>,
    worker: usize,
    waker: Waker,
    requests: usize,
    keys: &[ColdKey],
) -> Option<Arc<Fetch>> {
    let fetches = here(engine, worker)?;
    let fetch = Arc::new(Fetch { requests, left: AtomicUsize::new(1), waker });
    keys.iter().for_each(|key| fetches.ask(*key, &fetch));
    fetches.reads.borrow_mut().submit();
    // The one that it began with.
    let waits = fetch.left.fetch_sub(1, Ordering::AcqRel) > 1;
    waits.then_some(fetch)
}

/// Has the pages read in which older versions of keys may lie that were replaced: as soon as there are some.
#[inline]
pub fn look_up(engine: &Arc<Engine>, worker: usize, shadowed: Vec<ColdKey>) {
    if !shadowed.is_empty() {
        look_up_later(engine, worker, shadowed, LOOK_UPS_TOGETHER);
    }
}

/// The same, however few there are: now and then.
pub fn look_up_all(engine: &Arc<Engine>, worker: usize, shadowed: Vec<ColdKey>) {
    if !shadowed.is_empty() || HERE.with_borrow(Option::is_some) {
        look_up_later(engine, worker, shadowed, 1);
    }
}

fn look_up_later(engine: &Arc<Engine>, worker: usize, shadowed: Vec<ColdKey>, at_least: usize) {
    if !engine.residency.fetches() {
        return;
    }
    let Some(fetches) = here(engine, worker) else { return };
    let mut later = fetches.later.borrow_mut();
    let room = LATER_MAX.saturating_sub(later.len());
    later.extend(shadowed.into_iter().take(room));
    let waiting = later.len();
    drop(later);
    if waiting >= at_least {
        fetches.look_up();
    }
}

/// This worker's fetches, which begin with the first.
fn here(engine: &Arc<Engine>, worker: usize) -> Option<Rc<Fetches>> {
    HERE.with_borrow_mut(|here| {
        if here.is_none() {
            match Fetches::start(engine, worker) {
                Ok(fetches) => *here = Some(fetches),
                Err(error) => log!(Warning, "Cold keys are read one by one: {error}"),
            }
        }
        here.clone()
    })
}

impl Fetches {
    fn start(engine: &Arc<Engine>, worker: usize) -> io::Result<Rc<Fetches>> {
        let reads = Reads::new(Way::Auto, DEPTH)?;
        log!(Notice, "Worker {worker} reads cold keys by {}", reads.way());
        let bell = watched(reads.as_fd().try_clone_to_owned()?)?;
        let fetches = Rc::new(Fetches {
            engine: engine.clone(),
            worker,
            reads: RefCell::new(reads),
            pages: RefCell::default(),
            look_ups: Cell::default(),
            later: RefCell::default(),
        });
        tokio::task::spawn_local(attend(fetches.clone(), bell));
        Ok(fetches)
    }

    fn ask(&self, key: ColdKey, fetch: &Arc<Fetch>) {
        self.await_page(key.at, |awaited| {
            awaited.keys.push(key);
            add(&mut awaited.fetches, fetch);
        });
    }

    /// Starts as many look-ups as may be on their way at once.
    fn look_up(&self) {
        let next = || self.later.borrow_mut().pop_front();
        while self.look_ups.get() < LOOK_UPS_MAX
            && let Some(key) = next()
        {
            self.await_page(key.at, |awaited| {
                if awaited.fetches.is_empty() && !awaited.is_look_up {
                    awaited.is_look_up = true;
                    self.look_ups.update(|count| count + 1);
                }
                awaited.shadowed.push(key);
            });
        }
        self.reads.borrow_mut().submit();
    }

    /// Has a page read, if nobody has yet, and notes who awaits it.
    fn await_page(&self, at: u32, note: impl FnOnce(&mut Awaited)) {
        let Some((store, page)) = self.engine.residency.store().zip(PageNo::new(at)) else { return };
        let mut pages = self.pages.borrow_mut();
        if let Some(awaited) = pages.get_mut(&at) {
            return note(awaited);
        }
        // Whoever finds out why the page has no place, or reads it with one file at a time, is the command.
        let Some((file, offset)) = store.place_within_share(page) else { return };
        let mut reads = self.reads.borrow_mut();
        let buffer = reads.buffer(1);
        reads.start(&file, offset, buffer, u64::from(at));
        let (keys, shadowed) = (Vec::new(), Vec::new());
        let mut awaited = Awaited { _file: file, keys, fetches: Vec::new(), shadowed, is_look_up: false };
        note(&mut awaited);
        pages.insert(at, awaited);
    }

    /// Takes what has come back.
    fn take(&self) {
        let mut done: Vec<(u32, AlignedBytes, bool)> = Vec::new();
        self.reads
            .borrow_mut()
            .finished(|token, buffer, result| done.push((token as u32, buffer, result.is_ok())));
        if done.is_empty() {
            return;
        }
        let Some(store) = self.engine.residency.store() else { return };
        // Who holds everything does not wait for us, nor we for him.
        let batch = self.engine.keyspace.try_enter(self.worker);
        for (at, buffer, is_read) in done {
            let Some(awaited) = self.pages.borrow_mut().remove(&at) else { continue };
            let page = if is_read { parse(store, at, &buffer) } else { None };
            match (&batch, page) {
                (Some(batch), Some(page)) => {
                    admit(&self.engine, batch, &page, &awaited.keys);
                    resolve(batch, &page, &awaited.shadowed);
                }
                (Some(batch), None) => awaited.shadowed.iter().for_each(|cold| batch.note_unseen(cold)),
                (None, _) => self.later.borrow_mut().extend(&awaited.shadowed),
            }
            self.reads.borrow().buffers().give_back(buffer);
            self.look_ups.update(|count| count - usize::from(awaited.is_look_up));
            awaited.fetches.iter().for_each(|fetch| fetch.note_page());
        }
        if let Some(batch) = batch {
            self.later.borrow_mut().extend(batch.take_shadowed());
            let waiting = self.later.borrow().len();
            if waiting >= LOOK_UPS_TOGETHER && self.look_ups.get() <= LOOK_UPS_MAX - LOOK_UPS_TOGETHER {
                self.look_up();
            }
        }
    }
}

/// A page that was read, which counts as one. None: it is damaged, which is the command's to deal with.
pub(super) fn parse<'b>(store: &Store, at: u32, buffer: &'b AlignedBytes) -> Option<Page<'b>> {
    store.note_read(buffer.as_slice().len() as u64);
    Page::parse(buffer.as_slice(), PageNo::new(at)?, store).ok()
}

/// Brings the keys into memory that were asked for, of a page that was read.
pub(super) fn admit(engine: &Engine, batch: &Batch<'_>, page: &Page<'_>, keys: &[ColdKey]) {
    if keys.is_empty() {
        return;
    }
    for found in page.records() {
        // What takes more than this page is the command's to read.
        let Found::Here(record) = found else { continue };
        let key = engine.keyspace.key(DbIndex(0), record.key);
        if !keys.iter().any(|cold| cold.is_of(record.database, &key)) {
            continue;
        }
        if let Some(image) = record.image.plain()
            && batch.admit(record.database, &key, record.expires_at, &image, page.no().get())
        {
            engine.residency.counts.cold_reads.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Finds out whether a page that was read holds older versions of keys that were replaced.
fn resolve(batch: &Batch<'_>, page: &Page<'_>, shadowed: &[ColdKey]) {
    if shadowed.is_empty() {
        return;
    }
    let found: Vec<Found<'_>> = page.records().collect();
    let seen: Option<Vec<Seen<'_>>> = found.iter().map(seen).collect();
    // Whoever reads the whole of a record whose key does not fit into a page is the spiller.
    if let Some(seen) = seen {
        shadowed.iter().for_each(|cold| batch.note_seen(cold, &seen));
    }
}

/// What a page shows of a record.
fn seen<'a>(found: &'a Found<'_>) -> Option<Seen<'a>> {
    Some(match found {
        Found::Here(record) => Seen { db: record.database, key: record.key, expires_at: record.expires_at },
        Found::Continues(rest) => {
            Seen { db: rest.database(), key: rest.key()?, expires_at: rest.expires_at() }
        }
    })
}

#[expect(deprecated, reason = "an OwnedFd keeps its descriptor, and the other way is unsafe")]
fn watched(bell: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(bell)
}

fn add(fetches: &mut Vec<Arc<Fetch>>, fetch: &Arc<Fetch>) {
    if !fetches.iter().any(|other| Arc::ptr_eq(other, fetch)) {
        fetch.left.fetch_add(1, Ordering::AcqRel);
        fetches.push(fetch.clone());
    }
}

async fn attend(fetches: Rc<Fetches>, bell: AsyncFd<OwnedFd>) {
    loop {
        match bell.readable().await {
            // Cleared before what has come back is taken: no ring is lost.
            Ok(mut ready) => ready.clear_ready(),
            Err(error) => return log!(Warning, "Reads that came back are not noticed: {error}"),
        }
        fetches.take();
    }
}
