//! XINFO: a stream, its groups and their consumers, as maps.

use super::{
    VARIES, help_row, moment, reply_entries, reply_entry, reply_help, reply_id, subcommand,
    unknown_subcommand,
};
use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::int;
use crate::row::Handler::{Read, Walk};
use crate::row::Row;
use keyspace::{Batch, View};
use value::stream::{Consumer, Entries, Group, Order, Stream, StreamId};
use wire::Reply;

pub(super) const SUBCOMMANDS: &[Row] = &[
    subcommand("xinfo|consumers", 4, Read(consumers))
        .syntax("key group")
        .summary("Lists the consumers of a group.")
        .tips(VARIES),
    subcommand("xinfo|groups", 3, Read(groups))
        .syntax("key")
        .summary("Lists the consumer groups of a stream."),
    help_row("xinfo|help", Walk(help)),
    subcommand("xinfo|stream", -3, Read(stream))
        .syntax("key [FULL [COUNT count]]")
        .summary("Describes a stream."),
];

/// XINFO with a word that is no subcommand.
pub(super) fn unknown(batch: &Batch<'_>, args: &Args<'_>, _: &mut Reply<'_>) -> Result<()> {
    unknown_subcommand(batch, "xinfo", args)
}

/// XINFO HELP
fn help(_: &Batch<'_>, _: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    const LINES: &[&str] = &[
        "CONSUMERS <key> <group>",
        "    List the consumers of a group.",
        "GROUPS <key>",
        "    List the groups of a stream.",
        "STREAM <key> [FULL [COUNT <count>]]",
        "    Describe a stream.",
    ];
    reply_help("XINFO", LINES, reply);
    Ok(())
}

/// The stream at position 2.
fn stream_of<'v>(view: &'v View<'_>, args: &Args<'_>) -> Result<&'v Stream> {
    view.read::<Stream>(&args.key(2))?.ok_or(Error::NO_SUCH_KEY)
}

fn reply_count(name: &str, count: u64, reply: &mut Reply<'_>) {
    reply.bulk(name.as_bytes());
    reply.int(count as i64);
}

fn reply_named_id(name: &str, id: StreamId, reply: &mut Reply<'_>) {
    reply.bulk(name.as_bytes());
    reply_id(id, reply);
}

fn reply_known(name: &str, count: Option<i64>, reply: &mut Reply<'_>) {
    reply.bulk(name.as_bytes());
    match count {
        Some(count) => reply.int(count),
        None => reply.null(),
    }
}

/// XINFO CONSUMERS key group
fn consumers(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let stream = stream_of(view, args)?;
    let group =
        stream.group(args.bytes(3)).ok_or_else(|| Error::no_group_in(args.bytes(3), args.bytes(2)))?;
    let now = moment(args.present());
    reply.array(group.consumer_count());
    for (_, consumer) in group.consumers() {
        reply.map(4);
        reply.bulk(b"name");
        reply.bulk(consumer.name());
        reply_count("pending", consumer.pending_count() as u64, reply);
        reply.bulk(b"idle");
        reply.int(now.saturating_sub(consumer.seen_at).max(0));
        reply.bulk(b"inactive");
        reply.int(consumer.active_at.map_or(NEVER, |at| now.saturating_sub(at)));
    }
    Ok(())
}

/// Stands for a moment that never was.
const NEVER: i64 = -1;

/// XINFO GROUPS key
fn groups(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let stream = stream_of(view, args)?;
    reply.array(stream.group_count());
    for (name, group) in stream.groups() {
        reply.map(6);
        reply.bulk(b"name");
        reply.bulk(name);
        reply_count("consumers", group.consumer_count() as u64, reply);
        reply_count("pending", group.pending_count() as u64, reply);
        reply_progress(group, &stream.entries, reply);
    }
    Ok(())
}

/// Three pairs of a group's map.
fn reply_progress(group: &Group, entries: &Entries, reply: &mut Reply<'_>) {
    reply_named_id("last-delivered-id", group.last_id, reply);
    reply_known("entries-read", group.entries_read, reply);
    reply_known("lag", entries.lag(group), reply);
}

/// How much XINFO STREAM tells.
#[derive(Clone, Copy)]
enum Detail {
    Short,
    /// With so many entries and pending deliveries; 0 is all.
    Full(u64),
}

impl Detail {
    fn parse(args: &Args<'_>) -> Result<Detail> {
        const COUNT_USUAL: u64 = 10;
        let refused = || Error::subcommand_syntax("XINFO", args.bytes(1));
        match args.len() {
            3 => Ok(Detail::Short),
            4 if args.is(3, "FULL") => Ok(Detail::Full(COUNT_USUAL)),
            6 if args.is(3, "FULL") && args.is(4, "COUNT") => {
                Ok(Detail::Full(u64::try_from(int(args.bytes(5))?).unwrap_or(COUNT_USUAL)))
            }
            _ => Err(refused()),
        }
    }
}

/// XINFO STREAM key [FULL [COUNT count]]
fn stream(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let stream = stream_of(view, args)?;
    let detail = Detail::parse(args)?;
    let entries = &stream.entries;
    reply.map(match detail {
        Detail::Short => 10,
        Detail::Full(_) => 9,
    });
    reply_count("length", entries.len(), reply);
    reply_count("radix-tree-keys", entries.node_count() as u64, reply);
    reply_count("radix-tree-nodes", entries.radix_node_count() as u64, reply);
    reply_named_id("last-generated-id", entries.last_id(), reply);
    reply_named_id("max-deleted-entry-id", entries.max_deleted_id(), reply);
    reply_count("entries-added", entries.entries_added(), reply);
    reply_named_id("recorded-first-entry-id", entries.first_id(), reply);
    match detail {
        Detail::Short => reply_short(stream, reply),
        Detail::Full(count) => {
            let shown = if count == 0 { usize::MAX } else { usize::try_from(count).unwrap_or(usize::MAX) };
            reply.bulk(b"entries");
            reply_entries(entries.range(StreamId::MIN, StreamId::MAX, Order::Ascending).take(shown), reply);
            reply.bulk(b"groups");
            reply.array(stream.group_count());
            for (name, group) in stream.groups() {
                reply_group(name, group, entries, shown, reply);
            }
        }
    }
    Ok(())
}

fn reply_short(stream: &Stream, reply: &mut Reply<'_>) {
    reply_count("groups", stream.group_count() as u64, reply);
    for (name, order) in [("first-entry", Order::Ascending), ("last-entry", Order::Descending)] {
        reply.bulk(name.as_bytes());
        match stream.entries.range(StreamId::MIN, StreamId::MAX, order).next() {
            Some(entry) => reply_entry(&entry, reply),
            None => reply.null(),
        }
    }
}

fn reply_group(name: &[u8], group: &Group, entries: &Entries, shown: usize, reply: &mut Reply<'_>) {
    reply.map(7);
    reply.bulk(b"name");
    reply.bulk(name);
    reply_progress(group, entries, reply);
    reply_count("pel-count", group.pending_count() as u64, reply);
    reply.bulk(b"pending");
    reply.array(group.pending_count().min(shown));
    for (id, pending) in group.pending_from(StreamId::MIN).take(shown) {
        reply.array(4);
        reply_id(id, reply);
        reply.bulk(group.consumer(pending.consumer).name());
        reply.int(pending.delivered_at);
        reply.int(pending.deliveries as i64);
    }
    reply.bulk(b"consumers");
    reply.array(group.consumer_count());
    for (_, consumer) in group.consumers() {
        reply_consumer(consumer, group, shown, reply);
    }
}

fn reply_consumer(consumer: &Consumer, group: &Group, shown: usize, reply: &mut Reply<'_>) {
    reply.map(5);
    reply.bulk(b"name");
    reply.bulk(consumer.name());
    reply.bulk(b"seen-time");
    reply.int(consumer.seen_at);
    reply.bulk(b"active-time");
    reply.int(consumer.active_at.unwrap_or(NEVER));
    reply_count("pel-count", consumer.pending_count() as u64, reply);
    reply.bulk(b"pending");
    reply.array(consumer.pending_count().min(shown));
    let owned = consumer.pending_from(StreamId::MIN).take(shown);
    for (id, pending) in owned.filter_map(|id| Some((id, group.pending(id)?))) {
        reply.array(3);
        reply_id(id, reply);
        reply.int(pending.delivered_at);
        reply.int(pending.deliveries as i64);
    }
}
