//! SET and its kin: the handlers that store whole strings.
//!
//! Thread rule: as for all handlers.
//!
//! Invariants:
//! 1. MSETNX and MSETEX look at all their keys before they set the first one.
//! 2. What `set_replaces` and `msetex_replaces` accept looks at no key before it sets it.
//! 3. A value is stored as an integer if that loses nothing, else as it came.

use super::{Text, reply_old};
use crate::args::Args;
use crate::error::{Error, Result};
use crate::key_use::{KeyFlags, OVERWRITES};
use crate::parse::{self, ExpiryOption, ExpiryUnit, Options, expires_at};
use crate::row::Outcome;
use keyspace::{Class, Edit, Expiry, Key, NewValue};
use sys::UnixMs;
use wire::{Reply, Request};

/// What has to hold for SET and MSETEX to set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Condition<'a> {
    /// Nothing.
    #[default]
    Always,
    /// NX: the key is not there.
    Absent,
    /// XX: the key is there.
    Present,
    /// IFEQ: the key holds this string.
    Equal(&'a [u8]),
}

impl<'a> Condition<'a> {
    /// Consumes NX or XX, unless the other condition was there before.
    fn take(&mut self, options: &mut Options<'a>) -> bool {
        self.take_word(options, "NX", Condition::Absent) || self.take_word(options, "XX", Condition::Present)
    }

    fn take_word(&mut self, options: &mut Options<'a>, word: &str, meaning: Condition<'a>) -> bool {
        let taken = (*self == Condition::Always || *self == meaning) && options.take(word);
        if taken {
            *self = meaning;
        }
        taken
    }

    /// Consumes IFEQ and its value, unless there was a condition before.
    fn take_equal(&mut self, options: &mut Options<'a>) -> bool {
        if *self != Condition::Always {
            return false;
        }
        let value = options.take_with_value("IFEQ");
        if let Some(value) = value {
            *self = Condition::Equal(value);
        }
        value.is_some()
    }
}

/// Whether a SET with GET replies with the string that was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Status,
    OldValue,
}

/// SET key value [NX | XX | IFEQ comparison-value] [GET] [EX seconds | ... | KEEPTTL]
#[inline]
pub(super) fn set(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    if args.len() > 3 {
        return set_with_options(edit, args, reply);
    }
    store(edit, &args.key(1), args.bytes(2), Expiry::Clear);
    reply.ok();
    Ok(Outcome::Changed)
}

/// Whether a SET looks at nothing: it has no options but the moment of expiry.
pub(super) fn set_replaces(request: &Request<'_>) -> bool {
    has_expiry_only(request, 3)
}

/// SET's key flags: without GET, nothing of the old value is shown.
pub(super) fn set_key_flags(request: &Request<'_>) -> Option<KeyFlags> {
    let shows_old = request.iter().skip(3).any(|word| word.eq_ignore_ascii_case(b"get"));
    (!shows_old).then_some(OVERWRITES)
}

/// Whether the options from `first` on are no more than a moment of expiry.
fn has_expiry_only(request: &Request<'_>, first: usize) -> bool {
    let is_expiry =
        |word: &[u8]| [&b"EX"[..], b"PX", b"EXAT", b"PXAT"].iter().any(|one| word.eq_ignore_ascii_case(one));
    (first..request.len()).step_by(2).all(|at| is_expiry(request.arg(at)))
}

/// Gives a key a string.
#[inline]
fn store(edit: &mut Edit<'_>, key: &Key<'_>, value: &[u8], expiry: Expiry) {
    edit.set(key, NewValue::from_bytes(value), expiry);
    edit.note(Class::STRING, "set", key);
    if let Expiry::At(_) = expiry {
        edit.note(Class::GENERIC, "expire", key);
    }
}

fn set_with_options(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let mut options = Options::from(args, 3);
    let (mut condition, mut wanted, mut expiry) =
        (Condition::default(), Wanted::Status, ExpiryOption::default());
    while options.more() {
        if options.take("GET") {
            wanted = Wanted::OldValue;
        } else if !(expiry.take_expire(&mut options)
            || condition.take(&mut options)
            || expiry.take_keep(&mut options)
            || condition.take_equal(&mut options))
        {
            options.refuse();
        }
    }
    options.finish()?;
    let moment = expiry.moment(args.present(), "set")?;
    if wanted == Wanted::OldValue {
        reply_old(edit, args, reply)?;
    }
    let allowed = allows(edit, args, condition)?;
    match (wanted, allowed) {
        (Wanted::OldValue, _) => {}
        (Wanted::Status, true) => reply.ok(),
        (Wanted::Status, false) => reply.null(),
    }
    if !allowed {
        return Ok(Outcome::Unchanged);
    }
    let key = args.key(1);
    store(edit, &key, args.bytes(2), fate(expiry, moment));
    match expiry {
        ExpiryOption::Keep if !args.is_for_redis50() => {
            args.log_as(&[b"SET", key.bytes, args.bytes(2), as_given(args, b"KEEPTTL")])
        }
        _ => args.log_string_until(edit, &key, as_given(args, b"PXAT")),
    }
    Ok(Outcome::Changed)
}

/// A word of a SET as the client wrote it, which a reader of the stream finds there, as in Redis; in capitals if it is not there.
fn as_given<'a>(args: &Args<'a>, word: &'a [u8]) -> &'a [u8] {
    args.request.iter().skip(3).find(|given| given.eq_ignore_ascii_case(word)).unwrap_or(word)
}

/// Whether a SET's condition holds for its key.
fn allows(edit: &Edit<'_>, args: &Args<'_>, condition: Condition<'_>) -> Result<bool> {
    if condition == Condition::Always {
        return Ok(true);
    }
    let object = edit.get(&args.key(1));
    Ok(match condition {
        Condition::Always => true,
        Condition::Absent => object.is_none(),
        Condition::Present => object.is_some(),
        Condition::Equal(value) => Text::of(object)?.is_some_and(|text| text.is(value)),
    })
}

/// What becomes of the expiry of a key that is set.
fn fate(option: ExpiryOption<'_>, moment: Option<UnixMs>) -> Expiry {
    match (option, moment) {
        (_, Some(at)) => Expiry::At(at),
        (ExpiryOption::Keep, None) => Expiry::Keep,
        _ => Expiry::Clear,
    }
}

/// SETNX key value
pub(super) fn setnx(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let key = args.key(1);
    let absent = edit.get(&key).is_none();
    reply.int(i64::from(absent));
    if !absent {
        return Ok(Outcome::Unchanged);
    }
    store(edit, &key, args.bytes(2), Expiry::Clear);
    Ok(Outcome::Changed)
}

/// SETEX key seconds value
pub(super) fn setex(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    set_expiring(edit, args, reply, ExpiryUnit::Seconds, "setex")
}

/// PSETEX key milliseconds value
pub(super) fn psetex(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    set_expiring(edit, args, reply, ExpiryUnit::Milliseconds, "psetex")
}

fn set_expiring(
    edit: &mut Edit<'_>,
    args: &Args<'_>,
    reply: &mut Reply<'_>,
    unit: ExpiryUnit,
    command: &str,
) -> Result<Outcome> {
    let at = expires_at(args.bytes(2), unit, args.present(), command)?;
    store(edit, &args.key(1), args.bytes(3), Expiry::At(at));
    args.log_string(edit, &args.key(1));
    reply.ok();
    Ok(Outcome::Changed)
}

/// GETSET key value
pub(super) fn getset(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    reply_old(edit, args, reply)?;
    store(edit, &args.key(1), args.bytes(2), Expiry::Clear);
    args.log_as(&[b"SET", args.bytes(1), args.bytes(2)]);
    Ok(Outcome::Changed)
}

/// MSET key value [key value ...]
pub(super) fn mset(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    if args.len().is_multiple_of(2) {
        return Err(Error::arity("mset"));
    }
    set_pairs(edit, args, 1, args.len(), Expiry::Clear);
    reply.ok();
    Ok(Outcome::Changed)
}

/// MSETNX key value [key value ...]
pub(super) fn msetnx(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    if args.len().is_multiple_of(2) {
        return Err(Error::arity("msetnx"));
    }
    let absent = (1..args.len()).step_by(2).all(|position| edit.get(&args.key(position)).is_none());
    reply.int(i64::from(absent));
    if !absent {
        return Ok(Outcome::Unchanged);
    }
    set_pairs(edit, args, 1, args.len(), Expiry::Clear);
    Ok(Outcome::Changed)
}

/// Sets the pairs of words from `first` up to `end`.
fn set_pairs(edit: &mut Edit<'_>, args: &Args<'_>, first: usize, end: usize, expiry: Expiry) {
    for position in (first..end).step_by(2) {
        let key = args.key(position);
        store(edit, &key, args.bytes(position + 1), expiry);
        args.log_string(edit, &key);
    }
}

/// Position of MSETEX's first key.
const MSETEX_FIRST: usize = 2;

/// The position after MSETEX's last pair.
fn msetex_end(request: &Request<'_>) -> Result<usize> {
    let count = parse::int_within(request.arg(1), 1..=i64::from(i32::MAX), "ERR invalid numkeys value")?;
    let end = MSETEX_FIRST + count as usize * 2;
    if end > request.len() {
        return Err(Error::text("ERR wrong number of key-value pairs"));
    }
    Ok(end)
}

/// MSETEX's keys; none if it does not say how many there are.
pub(super) fn msetex_keys(request: &Request<'_>, positions: &mut Vec<usize>) {
    if request.len() > MSETEX_FIRST
        && let Ok(end) = msetex_end(request)
    {
        positions.extend((MSETEX_FIRST..end).step_by(2));
    }
}

/// Whether an MSETEX looks at nothing.
pub(super) fn msetex_replaces(request: &Request<'_>) -> bool {
    msetex_end(request).is_ok_and(|end| has_expiry_only(request, end))
}

/// MSETEX numkeys key value [key value ...] [NX | XX] [EX seconds | ... | KEEPTTL]
pub(super) fn msetex(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let end = msetex_end(&args.request)?;
    let mut options = Options::from(args, end);
    let (mut condition, mut expiry) = (Condition::default(), ExpiryOption::default());
    while options.more() {
        if !condition.take(&mut options)
            && !expiry.take_expire(&mut options)
            && !expiry.take_keep(&mut options)
        {
            options.refuse();
        }
    }
    options.finish()?;
    let moment = expiry.moment(args.present(), "msetex")?;
    let mut keys = (MSETEX_FIRST..end).step_by(2).map(|position| args.key(position));
    let allowed = match condition {
        Condition::Absent => keys.all(|key| edit.get(&key).is_none()),
        Condition::Present => keys.all(|key| edit.get(&key).is_some()),
        Condition::Always | Condition::Equal(_) => true,
    };
    reply.int(i64::from(allowed));
    if !allowed {
        return Ok(Outcome::Unchanged);
    }
    set_pairs(edit, args, MSETEX_FIRST, end, fate(expiry, moment));
    Ok(Outcome::Changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::RequestBuf;

    fn replaces(words: &str) -> bool {
        let mut request = RequestBuf::new();
        words.split(' ').for_each(|word| request.push(word.as_bytes()));
        let request = request.as_request();
        if words.starts_with("MSETEX") { msetex_replaces(&request) } else { set_replaces(&request) }
    }

    #[test]
    fn only_what_looks_at_nothing_replaces_unread() {
        let replacing = ["SET k v", "SET k v EX 1", "SET k v pxat 1", "MSETEX 1 k v", "MSETEX 1 k v PX 1"];
        assert!(replacing.into_iter().all(replaces));
        let looking = ["NX", "XX", "GET", "KEEPTTL", "IFEQ x", "EX 1 GET", "PX 1 NX", "GET EX 1", "NX EX"];
        assert!(looking.into_iter().all(|options| !replaces(&format!("SET k v {options}"))));
        assert!(
            !replaces("MSETEX 1 k v NX") && !replaces("MSETEX 1 k v KEEPTTL") && !replaces("MSETEX x k v")
        );
    }
}
