//! Fetching: the cold keys of what a client has sent are read together, while its worker serves others.
//!
//! Before requests run, their keys that are cold are looked up, the reads of all their pages are started with one system call, and the
//! session is held back until all have come back; each page is read once, however many sessions ask for it. What was asked for is in
//! memory then, unless it has changed or gone meanwhile: whatever is still cold when its command runs is read by the command
//! itself.
//!
//! Thread rule: each worker fetches for its own sessions.

use crate::client::Client;
use crate::log;
use crate::server::Server;
use keyspace::residency::ahead::ColdKey;
use keyspace::{Batch, DbIndex};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use store::{Found, Page, PageNo, Store};
use sys::file::reads::{Reads, Way};
use sys::file::{AlignedBytes, File};
use tokio::io::unix::AsyncFd;

/// Reads of a worker that are on their way at once; more wait for them.
const DEPTH: usize = 128;

/// What a session waits for.
pub struct Fetch {
    /// For how many of the session's next requests.
    pub requests: usize,
    left: AtomicUsize,
    client: Arc<Client>,
}

impl Fetch {
    /// Whether all has come back.
    pub fn is_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    fn note_page(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.client.wake();
        }
    }
}

thread_local! {
    static HERE: RefCell<Option<Rc<Fetches>>> = const { RefCell::new(None) };
}

/// A worker's fetches.
struct Fetches {
    server: Arc<Server>,
    worker: usize,
    reads: RefCell<Reads>,
    pages: RefCell<HashMap<u32, Awaited>>,
}

/// A page that is on its way.
struct Awaited {
    /// While it is held, the page's segment is not used for anything else.
    _file: Arc<File>,
    keys: Vec<ColdKey>,
    fetches: Vec<Arc<Fetch>>,
}

/// Starts to read the pages of some cold keys, for so many requests of a client. None: nothing is on its way, and the commands
/// read for themselves.
pub fn begin(
    server: &Arc<Server>,
    worker: usize,
    client: &Arc<Client>,
    requests: usize,
    keys: &[ColdKey],
) -> Option<Arc<Fetch>> {
    let fetches = here(server, worker)?;
    let fetch = Arc::new(Fetch { requests, left: AtomicUsize::new(1), client: client.clone() });
    keys.iter().for_each(|key| fetches.ask(*key, &fetch));
    fetches.reads.borrow_mut().submit();
    // The one that it began with.
    let waits = fetch.left.fetch_sub(1, Ordering::AcqRel) > 1;
    waits.then_some(fetch)
}

/// This worker's fetches, which begin with the first.
fn here(server: &Arc<Server>, worker: usize) -> Option<Rc<Fetches>> {
    HERE.with_borrow_mut(|here| {
        if here.is_none() {
            match Fetches::start(server, worker) {
                Ok(fetches) => *here = Some(fetches),
                Err(error) => log!(Warning, "Cold keys are read one by one: {error}"),
            }
        }
        here.clone()
    })
}

impl Fetches {
    fn start(server: &Arc<Server>, worker: usize) -> io::Result<Rc<Fetches>> {
        let reads = Reads::new(Way::Auto, DEPTH)?;
        log!(Notice, "Worker {worker} reads cold keys by {}", reads.way());
        let bell = watched(reads.as_fd().try_clone_to_owned()?)?;
        let (reads, pages) = (RefCell::new(reads), RefCell::default());
        let fetches = Rc::new(Fetches { server: server.clone(), worker, reads, pages });
        tokio::task::spawn_local(attend(fetches.clone(), bell));
        Ok(fetches)
    }

    fn ask(&self, key: ColdKey, fetch: &Arc<Fetch>) {
        let Some((store, page)) = self.server.residency.store().zip(PageNo::new(key.at)) else { return };
        let mut pages = self.pages.borrow_mut();
        if let Some(awaited) = pages.get_mut(&key.at) {
            awaited.keys.push(key);
            return add(&mut awaited.fetches, fetch);
        }
        // Whoever finds out why the page has no place is the command.
        let Ok((file, offset)) = store.place_of(page) else { return };
        let mut reads = self.reads.borrow_mut();
        let buffer = reads.buffer(1);
        reads.start(&file, offset, buffer, u64::from(key.at));
        let mut fetches = Vec::with_capacity(1);
        add(&mut fetches, fetch);
        pages.insert(key.at, Awaited { _file: file, keys: vec![key], fetches });
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
        let Some(store) = self.server.residency.store() else { return };
        // Who holds everything does not wait for us, nor we for him.
        let batch = self.server.keyspace.try_enter(self.worker, Duration::ZERO);
        for (at, buffer, is_read) in done {
            let Some(awaited) = self.pages.borrow_mut().remove(&at) else { continue };
            if let Some(batch) = batch.as_ref().filter(|_| is_read) {
                admit(&self.server, batch, store, at, &buffer, &awaited.keys);
            }
            self.reads.borrow().buffers().give_back(buffer);
            awaited.fetches.iter().for_each(|fetch| fetch.note_page());
        }
    }
}

/// Brings the keys into memory that were asked for, of a page that was read.
pub(super) fn admit(
    server: &Server,
    batch: &Batch<'_>,
    store: &Store,
    at: u32,
    buffer: &AlignedBytes,
    keys: &[ColdKey],
) {
    let Some(page) = PageNo::new(at) else { return };
    store.note_read(buffer.as_slice().len() as u64);
    // Damage, and what takes more than this page, is the command's to deal with.
    let Ok(parsed) = Page::parse(buffer.as_slice(), page, store) else { return };
    for found in parsed.records() {
        let Found::Here(record) = found else { continue };
        let key = server.keyspace.key(DbIndex(0), record.key);
        if !keys.iter().any(|cold| cold.is_of(record.database, &key)) {
            continue;
        }
        if let Some(image) = record.image.plain()
            && batch.admit(record.database, &key, record.expires_at, &image, at)
        {
            server.residency.counts.cold_reads.fetch_add(1, Ordering::Relaxed);
        }
    }
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
