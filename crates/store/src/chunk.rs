//! Chunks: records gathered in memory for pages that follow each other, and written with one write.
//!
//! The spiller and the cleaner fill them, each its own, several at a time; nobody waits for another's write. A record's page is
//! known as soon as it is added, and may be let go in memory when [`Store::is_written`] says so. Invariants:
//! 1. A chunk's pages are its own from the moment it is made, in the file that its segment has then.
//! 2. A page holds no key twice, so that a key's word says which record lives.
//! 3. A chunk that is dropped or fails leaves no page that counts as written.

use crate::Store;
use crate::extent::Manifest;
use crate::failure::named;
use crate::inventory::Reserved;
use crate::limits::{CHUNK_PAGES, LOOK_BACK_PAGES, PAGE_BYTES};
use crate::number::{PageNo, Run};
use crate::options::Class;
use crate::pack::Packer;
use crate::page::{self, HEADER_BYTES, Header, Identity, PageKind, ROOM};
use crate::record::{HEAD_BYTES_MAX, Head, Image, Record, Role, Width};
use crate::segment::State;
use crate::shared::Shared;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use sys::file::AlignedBytes;

/// What a record needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// A place in a page among others.
    Small,
    /// An extent of so many pages at most.
    Large {
        /// At least 1.
        pages: u32,
    },
    /// More than a segment should hold: [`Store::write_parts`].
    Parts,
    /// Its key alone is more than can be written. The record must stay in memory.
    TooLong,
}

/// Records on their way to the disk.
#[derive(Debug)]
pub struct Chunk {
    shared: Arc<Shared>,
    reserved: Reserved,
    /// As long as all its pages; None once it was given back.
    buffer: Option<AlignedBytes>,
    /// The pages that were begun.
    pages: Vec<Header>,
    records: u32,
    packer: Packer,
    is_written: bool,
}

impl Store {
    /// What a record needs, before compression.
    pub fn room_for(&self, record: &Record<'_>) -> Room {
        let geometry = self.shared.geometry;
        let head = record.head(Role::Whole);
        let fits_short = record.key.len() <= ROOM && record.image.stored().len() <= ROOM;
        if fits_short && head.record_bytes(Width::Short) <= ROOM {
            return Room::Small;
        }
        let room = u64::from(geometry.extent_pages_max()) * ROOM as u64;
        let bytes = head.record_bytes(Width::Long) as u64;
        if bytes <= room {
            let pages = u32::try_from(bytes.div_ceil(ROOM as u64)).expect("no more than an extent may have");
            return Room::Large { pages };
        }
        let parts = record.image.plain_bytes().div_ceil(self.part_bytes());
        let manifest = (HEAD_BYTES_MAX + record.key.len() + Manifest::bytes(parts)) as u64;
        if manifest <= room { Room::Parts } else { Room::TooLong }
    }

    /// A chunk for records that need this room: several small ones, an extent of this length or shorter ones.
    ///
    /// # Errors
    /// If there is no segment for it and none can be made.
    ///
    /// # Panics
    /// For what no chunk can hold: `Parts` and `TooLong`.
    pub fn chunk(&self, room: Room) -> io::Result<Chunk> {
        let (class, needed) = match room {
            Room::Small => (Class::Small, 1),
            Room::Large { pages } => (Class::Large, pages),
            Room::Parts | Room::TooLong => panic!("no chunk holds {room:?}"),
        };
        let shared = Arc::clone(&self.shared);
        let reserved = shared.reserve(class, needed)?;
        let buffer = Some(shared.take_buffer(reserved.pages));
        let (pages, packer) = (Vec::with_capacity(reserved.pages as usize), Packer::default());
        Ok(Chunk { shared, reserved, buffer, pages, records: 0, packer, is_written: false })
    }

    /// Writes a record that needs [`Room::Parts`], and gives its page.
    ///
    /// # Errors
    /// If the disk refuses; what was written of it counts as dead then.
    ///
    /// # Panics
    /// If its image does not unpack: it is not one that the store packed.
    pub fn write_parts(&self, record: &Record<'_>) -> io::Result<PageNo> {
        let image = record.image.plain().expect("what the store packed unpacks");
        let mut parts = Vec::new();
        let written = self.write_pieces(&image, &mut parts).and_then(|()| {
            let manifest = Manifest { plain_bytes: image.len() as u64, parts: parts.clone() }.encode();
            let listed = Record { image: Image::Plain(&manifest), ..*record };
            self.write_extent(&listed, Role::Manifest).map(|run| run.first)
        });
        let pages: Vec<PageNo> = parts.iter().map(|part| part.first).collect();
        match &written {
            Ok(manifest) => self.shared.huge.insert(*manifest, pages),
            Err(_) => pages.iter().for_each(|page| self.note_dead(*page)),
        }
        written
    }

    fn write_pieces(&self, image: &[u8], parts: &mut Vec<Run>) -> io::Result<()> {
        for piece in image.chunks(self.part_bytes()) {
            let image = Image::Plain(piece);
            let part = Record { database: 0, key: &[], expires_at: None, kind: 0, flags: 0, image };
            parts.push(self.write_extent(&part, Role::Part)?);
        }
        Ok(())
    }

    fn write_extent(&self, record: &Record<'_>, role: Role) -> io::Result<Run> {
        let pages = crate::extent::pages(&record.head(role));
        let mut chunk = self.chunk(Room::Large { pages })?;
        let first = chunk.add_as(record, role).expect("the chunk was made for it");
        let pages = chunk.page_count();
        chunk.write()?;
        Ok(Run { first, pages })
    }

    /// Bytes of an image that a part holds: a chunk full.
    fn part_bytes(&self) -> usize {
        let pages = CHUNK_PAGES.min(self.shared.geometry.extent_pages_max());
        pages as usize * ROOM - HEAD_BYTES_MAX
    }
}

impl Chunk {
    /// Adds a record, and gives the page that it will be in. None if there is no room left: write the chunk, and ask for another
    /// with the record's own [`Store::room_for`].
    pub fn add(&mut self, record: &Record<'_>) -> Option<PageNo> {
        self.add_as(record, Role::Whole)
    }

    fn add_as(&mut self, record: &Record<'_>, role: Role) -> Option<PageNo> {
        let mut packer = std::mem::take(&mut self.packer);
        let packed = match record.image {
            // A list of parts is read before it could be unpacked.
            Image::Plain(plain) if role != Role::Manifest => {
                packer.pack(self.shared.options.compression, plain)
            }
            _ => None,
        };
        let plain_bytes = u32::try_from(record.image.plain_bytes()).ok();
        let image = match (packed, plain_bytes) {
            (Some(bytes), Some(plain_bytes)) => Image::Packed { bytes, plain_bytes },
            _ => record.image,
        };
        let record = Record { image, ..*record };
        let head = record.head(role);
        let page = match self.reserved.class {
            Class::Small => self.add_small(&head, &record),
            Class::Large => self.add_extent(&head, &record),
        };
        self.packer = packer;
        self.records += u32::from(page.is_some());
        page
    }

    fn add_small(&mut self, head: &Head, record: &Record<'_>) -> Option<PageNo> {
        let bytes = head.record_bytes(Width::Short);
        let recent = self.pages.len().saturating_sub(LOOK_BACK_PAGES);
        let takes = |index: &usize| {
            let used = self.pages[*index].used as usize;
            // A key that changed since it was added comes again; in the same page nobody could tell which one lives.
            used + bytes <= ROOM && !page::holds(self.page(*index), used, record.database, record.key)
        };
        let index = match (recent..self.pages.len()).rev().find(takes) {
            Some(index) => index,
            None if bytes <= ROOM && self.has_pages(1) => {
                self.pages.push(Header { kind: PageKind::Records, count: 0, used: 0 });
                self.pages.len() - 1
            }
            None => return None,
        };
        let header = self.pages[index];
        let used = page::put(self.page_mut(index), header.used as usize, head, record);
        let used = u16::try_from(used).expect("a page is shorter");
        self.pages[index] = Header { count: header.count + 1, used, ..header };
        Some(self.no_of(index))
    }

    fn add_extent(&mut self, head: &Head, record: &Record<'_>) -> Option<PageNo> {
        let pages = head.record_bytes(Width::Long).div_ceil(ROOM);
        if !self.has_pages(pages) {
            return None;
        }
        let begin = self.pages.len();
        let mut bytes = [0; HEAD_BYTES_MAX];
        let length = head.encode(Width::Long, &mut bytes);
        for mut part in [&bytes[..length], record.key, record.image.stored()] {
            while !part.is_empty() {
                if self.pages[begin..].last().is_none_or(|page| page.used as usize == ROOM) {
                    let (kind, count) = match self.pages.len() - begin {
                        0 => (PageKind::Extent, 1),
                        _ => (PageKind::Continuation, 0),
                    };
                    self.pages.push(Header { kind, count, used: 0 });
                }
                let index = self.pages.len() - 1;
                let used = self.pages[index].used as usize;
                let (now, later) = part.split_at(part.len().min(ROOM - used));
                self.page_mut(index)[HEADER_BYTES + used..][..now.len()].copy_from_slice(now);
                self.pages[index].used += u16::try_from(now.len()).expect("a page is shorter");
                part = later;
            }
        }
        Some(self.no_of(begin))
    }

    /// Records that were added.
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Whether there are so many more pages.
    fn has_pages(&self, count: usize) -> bool {
        count <= self.reserved.pages as usize - self.pages.len()
    }

    /// Pages that have something.
    fn page_count(&self) -> u32 {
        u32::try_from(self.pages.len()).expect("no more than were reserved")
    }

    fn no_of(&self, index: usize) -> PageNo {
        let index = u32::try_from(index).expect("no more pages than were reserved");
        self.shared.geometry.page(self.reserved.segment, self.reserved.first + index)
    }

    fn buffer_mut(&mut self) -> &mut [u8] {
        self.buffer.as_mut().expect("only dropping takes it").as_mut_slice()
    }

    fn page(&self, index: usize) -> &[u8] {
        let buffer = self.buffer.as_ref().expect("only dropping takes it");
        &buffer.as_slice()[index * PAGE_BYTES..(index + 1) * PAGE_BYTES]
    }

    fn page_mut(&mut self, index: usize) -> &mut [u8] {
        &mut self.buffer_mut()[index * PAGE_BYTES..(index + 1) * PAGE_BYTES]
    }

    /// Writes all that was added, without a sync. When this returns, its pages count as written.
    ///
    /// # Errors
    /// Those of the system, such as a full disk: nothing that was added is on disk then, and none of its pages means anything;
    /// nobody need note its records as dead.
    pub fn write(mut self) -> io::Result<()> {
        if self.pages.is_empty() {
            return Ok(());
        }
        // Not behind it: a segment that is lost by this would take back what counts as written.
        self.shared.sync_pinned();
        let identity = Identity { store: self.shared.number, generation: self.reserved.generation };
        for index in 0..self.pages.len() {
            let (no, header) = (self.no_of(index), self.pages[index]);
            page::seal(self.page_mut(index), identity, no, header);
        }
        let bytes = self.pages.len() * PAGE_BYTES;
        let offset = u64::from(self.reserved.first) * PAGE_BYTES as u64;
        let buffer = self.buffer.as_ref().expect("only dropping takes it");
        let written = self.reserved.file.write_at(&buffer.as_slice()[..bytes], offset);
        let written = written.and_then(|()| self.note_written(bytes as u64));
        if let Err(error) = &written {
            self.shared.refused(&self.reserved, error);
            // They may be another chunk's by now.
            self.reserved.pages = 0;
        }
        written.map_err(|error| named("writing", &self.reserved.segment.path(&self.shared.dir), &error))
    }

    fn note_written(&mut self, bytes: u64) -> io::Result<()> {
        let segment = self.shared.segments.grow(self.reserved.segment);
        segment.is_unsynced.store(true, Release);
        if segment.state() == State::Lost {
            return Err(io::Error::other("the segment was lost to a sync that failed"));
        }
        self.is_written = true;
        segment.records.fetch_add(self.records, Relaxed);
        segment.add_live(self.records as i32);
        segment.set_written(self.reserved.first, self.page_count());
        let counters = &self.shared.counters;
        counters.bytes_written.fetch_add(bytes, Relaxed);
        counters.records_written.fetch_add(u64::from(self.records), Relaxed);
        counters.chunks_written.fetch_add(1, Relaxed);
        Ok(())
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let used = if self.is_written { self.page_count() } else { 0 };
        if used < self.reserved.pages {
            self.shared.give_back(&self.reserved, self.reserved.first + used);
        }
        self.shared.segments.grow(self.reserved.segment).in_flight.fetch_sub(1, AcqRel);
        if let Some(buffer) = self.buffer.take() {
            self.shared.put_buffer(buffer);
        }
    }
}
