//! Pages: what is read for a key, checked and searched. Bytes: `docs/formats/store.md`.
//!
//! A cold key's command waits for this: one page is read, [`Page::parse`]d, and the key found by comparing, as its table word
//! holds only bits of its hash. Pure functions over bytes, any thread. Invariants:
//! 1. A page that was parsed is the one that was written under this number in this use of the file, and all lengths in it are
//!    within it: finding and iterating cannot fail.
//! 2. Bytes that an earlier use left in the file are never taken for a page, as they bear another generation.

use crate::Store;
use crate::extent::{self, Rest};
use crate::failure::{Damage, Wrong};
use crate::limits::PAGE_BYTES;
use crate::number::{Geometry, PageNo};
use crate::record::{HEAD_BYTES_MAX, Head, Record, Role, Width, u64_at};

/// Bytes before a page's content.
pub(crate) const HEADER_BYTES: usize = 32;
/// Bytes of content that a page holds.
pub(crate) const ROOM: usize = PAGE_BYTES - HEADER_BYTES;
/// The format that this program writes.
const FORMAT: u8 = 1;

/// Whose pages a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Drawn when the store was created.
    pub store: u64,
    /// Drawn when the segment was begun.
    pub generation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum PageKind {
    /// Whole records.
    Records = 1,
    /// The beginning of a record, or of a part, that may go on in the pages that follow.
    Extent = 2,
    /// What follows in an extent.
    Continuation = 3,
}

/// What a page's header says of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: PageKind,
    /// Records that begin in it.
    pub count: u16,
    /// Bytes of content.
    pub used: u16,
}

/// Puts the header before the content that is there, and zeros behind it.
pub(crate) fn seal(page: &mut [u8], identity: Identity, no: PageNo, header: Header) {
    assert_eq!(page.len(), PAGE_BYTES, "pages have one length");
    page[HEADER_BYTES + header.used as usize..].fill(0);
    page[4] = FORMAT;
    page[5] = header.kind as u8;
    page[6..8].copy_from_slice(&header.count.to_le_bytes());
    page[8..16].copy_from_slice(&identity.store.to_le_bytes());
    page[16..24].copy_from_slice(&identity.generation.to_le_bytes());
    page[24..28].copy_from_slice(&no.get().to_le_bytes());
    page[28..30].copy_from_slice(&header.used.to_le_bytes());
    page[30..32].fill(0);
    let crc = crc32c::crc32c(&page[4..]);
    page[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Checks a page's checksum and identity, and gives its content.
pub(crate) fn open(page: &[u8], identity: Identity, no: PageNo) -> Result<(Header, &[u8]), Wrong> {
    let page: &[u8; PAGE_BYTES] = page.try_into().map_err(|_| Wrong::Length)?;
    let u32_at = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"));
    let u16_at = |at: usize| u16::from_le_bytes(page[at..at + 2].try_into().expect("two bytes"));
    if u32_at(0) != crc32c::crc32c(&page[4..]) {
        return Err(Wrong::Checksum);
    }
    if page[4] != FORMAT {
        return Err(Wrong::Newer);
    }
    if u64_at(page, 8) != Some(identity.store) {
        return Err(Wrong::Store);
    }
    if u64_at(page, 16) != Some(identity.generation) {
        return Err(Wrong::Stale);
    }
    if u32_at(24) != no.get() {
        return Err(Wrong::Place);
    }
    let kind = match page[5] {
        1 => PageKind::Records,
        2 => PageKind::Extent,
        3 => PageKind::Continuation,
        _ => return Err(Wrong::Content("it is of no known kind")),
    };
    let header = Header { kind, count: u16_at(6), used: u16_at(28) };
    let content = page[HEADER_BYTES..].get(..header.used as usize);
    Ok((header, content.ok_or(Wrong::Content("its content is longer than the page"))?))
}

/// A page that was read and is what was written there.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    no: PageNo,
    content: &'a [u8],
    kind: PageKind,
    geometry: Geometry,
}

/// A key in a page.
#[derive(Clone, Debug)]
pub enum Found<'a> {
    /// All of its record.
    Here(Record<'a>),
    /// Its record goes on elsewhere.
    Continues(Rest),
}

impl<'a> Page<'a> {
    /// Checks the bytes that were read where [`Store::place_of`] said that the page lies.
    ///
    /// # Errors
    /// If they are anything but what was last written there. Should the page's segment have been freed since, that
    /// is why: look again where the key is now. Otherwise it is damage.
    pub fn parse(bytes: &'a [u8], no: PageNo, store: &Store) -> Result<Page<'a>, Damage> {
        let shared = &store.shared;
        let parsed = match shared.identity_of(no) {
            Some(identity) => Page::parse_as(bytes, no, identity, shared.geometry),
            None => Err(Wrong::Unwritten),
        };
        parsed.map_err(|wrong| shared.damage(no, wrong))
    }

    pub(crate) fn parse_as(
        bytes: &'a [u8],
        no: PageNo,
        identity: Identity,
        geometry: Geometry,
    ) -> Result<Page<'a>, Wrong> {
        let (header, content) = open(bytes, identity, no)?;
        let page = Page { no, content, kind: header.kind, geometry };
        match header.kind {
            PageKind::Records => check_records(content, header.count)?,
            PageKind::Extent => extent::check(no, content, geometry)?,
            PageKind::Continuation => {}
        }
        Ok(page)
    }

    /// The page's number.
    pub fn no(&self) -> PageNo {
        self.no
    }

    /// The record of a key; None if it is not here. Of a key that is longer than a page, only the beginning was compared:
    /// compare the rest when it is [joined](Rest::join).
    #[inline]
    pub fn find(&self, database: u32, key: &[u8]) -> Option<Found<'a>> {
        match self.kind {
            PageKind::Records => {
                let mut records = Walk { rest: self.content };
                records.find(|record| record.database == database && record.key == key).map(Found::Here)
            }
            PageKind::Extent => {
                let (head, at) = Head::decode(Width::Long, self.content)?;
                let here = &self.content[at..at + head.key_bytes.min(self.content.len() - at)];
                let is_it = head.role != Role::Part
                    && head.database == database
                    && head.key_bytes == key.len()
                    && key.starts_with(here);
                if is_it { self.extent() } else { None }
            }
            PageKind::Continuation => None,
        }
    }

    /// All records that begin in the page and have a key.
    pub fn records(&self) -> impl Iterator<Item = Found<'a>> + use<'a> {
        let (walk, extent) = match self.kind {
            PageKind::Records => (self.content, None),
            PageKind::Extent => (&[][..], self.extent()),
            PageKind::Continuation => (&[][..], None),
        };
        Walk { rest: walk }.map(Found::Here).chain(extent)
    }

    /// The record of a page that begins one; None if it has no key.
    fn extent(&self) -> Option<Found<'a>> {
        let (head, at) = Head::decode(Width::Long, self.content)?;
        let rest = &self.content[at..];
        match head.role {
            Role::Part => None,
            Role::Whole if rest.len() == head.key_bytes + head.image_bytes => {
                let (key, image) = rest.split_at(head.key_bytes);
                Some(Found::Here(head.record(key, image)))
            }
            Role::Whole | Role::Manifest => {
                Rest::begin(self.no, head, rest, self.geometry).ok().map(Found::Continues)
            }
        }
    }

    /// What the page is to whoever reads all of a segment.
    pub(crate) fn step(&self) -> Step {
        match (self.kind, Head::decode(Width::Long, self.content)) {
            (PageKind::Extent, Some((head, _))) => {
                Step::Extent { pages: extent::pages(&head), is_part: head.role == Role::Part }
            }
            (PageKind::Records, _) => Step::Records,
            _ => Step::Continuation,
        }
    }
}

/// A page among the others of its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Records,
    Extent { pages: u32, is_part: bool },
    Continuation,
}

/// Goes from record to record in a page whose lengths were checked.
struct Walk<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Walk<'a> {
    type Item = Record<'a>;

    #[inline]
    fn next(&mut self) -> Option<Record<'a>> {
        let (head, at) = Head::decode(Width::Short, self.rest)?;
        let (key, rest) = self.rest.get(at..)?.split_at_checked(head.key_bytes)?;
        let (image, rest) = rest.split_at_checked(head.image_bytes)?;
        self.rest = rest;
        Some(head.record(key, image))
    }
}

/// Whether the records fill the content, and are as many as the header says.
#[inline]
fn check_records(content: &[u8], count: u16) -> Result<(), Wrong> {
    let (mut at, mut found) = (0, 0);
    while at < content.len() {
        let (head, bytes) = Head::decode(Width::Short, &content[at..])
            .ok_or(Wrong::Content("the head of a record is none"))?;
        if head.role != Role::Whole {
            return Err(Wrong::Content("a part lies among whole records"));
        }
        at += bytes + head.key_bytes + head.image_bytes;
        found += 1;
    }
    let is_right = at == content.len() && found == count;
    if is_right { Ok(()) } else { Err(Wrong::Content("its records are not as long as it says")) }
}

/// Puts a record behind the `used` bytes of a page's content, and gives how many are used then. There must be room.
pub(crate) fn put(page: &mut [u8], used: usize, head: &Head, record: &Record<'_>) -> usize {
    let mut bytes = [0; HEAD_BYTES_MAX];
    let length = head.encode(Width::Short, &mut bytes);
    let mut at = HEADER_BYTES + used;
    for part in [&bytes[..length], record.key, record.image.stored()] {
        page[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    at - HEADER_BYTES
}

/// Whether a key is among the records in the `used` bytes of a page's content.
pub(crate) fn holds(page: &[u8], used: usize, database: u32, key: &[u8]) -> bool {
    let mut records = Walk { rest: &page[HEADER_BYTES..HEADER_BYTES + used] };
    records.any(|record| record.database == database && record.key == key)
}

#[cfg(test)]
mod tests;
