//! Parts of strings: APPEND, GETRANGE, SETRANGE, STRLEN.
//!
//! Thread rule: as for all handlers.
//!
//! Invariants:
//! 1. No edit makes a string longer than `proto-max-bulk-len`.
//! 2. A string that was edited in place has encoding "raw", whatever its length.

use super::{Text, check_length};
use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::int;
use crate::row::Outcome;
use keyspace::{Class, Edit, Expiry, NewValue, View};
use wire::Reply;

/// APPEND key value
pub(super) fn append(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let (key, tail) = (args.key(1), args.bytes(2));
    let len = match Text::of(edit.get(&key))?.map(Text::len) {
        None => {
            edit.set(&key, NewValue::from_bytes(tail), Expiry::Clear);
            tail.len()
        }
        Some(old_len) => {
            let len = check_length(args, old_len as u64, tail.len() as u64)?;
            edit.bytes_mut(&key, len)[old_len..].copy_from_slice(tail);
            len
        }
    };
    edit.note(Class::STRING, "append", &key);
    reply.int(len as i64);
    Ok(Outcome::Changed)
}

/// STRLEN key
pub(super) fn strlen(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let len = Text::of(view.get(&args.key(1)))?.map_or(0, Text::len);
    reply.int(len as i64);
    Ok(())
}

/// GETRANGE key start end
pub(super) fn getrange(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let (start, end) = (int(args.bytes(2))?, int(args.bytes(3))?);
    let mut digits = itoa::Buffer::new();
    let bytes = Text::of(view.get(&args.key(1)))?.map_or(&b""[..], |text| text.bytes(&mut digits));
    reply.bulk(slice(bytes, start, end));
    Ok(())
}

/// The bytes from `start` to `end`, both included and counted from the end if negative.
fn slice(bytes: &[u8], start: i64, end: i64) -> &[u8] {
    if start < 0 && end < 0 && start > end {
        return b"";
    }
    let position = |index: i64| match usize::try_from(index) {
        Ok(index) => index,
        Err(_) => bytes.len().saturating_sub(index.unsigned_abs() as usize),
    };
    let (start, end) = (position(start), position(end).saturating_add(1).min(bytes.len()));
    bytes.get(start..end).unwrap_or_default()
}

/// SETRANGE key offset value
pub(super) fn setrange(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let (key, part) = (args.key(1), args.bytes(3));
    let offset = u64::try_from(int(args.bytes(2))?).map_err(|_| Error::text("ERR offset is out of range"))?;
    let old_len = Text::of(edit.get(&key))?.map_or(0, Text::len);
    if part.is_empty() {
        reply.int(old_len as i64);
        return Ok(Outcome::Unchanged);
    }
    let end = check_length(args, offset, part.len() as u64)?;
    let len = old_len.max(end);
    edit.bytes_mut(&key, len)[end - part.len()..end].copy_from_slice(part);
    edit.note(Class::STRING, "setrange", &key);
    reply.int(len as i64);
    Ok(Outcome::Changed)
}
