//! Taking from the ends: LPOP, RPOP, LMPOP, and their blocking forms BLPOP, BRPOP and BLMPOP.
//!
//! Handlers over locked keys. The first of several keys that holds a list is the one that is changed.

use super::{end, fill, index_at, pop_event, reply_element, wait};
use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::{int_within, timeout};
use crate::row::Outcome;
use keyspace::{Class, Edit, Key, Type};
use std::ops::Range;
use value::list::{End, List};
use value::number::{IntBuffer, format_i64};
use wire::{Reply, Request};

/// LPOP key [count]
pub(super) fn lpop(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    pop(edit, End::Head, args, reply)
}

/// RPOP key [count]
pub(super) fn rpop(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    pop(edit, End::Tail, args, reply)
}

fn pop(edit: &mut Edit<'_>, end: End, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let count = match args.len() {
        2 => None,
        3 => Some(int_within(args.bytes(2), 0..=i64::MAX, "ERR value is out of range, must be positive")?),
        _ => return Err(Error::arity(pop_event(end))),
    };
    let key = args.key(1);
    match count {
        _ if edit.read::<List>(&key)?.is_none() => {
            if count.is_none() {
                reply.null()
            } else {
                reply.null_array()
            }
            Ok(Outcome::Unchanged)
        }
        None => pop_one(edit, &key, end, args, reply),
        Some(0) => {
            reply.array(0);
            Ok(Outcome::Unchanged)
        }
        Some(count) => pop_several(edit, &key, end, count as usize, args, reply),
    }
}

/// Takes an element of a list that is there, and replies with it.
fn pop_one(
    edit: &mut Edit<'_>,
    key: &Key<'_>,
    end: End,
    args: &Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<Outcome> {
    let mut list = edit.open::<List>(key)?.expect("the caller found the list");
    let element = list.as_ref().get(index_at(end, list.len())).expect("no list is empty");
    reply_element(element, reply);
    list.pop(1, end);
    list.note(Class::LIST, pop_event(end));
    list.shrink(fill(args));
    args.log_as(&[pop_event(end).as_bytes(), key.bytes]);
    Ok(Outcome::Changed)
}

/// Takes several elements of a list that is there, and replies with them.
fn pop_several(
    edit: &mut Edit<'_>,
    key: &Key<'_>,
    end: End,
    count: usize,
    args: &Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<Outcome> {
    let list = edit.read::<List>(key)?.expect("the caller found the list");
    let elements = list.walk(index_at(end, list.len()), count, end);
    reply.array(elements.len());
    let (taken, takes_all) = (elements.len(), elements.len() == list.len());
    elements.for_each(|element| reply_element(element, reply));
    match (args.is_for_redis50(), end) {
        (false, _) => args.log_as_with(&[pop_event(end).as_bytes(), key.bytes], taken as i64),
        (true, End::Head) => {
            args.log_as(&[b"LTRIM", key.bytes, format_i64(taken as i64, &mut IntBuffer::new()), b"-1"]);
        }
        (true, End::Tail) => args.log_as_with(&[b"LTRIM", key.bytes, b"0"], -1 - taken as i64),
    }
    if takes_all {
        super::remove::remove_all(edit, key, pop_event(end));
        return Ok(Outcome::Changed);
    }
    let mut list = edit.open::<List>(key)?.expect("the caller found the list");
    list.pop(count, end);
    list.note(Class::LIST, pop_event(end));
    list.shrink(fill(args));
    Ok(Outcome::Changed)
}

/// The first of the keys that is there.
///
/// # Errors
/// It is not a list.
fn first_list<'a>(edit: &Edit<'_>, args: &Args<'a>, keys: Range<usize>) -> Result<Option<Key<'a>>> {
    for position in keys {
        let key = args.key(position);
        if edit.reaches(&key) && edit.read::<List>(&key)?.is_some() {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

/// BLPOP key [key ...] timeout
pub(super) fn blpop(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    blocking_pop(edit, End::Head, args, reply)
}

/// BRPOP key [key ...] timeout
pub(super) fn brpop(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    blocking_pop(edit, End::Tail, args, reply)
}

fn blocking_pop(edit: &mut Edit<'_>, end: End, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let keys = 1..args.len() - 1;
    let until = timeout(args.bytes(keys.end), args.now)?;
    let Some(key) = first_list(edit, args, keys.clone())? else {
        return Ok(wait(keys, until));
    };
    reply.array(2);
    reply.bulk(key.bytes);
    pop_one(edit, &key, end, args, reply)
}

/// LMPOP numkeys key [key ...] LEFT | RIGHT [COUNT count]
pub(super) fn lmpop(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let request = SeveralPop::parse(args, LMPOP_NUMKEYS)?;
    match first_list(edit, args, request.keys.clone())? {
        Some(key) => request.run(edit, &key, args, reply),
        None => {
            reply.null_array();
            Ok(Outcome::Unchanged)
        }
    }
}

/// BLMPOP timeout numkeys key [key ...] LEFT | RIGHT [COUNT count]
pub(super) fn blmpop(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let request = SeveralPop::parse(args, BLMPOP_NUMKEYS)?;
    let until = timeout(args.bytes(1), args.now)?;
    match first_list(edit, args, request.keys.clone())? {
        Some(key) => request.run(edit, &key, args, reply),
        None => Ok(wait(request.keys, until)),
    }
}

/// LMPOP's keys.
pub(super) fn lmpop_keys(request: &Request<'_>, positions: &mut Vec<usize>) {
    positions.extend(keys_behind(request, LMPOP_NUMKEYS).into_iter().flatten());
}

/// BLMPOP's keys.
pub(super) fn blmpop_keys(request: &Request<'_>, positions: &mut Vec<usize>) {
    positions.extend(keys_behind(request, BLMPOP_NUMKEYS).into_iter().flatten());
}

const LMPOP_NUMKEYS: usize = 1;
const BLMPOP_NUMKEYS: usize = 2;

/// The positions of the keys whose number stands at a position.
fn keys_behind(request: &Request<'_>, numkeys: usize) -> Result<Range<usize>> {
    let first = numkeys + 1;
    let count =
        int_within(request.arg(numkeys), 1..=i64::MAX, "ERR numkeys should be greater than 0")? as usize;
    match first.checked_add(count) {
        // A word must follow the keys.
        Some(end) if end < request.len() => Ok(first..end),
        _ => Err(Error::Syntax),
    }
}

/// What LMPOP and BLMPOP are asked for.
struct SeveralPop {
    keys: Range<usize>,
    end: End,
    count: usize,
}

impl SeveralPop {
    fn parse(args: &Args<'_>, numkeys: usize) -> Result<SeveralPop> {
        let keys = keys_behind(&args.request, numkeys)?;
        let end = end(args.bytes(keys.end))?;
        let option = keys.end + 1;
        let count = match args.len() - option {
            0 => 1,
            1 => return Err(Error::Syntax),
            words if args.is(option, "count") => {
                let count =
                    int_within(args.bytes(option + 1), 1..=i64::MAX, "ERR count should be greater than 0")?;
                if words > 2 {
                    return Err(Error::Syntax);
                }
                count as usize
            }
            _ => return Err(Error::Syntax),
        };
        Ok(SeveralPop { keys, end, count })
    }

    /// Takes from a list that is there.
    fn run(
        &self,
        edit: &mut Edit<'_>,
        key: &Key<'_>,
        args: &Args<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<Outcome> {
        reply.array(2);
        reply.bulk(key.bytes);
        pop_several(edit, key, self.end, self.count, args, reply)
    }
}
