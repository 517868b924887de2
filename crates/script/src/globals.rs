//! Whether a compiled function assigns to globals, read from its dumped form.
//!
//! No script may, and the stand-in for the table of globals raises the error. One that never tries can have the table itself
//! as its environment: it finds every global with one look instead of two, and has no other way to that table.
//!
//! The form is that of Lua 5.1's `lua_dump` on a 64-bit machine, without debugging information.

/// The instruction that assigns to a global.
const SET_GLOBAL: u8 = 7;
const OPCODE_MASK: u8 = 0x3f;
/// Signature, version, format, byte order, and the sizes of int, size_t, instructions and numbers, which are floats.
const HEADER: &[u8] = b"\x1bLua\x51\x00\x01\x04\x08\x04\x08\x00";

/// Whether it does, in the function or one inside it; also for a form that cannot be read.
pub(crate) fn are_assigned(dump: &[u8]) -> bool {
    let Some(body) = dump.strip_prefix(HEADER) else { return true };
    Reader(body).function().unwrap_or(true)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn int(&mut self) -> Option<usize> {
        self.bytes(4)?.try_into().ok().map(|bytes| u32::from_le_bytes(bytes) as usize)
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        let length = u64::from_le_bytes(self.bytes(8)?.try_into().ok()?);
        self.bytes(usize::try_from(length).ok()?)
    }

    /// None: it cannot be read.
    fn function(&mut self) -> Option<bool> {
        self.string()?;
        // First and last line; upvalues, parameters, varargs, stack.
        self.bytes(4 + 4 + 4)?;
        let instructions = self.int()?;
        let code = self.bytes(instructions.checked_mul(4)?)?;
        let mut assigns = code.chunks_exact(4).any(|word| word[0] & OPCODE_MASK == SET_GLOBAL);
        for _ in 0..self.int()? {
            match self.bytes(1)? {
                [0] => {}
                [1] => drop(self.bytes(1)?),
                [3] => drop(self.bytes(8)?),
                [4] => drop(self.string()?),
                _ => return None,
            }
        }
        for _ in 0..self.int()? {
            assigns |= self.function()?;
        }
        let lines = self.int()?;
        self.bytes(lines.checked_mul(4)?)?;
        for _ in 0..self.int()? {
            self.string()?;
            self.bytes(4 + 4)?;
        }
        for _ in 0..self.int()? {
            self.string()?;
        }
        Some(assigns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlua::Lua;

    fn assigns(text: &str) -> bool {
        are_assigned(&Lua::new().load(text).into_function().unwrap().dump(true))
    }

    #[test]
    fn assignments_to_globals_are_seen_wherever_they_stand() {
        for text in [
            "x = 1",
            "local a = 1 a, x = 2, 3",
            "function f() end",
            "local function g() return function() x = nil end end",
            "for i = 1, 3 do if i == 2 then local s, n = 'a', 1.5 x = s .. n end end",
        ] {
            assert!(assigns(text), "{text}");
        }
    }

    #[test]
    fn other_assignments_are_not_taken_for_them() {
        for text in [
            "return 1",
            "local x = 1 x = 2",
            "KEYS.x = 1 redis.call = nil",
            "local t = {a = 1, ['b'] = true, 2.5, nil} t.x = t return x, y",
            "local up = 1 return function(a, ...) up = up + 1 return up, a, ... end",
        ] {
            assert!(!assigns(text), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_taken_for_one_that_does() {
        let whole = Lua::new().load("local a = 'text' return a, 1").into_function().unwrap().dump(true);
        assert!(!are_assigned(&whole));
        for length in 0..whole.len() {
            assert!(are_assigned(&whole[..length]), "{length} bytes");
        }
    }
}
