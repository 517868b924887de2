//! Commands that read hashes: HGET, HMGET, HGETALL, HKEYS, HVALS, HEXISTS, HLEN, HSTRLEN, HSCAN.
//!
//! Thread rule: as for all handlers.

use super::{Hash, reply_element};
use crate::args::Args;
use crate::error::{Error, Result};
use crate::generic::scan::{Pattern, cursor, reply_scanned};
use crate::parse::int;
use keyspace::View;
use value::hash::HashRef;
use value::listpack::Element;
use value::number::IntBuffer;
use wire::Reply;

fn open<'a>(view: &'a View<'_>, args: &Args<'_>) -> Result<Option<HashRef<'a>>> {
    Ok(view.read::<Hash>(&args.key(1))?)
}

fn value<'a>(view: &'a View<'_>, args: &Args<'_>) -> Result<Option<Element<'a>>> {
    Ok(open(view, args)?.and_then(|hash| hash.get(args.bytes(2), args.now)))
}

fn reply_value(reply: &mut Reply<'_>, value: Option<Element<'_>>) {
    match value {
        Some(value) => reply_element(reply, value),
        None => reply.null(),
    }
}

/// HGET key field
#[inline]
pub(super) fn hget(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply_value(reply, value(view, args)?);
    Ok(())
}

/// HMGET key field [field ...]
pub(super) fn hmget(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let hash = open(view, args)?;
    reply.array(args.len() - 2);
    for position in 2..args.len() {
        reply_value(reply, hash.and_then(|hash| hash.get(args.bytes(position), args.now)));
    }
    Ok(())
}

/// HGETALL key
pub(super) fn hgetall(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let Some(hash) = open(view, args)? else {
        reply.map(0);
        return Ok(());
    };
    reply.map(hash.visible(args.now));
    hash.for_each(args.now, |name, value| {
        reply_element(reply, name);
        reply_element(reply, value);
    });
    Ok(())
}

/// HKEYS key
pub(super) fn hkeys(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply_each(view, args, reply, |name, _| name)
}

/// HVALS key
pub(super) fn hvals(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply_each(view, args, reply, |_, value| value)
}

fn reply_each(
    view: &View<'_>,
    args: &Args<'_>,
    reply: &mut Reply<'_>,
    part: for<'a> fn(Element<'a>, Element<'a>) -> Element<'a>,
) -> Result<()> {
    let Some(hash) = open(view, args)? else {
        reply.array(0);
        return Ok(());
    };
    reply.array(hash.visible(args.now));
    hash.for_each(args.now, |name, value| reply_element(reply, part(name, value)));
    Ok(())
}

/// HEXISTS key field
pub(super) fn hexists(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply.int(i64::from(value(view, args)?.is_some()));
    Ok(())
}

/// HLEN key
pub(super) fn hlen(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply.int(open(view, args)?.map_or(0, HashRef::len) as i64);
    Ok(())
}

/// HSTRLEN key field
pub(super) fn hstrlen(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply.int(value(view, args)?.map_or(0, Element::len) as i64);
    Ok(())
}

/// HSCAN key cursor [MATCH pattern] [COUNT count] [NOVALUES]
pub(super) fn hscan(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let cursor = cursor(args.bytes(2)).ok_or(Error::CURSOR)?;
    let Some(hash) = open(view, args)? else {
        reply_scanned(reply, |_, _| 0);
        return Ok(());
    };
    let options = ScanOptions::parse(args)?;
    reply_scanned(reply, |fields, count| {
        let mut digits = IntBuffer::new();
        hash.scan(cursor.0, options.count, args.now, |name, value| {
            if options.pattern.matches(name.bytes(&mut digits)) {
                reply_element(fields, name);
                *count += 1;
                if options.shows == Shows::FieldsAndValues {
                    reply_element(fields, value);
                    *count += 1;
                }
            }
        })
    });
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shows {
    FieldsAndValues,
    Fields,
}

struct ScanOptions<'a> {
    pattern: Pattern<'a>,
    /// How many fields to look at.
    count: usize,
    shows: Shows,
}

impl<'a> ScanOptions<'a> {
    /// Parses the words from position 3 on. Of an option given twice the last counts.
    fn parse(args: &Args<'a>) -> Result<ScanOptions<'a>> {
        let mut options = ScanOptions { pattern: Pattern::All, count: 10, shows: Shows::FieldsAndValues };
        let mut position = 3;
        while position < args.len() {
            let operand = args.request.get(position + 1);
            if args.is(position, "novalues") {
                options.shows = Shows::Fields;
                position += 1;
                continue;
            }
            match operand {
                Some(count) if args.is(position, "count") => {
                    options.count = match int(count)? {
                        count @ 1.. => count as usize,
                        _ => return Err(Error::Syntax),
                    };
                }
                Some(pattern) if args.is(position, "match") => options.pattern = Pattern::new(pattern),
                _ => return Err(Error::Syntax),
            }
            position += 2;
        }
        Ok(options)
    }
}
