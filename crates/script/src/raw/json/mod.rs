//! `cjson.decode` and `cjson.encode`, between the interpreter's stack and JSON.
//!
//! What the words of a text are is said in [`crate::cjson`]; here values are made of them, and they of values.
//!
//! Invariants, besides those at the head of this folder:
//! 1. No program of a script runs meanwhile: tables are read and written without asking their metatables. So the buffer in
//!    the engine's `State` belongs to one call at a time, though an error of the interpreter may end it anywhere.
//! 2. Why a call failed is a plain value, which the library in front of the interpreter puts into words.

mod decode;
mod encode;

use super::{bytes_at, push_bytes};
use crate::cjson::{Choices, Failed};
use crate::engine::State;
use crate::library;
use mlua::ffi::{self, lua_State};
use mlua::{Function, LightUserData, Lua, Result};
use std::ffi::c_int;
use std::rc::Rc;

/// Bytes of a text that are read or written in the time of one instruction.
const BYTES_PER_INSTRUCTION: usize = 2;

/// The functions `decode` and `encode` for scripts, with these choices. `state` outlives the interpreter.
pub(crate) fn functions(lua: &Lua, state: &Rc<State>, choices: &Rc<Choices>) -> Result<(Function, Function)> {
    let decode = closure(lua, (state, choices), decode)?;
    let encode = closure(lua, (state, choices), encode)?;
    Ok((decode, encode))
}

fn closure(
    lua: &Lua,
    (state, choices): (&Rc<State>, &Rc<Choices>),
    function: ffi::lua_CFunction,
) -> Result<Function> {
    let pointers = [pointer(state), pointer(choices)];
    let kept = (state.clone(), choices.clone());
    // As long as the closure has it, the choices live.
    let fail = lua.create_function(move |lua, ()| {
        let (state, _choices) = &kept;
        let failed = state.json_failed.take().unwrap_or(Failed::TooLarge);
        Err::<(), _>(failed.raised(lua))
    })?;
    // SAFETY: the three values on the stack become the closure, the only result.
    unsafe { lua.exec_raw((pointers[0], pointers[1], fail), |lua| ffi::lua_pushcclosure(lua, function, 3)) }
}

fn pointer<T>(to: &Rc<T>) -> LightUserData {
    LightUserData(Rc::as_ptr(to).cast_mut().cast())
}

/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn decode(lua: *mut lua_State) -> c_int {
    // SAFETY: the interpreter calls it, as `closure` made it.
    unsafe {
        let (state, choices) = kept(lua);
        match decode_argument(lua, state, choices) {
            Ok(()) => {
                library::charge(lua, state, ffi::lua_objlen(lua, 1) / BYTES_PER_INSTRUCTION);
                1
            }
            Err(failed) => fail(lua, state, failed),
        }
    }
}

/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn encode(lua: *mut lua_State) -> c_int {
    // SAFETY: the interpreter calls it, as `closure` made it. The buffer is borrowed by nobody else until the next call, and what
    // is pushed is a copy.
    unsafe {
        let (state, choices) = kept(lua);
        if ffi::lua_gettop(lua) != 1 {
            return fail(lua, state, Failed::ArgumentCount);
        }
        let out = &mut *state.json_text.as_ptr();
        match encode::encode(lua, choices, out) {
            Ok(()) => push_bytes(lua, out),
            Err(failed) => return fail(lua, state, failed),
        }
        library::charge(lua, state, out.len() / BYTES_PER_INSTRUCTION);
        1
    }
}

/// # Safety
/// Only from a closure of [`closure`].
unsafe fn kept<'a>(lua: *mut lua_State) -> (&'a State, &'a Choices) {
    // SAFETY: the state lives as long as the interpreter, and the choices as long as the closure.
    unsafe {
        let state = ffi::lua_touserdata(lua, ffi::lua_upvalueindex(1)).cast::<State>();
        let choices = ffi::lua_touserdata(lua, ffi::lua_upvalueindex(2)).cast::<Choices>();
        (&*state, &*choices)
    }
}

/// Pushes what the only argument stands for.
///
/// # Safety
/// As for [`kept`].
unsafe fn decode_argument(
    lua: *mut lua_State,
    state: &State,
    choices: &Choices,
) -> std::result::Result<(), Failed> {
    // SAFETY: the caller's promise. The text stays where it is, as the first value on the stack; a number becomes one there. The
    // buffer is borrowed by nobody else until the next call.
    unsafe {
        if ffi::lua_gettop(lua) != 1 {
            return Err(Failed::ArgumentCount);
        }
        match ffi::lua_type(lua, 1) {
            ffi::LUA_TSTRING | ffi::LUA_TNUMBER => {}
            _ => return Err(Failed::NoString(type_name(lua, 1))),
        }
        let text = bytes_at(lua, 1);
        decode::decode(lua, text, choices, &mut *state.json_text.as_ptr())
    }
}

/// # Safety
/// As for [`kept`]. It does not come back.
#[cold]
unsafe fn fail(lua: *mut lua_State, state: &State, failed: Failed) -> c_int {
    state.json_failed.set(Some(failed));
    // SAFETY: the caller's promise; there is room on the emptied stack.
    unsafe {
        ffi::lua_settop(lua, 0);
        ffi::lua_pushvalue(lua, ffi::lua_upvalueindex(3));
        ffi::lua_call(lua, 0, 0);
    }
    0
}

/// Lua's name of the type of a value on the stack.
///
/// # Safety
/// There is a value at `index`.
unsafe fn type_name(lua: *mut lua_State, index: c_int) -> &'static str {
    // SAFETY: the caller's promise.
    match unsafe { ffi::lua_type(lua, index) } {
        ffi::LUA_TNIL => "nil",
        ffi::LUA_TBOOLEAN => "boolean",
        ffi::LUA_TNUMBER => "number",
        ffi::LUA_TSTRING => "string",
        ffi::LUA_TTABLE => "table",
        ffi::LUA_TFUNCTION => "function",
        ffi::LUA_TTHREAD => "thread",
        _ => "userdata",
    }
}
