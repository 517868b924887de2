//! The table `string`: `find`, `match`, `gmatch`, `gsub` and `rep`, and a price for all others.

use super::buffer::Buffer;
use super::{BYTES_PER_INSTRUCTION, ask, charge, charged, closure, kept_state, raise, string_argument};
use super::{CALL_WORK, int_argument, int_argument_or};
use crate::engine::State;
use crate::limits::STATE_BYTES_MAX;
use crate::pattern::{self, Captured, ESCAPE, Failed, Matcher, Meter};
use mlua::ffi::{self, lua_State};
use mlua::{Lua, Result, Table};
use std::ffi::c_int;
use std::rc::Rc;

/// Those whose work is a little for each byte that goes in and comes out.
const LINEAR: &[&str] = &["byte", "char", "dump", "format", "lower", "reverse", "sub", "upper"];

pub(super) fn install(lua: &Lua, state: &Rc<State>, string: &Table) -> Result<()> {
    let gmatch = closure(lua, state, gmatch)?;
    string.raw_set("find", closure(lua, state, find)?)?;
    string.raw_set("match", closure(lua, state, match_)?)?;
    string.raw_set("gfind", &gmatch)?;
    string.raw_set("gmatch", gmatch)?;
    string.raw_set("gsub", closure(lua, state, gsub)?)?;
    string.raw_set("rep", closure(lua, state, rep)?)?;
    for name in LINEAR {
        string.raw_set(*name, charged(lua, state, string.raw_get(*name)?)?)?;
    }
    Ok(())
}

/// Asks the host itself; what ends the script is raised when the search is over.
impl Meter for &State {
    fn spend(&mut self, work: usize) -> bool {
        if State::spend(self, work) {
            return true;
        }
        let answer = self.pulse();
        let goes_on = answer.is_ok();
        *self.stopped.borrow_mut() = answer.err();
        goes_on
    }
}

/// What a search found, or the end of this call.
///
/// # Safety
/// As for [`raise`].
unsafe fn settled<T>(lua: *mut lua_State, state: &State, found: std::result::Result<T, Failed>) -> T {
    match found {
        Ok(found) => found,
        // SAFETY: the caller's promise.
        Err(Failed::Wrong(message)) => unsafe { raise(lua, message) },
        // SAFETY: the same; the stack is made empty first, so that there is room.
        Err(Failed::Stopped) => unsafe {
            ffi::lua_settop(lua, 0);
            ask(lua, state);
            raise(lua, "stopped")
        },
    }
}

/// Pushes a capture of the match from `begin` to `end`.
///
/// # Safety
/// As for [`raise`]; there is room for a value.
unsafe fn push_capture(
    lua: *mut lua_State,
    matcher: &Matcher<'_, &State>,
    text: &[u8],
    (index, place): (usize, (usize, usize)),
) {
    match matcher.captured(index, place) {
        // SAFETY: the caller's promise.
        Ok(Captured::Position(at)) => unsafe { ffi::lua_pushinteger(lua, at as ffi::lua_Integer + 1) },
        Ok(Captured::Part(begin, end)) => {
            let part = &text[begin..end];
            // SAFETY: the same; the interpreter copies the bytes.
            unsafe { ffi::lua_pushlstring_(lua, part.as_ptr().cast(), part.len()) };
        }
        // SAFETY: the same.
        Err(Failed::Wrong(message)) => unsafe { raise(lua, message) },
        Err(Failed::Stopped) => {}
    }
}

/// Pushes `count` values of a match.
///
/// # Safety
/// As for [`raise`].
unsafe fn push_captures(
    lua: *mut lua_State,
    matcher: &Matcher<'_, &State>,
    text: &[u8],
    (count, place): (usize, (usize, usize)),
) -> c_int {
    // SAFETY: the caller's promise; there are few.
    unsafe {
        ffi::luaL_checkstack(lua, count as c_int, c"too many captures".as_ptr());
        (0..count).for_each(|index| push_capture(lua, matcher, text, (index, place)));
    }
    count as c_int
}

/// Where a search begins: counted from 1, or from the end.
///
/// # Safety
/// As for [`raise`].
unsafe fn beginning(lua: *mut lua_State, text: &[u8]) -> usize {
    // SAFETY: the caller's promise.
    let place = unsafe { ffi::luaL_optinteger(lua, 3, 1) };
    let place = if place < 0 { place.saturating_add(text.len() as ffi::lua_Integer + 1) } else { place };
    usize::try_from(place.max(1) - 1).unwrap_or(0).min(text.len())
}

/// The pattern without the mark that ties it to the beginning, and whether it had one.
fn untied(pattern: &[u8]) -> (&[u8], bool) {
    let pattern = pattern::visible(pattern);
    pattern.strip_prefix(b"^").map_or((pattern, false), |pattern| (pattern, true))
}

/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn find(lua: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, with the engine's state kept. The arguments stay on the stack.
    unsafe {
        let (text, pattern) = (string_argument(lua, 1), string_argument(lua, 2));
        let begin = beginning(lua, text);
        if ffi::lua_toboolean(lua, 4) == 0 && !pattern::is_plain(pattern) {
            return search(lua, (text, pattern, begin), true);
        }
        let mut state = kept_state(lua);
        let found = pattern::find_plain(&text[begin..], pattern, &mut state);
        let Some(at) = settled(lua, state, found) else {
            ffi::lua_pushnil(lua);
            return 1;
        };
        ffi::lua_pushinteger(lua, (begin + at + 1) as ffi::lua_Integer);
        ffi::lua_pushinteger(lua, (begin + at + pattern.len()) as ffi::lua_Integer);
        2
    }
}

/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn match_(lua: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter. The arguments stay on the stack.
    unsafe {
        let (text, pattern) = (string_argument(lua, 1), string_argument(lua, 2));
        search(lua, (text, pattern, beginning(lua, text)), false)
    }
}

/// Pushes what the first match from a place on captures; with its places before, if that is wanted.
///
/// # Safety
/// As for [`find`].
unsafe fn search(
    lua: *mut lua_State,
    (text, pattern, begin): (&[u8], &[u8], usize),
    wants_place: bool,
) -> c_int {
    let (pattern, is_tied) = untied(pattern);
    // SAFETY: the caller's promise.
    unsafe {
        let state = kept_state(lua);
        let mut matcher = Matcher::new(text, pattern, state);
        let last = if is_tied { begin } else { text.len() };
        for at in begin..=last {
            let Some(end) = settled(lua, state, matcher.match_at(at)) else { continue };
            if !wants_place {
                return push_captures(lua, &matcher, text, (matcher.values(), (at, end)));
            }
            ffi::lua_pushinteger(lua, at as ffi::lua_Integer + 1);
            ffi::lua_pushinteger(lua, end as ffi::lua_Integer);
            return 2 + push_captures(lua, &matcher, text, (matcher.captures(), (at, end)));
        }
        ffi::lua_pushnil(lua);
        1
    }
}

/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn gmatch(lua: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, with the engine's state kept: the first value of the new function, too.
    unsafe {
        string_argument(lua, 1);
        string_argument(lua, 2);
        ffi::lua_settop(lua, 2);
        ffi::lua_pushvalue(lua, ffi::lua_upvalueindex(1));
        ffi::lua_insert(lua, 1);
        ffi::lua_pushinteger(lua, 0);
        ffi::lua_pushcclosure(lua, next_match, 4);
        1
    }
}

/// What `gmatch` gives: the next match, from the place on that it keeps.
///
/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn next_match(lua: *mut lua_State) -> c_int {
    // SAFETY: called by the interpreter, with the engine's state, two strings and a number kept.
    unsafe {
        let (text, pattern) = (kept_string(lua, 2), kept_string(lua, 3));
        let begin = ffi::lua_tointeger(lua, ffi::lua_upvalueindex(4)) as usize;
        let state = kept_state(lua);
        let mut matcher = Matcher::new(text, pattern::visible(pattern), state);
        for at in begin..=text.len() {
            let Some(end) = settled(lua, state, matcher.match_at(at)) else { continue };
            let next = end + usize::from(end == at);
            ffi::lua_pushinteger(lua, next as ffi::lua_Integer);
            ffi::lua_replace(lua, ffi::lua_upvalueindex(4));
            return push_captures(lua, &matcher, text, (matcher.values(), (at, end)));
        }
        0
    }
}

/// # Safety
/// Only from a function of C that keeps a string there.
unsafe fn kept_string<'a>(lua: *mut lua_State, number: c_int) -> &'a [u8] {
    let mut length = 0;
    // SAFETY: the caller's promise; the function keeps the string.
    unsafe {
        let bytes = ffi::lua_tolstring(lua, ffi::lua_upvalueindex(number), &raw mut length);
        std::slice::from_raw_parts(bytes.cast(), length)
    }
}

/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn gsub(lua: *mut lua_State) -> c_int {
    let mut buffer = Buffer::new();
    // SAFETY: called by the interpreter, with the engine's state kept. The arguments stay on the stack, below what the buffer has there.
    unsafe {
        let (text, pattern) = (string_argument(lua, 1), string_argument(lua, 2));
        let kind = ffi::lua_type(lua, 3);
        let most = int_argument_or(lua, 4, (text.len() + 1) as c_int);
        let is_fit =
            matches!(kind, ffi::LUA_TNUMBER | ffi::LUA_TSTRING | ffi::LUA_TFUNCTION | ffi::LUA_TTABLE);
        if !is_fit {
            return ffi::luaL_argerror(lua, 3, c"string/function/table expected".as_ptr());
        }
        buffer.begin(lua);
        let state = kept_state(lua);
        let (pattern, is_tied) = untied(pattern);
        let mut matcher = Matcher::new(text, pattern, state);
        let (mut at, mut kept, mut count) = (0, 0, 0);
        while count < most {
            let end = settled(lua, state, matcher.match_at(at));
            if let Some(end) = end {
                count += 1;
                buffer.add(&text[kept..at]);
                replace(lua, &mut buffer, &matcher, (text, at, end));
                kept = end;
            }
            match end {
                Some(end) if end > at => at = end,
                _ if at < text.len() => at += 1,
                _ => break,
            }
            if is_tied {
                break;
            }
        }
        buffer.add(&text[kept..]);
        buffer.end();
        ffi::lua_pushinteger(lua, count as ffi::lua_Integer);
        2
    }
}

/// Adds what stands for a match: the third argument, or what it gives.
///
/// # Safety
/// Only from [`gsub`].
unsafe fn replace(
    lua: *mut lua_State,
    buffer: &mut Buffer,
    matcher: &Matcher<'_, &State>,
    (text, begin, end): (&[u8], usize, usize),
) {
    // SAFETY: the caller's promise. A function and a table leave one value, which is taken off.
    unsafe {
        charge(lua, kept_state(lua), CALL_WORK + (end - begin) / BYTES_PER_INSTRUCTION);
        match ffi::lua_type(lua, 3) {
            ffi::LUA_TFUNCTION => {
                ffi::lua_pushvalue(lua, 3);
                let count = push_captures(lua, matcher, text, (matcher.values(), (begin, end)));
                ffi::lua_call(lua, count, 1);
            }
            ffi::LUA_TTABLE => {
                push_capture(lua, matcher, text, (0, (begin, end)));
                ffi::lua_gettable_(lua, 3);
            }
            _ => return expand(lua, buffer, matcher, (text, begin, end)),
        }
        if ffi::lua_toboolean(lua, -1) == 0 {
            ffi::lua_pop(lua, 1);
            ffi::lua_pushlstring_(lua, text[begin..].as_ptr().cast(), end - begin);
        } else if ffi::lua_isstring(lua, -1) == 0 {
            ffi::luaL_error(
                lua,
                c"invalid replacement value (a %s)".as_ptr(),
                ffi::lua_typename(lua, ffi::lua_type(lua, -1)),
            );
        }
        buffer.add_top();
    }
}

/// Adds the third argument, a string, with captures in the places of their numbers.
///
/// # Safety
/// Only from [`gsub`].
unsafe fn expand(
    lua: *mut lua_State,
    buffer: &mut Buffer,
    matcher: &Matcher<'_, &State>,
    (text, begin, end): (&[u8], usize, usize),
) {
    // SAFETY: the caller's promise; the argument stays on the stack.
    unsafe {
        let mut rest = string_argument(lua, 3);
        charge(lua, kept_state(lua), rest.len() / BYTES_PER_INSTRUCTION);
        while let Some(at) = rest.iter().position(|byte| *byte == ESCAPE) {
            buffer.add(&rest[..at]);
            // One at the end stands before the zero byte that ends every string.
            let letter = rest.get(at + 1).copied().unwrap_or(0);
            match letter {
                b'0' => buffer.add(&text[begin..end]),
                b'1'..=b'9' => {
                    push_capture(lua, matcher, text, (usize::from(letter - b'1'), (begin, end)));
                    buffer.add_top();
                }
                letter => buffer.add(&[letter]),
            }
            rest = rest.get(at + 2..).unwrap_or_default();
        }
        buffer.add(rest);
    }
}

/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn rep(lua: *mut lua_State) -> c_int {
    let mut buffer = Buffer::new();
    // SAFETY: called by the interpreter, with the engine's state kept. The argument stays on the stack, below what the buffer has there.
    unsafe {
        let text = string_argument(lua, 1);
        let count = usize::try_from(int_argument(lua, 2)).unwrap_or(0);
        let bytes = text.len().saturating_mul(count);
        if bytes > STATE_BYTES_MAX {
            // It is refused, as any string of that length would be.
            ffi::lua_newuserdata(lua, 2 * STATE_BYTES_MAX);
        }
        buffer.begin(lua);
        charge(lua, kept_state(lua), bytes / BYTES_PER_INSTRUCTION);
        if bytes > 0 {
            repeat(&mut buffer, text, count);
        }
        buffer.end();
        1
    }
}

/// Adds a text so many times. Short ones are gathered first.
///
/// # Safety
/// As for [`Buffer::add`].
unsafe fn repeat(buffer: &mut Buffer, text: &[u8], count: usize) {
    let mut gathered = [0; 1024];
    let each = (gathered.len() / text.len()).max(1);
    let block = match gathered.get_mut(..each * text.len()) {
        Some(block) if each > 1 => {
            block.chunks_exact_mut(text.len()).for_each(|part| part.copy_from_slice(text));
            &*block
        }
        _ => text,
    };
    // SAFETY: the caller's promise.
    unsafe {
        (0..count / each).for_each(|_| buffer.add(block));
        (0..count % each).for_each(|_| buffer.add(text));
    }
}
