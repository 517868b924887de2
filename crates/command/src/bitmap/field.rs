//! BITFIELD: integers of 1 to 64 bits at any offset within a string. `value::bitfield`
//! reads, fits and writes them.
//!
//! Thread rule: as for all handlers.
//!
//! Invariants:
//! 1. All subcommands are parsed before the first one runs.
//! 2. Each sees what those before it have written.
//! 3. A request whose writes change no bit, length or encoding edits nothing.

use super::{OffsetForm, State, bit_offset};
use crate::args::Args;
use crate::error::{Error, Result};
use crate::key_use::{KeyFlags, READS};
use crate::parse::int;
use crate::row::Outcome;
use crate::string::Text;
use keyspace::{Class, Edit, View};
use smallvec::SmallVec;
use value::bitfield::{FieldType, Overflow};
use wire::{Reply, Request};

fn field_type(text: &[u8]) -> Result<FieldType> {
    FieldType::parse(text).ok_or(Error::text(
        "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
    ))
}

fn overflow_of(text: &[u8]) -> Result<Overflow> {
    let all = [("WRAP", Overflow::Wrap), ("SAT", Overflow::Sat), ("FAIL", Overflow::Fail)];
    let found = all.into_iter().find(|(word, _)| text.eq_ignore_ascii_case(word.as_bytes()));
    found.map(|(_, overflow)| overflow).ok_or(Error::text("ERR Invalid OVERFLOW type specified"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Get,
    Set(i64),
    IncrBy(i64),
}

/// One subcommand.
#[derive(Clone, Copy, Debug)]
struct Step {
    action: Action,
    field: FieldType,
    /// In bits.
    offset: u64,
    overflow: Overflow,
}

/// What a subcommand comes to.
struct Effect {
    /// None is null.
    reply: Option<i64>,
    /// The field's new value, if it is not the old one.
    write: Option<i64>,
}

impl Step {
    fn writes(&self) -> bool {
        self.action != Action::Get
    }

    /// How many bytes a string has that the field lies within.
    fn reach(&self) -> usize {
        ((self.offset + u64::from(self.field.bits())).div_ceil(8)) as usize
    }

    fn run(&self, bytes: &[u8]) -> Effect {
        let old = self.field.get(bytes, self.offset);
        let new = match self.action {
            Action::Get => return Effect { reply: Some(old), write: None },
            Action::Set(new) => self.field.fit(new, self.overflow),
            Action::IncrBy(by) => self.field.fit_sum(old, by, self.overflow),
        };
        let Some(new) = new else {
            return Effect { reply: None, write: None };
        };
        let reply = if matches!(self.action, Action::Set(_)) { old } else { new };
        Effect { reply: Some(reply), write: (new != old).then_some(new) }
    }
}

/// The subcommands of a request.
fn parse(args: &Args<'_>) -> Result<SmallVec<[Step; 4]>> {
    let words = &args.request;
    let (mut steps, mut overflow, mut at) = (SmallVec::new(), Overflow::Wrap, 2);
    while at < words.len() {
        let behind = words.len() - at - 1;
        if args.is(at, "OVERFLOW") && behind >= 1 {
            overflow = overflow_of(words.arg(at + 1))?;
            at += 2;
            continue;
        }
        let writes = match behind {
            2.. if args.is(at, "GET") => false,
            3.. if args.is(at, "SET") || args.is(at, "INCRBY") => true,
            _ => return Err(Error::Syntax),
        };
        let field = field_type(words.arg(at + 1))?;
        let offset = bit_offset(args, words.arg(at + 2), OffsetForm::Fields(field.bits()))?;
        let action = match writes {
            false => Action::Get,
            true if args.is(at, "SET") => Action::Set(int(words.arg(at + 3))?),
            true => Action::IncrBy(int(words.arg(at + 3))?),
        };
        steps.push(Step { action, field, offset, overflow });
        at += if writes { 4 } else { 3 };
    }
    Ok(steps)
}

/// BITFIELD_RO key [GET encoding offset [GET encoding offset ...]]
pub(super) fn bitfield_ro(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let steps = parse(args)?;
    if steps.iter().any(Step::writes) {
        return Err(Error::text("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    let mut digits = itoa::Buffer::new();
    let bytes = Text::of(view.get(&args.key(1)))?.map_or(&b""[..], |text| text.bytes(&mut digits));
    reply.array(steps.len());
    for step in &steps {
        reply_number(step.run(bytes).reply, reply);
    }
    Ok(())
}

/// BITFIELD key [GET ... | [OVERFLOW ...] <SET ... | INCRBY ...> ...]
pub(super) fn bitfield(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let steps = parse(args)?;
    let key = args.key(1);
    let reach = steps.iter().filter(|step| step.writes()).map(Step::reach).max();
    // Whether any write did not fail.
    let mut writes = false;
    // Up to the first write that changes something, the string can stay as it is.
    let before = State::of(edit, &key, |bytes| {
        reply.array(steps.len());
        for (at, step) in steps.iter().enumerate() {
            let effect = step.run(bytes);
            if effect.write.is_some() {
                return at;
            }
            writes |= step.writes() && effect.reply.is_some();
            reply_number(effect.reply, reply);
        }
        steps.len()
    })?;
    let Some(reach) = reach else {
        edit.count_read(&key, before.exists);
        return Ok(Outcome::Unchanged);
    };
    let len = before.len.max(reach);
    if before.seen == steps.len() && before.stays(len) {
        return Ok(Outcome::Unchanged);
    }
    if before.seen == steps.len() && before.only_becomes_raw(len) {
        edit.make_raw(&key, len);
        return Ok(Outcome::Changed);
    }
    let bytes = edit.bytes_mut(&key, len);
    for step in &steps[before.seen..] {
        let effect = step.run(bytes);
        if let Some(new) = effect.write {
            step.field.set(bytes, step.offset, new);
        }
        writes |= step.writes() && effect.reply.is_some();
        reply_number(effect.reply, reply);
    }
    if writes {
        // Where every write failed the string has grown all the same, without an event.
        edit.note(Class::STRING, "setbit", &key);
    }
    Ok(Outcome::Changed)
}

fn reply_number(number: Option<i64>, reply: &mut Reply<'_>) {
    match number {
        Some(number) => reply.int(number),
        None => reply.null(),
    }
}

/// BITFIELD's key flags: a request that only reads needs no more.
pub(super) fn bitfield_key_flags(request: &Request<'_>) -> Option<KeyFlags> {
    only_reads_bits(request).then_some(READS)
}

/// Whether a BITFIELD consists of GET and OVERFLOW alone; what is not understood may write.
fn only_reads_bits(request: &Request<'_>) -> bool {
    let mut at = 2;
    while let Some(word) = request.get(at) {
        let behind = request.len() - at - 1;
        at += match word {
            _ if word.eq_ignore_ascii_case(b"get") && behind >= 2 => 3,
            _ if word.eq_ignore_ascii_case(b"overflow") && behind >= 1 => 2,
            _ => return false,
        };
    }
    true
}
