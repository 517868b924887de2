//! The table `struct`: values to bytes and back by a format, with the behaviour of the library that Redis has.

use crate::arguments::{Arguments, c_text, to_integer};
use crate::gate;
use crate::limits::VALUES_MAX;
use crate::raise;
use mlua::{Lua, MultiValue, Result, Table, Value};

/// The largest alignment, and the widest integer.
const ALIGNMENT_MAX: usize = 16;
const INTEGER_BYTES_MAX: usize = 32;

/// The table.
pub(crate) fn table(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", gate::bounded(lua, lua.create_function(pack)?, "too many arguments")?)?;
    table.raw_set("unpack", lua.create_function(unpack)?)?;
    table.raw_set("size", lua.create_function(size)?)?;
    gate::few_in(lua, &table, &["pack"])?;
    Ok(table)
}

/// What one option stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Signed,
    Unsigned,
    Float,
    Double,
    Padding,
    /// A string that ends with a zero byte.
    Terminated,
    /// A string of a fixed number of bytes; 0: of as many as the number before says, or all of it.
    Fixed,
}

/// An option with its size, and with the bytes that align it.
struct Item {
    kind: Kind,
    bytes: usize,
    fill: usize,
}

/// Reads a format.
struct Format<'a> {
    arguments: &'a Arguments<'a>,
    text: &'a [u8],
    at: usize,
    is_little: bool,
    alignment: usize,
    /// Bytes that there are to be read.
    limit: Option<usize>,
    /// Letters that are no options stand for nothing where only the size is asked for.
    skips_unknown: bool,
}

impl<'a> Format<'a> {
    fn new(arguments: &'a Arguments<'a>, text: &'a [u8]) -> Format<'a> {
        let is_little = cfg!(target_endian = "little");
        Format { arguments, text, at: 0, is_little, alignment: 1, limit: None, skips_unknown: false }
    }

    fn number(&mut self) -> Result<Option<usize>> {
        let digits = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Ok(None);
        }
        let text = &self.text[self.at..self.at + digits];
        self.at += digits;
        match value::number::parse_u64(text.trim_ascii_start()).or_else(|| parse_padded(text)) {
            Some(number) if number <= i32::MAX as u64 => Ok(Some(number as usize)),
            _ => Err(raise::text(self.arguments.lua, "integral size overflow")),
        }
    }

    fn integer(&mut self) -> Result<usize> {
        let bytes = self.number()?.unwrap_or(size_of::<i32>());
        if bytes > INTEGER_BYTES_MAX {
            let message = format!("integral size {bytes} is larger than limit of {INTEGER_BYTES_MAX}");
            return Err(raise::text(self.arguments.lua, message));
        }
        Ok(bytes)
    }

    /// The next item that stands for bytes, which begins `total` bytes behind the start.
    fn next(&mut self, total: usize) -> Result<Option<Item>> {
        while let Some(&option) = self.text.get(self.at) {
            self.at += 1;
            let (kind, bytes) = match option {
                b'b' => (Kind::Signed, 1),
                b'B' => (Kind::Unsigned, 1),
                b'h' => (Kind::Signed, 2),
                b'H' => (Kind::Unsigned, 2),
                b'l' => (Kind::Signed, 8),
                b'L' | b'T' => (Kind::Unsigned, 8),
                b'f' => (Kind::Float, 4),
                b'd' => (Kind::Double, 8),
                b'x' => (Kind::Padding, 1),
                b's' => (Kind::Terminated, 0),
                b'c' => (Kind::Fixed, self.number()?.unwrap_or(1)),
                b'i' => (Kind::Signed, self.integer()?),
                b'I' => (Kind::Unsigned, self.integer()?),
                other => {
                    self.check(total, 0)?;
                    self.control(other)?;
                    continue;
                }
            };
            let fill = self.fill(kind, bytes, total);
            self.check(total.saturating_add(fill), bytes)?;
            return Ok(Some(Item { kind, bytes, fill }));
        }
        Ok(None)
    }

    /// Whether there are so many bytes from `at` on.
    fn check(&self, at: usize, bytes: usize) -> Result<()> {
        let is_short = self.limit.is_some_and(|limit| at.checked_add(bytes).is_none_or(|end| end > limit));
        if is_short { Err(self.arguments.bad(2, "data string too short")) } else { Ok(()) }
    }

    /// Obeys an option that stands for no bytes.
    fn control(&mut self, option: u8) -> Result<()> {
        match option {
            b' ' => {}
            b'>' => self.is_little = false,
            b'<' => self.is_little = true,
            b'!' => self.set_alignment()?,
            other if self.skips_unknown && other.is_ascii_alphanumeric() => {}
            other => {
                let message = [b"invalid format option '", &[other][..], b"'"].concat();
                return Err(self.arguments.bad(1, message));
            }
        }
        Ok(())
    }

    fn set_alignment(&mut self) -> Result<()> {
        let alignment = self.number()?.unwrap_or(ALIGNMENT_MAX.min(8));
        if alignment == 0 || !alignment.is_power_of_two() {
            let message = format!("alignment {alignment} is not a power of 2");
            return Err(raise::text(self.arguments.lua, message));
        }
        self.alignment = alignment;
        Ok(())
    }

    fn fill(&self, kind: Kind, bytes: usize, total: usize) -> usize {
        let alignment = bytes.min(self.alignment);
        match kind {
            Kind::Fixed | Kind::Terminated | Kind::Padding => 0,
            _ if alignment > 1 && alignment.is_power_of_two() => {
                (alignment - (total & (alignment - 1))) & (alignment - 1)
            }
            _ => 0,
        }
    }
}

fn parse_padded(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}

fn pack(lua: &Lua, mut values: MultiValue) -> Result<mlua::String> {
    // A value that is missing behind the format is taken for one that is nil.
    if !values.is_empty() {
        values.push_back(Value::Nil);
    }
    let arguments = Arguments::new(lua, &values);
    let text = c_text(&arguments.string(1)?.as_bytes()).to_vec();
    let mut format = Format::new(&arguments, &text);
    let mut out: Vec<u8> = Vec::new();
    let mut number = 2;
    while let Some(item) = format.next(out.len())? {
        raise::check_output(out.len())?;
        out.resize(out.len() + item.fill, 0);
        match item.kind {
            Kind::Padding => {
                out.push(0);
                continue;
            }
            Kind::Signed | Kind::Unsigned => {
                let value = to_wide_integer(arguments.number(number)?);
                write_integer(&mut out, value, item.bytes, format.is_little);
            }
            Kind::Float => {
                let bytes = (arguments.number(number)? as f32).to_le_bytes();
                write_bytes(&mut out, &bytes, format.is_little);
            }
            Kind::Double => {
                write_bytes(&mut out, &arguments.number(number)?.to_le_bytes(), format.is_little);
            }
            Kind::Terminated => {
                out.extend_from_slice(&arguments.string(number)?.as_bytes());
                out.push(0);
            }
            Kind::Fixed => {
                let text = arguments.string(number)?;
                let text = text.as_bytes();
                let bytes = if item.bytes == 0 { text.len() } else { item.bytes };
                let part = text.get(..bytes).ok_or_else(|| arguments.bad(number + 1, "string too short"))?;
                out.extend_from_slice(part);
            }
        }
        number += 1;
    }
    lua.create_string(out)
}

/// A float as an integer; beyond the signed ones, as an unsigned one.
fn to_wide_integer(value: f64) -> i64 {
    const SIGNED_END: f64 = 9_223_372_036_854_775_808.0;
    if value >= 2.0 * SIGNED_END {
        0
    } else if value >= SIGNED_END {
        value as u64 as i64
    } else {
        to_integer(value)
    }
}

fn write_integer(out: &mut Vec<u8>, value: i64, bytes: usize, is_little: bool) {
    let start = out.len();
    out.extend((0..bytes).map(|at| if at < 8 { (value >> (8 * at)) as u8 } else { 0 }));
    if !is_little {
        out[start..].reverse();
    }
}

fn write_bytes(out: &mut Vec<u8>, little: &[u8], is_little: bool) {
    let start = out.len();
    out.extend_from_slice(little);
    if !is_little {
        out[start..].reverse();
    }
}

fn unpack(lua: &Lua, values: MultiValue) -> Result<MultiValue> {
    let arguments = Arguments::new(lua, &values);
    let text = c_text(&arguments.string(1)?.as_bytes()).to_vec();
    let data = arguments.string(2)?;
    let data = data.as_bytes();
    let position = arguments.integer_or(3, 1)?;
    // As in C: a negative position is far behind the end.
    let Some(mut at) = (position as usize).checked_sub(1) else {
        return Err(arguments.bad(3, "offset must be 1 or greater"));
    };
    let mut format = Format { limit: Some(data.len()), ..Format::new(&arguments, &text) };
    let mut found: Vec<Value> = Vec::new();
    while let Some(item) = format.next(at)? {
        if found.len() >= VALUES_MAX {
            return Err(raise::text(lua, "stack overflow (too many results)"));
        }
        at = at.saturating_add(item.fill);
        let too_short = || arguments.bad(2, "data string too short");
        let mut bytes = item.bytes;
        if item.kind == Kind::Fixed && bytes == 0 {
            let count = found.pop().map(|value| lua.coerce_number(value)).transpose()?.flatten();
            let Some(count) = count else {
                return Err(raise::text(lua, "format 'c0' needs a previous size"));
            };
            bytes = to_integer(count) as usize;
        }
        let end = at.checked_add(bytes).ok_or_else(too_short)?;
        let part = data.get(at..end).ok_or_else(too_short)?;
        at = end;
        match item.kind {
            Kind::Padding => {}
            Kind::Signed | Kind::Unsigned => {
                let number = read_integer(part, format.is_little, item.kind == Kind::Signed);
                found.push(Value::Number(number));
            }
            Kind::Float => {
                let bytes = little(part, format.is_little);
                found.push(Value::Number(f64::from(f32::from_bits(bytes as u32))));
            }
            Kind::Double => found.push(Value::Number(f64::from_bits(little(part, format.is_little)))),
            Kind::Terminated => {
                let rest = &data[at..];
                let Some(length) = rest.iter().position(|byte| *byte == 0) else {
                    return Err(raise::text(lua, "unfinished string in data"));
                };
                found.push(Value::String(lua.create_string(&rest[..length])?));
                at += length + 1;
            }
            Kind::Fixed => found.push(Value::String(lua.create_string(part)?)),
        }
    }
    found.push(Value::Integer((at as i64).wrapping_add(1)));
    Ok(found.into_iter().collect())
}

/// The low eight bytes of a number.
fn little(bytes: &[u8], is_little: bool) -> u64 {
    let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    if is_little { bytes.iter().rev().fold(0, add) } else { bytes.iter().fold(0, add) }
}

fn read_integer(bytes: &[u8], is_little: bool, is_signed: bool) -> f64 {
    let number = little(bytes, is_little);
    if !is_signed {
        return number as f64;
    }
    // Of more than eight bytes the sign is looked for as the machines that Redis runs on shift: by the count modulo 64.
    let sign_and_above = u64::MAX << ((8 * bytes.len()).wrapping_sub(1) & 63);
    let extended = if number & sign_and_above == 0 { number } else { number | sign_and_above };
    extended as i64 as f64
}

fn size(lua: &Lua, values: MultiValue) -> Result<i64> {
    let arguments = Arguments::new(lua, &values);
    let text = c_text(&arguments.string(1)?.as_bytes()).to_vec();
    let mut format = Format { skips_unknown: true, ..Format::new(&arguments, &text) };
    let mut total = 0usize;
    while let Some(item) = format.next(total)? {
        if item.kind == Kind::Terminated || (item.kind == Kind::Fixed && item.bytes == 0) {
            let option = if item.kind == Kind::Terminated { "s" } else { "c0" };
            return Err(arguments.bad(1, format!("option '{option}' has no fixed size")));
        }
        total = total.saturating_add(item.fill).saturating_add(item.bytes);
    }
    Ok(total as i64)
}
