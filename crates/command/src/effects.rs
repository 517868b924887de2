//! What writes come down to, for the log: requests that have the same effect at any later time.
//!
//! On a command's path this comes between the handler and the unlocking of its slots ([`crate::execute`]), so that
//! effects stand in the order in which each key changed. A handler whose request would not have the same effect again
//! (a random pick, a time to live, a choice among keys) says what it came down to ([`Args::log_as`]). Of all others
//! the request itself is logged if it has one key, and else the keys that it writes as they are afterwards.
//!
//! Thread rule: one per worker.
//!
//! Invariants:
//! 1. Every request in the log works on one key, or on a database as a whole, so that whoever replays the log may
//!    go through the slots separately.
//! 2. Its effect depends on that key and on the record's time alone.
//! 3. What was executed together (a command, a transaction, a script) is one record.

use crate::args::Args;
use crate::error::Result;
use crate::generic::dump::payload;
use crate::key_use::KeyFlags;
use crate::row::{Outcome, Row};
use keyspace::{DbIndex, Edit, Key, Object, ValueRef};
use std::cell::RefCell;
use sys::UnixMs;
use value::number::{IntBuffer, format_i64};
use wire::{encode_arg, encode_request_header};

/// Takes what was executed. The log, or a test.
pub trait EffectLog {
    /// Takes RESP requests that were executed together at `now`, the first of them in `db`; SELECT stands
    /// between those of different databases. The slots of their keys are held.
    fn append(&self, db: DbIndex, now: UnixMs, requests: &[u8]);
}

/// The effects of one worker on their way to the log.
pub struct Effects<'l> {
    log: &'l dyn EffectLog,
    pending: RefCell<Pending>,
}

#[derive(Default)]
struct Pending {
    requests: Vec<u8>,
    first: DbIndex,
    last: DbIndex,
    is_group: bool,
    /// By the command that runs.
    has_said: bool,
}

impl<'l> Effects<'l> {
    /// Those that go to this log.
    pub fn new(log: &'l dyn EffectLog) -> Effects<'l> {
        Effects { log, pending: RefCell::default() }
    }

    /// All that follows is one record, until [`Effects::end_group`].
    pub fn begin_group(&self) {
        self.pending.borrow_mut().is_group = true;
    }

    /// Hands over what was executed since [`Effects::begin_group`]. The slots are still held.
    pub fn end_group(&self, now: UnixMs) {
        self.pending.borrow_mut().is_group = false;
        self.settle(now);
    }

    fn add<'w>(&self, db: DbIndex, words: impl ExactSizeIterator<Item = &'w [u8]>) {
        let pending = &mut *self.pending.borrow_mut();
        if pending.requests.is_empty() {
            pending.first = db;
        } else if pending.last != db {
            let number = &mut IntBuffer::new();
            let words = [&b"SELECT"[..], format_i64(i64::from(db.0), number)];
            encode(&mut pending.requests, words.into_iter());
        }
        pending.last = db;
        pending.has_said = true;
        encode(&mut pending.requests, words);
    }

    /// Whether the command that runs has said something.
    fn has_said(&self) -> bool {
        self.pending.borrow().has_said
    }

    /// Hands over what one command came down to, unless it is part of a group.
    fn settle(&self, now: UnixMs) {
        let pending = &mut *self.pending.borrow_mut();
        pending.has_said = false;
        if !pending.is_group && !pending.requests.is_empty() {
            self.log.append(pending.first, now, &pending.requests);
            pending.requests.clear();
        }
    }
}

/// What handlers say about their effects. None of it costs anything while nothing is logged.
impl Args<'_> {
    /// Whether effects are logged.
    #[inline]
    pub fn is_logged(&self) -> bool {
        self.effects.is_some()
    }

    /// Says what the request came down to in the session's database, instead of the request itself. Requests that
    /// are said one after the other are logged together.
    #[inline]
    pub fn log_as(&self, words: &[&[u8]]) {
        if let Some(effects) = self.effects {
            effects.add(self.db, words.iter().copied());
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
            None => self.log_as(&[b"DEL", key.bytes]),
        }
    }

    /// Says that a key is what it is now, whatever it holds.
    pub(crate) fn log_image(&self, edit: &Edit<'_>, key: &Key<'_>) {
        if let Some(effects) = self.effects {
            add_image(effects, key, edit.peek(key));
        }
    }

    /// Says that a string is what it is now.
    pub(crate) fn log_string(&self, edit: &Edit<'_>, key: &Key<'_>) {
        if !self.is_logged() {
            return;
        }
        let Some(object) = edit.peek(key) else { return self.log_as(&[b"DEL", key.bytes]) };
        let (digits, moment) = (&mut IntBuffer::new(), &mut IntBuffer::new());
        let value = match object.value() {
            ValueRef::Bytes(bytes) => bytes,
            ValueRef::Int(number) => format_i64(number, digits),
            ValueRef::Collection(_) => unreachable!("the handler has just set a string"),
        };
        match object.expires_at() {
            None => self.log_as(&[b"SET", key.bytes, value]),
            Some(at) => self.log_as(&[b"SET", key.bytes, value, b"PXAT", format_i64(at.0 as i64, moment)]),
        }
    }
}

fn encode<'w>(out: &mut Vec<u8>, words: impl ExactSizeIterator<Item = &'w [u8]>) {
    encode_request_header(out, words.len());
    words.for_each(|word| encode_arg(out, word));
}

/// A key as it is, by a request that makes it so whatever it was.
fn add_image(effects: &Effects<'_>, key: &Key<'_>, object: Option<Object<'_>>) {
    let Some(object) = object else {
        effects.add(key.db, [&b"DEL"[..], key.bytes].into_iter());
        return;
    };
    let (digits, at) = (&mut IntBuffer::new(), object.expires_at().map_or(0, |at| at.0 as i64));
    let (payload, at) = (payload(object), format_i64(at, digits));
    let words = [&b"RESTORE"[..], key.bytes, at, &payload, b"REPLACE", b"ABSTTL"];
    effects.add(key.db, words.into_iter());
}

/// Logs what a write came down to; its slots are still locked.
pub(crate) fn log_write(
    row: &Row,
    edit: &Edit<'_>,
    keys: &[Key<'_>],
    args: &Args<'_>,
    outcome: &Result<Outcome>,
) {
    let Some(effects) = args.effects else { return };
    // What a session changed before it began to wait is said, too.
    if matches!(outcome, Ok(Outcome::Changed)) && !effects.has_said() {
        match keys {
            [_] => effects.add(args.db, args.request.iter()),
            keys => {
                for (number, key) in keys.iter().enumerate() {
                    if !row.key_flags_of(number).contains(KeyFlags::RO) {
                        add_image(effects, key, edit.peek(key));
                    }
                }
            }
        }
    }
    effects.settle(args.now);
}

/// Logs a command on databases as a whole.
pub(crate) fn log_request(args: &Args<'_>) {
    if let Some(effects) = args.effects {
        effects.add(args.db, args.request.iter());
        effects.settle(args.now);
    }
}
