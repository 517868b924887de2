//! The look at what has been done that the interpreter takes every so many instructions.

use super::{address, charge};
use crate::engine::State;
use crate::limits::{INSTRUCTIONS_PER_LOOK, INSTRUCTIONS_PER_LOOK_MIN};
use mlua::ffi::{self, lua_Debug, lua_State};
use mlua::{Lua, Result};
use std::ffi::{c_int, c_void};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What an instruction takes, if it is nothing special.
const INSTRUCTION: Duration = Duration::from_nanos(3);

/// What instructions take on average that are slow: longer than those that call commands.
const SLOW_INSTRUCTION: Duration = Duration::from_micros(10);

/// Where in the interpreter's registry the state's address lies: at the address of this.
static STATE: u8 = 0;

fn key() -> *mut c_void {
    (&raw const STATE).cast_mut().cast()
}

/// Has the interpreter, and each coroutine that scripts make, count what they do.
pub(crate) fn watch(lua: &Lua, state: &Rc<State>) -> Result<()> {
    // SAFETY: the address is alone on the stack, and goes into the registry.
    unsafe {
        lua.exec_raw::<()>(address(state), |lua| {
            ffi::lua_pushlightuserdata(lua, key());
            ffi::lua_insert(lua, 1);
            ffi::lua_rawset(lua, ffi::LUA_REGISTRYINDEX);
            ffi::lua_sethook(lua, Some(look), ffi::LUA_MASKCOUNT, INSTRUCTIONS_PER_LOOK as c_int);
        })
    }
}

/// One instruction may join strings of a hundred megabytes. So time counts, and where instructions take long this comes sooner.
///
/// # Safety
/// Only the interpreter may call it, between two instructions.
unsafe extern "C-unwind" fn look(lua: *mut lua_State, _: *mut lua_Debug) {
    // SAFETY: the interpreter calls it, with room for some values and the engine's state in its registry.
    unsafe {
        ffi::lua_pushlightuserdata(lua, key());
        ffi::lua_rawget_(lua, ffi::LUA_REGISTRYINDEX);
        let state = &*ffi::lua_touserdata(lua, -1).cast::<State>();
        ffi::lua_pop(lua, 1);
        let instructions = ffi::lua_gethookcount(lua).unsigned_abs();
        let now = Instant::now();
        let took = state.looked_at.replace(Some(now)).map_or(Duration::ZERO, |before| now - before);
        let (next, work) = judge(instructions, took);
        if next != instructions {
            ffi::lua_sethook(lua, Some(look), ffi::LUA_MASKCOUNT, next as c_int);
        }
        charge(lua, state, work);
    }
}

/// After how many instructions to look again, and what those that took so long count for.
fn judge(instructions: u32, took: Duration) -> (u32, usize) {
    if took <= SLOW_INSTRUCTION * instructions {
        return ((instructions * 2).min(INSTRUCTIONS_PER_LOOK), instructions as usize);
    }
    let work = took.as_nanos() / INSTRUCTION.as_nanos();
    ((instructions / 8).max(INSTRUCTIONS_PER_LOOK_MIN), usize::try_from(work).unwrap_or(usize::MAX))
}
