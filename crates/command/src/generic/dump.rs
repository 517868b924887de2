//! DUMP and RESTORE: a value as a portable payload, byte for byte as in Redis.
//! The codec is `value::rdb`; here are the request's options and the key.

use super::{VARIES, remove};
use crate::args::Args;
use crate::category::Categories;
use crate::error::{Error, Result};
use crate::key_use::OVERWRITES;
use crate::parse::has_word;
use crate::parse::int;
use crate::row::Handler::{Read, Write};
use crate::row::{Flags, Group, Keys, Outcome, Row, row};
use keyspace::{Class, Edit, Expiry, NewValue, Object, Removal, Usage, ValueRef, View};
use smallvec::SmallVec;
use sys::UnixMs;
use value::number::{IntBuffer, format_i64};
use value::rdb::{self, RestoreError, Restored};
use value::stream::Reads;
use wire::Reply;

/// Rows of this file.
pub const ROWS: &[Row] = &[
    row("dump", 2, Read(dump))
        .keys(Keys::FIRST)
        .group(Group::Generic)
        .since("2.6.0")
        .complexity("O(1) to find the key and O(N) in the size of its value.")
        .syntax("key")
        .summary("Returns a value in a form that RESTORE takes.")
        .tips(VARIES),
    row("restore", -4, Write(restore))
        .counts_from_now(|request| !has_word(request, &["absttl"]))
        .flags(Flags::DENYOOM.union(Flags::DANGEROUS))
        .keys(Keys::FIRST)
        .group(Group::Generic)
        .since("2.6.0")
        .complexity("O(1) to make the key and O(N) in the size of its value; O(N*log(N)) for sorted sets.")
        .syntax("key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]")
        .key_flags(&[OVERWRITES])
        .summary("Makes a key from what DUMP returned."),
    row("restore-asking", -4, Write(restore))
        .flags(Flags::DENYOOM.union(Flags::DANGEROUS).union(Flags::ASKING))
        .keys(Keys::FIRST)
        .group(Group::Server)
        .in_categories(Categories::KEYSPACE)
        .since("3.0.0")
        .complexity("O(1) to make the key and O(N) in the size of its value; O(N*log(N)) for sorted sets.")
        .syntax("key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]")
        .key_flags(&[OVERWRITES])
        .summary("Makes a key from what DUMP returned, while its slot moves between the nodes of a cluster."),
];

/// DUMP key
fn dump(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    match view.get(&args.key(1)) {
        Some(object) => reply.bulk(&payload(object)),
        None => reply.null(),
    }
    Ok(())
}

/// What DUMP returns of a value: its type, its bytes as in an RDB file, and a footer.
pub fn payload(object: Object<'_>) -> Vec<u8> {
    payload_of(object.value())
}

fn payload_of(value: ValueRef<'_>) -> Vec<u8> {
    match value {
        ValueRef::Collection(collection) => rdb::dump(collection),
        ValueRef::Bytes(_) | ValueRef::Int(_) => exact_payload(value, Reads::Redis70),
    }
}

/// The same with all that there is to know of the value, as far as these readers know it, for a log.
pub fn exact_payload(value: ValueRef<'_>, reads: Reads) -> Vec<u8> {
    match value {
        ValueRef::Collection(collection) => rdb::dump_exactly(collection, reads),
        ValueRef::Bytes(bytes) => rdb::dump_string_for(bytes, reads),
        ValueRef::Int(number) => rdb::dump_string_for(format_i64(number, &mut IntBuffer::new()), reads),
    }
}

/// Bytes of a payload that are not the value itself: the type in front, and the
/// version and checksum of the footer.
pub const PAYLOAD_FRAME_BYTES: usize = 1 + 2 + 8;

/// What RESTORE does about a key that is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfPresent {
    Refuse,
    Replace,
}

/// How RESTORE's time to live counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TtlForm {
    FromNow,
    UnixTime,
}

struct Options {
    if_present: IfPresent,
    ttl_form: TtlForm,
    usage: Option<Usage>,
}

impl Options {
    /// Parses the words from position 4 on. IDLETIME and FREQ exclude each other.
    fn parse(args: &Args<'_>) -> Result<Options> {
        let mut options = Options { if_present: IfPresent::Refuse, ttl_form: TtlForm::FromNow, usage: None };
        let mut position = 4;
        while position < args.len() {
            let operand = position + 1;
            let has_operand = operand < args.len();
            if args.is(position, "replace") {
                options.if_present = IfPresent::Replace;
            } else if args.is(position, "absttl") {
                options.ttl_form = TtlForm::UnixTime;
            } else if args.is(position, "idletime")
                && has_operand
                && !matches!(options.usage, Some(Usage::Frequency(_)))
            {
                let seconds =
                    u64::try_from(int(args.bytes(operand))?).map_err(|_| Error::RESTORE_IDLE_TIME)?;
                options.usage = Some(Usage::IdleSeconds(seconds));
                position = operand;
            } else if args.is(position, "freq")
                && has_operand
                && !matches!(options.usage, Some(Usage::IdleSeconds(_)))
            {
                let frequency =
                    u8::try_from(int(args.bytes(operand))?).map_err(|_| Error::RESTORE_FREQUENCY)?;
                options.usage = Some(Usage::Frequency(frequency));
                position = operand;
            } else {
                return Err(Error::Syntax);
            }
            position += 1;
        }
        Ok(options)
    }
}

/// RESTORE key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]
fn restore(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let options = Options::parse(args)?;
    let key = args.key(1);
    if options.if_present == IfPresent::Refuse && edit.get(&key).is_some() {
        return Err(Error::BUSY_KEY);
    }
    let ttl = u64::try_from(int(args.bytes(2))?).map_err(|_| Error::RESTORE_TTL)?;
    let (thresholds, checksum) = (args.settings.thresholds(), args.settings.checksum());
    let restored = rdb::restore_by(args.bytes(3), &thresholds, checksum).map_err(|error| match error {
        RestoreError::BadFooter => Error::DUMP_FOOTER,
        RestoreError::BadFormat | RestoreError::OfCandidate => Error::DUMP_FORMAT,
    })?;
    reply.ok();
    let expiry = match expiry(ttl, options.ttl_form, args.present()) {
        Expiry::At(at) if at <= args.now => {
            if !remove(edit, &key) {
                return Ok(Outcome::Unchanged);
            }
            args.log_removal(&key, Removal::Command);
            return Ok(Outcome::Changed);
        }
        expiry => expiry,
    };
    // What replaces a key is a new one.
    edit.remove(&key);
    match restored {
        Restored::String(bytes) => edit.set(&key, NewValue::from_bytes(&bytes), expiry),
        Restored::Collection(collection) => edit.put_collection(&key, collection, expiry),
    }
    edit.note(Class::GENERIC, "restore", &key);
    // A clock of the other policy's kind would mean nothing.
    let counts_frequency = args.keyspace.policy().eviction().counts_frequency();
    match options.usage {
        Some(usage @ Usage::IdleSeconds(_)) if !counts_frequency => edit.set_usage(&key, usage),
        Some(usage @ Usage::Frequency(_)) if counts_frequency => edit.set_usage(&key, usage),
        _ => {}
    }
    let options = logged_options(args, expiry);
    // A log's own is what it says, at any time.
    let is_exact = args.is_of_log() && options.len() == 2 && args.len() == 6 && !args.is_for_redis50();
    if !is_exact {
        args.log_restored(edit, &key, &options);
    }
    Ok(Outcome::Changed)
}

/// Of the options given those that say what to do with the key, in their places, and ABSTTL where there is a moment that it goes with.
fn logged_options<'a>(args: &Args<'a>, expiry: Expiry) -> SmallVec<[&'a [u8]; 2]> {
    let is_one = |word: &&[u8], name: &[u8]| word.eq_ignore_ascii_case(name);
    let given = args.request.iter().skip(4);
    let mut options: SmallVec<[&[u8]; 2]> =
        given.filter(|word| is_one(word, b"REPLACE") || is_one(word, b"ABSTTL")).collect();
    if expiry != Expiry::Clear && !options.iter().any(|word| is_one(word, b"ABSTTL")) {
        options.push(b"ABSTTL");
    }
    options
}

/// The expiry that a time to live means; 0 is none. One that goes beyond the last
/// moment is over at once, as in Redis, where the sum turns negative.
fn expiry(ttl: u64, form: TtlForm, now: UnixMs) -> Expiry {
    match (ttl, form) {
        (0, _) => Expiry::Clear,
        (at, TtlForm::UnixTime) => Expiry::At(UnixMs(at)),
        (ttl, TtlForm::FromNow) => match ttl + now.0 {
            at if at > i64::MAX as u64 => Expiry::At(now),
            at => Expiry::At(UnixMs(at)),
        },
    }
}
