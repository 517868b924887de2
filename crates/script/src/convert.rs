//! Between replies and Lua's values, both ways.

use crate::arguments::{number_of, to_integer};
use crate::limits::{REPLY_DEPTH_MAX, TOO_DEEP_MAX};
use crate::raise;
use mlua::{Lua, Result, String as LuaString, Table, Value};
use wire::{Mark, Protocol, Reply};

/// The names of fields that give a table a meaning.
pub(crate) struct Names {
    err: LuaString,
    ok: LuaString,
    double: LuaString,
    map: LuaString,
    set: LuaString,
    big_number: LuaString,
    verbatim_string: LuaString,
    string: LuaString,
    format: LuaString,
}

impl Names {
    pub fn new(lua: &Lua) -> Result<Names> {
        let name = |name: &str| lua.create_string(name);
        Ok(Names {
            err: name("err")?,
            ok: name("ok")?,
            double: name("double")?,
            map: name("map")?,
            set: name("set")?,
            big_number: name("big_number")?,
            verbatim_string: name("verbatim_string")?,
            string: name("string")?,
            format: name("format")?,
        })
    }
}

/// A reply on its way into the interpreter.
pub(crate) struct Incoming<'a> {
    pub lua: &'a Lua,
    pub names: &'a Names,
    bytes: &'a [u8],
}

impl<'a> Incoming<'a> {
    pub fn new(lua: &'a Lua, names: &'a Names, bytes: &'a [u8]) -> Incoming<'a> {
        Incoming { lua, names, bytes }
    }

    fn line(&mut self) -> &'a [u8] {
        let end = self.bytes.windows(2).position(|two| two == b"\r\n").expect("a reply's lines end");
        let line = &self.bytes[..end];
        self.bytes = &self.bytes[end + 2..];
        line
    }

    fn count(line: &[u8]) -> Option<usize> {
        value::number::parse_u64(line).map(|count| count as usize)
    }

    fn bulk(&mut self, bytes: usize) -> &'a [u8] {
        let (text, rest) = self.bytes.split_at(bytes);
        self.bytes = &rest[2..];
        text
    }

    /// The next value of the reply.
    pub fn value(&mut self) -> Result<Value> {
        let kind = self.bytes[0];
        self.bytes = &self.bytes[1..];
        let line = self.line();
        match kind {
            b':' => Ok(Value::Integer(value::number::parse_i64(line).unwrap_or_default())),
            b'$' => match Self::count(line) {
                Some(bytes) => Ok(Value::String(self.lua.create_string(self.bulk(bytes))?)),
                None => Ok(Value::Boolean(false)),
            },
            b'+' => self.tagged(&self.names.ok, self.text(line)?),
            b'-' => Ok(Value::Table(raise::error_table(self.lua, line)?)),
            b'*' | b'>' => match Self::count(line) {
                Some(count) => self.array(count),
                None => Ok(Value::Boolean(false)),
            },
            b'%' => self.map(Self::count(line).unwrap_or_default()),
            b'~' => self.set(Self::count(line).unwrap_or_default()),
            b'#' => Ok(Value::Boolean(line == b"t")),
            b',' => {
                let number = value::number::parse_f64(line).unwrap_or(f64::NAN);
                self.tagged(&self.names.double, Value::Number(number))
            }
            b'(' => self.tagged(&self.names.big_number, self.text(line)?),
            b'=' => self.verbatim(Self::count(line).unwrap_or_default()),
            b'|' => {
                for _ in 0..2 * Self::count(line).unwrap_or_default() {
                    self.value()?;
                }
                self.value()
            }
            _ => Ok(Value::Nil),
        }
    }

    fn text(&self, bytes: &[u8]) -> Result<Value> {
        Ok(Value::String(self.lua.create_string(bytes)?))
    }

    fn tagged(&self, name: &LuaString, value: Value) -> Result<Value> {
        let table = self.lua.create_table_with_capacity(0, 1)?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    }

    fn array(&mut self, count: usize) -> Result<Value> {
        let table = self.lua.create_table_with_capacity(count, 0)?;
        for index in 1..=count {
            let value = self.value()?;
            table.raw_seti(index, value)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, count: usize) -> Result<Value> {
        let table = self.lua.create_table_with_capacity(0, count)?;
        for _ in 0..count {
            let (key, value) = (self.value()?, self.value()?);
            table.raw_set(key, value)?;
        }
        self.tagged(&self.names.map, Value::Table(table))
    }

    fn set(&mut self, count: usize) -> Result<Value> {
        let table = self.lua.create_table_with_capacity(0, count)?;
        for _ in 0..count {
            let member = self.value()?;
            table.raw_set(member, true)?;
        }
        self.tagged(&self.names.set, Value::Table(table))
    }

    fn verbatim(&mut self, bytes: usize) -> Result<Value> {
        let text = self.bulk(bytes);
        let (format, text) = text.split_at(text.len().min(3));
        let table = self.lua.create_table_with_capacity(0, 2)?;
        table.raw_set(&self.names.format, self.text(format)?)?;
        table.raw_set(&self.names.string, self.text(text.get(1..).unwrap_or_default())?)?;
        self.tagged(&self.names.verbatim_string, Value::Table(table))
    }
}

/// A script's value on its way out.
pub(crate) struct Outgoing<'a, 'o> {
    pub names: &'a Names,
    pub reply: &'a mut Reply<'o>,
    /// The protocol that the script chose: whether its booleans are ones.
    pub protocol: Protocol,
    /// Where the reply begins.
    pub begin: Mark,
    /// Tables that lie too deep.
    pub too_deep: usize,
}

impl Outgoing<'_, '_> {
    /// Writes a value. On an error of the interpreter a part of it may have been written.
    pub fn value(&mut self, value: &Value, depth: usize) -> Result<()> {
        match value {
            Value::String(text) => self.reply.bulk(&text.as_bytes()),
            Value::Integer(number) => self.reply.int(*number),
            Value::Number(number) => self.reply.int(to_integer(*number)),
            Value::Boolean(value) => match (self.protocol, value) {
                (Protocol::Resp3, value) => self.reply.bool(*value),
                (Protocol::Resp2, true) => self.reply.int(1),
                (Protocol::Resp2, false) => self.reply.null(),
            },
            Value::Table(table) => return self.table(table, depth),
            _ => self.reply.null(),
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<()> {
        if depth > REPLY_DEPTH_MAX {
            self.too_deep += 1;
            if self.too_deep > TOO_DEEP_MAX {
                return Err(raise::Raise::Text(b"reached lua stack limit".into()).into());
            }
            self.reply.error("ERR reached lua stack limit");
            return Ok(());
        }
        raise::check_output(self.reply.since(self.begin).len())?;
        let names = self.names;
        if let Value::String(line) = table.raw_get(&names.err)? {
            self.reply.error(&*line.as_bytes());
        } else if let Value::String(line) = table.raw_get(&names.ok)? {
            self.reply.simple(&*line.as_bytes());
        } else if let number @ (Value::Number(_) | Value::Integer(_)) = table.raw_get(&names.double)? {
            self.reply.double(number_of(&number).unwrap_or_default());
        } else if let Value::Table(map) = table.raw_get(&names.map)? {
            return self.map(&map, depth);
        } else if let Value::Table(set) = table.raw_get(&names.set)? {
            return self.set(&set, depth);
        } else if let Value::String(digits) = table.raw_get(&names.big_number)? {
            let digits: Vec<u8> = digits.as_bytes().iter().map(one_line).collect();
            self.reply.big_number(&digits);
        } else if let Some((format, text)) = self.verbatim(table)? {
            self.reply.verbatim(&format.to_string_lossy(), &text.as_bytes());
        } else {
            return self.array(table, depth);
        }
        Ok(())
    }

    fn verbatim(&self, table: &Table) -> Result<Option<(LuaString, LuaString)>> {
        let Value::Table(inner) = table.raw_get(&self.names.verbatim_string)? else { return Ok(None) };
        match (inner.raw_get(&self.names.format)?, inner.raw_get(&self.names.string)?) {
            (Value::String(format), Value::String(text)) => Ok(Some((format, text))),
            _ => Ok(None),
        }
    }

    /// Elements up to the first nil.
    fn array(&mut self, table: &Table, depth: usize) -> Result<()> {
        let deferred = self.reply.deferred_array();
        let mut count = 0;
        loop {
            let value: Value = table.raw_get(count as i64 + 1)?;
            if value.is_nil() {
                break;
            }
            self.value(&value, depth + 1)?;
            count += 1;
        }
        self.reply.end(deferred, count);
        Ok(())
    }

    fn map(&mut self, map: &Table, depth: usize) -> Result<()> {
        let deferred = self.reply.deferred_map();
        let mut count = 0;
        map.for_each(|key: Value, value: Value| {
            count += 1;
            self.value(&key, depth + 1)?;
            self.value(&value, depth + 1)
        })?;
        self.reply.end(deferred, count);
        Ok(())
    }

    fn set(&mut self, set: &Table, depth: usize) -> Result<()> {
        let deferred = self.reply.deferred_set();
        let mut count = 0;
        set.for_each(|member: Value, _: Value| {
            count += 1;
            self.value(&member, depth + 1)
        })?;
        self.reply.end(deferred, count);
        Ok(())
    }
}

fn one_line(byte: &u8) -> u8 {
    if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }
}
