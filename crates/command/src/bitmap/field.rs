//! BITFIELD: integers of 1 to 64 bits at any offset within a string.
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
use crate::parse::int;
use crate::row::Outcome;
use crate::string::Text;
use keyspace::{Edit, View};
use smallvec::SmallVec;
use wire::Reply;

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Encoding {
    signed: bool,
    /// 1 to 64; to 63 if unsigned.
    bits: u32,
}

impl Encoding {
    fn parse(text: &[u8]) -> Result<Encoding> {
        let (signed, bits_max, digits) = match text {
            [b'i', digits @ ..] => (true, 64, digits),
            [b'u', digits @ ..] => (false, 63, digits),
            _ => (false, 0, text),
        };
        let bits = value::number::parse_i64(digits).filter(|bits| (1..=bits_max).contains(bits));
        bits.map(|bits| Encoding { signed, bits: bits as u32 }).ok_or(Error::text(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
        ))
    }

    fn min(self) -> i128 {
        if self.signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    fn max(self) -> i128 {
        (1 << (self.bits - u32::from(self.signed))) - 1
    }

    /// The number that a field's bits stand for.
    fn number(self, raw: u64) -> i64 {
        let unused = 64 - self.bits;
        if self.signed { (raw << unused) as i64 >> unused } else { raw as i64 }
    }
}

/// What becomes of a number that does not fit its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    /// The high bits are dropped.
    Wrap,
    /// The nearest number that fits is taken.
    Saturate,
    /// Nothing is written and the reply is null.
    Fail,
}

impl Overflow {
    fn parse(text: &[u8]) -> Result<Overflow> {
        let all = [("WRAP", Overflow::Wrap), ("SAT", Overflow::Saturate), ("FAIL", Overflow::Fail)];
        let found = all.into_iter().find(|(word, _)| text.eq_ignore_ascii_case(word.as_bytes()));
        found.map(|(_, overflow)| overflow).ok_or(Error::text("ERR Invalid OVERFLOW type specified"))
    }

    /// The number to be written in place of `number`. None: the write fails.
    fn fit(self, number: i128, encoding: Encoding) -> Option<i64> {
        if (encoding.min()..=encoding.max()).contains(&number) {
            return Some(number as i64);
        }
        match self {
            Overflow::Wrap => Some(encoding.number(number as u64 & low_bits(encoding.bits))),
            Overflow::Saturate => Some(number.clamp(encoding.min(), encoding.max()) as i64),
            Overflow::Fail => None,
        }
    }
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
    encoding: Encoding,
    /// In bits.
    offset: u64,
    overflow: Overflow,
}

/// What a subcommand comes to.
struct Effect {
    /// None is null.
    reply: Option<i64>,
    /// The field's new bits, if they are not the old ones.
    write: Option<u64>,
}

impl Step {
    fn writes(&self) -> bool {
        self.action != Action::Get
    }

    /// How many bytes a string has that the field lies within.
    fn reach(&self) -> usize {
        ((self.offset + u64::from(self.encoding.bits)).div_ceil(8)) as usize
    }

    /// Redis takes a number that is so low that its distance to the field's maximum
    /// leaves 64 bits for one that is too high, and so the maximum for the nearest.
    fn saturates_upwards(&self, number: i64) -> bool {
        let distance = self.encoding.max() - i128::from(number);
        self.overflow == Overflow::Saturate && self.encoding.bits < 64 && distance > i128::from(i64::MAX)
    }

    fn run(&self, bytes: &[u8]) -> Effect {
        let raw = read(bytes, self.offset, self.encoding.bits);
        let old = self.encoding.number(raw);
        let wanted = match self.action {
            Action::Get => return Effect { reply: Some(old), write: None },
            // A negative number for an unsigned field counts as its 64 bits.
            Action::Set(new) if !self.encoding.signed => i128::from(new as u64),
            Action::Set(new) if self.saturates_upwards(new) => self.encoding.max(),
            Action::Set(new) => i128::from(new),
            Action::IncrBy(by) => i128::from(old) + i128::from(by),
        };
        let Some(new) = self.overflow.fit(wanted, self.encoding) else {
            return Effect { reply: None, write: None };
        };
        let new_raw = new as u64 & low_bits(self.encoding.bits);
        let reply = if matches!(self.action, Action::Set(_)) { old } else { new };
        Effect { reply: Some(reply), write: (new_raw != raw).then_some(new_raw) }
    }
}

/// The lowest `count` bits; `count` is 1 to 64.
fn low_bits(count: u32) -> u64 {
    u64::MAX >> (64 - count)
}

/// Where the field's bits lie: the first byte, how many bytes (at most 9), and how
/// many bits follow the field in the last one.
fn place(offset: u64, bits: u32) -> (usize, usize, u32) {
    let (first, end) = (offset / 8, (offset + u64::from(bits)).div_ceil(8));
    (first as usize, (end - first) as usize, (end * 8 - offset - u64::from(bits)) as u32)
}

/// The bits of a field; those beyond the string's end are 0.
fn read(bytes: &[u8], offset: u64, bits: u32) -> u64 {
    let (first, count, below) = place(offset, bits);
    let window = (first..first + count)
        .fold(0u128, |window, at| window << 8 | u128::from(bytes.get(at).copied().unwrap_or(0)));
    (window >> below) as u64 & low_bits(bits)
}

/// Writes the bits of a field that lies within the string.
fn write(bytes: &mut [u8], offset: u64, bits: u32, raw: u64) {
    let (first, count, below) = place(offset, bits);
    let (mask, new) = (u128::from(low_bits(bits)) << below, u128::from(raw) << below);
    for (distance, byte) in bytes[first..first + count].iter_mut().rev().enumerate() {
        let shift = 8 * distance;
        *byte = *byte & !((mask >> shift) as u8) | (new >> shift) as u8;
    }
}

/// The subcommands of a request.
fn parse(args: &Args<'_>) -> Result<SmallVec<[Step; 4]>> {
    let words = &args.request;
    let (mut steps, mut overflow, mut at) = (SmallVec::new(), Overflow::Wrap, 2);
    while at < words.len() {
        let behind = words.len() - at - 1;
        if args.is(at, "OVERFLOW") && behind >= 1 {
            overflow = Overflow::parse(words.arg(at + 1))?;
            at += 2;
            continue;
        }
        let writes = match behind {
            2.. if args.is(at, "GET") => false,
            3.. if args.is(at, "SET") || args.is(at, "INCRBY") => true,
            _ => return Err(Error::Syntax),
        };
        let encoding = Encoding::parse(words.arg(at + 1))?;
        let offset = bit_offset(args, words.arg(at + 2), OffsetForm::Fields(encoding.bits))?;
        let action = match writes {
            false => Action::Get,
            true if args.is(at, "SET") => Action::Set(int(words.arg(at + 3))?),
            true => Action::IncrBy(int(words.arg(at + 3))?),
        };
        steps.push(Step { action, encoding, offset, overflow });
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
    // Up to the first write that changes something, the string can stay as it is.
    let before = State::of(edit, &key, |bytes| {
        reply.array(steps.len());
        for (at, step) in steps.iter().enumerate() {
            let effect = step.run(bytes);
            if effect.write.is_some() {
                return at;
            }
            reply_number(effect.reply, reply);
        }
        steps.len()
    })?;
    let Some(reach) = reach else {
        edit.count_read(before.exists);
        return Ok(Outcome::Unchanged);
    };
    let len = before.len.max(reach);
    if before.seen == steps.len() && before.stays(len) {
        return Ok(Outcome::Unchanged);
    }
    let bytes = edit.bytes_mut(&key, len);
    for step in &steps[before.seen..] {
        let effect = step.run(bytes);
        if let Some(raw) = effect.write {
            write(bytes, step.offset, step.encoding.bits, raw);
        }
        reply_number(effect.reply, reply);
    }
    Ok(Outcome::Changed)
}

fn reply_number(number: Option<i64>, reply: &mut Reply<'_>) {
    match number {
        Some(number) => reply.int(number),
        None => reply.null(),
    }
}
