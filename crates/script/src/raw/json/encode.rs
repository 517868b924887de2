//! A value on the interpreter's stack as JSON.

use super::{bytes_at, type_name};
use crate::cjson::{Choices, Failed, Invalid, write_number};
use crate::limits::OUTPUT_BYTES_MAX;
use mlua::ffi::{self, lua_State};
use std::ffi::c_int;

type Result<T> = std::result::Result<T, Failed>;

/// Values that a table puts on the stack at once, as in the library that Redis has: room for them, of the 8,000 that one
/// function may have, is what limits the depth besides the choices.
const TABLE_VALUES: c_int = 3;

struct Encoder<'a> {
    lua: *mut lua_State,
    choices: &'a Choices,
    out: &'a mut Vec<u8>,
    precision: usize,
}

/// Writes the value on top of the stack. If that fails a part of it may have been written.
///
/// # Safety
/// As at the head of this folder.
pub(super) unsafe fn encode(lua: *mut lua_State, choices: &Choices, out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    let mut encoder = Encoder { lua, choices, out, precision: choices.precision.get() as usize };
    // SAFETY: the caller's promise.
    unsafe { encoder.value(0)? };
    encoder.check_length()
}

impl Encoder<'_> {
    fn check_length(&self) -> Result<()> {
        if self.out.len() > OUTPUT_BYTES_MAX { Err(Failed::TooLarge) } else { Ok(()) }
    }

    /// # Safety
    /// As for [`encode`].
    #[cold]
    unsafe fn refused(&self, index: c_int, why: &'static str) -> Failed {
        // SAFETY: the caller's promise.
        Failed::Refused { type_name: unsafe { type_name(self.lua, index) }, why }
    }

    /// Writes the value on top of the stack, which stays.
    ///
    /// # Safety
    /// As for [`encode`].
    unsafe fn value(&mut self, depth: i64) -> Result<()> {
        let lua = self.lua;
        // SAFETY: the caller's promise.
        unsafe {
            match ffi::lua_type(lua, -1) {
                ffi::LUA_TSTRING => self.string(bytes_at(lua, -1)),
                ffi::LUA_TNUMBER => self.number(ffi::lua_tonumber(lua, -1))?,
                ffi::LUA_TBOOLEAN if ffi::lua_toboolean(lua, -1) != 0 => self.out.extend_from_slice(b"true"),
                ffi::LUA_TBOOLEAN => self.out.extend_from_slice(b"false"),
                ffi::LUA_TTABLE => self.table(depth + 1)?,
                ffi::LUA_TNIL => self.out.extend_from_slice(b"null"),
                ffi::LUA_TLIGHTUSERDATA if ffi::lua_touserdata(lua, -1).is_null() => {
                    self.out.extend_from_slice(b"null");
                }
                _ => return Err(self.refused(-1, "type not supported")),
            }
        }
        Ok(())
    }

    /// # Safety
    /// As for [`encode`].
    unsafe fn table(&mut self, depth: i64) -> Result<()> {
        self.check_length()?;
        // SAFETY: the caller's promise; room is asked for first, and is refused rather than more than one function may have.
        unsafe {
            let is_too_deep = depth > self.choices.encode_depth_max.get();
            if is_too_deep || ffi::lua_checkstack(self.lua, TABLE_VALUES) == 0 {
                return Err(Failed::ValueTooDeep(depth));
            }
            match self.array_length()? {
                Some(length) => self.array(length, depth),
                None => self.object(depth),
            }
        }
    }

    /// The length of the table on top of the stack if it is an array: all its keys are positive integers, and most of those up
    /// to the highest one are there.
    ///
    /// # Safety
    /// As for [`encode`].
    unsafe fn array_length(&self) -> Result<Option<c_int>> {
        let lua = self.lua;
        let (mut highest, mut count) = (0, 0i64);
        // SAFETY: the caller's promise; nothing changes the table meanwhile, and no key is asked for as a string.
        unsafe {
            ffi::lua_pushnil(lua);
            while ffi::lua_next(lua, -2) != 0 {
                let key = match ffi::lua_type(lua, -2) {
                    ffi::LUA_TNUMBER => ffi::lua_tonumber(lua, -2),
                    _ => 0.0,
                };
                if key < 1.0 || key.floor() != key {
                    ffi::lua_pop(lua, 2);
                    return Ok(None);
                }
                if key > f64::from(highest) {
                    highest = to_c_int(key);
                }
                count += 1;
                ffi::lua_pop(lua, 1);
            }
            let choices = self.choices;
            let (ratio, safe) = (choices.sparse_ratio.get(), choices.sparse_safe.get());
            let length = i64::from(highest);
            if ratio > 0 && length > count.saturating_mul(ratio) && length > safe {
                if !choices.sparse_convert.get() {
                    return Err(self.refused(-1, "excessively sparse array"));
                }
                return Ok(None);
            }
        }
        Ok((highest > 0).then_some(highest))
    }

    /// # Safety
    /// As for [`encode`].
    unsafe fn array(&mut self, length: c_int, depth: i64) -> Result<()> {
        self.out.push(b'[');
        for index in 1..=length {
            if index > 1 {
                self.out.push(b',');
                self.check_length()?;
            }
            // SAFETY: the caller's promise.
            unsafe {
                ffi::lua_rawgeti_(self.lua, -1, index);
                self.value(depth)?;
                ffi::lua_pop(self.lua, 1);
            }
        }
        self.out.push(b']');
        Ok(())
    }

    /// # Safety
    /// As for [`encode`].
    unsafe fn object(&mut self, depth: i64) -> Result<()> {
        let lua = self.lua;
        let begin = self.out.len() + 1;
        self.out.push(b'{');
        // SAFETY: the caller's promise; nothing changes the table meanwhile, and a key is read as a string only if it is one.
        unsafe {
            ffi::lua_pushnil(lua);
            while ffi::lua_next(lua, -2) != 0 {
                if self.out.len() > begin {
                    self.out.push(b',');
                    self.check_length()?;
                }
                match ffi::lua_type(lua, -2) {
                    ffi::LUA_TSTRING => self.string(bytes_at(lua, -2)),
                    ffi::LUA_TNUMBER => {
                        self.out.push(b'"');
                        self.number(ffi::lua_tonumber(lua, -2))?;
                        self.out.push(b'"');
                    }
                    _ => return Err(self.refused(-2, "table key must be a number or string")),
                }
                self.out.push(b':');
                self.value(depth)?;
                ffi::lua_pop(lua, 1);
            }
        }
        self.out.push(b'}');
        Ok(())
    }

    fn number(&mut self, number: f64) -> Result<()> {
        if number.is_finite() {
            write_number(self.out, number, self.precision);
            return Ok(());
        }
        let text: &[u8] = match self.choices.encode_invalid.get() {
            Invalid::Refused => {
                return Err(Failed::Refused { type_name: "number", why: "must not be NaN or Inf" });
            }
            Invalid::Null => b"null",
            Invalid::Written if number.is_nan() => b"nan",
            Invalid::Written if number > 0.0 => b"inf",
            Invalid::Written => b"-inf",
        };
        self.out.extend_from_slice(text);
        Ok(())
    }

    /// Writes a string; one that becomes too long it leaves unfinished.
    fn string(&mut self, text: &[u8]) {
        self.out.push(b'"');
        let mut rest = text;
        while let Some(at) = rest.iter().position(|byte| ESCAPES[usize::from(*byte)] != 0) {
            self.out.extend_from_slice(&rest[..at]);
            self.escape(rest[at]);
            rest = &rest[at + 1..];
            if self.out.len() > OUTPUT_BYTES_MAX {
                return;
            }
        }
        self.out.extend_from_slice(rest);
        self.out.push(b'"');
    }

    fn escape(&mut self, byte: u8) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        match ESCAPES[usize::from(byte)] {
            b'u' => {
                let digits = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
                self.out.extend_from_slice(b"\\u00");
                self.out.extend_from_slice(&digits);
            }
            letter => self.out.extend_from_slice(&[b'\\', letter]),
        }
    }
}

/// What stands behind the backslash of each byte that has one; 0: it stands for itself.
const ESCAPES: [u8; 256] = {
    let mut escapes = [0; 256];
    let mut byte = 0;
    while byte < 32 {
        escapes[byte] = b'u';
        byte += 1;
    }
    escapes[127] = b'u';
    escapes[8] = b'b';
    escapes[12] = b'f';
    escapes[b'\t' as usize] = b't';
    escapes[b'\n' as usize] = b'n';
    escapes[b'\r' as usize] = b'r';
    escapes[b'"' as usize] = b'"';
    escapes[b'\\' as usize] = b'\\';
    escapes[b'/' as usize] = b'/';
    escapes
};

/// A float as C makes an `int` of it on the machines that Redis runs on: what does not fit is the least one.
fn to_c_int(value: f64) -> c_int {
    if value < 2_147_483_648.0 { value as c_int } else { c_int::MIN }
}
