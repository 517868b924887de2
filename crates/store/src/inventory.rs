//! Which segments there are to write to: beginning, filling, retiring and freeing them, all under one lock.
//!
//! The spiller and the cleaner come here for pages, a checkpoint when it begins and ends; nobody who reads does. A file is made
//! under the lock, so that two threads never make one each for want of one; those that are freed together are removed without it. Invariants:
//! 1. A free segment is used again only when nobody holds its file: what a reader sees while it does, is of one use of the file.
//! 2. A segment is freed only after the end of a checkpoint that began after it was retired, and while nobody [keeps](crate::Kept) it
//!    who had begun to before that; a number without a file is used again only when that is removed which it had, and nobody holds it.
//! 3. What was freed in place of an earlier segment bears another generation from its first page on.

use crate::failure::named;
use crate::limits::CHUNK_PAGES;
use crate::number::SegmentNo;
use crate::options::Class;
use crate::segment::{Segment, State};
use crate::shared::Shared;
use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Weak};
use sys::Prng;
use sys::file::{File, Mode};

#[derive(Debug)]
pub(crate) struct Inventory {
    /// The segments that take chunks, by class.
    open: [Option<SegmentNo>; 2],
    /// Pages of open segments that chunks gave back with others behind them.
    holes: Vec<Hole>,
    /// Whether the disk was full when the open segment was last written to, by class.
    is_full: [bool; 2],
    free: Vec<SegmentNo>,
    /// Numbers below the highest that have no file, and the file they had.
    absent: Vec<(SegmentNo, Weak<File>)>,
    /// Made since the last sync of the directory.
    unnamed: Vec<SegmentNo>,
    /// Segments begun since the store was created.
    pub begun: u64,
    /// How many segments were retired.
    retired: u64,
    /// Of each who keeps what is retired, how many were before.
    keepers: Vec<u64>,
    /// The last checkpoint that has ended.
    ended: u64,
    prng: Prng,
}

/// Pages that were given back.
#[derive(Clone, Copy, Debug)]
struct Hole {
    segment: SegmentNo,
    first: u32,
    pages: u32,
}

/// Pages for a chunk.
#[derive(Debug)]
pub(crate) struct Reserved {
    pub segment: SegmentNo,
    pub class: Class,
    pub generation: u64,
    pub file: Arc<File>,
    /// The first, counted in the segment.
    pub first: u32,
    pub pages: u32,
}

impl Inventory {
    pub fn new(seed: u64) -> Inventory {
        Inventory {
            open: [None, None],
            holes: Vec::new(),
            is_full: [false, false],
            free: Vec::new(),
            absent: Vec::new(),
            unnamed: Vec::new(),
            begun: 0,
            retired: 0,
            keepers: Vec::new(),
            ended: 0,
            prng: Prng::from_seed(seed),
        }
    }

    /// A number that is no other store's or segment's.
    pub fn draw(&mut self) -> u64 {
        self.prng.next_u64()
    }

    /// Takes over what a start found.
    pub fn adopt(&mut self, begun: u64, free: Vec<SegmentNo>, absent: impl Iterator<Item = SegmentNo>) {
        self.begun = begun;
        // After a kill the names of those that were never synced are in memory only.
        self.unnamed.clone_from(&free);
        self.free = free;
        self.absent = absent.map(|no| (no, Weak::new())).collect();
    }

    /// Segments whose files wait to be used again.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Whether somebody keeps what lies in a retired segment, who had begun to before that was.
    pub fn is_kept(&self, segment: &Segment) -> bool {
        let number = segment.retired_number.load(Relaxed);
        self.keepers.iter().any(|before| number > *before)
    }

    fn seal(&mut self, shared: &Shared, no: SegmentNo) {
        let segment = shared.segments.grow(no);
        segment.sealed_at.store(self.begun, Relaxed);
        segment.set_state(State::Full);
        self.close(no);
    }

    fn close(&mut self, no: SegmentNo) {
        self.open.iter_mut().filter(|open| **open == Some(no)).for_each(|open| *open = None);
        self.holes.retain(|hole| hole.segment != no);
    }

    /// Takes a segment out of use that the disk has no room for, if there is one with a file that is there.
    fn leave_full(&mut self, shared: &Shared, class: Class) {
        if self.free.is_empty() || !std::mem::take(&mut self.is_full[class as usize]) {
            return;
        }
        if let Some(no) = self.open[class as usize] {
            self.seal_or_remove(shared, no, 0);
        }
    }

    /// Seals a segment, or removes it if there is nothing in it but the chunks of whoever asks.
    fn seal_or_remove(&mut self, shared: &Shared, no: SegmentNo, own_chunks: u32) {
        let segment = shared.segments.grow(no);
        let is_empty = segment.pages.load(Relaxed) == 0 && segment.in_flight.load(Acquire) == own_chunks;
        self.seal(shared, no);
        if is_empty {
            self.remove(shared, no);
        }
    }

    /// Pages between others, at least `needed`, in an open segment.
    fn take_hole(&mut self, no: SegmentNo, needed: u32, wanted: u32) -> Option<(u32, u32)> {
        let at = self.holes.iter().position(|hole| hole.segment == no && hole.pages >= needed)?;
        let hole = &mut self.holes[at];
        let (first, pages) = (hole.first, hole.pages.min(wanted));
        (hole.first, hole.pages) = (first + pages, hole.pages - pages);
        if hole.pages == 0 {
            self.holes.swap_remove(at);
        }
        Some((first, pages))
    }

    /// A free segment whose file nobody reads any more.
    fn take_free(&mut self, shared: &Shared) -> Option<SegmentNo> {
        let is_let_go = |no: &SegmentNo| {
            let file = shared.segments.grow(*no).file.read();
            file.as_ref().is_none_or(|file| Arc::strong_count(file) == 1)
        };
        let at = self.free.iter().position(is_let_go)?;
        Some(self.free.swap_remove(at))
    }

    /// A number for a new file.
    fn take_number(&mut self, shared: &Shared) -> io::Result<SegmentNo> {
        if let Some(at) = self.absent.iter().position(|(_, file)| file.strong_count() == 0) {
            return Ok(self.absent.swap_remove(at).0);
        }
        let no = SegmentNo(shared.segments.top());
        let is_possible = no <= shared.geometry.last_segment();
        is_possible.then_some(no).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::StorageFull,
                "the store has as many segments as pages can be numbered",
            )
        })
    }

    /// Takes what is due out of those that are retired: some are free now, the others are given up.
    fn take_due(&mut self, shared: &Shared) -> Vec<GivenUp> {
        let (mut due, mut given_up) = (Vec::new(), Vec::new());
        for (no, segment) in shared.segments.iter() {
            let is_retired = segment.state() == State::Retired && !self.is_kept(segment);
            if !is_retired || segment.retired_at.load(Relaxed) >= self.ended {
                continue;
            }
            let is_of_use = !segment.is_spoiled.load(Acquire) && !segment.is_damaged.load(Acquire);
            if is_of_use
                && !shared.saves_space.load(Relaxed)
                && self.free.len() < shared.options.spare_segments
            {
                segment.set_state(State::Free);
                self.free.push(no);
            } else {
                given_up.push(self.give_up(shared, no));
            }
            due.push(no);
        }
        let is_gone = |manifest| due.binary_search(&shared.geometry.segment_of(manifest)).is_ok();
        if !due.is_empty() {
            shared.huge.forget(is_gone);
        }
        given_up
    }

    /// Takes all that are free out of use.
    fn give_up_free(&mut self, shared: &Shared) -> Vec<GivenUp> {
        let free = std::mem::take(&mut self.free);
        free.into_iter().map(|no| self.give_up(shared, no)).collect()
    }

    /// Removes a segment's file.
    fn remove(&mut self, shared: &Shared, no: SegmentNo) {
        let given_up = self.give_up(shared, no);
        self.absent.push(given_up.remove(shared));
    }

    /// Takes a segment out of use whose file is to be removed.
    fn give_up(&mut self, shared: &Shared, no: SegmentNo) -> GivenUp {
        let segment = shared.segments.grow(no);
        segment.set_state(State::Absent);
        self.unnamed.retain(|other| *other != no);
        GivenUp { no, file: segment.file.write().take() }
    }
}

/// A segment that is not used any more. Nobody makes a file of its number before its own is removed.
#[must_use]
struct GivenUp {
    no: SegmentNo,
    file: Option<Arc<File>>,
}

impl GivenUp {
    /// Removes its file. One that stays means nothing: the next start removes it, or the number's next use.
    fn remove(self, shared: &Shared) -> (SegmentNo, Weak<File>) {
        let held = self.file.as_ref().map_or(Weak::new(), Arc::downgrade);
        drop(self.file);
        let _ = shared.fs.remove(&self.no.path(&shared.dir));
        (self.no, held)
    }
}

impl Shared {
    /// Pages for a chunk: at least `needed`, all in one segment; more if there are, up to a chunk's usual length, in multiples of
    /// `needed`: what is left over of one that takes several extents of one length would be lost.
    ///
    /// # Errors
    /// If a segment must be begun, and its file cannot be made or opened.
    pub(crate) fn reserve(&self, class: Class, needed: u32) -> io::Result<Reserved> {
        let mut inventory = self.inventory.lock();
        inventory.leave_full(self, class);
        let segment_pages = self.geometry.segment_pages();
        let wanted = needed * (CHUNK_PAGES / needed).max(1);
        let room = |no: SegmentNo| segment_pages - self.segments.grow(no).pages.load(Relaxed);
        let open = inventory.open[class as usize];
        let hole = open.and_then(|no| inventory.take_hole(no, needed, wanted));
        let no = match open {
            Some(no) if hole.is_some() || room(no) >= needed => no,
            left => {
                if let Some(full) = left {
                    inventory.seal(self, full);
                }
                self.begin(&mut inventory, class)?
            }
        };
        let segment = self.segments.grow(no);
        let file = self.file_of(no).map_err(|error| named("opening", &no.path(&self.dir), &error))?;
        let (first, pages) = hole.unwrap_or_else(|| {
            let pages = room(no).min(wanted);
            (segment.pages.fetch_add(pages, Release), pages)
        });
        assert!(needed <= pages, "extents are no longer than a segment");
        segment.in_flight.fetch_add(1, Relaxed);
        Ok(Reserved { segment: no, class, generation: segment.generation(), file, first, pages })
    }

    fn begin(&self, inventory: &mut Inventory, class: Class) -> io::Result<SegmentNo> {
        let no = match inventory.take_free(self) {
            Some(no) => no,
            None => {
                let no = inventory.take_number(self)?;
                self.segments.grow(no);
                inventory.unnamed.push(no);
                let path = no.path(&self.dir);
                if let Err(error) = self.open_file(&path, Mode::Truncate) {
                    inventory.remove(self, no);
                    return Err(named("making", &path, &error));
                }
                // Who has opened the one of this name that was just being removed has that one.
                *self.segments.grow(no).file.write() = None;
                no
            }
        };
        if let Err(error) = self.file_of(no) {
            inventory.remove(self, no);
            return Err(named("opening", &no.path(&self.dir), &error));
        }
        let generation = inventory.draw();
        self.segments.grow(no).begin(class, generation, self.geometry.segment_pages());
        inventory.begun += 1;
        inventory.open[class as usize] = Some(no);
        Ok(no)
    }

    /// Takes back the pages of a chunk that were not used, from `first` on, for other chunks.
    pub(crate) fn give_back(&self, reserved: &Reserved, first: u32) {
        let mut inventory = self.inventory.lock();
        self.give_back_locked(&mut inventory, reserved, first);
    }

    fn give_back_locked(&self, inventory: &mut Inventory, reserved: &Reserved, first: u32) {
        if inventory.open[reserved.class as usize] != Some(reserved.segment) {
            return;
        }
        let segment = self.segments.grow(reserved.segment);
        let end = reserved.first + reserved.pages;
        if segment.pages.load(Relaxed) == end {
            segment.pages.store(first, Release);
        } else {
            inventory.holes.push(Hole { segment: reserved.segment, first, pages: end - first });
        }
    }

    /// A chunk could not be written: its pages are given back, and others tried next time, if there are any.
    pub(crate) fn refused(&self, reserved: &Reserved, error: &io::Error) {
        let mut inventory = self.inventory.lock();
        self.give_back_locked(&mut inventory, reserved, reserved.first);
        if inventory.open[reserved.class as usize] != Some(reserved.segment) {
            return;
        }
        // A full disk still takes what it has room for already, here when there is space again, or in a file that is there.
        if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            inventory.is_full[reserved.class as usize] = true;
        } else {
            inventory.seal_or_remove(self, reserved.segment, 1);
        }
    }

    /// Takes a segment out of use whose sync failed.
    pub(crate) fn lose(&self, no: SegmentNo) {
        let mut inventory = self.inventory.lock();
        let segment = self.segments.grow(no);
        segment.is_spoiled.store(true, Release);
        if matches!(segment.state(), State::Open | State::Full) {
            segment.sealed_at.store(inventory.begun, Relaxed);
            segment.set_state(State::Lost);
        }
        inventory.close(no);
    }

    /// Whoever syncs the directory names these with it.
    pub(crate) fn take_unnamed(&self) -> Vec<SegmentNo> {
        std::mem::take(&mut self.inventory.lock().unnamed)
    }

    /// Notes that nothing in a segment lives.
    pub(crate) fn retire(&self, no: SegmentNo) {
        let mut inventory = self.inventory.lock();
        let segment = self.segments.get(no).expect("the segment to retire is there");
        let is_at_rest =
            matches!(segment.state(), State::Full | State::Lost) && segment.in_flight.load(Acquire) == 0;
        assert!(is_at_rest, "only a segment that takes no more is retired");
        segment.retired_at.store(self.epoch.load(Acquire), Relaxed);
        inventory.retired += 1;
        segment.retired_number.store(inventory.retired, Relaxed);
        let moved = self.huge.kill(|manifest| self.geometry.segment_of(manifest) == no);
        moved.into_iter().for_each(|part| self.add_live(part, -1));
        segment.set_live(0);
        segment.set_state(State::Retired);
    }

    /// Takes retired segments into use again: an index that was copied before is gone back to. False: there are some of which nobody knows
    /// what is on disk.
    pub(crate) fn revive(&self) -> bool {
        let _inventory = self.inventory.lock();
        let mut known = self.segments.iter().filter(|(_, segment)| segment.state().is_readable());
        if known.any(|(_, segment)| segment.is_spoiled.load(Acquire)) {
            return false;
        }
        let retired = self.segments.iter().filter(|(_, segment)| segment.state() == State::Retired);
        retired.for_each(|(_, segment)| segment.set_state(State::Full));
        true
    }

    /// Frees what was retired before the checkpoint `mark` began, which has ended: now, or when nobody keeps it any more.
    pub(crate) fn free_retired(&self, mark: u64) {
        self.free_due(|inventory| inventory.ended = inventory.ended.max(mark));
    }

    /// From now on nothing that is retired is freed; what was before is. Gives what ends that.
    pub(crate) fn keep_retired(&self) -> u64 {
        let mut inventory = self.inventory.lock();
        let before = inventory.retired;
        inventory.keepers.push(before);
        before
    }

    /// Ends what [`Shared::keep_retired`] has begun.
    pub(crate) fn let_go_of_retired(&self, before: u64) {
        self.free_due(|inventory| {
            if let Some(index) = inventory.keepers.iter().position(|other| *other == before) {
                inventory.keepers.swap_remove(index);
            }
        });
    }

    /// How many segments are retired that somebody keeps, and that nobody does.
    pub(crate) fn kept_and_not(&self) -> (usize, usize) {
        let inventory = self.inventory.lock();
        let retired = self.segments.iter().filter(|(_, segment)| segment.state() == State::Retired);
        let (kept, not): (Vec<_>, Vec<_>) = retired.partition(|(_, segment)| inventory.is_kept(segment));
        (kept.len(), not.len())
    }

    /// Frees what `change` leaves for that. There may be thousands of files: they are removed with the inventory not locked.
    fn free_due(&self, change: impl FnOnce(&mut Inventory)) {
        let given_up = {
            let inventory = &mut *self.inventory.lock();
            change(inventory);
            inventory.take_due(self)
        };
        self.remove_all(given_up);
    }

    fn remove_all(&self, given_up: Vec<GivenUp>) {
        for one in given_up {
            let absent = one.remove(self);
            self.inventory.lock().absent.push(absent);
        }
    }

    /// From now on what is free goes back to the disk at once, or is kept for what comes.
    pub(crate) fn save_space(&self, on: bool) {
        if self.saves_space.swap(on, Relaxed) != on && on {
            let given_up = self.inventory.lock().give_up_free(self);
            self.remove_all(given_up);
        }
    }
}
