//! Numbers of segments and pages, and where in which file a page lies.
//!
//! Pure arithmetic, any thread. Invariants:
//! 1. No page has the number 0, so that whoever keeps page numbers may use 0 for none: segments are numbered from 1 on.
//! 2. A segment's pages are a power of two, so that finding a page takes no division.

use crate::limits::{EXTENTS_PER_SEGMENT, PAGE_BYTES, SEGMENT_PAGES_MAX, SEGMENT_PAGES_MIN};
use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

/// A page of the store: segment number * pages of a segment + page in it. Never 0; 2^32 pages are 16 TB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageNo(NonZeroU32);

impl PageNo {
    /// The page with this number; None for 0.
    #[inline]
    pub fn new(number: u32) -> Option<PageNo> {
        NonZeroU32::new(number).map(PageNo)
    }

    /// The number.
    #[inline]
    pub fn get(self) -> u32 {
        self.0.get()
    }

    /// The page so many after this one, if there is such a number.
    pub(crate) fn plus(self, pages: u32) -> Option<PageNo> {
        self.0.checked_add(pages).map(PageNo)
    }
}

impl fmt::Display for PageNo {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// A segment's number, from 1 on. It stays with the file, whatever the file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentNo(pub u32);

impl fmt::Display for SegmentNo {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl SegmentNo {
    /// The segment's file.
    pub(crate) fn path(self, dir: &Path) -> PathBuf {
        dir.join(format!("{:010}.store", self.0))
    }

    /// The number that a file's name says; None if it is no segment's name.
    pub(crate) fn parse_name(name: &str) -> Option<SegmentNo> {
        let digits = name.strip_suffix(".store")?;
        let is_right = digits.len() == 10 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|number| is_right && *number > 0).map(SegmentNo)
    }
}

/// Consecutive pages that are read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first.
    pub first: PageNo,
    /// How many, at least 1.
    pub pages: u32,
}

impl Run {
    /// Length, bytes.
    pub fn bytes(&self) -> usize {
        self.pages as usize * PAGE_BYTES
    }
}

/// How pages are divided among segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    shift: u32,
}

impl Geometry {
    /// Segments of so many pages; None if that is no power of two within the limits.
    pub fn new(segment_pages: u32) -> Option<Geometry> {
        let is_right = segment_pages.is_power_of_two()
            && (SEGMENT_PAGES_MIN..=SEGMENT_PAGES_MAX).contains(&segment_pages);
        is_right.then(|| Geometry { shift: segment_pages.trailing_zeros() })
    }

    /// The nearest that is possible.
    pub fn near(segment_pages: u32) -> Geometry {
        let pages = segment_pages.clamp(SEGMENT_PAGES_MIN, SEGMENT_PAGES_MAX).next_power_of_two();
        Geometry { shift: pages.trailing_zeros() }
    }

    pub fn segment_pages(self) -> u32 {
        1 << self.shift
    }

    pub fn segment_bytes(self) -> u64 {
        u64::from(self.segment_pages()) * PAGE_BYTES as u64
    }

    pub fn extent_pages_max(self) -> u32 {
        self.segment_pages() / EXTENTS_PER_SEGMENT
    }

    /// The highest number of a segment, all of whose pages have numbers.
    pub fn last_segment(self) -> SegmentNo {
        SegmentNo(u32::MAX >> self.shift)
    }

    #[inline]
    pub fn segment_of(self, page: PageNo) -> SegmentNo {
        SegmentNo(page.get() >> self.shift)
    }

    /// Which page of its segment it is.
    #[inline]
    pub fn within(self, page: PageNo) -> u32 {
        page.get() & (self.segment_pages() - 1)
    }

    /// Where in its file it begins.
    #[inline]
    pub fn offset(self, page: PageNo) -> u64 {
        u64::from(self.within(page)) * PAGE_BYTES as u64
    }

    pub fn page(self, segment: SegmentNo, within: u32) -> PageNo {
        PageNo::new((segment.0 << self.shift) | within).expect("segments are numbered from 1 on")
    }

    /// Whether the run lies in one segment.
    pub fn holds(self, run: Run) -> bool {
        run.pages >= 1
            && run.pages <= self.segment_pages() - self.within(run.first)
            && self.segment_of(run.first).0 >= 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_places_correspond() {
        let geometry = Geometry::near(1000);
        assert_eq!(geometry.segment_pages(), 1024);
        let page = geometry.page(SegmentNo(3), 17);
        assert_eq!(
            (page.get(), geometry.segment_of(page), geometry.within(page)),
            (3 * 1024 + 17, SegmentNo(3), 17)
        );
        assert_eq!(geometry.offset(page), 17 * 4096);
        let last = geometry.page(geometry.last_segment(), 1023);
        assert_eq!((last.get(), last.plus(1)), (u32::MAX, None));
        assert!(geometry.holds(Run { first: last, pages: 1 }));
        assert!(!geometry.holds(Run { first: last, pages: 2 }));
    }

    #[test]
    fn only_names_of_segments_are_taken_for_them() {
        let path = SegmentNo(7).path(Path::new("/dir"));
        assert_eq!(path, Path::new("/dir/0000000007.store"));
        assert_eq!(SegmentNo::parse_name("0000000007.store"), Some(SegmentNo(7)));
        for name in ["7.store", "0000000000.store", "0000000007.stor", "+000000007.store", "9999999999.store"]
        {
            assert_eq!(SegmentNo::parse_name(name), None, "{name}");
        }
    }
}
