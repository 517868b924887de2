//! EXPIRE, TTL, PERSIST and their like: when a key's time is up.
//!
//! Moments are milliseconds since 1970 throughout; a moment that is not in the
//! future deletes the key. On the hot path; nothing here allocates but an error.

use super::{VARIES, remove};
use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::int;
use crate::row::Handler::{Read, Write};
use crate::row::{Flags, Group, Keys, Outcome, Row, row};
use keyspace::{Class, Edit, View};
use sys::UnixMs;
use wire::Reply;

/// Rows of this file.
pub const ROWS: &[Row] = &[
    setter("expire", Write(expire))
        .counts_from_now(|_| true)
        .since("1.0.0")
        .syntax("key seconds [NX | XX | GT | LT]")
        .summary("Lets a key expire after so many seconds."),
    setter("expireat", Write(expireat))
        .since("1.2.0")
        .syntax("key unix-time-seconds [NX | XX | GT | LT]")
        .summary("Lets a key expire at a moment given in seconds since 1970."),
    getter("expiretime", Read(expiretime))
        .since("7.0.0")
        .syntax("key")
        .summary("Tells when a key expires, in seconds since 1970."),
    row("persist", 2, Write(persist))
        .flags(Flags::FAST)
        .keys(Keys::FIRST)
        .group(Group::Generic)
        .since("2.2.0")
        .complexity("O(1)")
        .syntax("key")
        .summary("Takes the expiry of a key away."),
    setter("pexpire", Write(pexpire))
        .counts_from_now(|_| true)
        .since("2.6.0")
        .syntax("key milliseconds [NX | XX | GT | LT]")
        .summary("Lets a key expire after so many milliseconds."),
    setter("pexpireat", Write(pexpireat))
        .since("2.6.0")
        .syntax("key unix-time-milliseconds [NX | XX | GT | LT]")
        .summary("Lets a key expire at a moment given in milliseconds since 1970."),
    getter("pexpiretime", Read(pexpiretime))
        .since("7.0.0")
        .syntax("key")
        .summary("Tells when a key expires, in milliseconds since 1970."),
    getter("pttl", Read(pttl))
        .since("2.6.0")
        .syntax("key")
        .summary("Tells how many milliseconds a key has left.")
        .tips(VARIES),
    getter("ttl", Read(ttl))
        .since("1.0.0")
        .syntax("key")
        .summary("Tells how many seconds a key has left.")
        .tips(VARIES),
];

/// The columns that EXPIRE and its like share.
const fn setter(name: &'static str, handler: crate::row::Handler) -> Row {
    row(name, -3, handler).flags(Flags::FAST).keys(Keys::FIRST).group(Group::Generic).complexity("O(1)")
}

/// The columns that TTL and its like share.
const fn getter(name: &'static str, handler: crate::row::Handler) -> Row {
    row(name, 2, handler)
        .flags(Flags::FAST.union(Flags::NO_TOUCH))
        .keys(Keys::FIRST)
        .group(Group::Generic)
        .complexity("O(1)")
}

/// What the number in a request or reply counts.
#[derive(Clone, Copy)]
enum Unit {
    Seconds,
    Milliseconds,
}

/// From when on it counts.
#[derive(Clone, Copy)]
enum Origin {
    Now,
    Epoch,
}

bitflags::bitflags! {
    /// When a new expiry is to be set. All that are given must hold.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct Conditions: u8 {
        /// The key has no expiry.
        const NX = 1;
        /// The key has one.
        const XX = 2;
        /// The new one is later; having none counts as latest.
        const GT = 4;
        /// The new one is earlier.
        const LT = 8;
    }
}

impl Conditions {
    /// Parses the words from position 3 on.
    fn parse(args: &Args<'_>) -> Result<Conditions> {
        let mut conditions = Conditions::empty();
        for position in 3..args.len() {
            let known = Conditions::all().iter_names().find(|(name, _)| args.is(position, name));
            let Some((_, condition)) = known else {
                return Err(Error::unsupported_option(args.bytes(position)));
            };
            conditions |= condition;
        }
        let others = Conditions::XX | Conditions::GT | Conditions::LT;
        if conditions.contains(Conditions::NX) && conditions.intersects(others) {
            return Err(Error::EXPIRE_NX);
        }
        if conditions.contains(Conditions::GT | Conditions::LT) {
            return Err(Error::EXPIRE_GT_LT);
        }
        Ok(conditions)
    }

    /// Whether an expiry may become `at`. Not in the future counts as earliest.
    fn hold(self, current: Option<UnixMs>, at: i64) -> bool {
        let current = current.map(|current| current.0 as i64);
        self.iter().all(|condition| match condition {
            Conditions::NX => current.is_none(),
            Conditions::XX => current.is_some(),
            Conditions::GT => current.is_some_and(|current| at > current),
            _ => current.is_none_or(|current| at < current),
        })
    }
}

/// The moment that word 2 means. It may lie before 1970.
fn moment(args: &Args<'_>, name: &str, unit: Unit, origin: Origin) -> Result<i64> {
    let count = int(args.bytes(2))?;
    let ms = match unit {
        Unit::Seconds => count.checked_mul(1000),
        Unit::Milliseconds => Some(count),
    };
    let base = match origin {
        Origin::Now => args.present().0 as i64,
        Origin::Epoch => 0,
    };
    ms.and_then(|ms| ms.checked_add(base)).ok_or_else(|| Error::expire_time(name))
}

/// EXPIRE key seconds [NX | XX | GT | LT]
fn expire(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let conditions = Conditions::parse(args)?;
    set(edit, args, reply, conditions, moment(args, "expire", Unit::Seconds, Origin::Now)?)
}

/// EXPIREAT key unix-time-seconds [NX | XX | GT | LT]
fn expireat(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let conditions = Conditions::parse(args)?;
    set(edit, args, reply, conditions, moment(args, "expireat", Unit::Seconds, Origin::Epoch)?)
}

/// PEXPIRE key milliseconds [NX | XX | GT | LT]
fn pexpire(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let conditions = Conditions::parse(args)?;
    set(edit, args, reply, conditions, moment(args, "pexpire", Unit::Milliseconds, Origin::Now)?)
}

/// PEXPIREAT key unix-time-milliseconds [NX | XX | GT | LT]
fn pexpireat(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let conditions = Conditions::parse(args)?;
    set(edit, args, reply, conditions, moment(args, "pexpireat", Unit::Milliseconds, Origin::Epoch)?)
}

fn set(
    edit: &mut Edit<'_>,
    args: &Args<'_>,
    reply: &mut Reply<'_>,
    conditions: Conditions,
    at: i64,
) -> Result<Outcome> {
    let key = args.key(1);
    if !edit.get(&key).is_some_and(|object| conditions.hold(object.expires_at(), at)) {
        reply.int(0);
        return Ok(Outcome::Unchanged);
    }
    if at <= args.now.0 as i64 {
        remove(edit, &key);
    } else {
        edit.set_expiry(&key, Some(UnixMs(at as u64)));
        edit.note(Class::GENERIC, "expire", &key);
    }
    args.log_expiry(edit, &key);
    reply.int(1);
    Ok(Outcome::Changed)
}

/// PERSIST key
fn persist(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let key = args.key(1);
    if edit.get(&key).and_then(|object| object.expires_at()).is_none() {
        reply.int(0);
        return Ok(Outcome::Unchanged);
    }
    edit.set_expiry(&key, None);
    edit.note(Class::GENERIC, "persist", &key);
    reply.int(1);
    Ok(Outcome::Changed)
}

/// TTL key
fn ttl(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    show(view, args, reply, Unit::Seconds, Origin::Now)
}

/// PTTL key
fn pttl(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    show(view, args, reply, Unit::Milliseconds, Origin::Now)
}

/// EXPIRETIME key
fn expiretime(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    show(view, args, reply, Unit::Seconds, Origin::Epoch)
}

/// PEXPIRETIME key
fn pexpiretime(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    show(view, args, reply, Unit::Milliseconds, Origin::Epoch)
}

/// Answers -2 without the key, -1 without an expiry. Seconds are rounded to the nearest.
fn show(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>, unit: Unit, origin: Origin) -> Result<()> {
    let answer = match view.get(&args.key(1)).map(|object| object.expires_at()) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => {
            let ms = match origin {
                Origin::Now => at.0.saturating_sub(args.now.0),
                Origin::Epoch => at.0,
            };
            match unit {
                Unit::Seconds => ((ms + 500) / 1000) as i64,
                Unit::Milliseconds => ms as i64,
            }
        }
    };
    reply.int(answer);
    Ok(())
}
