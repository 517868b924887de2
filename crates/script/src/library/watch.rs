//! The look at what has been done that the interpreter takes every so many instructions.

use super::{address, charge};
use crate::engine::State;
use crate::host;
use crate::limits::{INSTRUCTIONS_BEFORE_LOOK, INSTRUCTIONS_PER_LOOK, LOOK_TIME};
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
            look_after(lua, INSTRUCTIONS_BEFORE_LOOK);
        })
    }
}

/// Has the first look at a run come early: it says nothing yet of how long its instructions take.
///
/// # Safety
/// The interpreter's state, of which nothing runs yet.
pub(crate) unsafe fn begin(lua: *mut lua_State) {
    // SAFETY: the caller's promise.
    unsafe { look_after(lua, INSTRUCTIONS_BEFORE_LOOK) }
}

/// # Safety
/// A state of the interpreter.
unsafe fn look_after(lua: *mut lua_State, instructions: u32) {
    // SAFETY: the caller's promise; this only notes the number.
    unsafe { ffi::lua_sethook(lua, Some(look), ffi::LUA_MASKCOUNT, instructions as c_int) };
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
        let before = state.looked_at.replace(Some(now)).or_else(|| host::with(|host| host.began()));
        let took = before.map_or(Duration::ZERO, |before| now.saturating_duration_since(before));
        let (next, work) = judge(instructions, took);
        if next != instructions {
            look_after(lua, next);
        }
        charge(lua, state, work);
    }
}

/// After how many instructions to look again, and what those that took so long count for.
fn judge(instructions: u32, took: Duration) -> (u32, usize) {
    /// Slow ones may follow upon quick ones at any time.
    const GROWTH_MAX: u32 = 4;
    let fitting = u128::from(instructions) * LOOK_TIME.as_nanos() / took.as_nanos().max(1);
    let most = (instructions * GROWTH_MAX).min(INSTRUCTIONS_PER_LOOK);
    let next = u32::try_from(fitting).unwrap_or(u32::MAX).clamp(1, most);
    match took <= SLOW_INSTRUCTION * instructions {
        true => (next, instructions as usize),
        false => {
            let work = took.as_nanos() / INSTRUCTION.as_nanos();
            (next, usize::try_from(work).unwrap_or(usize::MAX))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_come_as_soon_as_instructions_turn_out_to_be_slow() {
        assert_eq!(judge(1000, Duration::from_micros(3)), (1000, 1000));
        assert_eq!(judge(20, Duration::ZERO), (80, 20));
        assert_eq!(judge(1000, LOOK_TIME), (1000, 1000));
        let (next, work) = judge(1000, Duration::from_secs(90));
        assert_eq!((next, work), (1, 30_000_000_000));
        assert_eq!(judge(1, Duration::from_secs(1)).0, 1);
        assert_eq!(judge(1, Duration::ZERO).0, 4);
    }
}
