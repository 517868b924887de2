//! Commands that change hashes: HSET, HMSET, HSETNX, HDEL, HINCRBY, HINCRBYFLOAT.
//!
//! Thread rule: as for all handlers.
//!
//! Invariants:
//! 1. Setting a field takes its expiry away; counting in it keeps it.

use super::Hash;
use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::int;
use crate::row::Outcome;
use keyspace::{Class, Edit, Opened};
use sys::UnixMs;
use value::collection::Type;
use value::extended::Extended;
use value::hash::{FieldExpiry, Set};
use value::listpack::Element;
use value::number::{IntBuffer, format_i64};
use wire::Reply;

/// HSET key field value [field value ...]
pub(super) fn hset(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let added = set_pairs(edit, args, "hset")?;
    reply.int(added);
    Ok(Outcome::Changed)
}

/// HMSET key field value [field value ...]
pub(super) fn hmset(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    set_pairs(edit, args, "hmset")?;
    reply.ok();
    Ok(Outcome::Changed)
}

/// Sets the pairs from position 2 on. How many fields are new.
fn set_pairs(edit: &mut Edit<'_>, args: &Args<'_>, command: &str) -> Result<i64> {
    if !args.len().is_multiple_of(2) {
        return Err(Error::arity(command));
    }
    let thresholds = args.settings.thresholds();
    let mut hash = edit.open_or_new(&args.key(1), Hash::default)?;
    hash.expect((2..args.len()).map(|position| args.bytes(position)), &thresholds);
    let mut added = 0;
    for position in (2..args.len()).step_by(2) {
        let (name, value) = (args.bytes(position), args.bytes(position + 1));
        let set = hash.set(name, value, FieldExpiry::Clear, &thresholds, args.now);
        added += i64::from(set == Set::Added);
    }
    hash.note(Class::HASH, "hset");
    Ok(added)
}

/// HSETNX key field value
pub(super) fn hsetnx(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let (name, value) = (args.bytes(2), args.bytes(3));
    let key = args.key(1);
    let mut hash = edit.open_or_new(&key, Hash::default)?;
    if hash.get(name, args.now).is_some() {
        reply.int(0);
        return Ok(Outcome::Unchanged);
    }
    let is_made_anew = is_made_anew(&hash, args);
    hash.set(name, value, FieldExpiry::Clear, &args.settings.thresholds(), args.now);
    hash.note(Class::HASH, "hset");
    if is_made_anew {
        log_made(args, value);
    }
    reply.int(1);
    Ok(Outcome::Changed)
}

/// Whether a field that is not there may only be over: whoever follows a master has it until it is told, so that what is made in its place is
/// said as such.
fn is_made_anew(hash: &Hash, args: &Args<'_>) -> bool {
    args.is_logged()
        && Type::as_ref(hash).next_expiry().is_some()
        && hash.get(args.bytes(2), args.now).is_none()
}

fn log_made(args: &Args<'_>, value: &[u8]) {
    args.log_as(&[b"HSET", args.bytes(1), args.bytes(2), value]);
}

/// HDEL key field [field ...]
pub(super) fn hdel(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let key = args.key(1);
    let Some(mut hash) = edit.open::<Hash>(&key)? else {
        reply.int(0);
        return Ok(Outcome::Unchanged);
    };
    // A log says what is gone, those that went by themselves too: here they are still there.
    let now = if args.is_of_log() { UnixMs(0) } else { args.now };
    let logs_apart = args.is_logged() && Type::as_ref(&*hash).next_expiry().is_some();
    let (mut deleted, mut gone) = (0, Vec::new());
    for name in (2..args.len()).map(|position| args.bytes(position)) {
        if hash.remove(name, now) {
            deleted += 1;
            gone.extend(logs_apart.then_some(name));
        }
    }
    reply.int(deleted);
    if deleted == 0 {
        return Ok(Outcome::Unchanged);
    }
    hash.note(Class::HASH, "hdel");
    log_removed(args, &gone);
    Ok(Outcome::Changed)
}

/// Says that these fields are gone, if there are any. A request may also name some whose time is up and that are there until they
/// are swept.
pub(super) fn log_removed(args: &Args<'_>, names: &[&[u8]]) {
    if args.is_logged() && !names.is_empty() {
        args.log_as(&[&[b"HDEL", args.bytes(1)], names].concat());
    }
}

/// Sets a field of a hash that is counted in.
fn store(hash: &mut Opened<'_, '_, Hash>, args: &Args<'_>, value: &[u8], event: &'static str) {
    hash.set(args.bytes(2), value, FieldExpiry::Keep, &args.settings.thresholds(), args.now);
    hash.note(Class::HASH, event);
}

/// HINCRBY key field increment
pub(super) fn hincrby(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let increment = int(args.bytes(3))?;
    let key = args.key(1);
    let mut hash = edit.open_or_new(&key, Hash::default)?;
    let is_made_anew = is_made_anew(&hash, args);
    let old = match hash.get(args.bytes(2), args.now) {
        None => 0,
        Some(value) => value.int().ok_or(Error::text("ERR hash value is not an integer"))?,
    };
    let new = old.checked_add(increment).ok_or(Error::text("ERR increment or decrement would overflow"))?;
    let digits = &mut IntBuffer::new();
    let text = format_i64(new, digits);
    store(&mut hash, args, text, "hincrby");
    if is_made_anew {
        log_made(args, text);
    }
    reply.int(new);
    Ok(Outcome::Changed)
}

/// HINCRBYFLOAT key field increment
pub(super) fn hincrbyfloat(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let increment = Extended::parse(args.bytes(3)).ok_or(Error::NotFloat)?;
    if !increment.is_finite() {
        return Err(Error::text("ERR value is NaN or Infinity"));
    }
    let key = args.key(1);
    let mut hash = edit.open_or_new(&key, Hash::default)?;
    let is_made_anew = is_made_anew(&hash, args);
    let old = match hash.get(args.bytes(2), args.now) {
        None => Extended::from_i64(0),
        Some(Element::Int(number)) => Extended::from_i64(number),
        Some(Element::Bytes(bytes)) => {
            Extended::parse(bytes).ok_or(Error::text("ERR hash value is not a float"))?
        }
    };
    let Some(new) = old.checked_add(increment) else {
        return Err(Error::text("ERR increment would produce NaN or Infinity"));
    };
    let mut text = Vec::with_capacity(32);
    new.write(&mut text);
    store(&mut hash, args, &text, "hincrbyfloat");
    if is_made_anew {
        log_made(args, &text);
    }
    reply.bulk(&text);
    Ok(Outcome::Changed)
}
