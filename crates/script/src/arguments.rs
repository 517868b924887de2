//! Arguments of the interpreter's functions, checked as Lua's own library checks them.

use crate::raise::bad_argument;
use mlua::{Lua, MultiValue, Result, String as LuaString, Value};

/// The arguments of one call of a function.
pub(crate) struct Arguments<'a> {
    pub lua: &'a Lua,
    values: &'a MultiValue,
}

impl<'a> Arguments<'a> {
    pub fn new(lua: &'a Lua, values: &'a MultiValue) -> Arguments<'a> {
        Arguments { lua, values }
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Argument `number`, counted from 1; nil if it is not there.
    pub fn get(&self, number: usize) -> &'a Value {
        self.values.get(number - 1).unwrap_or(&Value::Nil)
    }

    pub fn is_given(&self, number: usize) -> bool {
        !self.get(number).is_nil()
    }

    pub fn bad(&self, number: usize, message: impl AsRef<[u8]>) -> mlua::Error {
        bad_argument(self.lua, number, message)
    }

    fn expected(&self, number: usize, what: &str) -> mlua::Error {
        let got = match self.values.get(number - 1) {
            Some(value) => type_name(value),
            None => "no value",
        };
        self.bad(number, format!("{what} expected, got {got}"))
    }

    /// A number, or a string that reads as one.
    pub fn number(&self, number: usize) -> Result<f64> {
        match self.get(number) {
            Value::Integer(value) => Ok(*value as f64),
            Value::Number(value) => Ok(*value),
            value @ Value::String(_) => match self.lua.coerce_number(value.clone())? {
                Some(value) => Ok(value),
                None => Err(self.expected(number, "number")),
            },
            _ => Err(self.expected(number, "number")),
        }
    }

    /// A whole number; a fraction is cut off.
    pub fn integer(&self, number: usize) -> Result<i64> {
        self.number(number).map(to_integer)
    }

    /// The same, with a value for an argument that is not given.
    pub fn integer_or(&self, number: usize, otherwise: i64) -> Result<i64> {
        if self.is_given(number) { self.integer(number) } else { Ok(otherwise) }
    }

    /// A string, or a number as one.
    pub fn string(&self, number: usize) -> Result<LuaString> {
        match self.get(number) {
            Value::String(text) => Ok(text.clone()),
            value @ (Value::Integer(_) | Value::Number(_)) => match self.lua.coerce_string(value.clone())? {
                Some(text) => Ok(text),
                None => Err(self.expected(number, "string")),
            },
            _ => Err(self.expected(number, "string")),
        }
    }
}

/// A text as C sees it: up to its first zero byte.
pub(crate) fn c_text(text: &[u8]) -> &[u8] {
    &text[..text.iter().position(|byte| *byte == 0).unwrap_or(text.len())]
}

/// A float as C converts it on the machines that Redis runs on: what does not fit is the least integer.
pub(crate) fn to_integer(value: f64) -> i64 {
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    if (-BEYOND..BEYOND).contains(&value) { value as i64 } else { i64::MIN }
}

/// The same for C's `int`.
pub(crate) fn to_int(value: f64) -> i32 {
    i32::try_from(to_integer(value)).unwrap_or(i32::MIN)
}

/// A number as Lua has it.
pub(crate) fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

/// Lua's name of a value's type.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Boolean(_) => "boolean",
        Value::LightUserData(_) | Value::UserData(_) | Value::Error(_) | Value::Other(_) => "userdata",
        Value::Integer(_) | Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Table(_) => "table",
        Value::Function(_) => "function",
        Value::Thread(_) => "thread",
    }
}
