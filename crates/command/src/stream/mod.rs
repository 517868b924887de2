//! Streams: the rows of Redis' stream group, and what its handlers share: ids, intervals and entries as
//! replies.
//!
//! Thread rule: handlers run on any worker, with their keys' slots locked.
//!
//! Invariants:
//! 1. What changes a stream's entries is told as a change of its key; what changes only its groups is told
//!    by its event, if it has one, and neither ends a WATCH nor wakes who waits for entries, as in Redis.
//! 2. A handler parses its arguments before its first edit.

mod add;
mod claim;
mod describe;
mod entries;
mod group;
mod pending;
mod read;
mod told;

use crate::args::Args;
use crate::error::{Error, Result};
use crate::key_use::{Begin, DELETES, Find, KeySpec, LOOKS, READS};
use crate::parse::int;
use crate::row::Handler::{BlockingRead, BlockingWrite, Read, Walk, Write};
use crate::row::{Flags, Group, Handler, Keys, Row};
use keyspace::Batch;
use sys::UnixMs;
use value::stream::{Element, Entry, IdText, Moment, StreamId};
use wire::Reply;

const FAST: Flags = Flags::FAST;
const DENYOOM: Flags = Flags::DENYOOM;
const SLOW: Flags = Flags::empty();
/// Tips of commands whose replies hold moments, or depend on them.
const VARIES: &[&str] = &["nondeterministic_output"];

const IDS_COST: &str = "O(1) for each id";
const REPLY_COST: &str = "O(N), N being the number of entries in the reply";

/// The stream group.
pub const ROWS: &[Row] = &[
    row("xack", -4, Write(group::xack), FAST)
        .complexity(IDS_COST)
        .syntax("key group id [id ...]")
        .summary("Acknowledges entries; replies with the number of those that were pending."),
    row("xadd", -5, Write(add::xadd), DENYOOM.union(FAST))
        .complexity("O(1) for the entry, O(N) for trimming N entries")
        .syntax(
            "key [NOMKSTREAM] [<MAXLEN | MINID> [= | ~] threshold [LIMIT count]] <* | id> field value \
             [field value ...]",
        )
        .summary("Adds an entry to a stream; makes the key if it is not there.")
        .tips(VARIES),
    row("xautoclaim", -6, Write(claim::xautoclaim), FAST)
        // It keeps the time of a delivery, none later than the present.
        .counts_from_now(|_| true)
        .since("6.2.0")
        .complexity("O(1) for a small COUNT")
        .syntax("key group consumer min-idle-time start [COUNT count] [JUSTID]")
        .key_flags(&[DELETES])
        .summary("Gives a consumer what has been pending for long, from some id on.")
        .tips(VARIES),
    row("xclaim", -6, Write(claim::xclaim), FAST)
        // It keeps the time of a delivery, none later than the present.
        .counts_from_now(|_| true)
        .complexity("O(log N), N being the number of pending entries")
        .syntax(
            "key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds] \
             [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID lastid]",
        )
        .summary("Gives a consumer pending entries of others.")
        .tips(VARIES),
    row("xdel", -3, Write(entries::xdel), FAST)
        .complexity(IDS_COST)
        .syntax("key id [id ...]")
        .key_flags(&[DELETES])
        .summary("Deletes entries; replies with the number of those that were there."),
    container("xgroup", Walk(group::unknown), group::SUBCOMMANDS)
        .summary("Makes, changes and removes consumer groups."),
    container("xinfo", Walk(describe::unknown), describe::SUBCOMMANDS)
        .summary("Describes a stream, its groups and their consumers."),
    row("xlen", 2, Read(entries::xlen), FAST)
        .syntax("key")
        .key_flags(&[LOOKS])
        .summary("Replies with the number of entries in a stream."),
    row("xpending", -3, Read(pending::xpending), SLOW)
        .complexity("O(N), N being the number of entries looked at")
        .syntax("key group [[IDLE min-idle-time] start end count [consumer]]")
        .summary("Lists what was delivered and not acknowledged yet.")
        .tips(VARIES),
    row("xrange", -4, Read(entries::xrange), SLOW)
        .complexity(REPLY_COST)
        .syntax("key start end [COUNT count]")
        .summary("Replies with the entries between two ids."),
    row("xread", -4, BlockingRead(read::xread), Flags::BLOCKING.union(Flags::MOVABLEKEYS))
        .keys(Keys::Movable(read::keys))
        .key_specs(&[streams_from(1)])
        .complexity(REPLY_COST)
        .syntax("[COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]")
        .summary("Replies with the entries of streams behind some ids; waits for them if asked to."),
    row("xreadgroup", -7, BlockingWrite(read::xreadgroup), Flags::BLOCKING.union(Flags::MOVABLEKEYS))
        // It keeps the time of a delivery, none later than the present.
        .counts_from_now(|_| true)
        .keys(Keys::Movable(read::keys))
        .key_specs(&[streams_from(4)])
        .complexity(REPLY_COST)
        .syntax(
            "GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...] id [id ...]",
        )
        .summary("Delivers the entries of streams to a consumer of a group, or again what it has pending."),
    row("xrevrange", -4, Read(entries::xrevrange), SLOW)
        .complexity(REPLY_COST)
        .syntax("key end start [COUNT count]")
        .summary("Replies with the entries between two ids, the last one first."),
    row("xsetid", -3, Write(add::xsetid), DENYOOM.union(FAST))
        .syntax("key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]")
        .summary("Sets the last id of a stream and its counters."),
    row("xtrim", -4, Write(add::xtrim), SLOW)
        .complexity("O(N), N being the number of entries taken away")
        .syntax("key <MAXLEN | MINID> [= | ~] threshold [LIMIT count]")
        .key_flags(&[DELETES])
        .summary("Takes entries away from the front of a stream.")
        .tips(VARIES),
];

/// A row of the group; its one key is argument 1 unless it says otherwise.
const fn row(name: &'static str, arity: i32, handler: Handler, flags: Flags) -> Row {
    crate::row::row(name, arity, handler).flags(flags).keys(Keys::FIRST).group(Group::Stream).since("5.0.0")
}

/// A row that only has subcommands.
const fn container(name: &'static str, unknown: Handler, subcommands: &'static [Row]) -> Row {
    Row::new(name, -2, Flags::PROTECTED, unknown)
        .group(Group::Stream)
        .since("5.0.0")
        .complexity("Depends on the subcommand")
        .subcommands(subcommands)
}

/// A row of a subcommand over the key at position 2.
const fn subcommand(name: &'static str, arity: i32, handler: Handler) -> Row {
    row(name, arity, handler, SLOW).keys(Keys::SECOND)
}

/// A row of a subcommand HELP.
const fn help_row(name: &'static str, handler: Handler) -> Row {
    Row::new(name, 2, Flags::LOADING.union(Flags::STALE), handler)
        .group(Group::Stream)
        .since("5.0.0")
        .summary("Lists the subcommands.")
}

/// The keys behind STREAMS: the first half of the words there.
const fn streams_from(first: i64) -> KeySpec {
    KeySpec {
        begin: Begin::Keyword("STREAMS", first),
        find: Find::Range { last: -1, step: 1, limit: 2 },
        flags: READS,
    }
}

/// A subcommand HELP.
fn reply_help(container: &str, lines: &[&str], reply: &mut Reply<'_>) {
    reply.array(lines.len() + 3);
    reply.simple(format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for line in lines.iter().chain(&["HELP", "    Print this help."]) {
        reply.simple(line);
    }
}

/// The moment as the value crate counts it.
fn moment(now: UnixMs) -> Moment {
    Moment::try_from(now.0).unwrap_or(Moment::MAX)
}

/// A word as an id; without a number, the number is 0.
fn id(text: &[u8]) -> Result<StreamId> {
    StreamId::parse(text, 0).map_err(|_| Error::STREAM_ID)
}

/// The words from a position on as ids.
fn ids(args: &Args<'_>, first: usize) -> Result<Vec<StreamId>> {
    (first..args.len()).map(|position| id(args.bytes(position))).collect()
}

/// The lower end of an interval; one in `(` is not part of it.
fn interval_start(text: &[u8]) -> Result<StreamId> {
    match text {
        [b'(', excluded @ ..] if !excluded.is_empty() => id(excluded)?.next().ok_or(Error::INTERVAL_START),
        _ => StreamId::parse_edge(text, 0).map_err(|_| Error::STREAM_ID),
    }
}

/// The upper end of an interval; one in `(` is not part of it.
fn interval_end(text: &[u8]) -> Result<StreamId> {
    match text {
        [b'(', excluded @ ..] if !excluded.is_empty() => StreamId::parse(excluded, u64::MAX)
            .map_err(|_| Error::STREAM_ID)?
            .previous()
            .ok_or(Error::INTERVAL_END),
        _ => StreamId::parse_edge(text, u64::MAX).map_err(|_| Error::STREAM_ID),
    }
}

/// A number of entries: a negative one counts as 0.
fn count(text: &[u8]) -> Result<u64> {
    Ok(u64::try_from(int(text)?).unwrap_or(0))
}

/// Replies with an id.
#[inline]
fn reply_id(id: StreamId, reply: &mut Reply<'_>) {
    reply.bulk(IdText::of(id).as_bytes());
}

/// Replies with an entry: its id and its fields.
#[inline]
fn reply_entry(entry: &Entry<'_>, reply: &mut Reply<'_>) {
    reply.array(2);
    reply_id(entry.id, reply);
    reply.array(entry.field_count() * 2);
    for (name, value) in entry.fields() {
        reply_element(name, reply);
        reply_element(value, reply);
    }
}

#[inline]
fn reply_element(element: Element<'_>, reply: &mut Reply<'_>) {
    match element {
        Element::Bytes(bytes) => reply.bulk(bytes),
        Element::Int(number) => reply.bulk_int(number),
    }
}

/// Replies with entries; tells how many.
#[inline]
fn reply_entries<'a>(entries: impl Iterator<Item = Entry<'a>>, reply: &mut Reply<'_>) -> usize {
    let list = reply.deferred_array();
    let mut count = 0;
    for entry in entries {
        reply_entry(&entry, reply);
        count += 1;
    }
    reply.end(list, count);
    count
}

/// A container with a word that is no subcommand.
fn unknown_subcommand(_: &Batch<'_>, container: &str, args: &Args<'_>) -> Result<()> {
    Err(Error::unknown_subcommand(container, args.bytes(1)))
}
