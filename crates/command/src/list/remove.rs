//! Taking away from anywhere: LREM and LTRIM.
//!
//! Handlers over one locked key.

use super::{clip, fill};
use crate::args::Args;
use crate::error::Result;
use crate::parse::int;
use crate::row::Outcome;
use keyspace::{Class, Edit, Key};
use value::list::{End, List};
use wire::Reply;

/// LREM key count element
pub(super) fn lrem(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let count = int(args.bytes(2))?;
    let (limit, from) = match count {
        0 => (usize::MAX, End::Head),
        1.. => (count as usize, End::Head),
        _ => (count.unsigned_abs() as usize, End::Tail),
    };
    let Some(mut list) = edit.open::<List>(&args.key(1))? else {
        reply.int(0);
        return Ok(Outcome::Unchanged);
    };
    let removed = list.remove_matches(args.bytes(3), limit, from);
    reply.int(removed as i64);
    if removed == 0 {
        return Ok(Outcome::Unchanged);
    }
    list.note(Class::LIST, "lrem");
    list.shrink(fill(args));
    Ok(Outcome::Changed)
}

/// LTRIM key start stop
pub(super) fn ltrim(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let (start, stop) = (int(args.bytes(2))?, int(args.bytes(3))?);
    let key = args.key(1);
    let Some(length) = edit.read::<List>(&key)?.map(|list| list.len()) else {
        reply.ok();
        return Ok(Outcome::Unchanged);
    };
    reply.ok();
    let (start, count) = clip(start, stop, length);
    if count == 0 {
        remove_all(edit, &key, "ltrim");
        return Ok(Outcome::Changed);
    }
    let mut list = edit.open::<List>(&key)?.expect("it was there a moment ago");
    list.pop(length - start - count, End::Tail);
    list.pop(start, End::Head);
    list.note(Class::LIST, "ltrim");
    list.shrink(fill(args));
    Ok(Outcome::Changed)
}

/// Takes away a list with all its elements; a long one is freed in the background.
pub(super) fn remove_all(edit: &mut Edit<'_>, key: &Key<'_>, event: &'static str) {
    edit.note(Class::LIST, event, key);
    edit.remove(key);
    edit.note(Class::GENERIC, "del", key);
}
