//! A command's reply as values on the interpreter's stack.

use super::{Anchor, Anchors, push_bytes, push_error};
use mlua::ffi::{self, lua_State};
use std::ffi::c_int;

/// Values that one level puts on the stack at once.
const VALUES_PER_LEVEL: c_int = 8;

/// Pushes the next value of a reply, and takes it off the bytes.
///
/// # Safety
/// As at the head of this folder. The bytes are a whole reply of ours.
pub(super) unsafe fn push(lua: *mut lua_State, anchors: &Anchors, reply: &mut &[u8]) {
    let kind = reply[0];
    *reply = &reply[1..];
    let line = take_line(reply);
    // SAFETY: the caller's promise.
    unsafe {
        match kind {
            b':' => ffi::lua_pushnumber(lua, value::number::parse_i64(line).unwrap_or_default() as f64),
            b'$' => match count(line) {
                Some(bytes) => push_bytes(lua, take_bulk(reply, bytes)),
                None => ffi::lua_pushboolean(lua, 0),
            },
            b'+' if line == b"OK" => push_tagged(lua, anchors.ok, || anchors.ok_line.push(lua)),
            b'+' => push_tagged(lua, anchors.ok, || push_bytes(lua, line)),
            b'-' => push_error(lua, anchors, line, true),
            b'*' | b'>' => match count(line) {
                Some(count) => push_array(lua, anchors, reply, count),
                None => ffi::lua_pushboolean(lua, 0),
            },
            b'%' => push_tagged(lua, anchors.map, || push_map(lua, anchors, reply, count(line))),
            b'~' => push_tagged(lua, anchors.set, || push_set(lua, anchors, reply, count(line))),
            b'#' => ffi::lua_pushboolean(lua, c_int::from(line == b"t")),
            b',' => {
                let number = value::number::parse_f64(line).unwrap_or(f64::NAN);
                push_tagged(lua, anchors.double, || ffi::lua_pushnumber(lua, number));
            }
            b'(' => push_tagged(lua, anchors.big_number, || push_bytes(lua, line)),
            b'=' => {
                let text = take_bulk(reply, count(line).unwrap_or_default());
                push_tagged(lua, anchors.verbatim_string, || push_verbatim(lua, anchors, text));
            }
            b'|' => {
                for _ in 0..2 * count(line).unwrap_or_default() {
                    push(lua, anchors, reply);
                    ffi::lua_pop(lua, 1);
                }
                push(lua, anchors, reply);
            }
            _ => ffi::lua_pushnil(lua),
        }
    }
}

fn take_line<'a>(reply: &mut &'a [u8]) -> &'a [u8] {
    let end = reply.iter().position(|byte| *byte == b'\r').expect("a reply's lines end");
    let line = &reply[..end];
    *reply = &reply[end + 2..];
    line
}

fn take_bulk<'a>(reply: &mut &'a [u8], bytes: usize) -> &'a [u8] {
    let (text, rest) = reply.split_at(bytes);
    *reply = &rest[2..];
    text
}

/// None: there is no such value.
fn count(line: &[u8]) -> Option<usize> {
    value::number::parse_u64(line).map(|count| count as usize)
}

/// Pushes a table with one field.
///
/// # Safety
/// As for [`push`]; `push_value` pushes one value.
unsafe fn push_tagged(lua: *mut lua_State, name: Anchor, push_value: impl FnOnce()) {
    // SAFETY: the caller's promise.
    unsafe {
        ffi::luaL_checkstack(lua, VALUES_PER_LEVEL, c"too many levels".as_ptr());
        ffi::lua_createtable(lua, 0, 1);
        name.push(lua);
        push_value();
        ffi::lua_rawset(lua, -3);
    }
}

/// # Safety
/// As for [`push`].
unsafe fn push_array(lua: *mut lua_State, anchors: &Anchors, reply: &mut &[u8], count: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        ffi::luaL_checkstack(lua, VALUES_PER_LEVEL, c"too many levels".as_ptr());
        ffi::lua_createtable(lua, count as c_int, 0);
        for index in 1..=count as c_int {
            push(lua, anchors, reply);
            ffi::lua_rawseti_(lua, -2, index);
        }
    }
}

/// # Safety
/// As for [`push`].
unsafe fn push_map(lua: *mut lua_State, anchors: &Anchors, reply: &mut &[u8], count: Option<usize>) {
    let count = count.unwrap_or_default();
    // SAFETY: the caller's promise.
    unsafe {
        ffi::lua_createtable(lua, 0, count as c_int);
        for _ in 0..count {
            push(lua, anchors, reply);
            push(lua, anchors, reply);
            ffi::lua_rawset(lua, -3);
        }
    }
}

/// # Safety
/// As for [`push`].
unsafe fn push_set(lua: *mut lua_State, anchors: &Anchors, reply: &mut &[u8], count: Option<usize>) {
    let count = count.unwrap_or_default();
    // SAFETY: the caller's promise.
    unsafe {
        ffi::lua_createtable(lua, 0, count as c_int);
        for _ in 0..count {
            push(lua, anchors, reply);
            ffi::lua_pushboolean(lua, 1);
            ffi::lua_rawset(lua, -3);
        }
    }
}

/// # Safety
/// As for [`push`]. The text has its format before it.
unsafe fn push_verbatim(lua: *mut lua_State, anchors: &Anchors, text: &[u8]) {
    let (format, text) = text.split_at(text.len().min(3));
    // SAFETY: the caller's promise.
    unsafe {
        ffi::lua_createtable(lua, 0, 2);
        anchors.format.push(lua);
        push_bytes(lua, format);
        ffi::lua_rawset(lua, -3);
        anchors.string.push(lua);
        push_bytes(lua, text.get(1..).unwrap_or_default());
        ffi::lua_rawset(lua, -3);
    }
}
