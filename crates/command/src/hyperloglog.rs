//! HyperLogLogs: PFADD, PFCOUNT, PFMERGE and their debugging commands. The format and the estimates are
//! `value::hyperloglog`'s; here are keys and replies.
//!
//! Thread rule: handlers run on any worker, with their keys' slots locked.
//!
//! Invariants:
//! 1. A HyperLogLog is a string of encoding "raw" once one of these commands has written to its key.
//! 2. Whatever string a client has SET: it is refused or counted, and an error leaves it as it was.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::key_use::{INSERTS, KeyFlags, READS};
use crate::row::Handler::{Walk, Write};
use crate::row::{Flags, Group, Handler, Keys, Outcome, Row, Shows};
use crate::string::Text;
use keyspace::{Batch, Class, Edit, Expiry, Key, NewValue, Object};
use value::hyperloglog::{self as hll, Corrupted, Encoding, Observation, REGISTERS, Registers};
use value::text::until_zero;
use wire::Reply;

/// The hyperloglog group.
pub const ROWS: &[Row] = &[
    row("pfadd", -2, Write(pfadd))
        .flags(Flags::DENYOOM.union(Flags::FAST))
        .keys(Keys::FIRST)
        .key_flags(&[INSERTS])
        .complexity("O(1) for each element")
        .syntax("key [element [element ...]]")
        .summary("Adds elements to a HyperLogLog; makes the key if it is not there."),
    Row::new("pfcount", -2, Flags::READONLY.union(Flags::MAY_REPLICATE), Write(pfcount))
        .shows(Shows::WhatItNotes)
        .group(Group::HyperLogLog)
        .since("2.8.9")
        .keys(Keys::ALL)
        .key_flags(&[KeyFlags::RW.union(KeyFlags::ACCESS)])
        .complexity("O(1) for one key whose count is cached, O(N) with a large constant for N keys")
        .syntax("key [key ...]")
        .summary("Estimates how many different elements were added to one or several HyperLogLogs."),
    row("pfdebug", 3, Write(pfdebug))
        .flags(Flags::DENYOOM.union(Flags::ADMIN))
        .keys(Keys::SECOND)
        .key_flags(&[KeyFlags::RW.union(KeyFlags::ACCESS)])
        .complexity("O(1), with a large constant")
        .syntax("<DECODE | ENCODING | GETREG | TODENSE> key")
        .summary("Shows the inside of a HyperLogLog."),
    row("pfmerge", -2, Write(pfmerge))
        .flags(Flags::DENYOOM)
        .keys(Keys::ALL)
        .key_flags(&[KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::INSERT), READS])
        .complexity("O(N) to merge N HyperLogLogs, with a large constant")
        .syntax("destkey [sourcekey [sourcekey ...]]")
        .summary("Merges HyperLogLogs into one."),
    Row::new("pfselftest", 1, Flags::ADMIN, Walk(pfselftest))
        .group(Group::HyperLogLog)
        .since("2.8.9")
        .complexity("O(1), with a large constant")
        .summary("Tests that both encodings of a HyperLogLog count alike and well."),
];

/// A row of the group.
const fn row(name: &'static str, arity: i32, handler: Handler) -> Row {
    crate::row::row(name, arity, handler).group(Group::HyperLogLog).since("2.8.9")
}

const NOT_A_HYPERLOGLOG: Error = Error::text("WRONGTYPE Key is not a valid HyperLogLog string value.");

impl From<Corrupted> for Error {
    fn from(Corrupted: Corrupted) -> Error {
        Error::text("INVALIDOBJ Corrupted HLL object detected")
    }
}

/// The HyperLogLog of an object, with its encoding. None if there is no object.
fn bytes_of<'a>(object: Option<Object<'a>>) -> Result<Option<(&'a [u8], Encoding)>> {
    match Text::of(object)? {
        None => Ok(None),
        Some(Text::Int(_)) => Err(NOT_A_HYPERLOGLOG),
        Some(Text::Bytes(bytes)) => {
            Encoding::of(bytes).map(|encoding| Some((bytes, encoding))).ok_or(NOT_A_HYPERLOGLOG)
        }
    }
}

/// Makes a key's string these bytes.
fn store(edit: &mut Edit<'_>, key: &Key<'_>, bytes: &[u8]) {
    edit.set(key, NewValue::Edited(bytes), Expiry::Keep);
}

/// PFADD key [element ...]
fn pfadd(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let key = args.key(1);
    let elements = (2..args.len()).map(|position| Observation::of(args.bytes(position)));
    let object = edit.get(&key);
    let is_raw = object.is_some_and(|object| object.encoding() == value::collection::Encoding::Raw);
    let mut becomes_dense = false;
    let changed = match bytes_of(object)? {
        Some((bytes, Encoding::Dense)) => {
            let changed = elements.clone().any(|seen| hll::is_news(bytes, seen));
            if changed {
                let bytes = edit.bytes_mut(&key, hll::DENSE_BYTES);
                elements.for_each(|seen| hll::add_dense(bytes, seen));
                hll::drop_cached(bytes);
            }
            changed
        }
        there => {
            let mut changed = there.is_none();
            let mut bytes = there.map_or_else(hll::empty, |(bytes, _)| bytes.to_vec());
            for seen in elements {
                changed |= hll::add(&mut bytes, seen, args.sparse_bytes_max())?;
            }
            if changed {
                hll::drop_cached(&mut bytes);
            }
            becomes_dense = Encoding::of(&bytes) == Some(Encoding::Dense);
            if changed || !is_raw {
                store(edit, &key, &bytes);
            }
            changed
        }
    };
    if changed {
        edit.note(Class::STRING, "pfadd", &key);
    }
    if becomes_dense {
        // When that happens is a directive's matter.
        args.log_string(edit, &key);
    }
    reply.int(i64::from(changed));
    Ok(if changed { Outcome::Changed } else { Outcome::Unchanged })
}

/// PFCOUNT key [key ...]
fn pfcount(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    if args.len() == 2 {
        return count_one(edit, &args.key(1), reply);
    }
    let mut registers = [0; REGISTERS];
    for position in 1..args.len() {
        merge_key(edit, &args.key(position), &mut registers)?;
    }
    reply.int(hll::count_registers(&registers) as i64);
    Ok(Outcome::Unchanged)
}

/// Replies with the count of one key, which is cached in the string.
fn count_one(edit: &mut Edit<'_>, key: &Key<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let Some((bytes, _)) = bytes_of(edit.get_as_reader(key))? else {
        reply.int(0);
        return Ok(Outcome::Unchanged);
    };
    if let Some(cardinality) = hll::cached(bytes) {
        reply.int(cardinality as i64);
        return Ok(Outcome::Unchanged);
    }
    let (cardinality, len) = (hll::count(bytes)?, bytes.len());
    hll::set_cached(edit.bytes_mut(key, len), cardinality);
    reply.int(cardinality as i64);
    Ok(Outcome::Changed)
}

/// Merges the HyperLogLog of a key, which is empty if the key is not there. Returns its encoding.
fn merge_key(edit: &Edit<'_>, key: &Key<'_>, registers: &mut Registers) -> Result<Option<Encoding>> {
    let Some((bytes, encoding)) = bytes_of(edit.get_as_reader(key))? else { return Ok(None) };
    hll::merge_into(registers, bytes)?;
    Ok(Some(encoding))
}

/// PFMERGE destkey [sourcekey ...]
fn pfmerge(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let mut registers = [0; REGISTERS];
    let mut any_dense = false;
    for position in 1..args.len() {
        any_dense |= merge_key(edit, &args.key(position), &mut registers)? == Some(Encoding::Dense);
    }
    let key = args.key(1);
    let mut bytes = bytes_of(edit.get(&key))?.map_or_else(hll::empty, |(bytes, _)| bytes.to_vec());
    if any_dense {
        hll::make_dense(&mut bytes)?;
    }
    for (register, value) in registers.iter().enumerate().filter(|(_, value)| **value > 0) {
        hll::add(&mut bytes, Observation::new(register, *value), args.sparse_bytes_max())?;
    }
    hll::drop_cached(&mut bytes);
    store(edit, &key, &bytes);
    edit.note(Class::STRING, "pfadd", &key);
    reply.ok();
    Ok(Outcome::Changed)
}

/// PFDEBUG DECODE|ENCODING|GETREG|TODENSE key
fn pfdebug(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let key = args.key(2);
    let Some((bytes, encoding)) = bytes_of(edit.get(&key))? else {
        return Err(Error::text("ERR The specified key does not exist"));
    };
    if args.is(1, "encoding") {
        reply.simple(encoding.name());
    } else if args.is(1, "decode") {
        if encoding == Encoding::Dense {
            return Err(Error::text("ERR HLL encoding is not sparse"));
        }
        reply.bulk(&hll::sparse::decode(bytes)?);
    } else if args.is(1, "getreg") || args.is(1, "todense") {
        let mut dense = bytes.to_vec();
        let changed = hll::make_dense(&mut dense)?;
        if args.is(1, "todense") {
            reply.int(i64::from(changed));
        } else {
            let mut registers = [0; REGISTERS];
            hll::merge_into(&mut registers, &dense)?;
            reply.array(REGISTERS);
            registers.iter().for_each(|value| reply.int(i64::from(*value)));
        }
        if changed {
            store(edit, &key, &dense);
            args.log_string(edit, &key);
            return Ok(Outcome::Changed);
        }
    } else {
        let word = until_zero(args.bytes(1));
        return Err(Error::quoting("ERR Unknown PFDEBUG subcommand '", word, "'"));
    }
    Ok(Outcome::Unchanged)
}

/// PFSELFTEST
fn pfselftest(_: &Batch<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    const ELEMENTS: u32 = 20_000;
    let (mut sparse, mut dense) = (hll::empty(), hll::empty());
    hll::make_dense(&mut dense)?;
    for number in 1..=ELEMENTS {
        let seen = Observation::of(&number.to_le_bytes());
        hll::add_dense(&mut dense, seen);
        hll::add(&mut sparse, seen, args.sparse_bytes_max())?;
        if !number.is_power_of_two() {
            continue;
        }
        let (one, other) = (hll::count(&sparse)?, hll::count(&dense)?);
        // The standard error with this many registers is 0.8 %.
        let off = one.abs_diff(u64::from(number));
        if one != other || off > u64::from(number) / 20 + 2 {
            return Err(Error::line(format!("TESTFAILED {one} and {other} counted of {number} elements")));
        }
    }
    reply.ok();
    Ok(())
}
