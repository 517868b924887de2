//! The table of segments: what a checkpoint keeps of the store. Bytes: `docs/formats/store.md`.
//!
//! Pure. Invariant: what decodes is consistent, whatever the bytes were: each segment once, from the lowest number on, within its
//! length, and a huge record's parts in segments that are there.

use crate::failure::Refusal;
use crate::number::{Geometry, PageNo, SegmentNo};
use crate::options::Class;
use crate::record::{u32_at, u64_at};

const MAGIC: &[u8; 8] = b"TARNSTO\n";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 40;
const SEGMENT_BYTES: usize = 40;

/// What a checkpoint keeps of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub store: u64,
    pub geometry: Geometry,
    /// Segments begun since the store was created.
    pub begun: u64,
    pub segments: Vec<Row>,
    /// The pages of huge records' manifests, and those in which their parts begin.
    pub huge: Vec<(PageNo, Vec<PageNo>)>,
}

/// A segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub no: SegmentNo,
    pub class: Class,
    pub generation: u64,
    pub sealed_at: u64,
    /// Pages from its beginning that were given to chunks.
    pub pages: u32,
    pub records: u32,
    pub live: u32,
    /// Those of its pages that were not written.
    pub gaps: Vec<(u32, u32)>,
}

impl Table {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + self.segments.len() * SEGMENT_BYTES + 4);
        out.extend_from_slice(MAGIC);
        put(&mut out, &[VERSION, self.geometry.segment_pages()]);
        out.extend_from_slice(&self.store.to_le_bytes());
        out.extend_from_slice(&self.begun.to_le_bytes());
        put(&mut out, &[count(&self.segments), count(&self.huge)]);
        for row in &self.segments {
            put(&mut out, &[row.no.0, row.class as u32]);
            out.extend_from_slice(&row.generation.to_le_bytes());
            out.extend_from_slice(&row.sealed_at.to_le_bytes());
            put(&mut out, &[row.pages, row.records, row.live, count(&row.gaps)]);
            row.gaps.iter().for_each(|(first, pages)| put(&mut out, &[*first, *pages]));
        }
        for (manifest, parts) in &self.huge {
            put(&mut out, &[manifest.get(), count(parts)]);
            parts.iter().for_each(|part| put(&mut out, &[part.get()]));
        }
        let crc = crc32c::crc32c(&out);
        put(&mut out, &[crc]);
        out
    }

    /// Reads a table.
    ///
    /// # Errors
    /// If it is none, damaged, or newer.
    pub fn decode(bytes: &[u8]) -> Result<Table, Refusal> {
        let (body, crc) = bytes.split_last_chunk::<4>().ok_or(Refusal::Table("it is cut off"))?;
        if !body.starts_with(MAGIC) {
            return Err(Refusal::Table("it does not begin as one"));
        }
        if u32::from_le_bytes(*crc) != crc32c::crc32c(body) {
            return Err(Refusal::Table("its checksum is wrong"));
        }
        match u32_at(body, 8) {
            Some(VERSION) => {}
            Some(newer) => return Err(Refusal::NewerTable(newer)),
            None => return Err(Refusal::Table("it is cut off")),
        }
        Table::decode_body(body).ok_or(Refusal::Table("what it says of its segments cannot be"))
    }

    fn decode_body(body: &[u8]) -> Option<Table> {
        let geometry = Geometry::new(u32_at(body, 12)?)?;
        let mut reader = Reader { rest: body.get(HEADER_BYTES..)? };
        let mut segments: Vec<Row> = Vec::new();
        for _ in 0..u32_at(body, 32)? {
            let row = reader.row(geometry)?;
            if segments.last().is_some_and(|before| before.no >= row.no) {
                return None;
            }
            segments.push(row);
        }
        let is_there = |page: PageNo| {
            let found = segments.binary_search_by_key(&geometry.segment_of(page), |row| row.no);
            found.is_ok_and(|at| geometry.within(page) < segments[at].pages)
        };
        let mut huge = Vec::new();
        for _ in 0..u32_at(body, 36)? {
            let manifest = reader.page()?;
            let count = reader.u32()?;
            let parts = (0..count).map(|_| reader.page()).collect::<Option<Vec<_>>>()?;
            if is_there(manifest) && parts.iter().all(|part| is_there(*part)) {
                huge.push((manifest, parts));
            }
        }
        let is_right = reader.rest.is_empty();
        is_right.then(|| {
            Some(Table { store: u64_at(body, 16)?, geometry, begun: u64_at(body, 24)?, segments, huge })
        })?
    }
}

fn count<T>(listed: &[T]) -> u32 {
    u32::try_from(listed.len()).expect("segments and pages have numbers of 32 bits")
}

fn put(out: &mut Vec<u8>, numbers: &[u32]) {
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn u32(&mut self) -> Option<u32> {
        let number = u32_at(self.rest, 0)?;
        self.rest = &self.rest[4..];
        Some(number)
    }

    fn u64(&mut self) -> Option<u64> {
        let number = u64_at(self.rest, 0)?;
        self.rest = &self.rest[8..];
        Some(number)
    }

    fn page(&mut self) -> Option<PageNo> {
        PageNo::new(self.u32()?)
    }

    fn row(&mut self, geometry: Geometry) -> Option<Row> {
        let no = SegmentNo(self.u32()?);
        let class = match self.u32()? {
            0 => Class::Small,
            1 => Class::Large,
            _ => return None,
        };
        let (generation, sealed_at) = (self.u64()?, self.u64()?);
        let (pages, records, live) = (self.u32()?, self.u32()?, self.u32()?);
        let mut gaps = Vec::new();
        let mut end = 0;
        for _ in 0..self.u32()? {
            let (first, count) = (self.u32()?, self.u32()?);
            if first < end || count == 0 || count > pages.checked_sub(first)? {
                return None;
            }
            end = first + count;
            gaps.push((first, count));
        }
        let is_right = (1..=geometry.last_segment().0).contains(&no.0) && pages <= geometry.segment_pages();
        is_right.then_some(Row { no, class, generation, sealed_at, pages, records, live, gaps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::Prng;

    fn table() -> Table {
        let geometry = Geometry::near(64);
        let row = |no, class, gaps| Row {
            no: SegmentNo(no),
            class,
            generation: u64::from(no) << 40,
            sealed_at: 9,
            pages: 60,
            records: 100,
            live: 50,
            gaps,
        };
        let segments = vec![row(1, Class::Small, vec![(3, 4), (10, 1)]), row(7, Class::Large, Vec::new())];
        let huge = vec![(
            geometry.page(SegmentNo(7), 30),
            vec![geometry.page(SegmentNo(7), 0), geometry.page(SegmentNo(7), 20)],
        )];
        Table { store: 77, geometry, begun: 12, segments, huge }
    }

    #[test]
    fn a_table_comes_back_as_it_was() {
        assert_eq!(Table::decode(&table().encode()).unwrap(), table());
        let empty = Table { segments: Vec::new(), huge: Vec::new(), ..table() };
        assert_eq!(Table::decode(&empty.encode()).unwrap(), empty);
    }

    #[test]
    fn a_bit_turned_over_anywhere_is_refused() {
        let bytes = table().encode();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Table::decode(&damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_table_with_a_right_checksum_and_wrong_content_is_refused_or_consistent() {
        let mut prng = Prng::from_seed(1);
        let bytes = table().encode();
        for _ in 0..20_000 {
            let mut body = bytes[..bytes.len() - 4].to_vec();
            for _ in 0..=prng.below(3) {
                let at = 8 + prng.below(body.len() as u64 - 8) as usize;
                body[at] = prng.next_u64() as u8;
            }
            body.truncate(body.len() - if prng.one_in(4) { prng.below(60) as usize } else { 0 });
            let crc = crc32c::crc32c(&body);
            body.extend_from_slice(&crc.to_le_bytes());
            if let Ok(table) = Table::decode(&body) {
                assert!(table.segments.iter().all(|row| row.pages <= table.geometry.segment_pages()));
            }
        }
    }
}
