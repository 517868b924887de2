//! The table `cjson`: JSON to Lua's values and back, with the behaviour and the words of the library that Redis has.

use crate::arguments::{Arguments, number_of, to_integer, type_name};
use crate::engine::State;
use crate::limits::JSON_DEPTH_MAX;
use crate::raise;
use mlua::{Lua, MultiValue, Result, Table, Value};
use std::cell::Cell;
use std::rc::Rc;

mod decode;
mod number;

/// The settings of the table that all scripts find. Every run begins with the defaults.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings(Rc<Choices>);

/// What scripts may set.
#[derive(Clone, Debug)]
struct Choices {
    sparse_convert: Cell<bool>,
    sparse_ratio: Cell<i64>,
    sparse_safe: Cell<i64>,
    encode_depth_max: Cell<i64>,
    decode_depth_max: Cell<i64>,
    precision: Cell<i64>,
    keeps_buffer: Cell<bool>,
    encode_invalid: Cell<Invalid>,
    decode_invalid: Cell<bool>,
}

/// What becomes of NaN and infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Invalid {
    Refused,
    Written,
    Null,
}

impl Default for Choices {
    fn default() -> Choices {
        Choices {
            sparse_convert: Cell::new(false),
            sparse_ratio: Cell::new(2),
            sparse_safe: Cell::new(10),
            encode_depth_max: Cell::new(1000),
            decode_depth_max: Cell::new(1000),
            precision: Cell::new(14),
            keeps_buffer: Cell::new(true),
            encode_invalid: Cell::new(Invalid::Refused),
            decode_invalid: Cell::new(true),
        }
    }
}

impl Settings {
    /// Back to the defaults.
    pub fn reset(&self) {
        let (choices, defaults) = (&self.0, Choices::default());
        choices.sparse_convert.set(defaults.sparse_convert.get());
        choices.sparse_ratio.set(defaults.sparse_ratio.get());
        choices.sparse_safe.set(defaults.sparse_safe.get());
        choices.encode_depth_max.set(defaults.encode_depth_max.get());
        choices.decode_depth_max.set(defaults.decode_depth_max.get());
        choices.precision.set(defaults.precision.get());
        choices.keeps_buffer.set(defaults.keeps_buffer.get());
        choices.encode_invalid.set(defaults.encode_invalid.get());
        choices.decode_invalid.set(defaults.decode_invalid.get());
    }
}

/// The table.
pub(crate) fn table(lua: &Lua, state: &State) -> Result<Table> {
    with_choices(lua, &state.json.0)
}

/// A table. Its function `new` makes more of its kind, each with choices of its own.
fn with_choices(lua: &Lua, choices: &Rc<Choices>) -> Result<Table> {
    let cjson = lua.create_table()?;
    cjson.raw_set("null", Value::NULL)?;
    cjson.raw_set("_NAME", "cjson")?;
    cjson.raw_set("_VERSION", "2.1.0")?;
    let encoding = choices.clone();
    let encode = lua.create_function(move |lua, values: MultiValue| {
        let arguments = Arguments::new(lua, "encode", &values);
        if arguments.len() != 1 {
            return Err(arguments.bad(1, "expected 1 argument"));
        }
        let mut encoder = Encoder { lua, choices: &encoding, out: Vec::new() };
        encoder.value(arguments.get(1), 0)?;
        lua.create_string(encoder.out)
    })?;
    cjson.raw_set("encode", encode)?;
    let decoding = choices.clone();
    let decode = lua.create_function(move |lua, values: MultiValue| {
        let arguments = Arguments::new(lua, "decode", &values);
        if arguments.len() != 1 {
            return Err(arguments.bad(1, "expected 1 argument"));
        }
        let text = arguments.string(1)?;
        let rules = decode::Rules {
            depth_max: decoding.decode_depth_max.get().min(JSON_DEPTH_MAX),
            allows_invalid: decoding.decode_invalid.get(),
        };
        decode::decode(lua, &text.as_bytes(), rules).map_err(|message| match message {
            decode::Failed::Text(text) => raise::text(lua, text),
            decode::Failed::Lua(error) => error,
        })
    })?;
    cjson.raw_set("decode", decode)?;
    add_settings(lua, &cjson, choices)?;
    let new = lua.create_function(|lua, _: MultiValue| with_choices(lua, &Rc::default()))?;
    cjson.raw_set("new", new)?;
    crate::gate::few_in(lua, &cjson, &[])?;
    Ok(cjson)
}

type IntegerSetting = fn(&Choices) -> &Cell<i64>;

fn add_settings(lua: &Lua, cjson: &Table, choices: &Rc<Choices>) -> Result<()> {
    let integers: [(&'static str, IntegerSetting, i64); 3] = [
        ("encode_max_depth", |choices| &choices.encode_depth_max, i64::from(i32::MAX)),
        ("decode_max_depth", |choices| &choices.decode_depth_max, i64::from(i32::MAX)),
        ("encode_number_precision", |choices| &choices.precision, 14),
    ];
    for (name, cell, max) in integers {
        let choices = choices.clone();
        let function = lua.create_function(move |lua, values: MultiValue| {
            let arguments = at_most(lua, name, &values, 1)?;
            integer_option(&arguments, 1, cell(&choices), 1, max)
        })?;
        cjson.raw_set(name, function)?;
    }
    let sparse = choices.clone();
    let function = lua.create_function(move |lua, values: MultiValue| {
        let (arguments, json) = (at_most(lua, "encode_sparse_array", &values, 3)?, &sparse);
        bool_option(&arguments, 1, &json.sparse_convert)?;
        integer_option(&arguments, 2, &json.sparse_ratio, 0, i64::from(i32::MAX))?;
        integer_option(&arguments, 3, &json.sparse_safe, 0, i64::from(i32::MAX))?;
        Ok((json.sparse_convert.get(), json.sparse_ratio.get(), json.sparse_safe.get()))
    })?;
    cjson.raw_set("encode_sparse_array", function)?;
    let keeping = choices.clone();
    let function = lua.create_function(move |lua, values: MultiValue| {
        bool_option(&at_most(lua, "encode_keep_buffer", &values, 1)?, 1, &keeping.keeps_buffer)
    })?;
    cjson.raw_set("encode_keep_buffer", function)?;
    let decoding = choices.clone();
    let function = lua.create_function(move |lua, values: MultiValue| {
        bool_option(&at_most(lua, "decode_invalid_numbers", &values, 1)?, 1, &decoding.decode_invalid)
    })?;
    cjson.raw_set("decode_invalid_numbers", function)?;
    let encoding = choices.clone();
    let function = lua.create_function(move |lua, values: MultiValue| {
        let arguments = at_most(lua, "encode_invalid_numbers", &values, 1)?;
        let cell = &encoding.encode_invalid;
        match arguments.get(1) {
            Value::Nil => {}
            Value::Boolean(on) => cell.set(if *on { Invalid::Written } else { Invalid::Refused }),
            _ => match &*arguments.string(1)?.as_bytes() {
                b"off" => cell.set(Invalid::Refused),
                b"on" => cell.set(Invalid::Written),
                b"null" => cell.set(Invalid::Null),
                other => {
                    let message = format!("invalid option '{}'", String::from_utf8_lossy(other));
                    return Err(arguments.bad(1, &message));
                }
            },
        }
        Ok(match cell.get() {
            Invalid::Refused => Value::Boolean(false),
            Invalid::Written => Value::Boolean(true),
            Invalid::Null => Value::String(lua.create_string("null")?),
        })
    })?;
    cjson.raw_set("encode_invalid_numbers", function)
}

fn at_most<'a>(
    lua: &'a Lua,
    name: &'static str,
    values: &'a MultiValue,
    most: usize,
) -> Result<Arguments<'a>> {
    let arguments = Arguments::new(lua, name, values);
    if arguments.len() > most {
        return Err(arguments.bad(most + 1, "found too many arguments"));
    }
    Ok(arguments)
}

fn integer_option(
    arguments: &Arguments<'_>,
    number: usize,
    cell: &Cell<i64>,
    min: i64,
    max: i64,
) -> Result<i64> {
    if arguments.is_given(number) {
        let value = arguments.integer(number)?;
        if !(min..=max).contains(&value) {
            return Err(arguments.bad(number, &format!("expected integer between {min} and {max}")));
        }
        cell.set(value);
    }
    Ok(cell.get())
}

fn bool_option(arguments: &Arguments<'_>, number: usize, cell: &Cell<bool>) -> Result<bool> {
    match arguments.get(number) {
        Value::Nil => {}
        Value::Boolean(on) => cell.set(*on),
        _ => match &*arguments.string(number)?.as_bytes() {
            b"off" => cell.set(false),
            b"on" => cell.set(true),
            other => {
                let message = format!("invalid option '{}'", String::from_utf8_lossy(other));
                return Err(arguments.bad(number, &message));
            }
        },
    }
    Ok(cell.get())
}

struct Encoder<'a> {
    lua: &'a Lua,
    choices: &'a Choices,
    out: Vec<u8>,
}

impl Encoder<'_> {
    fn value(&mut self, value: &Value, depth: i64) -> Result<()> {
        raise::check_output(self.out.len())?;
        match value {
            Value::String(text) => self.string(&text.as_bytes()),
            Value::Integer(number) => self.number(*number as f64)?,
            Value::Number(number) => self.number(*number)?,
            Value::Boolean(true) => self.out.extend_from_slice(b"true"),
            Value::Boolean(false) => self.out.extend_from_slice(b"false"),
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::Table(table) => self.table(table, depth + 1)?,
            Value::LightUserData(pointer) if pointer.0.is_null() => self.out.extend_from_slice(b"null"),
            other => return Err(self.refused(other, "type not supported")),
        }
        Ok(())
    }

    fn refused(&self, value: &Value, why: &str) -> mlua::Error {
        raise::text(self.lua, format!("Cannot serialise {}: {why}", type_name(value)))
    }

    fn table(&mut self, table: &Table, depth: i64) -> Result<()> {
        if depth > self.choices.encode_depth_max.get().min(JSON_DEPTH_MAX) {
            return Err(raise::text(self.lua, format!("Cannot serialise, excessive nesting ({depth})")));
        }
        match self.array_length(table)? {
            Some(length) => self.array(table, length, depth),
            None => self.object(table, depth),
        }
    }

    /// The length of a table that is an array: all its keys are positive integers, and most of those up to the
    /// highest one are there.
    fn array_length(&self, table: &Table) -> Result<Option<i64>> {
        let (mut highest, mut count, mut is_array) = (0, 0i64, true);
        table.for_each(|key: Value, _: Value| {
            match number_of(&key) {
                Some(key) if !matches!(key, 0.0) && key > 0.0 && key.floor() == key && is_array => {
                    highest = highest.max(to_integer(key));
                    count += 1;
                }
                _ => is_array = false,
            }
            Ok(())
        })?;
        if !is_array || count == 0 {
            return Ok(None);
        }
        let choices = self.choices;
        let (ratio, safe) = (choices.sparse_ratio.get(), choices.sparse_safe.get());
        if ratio > 0 && highest > count.saturating_mul(ratio) && highest > safe {
            if !choices.sparse_convert.get() {
                let table = Value::Table(table.clone());
                return Err(self.refused(&table, "excessively sparse array"));
            }
            return Ok(None);
        }
        Ok(Some(highest))
    }

    fn array(&mut self, table: &Table, length: i64, depth: i64) -> Result<()> {
        self.out.push(b'[');
        for index in 1..=length {
            if index > 1 {
                self.out.push(b',');
            }
            self.value(&table.raw_get(index)?, depth)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, table: &Table, depth: i64) -> Result<()> {
        self.out.push(b'{');
        let mut is_first = true;
        table.for_each(|key: Value, value: Value| {
            if !std::mem::take(&mut is_first) {
                self.out.push(b',');
            }
            match &key {
                Value::String(text) => self.string(&text.as_bytes()),
                Value::Integer(_) | Value::Number(_) => {
                    self.out.push(b'"');
                    self.number(number_of(&key).unwrap_or_default())?;
                    self.out.push(b'"');
                }
                other => return Err(self.refused(other, "table key must be a number or string")),
            }
            self.out.push(b':');
            self.value(&value, depth)
        })?;
        self.out.push(b'}');
        Ok(())
    }

    fn number(&mut self, number: f64) -> Result<()> {
        if !number.is_finite() {
            match self.choices.encode_invalid.get() {
                Invalid::Refused => {
                    return Err(self.refused(&Value::Number(number), "must not be NaN or Inf"));
                }
                Invalid::Null => self.out.extend_from_slice(b"null"),
                Invalid::Written if number.is_nan() => self.out.extend_from_slice(b"nan"),
                Invalid::Written if number > 0.0 => self.out.extend_from_slice(b"inf"),
                Invalid::Written => self.out.extend_from_slice(b"-inf"),
            }
            return Ok(());
        }
        number::write(&mut self.out, number, self.choices.precision.get() as usize);
        Ok(())
    }

    fn string(&mut self, text: &[u8]) {
        self.out.push(b'"');
        for byte in text {
            match byte {
                b'"' => self.out.extend_from_slice(b"\\\""),
                b'\\' => self.out.extend_from_slice(b"\\\\"),
                b'/' => self.out.extend_from_slice(b"\\/"),
                8 => self.out.extend_from_slice(b"\\b"),
                b'\t' => self.out.extend_from_slice(b"\\t"),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                12 => self.out.extend_from_slice(b"\\f"),
                b'\r' => self.out.extend_from_slice(b"\\r"),
                0..=31 | 127 => self.out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
                _ => self.out.push(*byte),
            }
        }
        self.out.push(b'"');
    }
}
