//! `tarn restore`: a copy of a log as it was at some time, or up to some LSN.

use super::{Complaint, Given, Verdict};
use engine::durability;
use engine::moment::Moment;
use jiff::Timestamp;
use log::{Lsn, Options, Restored, Target};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use sys::UnixMs;
use sys::file::{Fs, Kind, about};

pub(super) const USAGE: &str = "\
Usage: tarn restore DIR --to TIME|LSN --into NEWDIR

Copies the log in DIR, as it was then, to NEWDIR, for a server to start from. DIR is only read. How far back that goes is a matter of
`log-retention`; `tarn check DIR` shows it.

  --to 2026-11-22T09:30:00Z    all that was executed by this moment (RFC 3339)
  --to @1795339800             the same, in seconds since 1970, or in milliseconds
  --to 123456                  all records that end by this LSN
  --into NEWDIR                is made if it is not there, and must not hold a log";

/// Numbers behind `@` from here on are milliseconds: as seconds, they would lie beyond the year 5000.
const MILLISECONDS_MIN: u64 = 100_000_000_000;

pub(super) fn run(words: &[String], shown: &mut String) -> Result<Verdict, Complaint> {
    let mut given = Given::read(words, &[])?;
    let from = PathBuf::from(given.only_word("DIR")?);
    let (to, into) = (given.needed("to")?, PathBuf::from(given.needed("into")?));
    given.nothing_else()?;
    let restored = copy(&Fs::Real, &from, parse_target(&to)?, &into)?;
    write!(shown, "Copied {} to {}: the log ends at LSN {}", from.display(), into.display(), restored.end)
        .expect("a string takes all");
    if let Some(checkpoint) = restored.checkpoint {
        write!(shown, ", from the checkpoint at LSN {checkpoint} on").expect("a string takes all");
    }
    match restored.last_time {
        Some(time) => write!(shown, "; its last record is of {}", Moment(time)),
        None if restored.checkpoint.is_none() => write!(shown, "; it holds nothing: there was nothing yet"),
        None => Ok(()),
    }
    .expect("a string takes all");
    if let Some(lsn) = restored.earlier_behind {
        write!(
            shown,
            "\nBEHIND THAT there are records of earlier times than the one wanted, as the clock was set back: `--to {lsn}` has them, and all between"
        )
        .expect("a string takes all");
    }
    write!(
        shown,
        "\nA server that starts from it removes the keys whose time to live has ended since. With them: \
         `tarn export --dir {} --to FILE.rdb --keep-expired`",
        into.display()
    )
    .expect("a string takes all");
    Ok(Verdict::Good)
}

/// Copies a log that is there into a directory that has none.
pub(super) fn copy(fs: &Fs, from: &Path, target: Target, into: &Path) -> Result<Restored, Complaint> {
    if fs.kind(from).map_err(about(from))? != Some(Kind::Directory) {
        return Err(Complaint(format!("{} is not a directory", from.display())));
    }
    if !matches!(fs.kind(into).map_err(about(into))?, None | Some(Kind::Directory)) {
        return Err(Complaint(format!("{} is not a directory", into.display())));
    }
    if durability::store_table_in(fs, from).is_ok_and(|table| table.is_some()) {
        return Err(Complaint(format!(
            "{} was written by the capacity edition, whose store is there only as it is now: copy the whole directory while no \
             server runs, or take RDB files (BGSAVE) as copies",
            from.display()
        )));
    }
    Ok(log::restore(fs, from, target, into, &Options::default())?)
}

/// Reads what stands behind `--to`.
pub(super) fn parse_target(text: &str) -> Result<Target, Complaint> {
    if let Ok(lsn) = text.parse::<u64>() {
        return Ok(Target::Lsn(Lsn(lsn)));
    }
    let since_1970 = text.strip_prefix('@').and_then(|digits| digits.parse::<u64>().ok());
    let ms = match since_1970 {
        Some(ms) if ms >= MILLISECONDS_MIN => Some(ms),
        Some(seconds) => Some(seconds * 1000),
        None => {
            let time = text.parse::<Timestamp>().ok();
            time.and_then(|time| u64::try_from(time.as_millisecond()).ok())
        }
    };
    ms.map(|ms| Target::Time(UnixMs(ms))).ok_or_else(|| {
        Complaint(format!(
            "--to: '{text}' is neither a time (2026-11-22T09:30:00Z, @1795339800) nor an LSN (123456)"
        ))
    })
}
