//! A store that is open: opening, asking where pages lie, counting, reading, syncing, checkpoints.
//!
//! One [`Store`] is shared by all threads; its clones are the same one. Workers ask and count, without a lock but a segment's own.
//! Invariants:
//! 1. What [`Store::sync`] reported as done is on disk, with the names of its files. After a sync that failed, every one fails until
//!    the segments that it concerned are retired: their records were written anew elsewhere, or are not needed.
//! 2. No segment that was in use when a checkpoint's table was made is used again before a later checkpoint is complete.

use crate::Options;
use crate::extent::Joined;
use crate::failure::{ReadError, Refusal, Wrong, named};
use crate::inventory::Inventory;
use crate::number::{Geometry, PageNo, Run, SegmentNo};
use crate::page::{Found, Page};
use crate::record::OwnedRecord;
use crate::segment::State;
use crate::shared::Shared;
use crate::table::{Row, Table};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use sys::file::{AlignedBytes, File, Fs, Mode};

/// The disk half of a keyspace that is larger than memory.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) shared: Arc<Shared>,
}

/// A checkpoint that was begun. One that is never ended frees nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointMark(u64);

/// How a store is opened to read only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToRead {
    /// While nobody else has it.
    Alone,
    /// The same, also where segments are missing: what lies there cannot be read, and all else can.
    PassingDamage,
    /// While a server of this process has it that gives nothing up meanwhile of what its newest checkpoint names.
    Beside,
}

impl Store {
    /// Makes an empty store in a directory, which is made if need be. Segments that lie there are taken for free.
    ///
    /// # Errors
    /// If the directory is in use, or the disk refuses.
    pub fn create(fs: &Fs, dir: &Path, options: &Options) -> Result<Store, Refusal> {
        let mut inventory = Inventory::new(options.seed);
        let geometry = Geometry::near(options.segment_pages);
        let store = inventory.draw();
        let empty = Table { store, geometry, begun: 0, segments: Vec::new(), huge: Vec::new() };
        Store::start(fs, dir, options, &empty, inventory)
    }

    /// Opens a store as a checkpoint's [table](Store::table) says that it was. Reads no content. Whatever else lies in the directory was
    /// written later, or is left over: it is taken for free.
    ///
    /// # Errors
    /// If the table is damaged, a segment is missing or too short, the directory in use, or the disk refuses. Nothing
    /// was changed then.
    pub fn open(fs: &Fs, dir: &Path, options: &Options, table: &[u8]) -> Result<Store, Refusal> {
        let table = Table::decode(table)?;
        Store::start(fs, dir, options, &table, Inventory::new(options.seed))
    }

    /// The same to read only: nothing in the directory is changed, which need not be writable.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_to_read(
        fs: &Fs,
        dir: &Path,
        options: &Options,
        table: &[u8],
        way: ToRead,
    ) -> Result<Store, Refusal> {
        let table = Table::decode(table)?;
        let lock = match way {
            ToRead::Beside => None,
            ToRead::Alone | ToRead::PassingDamage => {
                let lock = fs.lock_to_read(&dir.join(LOCK_NAME)).map_err(Refusal::disk(dir))?;
                lock.ok_or_else(|| Refusal::InUse(dir.to_owned()))?
            }
        };
        if way != ToRead::PassingDamage {
            let found = segments_in(fs, dir)?;
            table.segments.iter().try_for_each(|row| check_file(fs, dir, row, &found))?;
        }
        let inventory = Inventory::new(options.seed);
        let shared = Shared::new(
            fs.clone(),
            dir.to_owned(),
            options.clone(),
            table.geometry,
            table.store,
            inventory,
            lock,
        );
        let store = Store { shared: Arc::new(shared) };
        store.adopt(&table, &[]);
        Ok(store)
    }

    fn start(
        fs: &Fs,
        dir: &Path,
        options: &Options,
        table: &Table,
        inventory: Inventory,
    ) -> Result<Store, Refusal> {
        fs.create_dir_all(dir).map_err(Refusal::disk(dir))?;
        let lock = fs.lock(&dir.join(LOCK_NAME)).map_err(Refusal::disk(dir))?;
        let lock = lock.ok_or_else(|| Refusal::InUse(dir.to_owned()))?;
        let found = segments_in(fs, dir)?;
        for row in &table.segments {
            check_file(fs, dir, row, &found)?;
        }
        let geometry = table.geometry;
        let shared = Shared::new(
            fs.clone(),
            dir.to_owned(),
            options.clone(),
            geometry,
            table.store,
            inventory,
            Some(lock),
        );
        let store = Store { shared: Arc::new(shared) };
        store.adopt(table, &found);
        Ok(store)
    }

    /// Takes over the table's segments; of the others some as spare ones.
    fn adopt(&self, table: &Table, found: &[SegmentNo]) {
        let shared = &self.shared;
        for row in &table.segments {
            let segment = shared.segments.grow(row.no);
            segment.begin(row.class, row.generation, shared.geometry.segment_pages());
            segment.pages.store(row.pages, Relaxed);
            segment.records.store(row.records, Relaxed);
            segment.set_live(row.live);
            segment.sealed_at.store(row.sealed_at, Relaxed);
            let mut at = 0;
            for (first, pages) in row.gaps.iter().copied().chain([(row.pages, 0)]) {
                segment.set_written(at, first - at);
                at = first + pages;
            }
            // What was written to it after the checkpoint bears its generation: nothing is added, so that it never counts.
            segment.set_state(State::Full);
        }
        table.huge.iter().for_each(|(manifest, parts)| shared.huge.insert(*manifest, parts.clone()));
        let is_listed = |no: &SegmentNo| table.segments.binary_search_by_key(no, |row| row.no).is_ok();
        let mut free = Vec::new();
        for no in found.iter().copied().filter(|no| !is_listed(no)) {
            if free.len() < shared.options.spare_segments && no <= shared.geometry.last_segment() {
                shared.segments.grow(no).set_state(State::Free);
                free.push(no);
            } else {
                // One that stays is found by the next start.
                let _ = shared.fs.remove(&no.path(&shared.dir));
            }
        }
        let absent = (1..shared.segments.top()).map(SegmentNo);
        let absent = absent.filter(|no| !is_listed(no) && !free.contains(no)).collect::<Vec<_>>();
        shared.inventory.lock().adopt(table.begun, free, absent.into_iter());
    }

    /// Whether what was added for this page is written, so that a read of it finds it. Costs some nanoseconds, and takes no
    /// lock.
    #[inline]
    pub fn is_written(&self, page: PageNo) -> bool {
        let geometry = self.shared.geometry;
        let segment = self.shared.segments.get(geometry.segment_of(page));
        // Of a segment that was lost, what is in memory must stay there until it was written elsewhere.
        segment.is_some_and(|one| one.is_written(geometry.within(page)) && one.state() != State::Lost)
    }

    /// How many of its files may be open from now on.
    pub fn set_handles(&self, most: usize) {
        self.shared.handles.set_most(most);
        self.shared.close_down_to(most);
    }

    /// How long a segment is.
    pub fn segment_bytes(&self) -> u64 {
        self.shared.geometry.segment_bytes()
    }

    /// The segment that a page is in.
    pub fn segment_of(&self, page: PageNo) -> SegmentNo {
        self.shared.geometry.segment_of(page)
    }

    /// The file and the offset at which a page lies. While the file is held, its segment is not used for anything else: hold it
    /// until what was read has been used.
    ///
    /// # Errors
    /// If there is no such segment, or its file cannot be opened.
    pub fn place_of(&self, page: PageNo) -> Result<(Arc<File>, u64), ReadError> {
        self.shared.place_of(page)
    }

    /// The same for who holds many at once, and can do without: None if more files would be open than may be, or where there is none.
    pub fn place_within_share(&self, page: PageNo) -> Option<(Arc<File>, u64)> {
        self.shared.place_within_share(page)
    }

    /// Closes files that were held when more were open than may be, if they are not any more. Called now and then.
    pub fn keep_to_share(&self) {
        self.shared.keep_to_share();
    }

    /// Reads the record of a key, with as many reads as that takes; None if it is not in this page.
    ///
    /// # Errors
    /// If the disk does not read, or pages are damaged.
    pub fn read(&self, database: u32, key: &[u8], page: PageNo) -> Result<Option<OwnedRecord>, ReadError> {
        let mut buffer = AlignedBytes::zeroed(crate::limits::PAGE_BYTES);
        let (_held, _) = self.place_of(page)?;
        let count = self.shared.read(Run { first: page, pages: 1 }, buffer.as_mut_slice())?;
        let parsed = Page::parse(&buffer.as_slice()[..count], page, self)?;
        match parsed.find(database, key) {
            None => Ok(None),
            Some(Found::Here(record)) => {
                let wrong = Wrong::Content("its image does not unpack");
                Ok(Some(record.to_owned().ok_or_else(|| self.shared.damage(page, wrong))?))
            }
            Some(Found::Continues(rest)) => {
                Ok(Some(self.read_rest(rest)?).filter(|record| record.key == key))
            }
        }
    }

    /// Reads what is missing of a record.
    ///
    /// # Errors
    /// If the disk does not read, or pages are damaged.
    pub fn read_rest(&self, rest: crate::Rest) -> Result<OwnedRecord, ReadError> {
        let mut rest = rest;
        loop {
            let mut read = Vec::new();
            for run in rest.runs() {
                read.push(self.read_run(*run)?);
            }
            let read: Vec<&[u8]> = read.iter().map(AlignedBytes::as_slice).collect();
            match rest.join(self, &read)? {
                Joined::Record(record) => return Ok(record),
                Joined::More(more) => rest = more,
            }
        }
    }

    /// Reads pages as far as the file goes.
    pub(crate) fn read_run(&self, run: Run) -> Result<AlignedBytes, ReadError> {
        let mut buffer = AlignedBytes::zeroed(run.bytes());
        let count = self.shared.read(run, buffer.as_mut_slice())?;
        buffer.resize(count);
        Ok(buffer)
    }

    /// Counts a record as dead that is in this page: its key was changed or removed, or it was written anew elsewhere.
    pub fn note_dead(&self, page: PageNo) {
        self.shared.note_dead(page);
    }

    /// Counts a record in this page as living, after [`Store::forget_counts`].
    pub fn note_live(&self, page: PageNo) {
        self.shared.note_live(page);
    }

    /// Counts all records as dead: for a start that goes through the whole index and [notes](Store::note_live) what lives. Without
    /// that, the table's counts go on, which are nearly right.
    pub fn forget_counts(&self) {
        self.shared.segments.iter().for_each(|(_, segment)| segment.set_live(0));
        self.shared.huge.all_dead();
    }

    /// Makes durable whatever was written before, with the names of the files. Syncs only files that were written to since
    /// the last time.
    ///
    /// # Errors
    /// If a sync fails, or one failed before and its segment was not retired since. No checkpoint may be completed then:
    /// the segment is the next [`victim`](Store::victim); clean it, and begin another checkpoint.
    pub fn sync(&self) -> io::Result<()> {
        let shared = &self.shared;
        let _turn = shared.syncing.lock();
        let mut result = Ok(());
        for (no, segment) in shared.segments.iter() {
            if let Err(error) = shared.sync_segment(no, segment) {
                result = Err(error);
            }
        }
        let unnamed = shared.take_unnamed();
        if !unnamed.is_empty()
            && let Err(error) = shared.fs.sync_dir(&shared.dir)
        {
            unnamed.iter().for_each(|no| shared.lose(*no));
            result = Err(named("syncing", &shared.dir, &error));
        }
        result?;
        match shared.segments.iter().find(|(_, segment)| segment.state() == State::Lost) {
            None => Ok(()),
            Some((no, _)) => {
                let path = no.path(&shared.dir);
                let message = "a sync of it failed before, and its records are not written elsewhere yet";
                Err(io::Error::other(format!("syncing {}: {message}", path.display())))
            }
        }
    }

    /// Begins a checkpoint, before the first of the index is copied: what is retired from now on may be referred to by it.
    pub fn begin_checkpoint(&self) -> CheckpointMark {
        CheckpointMark(self.shared.epoch.fetch_add(1, AcqRel) + 1)
    }

    /// The table of segments for a checkpoint, to be made when all of its index was copied. [Syncs](Store::sync) the store, so that all
    /// that the table lists is on disk; and whatever the index refers to is readable in a store that is [opened](Store::open) with it.
    ///
    /// # Errors
    /// As [`Store::sync`]; also if a segment was lost since the checkpoint began: its index may refer to pages that are not on
    /// disk.
    pub fn table(&self, mark: CheckpointMark) -> io::Result<Vec<u8>> {
        let shared = &self.shared;
        let table = self.snapshot(mark);
        self.sync()?;
        let spoiled = |row: &&Row| shared.segments.grow(row.no).is_spoiled.load(Acquire);
        match table.segments.iter().find(spoiled) {
            None => Ok(table.encode()),
            Some(row) => {
                let path = row.no.path(&shared.dir);
                let message = "it was lost to a sync that failed; begin another checkpoint";
                Err(io::Error::other(format!("listing {}: {message}", path.display())))
            }
        }
    }

    /// The segments to which a checkpoint that began at `mark` may refer, as they are now.
    fn snapshot(&self, mark: CheckpointMark) -> Table {
        let shared = &self.shared;
        let inventory = shared.inventory.lock();
        let mut segments = Vec::new();
        for (no, segment) in shared.segments.iter() {
            let (is_listed, sealed_at) = match segment.state() {
                State::Open => (true, inventory.begun),
                State::Retired => (segment.retired_at.load(Relaxed) >= mark.0, inventory.begun),
                state => (state.is_in_use(), segment.sealed_at.load(Relaxed)),
            };
            let pages = segment.pages.load(Acquire);
            if is_listed && pages > 0 {
                segments.push(Row {
                    no,
                    class: segment.class(),
                    generation: segment.generation(),
                    sealed_at,
                    pages,
                    records: segment.records.load(Relaxed),
                    live: segment.live(),
                    gaps: segment.gaps(),
                });
            }
        }
        let (store, geometry, begun) = (shared.number, shared.geometry, inventory.begun);
        Table { store, geometry, begun, segments, huge: shared.huge.all() }
    }

    /// Has all that the last complete checkpoint's index refers to be in use again, also what was retired since. For whoever goes back to
    /// that index; what lives of it is to be counted anew. False: some of it may not be on disk, and nothing was changed.
    pub fn revive(&self) -> bool {
        self.shared.revive()
    }

    /// Ends a checkpoint that is durable, with its table: what was retired before it began is free.
    pub fn end_checkpoint(&self, mark: CheckpointMark) {
        self.shared.free_retired(mark.0);
    }
}

/// Whether a segment's file is there and as long as it must be.
/// The file that the directory's lock hangs on.
const LOCK_NAME: &str = "store.lock";

/// The segments whose files are there, by their numbers.
fn segments_in(fs: &Fs, dir: &Path) -> Result<Vec<SegmentNo>, Refusal> {
    let names = fs.list(dir).map_err(Refusal::disk(dir))?;
    Ok(names.iter().filter_map(|name| SegmentNo::parse_name(name.to_str()?)).collect())
}

pub(crate) fn check_file(fs: &Fs, dir: &Path, row: &Row, found: &[SegmentNo]) -> Result<(), Refusal> {
    let path = row.no.path(dir);
    if found.binary_search(&row.no).is_err() {
        return Err(Refusal::Missing(path));
    }
    let unwritten_end = row.gaps.last().filter(|(first, pages)| first + pages == row.pages);
    let written = unwritten_end.map_or(row.pages, |(first, _)| *first);
    let needed = u64::from(written) * crate::limits::PAGE_BYTES as u64;
    let bytes = fs.open(&path, Mode::Read).and_then(|file| file.len()).map_err(Refusal::disk(&path))?;
    if bytes < needed { Err(Refusal::Short { path, bytes, needed }) } else { Ok(()) }
}
