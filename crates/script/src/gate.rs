//! In front of functions that scripts call: what they may pass at once, and which tables they may write into. Those of Lua's
//! own library that scripts must not have as they are complain in its own words, with the name and the line of the call.
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

use crate::engine::State;
use crate::limits::{COROUTINES_PER_PULSE, FIXED_VALUES_MAX, VALUES_MAX};
use mlua::ffi::{self, lua_State};
use mlua::{Function, IntoLuaMulti, LightUserData, Lua, Result, String as LuaString, Table, Value};
use std::ffi::c_int;
use std::rc::Rc;

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

/// Makes what stands in front of the functions that make coroutines: each coroutine counts its instructions anew, so making some
/// counts as running for a while. `state` outlives the interpreter.
pub(crate) fn coroutine_maker(lua: &Lua, state: &Rc<State>) -> Result<Function> {
    let (ticking, address) = (state.clone(), LightUserData(Rc::as_ptr(state).cast_mut().cast()));
    let tick = lua.create_function(move |_, ()| ticking.pulse())?;
    lua.create_function(move |lua, function: Function| closure(lua, counted, (function, address, &tick), 3))
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

/// What stands before the functions of Lua's own library: a table of functions for `sandbox.lua`, each of which makes one.
pub(crate) fn makers(lua: &Lua) -> Result<Table> {
    let makers = lua.create_table()?;
    let reading: [(&str, ffi::lua_CFunction); 4] = [
        ("next", on_table::<1, false>),
        ("rawget", on_table::<2, false>),
        ("rawset", on_table::<3, true>),
        ("setmetatable", on_metatable),
    ];
    for (name, gate) in reading {
        let maker = move |lua: &Lua, kept: (Function, Table)| closure(lua, gate, kept, 2);
        makers.raw_set(name, lua.create_function(maker)?)?;
    }
    let getmetatable = |lua: &Lua, kept: (Function, Table)| closure(lua, metatable_of, kept, 2);
    makers.raw_set("getmetatable", lua.create_function(getmetatable)?)?;
    let pairs = |lua: &Lua, kept: (Function, Table, Function)| closure(lua, pairs_of, kept, 3);
    makers.raw_set("pairs", lua.create_function(pairs)?)?;
    let pcall = |lua: &Lua, settle: Function| closure(lua, protected, settle, 1);
    makers.raw_set("pcall", lua.create_function(pcall)?)?;
    let xpcall = |lua: &Lua, kept: (Function, Function)| closure(lua, protected_with, kept, 2);
    makers.raw_set("xpcall", lua.create_function(xpcall)?)?;
    let resume = |lua: &Lua, kept: (Function, Function)| closure(lua, resumed, kept, 2);
    makers.raw_set("resume", lua.create_function(resume)?)?;
    Ok(makers)
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
unsafe extern "C-unwind" fn counted(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, with its state and three values kept: a function of C, the engine's state, which outlives
    // the interpreter, and a function. The first runs in this frame, as if it had been called itself.
    unsafe {
        let shared = &*ffi::lua_touserdata(state, ffi::lua_upvalueindex(2)).cast::<State>();
        shared.coroutines.set(shared.coroutines.get().wrapping_add(1));
        if shared.coroutines.get().is_multiple_of(COROUTINES_PER_PULSE) {
            ffi::lua_pushvalue(state, ffi::lua_upvalueindex(3));
            ffi::lua_call(state, 0, 0);
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

/// What scripts are told who write to what belongs to all.
const READONLY: &[u8] = b"Attempt to modify a readonly table";

/// Puts in place of a stand-in the table behind it; whether there was one.
///
/// # Safety
/// Only from a function of C that the interpreter called, with a table as its first value and the table of what is behind
/// stand-ins as its second kept value.
unsafe fn look_behind(state: *mut lua_State) -> bool {
    // SAFETY: the caller's promise; one value more fits the stack, and is taken off it again.
    unsafe {
        ffi::lua_pushvalue(state, 1);
        let is_front = ffi::lua_rawget(state, ffi::lua_upvalueindex(2)) == ffi::LUA_TTABLE;
        match is_front {
            true => ffi::lua_replace(state, 1),
            false => ffi::lua_pop(state, 1),
        }
        is_front
    }
}

/// Raises [`READONLY`], without a line, as the interpreter of Redis does.
///
/// # Safety
/// Only from a function of C that the interpreter called.
unsafe fn refuse(state: *mut lua_State) -> c_int {
    // SAFETY: the caller's promise; the text is copied before the error jumps.
    unsafe {
        ffi::lua_pushlstring(state, READONLY.as_ptr().cast(), READONLY.len());
        ffi::lua_error(state)
    }
}

/// In front of a function that takes a table and needs `VALUES` values: it gets what is behind a stand-in, if it does not write.
///
/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn on_table<const VALUES: c_int, const WRITES: bool>(
    state: *mut lua_State,
) -> c_int {
    // SAFETY: called by the interpreter, with its state and two values kept: the function and what is behind stand-ins.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        (2..=VALUES).for_each(|number| ffi::luaL_checkany(state, number));
        match look_behind(state) && WRITES {
            true => refuse(state),
            false => pass_on(state),
        }
    }
}

/// `getmetatable`: stand-ins have the one that the second kept value has for them.
///
/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn metatable_of(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, with its state and two values kept: the function and a table. One value more fits
    // the stack.
    unsafe {
        ffi::luaL_checkany(state, 1);
        ffi::lua_settop(state, 1);
        ffi::lua_pushvalue(state, 1);
        match ffi::lua_rawget(state, ffi::lua_upvalueindex(2)) {
            ffi::LUA_TNIL => ffi::lua_settop(state, 1),
            // It stands for none.
            ffi::LUA_TBOOLEAN => {
                ffi::lua_pushnil(state);
                return 1;
            }
            _ => return 1,
        }
        pass_on(state)
    }
}

/// `setmetatable`.
///
/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn on_metatable(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, with its state and two values kept: the function and what is behind stand-ins.
    unsafe {
        let kind = ffi::lua_type(state, 2);
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        if kind != ffi::LUA_TNIL && kind != ffi::LUA_TTABLE {
            return ffi::luaL_argerror(state, 2, c"nil or table expected".as_ptr());
        }
        if look_behind(state) {
            return refuse(state);
        }
        if ffi::luaL_getmetafield(state, 1, c"__metatable".as_ptr()) != ffi::LUA_TNIL {
            return ffi::luaL_error(state, c"cannot change a protected metatable".as_ptr());
        }
        pass_on(state)
    }
}

/// `pairs`: `next`, which for a stand-in is the one that sees through it, and the table.
///
/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn pairs_of(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, with its state and three values kept: Lua's `next`, what is behind stand-ins and
    // the scripts' `next`.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        ffi::lua_settop(state, 1);
        ffi::lua_pushvalue(state, 1);
        let is_front = look_behind(state);
        ffi::lua_replace(state, 1);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(if is_front { 3 } else { 1 }));
        ffi::lua_insert(state, 1);
        ffi::lua_pushnil(state);
        3
    }
}

/// `pcall`, whose error goes through the first kept value.
///
/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn protected(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, with its state and one function kept. What a call that failed leaves is one value.
    unsafe {
        ffi::luaL_checkany(state, 1);
        let status = ffi::lua_pcall(state, ffi::lua_gettop(state) - 1, ffi::LUA_MULTRET, 0);
        settle(state, status)
    }
}

/// `xpcall`: the second kept value makes the handler one that sees errors as scripts do.
///
/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn protected_with(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, with its state and two functions kept. The handler takes the first place.
    unsafe {
        ffi::luaL_checkany(state, 2);
        ffi::lua_settop(state, 2);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(2));
        ffi::lua_insert(state, 2);
        ffi::lua_call(state, 1, 1);
        ffi::lua_insert(state, 1);
        let status = ffi::lua_pcall(state, 0, ffi::LUA_MULTRET, 1);
        ffi::lua_remove(state, 1);
        settle(state, status)
    }
}

/// Puts before the results whether the call went well; an error becomes what the first kept value makes of it.
///
/// # Safety
/// Only from a function of C that the interpreter called, behind a protected call whose results are all that is on the stack.
unsafe fn settle(state: *mut lua_State, status: c_int) -> c_int {
    // SAFETY: the caller's promise. Results may have filled the stack, so room is made.
    unsafe {
        if ffi::lua_checkstack(state, 2) == 0 {
            ffi::lua_settop(state, 0);
            return ffi::luaL_error(state, c"stack overflow".as_ptr());
        }
        if status != ffi::LUA_OK {
            ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
            ffi::lua_insert(state, -2);
            ffi::lua_call(state, 1, ffi::LUA_MULTRET);
        }
        ffi::lua_pushboolean(state, c_int::from(status == ffi::LUA_OK));
        ffi::lua_insert(state, 1);
        ffi::lua_gettop(state)
    }
}

/// `coroutine.resume`, the second kept value, whose error goes through the first one.
///
/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn resumed(state: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, with its state and two functions kept. `resume` gives at least one value, and
    // exactly two if the first is false.
    unsafe {
        if ffi::lua_type(state, 1) != ffi::LUA_TTHREAD {
            return ffi::luaL_argerror(state, 1, c"coroutine expected".as_ptr());
        }
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(2));
        ffi::lua_insert(state, 1);
        ffi::lua_call(state, ffi::lua_gettop(state) - 1, ffi::LUA_MULTRET);
        if ffi::lua_toboolean(state, 1) == 0 {
            ffi::lua_remove(state, 1);
            return settle(state, ffi::LUA_ERRRUN);
        }
        ffi::lua_gettop(state)
    }
}
