//! Reading many pages in the order in which they lie: those that lie close together with one read.

use crate::failure::ReadError;
use crate::limits::{CHUNK_PAGES, GAP_PAGES, PAGE_BYTES};
use crate::number::{PageNo, Run};
use crate::page::Page;
use crate::shared::Shared;
use crate::store::Store;
use std::sync::Arc;

/// Keeps all that could be read when it began until it is dropped: no segment is freed that is retired meanwhile.
#[derive(Debug)]
pub struct Kept {
    shared: Arc<Shared>,
    /// What was retired before.
    before: u64,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.shared.let_go_of_retired(self.before);
    }
}

impl Store {
    /// Keeps what lies in pages now, also if it dies. Space that is cleaned is not used again meanwhile.
    pub fn keep(&self) -> Kept {
        Kept { shared: Arc::clone(&self.shared), before: self.shared.keep_retired() }
    }

    /// Bytes of segments in which nothing lives and that are there only since somebody keeps what lies there. Goes through all segments.
    pub fn kept_bytes(&self) -> u64 {
        self.shared.kept_and_not().0 as u64 * self.shared.geometry.segment_bytes()
    }

    /// Bytes that are left on the disk; as many as can be if it does not say.
    pub fn bytes_left(&self) -> u64 {
        self.shared.fs.bytes_left(&self.shared.dir).unwrap_or(u64::MAX)
    }

    /// Shows pages, whose numbers ascend, or why one cannot be read.
    pub fn read_in_order(
        &self,
        pages: &[PageNo],
        visit: &mut dyn FnMut(PageNo, Result<Page<'_>, ReadError>),
    ) {
        let mut buffer = self.shared.take_buffer(CHUNK_PAGES);
        let mut left = pages;
        while !left.is_empty() {
            let (together, later) = left.split_at(self.together(left));
            self.read_together(together, buffer.as_mut_slice(), visit);
            left = later;
        }
        self.shared.put_buffer(buffer);
    }

    /// How many of these pages are worth one read.
    fn together(&self, pages: &[PageNo]) -> usize {
        let geometry = self.shared.geometry;
        let is_near = |pair: &&[PageNo]| {
            let (page, first) = (pair[1], pages[0]);
            geometry.segment_of(page) == geometry.segment_of(first)
                && page.get() - pair[0].get() <= GAP_PAGES
                && page.get() - first.get() < CHUNK_PAGES
        };
        1 + pages.windows(2).take_while(is_near).count()
    }

    fn read_together(
        &self,
        pages: &[PageNo],
        buffer: &mut [u8],
        visit: &mut dyn FnMut(PageNo, Result<Page<'_>, ReadError>),
    ) {
        let (first, last) = (pages[0], pages[pages.len() - 1]);
        let run = Run { first, pages: last.get() - first.get() + 1 };
        // What the file did not have is not taken for what was read before.
        let bytes = match self.shared.read(run, &mut buffer[..run.bytes()]) {
            Ok(bytes) => bytes,
            Err(error) if pages.len() == 1 => return visit(first, Err(error)),
            // Not all of them need be on the spot that the disk does not read.
            Err(_) => return pages.iter().for_each(|page| self.read_together(&[*page], buffer, visit)),
        };
        for page in pages {
            let from = (page.get() - first.get()) as usize * PAGE_BYTES;
            let here = &buffer[from.min(bytes)..(from + PAGE_BYTES).min(bytes)];
            visit(*page, Page::parse(here, *page, self).map_err(ReadError::from));
        }
    }
}
