//! Values and expiries of fields in one command: HGETEX, HSETEX, HGETDEL.
//!
//! Thread rule: as for all handlers.

use super::expire::{Expired, Stride, expire_there, log_fields, moment};
use super::write::log_removed;
use super::{BAD_COUNT, Hash, named_fields, reply_element};
use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::{ExpiryUnit, int_within};
use crate::row::Outcome;
use keyspace::{Class, Edit};
use sys::UnixMs;
use value::hash::FieldExpiry;
use wire::Reply;

const UNITS: [(&str, ExpiryUnit); 4] = [
    ("EX", ExpiryUnit::Seconds),
    ("PX", ExpiryUnit::Milliseconds),
    ("EXAT", ExpiryUnit::UnixSeconds),
    ("PXAT", ExpiryUnit::UnixMilliseconds),
];

/// The unit that the word at a position is, if it is one.
fn unit_at(args: &Args<'_>, position: usize) -> Option<ExpiryUnit> {
    UNITS.iter().find(|(word, _)| args.is(position, word)).map(|(_, unit)| *unit)
}

/// What happens to the expiries of fields.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    Persist,
    Keep,
    To(UnixMs),
}

/// HGETDEL key FIELDS numfields field [field ...]
pub(super) fn hgetdel(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let key = args.key(1);
    let hash = edit.open::<Hash>(&key)?;
    let first = named_fields(args, 2, BAD_COUNT)?;
    reply.array(args.len() - first);
    let Some(mut hash) = hash else {
        (first..args.len()).for_each(|_| reply.null());
        return Ok(Outcome::Unchanged);
    };
    let mut gone = Vec::new();
    for position in first..args.len() {
        let name = args.bytes(position);
        match hash.get(name, args.now) {
            None => reply.null(),
            Some(value) => {
                reply_element(reply, value);
                hash.remove(name, args.now);
                gone.push(name);
            }
        }
    }
    if gone.is_empty() {
        return Ok(Outcome::Unchanged);
    }
    hash.note(Class::HASH, "hdel");
    log_removed(args, &gone);
    Ok(Outcome::Changed)
}

/// HGETEX key [EX seconds | PX ... | EXAT ... | PXAT ... | PERSIST] FIELDS numfields field [field ...]
pub(super) fn hgetex(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let key = args.key(1);
    let hash = edit.open::<Hash>(&key)?;
    let (change, position) = match unit_at(args, 2) {
        Some(unit) => (Change::To(moment(args.bytes(3), unit, args.present(), "hgetex")?), 4),
        None if args.is(2, "persist") => (Change::Persist, 3),
        None => (Change::None, 2),
    };
    let first = named_fields(args, position, BAD_COUNT)?;
    reply.array(args.len() - first);
    let Some(mut hash) = hash else {
        (first..args.len()).for_each(|_| reply.null());
        return Ok(Outcome::Unchanged);
    };
    let mut event = None;
    for position in first..args.len() {
        let name = args.bytes(position);
        match hash.get(name, args.now) {
            None => reply.null(),
            Some(value) => {
                reply_element(reply, value);
                event = change_expiry(&mut hash, name, change, args.now).or(event);
            }
        }
    }
    let Some(event) = event else { return Ok(Outcome::Unchanged) };
    hash.note(Class::HASH, event);
    log_fields(args, &hash, first..args.len(), Stride::Names);
    Ok(Outcome::Changed)
}

/// Changes the expiry of a field that is there. The event, if it changed.
fn change_expiry(hash: &mut Hash, name: &[u8], change: Change, now: UnixMs) -> Option<&'static str> {
    match change {
        Change::None | Change::Keep => None,
        Change::Persist => {
            let had_expiry = hash.expires_at(name, now).flatten().is_some();
            hash.set_expiry(name, None);
            had_expiry.then_some("hpersist")
        }
        Change::To(at) => match expire_there(hash, name, at, now) {
            Expired::Deleted => Some("hdel"),
            _ => Some("hexpire"),
        },
    }
}

/// Which fields have to be there for HSETEX to set any.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Always,
    IfNoneThere,
    IfAllThere,
}

struct SetOptions {
    condition: Condition,
    change: Change,
    /// Where the fields and values begin, which go on to the end.
    first: usize,
}

impl SetOptions {
    fn parse(args: &Args<'_>) -> Result<SetOptions> {
        let mut options = SetOptions { condition: Condition::Always, change: Change::None, first: 0 };
        let mut position = 2;
        while position < args.len() {
            if args.is(position, "fields") {
                options.first = first_field(args, position)?;
                return Ok(options);
            } else if let Some(unit) = unit_at(args, position) {
                options.only_change()?;
                position += 1;
                let text = args.request.get(position).ok_or(Error::text("ERR missing expire time"))?;
                options.change = Change::To(moment(text, unit, args.present(), "hsetex")?);
            } else if args.is(position, "keepttl") {
                options.only_change()?;
                options.change = Change::Keep;
            } else if args.is(position, "fxx") {
                options.only_condition()?;
                options.condition = Condition::IfAllThere;
            } else if args.is(position, "fnx") {
                options.only_condition()?;
                options.condition = Condition::IfNoneThere;
            } else {
                return Err(Error::quoting("ERR unknown argument: ", args.bytes(position), ""));
            }
            position += 1;
        }
        Err(Error::FIELDS_MISSING)
    }

    fn only_change(&self) -> Result<()> {
        match self.change {
            Change::None => Ok(()),
            _ => Err(Error::text("ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified")),
        }
    }

    fn only_condition(&self) -> Result<()> {
        match self.condition {
            Condition::Always => Ok(()),
            _ => Err(Error::text("ERR Only one of FXX or FNX arguments can be specified")),
        }
    }
}

/// Where the fields behind `FIELDS numfields` begin.
fn first_field(args: &Args<'_>, position: usize) -> Result<usize> {
    let first = position + 2;
    if first + 1 >= args.len() {
        return Err(Error::arity("hsetex"));
    }
    let count = int_within(args.bytes(position + 1), 1..=i32::MAX.into(), "ERR invalid number of fields")?;
    match args.len() - first {
        words if words == 2 * count as usize => Ok(first),
        _ => Err(Error::arity("hsetex")),
    }
}

/// HSETEX key [FNX | FXX] [EX seconds | ... | KEEPTTL] FIELDS numfields field value [field value ...]
pub(super) fn hsetex(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let options = SetOptions::parse(args)?;
    let thresholds = args.settings.thresholds();
    let key = args.key(1);
    let mut hash = edit.open_or_new(&key, Hash::default)?;
    let mut names = (options.first..args.len()).step_by(2).map(|position| args.bytes(position));
    let mut is_there = |name| hash.get(name, args.now).is_some();
    let holds = match options.condition {
        Condition::Always => true,
        Condition::IfNoneThere => !names.any(&mut is_there),
        Condition::IfAllThere => names.all(&mut is_there),
    };
    reply.int(i64::from(holds));
    if !holds {
        return Ok(Outcome::Unchanged);
    }
    hash.expect((options.first..args.len()).map(|position| args.bytes(position)), &thresholds);
    let expiry = if options.change == Change::Keep { FieldExpiry::Keep } else { FieldExpiry::Clear };
    let mut event = None;
    for position in (options.first..args.len()).step_by(2) {
        let (name, value) = (args.bytes(position), args.bytes(position + 1));
        hash.set(name, value, expiry, &thresholds, args.now);
        event = change_expiry(&mut hash, name, options.change, args.now).or(event);
    }
    hash.note(Class::HASH, "hset");
    if let Some(event) = event {
        hash.note(Class::HASH, event);
    }
    log_fields(args, &hash, options.first..args.len(), Stride::NamesAndValues);
    Ok(Outcome::Changed)
}
