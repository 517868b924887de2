//! Entries as such: how many there are, those between two ids, and deleting them by name.

use super::{count, ids, interval_end, interval_start, reply_entries};
use crate::args::Args;
use crate::error::Result;
use crate::parse::Options;
use crate::row::Outcome;
use keyspace::{Class, Edit, View};
use value::stream::{Order, Stream};
use wire::Reply;

/// XLEN key
pub(super) fn xlen(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let stream = view.read::<Stream>(&args.key(1))?;
    reply.int(stream.map_or(0, |stream| stream.entries.len() as i64));
    Ok(())
}

/// XRANGE key start end [COUNT count]
pub(super) fn xrange(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply_range(view, args, Order::Ascending, reply)
}

/// XREVRANGE key end start [COUNT count]
pub(super) fn xrevrange(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply_range(view, args, Order::Descending, reply)
}

fn reply_range(view: &View<'_>, args: &Args<'_>, order: Order, reply: &mut Reply<'_>) -> Result<()> {
    let (first, second) = match order {
        Order::Ascending => (2, 3),
        Order::Descending => (3, 2),
    };
    let start = interval_start(args.bytes(first))?;
    let end = interval_end(args.bytes(second))?;
    let mut options = Options::from(args, 4);
    let mut entries_max = None;
    while options.more() {
        match options.take_with_value("COUNT") {
            Some(text) => entries_max = Some(count(text)?),
            None => options.refuse(),
        }
    }
    options.finish()?;
    let Some(stream) = view.read::<Stream>(&args.key(1))? else {
        reply.array(0);
        return Ok(());
    };
    let range = stream.entries.range(start, end, order);
    match entries_max {
        Some(0) => reply.null_array(),
        Some(entries_max) => {
            reply_entries(range.take(usize::try_from(entries_max).unwrap_or(usize::MAX)), reply);
        }
        None => {
            reply_entries(range, reply);
        }
    }
    Ok(())
}

/// XDEL key id [id ...]
pub(super) fn xdel(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let key = args.key(1);
    let Some(mut stream) = edit.open::<Stream>(&key)? else {
        reply.int(0);
        return Ok(Outcome::Unchanged);
    };
    let ids = ids(args, 2)?;
    let deleted = ids.into_iter().filter(|id| stream.entries.delete(*id)).count();
    reply.int(deleted as i64);
    if deleted == 0 {
        return Ok(Outcome::Unchanged);
    }
    stream.note(Class::STREAM, "xdel");
    Ok(Outcome::Changed)
}
