//! What a compiled function does with globals, read from its dumped form.
//!
//! What scripts share stands behind stand-ins that refuse to be written, and each run gets new tables for KEYS and ARGV. Both cost
//! time in every run, and are for scripts that could do harm without. Most show that they cannot: they assign to no
//! global, and use libraries, KEYS and ARGV only to look something up in them at once, so that no reference to the table is left.
//!
//! The form is that of Lua 5.1's `lua_dump` on a 64-bit machine, without debugging information.

/// Instructions by their numbers.
const MOVE: u32 = 0;
const LOAD_CONSTANT: u32 = 1;
const GET_UPVALUE: u32 = 4;
const GET_GLOBAL: u32 = 5;
const GET_TABLE: u32 = 6;
const SET_GLOBAL: u32 = 7;
const ADD: u32 = 12;
const POWER: u32 = 17;
const NEGATE: u32 = 18;
const LENGTH: u32 = 20;
const CONCATENATE: u32 = 21;
const CALL: u32 = 28;
/// Signature, version, format, byte order, and the sizes of int, size_t, instructions and numbers, which are floats.
const HEADER: &[u8] = b"\x1bLua\x51\x00\x01\x04\x08\x04\x08\x00";
/// Tables whose functions scripts call.
pub(crate) const LIBRARIES: &[&str] =
    &["bit", "cjson", "cmsgpack", "math", "redis", "string", "struct", "table"];

/// What a function, or one inside it, does with globals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uses {
    /// It assigns to one.
    pub assigns: bool,
    /// It may hold a library as a value.
    pub holds_libraries: bool,
    /// It may hold KEYS or ARGV as a value.
    pub holds_words: bool,
}

impl Uses {
    /// Of what nothing is known.
    const ANY: Uses = Uses { assigns: true, holds_libraries: true, holds_words: true };

    /// Those of a dumped function; [`Uses::ANY`] for a form that cannot be read.
    pub fn of(dump: &[u8]) -> Uses {
        let mut uses = Uses::default();
        let Some(body) = dump.strip_prefix(HEADER) else { return Uses::ANY };
        Reader(body).function(&mut uses).map_or(Uses::ANY, |()| uses)
    }

    /// Looks at the use of a global.
    fn note(&mut self, name: &[u8], is_looked_up: bool) {
        match name {
            // By these a script reaches all globals.
            b"_G" | b"load" | b"loadstring" => *self = Uses::ANY,
            b"KEYS" | b"ARGV" => self.holds_words |= !is_looked_up,
            name if LIBRARIES.iter().any(|library| library.as_bytes() == name) => {
                self.holds_libraries |= !is_looked_up;
            }
            _ => {}
        }
    }
}

/// An instruction: its number, and its operands in their places.
#[derive(Clone, Copy)]
struct Instruction(u32);

impl Instruction {
    fn code(self) -> u32 {
        self.0 & 0x3f
    }

    fn a(self) -> u32 {
        self.0 >> 6 & 0xff
    }

    fn b(self) -> u32 {
        self.0 >> 23
    }

    fn c(self) -> u32 {
        self.0 >> 14 & 0x1ff
    }

    /// The constant that it names.
    fn constant(self) -> usize {
        (self.0 >> 14) as usize
    }

    /// Whether it takes the value of a register, looks something up in it or measures it, and puts the result in its place.
    fn replaces(self, register: u32) -> bool {
        matches!(self.code(), GET_TABLE | LENGTH) && self.a() == register && self.b() == register
    }

    /// Whether it works on other registers alone, all above this one where it names a range. What jumps does not.
    fn leaves_alone(self, register: u32) -> bool {
        let is_above = self.a() > register;
        match self.code() {
            LOAD_CONSTANT | GET_UPVALUE | GET_GLOBAL | CALL => is_above,
            MOVE | NEGATE..=LENGTH => is_above && self.b() != register,
            GET_TABLE | ADD..=POWER => is_above && self.b() != register && self.c() != register,
            CONCATENATE => is_above && self.b() > register,
            _ => false,
        }
    }
}

/// Whether the value that an instruction puts into a register is only there for something to be looked up in it.
fn is_looked_up(code: &[Instruction], at: usize) -> bool {
    let register = code[at].a();
    let user = code[at + 1..].iter().find(|next| !next.leaves_alone(register));
    user.is_some_and(|user| user.replaces(register))
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

    /// A string without the zero byte at its end.
    fn string(&mut self) -> Option<&'a [u8]> {
        let length = u64::from_le_bytes(self.bytes(8)?.try_into().ok()?);
        let text = self.bytes(usize::try_from(length).ok()?)?;
        Some(text.strip_suffix(b"\0").unwrap_or(text))
    }

    /// None: it cannot be read.
    fn function(&mut self, uses: &mut Uses) -> Option<()> {
        self.string()?;
        // First and last line; upvalues, parameters, varargs, stack.
        self.bytes(4 + 4 + 4)?;
        let instructions = self.int()?;
        let code = self.bytes(instructions.checked_mul(4)?)?;
        let constants = self.constants()?;
        let code: Vec<Instruction> = code
            .chunks_exact(4)
            .map(|word| Instruction(u32::from_le_bytes([word[0], word[1], word[2], word[3]])))
            .collect();
        for (at, instruction) in code.iter().enumerate() {
            match instruction.code() {
                SET_GLOBAL => uses.assigns = true,
                GET_GLOBAL => {
                    let name = (*constants.get(instruction.constant())?)?;
                    uses.note(name, is_looked_up(&code, at));
                }
                _ => {}
            }
        }
        for _ in 0..self.int()? {
            self.function(uses)?;
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
        Some(())
    }

    /// A function's constants; None for those that are no strings.
    fn constants(&mut self) -> Option<Vec<Option<&'a [u8]>>> {
        let count = self.int()?;
        let mut constants = Vec::new();
        for _ in 0..count {
            constants.push(match self.bytes(1)? {
                [0] => None,
                [1] => self.bytes(1).map(|_| None)?,
                [3] => self.bytes(8).map(|_| None)?,
                [4] => Some(self.string()?),
                _ => return None,
            });
        }
        Some(constants)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlua::Lua;

    fn uses(text: &str) -> Uses {
        Uses::of(&Lua::new().load(text).into_function().unwrap().dump(true))
    }

    #[test]
    fn assignments_to_globals_are_seen_wherever_they_stand() {
        for text in [
            "x = 1",
            "local a = 1 a, x = 2, 3",
            "function f() end",
            "local function g() return function() x = nil end end",
            "for i = 1, 3 do if i == 2 then local s, n = 'a', 1.5 x = s .. n end end",
            "KEYS = nil",
        ] {
            assert!(uses(text).assigns, "{text}");
        }
    }

    #[test]
    fn libraries_and_words_that_may_be_held_are_seen() {
        for text in [
            "local r = redis",
            "redis.call = nil",
            "return (x or string)",
            "local f = string and 1",
            "pairs(redis)",
            "local function f() return math end",
            "setmetatable(table, {})",
            "return {cjson}",
            "local n = 'call' return redis[n], bit",
        ] {
            assert!(uses(text).holds_libraries, "{text}");
        }
        for text in [
            "return KEYS",
            "return unpack(ARGV)",
            "KEYS[1] = 'x'",
            "for _, key in ipairs(KEYS) do end",
            "local keys = KEYS return keys[1]",
            "return function() return ARGV end",
            "return KEYS[x and 1 or KEYS]",
            "return f(KEYS)[1]",
            "return KEYS .. 'x'",
            "local t = {} t[KEYS] = KEYS[1]",
            "return ARGV[KEYS]",
        ] {
            assert!(uses(text).holds_words, "{text}");
        }
        for text in ["return _G", "loadstring('return KEYS')()", "load(f)", "_G.x = 1"] {
            assert_eq!(uses(text), Uses::ANY, "{text}");
        }
    }

    #[test]
    fn what_is_looked_up_at_once_is_not_held() {
        for text in [
            "return redis.call('SET', KEYS[1], ARGV[1])",
            "local a, b = KEYS[1], #ARGV for i = 1, #KEYS do redis.call('GET', KEYS[i], ARGV[i + 1]) end",
            "local x = 1 x = 2 local t = {a = 1, ['b'] = true, 2.5, nil} t.x = t return x, y",
            "local call = redis.call return call(cjson.decode(ARGV[1]).key)",
            "local up = 1 return function(a, ...) up = up + 1 return up, a, table.getn({...}) end",
            "return (x or KEYS)[1]",
            "return KEYS[#KEYS], ARGV[tonumber(ARGV[1]) * 2 + 1], ARGV[-f(x, 'y' .. x)]",
        ] {
            assert_eq!(uses(text), Uses::default(), "{text}");
        }
    }

    #[test]
    fn of_what_cannot_be_read_nothing_is_known() {
        let whole =
            Lua::new().load("local a = 'text' return a, 1, KEYS[1]").into_function().unwrap().dump(true);
        assert_eq!(Uses::of(&whole), Uses::default());
        for length in 0..whole.len() {
            assert_eq!(Uses::of(&whole[..length]), Uses::ANY, "{length} bytes");
        }
    }
}
