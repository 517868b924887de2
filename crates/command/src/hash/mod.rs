//! Hashes: the rows of Redis' hash group. Handlers are in `read`, `write`, `random` and, for fields whose time
//! is limited, in `expire` and `fields_with_expiry`.
//!
//! Thread rule: handlers run on any worker, with their keys' slots locked.
//!
//! Invariants:
//! 1. A field whose time is up is not there for any command, though HLEN counts it until it is freed.
//! 2. A handler parses its arguments before its first edit, after it has looked at the key's type where Redis
//!    does so.

mod expire;
mod fields_with_expiry;
mod random;
mod read;
mod write;

use crate::args::Args;
use crate::error::{Error, Result};
use crate::key_use::{DELETES, EXCHANGES, INSERTS, LOOKS, TAKES};
use crate::parse::has_time_to_live;
use crate::parse::int_within;
use crate::row::Handler::{Read, Write};
use crate::row::{Flags, Group, Handler, Keys, Row};
use value::hash::Hash;
use value::listpack::Element;
use wire::Reply;

const FAST: Flags = Flags::FAST;
const DENYOOM: Flags = Flags::DENYOOM;
const SLOW: Flags = Flags::empty();

const FIELDS_COST: &str = "O(N), N being the number of fields named";
const HASH_COST: &str = "O(N), N being the size of the hash";
const UNORDERED: &[&str] = &["nondeterministic_output_order"];
const VARIES: &[&str] = &["nondeterministic_output"];

/// The hash group.
pub const ROWS: &[Row] = &[
    row("hdel", -3, Write(write::hdel), FAST).element(2)
        .complexity(FIELDS_COST)
        .syntax("key field [field ...]")
        .key_flags(&[DELETES])
        .summary("Deletes fields of a hash; deletes the hash if none is left."),
    row("hexists", 3, Read(read::hexists), FAST).element(2)
        .syntax("key field")
        .key_flags(&[LOOKS])
        .summary("Tells whether a hash has a field."),
    row("hexpire", -6, Write(expire::hexpire), DENYOOM.union(FAST))
        .counts_from_now(|_| true)
        .since("7.4.0")
        .complexity(FIELDS_COST)
        .syntax("key seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]")
        .summary("Sets the expiry of fields in seconds from now."),
    row("hexpireat", -6, Write(expire::hexpireat), DENYOOM.union(FAST))
        .since("7.4.0")
        .complexity(FIELDS_COST)
        .syntax("key unix-time-seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]")
        .summary("Sets the expiry of fields to a Unix time in seconds."),
    row("hexpiretime", -5, Read(expire::hexpiretime), FAST)
        .since("7.4.0")
        .complexity(FIELDS_COST)
        .syntax("key FIELDS numfields field [field ...]")
        .summary("Replies with the Unix times in seconds at which fields expire."),
    row("hget", 3, Read(read::hget), FAST).element(2).syntax("key field").summary("Replies with a field's value."),
    row("hgetall", 2, Read(read::hgetall), SLOW)
        .complexity(HASH_COST)
        .syntax("key")
        .summary("Replies with all fields and values of a hash.")
        .tips(UNORDERED),
    row("hgetdel", -5, Write(fields_with_expiry::hgetdel), FAST)
        .since("8.0.0")
        .complexity(FIELDS_COST)
        .syntax("key FIELDS numfields field [field ...]")
        .key_flags(&[TAKES])
        .summary("Replies with the values of fields and deletes them."),
    row("hgetex", -5, Write(fields_with_expiry::hgetex), FAST)
        .counts_from_now(has_time_to_live)
        .since("8.0.0")
        .complexity(FIELDS_COST)
        .syntax(
            "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST] \
             FIELDS numfields field [field ...]",
        )
        .key_flags(&[EXCHANGES])
        .summary("Replies with the values of fields and sets or takes away their expiry."),
    row("hincrby", 4, Write(write::hincrby), DENYOOM.union(FAST)).element(2)
        .syntax("key field increment")
        .key_flags(&[EXCHANGES])
        .summary("Adds to the integer in a field, which counts as 0 if it is not there."),
    row("hincrbyfloat", 4, Write(write::hincrbyfloat), DENYOOM.union(FAST))
        .since("2.6.0")
        .syntax("key field increment")
        .key_flags(&[EXCHANGES])
        .summary("Adds to the floating point number in a field, which counts as 0 if it is not there."),
    row("hkeys", 2, Read(read::hkeys), SLOW)
        .complexity(HASH_COST)
        .syntax("key")
        .summary("Replies with all fields of a hash.")
        .tips(UNORDERED),
    row("hlen", 2, Read(read::hlen), FAST)
        .syntax("key")
        .key_flags(&[LOOKS])
        .summary("Tells how many fields a hash has."),
    row("hmget", -3, Read(read::hmget), FAST).element(2)
        .complexity(FIELDS_COST)
        .syntax("key field [field ...]")
        .summary("Replies with the values of several fields."),
    row("hmset", -4, Write(write::hmset), DENYOOM.union(FAST))
        .complexity(FIELDS_COST)
        .syntax("key field value [field value ...]")
        .summary("Sets several fields of a hash."),
    row("hpersist", -5, Write(expire::hpersist), FAST)
        .since("7.4.0")
        .complexity(FIELDS_COST)
        .syntax("key FIELDS numfields field [field ...]")
        .summary("Takes away the expiry of fields."),
    row("hpexpire", -6, Write(expire::hpexpire), DENYOOM.union(FAST))
        .counts_from_now(|_| true)
        .since("7.4.0")
        .complexity(FIELDS_COST)
        .syntax("key milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]")
        .summary("Sets the expiry of fields in milliseconds from now."),
    row("hpexpireat", -6, Write(expire::hpexpireat), DENYOOM.union(FAST))
        .since("7.4.0")
        .complexity(FIELDS_COST)
        .syntax("key unix-time-milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]")
        .summary("Sets the expiry of fields to a Unix time in milliseconds."),
    row("hpexpiretime", -5, Read(expire::hpexpiretime), FAST)
        .since("7.4.0")
        .complexity(FIELDS_COST)
        .syntax("key FIELDS numfields field [field ...]")
        .summary("Replies with the Unix times in milliseconds at which fields expire."),
    row("hpttl", -5, Read(expire::hpttl), FAST)
        .since("7.4.0")
        .complexity(FIELDS_COST)
        .syntax("key FIELDS numfields field [field ...]")
        .summary("Replies with the milliseconds that fields have to live.")
        .tips(VARIES),
    row("hrandfield", -2, Read(random::hrandfield), SLOW)
        .since("6.2.0")
        .complexity("O(N), N being the number of fields in the reply")
        .syntax("key [count [WITHVALUES]]")
        .summary("Picks fields of a hash by chance.")
        .tips(VARIES),
    row("hscan", -3, Read(read::hscan), SLOW)
        .since("2.8.0")
        .complexity("O(1) per call, O(N) for all calls of a scan over N fields.")
        .syntax("key cursor [MATCH pattern] [COUNT count] [NOVALUES]")
        .summary("Goes over the fields of a hash, some at each call.")
        .tips(VARIES),
    row("hset", -4, Write(write::hset), DENYOOM.union(FAST)).element(2)
        .complexity(FIELDS_COST)
        .syntax("key field value [field value ...]")
        .summary("Sets fields of a hash and tells how many of them are new."),
    row("hsetex", -6, Write(fields_with_expiry::hsetex), DENYOOM.union(FAST))
        .counts_from_now(has_time_to_live)
        .since("8.0.0")
        .complexity(FIELDS_COST)
        .syntax(
            "key [FNX | FXX] [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
             PXAT unix-time-milliseconds | KEEPTTL] FIELDS numfields field value [field value ...]",
        )
        .summary("Sets fields of a hash on conditions and with an expiry."),
    row("hsetnx", 4, Write(write::hsetnx), DENYOOM.union(FAST)).element(2)
        .syntax("key field value")
        .key_flags(&[INSERTS])
        .summary("Sets a field of a hash if it is not there."),
    row("hstrlen", 3, Read(read::hstrlen), FAST)
        .since("3.2.0")
        .syntax("key field")
        .key_flags(&[LOOKS])
        .summary("Tells how long a field's value is."),
    row("httl", -5, Read(expire::httl), FAST)
        .since("7.4.0")
        .complexity(FIELDS_COST)
        .syntax("key FIELDS numfields field [field ...]")
        .summary("Replies with the seconds that fields have to live.")
        .tips(VARIES),
    row("hvals", 2, Read(read::hvals), SLOW)
        .complexity(HASH_COST)
        .syntax("key")
        .summary("Replies with all values of a hash.")
        .tips(UNORDERED),
];

/// A row of the group; its one key is argument 1.
const fn row(name: &'static str, arity: i32, handler: Handler, flags: Flags) -> Row {
    crate::row::row(name, arity, handler).flags(flags).keys(Keys::FIRST).group(Group::Hash).since("2.0.0")
}

/// Replies with a field or a value.
#[inline]
fn reply_element(reply: &mut Reply<'_>, element: Element<'_>) {
    match element {
        Element::Int(number) => reply.bulk_int(number),
        Element::Bytes(bytes) => reply.bulk(bytes),
    }
}

/// The fields that `FIELDS numfields field ...` names, the first word at `position`: from which position on
/// they stand, up to the end of the request.
fn named_fields(args: &Args<'_>, position: usize, bad_count: &'static str) -> Result<usize> {
    if position + 1 >= args.len() || !args.is(position, "fields") {
        return Err(Error::FIELDS_MISSING);
    }
    let count = int_within(args.bytes(position + 1), 1..=i64::MAX, bad_count)?;
    let first = position + 2;
    if count as usize != args.len() - first {
        return Err(Error::text("ERR The `numfields` parameter must match the number of arguments"));
    }
    Ok(first)
}

/// What most commands say of a bad number of fields.
const BAD_COUNT: &str = "ERR Number of fields must be a positive integer";
