//! A JSON text as values on the interpreter's stack.

use super::push_bytes;
use crate::cjson::{Choices, Failed, Scanner, Token};
use mlua::ffi::{self, lua_State};
use std::ffi::c_int;
use std::ptr::null_mut;

type Result<T> = std::result::Result<T, Failed>;

/// Values that an object and an array put on the stack at once, as in the library that Redis has: room for them, of the 8,000
/// that one function may have, is what limits the depth besides the choices.
const OBJECT_VALUES: c_int = 3;
const ARRAY_VALUES: c_int = 2;

/// Levels at which values wait on the stack for a table of their number, and how many: one that grows is made anew each time that
/// it doubles. What scripts can see of a table, the order of its keys and where it ends, is as in one that grew.
const GATHER_DEPTH_MAX: i64 = 16;
const GATHERED_MAX: c_int = 16;

struct Decoder<'a, 'u> {
    lua: *mut lua_State,
    scanner: Scanner<'a, 'u>,
    depth: i64,
    depth_max: i64,
}

/// Pushes what a whole text stands for.
///
/// # Safety
/// As at the head of this folder. The text stays where it is.
pub(super) unsafe fn decode(
    lua: *mut lua_State,
    text: &[u8],
    choices: &Choices,
    unescaped: &mut Vec<u8>,
) -> Result<()> {
    // Text in UTF-16 or UTF-32 begins so.
    if let [0, _, ..] | [_, 0, ..] = text {
        return Err(Failed::Wide);
    }
    let allows_invalid = choices.decode_invalid.get();
    let scanner = Scanner { text, at: 0, token_at: 0, allows_invalid, unescaped };
    let mut decoder = Decoder { lua, scanner, depth: 0, depth_max: choices.decode_depth_max.get() };
    let token = decoder.scanner.token();
    // SAFETY: the caller's promise.
    unsafe { decoder.value(token)? };
    match decoder.scanner.token() {
        Token::End => Ok(()),
        other => Err(decoder.expected("the end", other)),
    }
}

impl<'a> Decoder<'a, '_> {
    #[cold]
    fn expected(&self, expected: &'static str, found: Token<'_>) -> Failed {
        Failed::Unexpected { expected, found: found.name(), at: self.scanner.token_at }
    }

    /// # Safety
    /// As for [`decode`].
    unsafe fn descend(&mut self, values: c_int) -> Result<()> {
        self.depth += 1;
        // SAFETY: the caller's promise; it is refused rather than more than one function may have.
        if self.depth > self.depth_max || unsafe { ffi::lua_checkstack(self.lua, values) } == 0 {
            return Err(Failed::TextTooDeep { depth: self.depth, at: self.scanner.at });
        }
        Ok(())
    }

    /// Pushes the value that begins with a word.
    ///
    /// # Safety
    /// As for [`decode`]; there is room for one value.
    #[inline]
    unsafe fn value(&mut self, token: Token<'_>) -> Result<()> {
        let lua = self.lua;
        // SAFETY: the caller's promise.
        unsafe {
            match token {
                Token::Plain(text) => push_bytes(lua, text),
                Token::Escaped => push_bytes(lua, self.scanner.unescaped),
                Token::Number(number) => ffi::lua_pushnumber(lua, number),
                Token::Bool(value) => ffi::lua_pushboolean(lua, c_int::from(value)),
                Token::Null => ffi::lua_pushlightuserdata(lua, null_mut()),
                Token::ObjectBegin => return self.object(),
                Token::ArrayBegin => return self.array(),
                other => return Err(self.expected("value", other)),
            }
        }
        Ok(())
    }

    /// # Safety
    /// As for [`decode`].
    unsafe fn object(&mut self) -> Result<()> {
        let lua = self.lua;
        let gathers = self.depth < GATHER_DEPTH_MAX;
        // SAFETY: the caller's promise; room is asked for first: for the first key and value between what will be the table
        // and the table, too.
        unsafe {
            self.descend(if gathers { OBJECT_VALUES + 1 } else { OBJECT_VALUES })?;
            let mut token = self.scanner.token();
            if matches!(token, Token::ObjectEnd) || !gathers {
                ffi::lua_createtable(lua, 0, 0);
            } else {
                ffi::lua_pushnil(lua);
                self.pair(token)?;
                token = self.behind_pair()?;
                // Of the first two pairs none lies elsewhere for having come to a table of one.
                let count = if matches!(token, Token::ObjectEnd) { 1 } else { 2 };
                ffi::lua_createtable(lua, 0, count);
                ffi::lua_replace(lua, -4);
                ffi::lua_rawset(lua, -3);
            }
            while !matches!(token, Token::ObjectEnd) {
                self.pair(token)?;
                ffi::lua_rawset(lua, -3);
                token = self.behind_pair()?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Pushes a key, which is this word, and its value.
    ///
    /// # Safety
    /// As for [`decode`]; there is room for two values.
    #[inline]
    unsafe fn pair(&mut self, key: Token<'_>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            match key {
                Token::Plain(key) => push_bytes(self.lua, key),
                Token::Escaped => push_bytes(self.lua, self.scanner.unescaped),
                other => return Err(self.expected("object key string", other)),
            }
            match self.scanner.token() {
                Token::Colon => {}
                other => return Err(self.expected("colon", other)),
            }
            let token = self.scanner.token();
            self.value(token)
        }
    }

    /// The word that the next pair begins with, or the end.
    #[inline]
    fn behind_pair(&mut self) -> Result<Token<'a>> {
        match self.scanner.token() {
            Token::ObjectEnd => Ok(Token::ObjectEnd),
            // An end behind a comma is a key that is none.
            Token::Comma => match self.scanner.token() {
                end @ Token::ObjectEnd => Err(self.expected("object key string", end)),
                token => Ok(token),
            },
            other => Err(self.expected("comma or object end", other)),
        }
    }

    /// # Safety
    /// As for [`decode`].
    unsafe fn array(&mut self) -> Result<()> {
        let lua = self.lua;
        let gathers = self.depth < GATHER_DEPTH_MAX;
        // SAFETY: the caller's promise; room is asked for first: for what will be the table, values, and the table, too.
        unsafe {
            self.descend(if gathers { GATHERED_MAX + 2 } else { ARRAY_VALUES })?;
            let mut token = self.scanner.token();
            let mut count = 0;
            if matches!(token, Token::ArrayEnd) || !gathers {
                ffi::lua_createtable(lua, 0, 0);
            } else {
                ffi::lua_pushnil(lua);
                while count < GATHERED_MAX && !matches!(token, Token::ArrayEnd) {
                    self.value(token)?;
                    count += 1;
                    token = self.behind_element()?;
                }
                ffi::lua_createtable(lua, (count as u32).next_power_of_two() as c_int, 0);
                ffi::lua_replace(lua, -count - 2);
                for index in (1..=count).rev() {
                    ffi::lua_rawseti_(lua, -index - 1, index);
                }
            }
            while !matches!(token, Token::ArrayEnd) {
                self.value(token)?;
                count += 1;
                ffi::lua_rawseti_(lua, -2, count);
                token = self.behind_element()?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// The word that the next element begins with, or the end.
    #[inline]
    fn behind_element(&mut self) -> Result<Token<'a>> {
        match self.scanner.token() {
            Token::ArrayEnd => Ok(Token::ArrayEnd),
            // An end behind a comma is a value that is none.
            Token::Comma => match self.scanner.token() {
                end @ Token::ArrayEnd => Err(self.expected("value", end)),
                token => Ok(token),
            },
            other => Err(self.expected("comma or array end", other)),
        }
    }
}
