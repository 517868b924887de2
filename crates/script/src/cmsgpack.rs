//! The table `cmsgpack`: MessagePack, with the behaviour of the library that Redis has.

use crate::arguments::{Arguments, number_of, to_integer};
use crate::engine::State;
use crate::gate;
use crate::limits::VALUES_MAX;
use crate::raise;
use mlua::{Function, Lua, MultiValue, Result, Table, Value};
use std::rc::Rc;

/// Tables inside tables; deeper ones are packed as nil.
const PACK_DEPTH_MAX: usize = 16;
/// Collections inside collections that are unpacked.
const UNPACK_DEPTH_MAX: usize = 1000;
/// Instructions in whose time a value is packed or unpacked.
const VALUE_WORK: usize = 30;

/// The table.
pub(crate) fn table(lua: &Lua, state: &Rc<State>) -> Result<Table> {
    let cmsgpack = lua.create_table()?;
    cmsgpack.raw_set("_NAME", "cmsgpack")?;
    cmsgpack.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    cmsgpack.raw_set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    let too_many = "bad argument #0 to 'pack' (Too many arguments for MessagePack pack.)";
    cmsgpack.raw_set("pack", gate::bounded(lua, pack_function(lua, state)?, too_many)?)?;
    let working = state.clone();
    let all = lua.create_function(move |lua, values: MultiValue| {
        unpack(&working, &Arguments::new(lua, &values), (0, 0))
    })?;
    cmsgpack.raw_set("unpack", all)?;
    let working = state.clone();
    let unpack_one = lua.create_function(move |lua, values: MultiValue| {
        let arguments = Arguments::new(lua, &values);
        let offset = arguments.integer_or(2, 0)?;
        unpack(&working, &arguments, (1, offset))
    })?;
    cmsgpack.raw_set("unpack_one", unpack_one)?;
    let working = state.clone();
    let unpack_limit = lua.create_function(move |lua, values: MultiValue| {
        let arguments = Arguments::new(lua, &values);
        let (limit, offset) = (arguments.integer(2)?, arguments.integer_or(3, 0)?);
        unpack(&working, &arguments, (limit, offset))
    })?;
    cmsgpack.raw_set("unpack_limit", unpack_limit)?;
    gate::few_in(lua, &cmsgpack, &["pack"])?;
    Ok(cmsgpack)
}

fn pack_function(lua: &Lua, state: &Rc<State>) -> Result<Function> {
    let state = state.clone();
    lua.create_function(move |lua, values: MultiValue| {
        if values.is_empty() {
            return Err(raise::bad_argument(lua, 0, "MessagePack pack needs input."));
        }
        let mut out = Vec::new();
        for value in &values {
            write(&state, &mut out, value, 0)?;
        }
        lua.create_string(out)
    })
}

fn write(state: &State, out: &mut Vec<u8>, value: &Value, depth: usize) -> Result<()> {
    raise::check_output(out.len())?;
    state.charge(VALUE_WORK)?;
    match value {
        Value::String(text) => write_string(out, &text.as_bytes()),
        Value::Boolean(value) => out.push(if *value { 0xc3 } else { 0xc2 }),
        Value::Integer(number) => write_integer(out, *number),
        Value::Number(number) => write_number(out, *number),
        Value::Table(table) if depth < PACK_DEPTH_MAX => return write_table(state, out, table, depth),
        _ => out.push(0xc0),
    }
    Ok(())
}

fn write_string(out: &mut Vec<u8>, text: &[u8]) {
    match text.len() {
        length @ 0..=31 => out.push(0xa0 | length as u8),
        length @ 32..=0xff => out.extend_from_slice(&[0xd9, length as u8]),
        length @ 0x100..=0xffff => write_tagged(out, 0xda, &(length as u16).to_be_bytes()),
        length => write_tagged(out, 0xdb, &(length as u32).to_be_bytes()),
    }
    out.extend_from_slice(text);
}

fn write_tagged(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    out.extend_from_slice(bytes);
}

fn write_number(out: &mut Vec<u8>, number: f64) {
    let integer = to_integer(number);
    if integer as f64 == number && number.is_finite() {
        write_integer(out, integer);
    } else if f64::from(number as f32) == number {
        write_tagged(out, 0xca, &(number as f32).to_be_bytes());
    } else {
        write_tagged(out, 0xcb, &number.to_be_bytes());
    }
}

fn write_integer(out: &mut Vec<u8>, number: i64) {
    match number {
        0..=0x7f => out.push(number as u8),
        0x80..=0xff => write_tagged(out, 0xcc, &[number as u8]),
        0x100..=0xffff => write_tagged(out, 0xcd, &(number as u16).to_be_bytes()),
        0x1_0000..=0xffff_ffff => write_tagged(out, 0xce, &(number as u32).to_be_bytes()),
        0x1_0000_0000.. => write_tagged(out, 0xcf, &number.to_be_bytes()),
        -32..=-1 => out.push(number as i8 as u8),
        -128..=-33 => write_tagged(out, 0xd0, &(number as i8).to_be_bytes()),
        -0x8000..=-129 => write_tagged(out, 0xd1, &(number as i16).to_be_bytes()),
        -0x8000_0000..=-0x8001 => write_tagged(out, 0xd2, &(number as i32).to_be_bytes()),
        _ => write_tagged(out, 0xd3, &number.to_be_bytes()),
    }
}

/// A table whose keys are exactly 1 to its length is an array, any other a map.
fn write_table(state: &State, out: &mut Vec<u8>, table: &Table, depth: usize) -> Result<()> {
    let (mut count, mut highest, mut is_array) = (0u32, 0f64, true);
    table.for_each(|key: Value, _: Value| {
        count += 1;
        match number_of(&key) {
            Some(key) if key > 0.0 && key.floor() == key => highest = highest.max(key),
            _ => is_array = false,
        }
        Ok(())
    })?;
    if is_array && highest == f64::from(count) {
        write_count(out, count, 0x90, 0xdc);
        for index in 1..=i64::from(count) {
            write(state, out, &table.raw_get(index)?, depth + 1)?;
        }
        return Ok(());
    }
    write_count(out, count, 0x80, 0xde);
    table.for_each(|key: Value, value: Value| {
        write(state, out, &key, depth + 1)?;
        write(state, out, &value, depth + 1)
    })
}

fn write_count(out: &mut Vec<u8>, count: u32, short: u8, long: u8) {
    match count {
        0..=15 => out.push(short | count as u8),
        16..=0xffff => write_tagged(out, long, &(count as u16).to_be_bytes()),
        _ => write_tagged(out, long + 1, &count.to_be_bytes()),
    }
}

/// Unpacks at most `limit` values from `offset` on, and says where it stopped; all of them if both are 0.
fn unpack(state: &State, arguments: &Arguments<'_>, (limit, offset): (i64, i64)) -> Result<MultiValue> {
    let lua = arguments.lua;
    let text = arguments.string(1)?;
    let bytes = text.as_bytes();
    let total = bytes.len() as i64;
    if offset < 0 || limit < 0 {
        let message =
            format!("Invalid request to unpack with offset of {} and limit of {total}.", offset as i32);
        return Err(raise::text(lua, message));
    }
    if offset > total {
        let message = format!("Start offset {} greater than input length {total}.", offset as i32);
        return Err(raise::text(lua, message));
    }
    let decodes_all = limit == 0 && offset == 0;
    let limit = if decodes_all { i64::MAX } else { limit };
    let mut cursor = Cursor { lua, state, rest: &bytes[offset as usize..] };
    let mut values = Vec::new();
    while !cursor.rest.is_empty() && (values.len() as i64) < limit {
        if values.len() >= VALUES_MAX {
            return Err(raise::text(
                lua,
                "stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)",
            ));
        }
        values.push(cursor.value(0).map_err(|failed| match failed {
            Failed::Format => raise::text(lua, "Bad data format in input."),
            Failed::Short => raise::text(lua, "Missing bytes in input."),
            Failed::Lua(error) => error,
        })?);
    }
    if !decodes_all {
        let at = if cursor.rest.is_empty() { -1 } else { total - cursor.rest.len() as i64 };
        values.insert(0, Value::Integer(at));
    }
    Ok(values.into_iter().collect())
}

enum Failed {
    Format,
    Short,
    Lua(mlua::Error),
}

impl From<mlua::Error> for Failed {
    fn from(error: mlua::Error) -> Failed {
        Failed::Lua(error)
    }
}

struct Cursor<'a> {
    lua: &'a Lua,
    state: &'a State,
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> std::result::Result<&'a [u8], Failed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Failed::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    /// A big-endian number of 1, 2, 4 or 8 bytes.
    fn unsigned(&mut self, bytes: usize) -> std::result::Result<u64, Failed> {
        Ok(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn value(&mut self, depth: usize) -> std::result::Result<Value, Failed> {
        if depth > UNPACK_DEPTH_MAX {
            return Err(Failed::Format);
        }
        self.state.charge(VALUE_WORK)?;
        let tag = self.take(1)?[0];
        let value = match tag {
            0..=0x7f => Value::Integer(i64::from(tag)),
            0xe0..=0xff => Value::Integer(i64::from(tag as i8)),
            0x80..=0x8f => return self.map(usize::from(tag & 15), depth),
            0x90..=0x9f => return self.array(usize::from(tag & 15), depth),
            0xa0..=0xbf => return self.string(usize::from(tag & 31)),
            0xc0 => Value::Nil,
            0xc2 => Value::Boolean(false),
            0xc3 => Value::Boolean(true),
            0xca => Value::Number(f64::from(f32::from_bits(self.unsigned(4)? as u32))),
            0xcb => Value::Number(f64::from_bits(self.unsigned(8)?)),
            // The last of them as if it had a sign.
            0xcc..=0xcf => Value::Number(self.unsigned(1 << (tag - 0xcc))? as i64 as f64),
            0xd0 => Value::Integer(i64::from(self.unsigned(1)? as i8)),
            0xd1 => Value::Integer(i64::from(self.unsigned(2)? as i16)),
            0xd2 => Value::Integer(i64::from(self.unsigned(4)? as i32)),
            0xd3 => Value::Number(self.unsigned(8)? as i64 as f64),
            0xd9..=0xdb => {
                let length = self.unsigned(1 << (tag - 0xd9))? as usize;
                return self.string(length);
            }
            0xdc | 0xdd => {
                let count = self.unsigned(2 << (tag - 0xdc))? as usize;
                return self.array(count, depth);
            }
            0xde | 0xdf => {
                let count = self.unsigned(2 << (tag - 0xde))? as usize;
                return self.map(count, depth);
            }
            _ => return Err(Failed::Format),
        };
        Ok(value)
    }

    fn string(&mut self, length: usize) -> std::result::Result<Value, Failed> {
        Ok(Value::String(self.lua.create_string(self.take(length)?)?))
    }

    fn array(&mut self, count: usize, depth: usize) -> std::result::Result<Value, Failed> {
        let table = self.lua.create_table()?;
        for index in 1..=count {
            let value = self.value(depth + 1)?;
            table.raw_seti(index, value)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, count: usize, depth: usize) -> std::result::Result<Value, Failed> {
        let table = self.lua.create_table()?;
        for _ in 0..count {
            let (key, value) = (self.value(depth + 1)?, self.value(depth + 1)?);
            let wrong = match number_of(&key) {
                _ if key.is_nil() => Some("table index is nil"),
                Some(number) if number.is_nan() => Some("table index is NaN"),
                _ => None,
            };
            if let Some(wrong) = wrong {
                return Err(Failed::Lua(raise::Raise::Text(wrong.into()).into()));
            }
            table.raw_set(key, value)?;
        }
        Ok(Value::Table(table))
    }
}
