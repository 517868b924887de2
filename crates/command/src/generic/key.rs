//! DEL, UNLINK, EXISTS, TOUCH, TYPE: whether keys are there, and away with them.
//!
//! On the hot path; nothing here allocates.

use super::{SPLIT_AND_SUM, remove};
use crate::args::Args;
use crate::error::Result;
use crate::key_use::{LOOKS, REMOVES};
use crate::row::Handler::{Read, Write};
use crate::row::{Flags, Group, Keys, Outcome, Row, row};
use keyspace::{Edit, View};
use wire::Reply;

/// Rows of this file.
pub const ROWS: &[Row] = &[
    row("del", -2, Write(del))
        .keys(Keys::ALL)
        .group(Group::Generic)
        .since("1.0.0")
        .complexity("O(N) in the number of keys, plus O(M) for each collection of M elements.")
        .syntax("key [key ...]")
        .key_flags(&[REMOVES])
        .summary("Deletes keys and counts those that were there.")
        .tips(SPLIT_AND_SUM),
    row("exists", -2, Read(count_present))
        .flags(Flags::FAST.union(Flags::NO_TOUCH))
        .keys(Keys::ALL)
        .group(Group::Generic)
        .since("1.0.0")
        .complexity("O(N) in the number of keys.")
        .syntax("key [key ...]")
        .key_flags(&[LOOKS])
        .summary("Counts how many of the keys are there; a key named twice counts twice.")
        .tips(SPLIT_AND_SUM),
    row("touch", -2, Read(count_present))
        .flags(Flags::FAST.union(Flags::TOUCHES))
        .keys(Keys::ALL)
        .group(Group::Generic)
        .since("3.2.1")
        .complexity("O(N) in the number of keys.")
        .syntax("key [key ...]")
        .key_flags(&[LOOKS])
        .summary("Marks keys as used now and counts those that are there.")
        .tips(SPLIT_AND_SUM),
    row("type", 2, Read(type_of))
        .flags(Flags::FAST.union(Flags::NO_TOUCH))
        .keys(Keys::FIRST)
        .group(Group::Generic)
        .since("1.0.0")
        .complexity("O(1)")
        .syntax("key")
        .key_flags(&[LOOKS])
        .summary("Tells the type of what a key holds."),
    row("unlink", -2, Write(del))
        .flags(Flags::FAST)
        .keys(Keys::ALL)
        .group(Group::Generic)
        .since("4.0.0")
        .complexity("O(1) per key; large values are freed in the background.")
        .syntax("key [key ...]")
        .key_flags(&[REMOVES])
        .summary("Deletes keys without waiting for the memory of large values.")
        .tips(SPLIT_AND_SUM),
];

/// DEL key [key ...], UNLINK key [key ...]. A string is freed in one call of the
/// allocator, which no other thread could do faster.
fn del(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let mut deleted = 0;
    for position in 1..args.len() {
        let key = args.key(position);
        if remove(edit, &key) {
            args.log_as(&[b"DEL", key.bytes]);
            deleted += 1;
        }
    }
    reply.int(deleted);
    Ok(if deleted > 0 { Outcome::Changed } else { Outcome::Unchanged })
}

/// EXISTS key [key ...], TOUCH key [key ...]. Their rows differ in NO_TOUCH.
fn count_present(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let present = (1..args.len()).filter(|position| view.get(&args.key(*position)).is_some()).count();
    reply.int(present as i64);
    Ok(())
}

/// TYPE key
fn type_of(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply.simple(view.get(&args.key(1)).map_or("none", |object| object.value().type_name().name()));
    Ok(())
}
