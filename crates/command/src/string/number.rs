//! INCR and its kin: strings that count.
//!
//! Thread rule: as for all handlers.
//!
//! Invariants:
//! 1. The integer commands leave an integer in its 8 bytes; the float command
//!    leaves a text, even of a whole number, as Redis does.
//! 2. Neither changes the expiry.

use super::Text;
use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::int;
use crate::row::Outcome;
use keyspace::{Class, Edit, Expiry, NewValue};
use value::extended::Extended;
use wire::Reply;

/// INCR key
#[inline]
pub(super) fn incr(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    add(edit, args, reply, 1)
}

/// DECR key
pub(super) fn decr(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    add(edit, args, reply, -1)
}

/// INCRBY key increment
pub(super) fn incrby(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    add(edit, args, reply, int(args.bytes(2))?)
}

/// DECRBY key decrement
pub(super) fn decrby(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let decrement = int(args.bytes(2))?;
    let increment = decrement.checked_neg().ok_or(Error::text("ERR decrement would overflow"))?;
    add(edit, args, reply, increment)
}

#[inline]
fn add(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>, increment: i64) -> Result<Outcome> {
    let key = args.key(1);
    edit.update(&key, |object| {
        let old = match Text::of(object)? {
            None => 0,
            Some(Text::Int(number)) => number,
            Some(Text::Bytes(bytes)) => int(bytes)?,
        };
        let new =
            old.checked_add(increment).ok_or(Error::text("ERR increment or decrement would overflow"))?;
        reply.int(new);
        Ok::<_, Error>((NewValue::Int(new), Expiry::Keep))
    })?;
    edit.note(Class::STRING, "incrby", &key);
    Ok(Outcome::Changed)
}

/// INCRBYFLOAT key increment
pub(super) fn incrbyfloat(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let key = args.key(1);
    let old = match Text::of(edit.get(&key))? {
        None => Extended::from_i64(0),
        Some(Text::Int(number)) => Extended::from_i64(number),
        Some(Text::Bytes(bytes)) => Extended::parse(bytes).ok_or(Error::NotFloat)?,
    };
    let increment = Extended::parse(args.bytes(2)).ok_or(Error::NotFloat)?;
    let Some(new) = old.checked_add(increment) else {
        return Err(Error::text("ERR increment would produce NaN or Infinity"));
    };
    let mut text = Vec::with_capacity(32);
    new.write(&mut text);
    edit.set(&key, NewValue::Bytes(&text), Expiry::Keep);
    // Who follows may have another arithmetic.
    match args.is_for_redis50() {
        true => args.log_string(edit, &key),
        false => args.log_as(&[b"SET", key.bytes, &text, b"KEEPTTL"]),
    }
    edit.note(Class::STRING, "incrbyfloat", &key);
    reply.bulk(&text);
    Ok(Outcome::Changed)
}
