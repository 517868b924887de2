//! What a store's handles and its chunks share.
//!
//! Any thread. Locks are taken in this order, and none but the first three over a call to the disk: `syncing`, `inventory`, a
//! segment's file, `handles`, `huge`, `buffers`. Whoever holds that of `handles` only tries those of files.

use crate::Options;
use crate::failure::{Damage, ReadError, Wrong, named};
use crate::handles::Handles;
use crate::inventory::Inventory;
use crate::limits::{BUFFERS_MAX, CHUNK_PAGES, PAGE_BYTES};
use crate::number::{Geometry, PageNo, Run, SegmentNo};
use crate::page::Identity;
use crate::segment::{Segment, Segments};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use sys::file::{AlignedBytes, File, Fs, Lock, Mode, is_out_of_descriptors};

#[derive(Debug)]
pub(crate) struct Shared {
    pub fs: Fs,
    pub dir: PathBuf,
    pub options: Options,
    pub geometry: Geometry,
    /// The store's number, in every page.
    pub number: u64,
    pub segments: Segments,
    pub handles: Handles,
    pub inventory: Mutex<Inventory>,
    /// Held by whoever syncs.
    pub syncing: Mutex<()>,
    /// Checkpoints that were begun.
    pub epoch: AtomicU64,
    pub huge: Huge,
    pub counters: Counters,
    /// Whether segments that are emptied are given back to the disk, all of them.
    pub saves_space: AtomicBool,
    buffers: Mutex<Vec<AlignedBytes>>,
    /// Keeps other processes out.
    _lock: Option<Lock>,
}

/// What was done since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub bytes_written: AtomicU64,
    pub bytes_read: AtomicU64,
    pub records_written: AtomicU64,
    pub chunks_written: AtomicU64,
}

impl Shared {
    pub fn new(
        fs: Fs,
        dir: PathBuf,
        options: Options,
        geometry: Geometry,
        number: u64,
        inventory: Inventory,
        lock: Option<Lock>,
    ) -> Shared {
        let handles = options.handles;
        Shared {
            fs,
            dir,
            options,
            geometry,
            number,
            segments: Segments::new(),
            handles: Handles::new(handles),
            inventory: Mutex::new(inventory),
            syncing: Mutex::new(()),
            epoch: AtomicU64::new(0),
            huge: Huge::default(),
            counters: Counters::default(),
            saves_space: AtomicBool::new(false),
            buffers: Mutex::new(Vec::new()),
            _lock: lock,
        }
    }

    /// What a page bears; None if nothing is written there.
    #[inline]
    pub fn identity_of(&self, page: PageNo) -> Option<Identity> {
        let segment = self.segments.get(self.geometry.segment_of(page))?;
        let is_there = segment.state().is_readable() && segment.is_written(self.geometry.within(page));
        is_there.then(|| Identity { store: self.number, generation: segment.generation() })
    }

    pub fn damage(&self, page: PageNo, wrong: Wrong) -> Damage {
        let segment = self.geometry.segment_of(page);
        Damage { path: segment.path(&self.dir), offset: self.geometry.offset(page), segment, page, wrong }
    }

    /// A segment's file.
    pub fn file_of(&self, no: SegmentNo) -> io::Result<Arc<File>> {
        let segment = self.segments.grow(no);
        if let Some(file) = segment.opened() {
            return Ok(file);
        }
        self.make_room_for_handle();
        let path = no.path(&self.dir);
        let mut file = segment.file.write();
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        let opened = self.open_file(&path, Mode::Direct)?;
        segment.was_used.store(true, Ordering::Relaxed);
        let opened = Arc::clone(file.insert(Arc::new(opened)));
        drop(file);
        self.handles.note_opened(no);
        Ok(opened)
    }

    /// Opens a file, and closes others for that if there is no descriptor left: somebody else has taken what was reckoned with.
    pub fn open_file(&self, path: &Path, mode: Mode) -> io::Result<File> {
        match self.fs.open(path, mode) {
            Err(error) if is_out_of_descriptors(&error) && self.give_handles_back() => {
                self.fs.open(path, mode)
            }
            opened => opened,
        }
    }

    /// Makes durable what was written to a segment, if anything was; one of which that fails is lost.
    pub fn sync_segment(&self, no: SegmentNo, segment: &Segment) -> io::Result<()> {
        if !segment.is_unsynced.load(Ordering::Acquire) || !segment.state().is_readable() {
            return Ok(());
        }
        // Held before it counts as synced: until then it is not closed.
        let file = self.file_of(no);
        segment.is_unsynced.swap(false, Ordering::AcqRel);
        file.and_then(|file| file.sync_data()).map_err(|error| {
            self.lose(no);
            named("syncing", &no.path(&self.dir), &error)
        })
    }

    /// Where a page lies.
    #[inline]
    pub fn place_of(&self, page: PageNo) -> Result<(Arc<File>, u64), ReadError> {
        let no = self.geometry.segment_of(page);
        let Some(segment) = self.segments.get(no).filter(|segment| segment.state().is_readable()) else {
            return Err(self.damage(page, Wrong::Unwritten).into());
        };
        let offset = self.geometry.offset(page);
        if let Some(file) = segment.opened() {
            return Ok((file, offset));
        }
        let file = self.file_of(no).map_err(|error| ReadError::disk(&no.path(&self.dir), offset)(error))?;
        Ok((file, offset))
    }

    /// Where a page lies, unless more files would be open for that than may be; None as well where it has no place.
    pub fn place_within_share(&self, page: PageNo) -> Option<(Arc<File>, u64)> {
        let segment = self.segments.get(self.geometry.segment_of(page))?;
        let is_open = segment.opened().is_some();
        (is_open || self.make_room_for_handle()).then(|| self.place_of(page).ok()).flatten()
    }

    /// Reads pages, into a buffer that must be as long. Of pages beyond the file's end, what was in the buffer stays.
    pub fn read(&self, run: Run, buffer: &mut [u8]) -> Result<usize, ReadError> {
        let (file, offset) = self.place_of(run.first)?;
        let path = || self.geometry.segment_of(run.first).path(&self.dir);
        let read =
            file.read_full_at(buffer, offset).map_err(|error| ReadError::disk(&path(), offset)(error))?;
        self.counters.bytes_read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }

    /// A buffer of a chunk's usual length, or longer if more is needed.
    pub fn take_buffer(&self, pages: u32) -> AlignedBytes {
        let usual = CHUNK_PAGES.max(pages) == CHUNK_PAGES;
        let kept = if usual { self.buffers.lock().pop() } else { None };
        kept.unwrap_or_else(|| AlignedBytes::zeroed(CHUNK_PAGES.max(pages) as usize * PAGE_BYTES))
    }

    pub fn put_buffer(&self, buffer: AlignedBytes) {
        let mut buffers = self.buffers.lock();
        if buffer.capacity() == CHUNK_PAGES as usize * PAGE_BYTES && buffers.len() < BUFFERS_MAX {
            buffers.push(buffer);
        }
    }

    /// A record in this page died: so did its parts, if it has any.
    pub fn note_dead(&self, page: PageNo) {
        self.add_live(page, -1);
        self.huge.set_dead(page, true).iter().for_each(|part| self.add_live(*part, -1));
    }

    /// A record in this page lives.
    pub fn note_live(&self, page: PageNo) {
        self.add_live(page, 1);
        self.huge.set_dead(page, false).iter().for_each(|part| self.add_live(*part, 1));
    }

    pub fn add_live(&self, page: PageNo, count: i32) {
        if let Some(segment) = self.segments.get(self.geometry.segment_of(page)) {
            segment.add_live(count);
        }
    }
}

/// The records in parts: the page of each one's manifest, and those in which its parts begin. There are few, as each takes a good
/// part of a segment.
///
/// One that died stays until its manifest's segment is free: an index that was copied before may refer to it, and a start with that
/// index must know its parts.
#[derive(Debug, Default)]
pub(crate) struct Huge {
    count: AtomicUsize,
    lists: Mutex<HashMap<PageNo, Listed>>,
}

#[derive(Debug)]
struct Listed {
    parts: Vec<PageNo>,
    /// Whether its parts were counted as dead.
    is_dead: bool,
}

impl Huge {
    pub fn insert(&self, manifest: PageNo, parts: Vec<PageNo>) {
        let mut lists = self.lists.lock();
        lists.insert(manifest, Listed { parts, is_dead: false });
        self.count.store(lists.len(), Ordering::Release);
    }

    /// Notes whether a record is dead, and gives its parts if it was otherwise before.
    pub fn set_dead(&self, manifest: PageNo, is_dead: bool) -> Vec<PageNo> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut lists = self.lists.lock();
        let changed = lists.get_mut(&manifest).filter(|listed| listed.is_dead != is_dead);
        changed.map_or_else(Vec::new, |listed| {
            listed.is_dead = is_dead;
            listed.parts.clone()
        })
    }

    /// Notes all as dead.
    pub fn all_dead(&self) {
        self.lists.lock().values_mut().for_each(|listed| listed.is_dead = true);
    }

    /// Forgets those whose manifests mean nothing any more.
    pub fn forget(&self, is_gone: impl Fn(PageNo) -> bool) {
        let mut lists = self.lists.lock();
        lists.retain(|manifest, _| !is_gone(*manifest));
        self.count.store(lists.len(), Ordering::Release);
    }

    /// All of them, sorted.
    pub fn all(&self) -> Vec<(PageNo, Vec<PageNo>)> {
        let lists = self.lists.lock();
        let mut all: Vec<_> = lists.iter().map(|(page, listed)| (*page, listed.parts.clone())).collect();
        all.sort_unstable();
        all
    }

    /// Of each part for which `is_wanted`, the manifest that lists it, dead or not: that is for who knows the index to say.
    pub fn owners(&self, is_wanted: impl Fn(PageNo) -> bool) -> HashMap<PageNo, PageNo> {
        let lists = self.lists.lock();
        let pairs =
            lists.iter().flat_map(|(manifest, listed)| listed.parts.iter().map(|part| (*part, *manifest)));
        pairs.filter(|(part, _)| is_wanted(*part)).collect()
    }

    /// Notes those as dead whose manifests `is_in`, and gives the parts of those that were not.
    pub fn kill(&self, is_in: impl Fn(PageNo) -> bool) -> Vec<PageNo> {
        let mut lists = self.lists.lock();
        let killed = lists.iter_mut().filter(|(manifest, listed)| is_in(**manifest) && !listed.is_dead);
        let mut parts = Vec::new();
        for (_, listed) in killed {
            listed.is_dead = true;
            parts.extend_from_slice(&listed.parts);
        }
        parts
    }
}
