//! In place of functions of Lua's own library that know no bounds: each has the answers and the words of the one that it stands for,
//! but goes only so deep, takes only so much at once, and can be ended while it works.
//!
//! What the interpreter does is counted in instructions, and each so many the host is asked whether the script may go on. One call of the
//! library can do as much as millions of them, so it counts for what it does ([`charge`]).
//!
//! Thread rule: that of the engine.
//!
//! Invariants:
//! 1. An error of the interpreter, and what ends a script, jumps over the frames of these functions: nothing in them has to be dropped
//!    where a function of the interpreter is called that may raise one.
//! 2. Strings of the interpreter stay on its stack, or with the function that keeps them, for as long as their bytes are used.
//! 3. The engine's `State` outlives the interpreter, in whose functions its address is kept.

mod buffer;
mod plain;
mod sort;
mod strings;
mod tables;
mod watch;

pub(crate) use watch::{begin, watch};

use crate::engine::State;
use crate::limits::INSTRUCTIONS_PER_PULSE;
use mlua::ffi::{self, lua_State};
use mlua::{Function, LightUserData, Lua, Result, Table};
use std::ffi::c_int;
use std::rc::Rc;

/// Bytes that are gone through in the time of one instruction.
pub(crate) const BYTES_PER_INSTRUCTION: usize = 4;

/// Instructions in whose time a function is called that does nothing.
const CALL_WORK: usize = 20;

/// Puts these functions in the places of the interpreter's own.
pub(crate) fn install(lua: &Lua, state: &Rc<State>) -> Result<()> {
    let globals = lua.globals();
    strings::install(lua, state, &globals.raw_get("string")?)?;
    tables::install(lua, state, &globals.raw_get("table")?)?;
    plain::install(lua, state, &globals)
}

/// `table.insert`, which refuses to write into a table that is a key of `behind`.
pub(crate) fn insert(lua: &Lua, state: &Rc<State>, behind: Table) -> Result<Function> {
    tables::insert(lua, state, behind)
}

fn address(state: &Rc<State>) -> LightUserData {
    LightUserData(Rc::as_ptr(state).cast_mut().cast())
}

/// A function that keeps the engine's state.
fn closure(lua: &Lua, state: &Rc<State>, function: ffi::lua_CFunction) -> Result<Function> {
    // SAFETY: the address is alone on the stack and becomes the closure, the only result.
    unsafe { lua.exec_raw(address(state), |lua| ffi::lua_pushcclosure(lua, function, 1)) }
}

/// A function of the interpreter that counts for the bytes of the strings that go in and come out.
fn charged(lua: &Lua, state: &Rc<State>, function: Function) -> Result<Function> {
    // SAFETY: both values on the stack become the closure, the only result.
    unsafe {
        lua.exec_raw((address(state), function), |lua| ffi::lua_pushcclosure(lua, charged_for_bytes, 2))
    }
}

/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn charged_for_bytes(lua: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, with the engine's state and a function of C kept. That runs in this frame, as if it had
    // been called itself, and leaves its results on top.
    unsafe {
        let Some(function) = ffi::lua_tocfunction(lua, ffi::lua_upvalueindex(2)) else { return 0 };
        let given = bytes_on_top(lua, ffi::lua_gettop(lua));
        let results = function(lua);
        let bytes = given.saturating_add(bytes_on_top(lua, results));
        charge(lua, kept_state(lua), bytes / BYTES_PER_INSTRUCTION);
        results
    }
}

/// How many bytes the strings among so many values on top of the stack have.
///
/// # Safety
/// So many values are there.
unsafe fn bytes_on_top(lua: *mut lua_State, values: c_int) -> usize {
    let bytes = |index| {
        // SAFETY: the caller's promise.
        match unsafe { ffi::lua_type(lua, index) } {
            // SAFETY: the same.
            ffi::LUA_TSTRING => unsafe { ffi::lua_objlen(lua, index) },
            _ => 0,
        }
    };
    (1..=values).map(|depth| bytes(-depth)).fold(0, usize::saturating_add)
}

/// The engine's state.
///
/// # Safety
/// Only from a function of C that keeps its address as its first value.
unsafe fn kept_state<'a>(lua: *mut lua_State) -> &'a State {
    // SAFETY: the caller's promise; the state outlives the interpreter.
    unsafe { &*ffi::lua_touserdata(lua, ffi::lua_upvalueindex(1)).cast::<State>() }
}

/// Counts what has been done. Each so much the host is asked whether the script goes on; if not, this does not come back.
///
/// # Safety
/// Only from a function that the interpreter called, with nothing to be dropped. There is room for one value.
pub(crate) unsafe fn charge(lua: *mut lua_State, state: &State, work: usize) {
    if !state.spend(work) {
        // SAFETY: the caller's promise.
        unsafe { ask(lua, state) }
    }
}

/// Asks the host whether the script goes on, or raises what it has said already; then this does not come back.
///
/// # Safety
/// As for [`charge`].
#[cold]
unsafe fn ask(lua: *mut lua_State, state: &State) {
    // SAFETY: the caller's promise.
    unsafe {
        state.anchors().push_tick(lua);
        ffi::lua_call(lua, 0, 0);
    }
}

/// Raises an error with the place of the call before it.
///
/// # Safety
/// Only from a function that the interpreter called, with nothing to be dropped. It does not come back.
#[cold]
unsafe fn raise(lua: *mut lua_State, message: &str) -> ! {
    // SAFETY: the caller's promise; the text is copied, and a function of C has room for some values.
    unsafe {
        ffi::lua_settop(lua, 0);
        ffi::luaL_where(lua, 1);
        ffi::lua_pushlstring_(lua, message.as_ptr().cast(), message.len());
        ffi::lua_concat(lua, 2);
        ffi::lua_error(lua)
    }
}

/// The bytes of a string, or of a number that becomes one, among the arguments.
///
/// # Safety
/// As for [`raise`]; the value stays where it is for as long as the bytes are used.
unsafe fn string_argument<'a>(lua: *mut lua_State, number: c_int) -> &'a [u8] {
    let mut length = 0;
    // SAFETY: the caller's promise.
    unsafe {
        let bytes = ffi::luaL_checklstring(lua, number, &raw mut length);
        std::slice::from_raw_parts(bytes.cast(), length)
    }
}

/// A number among the arguments as C's `int`, as the interpreter makes one.
///
/// # Safety
/// As for [`raise`].
unsafe fn int_argument(lua: *mut lua_State, number: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { ffi::luaL_checkinteger(lua, number) as c_int }
}

/// The same, with a value for one that is not given.
///
/// # Safety
/// As for [`raise`].
unsafe fn int_argument_or(lua: *mut lua_State, number: c_int, otherwise: c_int) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { ffi::lua_isnoneornil(lua, number) } != 0 {
        true => otherwise,
        // SAFETY: the same.
        false => unsafe { int_argument(lua, number) },
    }
}

impl State {
    /// Counts what has been done. False: it is time to ask whether to go on.
    pub fn spend(&self, work: usize) -> bool {
        let done = self.work.get().saturating_add(work);
        let is_time = done >= INSTRUCTIONS_PER_PULSE;
        self.work.set(if is_time { 0 } else { done });
        !is_time
    }

    /// The same, where errors are returned.
    pub fn charge(&self, work: usize) -> Result<()> {
        if self.spend(work) { Ok(()) } else { self.pulse() }
    }
}
