//! Records that take more than a page: extents (pages that follow each other) and parts (extents that a manifest lists).
//!
//! Whoever reads such a record has its first page and learns from [`Rest::runs`] what else to read, all of it at once. Pure
//! functions over bytes, any thread. Invariant: memory is taken for what was read, never for what a length claims.

use crate::Store;
use crate::failure::{Damage, ReadError, Wrong};
use crate::limits::{PAGE_BYTES, RUN_PAGES};
use crate::number::{Geometry, PageNo, Run};
use crate::pack;
use crate::page::{self, PageKind, ROOM};
use crate::record::{Head, OwnedRecord, Role, Width, u32_at, u64_at};
use sys::UnixMs;

/// A record of which only the first page was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    page: PageNo,
    head: Head,
    /// What is there of key and image.
    content: Vec<u8>,
    runs: Vec<Run>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The other pages of the extent are to be read.
    Extent,
    /// The parts are to be read, which have so many bytes together.
    Parts { plain_bytes: u64 },
}

/// What came of reading the runs of a [`Rest`].
#[derive(Clone, Debug)]
pub enum Joined {
    /// The record.
    Record(OwnedRecord),
    /// The list of a huge record's parts was itself more than a page: there is more to read.
    More(Rest),
}

impl Rest {
    pub(crate) fn begin(page: PageNo, head: Head, content: &[u8], geometry: Geometry) -> Result<Rest, Wrong> {
        if content.len() == head.key_bytes + head.image_bytes {
            return Rest::of_manifest(page, head, content.to_vec(), geometry);
        }
        let runs = runs(page, pages(&head)).ok_or(Wrong::Content("an extent leaves the store"))?;
        Ok(Rest { page, head, content: content.to_vec(), runs, stage: Stage::Extent })
    }

    /// The rest of a record whose key and list of parts were read.
    fn of_manifest(
        page: PageNo,
        head: Head,
        mut content: Vec<u8>,
        geometry: Geometry,
    ) -> Result<Rest, Wrong> {
        let manifest = content.get(head.key_bytes..).and_then(|list| Manifest::decode(list, geometry));
        let manifest = manifest.ok_or(Wrong::Content("a list of parts is none"))?;
        content.truncate(head.key_bytes);
        let stage = Stage::Parts { plain_bytes: manifest.plain_bytes };
        Ok(Rest { page, head, content, runs: manifest.parts, stage })
    }

    /// The page that the record begins in.
    pub fn page(&self) -> PageNo {
        self.page
    }

    /// The record's database.
    pub fn database(&self) -> u32 {
        self.head.database
    }

    /// The record's key; None if it is too long for the first page.
    pub fn key(&self) -> Option<&[u8]> {
        self.content.get(..self.head.key_bytes)
    }

    /// When the key expires.
    pub fn expires_at(&self) -> Option<UnixMs> {
        self.head.expires_at
    }

    /// How long the image is on disk, bytes; of one in parts, how long it is unpacked.
    pub fn image_bytes(&self) -> u64 {
        match self.stage {
            Stage::Extent => self.head.image_bytes as u64,
            Stage::Parts { plain_bytes } => plain_bytes,
        }
    }

    /// What is to be read, in any order or together.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Reads as much as it takes to know the key.
    pub(crate) fn with_key(mut self, store: &Store) -> Result<Rest, ReadError> {
        while self.key().is_none() && !self.runs.is_empty() {
            let run = self.runs.remove(0);
            let read = store.read_run(run)?;
            gather(store, run, read.as_slice(), &mut self.content)?;
        }
        if self.stage != Stage::Extent || !self.runs.is_empty() {
            return Ok(self);
        }
        if self.content.len() != self.head.key_bytes + self.head.image_bytes {
            let wrong = Wrong::Content("its pages are not as many bytes as it says");
            return Err(store.shared.damage(self.page, wrong).into());
        }
        if self.head.role != Role::Manifest {
            return Ok(self);
        }
        let rest = Rest::of_manifest(self.page, self.head, self.content, store.shared.geometry);
        rest.map_err(|wrong| store.shared.damage(self.page, wrong).into())
    }

    /// Puts the record together from what was read of each run, in their order. If its key was too long to be compared before,
    /// compare it now.
    ///
    /// # Errors
    /// If the pages are not those that were written there.
    ///
    /// # Panics
    /// If there are not as many as runs.
    pub fn join<B: AsRef<[u8]>>(self, store: &Store, read: &[B]) -> Result<Joined, Damage> {
        assert_eq!(read.len(), self.runs.len(), "all runs are read");
        match self.stage {
            Stage::Extent => self.join_extent(store, read),
            Stage::Parts { plain_bytes } => self.join_parts(store, read, plain_bytes),
        }
    }

    fn join_extent<B: AsRef<[u8]>>(mut self, store: &Store, read: &[B]) -> Result<Joined, Damage> {
        for (run, bytes) in self.runs.iter().zip(read) {
            gather(store, *run, bytes.as_ref(), &mut self.content)?;
        }
        let wrong = |what| store.shared.damage(self.page, Wrong::Content(what));
        if self.content.len() != self.head.key_bytes + self.head.image_bytes {
            return Err(wrong("its pages are not as many bytes as it says"));
        }
        if self.head.role == Role::Manifest {
            let rest = Rest::of_manifest(self.page, self.head, self.content, store.shared.geometry);
            return rest.map(Joined::More).map_err(|wrong| store.shared.damage(self.page, wrong));
        }
        let mut key = self.content;
        let mut image = key.split_off(self.head.key_bytes);
        if let Some(plain_bytes) = self.head.plain_bytes {
            let packed = std::mem::take(&mut image);
            let unpacked = pack::unpack(&packed, plain_bytes, &mut image);
            unpacked
                .ok_or_else(|| store.shared.damage(self.page, Wrong::Content("its image does not unpack")))?;
        }
        Ok(Joined::Record(owned(&self.head, key, image)))
    }

    fn join_parts<B: AsRef<[u8]>>(
        self,
        store: &Store,
        read: &[B],
        plain_bytes: u64,
    ) -> Result<Joined, Damage> {
        let mut image = Vec::new();
        for (run, bytes) in self.runs.iter().zip(read) {
            append_part(store, *run, bytes.as_ref(), &mut image)?;
        }
        if image.len() as u64 != plain_bytes {
            let wrong = Wrong::Content("its parts are not as many bytes as it says");
            return Err(store.shared.damage(self.page, wrong));
        }
        Ok(Joined::Record(owned(&self.head, self.content, image)))
    }
}

fn owned(head: &Head, key: Vec<u8>, image: Vec<u8>) -> OwnedRecord {
    let Head { kind, flags, database, expires_at, .. } = *head;
    OwnedRecord { database, key, expires_at, kind, flags, image }
}

/// Appends the content of continuing pages.
fn gather(store: &Store, run: Run, bytes: &[u8], content: &mut Vec<u8>) -> Result<(), Damage> {
    for index in 0..run.pages {
        let (header, part) = page_of(store, run, index, bytes)?;
        if header.kind != PageKind::Continuation {
            let no = run.first.plus(index).unwrap_or(run.first);
            return Err(store.shared.damage(no, Wrong::Content("it does not continue the record before it")));
        }
        content.extend_from_slice(part);
    }
    Ok(())
}

fn page_of<'a>(
    store: &Store,
    run: Run,
    index: u32,
    bytes: &'a [u8],
) -> Result<(page::Header, &'a [u8]), Damage> {
    let no = run.first.plus(index).ok_or_else(|| store.shared.damage(run.first, Wrong::Unwritten))?;
    let opened = match store.shared.identity_of(no) {
        Some(identity) => {
            let bytes = bytes.get(index as usize * PAGE_BYTES..).unwrap_or_default();
            page::open(&bytes[..bytes.len().min(PAGE_BYTES)], identity, no)
        }
        None => Err(Wrong::Unwritten),
    };
    opened.map_err(|wrong| store.shared.damage(no, wrong))
}

/// Appends what a part holds.
fn append_part(store: &Store, run: Run, bytes: &[u8], image: &mut Vec<u8>) -> Result<(), Damage> {
    let wrong = |what| store.shared.damage(run.first, Wrong::Content(what));
    let (header, first) = page_of(store, run, 0, bytes)?;
    let (head, at) = Head::decode(Width::Long, first)
        .filter(|(head, _)| {
            header.kind == PageKind::Extent && head.role == Role::Part && pages(head) == run.pages
        })
        .ok_or_else(|| wrong("it begins no part"))?;
    let mut content = first[at..].to_vec();
    if let Some(second) = run.first.plus(1).filter(|_| run.pages > 1) {
        let others = Run { first: second, pages: run.pages - 1 };
        gather(store, others, bytes.get(PAGE_BYTES..).unwrap_or_default(), &mut content)?;
    }
    if content.len() != head.image_bytes {
        return Err(wrong("its pages are not as many bytes as it says"));
    }
    match head.plain_bytes {
        None => image.extend_from_slice(&content),
        Some(plain_bytes) => {
            pack::unpack(&content, plain_bytes, image).ok_or_else(|| wrong("its image does not unpack"))?;
        }
    }
    Ok(())
}

/// How many pages an extent has.
pub(crate) fn pages(head: &Head) -> u32 {
    u32::try_from(head.record_bytes(Width::Long).div_ceil(ROOM)).expect("no more than an extent may have")
}

/// Whether the first page of an extent is what it should be.
pub(crate) fn check(no: PageNo, content: &[u8], geometry: Geometry) -> Result<(), Wrong> {
    let (head, at) =
        Head::decode(Width::Long, content).ok_or(Wrong::Content("the head of a record is none"))?;
    let total = head.record_bytes(Width::Long);
    if content.len() != total.min(ROOM) {
        return Err(Wrong::Content("its record is not as long as it says"));
    }
    if total.div_ceil(ROOM) > geometry.segment_pages() as usize
        || !geometry.holds(Run { first: no, pages: pages(&head) })
    {
        return Err(Wrong::Content("an extent leaves its segment"));
    }
    if head.role == Role::Part && head.key_bytes > 0 {
        return Err(Wrong::Content("a part has a key"));
    }
    if head.role == Role::Manifest {
        Rest::begin(no, head, &content[at..], geometry)?;
    }
    Ok(())
}

/// The reads for an extent's pages after its first.
fn runs(page: PageNo, pages: u32) -> Option<Vec<Run>> {
    let starts = (1..pages).step_by(RUN_PAGES as usize);
    starts.map(|at| Some(Run { first: page.plus(at)?, pages: RUN_PAGES.min(pages - at) })).collect()
}

/// Where the parts of a huge record lie: its record's image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Of the whole image.
    pub plain_bytes: u64,
    pub parts: Vec<Run>,
}

/// Bytes before the list.
const MANIFEST_HEADER_BYTES: usize = 8;
/// Bytes a part.
const ENTRY_BYTES: usize = 8;

impl Manifest {
    /// Bytes of the list of so many parts.
    pub fn bytes(parts: usize) -> usize {
        MANIFEST_HEADER_BYTES + parts * ENTRY_BYTES
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Manifest::bytes(self.parts.len()));
        bytes.extend_from_slice(&self.plain_bytes.to_le_bytes());
        for part in &self.parts {
            bytes.extend_from_slice(&part.first.get().to_le_bytes());
            bytes.extend_from_slice(&part.pages.to_le_bytes());
        }
        bytes
    }

    pub fn decode(bytes: &[u8], geometry: Geometry) -> Option<Manifest> {
        let plain_bytes = u64_at(bytes, 0)?;
        let entries = bytes[MANIFEST_HEADER_BYTES..].chunks(ENTRY_BYTES);
        let parts = entries.map(|entry| {
            let run = Run { first: PageNo::new(u32_at(entry, 0)?)?, pages: u32_at(entry, 4)? };
            Some(run).filter(|run| geometry.holds(*run) && run.pages <= RUN_PAGES)
        });
        Some(Manifest { plain_bytes, parts: parts.collect::<Option<_>>()? })
    }
}
