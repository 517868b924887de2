//! In front of functions that scripts call: what they may pass at once, and which tables they may write into.
//!
//! A script can pass far more values than the interpreter's library has room to refer to (8,000 at once), and the
//! library ends the program when it runs out. So a function of the interpreter's own kind counts the values while
//! they are still on the stack, and lets no more through than [`VALUES_MAX`].
//!
//! Invariants:
//! 1. Scripts reach functions of this crate that take a list of values only through one of these; but for `redis.call`, which
//!    reads them where they are.
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

/// In front of a function of the interpreter's own library that writes into its first value: not if that is a key of `behind`.
pub(crate) fn guarded(lua: &Lua, function: Function, behind: Table) -> Result<Function> {
    closure(lua, not_behind, (function, behind), 2)
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
unsafe extern "C-unwind" fn not_behind(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, with its state and two values kept: a function of C and a table. The function runs in
    // this frame, where it finds its values and the name that it was called by.
    unsafe {
        if ffi::lua_gettop(state) > 0 {
            ffi::lua_pushvalue(state, 1);
            ffi::lua_rawget_(state, ffi::lua_upvalueindex(2));
            if ffi::lua_type(state, -1) != ffi::LUA_TNIL {
                ffi::lua_pushstring_(state, c"Attempt to modify a readonly table".as_ptr());
                ffi::lua_error(state);
            }
            ffi::lua_pop(state, 1);
        }
        match ffi::lua_tocfunction(state, ffi::lua_upvalueindex(1)) {
            Some(function) => function(state),
            None => 0,
        }
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
