//! One run of a compiled function: its words into tables, the call, and its value into a reply.

use super::outgoing::{Outgoing, Unfit};
use super::{Anchor, Anchors, bytes_at, push_bytes};
use crate::engine::{Fault, Kept, State};
use crate::library;
use mlua::ffi::{self, lua_State};
use mlua::{Function, Lua, Result};
use std::ffi::c_int;
use wire::{Reply, Request};

/// The state of the interpreter itself. Valid as long as the interpreter is.
#[derive(Clone, Copy)]
pub(crate) struct Raw(*mut lua_State);

impl Raw {
    pub fn of(lua: &Lua) -> Result<Raw> {
        let mut raw = Raw(std::ptr::null_mut());
        // SAFETY: the stack stays as it is.
        unsafe { lua.exec_raw::<()>((), |state| raw = Raw(state))? };
        Ok(raw)
    }
}

/// How a function gets its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// As the globals KEYS and ARGV, which others find, too.
    Globals,
    /// The same among globals that only such scripts find.
    Direct,
    /// In tables that are KEYS and ARGV again and again.
    Kept,
    /// As two arguments.
    Arguments,
}

/// A run.
pub(crate) struct Run<'a, 'o> {
    pub state: &'a State,
    /// Where the function lies in the table of what is compiled.
    pub function: c_int,
    pub takes: Takes,
    /// The request, the position of its first key, and the number of keys.
    pub words: (Request<'a>, usize, usize),
    pub reply: &'a mut Reply<'o>,
    pub ended: Ended,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With a value, which is the reply.
    Replied,
    /// With an error, noted in the state.
    Failed,
}

/// Runs it; what it left on the stack is gone.
///
/// # Panics
/// If the host does.
pub(crate) fn run(raw: Raw, run: &mut Run<'_, '_>) -> Ended {
    let lua = raw.0;
    let anchors = run.state.anchors();
    // SAFETY: the interpreter is alive, it belongs to this thread, and nothing of it runs, so its stack has room. What the call
    // gets is this function's own `run`, used by nobody else until the call ends.
    unsafe {
        let top = ffi::lua_gettop(lua);
        anchors.body.push(lua);
        ffi::lua_pushlightuserdata(lua, std::ptr::from_mut(run).cast());
        if ffi::lua_pcall(lua, 1, 0, 0) != 0 {
            note_error(lua, run.state);
            run.ended = Ended::Failed;
        }
        ffi::lua_settop(lua, top);
    }
    run.ended
}

/// The function that makes a run.
pub(super) fn body(lua: &Lua) -> Result<Function> {
    // SAFETY: it keeps no value, and is the only result.
    unsafe { lua.exec_raw((), |lua| ffi::lua_pushcclosure(lua, run_protected, 0)) }
}

/// # Safety
/// Only [`run`] may have it called.
unsafe extern "C-unwind" fn run_protected(lua: *mut lua_State) -> c_int {
    // SAFETY: its only value is the run, of whoever has it called. Nothing in this frame has to be dropped.
    unsafe {
        let run = &mut *ffi::lua_touserdata(lua, 1).cast::<Run<'_, '_>>();
        let anchors = run.state.anchors();
        ffi::lua_settop(lua, 0);
        anchors.fault.push(lua);
        anchors.functions.push(lua);
        ffi::lua_rawgeti_(lua, -1, run.function);
        ffi::lua_remove(lua, 2);
        let arguments = push_all_words(lua, anchors, run);
        library::begin(lua);
        if ffi::lua_pcall(lua, arguments, 1, 1) != 0 {
            note_error(lua, run.state);
            run.ended = Ended::Failed;
            return 0;
        }
        let begin = run.reply.mark();
        let protocol = run.state.protocol.get();
        let mut outgoing = Outgoing { lua, anchors, reply: run.reply, protocol, begin, too_deep: 0 };
        let message = match outgoing.value(0) {
            Ok(()) => return 0,
            Err(Unfit::TooDeep) => "reached lua stack limit",
            Err(Unfit::TooLarge) => "not enough memory",
        };
        run.reply.rollback(begin);
        push_bytes(lua, message.as_bytes());
        ffi::lua_error(lua)
    }
}

/// Gives the function its words; returns how many arguments it has on the stack.
///
/// # Safety
/// As at the head of this folder.
unsafe fn push_all_words(lua: *mut lua_State, anchors: &Anchors, run: &Run<'_, '_>) -> c_int {
    let (request, first, keys) = run.words;
    let (keys, arguments) = ((first, first + keys), (first + keys, request.len()));
    if run.takes != Takes::Arguments {
        run.state.words_bytes.set(bytes_of(request, first));
    }
    // SAFETY: the caller's promise.
    unsafe {
        match run.takes {
            Takes::Arguments => {
                if run.state.has_globals.replace(false) {
                    set_global(lua, anchors.globals, anchors.keys, || ffi::lua_pushnil(lua));
                    set_global(lua, anchors.globals, anchors.argv, || ffi::lua_pushnil(lua));
                }
                push_words(lua, request, keys);
                push_words(lua, request, arguments);
                2
            }
            Takes::Globals => {
                run.state.has_globals.set(true);
                set_global(lua, anchors.globals, anchors.keys, || push_words(lua, request, keys));
                set_global(lua, anchors.globals, anchors.argv, || push_words(lua, request, arguments));
                0
            }
            Takes::Direct => {
                set_global(lua, anchors.direct, anchors.keys, || push_words(lua, request, keys));
                set_global(lua, anchors.direct, anchors.argv, || push_words(lua, request, arguments));
                0
            }
            Takes::Kept => {
                let before = run.state.kept.get();
                let kept = Kept { keys: keys.1 - keys.0, arguments: arguments.1 - arguments.0 };
                // Where the interpreter has no room for a word the run ends, and this says what may be there.
                run.state.kept.set(before.max(kept));
                keep_words(lua, anchors.kept_keys, request, keys, before.keys);
                keep_words(lua, anchors.kept_arguments, request, arguments, before.arguments);
                run.state.kept.set(kept);
                0
            }
        }
    }
}

/// Bytes that a request's words from `first` on take at least, in tables.
fn bytes_of(request: Request<'_>, first: usize) -> usize {
    /// A place in a table.
    const VALUE_BYTES: usize = 16;
    (first..request.len()).map(|index| request.arg(index).len() + VALUE_BYTES).sum()
}

/// # Safety
/// As at the head of this folder; `push_value` pushes one value.
unsafe fn set_global(lua: *mut lua_State, globals: Anchor, name: Anchor, push_value: impl FnOnce()) {
    // SAFETY: the caller's promise.
    unsafe {
        globals.push(lua);
        name.push(lua);
        push_value();
        ffi::lua_rawset(lua, -3);
        ffi::lua_pop(lua, 1);
    }
}

/// Pushes a table of some words of a request.
///
/// # Safety
/// As at the head of this folder.
unsafe fn push_words(lua: *mut lua_State, request: Request<'_>, (from, to): (usize, usize)) {
    // SAFETY: the caller's promise.
    unsafe {
        ffi::lua_createtable(lua, (to - from) as c_int, 0);
        for index in from..to {
            push_bytes(lua, request.arg(index));
            ffi::lua_rawseti_(lua, -2, (index - from + 1) as c_int);
        }
    }
}

/// Puts some words of a request into a table in place of the `before` words that are there.
///
/// # Safety
/// As at the head of this folder.
unsafe fn keep_words(
    lua: *mut lua_State,
    table: Anchor,
    request: Request<'_>,
    (from, to): (usize, usize),
    before: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        table.push(lua);
        for index in from..to {
            push_bytes(lua, request.arg(index));
            ffi::lua_rawseti_(lua, -2, (index - from + 1) as c_int);
        }
        for index in to - from..before {
            ffi::lua_pushnil(lua);
            ffi::lua_rawseti_(lua, -2, (index + 1) as c_int);
        }
        ffi::lua_pop(lua, 1);
    }
}

/// Notes the error on top of the stack, unless the one who is told of errors did: it is not where memory ran out.
///
/// # Safety
/// There is a value on the stack.
unsafe fn note_error(lua: *mut lua_State, state: &State) {
    if state.fault.borrow().is_some() {
        return;
    }
    // SAFETY: the caller's promise; nothing here raises an error.
    let text: &[u8] = unsafe {
        match ffi::lua_type(lua, -1) {
            ffi::LUA_TSTRING => bytes_at(lua, -1),
            _ => b"execution failure",
        }
    };
    let message = [b"ERR ", text].concat();
    *state.fault.borrow_mut() = Some(Fault { message, place: None, is_counted: false });
}
