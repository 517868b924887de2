//! BITCOUNT and BITPOS: their arguments; `value::bits` counts and finds.
//!
//! Thread rule: as for all handlers.
//!
//! Invariants:
//! 1. As in Redis up to 7.2, a key that is not there answers before the range is
//!    looked at, however wrong that is.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::int;
use crate::string::Text;
use keyspace::View;
use value::bits::{self, Bit, IndexRange, IndexUnit, Search};
use wire::Reply;

fn unit(text: &[u8]) -> Result<IndexUnit> {
    match text {
        _ if text.eq_ignore_ascii_case(b"BYTE") => Ok(IndexUnit::Byte),
        _ if text.eq_ignore_ascii_case(b"BIT") => Ok(IndexUnit::Bit),
        _ => Err(Error::Syntax),
    }
}

/// BITCOUNT key [start end [BYTE | BIT]]
pub(super) fn bitcount(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let mut digits = itoa::Buffer::new();
    let Some(text) = Text::of(view.get(&args.key(1)))? else {
        reply.int(0);
        return Ok(());
    };
    let range = match args.len() {
        2 => None,
        4 | 5 => {
            let (start, end) = (int(args.bytes(2))?, int(args.bytes(3))?);
            // Redis sees that the range is empty before it looks at the unit.
            let reversed = start < 0 && end < 0 && start > end;
            let unit = if args.len() == 4 || reversed { IndexUnit::Byte } else { unit(args.bytes(4))? };
            Some(IndexRange { start, end, unit })
        }
        _ => return Err(Error::Syntax),
    };
    reply.int(bits::bitcount(text.bytes(&mut digits), range) as i64);
    Ok(())
}

/// BITPOS key bit [start [end [BYTE | BIT]]]
pub(super) fn bitpos(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let bit = match int(args.bytes(2))? {
        0 => Bit::Zero,
        1 => Bit::One,
        _ => return Err(Error::text("ERR The bit argument must be 1 or 0.")),
    };
    let mut digits = itoa::Buffer::new();
    let Some(text) = Text::of(view.get(&args.key(1)))? else {
        reply.int(if bit == Bit::Zero { 0 } else { -1 });
        return Ok(());
    };
    let search = match args.len() {
        3 => Search::From(0),
        4 => Search::From(int(args.bytes(3))?),
        5 | 6 => {
            let start = int(args.bytes(3))?;
            let unit = if args.len() == 6 { unit(args.bytes(5))? } else { IndexUnit::Byte };
            Search::Within(IndexRange { start, end: int(args.bytes(4))?, unit })
        }
        _ => return Err(Error::Syntax),
    };
    let position = bits::bitpos(text.bytes(&mut digits), bit, search);
    reply.int(position.map_or(-1, |position| position as i64));
    Ok(())
}
