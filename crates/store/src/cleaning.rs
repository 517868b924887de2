//! Cleaning: which segment to clean, going through what it holds, and when.
//!
//! One thread, the cleaner, in the owner's pace: it takes the [victim](Store::victim), asks of each record whether it lives, writes
//! anew those that do, and [retires](Store::retire) the segment. Nothing here writes.
//!
//! The victim is chosen by cost and benefit as in the log-structured file system (Rosenblum and Ousterhout, 1992): what is gained,
//! `1 - u`, over what it costs, `1 + u` (read it all, write `u` anew), where `u` is the share that lives. There, the whole is
//! multiplied by the segment's age, since what is still alive in an old segment is likely to stay alive; with uniform overwrites, where
//! age says nothing, that is worse than greedy. So age counts here for at most half as much again ([`AGE_BONUS`]).

use crate::failure::{Damage, ReadError};
use crate::limits::{AGE_BONUS, CHUNK_PAGES, DAMAGES_MAX, DEAD_SHARE_MIN, PAGE_BYTES, SLACK_SEGMENTS};
use crate::number::{PageNo, Run, SegmentNo};
use crate::page::{Found, Page, Step};
use crate::segment::{Segment, State};
use crate::{Stats, Store};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sys::file::AlignedBytes;

impl Store {
    /// The segment that it is best to clean: one that was lost to a failed sync, or of the full ones the one that is worth
    /// most. None if all of them are nearly all alive. Never one that takes chunks, waits for a write, or was found damaged.
    pub fn victim(&self) -> Option<SegmentNo> {
        let begun = self.shared.inventory.lock().begun;
        let mut best: Option<(f64, SegmentNo)> = None;
        for (no, segment) in self.shared.segments.iter() {
            let is_possible = segment.in_flight.load(Acquire) == 0 && !segment.is_damaged.load(Acquire);
            let worth = match segment.state() {
                State::Lost if is_possible => f64::INFINITY,
                State::Full if is_possible => self.worth(segment, begun),
                _ => continue,
            };
            if worth > 0.0 && best.is_none_or(|(most, _)| worth > most) {
                best = Some((worth, no));
            }
        }
        best.map(|(_, no)| no)
    }

    /// Whether a checkpoint frees anything.
    pub fn has_emptied(&self) -> bool {
        self.shared.kept_and_not().1 > 0
    }

    /// How many bytes of a segment live, about.
    pub fn live_bytes_of(&self, no: SegmentNo) -> u64 {
        self.shared.segments.get(no).map_or(0, Segment::live_bytes)
    }

    /// Gives every segment that is emptied back to the disk from now on, and those that were kept for what comes; or keeps some again.
    pub fn save_space(&self, on: bool) {
        self.shared.save_space(on);
    }

    /// What cleaning a full segment is worth; 0 if nothing.
    fn worth(&self, segment: &Segment, begun: u64) -> f64 {
        let live = segment.live_bytes() as f64 / self.shared.geometry.segment_bytes() as f64;
        if 1.0 - live < DEAD_SHARE_MIN {
            return 0.0;
        }
        let age = begun.saturating_sub(segment.sealed_at.load(Relaxed)) as f64;
        let oldest = f64::from(self.shared.segments.top());
        (1.0 - live) / (1.0 + live) * (1.0 + AGE_BONUS * (age / oldest).min(1.0))
    }

    /// Whether more is dead than should be: three quarters of what `space_amplification` allows beside the live bytes. Also while a
    /// segment is lost to a failed sync.
    pub fn wants_cleaning(&self) -> bool {
        let stats = self.stats();
        let slack = SLACK_SEGMENTS * self.shared.geometry.segment_bytes();
        let is_much = stats.bytes_in_use > stats.bytes_live + (self.allowance(&stats) / 4 * 3).max(slack);
        is_much || stats.segments_lost > 0
    }

    /// Whether retired segments, with the free ones, hold more than a quarter of what `space_amplification` allows: only a checkpoint
    /// frees them, while nobody [keeps](Store::keep) them.
    pub fn wants_checkpoint(&self) -> bool {
        let stats = self.stats();
        let segment_bytes = self.shared.geometry.segment_bytes();
        let (_, retired) = self.shared.kept_and_not();
        let held = (retired + stats.segments_free) as u64 * segment_bytes;
        let slack = (SLACK_SEGMENTS + stats.segments_free as u64) * segment_bytes;
        retired > 0 && held > (self.allowance(&stats) / 4).max(slack)
    }

    /// Bytes that may be dead.
    fn allowance(&self, stats: &Stats) -> u64 {
        let hundredths = u64::from(self.shared.options.space_amplification.saturating_sub(100));
        stats.bytes_live / 100 * hundredths
    }

    /// Goes through all records that were written to a segment, alive or not, from its beginning on, in reads of 256 KB. `visit` gets a
    /// record's page and the record; of one that takes several pages the key and what goes on elsewhere ([`Store::read_rest`]). Of
    /// a huge record of which a part lies here, it gets the page by which its key knows it, wherever that is. `Break` ends it.
    ///
    /// Gives the places that are damaged, of which nothing was visited; at most `DAMAGES_MAX`. Such a segment is no
    /// [`victim`](Store::victim) any more.
    ///
    /// # Errors
    /// If the disk does not read.
    pub fn records_of(
        &self,
        no: SegmentNo,
        visit: impl FnMut(PageNo, Found<'_>) -> ControlFlow<()>,
    ) -> Result<Vec<Damage>, ReadError> {
        let Some(segment) = self.shared.segments.get(no) else { return Ok(Vec::new()) };
        let buffer = self.shared.take_buffer(CHUNK_PAGES);
        let is_here = |page| self.shared.geometry.segment_of(page) == no;
        let mut walk = SegmentWalk {
            store: self,
            no,
            segment,
            buffer,
            loaded: 0..0,
            bytes: 0,
            owners: self.shared.huge.owners(is_here),
            visited: HashSet::new(),
            damages: Vec::new(),
            visit,
        };
        let result = walk.run();
        self.shared.put_buffer(walk.buffer);
        if !walk.damages.is_empty() {
            segment.is_damaged.store(true, Release);
        }
        result.map(|()| walk.damages)
    }

    /// Notes that no record lives in a segment any more. Its pages can be read until it is free.
    ///
    /// # Panics
    /// If the segment is not one that a [`victim`](Store::victim) could be.
    pub fn retire(&self, no: SegmentNo) {
        self.shared.retire(no);
    }
}

struct SegmentWalk<'s, V> {
    store: &'s Store,
    no: SegmentNo,
    segment: &'s Segment,
    buffer: AlignedBytes,
    /// The pages in the buffer, and how many bytes of them the file had.
    loaded: std::ops::Range<u32>,
    bytes: usize,
    /// Of the parts that lie here, the pages of their manifests.
    owners: HashMap<PageNo, PageNo>,
    visited: HashSet<PageNo>,
    damages: Vec<Damage>,
    visit: V,
}

impl<V: FnMut(PageNo, Found<'_>) -> ControlFlow<()>> SegmentWalk<'_, V> {
    fn run(&mut self) -> Result<(), ReadError> {
        let pages = self.segment.pages.load(Acquire);
        let mut at = 0;
        while at < pages {
            if !self.segment.is_written(at) {
                at += 1;
                continue;
            }
            self.load(at, pages)?;
            match self.page(at)? {
                ControlFlow::Continue(step) => at += step,
                ControlFlow::Break(()) => break,
            }
        }
        Ok(())
    }

    /// Reads on, if the page is not in the buffer.
    fn load(&mut self, at: u32, pages: u32) -> Result<(), ReadError> {
        if !self.loaded.contains(&at) {
            let count = CHUNK_PAGES.min(pages - at);
            let run = Run { first: self.store.shared.geometry.page(self.no, at), pages: count };
            self.bytes = self.store.shared.read(run, &mut self.buffer.as_mut_slice()[..run.bytes()])?;
            self.loaded = at..at + count;
        }
        Ok(())
    }

    /// Visits what begins in a page, and gives how many pages to go on.
    fn page(&mut self, at: u32) -> Result<ControlFlow<(), u32>, ReadError> {
        let from = (at - self.loaded.start) as usize * PAGE_BYTES;
        let bytes = &self.buffer.as_slice()[from.min(self.bytes)..(from + PAGE_BYTES).min(self.bytes)];
        let no = self.store.shared.geometry.page(self.no, at);
        let page = match Page::parse(bytes, no, self.store) {
            Ok(page) => page,
            Err(damage) => {
                note(&mut self.damages, damage);
                return Ok(ControlFlow::Continue(1));
            }
        };
        let (pages, is_part) = match page.step() {
            Step::Extent { pages, is_part } => (pages, is_part),
            Step::Records | Step::Continuation => (1, false),
        };
        let visited = visit_all(self.store, &page, &mut self.damages, &mut self.visit)?;
        if visited.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        if is_part && self.part(no)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(pages.max(1)))
    }

    /// Visits the record that a part belongs to, once, unless it is here itself.
    fn part(&mut self, no: PageNo) -> Result<ControlFlow<()>, ReadError> {
        let Some(manifest) = self.owners.get(&no).copied() else { return Ok(ControlFlow::Continue(())) };
        if self.store.segment_of(manifest) == self.no || !self.visited.insert(manifest) {
            return Ok(ControlFlow::Continue(()));
        }
        let mut buffer = AlignedBytes::zeroed(PAGE_BYTES);
        let count = self.store.shared.read(Run { first: manifest, pages: 1 }, buffer.as_mut_slice())?;
        match Page::parse(&buffer.as_slice()[..count], manifest, self.store) {
            Ok(page) => visit_all(self.store, &page, &mut self.damages, &mut self.visit),
            Err(damage) => {
                note(&mut self.damages, damage);
                Ok(ControlFlow::Continue(()))
            }
        }
    }
}

/// Visits the records that begin in a page, each with its key.
fn visit_all(
    store: &Store,
    page: &Page<'_>,
    damages: &mut Vec<Damage>,
    visit: &mut impl FnMut(PageNo, Found<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, ReadError> {
    for found in page.records() {
        let found = match found {
            Found::Here(_) => found,
            Found::Continues(rest) => match rest.with_key(store) {
                Ok(rest) => Found::Continues(rest),
                Err(ReadError::Damage(damage)) => {
                    note(damages, damage);
                    continue;
                }
                Err(error) => return Err(error),
            },
        };
        if visit(page.no(), found).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

fn note(damages: &mut Vec<Damage>, damage: Damage) {
    if damages.len() < DAMAGES_MAX {
        damages.push(damage);
    }
}
