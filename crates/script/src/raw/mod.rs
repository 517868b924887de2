//! The path of a run and of each `redis.call`, by the interpreter's own functions.
//!
//! The library in front of the interpreter wraps each step in a protected call and keeps a reference to each value: safe, and several
//! times as long as a command takes. So what every run and every call does happens here, on the interpreter's stack. What
//! is done once, or goes wrong, is left to the library.
//!
//! Thread rule: that of the engine.
//!
//! Invariants:
//! 1. Everything here runs inside the protected call that [`run::run`] makes, so an error of the interpreter has somewhere to go.
//! 2. Such an error jumps over the frames of these functions: nothing in them has to be dropped while a function of the
//!    interpreter is called that may raise one. What owns memory lives in the engine's `State`, borrowed only between such functions.
//! 3. A function has room for 20 values when it begins; one that may need more asks for it first.
//! 4. Strings of the interpreter are read before anything is taken off its stack.

mod call;
mod incoming;
pub(crate) mod json;
mod outgoing;
pub(crate) mod run;

pub(crate) use call::{Errors, caller, push_number};

use crate::raise::{Raise, Stop};
use mlua::ffi::{self, lua_State};
use mlua::{Function, IntoLua, Lua, Result, Table, Value};
use std::borrow::Cow;
use std::ffi::{CString, c_int};

/// Values that are found again by number: names that tables have, and what runs need.
#[derive(Clone, Copy)]
pub(crate) struct Anchors {
    err: Anchor,
    ignore_stats: Anchor,
    ok: Anchor,
    ok_line: Anchor,
    double: Anchor,
    map: Anchor,
    set: Anchor,
    big_number: Anchor,
    verbatim_string: Anchor,
    string: Anchor,
    format: Anchor,
    keys: Anchor,
    argv: Anchor,
    /// Ends the run so that it begins again.
    restart: Anchor,
    globals: Anchor,
    direct: Anchor,
    kept_keys: Anchor,
    kept_arguments: Anchor,
    fault: Anchor,
    tick: Anchor,
    functions: Anchor,
    body: Anchor,
}

/// A value in the interpreter's registry.
#[derive(Clone, Copy)]
struct Anchor(c_int);

impl Anchor {
    fn of(lua: &Lua, value: impl IntoLua) -> Result<Anchor> {
        let mut number = 0;
        // SAFETY: the value is alone on the stack, and goes from there into the registry.
        unsafe {
            lua.exec_raw::<()>(value.into_lua(lua)?, |state| {
                number = ffi::luaL_ref(state, ffi::LUA_REGISTRYINDEX);
            })?;
        }
        Ok(Anchor(number))
    }

    /// Puts another value in its place.
    fn replace(self, lua: &Lua, value: impl IntoLua) -> Result<()> {
        // SAFETY: the value is alone on the stack, and goes from there to a place in the registry that is there already.
        unsafe {
            lua.exec_raw::<()>(value.into_lua(lua)?, |state| {
                ffi::lua_rawseti_(state, ffi::LUA_REGISTRYINDEX, self.0);
            })
        }
    }

    /// # Safety
    /// There is room for one value on the stack.
    #[inline]
    unsafe fn push(self, lua: *mut lua_State) {
        // SAFETY: the caller's promise; reading a table by number raises nothing.
        unsafe { ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, self.0) }
    }
}

impl Anchors {
    /// With the tables in which scripts find globals (behind stand-ins; all but KEYS and ARGV themselves; these, too), the
    /// functions that are told of errors and that ask the host, and the table of what is compiled.
    pub fn new(
        lua: &Lua,
        (globals, direct, kept): (&Table, &Table, &Table),
        (fault, tick): (&Function, &Function),
        functions: &Table,
    ) -> Result<Anchors> {
        let (keys, arguments) = new_words(lua, kept)?;
        let name = |name: &str| Anchor::of(lua, name);
        let restart = lua.create_function(|_, ()| Err::<(), _>(Raise::Stop(Stop::Restart).into()))?;
        Ok(Anchors {
            err: name("err")?,
            ignore_stats: name("ignore_error_stats_update")?,
            ok: name("ok")?,
            ok_line: name("OK")?,
            double: name("double")?,
            map: name("map")?,
            set: name("set")?,
            big_number: name("big_number")?,
            verbatim_string: name("verbatim_string")?,
            string: name("string")?,
            format: name("format")?,
            keys: name("KEYS")?,
            argv: name("ARGV")?,
            restart: Anchor::of(lua, restart)?,
            globals: Anchor::of(lua, globals)?,
            direct: Anchor::of(lua, direct)?,
            kept_keys: Anchor::of(lua, keys)?,
            kept_arguments: Anchor::of(lua, arguments)?,
            fault: Anchor::of(lua, fault)?,
            tick: Anchor::of(lua, tick)?,
            functions: Anchor::of(lua, functions)?,
            body: Anchor::of(lua, run::body(lua)?)?,
        })
    }
}

impl Anchors {
    /// Gives up the words of the last run, wherever scripts of any kind found them. The tables go as well: an emptied one keeps its
    /// size.
    pub fn drop_words(&self, lua: &Lua, (globals, direct, kept): (&Table, &Table, &Table)) -> Result<()> {
        for table in [globals, direct] {
            table.raw_set("KEYS", Value::Nil)?;
            table.raw_set("ARGV", Value::Nil)?;
        }
        let (keys, arguments) = new_words(lua, kept)?;
        self.kept_keys.replace(lua, keys)?;
        self.kept_arguments.replace(lua, arguments)
    }

    /// Pushes the function that asks the host whether the script goes on.
    ///
    /// # Safety
    /// There is room for one value on the stack.
    pub unsafe fn push_tick(&self, lua: *mut lua_State) {
        // SAFETY: the caller's promise.
        unsafe { self.tick.push(lua) }
    }
}

/// Makes new tables for those to be KEYS and ARGV who find their globals in `kept`.
fn new_words(lua: &Lua, kept: &Table) -> Result<(Table, Table)> {
    let (keys, arguments) = (lua.create_table()?, lua.create_table()?);
    kept.raw_set("KEYS", &keys)?;
    kept.raw_set("ARGV", &arguments)?;
    Ok((keys, arguments))
}

/// Pushes a table that stands for an error: of a command, or of the call itself, which the server has not counted.
///
/// # Safety
/// As at the head of this file; four values are pushed at the most.
unsafe fn push_error(lua: *mut lua_State, anchors: &Anchors, line: &[u8], is_counted: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        ffi::lua_createtable(lua, 0, 2);
        anchors.err.push(lua);
        push_bytes(lua, line);
        ffi::lua_rawset(lua, -3);
        if is_counted {
            anchors.ignore_stats.push(lua);
            ffi::lua_pushboolean(lua, 1);
            ffi::lua_rawset(lua, -3);
        }
    }
}

/// # Safety
/// As at the head of this file; one value is pushed.
#[inline]
unsafe fn push_bytes(lua: *mut lua_State, bytes: &[u8]) {
    // SAFETY: the caller's promise; the interpreter copies the bytes.
    unsafe { ffi::lua_pushlstring_(lua, bytes.as_ptr().cast(), bytes.len()) }
}

/// The bytes of a string on the stack.
///
/// # Safety
/// There is a string at `index`, which stays there for as long as its bytes are used.
#[inline]
unsafe fn bytes_at<'a>(lua: *mut lua_State, index: c_int) -> &'a [u8] {
    let mut length = 0;
    // SAFETY: the caller's promise; a string is given back as it is.
    unsafe {
        let bytes = ffi::lua_tolstring(lua, index, &raw mut length);
        std::slice::from_raw_parts(bytes.cast(), length)
    }
}

/// A function from a text, with this environment, or what the compiler says against it, in its own bytes: the library in front takes
/// messages for UTF-8, which a script need not be. `name` is the chunk's, which ends at its first byte 0.
///
/// # Errors
/// The interpreter's memory is full.
pub(crate) fn compile(
    lua: &Lua,
    text: &[u8],
    name: &[u8],
    environment: &Table,
) -> Result<std::result::Result<Function, Vec<u8>>> {
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = CString::new(name).expect("it ends in front of the first byte 0");
    let text = as_text(text);
    // SAFETY: the environment is alone on the stack; there is room for a function, or a message, behind it, and one of these is all
    // that stays. The text is no bytecode, and it and the name outlive the call. Nothing here raises an error: loading catches its own.
    let made = unsafe {
        lua.exec_raw::<Value>(environment, |lua| {
            let status = ffi::luaL_loadbuffer(lua, text.as_ptr().cast(), text.len(), name.as_ptr());
            if status == ffi::LUA_OK {
                ffi::lua_insert(lua, -2);
                ffi::lua_setfenv(lua, -2);
            } else {
                ffi::lua_remove(lua, -2);
            }
        })?
    };
    Ok(match made {
        Value::Function(function) => Ok(function),
        Value::String(message) => Err(message.as_bytes().to_vec()),
        _ => Err(Vec::new()),
    })
}

/// What was compiled before, as text that does not compile: a blank in front of its mark. The interpreter does not check such code.
fn as_text(text: &[u8]) -> Cow<'_, [u8]> {
    match text.first() {
        Some(b'\x1b') => Cow::Owned([b" ", text].concat()),
        _ => Cow::Borrowed(text),
    }
}
