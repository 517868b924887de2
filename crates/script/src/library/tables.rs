//! The table `table`: what goes through many elements in one call.

use super::{
    CALL_WORK, address, charge, charged, closure, int_argument, int_argument_or, kept_state, raise, sort,
};
use crate::engine::State;
use crate::limits::ELEMENTS_MAX;
use mlua::ffi::{self, lua_State};
use mlua::{Function, Lua, Result, Table};
use std::ffi::c_int;
use std::rc::Rc;

/// Elements between two looks at what has been done.
const ELEMENTS_PER_CHARGE: usize = 1024;

pub(super) fn install(lua: &Lua, state: &Rc<State>, table: &Table) -> Result<()> {
    table.raw_set("remove", closure(lua, state, remove)?)?;
    table.raw_set("foreach", closure(lua, state, foreach)?)?;
    table.raw_set("foreachi", closure(lua, state, foreachi)?)?;
    table.raw_set("sort", closure(lua, state, sort::sort)?)?;
    table.raw_set("concat", charged(lua, state, table.raw_get("concat")?)?)
}

/// The function `insert`, which refuses tables that are keys of `behind`.
pub(super) fn insert(lua: &Lua, state: &Rc<State>, behind: Table) -> Result<Function> {
    // SAFETY: both values on the stack become the closure, the only result.
    unsafe { lua.exec_raw((address(state), behind), |lua| ffi::lua_pushcclosure(lua, insert_at, 2)) }
}

/// The length of the table that is the first argument. Of one with holes that can be far more than it has elements.
///
/// # Safety
/// As for [`raise`].
pub(super) unsafe fn length(lua: *mut lua_State) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        ffi::luaL_checktype(lua, 1, ffi::LUA_TTABLE);
        ffi::lua_objlen(lua, 1) as c_int
    }
}

/// Refuses to go through more elements than a table can have.
///
/// # Safety
/// As for [`raise`].
pub(super) unsafe fn check_count(lua: *mut lua_State, count: i64) {
    if count > ELEMENTS_MAX {
        // SAFETY: the caller's promise.
        unsafe { raise(lua, "table has too many elements") }
    }
}

/// Puts the element from `source` in the place of another.
///
/// # Safety
/// As for [`raise`]; the first value on the stack is a table.
unsafe fn shift(lua: *mut lua_State, source: c_int, target: c_int) {
    // SAFETY: the caller's promise; there is room for a value.
    unsafe {
        if (source as usize).is_multiple_of(ELEMENTS_PER_CHARGE) {
            charge(lua, kept_state(lua), 4 * ELEMENTS_PER_CHARGE);
        }
        ffi::lua_rawgeti_(lua, 1, source);
        ffi::lua_rawseti_(lua, 1, target);
    }
}

/// `table.insert`.
///
/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn insert_at(lua: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, with the engine's state and a table kept.
    unsafe {
        if ffi::lua_gettop(lua) > 0 {
            ffi::lua_pushvalue(lua, 1);
            ffi::lua_rawget_(lua, ffi::lua_upvalueindex(2));
            if ffi::lua_type(lua, -1) != ffi::LUA_TNIL {
                ffi::lua_pushliteral(lua, c"Attempt to modify a readonly table");
                ffi::lua_error(lua);
            }
            ffi::lua_pop(lua, 1);
        }
        let end = length(lua).wrapping_add(1);
        let place = match ffi::lua_gettop(lua) {
            2 => end,
            3 => {
                let place = int_argument(lua, 2);
                check_count(lua, i64::from(end) - i64::from(place));
                (place..end).rev().for_each(|index| shift(lua, index, index + 1));
                place
            }
            _ => raise(lua, "wrong number of arguments to 'insert'"),
        };
        ffi::lua_rawseti_(lua, 1, place);
        0
    }
}

/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn remove(lua: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, with the engine's state kept.
    unsafe {
        let end = length(lua);
        let place = int_argument_or(lua, 2, end);
        if !(1..=end).contains(&place) {
            return 0;
        }
        check_count(lua, i64::from(end) - i64::from(place));
        ffi::lua_rawgeti_(lua, 1, place);
        (place..end).for_each(|index| shift(lua, index + 1, index));
        ffi::lua_pushnil(lua);
        ffi::lua_rawseti_(lua, 1, end);
        1
    }
}

/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn foreachi(lua: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, with the engine's state kept. Each turn leaves the stack as it was.
    unsafe {
        let end = length(lua);
        ffi::luaL_checktype(lua, 2, ffi::LUA_TFUNCTION);
        for index in 1..=end {
            charge(lua, kept_state(lua), CALL_WORK);
            ffi::lua_pushvalue(lua, 2);
            ffi::lua_pushinteger(lua, index as ffi::lua_Integer);
            ffi::lua_rawgeti_(lua, 1, index);
            ffi::lua_call(lua, 2, 1);
            if ffi::lua_type(lua, -1) != ffi::LUA_TNIL {
                return 1;
            }
            ffi::lua_pop(lua, 1);
        }
        0
    }
}

/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn foreach(lua: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, with the engine's state kept. Each turn leaves the key alone on the stack.
    unsafe {
        ffi::luaL_checktype(lua, 1, ffi::LUA_TTABLE);
        ffi::luaL_checktype(lua, 2, ffi::LUA_TFUNCTION);
        ffi::lua_pushnil(lua);
        while ffi::lua_next(lua, 1) != 0 {
            charge(lua, kept_state(lua), CALL_WORK);
            ffi::lua_pushvalue(lua, 2);
            ffi::lua_pushvalue(lua, -3);
            ffi::lua_pushvalue(lua, -3);
            ffi::lua_call(lua, 2, 1);
            if ffi::lua_type(lua, -1) != ffi::LUA_TNIL {
                return 1;
            }
            ffi::lua_pop(lua, 2);
        }
        0
    }
}
