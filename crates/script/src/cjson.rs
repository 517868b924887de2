//! The table `cjson`: JSON to Lua's values and back, with the behaviour and the words of the library that Redis has.
//!
//! Here are the settings, the errors, and what JSON's words are; [`crate::raw`] has what reads and makes values.

use crate::arguments::{Arguments, c_text};
use crate::engine::State;
use crate::raise;
use crate::raw::json;
use mlua::{Error, Lua, MultiValue, Result, Table, Value};
use std::cell::Cell;
use std::rc::Rc;

mod number;
mod scan;

pub(crate) use number::write as write_number;
pub(crate) use scan::{Scanner, Token};

/// The settings of the table that all scripts find. Every run begins with the defaults.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings(Rc<Choices>);

/// What scripts may set.
#[derive(Clone, Debug)]
pub(crate) struct Choices {
    pub sparse_convert: Cell<bool>,
    pub sparse_ratio: Cell<i64>,
    pub sparse_safe: Cell<i64>,
    pub encode_depth_max: Cell<i64>,
    pub decode_depth_max: Cell<i64>,
    pub precision: Cell<i64>,
    keeps_buffer: Cell<bool>,
    pub encode_invalid: Cell<Invalid>,
    pub decode_invalid: Cell<bool>,
}

/// What becomes of NaN and infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
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

/// Why a text was not decoded, or a value not encoded.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failed {
    /// There is not exactly one argument.
    ArgumentCount,
    /// The argument is no string; its type.
    NoString(&'static str),
    /// The text is in UTF-16 or UTF-32.
    Wide,
    /// A word that does not belong there, which begins after so many bytes.
    Unexpected {
        expected: &'static str,
        found: &'static str,
        at: usize,
    },
    TextTooDeep {
        depth: i64,
        at: usize,
    },
    ValueTooDeep(i64),
    /// There is no JSON for a value.
    Refused {
        type_name: &'static str,
        why: &'static str,
    },
    /// It is more than the interpreter could hold.
    TooLarge,
}

impl Failed {
    /// The error.
    pub fn raised(self, lua: &Lua) -> Error {
        let message = match self {
            Failed::ArgumentCount => return raise::bad_argument(lua, 1, "expected 1 argument"),
            Failed::NoString(type_name) => {
                let message = format!("string expected, got {type_name}");
                return raise::bad_argument(lua, 1, message);
            }
            Failed::TooLarge => return raise::too_large(),
            Failed::Wide => "JSON parser does not support UTF-16 or UTF-32".to_owned(),
            Failed::Unexpected { expected, found, at } => {
                format!("Expected {expected} but found {found} at character {}", at + 1)
            }
            Failed::TextTooDeep { depth, at } => {
                format!("Found too many nested data structures ({depth}) at character {at}")
            }
            Failed::ValueTooDeep(depth) => format!("Cannot serialise, excessive nesting ({depth})"),
            Failed::Refused { type_name, why } => format!("Cannot serialise {type_name}: {why}"),
        };
        raise::text(lua, message)
    }
}

/// The table.
pub(crate) fn table(lua: &Lua, state: &Rc<State>) -> Result<Table> {
    with_choices(lua, state, &state.json.0)
}

/// A table. Its function `new` makes more of its kind, each with choices of its own.
fn with_choices(lua: &Lua, state: &Rc<State>, choices: &Rc<Choices>) -> Result<Table> {
    let cjson = lua.create_table()?;
    cjson.raw_set("null", Value::NULL)?;
    cjson.raw_set("_NAME", "cjson")?;
    cjson.raw_set("_VERSION", "2.1.0")?;
    add_settings(lua, &cjson, choices)?;
    let maker = state.clone();
    let new = lua.create_function(move |lua, _: MultiValue| with_choices(lua, &maker, &Rc::default()))?;
    cjson.raw_set("new", new)?;
    crate::gate::few_in(lua, &cjson, &[])?;
    let (decode, encode) = json::functions(lua, state, choices)?;
    cjson.raw_set("decode", decode)?;
    cjson.raw_set("encode", encode)?;
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
            let arguments = at_most(lua, &values, 1)?;
            integer_option(&arguments, 1, cell(&choices), 1, max)
        })?;
        cjson.raw_set(name, function)?;
    }
    let sparse = choices.clone();
    let function = lua.create_function(move |lua, values: MultiValue| {
        let (arguments, json) = (at_most(lua, &values, 3)?, &sparse);
        bool_option(&arguments, 1, &json.sparse_convert)?;
        integer_option(&arguments, 2, &json.sparse_ratio, 0, i64::from(i32::MAX))?;
        integer_option(&arguments, 3, &json.sparse_safe, 0, i64::from(i32::MAX))?;
        Ok((json.sparse_convert.get(), json.sparse_ratio.get(), json.sparse_safe.get()))
    })?;
    cjson.raw_set("encode_sparse_array", function)?;
    let keeping = choices.clone();
    let function = lua.create_function(move |lua, values: MultiValue| {
        bool_option(&at_most(lua, &values, 1)?, 1, &keeping.keeps_buffer)
    })?;
    cjson.raw_set("encode_keep_buffer", function)?;
    let decoding = choices.clone();
    let function = lua.create_function(move |lua, values: MultiValue| {
        bool_option(&at_most(lua, &values, 1)?, 1, &decoding.decode_invalid)
    })?;
    cjson.raw_set("decode_invalid_numbers", function)?;
    let encoding = choices.clone();
    let function = lua.create_function(move |lua, values: MultiValue| {
        let arguments = at_most(lua, &values, 1)?;
        let cell = &encoding.encode_invalid;
        match arguments.get(1) {
            Value::Nil => {}
            Value::Boolean(on) => cell.set(if *on { Invalid::Written } else { Invalid::Refused }),
            _ => match c_text(&arguments.string(1)?.as_bytes()) {
                b"off" => cell.set(Invalid::Refused),
                b"on" => cell.set(Invalid::Written),
                b"null" => cell.set(Invalid::Null),
                other => {
                    return Err(arguments.bad(1, [b"invalid option '", other, b"'"].concat()));
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

fn at_most<'a>(lua: &'a Lua, values: &'a MultiValue, most: usize) -> Result<Arguments<'a>> {
    let arguments = Arguments::new(lua, values);
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
        // As in C, whose `int` it becomes.
        let value = i64::from(arguments.integer(number)? as i32);
        if !(min..=max).contains(&value) {
            // The library names the first argument, whichever it is.
            return Err(arguments.bad(1, format!("expected integer between {min} and {max}")));
        }
        cell.set(value);
    }
    Ok(cell.get())
}

fn bool_option(arguments: &Arguments<'_>, number: usize, cell: &Cell<bool>) -> Result<bool> {
    match arguments.get(number) {
        Value::Nil => {}
        Value::Boolean(on) => cell.set(*on),
        _ => match c_text(&arguments.string(number)?.as_bytes()) {
            b"off" => cell.set(false),
            b"on" => cell.set(true),
            other => {
                return Err(arguments.bad(number, [b"invalid option '", other, b"'"].concat()));
            }
        },
    }
    Ok(cell.get())
}
