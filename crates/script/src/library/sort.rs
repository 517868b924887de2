//! `table.sort`: the same exchanges in the same order as those of Lua's own library, so that equal elements, and functions that are no
//! order, end in the same places. It can be ended between two comparisons.

use super::tables::{check_count, length};
use super::{CALL_WORK, charge, kept_state, raise};
use mlua::ffi::{self, lua_State};
use std::ffi::c_int;

/// Values on the stack at once: three of each level, of which there are as many as halvings, and those of a comparison.
const VALUES_MAX: c_int = 40;

/// Bytes that are compared in the time of one instruction.
const BYTES_PER_INSTRUCTION: usize = 32;

/// # Safety
/// Only the interpreter may call it.
pub(super) unsafe extern "C-unwind" fn sort(lua: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, with the engine's state kept; two arguments are on the stack from here on.
    unsafe {
        let count = length(lua);
        ffi::luaL_checkstack(lua, VALUES_MAX, c"".as_ptr());
        if ffi::lua_isnoneornil(lua, 2) == 0 {
            ffi::luaL_checktype(lua, 2, ffi::LUA_TFUNCTION);
        }
        ffi::lua_settop(lua, 2);
        check_count(lua, i64::from(count));
        sort_range(lua, 1, count);
        0
    }
}

/// Sorts the elements from `low` to `high`.
///
/// # Safety
/// Only from [`sort`]. The stack is left as it was.
unsafe fn sort_range(lua: *mut lua_State, mut low: c_int, mut high: c_int) {
    // SAFETY: the caller's promise.
    unsafe {
        while low < high {
            order_pair(lua, low, high);
            if high - low == 1 {
                break;
            }
            let middle = (low + high) / 2;
            order_middle(lua, low, middle, high);
            if high - low == 2 {
                break;
            }
            ffi::lua_rawgeti_(lua, 1, middle);
            ffi::lua_pushvalue(lua, -1);
            ffi::lua_rawgeti_(lua, 1, high - 1);
            set_both(lua, middle, high - 1);
            let place = partition(lua, low, high);
            // The smaller part by a call, so that there are few.
            let smaller = if place - low < high - place {
                let part = (low, place - 1);
                low = place + 1;
                part
            } else {
                let part = (place + 1, high);
                high = place - 1;
                part
            };
            sort_range(lua, smaller.0, smaller.1);
        }
    }
}

/// Puts the first and the last element in order.
///
/// # Safety
/// As for [`sort_range`].
unsafe fn order_pair(lua: *mut lua_State, low: c_int, high: c_int) {
    // SAFETY: the caller's promise.
    unsafe {
        ffi::lua_rawgeti_(lua, 1, low);
        ffi::lua_rawgeti_(lua, 1, high);
        match is_less(lua, -1, -2) {
            true => set_both(lua, low, high),
            false => ffi::lua_pop(lua, 2),
        }
    }
}

/// Puts the one in the middle in order with the first and the last, which are.
///
/// # Safety
/// As for [`sort_range`].
unsafe fn order_middle(lua: *mut lua_State, low: c_int, middle: c_int, high: c_int) {
    // SAFETY: the caller's promise.
    unsafe {
        ffi::lua_rawgeti_(lua, 1, middle);
        ffi::lua_rawgeti_(lua, 1, low);
        if is_less(lua, -2, -1) {
            return set_both(lua, middle, low);
        }
        ffi::lua_pop(lua, 1);
        ffi::lua_rawgeti_(lua, 1, high);
        match is_less(lua, -1, -2) {
            true => set_both(lua, middle, high),
            false => ffi::lua_pop(lua, 2),
        }
    }
}

/// Moves what is less than the pivot, on top of the stack and last but one of the range, before what is not. Gives the pivot's
/// place and takes it off.
///
/// # Safety
/// As for [`sort_range`].
unsafe fn partition(lua: *mut lua_State, low: c_int, high: c_int) -> c_int {
    let (mut first, mut last) = (low, high - 1);
    // SAFETY: the caller's promise. What a function does to the elements changes where this stops, but not beyond the range.
    unsafe {
        loop {
            first += 1;
            ffi::lua_rawgeti_(lua, 1, first);
            while is_less(lua, -1, -2) {
                if first > high {
                    raise(lua, "invalid order function for sorting");
                }
                ffi::lua_pop(lua, 1);
                first += 1;
                ffi::lua_rawgeti_(lua, 1, first);
            }
            last -= 1;
            ffi::lua_rawgeti_(lua, 1, last);
            while is_less(lua, -3, -1) {
                if last < low {
                    raise(lua, "invalid order function for sorting");
                }
                ffi::lua_pop(lua, 1);
                last -= 1;
                ffi::lua_rawgeti_(lua, 1, last);
            }
            if last < first {
                ffi::lua_pop(lua, 3);
                break;
            }
            set_both(lua, first, last);
        }
        ffi::lua_rawgeti_(lua, 1, high - 1);
        ffi::lua_rawgeti_(lua, 1, first);
        set_both(lua, high - 1, first);
    }
    first
}

/// Takes two values off the stack into these places, the top one first.
///
/// # Safety
/// As for [`sort_range`].
unsafe fn set_both(lua: *mut lua_State, top: c_int, below: c_int) {
    // SAFETY: the caller's promise.
    unsafe {
        ffi::lua_rawseti_(lua, 1, top);
        ffi::lua_rawseti_(lua, 1, below);
    }
}

/// Whether one value, counted from the top of the stack, is less than another.
///
/// # Safety
/// As for [`sort_range`].
unsafe fn is_less(lua: *mut lua_State, one: c_int, other: c_int) -> bool {
    // SAFETY: the caller's promise; there is room for three values more.
    unsafe {
        let mut work = 4;
        if ffi::lua_type(lua, one) == ffi::LUA_TSTRING && ffi::lua_type(lua, other) == ffi::LUA_TSTRING {
            work += ffi::lua_objlen(lua, one).min(ffi::lua_objlen(lua, other)) / BYTES_PER_INSTRUCTION;
        }
        let is_plain = ffi::lua_type(lua, 2) == ffi::LUA_TNIL;
        charge(lua, kept_state(lua), work + if is_plain { 0 } else { CALL_WORK });
        if is_plain {
            return ffi::lua_lessthan(lua, one, other) != 0;
        }
        ffi::lua_pushvalue(lua, 2);
        ffi::lua_pushvalue(lua, one - 1);
        ffi::lua_pushvalue(lua, other - 2);
        ffi::lua_call(lua, 2, 1);
        let is_less = ffi::lua_toboolean(lua, -1) != 0;
        ffi::lua_pop(lua, 1);
        is_less
    }
}
