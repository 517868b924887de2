//! Strings as arrays of bits: the rows of Redis' bitmap group, and all handlers
//! but BITFIELD's (`field`) and BITOP's (`operation`). Bit 0 is the highest bit
//! of byte 0.
//!
//! Thread rule: handlers run on any worker, with their keys' slots locked.
//!
//! Invariants:
//! 1. No edit makes a string longer than `proto-max-bulk-len`, but for the 8 bytes
//!    of a field that begins there.
//! 2. A string that was edited has encoding "raw", whatever its length.

mod count;
mod field;
mod operation;

use crate::args::Args;
use crate::error::{Error, Result};
use crate::key_use::{EXCHANGES, KeyFlags, OVERWRITES, READS};
use crate::parse::int;
use crate::row::Handler::{Read, Write};
use crate::row::{Flags, Group, Handler, Keys, Outcome, Row};
use crate::string::Text;
use keyspace::{Class, Edit, Encoding, Key, View};
use value::bits::{Bit, get_bit, set_bit};
use wire::Reply;

/// The bitmap group.
pub const ROWS: &[Row] = &[
    row("bitcount", -2, Read(count::bitcount), Flags::empty())
        .complexity("O(N), N being the bytes looked at")
        .syntax("key [start end [BYTE | BIT]]")
        .summary("Counts the bits that are set in a string or a part of it."),
    row("bitfield", -2, Write(field::bitfield), Flags::DENYOOM)
        .since("3.2.0")
        .complexity("O(1) for each subcommand")
        .syntax(
            "key [GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] <SET encoding offset value | \
             INCRBY encoding offset increment> [GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] \
             <SET encoding offset value | INCRBY encoding offset increment> ...]]",
        )
        .key_flags(&[EXCHANGES.union(KeyFlags::VARIABLE_FLAGS)])
        .key_flags_by(field::bitfield_key_flags)
        .summary("Reads, sets and adds to integers of any width within a string."),
    row("bitfield_ro", -2, Read(field::bitfield_ro), Flags::FAST)
        .since("6.0.0")
        .complexity("O(1) for each subcommand")
        .syntax("key [GET encoding offset [GET encoding offset ...]]")
        .summary("Reads integers of any width within a string."),
    row("bitop", -4, Write(operation::bitop), Flags::DENYOOM)
        .keys(Keys::Range { first: 2, last: -1, step: 1 })
        .complexity("O(N), N being the length of the longest string")
        .syntax("<AND | OR | XOR | NOT> destkey key [key ...]")
        .key_flags(&[OVERWRITES, READS])
        .summary("Combines strings bit by bit and stores the result."),
    row("bitpos", -3, Read(count::bitpos), Flags::empty())
        .since("2.8.7")
        .complexity("O(N), N being the bytes looked at")
        .syntax("key bit [start [end [BYTE | BIT]]]")
        .summary("Finds the first bit that is set, or the first that is not."),
    row("getbit", 3, Read(getbit), Flags::FAST)
        .since("2.2.0")
        .syntax("key offset")
        .summary("Replies with one bit of a string."),
    row("setbit", 4, Write(setbit), Flags::DENYOOM)
        .since("2.2.0")
        .syntax("key offset value")
        .key_flags(&[EXCHANGES])
        .summary("Sets or clears one bit of a string and replies with what it was."),
];

/// A row of the group; its one key is argument 1 unless it says otherwise.
const fn row(name: &'static str, arity: i32, handler: Handler, flags: Flags) -> Row {
    crate::row::row(name, arity, handler).flags(flags).keys(Keys::FIRST).group(Group::Bitmap).since("2.6.0")
}

/// How an offset may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OffsetForm {
    /// In bits.
    Bits,
    /// In bits, or after `#` in fields of this many bits.
    Fields(u32),
}

/// The offset of a bit; its byte lies within the longest string allowed.
fn bit_offset(args: &Args<'_>, text: &[u8], form: OffsetForm) -> Result<u64> {
    let refusal = || Error::text("ERR bit offset is not an integer or out of range");
    let (digits, unit) = match (form, text) {
        (OffsetForm::Fields(bits), [b'#', digits @ ..]) => (digits, u64::from(bits)),
        _ => (text, 1),
    };
    let number = int(digits).ok().and_then(|number| u64::try_from(number).ok()).ok_or_else(refusal)?;
    let offset = number.checked_mul(unit).filter(|bits| i64::try_from(*bits).is_ok());
    offset.filter(|bits| bits / 8 < args.string_bytes_max()).ok_or_else(refusal)
}

/// GETBIT key offset
fn getbit(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let offset = bit_offset(args, args.bytes(2), OffsetForm::Bits)?;
    let mut digits = itoa::Buffer::new();
    let bytes = Text::of(view.get(&args.key(1)))?.map_or(&b""[..], |text| text.bytes(&mut digits));
    reply.int(number_of(get_bit(bytes, offset)));
    Ok(())
}

/// SETBIT key offset value
fn setbit(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let offset = bit_offset(args, args.bytes(2), OffsetForm::Bits)?;
    let bit = match args.bytes(3) {
        b"0" => Bit::Zero,
        b"1" => Bit::One,
        _ => return Err(Error::text("ERR bit is not an integer or out of range")),
    };
    let key = args.key(1);
    let before = State::of(edit, &key, |bytes| get_bit(bytes, offset))?;
    reply.int(number_of(before.seen));
    let len = before.len.max((offset / 8) as usize + 1);
    if before.seen == bit && before.stays(len) {
        return Ok(Outcome::Unchanged);
    }
    if before.seen == bit && before.only_becomes_raw(len) {
        edit.make_raw(&key, len);
        return Ok(Outcome::Changed);
    }
    set_bit(edit.bytes_mut(&key, len), offset, bit);
    edit.note(Class::STRING, "setbit", &key);
    Ok(Outcome::Changed)
}

fn number_of(bit: Bit) -> i64 {
    match bit {
        Bit::Zero => 0,
        Bit::One => 1,
    }
}

/// What a write finds at its key.
struct State<T> {
    /// What was asked about the string's bytes.
    seen: T,
    len: usize,
    exists: bool,
    raw: bool,
}

impl<T> State<T> {
    /// Looks at a key's string, which is empty if the key is not there.
    fn of(edit: &Edit<'_>, key: &Key<'_>, see: impl FnOnce(&[u8]) -> T) -> Result<State<T>> {
        let object = edit.get(key);
        let mut digits = itoa::Buffer::new();
        let bytes = Text::of(object)?.map_or(&b""[..], |text| text.bytes(&mut digits));
        let raw = object.is_some_and(|object| object.encoding() == Encoding::Raw);
        Ok(State { seen: see(bytes), len: bytes.len(), exists: object.is_some(), raw })
    }

    /// Whether a write of the same bits up to `len` would change nothing, not even
    /// the encoding.
    fn stays(&self, len: usize) -> bool {
        self.raw && self.only_becomes_raw(len)
    }

    /// Whether it would change the encoding at the most.
    fn only_becomes_raw(&self, len: usize) -> bool {
        self.exists && self.len >= len
    }
}
