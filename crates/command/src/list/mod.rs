//! Lists: the rows of Redis' list group, and what its handlers share. Handlers that add are in
//! `push`, those that take away in `pop` and `remove`, those that read in `range`, those over two lists
//! in `transfer`. What a list is and when it changes its form is in `value::list`.
//!
//! Thread rule: handlers run on any worker, with their keys' slots locked.
//!
//! Invariants:
//! 1. A list is grown for what is added before it is added, and shrunk after anything was taken away;
//!    both even where nothing changes for clients but OBJECT ENCODING, as in Redis.
//! 2. Blocking commands write nothing before they know that they need not wait.

mod pop;
mod push;
mod range;
mod remove;
mod transfer;

use crate::args::Args;
use crate::error::{Error, Result};
use crate::key_use::{DELETES, INSERTS, KeySpec, LOOKS, TAKES};
use crate::row::Handler::{BlockingWrite, Read, Write};
use crate::row::{Flags, Group, Handler, Keys, Outcome, Row};
use crate::wait::{Null, Wait};
use keyspace::TypeName;
use smallvec::SmallVec;
use sys::UnixMs;
use value::list::{End, Fill};
use value::listpack::Element;
use wire::Reply;

const FAST: Flags = Flags::FAST;
const SLOW: Flags = Flags::empty();
const DENYOOM: Flags = Flags::DENYOOM;
const BLOCKING: Flags = Flags::BLOCKING;

const PUSH_COST: &str = "O(N), N being the number of elements added";
const POP_COST: &str = "O(N), N being the number of elements returned";
const WALK_COST: &str = "O(N), N being the number of elements passed on the way";
const KEYS_COST: &str = "O(N), N being the number of keys";
const KEYS_AND_POP_COST: &str = "O(N+M), N being the number of keys and M that of elements returned";

/// All arguments but the last are keys.
const ALL_BUT_LAST: Keys = Keys::Range { first: 1, last: -2, step: 1 };

/// The list group.
pub const ROWS: &[Row] = &[
    row("blmove", 6, BlockingWrite(transfer::blmove), DENYOOM.union(BLOCKING))
        .keys(Keys::TWO)
        .since("6.2.0")
        .syntax("source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout")
        .key_flags(&[TAKES, INSERTS])
        .summary("Moves an element from one list to another, waiting for one if there is none."),
    row("blmpop", -5, BlockingWrite(pop::blmpop), Flags::BLOCKING.union(Flags::MOVABLEKEYS))
        .keys(Keys::Movable(pop::blmpop_keys))
        .key_specs(&[KeySpec::numkeys(2, TAKES)])
        .since("7.0.0")
        .complexity(KEYS_AND_POP_COST)
        .syntax("timeout numkeys key [key ...] <LEFT | RIGHT> [COUNT count]")
        .summary("Takes elements from the first list that has any, waiting for one if none has."),
    row("blpop", -3, BlockingWrite(pop::blpop), BLOCKING)
        .keys(ALL_BUT_LAST)
        .since("2.0.0")
        .complexity(KEYS_COST)
        .syntax("key [key ...] timeout")
        .key_flags(&[TAKES])
        .summary("Takes the first element of the first list that has any, waiting for one if none has."),
    row("brpop", -3, BlockingWrite(pop::brpop), BLOCKING)
        .keys(ALL_BUT_LAST)
        .since("2.0.0")
        .complexity(KEYS_COST)
        .syntax("key [key ...] timeout")
        .key_flags(&[TAKES])
        .summary("Takes the last element of the first list that has any, waiting for one if none has."),
    row("brpoplpush", 4, BlockingWrite(transfer::brpoplpush), DENYOOM.union(BLOCKING))
        .keys(Keys::TWO)
        .since("2.2.0")
        .syntax("source destination timeout")
        .key_flags(&[TAKES, INSERTS])
        .summary(
            "Moves the last element of a list to the head of another, waiting for one if there is none.",
        ),
    row("lindex", 3, Read(range::lindex), SLOW)
        .complexity(WALK_COST)
        .syntax("key index")
        .summary("Replies with the element at an index."),
    row("linsert", 5, Write(push::linsert), DENYOOM)
        .since("2.2.0")
        .complexity(WALK_COST)
        .syntax("key <BEFORE | AFTER> pivot element")
        .key_flags(&[INSERTS])
        .summary("Inserts an element beside the first one that is equal to another."),
    row("llen", 2, Read(range::llen), FAST)
        .syntax("key")
        .key_flags(&[LOOKS])
        .summary("Replies with the number of elements."),
    row("lmove", 5, Write(transfer::lmove), DENYOOM)
        .keys(Keys::TWO)
        .since("6.2.0")
        .syntax("source destination <LEFT | RIGHT> <LEFT | RIGHT>")
        .key_flags(&[TAKES, INSERTS])
        .summary("Moves an element from one list to another."),
    row("lmpop", -4, Write(pop::lmpop), Flags::MOVABLEKEYS)
        .keys(Keys::Movable(pop::lmpop_keys))
        .key_specs(&[KeySpec::numkeys(1, TAKES)])
        .since("7.0.0")
        .complexity(KEYS_AND_POP_COST)
        .syntax("numkeys key [key ...] <LEFT | RIGHT> [COUNT count]")
        .summary("Takes elements from the first list that has any."),
    row("lpop", -2, Write(pop::lpop), FAST)
        .complexity(POP_COST)
        .syntax("key [count]")
        .key_flags(&[TAKES])
        .summary("Takes the first element, or several."),
    row("lpos", -3, Read(range::lpos), SLOW)
        .since("6.0.6")
        .complexity(WALK_COST)
        .syntax("key element [RANK rank] [COUNT num-matches] [MAXLEN len]")
        .summary("Replies with the indexes of equal elements."),
    row("lpush", -3, Write(push::lpush), DENYOOM.union(FAST))
        .complexity(PUSH_COST)
        .syntax("key element [element ...]")
        .key_flags(&[INSERTS])
        .summary("Adds elements at the head; makes the list if it is not there."),
    row("lpushx", -3, Write(push::lpushx), DENYOOM.union(FAST))
        .since("2.2.0")
        .complexity(PUSH_COST)
        .syntax("key element [element ...]")
        .key_flags(&[INSERTS])
        .summary("Adds elements at the head of a list that is there."),
    row("lrange", 4, Read(range::lrange), SLOW)
        .complexity("O(S+N), S being the distance to the nearer end and N the number of elements returned")
        .syntax("key start stop")
        .summary("Replies with a range of elements."),
    row("lrem", 4, Write(remove::lrem), SLOW)
        .complexity(WALK_COST)
        .syntax("key count element")
        .key_flags(&[DELETES])
        .summary("Removes equal elements."),
    row("lset", 4, Write(push::lset), DENYOOM)
        .complexity(WALK_COST)
        .syntax("key index element")
        .summary("Replaces the element at an index."),
    row("ltrim", 4, Write(remove::ltrim), SLOW)
        .complexity("O(N), N being the number of elements removed")
        .syntax("key start stop")
        .key_flags(&[DELETES])
        .summary("Removes all elements outside a range."),
    row("rpop", -2, Write(pop::rpop), FAST)
        .complexity(POP_COST)
        .syntax("key [count]")
        .key_flags(&[TAKES])
        .summary("Takes the last element, or several."),
    row("rpoplpush", 3, Write(transfer::rpoplpush), DENYOOM)
        .keys(Keys::TWO)
        .since("1.2.0")
        .syntax("source destination")
        .key_flags(&[TAKES, INSERTS])
        .summary("Moves the last element of a list to the head of another."),
    row("rpush", -3, Write(push::rpush), DENYOOM.union(FAST))
        .complexity(PUSH_COST)
        .syntax("key element [element ...]")
        .key_flags(&[INSERTS])
        .summary("Adds elements at the tail; makes the list if it is not there."),
    row("rpushx", -3, Write(push::rpushx), DENYOOM.union(FAST))
        .since("2.2.0")
        .complexity(PUSH_COST)
        .syntax("key element [element ...]")
        .key_flags(&[INSERTS])
        .summary("Adds elements at the tail of a list that is there."),
];

/// A row of the group; its one key is argument 1 unless it says otherwise.
const fn row(name: &'static str, arity: i32, handler: Handler, flags: Flags) -> Row {
    crate::row::row(name, arity, handler).flags(flags).keys(Keys::FIRST).group(Group::List)
}

/// How much a node holds, by the setting in force.
fn fill(args: &Args<'_>) -> Fill {
    Fill::of(&args.settings.thresholds())
}

/// LEFT or RIGHT.
fn end(word: &[u8]) -> Result<End> {
    match word {
        _ if word.eq_ignore_ascii_case(b"left") => Ok(End::Head),
        _ if word.eq_ignore_ascii_case(b"right") => Ok(End::Tail),
        _ => Err(Error::Syntax),
    }
}

/// The event of adding at an end.
fn push_event(end: End) -> &'static str {
    match end {
        End::Head => "lpush",
        End::Tail => "rpush",
    }
}

/// The event of taking from an end.
fn pop_event(end: End) -> &'static str {
    match end {
        End::Head => "lpop",
        End::Tail => "rpop",
    }
}

/// The index of the element at an end of a list that is not empty.
fn index_at(end: End, length: usize) -> usize {
    match end {
        End::Head => 0,
        End::Tail => length - 1,
    }
}

/// An index as clients give it, negative ones counted from the tail; it may lie outside.
fn index_from_head(index: i64, length: usize) -> i64 {
    if index < 0 { index + length as i64 } else { index }
}

/// The first index and the number of elements of a range as clients give it.
fn clip(start: i64, stop: i64, length: usize) -> (usize, usize) {
    let start = index_from_head(start, length).max(0) as usize;
    let end = index_from_head(stop, length).saturating_add(1).clamp(0, length as i64) as usize;
    (start, end.saturating_sub(start))
}

#[inline]
fn reply_element(element: Element<'_>, reply: &mut Reply<'_>) {
    match element {
        Element::Int(value) => reply.bulk_int(value),
        Element::Bytes(bytes) => reply.bulk(bytes),
    }
}

/// Waits for a list under one of the keys at these positions.
fn wait(keys: impl Iterator<Item = usize>, until: Option<UnixMs>) -> Outcome {
    let keys: SmallVec<[usize; 4]> = keys.collect();
    let (wants, null) = (TypeName::List, Null::Array);
    Outcome::Blocked(Box::new(Wait {
        keys,
        wants,
        also_when_gone: false,
        until,
        null,
        rewritten: Vec::new(),
    }))
}
