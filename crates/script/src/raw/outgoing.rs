//! What a script returned, from the interpreter's stack to a reply.

use super::{Anchor, Anchors, bytes_at};
use crate::arguments::{c_text, to_integer};
use crate::host;
use crate::limits::{OUTPUT_BYTES_MAX, REPLY_DEPTH_MAX, TOO_DEEP_MAX};
use mlua::ffi::{self, lua_State};
use std::ffi::c_int;
use wire::{Mark, Protocol, Reply};

/// Values that one level puts on the stack at once: a table, a key, a value and what is looked at.
const VALUES_PER_LEVEL: c_int = 6;

/// Why a value cannot be a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// Too many tables lie too deep.
    TooDeep,
    /// It is larger than the interpreter could hold.
    TooLarge,
}

type Result<T> = std::result::Result<T, Unfit>;

/// A reply in the making.
pub(super) struct Outgoing<'a, 'o> {
    pub lua: *mut lua_State,
    pub anchors: &'a Anchors,
    pub reply: &'a mut Reply<'o>,
    /// The protocol that the script chose: whether its booleans are ones.
    pub protocol: Protocol,
    /// Where the reply begins.
    pub begin: Mark,
    /// Tables that lie too deep.
    pub too_deep: usize,
}

impl Outgoing<'_, '_> {
    /// Writes the value on top of the stack, and takes it off. If that fails a part of it may have been written.
    ///
    /// # Safety
    /// As at the head of this folder.
    pub unsafe fn value(&mut self, depth: usize) -> Result<()> {
        let lua = self.lua;
        // SAFETY: the caller's promise.
        unsafe {
            match ffi::lua_type(lua, -1) {
                ffi::LUA_TSTRING => self.reply.bulk(bytes_at(lua, -1)),
                ffi::LUA_TNUMBER => self.reply.int(to_integer(ffi::lua_tonumber(lua, -1))),
                ffi::LUA_TBOOLEAN => match (self.protocol, ffi::lua_toboolean(lua, -1) != 0) {
                    (Protocol::Resp3, value) => self.reply.bool(value),
                    (Protocol::Resp2, true) => self.reply.int(1),
                    (Protocol::Resp2, false) => self.reply.null(),
                },
                ffi::LUA_TTABLE => self.table(depth)?,
                _ => self.reply.null(),
            }
            ffi::lua_pop(lua, 1);
        }
        Ok(())
    }

    /// Writes the table on top of the stack.
    ///
    /// # Safety
    /// As for [`Outgoing::value`].
    unsafe fn table(&mut self, depth: usize) -> Result<()> {
        let (lua, anchors) = (self.lua, self.anchors);
        if self.reply.since(self.begin).len() > OUTPUT_BYTES_MAX {
            return Err(Unfit::TooLarge);
        }
        // SAFETY: the caller's promise; room is asked for first.
        unsafe {
            if depth > REPLY_DEPTH_MAX || ffi::lua_checkstack(lua, VALUES_PER_LEVEL) == 0 {
                self.too_deep += 1;
                self.reply.error("ERR reached lua stack limit");
                return if self.too_deep > TOO_DEEP_MAX { Err(Unfit::TooDeep) } else { Ok(()) };
            }
            if self.has_field(anchors.err, ffi::LUA_TSTRING) {
                let line = c_text(bytes_at(lua, -1));
                self.reply.error(line);
                ffi::lua_pushvalue(lua, -2);
                let is_counted = self.has_field(anchors.ignore_stats, ffi::LUA_TBOOLEAN);
                ffi::lua_pop(lua, 1 + c_int::from(is_counted));
                host::with(|host| host.note_error(line, is_counted));
            } else if self.has_field(anchors.ok, ffi::LUA_TSTRING) {
                self.reply.simple(c_text(bytes_at(lua, -1)));
            } else if self.has_field(anchors.double, ffi::LUA_TNUMBER) {
                self.reply.double(ffi::lua_tonumber(lua, -1));
            } else if self.has_field(anchors.map, ffi::LUA_TTABLE) {
                self.map(depth)?;
            } else if self.has_field(anchors.set, ffi::LUA_TTABLE) {
                self.set(depth)?;
            } else if self.has_field(anchors.big_number, ffi::LUA_TSTRING) {
                let digits: Vec<u8> = bytes_at(lua, -1).iter().map(one_line).collect();
                self.reply.big_number(&digits);
            } else if self.has_field(anchors.verbatim_string, ffi::LUA_TTABLE) {
                self.verbatim(depth)?;
            } else {
                return self.array(depth);
            }
            ffi::lua_pop(lua, 1);
        }
        Ok(())
    }

    /// Pushes a field of the table on top of the stack if it is of this type.
    ///
    /// # Safety
    /// As for [`Outgoing::value`].
    unsafe fn has_field(&self, name: Anchor, wanted: c_int) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            name.push(self.lua);
            ffi::lua_rawget_(self.lua, -2);
            let is_there = ffi::lua_type(self.lua, -1) == wanted;
            if !is_there {
                ffi::lua_pop(self.lua, 1);
            }
            is_there
        }
    }

    /// Writes a string with its format, in the table on top of the stack; without both it is no such thing.
    ///
    /// # Safety
    /// As for [`Outgoing::value`].
    unsafe fn verbatim(&mut self, depth: usize) -> Result<()> {
        let (lua, anchors) = (self.lua, self.anchors);
        // SAFETY: the caller's promise.
        unsafe {
            if !self.has_field(anchors.format, ffi::LUA_TSTRING) {
                return self.outer_array(depth);
            }
            let format = bytes_at(lua, -1);
            ffi::lua_pushvalue(lua, -2);
            if !self.has_field(anchors.string, ffi::LUA_TSTRING) {
                ffi::lua_pop(lua, 2);
                return self.outer_array(depth);
            }
            let text = bytes_at(lua, -1);
            self.reply.verbatim(&String::from_utf8_lossy(format), text);
            ffi::lua_pop(lua, 3);
        }
        Ok(())
    }

    /// Writes the table below the one on top of the stack.
    ///
    /// # Safety
    /// As for [`Outgoing::value`].
    unsafe fn outer_array(&mut self, depth: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            ffi::lua_pushvalue(self.lua, -2);
            self.array(depth)?;
            ffi::lua_pop(self.lua, 1);
        }
        Ok(())
    }

    /// Elements up to the first nil.
    ///
    /// # Safety
    /// As for [`Outgoing::value`].
    unsafe fn array(&mut self, depth: usize) -> Result<()> {
        let deferred = self.reply.deferred_array();
        let mut count = 0;
        // SAFETY: the caller's promise.
        unsafe {
            loop {
                ffi::lua_rawgeti_(self.lua, -1, count + 1);
                if ffi::lua_type(self.lua, -1) == ffi::LUA_TNIL {
                    ffi::lua_pop(self.lua, 1);
                    break;
                }
                self.value(depth + 1)?;
                count += 1;
            }
        }
        self.reply.end(deferred, count as usize);
        Ok(())
    }

    /// # Safety
    /// As for [`Outgoing::value`].
    unsafe fn map(&mut self, depth: usize) -> Result<()> {
        let deferred = self.reply.deferred_map();
        let mut count = 0;
        // SAFETY: the caller's promise; nothing changes the table meanwhile.
        unsafe {
            ffi::lua_pushnil(self.lua);
            while ffi::lua_next(self.lua, -2) != 0 {
                count += 1;
                ffi::lua_pushvalue(self.lua, -2);
                self.value(depth + 1)?;
                self.value(depth + 1)?;
            }
        }
        self.reply.end(deferred, count);
        Ok(())
    }

    /// # Safety
    /// As for [`Outgoing::value`].
    unsafe fn set(&mut self, depth: usize) -> Result<()> {
        let deferred = self.reply.deferred_set();
        let mut count = 0;
        // SAFETY: the caller's promise; nothing changes the table meanwhile.
        unsafe {
            ffi::lua_pushnil(self.lua);
            while ffi::lua_next(self.lua, -2) != 0 {
                count += 1;
                ffi::lua_pop(self.lua, 1);
                ffi::lua_pushvalue(self.lua, -1);
                self.value(depth + 1)?;
            }
        }
        self.reply.end(deferred, count);
        Ok(())
    }
}

fn one_line(byte: &u8) -> u8 {
    if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }
}
