//! The sparse encoding of a HyperLogLog's registers: runs of equal ones.
//!
//! | bytes | meaning |
//! |---|---|
//! | `00llllll` | `l + 1` registers are 0 |
//! | `01llllll llllllll` | `l + 1` registers are 0, `l` big-endian |
//! | `1vvvvvll` | `l + 1` registers are `v + 1` |
//!
//! 1. Runs of a valid string cover all registers, no more and no less.
//! 2. Splitting and joining runs is Redis' byte for byte: a string that both have edited alike is the same.

#![expect(
    clippy::cast_possible_truncation,
    reason = "lengths and values were compared with what an opcode can say"
)]

use super::{Corrupted, HEADER_BYTES, Observation, REGISTERS};
use crate::number::{IntBuffer, format_i64};

const SHORT_ZEROS_MAX: usize = 64;
const LONG_ZEROS: u8 = 0x40;
const VALUES: u8 = 0x80;
/// The largest value that a run can have.
const VALUE_MAX: u8 = 32;
/// The most registers of a run of values.
const VALUES_MAX: usize = 4;
/// How many runs are looked at, from the one before the change on, for neighbours to be joined.
const JOIN_RUNS: usize = 5;

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    value: u8,
    length: usize,
    /// How many bytes it is written with.
    bytes: usize,
}

impl Run {
    /// The run that the bytes begin with.
    fn first(bytes: &[u8]) -> Option<Run> {
        let first = *bytes.first()?;
        Some(if first & VALUES != 0 {
            Run { value: (first >> 2 & 31) + 1, length: usize::from(first & 3) + 1, bytes: 1 }
        } else if first & LONG_ZEROS != 0 {
            let length = usize::from(first & 63) << 8 | usize::from(*bytes.get(1)?);
            Run { value: 0, length: length + 1, bytes: 2 }
        } else {
            Run { value: 0, length: usize::from(first & 63) + 1, bytes: 1 }
        })
    }
}

/// What adding came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// The register was as large already.
    Unchanged,
    /// It has grown.
    Changed,
    /// The string has to become dense for it; nothing changed.
    DoesNotFit,
}

/// Appends a run of registers that are 0.
pub(super) fn push_zeros(out: &mut Vec<u8>, length: usize) {
    if length > SHORT_ZEROS_MAX {
        let rest = (length - 1) as u16;
        out.extend_from_slice(&[LONG_ZEROS | (rest >> 8) as u8, rest as u8]);
    } else if length > 0 {
        out.push((length - 1) as u8);
    }
}

fn value_run(value: u8, length: usize) -> u8 {
    VALUES | (value - 1) << 2 | (length - 1) as u8
}

fn push_run(out: &mut Vec<u8>, value: u8, length: usize) {
    match value {
        0 => push_zeros(out, length),
        _ if length > 0 => out.push(value_run(value, length)),
        _ => {}
    }
}

/// Calls `visit` with each run's first register, length and value.
///
/// # Errors
/// [`Corrupted`] if the runs do not cover the registers; some of them have been visited then, and none
/// that goes beyond the last register.
pub(super) fn for_each_run(
    mut runs: &[u8],
    mut visit: impl FnMut(usize, usize, u8),
) -> Result<(), Corrupted> {
    let mut first = 0;
    while !runs.is_empty() {
        let run = Run::first(runs).ok_or(Corrupted)?;
        if first + run.length > REGISTERS {
            return Err(Corrupted);
        }
        visit(first, run.length, run.value);
        first += run.length;
        runs = &runs[run.bytes..];
    }
    if first == REGISTERS { Ok(()) } else { Err(Corrupted) }
}

/// Adds an observation to a sparse HyperLogLog in place.
pub(super) fn add(bytes: &mut Vec<u8>, seen: Observation, bytes_max: usize) -> Result<Added, Corrupted> {
    if seen.value > VALUE_MAX {
        return Ok(Added::DoesNotFit);
    }
    let (mut at, mut first, mut before) = (HEADER_BYTES, 0, HEADER_BYTES);
    let run = loop {
        let run = Run::first(&bytes[at..]).ok_or(Corrupted)?;
        if seen.register < first + run.length {
            break run;
        }
        before = at;
        at += run.bytes;
        first += run.length;
    };
    if run.value >= seen.value {
        return Ok(Added::Unchanged);
    }
    if run.length == 1 && run.bytes == 1 {
        bytes[at] = value_run(seen.value, 1);
    } else {
        let mut parts = Vec::with_capacity(5);
        push_run(&mut parts, run.value, seen.register - first);
        parts.push(value_run(seen.value, 1));
        push_run(&mut parts, run.value, first + run.length - 1 - seen.register);
        if parts.len() > run.bytes && bytes.len() + parts.len() - run.bytes > bytes_max {
            return Ok(Added::DoesNotFit);
        }
        bytes.splice(at..at + run.bytes, parts);
    }
    join(bytes, before);
    Ok(Added::Changed)
}

/// Joins neighbouring runs of one value from `at` on.
fn join(bytes: &mut Vec<u8>, mut at: usize) {
    for _ in 0..JOIN_RUNS {
        let Some(run) = Run::first(&bytes[at..]) else { return };
        match Run::first(&bytes[at + run.bytes..]) {
            Some(next)
                if run.value > 0 && next.value == run.value && run.length + next.length <= VALUES_MAX =>
            {
                bytes[at + 1] = value_run(run.value, run.length + next.length);
                bytes.remove(at);
            }
            _ => at += run.bytes,
        }
    }
}

/// The runs as PFDEBUG DECODE shows them: `Z:` and `z:` zeros with their length, `v:` values with theirs.
///
/// # Errors
/// [`Corrupted`] if a run is cut off.
pub fn decode(bytes: &[u8]) -> Result<Vec<u8>, Corrupted> {
    let mut text = Vec::new();
    let mut runs = bytes.get(HEADER_BYTES..).ok_or(Corrupted)?;
    while !runs.is_empty() {
        let run = Run::first(runs).ok_or(Corrupted)?;
        if !text.is_empty() {
            text.push(b' ');
        }
        text.extend_from_slice(match (run.value, run.bytes) {
            (0, 1) => b"z:",
            (0, _) => b"Z:",
            _ => b"v:",
        });
        if run.value > 0 {
            text.extend_from_slice(format_i64(run.value.into(), &mut IntBuffer::new()));
            text.push(b',');
        }
        text.extend_from_slice(format_i64(run.length as i64, &mut IntBuffer::new()));
        runs = &runs[run.bytes..];
    }
    Ok(text)
}
