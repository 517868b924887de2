//! Functions that belong to no table: `unpack`, and a price for those that go through a string or all memory.

use super::{BYTES_PER_INSTRUCTION, address, charge, charged, closure, int_argument_or, kept_state, raise};
use crate::engine::State;
use mlua::ffi::{self, lua_State};
use mlua::{Function, Lua, Result, Table};
use std::ffi::c_int;
use std::rc::Rc;

pub(super) fn install(lua: &Lua, state: &Rc<State>, globals: &Table) -> Result<()> {
    globals.raw_set("unpack", closure(lua, state, unpack)?)?;
    globals.raw_set("tonumber", charged(lua, state, globals.raw_get("tonumber")?)?)?;
    let collects: Function = globals.raw_get("collectgarbage")?;
    // SAFETY: both values on the stack become the closure, the only result.
    let collects: Function = unsafe {
        lua.exec_raw((address(state), collects), |lua| {
            ffi::lua_pushcclosure(lua, charged_for_memory, 2);
        })?
    };
    globals.raw_set("collectgarbage", collects)
}

/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn unpack(lua: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, with the engine's state kept. There is room for the values before they are pushed.
    unsafe {
        ffi::luaL_checktype(lua, 1, ffi::LUA_TTABLE);
        let first = int_argument_or(lua, 2, 1);
        let last = match ffi::lua_isnoneornil(lua, 3) != 0 {
            true => ffi::lua_objlen(lua, 1) as c_int,
            false => int_argument_or(lua, 3, 0),
        };
        if first > last {
            return 0;
        }
        let count = i64::from(last) - i64::from(first) + 1;
        match c_int::try_from(count) {
            Ok(count) if ffi::lua_checkstack(lua, count) != 0 => {
                (first..=last).for_each(|index| ffi::lua_rawgeti_(lua, 1, index));
                count
            }
            _ => raise(lua, "too many results to unpack"),
        }
    }
}

/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn charged_for_memory(lua: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, with the engine's state and a function of C kept, which runs in this frame.
    unsafe {
        let kilobytes = ffi::lua_gc(lua, ffi::LUA_GCCOUNT, 0).unsigned_abs() as usize;
        charge(lua, kept_state(lua), kilobytes * (1024 / 16 / BYTES_PER_INSTRUCTION));
        match ffi::lua_tocfunction(lua, ffi::lua_upvalueindex(2)) {
            Some(function) => function(lua),
            None => 0,
        }
    }
}
