//! The time that fields have: HEXPIRE and its kin set it, HPERSIST takes it away, HTTL and its kin show it.
//!
//! Each replies with a number per field named. -2 always says that there is no such field.
//!
//! Thread rule: as for all handlers.
//!
//! Invariants:
//! 1. A time that is not after now deletes the field at once.
//! 2. A field without an expiry counts as one that lives for ever.

use super::{BAD_COUNT, Hash, named_fields};
use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::{ExpiryUnit, int};
use crate::row::Outcome;
use keyspace::{Class, Edit, View};
use sys::UnixMs;
use value::number::{IntBuffer, format_i64};
use wire::Reply;

/// The last moment at which a field can expire, as in Redis.
const MOMENT_MAX: u64 = (1 << 46) - 1;

const NO_FIELD: i64 = -2;
const NO_EXPIRY: i64 = -1;

/// The moment that an expiry argument of `command` means; it may be past.
///
/// # Errors
/// It is no number, negative, or too far away.
pub(super) fn moment(text: &[u8], unit: ExpiryUnit, now: UnixMs, command: &str) -> Result<UnixMs> {
    let number = int(text)?;
    let number = u64::try_from(number).map_err(|_| Error::text("ERR invalid expire time, must be >= 0"))?;
    let per = match unit {
        ExpiryUnit::Seconds | ExpiryUnit::UnixSeconds => 1000,
        ExpiryUnit::Milliseconds | ExpiryUnit::UnixMilliseconds => 1,
    };
    let from = if unit.is_absolute() { 0 } else { now.0 };
    let moment = number.checked_mul(per).and_then(|ms| ms.checked_add(from)).filter(|ms| *ms <= MOMENT_MAX);
    moment.map(UnixMs).ok_or_else(|| Error::expire_time(command))
}

/// HEXPIRE key seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]
pub(super) fn hexpire(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    expire(edit, args, reply, ExpiryUnit::Seconds, "hexpire")
}

/// HPEXPIRE key milliseconds ...
pub(super) fn hpexpire(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    expire(edit, args, reply, ExpiryUnit::Milliseconds, "hpexpire")
}

/// HEXPIREAT key unix-time-seconds ...
pub(super) fn hexpireat(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    expire(edit, args, reply, ExpiryUnit::UnixSeconds, "hexpireat")
}

/// HPEXPIREAT key unix-time-milliseconds ...
pub(super) fn hpexpireat(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    expire(edit, args, reply, ExpiryUnit::UnixMilliseconds, "hpexpireat")
}

/// When the expiry of a field may change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Always,
    IfNone,
    IfSome,
    IfLater,
    IfSooner,
}

impl Condition {
    const WORDS: [(&'static str, Condition); 4] = [
        ("NX", Condition::IfNone),
        ("XX", Condition::IfSome),
        ("GT", Condition::IfLater),
        ("LT", Condition::IfSooner),
    ];

    /// The condition that the word at a position is, if it is one.
    fn at(args: &Args<'_>, position: usize) -> Option<Condition> {
        Condition::WORDS.iter().find(|(word, _)| args.is(position, word)).map(|(_, condition)| *condition)
    }

    fn allows(self, old: Option<UnixMs>, new: UnixMs) -> bool {
        match self {
            Condition::Always => true,
            Condition::IfNone => old.is_none(),
            Condition::IfSome => old.is_some(),
            Condition::IfLater => old.is_some_and(|old| new > old),
            Condition::IfSooner => old.is_none_or(|old| new < old),
        }
    }
}

/// What became of a field whose expiry was to be set. The numbers are the reply's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expired {
    /// There is no such field.
    NoField = -2,
    /// The condition does not hold.
    No = 0,
    /// It has the new expiry.
    Set = 1,
    /// It is gone: the time is past.
    Deleted = 2,
}

/// Sets the expiry of one field.
fn expire_one(hash: &mut Hash, name: &[u8], at: UnixMs, condition: Condition, now: UnixMs) -> Expired {
    match hash.expires_at(name, now) {
        None => Expired::NoField,
        Some(old) if !condition.allows(old, at) => Expired::No,
        Some(_) => expire_there(hash, name, at, now),
    }
}

/// Sets the expiry of a field that is there.
pub(super) fn expire_there(hash: &mut Hash, name: &[u8], at: UnixMs, now: UnixMs) -> Expired {
    if at <= now {
        hash.remove(name, now);
        return Expired::Deleted;
    }
    hash.set_expiry(name, Some(at));
    Expired::Set
}

fn expire(
    edit: &mut Edit<'_>,
    args: &Args<'_>,
    reply: &mut Reply<'_>,
    unit: ExpiryUnit,
    command: &str,
) -> Result<Outcome> {
    let key = args.key(1);
    let hash = edit.open::<Hash>(&key)?;
    let at = moment(args.bytes(2), unit, args.present(), command)?;
    let (condition, position) = match Condition::at(args, 3) {
        Some(condition) => (condition, 4),
        None => (Condition::Always, 3),
    };
    let first = named_fields(args, position, "ERR Parameter `numFields` should be greater than 0")?;
    reply.array(args.len() - first);
    let Some(mut hash) = hash else {
        (first..args.len()).for_each(|_| reply.int(NO_FIELD));
        return Ok(Outcome::Unchanged);
    };
    // A log says what time a field has, and of one that is over that it is gone.
    let now = if args.is_of_log() { UnixMs(0) } else { args.now };
    let (mut any_set, mut any_deleted) = (false, false);
    for position in first..args.len() {
        let expired = expire_one(&mut hash, args.bytes(position), at, condition, now);
        any_set |= expired == Expired::Set;
        any_deleted |= expired == Expired::Deleted;
        reply.int(expired as i64);
    }
    if !any_set && !any_deleted {
        return Ok(Outcome::Unchanged);
    }
    hash.note(Class::HASH, if any_deleted { "hdel" } else { "hexpire" });
    log_fields(args, &hash, first..args.len(), Stride::Names);
    Ok(Outcome::Changed)
}

/// What words name: fields, or fields and values in turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stride {
    Names = 1,
    NamesAndValues = 2,
}

/// Logs that the fields that some words name are what they are now: their values, where the words name those too,
/// and their expiries.
pub(super) fn log_fields(args: &Args<'_>, hash: &Hash, words: std::ops::Range<usize>, stride: Stride) {
    if !args.is_logged() {
        return;
    }
    let key = args.bytes(1);
    for position in words.step_by(stride as usize) {
        let name = args.bytes(position);
        let Some(expires_at) = hash.expires_at(name, args.now) else {
            // One whose time was up before is there until it is swept.
            if hash.expires_at(name, UnixMs(0)).is_none() {
                args.log_as(&[b"HDEL", key, name]);
            }
            continue;
        };
        if stride == Stride::NamesAndValues
            && let Some(value) = hash.get(name, args.now)
        {
            args.log_as(&[b"HSET", key, name, value.bytes(&mut IntBuffer::new())]);
        }
        let digits = &mut IntBuffer::new();
        match expires_at {
            Some(at) => {
                let at = format_i64(at.0 as i64, digits);
                args.log_as(&[b"HPEXPIREAT", key, at, b"FIELDS", b"1", name]);
            }
            None => args.log_as(&[b"HPERSIST", key, b"FIELDS", b"1", name]),
        }
    }
}

/// HPERSIST key FIELDS numfields field [field ...]
pub(super) fn hpersist(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let key = args.key(1);
    let hash = edit.open::<Hash>(&key)?;
    let first = named_fields(args, 2, BAD_COUNT)?;
    reply.array(args.len() - first);
    let Some(mut hash) = hash else {
        (first..args.len()).for_each(|_| reply.int(NO_FIELD));
        return Ok(Outcome::Unchanged);
    };
    let mut changed = false;
    for position in first..args.len() {
        let name = args.bytes(position);
        reply.int(match hash.expires_at(name, args.now) {
            None => NO_FIELD,
            Some(None) => NO_EXPIRY,
            Some(Some(_)) => {
                hash.set_expiry(name, None);
                changed = true;
                1
            }
        });
    }
    if !changed {
        return Ok(Outcome::Unchanged);
    }
    hash.note(Class::HASH, "hpersist");
    Ok(Outcome::Changed)
}

/// HTTL key FIELDS numfields field [field ...]
pub(super) fn httl(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    show(view, args, reply, |at, now| (at.0 - now.0).div_ceil(1000))
}

/// HPTTL key FIELDS numfields field [field ...]
pub(super) fn hpttl(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    show(view, args, reply, |at, now| at.0 - now.0)
}

/// HEXPIRETIME key FIELDS numfields field [field ...]
pub(super) fn hexpiretime(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    show(view, args, reply, |at, _| at.0.div_ceil(1000))
}

/// HPEXPIRETIME key FIELDS numfields field [field ...]
pub(super) fn hpexpiretime(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    show(view, args, reply, |at, _| at.0)
}

/// Replies with what `number` makes of the expiry of each field, which is after now.
fn show(
    view: &View<'_>,
    args: &Args<'_>,
    reply: &mut Reply<'_>,
    number: fn(UnixMs, UnixMs) -> u64,
) -> Result<()> {
    let hash = view.read::<Hash>(&args.key(1))?;
    let first = named_fields(args, 2, BAD_COUNT)?;
    reply.array(args.len() - first);
    for position in first..args.len() {
        let expires_at = hash.and_then(|hash| hash.expires_at(args.bytes(position), args.now));
        reply.int(match expires_at {
            None => NO_FIELD,
            Some(None) => NO_EXPIRY,
            Some(Some(at)) => number(at, args.now) as i64,
        });
    }
    Ok(())
}
