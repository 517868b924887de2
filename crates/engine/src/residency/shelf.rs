//! Reading records for the keyspace, in the thread that asks.

use crate::Engine;
use keyspace::{Record, Shelf, Unreadable};
use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use store::limits::PAGE_BYTES;
use store::{Found, OwnedRecord, Page, PageNo, Store};
use sys::file::AlignedBytes;

/// The store as the keyspace sees it.
pub(super) struct OnDisk {
    pub store: Store,
    pub engine: Weak<Engine>,
}

thread_local! {
    /// Where this thread's pages are read to.
    static PAGE: RefCell<AlignedBytes> = RefCell::new(AlignedBytes::zeroed(PAGE_BYTES));
}

impl Shelf for OnDisk {
    fn visit(
        &self,
        at: u32,
        is_meant: &mut dyn FnMut(u32, &[u8]) -> bool,
        take: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<(), Unreadable> {
        let page = PageNo::new(at).ok_or_else(|| Unreadable("a cold key lies in page 0".to_owned()))?;
        let mut reads = 0;
        let done = PAGE.with_borrow_mut(|buffer| {
            self.visit_page(page, buffer, is_meant, &mut |OwnedRecord { key, expires_at, image, .. }| {
                reads += 1;
                take(Record { key, expires_at, image })
            })
        });
        if let Some(engine) = self.engine.upgrade() {
            engine.residency.counts.cold_reads.fetch_add(reads, Ordering::Relaxed);
            let _ = done.as_ref().inspect_err(|error| engine.residency.note_failed_read(at, &error.0));
        }
        done
    }

    fn visit_in_order(
        &self,
        places: &[u32],
        is_meant: &mut dyn FnMut(u32, u32, &[u8]) -> bool,
        take: &mut dyn FnMut(u32, Record),
    ) {
        let pages: Vec<PageNo> = places.iter().copied().filter_map(PageNo::new).collect();
        let mut reads = 0;
        self.store.read_in_order(&pages, &mut |no, page| {
            let Ok(page) = page else { return };
            let at = no.get();
            let mut is_meant = |there, key: &[u8]| is_meant(at, there, key);
            // Who asks looks again for what does not come, and is told why.
            let _ = self.visit_records(
                &page,
                &mut is_meant,
                &mut |OwnedRecord { key, expires_at, image, .. }| {
                    reads += 1;
                    take(at, Record { key, expires_at, image });
                    ControlFlow::Continue(())
                },
            );
        });
        if let Some(engine) = self.engine.upgrade() {
            engine.residency.counts.cold_reads.fetch_add(reads, Ordering::Relaxed);
        }
    }

    fn keep(&self) -> Box<dyn Any + Send> {
        Box::new(self.store.keep())
    }

    fn note_dead(&self, at: u32) {
        if let Some(page) = PageNo::new(at) {
            self.store.note_dead(page);
        }
    }

    fn note_cleared(&self, keys: u64) {
        if let Some(engine) = self.engine.upgrade() {
            engine.residency.note_cleared(keys);
        }
    }
}

impl OnDisk {
    fn visit_page(
        &self,
        page: PageNo,
        buffer: &mut AlignedBytes,
        is_meant: &mut dyn FnMut(u32, &[u8]) -> bool,
        take: &mut dyn FnMut(OwnedRecord) -> ControlFlow<()>,
    ) -> Result<(), Unreadable> {
        // Its segment is not used for anything else while the file is held.
        let (file, offset) = self.store.place_of(page).map_err(unreadable)?;
        let read = file.read_at(buffer.as_mut_slice(), offset);
        let bytes =
            read.map_err(|error| Unreadable(format!("reading page {} of the store: {error}", page.get())))?;
        self.store.note_read(bytes as u64);
        let parsed = Page::parse(&buffer.as_slice()[..bytes], page, &self.store).map_err(unreadable)?;
        self.visit_records(&parsed, is_meant, take)
    }

    fn visit_records(
        &self,
        page: &Page<'_>,
        is_meant: &mut dyn FnMut(u32, &[u8]) -> bool,
        take: &mut dyn FnMut(OwnedRecord) -> ControlFlow<()>,
    ) -> Result<(), Unreadable> {
        for found in page.records() {
            let record = match found {
                Found::Here(record) if is_meant(record.database, record.key) => {
                    let wrong = || {
                        Unreadable(format!(
                            "an image in page {} of the store does not unpack",
                            page.no().get()
                        ))
                    };
                    record.to_owned().ok_or_else(wrong)?
                }
                Found::Here(_) => continue,
                Found::Continues(rest) => {
                    if rest.key().is_some_and(|key| !is_meant(rest.database(), key)) {
                        continue;
                    }
                    let record = self.store.read_rest(rest).map_err(unreadable)?;
                    if !is_meant(record.database, &record.key) {
                        continue;
                    }
                    record
                }
            };
            if take(record).is_break() {
                break;
            }
        }
        Ok(())
    }
}

fn unreadable(error: impl fmt::Display) -> Unreadable {
    Unreadable(error.to_string())
}
