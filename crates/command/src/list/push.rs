//! Adding and replacing: LPUSH, RPUSH, LPUSHX, RPUSHX, LINSERT and LSET.
//!
//! Handlers over one locked key.

use super::{fill, index_from_head, push_event};
use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::int;
use crate::row::Outcome;
use keyspace::{Class, Edit, Opened, Type};
use value::list::{End, List, Side};
use wire::Reply;

/// LPUSH key element [element ...]
pub(super) fn lpush(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let list = edit.open_or_new(&args.key(1), List::new)?;
    Ok(push(list, End::Head, args, reply))
}

/// RPUSH key element [element ...]
pub(super) fn rpush(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let list = edit.open_or_new(&args.key(1), List::new)?;
    Ok(push(list, End::Tail, args, reply))
}

/// LPUSHX key element [element ...]
pub(super) fn lpushx(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    push_if_there(edit, End::Head, args, reply)
}

/// RPUSHX key element [element ...]
pub(super) fn rpushx(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    push_if_there(edit, End::Tail, args, reply)
}

fn push_if_there(edit: &mut Edit<'_>, end: End, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    match edit.open(&args.key(1))? {
        Some(list) => Ok(push(list, end, args, reply)),
        None => {
            reply.int(0);
            Ok(Outcome::Unchanged)
        }
    }
}

fn push(mut list: Opened<'_, '_, List>, end: End, args: &Args<'_>, reply: &mut Reply<'_>) -> Outcome {
    let texts = (2..args.len()).map(|position| args.bytes(position));
    list.grow(fill(args), texts.clone().map(<[u8]>::len).sum(), texts.len());
    texts.for_each(|text| list.push(text, end));
    reply.int(list.len() as i64);
    list.note(Class::LIST, push_event(end));
    Outcome::Changed
}

/// LINSERT key BEFORE | AFTER pivot element
pub(super) fn linsert(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let side = match args.bytes(2) {
        word if word.eq_ignore_ascii_case(b"before") => Side::Before,
        word if word.eq_ignore_ascii_case(b"after") => Side::After,
        _ => return Err(Error::Syntax),
    };
    let Some(mut list) = edit.open::<List>(&args.key(1))? else {
        reply.int(0);
        return Ok(Outcome::Unchanged);
    };
    let text = args.bytes(4);
    grow_for(&mut list, text, args);
    if !list.insert(args.bytes(3), side, text) {
        reply.int(-1);
        return Ok(Outcome::Unchanged);
    }
    reply.int(list.len() as i64);
    list.note(Class::LIST, "linsert");
    Ok(Outcome::Changed)
}

/// LSET key index element
pub(super) fn lset(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let Some(mut list) = edit.open::<List>(&args.key(1))? else {
        return Err(Error::NO_SUCH_KEY);
    };
    let index = index_from_head(int(args.bytes(2))?, list.len());
    let text = args.bytes(3);
    grow_for(&mut list, text, args);
    if !usize::try_from(index).is_ok_and(|index| list.set(index, text)) {
        return Err(Error::INDEX_OUT_OF_RANGE);
    }
    list.note(Class::LIST, "lset");
    list.shrink(fill(args));
    reply.ok();
    Ok(Outcome::Changed)
}

/// Grows a list for an element that may turn out not to be added: it stays grown, as in Redis.
fn grow_for(list: &mut Opened<'_, '_, List>, text: &[u8], args: &Args<'_>) {
    let before = list.as_ref().encoding();
    list.grow(fill(args), text.len(), 1);
    if list.as_ref().encoding() != before {
        list.touch();
    }
}
