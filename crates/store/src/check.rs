//! Looks at a store without opening it: every page that a checkpoint's table says was written. For `tarn check`.
//!
//! Only reads, and takes no lock. Of a server that runs, segments may be freed and written again meanwhile.

use crate::failure::{Damage, Refusal, Wrong};
use crate::limits::{CHUNK_PAGES, DAMAGES_MAX, PAGE_BYTES};
use crate::number::SegmentNo;
use crate::options::Class;
use crate::page::{Identity, Page, Step};
use crate::store::check_file;
use crate::table::{Row, Table};
use std::path::{Path, PathBuf};
use sys::file::{AlignedBytes, File, Fs, Mode};

/// What a store's directory holds.
#[derive(Debug)]
pub struct Report {
    /// Those that the table lists, by their numbers.
    pub segments: Vec<SegmentReport>,
    /// Segments' files that mean nothing: a start uses them again or removes them.
    pub leftovers: Vec<PathBuf>,
}

impl Report {
    /// Whether all pages are what was written.
    pub fn is_intact(&self) -> bool {
        self.segments.iter().all(|segment| segment.missing.is_none() && segment.damaged_pages == 0)
    }
}

/// A segment.
#[derive(Debug)]
pub struct SegmentReport {
    /// The file.
    pub path: PathBuf,
    /// Its number.
    pub no: SegmentNo,
    /// Which records lie in it.
    pub class: Class,
    /// Pages that were looked at.
    pub pages: u64,
    /// Records and parts that begin in them, alive or not.
    pub records: u64,
    /// Records that live, as the table has counted.
    pub live: u64,
    /// Pages that are not what was written.
    pub damaged_pages: u64,
    /// The first of them.
    pub damages: Vec<Damage>,
    /// Why the file was not looked at.
    pub missing: Option<Refusal>,
}

/// Looks at every page of the segments that a table lists.
///
/// # Errors
/// If the table is damaged, or the directory does not read.
pub fn check(fs: &Fs, dir: &Path, table: &[u8]) -> Result<Report, Refusal> {
    let table = Table::decode(table)?;
    let names = fs.list(dir).map_err(Refusal::disk(dir))?;
    let found: Vec<SegmentNo> =
        names.iter().filter_map(|name| SegmentNo::parse_name(name.to_str()?)).collect();
    let is_listed = |no: &SegmentNo| table.segments.binary_search_by_key(no, |row| row.no).is_ok();
    let leftovers = found.iter().filter(|no| !is_listed(no)).map(|no| no.path(dir)).collect();
    let mut segments = Vec::new();
    for row in &table.segments {
        let path = row.no.path(dir);
        let mut look = Look {
            table: &table,
            row,
            report: SegmentReport {
                path: path.clone(),
                no: row.no,
                class: row.class,
                pages: 0,
                records: 0,
                live: u64::from(row.live),
                damaged_pages: 0,
                damages: Vec::new(),
                missing: None,
            },
            continuing: 0,
        };
        look.report.missing = check_file(fs, dir, row, &found).err();
        // Of one that is too short, what is there is looked at.
        if !matches!(look.report.missing, Some(Refusal::Missing(_) | Refusal::Disk { .. })) {
            let looked = fs.open(&path, Mode::Read).and_then(|file| look.file(&file));
            looked.map_err(Refusal::disk(&path))?;
        }
        segments.push(look.report);
    }
    Ok(Report { segments, leftovers })
}

struct Look<'a> {
    table: &'a Table,
    row: &'a Row,
    report: SegmentReport,
    /// Pages that must continue the extent that was begun.
    continuing: u32,
}

impl Look<'_> {
    fn file(&mut self, file: &File) -> std::io::Result<()> {
        let mut buffer = AlignedBytes::zeroed(CHUNK_PAGES as usize * PAGE_BYTES);
        let mut gaps = self.row.gaps.iter().flat_map(|(first, pages)| *first..first + pages).peekable();
        for begin in (0..self.row.pages).step_by(CHUNK_PAGES as usize) {
            let count = CHUNK_PAGES.min(self.row.pages - begin);
            let bytes = &mut buffer.as_mut_slice()[..count as usize * PAGE_BYTES];
            let read = file.read_full_at(bytes, u64::from(begin) * PAGE_BYTES as u64)?;
            for at in begin..begin + count {
                if gaps.next_if_eq(&at).is_some() {
                    self.continuing = 0;
                    continue;
                }
                let from = (at - begin) as usize * PAGE_BYTES;
                self.page(at, &bytes[from.min(read)..(from + PAGE_BYTES).min(read)]);
            }
        }
        Ok(())
    }

    fn page(&mut self, at: u32, bytes: &[u8]) {
        self.report.pages += 1;
        let geometry = self.table.geometry;
        let no = geometry.page(self.row.no, at);
        let identity = Identity { store: self.table.store, generation: self.row.generation };
        let wrong = match Page::parse_as(bytes, no, identity, geometry) {
            Ok(page) => self.step(&page),
            Err(wrong) => {
                self.continuing = self.continuing.saturating_sub(1);
                Some(wrong)
            }
        };
        let Some(wrong) = wrong else { return };
        self.report.damaged_pages += 1;
        if self.report.damages.len() < DAMAGES_MAX {
            let (path, segment) = (self.report.path.clone(), self.row.no);
            self.report.damages.push(Damage { path, offset: geometry.offset(no), segment, page: no, wrong });
        }
    }

    /// Whether a page that is right by itself is out of place behind the one before it.
    fn step(&mut self, page: &Page<'_>) -> Option<Wrong> {
        let expected = std::mem::take(&mut self.continuing);
        match (page.step(), expected) {
            (Step::Continuation, 1..) => {
                self.continuing = expected - 1;
                None
            }
            // The page that it continues was damaged, and that was said.
            (Step::Continuation, 0) => None,
            (_, 1..) => Some(Wrong::Content("it does not continue the record before it")),
            (Step::Extent { pages, .. }, 0) => {
                self.report.records += 1;
                self.continuing = pages.saturating_sub(1);
                None
            }
            (Step::Records, 0) => {
                self.report.records += page.records().count() as u64;
                None
            }
        }
    }
}
