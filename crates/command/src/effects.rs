//! What writes come down to, for the log: requests that have the same effect at any later time.
//!
//! On a command's path this comes between the handler and the unlocking of its slots ([`crate::execute`]), so that
//! effects stand in the order in which each key changed. A handler whose request would not have the same effect again
//! (a random pick, a time to live, a choice among keys) says what it came down to ([`Args::log_as`]). Of all others
//! the request itself is logged if it has one key, and else the keys that it writes as they are afterwards.
//!
//! Invariants:
//! 1. Every request in the log works on one key, which stands in a fixed place, or is one of a few that concern two keys
//!    ([`crate::transfer`]), whole databases or the server ([`Scope`]), so that whoever replays the log may go through the slots separately.
//! 2. Its effect depends on what it concerns and on the record's time alone: on no directive, limit, right or clock.

use crate::args::Args;
use crate::elder;
use crate::error::Result;
use crate::execute::key_positions;
use crate::generic::dump::exact_payload;
use crate::key_use::KeyFlags;
use crate::pieces::{Pieces, Progress, Words, has_field_times, is_large};
use crate::row::{Handler, Keys, Outcome, Row};
use keyspace::{Edit, Effects, Key, Object, Removal, ValueRef};
use value::number::{IntBuffer, format_i64};
use value::stream::Reads;
use wire::Request;

/// What an effect concerns. This is the whole list: whatever else a log holds is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The key at this position.
    Key(usize),
    /// Its key, of which it may name several if they are the same (LMOVE of a list to itself); different ones have effects of their own.
    /// XREADGROUP is here for the sake of older logs.
    OnlyKey,
    /// Two keys, of which one becomes what the other is: RENAME, MOVE, COPY, in the forms of [`crate::transfer::Transfer`].
    Transfer,
    /// Databases as wholes: FLUSHALL, FLUSHDB, SWAPDB.
    Databases,
    /// The database of what follows: SELECT.
    Selection,
    /// The libraries of functions: FUNCTION LOAD, DELETE, FLUSH, RESTORE.
    Libraries,
}

impl Scope {
    /// What a data command concerns as an effect. None: it never is one.
    pub fn of(row: &Row) -> Option<Scope> {
        match (row.handler, row.keys) {
            (Handler::Exclusive(_), _) => Some(Scope::Databases),
            _ if ["rename", "move", "copy"].contains(&row.name) => Some(Scope::Transfer),
            (Handler::BlockingWrite(_), Keys::Movable(_)) if row.name == "xreadgroup" => Some(Scope::OnlyKey),
            (Handler::Write(_) | Handler::BlockingWrite(_), Keys::Range { first, last, .. }) => {
                Some(if last == first as isize { Scope::Key(first) } else { Scope::OnlyKey })
            }
            _ => None,
        }
    }

    /// The position of an effect's one key; the effect is one of this row. None: it has none, or different ones.
    #[inline]
    pub fn key_position<H>(self, row: &Row<H>, effect: &Request<'_>) -> Option<usize> {
        match self {
            Scope::Key(position) => Some(position).filter(|position| *position < effect.len()),
            Scope::OnlyKey => only_key(row, effect),
            Scope::Transfer | Scope::Databases | Scope::Selection | Scope::Libraries => None,
        }
    }
}

fn only_key<H>(row: &Row<H>, effect: &Request<'_>) -> Option<usize> {
    let mut positions = Vec::new();
    key_positions(row.keys, effect, &mut positions);
    let first = *positions.first()?;
    let is_there = positions.iter().all(|position| *position < effect.len());
    let is_one = || positions.iter().all(|position| effect.arg(*position) == effect.arg(first));
    (is_there && is_one()).then_some(first)
}

/// What handlers say about their effects. None of it costs anything while nothing is logged.
impl Args<'_> {
    /// Whether effects are logged.
    #[inline]
    pub fn is_logged(&self) -> bool {
        self.effects.is_some()
    }

    /// Whether there may be replicas of Redis 5.0 to 6.2 (`repl-rdb-version`): what it comes down to is said in words that these know.
    pub(crate) fn is_for_redis50(&self) -> bool {
        self.settings.image_reads() == Reads::Redis50
    }

    /// Whether a request itself may be what it came down to: all who follow know it.
    #[inline]
    pub(crate) fn may_say(&self, request: &Request<'_>) -> bool {
        !self.is_for_redis50() || elder::unknown(request).is_none()
    }

    /// Says what the request came down to in the session's database, instead of the request itself. Requests that
    /// are said one after the other are logged together.
    #[inline]
    pub fn log_as(&self, words: &[&[u8]]) {
        if let Some(effects) = self.effects {
            effects.add(self.db, self.now, words.iter().copied());
        }
    }

    /// The same with a number as the last word.
    pub fn log_as_with(&self, words: &[&[u8]], number: i64) {
        if self.is_logged() {
            let digits = &mut IntBuffer::new();
            let all: Vec<&[u8]> = words.iter().copied().chain([format_i64(number, digits)]).collect();
            self.log_as(&all);
        }
    }

    /// Says that a key's expiry is what it is now; or that the key is gone.
    pub(crate) fn log_expiry(&self, edit: &Edit<'_>, key: &Key<'_>) {
        if !self.is_logged() {
            return;
        }
        match edit.peek(key).map(|object| object.expires_at()) {
            Some(Some(at)) => self.log_as_with(&[b"PEXPIREAT", key.bytes], at.0 as i64),
            Some(None) => self.log_as(&[b"PERSIST", key.bytes]),
            None => self.log_removal(key, Removal::Expiry),
        }
    }

    /// Says that a key is gone, which is not what the request asked for.
    pub(crate) fn log_removal(&self, key: &Key<'_>, removal: Removal) {
        self.log_as(&[self.keyspace.policy().removal(removal), key.bytes]);
    }

    /// Says that a key is what it is now, whatever it holds.
    pub(crate) fn log_image(&self, edit: &Edit<'_>, key: &Key<'_>) {
        if let Some(effects) = self.effects {
            add_image(effects, key, self, edit.peek(key), IN_ANY_PLACE);
        }
    }

    /// The same with these options of RESTORE. What does not replace says that there was nothing.
    pub(crate) fn log_restored(&self, edit: &Edit<'_>, key: &Key<'_>, options: &[&[u8]]) {
        if let Some(effects) = self.effects {
            add_image(effects, key, self, edit.peek(key), options);
        }
    }

    /// Says that a string is what it is now.
    pub(crate) fn log_string(&self, edit: &Edit<'_>, key: &Key<'_>) {
        self.log_string_until(edit, key, b"PXAT");
    }

    /// The same with the word for its expiry as the client wrote it.
    pub(crate) fn log_string_until(&self, edit: &Edit<'_>, key: &Key<'_>, pxat: &[u8]) {
        if !self.is_logged() {
            return;
        }
        let Some(object) = edit.peek(key) else { return self.log_removal(key, Removal::Expiry) };
        let expires_at = object.expires_at();
        let (digits, moment) = (&mut IntBuffer::new(), &mut IntBuffer::new());
        let value = match object.value() {
            ValueRef::Bytes(bytes) => bytes,
            ValueRef::Int(number) => format_i64(number, digits),
            ValueRef::Collection(_) => unreachable!("the handler has just set a string"),
        };
        match expires_at {
            None => self.log_as(&[b"SET", key.bytes, value]),
            Some(at) if self.is_for_redis50() => {
                self.log_as(&[b"SET", key.bytes, value]);
                self.log_as_with(&[b"PEXPIREAT", key.bytes], at.0 as i64);
            }
            Some(at) => self.log_as(&[b"SET", key.bytes, value, pxat, format_i64(at.0 as i64, moment)]),
        }
    }
}

/// Options of RESTORE, under which it makes a key what it says whatever it was.
const IN_ANY_PLACE: &[&[u8]] = &[b"REPLACE", b"ABSTTL"];

/// A key as it is: one request, unless the value is large; such a one is in any place.
fn add_image(
    effects: &Effects,
    key: &Key<'_>,
    args: &Args<'_>,
    object: Option<Object<'_>>,
    options: &[&[u8]],
) {
    let now = args.now;
    if let Some(object) = object {
        let pieces = Pieces::new(key.bytes, object, args.settings.piece_bytes());
        if is_large(object, args.settings.piece_bytes()) {
            return add_pieces(effects, key, args, pieces);
        }
        // No payload says times of fields to a replica that does not know them, and what does is told by its name.
        if has_field_times(object) {
            return add_pieces(effects, key, args, pieces.by_elements());
        }
    }
    let Some(object) = object else {
        effects.add(key.db, now, [&b"DEL"[..], key.bytes].into_iter());
        return;
    };
    let (digits, at) = (&mut IntBuffer::new(), object.expires_at().map_or(0, |at| at.0 as i64));
    let (payload, at) = (exact_payload(object.value(), args.settings.image_reads()), format_i64(at, digits));
    let words = [&[&b"RESTORE"[..], key.bytes, at, &payload], options].concat();
    effects.add(key.db, now, words.into_iter());
}

/// One word of a large value would have to be had as a whole by whoever reads the log.
#[cold]
fn add_pieces(effects: &Effects, key: &Key<'_>, args: &Args<'_>, pieces: Pieces<'_>) {
    let pieces = pieces.for_readers(args.settings.image_reads());
    let (mut progress, mut words) = (Progress::Nothing, Words::default());
    while progress != Progress::Everything {
        progress =
            pieces.say_next(progress, &mut words, &mut |words| effects.add(key.db, args.now, words.iter()));
    }
}

/// Whether the request itself is what a write came down to, unless its handler has said something else.
#[inline]
pub(crate) fn is_as_requested(keys: &[Key<'_>], outcome: &Result<Outcome>) -> bool {
    keys.len() == 1 && *outcome == Ok(Outcome::Changed)
}

/// Logs what any other write came down to; its slots are still locked.
pub(crate) fn log_write(
    row: &Row,
    edit: &Edit<'_>,
    keys: &[Key<'_>],
    args: &Args<'_>,
    outcome: &Result<Outcome>,
) {
    let Some(effects) = args.effects else { return };
    match outcome {
        Ok(Outcome::Changed) if !effects.end_command() => {
            for (number, key) in keys.iter().enumerate() {
                if !row.key_flags_of(number).contains(KeyFlags::RO) {
                    add_image(effects, key, args, edit.peek(key), IN_ANY_PLACE);
                }
            }
            effects.end_command();
        }
        // What a session changed before it began to wait is said, too.
        _ => {
            effects.end_command();
        }
    }
}

/// Logs a command on databases as a whole.
pub(crate) fn log_request(args: &Args<'_>) {
    if let Some(effects) = args.effects {
        if !args.may_say(&args.request) {
            // All that it has beyond its name is how memory is freed.
            args.log_as(&[args.bytes(0)]);
            effects.end_command();
            return;
        }
        effects.add(args.db, args.now, args.request.iter());
        effects.end_command();
    }
}
