//! In front of each function of this crate that takes any number of values: what a script may pass at once.
//!
//! A script can pass far more values than the interpreter's library has room to refer to (8,000 at once), and the
//! library ends the program when it runs out. So a function of the interpreter's own kind counts the values while
//! they are still on the stack, and lets no more through than [`VALUES_MAX`].
//!
//! Invariants:
//! 1. Scripts reach functions that take a list of values only through one of these.
//! 2. It is a function of C to the interpreter, so the frame of a script that calls it last (`return redis.call(...)`)
//!    stays on the stack, where errors look for the line.
//! 3. Nothing in these functions has to be dropped: an error of the interpreter jumps over them.

use crate::limits::{FIXED_VALUES_MAX, VALUES_MAX};
use mlua::ffi::{self, lua_State};
use mlua::{Function, IntoLuaMulti, Lua, Result, String as LuaString, Table, Value};
use std::ffi::c_int;

/// In front of a function that takes a handful of values: it sees the first [`FIXED_VALUES_MAX`] of them, enough to
/// complain of too many.
pub(crate) fn few(lua: &Lua, function: Function) -> Result<Function> {
    closure(lua, first_few, function, 1)
}

/// In front of a function that takes up to [`VALUES_MAX`] values; beyond them the call fails with `message`.
pub(crate) fn bounded(lua: &Lua, function: Function, message: &str) -> Result<Function> {
    let message: LuaString = lua.create_string(message)?;
    closure(lua, up_to_max, (function, message), 2)
}

/// In front of a function that takes any number of values: beyond [`VALUES_MAX`] `packed` gets them as a table,
/// with their number.
pub(crate) fn unbounded(lua: &Lua, function: Function, packed: Function) -> Result<Function> {
    closure(lua, any_number, (function, packed), 2)
}

/// Puts [`few`] in front of all functions of a table but those named.
pub(crate) fn few_in(lua: &Lua, table: &Table, wide: &[&str]) -> Result<()> {
    for pair in table.pairs::<LuaString, Value>() {
        let (name, value) = pair?;
        if let Value::Function(function) = value
            && !wide.iter().any(|wide| name.as_bytes() == wide.as_bytes())
        {
            table.raw_set(name, few(lua, function)?)?;
        }
    }
    Ok(())
}

fn closure(lua: &Lua, gate: ffi::lua_CFunction, kept: impl IntoLuaMulti, count: c_int) -> Result<Function> {
    // SAFETY: the `count` values on top of the stack are `kept`, and become the closure, which alone is left as the result.
    unsafe { lua.exec_raw(kept, |state| ffi::lua_pushcclosure(state, gate, count)) }
}

/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn first_few(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, with its state and one value kept: the function. Cutting the stack needs no room.
    unsafe {
        if ffi::lua_gettop(state) > FIXED_VALUES_MAX as c_int {
            ffi::lua_settop(state, FIXED_VALUES_MAX as c_int);
        }
        pass_on(state)
    }
}

/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn up_to_max(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, with its state and two values kept: the function and a string. It gives each
    // function of C room for 20 values more than it passes.
    unsafe {
        if ffi::lua_gettop(state) > VALUES_MAX as c_int {
            ffi::luaL_where(state, 1);
            ffi::lua_pushvalue(state, ffi::lua_upvalueindex(2));
            ffi::lua_concat(state, 2);
            ffi::lua_error(state);
        }
        pass_on(state)
    }
}

/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn any_number(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, with its state and two values kept, both functions; see above for the room. The
    // table goes below the values, and each of them is popped into it.
    unsafe {
        let count = ffi::lua_gettop(state);
        if count <= VALUES_MAX as c_int {
            return pass_on(state);
        }
        ffi::lua_createtable(state, count, 0);
        ffi::lua_insert(state, 1);
        for index in (1..=count).rev() {
            ffi::lua_rawseti(state, 1, ffi::lua_Integer::from(index));
        }
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(2));
        ffi::lua_insert(state, 1);
        ffi::lua_pushinteger(state, ffi::lua_Integer::from(count));
        ffi::lua_call(state, 2, ffi::LUA_MULTRET);
        ffi::lua_gettop(state)
    }
}

/// Calls the first kept value with all that is on the stack.
///
/// # Safety
/// Only from a function of C that the interpreter called, with a function as its first kept value.
unsafe fn pass_on(state: *mut lua_State) -> c_int {
    // SAFETY: the caller's promise; one value more fits the stack.
    unsafe {
        let count = ffi::lua_gettop(state);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
        ffi::lua_insert(state, 1);
        ffi::lua_call(state, count, ffi::LUA_MULTRET);
        ffi::lua_gettop(state)
    }
}
