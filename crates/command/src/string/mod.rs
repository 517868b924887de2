//! Strings: the rows of Redis' string group, and the handlers that read and take
//! whole values. Writers are in `set`, counters in `number`, edits of a part in
//! `range`, LCS in `lcs`.
//!
//! Thread rule: handlers run on any worker, with their keys' slots locked.
//!
//! Invariants:
//! 1. A handler parses its arguments before its first edit, but for what Redis
//!    looks at only once it has found the key (GETEX).
//! 2. GET, SET, MGET, MSET and INCR allocate nothing beyond the object itself.

mod lcs;
mod number;
mod range;
mod set;

use crate::args::Args;
use crate::error::{Error, Result};
use crate::generic::remove;
use crate::key_use::{Begin, EXCHANGES, Find, INSERTS, KeyFlags, KeySpec, LOOKS, OVERWRITES, REMOVES, TAKES};
use crate::parse::has_time_to_live;
use crate::parse::{ExpiryOption, Options};
use crate::row::Handler::{Read, Write};
use crate::row::{Flags, Group, Handler, Keys, Outcome, Row};
use keyspace::{Class, Edit, Object, ValueRef, View};
use wire::Reply;

const FAST: Flags = Flags::FAST;
const DENYOOM: Flags = Flags::DENYOOM;
const SLOW: Flags = Flags::empty();

const RANGE_COST: &str = "O(N), N being the length of the reply";
const KEYS_COST: &str = "O(N), N being the number of keys";

/// The string group.
pub const ROWS: &[Row] = &[
    row("append", 3, Write(range::append), DENYOOM.union(FAST))
        .since("2.0.0")
        .complexity("O(1) amortized, for a short value")
        .syntax("key value")
        .key_flags(&[INSERTS])
        .summary("Appends to a string; makes the key if it is not there."),
    row("decr", 2, Write(number::decr), DENYOOM.union(FAST))
        .syntax("key")
        .key_flags(&[EXCHANGES])
        .summary("Takes one from the integer at a key, which counts as 0 if it is not there."),
    row("decrby", 3, Write(number::decrby), DENYOOM.union(FAST))
        .syntax("key decrement")
        .key_flags(&[EXCHANGES])
        .summary("Takes a number from the integer at a key, which counts as 0 if it is not there."),
    row("delifeq", 3, Write(delifeq), FAST)
        .since("9.0.0")
        .syntax("key value")
        .key_flags(&[REMOVES])
        .summary("Deletes a key if its string is the one given."),
    row("get", 2, Read(get), FAST).syntax("key").summary("Replies with the string at a key."),
    row("getdel", 2, Write(getdel), FAST)
        .since("6.2.0")
        .syntax("key")
        .key_flags(&[TAKES])
        .summary("Replies with the string at a key and deletes the key."),
    row("getex", -2, Write(getex), FAST)
        .counts_from_now(has_time_to_live)
        .since("6.2.0")
        .syntax(
            "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST]",
        )
        .key_flags(&[EXCHANGES])
        .summary("Replies with the string at a key and sets or takes away its expiry."),
    row("getrange", 4, Read(range::getrange), SLOW)
        .since("2.4.0")
        .complexity(RANGE_COST)
        .syntax("key start end")
        .summary("Replies with a part of a string."),
    row("getset", 3, Write(set::getset), DENYOOM.union(FAST))
        .syntax("key value")
        .key_flags(&[EXCHANGES])
        .summary("Sets a string and replies with the one that was there."),
    row("incr", 2, Write(number::incr), DENYOOM.union(FAST))
        .syntax("key")
        .key_flags(&[EXCHANGES])
        .summary("Adds one to the integer at a key, which counts as 0 if it is not there."),
    row("incrby", 3, Write(number::incrby), DENYOOM.union(FAST))
        .syntax("key increment")
        .key_flags(&[EXCHANGES])
        .summary("Adds a number to the integer at a key, which counts as 0 if it is not there."),
    row("incrbyfloat", 3, Write(number::incrbyfloat), DENYOOM.union(FAST))
        .since("2.6.0")
        .syntax("key increment")
        .key_flags(&[EXCHANGES])
        .summary("Adds to the floating point number at a key, which counts as 0 if it is not there."),
    row("lcs", -3, Read(lcs::lcs), SLOW)
        .keys(Keys::TWO)
        .since("7.0.0")
        .complexity("O(N*M), N and M being the lengths of the two strings")
        .syntax("key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len] [WITHMATCHLEN]")
        .summary("Finds the longest common subsequence of two strings."),
    row("mget", -2, Read(mget), FAST)
        .keys(Keys::ALL)
        .complexity(KEYS_COST)
        .syntax("key [key ...]")
        .summary("Replies with the strings at several keys.")
        .tips(&["request_policy:multi_shard"]),
    row("mset", -3, Write(set::mset), DENYOOM)
        .keys(Keys::PAIRS)
        .replaces(|_| true)
        .since("1.0.1")
        .complexity(KEYS_COST)
        .syntax("key value [key value ...]")
        .key_flags(&[OVERWRITES])
        .summary("Sets several strings at once.")
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"]),
    row("msetex", -4, Write(set::msetex), DENYOOM.union(Flags::MOVABLEKEYS))
        .counts_from_now(has_time_to_live)
        .keys(Keys::Movable(set::msetex_keys))
        .replaces(set::msetex_replaces)
        .key_specs(&[KeySpec {
            begin: Begin::Index(1),
            find: Find::Numkeys { number: 0, first: 1, step: 2 },
            flags: OVERWRITES,
        }])
        .since("8.4.0")
        .complexity(KEYS_COST)
        .syntax(
            "numkeys key value [key value ...] [NX | XX] [EX seconds | PX milliseconds | \
             EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
        )
        .key_flags(&[OVERWRITES])
        .summary("Sets several strings at once, with one expiry, all of them or none.")
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"]),
    row("msetnx", -3, Write(set::msetnx), DENYOOM)
        .keys(Keys::PAIRS)
        .since("1.0.1")
        .complexity(KEYS_COST)
        .syntax("key value [key value ...]")
        .key_flags(&[KeyFlags::OW.union(KeyFlags::INSERT)])
        .summary("Sets several strings if none of the keys is there."),
    row("psetex", 4, Write(set::psetex), DENYOOM)
        .counts_from_now(|_| true)
        .replaces(|_| true)
        .since("2.6.0")
        .syntax("key milliseconds value")
        .key_flags(&[OVERWRITES])
        .summary("Sets a string and its expiry in milliseconds from now."),
    row("set", -3, Write(set::set), DENYOOM)
        .counts_from_now(|request| request.len() > 3 && has_time_to_live(request))
        .replaces(set::set_replaces)
        .syntax(
            "key value [NX | XX | IFEQ comparison-value] [GET] [EX seconds | PX milliseconds | \
             EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
        )
        .key_flags(&[EXCHANGES.union(KeyFlags::VARIABLE_FLAGS)])
        .key_flags_by(set::set_key_flags)
        .summary("Sets a string, whatever the key held before, on conditions and with an expiry."),
    row("setex", 4, Write(set::setex), DENYOOM)
        .counts_from_now(|_| true)
        .replaces(|_| true)
        .since("2.0.0")
        .syntax("key seconds value")
        .key_flags(&[OVERWRITES])
        .summary("Sets a string and its expiry in seconds from now."),
    row("setnx", 3, Write(set::setnx), DENYOOM.union(FAST))
        .syntax("key value")
        .key_flags(&[KeyFlags::OW.union(KeyFlags::INSERT)])
        .summary("Sets a string if the key is not there."),
    row("setrange", 4, Write(range::setrange), DENYOOM)
        .since("2.2.0")
        .complexity("O(1) for a short value, O(M) for one of length M")
        .syntax("key offset value")
        .summary("Overwrites a part of a string, filling up with zero bytes if it is too short."),
    row("strlen", 2, Read(range::strlen), FAST)
        .since("2.2.0")
        .syntax("key")
        .key_flags(&[LOOKS])
        .summary("Replies with the length of a string in bytes."),
    row("substr", 4, Read(range::getrange), SLOW)
        .complexity(RANGE_COST)
        .syntax("key start end")
        .summary("Replies with a part of a string; the old name of GETRANGE."),
];

/// A row of the group; its one key is argument 1 unless it says otherwise.
const fn row(name: &'static str, arity: i32, handler: Handler, flags: Flags) -> Row {
    crate::row::row(name, arity, handler).flags(flags).keys(Keys::FIRST).group(Group::String)
}

/// A string that a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Text<'v> {
    /// An integer, standing for its digits.
    Int(i64),
    /// Any other.
    Bytes(&'v [u8]),
}

impl<'v> Text<'v> {
    /// The string of an object, which may be of another type.
    #[inline]
    pub(crate) fn of(object: Option<Object<'v>>) -> Result<Option<Text<'v>>> {
        Ok(match object.map(|object| object.value()) {
            Some(ValueRef::Bytes(bytes)) => Some(Text::Bytes(bytes)),
            Some(ValueRef::Int(number)) => Some(Text::Int(number)),
            Some(ValueRef::Collection(_)) => return Err(Error::WrongType),
            None => None,
        })
    }

    /// The string's bytes; an integer's digits are written into `digits`.
    #[inline]
    pub(crate) fn bytes<'b>(self, digits: &'b mut itoa::Buffer) -> &'b [u8]
    where
        'v: 'b,
    {
        match self {
            Text::Int(number) => digits.format(number).as_bytes(),
            Text::Bytes(bytes) => bytes,
        }
    }

    /// The length in bytes.
    pub(crate) fn len(self) -> usize {
        self.bytes(&mut itoa::Buffer::new()).len()
    }

    /// Whether the string is this one.
    pub(crate) fn is(self, bytes: &[u8]) -> bool {
        self.bytes(&mut itoa::Buffer::new()) == bytes
    }
}

/// Replies with a string, or null if there is none.
#[inline]
fn reply_text(text: Option<Text<'_>>, reply: &mut Reply<'_>) {
    match text {
        Some(Text::Bytes(bytes)) => reply.bulk(bytes),
        Some(Text::Int(number)) => reply.bulk_int(number),
        None => reply.null(),
    }
}

/// Refuses to make a string of `len` and `more` bytes that is longer than allowed.
pub(crate) fn check_length(args: &Args<'_>, len: u64, more: u64) -> Result<usize> {
    match len.checked_add(more) {
        Some(total) if total <= args.string_bytes_max() => Ok(total as usize),
        _ => Err(Error::StringTooLong),
    }
}

/// GET key
#[inline]
fn get(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply_text(Text::of(view.get(&args.key(1)))?, reply);
    Ok(())
}

/// MGET key [key ...]
fn mget(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply.array(args.len() - 1);
    for position in 1..args.len() {
        // A key that holds no string counts as one that is not there.
        reply_text(Text::of(view.get(&args.key(position))).unwrap_or(None), reply);
    }
    Ok(())
}

/// Reads a key's string, counting a hit or miss, replies with it and tells whether
/// it was there.
fn reply_old(edit: &Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<bool> {
    let text = Text::of(edit.get_as_reader(&args.key(1)))?;
    reply_text(text, reply);
    Ok(text.is_some())
}

/// GETDEL key
fn getdel(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    if !reply_old(edit, args, reply)? {
        return Ok(Outcome::Unchanged);
    }
    remove(edit, &args.key(1));
    args.log_as(&[b"DEL", args.bytes(1)]);
    Ok(Outcome::Changed)
}

/// GETEX key [EX seconds | PX milliseconds | EXAT ... | PXAT ... | PERSIST]
fn getex(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let mut options = Options::from(args, 2);
    let mut expiry = ExpiryOption::default();
    while options.more() {
        if !expiry.take_expire(&mut options) && !expiry.take_persist(&mut options) {
            options.refuse();
        }
    }
    options.finish()?;
    if !reply_old(edit, args, reply)? {
        return Ok(Outcome::Unchanged);
    }
    // Only looked at once the key is found: GETEX of a missing key with a bad time is null.
    let moment = expiry.moment(args.present(), "getex")?;
    let key = args.key(1);
    match (expiry, moment) {
        (ExpiryOption::Expire(unit, _), Some(at)) if unit.is_absolute() && at <= args.now => {
            remove(edit, &key);
        }
        (_, Some(at)) => {
            edit.set_expiry(&key, Some(at));
            edit.note(Class::GENERIC, "expire", &key);
        }
        (ExpiryOption::Persist, None)
            if edit.get(&key).is_some_and(|object| object.expires_at().is_some()) =>
        {
            edit.set_expiry(&key, None);
            edit.note(Class::GENERIC, "persist", &key);
        }
        _ => return Ok(Outcome::Unchanged),
    }
    args.log_expiry(edit, &key);
    Ok(Outcome::Changed)
}

/// DELIFEQ key value
fn delifeq(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let key = args.key(1);
    let equal = Text::of(edit.get(&key))?.is_some_and(|text| text.is(args.bytes(2)));
    reply.int(i64::from(equal));
    if !equal {
        return Ok(Outcome::Unchanged);
    }
    remove(edit, &key);
    args.log_as(&[b"DEL", key.bytes]);
    Ok(Outcome::Changed)
}
