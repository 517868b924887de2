//! `redis.call` and `redis.pcall`: a request from the values on the stack, and its reply onto it.

use super::{bytes_at, incoming, push_error};
use crate::arguments::to_integer;
use crate::engine::{Buffers, State};
use crate::host::{self, Refusal};
use crate::limits::{BUFFER_BYTES_KEPT_MAX, OUTPUT_BYTES_MAX};
use mlua::ffi::{self, lua_State};
use mlua::{Function, LightUserData, Lua, Result};
use std::ffi::c_int;
use std::rc::Rc;
use wire::RequestBuf;

/// What becomes of an error of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errors {
    /// It is raised.
    Raised,
    /// It is returned as a table.
    Returned,
}

/// The function for scripts. `state` outlives the interpreter.
pub(crate) fn caller(lua: &Lua, state: &Rc<State>, errors: Errors) -> Result<Function> {
    let function = match errors {
        Errors::Raised => call,
        Errors::Returned => pcall,
    };
    let state = LightUserData(Rc::as_ptr(state).cast_mut().cast());
    // SAFETY: the pointer is alone on the stack and becomes the closure, the only result.
    unsafe { lua.exec_raw(state, |lua| ffi::lua_pushcclosure(lua, function, 1)) }
}

/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn call(lua: *mut lua_State) -> c_int {
    // SAFETY: the interpreter calls it.
    unsafe { call_with(lua, Errors::Raised) }
}

/// # Safety
/// Only the interpreter may call it.
unsafe extern "C-unwind" fn pcall(lua: *mut lua_State) -> c_int {
    // SAFETY: the interpreter calls it.
    unsafe { call_with(lua, Errors::Returned) }
}

/// What came back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// A reply, in the buffer.
    Reply,
    /// The command was not run; the buffer has the error line.
    Refused,
    /// The words are no request; the buffer has the error line.
    Unfit,
    /// The run has to begin again.
    Restart,
}

/// # Safety
/// Only from a function of C that the interpreter called, whose kept value is a [`State`].
unsafe fn call_with(lua: *mut lua_State, errors: Errors) -> c_int {
    // SAFETY: the state lives as long as the interpreter, and nothing of this frame is to be dropped once the answer is
    // there. The reply's bytes stay where they are while they are read: no other call is made meanwhile.
    unsafe {
        let state = &*ffi::lua_touserdata(lua, ffi::lua_upvalueindex(1)).cast::<State>();
        let answer = ask(lua, state);
        // The words were copied; there may have been thousands.
        ffi::lua_settop(lua, 0);
        let anchors = state.anchors();
        let reply: &[u8] = &(*state.buffers.as_ptr()).reply;
        match (answer, errors) {
            (Answer::Restart, _) => {
                anchors.restart.push(lua);
                ffi::lua_call(lua, 0, 0);
                return 0;
            }
            (Answer::Refused, _) => push_error(lua, anchors, reply, true),
            (Answer::Unfit, _) => push_error(lua, anchors, reply, false),
            (Answer::Reply, _) => incoming::push(lua, anchors, &mut &*reply),
        }
        let is_error = answer != Answer::Reply || reply.first() == Some(&b'-');
        // An error does not come back.
        state.buffers.borrow_mut().keep_small();
        if is_error && errors == Errors::Raised {
            ffi::lua_error(lua);
        }
        1
    }
}

/// Asks the host. No function of the interpreter that is used here raises an error.
///
/// # Safety
/// As for [`call_with`].
unsafe fn ask(lua: *mut lua_State, state: &State) -> Answer {
    let Buffers { request, reply } = &mut *state.buffers.borrow_mut();
    reply.clear();
    // SAFETY: the caller's promise.
    if let Err(line) = unsafe { read_words(lua, request) } {
        reply.extend_from_slice(line.as_bytes());
        return Answer::Unfit;
    }
    let protocol = state.protocol.get();
    let result = host::with(|host| host.call(request.as_request(), protocol, reply))
        .unwrap_or_else(|| Err(Refusal::Error(b"ERR redis.call is not available here".to_vec())));
    match result {
        // A script cannot wait for what comes later.
        Ok(()) if reply.is_empty() => {
            reply.extend_from_slice(b"ERR This Redis command is not allowed from script");
            Answer::Refused
        }
        Ok(()) => Answer::Reply,
        Err(Refusal::Restart) => Answer::Restart,
        Err(Refusal::Error(line)) => {
            *reply = line;
            Answer::Refused
        }
    }
}

/// # Safety
/// As for [`call_with`].
unsafe fn read_words(lua: *mut lua_State, request: &mut RequestBuf) -> std::result::Result<(), &'static str> {
    request.clear();
    // SAFETY: the caller's promise; the values stay on the stack.
    unsafe {
        let count = ffi::lua_gettop(lua);
        check_words(lua, count)?;
        for index in 1..=count {
            match ffi::lua_type(lua, index) {
                ffi::LUA_TNUMBER => push_number(request, ffi::lua_tonumber(lua, index)),
                _ => request.push(bytes_at(lua, index)),
            }
        }
    }
    Ok(())
}

/// Whether the first `count` values on the stack can be a request's words. Nothing is copied before that is sure: a string may be
/// there any number of times.
///
/// # Safety
/// As for [`call_with`].
unsafe fn check_words(lua: *mut lua_State, count: c_int) -> std::result::Result<(), &'static str> {
    if count == 0 {
        return Err("ERR Please specify at least one argument for this redis lib call");
    }
    let mut bytes = 0;
    for index in 1..=count {
        // SAFETY: the caller's promise.
        match unsafe { ffi::lua_type(lua, index) } {
            // SAFETY: the same.
            ffi::LUA_TSTRING => bytes += unsafe { ffi::lua_objlen(lua, index) },
            ffi::LUA_TNUMBER => {}
            _ => return Err("ERR Lua redis lib command arguments must be strings or integers"),
        }
        if bytes > OUTPUT_BYTES_MAX {
            return Err("ERR Lua redis lib command arguments are too large");
        }
    }
    Ok(())
}

/// A number as Redis 7.2 writes it: an integer if it is one, else the fewest digits that read back as the same.
pub(crate) fn push_number(request: &mut RequestBuf, number: f64) {
    /// Beyond, digits are told as of other floats.
    const WHOLE_MAX: u64 = 1 << 62;
    let whole = to_integer(number);
    if whole as f64 == number && whole.unsigned_abs() <= WHOLE_MAX {
        request.push(itoa::Buffer::new().format(whole).as_bytes());
    } else if number.is_nan() && number.is_sign_negative() {
        // 0/0 has the sign on most processors.
        request.push(b"-nan");
    } else {
        request.push(value::number::format_f64(number).as_bytes());
    }
}

impl Buffers {
    /// Gives up what is long.
    pub(crate) fn keep_small(&mut self) {
        if self.reply.capacity() > BUFFER_BYTES_KEPT_MAX {
            self.reply = Vec::new();
        }
        if self.request.allocated_bytes() > BUFFER_BYTES_KEPT_MAX {
            self.request = RequestBuf::new();
        }
    }
}
