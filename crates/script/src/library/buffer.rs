//! A string in the making, in the interpreter's own buffer: what it holds is the interpreter's, and goes with it if an error jumps.

use mlua::ffi::{self, lua_State, luaL_Buffer};
use std::mem::MaybeUninit;

/// The buffer. Some of it lies on the interpreter's stack: what is pushed has to be popped before it is added to.
pub(super) struct Buffer(MaybeUninit<luaL_Buffer>);

impl Buffer {
    /// Memory for one.
    pub fn new() -> Buffer {
        Buffer(MaybeUninit::uninit())
    }

    /// # Safety
    /// The first call, before all others, and from the function of the interpreter that all others come from. From here on the buffer
    /// stays where it is.
    pub unsafe fn begin(&mut self, lua: *mut lua_State) {
        // SAFETY: the caller's promise.
        unsafe { ffi::luaL_buffinit(lua, self.0.as_mut_ptr()) }
    }

    /// Adds bytes.
    ///
    /// # Safety
    /// As for [`Buffer::begin`], which was called.
    pub unsafe fn add(&mut self, mut bytes: &[u8]) {
        let buffer = self.0.as_mut_ptr();
        // SAFETY: the caller's promise; no more is copied than there is room for between where the buffer is filled to and its end.
        unsafe {
            while !bytes.is_empty() {
                let end = (&raw mut (*buffer).buffer).cast::<u8>().add(ffi::LUAL_BUFFERSIZE);
                let mut room = end.offset_from((*buffer).p.cast::<u8>()) as usize;
                if room == 0 {
                    ffi::luaL_prepbuffer(buffer);
                    room = ffi::LUAL_BUFFERSIZE;
                }
                let (part, rest) = bytes.split_at(room.min(bytes.len()));
                std::ptr::copy_nonoverlapping(part.as_ptr(), (*buffer).p.cast(), part.len());
                ffi::luaL_addsize(buffer, part.len());
                bytes = rest;
            }
        }
    }

    /// Adds the string, or number, on top of the stack, and takes it off.
    ///
    /// # Safety
    /// As for [`Buffer::add`].
    pub unsafe fn add_top(&mut self) {
        // SAFETY: the caller's promise.
        unsafe { ffi::luaL_addvalue(self.0.as_mut_ptr()) }
    }

    /// Pushes the string.
    ///
    /// # Safety
    /// As for [`Buffer::add`]; the last call.
    pub unsafe fn end(&mut self) {
        // SAFETY: the caller's promise.
        unsafe { ffi::luaL_pushresult(self.0.as_mut_ptr()) }
    }
}
