//! Makes durable what a start counts as the log.
//!
//! A program that is killed leaves blocks that it had written and not synced. A start reads and shows them, so they must be there
//! after a power cut, too. A sync alone would not do: where one has failed before, the system may have dropped what it was about, and
//! report success. So what no block proves to be durable is written once more where it is, byte for byte, and synced.

use crate::failure::Operation;
use crate::reader::{Found, Link, Segment};
use crate::{Failure, Lsn};
use std::io;
use sys::file::{Fs, Mode};

/// Bytes written at once.
const STEP_BYTES: usize = 1 << 20;

/// Makes durable what the last segment of the log holds of it. Those before it were, when it was begun.
///
/// # Errors
/// If the disk refuses.
pub fn make_durable(fs: &Fs, last: &Link) -> Result<(), Failure> {
    let failed = |operation| move |error: io::Error| Failure::new(operation, &last.path, &error);
    let Some((from, to)) = unproven(fs, last).map_err(failed(Operation::Prepare))? else { return Ok(()) };
    write_again(fs, last, from, to).map_err(failed(Operation::Sync))
}

/// From where to where a segment holds blocks of which none says that they are durable. None: there are none.
fn unproven(fs: &Fs, last: &Link) -> io::Result<Option<(u64, u64)>> {
    let mut segment = Segment::open(fs, &last.path, last.header)?;
    let (mut synced, mut blocks) = (Lsn::ZERO, Vec::new());
    while segment.lsn < last.end {
        let position = segment.position;
        let Found::Block(header, _) = segment.next()? else { break };
        synced = synced.max(header.synced);
        blocks.push((position, header.end()));
    }
    // A mark behind the end of the log, as one that was closed has.
    if let Found::Block(header, _) = segment.next()? {
        synced = synced.max(header.synced);
    }
    let end = blocks.last().map(|_| segment.position);
    let first = blocks.into_iter().find(|(_, end)| *end > synced);
    Ok(first.zip(end).map(|((from, _), to)| (from, to)))
}

fn write_again(fs: &Fs, last: &Link, from: u64, to: u64) -> io::Result<()> {
    let file = fs.open(&last.path, Mode::Write)?;
    let mut at = from;
    while at < to {
        let rest = usize::try_from(to - at).unwrap_or(STEP_BYTES);
        let mut bytes = vec![0; rest.min(STEP_BYTES)];
        let read = file.read_full_at(&mut bytes, at)?;
        if read == 0 {
            break;
        }
        file.write_at(&bytes[..read], at)?;
        at += read as u64;
    }
    file.sync_data()
}
