//! The store's part of `tarn check`: the segments that the newest checkpoint names.

use super::Complaint;
use super::check::name;
use engine::durability;
use engine::residency;
use std::fmt;
use std::path::Path;
use store::{Report, SegmentReport};
use sys::file::Fs;

/// Checks the store in which the data of a directory lies, if it does. What is wrong with its checkpoints is the log's to say.
pub(super) fn look_at(fs: &Fs, dir: &Path) -> Result<Option<Report>, Complaint> {
    let Some(table) = durability::store_table_in(fs, dir).unwrap_or_default() else { return Ok(None) };
    let report = store::check(fs, &residency::folder(dir), &table);
    report.map(Some).map_err(|refusal| Complaint(refusal.to_string()))
}

/// A report as people read it.
pub(super) struct Shown<'a>(pub &'a Report);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { segments, leftovers } = self.0;
        segments.iter().try_for_each(|segment| show_segment(f, segment))?;
        for leftover in leftovers {
            writeln!(f, "  {}: not in the checkpoint; a start uses it again or removes it", name(leftover))?;
        }
        let pages: u64 = segments.iter().map(|segment| segment.pages).sum();
        match segments.iter().filter(|segment| !is_intact(segment)).count() {
            0 => writeln!(f, "The store's {} segments, {pages} pages, are intact.", segments.len()),
            bad => writeln!(
                f,
                "Of the store's {} segments {bad} are damaged: what lies in the damaged pages cannot be read; `tarn export \
                 --skip-damaged` writes all else.",
                segments.len()
            ),
        }
    }
}

fn is_intact(segment: &SegmentReport) -> bool {
    segment.missing.is_none() && segment.damaged_pages == 0
}

fn show_segment(f: &mut fmt::Formatter<'_>, segment: &SegmentReport) -> fmt::Result {
    let SegmentReport { path, pages, records, live, damaged_pages, damages, missing, .. } = segment;
    writeln!(
        f,
        "  {}: segment of the store, {pages} pages, {records} records, {live} of them alive",
        name(path)
    )?;
    if let Some(refusal) = missing {
        writeln!(f, "    {refusal}")?;
    }
    damages.iter().try_for_each(|damage| writeln!(f, "    DAMAGED: {damage}"))?;
    match damaged_pages.saturating_sub(damages.len() as u64) {
        0 => Ok(()),
        more => writeln!(f, "    and {more} pages more"),
    }
}
