//! XPENDING: what a group has delivered and its consumers have not acknowledged.

use super::{count, interval_end, interval_start, moment, reply_id};
use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::int;
use keyspace::View;
use value::stream::{Group, Moment, Pending, Stream, StreamId};
use wire::Reply;

/// The part of the pending entries that is asked for.
struct Selection<'a> {
    start: StreamId,
    end: StreamId,
    count: u64,
    idle_min_ms: i64,
    consumer: Option<&'a [u8]>,
}

impl<'a> Selection<'a> {
    /// Reads `[IDLE min-idle-time] start end count [consumer]`, if there is anything.
    fn parse(args: &Args<'a>) -> Result<Option<Selection<'a>>> {
        if args.len() == 3 {
            return Ok(None);
        }
        if !(6..=9).contains(&args.len()) {
            return Err(Error::Syntax);
        }
        let (mut at, mut idle_min_ms) = (3, 0);
        if args.is(3, "IDLE") {
            idle_min_ms = int(args.bytes(4))?;
            if args.len() < 8 {
                return Err(Error::Syntax);
            }
            at = 5;
        }
        let count = count(args.bytes(at + 2))?;
        let start = interval_start(args.bytes(at))?;
        let end = interval_end(args.bytes(at + 1))?;
        let consumer = args.request.get(at + 3);
        Ok(Some(Selection { start, end, count, idle_min_ms, consumer }))
    }
}

/// XPENDING key group [[IDLE min-idle-time] start end count [consumer]]
pub(super) fn xpending(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let selection = Selection::parse(args)?;
    let stream = view.read::<Stream>(&args.key(1))?;
    let group = stream
        .and_then(|stream| stream.group(args.bytes(2)))
        .ok_or_else(|| Error::no_group(args.bytes(1), args.bytes(2), ""))?;
    match selection {
        None => reply_summary(group, reply),
        Some(selection) => reply_selection(group, &selection, moment(args.present()), reply),
    }
    Ok(())
}

fn reply_summary(group: &Group, reply: &mut Reply<'_>) {
    reply.array(4);
    reply.int(group.pending_count() as i64);
    let Some((first, last)) = group.pending_edges() else {
        reply.null();
        reply.null();
        reply.null_array();
        return;
    };
    reply_id(first, reply);
    reply_id(last, reply);
    let list = reply.deferred_array();
    let mut count = 0;
    for (_, consumer) in group.consumers().filter(|(_, consumer)| consumer.pending_count() > 0) {
        reply.array(2);
        reply.bulk(consumer.name());
        reply.bulk_int(consumer.pending_count() as i64);
        count += 1;
    }
    reply.end(list, count);
}

fn reply_selection(group: &Group, selection: &Selection<'_>, now: Moment, reply: &mut Reply<'_>) {
    match selection.consumer {
        None => reply_pending(group, group.pending_from(selection.start), selection, now, reply),
        Some(name) => match group.find_consumer(name) {
            None => reply.array(0),
            Some(consumer) => {
                let owned = group.consumer(consumer).pending_from(selection.start);
                let pending = owned.filter_map(|id| Some((id, group.pending(id)?)));
                reply_pending(group, pending, selection, now, reply);
            }
        },
    }
}

fn reply_pending(
    group: &Group,
    pending: impl Iterator<Item = (StreamId, Pending)>,
    selection: &Selection<'_>,
    now: Moment,
    reply: &mut Reply<'_>,
) {
    let list = reply.deferred_array();
    let mut count = 0;
    let selected = pending
        .take_while(|(id, _)| *id <= selection.end)
        .filter(|(_, pending)| selection.idle_min_ms == 0 || pending.idle_ms(now) >= selection.idle_min_ms)
        .take(usize::try_from(selection.count).unwrap_or(usize::MAX));
    for (id, pending) in selected {
        reply.array(4);
        reply_id(id, reply);
        reply.bulk(group.consumer(pending.consumer).name());
        reply.int(pending.idle_ms(now).max(0));
        reply.int(pending.deliveries as i64);
        count += 1;
    }
    reply.end(list, count);
}
